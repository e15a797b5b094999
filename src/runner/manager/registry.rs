//! The set of periodic and parameterized jobs, each with its schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::jobspec::cron::CronSchedule;
use crate::model::id::JobId;
use crate::runner::persistence::record::ParentRecord;
use crate::telemetry::lock;

/// Concurrency: any thread reads; writers hold the ledger.
#[derive(Default)]
pub struct ParentJobs {
    known: Mutex<BTreeMap<JobId, ParentJob>>,
    /// A job was registered or stopped.
    pub changed: Notify,
}

#[derive(Clone)]
pub struct ParentJob {
    pub record: Arc<ParentRecord>,
    /// `None`: it is not launched by the clock.
    pub schedule: Option<Arc<CronSchedule>>,
}

impl ParentJob {
    /// An invalid schedule was refused when the job was submitted.
    pub fn new(record: ParentRecord) -> ParentJob {
        let of = record.job.clock().map(|clock| CronSchedule::parse(&clock.crons, &clock.time_zone));
        let schedule = of.and_then(|schedule| {
            let job = &record.job.id;
            let failed = |error: &String| {
                tracing::error!(%job, error, "invalid schedule; the periodic job is not launched");
            };
            schedule.inspect_err(failed).ok().map(Arc::new)
        });
        ParentJob { record: Arc::new(record), schedule }
    }
    pub fn next(&self) -> Option<u64> {
        self.schedule.as_ref()?.next_after(self.record.decided)
    }
}

impl ParentJobs {
    pub fn get(&self, id: &str) -> Option<ParentJob> {
        lock(&self.known).get(id).cloned()
    }
    pub fn all(&self) -> Vec<ParentJob> {
        lock(&self.known).values().cloned().collect()
    }
    pub fn workloads(&self) -> BTreeSet<JobId> {
        lock(&self.known).values().map(|parent| parent.record.job.workload().clone()).collect()
    }
    pub fn put(&self, record: ParentRecord) {
        let parent = ParentJob::new(record);
        lock(&self.known).insert(parent.record.job.id.clone(), parent);
    }
    /// Updates the record; the job is unchanged.
    pub fn advance(&self, id: &JobId, record: ParentRecord) {
        if let Some(parent) = lock(&self.known).get_mut(id) {
            parent.record = Arc::new(record);
        }
    }
    pub fn remove(&self, id: &JobId) {
        lock(&self.known).remove(id);
    }
}
