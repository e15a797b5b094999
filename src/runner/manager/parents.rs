//! Periodic and parameterized jobs: registered, stopped, shown. They have no allocs; their records stay until they are
//! stopped.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ledger::Ledger;
use super::registry::ParentJob;
use super::{Handle, Manager, RunnerError, SubmitReply, Wait};
use crate::model::id::{AllocId, JobId};
use crate::model::job::Job;
use crate::model::nearest::nearest;
use crate::model::units::{Nanos, Timestamp};
use crate::runner::alloc::Alloc;
use crate::runner::persistence::record::{self, ParentRecord};
use crate::store::{Batch, StoreError};

/// A periodic or parameterized job as shown to users.
#[derive(Debug, Clone)]
pub struct LaunchingJob {
    pub record: Arc<ParentRecord>,
    pub next_launch: Option<Timestamp>,
}

/// The result of stopping a job.
#[derive(Debug, Clone, Default)]
pub struct StoppedJob {
    /// It was periodic or parameterized, and launches nothing any more.
    pub was_parent: bool,
    /// Allocs of the job itself that were stopped.
    pub allocs: Vec<AllocId>,
    /// Children that have not ended: they keep running.
    pub running: Vec<JobId>,
    pub unsaved: Option<StoreError>,
}

impl Handle {
    /// Periodic and parameterized jobs, by ID.
    pub fn parents(&self) -> Vec<LaunchingJob> {
        let at = |second| Timestamp(0).plus(Nanos::from_secs(second));
        let view = |parent: ParentJob| LaunchingJob { next_launch: parent.next().map(at), record: parent.record };
        self.0.parents.all().into_iter().map(view).collect()
    }

    /// Stops a job. A periodic or parameterized job launches nothing any more; its children keep running, as in Nomad.
    ///
    /// Errors: there is no such job; a periodic or parameterized job stays if the state database refuses writes.
    pub async fn stop_job(&self, id: &str) -> Result<StoppedJob, RunnerError> {
        self.0.stop_job(id).await
    }
}

impl Manager {
    pub(super) fn seconds(&self) -> u64 {
        self.ctx.clock.now().0 / 1_000_000_000
    }

    /// Restores the jobs that an earlier agent registered.
    pub(super) async fn found_parents(&self, records: Vec<ParentRecord>) {
        let ledger = self.ledger().await;
        for record in records {
            self.appear(&ledger, &record.job);
            self.parents.put(record);
        }
    }

    /// Registers a periodic or parameterized job. The same job again changes nothing.
    pub(super) async fn register(&self, ledger: &Ledger, job: Job) -> Result<SubmitReply, RunnerError> {
        let reply = SubmitReply { allocs: Vec::new(), replaced: Vec::new() };
        let earlier = self.parents.get(job.id.as_str());
        if earlier.as_ref().is_some_and(|earlier| earlier.record.job == job) {
            return Ok(reply);
        }
        let last_launch = earlier.as_ref().and_then(|earlier| earlier.record.last_launch);
        let record = ParentRecord { job, decided: self.seconds(), last_launch };
        let mut batch = Batch::default();
        record::put(&mut batch, record::parent_key(&record.job.id), &record);
        if let Err(error) = self.ctx.journal.commit(batch).await {
            self.take_back_parent(&record.job.id, earlier.as_ref().map(|earlier| &*earlier.record));
            return Err(RunnerError::StateDb(error));
        }
        self.appear(ledger, &record.job);
        self.parents.put(record);
        self.parents.changed.notify_one();
        Ok(reply)
    }

    /// Creates the series of its workload.
    pub(super) fn appear(&self, ledger: &Ledger, job: &Job) {
        ledger.count_new(&self.ctx, job, 0, self.ctx.clock.now());
        if job.clock().is_some() {
            self.ctx.metrics.launches.known(job.workload());
        }
    }

