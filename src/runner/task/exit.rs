//! The end of an attempt: the exit from its last reading, the event that reports it, and what follows.

use std::sync::Arc;

use tokio::time::Instant;

use super::TaskOwner;
use super::launch::LaunchFailure;
use crate::model::event::EventKind;
use crate::model::task::{Exit, ExitStatus, LostOutput, Outcome, RestartReason};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::model::{exit_text, signal};
use crate::runner::alloc::KillEscalation;
use crate::runner::decide::outcome::{SIGKILL, outcome, with_oom};
use crate::runner::decide::restart::{AttemptOutcome, Decision, FinishReason};
use crate::runner::decide::step::{Action, State, StepEvent, step};
use crate::runner::drivers::AttemptEnd;
use crate::runner::persistence::record::KillRequest;
use crate::runner::wait_ends::{Ends, EndsWith};

impl TaskOwner {
    /// It ended while no agent ran, and no record says that it was signalled; the disk may not have taken the record.
    /// An end by that very signal, or by force when its end was due, counts as requested.
    pub(super) fn note_obeyed(&self, end: &AttemptEnd) {
        let Some(cause) = self.alloc.no_more(self.at).filter(|_| self.alloc.kill(self.at).is_none()) else { return };
        let Some(since) = self.alloc.ends_since(cause) else { return };
        let obeyed = match end.status {
            ExitStatus::Signal(SIGKILL) => end.usage.oom_kills().is_none_or(|n| n == 0),
            ExitStatus::Signal(by) => Some(by) == signal::number(self.kill_signal()),
            ExitStatus::Code(_) | ExitStatus::NotStarted(_) | ExitStatus::Unknown(_) => false,
        };
        if obeyed && since <= self.alloc.ctx.line.of_wall(end.finished_at) {
            self.alloc.edit(self.at, |edit| {
                *edit.kill() =
                    Some(KillRequest { cause, requested_at: since, reported: true, signalled_at: Some(since) });
                edit.report_cause(cause);
            });
        }
    }

    pub(super) async fn exited(&mut self, end: AttemptEnd) {
        for problem in &end.problems {
            tracing::warn!(
                alloc_id = %self.alloc.id,
                task = %self.alloc.task(self.at).name,
                problem,
                "failed to read part of the last sample"
            );
        }
        self.alloc.read_last(self.at, matches!(end.status, ExitStatus::Unknown(_))).await;
        let last_output = match end.status {
            ExitStatus::Code(0) | ExitStatus::NotStarted(_) => None,
            ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::Unknown(_) => {
                self.alloc.last_output(self.at).await
            }
        };
        let killed = self.is_killed();
        let ending = self.alloc.edit(self.at, |edit| {
            // An agent may die between the signal and its record: an attempt that ended after the request was killed by
            // it.
            let finished_at = self.alloc.ctx.line.of_wall(end.finished_at);
            let killed = killed || edit.restart().is_some_and(|restart| restart.is_due(finished_at));
            let attempt = edit.status().attempt;
            let mut exit = exit_of(attempt, end.status, end.started_at, end.finished_at, end.usage, killed);
            exit.lost_output = end.lost_output;
            exit.last_output = last_output;
            exit.outcome = with_oom(exit.outcome, end.oom_killed);
            let (kind, message, details) = terminated(&exit);
            edit.event_at(exit.finished_at, kind, message, &details);
            let ending = match exit.status {
                ExitStatus::NotStarted(_) if !killed => AttemptOutcome::StartFailure { recoverable: end.recoverable },
                ExitStatus::NotStarted(_) | ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::Unknown(_) => {
                    AttemptOutcome::Exit(exit.outcome)
                }
            };
            edit.ended(exit);
            ending
        });
        self.ended = self.attempt.take();
        self.finish_attempt(ending, StepEvent::Exited).await;
    }

