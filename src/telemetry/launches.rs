//! What is counted of periodic jobs.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::registered::{counters, gauges};
use crate::model::id::JobId;
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static PERIODIC_NEXT_LAUNCH: MetricDesc = MetricDesc::gauge(
    "allostat_periodic_next_launch_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the next launch of a periodic job, in seconds of the Unix epoch.",
    &["workload"],
)
.absent_when("no periodic job is registered, or its schedule has ended")
.otlp("allostat.periodic.next_launch.timestamp", "s");

pub static PERIODIC_LAST_LAUNCH: MetricDesc = MetricDesc::gauge(
    "allostat_periodic_last_launch_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the last launch of a periodic job by this agent, in seconds of the Unix epoch.",
    &["workload"],
)
.absent_when("the agent has launched no periodic job since its start")
.otlp("allostat.periodic.last_launch.timestamp", "s");

pub static PERIODIC_LAUNCHES: MetricDesc = MetricDesc::counter(
    "allostat_periodic_launches_total",
    Unit::None,
    "Launches of a periodic job by outcome (launched, forced, skipped: a child runs, missed: agent down, failed).",
    &["workload", "outcome"],
)
.absent_when("no periodic job is registered")
.otlp("allostat.periodic.launches", "{launch}");
}

words! {
    /// What became of a due launch.
    pub enum LaunchOutcome {
        Launched = "launched",
        /// On request, whatever was due.
        Forced = "forced",
        /// A child runs, and `prohibit_overlap` is set.
        Skipped = "skipped",
        /// More than one time was due: counted once, whatever the number.
        Missed = "missed",
        /// The state database refused it; it is retried.
        Failed = "failed",
    }
}

/// Concurrency: any thread.
pub struct Launches {
    next: IntGaugeVec,
    last: IntGaugeVec,
    total: IntCounterVec,
}

impl Launches {
    pub(super) fn new(registry: &Registry) -> Launches {
        Launches {
            next: gauges(registry, &PERIODIC_NEXT_LAUNCH),
            last: gauges(registry, &PERIODIC_LAST_LAUNCH),
            total: counters(registry, &PERIODIC_LAUNCHES),
        }
    }

    /// Counted from 0.
    pub fn known(&self, workload: &JobId) {
        for outcome in LaunchOutcome::ALL {
            self.total.with_label_values(&[workload.as_str(), outcome.as_str()]);
        }
    }
    /// The job is registered no more.
    pub fn retired(&self, workload: &JobId) {
        // Absent already: so much the better.
        let _ = self.next.remove_label_values(&[workload.as_str()]);
        let _ = self.last.remove_label_values(&[workload.as_str()]);
        for outcome in LaunchOutcome::ALL {
            let _ = self.total.remove_label_values(&[workload.as_str(), outcome.as_str()]);
        }
    }
    /// `None`: never.
    pub fn next(&self, workload: &JobId, second: Option<u64>) {
        match second.and_then(|second| i64::try_from(second).ok()) {
            Some(second) => self.next.with_label_values(&[workload.as_str()]).set(second),
            None => drop(self.next.remove_label_values(&[workload.as_str()])),
        }
    }
    /// `at`: of a launch that was made.
    pub fn decided(&self, workload: &JobId, outcome: LaunchOutcome, at: u64) {
        self.total.with_label_values(&[workload.as_str(), outcome.as_str()]).inc();
        if matches!(outcome, LaunchOutcome::Launched | LaunchOutcome::Forced) {
            self.last.with_label_values(&[workload.as_str()]).set(i64::try_from(at).unwrap_or(i64::MAX));
        }
    }
    pub fn count(&self, workload: &str, outcome: LaunchOutcome) -> u64 {
        self.total.with_label_values(&[workload, outcome.as_str()]).get()
    }
}
