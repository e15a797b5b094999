//! Ending a task: its signal, its grace, by force, and at last without it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::exit::exit_of;
use super::{Launching, Owner};
use crate::model::event::EventKind;
use crate::model::task::ExitStatus;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::runner::coordinator::Cause;
use crate::runner::drivers::Attempt;
use crate::runner::record::{Kill, Restart};
use crate::runner::step::{Action, Event, State, step};

/// Where the job file names no signal.
const KILL_SIGNAL: &str = "SIGINT";
/// How long the disk may keep a kill signal back.
const SAVED_WITHIN: Duration = Duration::from_secs(1);

impl Owner {
    /// Begins to end it, or goes on with that after a restart of the agent: then nothing is told again, and what is left of
    /// its delay and its grace counts. That it is to end is durable before the signal is sent, so that whoever finds it ended
    /// knows why.
    pub(super) async fn kill(&mut self, cause: Cause) {
        let now = self.now();
        let (state, action, asked_at, first) = self.alloc.edit(self.at, |edit| {
            // Here, and not before: a restart may have been asked for this very moment, and this wins.
            let (state, action) = step(edit.state(), Event::Kill);
            let (asked_at, first) = match *edit.kill() {
                Some(known) => (known.asked_at, false),
                None => {
                    let signalled_at = edit.restart().and_then(|r| r.signalled_at);
                    *edit.kill() = Some(Kill { cause, asked_at: now, told: false, signalled_at });
                    edit.tell_cause(cause);
                    (now, true)
                }
            };
            (state, action, asked_at, first)
        });
        self.kill_asked = Some(before(now.since(asked_at).as_duration()));
        match action {
            Some(Action::Finish { failed }) => {
                self.timer = None;
                self.alloc.edit(self.at, |edit| {
                    edit.status().failed = failed;
                    edit.status().finished_at = Some(edit.now);
                    let why = edit.why(cause);
                    edit.event(EventKind::Killed, format!("ended while it was not running: {why}"), &[]);
                    edit.enter_state(state);
                });
                self.persist_and_show().await;
            }
            Some(Action::SendKillSignal) => {
                self.alloc.edit(self.at, |edit| edit.enter_state(state));
                self.await_delay(asked_at, first).await;
            }
            Some(Action::AwaitLaunch) => {
                let grace = self.alloc.task(self.at).kill_timeout;
                self.alloc.edit(self.at, |edit| {
                    edit.enter_state(state);
                    let why = edit.why(cause);
                    if let Some(kill) = edit.kill() {
                        kill.told = true;
                    }
                    let details = [("reason", cause.label().to_owned())];
                    edit.event(EventKind::Killing, format!("{why}: to end as soon as its start has"), &details);
                });
                self.alloc.save_aside(self.at);
                self.timer = Some((Instant::now() + grace, Event::GraceOver));
            }
            Some(Action::AwaitEnd) => {
                let told = self.alloc.edit(self.at, |edit| {
                    edit.enter_state(state);
                    let told = edit.ending().is_some_and(|(at, _)| at.is_some());
                    if told {
                        let message = "told to end already, for a restart that it does not get now";
                        edit.event(EventKind::Killing, message, &[("reason", cause.label().to_owned())]);
                    }
                    told
                });
                if told || self.attempt.is_none() {
                    self.alloc.save_aside(self.at);
                } else {
                    self.send_kill_signal();
                }
            }
            Some(Action::Launch | Action::WaitToRestart { .. } | Action::ForceKill | Action::AwaitTurn) | None => {}
        }
    }

    /// A restart was asked for, and is on record: its attempt is told. No `shutdown_delay`: nobody takes it for gone.
    pub(super) fn restart(&mut self) {
        let told = self.alloc.edit(self.at, |edit| edit.ending().is_none_or(|(at, _)| at.is_some()));
        if self.state().restarts() && !told && self.attempt.is_some() {
            self.send_kill_signal();
        }
    }

