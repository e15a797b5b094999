//! `allostat run`

use std::path::PathBuf;

use super::api_types::{AllocRow, short};
use super::exit::{CliError, CliExit, CliResult};
use super::follow::{AllocFollower, FollowEnd};
use super::inputs::Variables;
use super::output::{Paint, Style, printable};
use super::progress::{ProgressLine, ProgressWriter};
use super::width::wrapped;
use super::{CliSession, complete, follow, human, last_output, output, parents, plan, reason, updates};
use crate::api::{LaunchAnswer, Submitted, encode};
use crate::model::job::JobKind;
use crate::model::migration::MigrationFailure;
use crate::model::task::{ExitStatus, Outcome};

/// Submit a job file and show its progress
///
/// Examples: `allostat run web.hcl`, `allostat run --detach --var tag=1.4 web.hcl`
///
/// Waits until a batch job is done, rescheduled allocs included, and exits with its result, or until a service runs
/// (with --wait: is healthy). Keeps waiting across agent restarts. Ctrl-C detaches; the job continues.
#[derive(Debug, clap::Args)]
pub struct RunCommand {
    /// Job file, HCL or JSON; - is standard input
    file: PathBuf,
    #[command(flatten)]
    variables: Variables,
    /// Submit and return; print the IDs of the new allocs
    #[arg(long)]
    detach: bool,
    /// Wait until a service is healthy, by its `update`: after min_healthy_time, until healthy_deadline at most
    #[arg(long, conflicts_with = "detach")]
    wait: bool,
    /// Take over the data of an ended alloc of another agent; PEER is one of the agent's migrate.peers
    #[arg(long, value_name = "PEER/ALLOC")]
    migrate_from: Option<String>,
    /// What follows if that fails: "fail" the alloc, or "start_empty"
    #[arg(
        long,
        value_name = "WHAT",
        requires = "migrate_from",
        default_value = MigrationFailure::Fail.as_str(),
        value_parser = MigrationFailure::ALL.map(MigrationFailure::as_str)
    )]
    on_migration_failure: String,
}

