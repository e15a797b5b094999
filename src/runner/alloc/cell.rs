//! One task as its owner works on it and as it is shown, and the changes that can be made to it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Alloc, NOTHING};
use crate::collectors::TaskReader;
use crate::model::event::{Event, EventKind};
use crate::model::id::AllocId;
use crate::model::job::Task;
use crate::model::metric::{Exemplar, Value};
use crate::model::task::{Exit, Outcome, RestartReason, TaskHandle, TaskState, TaskStatus};
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::runner::decide::coordinator::Cause;
use crate::runner::decide::restart::Tracker;
use crate::runner::decide::step::State;
use crate::runner::drivers::call::Running;
use crate::runner::kept::record::{Backoff, Kill, MoreTotals, Restart, TaskRecord};
use crate::runner::kept::samples::Page;
use crate::runner::shown::board::{TaskTotals, Until};
use crate::runner::shown::events::Log;

/// Newest events and exits that a task keeps.
const KEPT: usize = 10;

/// One task, as its owner sees it and as it is shown.
pub(super) struct Cell {
    pub status: Arc<TaskStatus>,
    pub tracker: Tracker,
    /// What the totals know beyond the status.
    pub more: Box<MoreTotals>,
    pub handle: Option<TaskHandle>,
    pub kill: Option<Kill>,
    pub restart: Option<Restart>,
    pub backoff: Option<Backoff>,
    /// Its next start is a restart.
    pub restarts_for: Option<RestartReason>,
    /// Hooks that are done for good, and what they left.
    pub hooks: BTreeMap<String, serde_json::Value>,
    pub reader: Option<Arc<TaskReader>>,
    pub attempt: Option<Running>,
    /// Where what it uses is kept, if the kernel does not count it; of one that is looked for, what was kept of it.
    pub page: Option<Arc<Page>>,
    /// This agent still looks for it: nothing is done about it until its driver has answered.
    pub sought: bool,
    pub shown: Shown,
    /// What is being recorded, oldest first.
    pub frozen: VecDeque<Frozen>,
    freezes: u64,
    pending: Delta,
}

/// A task as it is on the board.
#[derive(Clone)]
pub(super) struct Shown {
    pub status: Arc<TaskStatus>,
    pub reader: Option<Arc<TaskReader>>,
    pub sought: bool,
    pub until: Arc<Until>,
}

/// A task as it is written in one record: shown when that is durable, no earlier and no later state with it.
pub(super) struct Frozen {
    number: u64,
    shown: Shown,
    delta: Delta,
}

/// What the totals gain when the cell is shown.
#[derive(Default)]
pub(super) struct Delta {
    exits: Vec<Gone>,
    restarts: Vec<RestartReason>,
    events: Vec<EventKind>,
    /// Numbers of these events; of more than the newest ten, of the last ones.
    seqs: Vec<u64>,
    forced: Vec<(Force, Timestamp)>,
}

/// An attempt that has ended.
struct Gone {
    exit: Arc<Exit>,
    /// So many events were new when it was: the last of them tells of it.
    told: usize,
    /// The number of that one, once it has one.
    event: Option<u64>,
    /// Nobody else's before the end is on record.
    _page: Option<Arc<Page>>,
}

/// What became of a kill that its task outlived.
#[derive(Clone, Copy)]
pub(in crate::runner) enum Force {
    Escalated,
    GivenUp,
}

