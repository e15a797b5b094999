//! `allostat stop`

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::api_types::{AllocList, AllocRow, short};
use super::connect::{AgentConnection, AgentDoor};
use super::exit::{CliError, CliExit, CliResult};
use super::follow::{AllocFollower, FollowEnd};
use super::output::Style;
use super::targets::ConfirmArgs;
use super::{CliSession, human, parents, targets};
use crate::api::encode;

/// Connections on which stops are asked for: of an agent's 256, and those who scrape want some.
const AT_ONCE: usize = 32;

/// Stop allocs, and wait until they have ended
///
/// Examples: `allostat stop 5f0d`, `allostat stop --job web`
///
/// Keeps waiting across agent restarts. Ctrl-C ends the waiting, not the stop. Of a periodic or parameterized job it
/// stops the launches: its child jobs run on until they are done or stopped by their own names.
#[derive(Debug, clap::Args)]
pub struct StopCommand {
    /// IDs or their prefixes, jobs, or names of allocs (web.app[0])
    #[arg(required_unless_present_any = ["all", "job"], value_parser = super::alloc_id)]
    allocs: Vec<String>,
    /// Stop every periodic and parameterized job, and every managed alloc that has not ended
    #[arg(long, conflicts_with = "allocs")]
    all: bool,
    /// Stop every alloc of this job that has not ended
    #[arg(long, value_name = "NAME", conflicts_with_all = ["allocs", "all"])]
    job: Option<String>,
    /// Return without waiting
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    agreement: ConfirmArgs,
}

impl StopCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let mut follow = AllocFollower::from_now(&mut agent)?;
        let parents: Vec<String> = parents::all(follow.agent()).into_iter().map(|parent| parent.id).collect();
        let is_selected = |id: &String| self.all || self.job.as_ref() == Some(id) || self.allocs.contains(id);
        let parents: Vec<String> = parents.into_iter().filter(is_selected).collect();
        for id in &parents {
            parents::stop(follow.agent(), session, id)?;
        }
        let names: Vec<String> = self.allocs.iter().filter(|name| !parents.contains(name)).cloned().collect();
        if !parents.is_empty() && names.is_empty() && !self.all {
            return Ok(CliExit::Done);
        }
        let requested = if self.all {
            let list: AllocList = follow.agent().get("/v1/allocs")?;
            list.allocs.into_iter().filter(|a| a.is_managed() && a.is_unfinished()).map(|a| a.id).collect()
        } else if let Some(job) = &self.job {
            targets::of(follow.agent(), job, AllocRow::is_unfinished)?
        } else {
            let mut ids = Vec::with_capacity(self.allocs.len());
            for name in &names {
                ids.extend(self.agreement.allocs(follow.agent(), name, "stop")?);
            }
            ids
        };
        let mut ids: Vec<String> = Vec::with_capacity(requested.len());
        let mut had_ended: Vec<String> = Vec::new();
        let mut unsaved = None;
        let answers = stop_concurrently(&follow.agent().door(), &requested);
        for (id, answer) in requested.iter().zip(answers) {
            // Asking twice is asking once.
            let request = |agent: &mut AgentConnection| agent.post(&target(id), "");
            let answer =
                answer.map_or_else(|| follow.insist(request), Ok).map_err(|e| targets::or_job(agent_lost(e, &ids)))?;
            unsaved = unsaved.or_else(|| answer["unsaved"].as_str().map(str::to_owned));
            let id = answer["id"].as_str().map_or_else(|| id.clone(), str::to_owned);
            let list = if answer["had_ended"] == true { &mut had_ended } else { &mut ids };
            if !list.contains(&id) {
                list.push(id);
            }
        }
        if let Some(why) = unsaved {
            session.remark(&format!(
                "warning: the stop is not recorded: {why}\nan agent that dies before the disk works again restarts \
                 what is stopped now"
            ));
        }
        for id in &had_ended {
            writeln!(session.out, "{} had ended already", short(id))?;
        }
        if self.detach || ids.is_empty() {
            if !ids.is_empty() {
                writeln!(session.out, "{}", requested_text(&ids))?;
            } else if had_ended.is_empty() {
                writeln!(session.out, "nothing runs")?;
            }
            return Ok(CliExit::Done);
        }
        let paint = session.paint;
        let ended = follow.until(&ids, session.out, paint, |allocs| allocs.iter().all(AllocRow::is_over));
        match ended.map_err(|e| agent_lost(e, &ids))? {
            FollowEnd::Done(allocs) => {
                let stuck: Vec<_> = allocs.iter().filter(|a| !a.may_run.is_empty()).collect();
                if stuck.len() < ids.len() {
                    let text = format!("stopped {}", human::count(ids.len() - stuck.len(), "alloc"));
                    writeln!(session.out, "{}", paint.paint(Style::Green, &text))?;
                }
                if stuck.is_empty() { Ok(CliExit::Done) } else { Err(abandoned(&stuck)) }
            }
            FollowEnd::Interrupted => {
                Err(CliError::failed(format!("not waiting any longer; {}", requested_text(&ids))))
            }
        }
    }
}

