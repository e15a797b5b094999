//! The last update of each job that had one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::model::id::JobId;
use crate::runner::persistence::update::UpdateRecord;
use crate::telemetry::lock;

/// The last update of each job. Concurrency: any thread reads; writers hold the ledger.
#[derive(Default)]
pub(super) struct Updates(Mutex<BTreeMap<JobId, Arc<UpdateRecord>>>);

impl Updates {
    pub fn get(&self, id: &JobId) -> Option<Arc<UpdateRecord>> {
        lock(&self.0).get(id).cloned()
    }
    pub fn all(&self) -> Vec<Arc<UpdateRecord>> {
        lock(&self.0).values().cloned().collect()
    }
    pub fn put(&self, record: UpdateRecord) {
        lock(&self.0).insert(record.job.id.clone(), Arc::new(record));
    }
    pub fn remove(&self, id: &JobId) {
        lock(&self.0).remove(id);
    }
}
