//! One run of a check: what it found, in a verdict and a text. Everything that a server answers is hostile.

use std::time::Duration;

use super::resolve::ProbePlan;
use super::status::RunVerdict;
use crate::host::http::probe;
use crate::model::text::terminal_lines;
use crate::runner::drivers::call::RunningAttempt;
use crate::runner::wait_ends::{Ends, EndsWith};

/// So much of a body, and of what a script prints, is kept.
const LONGEST_OUTPUT: usize = 3 << 10;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    pub verdict: RunVerdict,
    pub output: String,
}

impl CheckResult {
    fn of(verdict: RunVerdict, output: &str) -> CheckResult {
        let cut: String = output.chars().take(LONGEST_OUTPUT).collect();
        CheckResult { verdict, output: terminal_lines(cut.trim_end()).into_owned() }
    }
}

/// Takes at most `timeout`. `task`: where a script runs; `None`: its task does not run.
pub async fn run(plan: &ProbePlan, task: Option<RunningAttempt>, timeout: Duration) -> CheckResult {
    let late = || CheckResult::of(RunVerdict::Fail, &format!("timeout: no result within {timeout:?}"));
    match plan {
        // The driver ends what the script started.
        ProbePlan::Script(command) => script(command, task, timeout).await.unwrap_or_else(late),
        ProbePlan::Http(..) | ProbePlan::Tcp(_) | ProbePlan::Grpc(..) | ProbePlan::Nothing(_) => {
            tokio::time::timeout(timeout, perform(plan)).await.unwrap_or_else(|_| late())
        }
    }
}

async fn perform(plan: &ProbePlan) -> CheckResult {
    match plan {
        ProbePlan::Http(address, request) => {
            match probe::http(address, request, LONGEST_OUTPUT).ends_with(Ends::Deadline).await {
                Ok(answer) => {
                    let body = String::from_utf8_lossy(&answer.body);
                    CheckResult::of(verdict_of(answer.status), &format!("HTTP {} {address}: {body}", answer.status))
                }
                Err(error) => CheckResult::of(RunVerdict::Fail, &crate::telemetry::chain(&error)),
            }
        }
        ProbePlan::Tcp(address) => match probe::tcp(address).ends_with(Ends::Deadline).await {
            Ok(()) => CheckResult::of(RunVerdict::Pass, &format!("TCP {address}: connected")),
            Err(error) => CheckResult::of(RunVerdict::Fail, &crate::telemetry::chain(&error)),
        },
        ProbePlan::Grpc(address, service) => match probe::grpc(address, service).ends_with(Ends::Deadline).await {
            Ok(()) => CheckResult::of(RunVerdict::Pass, &format!("gRPC {address}: SERVING")),
            Err(why) => CheckResult::of(RunVerdict::Fail, &format!("gRPC {address}: {why}")),
        },
        ProbePlan::Script(_) => CheckResult::of(RunVerdict::Fail, "no task runs it"),
        ProbePlan::Nothing(why) => CheckResult::of(RunVerdict::Fail, why),
    }
}

/// As Nomad and Consul see it, but for redirects: they are no failure, and are not followed.
fn verdict_of(status: u16) -> RunVerdict {
    match status {
        200..400 => RunVerdict::Pass,
        429 => RunVerdict::Warn,
        _ => RunVerdict::Fail,
    }
}

/// `None`: it took longer.
async fn script(command: &[String], task: Option<RunningAttempt>, timeout: Duration) -> Option<CheckResult> {
    let Some(task) = task else { return Some(CheckResult::of(RunVerdict::Fail, "its task does not run")) };
    Some(match task.exec(command, timeout).await {
        Ok(end) => {
            let verdict = match end.code? {
                0 => RunVerdict::Pass,
                1 => RunVerdict::Warn,
                _ => RunVerdict::Fail,
            };
            CheckResult::of(verdict, &end.output)
        }
        Err(error) => CheckResult::of(RunVerdict::Fail, &error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_status_decides_the_verdict() {
        for (status, verdict) in [
            (200, RunVerdict::Pass),
            (204, RunVerdict::Pass),
            (302, RunVerdict::Pass),
            (429, RunVerdict::Warn),
            (404, RunVerdict::Fail),
            (500, RunVerdict::Fail),
            (101, RunVerdict::Fail),
        ] {
            assert_eq!(verdict_of(status), verdict, "{status}");
        }
    }

    #[test]
    fn output_is_cut_and_steers_no_terminal() {
        let found = CheckResult::of(RunVerdict::Fail, &format!("\u{1b}[2J{}", "x".repeat(10_000)));
        assert!(found.output.len() < LONGEST_OUTPUT + 10 && !found.output.contains('\u{1b}'));
    }
}
