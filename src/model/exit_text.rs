//! How an attempt ended, in words: the same ones in commands, events, logs, OTLP records and on the page.

use super::signal;
use super::task::{Exit, ExitStatus, Outcome, ServiceResult};

/// `exit 3`, `OOM killed`, `signal 9 (SIGKILL)`, `stopped on request`, `not started: no such file`, `lost: no record`.
///
/// The reasons of the last two are foreign text.
pub fn ending(status: &ExitStatus, outcome: Outcome) -> String {
    match (status, outcome) {
        (ExitStatus::Code(_) | ExitStatus::Signal(_), Outcome::Oom) => "OOM killed".to_owned(),
        (ExitStatus::Code(code), Outcome::Killed) => format!("stopped on request (exit {code})"),
        (ExitStatus::Code(code), _) => code_text(*code),
        (ExitStatus::Signal(_), Outcome::Killed) => "stopped on request".to_owned(),
        (ExitStatus::Signal(number), _) => match signal::name(*number) {
            Some(name) => format!("signal {number} ({name})"),
            None => format!("signal {number}"),
        },
        (ExitStatus::NotStarted(_), Outcome::Killed) => "stopped before it started".to_owned(),
        (ExitStatus::NotStarted(why), _) => not_started(why),
        (ExitStatus::Unknown(why), _) => lost(why),
    }
}

/// Of a program that is no task: a script of a template, a command in a task.
pub fn code_text(code: u8) -> String {
    format!("exit {code}")
}

pub fn not_started(why: &str) -> String {
    format!("not started: {why}")
}

pub fn lost(why: &str) -> String {
    format!("lost: {why}")
}

/// [`ending`] with what else is known of the end: the `Result` of a systemd service, an OOM kill of a child.
pub fn described(
    status: &ExitStatus,
    outcome: Outcome,
    oom_kills: Option<u64>,
    result: Option<ServiceResult>,
) -> String {
    let mut text = ending(status, outcome);
    if let Some(word) = result.and_then(|result| result.word_unlike(status)) {
        text.push_str("; Result: ");
        text.push_str(word);
    }
    // Its main process went on, or ended in another way.
    if outcome != Outcome::Oom && oom_kills.is_some_and(|kills| kills > 0) {
        text.push_str("; a process in it was OOM killed");
    }
    text
}

impl Exit {
    pub fn described(&self) -> String {
        described(&self.status, self.outcome, self.oom_kills, self.result)
    }
}

/// For columns of ten characters: [`ending`] without what stands in brackets or after a colon, and shorter where that
/// is too long.
pub fn brief(status: &ExitStatus, outcome: Outcome) -> String {
    match (status, outcome) {
        (ExitStatus::Signal(_), Outcome::Killed) | (ExitStatus::NotStarted(_), Outcome::Killed) => "stopped".to_owned(),
        (ExitStatus::Code(code), Outcome::Killed) => code_text(*code),
        (ExitStatus::NotStarted(_), _) => "no start".to_owned(),
        _ => {
            let text = ending(status, outcome);
            text.split([':', '(']).next().unwrap_or_default().trim_end().to_owned()
        }
    }
}

/// Promise (Measured values): How an attempt ended has one wording in commands, events, logs and OTLP records
/// Promise (Observed workloads): A container whose child was OOM killed ends with its own code, and the kill is
/// reported
#[cfg(test)]
mod tests {
    use super::*;

    /// Status, outcome, words, words of a narrow column.
    fn endings() -> Vec<(ExitStatus, Outcome, &'static str, &'static str)> {
        let not_started = || ExitStatus::NotStarted("exec: no such file".to_owned());
        let unknown = || ExitStatus::Unknown("the host (web) restarted: at 3".to_owned());
        vec![
            (ExitStatus::Code(0), Outcome::Success, "exit 0", "exit 0"),
            (ExitStatus::Code(3), Outcome::Error, "exit 3", "exit 3"),
            (ExitStatus::Code(137), Outcome::Error, "exit 137", "exit 137"),
            (ExitStatus::Code(137), Outcome::Oom, "OOM killed", "OOM killed"),
            (ExitStatus::Signal(9), Outcome::Oom, "OOM killed", "OOM killed"),
            (ExitStatus::Signal(9), Outcome::Signal, "signal 9 (SIGKILL)", "signal 9"),
            (ExitStatus::Signal(40), Outcome::Signal, "signal 40", "signal 40"),
            (ExitStatus::Signal(15), Outcome::Killed, "stopped on request", "stopped"),
            (ExitStatus::Code(0), Outcome::Killed, "stopped on request (exit 0)", "exit 0"),
            (not_started(), Outcome::Error, "not started: exec: no such file", "no start"),
            (not_started(), Outcome::Killed, "stopped before it started", "stopped"),
            (unknown(), Outcome::Unknown, "lost: the host (web) restarted: at 3", "lost"),
            (unknown(), Outcome::Killed, "lost: the host (web) restarted: at 3", "lost"),
        ]
    }

    #[test]
    fn each_end_has_one_text_and_a_brief_one_of_ten_characters() {
        for (status, outcome, text, short) in endings() {
            assert_eq!((ending(&status, outcome).as_str(), brief(&status, outcome).as_str()), (text, short));
            assert!(short.len() <= 10, "{short}");
        }
    }

    #[test]
    fn text_of_an_end_has_the_systemd_result_and_the_oom_kill_of_a_child() {
        let of = |status, outcome, kills, result| described(&status, outcome, kills, result);
        let timeout = Some(ServiceResult::Timeout);
        for (text, expected) in [
            (of(ExitStatus::Code(0), Outcome::Success, Some(1), None), "exit 0; a process in it was OOM killed"),
            (of(ExitStatus::Code(0), Outcome::Success, Some(0), None), "exit 0"),
            (of(ExitStatus::Code(0), Outcome::Success, None, None), "exit 0"),
            (of(ExitStatus::Signal(9), Outcome::Oom, Some(2), Some(ServiceResult::OomKill)), "OOM killed"),
            (of(ExitStatus::Signal(9), Outcome::Signal, None, timeout), "signal 9 (SIGKILL); Result: timeout"),
            (
                of(ExitStatus::Code(3), Outcome::Error, Some(1), timeout),
                "exit 3; Result: timeout; a process in it was OOM killed",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }
}