    /// A refused change may have reached the disk anyway.
    pub(super) fn take_back_parent(&self, id: &JobId, earlier: Option<&ParentRecord>) {
        let mut batch = Batch::default();
        match earlier {
            Some(record) => record::put(&mut batch, record::parent_key(id), record),
            None => batch.remove(record::parent_key(id)),
        }
        self.ctx.journal.amend(batch);
    }

    /// Refuses a change between a plain job and a periodic or parameterized one, as Nomad does.
    pub(super) fn check_kind(&self, job: &Job, live: &[Arc<Alloc>]) -> Result<(), RunnerError> {
        let refused = |problem| Err(RunnerError::JobKind { job: job.id.clone(), problem });
        match (self.parents.get(job.id.as_str()), job.is_parent()) {
            (Some(_), false) => refused("is periodic or parameterized, and cannot become a plain job; stop it first"),
            (None, true) if !live.is_empty() => {
                refused("runs, and cannot become periodic or parameterized; stop it first")
            }
            (None | Some(_), true) | (None, false) => Ok(()),
        }
    }

    async fn stop_job(&self, id: &str) -> Result<StoppedJob, RunnerError> {
        let ledger = self.ledger().await;
        let children = |parent: &JobId| {
            let live = self.allocs.live(|alloc| alloc.job.parent() == Some(parent));
            let mut running: Vec<JobId> = live.iter().map(|alloc| alloc.job.id.clone()).collect();
            running.dedup();
            running
        };
        if let Some(parent) = self.parents.get(id) {
            let job = &parent.record.job;
            let mut batch = Batch::default();
            batch.remove(record::parent_key(&job.id));
            if let Err(error) = self.ctx.journal.commit(batch).await {
                self.take_back_parent(&job.id, Some(&parent.record));
                return Err(RunnerError::StateDb(error));
            }
            self.parents.remove(&job.id);
            self.disappear(&ledger, job);
            self.parents.changed.notify_one();
            return Ok(StoppedJob { was_parent: true, running: children(&job.id), ..StoppedJob::default() });
        }
        drop(ledger);
        // A failed alloc that waits for its replacement has ended; the replacement is cancelled as well.
        let mut live = self.allocs.live(|alloc| alloc.job.id.as_str() == id);
        live.extend(
            self.allocs.all().into_iter().filter(|alloc| alloc.job.id.as_str() == id && alloc.awaits_replacement()),
        );
        let known: BTreeSet<JobId> = self.allocs.all().iter().map(|alloc| alloc.job.id.clone()).collect();
        if !known.contains(id) {
            return Err(self.unknown_job(id));
        }
        let unsaved = self.stop(&live, Wait::No).await;
        let allocs = live.iter().map(|alloc| alloc.id.clone()).collect();
        Ok(StoppedJob { was_parent: false, allocs, running: Vec::new(), unsaved })
    }

    pub(super) fn unknown_job(&self, id: &str) -> RunnerError {
        let mut known: BTreeSet<JobId> = self.allocs.all().iter().map(|alloc| alloc.job.id.clone()).collect();
        known.extend(self.parents.all().iter().map(|parent| parent.record.job.id.clone()));
        if let Some(job) = known.iter().find(|known| known.as_str() == id) {
            return RunnerError::NotLaunching { job: job.clone() };
        }
        let near = nearest(id, known.iter().map(JobId::as_str)).map(str::to_owned);
        RunnerError::UnknownJob { job: id.to_owned(), near }
    }

    /// A job that never launched anything has no totals to keep.
    fn disappear(&self, ledger: &Ledger, job: &Job) {
        let workload = job.workload();
        if self.parents.workloads().contains(workload) {
            return;
        }
        self.ctx.metrics.launches.retired(workload);
        let is_used = self.allocs.all().iter().any(|alloc| alloc.job.workload() == workload);
        if !is_used && !ledger.workloads.contains_key(workload) {
            self.ctx.metrics.durations.retired(workload);
            self.ctx.board.remove(&[], |totals| {
                totals.workloads.retain(|(of, _), _| of != workload);
                totals.alloc_run.remove(workload);
            });
        }
    }
}
