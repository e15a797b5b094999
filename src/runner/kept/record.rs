//! What is persisted of jobs, allocs, tasks and totals: JSON under the keys of `store`.

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
use crate::runner::decide::restart::Tracker;
use crate::runner::kept::outputs::LogEnd;
use crate::store::Batch;

/// The schema that this agent writes, and the only one that it reads: older ones were upgraded when the store was opened.
pub use crate::store::{SCHEMA, VERSION_KEY};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub job: Job,
    pub version: u64,
}

/// A job that launches others, until it is stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParentRecord {
    pub job: Job,
    /// Up to this second of the Unix epoch each due time was launched, skipped or missed.
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
    /// Grows with each alloc: the order of creation, whatever the clock does.
    pub serial: u64,
    pub created_at: Timestamp,
    /// The same; absent in a record of an agent that had the wall clock alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Steady>,
    pub desired: Desired,
    /// It starts when these have ended.
    pub waits_for: Vec<AllocId>,
    /// Its own parent cgroup, made with its first task; `None`: it has none.
    pub cgroup: Option<CgroupPath>,
    pub finished: Option<Box<Finished>>,
    /// What was reserved for it, before its first task: it holds these to its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<AllocPort>,
    /// The network namespace that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<NetworkRecord>>,
    /// When its end was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_asked_at: Option<Steady>,
    /// Its `max_run_duration` is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
    /// All its tasks are to begin anew, and some are not ready for it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// When that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_asked_at: Option<Steady>,
    /// It cannot be set up: why. Its tasks fail without ever having started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_setup: Option<String>,
    /// Whether it came up in time, by the `update` of its group; `None`: not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Cores that its tasks have for themselves, in the order of its group; empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<Vec<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<Earlier>>,
    /// The replacements before it in its place. `None`: it is of an agent that replaced none; if it has ended, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule: Option<Box<RescheduleTracker>>,
    /// That it is replaced, or is not, was reported as an event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reschedule_reported: bool,
    /// The alloc that it replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<AllocId>,
    /// The alloc that replaced it, after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AllocId>,
    /// The allocs whose data it takes over before its first task, newest first; empty: none, or that is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data_from: Vec<AllocId>,
    /// The alloc of another agent whose data it takes over before its first task; `None`: none, or that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate_from: Option<MigrationSource>,
}

/// A network namespace, and what it takes to remove it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    pub network: AllocNetwork,
    /// `None`: no plugin has to do with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<CniRecord>,
}

/// How plugins connected it: they are asked the same to disconnect it, whatever was configured since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CniRecord {
    pub list: serde_json::Value,
    pub result: serde_json::Value,
    pub args: String,
    pub runtime: serde_json::Value,
}

/// An alloc that had ended and was restarted: what its ends before said, so that nothing falls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// What its cgroups said last.
    pub base: Usage,
    /// How long it ran, by the outcome of each end, in the order of `Outcome::ALL`.
    pub ran: [Nanos; 6],
    /// It runs since then.
    pub restarted_at: Steady,
}

/// The end of an alloc: every task is dead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    pub at: Timestamp,
    /// The same; absent in a record of an agent that had the wall clock alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Steady>,
    /// Of its worst task.
    pub outcome: Outcome,
    /// From its creation to its end.
    pub ran: Nanos,
    /// What its cgroup said last.
    pub base: Usage,
}

/// Written before each start (with the handle) and at each end (without).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub status: Arc<TaskStatus>,
    pub handle: Option<TaskHandle>,
    pub tracker: Tracker,
    #[serde(default)]
    pub more: MoreTotals,
    /// Somebody asked for its end: a restart of the agent goes on with that, and tells it no second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// Somebody asked for a restart, and the attempt has not ended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The wait for its next attempt; its status says when that is over, by the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Its next start is a restart, and counts as one then; why. Agents before this one counted it when it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_for: Option<RestartReason>,
    /// Where the stderr of its attempt begins in its log; absent: at its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_from: Option<LogEnd>,
    /// Hooks that are done for good, and what they left.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, serde_json::Value>,
}

/// The end of an attempt that somebody asked for, to have another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Its whole alloc begins anew: the next attempt waits for its turn.
    pub whole: bool,
    pub asked_at: Steady,
    /// From then to its kill signal: the task's `shutdown_delay`, and what is left of its group's where all that runs is restarted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay: Nanos,
    /// When its kill signal was first sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_at: Option<Steady>,
    /// A health check asked for it: the restart policy counts it as a failure of the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_failure: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_zero(delay: &Nanos) -> bool {
    *delay == Nanos::ZERO
}

impl Restart {
    /// Its kill signal is due, so that what ends from then on has obeyed it.
    pub fn is_due(self, at: Steady) -> bool {
        self.signalled_at.is_some() || self.asked_at.plus(self.delay) <= at
    }
}

/// A task's wait for its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub since: Steady,
    pub delay: Nanos,
}

impl Backoff {
    /// Never more than all of it: over a boot the wall clock may have gone back.
    pub fn left(self, now: Steady) -> Nanos {
        self.delay.saturating_sub(now.since(self.since))
    }
}

/// The end of a task that somebody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    pub cause: Cause,
    pub asked_at: Steady,
    /// It was told as `Killing`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
    /// When its kill signal was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_at: Option<Steady>,
}

/// What a task's part of the workload's totals says beyond its status. The totals are the sum over the records, so no
/// exit can count twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoreTotals {
    pub exit_codes: BTreeMap<u8, u64>,
    pub exit_signals: BTreeMap<u8, u64>,
    pub run_ns: [u64; 6],
    pub kill_escalations: u64,
    pub given_up: u64,
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
    /// The whole part.
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
            given_up: self.given_up,
            lost_output: self.lost_output,
            ..TaskTotals::default()
        }
    }
}

/// What the collected allocs of a job handed over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    pub tasks: BTreeMap<TaskName, TaskTotals>,
    /// By outcome, in the order of `Outcome::ALL`.
    pub alloc_run: [Nanos; 6],
    pub allocs: u64,
    pub last_end: Steady,
    /// Those that failed and were replaced.
    #[serde(default, skip_serializing_if = "is_none_of_them")]
    pub reschedules: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives it so")]
fn is_none_of_them(count: &u64) -> bool {
    *count == 0
}

/// What retired workloads handed over.
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
