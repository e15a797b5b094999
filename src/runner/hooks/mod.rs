//! What happens around allocs and tasks. A new hook: its file, and its line in [`ALLOC`] or [`TASK`].
//!
//! ```text
//! alloc  prerun ─► (its tasks) ─► prekill ─► (they end) ─► postrun ─► destroy
//! task   prestart ─► (starts) ─► poststart ─► prekill ─► (ends) ─► exited ─► stop
//! ```
//! A hook says what it needs of others; the order follows from that ([`Suite::order`]), and what takes down goes the other way
//! round. Each runs under a deadline, can be called off, and may be run again and without its predecessor, in every phase: an agent
//! may die between any two of them. What an alloc's owner decides from its clock (`max_run_duration`, the delays before a kill)
//! is no hook: it is pure, and goes on by itself after a restart (`decide::wish`, `task::kill`).

mod alloc_dir;
mod cgroup;
mod env;
mod stats;
mod suite;
mod task_dir;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub(super) use self::suite::in_line;
pub use self::suite::{Failed, Failure, OrderError, Suite};
use super::alloc::Alloc;
use super::drivers::{BoxFuture, TaskDirs};
use super::ground::Context;
use crate::host::process::Account;
use crate::jobspec::interpolate::Prepared;
use crate::model::id::AllocId;
use crate::telemetry::Metrics;

/// How long a hook may take that says nothing else, from when it has a place to work in ([`in_line`]).
const DEADLINE: Duration = Duration::from_secs(30);

/// When hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Of an alloc: before its first task starts, after a restart of the agent too. In order; the first failure ends it, and the alloc.
    Prerun,
    /// Of an alloc: before all its tasks begin anew. In order; failures are told.
    PreTaskRestart,
    /// Of an alloc: all its tasks are dead. Backwards, all of them.
    Postrun,
    /// Of an alloc: it is forgotten, and nothing of it may stay. Backwards, all of them.
    Destroy,
    /// Of a task: before each start. In order; the first failure is the start's.
    Prestart,
    /// Of a task: it has started. In order; failures are told.
    Poststart,
    /// Of an alloc or a task: it is about to be ended. Backwards, all of them.
    Prekill,
    /// Of a task: an attempt has ended. Backwards, all of them.
    Exited,
    /// Of a task: it is dead for good, started or not. Backwards, all of them.
    Stop,
}

impl Phase {
    #[cfg(test)]
    pub const ALL: &[Phase] = &[
        Phase::Prerun,
        Phase::PreTaskRestart,
        Phase::Postrun,
        Phase::Destroy,
        Phase::Prestart,
        Phase::Poststart,
        Phase::Prekill,
        Phase::Exited,
        Phase::Stop,
    ];
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Prerun => "prerun",
            Phase::PreTaskRestart => "pretaskrestart",
            Phase::Postrun => "postrun",
            Phase::Destroy => "destroy",
            Phase::Prestart => "prestart",
            Phase::Poststart => "poststart",
            Phase::Prekill => "prekill",
            Phase::Exited => "exited",
            Phase::Stop => "stop",
        }
    }
    fn takes_down(self) -> bool {
        matches!(self, Phase::Prekill | Phase::Exited | Phase::Stop | Phase::Postrun | Phase::Destroy)
    }
    fn stops_at_failure(self) -> bool {
        matches!(self, Phase::Prerun | Phase::Prestart)
    }
}

/// What a hook's phase came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is to run again with the next start.
    Again,
    /// Of a task's prestart: never again, not after a restart of the host either. What later starts need of it, to be recorded.
    #[cfg_attr(not(test), expect(dead_code, reason = "for hooks that fetch: none of ours does yet"))]
    Done(Value),
}

pub trait Hook<S>: Send + Sync {
    /// Its label in metrics and events.
    fn name(&self) -> &'static str;
    /// The hooks whose work it builds on.
    fn after(&self) -> &'static [&'static str] {
        &[]
    }
    fn phases(&self) -> &'static [Phase];
    fn deadline(&self, _phase: Phase) -> Duration {
        DEADLINE
    }
    /// Called in its phases only. Dropped when it is called off.
    fn run<'a>(&'a self, phase: Phase, subject: &'a mut S) -> BoxFuture<'a, Result<Outcome, Failure>>;
    /// It was done at an earlier start: what it left is put to use again.
    fn resume(&self, _subject: &mut S, _data: &Value) {}
}

/// What hooks work on.
pub trait Subject: Send {
    /// The `runner` label.
    const RUNNER: &'static str;
    /// What a hook that is done for good left.
    fn done(&self, _hook: &str) -> Option<Value> {
        None
    }
    /// Whether it is recorded.
    fn set_done(&mut self, _hook: &'static str, _data: Value) -> bool {
        false
    }
}

/// An alloc, for its hooks. One that was collected is no more than its id.
pub struct OfAlloc {
    pub ctx: Arc<Context>,
    pub id: AllocId,
    pub alloc: Option<Arc<Alloc>>,
}

/// A task, for its hooks, and what they prepare for a start.
pub struct OfTask {
    pub alloc: Arc<Alloc>,
    pub at: usize,
    pub account: Option<Account>,
    pub dirs: Option<TaskDirs>,
    pub prepared: Option<Prepared>,
}

impl OfAlloc {
    pub fn of(alloc: &Arc<Alloc>) -> OfAlloc {
        OfAlloc { ctx: Arc::clone(&alloc.ctx), id: alloc.id.clone(), alloc: Some(Arc::clone(alloc)) }
    }
}

impl OfTask {
    pub fn of(alloc: &Arc<Alloc>, at: usize) -> OfTask {
        OfTask { alloc: Arc::clone(alloc), at, account: None, dirs: None, prepared: None }
    }
}

impl Subject for OfAlloc {
    const RUNNER: &'static str = "alloc";
}

impl Subject for OfTask {
    const RUNNER: &'static str = "task";
    fn done(&self, hook: &str) -> Option<Value> {
        self.alloc.hook_done(self.at, hook)
    }
    fn set_done(&mut self, hook: &'static str, data: Value) -> bool {
        self.alloc.set_hook_done(self.at, hook, data);
        true
    }
}

type Make<S> = fn() -> Box<dyn Hook<S>>;

/// Every hook of allocs.
pub static ALLOC: &[Make<OfAlloc>] =
    &[|| Box::new(alloc_dir::AllocDir), || Box::new(cgroup::Cgroup), || Box::new(stats::Stats)];

/// Every hook of tasks.
pub static TASK: &[Make<OfTask>] =
    &[|| Box::new(validate::Validate), || Box::new(task_dir::TaskDir), || Box::new(env::Environment)];

/// The hooks of one agent.
pub struct Hooks {
    pub alloc: Suite<OfAlloc>,
    pub task: Suite<OfTask>,
}

/// Hooks beyond our own: what tests look with.
#[derive(Default)]
pub struct More {
    pub alloc: Vec<Box<dyn Hook<OfAlloc>>>,
    pub task: Vec<Box<dyn Hook<OfTask>>>,
}

impl Hooks {
    /// Errors: they cannot be brought into an order; ours can.
    pub fn new(metrics: &Arc<Metrics>, more: More) -> Result<Hooks, OrderError> {
        let alloc = ALLOC.iter().map(|make| make()).chain(more.alloc).collect();
        let task = TASK.iter().map(|make| make()).chain(more.task).collect();
        Ok(Hooks { alloc: Suite::new(alloc, Arc::clone(metrics))?, task: Suite::new(task, Arc::clone(metrics))? })
    }
}
