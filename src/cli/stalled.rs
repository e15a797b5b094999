//! How long a restart may go without progress. An agent that works shows the next attempt within the times of its own
//! job; one that never does would keep its client waiting without end.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::api_types::{AllocRow, AllocTaskRow};
use super::output::printable;
use crate::model::job::Task;

/// For what an agent does itself: take the request up, kill, start.
const AGENT: Duration = Duration::from_secs(10);
/// Tasks wait for their artifacts and images, and for the tasks before them: so long with nothing that changes.
const START: Duration = Duration::from_secs(3600);
/// No time of a job counts for more: a server can claim any.
const LONGEST: Duration = Duration::from_secs(3600);
/// Between two looks at most this counts: meanwhile the agent may have been gone.
const MAX_GAP: Duration = Duration::from_secs(2);

/// The longest time in which a job lets its tasks end: kill timeouts and shutdown delays.
pub fn ending_time(alloc: &Value) -> Duration {
    let list = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let time = |of: &Value, key: &str| {
        let secs = of[key]["secs"].as_u64().unwrap_or(0);
        Duration::from_secs(secs).saturating_add(Duration::from_nanos(of[key]["nanos"].as_u64().unwrap_or(0)))
    };
    let groups = list(&alloc["definition"], "groups");
    let tasks = groups.iter().flat_map(|group| {
        let delay = time(group, "shutdown_delay");
        list(group, "tasks").into_iter().map(move |task| {
            delay.saturating_add(time(&task, "shutdown_delay")).saturating_add(time(&task, "kill_timeout"))
        })
    });
    tasks.max().unwrap_or(Task::KILL_TIMEOUT).min(LONGEST)
}

/// The tasks that were waited for last, and how long they have stayed as they are.
#[derive(Debug)]
pub struct Standstill {
    ending: Duration,
    last: Option<(Vec<String>, Instant)>,
    unchanged: Duration,
}

impl Standstill {
    /// `ending`: as [`ending_time`] has it.
    pub fn new(ending: Duration) -> Standstill {
        Standstill { ending, last: None, unchanged: Duration::ZERO }
    }

    /// `waiting`: the tasks that have not come to where they should be. Returns what is wrong once they have stayed as
    /// they are for longer than any of them may.
    pub fn update<'a>(
        &mut self,
        now: Instant,
        waiting: impl Iterator<Item = (&'a AllocRow, &'a String, &'a AllocTaskRow)>,
    ) -> Option<String> {
        let (mut shown, mut allowed) = (Vec::new(), Duration::ZERO);
        for (alloc, name, task) in waiting {
            let attempt = task.attempt.map_or_else(String::new, |attempt| format!(", attempt {attempt}"));
            shown.push(format!("task {} of {} is {}{attempt}", printable(name), alloc.short(), printable(&task.state)));
            allowed = allowed.max(match task.state.as_str() {
                "pending" | "starting" | "backoff" => START,
                "dead" => AGENT,
                _ => self.ending.saturating_add(AGENT),
            });
        }
        match &self.last {
            Some((before, at)) if *before == shown => {
                self.unchanged = self.unchanged.saturating_add(now.duration_since(*at).min(MAX_GAP));
            }
            _ => self.unchanged = Duration::ZERO,
        }
        let is_stalled = !shown.is_empty() && self.unchanged >= allowed;
        let wrong = is_stalled.then(|| format!("no progress for {} s: {}", allowed.as_secs(), shown.join("; ")));
        self.last = Some((shown, now));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::job::JobKind;

    fn alloc(state: &str, attempt: u64) -> AllocRow {
        let tasks = json!({ "t": { "state": state, "attempt": attempt } });
        serde_json::from_value(json!({ "id": "ab12cd34-0", "name": "web.app[0]", "tasks": tasks })).unwrap()
    }

    /// After how many seconds of looks each second the wait ends.
    fn given_up_after(ending: u64, rows: &[AllocRow]) -> Option<u64> {
        let mut standstill = Standstill::new(Duration::from_secs(ending));
        let began = Instant::now();
        (0..10_000).find(|second| {
            let row = &rows[usize::try_from(*second).unwrap() % rows.len()];
            let waiting = row.tasks.iter().map(|(name, task)| (row, name, task));
            standstill.update(began + Duration::from_secs(*second), waiting).is_some()
        })
    }

    #[test]
    fn standstill_ends_after_the_times_of_the_job_and_never_while_something_changes() {
        assert_eq!(given_up_after(30, &[alloc("dead", 1)]), Some(10), "nothing has to end any more");
        assert_eq!(given_up_after(30, &[alloc("killing", 1)]), Some(40));
        assert_eq!(given_up_after(30, &[alloc("running", 1)]), Some(40));
        assert_eq!(given_up_after(30, &[alloc("starting", 1)]), Some(3600), "an image may come slowly");
        assert_eq!(given_up_after(30, &[alloc("nonsense", 1)]), Some(40), "an unknown state");
        assert_eq!(given_up_after(30, &[alloc("killing", 1), alloc("killing", 2)]), None, "it goes on");
    }

    #[test]
    fn time_without_an_agent_does_not_count() {
        let mut standstill = Standstill::new(Duration::from_secs(5));
        let row = alloc("dead", 1);
        let mut check = |at: Instant| standstill.update(at, row.tasks.iter().map(|(name, task)| (&row, name, task)));
        let began = Instant::now();
        assert_eq!(check(began), None);
        assert_eq!(check(began + Duration::from_secs(50)), None, "it may have been gone");
    }

    #[test]
    fn ending_time_is_that_of_the_slowest_task_and_bounded() {
        let seconds = |secs: u64| json!({ "secs": secs, "nanos": 0 });
        let job = |kill: u64| {
            let tasks = json!([{ "kill_timeout": seconds(kill), "shutdown_delay": seconds(2) }, { "kill_timeout": seconds(1) }]);
            json!({ "definition": { "groups": [{ "shutdown_delay": seconds(3), "tasks": tasks }] } })
        };
        assert_eq!(ending_time(&job(20)), Duration::from_secs(25));
        assert_eq!(ending_time(&job(u64::MAX)), LONGEST);
        for odd in [json!({}), json!([]), json!({ "definition": { "groups": "x" } })] {
            assert_eq!(ending_time(&odd), Task::KILL_TIMEOUT, "{odd}");
        }
    }

    /// As the job is in answers: a change of its form would end the wait for every restart early.
    #[test]
    fn ending_time_reads_the_job_of_an_answer() {
        let plain = Task::new("t", "mock", serde_json::Map::new(), JobKind::Service);
        let task = Task { kill_timeout: Duration::from_secs(44), ..plain };
        let answer = json!({ "definition": { "groups": [{ "tasks": [task] }] } });
        assert_eq!(ending_time(&answer), Duration::from_secs(44));
    }
}
