//! Requested restarts: of one task in place, or of a whole alloc from its beginning.
//!
//! ```text
//! whole alloc: requested, durable: dead tasks are pending again ─► live ones end by rank, then pend ─► all start again
//! ```
//! Between the request and the last arrow the alloc's record has `again` set: the next agent continues from there.

use std::sync::Arc;
use std::time::Duration;

use super::Alloc;
use super::cell::TaskCell;
use super::edit::Edit;
use super::show::Save;
use crate::model::event::EventKind;
use crate::model::task::{RestartReason, TaskState};
use crate::model::units::Nanos;
use crate::runner::decide::coordinator::TaskAction;
use crate::runner::decide::step::{Action, State, StepEvent, step};
use crate::runner::persistence::record::RestartRequest;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::Batch;

/// The result of a request to restart a whole alloc.
pub enum AllocRestart {
    Requested(Save),
    /// It had ended: it needs a new owner.
    Revived(Save),
    /// It is ending: repeat the request when it has ended.
    Ending,
    Refused(RestartRefusal),
}

/// Why an alloc cannot restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartRefusal {
    NothingRan,
    /// A process of this task may still run: a second attempt must not run beside it.
    MayRun(usize),
}

impl Alloc {
    /// Requests a new attempt in place of the running one; [`Alloc::wake_task`] wakes the task's owner. A repeated
    /// request changes nothing. `reason`: a detail of the event. `delay`: added before the task's own.
    ///
    /// Errors: the state of the task, if it is not running.
    pub fn restart(&self, at: usize, reason: &str, delay: Duration) -> Result<(), TaskState> {
        let delay = Nanos::from_duration(delay).saturating_add(Nanos::from_duration(self.task(at).shutdown_delay));
        self.edit(at, |edit| match step(edit.state(), StepEvent::Restart) {
            (state, Some(Action::SendKillSignal)) => {
                *edit.restart() = Some(RestartRequest {
                    whole: false,
                    requested_at: edit.steady(),
                    delay,
                    signalled_at: None,
                    is_failure: false,
                });
                edit.enter_state(state);
                edit.event(EventKind::RestartSignaled, "restarting in its place", &[("reason", reason.to_owned())]);
                Ok(())
            }
            (state, _) if state.restarts() => Ok(()),
            (state, _) => Err(state.shown()),
        })
    }
    /// A message of a task's driver about an attempt, from any thread. The task's owner turns it into an event if that
    /// attempt is the current one.
    pub fn driver_message(&self, at: usize, attempt: u32, text: String) {
        let mut inner = self.lock();
        let cell = &mut inner.cells[at];
        let status = &cell.record.status;
        if (status.attempt, status.state == TaskState::Dead) == (attempt, false) {
            cell.driver_messages.push(text);
            self.wake_task(at);
        }
    }
    pub fn take_driver_messages(&self, at: usize) -> Vec<String> {
        std::mem::take(&mut self.lock().cells[at].driver_messages)
    }

    /// Wakes the owner of a task to check the recorded requests.
    pub fn wake_task(&self, at: usize) {
        self.wakers[at].notify_one();
    }
    pub async fn woken(&self, at: usize) {
        self.wakers[at].notified().ends_with(Ends::Caller).await;
    }

    /// Requests a restart of all tasks. Dead tasks become pending at once.
    pub fn recall(&self, reason: &str) -> AllocRestart {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        let over = inner.cells.iter().all(|c| c.record.status.state == TaskState::Dead);
        if over && !*self.ended.borrow() {
            return AllocRestart::Ending;
        }
        if let Some(at) = inner.cells.iter().position(TaskCell::may_run) {
            return AllocRestart::Refused(RestartRefusal::MayRun(at));
        }
        let never =
            |c: &TaskCell| c.record.status.state == TaskState::Pending && c.record.status.attempt == 0 && !c.recovering;
        if !inner.record.again && inner.cells.iter().all(never) {
            return AllocRestart::Refused(RestartRefusal::NothingRan);
        }
        if let Some(finished) = inner.record.finished.take() {
            let mut earlier = inner.record.earlier.take().unwrap_or_default();
            let ran = &mut earlier.ran[finished.outcome.index()];
            *ran = ran.saturating_add(finished.ran);
            (earlier.base, earlier.restarted_at) = (finished.base, self.ctx.line.now());
            inner.record.earlier = Some(earlier);
            inner.finish_shown = false;
            Alloc::forget_report(&mut inner);
        }
        let mut batch = Batch::default();
        let is_requested = inner.record.again;
        inner.record.again = true;
        inner.record.again_requested_at.get_or_insert_with(|| self.ctx.line.now());
        inner.record.failed_setup = None;
        if let Some(source) = &mut inner.record.migrate_from {
            // What is fetched now was requested now.
            source.submitted = Some(self.ctx.line.now());
        }
        let mut tasks = Vec::with_capacity(inner.cells.len());
        for at in 0..inner.cells.len() {
            let mut edit = Edit { alloc: self, at, cell: &mut inner.cells[at], now, restarting: true };
            if !is_requested {
                let message = "restarting with its whole alloc";
                edit.event(EventKind::RestartSignaled, message, &[("reason", reason.to_owned())]);
            }
            edit.reset_if_dead();
            tasks.push((at, self.put_task(&mut inner, at, &mut batch)));
        }
        self.put_alloc(&inner, &mut batch);
        let save = Save { tasks, answer: self.ctx.journal.queue(batch) };
        if over {
            self.ended.send_replace(false);
        }
        drop(inner);
        self.changed.notify_one();
        if over { AllocRestart::Revived(save) } else { AllocRestart::Requested(save) }
    }

