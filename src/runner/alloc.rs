//! One alloc: the state that its tasks' owners share, and how it gets on the board.
//!
//! ```text
//! edit ──► save: record built and queued under one lock ──► written ──► shown: status, reader, totals, events in one step
//! ```
//! Each task's owner works on its own cell ([`Alloc::edit`]). Nobody sees that before a record of it is durable: then no
//! death of the agent takes back what was shown. Only where the disk fails or hangs it is shown all the same. There is no
//! owner of the alloc besides: the task that ends last closes it.

mod again;
mod cell;
mod end;
mod wish;

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub(super) use self::again::{Recall, Refusal};
use self::cell::{Cell, Delta};
pub(super) use self::cell::{Edit, Force};
use self::end::{finished_of, worst};
pub(super) use self::wish::Wanted;
use self::wish::{Wishes, wanted};
use super::board::{Published, TaskTotals, Totals};
use super::context::Context;
use super::coordinator::{self, Order, View, Wish};
use super::drivers::call::Running;
use super::journal::{self, Answer};
use super::record::{self, AllocRecord, Earlier, Finished, Kill, MoreTotals, TaskRecord};
use super::step::State;
use crate::collectors::TaskReader;
use crate::model::alloc::{AllocState, AllocStatus, Desired, Measured};
use crate::model::event::EventKind;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::task::{Exit, TaskHandle, TaskState, TaskStatus};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::store::{Batch, StoreError};

/// A disk that takes longer hangs: what waits for it is shown all the same.
const LATE: Duration = Duration::from_secs(1);

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
    /// Counts the changes of its tasks.
    changed: watch::Sender<u64>,
    /// What each task is told to do.
    orders: Vec<watch::Sender<Order>>,
    /// Something was asked of each task that is no order.
    nudges: Vec<Notify>,
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
    stop_asked_at: Option<Timestamp>,
    expired: bool,
    again: bool,
    earlier: Option<Box<Earlier>>,
}

