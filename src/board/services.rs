//! The services of managed allocs: which instances run, how their checks are, whether the alloc is healthy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::model::id::{AllocId, GroupName, JobId, TaskName};
use crate::model::service::{CheckStatus, ServiceProvider};
use crate::model::units::{Nanos, Timestamp};
use crate::model::words;
use crate::telemetry::lock;

words! {
    /// Whether a new alloc has come up: decided once, by the `update` of its group.
    pub enum AllocHealth {
        /// Not decided yet.
        Pending = "pending",
        Healthy = "healthy",
        Unhealthy = "unhealthy",
        /// Not requested: no `update`, or `health_check = "manual"`.
        Unchecked = "unchecked",
    }
}

/// What is known of the services of one alloc. Replaced as a whole with each change.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocServices {
    pub alloc_id: AllocId,
    /// `job.group[index]`
    pub alloc_name: String,
    pub job: JobId,
    pub group: GroupName,
    pub health: AllocHealth,
    /// Why it is unhealthy, or not healthy yet; empty: there is nothing to say.
    pub health_reason: String,
    /// Those that run, in the order of the job file.
    pub instances: Vec<Arc<ServiceInstance>>,
    /// All checks of its job file, those that do not run now too.
    pub checks: Vec<Arc<CheckView>>,
}

/// A service of an alloc that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInstance {
    pub name: String,
    pub provider: ServiceProvider,
    /// `None`: it is the group's.
    pub task: Option<TaskName>,
    /// An IP address or a host name.
    pub address: String,
    pub port: Option<u16>,
    pub tags: Vec<String>,
    pub meta: BTreeMap<String, String>,
    /// The worst of its checks; `None`: it has none.
    pub status: Option<CheckStatus>,
}

/// One check, and what it said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckView {
    pub service: String,
    pub name: String,
    pub kind: &'static str,
    pub task: Option<TaskName>,
    pub status: CheckStatus,
    pub status_since: Timestamp,
    /// Its task runs, so it does.
    pub is_active: bool,
    /// Of the last run, cut to some hundred characters. A server may have written it.
    pub output: String,
    /// `None`: it has not run yet.
    pub last_run: Option<CheckRun>,
    /// Runs that did not pass.
    pub failures: u64,
    pub runs: u64,
    /// Restarts of tasks that it asked for.
    pub restarts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckRun {
    pub at: Timestamp,
    pub took: Nanos,
}

/// Concurrency: any thread; a short lock.
#[derive(Debug, Default)]
pub struct ServiceBoard {
    allocs: Mutex<BTreeMap<AllocId, Arc<AllocServices>>>,
}

impl ServiceBoard {
    pub fn publish(&self, services: AllocServices) {
        lock(&self.allocs).insert(services.alloc_id.clone(), Arc::new(services));
    }
    /// Its alloc has ended.
    pub fn remove(&self, alloc: &AllocId) {
        lock(&self.allocs).remove(alloc);
    }
    pub fn get(&self, alloc: &AllocId) -> Option<Arc<AllocServices>> {
        lock(&self.allocs).get(alloc).cloned()
    }
    /// In the order of their IDs.
    pub fn all(&self) -> Arc<[Arc<AllocServices>]> {
        lock(&self.allocs).values().cloned().collect()
    }
}