impl Delta {
    pub fn apply(&self, alloc_id: &AllocId, totals: &mut TaskTotals) {
        let whose = |event_id, at| Exemplar { alloc_id: alloc_id.clone(), event_id, value: Value::Int(1), at };
        for Gone { exit, event, .. } in &self.exits {
            totals.add_exit(exit);
            totals.note_exit(exit, &whose(*event, exit.finished_at));
        }
        for (force, at) in &self.forced {
            match force {
                Force::Escalated => totals.add_escalation(whose(None, *at)),
                Force::GivenUp => totals.add_given_up(whose(None, *at)),
            }
        }
        self.restarts.iter().for_each(|reason| totals.add_restart(*reason));
        self.events.iter().for_each(|kind| totals.add_event(*kind));
    }
    pub fn seqs(&self) -> &[u64] {
        &self.seqs
    }
    fn extend(&mut self, later: Delta) {
        self.exits.extend(later.exits);
        self.restarts.extend(later.restarts);
        self.events.extend(later.events);
        self.seqs.extend(later.seqs);
        self.forced.extend(later.forced);
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
            kill: None,
            restart: None,
            backoff: None,
            restarts_for: None,
            hooks: BTreeMap::new(),
        });
        let status = Arc::new(record.status);
        Cell {
            shown: Shown { status: Arc::clone(&status), reader: None, sought: false, until: Arc::default() },
            status,
            tracker: record.tracker,
            more: Box::new(record.more),
            handle: record.handle,
            kill: record.kill,
            restart: record.restart,
            backoff: record.backoff,
            restarts_for: record.restarts_for,
            hooks: record.hooks,
            reader: None,
            attempt: None,
            page: None,
            sought: false,
            frozen: VecDeque::new(),
            freezes: 0,
            pending: Delta::default(),
        }
    }

    /// Called dead, and something of it may be there all the same: its handle was kept.
    pub fn may_run(&self) -> bool {
        self.status.state == TaskState::Dead && self.handle.is_some()
    }

    /// Its part of the workload's totals.
    pub fn totals(&self) -> TaskTotals {
        self.more.with(&self.status)
    }

    /// Gives the new events their numbers and keeps the task as it stands, to be shown once it is recorded.
    pub fn freeze(&mut self, log: &Log) -> u64 {
        let mut delta = std::mem::take(&mut self.pending);
        if self.status.events.iter().any(|e| e.seq == 0) {
            for event in Arc::make_mut(&mut self.status).events.iter_mut().filter(|e| e.seq == 0) {
                *event = log.stage(Event::clone(event));
                delta.seqs.push(event.seq);
            }
        }
        let unnumbered = delta.events.len().saturating_sub(delta.seqs.len());
        for gone in &mut delta.exits {
            let place = gone.told.checked_sub(unnumbered + 1);
            gone.event = place.and_then(|place| delta.seqs.get(place).copied());
        }
        self.freezes += 1;
        let (status, reader) = (Arc::clone(&self.status), self.reader.clone());
        let shown = Shown { status, reader, sought: self.sought, until: Arc::default() };
        self.frozen.push_back(Frozen { number: self.freezes, shown, delta });
        self.freezes
    }

    /// What was frozen up to `number` is recorded: takes its place on the board, and tells what the totals gain. Records are
    /// whole, so a later one covers an earlier one that failed. `None`: it is shown already.
    pub fn thaw(&mut self, number: u64) -> Option<Delta> {
        let mut gain: Option<Delta> = None;
        while self.frozen.front().is_some_and(|f| f.number <= number)
            && let Some(frozen) = self.frozen.pop_front()
        {
            gain.get_or_insert_default().extend(frozen.delta);
            self.shown = frozen.shown;
        }
        if self.frozen.is_empty() {
            // Most tasks change no more for hours: the room for four of these is not kept.
            self.frozen = VecDeque::new();
        }
        gain
    }

    /// Something of it is neither recorded nor on its way to be.
    pub fn is_changed(&self) -> bool {
        let last = self.frozen.back().map_or(&self.shown, |f| &f.shown);
        !Arc::ptr_eq(&last.status, &self.status) || last.sought != self.sought
    }

    /// It leaves its state: nobody shows it in there for longer, however long the record takes.
    fn leaves(&self, at: Timestamp) {
        self.shown.until.at_most(at);
        self.frozen.iter().for_each(|f| f.shown.until.at_most(at));
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
    pub(super) at: usize,
    pub(super) cell: &'a mut Cell,
    pub now: Timestamp,
    /// All tasks of its alloc are to begin anew.
    pub(super) again: bool,
}

