//! One alloc: the state that its tasks' owners share, and how changes are recorded and shown.
//!
//! ```text
//! edit ──► save: record queued under one lock ──► written ──► shown: status, reader, totals, events in one step
//! ```
//! Each task's owner edits its own cell ([`Alloc::edit`]). A change is shown when a record of it is durable, so a crash
//! of the agent takes back nothing that was shown. If the disk fails or hangs, it is shown anyway. The alloc's own
//! owner (`runner::manager::owner`) follows these changes and decides what comes next. The end of the last task takes
//! the last sample of the alloc. Work on the host happens before or after the lock is held, never under it.

mod cell;
mod edit;
mod end;
mod ended;
mod hooked;
mod last;
mod place;
mod placing;
mod ports;
mod replace;
mod restart;
mod services;
mod show;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub use self::cell::KillEscalation;
use self::cell::{NOTHING, TaskCell};
use self::end::finished_of;
pub use self::ended::{DestroyedAlloc, EndedAlloc};
use self::place::PlaceState;
pub use self::replace::{AwaitedReplacement, EndStamp};
pub use self::restart::{AllocRestart, RestartRefusal};
use super::context::RunnerContext;
use super::decide::coordinator::{self, Cause, DesiredState, TaskAction, View};
use super::decide::desired::{AllocRequests, desired_state};
use super::decide::step::State;
use super::drivers::call::RunningAttempt;
use super::hooks::Hooks;
use super::persistence::record::{self, AllocRecord, Backoff, KillRequest, RestartRequest, TaskRecord};
use super::persistence::samples::AttemptKey;
use crate::collectors::TaskReader;
use crate::model::alloc::{AllocIdentity, AllocSource, Desired, Measured, TaskIdentity};
use crate::model::device::DeviceHolder;
use crate::model::device_used::DeviceUsed;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::network::{AllocNetwork, AllocPort};
use crate::model::placement::NotPlaced;
use crate::model::task::{TaskHandle, TaskState, TaskStatus};
use crate::model::totals::TaskTotals;
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::model::usage::Usage;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::Batch;
use crate::telemetry::lock;

pub struct Alloc {
    pub ctx: Arc<RunnerContext>,
    pub hooks: Arc<Hooks>,
    pub id: AllocId,
    pub job: Arc<Job>,
    pub version: u64,
    pub serial: u64,
    group: usize,
    index: u32,
    created_at: Timestamp,
    began: Steady,
    inner: Mutex<Inner>,
    /// Wakes the alloc's owner: a task has changed, or a stop was requested.
    changed: Notify,
    /// The current action of each task.
    actions: Vec<watch::Sender<TaskAction>>,
    /// Wakes each task's owner to check other recorded requests.
    wakers: Vec<Notify>,
    ended: watch::Sender<bool>,
}