impl RunCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let job = plan::read_job(&self.file, &self.variables)?;
        let mut agent = session.connect_to_act()?;
        let mut follow = AllocFollower::from_now(&mut agent)?;
        let (target, body) = job.request(false);
        let target = self.migration(target);
        let submitted: Submitted = follow.agent().post(&target, body).map_err(unsure)?;
        plan::show_warnings(session, &submitted.warnings);
        if let Some(launches) = &submitted.launches {
            let text = parents::planned(&printable(&submitted.job), launches, follow::now());
            // Standard output has the IDs of new allocs alone: there are none.
            match self.detach {
                true => session.remark(&text),
                false => writeln!(session.out, "{text}")?,
            }
            return Ok(CliExit::Done);
        }
        let unchanged = submitted.unchanged.first().filter(|_| submitted.allocs.is_empty());
        if self.detach && unchanged.is_none() {
            for id in &submitted.allocs {
                writeln!(session.out, "{id}")?;
            }
            return Ok(waiting(session, &submitted));
        }
        let job = printable(&submitted.job);
        if let Some(first) = unchanged {
            return self.unchanged(session, &mut follow, &submitted, first);
        }
        if !submitted.replaces.is_empty() {
            let replaced = &submitted.replaces;
            let which = plan::few_ids(replaced).unwrap_or_else(|| human::count(replaced.len(), "alloc"));
            writeln!(session.out, "{}", wrapped(&format!("job {job}: replaces {which}"), output::screen(), 2))?;
        }
        let count = human::count(submitted.allocs.len(), "alloc");
        writeln!(session.out, "job {job} ({}): {count}", submitted.kind)?;
        if !submitted.not_placed.is_empty() {
            return Ok(waiting(session, &submitted));
        }
        let goal = self.goal(&submitted.kind);
        if let Some(update) = updates::of(follow.agent(), &submitted.job).filter(|_| goal != Goal::Done) {
            if goal == Goal::Healthy {
                return updates::until_ended(session, &mut follow, &submitted.job);
            }
            if update.outdated > 0 {
                session.remark(&format!("{}; with --wait `run` waits for all of it", updates::line(&update)));
            }
        }
        until(session, &mut follow, &job, &submitted.allocs, goal)
    }

    fn migration(&self, target: String) -> String {
        match &self.migrate_from {
            None => target,
            Some(source) => {
                let on_failure = &self.on_migration_failure;
                format!("{target}&migrate_from={}&on_migration_failure={on_failure}", encode(source))
            }
        }
    }

    fn goal(&self, kind: &str) -> Goal {
        let is_batch = JobKind::parse(kind).is_some_and(|kind| !kind.is_service());
        match (is_batch, self.wait) {
            (true, _) => Goal::Done,
            (false, true) => Goal::Healthy,
            (false, false) => Goal::Running,
        }
    }

    /// The job runs as it is in the file. With `--wait` its health is waited for all the same: it may just have been
    /// submitted.
    fn unchanged(
        &self,
        session: &mut CliSession<'_>,
        follow: &mut AllocFollower<'_>,
        submitted: &Submitted,
        first: &str,
    ) -> CliResult {
        let (job, ids) = (printable(&submitted.job), &submitted.unchanged);
        let named = plan::few_ids(ids).map_or_else(String::new, |ids| format!(" as {ids}"));
        let count = human::count(ids.len(), "alloc");
        let text = format!("job {job} is unchanged: it runs already{named} ({count}); nothing was done");
        match self.detach {
            // Standard output has the IDs of new allocs alone: there are none.
            true => session.remark(&text),
            false => writeln!(session.out, "{}", wrapped(&text, output::screen(), 2))?,
        }
        let named = if complete::is_plain(&submitted.job) { &job } else { short(first) };
        session.remark(&format!("`allostat restart {}` restarts its tasks", printable(named)));
        match self.wait {
            true => until(session, follow, &job, ids, self.goal(&submitted.kind)),
            false => Ok(CliExit::Done),
        }
    }
}

/// Waits for a job that another one has launched.
pub fn launched(session: &mut CliSession<'_>, follow: &mut AllocFollower<'_>, launched: &LaunchAnswer) -> CliResult {
    let job = printable(&launched.job);
    let how = if launched.existed { "was launched before" } else { "launched" };
    writeln!(session.out, "job {job}: {how}, {}", human::count(launched.allocs.len(), "alloc"))?;
    if launched.allocs.is_empty() {
        return Ok(CliExit::Done);
    }
    until(session, follow, &job, &launched.allocs, Goal::Done)
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// A batch job has ended.
    Done,
    /// A service runs.
    Running,
    /// A service is healthy.
    Healthy,
}

impl Goal {
    /// How many of them are there.
    fn reached(self, allocs: &[AllocRow]) -> usize {
        let is_there = |alloc: &&AllocRow| match self {
            Goal::Done => !alloc.is_unfinished(),
            Goal::Running => alloc.has_started(),
            Goal::Healthy => alloc.is_healthy(),
        };
        allocs.iter().filter(is_there).count()
    }
    fn word(self) -> &'static str {
        match self {
            Goal::Done => "done",
            Goal::Running => "running",
            Goal::Healthy => "healthy",
        }
    }
    /// Nothing more is waited for.
    fn is_over(self, allocs: &[AllocRow], reached: usize) -> bool {
        let is_lost = |alloc: &AllocRow| match self {
            Goal::Done => false,
            // A service that fails at once need not be waited for. An alloc runs as soon as one of its tasks does: each
            // has to.
            Goal::Running => alloc.has_failed(),
            Goal::Healthy => alloc.has_failed() || alloc.is_unhealthy(),
        };
        reached == allocs.len() || allocs.iter().any(is_lost)
    }
}

