//! `allostat run`

use std::path::PathBuf;

use super::exit::{CliError, CliResult, Exit};
use super::follow::{Ended, Follow};
use super::output::{Style, printable};
use super::shape::AllocRow;
use super::{Session, human, plan};
use crate::api::{Submitted, encode};
use crate::model::task::{ExitStatus, Outcome};

/// Submit a job file and show its lifecycle
///
/// A batch job: until it is done, with its result as exit code. A service: until it runs. Ctrl-C detaches; the job goes on.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// HCL or JSON; - is standard input
    file: PathBuf,
    /// Submit and return; prints the ids of the new allocs
    #[arg(long)]
    detach: bool,
}

impl Run {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let job = plan::read_job(&self.file)?;
        let mut agent = session.connect()?;
        let mut follow = Follow::from_now(&mut agent)?;
        let target = format!("/v1/jobs?file={}", encode(&job.file));
        let submitted: Submitted = follow.agent().post(&target, job.text)?;
        plan::show_warnings(session, &submitted.warnings);
        if self.detach {
            for id in &submitted.allocs {
                writeln!(session.out, "{id}")?;
            }
            return Ok(Exit::Done);
        }
        let job = printable(&submitted.job);
        if !submitted.replaces.is_empty() {
            writeln!(session.out, "job {job}: replaces {}", submitted.replaces.join(", "))?;
        }
        let count = human::count(submitted.allocs.len(), "alloc");
        writeln!(session.out, "job {job} ({}): {count}", submitted.kind)?;
        let batch = submitted.kind == "batch";
        let paint = session.paint;
        let ended = follow.until(&submitted.allocs, session.out, paint, |allocs| {
            if batch {
                allocs.iter().all(AllocRow::is_over)
            } else {
                // A service that fails at once need not be waited for. An alloc runs as soon as one of its tasks does: each
                // has to.
                allocs.iter().any(AllocRow::has_failed) || allocs.iter().all(AllocRow::has_begun)
            }
        })?;
        match ended {
            Ended::Interrupted => {
                session.remark(&format!(
                    "detached; it goes on: `allostat status` shows it, `allostat stop {}` ends it",
                    submitted.allocs.first().map_or("ALLOC", |id| &id[..8.min(id.len())])
                ));
                Ok(Exit::Done)
            }
            Ended::Done(allocs) if batch => finish(session, &allocs),
            Ended::Done(allocs) if allocs.iter().any(AllocRow::has_failed) => {
                Err(CliError::failed(format!("job {job} failed to run")).hint("`allostat events ALLOC` says why"))
            }
            Ended::Done(_) => {
                writeln!(session.out, "{}", session.paint.paint(Style::Green, "running"))?;
                Ok(Exit::Done)
            }
        }
    }
}

/// The result of a batch job: that of its first task that failed.
fn finish(session: &mut Session<'_>, allocs: &[AllocRow]) -> CliResult {
    let tasks = || allocs.iter().flat_map(|a| a.tasks.iter().map(move |(name, task)| (a, name, task)));
    let Some((alloc, name, task)) = tasks().find(|(_, _, task)| task.failed) else {
        // Stopped by somebody: no failure, and no success either.
        let killed = tasks().find(|(a, _, t)| {
            a.desired == "stop" && t.last_exit.as_ref().is_some_and(|e| e.outcome == Outcome::Killed)
        });
        if let Some((alloc, name, _)) = killed {
            return Err(CliError::failed(format!("task {name} of {} was stopped", alloc.short())));
        }
        writeln!(session.out, "{}", session.paint.paint(Style::Green, "complete"))?;
        return Ok(Exit::Done);
    };
    let what = task.last_exit.as_ref().map_or("never ran".to_owned(), |e| describe(&e.status, e.outcome));
    writeln!(session.out, "{} task {name} of {} {what}", session.paint.paint(Style::Red, "failed:"), alloc.short())?;
    Ok(match task.last_exit.as_ref().map(|e| &e.status) {
        Some(ExitStatus::Code(code)) if *code > 0 => Exit::Task(*code),
        Some(ExitStatus::Signal(signal)) => Exit::Task(128u8.saturating_add(*signal)),
        _ => Exit::Failed,
    })
}

/// `exited with 3`, `was killed by the OOM killer`.
pub fn describe(status: &ExitStatus, outcome: Outcome) -> String {
    match (status, outcome) {
        (ExitStatus::Signal(_), Outcome::Oom) => "was killed by the OOM killer".to_owned(),
        (ExitStatus::Code(code), _) => format!("exited with {code}"),
        (ExitStatus::Signal(signal), Outcome::Killed) => format!("was stopped by signal {signal}"),
        (ExitStatus::Signal(signal), _) => format!("was ended by signal {signal}"),
        (ExitStatus::NotStarted(why), _) => format!("could not be started: {}", printable(why)),
        (ExitStatus::Unknown(why), _) => format!("ended unseen: {}", printable(why)),
    }
}