struct Inner {
    /// The record as the next change will write it.
    record: AllocRecord,
    /// The desired state that is durable: the owner acts on it.
    applied: Desired,
    /// As it is shown.
    identity: Arc<AllocIdentity>,
    reader: Option<Arc<TaskReader>>,
    base: Arc<Usage>,
    finish_shown: bool,
    generation: u64,
    /// Whether it is placed.
    place: PlaceState,
    cells: Vec<TaskCell>,
    /// As they are shown: once recorded.
    ports: Vec<AllocPort>,
    network: Option<AllocNetwork>,
    waits_for_ports: Option<NotPlaced>,
    /// Duration of its prerun hooks and the time of their end, until it is reported.
    prerun: Option<(Vec<(&'static str, Duration)>, Timestamp)>,
}

impl Inner {
    /// All its tasks are being restarted.
    fn is_restarting(&self) -> bool {
        self.record.again && self.record.desired == Desired::Run && !self.record.expired
    }
    /// Its last task is dead, and its end is not recorded yet.
    fn has_ended(&self) -> bool {
        self.record.finished.is_none() && self.cells.iter().all(|c| c.record.status.state == TaskState::Dead)
    }
    fn anything_ran(&self) -> bool {
        self.cells.iter().any(|c| c.record.status.started_at.is_some() || c.record.status.attempt > 0 || c.recovering)
    }
}

/// The records of a restored alloc.
pub struct RestoredRecords {
    pub record: AllocRecord,
    /// In the order of the group's tasks; `None`: no record was written.
    pub tasks: Vec<Option<TaskRecord>>,
}

impl Alloc {
    pub fn new(ctx: Arc<RunnerContext>, hooks: Arc<Hooks>, job: Arc<Job>, restored: RestoredRecords) -> Option<Alloc> {
        let RestoredRecords { mut record, tasks } = restored;
        let group = job.groups.iter().position(|g| g.name == record.group)?;
        let seed = record.id.as_str();
        let cells = job.groups[group]
            .tasks
            .iter()
            .zip(tasks)
            .map(|(task, known)| {
                let mut cell = TaskCell::new(task, known, seed, record.created_at);
                cell.output = ctx.outputs.restored(&cell.record.status);
                cell
            })
            .collect::<Vec<_>>();
        let began = record.began.unwrap_or_else(|| ctx.line.of_wall(record.created_at));
        record.began = Some(began);
        record.finished = finished_of(&record, &cells, began, &ctx.line);
        if record.finished.is_none() {
            record.reschedule.get_or_insert_default();
        }
        let base = record.finished.as_ref().map(|f| &f.base).or(record.earlier.as_ref().map(|e| &e.base));
        let base = base.map_or_else(|| Arc::clone(&NOTHING), |base| Arc::new(base.clone()));
        let processes = job.groups[group].tasks.iter().any(|t| ctx.has_processes(&t.driver));
        let measured = match (&record.cgroup, processes) {
            (Some(_), _) => Measured::Cgroup,
            (None, true) => Measured::Process,
            (None, false) => Measured::None,
        };
        let tasks = cells.iter().map(|c| &c.record.status).map(|task| TaskIdentity {
            name: task.name.clone(),
            driver: Some(task.driver.clone()),
            user: task.user.as_ref().map(|user| job.sensitive.hide(user).into_owned()),
            image: None,
        });
        let identity = Arc::new(AllocIdentity {
            id: record.id.clone(),
            source: AllocSource::Managed,
            workload: Some(job.workload().clone()),
            namespace: job.namespace.clone(),
            group: Some(record.group.clone()),
            name: format!("{}.{}[{}]", job.name, record.group, record.index),
            created_at: Some(record.created_at),
            measured,
            cgroup: record.cgroup.clone(),
            tasks: tasks.collect(),
        });
        Some(Alloc {
            id: record.id.clone(),
            version: record.version,
            serial: record.serial,
            group,
            index: record.index,
            created_at: record.created_at,
            began,
            changed: Notify::new(),
            actions: job.groups[group].tasks.iter().map(|_| watch::Sender::new(TaskAction::Keep)).collect(),
            wakers: job.groups[group].tasks.iter().map(|_| Notify::new()).collect(),
            ended: watch::Sender::new(false),
            inner: Mutex::new(Inner {
                identity,
                reader: None,
                base,
                finish_shown: record.finished.is_some(),
                ports: record.ports.clone(),
                network: record.network.as_ref().map(|record| record.network.clone()),
                waits_for_ports: None,
                prerun: None,
                generation: 0,
                place: PlaceState::default(),
                cells,
                applied: record.desired,
                record,
            }),
            ctx,
            hooks,
            job,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    pub fn group(&self) -> &TaskGroup {
        &self.job.groups[self.group]
    }
    pub fn index(&self) -> u32 {
        self.index
    }
    pub fn task(&self, at: usize) -> &Task {
        &self.group().tasks[at]
    }
    pub fn task_at(&self, name: &str) -> Option<usize> {
        self.group().tasks.iter().position(|t| t.name.as_str() == name)
    }
    /// Time since its submission.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }
    pub fn age(&self) -> Nanos {
        self.ctx.line.now().since(self.began)
    }
    pub fn waits_for(&self) -> Vec<AllocId> {
        self.lock().record.waits_for.clone()
    }

    pub fn desired(&self) -> Desired {
        self.lock().record.desired
    }
    /// Becomes true when every task is dead and the host is cleaned up.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
    /// Whether every task is dead.
    pub fn is_terminal(&self) -> bool {
        self.lock().cells.iter().all(|c| c.record.status.state == TaskState::Dead)
    }
    pub fn finished_at(&self) -> Option<Steady> {
        self.lock().record.finished.as_ref().map(|f| f.ended.unwrap_or_else(|| self.ctx.line.of_wall(f.at)))
    }
    /// Run time by the outcome of each end, in the order of `Outcome::ALL`.
    pub fn ran(&self) -> [Nanos; 6] {
        let inner = self.lock();
        let mut ran = inner.record.earlier.as_ref().map_or([Nanos::ZERO; 6], |e| e.ran);
        if let Some(finished) = &inner.record.finished {
            let one = &mut ran[finished.outcome.index()];
            *one = one.saturating_add(finished.ran);
        }
        ran
    }
    pub fn attempt(&self, at: usize) -> Option<RunningAttempt> {
        self.lock().cells[at].attempt.clone()
    }
    pub fn status(&self, at: usize) -> Arc<TaskStatus> {
        Arc::clone(&self.lock().cells[at].record.status)
    }
    pub fn task_state(&self, at: usize) -> State {
        let inner = self.lock();
        let cell = &inner.cells[at];
        State::of(cell.record.status.state, cell.record.restart.map(|r| r.whole))
    }
    pub fn handle(&self, at: usize) -> Option<TaskHandle> {
        self.lock().cells[at].record.handle.clone()
    }
    /// Whether processes of an abandoned task may be left. Then its alloc is neither restarted nor removed.
    pub fn may_run(&self, at: usize) -> bool {
        self.lock().cells[at].may_run()
    }
    /// The first such task.
    pub fn first_that_may_run(&self) -> Option<usize> {
        self.lock().cells.iter().position(TaskCell::may_run)
    }
    /// The kill request of a task.
    pub fn kill(&self, at: usize) -> Option<KillRequest> {
        self.lock().cells[at].record.kill
    }
    /// The requested restart of a task whose attempt has not ended yet.
    pub fn restart_requested(&self, at: usize) -> Option<RestartRequest> {
        self.lock().cells[at].record.restart
    }
    /// The delay before a task's kill signal in a restart of all tasks: the rest of the group's delay, and the task's
    /// own.
    pub fn recall_delay(&self, at: usize) -> Nanos {
        let waited = self
            .lock()
            .record
            .again_requested_at
            .map_or(Nanos::ZERO, |requested_at| self.ctx.line.now().since(requested_at));
        let left = Nanos::from_duration(self.group().shutdown_delay).saturating_sub(waited);
        left.saturating_add(Nanos::from_duration(self.task(at).shutdown_delay))
    }
    /// Its wait for its next attempt. Records of older agents have wall-clock time alone: then it is taken from the
    /// status.
    pub fn backoff(&self, at: usize) -> Option<Backoff> {
        let inner = self.lock();
        let (backoff, status) = (inner.cells[at].record.backoff, &inner.cells[at].record.status);
        let by_wall = |over: Timestamp| Backoff {
            since: self.ctx.line.of_wall(status.state_since),
            delay: over.since(status.state_since),
        };
        backoff.or_else(|| status.next_start_at.map(by_wall))
    }
    /// When the first kill signal was sent, for an end or a restart.
    pub fn signalled_at(&self, at: usize) -> Option<Steady> {
        let inner = self.lock();
        let cell = &inner.cells[at];
        cell.record.kill.map_or_else(|| cell.record.restart.and_then(|r| r.signalled_at), |k| k.signalled_at)
    }
    pub fn cgroup(&self) -> Option<CgroupPath> {
        self.lock().record.cgroup.clone()
    }
    pub fn task_totals(&self) -> Vec<(TaskName, TaskTotals)> {
        let of = |c: &TaskCell| TaskTotals { created: Some(self.created_at), ..c.totals() };
        self.lock().cells.iter().map(|c| (c.record.status.name.clone(), of(c))).collect()
    }

    /// Sets the desired state; the caller makes it durable, then calls [`Alloc::apply_stop`].
    pub fn request_stop(&self) {
        let now = self.ctx.line.now();
        let mut inner = self.lock();
        inner.record.desired = Desired::Stop;
        inner.record.stop_requested_at.get_or_insert(now);
    }
    /// The stop was refused: reverts the desired state.
    pub fn withdraw_stop(&self) {
        let mut inner = self.lock();
        inner.record.desired = Desired::Run;
        inner.record.stop_requested_at = None;
    }
    /// The current desired state, and when to evaluate it again.
    pub fn desired_state(&self, now: Steady) -> (DesiredState, Option<Steady>) {
        let inner = self.lock();
        let requests = AllocRequests {
            // The durable one, not the one that is being recorded.
            desired: inner.applied,
            stop_requested_at: inner.record.stop_requested_at,
            expired: inner.record.expired,
            restart: inner.record.again,
            failed_setup: inner.record.failed_setup.is_some(),
            began: self.began,
            shutdown_delay: Nanos::from_duration(self.group().shutdown_delay),
            max_run: self.group().max_run_duration.map(Nanos::from_duration),
            anything_ran: inner.anything_ran(),
        };
        desired_state(&requests, now)
    }
    /// Why a task that ends now is not restarted, whatever its policy says.
    pub fn no_more(&self, at: usize) -> Option<Cause> {
        let (desired_state, _) = self.desired_state(self.ctx.line.now());
        coordinator::no_more(&self.views(), at, desired_state)
    }
    /// Since when its tasks have to end for that cause.
    pub fn ends_since(&self, cause: Cause) -> Option<Steady> {
        let inner = self.lock();
        let end = |at: usize| inner.cells[at].record.status.finished_at.map(|end| self.ctx.line.of_wall(end));
        match cause {
            Cause::Stopped => {
                let delay = Nanos::from_duration(self.group().shutdown_delay);
                inner.record.stop_requested_at.map(|requested_at| requested_at.plus(delay))
            }
            Cause::Expired => self.group().max_run_duration.map(|most| self.began.plus(Nanos::from_duration(most))),
            Cause::LeaderDead(at) | Cause::SiblingFailed(at) => end(at),
            Cause::MainsDead => (0..inner.cells.len()).filter_map(end).max(),
            Cause::NothingRan | Cause::SetupFailed => None,
        }
    }
    /// Whether the end of its `max_run_duration` was recorded.
    pub fn is_expired(&self) -> bool {
        self.lock().record.expired
    }
    /// Its `max_run_duration` is over: returns the batch to write before any task is ended.
    pub fn expire(&self) -> Batch {
        let mut batch = Batch::default();
        let mut inner = self.lock();
        inner.record.expired = true;
        self.put_alloc(&inner, &mut batch);
        batch
    }
    /// Its setup failed: returns the batch to write before its tasks are ended.
    pub fn fail_setup(&self, why: String) -> Batch {
        let mut batch = Batch::default();
        let mut inner = self.lock();
        inner.record.failed_setup = Some(self.job.sensitive.hide(&why).into_owned());
        self.put_alloc(&inner, &mut batch);
        batch
    }
    pub fn failed_setup(&self) -> Option<String> {
        self.lock().record.failed_setup.clone()
    }
    /// Whether any of its tasks was ever about to run.
    pub fn anything_ran(&self) -> bool {
        self.lock().anything_ran()
    }
    /// Waits until a task changes or a stop is requested; changes since the last call count.
    pub async fn changes(&self) {
        self.changed.notified().ends_with(Ends::Caller).await;
    }
    /// The action of a task. An `End` is only withdrawn by a restart of the whole alloc.
    pub fn action(&self, at: usize) -> watch::Receiver<TaskAction> {
        self.actions[at].subscribe()
    }
    fn views(&self) -> Vec<View> {
        let inner = self.lock();
        let view = |(task, cell): (&Task, &TaskCell)| {
            let view = View::of(task, &cell.record.status, cell.record.kill.map(|kill| kill.cause));
            if cell.recovering { view.unknown() } else { view }
        };
        self.group().tasks.iter().zip(&inner.cells).map(view).collect()
    }
    /// Whether its tasks have to end or have ended: its prekill hooks run first.
    pub fn ends(&self, desired_state: DesiredState) -> bool {
        coordinator::ends(&self.views(), desired_state)
    }
    /// Sends each task the action that follows from the states of all.
    pub fn direct(&self, desired_state: DesiredState) {
        for (action, sender) in coordinator::decide(&self.views(), desired_state).into_iter().zip(&self.actions) {
            sender.send_if_modified(|sent| {
                let new = *sent != action && action != TaskAction::Keep && !matches!(sent, TaskAction::End(_));
                if new {
                    *sent = action;
                }
                new
            });
        }
    }
    pub fn apply_stop(&self) {
        {
            let mut inner = self.lock();
            self.publish(&mut inner, None);
            inner.applied = Desired::Stop;
        }
        self.changed.notify_one();
    }
    pub fn mark_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Reports each task as received, once in its life: only if its record has no events.
    pub fn receive(&self) {
        let message = self.received_as();
        for at in 0..self.group().tasks.len() {
            self.edit(at, |edit| {
                if edit.status().event_counts.is_empty() {
                    edit.event(EventKind::Received, message.as_str(), &[]);
                }
            });
        }
    }

    /// Marks a task as in recovery. The alloc is not shown yet.
    pub fn begin_recovery(&self, at: usize) {
        let cell = &mut self.lock().cells[at];
        (cell.recovering, cell.shown.recovering) = (true, true);
    }
    /// Takes over the sample that the previous agent persisted of an attempt that may still run.
    pub fn keep_sample(&self, at: usize, attempt: u32) {
        let page = self.ctx.samples.found(self.attempt_key(at, attempt));
        self.lock().cells[at].page = page.map(Arc::new);
    }
    fn attempt_key(&self, at: usize, attempt: u32) -> AttemptKey {
        AttemptKey { alloc: self.id.clone(), task: self.task(at).name.clone(), attempt }
    }
    /// Whether a task is still shown as in recovery.
    pub fn is_recovering(&self, at: usize) -> bool {
        self.lock().cells[at].shown.recovering
    }
    /// Whether the state of a task is unknown: its driver has not responded yet.
    pub fn is_unknown(&self, at: usize) -> bool {
        self.lock().cells[at].recovering
    }

    /// Whether a change of a task is neither recorded nor queued to be.
    pub fn is_changed(&self, at: usize) -> bool {
        self.lock().cells[at].is_changed()
    }

    /// Adds its record to a batch.
    pub fn put(&self, batch: &mut Batch) {
        self.put_alloc(&self.lock(), batch);
    }
    #[cfg(test)]
    pub fn record(&self) -> AllocRecord {
        self.lock().record.clone()
    }
    fn put_alloc(&self, inner: &Inner, batch: &mut Batch) {
        record::put(batch, record::alloc_key(&self.id), &inner.record);
    }

    /// Its own cgroup, if it has one and cgroups can be created.
    pub fn own_cgroup(&self) -> Option<CgroupPath> {
        self.cgroup().filter(|_| self.ctx.cgroups.is_some())
    }

    fn device_holder(&self, at: usize) -> DeviceHolder {
        DeviceHolder { alloc: self.id.clone(), task: self.task(at).name.clone() }
    }
    /// After a restart of the agent: a task that may run reserves its devices before any other task can get them.
    pub fn hold_devices(&self, at: usize) {
        let status = self.status(at);
        if let Some(keeper) = &self.ctx.devices
            && !status.devices.is_empty()
            && let Err(error) = keeper.hold(&self.device_holder(at), &status.devices)
        {
            tracing::error!(
                alloc_id = %self.id,
                task = %status.name,
                error,
                "failed to reserve the devices of a task that may run"
            );
        }
    }
    pub(super) fn used_devices(&self, at: usize) -> Vec<DeviceUsed> {
        let keeper = self.ctx.devices.as_ref();
        keeper.map_or_else(Vec::new, |keeper| keeper.used(&self.device_holder(at)))
    }
    /// Releases its devices if all of its processes are gone: the handle is kept as long as any may run.
    pub fn free_devices(&self, at: usize) {
        if let Some(keeper) = &self.ctx.devices
            && !self.task(at).resources.devices.is_empty()
            && self.handle(at).is_none()
        {
            keeper.free(&self.device_holder(at));
        }
    }

    /// After a restart of the agent: finds the cgroup, which may have gone with a reboot.
    pub fn find_cgroup(&self) {
        let (Some(path), Some(cgroups)) = (self.cgroup(), &self.ctx.cgroups) else { return };
        let found = cgroups.exists(&path).then(|| Arc::new(cgroups.reader(&path).preexisting()));
        let mut inner = self.lock();
        if found.is_some() {
            inner.reader = found;
        } else {
            // A new cgroup is created below this agent's and counts from 0: the usage of the tasks' ended attempts is
            // all that is known of the old one.
            inner.record.cgroup = Some(self.ctx.config.cgroup_parent.child(self.id.as_str()));
            let mut base = Usage::default();
            inner.cells.iter().for_each(|cell| base.add_counters(&cell.record.status.base));
            if let Some(earlier) = &inner.record.earlier {
                base.not_below(&earlier.base);
            }
            inner.base = Arc::new(base);
        }
    }
}
