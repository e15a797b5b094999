//! What the runner is told of its limits and budgets.

use std::time::Duration;

use super::decide::limits::GcConfig;
use crate::model::id::CgroupPath;

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The cgroup in which all allocs of this agent have theirs.
    pub cgroup_parent: CgroupPath,
    pub gc: GcConfig,
    /// How long after the end of its last alloc a workload's totals go into the node's.
    pub retire_after: Duration,
    /// How long a task may live on after it was killed by force before it is given up.
    pub kill_budget: Duration,
    /// How long a driver may take to start a task before that is given up: it may have to fetch much first.
    pub start_budget: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cgroup_parent: CgroupPath::from("/allostat"),
            gc: GcConfig::default(),
            retire_after: Duration::from_secs(24 * 3600),
            kill_budget: Duration::from_secs(30),
            start_budget: Duration::from_secs(300),
        }
    }
}
