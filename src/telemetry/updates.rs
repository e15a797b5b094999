//! What is counted of updates of jobs.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::registered::{counters, gauges};
use crate::model::id::JobId;
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::update::UpdateState;

families! {
pub static JOB_UPDATE_RUNNING: MetricDesc = MetricDesc::gauge(
    "allostat_job_update_running",
    Unit::None,
    "1 while an update of a job replaces its allocs.",
    &["workload"],
)
.absent_when("no job with an update stanza was submitted")
.otlp("allostat.job.update.running", "1");

pub static JOB_UPDATES: MetricDesc = MetricDesc::counter(
    "allostat_job_updates_total",
    Unit::None,
    "Updates of a job that ended, by outcome (successful, failed, cancelled: stopped or submitted again).",
    &["workload", "outcome"],
)
.absent_when("no job with an update stanza was submitted")
.otlp("allostat.job.updates", "{update}");
}

const ENDS: [UpdateState; 3] = [UpdateState::Successful, UpdateState::Failed, UpdateState::Cancelled];

/// Concurrency: any thread.
pub struct JobUpdates {
    running: IntGaugeVec,
    total: IntCounterVec,
}

impl JobUpdates {
    pub(super) fn new(registry: &Registry) -> JobUpdates {
        JobUpdates { running: gauges(registry, &JOB_UPDATE_RUNNING), total: counters(registry, &JOB_UPDATES) }
    }

    /// Counted from 0.
    pub fn known(&self, workload: &JobId) {
        for outcome in ENDS {
            self.total.with_label_values(&[workload.as_str(), outcome.as_str()]);
        }
    }
    pub fn runs(&self, workload: &JobId, runs: bool) {
        self.running.with_label_values(&[workload.as_str()]).set(i64::from(runs));
    }
    pub fn ended(&self, workload: &JobId, outcome: UpdateState) {
        self.total.with_label_values(&[workload.as_str(), outcome.as_str()]).inc();
    }
    /// The job has no allocs any more.
    pub fn retired(&self, workload: &JobId) {
        // Absent already: so much the better.
        let _ = self.running.remove_label_values(&[workload.as_str()]);
        for outcome in ENDS {
            let _ = self.total.remove_label_values(&[workload.as_str(), outcome.as_str()]);
        }
    }
    pub fn count(&self, workload: &str, outcome: UpdateState) -> u64 {
        self.total.with_label_values(&[workload, outcome.as_str()]).get()
    }
}
