//! The begin of an attempt: its launch, the start by its driver, and recovery after the driver died.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::TaskOwner;
use super::launch::{LaunchFailure, LaunchProgress, LaunchResult, PreparedLaunch, StartTook, find, launch, start};
use crate::model::event::EventKind;
use crate::runner::context::AbortOnDrop;
use crate::runner::decide::step::{Action, State, StepEvent, step};
use crate::runner::drivers::call::{DriverCallError, RunningAttempt};
use crate::runner::hooks::HookPhase;

/// A start is recorded after this time: for a shorter task, the record of its end covers both.
const SETTLE: Duration = Duration::from_millis(10);
/// How many times a driver may die while it waits for one attempt.
const DEATHS: u8 = 5;

impl TaskOwner {
    /// Pending or backoff → starting.
    pub(super) fn begin(&mut self, event: StepEvent) {
        let (state, action) = step(self.state(), event);
        if action != Some(Action::Launch) {
            return;
        }
        let again = event == StepEvent::BackoffOver;
        let prerun = self.alloc.prerun_details();
        // Recorded and shown together with the handle.
        self.alloc.edit(self.at, |edit| {
            edit.enter_state(state);
            if again {
                edit.status().attempt += 1;
            }
            edit.count_restart();
            let attempt = edit.status().attempt.to_string();
            let details: Vec<_> = [("attempt", attempt)].into_iter().chain(prerun.into_iter().flatten()).collect();
            edit.event(EventKind::TaskSetup, "building the task directory", &details);
        });
        self.deaths = 0;
        self.launching = Some(AbortOnDrop(tokio::spawn(launch(Arc::clone(&self.alloc), self.at))));
    }

    pub(super) async fn launched(&mut self, launched: LaunchResult) {
        match launched {
            Ok(LaunchProgress::Ready(ready)) => self.start(*ready).await,
            Ok(LaunchProgress::Runs(attempt, took)) => self.started(attempt, &took).await,
            Ok(LaunchProgress::Found(attempt)) => {
                self.alloc.edit(self.at, |edit| edit.attach(&attempt));
                self.alloc.save_aside(self.at);
                self.attempt = Some(attempt);
            }
            Ok(LaunchProgress::Lost(why)) => self.abandon(EventKind::FailedRestore, why).await,
            Err(failure) => self.start_failed(failure).await,
        }
    }

    /// The handle is durable: calls the driver, with a deadline.
    async fn start(&mut self, ready: PreparedLaunch) {
        if self.state() != State::Starting {
            // Ended in the same moment: nothing runs yet.
            self.alloc.edit(self.at, |edit| edit.set_handle(None));
            return self.start_failed(LaunchFailure::cancelled(None)).await;
        }
        self.timer = Some((Instant::now() + self.start_budget(), StepEvent::Abandoned));
        self.launching = Some(AbortOnDrop(tokio::spawn(start(ready))));
    }

    /// The driver died while it waited, and the task may still run: recovers the task and waits for it again.
    pub(super) async fn wait_died(&mut self, error: &DriverCallError) {
        self.deaths += 1;
        tracing::error!(
            alloc_id = %self.alloc.id,
            task = %self.alloc.task(self.at).name,
            %error,
            "driver died while waiting for a task"
        );
        match &self.attempt {
            Some(attempt) if self.deaths <= DEATHS => {
                self.launching =
                    Some(AbortOnDrop(tokio::spawn(find(Arc::clone(&self.alloc), self.at, attempt.handle()))));
            }
            Some(_) | None => self.abandon(EventKind::FailedRestore, error.to_string()).await,
        }
    }

    async fn started(&mut self, attempt: RunningAttempt, took: &StartTook) {
        let (state, action) = step(self.state(), StepEvent::Started);
        self.alloc.edit(self.at, |edit| {
            edit.attach(&attempt);
            edit.enter_state(state);
            let started_at = edit.status().started_at.unwrap_or(edit.now);
            let mut details = took.details();
            details.push(("attempt", edit.status().attempt.to_string()));
            edit.event_at(started_at, EventKind::Started, "task started", &details);
        });
        self.attempt = Some(attempt);
        self.timer = None;
        self.run_in_background(HookPhase::Poststart);
        match action {
            Some(Action::SendKillSignal) => self.await_delay(true).await,
            _ => self.settle = Some(Instant::now() + SETTLE),
        }
    }
}
