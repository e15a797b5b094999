//! Why an alloc is as it is, in a few words: the same ones in each command.

use super::api_types::{AllocRow, AllocTaskRow, ExitRow};
use super::human;
use super::output::{Style, printable};
use crate::model::exit_text;
use crate::model::task::Outcome;
use crate::model::units::{Nanos, Timestamp};

/// So many restarts with the last failure so long ago are a crash loop, also while the task runs.
const LOOP_RESTARTS: u64 = 3;
const LOOP_WITHIN: Nanos = Nanos(600_000_000_000);
/// A single failure is shown for so long.
const RECENT: Nanos = Nanos(3_600_000_000_000);

/// Memory of an alloc at its peak, and its limit, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPeak {
    pub peak: Option<u64>,
    pub limit: Option<u64>,
}

/// `exit 3`, `OOM killed`, `signal 9 (SIGKILL); Result: timeout`, for a terminal.
pub fn exit(exit: &ExitRow) -> String {
    printable(&exit_text::described(&exit.status, exit.outcome, exit.oom_kills, exit.result))
}

/// The same; an OOM kill with the memory that it was about.
fn exit_with(of: &ExitRow, memory: MemoryPeak) -> String {
    let words = exit(of);
    match (of.outcome, memory.peak, memory.limit) {
        (Outcome::Oom, Some(peak), Some(limit)) => format!("{words}: {}", human::part_of(peak, limit)),
        _ => words,
    }
}

/// What of its tasks went wrong last.
pub fn worst_exit(alloc: &AllocRow) -> Option<&ExitRow> {
    let exits = alloc.tasks.values().filter_map(|task| Some((task.failed, task.last_exit.as_ref()?)));
    let went_wrong = exits.filter(|(_, exit)| !matches!(exit.outcome, Outcome::Success | Outcome::Killed));
    went_wrong.max_by_key(|(failed, exit)| (*failed, exit.finished_at)).map(|(_, exit)| exit)
}

/// Why an alloc has ended, or is not simply running. `None`: nothing is to be said.
pub fn of(alloc: &AllocRow, memory: MemoryPeak, now: Timestamp) -> Option<(String, Style)> {
    if !alloc.may_run.is_empty() {
        return Some((format!("abandoned, may still run: {}", printable(&alloc.may_run.join(", "))), Style::Red));
    }
    if !alloc.not_placed.is_empty() {
        let why = alloc.not_placed.iter().map(|one| printable(&one.message)).collect::<Vec<_>>().join("; ");
        return Some((format!("waiting: {why}"), Style::Yellow));
    }
    if let Some(loops) = alloc.tasks.values().filter_map(|task| crash_loop(task, memory, now)).max_by_key(|(n, _)| *n) {
        return Some((loops.1, Style::Red));
    }
    let exit = worst_exit(alloc);
    let failure = alloc.tasks.values().filter_map(|task| task.failure).min().map(|failure| failure.text());
    let ended = exit.map(|exit| exit_with(exit, memory));
    if let Some(next) = alloc.rescheduling(now) {
        return Some((ended.into_iter().chain([next]).collect::<Vec<_>>().join(", "), Style::Yellow));
    }
    if alloc.has_failed() {
        let words = ended.into_iter().chain(failure.map(str::to_owned)).collect::<Vec<_>>();
        let words = if words.is_empty() { printable(&alloc.description) } else { words.join(", ") };
        return Some((words, Style::Red)).filter(|(words, _)| !words.is_empty());
    }
    if alloc.is_unhealthy() {
        let why = alloc.health_reason.as_ref().map_or_else(String::new, |why| format!(": {}", printable(why)));
        return Some((format!("unhealthy{why}"), Style::Red));
    }
    let recent = exit.filter(|exit| !alloc.is_over() && now.since(exit.finished_at) <= RECENT);
    if let Some(exit) = recent {
        let when = human::ago(exit.finished_at, now);
        return Some((format!("restarted: {}, {when}", exit_with(exit, memory)), Style::Yellow));
    }
    let stopped = alloc.is_over() && alloc.tasks.values().any(|t| t.last_exit.as_ref().is_some_and(is_stop));
    if stopped {
        return Some(("stopped on request".to_owned(), Style::Plain));
    }
    let waits = alloc.status == "pending" && !alloc.description.is_empty();
    waits.then(|| (printable(&alloc.description), Style::Yellow))
}

fn is_stop(exit: &ExitRow) -> bool {
    exit.outcome == Outcome::Killed
}