impl Edit<'_> {
    pub fn status(&mut self) -> &mut TaskStatus {
        Arc::make_mut(&mut self.cell.status)
    }
    /// For what lasts: whoever is told of a moment is told [`Edit::now`].
    pub fn steady(&self) -> Steady {
        self.alloc.ctx.line.now()
    }
    /// In backoff: for so long. It is a restart when it starts.
    pub fn start_in(&mut self, delay: Nanos, reason: RestartReason) {
        self.cell.backoff = Some(Backoff { since: self.steady(), delay });
        self.cell.restarts_for = Some(reason);
        self.status().next_start_at = Some(self.now.plus(delay));
    }
    pub fn tracker(&mut self) -> &mut Tracker {
        &mut self.cell.tracker
    }
    pub fn kill(&mut self) -> &mut Option<Kill> {
        &mut self.cell.kill
    }
    /// Its record is lost, and an attempt left this: nothing else is known of it.
    pub fn begin_from(&mut self, handle: &TaskHandle) {
        self.status().attempt = handle.attempt;
        self.cell.handle = Some(handle.clone());
    }
    pub fn set_handle(&mut self, handle: Option<TaskHandle>) {
        self.cell.handle = handle;
    }

    pub fn enter_state(&mut self, state: State) {
        if self.cell.status.state == state.shown() {
            return self.leave_restart(state);
        }
        self.cell.leaves(self.now);
        // Later than anything that was shown of the state before: the clock may have been set back.
        let clock = self.alloc.ctx.clock.now();
        let since = clock.max(self.now).max(self.alloc.ctx.board.marked());
        self.enter_state_at(state, since);
    }
    /// `since`: when it really came about, where that was while nobody looked.
    pub fn enter_state_at(&mut self, state: State, since: Timestamp) {
        self.leave_restart(state);
        let state = state.shown();
        if state == TaskState::Dead {
            self.cell.restarts_for = None;
        }
        if self.cell.status.state == state {
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
            self.cell.backoff = None;
        }
    }

    /// What was asked for is done, or will not be.
    fn leave_restart(&mut self, state: State) {
        if !state.restarts() {
            self.cell.restart = None;
        }
    }

    /// Where to note when its kill signal was first sent, and why it is. `None`: nobody asked for its end.
    pub fn ending(&mut self) -> Option<(&mut Option<Steady>, &'static str)> {
        match (self.cell.kill.as_mut(), self.cell.restart.as_mut()) {
            (Some(kill), _) => Some((&mut kill.signalled_at, kill.cause.label())),
            (None, Some(restart)) => Some((&mut restart.signalled_at, "restart")),
            (None, None) => None,
        }
    }

    /// The attempt that its record names was set up, and nothing tells yet that it started.
    pub fn start_untold(&self) -> bool {
        let of_start = |e: &&Arc<Event>| matches!(e.kind, EventKind::TaskSetup | EventKind::Started);
        self.cell.status.events.iter().rev().find(of_start).is_some_and(|e| e.kind == EventKind::TaskSetup)
    }

    /// It ended while no agent was there: its state lasted until `at`, and what came then was in none.
    pub fn left_unseen(&mut self, at: Timestamp) {
        self.cell.leaves(at);
        let now = self.now;
        let status = self.status();
        let dwell = &mut status.time_in_state[status.state.index()];
        *dwell = dwell.saturating_add(at.since(status.state_since));
        status.state_since = now.max(at);
    }

    /// It is known what became of it.
    pub fn found(&mut self) {
        self.cell.sought = false;
    }

    /// An attempt runs: it can be measured and signalled from the moment this is shown.
    pub fn attach(&mut self, attempt: &Running) {
        let handle = attempt.handle();
        self.cell.reader = attempt.reader();
        if let Some(reader) = self.cell.reader.as_ref().filter(|reader| !reader.counts_by_itself()) {
            let whose = self.alloc.whose(self.at, handle.attempt);
            let page = self.cell.page.get_or_insert_with(|| Arc::new(self.alloc.ctx.samples.page(whose)));
            reader.keep_in(page.earlier.clone(), Box::new(Arc::clone(page)));
        }
        self.cell.attempt = Some(attempt.clone());
        let now = self.now;
        let status = self.status();
        status.main = handle.main;
        status.cgroup.clone_from(&handle.cgroup);
        status.started_at = handle.started_at.or(Some(now));
        self.cell.handle = Some(handle);
    }

    /// An attempt has ended: its usage goes from the reader into the base and the totals. What was read of it while it ran stays,
    /// whatever its end says of that: most of all where nobody saw it ([`Alloc::read_last`] comes before).
    pub fn ended(&mut self, mut exit: Exit) {
        let page = self.cell.page.take();
        let last = match self.cell.reader.take() {
            Some(reader) => reader.close(),
            None => page.as_ref().and_then(|page| page.earlier.clone()),
        };
        if let Some(last) = last
            && exit.usage.falls_below(&last.usage)
        {
            Arc::make_mut(&mut exit.usage).not_below(&last.usage);
            exit.oom_kills = exit.usage.oom_kills();
        }
        let exit = Arc::new(exit);
        self.cell.attempt = None;
        self.cell.handle = None;
        self.found();
        let status = self.status();
        status.main = None;
        status.base = Arc::new(exit.usage.on_top_of(&status.base).without_live());
        if !exit.status.never_ran() {
            status.exit_counts[exit.outcome.index()] += 1;
        }
        if status.exits.len() == KEPT {
            status.exits.pop_front();
        }
        status.exits.push_back(Arc::clone(&exit));
        self.cell.more.add_exit(&exit);
        let told = self.cell.pending.events.len();
        self.cell.pending.exits.push(Gone { exit, told, event: None, _page: page });
    }

    /// It outlived its kill signal, or even its end by force.
    pub fn forced(&mut self, force: Force) {
        let counted = match force {
            Force::Escalated => &mut self.cell.more.kill_escalations,
            Force::GivenUp => &mut self.cell.more.given_up,
        };
        *counted = counted.saturating_add(1);
        self.cell.pending.forced.push((force, self.now));
    }

    /// Why it is asked to end, in words.
    pub fn why(&self, cause: Cause) -> String {
        cause.text(|at| self.alloc.task(at).name.to_string())
    }
    /// The one event that says why it is asked to end, where the reason is another task's end.
    pub fn tell_cause(&mut self, cause: Cause) {
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

    /// It starts: again, where that is what it waited for.
    pub fn count_restart(&mut self) {
        if let Some(reason) = self.cell.restarts_for.take() {
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
        // Told late of what was before: still not before what was told already, nor ahead of the clock.
        let last = status.events.back().map_or(Timestamp(0), |e| e.time);
        let time = if time < now { time.max(last).min(now) } else { time };
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
        match event.details.get("error").filter(|_| kind == EventKind::FailedRestore) {
            Some(error) => {
                tracing::warn!(alloc_id = %event.alloc_id, task = %event.task, event = kind.text(), error, "{}", event.message);
            }
            None => {
                tracing::info!(alloc_id = %event.alloc_id, task = %event.task, event = kind.text(), "{}", event.message);
            }
        }
        *status.event_counts.entry(kind.label().to_owned()).or_default() += 1;
        if status.events.len() == KEPT {
            status.events.pop_front();
        }
        status.events.push_back(Arc::new(event));
        self.cell.pending.events.push(kind);
    }
}
