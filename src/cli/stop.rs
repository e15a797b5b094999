//! `allostat stop`

use serde_json::Value;

use super::exit::{CliError, CliResult, Exit};
use super::follow::{Ended, Follow};
use super::output::Style;
use super::shape::{AllocList, AllocRow};
use super::{Session, human};
use crate::api::encode;

/// Stop allocs, and wait until they have ended
///
/// Over restarts of the agent too. Ctrl-C ends the waiting, not the stop.
#[derive(Debug, clap::Args)]
pub struct Stop {
    /// Ids, or unique beginnings
    #[arg(required_unless_present = "all", value_parser = super::alloc_id)]
    allocs: Vec<String>,
    /// Every alloc that has not ended
    #[arg(long, conflicts_with = "allocs")]
    all: bool,
    /// Ask and return
    #[arg(long)]
    detach: bool,
}

impl Stop {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let mut follow = Follow::from_now(&mut agent)?;
        let wanted = if self.all {
            let list: AllocList = follow.agent().get("/v1/allocs")?;
            list.allocs.into_iter().filter(|a| !a.is_over()).map(|a| a.id).collect()
        } else {
            self.allocs
        };
        let mut ids: Vec<String> = Vec::with_capacity(wanted.len());
        let mut had_ended: Vec<String> = Vec::new();
        for id in &wanted {
            let target = format!("/v1/allocs/{}/stop", encode(id));
            // Asking twice is asking once.
            let answer: Value = follow.insist(|agent| agent.post(&target, "")).map_err(|e| gone(e, &ids))?;
            let id = answer["id"].as_str().map_or_else(|| id.clone(), str::to_owned);
            let list = if answer["had_ended"] == true { &mut had_ended } else { &mut ids };
            if !list.contains(&id) {
                list.push(id);
            }
        }
        for id in &had_ended {
            writeln!(session.out, "{} had ended already", id.get(..8).unwrap_or(id))?;
        }
        if self.detach || ids.is_empty() {
            if !ids.is_empty() {
                writeln!(session.out, "{}", asked(&ids))?;
            } else if had_ended.is_empty() {
                writeln!(session.out, "nothing runs")?;
            }
            return Ok(Exit::Done);
        }
        let paint = session.paint;
        let ended = follow.until(&ids, session.out, paint, |allocs| allocs.iter().all(AllocRow::is_over));
        match ended.map_err(|e| gone(e, &ids))? {
            Ended::Done(allocs) => {
                let stuck: Vec<_> = allocs.iter().filter(|a| !a.may_run.is_empty()).collect();
                if stuck.len() < ids.len() {
                    let text = format!("stopped {}", human::count(ids.len() - stuck.len(), "alloc"));
                    writeln!(session.out, "{}", paint.paint(Style::Green, &text))?;
                }
                if stuck.is_empty() { Ok(Exit::Done) } else { Err(given_up(&stuck)) }
            }
            Ended::Interrupted => Err(CliError::failed(format!("not waiting any longer; {}", asked(&ids)))),
        }
    }
}

fn gone(error: CliError, ids: &[String]) -> CliError {
    if error.exit != Exit::NoAgent || ids.is_empty() {
        return error;
    }
    let message = format!("the agent does not come back: {}\n{}", error.message, asked(ids));
    CliError::new(Exit::NoAgent, message)
        .hint("an agent that is started again goes on with that: `allostat status` shows how far it is")
}

/// Called dead, since nobody waits for ever; whether they are is another matter.
fn given_up(stuck: &[&AllocRow]) -> CliError {
    let tasks: Vec<String> =
        stuck.iter().flat_map(|a| a.may_run.iter().map(|task| format!("{} {task}", a.short()))).collect();
    let allocs = human::count(stuck.len(), "alloc");
    CliError::failed(format!("gave up {allocs}, of which something may still run: {}", tasks.join(", "))).hint(
        "the agent goes on ending them; `allostat gc` removes them when they are gone, and says so while they are not",
    )
}

fn asked(ids: &[String]) -> String {
    format!("asked {} to stop", human::count(ids.len(), "alloc"))
}
