//! An alloc: one running instance of a task group.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id::{AllocId, CgroupPath, GroupName, JobId};
use super::job::Job;
use super::task::{TaskState, TaskStatus};
use super::units::Timestamp;

/// Nomad's client status, derived from the states of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllocState {
    Pending,
    Running,
    Complete,
    Failed,
}

impl AllocState {
    pub const ALL: [AllocState; 4] =
        [AllocState::Pending, AllocState::Running, AllocState::Complete, AllocState::Failed];
    pub fn as_str(self) -> &'static str {
        match self {
            AllocState::Pending => "pending",
            AllocState::Running => "running",
            AllocState::Complete => "complete",
            AllocState::Failed => "failed",
        }
    }
    /// Pure, first match wins: some task dead and failed, some running, some not dead yet, all dead.
    pub fn derive(tasks: &[Arc<TaskStatus>]) -> AllocState {
        let dead = |t: &&Arc<TaskStatus>| t.state == TaskState::Dead;
        if tasks.iter().any(|t| t.state == TaskState::Dead && t.failed) {
            AllocState::Failed
        } else if tasks.iter().any(|t| matches!(t.state, TaskState::Running | TaskState::Killing)) {
            AllocState::Running
        } else if tasks.iter().filter(dead).count() < tasks.len() {
            AllocState::Pending
        } else {
            AllocState::Complete
        }
    }
}

/// What somebody wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Desired {
    Run,
    Stop,
}

/// How an alloc is measured: `alloc_info{measured=...}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// By cgroups of its own.
    Cgroup,
    /// By adding up processes: no cgroup could be made.
    Process,
    /// Not at all (the mock driver has no processes).
    None,
}

impl Measured {
    pub fn as_str(self) -> &'static str {
        match self {
            Measured::Cgroup => "cgroup",
            Measured::Process => "process",
            Measured::None => "none",
        }
    }
}

/// An alloc as its owner publishes it: plain values, replaced as a whole at each change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocStatus {
    pub id: AllocId,
    pub job: Arc<Job>,
    pub group: GroupName,
    /// 0 .. count-1. `name` is Nomad's `job.group[index]`.
    pub index: u32,
    pub name: String,
    pub created_at: Timestamp,
    /// When the last task died; absent while one lives.
    pub finished_at: Option<Timestamp>,
    pub desired: Desired,
    pub state: AllocState,
    pub measured: Measured,
    /// The alloc's own parent cgroup.
    pub cgroup: Option<CgroupPath>,
    pub tasks: Vec<Arc<TaskStatus>>,
    /// Grows with each published change.
    pub generation: u64,
}

impl AllocStatus {
    pub fn workload(&self) -> &JobId {
        &self.job.id
    }
    pub fn is_terminal(&self) -> bool {
        self.tasks.iter().all(|t| t.state == TaskState::Dead)
    }
}
