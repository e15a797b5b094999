//! The update of a job, as `run --wait` follows it and `status` shows it.

use std::time::Duration;

use serde::Deserialize;

use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::follow::AllocFollower;
use super::output::{Style, printable};
use super::progress::ProgressLine;
use super::{CliSession, human};
use crate::api::encode;
use crate::model::update::{JobUpdate, UpdateState};

/// How often a running update is asked for.
const POLL_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Deserialize)]
struct UpdateList {
    updates: Vec<JobUpdate>,
}

/// Of a job its last one. `None`: it had none, or the agent is older than updates.
pub fn of(agent: &mut AgentConnection, job: &str) -> Option<JobUpdate> {
    let list: UpdateList = agent.get(&format!("/v1/updates?job={}", encode(job))).ok()?;
    list.updates.into_iter().next()
}

/// Waits for its end.
pub fn until_ended(session: &mut CliSession<'_>, follow: &mut AllocFollower<'_>, job: &str) -> CliResult {
    let (target, shown) = (format!("/v1/updates?job={}", encode(job)), printable(job));
    let progress = ProgressLine::new();
    let ended = loop {
        let list: UpdateList = follow.insist(|agent| agent.get(&target))?;
        let Some(update) = list.updates.into_iter().next() else {
            return Err(CliError::failed(format!("the update of job {shown} is gone: it has no allocs any more")));
        };
        let (healthy, desired) = (count(update.healthy), count(update.desired));
        let back = if update.reverts_version.is_some() { "reverting: " } else { "" };
        progress.show(healthy, desired, &format!("{back}{healthy} of {} healthy", human::count(desired, "alloc")));
        if update.status != UpdateState::Running {
            break update;
        }
        if follow.is_interrupted() {
            progress.end_line();
            session.remark(&format!("detached; the update goes on: `allostat status {shown}` shows it"));
            return Ok(CliExit::Done);
        }
        std::thread::sleep(POLL_EVERY);
    };
    progress.end_line();
    let text = printable(&ended.description);
    match (ended.status, ended.reverts_version) {
        (UpdateState::Successful, None) => {
            writeln!(session.out, "{}", session.paint.paint(Style::Green, "healthy"))?;
            Ok(CliExit::Done)
        }
        (UpdateState::Successful, Some(_)) => Err(CliError::failed(format!("job {shown} {text}"))),
        (UpdateState::Failed, _) => Err(CliError::failed(format!("job {shown} is unhealthy: {text}"))
            .hint(format!("`allostat status {shown}` shows its allocs; they run on"))),
        (UpdateState::Cancelled | UpdateState::Running, _) => Err(CliError::failed(format!("job {shown}: {text}"))),
    }
}

fn count(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// One line for `status` of a job.
pub fn line(update: &JobUpdate) -> String {
    let waits = match (update.status, update.outdated) {
        (_, 0) => String::new(),
        (UpdateState::Running, n) => format!("; {} wait for their turn", human::count(count(n), "alloc")),
        (_, n) => format!("; {} of an earlier version run on", human::count(count(n), "alloc")),
    };
    format!("{}{waits}", printable(&update.description))
}
