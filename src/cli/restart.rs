//! `allostat restart`

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::api_types::{AllocList, AllocRow, AllocTaskRow};
use super::exit::{CliError, CliExit, CliResult};
use super::follow::{AllocFollower, FollowEnd};
use super::output::{Style, printable};
use super::stalled::{Standstill, ending_time};
use super::targets::{AffectedAlloc, OneOrJob};
use super::{CliSession, human, reason};
use crate::api::encode;
use crate::model::job::LifecycleHook;
use crate::model::task::Outcome;

/// Restart the running tasks of an alloc, and wait until they run again
///
/// Examples: `allostat restart web`, `allostat restart --job web`
///
/// Keeps waiting across agent restarts. Ctrl-C ends the waiting, not the restart. So does a standstill: 10 s longer
/// than the job lets its tasks end (kill_timeout, shutdown_delay), or an hour while tasks wait for their start.
#[derive(Debug, clap::Args)]
pub struct RestartCommand {
    #[command(flatten)]
    of: OneOrJob,
    /// Task to restart; default: every running task, in place
    task: Option<String>,
    /// Restart all tasks, ended ones too, in lifecycle order; also an alloc that has ended
    #[arg(long, conflicts_with = "task")]
    all: bool,
    /// Return without waiting
    #[arg(long)]
    detach: bool,
}

/// The attempts that tasks are at, by alloc and task.
type Attempts = BTreeMap<(String, String), u64>;

impl RestartCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let what = match &self.task {
            Some(task) => format!("?task={}", encode(task)),
            None if self.all => "?all=true".to_owned(),
            None => String::new(),
        };
        let mut agent = session.connect_to_act()?;
        let before = if self.detach { Attempts::new() } else { attempts(&agent.get("/v1/allocs")?) };
        let mut follow = AllocFollower::from_now(&mut agent)?;
        let target = |alloc: &str| format!("/v1/allocs/{}/restart{what}", encode(alloc));
        let acted = self.of.act_on(follow.agent(), session, ("restart", "restarting"), target)?;
        if self.detach || acted.reached.is_empty() {
            return acted.exit();
        }
        let ids: Vec<String> = acted.reached.iter().map(|reached| reached.id.clone()).collect();
        let standstill = RefCell::new((Standstill::new(longest_ending(&mut follow, &ids)), None));
        let is_over = |allocs: &[AllocRow]| {
            let of = |alloc| tasks_of(alloc, &acted.reached).map(move |(name, task)| (alloc, name, task));
            let waiting = allocs.iter().flat_map(of).filter(|(alloc, name, task)| !settled(alloc, name, task, &before));
            let waiting: Vec<_> = waiting.collect();
            let (standstill, wrong) = &mut *standstill.borrow_mut();
            *wrong = standstill.update(Instant::now(), waiting.iter().copied());
            waiting.is_empty() || wrong.is_some()
        };
        let paint = session.paint;
        let ended = follow.until(&ids, session.out, paint, is_over)?;
        if let (_, Some(wrong)) = standstill.into_inner() {
            let hint = "the restart was accepted; `allostat status` and `allostat events` show how far it is";
            return Err(CliError::failed(format!("not waiting any longer; {wrong}")).hint(hint));
        }
        match ended {
            FollowEnd::Interrupted => Err(CliError::failed("not waiting any longer; the restart continues")),
            FollowEnd::Done(allocs) => {
                let failures: Vec<String> = allocs.iter().flat_map(|alloc| failures(alloc, &acted.reached)).collect();
                if failures.is_empty() {
                    let text = format!("restarted {}", human::count(ids.len(), "alloc"));
                    writeln!(session.out, "{}", paint.paint(Style::Green, &text))?;
                    return acted.exit();
                }
                let hint = format!("`allostat status {}` shows its events", short_of(&allocs));
                Err(CliError::new(CliExit::Failed, failures.join("\n")).hint(hint))
            }
        }
    }
}

/// Of the job of each alloc. What does not answer has the default: the wait itself says what is wrong.
fn longest_ending(follow: &mut AllocFollower<'_>, ids: &[String]) -> Duration {
    let ending = |id: &String| {
        let alloc = follow.agent().get::<Value>(&format!("/v1/allocs/{}", encode(id))).unwrap_or_default();
        ending_time(&alloc)
    };
    ids.iter().map(ending).max().unwrap_or_default()
}

