//! The records of jobs, allocs, tasks and totals: JSON under the keys of `store`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::alloc::Desired;
use crate::model::id::{AllocId, CgroupPath, GroupName, JobId, TaskName};
use crate::model::job::Job;
use crate::model::migration::MigrationSource;
use crate::model::network::{AllocNetwork, AllocPort};
use crate::model::task::{Exit, LostOutput, Outcome, RestartReason, TaskHandle, TaskStatus};
use crate::model::totals::{NodeTotals, TaskTotals};
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::model::usage::Usage;
use crate::runner::decide::coordinator::Cause;
use crate::runner::decide::reschedule::RescheduleTracker;
use crate::runner::decide::restart::RestartTracker;
use crate::runner::persistence::outputs::LogEnd;
use crate::store::Batch;

/// The schema that this agent reads and writes: older ones were upgraded when the store was opened.
pub use crate::store::{SCHEMA, VERSION_KEY};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub job: Job,
    pub version: u64,
}

/// A periodic or parameterized job, until it is stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParentRecord {
    pub job: Job,
    /// Each due time up to this second of the Unix epoch was launched, skipped or missed.
    pub decided: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_launch: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocRecord {
    pub id: AllocId,
    pub job: JobId,
    pub version: u64,
    pub group: GroupName,
    pub index: u32,
    /// Increases with each alloc: the order of creation, whatever the clock does.
    pub serial: u64,
    pub created_at: Timestamp,
    /// The same on the timeline; absent in records of agents that had wall-clock time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Steady>,
    pub desired: Desired,
    /// It starts when these have ended.
    pub waits_for: Vec<AllocId>,
    /// Its own parent cgroup, created with its first task. `None`: it has none.
    pub cgroup: Option<CgroupPath>,
    pub finished: Option<Box<FinishRecord>>,
    /// Reserved before its first task, and held to its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<AllocPort>,
    /// The network namespace that was created for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<NetworkRecord>>,
    /// When its stop was requested.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "stop_asked_at")]
    pub stop_requested_at: Option<Steady>,
    /// Its `max_run_duration` is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// All its tasks are being restarted, and some have not ended yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// When the restart was requested.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "again_asked_at")]
    pub again_requested_at: Option<Steady>,
    /// Why its setup failed. Its tasks fail without a start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_setup: Option<String>,
    /// Whether it became healthy in time, by the `update` of its group. `None`: not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Reserved cores of its tasks, in the order of its group. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<EarlierValues>>,
    /// The replacements before it. `None`: created by an agent without rescheduling; if it has ended, it is not
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule: Option<Box<RescheduleTracker>>,
    /// Whether an event reported that it is or is not rescheduled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reschedule_reported: bool,
    /// The alloc that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<AllocId>,
    /// The alloc that replaced it, after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AllocId>,
    /// The allocs whose data it takes over before its first task, newest first. Empty: none, or it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_from: Vec<AllocId>,
    /// The alloc of another agent whose data it takes over before its first task; `None`: none, or that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate_from: Option<MigrationSource>,
}

/// A network namespace, and what is needed to remove it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    pub network: AllocNetwork,
    /// `None`: without plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<CniRecord>,
}

/// How plugins connected it: they disconnect it with the same input, whatever the configuration is by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CniRecord {
    pub list: serde_json::Value,
    pub result: serde_json::Value,
    pub args: String,
    pub runtime: serde_json::Value,
}

/// Values from before the last restart of an alloc that had ended, so that no counter falls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlierValues {
    /// The last sample of its cgroups.
    pub base: Usage,
    /// Run time by the outcome of each end, in the order of `Outcome::ALL`.
    pub ran: [Nanos; 6],
    /// It runs since then.
    pub restarted_at: Steady,
}

/// The end of an alloc: every task is dead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishRecord {
    pub at: Timestamp,
    /// The same on the timeline; absent in records of agents that had wall-clock time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Steady>,
    /// The worst outcome of its tasks.
    pub outcome: Outcome,
    /// Time from its creation or restart to its end.
    pub ran: Nanos,
    /// The last sample of its cgroup.
    pub base: Usage,
}

/// Written before each start (with the handle) and at each end (without).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub status: Arc<TaskStatus>,
    pub handle: Option<TaskHandle>,
    pub tracker: RestartTracker,
    #[serde(default)]
    pub more: MoreTotals,
    /// Its end was requested: a restarted agent continues with that, without a second event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<KillRequest>,
    /// A restart was requested, and the attempt has not ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartRequest>,
    /// The wait for its next attempt; the status has the end of the wait as wall-clock time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The reason of the restart that its next start is; counted then. Earlier agents counted it with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_for: Option<RestartReason>,
    /// Where the stderr of its attempt begins in its log. Absent: at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_from: Option<LogEnd>,
    /// Results of one-time hooks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, serde_json::Value>,
}