fn until(
    session: &mut CliSession<'_>,
    follow: &mut AllocFollower<'_>,
    job: &str,
    ids: &[String],
    goal: Goal,
) -> CliResult {
    let (paint, progress) = (session.paint, ProgressLine::new());
    // The events of many are no answer: they are counted, and what fails is shown.
    let is_counted = goal == Goal::Healthy || ids.len() > plan::NAMED;
    follow.only_failures(ids.len() > plan::NAMED);
    let is_reached = |allocs: &[AllocRow]| {
        let (reached, total) = (goal.reached(allocs), allocs.len());
        if is_counted {
            progress.show(reached, total, &format!("{reached} of {} {}", human::count(total, "alloc"), goal.word()));
        }
        goal.is_over(allocs, reached)
    };
    let mut ids = ids.to_vec();
    let ended = loop {
        let mut out = ProgressWriter { progress: &progress, out: session.out };
        let ended = follow.until(&ids, &mut out, paint, is_reached);
        match ended.map_err(|error| agent_lost(error, job, &ids))? {
            // What was rescheduled meanwhile is the job's from then on.
            FollowEnd::Done(allocs) if goal == Goal::Done && allocs.iter().any(|a| a.next_alloc.is_some()) => {
                ids = allocs.into_iter().map(|alloc| alloc.next_alloc.unwrap_or(alloc.id)).collect();
            }
            ended => break ended,
        }
    };
    progress.end_line();
    match ended {
        FollowEnd::Interrupted => {
            let stop =
                if ids.len() > 1 { format!("--job {job}") } else { ids.first().map_or(job, |id| short(id)).to_owned() };
            session
                .remark(&format!("detached; it goes on: `allostat status` shows it, `allostat stop {stop}` ends it"));
            Ok(CliExit::Done)
        }
        FollowEnd::Done(allocs) if goal == Goal::Done => finish(session, follow, &allocs),
        FollowEnd::Done(allocs) if allocs.iter().any(AllocRow::has_failed) => {
            let last = allocs.iter().find(|alloc| alloc.has_failed());
            let last = last.map(|alloc| last_output_of(follow, alloc, session.paint));
            write!(session.out, "{}", last.unwrap_or_default())?;
            Err(failed(job, &allocs))
        }
        FollowEnd::Done(allocs) if goal == Goal::Healthy && allocs.iter().any(AllocRow::is_unhealthy) => {
            Err(unhealthy(job, &allocs))
        }
        FollowEnd::Done(_) => {
            let word = if goal == Goal::Healthy { "healthy" } else { "running" };
            writeln!(session.out, "{}", session.paint.paint(Style::Green, word))?;
            Ok(CliExit::Done)
        }
    }
}

/// The last lines of a failed alloc. The list of several allocs has none, so they are requested alone.
fn last_output_of(follow: &mut AllocFollower<'_>, alloc: &AllocRow, paint: Paint) -> String {
    let whole = follow.agent().get::<AllocRow>(&format!("/v1/allocs/{}", encode(&alloc.id)));
    last_output::of_tasks(whole.as_ref().unwrap_or(alloc), output::screen(), paint)
}

