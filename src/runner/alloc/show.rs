//! How a change is recorded and shown: queued under one lock, shown when it is durable.

use std::sync::Arc;
use std::time::Duration;

use super::cell::TotalsDelta;
use super::{Alloc, Inner};
use crate::board::PublishedAlloc;
use crate::model::alloc::{AllocState, AllocStatus, Desired, ForcedOutcome};
use crate::model::task::{TaskState, TaskStatus};
use crate::model::totals::Totals;
use crate::runner::persistence::journal::{self, PendingWrite};
use crate::runner::persistence::record;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::{Batch, StoreError};

/// A disk that takes longer hangs: changes are shown without waiting for it.
const LATE: Duration = Duration::from_secs(1);

/// First delay between retries of a required write.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// Queued records of tasks, by number, and what is shown when they are written.
#[must_use = "a change is shown only when its record is awaited"]
pub struct Save {
    pub tasks: Vec<(usize, u64)>,
    pub answer: PendingWrite,
}

impl Alloc {
    /// Builds the record of a task (with the alloc's end, if it was the last task) and queues it.
    pub fn save(&self, at: usize) -> Save {
        let mut inner = self.lock();
        let mut batch = Batch::default();
        let number = self.put_task(&mut inner, at, &mut batch);
        if inner.record.finished.is_some() {
            self.put_alloc(&inner, &mut batch);
        }
        Save { tasks: vec![(at, number)], answer: self.ctx.journal.queue(batch) }
    }

    /// Waits until the records are written, and shows them. They are shown even if the disk fails or hangs.
    pub async fn shown(&self, save: Save) -> Result<(), StoreError> {
        let Save { tasks, answer } = save;
        let mut written = std::pin::pin!(journal::answer(answer));
        let result = match tokio::time::timeout(LATE, &mut written).await {
            Ok(result) => result,
            Err(_) => {
                self.show(&tasks);
                // After `LATE` the change is shown anyway.
                written.ends_with(Ends::Disk).await
            }
        };
        self.show(&tasks);
        result
    }

