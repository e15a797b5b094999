//! Changes of a task, under the lock of its alloc, and what follows from the last one.

use std::borrow::Cow;
use std::sync::Arc;

use super::Alloc;
use super::cell::{EndedAttempt, HISTORY_LENGTH, KillEscalation, TaskCell};
use super::end::worst;
use crate::model::event::{Event, EventKind};
use crate::model::id::DeviceId;
use crate::model::task::{Exit, ExitStatus, Outcome, RestartReason, TaskHandle, TaskState, TaskStatus};
use crate::model::text::{event_text, log_text};
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::model::usage::Usage;
use crate::runner::decide::coordinator::Cause;
use crate::runner::decide::restart::RestartTracker;
use crate::runner::decide::step::State;
use crate::runner::drivers::call::RunningAttempt;
use crate::runner::persistence::outputs::LogEnd;
use crate::runner::persistence::record::{Backoff, FinishRecord, KillRequest};

impl Alloc {
    /// Edits a task's cell. The change is shown when it is saved.
    pub fn edit<T>(&self, at: usize, edit: impl FnOnce(&mut Edit<'_>) -> T) -> T {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        let restarting = inner.is_restarting();
        let result = edit(&mut Edit { alloc: self, at, cell: &mut inner.cells[at], now, restarting });
        let over = inner.has_ended();
        drop(inner);
        if over {
            self.close(now);
        }
        self.changed.notify_one();
        result
    }

    /// The last task has ended. The alloc's cgroup was read before that end was recorded ([`Alloc::read_last`]).
    fn close(&self, now: Timestamp) {
        let mut inner = self.lock();
        if !inner.has_ended() {
            return;
        }
        let base = match inner.reader.as_ref().and_then(|reader| reader.latest()) {
            Some(reading) => reading.usage.on_top_of(&inner.base).without_live(),
            None => Usage::clone(&inner.base),
        };
        let ended = self.ctx.line.now();
        let ran = ended.since(inner.record.earlier.as_ref().map_or(self.began, |e| e.restarted_at));
        inner.record.again = false;
        inner.record.finished =
            Some(Box::new(FinishRecord { at: now, ended: Some(ended), outcome: worst(&inner.cells), ran, base }));
    }
}

/// A change of one task, not shown yet.
pub struct Edit<'a> {
    pub(super) alloc: &'a Alloc,
    pub(super) at: usize,
    pub(super) cell: &'a mut TaskCell,
    pub now: Timestamp,
    /// All tasks of its alloc are restarted.
    pub(super) restarting: bool,
}