/// An alloc of a service has failed before it ran.
fn failed(job: &str, allocs: &[AllocRow]) -> CliError {
    let failed: Vec<&AllocRow> = allocs.iter().filter(|alloc| alloc.has_failed()).collect();
    let hint = failed.first().map(|alloc| {
        let id = printable(alloc.short());
        let why = format!("`allostat events {id}` shows the reason");
        match alloc.rescheduling(follow::now()) {
            Some(next) => format!("{why}; {next}: `allostat stop {id}` cancels that"),
            None => why,
        }
    });
    let message = match failed.len() {
        of if of < allocs.len() => format!("job {job} failed to run: {of} of {}", human::count(allocs.len(), "alloc")),
        _ => format!("job {job} failed to run"),
    };
    let error = CliError::failed(message);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The first alloc that is not healthy, and why.
fn unhealthy(job: &str, allocs: &[AllocRow]) -> CliError {
    let first = allocs.iter().find(|alloc| alloc.is_unhealthy());
    let Some(first) = first else { return CliError::failed(format!("job {job} is unhealthy")) };
    let (id, why) = (printable(first.short()), printable(first.health_reason.as_deref().unwrap_or_default()));
    CliError::failed(format!("job {job} is unhealthy: alloc {id}: {why}"))
        .hint(format!("`allostat status {id}` shows its checks; it runs on"))
}

/// A job whose allocs are not all placed is submitted, and waits: nothing failed, and the exit code distinguishes it
/// from one that runs.
fn waiting(session: &CliSession<'_>, submitted: &Submitted) -> CliExit {
    let Some(why) = plan::not_placed(submitted) else { return CliExit::Done };
    let job = printable(&submitted.job);
    session.remark(&format!(
        "warning: job {job} is submitted and waits\n{why}\n  it starts when that has changed; `allostat status \
         {job}` shows it, `allostat stop {job}` ends it"
    ));
    CliExit::Failed
}

/// The connection broke off while the job was being submitted.
fn unsure(error: CliError) -> CliError {
    match (error.exit, &error.hint) {
        (CliExit::NoAgent, None) => {
            error.hint("whether it took the job on is not known: `allostat status` shows it if it did")
        }
        _ => error,
    }
}

fn agent_lost(error: CliError, job: &str, allocs: &[String]) -> CliError {
    if error.exit != CliExit::NoAgent {
        return error;
    }
    let first = allocs.first().map_or(job, |id| short(id));
    let message =
        format!("the agent does not come back: {}\njob {job} was submitted as {}", error.message, allocs.join(", "));
    CliError::new(CliExit::NoAgent, message).hint(format!(
        "what runs of it goes on, and an agent that is started again goes on with it: then `allostat events -f \
         {first}` follows it"
    ))
}

/// The result of a batch job: that of its first task that failed. What failed later may have failed of that.
fn finish(session: &mut CliSession<'_>, follow: &mut AllocFollower<'_>, allocs: &[AllocRow]) -> CliResult {
    let tasks = || allocs.iter().flat_map(|a| a.tasks.iter().map(move |(name, task)| (a, name, task)));
    let failed = tasks().filter(|(_, _, task)| task.failed);
    let Some((alloc, name, task)) = failed.min_by_key(|(_, _, task)| task.finished_at) else {
        // Stopped by a user: no failure, and no success either.
        let killed = tasks()
            .find(|(a, _, t)| a.desired == "stop" && t.last_exit.as_ref().is_none_or(|e| e.outcome == Outcome::Killed));
        if let Some((alloc, name, _)) = killed {
            return Err(CliError::failed(format!("task {name} of {} was stopped", alloc.short())));
        }
        writeln!(session.out, "{}", session.paint.paint(Style::Green, "complete"))?;
        return Ok(CliExit::Done);
    };
    let what = task.last_exit.as_ref().map_or("never ran".to_owned(), reason::exit);
    writeln!(session.out, "{} task {name} of {}: {what}", session.paint.paint(Style::Red, "failed:"), alloc.short())?;
    write!(session.out, "{}", last_output_of(follow, alloc, session.paint))?;
    Ok(match task.last_exit.as_ref().map(|e| &e.status) {
        Some(ExitStatus::Code(code)) if *code > 0 => CliExit::Task(*code),
        Some(ExitStatus::Signal(signal)) => CliExit::Task(128u8.saturating_add(*signal)),
        _ => CliExit::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_after_a_lost_agent_names_the_allocs_and_how_to_follow_them() {
        let ids = ["0123456789ab".to_owned(), "fedc".to_owned()];
        let error = agent_lost(CliError::new(CliExit::NoAgent, "cannot connect"), "web", &ids);
        assert_eq!(error.exit, CliExit::NoAgent);
        let text = error.to_string();
        for word in ["cannot connect", "web was submitted as 0123456789ab, fedc", "goes on", "events -f 01234567`"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let refused = CliError::failed("no");
        assert_eq!(agent_lost(refused.clone(), "web", &ids), refused);
        assert_eq!(unsure(refused.clone()), refused);
        assert!(unsure(CliError::new(CliExit::NoAgent, "broke off")).to_string().contains("not known"));
    }
}