    pub(super) async fn lost(&mut self, reason: &str) {
        let handle = self.alloc.handle(self.at);
        let (alloc, at) = (Arc::clone(&self.alloc), self.at);
        let counted =
            self.alloc.ctx.blocking.block(move || alloc.counted(at)).ends_with(Ends::Disk).await.unwrap_or_default();
        self.alloc.read_last(self.at, true).await;
        let last_output = self.alloc.last_output(self.at).await;
        self.alloc.edit(self.at, |edit| {
            let (state, _) = step(State::Pending, StepEvent::Lost);
            edit.status().failed = true;
            let message = "abandoned: it was started and cannot be found again; it is not started twice";
            edit.event(EventKind::FailedRestore, message, &[("error", reason.to_owned())]);
            let attempt = edit.status().attempt;
            let mut exit = exit_of(attempt, ExitStatus::Unknown(reason.to_owned()), None, edit.now, counted, false);
            exit.last_output = last_output;
            edit.status().finished_at = Some(edit.now);
            edit.ended(exit);
            edit.forced(KillEscalation::Abandoned);
            // The driver could not end it: the processes that its handle names may still run.
            edit.set_handle(handle);
            edit.enter_state(state);
        });
        self.leave_late();
        self.persist_and_show().await;
    }

    pub(super) async fn start_failed(&mut self, failure: LaunchFailure) {
        if let Some(request) = failure.cancelled_by
            && self.kill_requested_at.is_none()
        {
            // The launch received the request before its owner did.
            self.requested(request).await;
        }
        let killed = self.is_killed() || self.state().restarts();
        let handle = self.alloc.handle(self.at).filter(|_| failure.may_run);
        self.alloc.edit(self.at, |edit| {
            let message = failure.message.clone();
            // A cancelled start is no failure: the event of its end gives the reason.
            if let Some(kind) = failure.kind {
                edit.event(kind, exit_text::not_started(&message), &[("error", message.clone())]);
            }
            let attempt = edit.status().attempt;
            let exit = exit_of(attempt, ExitStatus::NotStarted(message), None, edit.now, Usage::default(), killed);
            edit.ended(exit);
            edit.set_handle(handle);
        });
        let recoverable = failure.recoverable;
        // A start that may still succeed gets no second attempt beside it, whatever was requested.
        let outlives = failure.may_run && self.state().restarts();
        let event: fn(Decision) -> StepEvent = if outlives { |_| StepEvent::Abandoned } else { StepEvent::StartFailed };
        self.finish_attempt(AttemptOutcome::StartFailure { recoverable }, event).await;
    }

