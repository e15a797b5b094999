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
    /// Removes it (not its parents) if it has no processes and no children. Includes hierarchies in which a container
    /// runtime created it: an agent may die while its driver removes one after the other.
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
        let layout = &self.sampling.layout;
        self.at(path).with_cpuset(layout).everywhere(layout).remove(PATIENCE).map_err(|e| chain(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::FdBudget;
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;

    /// An agent that died while its Docker driver removed a cgroup left it in the hierarchy of systemd.
    #[test]
    fn removed_cgroup_is_in_no_hierarchy_that_container_runtimes_use() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        std::fs::create_dir_all(roots.proc("self")).unwrap();
        let mut mounts = String::new();
        for (at, options) in ["memory", "cpuset", "devices", "name=systemd"].iter().enumerate() {
            std::fs::create_dir_all(roots.sys.join(format!("fs/cgroup/{at}/allostat/a/main"))).unwrap();
            mounts += &format!("{at} 1 0:{at} / /sys/fs/cgroup/{at} rw - cgroup cgroup {options}\n");
        }
        std::fs::write(roots.proc("self/mountinfo"), mounts).unwrap();
        let layout = Layout::detect(&roots).unwrap();
        assert_eq!(layout.hierarchies().len(), 4);
        let cgroups = HostCgroups::new(SamplingContext::new(roots, layout, FdBudget::of(0)));
        for path in ["/allostat/a/main", "/allostat/a"] {
            cgroups.remove(&CgroupPath::new(path)).unwrap();
        }
        for at in 0..4 {
            let left = std::fs::read_dir(dir.path().join(format!("sys/fs/cgroup/{at}/allostat"))).unwrap().count();
            assert_eq!(left, 0, "hierarchy {at}");
        }
    }
}