    /// During a restart of the whole alloc: tasks that ended meanwhile become pending too. When all are pending, the
    /// alloc starts again. A task that may still run cancels the restart.
    pub fn settle_restart(self: &Arc<Self>) {
        if !self.lock().is_restarting() {
            return;
        }
        for at in 0..self.group().tasks.len() {
            // Checked first: an edit would wake the alloc's owner, which is the caller.
            if self.status(at).state == TaskState::Dead && self.edit(at, |edit| edit.reset_if_dead()) {
                self.save_aside(at);
            }
        }
        let mut inner = self.lock();
        let hopeless = inner.cells.iter().any(|c| c.record.status.state == TaskState::Dead);
        let waits = |(cell, action): (&TaskCell, &tokio::sync::watch::Sender<TaskAction>)| {
            let pending = cell.record.status.state == TaskState::Pending && !cell.recovering;
            pending && matches!(*action.borrow(), TaskAction::Keep | TaskAction::Recall)
        };
        if !hopeless && !inner.cells.iter().zip(&self.actions).all(waits) {
            return;
        }
        (inner.record.again, inner.record.again_requested_at) = (false, None);
        let mut batch = Batch::default();
        self.put_alloc(&inner, &mut batch);
        // If the agent dies before this is written, the next one finds all tasks pending and gets here again.
        drop(self.ctx.journal.queue(batch));
    }
}

impl Edit<'_> {
    pub fn state(&self) -> State {
        State::of(self.cell.record.status.state, self.cell.record.restart.map(|r| r.whole))
    }
    pub fn restart(&mut self) -> &mut Option<RestartRequest> {
        &mut self.cell.record.restart
    }

    /// It exits by itself during a restart of its whole alloc, before it received the recall: only the restart follows.
    /// Not if its start may still succeed.
    pub fn recall_if_restarting(&mut self) {
        if self.restarting && !self.state().restarts() && self.cell.record.handle.is_none() {
            let (state, _) = step(self.state(), StepEvent::Recall);
            let (since, delay) = (self.steady(), Nanos::ZERO);
            *self.restart() =
                Some(RestartRequest { whole: true, requested_at: since, delay, signalled_at: None, is_failure: false });
            self.enter_state(state);
        }
    }

    /// Pending again, with all counters: it is started as if it had never run.
    pub fn reset_to_pending(&mut self, state: State) {
        let used = self.cell.record.status.last_exit().is_some_and(|e| e.attempt == self.cell.record.status.attempt);
        self.cell.record.kill = None;
        self.cell.record.handle = None;
        self.cell.record.tracker.reset();
        let status = self.status();
        (status.failed, status.failure) = (false, None);
        (status.started_at, status.finished_at) = (None, None);
        if used {
            status.attempt += 1;
            self.cell.record.restarts_for = Some(RestartReason::Requested);
        }
        self.enter_state(state);
        // The earlier action does not apply any more. Under the alloc's lock, so that no newer action is overwritten.
        self.alloc.actions[self.at].send_replace(TaskAction::Keep);
    }

    /// Makes a dead task pending, unless it may still run. Returns whether it did.
    fn reset_if_dead(&mut self) -> bool {
        if self.cell.record.status.state != TaskState::Dead || self.cell.may_run() {
            return false;
        }
        let (state, action) = step(self.state(), StepEvent::Recall);
        if action == Some(Action::AwaitTurn) {
            self.reset_to_pending(state);
        }
        action == Some(Action::AwaitTurn)
    }
}