    /// The exit of an attempt is in the cell: decides what follows, makes it durable and shows it.
    async fn finish_attempt(&mut self, ending: AttemptOutcome, event: fn(Decision) -> StepEvent) {
        let policy = self.alloc.task(self.at).restart_policy();
        let on_success = self.alloc.task(self.at).restarts_on_success(self.alloc.job.kind);
        let (killed, no_more) = (self.is_killed(), self.alloc.no_more(self.at));
        (self.timer, self.abandon_at, self.background, self.restart_requested_at) = (None, None, None, None);
        let action =
            self.alloc.edit(self.at, |edit| {
                let (now, steady) = (edit.now, edit.steady());
                if !killed {
                    edit.recall_if_restarting();
                }
                let is_failure = edit.restart().is_some_and(|restart| restart.is_failure && !restart.whole);
                let decision = if killed {
                    Decision::Finish { failed: false, why: FinishReason::Killed }
                } else if is_failure {
                    edit.tracker().decide(&policy, true, AttemptOutcome::Exit(Outcome::Error), steady)
                } else if edit.state().restarts() {
                    // The restart policy does not count it.
                    Decision::Restart { delay: Nanos::ZERO, reason: RestartReason::Requested }
                } else {
                    edit.tracker().decide(&policy, on_success, ending, steady)
                };
                let decision = match (decision, no_more) {
                    (Decision::Restart { .. }, Some(_)) => {
                        let (state, _) = step(edit.state(), StepEvent::Kill);
                        edit.enter_state(state);
                        Decision::Finish { failed: false, why: FinishReason::AllocEnds }
                    }
                    (decision, _) => decision,
                };
                // An end after a failed health check counts as the task's own failure.
                let is_by_itself = is_failure && edit.state() == State::Restarting;
                let from = if is_by_itself { State::Running } else { edit.state() };
                let (state, action) = step(from, event(decision));
                match action {
                    Some(Action::WaitToRestart { delay, reason }) => {
                        let message = match delay {
                            Nanos::ZERO => "restarting now".to_owned(),
                            delay => format!("restarting in {:.1?}", delay.as_duration()),
                        };
                        let details = [("delay_ns", delay.0.to_string()), ("reason", reason.as_str().to_owned())];
                        edit.event(EventKind::Restarting, message, &details);
                        edit.enter_state(state);
                        edit.start_in(delay, reason);
                    }
                    Some(Action::Finish { failed }) => {
                        edit.status().failed = failed;
                        edit.status().failure = decision.failure();
                        edit.status().finished_at = Some(now);
                        match decision {
                            Decision::Finish { why: FinishReason::Killed, .. } => {
                                let why = edit.kill().map_or_else(String::new, |kill| edit.why(kill.cause));
                                let never_ran = edit.status().last_exit().is_some_and(|exit| exit.status.never_ran());
                                let ended = if never_ran { "ended before it was started" } else { "ended" };
                                edit.event(EventKind::Killed, format!("{ended}: {why}"), &[]);
                            }
                            Decision::Finish {
                                why:
                                    why @ (FinishReason::NeverRestarts
                                    | FinishReason::Unrecoverable
                                    | FinishReason::Exhausted),
                                ..
                            } => {
                                edit.event(EventKind::NotRestarting, format!("not restarting: {}", why.text()), &[]);
                            }
                            Decision::Finish { why: why @ FinishReason::AllocEnds, .. } => {
                                let why = no_more.map_or_else(|| why.text().to_owned(), |cause| edit.why(cause));
                                edit.event(EventKind::NotRestarting, format!("not restarting: {why}"), &[]);
                            }
                            Decision::Finish { why: FinishReason::Done, .. } | Decision::Restart { .. } => {}
                        }
                        edit.enter_state(state);
                    }
                    Some(Action::AwaitTurn) => edit.reset_to_pending(state),
                    Some(
                        Action::Launch
                        | Action::SendKillSignal
                        | Action::AwaitLaunch
                        | Action::AwaitEnd
                        | Action::ForceKill,
                    )
                    | None => edit.enter_state(state),
                }
                action
            });
        if let Some(Action::WaitToRestart { delay, .. }) = action {
            self.timer = Some((Instant::now() + delay.as_duration(), StepEvent::BackoffOver));
        }
        self.note_kill_duration();
        self.persist_and_show().await;
    }
}

pub(super) fn exit_of(
    attempt: u32,
    status: ExitStatus,
    started_at: Option<Timestamp>,
    finished_at: Timestamp,
    usage: Usage,
    killed: bool,
) -> Exit {
    let oom_kills = usage.oom_kills();
    let outcome = outcome(&status, oom_kills, killed);
    Exit {
        attempt,
        outcome,
        status,
        started_at,
        finished_at,
        oom_kills,
        usage: Arc::new(usage),
        lost_output: LostOutput::default(),
        last_output: None,
        result: None,
    }
}

/// Fields of an event: names and values.
pub(super) type EventDetails = Vec<(&'static str, String)>;

pub(super) fn terminated(exit: &Exit) -> (EventKind, String, EventDetails) {
    let mut details = vec![("outcome", exit.outcome.as_str().to_owned()), ("attempt", exit.attempt.to_string())];
    match &exit.status {
        ExitStatus::Code(code) => details.push(("exit_code", code.to_string())),
        ExitStatus::Signal(signal) => details.push(("signal", signal.to_string())),
        ExitStatus::NotStarted(error) => {
            details.push(("error", error.clone()));
            return (EventKind::DriverFailure, exit_text::not_started(error), details);
        }
        ExitStatus::Unknown(why) => details.push(("error", why.clone())),
    }
    let mut message = exit.described();
    if let Some(oom_kills) = exit.oom_kills.filter(|n| *n > 0) {
        details.push(("oom_kills", oom_kills.to_string()));
    }
    let details_of_streams = ["stdout_lost_bytes", "stderr_lost_bytes"];
    let lost = LostOutput::STREAMS.into_iter().zip(details_of_streams).zip(exit.lost_output.by_stream());
    for ((stream, detail), bytes) in lost.filter(|(_, bytes)| *bytes > 0) {
        details.push((detail, bytes.to_string()));
        message.push_str(&format!("; {bytes} bytes of its {stream} could not be written and are lost"));
    }
    (EventKind::Terminated, message, details)
}