/// A requested end of an attempt that is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// Its whole alloc is restarted: the next attempt starts in lifecycle order.
    pub whole: bool,
    #[serde(rename = "asked_at")]
    pub requested_at: Steady,
    /// Time from the request to the kill signal: the task's `shutdown_delay`, and the rest of the group's if the whole
    /// alloc is restarted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay: Nanos,
    /// When its kill signal was first sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_at: Option<Steady>,
    /// Requested by a health check or a failed script of a template: the restart policy counts it as a failure of the
    /// task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_failure: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_zero(delay: &Nanos) -> bool {
    *delay == Nanos::ZERO
}

impl RestartRequest {
    /// Whether its kill signal is due: an end after that counts as requested.
    pub fn is_due(self, at: Steady) -> bool {
        self.signalled_at.is_some() || self.requested_at.plus(self.delay) <= at
    }
}

/// A task's wait for its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub since: Steady,
    pub delay: Nanos,
}

impl Backoff {
    /// At most the whole delay: the wall clock may have gone back over a reboot.
    pub fn left(self, now: Steady) -> Nanos {
        self.delay.saturating_sub(now.since(self.since))
    }
}

/// A requested end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequest {
    pub cause: Cause,
    #[serde(rename = "asked_at")]
    pub requested_at: Steady,
    /// Reported as a `Killing` event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", rename = "told")]
    pub reported: bool,
    /// When its kill signal was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_at: Option<Steady>,
}

/// The part of the workload's totals that is not in the task's status. The totals are the sum over the records, so no
/// exit counts twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoreTotals {
    pub exit_codes: BTreeMap<u8, u64>,
    pub exit_signals: BTreeMap<u8, u64>,
    pub run_ns: [u64; 6],
    pub kill_escalations: u64,
    #[serde(rename = "given_up")]
    pub abandoned: u64,
    #[serde(skip_serializing_if = "LostOutput::is_none")]
    pub lost_output: LostOutput,
}

impl MoreTotals {
    pub fn add_exit(&mut self, exit: &Exit) {
        let mut one = TaskTotals::default();
        one.add_exit(exit);
        let mut all = self.alone();
        all.merge(&one);
        (self.exit_codes, self.exit_signals, self.run_ns) = (all.exit_codes, all.exit_signals, all.run_ns);
        self.lost_output = all.lost_output;
    }
    /// All totals of the task.
    pub fn with(&self, status: &TaskStatus) -> TaskTotals {
        TaskTotals {
            usage: status.base.counters(),
            exits: status.exit_counts,
            restarts: status.restarts,
            events: status.event_counts.iter().map(|(kind, count)| (kind.to_owned(), *count)).collect(),
            ..self.alone()
        }
    }
    fn alone(&self) -> TaskTotals {
        TaskTotals {
            exit_codes: self.exit_codes.clone(),
            exit_signals: self.exit_signals.clone(),
            run_ns: self.run_ns,
            kill_escalations: self.kill_escalations,
            abandoned: self.abandoned,
            lost_output: self.lost_output,
            ..TaskTotals::default()
        }
    }
}

/// Totals of the collected allocs of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    pub tasks: BTreeMap<TaskName, TaskTotals>,
    /// By outcome, in the order of `Outcome::ALL`.
    pub alloc_run: [Nanos; 6],
    pub allocs: u64,
    pub last_end: Steady,
    /// Number of allocs that failed and were replaced.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub reschedules: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_zero_count(count: &u64) -> bool {
    *count == 0
}

/// Totals of retired workloads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub node: NodeTotals,
}

pub const NODE_KEY: &str = "totals/node";
pub const LINE_KEY: &str = "clock";
pub const WORKLOADS: &str = "totals/workload/";

pub fn job_key(id: &JobId, version: u64) -> String {
    format!("job/{id}/{version}")
}
pub const PARENTS: &str = "parent/";

pub fn parent_key(id: &JobId) -> String {
    format!("{PARENTS}{id}")
}
pub fn alloc_key(id: &AllocId) -> String {
    format!("alloc/{id}")
}
pub fn task_key(id: &AllocId, task: &TaskName) -> String {
    format!("task/{id}/{task}")
}
pub fn tombstone_key(id: &AllocId) -> String {
    format!("tombstone/{id}")
}
pub fn workload_key(id: &JobId) -> String {
    format!("{WORKLOADS}{id}")
}

/// Adds a record to a batch.
pub fn put(batch: &mut Batch, key: String, record: &impl Serialize) {
    let value = serde_json::to_vec(record).expect("a record must be JSON: its maps have text keys");
    batch.put(key, value);
}
