//! One task: as its owner edits it, as it is being recorded, and as it is shown.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use crate::board::StateEnd;
use crate::board::events::EventLog;
use crate::collectors::TaskReader;
use crate::model::event::{Event, EventKind};
use crate::model::id::{AllocId, TaskName};
use crate::model::job::Task;
use crate::model::metric::{Exemplar, Value};
use crate::model::network::DriverNetwork;
use crate::model::task::{Exit, Outcome, RestartReason, TaskState, TaskStatus};
use crate::model::totals::TaskTotals;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::runner::decide::restart::RestartTracker;
use crate::runner::drivers::call::RunningAttempt;
use crate::runner::persistence::outputs::HeldOutput;
use crate::runner::persistence::record::{MoreTotals, TaskRecord};
use crate::runner::persistence::samples::SamplePage;

/// Number of newest events and exits kept per task.
pub const HISTORY_LENGTH: usize = 10;

/// The usage of a task without an ended attempt: shared by all of them.
pub static NOTHING: LazyLock<Arc<Usage>> = LazyLock::new(Arc::default);

/// One task, as its owner edits it and as it is shown.
pub struct TaskCell {
    /// The record as the next change will write it.
    pub record: TaskRecord,
    pub reader: Option<Arc<TaskReader>>,
    pub attempt: Option<RunningAttempt>,
    /// Where its usage is persisted if the kernel does not count it. During recovery: what an earlier agent persisted.
    pub page: Option<Arc<SamplePage>>,
    /// In recovery: nothing is done about it until its driver has responded.
    pub recovering: bool,
    pub shown: ShownTask,
    /// States that are being recorded, oldest first.
    pub frozen: VecDeque<PendingTaskRecord>,
    freezes: u64,
    pub pending: TotalsDelta,
    /// Its share of the memory for last outputs.
    pub output: Option<HeldOutput>,
    /// Messages of its driver that are not events yet. Few or none (`EventSink`).
    pub driver_messages: Vec<String>,
}

/// A task as it is shown.
#[derive(Clone)]
pub struct ShownTask {
    pub status: Arc<TaskStatus>,
    pub reader: Option<Arc<TaskReader>>,
    pub recovering: bool,
    pub until: Arc<StateEnd>,
}

/// A task as one record has it: shown when that record is durable, with no earlier and no later state.
pub struct PendingTaskRecord {
    number: u64,
    shown: ShownTask,
    delta: TotalsDelta,
}

/// What the totals gain when the cell is shown.
#[derive(Default)]
pub struct TotalsDelta {
    pub exits: Vec<EndedAttempt>,
    pub restarts: Vec<RestartReason>,
    pub events: Vec<EventKind>,
    /// Numbers of these events; of more than the newest ten, those of the last ones.
    seqs: Vec<u64>,
    pub forced: Vec<(KillEscalation, Timestamp)>,
}

/// An attempt that has ended.
pub struct EndedAttempt {
    pub exit: Arc<Exit>,
    /// Number of new events at its end: the last of them reports it.
    pub events: usize,
    /// The number of that event, once it has one.
    pub event: Option<u64>,
    /// Reserved until the end is recorded.
    pub _page: Option<Arc<SamplePage>>,
}

/// How a kill was escalated.
#[derive(Clone, Copy)]
pub enum KillEscalation {
    Escalated,
    Abandoned,
}

impl TotalsDelta {
    pub fn apply(&self, alloc_id: &AllocId, totals: &mut TaskTotals) {
        let exemplar = |event_id, at| Exemplar { alloc_id: alloc_id.clone(), event_id, value: Value::Int(1), at };
        for EndedAttempt { exit, event, .. } in &self.exits {
            totals.add_exit(exit);
            totals.note_exit(exit, &exemplar(*event, exit.finished_at));
        }
        for (force, at) in &self.forced {
            match force {
                KillEscalation::Escalated => totals.add_escalation(exemplar(None, *at)),
                KillEscalation::Abandoned => totals.add_abandoned(exemplar(None, *at)),
            }
        }
        self.restarts.iter().for_each(|reason| totals.add_restart(*reason));
        self.events.iter().for_each(|kind| totals.add_event(*kind));
    }
    pub fn seqs(&self) -> &[u64] {
        &self.seqs
    }
    fn extend(&mut self, later: TotalsDelta) {
        self.exits.extend(later.exits);
        self.restarts.extend(later.restarts);
        self.events.extend(later.events);
        self.seqs.extend(later.seqs);
        self.forced.extend(later.forced);
    }
}

