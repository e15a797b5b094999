//! `/v1/node`: this host: what it is, what can be measured, what runs and ran on it. The rest of that answer is the
//! runner's.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::host::{self, HostUse, OwnCost};
use super::{by, restarts};
use crate::collectors::capability::KERNEL_ENDS;
use crate::model::alloc::{AllocSource, AllocState};
use crate::model::host::NodeInfo;
use crate::model::id::{JobId, TaskName};
use crate::model::task::{Outcome, RestartReason, TaskState};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::snapshot::Snapshot;
use crate::snapshot::agent::{NEEDED_FILES, OPEN_FILES, OPEN_FILES_LIMIT};

/// What a snapshot knows of this host and this agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodeSummary {
    #[serde(flatten)]
    pub info: NodeInfo,
    /// Number of the tick.
    pub epoch: u64,
    pub taken_at: Timestamp,
    pub usage: HostUse,
    pub agent: OwnCost,
    /// Kernel files that the agent keeps open.
    #[serde(rename = "kept_files", skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Managed allocs by status.
    pub allocs: BTreeMap<&'static str, u64>,
    /// Managed tasks by state.
    pub tasks: BTreeMap<&'static str, u64>,
    /// What the managed tasks that run have reserved.
    pub allocated: Allocated,
    pub totals: LifetimeTotals,
    /// Totals of each workload and task, live and ended together.
    pub workloads: Vec<WorkloadAnswer>,
}

/// Kernel files that the agent keeps open.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OpenFiles {
    #[serde(rename = "kept")]
    pub open: u64,
    #[serde(rename = "wanted")]
    pub needed: u64,
    pub limit: u64,
}

/// What managed tasks have reserved.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Allocated {
    pub memory_bytes: u64,
    pub cpu_cores: f64,
}

/// Counts over the lifetime of the agent's data directory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LifetimeTotals {
    pub allocs: u64,
    /// Exits by outcome.
    pub task_exits: BTreeMap<&'static str, u64>,
    /// Restarts by reason.
    pub task_restarts: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_oom_kills: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usage_ns: Option<Nanos>,
}

/// Totals of one task of a workload.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WorkloadAnswer {
    pub workload: JobId,
    /// Absent for totals that an earlier version of the agent recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<AllocSource>,
    pub task: TaskName,
    pub usage: Usage,
    /// Exits by outcome.
    pub exits: BTreeMap<&'static str, u64>,
    /// Restarts by reason.
    pub restarts: BTreeMap<&'static str, u64>,
}

pub fn node(snapshot: &Snapshot) -> NodeSummary {
    let files = [&OPEN_FILES, &NEEDED_FILES, &OPEN_FILES_LIMIT].map(|desc| snapshot.agent.int(desc));
    let open_files = match files {
        [Some(retained), Some(requested), Some(limit)] => Some(OpenFiles { open: retained, needed: requested, limit }),
        _ => None,
    };
    let node = &snapshot.node;
    NodeSummary {
        info: (*snapshot.info).clone(),
        epoch: snapshot.epoch,
        taken_at: snapshot.taken_at,
        usage: host::usage(snapshot),
        agent: host::agent(snapshot),
        open_files,
        allocs: by(AllocState::ALL.map(AllocState::as_str), snapshot.counts.allocs),
        tasks: by(TaskState::ALL.map(TaskState::as_str), snapshot.counts.tasks),
        allocated: Allocated {
            memory_bytes: snapshot.counts.allocated_memory_bytes,
            cpu_cores: snapshot.counts.allocated_cpu_cores,
        },
        totals: LifetimeTotals {
            allocs: node.allocs,
            task_exits: by(Outcome::ALL.map(Outcome::as_str), node.exits),
            task_restarts: by(RestartReason::ALL.map(RestartReason::as_str), node.restarts),
            task_oom_kills: node.oom_kills,
            cpu_usage_ns: node.cpu_usage_ns.map(Nanos),
        },
        workloads: workloads(snapshot),
    }
}

fn workloads(snapshot: &Snapshot) -> Vec<WorkloadAnswer> {
    let each = snapshot.workloads.iter().map(|w| WorkloadAnswer {
        workload: w.workload.clone(),
        source: w.source,
        task: w.task.clone(),
        usage: w.usage.clone(),
        exits: by(Outcome::ALL.map(Outcome::as_str), w.ended.exits),
        restarts: restarts(&w.restarts(snapshot.info.can(KERNEL_ENDS))),
    });
    each.collect()
}
