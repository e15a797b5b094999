//! How lives of observed tasks end, as their sources and the kernel report it. Pure.

use std::sync::Arc;

use crate::model::task::{Exit, ExitStatus, LostOutput, Outcome, ServiceResult};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

/// The exit code with which runtimes report SIGKILL.
pub(super) const KILLED: u8 = 137;

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitFacts {
    /// An exit code or a signal.
    pub status: ExitStatus,
    /// It was OOM-killed.
    pub oom: bool,
    /// A user requested the end from its runtime.
    pub on_request: bool,
    /// The runtime waits before it starts it again.
    pub will_restart: bool,
    /// What systemd reports of its service.
    pub result: Option<ServiceResult>,
    /// By the clock of the source.
    pub finished_at: Option<Timestamp>,
}

impl ExitFacts {
    pub fn outcome(&self) -> Outcome {
        match (&self.status, self.result) {
            _ if self.oom => Outcome::Oom,
            _ if self.on_request => Outcome::Killed,
            (ExitStatus::Signal(_), _) => Outcome::Signal,
            // A service may succeed with another code than 0, and fail with 0.
            (_, Some(result)) if result.is_failure() => Outcome::Error,
            (_, Some(_)) | (ExitStatus::Code(0), None) => Outcome::Success,
            (ExitStatus::Unknown(_), None) => Outcome::Unknown,
            (_, None) => Outcome::Error,
        }
    }
}

/// What a source reports of a life that it is queried about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReport {
    Exit(ExitFacts),
    /// It still runs.
    Runs,
    /// Its source does not know it, or could not be queried.
    Refused,
    /// Too many other queries waited, so that it was not queried.
    Late,
}

impl EndReport {
    pub fn facts(self) -> Option<ExitFacts> {
        match self {
            EndReport::Exit(facts) => Some(facts),
            EndReport::Runs | EndReport::Refused | EndReport::Late => None,
        }
    }
}

/// Nothing reports how it ended. `why`: a sentence without its end.
pub(super) fn unknown(why: &str, finished_at: Option<Timestamp>) -> ExitFacts {
    let status = ExitStatus::Unknown(why.to_owned());
    ExitFacts { status, oom: false, on_request: false, will_restart: false, result: None, finished_at }
}

/// The OOM killer may have killed a child while the container continued. The container itself was OOM-killed only if it
/// was killed.
pub(super) fn facts_of(code: u8, oom: bool, finished_at: Option<Timestamp>) -> ExitFacts {
    ExitFacts {
        status: ExitStatus::Code(code),
        oom: oom && code == KILLED,
        on_request: false,
        will_restart: false,
        result: None,
        finished_at,
    }
}

/// The record of an end. `now`: where its time is unknown.
pub(super) fn exit(
    facts: Option<ExitFacts>,
    attempt: u32,
    started_at: Option<Timestamp>,
    now: Timestamp,
    usage: Arc<Usage>,
) -> Exit {
    let unknown = || ExitStatus::Unknown("the cgroup was removed; exit status unknown".to_owned());
    let outcome = facts.as_ref().map_or(Outcome::Unknown, ExitFacts::outcome);
    let status = facts.as_ref().map_or_else(unknown, |facts| facts.status.clone());
    Exit {
        attempt,
        outcome,
        status,
        result: facts.as_ref().and_then(|facts| facts.result),
        started_at,
        finished_at: facts.and_then(|facts| facts.finished_at).unwrap_or(now),
        oom_kills: usage.oom_kills(),
        // Unknown for observed tasks.
        lost_output: LostOutput::default(),
        last_output: None,
        usage,
    }
}
