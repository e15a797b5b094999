//! Kills a task: `shutdown_delay`, kill signal, kill timeout, SIGKILL. A task that outlives SIGKILL is abandoned.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::exit::exit_of;
use super::{BackgroundResult, TaskOwner, late};
use crate::model::event::EventKind;
use crate::model::exit_text;
use crate::model::task::{ExitStatus, Failure};
use crate::model::units::Nanos;
use crate::model::usage::Usage;
use crate::runner::alloc::KillEscalation;
use crate::runner::decide::coordinator::Cause;
use crate::runner::decide::step::{Action, State, StepEvent, step};
use crate::runner::drivers::DriverError;
use crate::runner::drivers::call::{self, DriverCallError, RunningAttempt};
use crate::runner::hooks::HookPhase;
use crate::runner::persistence::record::{KillRequest, RestartRequest};

/// How long the disk may delay a kill signal.
const SAVED_WITHIN: Duration = Duration::from_secs(1);

impl TaskOwner {
    /// Kills the task, or continues the kill after a restart of the agent: no event is repeated, and the rest of the
    /// delay and of the kill timeout applies. The request is durable before the signal is sent, so a later agent knows
    /// why the task ended.
    pub(super) async fn kill(&mut self, cause: Cause) {
        let now = self.steady();
        let (state, action, since, first) = self.alloc.edit(self.at, |edit| {
            // Inside the edit: a restart may have been requested at this moment, and the kill takes precedence.
            let (state, action) = step(edit.state(), StepEvent::Kill);
            let (since, first) = match *edit.kill() {
                Some(known) => (known.requested_at, false),
                None => {
                    let signalled_at = edit.restart().and_then(|r| r.signalled_at);
                    *edit.kill() = Some(KillRequest { cause, requested_at: now, reported: false, signalled_at });
                    edit.report_cause(cause);
                    (now, true)
                }
            };
            (state, action, since, first)
        });
        self.kill_requested_at = Some(before(now.since(since).as_duration()));
        match action {
            Some(Action::Finish { failed }) => {
                self.timer = None;
                let no_setup = self.alloc.failed_setup().filter(|_| cause == Cause::SetupFailed);
                self.alloc.edit(self.at, |edit| {
                    edit.status().failed = failed || no_setup.is_some();
                    edit.status().failure = no_setup.as_ref().map(|_| Failure::NotSetUp);
                    edit.status().finished_at = Some(edit.now);
                    let why = edit.why(cause);
                    if let Some(error) = no_setup {
                        let message = exit_text::not_started(&error);
                        edit.event(EventKind::SetupFailure, message, &[("error", error.clone())]);
                        let (attempt, now) = (edit.status().attempt, edit.now);
                        let never = ExitStatus::NotStarted(error);
                        edit.ended(exit_of(attempt, never, None, now, Usage::default(), false));
                    } else {
                        edit.event(EventKind::Killed, format!("no process to end: {why}"), &[]);
                    }
                    edit.enter_state(state);
                });
                self.persist_and_show().await;
            }
            Some(Action::SendKillSignal) => {
                self.alloc.edit(self.at, |edit| edit.enter_state(state));
                self.await_delay(first).await;
            }
            Some(Action::AwaitLaunch) => {
                let grace = self.alloc.task(self.at).kill_timeout;
                self.alloc.edit(self.at, |edit| {
                    edit.enter_state(state);
                    let why = edit.why(cause);
                    if let Some(kill) = edit.kill() {
                        kill.reported = true;
                    }
                    let details = [("reason", cause.label().to_owned())];
                    edit.event(EventKind::Killing, format!("{why}: to end as soon as its start has"), &details);
                });
                self.alloc.save_aside(self.at);
                self.timer = Some((Instant::now() + grace, StepEvent::GraceOver));
            }
            Some(Action::AwaitEnd) => {
                let signalled = self.alloc.edit(self.at, |edit| {
                    edit.enter_state(state);
                    let signalled = edit.ending().is_some_and(|(at, _)| at.is_some());
                    if signalled {
                        let message = "kill signal already sent for a restart; it is not restarted now";
                        edit.event(EventKind::Killing, message, &[("reason", cause.label().to_owned())]);
                    }
                    signalled
                });
                if signalled || self.attempt.is_none() {
                    self.alloc.save_aside(self.at);
                } else {
                    self.await_delay(true).await;
                }
            }
            Some(Action::Launch | Action::WaitToRestart { .. } | Action::ForceKill | Action::AwaitTurn) | None => {}
        }
    }