/// How often a task restarted that fails again and again, and that in words.
fn crash_loop(task: &AllocTaskRow, memory: MemoryPeak, now: Timestamp) -> Option<(u64, String)> {
    let exit = task.last_exit.as_ref().filter(|exit| !is_stop(exit))?;
    let waits = task.next_start_at.filter(|_| task.state == "backoff");
    let is_loop = task.restarts >= LOOP_RESTARTS && now.since(exit.finished_at) <= LOOP_WITHIN && task.state != "dead";
    let next = waits.map(|at| format!("next in {}", human::duration(at.since(now))));
    let words = match (waits.is_some(), task.restarts) {
        (false, _) if !is_loop => return None,
        (_, 0 | 1) => vec![exit_with(exit, memory)],
        (_, restarts) => {
            let restarts = human::count(usize::try_from(restarts).unwrap_or(usize::MAX), "restart");
            vec![format!("crash loop: {restarts}"), exit_with(exit, memory)]
        }
    };
    Some((task.restarts, words.into_iter().chain(next).collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Timestamp = Timestamp(1_000 * SECOND);

    fn alloc(status: &str, task: &Value) -> AllocRow {
        let all =
            json!({ "id": "ab12cd34-0", "job": "web", "name": "web.app[0]", "status": status, "tasks": { "t": task } });
        serde_json::from_value(all).unwrap()
    }
    fn exit(outcome: &str, status: &Value) -> Value {
        json!({ "outcome": outcome, "status": status, "finished_at": 990 * SECOND })
    }
    fn words(status: &str, task: &Value) -> Option<String> {
        let memory = MemoryPeak { peak: Some(64 << 20), limit: Some(64 << 20) };
        of(&alloc(status, task), memory, NOW).map(|(words, _)| words)
    }

    #[test]
    fn reason_of_a_crash_loop_has_its_restarts_its_exit_and_the_next_start() {
        let at = 1_012 * SECOND;
        let failed = exit("error", &json!({ "code": 3 }));
        let task = json!({ "state": "backoff", "restarts": 4, "next_start_at": at, "last_exit": failed });
        assert_eq!(words("running", &task).unwrap(), "crash loop: 4 restarts, exit 3, next in 12.0 s");
        let first = json!({ "state": "backoff", "restarts": 0, "next_start_at": at, "last_exit": failed });
        assert_eq!(words("running", &first).unwrap(), "exit 3, next in 12.0 s");
        let runs = json!({ "state": "running", "restarts": 4, "last_exit": failed });
        assert_eq!(words("running", &runs).unwrap(), "crash loop: 4 restarts, exit 3");
        let once = json!({ "state": "running", "restarts": 1, "last_exit": failed });
        assert_eq!(words("running", &once).unwrap(), "restarted: exit 3, 10.0 s ago");
        let requested =
            json!({ "state": "running", "restarts": 5, "last_exit": exit("killed", &json!({ "signal": 15 })) });
        assert_eq!(words("running", &requested), None, "restarts on request are no crash loop");
    }

    #[test]
    fn reason_of_an_end_names_signals_and_the_memory_of_an_oom_kill() {
        let dead = |outcome: &str, status: Value| json!({ "state": "dead", "failed": true, "failure": "restarts_used_up", "last_exit": exit(outcome, &status) });
        let oom = words("failed", &dead("oom", json!({ "signal": 9 }))).unwrap();
        assert!(oom.starts_with("OOM killed: 64.0 of 64.0 MiB, "), "{oom}");
        let killed = words("failed", &dead("signal", json!({ "signal": 11 }))).unwrap();
        assert!(killed.starts_with("signal 11 (SIGSEGV), "), "{killed}");
        let stopped = json!({ "state": "dead", "last_exit": exit("killed", &json!({ "signal": 15 })) });
        assert_eq!(words("complete", &stopped).unwrap(), "stopped on request");
        let done = json!({ "state": "dead", "last_exit": exit("success", &json!({ "code": 0 })) });
        assert_eq!(words("complete", &done), None);
    }

    #[test]
    fn exit_text_of_a_service_has_the_systemd_result_unless_the_status_implies_it() {
        let words = |result: &str, status: Value| {
            let row = json!({ "outcome": "error", "status": status, "finished_at": 1, "result": result });
            super::exit(&serde_json::from_value(row).unwrap())
        };
        assert_eq!(words("exit-code", json!({ "code": 3 })), "exit 3");
        assert_eq!(words("exit-code", json!({ "code": 0 })), "exit 0; Result: exit-code", "of another command of it");
        assert_eq!(words("signal", json!({ "signal": 9 })), "signal 9 (SIGKILL)");
        assert_eq!(words("timeout", json!({ "signal": 9 })), "signal 9 (SIGKILL); Result: timeout");
        assert_eq!(words("watchdog", json!({ "signal": 6 })), "signal 6 (SIGABRT); Result: watchdog");
        assert_eq!(words("a-word-of-tomorrow", json!({ "code": 3 })), "exit 3");
    }

    #[test]
    fn reason_of_a_waiting_alloc_is_what_it_waits_for() {
        let mut waits = alloc("pending", &json!({ "state": "pending" }));
        let message = "constraint ${attr.kernel.name} = windows is not met";
        waits.not_placed = serde_json::from_value(json!([{ "reason": "constraint", "message": message }])).unwrap();
        let (words, style) = of(&waits, MemoryPeak::default(), NOW).unwrap();
        assert_eq!((words, style), (format!("waiting: {message}"), Style::Yellow));
    }
}
