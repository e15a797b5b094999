//! What a hook is: when it runs, on what, and what comes of it.

use std::time::Duration;

use serde_json::Value;

use crate::model::event::EventKind;
use crate::runner::drivers::BoxFuture;

/// How long a hook may take that says nothing else, from when it has a place to work in
/// ([`in_line`](crate::runner::blocking_pool::in_line)).
pub const DEADLINE: Duration = Duration::from_secs(30);

/// When hooks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookPhase {
    /// Of an alloc: before its first task starts, after a restart of the agent too. In order; the first failure ends
    /// it, and the alloc.
    Prerun,
    /// Of an alloc: before all its tasks begin again. In order; failures are reported.
    PreTaskRestart,
    /// Of an alloc: all its tasks are dead. Backwards, all of them.
    Postrun,
    /// Of an alloc: it is forgotten, and nothing of it may stay. Backwards, all of them.
    Destroy,
    /// Of a task: before each start. In order; the first failure is the start's.
    Prestart,
    /// Of a task: it has started. In order; failures are reported.
    Poststart,
    /// Of an alloc or a task: it is about to be ended. Backwards, all of them.
    Prekill,
    /// Of a task: an attempt has ended. Backwards, all of them.
    Exited,
    /// Of a task: it is dead for good, started or not. Backwards, all of them.
    Stop,
}

impl HookPhase {
    #[cfg(test)]
    pub const ALL: &[HookPhase] = &[
        HookPhase::Prerun,
        HookPhase::PreTaskRestart,
        HookPhase::Postrun,
        HookPhase::Destroy,
        HookPhase::Prestart,
        HookPhase::Poststart,
        HookPhase::Prekill,
        HookPhase::Exited,
        HookPhase::Stop,
    ];
    pub fn as_str(self) -> &'static str {
        match self {
            HookPhase::Prerun => "prerun",
            HookPhase::PreTaskRestart => "pretaskrestart",
            HookPhase::Postrun => "postrun",
            HookPhase::Destroy => "destroy",
            HookPhase::Prestart => "prestart",
            HookPhase::Poststart => "poststart",
            HookPhase::Prekill => "prekill",
            HookPhase::Exited => "exited",
            HookPhase::Stop => "stop",
        }
    }
    pub fn takes_down(self) -> bool {
        matches!(
            self,
            HookPhase::Prekill | HookPhase::Exited | HookPhase::Stop | HookPhase::Postrun | HookPhase::Destroy
        )
    }
    pub fn stops_at_failure(self) -> bool {
        matches!(self, HookPhase::Prerun | HookPhase::Prestart)
    }
}

/// What a hook's phase came to.
#[derive(Debug, Clone, PartialEq)]
pub enum HookOutcome {
    /// It is to run again with the next start.
    Again,
    /// Of a task's prestart: never again, not after a restart of the host either. What later starts need of it, to be
    /// recorded.
    Done(Value),
}

pub trait Hook<S>: Send + Sync {
    /// Its label in metrics and events.
    fn name(&self) -> &'static str;
    /// The hooks whose work it builds on.
    fn after(&self) -> &'static [&'static str] {
        &[]
    }
    fn phases(&self) -> &'static [HookPhase];
    fn deadline(&self, _phase: HookPhase) -> Duration {
        DEADLINE
    }
    /// Called in its phases only. Dropped when it is called off.
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut S) -> BoxFuture<'a, Result<HookOutcome, HookError>>;
    /// It was done at an earlier start: what it left is put to use again.
    fn resume(&self, _subject: &mut S, _data: &Value) {}
}

/// What hooks work on.
pub trait HookSubject: Send {
    /// The `runner` label.
    const RUNNER: &'static str;
    /// What a hook that is done for good left.
    fn done(&self, _hook: &str) -> Option<Value> {
        None
    }
    /// How long a hook of its prerun or prestart took.
    fn took(&mut self, _hook: &'static str, _took: Duration) {}
    /// Whether it is recorded.
    fn set_done(&mut self, _hook: &'static str, _data: Value) -> bool {
        false
    }
}

/// Why a hook did not do what its phase wants of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HookError {
    pub kind: EventKind,
    pub message: String,
    /// Trying again may help, so the restart policy decides.
    pub recoverable: bool,
}

impl HookError {
    pub fn setup(message: impl Into<String>) -> HookError {
        HookError { kind: EventKind::SetupFailure, message: message.into(), recoverable: true }
    }
}

/// A hook that failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{hook} ({phase}): {}", failure.message, phase = phase.as_str())]
pub struct FailedHook {
    pub hook: &'static str,
    pub phase: HookPhase,
    pub failure: HookError,
}
