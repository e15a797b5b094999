//! Which allocs a command acts on: one, by its ID or a name that it alone has, or those of a job.

use serde_json::Value;

use super::api_types::{AllocList, AllocRow, short};
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::output::printable;
use super::{CliSession, human, output};

/// One alloc, or the allocs of a job that have not ended.
#[derive(Debug, clap::Args)]
pub struct OneOrJob {
    /// An ID or its prefix, a job, or the name of an alloc (web.app[0])
    #[arg(required_unless_present = "job", value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Every alloc of this job that has not ended, with all of its tasks
    #[arg(long, value_name = "NAME", conflicts_with = "alloc")]
    job: Option<String>,
    #[command(flatten)]
    agreement: ConfirmArgs,
}

/// Of an action on several allocs.
#[derive(Debug, clap::Args)]
pub struct ConfirmArgs {
    /// Act on every alloc of that name without a question
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArgs {
    /// The IDs that a name means, of allocs that this agent runs: itself, unless several that have not ended have that
    /// name.
    ///
    /// Errors: several have it, and neither `--yes` nor a person at the terminal agreed to `verb` all of them.
    pub fn allocs(&self, agent: &mut AgentConnection, name: &str, verb: &str) -> Result<Vec<String>, CliError> {
        self.allocs_that(agent, name, verb, AllocRow::is_unfinished)
    }

    /// The same of allocs in another state.
    ///
    /// Errors: as of [`Self::allocs`].
    pub fn allocs_that(
        &self,
        agent: &mut AgentConnection,
        name: &str,
        verb: &str,
        is_candidate: fn(&AllocRow) -> bool,
    ) -> Result<Vec<String>, CliError> {
        let list: AllocList = agent.get("/v1/allocs")?;
        if list.allocs.iter().any(|alloc| alloc.id == name) {
            return Ok(vec![name.to_owned()]);
        }
        let is_selected = |a: &AllocRow| a.is_managed() && is_candidate(a) && a.is_called(name);
        let several: Vec<AllocRow> = list.allocs.into_iter().filter(is_selected).collect();
        match several.as_slice() {
            [] => return Ok(vec![name.to_owned()]),
            [only] => return Ok(vec![only.id.clone()]),
            _ => {}
        }
        let rows: Vec<String> = several.iter().map(|a| format!("  {} {}", a.short(), printable(&a.name))).collect();
        let question = format!("{verb} {} of {name:?}?\n{}", human::count(several.len(), "alloc"), rows.join("\n"));
        if self.yes || output::confirm(&question) == Some(true) {
            return Ok(several.into_iter().map(|alloc| alloc.id).collect());
        }
        let message = format!("{name:?} is the name of {}:\n{}", human::count(several.len(), "alloc"), rows.join("\n"));
        Err(CliError::new(CliExit::NotFound, message).hint("give one of these IDs, or add --yes to act on all of them"))
    }
}

impl OneOrJob {
    /// Posts to the target of each alloc and prints which tasks it reached: `did`, and their names.
    ///
    /// Errors: it was refused; of several allocs it goes on with the rest first.
    pub fn act(
        &self,
        session: &mut CliSession<'_>,
        verb: &str,
        did: &str,
        target: impl Fn(&str) -> String,
    ) -> CliResult {
        let mut agent = session.connect_to_act()?;
        self.act_on(&mut agent, session, (verb, did), target)?.exit()
    }

    /// The same for a command that goes on with what was reached.
    ///
    /// Errors: the only one was refused, or the agent is gone.
    pub fn act_on(
        &self,
        agent: &mut AgentConnection,
        session: &mut CliSession<'_>,
        (verb, did): (&str, &str),
        target: impl Fn(&str) -> String,
    ) -> Result<ActionOutcome, CliError> {
        let ids = match (&self.job, &self.alloc) {
            (Some(job), _) => of(agent, job, |alloc| !alloc.is_over())?,
            (None, Some(name)) => self.agreement.allocs(agent, name, verb)?,
            (None, None) => Vec::new(),
        };
        let mut acted = ActionOutcome { reached: Vec::new(), refused: 0, requested: ids.len() };
        if let ([id], None) = (ids.as_slice(), &self.job) {
            let answer = agent.post(&target(id), "").map_err(or_job)?;
            writeln!(session.out, "{did} {}", tasks(&answer).join(", "))?;
            acted.reached.push(AffectedAlloc::of(id, &answer));
            return Ok(acted);
        }
        if ids.is_empty() {
            writeln!(session.out, "nothing runs")?;
        }
        for id in &ids {
            match agent.post(&target(id), "") {
                Ok(answer) => {
                    writeln!(session.out, "{}: {did} {}", short(id), tasks(&answer).join(", "))?;
                    acted.reached.push(AffectedAlloc::of(id, &answer));
                }
                Err(error) if error.exit == CliExit::NoAgent => return Err(error),
                Err(error) => {
                    session.remark(&format!("{}: {error}", short(id)));
                    acted.refused += 1;
                }
            }
        }
        Ok(acted)
    }
}

/// An alloc that an action reached, and its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedAlloc {
    pub id: String,
    pub tasks: Vec<String>,
}

impl AffectedAlloc {
    /// `id`: as it was asked for, of an agent that does not answer with the whole one.
    fn of(id: &str, answer: &Value) -> AffectedAlloc {
        let id = answer["id"].as_str().unwrap_or(id).to_owned();
        AffectedAlloc { id, tasks: tasks(answer).into_iter().map(str::to_owned).collect() }
    }
}

/// What became of an action on one or several allocs.
#[derive(Debug)]
pub struct ActionOutcome {
    pub reached: Vec<AffectedAlloc>,
    refused: usize,
    requested: usize,
}

impl ActionOutcome {
    pub fn exit(&self) -> CliResult {
        match self.refused {
            0 => Ok(CliExit::Done),
            refused => Err(CliError::failed(format!("refused by {refused} of {} allocs", self.requested))),
        }
    }
}

/// The IDs of the allocs of a job that are as `is_selected`.
///
/// Errors: the agent has none of that job, whatever it is like.
pub fn of(agent: &mut AgentConnection, job: &str, is_selected: fn(&AllocRow) -> bool) -> Result<Vec<String>, CliError> {
    let list: AllocList = agent.get("/v1/allocs")?;
    let of_job: Vec<AllocRow> =
        list.allocs.into_iter().filter(|alloc| alloc.is_managed() && alloc.job == job).collect();
    if of_job.is_empty() {
        let message = format!("there is no alloc of a job {job:?} that this agent runs");
        return Err(CliError::new(CliExit::NotFound, message).hint("`allostat status` lists the allocs"));
    }
    Ok(of_job.into_iter().filter(is_selected).map(|alloc| alloc.id).collect())
}

/// An unknown name may be that of a job.
pub fn or_job(error: CliError) -> CliError {
    if error.exit != CliExit::NotFound || error.hint.is_none() {
        return error;
    }
    error.hint("`allostat status` lists allocs and jobs")
}

fn tasks(answer: &Value) -> Vec<&str> {
    answer["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