fn target(id: &str) -> String {
    format!("/v1/allocs/{}/stop", encode(id))
}

/// Each stop is durable before it is answered: concurrent requests share that. `None`: this one failed; a request alone
/// then returns the reason.
fn stop_concurrently(door: &AgentDoor, ids: &[String]) -> Vec<Option<Value>> {
    let next = AtomicUsize::new(0);
    let request = || {
        let mut answers = Vec::new();
        let Ok(mut agent) = AgentConnection::through(door) else { return answers };
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(id) = ids.get(at) else { return answers };
            match agent.post(&target(id), "") {
                Ok(answer) => answers.push((at, answer)),
                Err(_) => return answers,
            }
        }
    };
    let mut all = vec![None; ids.len()];
    // One alone asks as it always did.
    let threads = if ids.len() > 1 { AT_ONCE.min(ids.len()) } else { 0 };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(request)).collect();
        for (at, answer) in workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()) {
            all[at] = Some(answer);
        }
    });
    all
}

fn agent_lost(error: CliError, ids: &[String]) -> CliError {
    if error.exit != CliExit::NoAgent || ids.is_empty() {
        return error;
    }
    let message = format!("the agent does not come back: {}\n{}", error.message, requested_text(ids));
    CliError::new(CliExit::NoAgent, message)
        .hint("an agent that is started again goes on with that: `allostat status` shows how far it is")
}

/// Called dead, since a command does not wait for ever; whether they are is another matter.
fn abandoned(stuck: &[&AllocRow]) -> CliError {
    let tasks: Vec<String> =
        stuck.iter().flat_map(|a| a.may_run.iter().map(|task| format!("{} {task}", a.short()))).collect();
    let allocs = human::count(stuck.len(), "alloc");
    CliError::failed(format!("gave up {allocs}; these tasks may still run: {}", tasks.join(", ")))
        .hint("the agent goes on ending them; `allostat gc` removes them when they are gone, and names them until then")
}

fn requested_text(ids: &[String]) -> String {
    format!("requested {} to stop", human::count(ids.len(), "alloc"))
}

/// Promise (Input validation): `stop` of many allocs requests in parallel; failed requests are repeated, one by one
#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::cli::testing;

    #[test]
    fn stops_are_requested_concurrently_and_failed_ones_are_left_for_a_retry() {
        const MANY: usize = 8;
        let ids: Vec<String> = (0..MANY).map(|n| format!("a{n}")).collect();
        // No request is answered before all have come.
        let requests = Arc::new((Mutex::new(0), Condvar::new()));
        let all = Arc::clone(&requests);
        let (agent, _dir) = testing::agent(Arc::new(move |target| {
            let (count, changed) = &*all;
            *count.lock().unwrap() += 1;
            changed.notify_all();
            let limit = Duration::from_secs(20);
            let (count, _) = changed.wait_timeout_while(count.lock().unwrap(), limit, |n| *n < MANY).unwrap();
            let together = *count == MANY;
            match target {
                "/v1/allocs/a3/stop" => Some((500, r#"{"code":"internal","message":"odd"}"#.to_owned())),
                _ => together.then(|| (200, format!(r#"{{"id":{target:?}}}"#))),
            }
        }));
        let answers = stop_concurrently(&agent.door(), &ids);
        for (id, answer) in ids.iter().zip(&answers) {
            let expected = (id != "a3").then(|| serde_json::json!({ "id": target(id) }));
            assert_eq!(*answer, expected, "{id}");
        }
        assert_eq!(*requests.0.lock().unwrap(), MANY, "each once");
        assert_eq!(stop_concurrently(&agent.door(), &ids[..1]), [None], "one alone asks as it always did");
    }
}