impl TaskCell {
    pub fn new(task: &Task, known: Option<TaskRecord>, seed: &str, created_at: Timestamp) -> TaskCell {
        let record = known.unwrap_or_else(|| TaskRecord {
            status: Arc::new(TaskStatus {
                // Shared by all tasks without usage.
                base: Arc::clone(&NOTHING),
                ..TaskStatus::new(task.name.clone(), task.driver.clone(), task.user.clone(), created_at)
            }),
            handle: None,
            tracker: RestartTracker::seeded(&format!("{seed}/{}", task.name)),
            more: MoreTotals::default(),
            kill: None,
            restart: None,
            backoff: None,
            restarts_for: None,
            stderr_from: None,
            hooks: BTreeMap::new(),
        });
        TaskCell {
            shown: ShownTask {
                status: Arc::clone(&record.status),
                reader: None,
                recovering: false,
                until: Arc::default(),
            },
            record,
            reader: None,
            attempt: None,
            page: None,
            recovering: false,
            frozen: VecDeque::new(),
            freezes: 0,
            pending: TotalsDelta::default(),
            output: None,
            driver_messages: Vec::new(),
        }
    }

    /// Dead, but processes may be left: its handle was kept.
    pub fn may_run(&self) -> bool {
        self.record.status.state == TaskState::Dead && self.record.handle.is_some()
    }

    /// Its address, while it runs.
    pub fn driver_network(&self) -> Option<(TaskName, DriverNetwork)> {
        let status = &self.record.status;
        Some((status.name.clone(), status.network.clone()?))
    }

    /// Its share of the workload's totals.
    pub fn totals(&self) -> TaskTotals {
        self.record.more.with(&self.record.status)
    }

    /// Numbers the new events and queues the current state, to be shown once it is recorded.
    pub fn freeze(&mut self, log: &EventLog) -> u64 {
        // Devices belong to an attempt: without a handle it is over or has not begun.
        if self.record.handle.is_none() && !self.record.status.devices.is_empty() {
            Arc::make_mut(&mut self.record.status).devices = Vec::new();
        }
        let mut delta = std::mem::take(&mut self.pending);
        if self.record.status.events.iter().any(|e| e.seq == 0) {
            for event in Arc::make_mut(&mut self.record.status).events.iter_mut().filter(|e| e.seq == 0) {
                *event = log.stage(Event::clone(event));
                delta.seqs.push(event.seq);
            }
        }
        let unnumbered = delta.events.len().saturating_sub(delta.seqs.len());
        for removed in &mut delta.exits {
            let place = removed.events.checked_sub(unnumbered + 1);
            removed.event = place.and_then(|place| delta.seqs.get(place).copied());
        }
        self.freezes += 1;
        let (status, reader) = (Arc::clone(&self.record.status), self.reader.clone());
        let shown = ShownTask { status, reader, recovering: self.recovering, until: Arc::default() };
        self.frozen.push_back(PendingTaskRecord { number: self.freezes, shown, delta });
        self.freezes
    }

    /// The states up to `number` are recorded: shows the newest of them and returns what the totals gain. Records are
    /// complete, so a later one covers an earlier one that failed. `None`: it is shown already.
    pub fn thaw(&mut self, number: u64) -> Option<TotalsDelta> {
        let mut gain: Option<TotalsDelta> = None;
        while self.frozen.front().is_some_and(|f| f.number <= number)
            && let Some(frozen) = self.frozen.pop_front()
        {
            gain.get_or_insert_default().extend(frozen.delta);
            self.shown = frozen.shown;
        }
        if self.frozen.is_empty() {
            // Most tasks do not change for hours: the capacity for four of these is released.
            self.frozen = VecDeque::new();
        }
        gain
    }

    /// Whether a change is neither recorded nor queued to be.
    pub fn is_changed(&self) -> bool {
        let last = self.frozen.back().map_or(&self.shown, |f| &f.shown);
        !Arc::ptr_eq(&last.status, &self.record.status) || last.recovering != self.recovering
    }

    /// It leaves its shown state: that state ends at this time, however long the record takes.
    pub fn leaves(&self, at: Timestamp) {
        self.shown.until.at_most(at);
        self.frozen.iter().for_each(|f| f.shown.until.at_most(at));
    }

    /// Its outcome; a task that never ran counts as killed.
    pub fn end(&self) -> Outcome {
        match self.record.status.last_exit() {
            Some(exit) => exit.outcome,
            None if self.record.status.failed => Outcome::Unknown,
            None => Outcome::Killed,
        }
    }
}