impl Edit<'_> {
    pub fn status(&mut self) -> &mut TaskStatus {
        Arc::make_mut(&mut self.cell.record.status)
    }
    /// For durations; points in time use [`Edit::now`].
    pub fn steady(&self) -> Steady {
        self.alloc.ctx.line.now()
    }
    /// Sets the delay before the next start, which counts as a restart when it happens.
    pub fn start_in(&mut self, delay: Nanos, reason: RestartReason) {
        self.cell.record.backoff = Some(Backoff { since: self.steady(), delay });
        self.cell.record.restarts_for = Some(reason);
        self.status().next_start_at = Some(self.now.plus(delay));
    }
    pub fn tracker(&mut self) -> &mut RestartTracker {
        &mut self.cell.record.tracker
    }
    pub fn kill(&mut self) -> &mut Option<KillRequest> {
        &mut self.cell.record.kill
    }
    /// Its record is lost; the handle left by an attempt is all that is known.
    pub fn begin_from(&mut self, handle: &TaskHandle) {
        self.status().attempt = handle.attempt;
        self.cell.record.handle = Some(handle.clone());
    }
    /// Records the handle that recovery needs, and the devices reserved as long as the handle is recorded.
    pub fn prepared(&mut self, handle: TaskHandle, devices: Vec<DeviceId>) {
        self.cell.record.handle = Some(handle);
        self.status().devices = devices;
    }
    /// Where the stderr of its next attempt begins.
    pub fn stderr_from(&mut self, from: Option<LogEnd>) {
        self.cell.record.stderr_from = from;
    }
    pub fn set_handle(&mut self, handle: Option<TaskHandle>) {
        self.cell.record.handle = handle;
    }

    pub fn enter_state(&mut self, state: State) {
        if self.cell.record.status.state == state.shown() {
            return self.leave_restart(state);
        }
        self.cell.leaves(self.now);
        // Later than everything shown of the state before: the clock may have been set back.
        let clock = self.alloc.ctx.clock.now();
        let since = clock.max(self.now).max(self.alloc.ctx.board.marked());
        self.enter_state_at(state, since);
    }
    /// `since`: when it happened, if no agent was running then.
    pub fn enter_state_at(&mut self, state: State, since: Timestamp) {
        self.leave_restart(state);
        let state = state.shown();
        if state == TaskState::Dead {
            self.cell.record.restarts_for = None;
        }
        if self.cell.record.status.state == state {
            return;
        }
        self.cell.leaves(since);
        let status = self.status();
        let dwell = &mut status.time_in_state[status.state.index()];
        *dwell = dwell.saturating_add(since.since(status.state_since));
        status.state = state;
        status.state_since = since;
        if state != TaskState::Backoff {
            status.next_start_at = None;
            self.cell.record.backoff = None;
        }
    }

    /// The requested restart is done or will not happen.
    fn leave_restart(&mut self, state: State) {
        if !state.restarts() {
            self.cell.record.restart = None;
        }
    }

    /// Where to record the time of the first kill signal, with the reason. `None`: its end was not requested.
    pub fn ending(&mut self) -> Option<(&mut Option<Steady>, &'static str)> {
        match (self.cell.record.kill.as_mut(), self.cell.record.restart.as_mut()) {
            (Some(kill), _) => Some((&mut kill.signalled_at, kill.cause.label())),
            (None, Some(restart)) => Some((&mut restart.signalled_at, "restart")),
            (None, None) => None,
        }
    }

    /// The recorded attempt was set up, and no event reports its start.
    pub fn start_unreported(&self) -> bool {
        let of_start = |e: &&Arc<Event>| matches!(e.kind, EventKind::TaskSetup | EventKind::Started);
        self.cell.record.status.events.iter().rev().find(of_start).is_some_and(|e| e.kind == EventKind::TaskSetup)
    }

    /// It ended while no agent ran: its state lasted until `at`; the time after that counts for no state.
    pub fn left_unseen(&mut self, at: Timestamp) {
        self.cell.leaves(at);
        let now = self.now;
        let status = self.status();
        let dwell = &mut status.time_in_state[status.state.index()];
        *dwell = dwell.saturating_add(at.since(status.state_since));
        status.state_since = now.max(at);
    }

    /// Its recovery is complete.
    pub fn found(&mut self) {
        self.cell.recovering = false;
    }

    /// An attempt runs: it is measured and can be signalled from the moment this is shown.
    pub fn attach(&mut self, attempt: &RunningAttempt) {
        let handle = attempt.handle();
        self.cell.reader = attempt.reader();
        if let Some(reader) = self.cell.reader.as_ref().filter(|reader| !reader.survives_restart()) {
            let key = self.alloc.attempt_key(self.at, handle.attempt);
            let page = self.cell.page.get_or_insert_with(|| Arc::new(self.alloc.ctx.samples.page(key)));
            reader.persist_in(page.earlier.clone(), Box::new(Arc::clone(page)));
        }
        self.cell.attempt = Some(attempt.clone());
        let now = self.now;
        let status = self.status();
        status.main = handle.main;
        status.cgroup.clone_from(&handle.cgroup);
        status.network.clone_from(&handle.network);
        status.started_at = handle.started_at.or(Some(now));
        self.cell.record.handle = Some(handle);
    }

    /// An attempt has ended: its usage moves from the reader to the base and the totals. Values read while it ran are a
    /// lower bound, whatever its exit reports. That matters most if no agent observed the end. [`Alloc::read_last`] is
    /// called before.
    pub fn ended(&mut self, mut exit: Exit) {
        if let ExitStatus::NotStarted(why) | ExitStatus::Unknown(why) = &mut exit.status {
            *why = self.alloc.job.sensitive.hide(why).into_owned();
        }
        let page = self.cell.page.take();
        let last = match self.cell.reader.take() {
            Some(reader) => reader.close_with(&exit.usage, exit.finished_at),
            None => page.as_ref().and_then(|page| page.earlier.clone()),
        };
        if let Some(last) = last
            && exit.usage.falls_below(&last.usage)
        {
            Arc::make_mut(&mut exit.usage).not_below(&last.usage);
            exit.oom_kills = exit.usage.oom_kills();
        }
        if !exit.status.never_ran() {
            // The output of the attempt before is released first.
            self.cell.output = None;
            self.cell.output = self.alloc.ctx.outputs.hold(&mut exit.last_output);
        }
        let exit = Arc::new(exit);
        let used = self.alloc.used_devices(self.at);
        self.cell.attempt = None;
        self.cell.record.handle = None;
        self.found();
        let status = self.status();
        status.main = None;
        status.network = None;
        // For an attempt that ended while no agent ran, the record is all that is known.
        if !used.is_empty() {
            status.used_devices = used;
        }
        status.base = Arc::new(exit.usage.on_top_of(&status.base).without_live());
        if !exit.status.never_ran() {
            status.exit_counts[exit.outcome.index()] += 1;
        }
        status.oom_attempts += u64::from(exit.outcome == Outcome::Oom || exit.oom_kills.is_some_and(|kills| kills > 0));
        if status.exits.len() == HISTORY_LENGTH {
            status.exits.pop_front();
        }
        // One output per task: that of the last attempt that ran.
        if !exit.status.never_ran() {
            for earlier in status.exits.iter_mut().filter(|exit| exit.last_output.is_some()) {
                Arc::make_mut(earlier).last_output = None;
            }
        }
        status.exits.push_back(Arc::clone(&exit));
        self.cell.record.more.add_exit(&exit);
        let events = self.cell.pending.events.len();
        self.cell.pending.exits.push(EndedAttempt { exit, events, event: None, _page: page });
    }

    /// It outlived its kill signal, or SIGKILL.
    pub fn forced(&mut self, force: KillEscalation) {
        let counted = match force {
            KillEscalation::Escalated => &mut self.cell.record.more.kill_escalations,
            KillEscalation::Abandoned => &mut self.cell.record.more.abandoned,
        };
        *counted = counted.saturating_add(1);
        self.cell.pending.forced.push((force, self.now));
    }

    /// The text of a cause.
    pub fn why(&self, cause: Cause) -> String {
        cause.text(|at| self.alloc.task(at).name.to_string())
    }
    /// The event that gives the cause, if the cause is the end of another task.
    pub fn report_cause(&mut self, cause: Cause) {
        let (kind, culprit) = match cause {
            Cause::Stopped | Cause::Expired | Cause::NothingRan | Cause::SetupFailed => return,
            Cause::LeaderDead(at) => (EventKind::LeaderDead, Some(at)),
            Cause::SiblingFailed(at) => (EventKind::SiblingFailed, Some(at)),
            Cause::MainsDead => (EventKind::MainTasksDead, None),
        };
        let details: Vec<_> = culprit.into_iter().map(|at| ("culprit", self.alloc.task(at).name.to_string())).collect();
        let why = self.why(cause);
        self.event(kind, why, &details);
    }

    /// It starts: counts as a restart if it waited for one.
    pub fn count_restart(&mut self) {
        if let Some(reason) = self.cell.record.restarts_for.take() {
            self.status().restarts[reason.index()] += 1;
            self.cell.pending.restarts.push(reason);
        }
    }

    pub fn event(&mut self, kind: EventKind, message: impl Into<String>, details: &[(&str, String)]) {
        let now = self.now;
        self.event_at(now, kind, message, details);
    }
    pub fn event_at(
        &mut self,
        time: Timestamp,
        kind: EventKind,
        message: impl Into<String>,
        details: &[(&str, String)],
    ) {
        let (alloc, now) = (self.alloc, self.now);
        let status = self.status();
        // Recorded late, of an earlier moment: still not before earlier events, nor ahead of the clock.
        let shown = |text: String| match alloc.job.sensitive.hide(&text) {
            Cow::Borrowed(_) => event_text(text),
            Cow::Owned(hidden) => event_text(hidden),
        };
        let last = status.events.back().map_or(Timestamp(0), |e| e.time);
        let time = if time < now { time.max(last).min(now) } else { time };
        let event = Event {
            seq: 0,
            task_seq: status.event_counts.values().sum::<u64>() + 1,
            time,
            kind,
            workload: Some(alloc.job.workload().clone()),
            alloc_id: Some(alloc.id.clone()),
            task: Some(status.name.clone()),
            message: shown(message.into()),
            details: details.iter().map(|(k, v)| ((*k).to_owned(), shown(v.clone()))).collect(),
            // What follows from its failure is not the failure.
            fails_task: status.failed && !matches!(kind, EventKind::Rescheduling | EventKind::NotRescheduling),
        };
        match event.details.get("error").filter(|_| kind == EventKind::FailedRestore) {
            Some(error) => {
                tracing::warn!(
                    alloc_id = %alloc.id,
                    task = %status.name,
                    event = kind.text(),
                    error = log_text(error),
                    "{}",
                    log_text(&event.message)
                );
            }
            None => {
                tracing::info!(
                    alloc_id = %alloc.id,
                    task = %status.name,
                    event = kind.text(),
                    "{}",
                    log_text(&event.message)
                );
            }
        }
        let count = status.event_counts.get(kind.label()).copied().unwrap_or_default();
        status.event_counts.insert(kind.label(), count + 1);
        if status.events.len() == HISTORY_LENGTH {
            status.events.pop_front();
        }
        status.events.push_back(Arc::new(event));
        self.cell.pending.events.push(kind);
    }
}