fn attempts(list: &AllocList) -> Attempts {
    let tasks = list.allocs.iter().flat_map(|alloc| alloc.tasks.iter().map(move |(name, task)| (alloc, name, task)));
    tasks.filter_map(|(alloc, name, task)| Some(((alloc.id.clone(), name.clone()), task.attempt?))).collect()
}

/// The tasks that the request reached, except poststop tasks, which run only at the end of the alloc.
fn tasks_of<'a>(
    alloc: &'a AllocRow,
    reached: &'a [AffectedAlloc],
) -> impl Iterator<Item = (&'a String, &'a AllocTaskRow)> {
    let requested = reached.iter().find(|reached| reached.id == alloc.id);
    let is_after = |task: &AllocTaskRow| task.lifecycle.is_some_and(|cycle| cycle.hook == LifecycleHook::Poststop);
    alloc
        .tasks
        .iter()
        .filter(move |(name, task)| requested.is_some_and(|all| all.tasks.contains(*name)) && !is_after(task))
}

/// Its next attempt runs, or has ended already; or there will be none.
fn settled(alloc: &AllocRow, name: &str, task: &AllocTaskRow, before: &Attempts) -> bool {
    let was_at = before.get(&(alloc.id.clone(), name.to_owned()));
    let is_new = task.attempt.is_some_and(|attempt| was_at.is_none_or(|before| attempt > *before));
    let is_stopped = alloc.desired == "stop" && task.state == "dead";
    is_stopped || (is_new && matches!(task.state.as_str(), "running" | "dead" | "backoff"))
}

/// What of it does not run after its restart, and did not end well either.
fn failures(alloc: &AllocRow, reached: &[AffectedAlloc]) -> Vec<String> {
    let ended = tasks_of(alloc, reached).filter(|(_, task)| task.state != "running");
    let words = ended.filter_map(|(name, task)| match &task.last_exit {
        Some(exit) if exit.outcome == Outcome::Success => None,
        Some(exit) => Some((name, reason::exit(exit))),
        None => Some((name, task.state.clone())),
    });
    words.map(|(name, why)| format!("task {} of {} does not run: {why}", printable(name), alloc.short())).collect()
}

fn short_of(allocs: &[AllocRow]) -> &str {
    allocs.first().map_or("", AllocRow::short)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn alloc(desired: &str, tasks: &Value) -> AllocRow {
        let all = json!({ "id": "ab12cd34-0", "name": "web.app[0]", "desired": desired, "tasks": tasks });
        serde_json::from_value(all).unwrap()
    }
    fn is_settled(desired: &str, task: &Value) -> bool {
        let alloc = alloc(desired, &json!({ "t": task }));
        let before = Attempts::from([(("ab12cd34-0".to_owned(), "t".to_owned()), 2)]);
        settled(&alloc, "t", &alloc.tasks["t"], &before)
    }

    #[test]
    fn restart_is_done_when_the_next_attempt_runs_or_has_ended() {
        for (state, attempt, done) in [
            ("running", 2, false),
            ("killing", 2, false),
            ("starting", 3, false),
            ("running", 3, true),
            ("dead", 3, true),
            ("backoff", 3, true),
            ("dead", 2, false),
        ] {
            assert_eq!(is_settled("run", &json!({ "state": state, "attempt": attempt })), done, "{state} {attempt}");
        }
        assert!(is_settled("stop", &json!({ "state": "dead", "attempt": 2 })), "a stop wins");
    }

    #[test]
    fn restart_fails_for_tasks_that_do_not_run_again_and_leaves_out_poststop_tasks() {
        let exit =
            |outcome: &str, code: u8| json!({ "outcome": outcome, "status": { "code": code }, "finished_at": 1 });
        let tasks = json!({
            "bad": { "state": "backoff", "attempt": 3, "last_exit": exit("error", 3) },
            "done": { "state": "dead", "attempt": 3, "last_exit": exit("success", 0) },
            "fine": { "state": "running", "attempt": 3, "last_exit": exit("killed", 0) },
            "other": { "state": "dead", "last_exit": exit("error", 1) },
            "after": { "state": "pending", "lifecycle": { "hook": "poststop", "sidecar": false } },
        });
        let names = ["bad", "done", "fine", "after"].map(str::to_owned).to_vec();
        let reached = [AffectedAlloc { id: "ab12cd34-0".to_owned(), tasks: names }];
        let alloc = alloc("run", &tasks);
        assert_eq!(failures(&alloc, &reached), ["task bad of ab12cd34 does not run: exit 3"]);
        assert_eq!(tasks_of(&alloc, &reached).count(), 3);
    }
}