    /// Retries until a task is written, and shows it. Calls `on_failure` with each error, and whether it is the first
    /// one.
    pub async fn persist(&self, at: usize, mut on_failure: impl FnMut(&StoreError, bool)) {
        let mut pause = RETRY_FIRST;
        let mut first = true;
        while let Err(error) = self.shown(self.save(at)).await {
            on_failure(&error, first);
            first = false;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
    }

    /// Retries until the results of its hooks are written, and shows them: no task starts with resources that no record
    /// names. `has_events`: its tasks have some of those.
    pub async fn persist_made(&self, has_events: bool) {
        let mut pause = RETRY_FIRST;
        let mut tasks;
        loop {
            let mut batch = Batch::default();
            tasks = if has_events { self.put_tasks(&mut batch) } else { Vec::new() };
            self.put(&mut batch);
            let Err(error) = self.ctx.journal.commit(batch).await else { break };
            tracing::error!(alloc_id = %self.id, %error, "failed to persist the ports of an alloc; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        }
        self.show(&tasks);
        let mut inner = self.lock();
        inner.ports = inner.record.ports.clone();
        inner.network = inner.record.network.as_ref().map(|record| record.network.clone());
        self.publish(&mut inner, None);
    }

    /// [`Alloc::save`] in the background; shown when it is written.
    pub fn save_aside(self: &Arc<Self>, at: usize) {
        let (alloc, save) = (Arc::clone(self), self.save(at));
        let ctx = Arc::clone(&self.ctx);
        ctx.see_to(async move {
            if let Err(error) = alloc.shown(save).await {
                tracing::error!(
                    alloc_id = %alloc.id,
                    %error,
                    "failed to persist a change of a task; the next change includes it"
                );
            }
        });
    }

    /// No process is left of an abandoned task. Queued and shown in one step: from then on its alloc may be removed,
    /// and no write may follow that. Not awaited: if it was not written, the next agent checks again.
    pub fn mark_exited(&self, at: usize) {
        let mut inner = self.lock();
        if !inner.cells[at].may_run() {
            return;
        }
        inner.cells[at].record.handle = None;
        let mut batch = Batch::default();
        let number = self.put_task(&mut inner, at, &mut batch);
        drop(self.ctx.journal.queue(batch));
        let delta = inner.cells[at].thaw(number).unwrap_or_default();
        self.publish(&mut inner, Some((at, &delta)));
        self.ctx.events.settle(delta.seqs());
        drop(inner);
        if self.is_terminal() {
            self.free_cores();
        }
        self.free_ports();
        self.changed.notify_one();
    }

    /// The records of all tasks.
    pub fn put_tasks(&self, batch: &mut Batch) -> Vec<(usize, u64)> {
        let mut inner = self.lock();
        (0..inner.cells.len()).map(|at| (at, self.put_task(&mut inner, at, batch))).collect()
    }
    /// The records were refused: the alloc never existed.
    pub fn discard(&self) {
        for cell in &mut self.lock().cells {
            let never = cell.thaw(u64::MAX).unwrap_or_default();
            self.ctx.events.discard(never.seqs());
        }
    }

    /// Shows a restored alloc as its records have it.
    pub fn appear(&self) {
        self.publish(&mut self.lock(), None);
    }

    pub(super) fn put_task(&self, inner: &mut Inner, at: usize, batch: &mut Batch) -> u64 {
        let cell = &mut inner.cells[at];
        let number = cell.freeze(&self.ctx.events);
        record::put(batch, record::task_key(&self.id, &cell.record.status.name), &cell.record);
        number
    }

    /// The records are written.
    pub fn show(&self, tasks: &[(usize, u64)]) {
        for &(at, number) in tasks {
            let mut inner = self.lock();
            let Some(delta) = inner.cells[at].thaw(number) else { continue };
            self.publish(&mut inner, Some((at, &delta)));
            self.ctx.events.settle(delta.seqs());
        }
    }

    pub(super) fn publish(&self, inner: &mut Inner, delta: Option<(usize, &TotalsDelta)>) {
        inner.generation += 1;
        let tasks: Vec<Arc<TaskStatus>> = inner.cells.iter().map(|c| Arc::clone(&c.shown.status)).collect();
        let shown_dead = inner.cells.iter().filter(|c| c.may_run() && c.shown.status.state == TaskState::Dead);
        let may_run = shown_dead.map(|c| c.record.status.name.clone()).collect();
        let all_dead = tasks.iter().all(|t| t.state == TaskState::Dead);
        let over = inner.record.finished.is_some() && all_dead;
        let finished = inner.record.finished.as_deref().filter(|_| over);
        let ran = finished.filter(|_| !inner.finish_shown).map(|f| (f.outcome, f.ran));
        let base = match finished {
            Some(finished) if ran.is_some() => Arc::new(finished.base.clone()),
            Some(_) | None => Arc::clone(&inner.base),
        };
        let forced = match inner.record.failed_setup {
            // Not before the events that say why, which come with the ends of its tasks.
            Some(_) => all_dead.then_some(ForcedOutcome::SetupFailed),
            None => inner.record.expired.then_some(ForcedOutcome::Expired),
        };
        if inner.identity.cgroup != inner.record.cgroup {
            Arc::make_mut(&mut inner.identity).cgroup.clone_from(&inner.record.cgroup);
        }
        // An alloc that is to stop waits for nothing.
        let waits = inner.waits_for_ports.as_ref().filter(|_| inner.record.desired == Desired::Run);
        let not_placed = inner.place.reasons().iter().chain(waits);
        let status = AllocStatus {
            job: Arc::clone(&self.job),
            group: self.group().name.clone(),
            index: self.index,
            finished_at: finished.map(|f| f.at),
            desired: inner.record.desired,
            state: AllocState::derive(forced, &tasks).0,
            forced,
            tasks,
            recovering: inner
                .cells
                .iter()
                .filter(|c| c.shown.recovering)
                .map(|c| c.record.status.name.clone())
                .collect(),
            may_run,
            ports: inner.ports.clone(),
            network: inner.network.clone(),
            not_placed: not_placed.cloned().collect(),
            lineage: self.lineage(inner, over),
            generation: inner.generation,
        };
        let published = PublishedAlloc {
            identity: Arc::clone(&inner.identity),
            status: Some(Arc::new(status)),
            observed: None,
            readers: inner.cells.iter().map(|c| c.shown.reader.clone()).collect(),
            until: inner.cells.iter().map(|c| Arc::clone(&c.shown.until)).collect(),
            alloc_reader: inner.reader.clone().filter(|_| !over),
            alloc_base: Arc::clone(&base),
        };
        let job = self.job.workload();
        let change = |totals: &mut Totals| {
            if let Some((at, delta)) = &delta {
                delta.apply(&self.id, totals.task_mut(job, &inner.cells[*at].record.status.name));
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