/// A record on its way to the disk, and what is shown when it is there.
#[must_use = "nobody sees a change before its record is awaited"]
pub(super) struct Save {
    at: usize,
    number: u64,
    answer: Answer,
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
        let base = finished.as_ref().map(|f| &f.base).or(record.earlier.as_ref().map(|e| &e.base));
        let base = base.map_or_else(|| Arc::clone(&NOTHING), |base| Arc::new(base.clone()));
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
            stop_asked_at: record.stop_asked_at,
            expired: record.expired,
            again: record.again,
            earlier: record.earlier,
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
            changed: watch::Sender::new(0),
            orders: job.groups[group].tasks.iter().map(|_| watch::Sender::new(Order::Keep)).collect(),
            nudges: job.groups[group].tasks.iter().map(|_| Notify::new()).collect(),
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
    /// How long ago it was submitted.
    pub fn age(&self, now: Timestamp) -> Nanos {
        now.since(self.created_at)
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
    /// How long it ran, by the outcome of each of its ends, in the order of `Outcome::ALL`.
    pub fn ran(&self) -> [Nanos; 6] {
        let inner = self.lock();
        let mut ran = inner.earlier.as_ref().map_or([Nanos::ZERO; 6], |e| e.ran);
        if let Some(finished) = &inner.finished {
            let one = &mut ran[finished.outcome.index()];
            *one = one.saturating_add(finished.ran);
        }
        ran
    }
    pub fn attempt(&self, at: usize) -> Option<Running> {
        self.lock().cells[at].attempt.clone()
    }
    pub fn status(&self, at: usize) -> Arc<TaskStatus> {
        Arc::clone(&self.lock().cells[at].status)
    }
    pub fn task_state(&self, at: usize) -> State {
        let inner = self.lock();
        let cell = &inner.cells[at];
        State::of(cell.status.state, cell.restart.map(|r| r.whole))
    }
    pub fn handle(&self, at: usize) -> Option<TaskHandle> {
        self.lock().cells[at].handle.clone()
    }
    /// That somebody asked for a task's end.
    pub fn kill(&self, at: usize) -> Option<Kill> {
        self.lock().cells[at].kill
    }
    /// When the kill signal of its end, asked for or for a restart, was first sent.
    pub fn signalled_at(&self, at: usize) -> Option<Timestamp> {
        let inner = self.lock();
        let cell = &inner.cells[at];
        cell.kill.map_or_else(|| cell.restart.and_then(|r| r.signalled_at), |k| k.signalled_at)
    }
    pub fn cgroup(&self) -> Option<CgroupPath> {
        self.lock().cgroup.clone()
    }
    pub fn task_totals(&self) -> Vec<(TaskName, TaskTotals)> {
        self.lock().cells.iter().map(|c| (c.status.name.clone(), c.totals())).collect()
    }

    /// Notes the wish; the caller makes it durable, then calls [`Alloc::tell_stop`].
    pub fn want_stop(&self) {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        inner.desired = Desired::Stop;
        inner.stop_asked_at.get_or_insert(now);
    }
    /// The wish was refused after all.
    pub fn want_run_again(&self) {
        let mut inner = self.lock();
        inner.desired = Desired::Run;
        inner.stop_asked_at = None;
    }
    /// What is wanted of it now, and when that is to be asked again.
    pub fn wanted(&self, now: Timestamp) -> (Wanted, Option<Timestamp>) {
        let inner = self.lock();
        let wishes = Wishes {
            // What was told, not what is being recorded.
            desired: *self.desired.borrow(),
            stop_asked_at: inner.stop_asked_at,
            expired: inner.expired,
            again: inner.again,
            created_at: self.created_at,
            shutdown_delay: Nanos::from_duration(self.group().shutdown_delay),
            max_run: self.group().max_run_duration.map(Nanos::from_duration),
            anything_ran: inner.cells.iter().any(|c| c.status.started_at.is_some() || c.status.attempt > 0),
        };
        wanted(&wishes, now)
    }
    /// Its `max_run_duration` is over: what has to be written of that before anything is ended.
    pub fn expire(&self) -> Batch {
        let mut batch = Batch::default();
        let mut inner = self.lock();
        inner.expired = true;
        record::put(&mut batch, record::alloc_key(&self.id), &self.record_of(&inner));
        batch
    }
    /// Told with each change of a task.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
    /// What a task is told to do. Whom to end is never taken back, but when its alloc begins anew.
    pub fn order(&self, at: usize) -> watch::Receiver<Order> {
        self.orders[at].subscribe()
    }
    /// Tells each task what follows from how all of them are.
    pub fn direct(&self, wish: Wish) {
        let views: Vec<View> = {
            let inner = self.lock();
            self.group().tasks.iter().zip(&inner.cells).map(|(task, cell)| View::of(task, &cell.status)).collect()
        };
        for (order, sender) in coordinator::decide(&views, wish).into_iter().zip(&self.orders) {
            sender.send_if_modified(|told| {
                let new = *told != order && order != Order::Keep && !matches!(told, Order::End(_));
                if new {
                    *told = order;
                }
                new
            });
        }
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

    /// Works on a task's cell. Nobody sees it before it is saved.
    pub fn edit<T>(&self, at: usize, edit: impl FnOnce(&mut Edit<'_>) -> T) -> T {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        let result = edit(&mut Edit { alloc: self, at, cell: &mut inner.cells[at], now });
        self.close(&mut inner, now);
        drop(inner);
        self.changed.send_modify(|changes| *changes += 1);
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

    /// The end that is shown last of a task.
    pub fn shown_exit(&self, at: usize) -> Option<Arc<Exit>> {
        self.lock().cells[at].shown.status.last_exit().cloned()
    }

    /// Something of a task is neither recorded nor on its way to be.
    pub fn is_changed(&self, at: usize) -> bool {
        self.lock().cells[at].is_changed()
    }

    /// Builds a task's record, with the alloc's end if it is its last task's, and queues it.
    pub fn save(&self, at: usize) -> Save {
        let mut inner = self.lock();
        let mut batch = Batch::default();
        let number = self.put_task(&mut inner, at, &mut batch);
        if inner.finished.is_some() {
            record::put(&mut batch, record::alloc_key(&self.id), &self.record_of(&inner));
        }
        Save { at, number, answer: self.ctx.journal.queue(batch) }
    }

    /// Waits until it is written, and shows it. A disk that fails or hangs keeps nobody from seeing it.
    pub async fn shown(&self, save: Save) -> Result<(), StoreError> {
        let Save { at, number, answer } = save;
        let mut written = std::pin::pin!(journal::answer(answer));
        let result = match tokio::time::timeout(LATE, &mut written).await {
            Ok(result) => result,
            Err(_) => {
                self.show(at, number);
                written.await
            }
        };
        self.show(at, number);
        result
    }

    /// [`Alloc::save`], shown when it is written; its caller goes on.
    pub fn save_aside(self: &Arc<Self>, at: usize) {
        let (alloc, save) = (Arc::clone(self), self.save(at));
        tokio::spawn(async move {
            if let Err(error) = alloc.shown(save).await {
                tracing::error!(alloc_id = %alloc.id, %error, "a change of a task is not saved; its next one will be");
            }
        });
    }

    /// The records of a new alloc's tasks, all of them.
    pub fn put_new(&self, batch: &mut Batch) -> Vec<u64> {
        let mut inner = self.lock();
        (0..inner.cells.len()).map(|at| self.put_task(&mut inner, at, batch)).collect()
    }
    /// They are written.
    pub fn show_new(&self, numbers: &[u64]) {
        numbers.iter().enumerate().for_each(|(at, number)| self.show(at, *number));
    }
    /// They were refused: it never was.
    pub fn discard(&self) {
        for cell in &mut self.lock().cells {
            let never = cell.thaw(u64::MAX).unwrap_or_default();
            self.ctx.events.discard(never.seqs());
        }
    }

    /// Puts a restored alloc on the board, as its records say.
    pub fn appear(&self) {
        self.publish(&mut self.lock(), None);
    }

    fn put_task(&self, inner: &mut Inner, at: usize, batch: &mut Batch) -> u64 {
        let cell = &mut inner.cells[at];
        let number = cell.freeze(&self.ctx.events);
        let task = TaskRecord {
            status: TaskStatus::clone(&cell.status),
            handle: cell.handle.clone(),
            tracker: cell.tracker.clone(),
            more: MoreTotals::clone(&cell.more),
            kill: cell.kill,
            restart: cell.restart,
        };
        record::put(batch, record::task_key(&self.id, &cell.status.name), &task);
        number
    }

    fn show(&self, at: usize, number: u64) {
        let mut inner = self.lock();
        let Some(delta) = inner.cells[at].thaw(number) else { return };
        self.publish(&mut inner, Some((at, &delta)));
        self.ctx.events.settle(delta.seqs());
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
            stop_asked_at: inner.stop_asked_at,
            expired: inner.expired,
            again: inner.again,
            earlier: inner.earlier.clone(),
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
            // A new cgroup is made where this agent has its own, and will count from 0: what the tasks' ended attempts used is
            // all that is known of the old one.
            inner.cgroup = Some(self.ctx.config.cgroup_parent.child(self.id.as_str()));
            let mut base = Usage::default();
            inner.cells.iter().for_each(|cell| base.add_counters(&cell.status.base));
            if let Some(earlier) = &inner.earlier {
                base.not_below(&earlier.base);
            }
            inner.base = Arc::new(base);
        }
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
        let ran = now.since(inner.earlier.as_ref().map_or(self.created_at, |e| e.restarted_at));
        inner.again = false;
        inner.finished = Some(Box::new(Finished { at: now, outcome: worst(&inner.cells), ran, base }));
    }

    fn publish(&self, inner: &mut Inner, delta: Option<(usize, &Delta)>) {
        inner.generation += 1;
        let tasks: Vec<Arc<TaskStatus>> = inner.cells.iter().map(|c| Arc::clone(&c.shown.status)).collect();
        let over = inner.finished.is_some() && tasks.iter().all(|t| t.state == TaskState::Dead);
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
            readers: inner.cells.iter().map(|c| c.shown.reader.clone()).collect(),
            until: inner.cells.iter().map(|c| Arc::clone(&c.shown.until)).collect(),
            alloc_reader: inner.reader.clone().filter(|_| !over),
            alloc_base: Arc::clone(&base),
        };
        let job = &self.job.id;
        let change = |totals: &mut Totals| {
            if let Some((at, delta)) = &delta {
                delta.apply(&self.id, totals.task_mut(job, &inner.cells[*at].status.name));
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
