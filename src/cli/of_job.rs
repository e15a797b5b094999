//! Which allocs a command acts on: one, by its id, or those of a job. A job's name where an id is wanted is never taken for all of them.

use serde_json::Value;

use super::Session;
use super::connect::Agent;
use super::exit::{CliError, CliResult, Exit};
use super::shape::{AllocList, AllocRow, short};

/// One alloc, or those of a job that run.
#[derive(Debug, clap::Args)]
pub struct OneOrJob {
    /// Alloc ID, or a unique ID prefix
    #[arg(required_unless_present = "job", value_parser = super::alloc_id)]
    alloc: Option<String>,
    /// Instead of one alloc: every alloc of this job that has not ended, with all its tasks
    #[arg(long, value_name = "NAME", conflicts_with = "alloc")]
    job: Option<String>,
}

impl OneOrJob {
    /// Asks for it at its target, and says to which tasks it went: `did`, and their names.
    ///
    /// Errors: it was refused; of a job's allocs it goes on with the others first.
    pub fn act(&self, session: &mut Session<'_>, did: &str, target: impl Fn(&str) -> String) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let Some(job) = &self.job else {
            let answer = agent.post(&target(self.alloc.as_deref().unwrap_or_default()), "").map_err(or_job)?;
            writeln!(session.out, "{did} {}", tasks(&answer))?;
            return Ok(Exit::Done);
        };
        let ids = running(&mut agent, job)?;
        if ids.is_empty() {
            writeln!(session.out, "nothing runs")?;
        }
        let mut refused = 0;
        for id in &ids {
            match agent.post(&target(id), "") {
                Ok(answer) => writeln!(session.out, "{}: {did} {}", short(id), tasks(&answer))?,
                Err(error) if error.exit == Exit::NoAgent => return Err(error),
                Err(error) => {
                    session.remark(&format!("{}: {error}", short(id)));
                    refused += 1;
                }
            }
        }
        match refused {
            0 => Ok(Exit::Done),
            _ => Err(CliError::failed(format!("refused by {refused} of {} allocs", ids.len()))),
        }
    }
}

/// The ids of those of a job's allocs that have not ended.
///
/// Errors: the agent has none of that job, ended or not.
pub fn running(agent: &mut Agent, job: &str) -> Result<Vec<String>, CliError> {
    let list: AllocList = agent.get("/v1/allocs")?;
    let of_job: Vec<AllocRow> = list.allocs.into_iter().filter(|alloc| alloc.is_ours() && alloc.job == job).collect();
    if of_job.is_empty() {
        let message = format!("there is no alloc of a job {job:?} that this agent runs");
        return Err(CliError::new(Exit::NotFound, message).hint("`allostat status` lists the allocs"));
    }
    Ok(of_job.into_iter().filter(|alloc| !alloc.is_over()).map(|alloc| alloc.id).collect())
}

/// Who is told that there is no such alloc may have meant a job.
pub fn or_job(error: CliError) -> CliError {
    if error.exit != Exit::NotFound || error.hint.is_none() {
        return error;
    }
    error.hint("`allostat status` lists the allocs; all of a job that run: --job NAME")
}

fn tasks(answer: &Value) -> String {
    answer["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}
