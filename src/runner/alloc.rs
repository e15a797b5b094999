//! One alloc: the state that its tasks' owners share, and how it gets on the board.
//!
//! Each task's owner works on its own cell ([`Alloc::edit`]), makes that durable ([`Alloc::batch`]) and shows it
//! ([`Alloc::show`]): what is on the board changes in one step, reader, base and totals together. There is no owner of
//! the alloc besides: the task that ends last closes it.

mod cell;

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub(super) use self::cell::Edit;
use self::cell::{Cell, Delta};
use super::board::{Published, TaskTotals, Totals};
use super::context::Context;
use super::drivers::Attempt;
use super::record::{self, AllocRecord, Finished, MoreTotals, TaskRecord};
use crate::collectors::TaskReader;
use crate::model::alloc::{AllocState, AllocStatus, Desired, Measured};
use crate::model::event::EventKind;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::task::{Outcome, TaskHandle, TaskState, TaskStatus};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::store::Batch;

/// What a task without an ended attempt has used: shared by all of them.
static NOTHING: LazyLock<Arc<Usage>> = LazyLock::new(Arc::default);

pub(super) struct Alloc {
    pub ctx: Arc<Context>,
    pub id: AllocId,
    pub job: Arc<Job>,
    pub version: u64,
    pub serial: u64,
    group: usize,
    index: u32,
    created_at: Timestamp,
    waits_for: Vec<AllocId>,
    inner: Mutex<Inner>,
    desired: watch::Sender<Desired>,
    ended: watch::Sender<bool>,
}

struct Inner {
    desired: Desired,
    cgroup: Option<CgroupPath>,
    measured: Measured,
    reader: Option<Arc<TaskReader>>,
    base: Arc<Usage>,
    finished: Option<Box<Finished>>,
    finish_shown: bool,
    generation: u64,
    cells: Vec<Cell>,
    /// Tasks whose owner has not left yet.
    owners: usize,
}

/// What a restored alloc brings.
pub(super) struct Restored {
    pub record: AllocRecord,
    /// In the order of the group's tasks; `None`: nothing was ever written of it.
    pub tasks: Vec<Option<TaskRecord>>,
}