    /// A restart was requested and recorded: its delay begins, once.
    pub(super) fn restart(&mut self) {
        let requested = self.alloc.restart_requested(self.at).filter(|restart| restart.signalled_at.is_none());
        let Some(requested_at) = requested.map(|restart| restart.requested_at) else { return };
        if self.state().restarts() && self.attempt.is_some() && self.restart_requested_at != Some(requested_at) {
            self.announce_delay();
            self.prepare();
        }
    }

    /// Its whole alloc is restarted: it ends, then waits to be started in lifecycle order.
    pub(super) async fn recall(&mut self) {
        let delay = self.alloc.recall_delay(self.at);
        let action = self.alloc.edit(self.at, |edit| {
            let signalled_at = edit.restart().and_then(|r| r.signalled_at);
            let (state, action) = step(edit.state(), StepEvent::Recall);
            match action {
                Some(Action::AwaitTurn) => edit.reset_to_pending(state),
                Some(_) => {
                    *edit.restart() = Some(RestartRequest {
                        whole: true,
                        requested_at: edit.steady(),
                        delay,
                        signalled_at,
                        is_failure: false,
                    });
                    edit.enter_state(state);
                }
                None => {}
            }
            action
        });
        match action {
            Some(Action::AwaitTurn) => {
                self.timer = None;
                self.persist_and_show().await;
            }
            Some(Action::SendKillSignal) => self.await_delay(true).await,
            Some(Action::AwaitEnd) if self.alloc.signalled_at(self.at).is_none() => self.await_delay(true).await,
            Some(Action::AwaitLaunch) => {
                self.alloc.save_aside(self.at);
                let grace = self.alloc.task(self.at).kill_timeout;
                self.timer = Some((Instant::now() + grace, StepEvent::GraceOver));
            }
            Some(Action::AwaitEnd) => self.alloc.save_aside(self.at),
            Some(Action::Launch | Action::WaitToRestart { .. } | Action::ForceKill | Action::Finish { .. }) | None => {}
        }
    }

    /// Waits the delay, then sends the kill signal. `first`: the delay begins, with an event.
    pub(super) async fn await_delay(&mut self, first: bool) {
        if first {
            self.announce_delay();
        }
        self.record_request().await;
        self.prepare();
    }

    /// The delay from the request to the kill signal, and the rest of it. A restart of all tasks includes the group's
    /// delay. A restart that is replaced by a stop waits as the stop does.
    fn delay(&self) -> (Duration, Duration) {
        let task = Nanos::from_duration(self.alloc.task(self.at).shutdown_delay);
        let (requested_at, delay) = match (self.alloc.kill(self.at), self.alloc.restart_requested(self.at)) {
            (Some(kill), _) => (kill.requested_at, task),
            (None, Some(restart)) => (restart.requested_at, restart.delay),
            (None, None) => return (Duration::ZERO, Duration::ZERO),
        };
        (delay.as_duration(), delay.saturating_sub(self.steady().since(requested_at)).as_duration())
    }

    fn announce_delay(&mut self) {
        self.restart_requested_at = self.alloc.restart_requested(self.at).map(|restart| restart.requested_at);
        let (delay, left) = self.delay();
        if !left.is_zero() {
            self.alloc.edit(self.at, |edit| {
                let details = [("delay_ns", delay.as_nanos().to_string())];
                edit.event(EventKind::ShutdownDelay, format!("waiting {delay:?} before its kill signal"), &details);
            });
        }
    }

    /// Runs the prekill hooks during the delay.
    pub(super) fn prepare(&mut self) {
        if !self.run_in_background(HookPhase::Prekill) {
            self.prepared();
        }
    }

    /// The reason is durable before the task is signalled: a later agent must not take the end for a crash. A disk that
    /// fails or hangs does not prevent the kill.
    async fn record_request(&mut self) {
        self.settle = None;
        let saved = self.alloc.shown(self.alloc.save(self.at));
        if let Err(error) = tokio::time::timeout(SAVED_WITHIN, saved).await.unwrap_or(Ok(())) {
            tracing::error!(alloc_id = %self.alloc.id, %error, "failed to persist the kill of a task");
        }
    }

    /// The prekill hooks are done: waits the rest of the delay, then sends the signal.
    pub(super) fn prepared(&mut self) {
        if self.attempt.is_none() || !(self.state() == State::Killing || self.state().restarts()) {
            return;
        }
        match self.delay() {
            (_, Duration::ZERO) => self.send_kill_signal(),
            (_, left) => self.timer = Some((Instant::now() + left, StepEvent::DelayOver)),
        }
    }

