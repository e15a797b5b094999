//! One task as its owner works on it and as it is shown, and the changes that can be made to it.

use std::sync::Arc;

use super::{Alloc, NOTHING};
use crate::collectors::TaskReader;
use crate::model::event::{Event, EventKind};
use crate::model::job::Task;
use crate::model::task::{Exit, Outcome, RestartReason, TaskHandle, TaskState, TaskStatus};
use crate::model::units::Timestamp;
use crate::runner::board::TaskTotals;
use crate::runner::drivers::Attempt;
use crate::runner::record::{MoreTotals, TaskRecord};
use crate::runner::restart::Tracker;

/// Newest events and exits that a task keeps.
const KEPT: usize = 10;

/// One task, as its owner sees it and as it is shown.
pub(super) struct Cell {
    pub status: Arc<TaskStatus>,
    pub tracker: Tracker,
    /// What the totals know beyond the status.
    pub more: Box<MoreTotals>,
    pub handle: Option<TaskHandle>,
    pub reader: Option<Arc<TaskReader>>,
    pub attempt: Option<Arc<dyn Attempt>>,
    pub shown: Arc<TaskStatus>,
    pub shown_reader: Option<Arc<TaskReader>>,
    pub pending: Delta,
}

/// What the totals gain when the cell is shown.
#[derive(Default)]
pub(super) struct Delta {
    exits: Vec<Arc<Exit>>,
    restarts: Vec<RestartReason>,
    events: Vec<EventKind>,
}

impl Delta {
    pub fn apply(&self, totals: &mut TaskTotals) {
        self.exits.iter().for_each(|exit| totals.add_exit(exit));
        self.restarts.iter().for_each(|reason| totals.add_restart(*reason));
        self.events.iter().for_each(|kind| totals.add_event(*kind));
    }
}

impl Cell {
    pub fn new(task: &Task, known: Option<TaskRecord>, seed: &str, created_at: Timestamp) -> Cell {
        let record = known.unwrap_or_else(|| TaskRecord {
            status: TaskStatus {
                // One for all that have none.
                base: Arc::clone(&NOTHING),
                ..TaskStatus::new(task.name.clone(), task.driver.clone(), task.user.clone(), created_at)
            },
            handle: None,
            tracker: Tracker::seeded(&format!("{seed}/{}", task.name)),
            more: MoreTotals::default(),
        });
        let status = Arc::new(record.status);
        Cell {
            shown: Arc::clone(&status),
            status,
            tracker: record.tracker,
            more: Box::new(record.more),
            handle: record.handle,
            reader: None,
            attempt: None,
            shown_reader: None,
            pending: Delta::default(),
        }
    }

    /// Its part of the workload's totals.
    pub fn totals(&self) -> TaskTotals {
        self.more.with(&self.status)
    }

    /// How it ended; a task that never ran was stopped before.
    pub fn end(&self) -> Outcome {
        match self.status.last_exit() {
            Some(exit) => exit.outcome,
            None if self.status.failed => Outcome::Unknown,
            None => Outcome::Killed,
        }
    }
}

/// A change of one task, not shown yet.
pub(in crate::runner) struct Edit<'a> {
    pub(super) alloc: &'a Alloc,
    pub(super) cell: &'a mut Cell,
    pub now: Timestamp,
}

impl Edit<'_> {
    pub fn status(&mut self) -> &mut TaskStatus {
        Arc::make_mut(&mut self.cell.status)
    }
    pub fn tracker(&mut self) -> &mut Tracker {
        &mut self.cell.tracker
    }
    pub fn set_handle(&mut self, handle: Option<TaskHandle>) {
        self.cell.handle = handle;
    }

    pub fn enter_state(&mut self, state: TaskState) {
        let now = self.now;
        self.enter_state_at(state, now);
    }
    /// `since`: when it really came about, where that was while nobody looked.
    pub fn enter_state_at(&mut self, state: TaskState, since: Timestamp) {
        let status = self.status();
        if status.state == state {
            return;
        }
        let dwell = &mut status.time_in_state[status.state.index()];
        *dwell = dwell.saturating_add(since.since(status.state_since));
        status.state = state;
        status.state_since = since;
        if state != TaskState::Backoff {
            status.next_start_at = None;
        }
    }

    /// An attempt runs: it can be measured and signalled from the moment this is shown.
    pub fn attach(&mut self, attempt: &Arc<dyn Attempt>) {
        let handle = attempt.handle();
        self.cell.reader = attempt.reader();
        self.cell.attempt = Some(Arc::clone(attempt));
        let now = self.now;
        let status = self.status();
        status.main = handle.main;
        status.cgroup.clone_from(&handle.cgroup);
        status.started_at = handle.started_at.or(Some(now));
        self.cell.handle = Some(handle);
    }

    /// An attempt has ended: its usage goes from the reader into the base and the totals.
    pub fn ended(&mut self, exit: Exit) {
        let exit = Arc::new(exit);
        self.cell.reader = None;
        self.cell.attempt = None;
        self.cell.handle = None;
        let status = self.status();
        status.main = None;
        status.base = Arc::new(exit.usage.on_top_of(&status.base).without_live());
        status.exit_counts[exit.outcome.index()] += 1;
        if status.exits.len() == KEPT {
            status.exits.pop_front();
        }
        status.exits.push_back(Arc::clone(&exit));
        self.cell.more.add_exit(&exit);
        self.cell.pending.exits.push(exit);
    }

    pub fn restarting(&mut self, reason: RestartReason) {
        self.status().restarts[reason.index()] += 1;
        self.cell.pending.restarts.push(reason);
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
        let alloc = self.alloc;
        let status = self.status();
        let event = Event {
            seq: 0,
            task_seq: status.event_counts.values().sum::<u64>() + 1,
            time,
            kind,
            workload: alloc.job.id.clone(),
            alloc_id: alloc.id.clone(),
            task: status.name.clone(),
            message: message.into(),
            details: details.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
            fails_task: status.failed,
        };
        tracing::info!(alloc_id = %event.alloc_id, task = %event.task, event = kind.text(), "{}", event.message);
        let event = alloc.ctx.events.push(event);
        *status.event_counts.entry(kind.label().to_owned()).or_default() += 1;
        if status.events.len() == KEPT {
            status.events.pop_front();
        }
        status.events.push_back(event);
        self.cell.pending.events.push(kind);
    }
}
