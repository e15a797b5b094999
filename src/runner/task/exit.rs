//! From what an attempt's end says to an exit and the event that tells of it.

use std::sync::Arc;

use crate::model::event::EventKind;
use crate::model::task::{Exit, ExitStatus};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::runner::outcome::outcome;

pub(super) fn exit_of(
    attempt: u32,
    status: ExitStatus,
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    usage: Usage,
    killed: bool,
) -> Exit {
    let oom_kills = usage.oom_kills;
    let outcome = outcome(&status, oom_kills, killed);
    Exit { attempt, outcome, status, started_at, finished_at, oom_kills, usage: Arc::new(usage) }
}

pub(super) type Details = Vec<(&'static str, String)>;

pub(super) fn terminated(exit: &Exit) -> (EventKind, String, Details) {
    let mut details = vec![("outcome", exit.outcome.as_str().to_owned())];
    let message = match &exit.status {
        ExitStatus::Code(code) => {
            details.push(("exit_code", code.to_string()));
            format!("exit code {code}")
        }
        ExitStatus::Signal(signal) => {
            details.push(("signal", signal.to_string()));
            format!("ended by signal {signal}")
        }
        ExitStatus::NotStarted(error) => {
            details.push(("error", error.clone()));
            return (EventKind::DriverFailure, format!("the task could not be started: {error}"), details);
        }
        ExitStatus::Unknown(why) => {
            details.push(("error", why.clone()));
            format!("how it ended is not known: {why}")
        }
    };
    if let Some(oom_kills) = exit.oom_kills.filter(|n| *n > 0) {
        details.push(("oom_kills", oom_kills.to_string()));
        return (EventKind::Terminated, format!("{message}; {oom_kills} killed for want of memory"), details);
    }
    (EventKind::Terminated, message, details)
}