    pub(super) fn send_kill_signal(&mut self) {
        let signal = self.kill_signal().to_owned();
        let grace = self.alloc.task(self.at).kill_timeout;
        let most = grace + self.alloc.ctx.config.kill_budget;
        let now = self.steady();
        let signalled_at = self.alloc.signalled_at(self.at);
        // Many programs treat a second signal differently.
        if signalled_at.is_none() {
            self.background = self.attempt.clone().map(|attempt| {
                let signal = signal.clone();
                Box::pin(async move { BackgroundResult::Signalled(attempt.signal(&signal).await) }) as _
            });
            self.alloc.edit(self.at, |edit| {
                let Some((at, reason)) = edit.ending() else { return };
                *at = Some(now);
                let reported = edit.kill().as_mut().is_some_and(|kill| std::mem::replace(&mut kill.reported, true));
                let kind = if reported { EventKind::Signaling } else { EventKind::Killing };
                let why = edit.kill().map_or_else(|| "a restart was requested".to_owned(), |kill| edit.why(kill.cause));
                let message = format!("{why}: sent {signal}; SIGKILL after {grace:?}, abandoned after {most:?}");
                let details = [
                    ("signal", signal),
                    ("reason", reason.to_owned()),
                    ("kill_timeout_ns", grace.as_nanos().to_string()),
                    ("at_most_ns", most.as_nanos().to_string()),
                ];
                edit.event(kind, message, &details);
            });
        }
        self.settle = None;
        self.alloc.save_aside(self.at);
        let left = Nanos::from_duration(grace).saturating_sub(now.since(signalled_at.unwrap_or(now))).as_duration();
        self.timer = Some((Instant::now() + left, StepEvent::GraceOver));
    }

    pub(super) fn answered(&mut self, answer: BackgroundResult) {
        let alloc_id = &self.alloc.id;
        match answer {
            BackgroundResult::Prepared => self.prepared(),
            BackgroundResult::Signalled(Ok(())) | BackgroundResult::Killed(Ok(())) => {}
            // The signal may have been delivered.
            BackgroundResult::Signalled(Err(error @ DriverCallError::Late(_))) => {
                tracing::warn!(%alloc_id, %error, "kill signal timed out; waiting for the rest of the kill timeout");
            }
            BackgroundResult::Signalled(Err(error)) => {
                tracing::warn!(%alloc_id, %error, "failed to send the kill signal; sending SIGKILL");
                self.timer = Some((Instant::now(), StepEvent::GraceOver));
            }
            BackgroundResult::Killed(Err(error)) => {
                tracing::error!(%alloc_id, %error, "failed to kill the task by force; retrying until it is abandoned");
            }
        }
    }

    pub(super) async fn timer(&mut self, event: StepEvent) {
        if event == StepEvent::BackoffOver {
            self.begin(event);
            return;
        }
        let (_, action) = step(self.state(), event);
        match action {
            Some(Action::ForceKill) => self.force(),
            Some(Action::Finish { .. }) => {
                let config = &self.alloc.ctx.config;
                let (kind, reason) = match self.state() {
                    State::Starting => (
                        EventKind::DriverFailure,
                        format!(
                            "its driver has not started it within {:?}; it is not started twice",
                            self.start_budget()
                        ),
                    ),
                    State::Pending | State::Running | State::Backoff | State::Dead => return,
                    State::Killing | State::Restarting | State::Recalled => (
                        EventKind::Killed,
                        format!("still there {:?} after it was killed by force", config.kill_budget),
                    ),
                };
                self.abandon(kind, reason).await;
            }
            Some(Action::SendKillSignal) => self.send_kill_signal(),
            Some(
                Action::Launch
                | Action::WaitToRestart { .. }
                | Action::AwaitLaunch
                | Action::AwaitEnd
                | Action::AwaitTurn,
            )
            | None => {}
        }
    }

    /// Sends SIGKILL repeatedly: a kill may be refused, hang, or have no effect.
    fn force(&mut self) {
        let now = Instant::now();
        let budget = self.alloc.ctx.config.kill_budget;
        if self.abandon_at.is_none() {
            self.alloc.edit(self.at, |edit| edit.forced(KillEscalation::Escalated));
            self.alloc.save_aside(self.at);
        }
        let abandon_at = *self.abandon_at.get_or_insert(now + budget);
        let again_at = now + call::KILL;
        self.timer = Some(if again_at < abandon_at {
            (again_at, StepEvent::GraceOver)
        } else {
            (abandon_at, StepEvent::Abandoned)
        });
        self.background = self
            .attempt
            .clone()
            .map(|attempt| Box::pin(async move { BackgroundResult::Killed(attempt.kill().await) }) as _);
    }