    /// Its whole alloc begins anew: it ends, and waits for its turn.
    pub(super) async fn recall(&mut self) {
        let action = self.alloc.edit(self.at, |edit| {
            let signalled_at = edit.restart().and_then(|r| r.signalled_at);
            let (state, action) = step(edit.state(), Event::Recall);
            match action {
                Some(Action::AwaitTurn) => edit.turn_back(state),
                Some(_) => {
                    *edit.restart() = Some(Restart { whole: true, asked_at: edit.now, signalled_at });
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
            Some(Action::SendKillSignal) => self.send_kill_signal(),
            Some(Action::AwaitLaunch) => {
                self.alloc.save_aside(self.at);
                let grace = self.alloc.task(self.at).kill_timeout;
                self.timer = Some((Instant::now() + grace, Event::GraceOver));
            }
            Some(Action::AwaitEnd) => self.alloc.save_aside(self.at),
            Some(Action::Launch | Action::WaitToRestart { .. } | Action::ForceKill | Action::Finish { .. }) | None => {}
        }
    }

    /// The task's `shutdown_delay`, then its signal.
    async fn await_delay(&mut self, asked_at: Timestamp, first: bool) {
        let delay = self.alloc.task(self.at).shutdown_delay;
        let left = Nanos::from_duration(delay).saturating_sub(self.now().since(asked_at)).as_duration();
        if first && !left.is_zero() {
            self.alloc.edit(self.at, |edit| {
                let details = [("delay_ns", delay.as_nanos().to_string())];
                edit.event(EventKind::ShutdownDelay, format!("waiting {delay:?} before its kill signal"), &details);
            });
        }
        self.settle = None;
        let saved = self.alloc.shown(self.alloc.save(self.at));
        // A disk that fails or hangs keeps nobody from being ended.
        if let Err(error) = tokio::time::timeout(SAVED_WITHIN, saved).await.unwrap_or(Ok(())) {
            tracing::error!(alloc_id = %self.alloc.id, %error, "that a task is being ended is not saved");
        }
        if left.is_zero() {
            self.send_kill_signal();
        } else {
            self.timer = Some((Instant::now() + left, Event::DelayOver));
        }
    }

    pub(super) fn send_kill_signal(&mut self) {
        let task = self.alloc.task(self.at);
        let signal = task.kill_signal.as_deref().unwrap_or(KILL_SIGNAL);
        let grace = task.kill_timeout;
        let most = grace + self.alloc.ctx.config.kill_budget;
        let now = self.now();
        let signalled_at = self.alloc.edit(self.at, |edit| edit.ending().and_then(|(at, _)| *at));
        // A second one means something else to many programs.
        let sent = match (&self.attempt, signalled_at) {
            (Some(attempt), None) => attempt.signal(signal),
            (Some(_), Some(_)) | (None, _) => Ok(()),
        };
        if signalled_at.is_none() {
            self.alloc.edit(self.at, |edit| {
                let Some((at, reason)) = edit.ending() else { return };
                *at = Some(now);
                let told = edit.kill().as_mut().is_some_and(|kill| std::mem::replace(&mut kill.told, true));
                let kind = if told { EventKind::Signaling } else { EventKind::Killing };
                let why = edit.kill().map_or_else(|| "a restart was asked for".to_owned(), |kill| edit.why(kill.cause));
                let message = format!("{why}: sent {signal}; by force after {grace:?}; over in {most:?} at the latest");
                let details = [
                    ("signal", signal.to_owned()),
                    ("reason", reason.to_owned()),
                    ("kill_timeout_ns", grace.as_nanos().to_string()),
                    ("at_most_ns", most.as_nanos().to_string()),
                ];
                edit.event(kind, message, &details);
            });
        }
        self.settle = None;
        self.alloc.save_aside(self.at);
        let grace = match sent {
            Ok(()) => Nanos::from_duration(grace).saturating_sub(now.since(signalled_at.unwrap_or(now))).as_duration(),
            Err(error) => {
                tracing::warn!(alloc_id = %self.alloc.id, %error, signal, "the kill signal cannot be sent; by force now");
                Duration::ZERO
            }
        };
        self.timer = Some((Instant::now() + grace, Event::GraceOver));
    }

    pub(super) async fn timer(&mut self, event: Event) {
        if event == Event::BackoffOver {
            self.begin(event);
            return;
        }
        let (_, action) = step(self.state(), event);
        match action {
            Some(Action::ForceKill) => {
                self.alloc.ctx.metrics.kill_escalated();
                // Counted from here: a kill that hangs does not put off that the task is given up.
                let give_up_at = Instant::now() + self.alloc.ctx.config.kill_budget;
                self.timer = Some((give_up_at, Event::GivenUp));
                if let Some(attempt) = self.attempt.clone() {
                    let kill = self.alloc.ctx.killing(move || attempt.kill().map_err(|e| e.to_string()));
                    let killed = tokio::time::timeout_at(give_up_at, kill).await;
                    let killed = killed.unwrap_or_else(|_| Err("it hangs".to_owned()));
                    if let Err(error) = killed.and_then(|k| k) {
                        tracing::error!(alloc_id = %self.alloc.id, error, "the task cannot be killed by force");
                    }
                }
            }
            Some(Action::Finish { .. }) => self.give_up().await,
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

    /// It lives on after SIGKILL (stuck in the kernel, or its driver hangs): said aloud, and cleared away when it ends.
    async fn give_up(&mut self) {
        let budget = self.alloc.ctx.config.kill_budget;
        let reason = format!("still there {budget:?} after it was killed by force");
        tracing::error!(alloc_id = %self.alloc.id, task = %self.alloc.task(self.at).name, "unkillable: {reason}");
        let usage = self.attempt.as_ref().and_then(|a| a.reader()).and_then(|r| r.latest());
        let started_at = self.attempt.as_ref().and_then(|a| a.handle().started_at);
        let handle = self.alloc.handle(self.at);
        self.alloc.edit(self.at, |edit| {
            let (state, _) = step(edit.state(), Event::GivenUp);
            edit.status().failed = true;
            edit.status().finished_at = Some(edit.now);
            edit.event(EventKind::Killed, format!("given up: {reason}"), &[("error", reason.clone())]);
            let usage = usage.map(|r| Usage::clone(&r.usage)).unwrap_or_default();
            let attempt = edit.status().attempt;
            edit.ended(exit_of(attempt, ExitStatus::Unknown(reason), started_at, edit.now, usage, true));
            // The processes that it names may still be there.
            edit.set_handle(handle);
            edit.enter_state(state);
        });
        let (attempt, launching) = (self.attempt.take(), self.launching.take());
        tokio::spawn(clear_late(attempt, launching));
        self.persist_and_show().await;
        self.note_kill_duration();
    }

    pub(super) fn note_kill_duration(&self) {
        if let Some(asked) = self.kill_asked
            && self.state() == State::Dead
        {
            self.alloc.ctx.metrics.task_killed(asked.elapsed());
        }
    }
}

/// A moment that far ago; at the earliest this boot's first.
fn before(ago: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(ago).unwrap_or(now)
}

/// A task that was given up may end yet.
async fn clear_late(attempt: Option<Arc<dyn Attempt>>, launching: Option<Launching>) {
    let attempt = match (attempt, launching) {
        (Some(attempt), _) => attempt,
        (None, Some(mut launching)) => match (&mut launching.0).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(_)) | Err(_) => return,
        },
        (None, None) => return,
    };
    let _ = attempt.kill();
    attempt.wait().await;
    if let Err(error) = attempt.destroy() {
        tracing::warn!(%error, "what a task that was given up left cannot be removed");
    }
}
