//! The cgroups of allocs: their interface, and its implementation on this host.

use std::sync::Arc;
use std::time::Duration;

use crate::collectors::{SamplingContext, TaskReader, read_final, stored_peak};
use crate::host::cgroup::{self, Cgroup};
use crate::model::id::CgroupPath;
use crate::model::usage::{Field, Usage};
use crate::telemetry::chain;

/// The kernel releases a cgroup's last process a moment after it was reaped.
const PATIENCE: Duration = Duration::from_millis(200);

/// The cgroups of allocs, parents of their tasks' cgroups. Every method is idempotent.
pub trait AllocCgroups: Send + Sync {
    /// Creates it, with its parents, in every hierarchy.
    fn create(&self, path: &CgroupPath) -> Result<(), String>;
    fn exists(&self, path: &CgroupPath) -> bool;
    fn reader(&self, path: &CgroupPath) -> TaskReader;
    /// The counters of a task's cgroup, read once. Empty if it does not exist.
    fn counted(&self, task: &CgroupPath) -> Usage;
    /// Cores that a task can reserve. Empty: no cpuset controller for tasks.
    fn cores(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Removes it (not its parents) if it has no processes and no children.
    fn remove(&self, path: &CgroupPath) -> Result<(), String>;
}

pub struct HostCgroups {
    sampling: Arc<SamplingContext>,
}

impl HostCgroups {
    pub fn new(sampling: Arc<SamplingContext>) -> HostCgroups {
        HostCgroups { sampling }
    }
    fn at(&self, path: &CgroupPath) -> Cgroup {
        Cgroup::at(&self.sampling.layout, path)
    }
}

impl AllocCgroups for HostCgroups {
    fn create(&self, path: &CgroupPath) -> Result<(), String> {
        self.at(path).create().map_err(|e| chain(&e))
    }
    fn exists(&self, path: &CgroupPath) -> bool {
        self.at(path).exists()
    }
    fn reader(&self, path: &CgroupPath) -> TaskReader {
        TaskReader::for_alloc_cgroup(&self.sampling, path.clone())
    }
    fn counted(&self, task: &CgroupPath) -> Usage {
        let (mut usage, problems) = read_final(&self.sampling.layout, task);
        usage.set(Field::memory_peak_bytes, usage.memory_peak_bytes().max(stored_peak(&self.sampling.layout, task)));
        if !problems.is_empty() {
            tracing::warn!(
                cgroup = %task,
                problems = problems.join("; "),
                "failed to read the last sample of a lost task"
            );
        }
        usage
    }
    fn cores(&self) -> Vec<u32> {
        cgroup::cores(&self.sampling.layout)
    }
    fn remove(&self, path: &CgroupPath) -> Result<(), String> {
        self.at(path)
            .with_devices(&self.sampling.layout)
            .with_cpuset(&self.sampling.layout)
            .remove(PATIENCE)
            .map_err(|e| chain(&e))
    }
}