    /// Processes may be left (stuck in the kernel, or the driver hangs). Logs an error, and cleans up when they end.
    pub(super) async fn abandon(&mut self, kind: EventKind, reason: String) {
        tracing::error!(alloc_id = %self.alloc.id, task = %self.alloc.task(self.at).name, reason, "task abandoned");
        self.alloc.read_last(self.at, true).await;
        let usage = self.attempt.as_ref().and_then(RunningAttempt::reader).and_then(|r| r.latest());
        let started_at = self.attempt.as_ref().and_then(|a| a.handle().started_at);
        let handle = self.alloc.handle(self.at);
        let killed = self.is_killed() || self.state().restarts();
        self.alloc.edit(self.at, |edit| {
            let (state, _) = step(edit.state(), StepEvent::Abandoned);
            edit.status().failed = true;
            edit.status().failure = Some(Failure::Abandoned);
            edit.status().finished_at = Some(edit.now);
            edit.event(kind, format!("abandoned: {reason}"), &[("error", reason.clone())]);
            edit.forced(KillEscalation::Abandoned);
            let usage = usage.map(|r| Usage::clone(&r.usage)).unwrap_or_default();
            let attempt = edit.status().attempt;
            edit.ended(exit_of(attempt, ExitStatus::Unknown(reason), started_at, edit.now, usage, killed));
            // The processes that the handle names may still run.
            edit.set_handle(handle);
            edit.enter_state(state);
        });
        (self.timer, self.background) = (None, None);
        self.leave_late();
        self.note_kill_duration();
        self.persist_and_show().await;
    }

    /// Hands an attempt that may end or start late to a task of its own.
    pub(super) fn leave_late(&mut self) {
        let (attempt, launching) = (self.attempt.take(), self.launching.take());
        self.alloc.ctx.see_to(late::clear(Arc::clone(&self.alloc), self.at, attempt, launching));
    }

    /// An ended attempt leaves nothing on the host. If its driver reported the end wrongly, the attempt is killed
    /// before another one begins.
    pub(super) async fn remove(&mut self, ended: RunningAttempt) {
        let until = Instant::now() + self.alloc.ctx.config.kill_budget;
        let mut pause = Duration::from_millis(10);
        let mut removed = ended.destroy().await;
        while let Err(DriverCallError::Refused(DriverError::StillRunning)) = &removed {
            tracing::error!(
                alloc_id = %self.alloc.id,
                "task still runs after its driver reported its end; sending SIGKILL"
            );
            if Instant::now() + pause > until {
                return self.outlived(ended).await;
            }
            if let Err(error) = ended.kill().await {
                tracing::error!(alloc_id = %self.alloc.id, %error, "failed to kill the task by force");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(call::KILL);
            removed = ended.destroy().await;
        }
        if let Err(error) = removed {
            tracing::warn!(alloc_id = %self.alloc.id, %error, "failed to remove what an attempt left");
        }
    }

    /// It is recorded as ended and still runs: no other attempt follows.
    async fn outlived(&mut self, ended: RunningAttempt) {
        self.alloc.edit(self.at, |edit| {
            let (state, _) = step(edit.state(), StepEvent::Abandoned);
            edit.status().failed = true;
            edit.status().failure = Some(Failure::Abandoned);
            edit.status().finished_at = Some(edit.now);
            let reason = "it runs on after its end, and cannot be killed by force";
            edit.event(EventKind::Killed, format!("abandoned: {reason}"), &[("error", reason.to_owned())]);
            edit.forced(KillEscalation::Abandoned);
            edit.set_handle(Some(ended.handle()));
            edit.enter_state(state);
        });
        self.timer = None;
        self.attempt = Some(ended);
        self.leave_late();
        Box::pin(self.persist_and_show()).await;
    }

    pub(super) fn note_kill_duration(&self) {
        if let Some(requested_at) = self.kill_requested_at
            && self.state() == State::Dead
        {
            let (alloc, took) = (&self.alloc, requested_at.elapsed());
            alloc.ctx.metrics.durations.killed(alloc.job.workload(), &alloc.id, took, self.now());
        }
    }
}

/// A moment that long ago; at the earliest the boot.
fn before(ago: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(ago).unwrap_or(now)
}