impl Alloc {
    pub fn new(ctx: Arc<Context>, job: Arc<Job>, restored: Restored) -> Option<Alloc> {
        let Restored { record, tasks } = restored;
        let group = job.groups.iter().position(|g| g.name == record.group)?;
        let seed = record.id.as_str();
        let cells = job.groups[group]
            .tasks
            .iter()
            .zip(tasks)
            .map(|(task, known)| Cell::new(task, known, seed, record.created_at))
            .collect::<Vec<_>>();
        let finished = finished_of(&record, &cells);
        let base = finished.as_ref().map_or_else(|| Arc::clone(&NOTHING), |f| Arc::new(f.base.clone()));
        let processes = job.groups[group].tasks.iter().any(|t| has_processes(&ctx, &t.driver));
        let measured = match (&record.cgroup, processes) {
            (Some(_), _) => Measured::Cgroup,
            (None, true) => Measured::Process,
            (None, false) => Measured::None,
        };
        let inner = Inner {
            desired: record.desired,
            cgroup: record.cgroup,
            measured,
            reader: None,
            base,
            finish_shown: finished.is_some(),
            finished: finished.map(Box::new),
            generation: 0,
            owners: cells.len(),
            cells,
        };
        Some(Alloc {
            id: record.id,
            version: record.version,
            serial: record.serial,
            group,
            index: record.index,
            created_at: record.created_at,
            waits_for: record.waits_for,
            desired: watch::Sender::new(record.desired),
            ended: watch::Sender::new(false),
            inner: Mutex::new(inner),
            ctx,
            job,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn group(&self) -> &TaskGroup {
        &self.job.groups[self.group]
    }
    pub fn task(&self, at: usize) -> &Task {
        &self.group().tasks[at]
    }
    pub fn task_at(&self, name: &str) -> Option<usize> {
        self.group().tasks.iter().position(|t| t.name.as_str() == name)
    }
    pub fn index(&self) -> u32 {
        self.index
    }
    /// Nomad's `job.group[index]`.
    pub fn name(&self) -> String {
        format!("{}.{}[{}]", self.job.name, self.group().name, self.index)
    }
    pub fn waits_for(&self) -> &[AllocId] {
        &self.waits_for
    }

    /// Told when it is to stop.
    pub fn wish(&self) -> watch::Receiver<Desired> {
        self.desired.subscribe()
    }
    pub fn desired(&self) -> Desired {
        self.lock().desired
    }
    /// Becomes true when every task is dead and what it had on the host is gone.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
    /// Every task is dead.
    pub fn is_terminal(&self) -> bool {
        self.lock().cells.iter().all(|c| c.status.state == TaskState::Dead)
    }
    pub fn finished_at(&self) -> Option<Timestamp> {
        self.lock().finished.as_ref().map(|f| f.at)
    }
    pub fn finished(&self) -> Option<Finished> {
        self.lock().finished.as_deref().cloned()
    }
    pub fn attempt(&self, at: usize) -> Option<Arc<dyn Attempt>> {
        self.lock().cells[at].attempt.clone()
    }
    pub fn status(&self, at: usize) -> Arc<TaskStatus> {
        Arc::clone(&self.lock().cells[at].status)
    }
    pub fn handle(&self, at: usize) -> Option<TaskHandle> {
        self.lock().cells[at].handle.clone()
    }
    pub fn cgroup(&self) -> Option<CgroupPath> {
        self.lock().cgroup.clone()
    }
    pub fn task_totals(&self) -> Vec<(TaskName, TaskTotals)> {
        self.lock().cells.iter().map(|c| (c.status.name.clone(), c.totals())).collect()
    }

    /// Notes the wish; the caller makes it durable, then calls [`Alloc::tell_stop`].
    pub fn want_stop(&self) {
        self.lock().desired = Desired::Stop;
    }
    /// The wish was refused after all.
    pub fn want_run_again(&self) {
        self.lock().desired = Desired::Run;
    }
    pub fn tell_stop(&self) {
        {
            let mut inner = self.lock();
            self.publish(&mut inner, None);
        }
        self.desired.send_replace(Desired::Stop);
    }
    pub fn tell_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Works on a task's cell. Nobody sees it before [`Alloc::show`].
    pub fn edit<T>(&self, at: usize, edit: impl FnOnce(&mut Edit<'_>) -> T) -> T {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        let result = edit(&mut Edit { alloc: self, cell: &mut inner.cells[at], now });
        self.close(&mut inner, now);
        result
    }

    /// Tells of each task that it was received, once in its life: one whose record says nothing was never told of.
    pub fn receive(&self) {
        for at in 0..self.group().tasks.len() {
            self.edit(at, |edit| {
                if edit.status().event_counts.is_empty() {
                    edit.event(EventKind::Received, "task received", &[]);
                }
            });
        }
    }

    /// Shows a task's cell: status, reader and totals in one step.
    pub fn show(&self, at: usize) {
        let mut inner = self.lock();
        let cell = &mut inner.cells[at];
        cell.shown = Arc::clone(&cell.status);
        cell.shown_reader.clone_from(&cell.reader);
        let delta = std::mem::take(&mut cell.pending);
        self.publish(&mut inner, Some((at, delta)));
    }

    /// Shows every cell: for an alloc that is new on the board.
    pub fn show_all(&self) {
        (0..self.group().tasks.len()).for_each(|at| self.show(at));
    }

    /// [`Alloc::edit`], shown at once: for what need not be durable first.
    pub fn change<T>(&self, at: usize, edit: impl FnOnce(&mut Edit<'_>) -> T) -> T {
        let result = self.edit(at, edit);
        self.show(at);
        result
    }

    /// What makes a task's cell durable, and the alloc's end with its last task's.
    pub fn batch(&self, at: usize) -> Batch {
        let mut batch = Batch::default();
        let inner = self.lock();
        let cell = &inner.cells[at];
        let task = TaskRecord {
            status: TaskStatus::clone(&cell.status),
            handle: cell.handle.clone(),
            tracker: cell.tracker.clone(),
            more: MoreTotals::clone(&cell.more),
        };
        record::put(&mut batch, record::task_key(&self.id, &cell.status.name), &task);
        if inner.finished.is_some() {
            record::put(&mut batch, record::alloc_key(&self.id), &self.record_of(&inner));
        }
        batch
    }

    pub fn record(&self) -> AllocRecord {
        self.record_of(&self.lock())
    }

    fn record_of(&self, inner: &Inner) -> AllocRecord {
        AllocRecord {
            id: self.id.clone(),
            job: self.job.id.clone(),
            version: self.version,
            group: self.group().name.clone(),
            index: self.index,
            serial: self.serial,
            created_at: self.created_at,
            desired: inner.desired,
            waits_for: self.waits_for.clone(),
            cgroup: inner.cgroup.clone(),
            finished: inner.finished.as_deref().cloned(),
        }
    }

    /// Makes the alloc's own cgroup, if it is to have one and has none yet.
    pub fn make_cgroup(&self) -> Result<Option<CgroupPath>, String> {
        let mut inner = self.lock();
        let (Some(path), Some(cgroups)) = (inner.cgroup.clone(), &self.ctx.cgroups) else { return Ok(None) };
        if inner.reader.is_none() {
            cgroups.create(&path)?;
            inner.reader = Some(cgroups.reader(&path));
        }
        Ok(Some(path))
    }

    /// After a restart of the agent: the cgroup is there already, or has gone with the host's restart.
    pub fn find_cgroup(&self) {
        let mut inner = self.lock();
        let (Some(path), Some(cgroups)) = (inner.cgroup.clone(), &self.ctx.cgroups) else { return };
        if cgroups.exists(&path) {
            inner.reader = Some(cgroups.reader(&path));
        } else {
            // A new cgroup will count from 0: what the tasks' ended attempts used is all that is known of the old one.
            let mut base = Usage::default();
            inner.cells.iter().for_each(|cell| base.add_counters(&cell.status.base));
            inner.base = Arc::new(base);
        }
    }

    /// An owner leaves. Whether it was the last one.
    pub fn leave(&self) -> bool {
        let mut inner = self.lock();
        inner.owners = inner.owners.saturating_sub(1);
        inner.owners == 0
    }

    /// With the last task's end: the alloc's cgroup is quiet, and says its last.
    fn close(&self, inner: &mut Inner, now: Timestamp) {
        if inner.finished.is_some() || inner.cells.iter().any(|c| c.status.state != TaskState::Dead) {
            return;
        }
        let last = inner.reader.as_ref().and_then(|r| r.read(self.ctx.clock.instant(), now, true).ok());
        let base = match last {
            Some(reading) => reading.usage.on_top_of(&inner.base).without_live(),
            None => Usage::clone(&inner.base),
        };
        let ran = now.since(self.created_at);
        inner.finished = Some(Box::new(Finished { at: now, outcome: worst(&inner.cells), ran, base }));
    }

    fn publish(&self, inner: &mut Inner, delta: Option<(usize, Delta)>) {
        inner.generation += 1;
        let tasks: Vec<Arc<TaskStatus>> = inner.cells.iter().map(|c| Arc::clone(&c.shown)).collect();
        let over = tasks.iter().all(|t| t.state == TaskState::Dead);
        let finished = inner.finished.as_deref().filter(|_| over);
        let ran = finished.filter(|_| !inner.finish_shown).map(|f| (f.outcome, f.ran));
        let base = match finished {
            Some(finished) if ran.is_some() => Arc::new(finished.base.clone()),
            Some(_) | None => Arc::clone(&inner.base),
        };
        let status = AllocStatus {
            id: self.id.clone(),
            job: Arc::clone(&self.job),
            group: self.group().name.clone(),
            index: self.index,
            name: self.name(),
            created_at: self.created_at,
            finished_at: finished.map(|f| f.at),
            desired: inner.desired,
            state: AllocState::derive(&tasks),
            measured: inner.measured,
            cgroup: inner.cgroup.clone(),
            tasks,
            generation: inner.generation,
        };
        let published = Published {
            status: Arc::new(status),
            readers: inner.cells.iter().map(|c| c.shown_reader.clone()).collect(),
            alloc_reader: inner.reader.clone().filter(|_| !over),
            alloc_base: Arc::clone(&base),
        };
        let job = &self.job.id;
        let change = |totals: &mut Totals| {
            if let Some((at, delta)) = &delta {
                delta.apply(totals.task_mut(job, &inner.cells[*at].status.name));
            }
            if let Some((outcome, ran)) = ran {
                totals.add_alloc_run(job, outcome, ran);
            }
        };
        self.ctx.board.publish([published], change);
        inner.finish_shown |= ran.is_some();
        inner.base = base;
        if over {
            inner.reader = None;
        }
    }
}

fn has_processes(ctx: &Context, driver: &str) -> bool {
    ctx.drivers.get(driver).is_some_and(|d| d.has_processes())
}

/// The end of a restored alloc, judged by its tasks' records: the agent may have died between a task's write and its
/// sibling's. Taken at its word, an early end would be the base of a cgroup that still counts; a missing one would never
/// come.
fn finished_of(record: &AllocRecord, cells: &[Cell]) -> Option<Finished> {
    if cells.iter().any(|c| c.status.state != TaskState::Dead) {
        return None;
    }
    record.finished.clone().or_else(|| {
        let at = cells.iter().map(|c| c.status.finished_at.unwrap_or(c.status.state_since)).max()?;
        let mut base = Usage::default();
        // Without a cgroup of its own its tasks are all that is counted.
        if record.cgroup.is_some() {
            cells.iter().for_each(|cell| base.add_counters(&cell.status.base));
        }
        let outcome = worst(cells);
        Some(Finished { at, outcome, ran: at.since(record.created_at), base })
    })
}

fn worst(cells: &[Cell]) -> Outcome {
    cells.iter().map(Cell::end).max_by_key(|o| severity(*o)).unwrap_or(Outcome::Success)
}

/// Which task's end tells most of an alloc's.
fn severity(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Success => 0,
        Outcome::Killed => 1,
        Outcome::Unknown => 2,
        Outcome::Signal => 3,
        Outcome::Error => 4,
        Outcome::Oom => 5,
    }
}
