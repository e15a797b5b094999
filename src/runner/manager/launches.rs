//! Children of jobs that launch others: by the clock, or by a request.
//!
//! ```text
//! parent, clock ── decide::periodic ──► launch: child, allocs and the parent's `decided` in one batch ──► they run
//! ```
//! An agent that dies before the batch is durable has launched nothing, and the next one decides again. After the
//! batch, the allocs are recovered like any others. So no due time is launched twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ledger::Ledger;
use super::registry::ParentJob;
use super::{Handle, Manager, RunnerError};
use crate::jobspec::size;
use crate::model::id::{AllocId, JobId};
use crate::model::job::Job;
use crate::model::launching::{DispatchParameters, DispatchRefusal};
use crate::runner::alloc::Alloc;
use crate::runner::decide::periodic::{DueLaunch, PeriodicStep, periodic};
use crate::runner::persistence::record::{self, ParentRecord};
use crate::store::Batch;
use crate::telemetry::launches::LaunchOutcome;

/// Maximum wait for the next launch: the wall clock may be set, and the host suspended.
const RECHECK: Duration = Duration::from_secs(10);
/// Seconds that the clock may be set back without launching again what was launched.
const CLOCK_AHEAD: u64 = 24 * 60 * 60;
/// Delay before a failed launch is retried.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// A child that was launched now or earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchedChild {
    pub id: JobId,
    pub allocs: Vec<AllocId>,
    /// An earlier request launched it.
    pub existed: bool,
}

impl Handle {
    /// Launches a periodic job now, whatever its schedule and whatever runs of it.
    ///
    /// Errors: there is no such job; it is not periodic, or not enabled; the state database refuses writes.
    pub async fn force(&self, id: &str) -> Result<LaunchedChild, RunnerError> {
        self.0.force(id).await
    }

    /// Launches a parameterized job. If a child with the same idempotency token is recorded, returns that child.
    ///
    /// Errors: there is no such job; the parameters do not match its declaration; the state database refuses writes.
    pub async fn dispatch(&self, id: &str, given: DispatchParameters) -> Result<LaunchedChild, RunnerError> {
        self.0.dispatch(id, given).await
    }
}

impl Manager {
    /// Launches what is due, as long as the agent runs.
    pub async fn launch_on_schedule(self: Arc<Self>) {
        while !self.closed.load(Ordering::SeqCst) {
            let wait = self.launch_due().await;
            tokio::select! {
                () = self.parents.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Time until the next launch, at most [`RECHECK`].
    async fn launch_due(self: &Arc<Self>) -> Duration {
        let mut ledger = self.ledger().await;
        let mut wait = RECHECK;
        for parent in self.parents.all() {
            let Some(schedule) = &parent.schedule else { continue };
            let (job, metrics) = (&parent.record.job, &self.ctx.metrics.launches);
            if parent.record.decided > self.seconds().saturating_add(CLOCK_AHEAD) {
                match self.begin_again(&parent).await {
                    Ok(()) => wait = Duration::ZERO,
                    Err(error) => {
                        tracing::error!(
                            job = %job.id,
                            %error,
                            "failed to reset a periodic job to a clock that was set back"
                        );
                        wait = wait.min(TRY_AGAIN);
                    }
                }
                continue;
            }
            // As Nomad counts a pending evaluation: a child that is to be rescheduled counts as running.
            let runs = |alloc: &Alloc| !alloc.is_terminal() || alloc.awaits_replacement();
            let overlaps = || self.allocs.all().iter().any(|a| a.job.parent() == Some(&job.id) && runs(a));
            let prohibited = job.clock().is_some_and(|clock| clock.prohibit_overlap) && overlaps();
            let next = |after| schedule.next_after(after);
            let decided = match periodic(parent.record.decided, self.seconds(), prohibited, next) {
                PeriodicStep::Wait(next) => {
                    metrics.next(job.workload(), next);
                    wait = wait.min(next.map_or(RECHECK, |next| self.until(next)));
                    continue;
                }
                PeriodicStep::Launch(due) => {
                    count_missed(self, job, due);
                    let launched = self.launch(&mut ledger, &parent, due.at).await.map(|_| LaunchOutcome::Launched);
                    launched.map(|outcome| (outcome, due.at))
                }
                PeriodicStep::Skip(due) => {
                    count_missed(self, job, due);
                    tracing::info!(job = %job.id, "periodic launch skipped: a child runs and prohibit_overlap is set");
                    self.skip(&parent, due).await.map(|()| (LaunchOutcome::Skipped, due.at))
                }
            };
            match decided {
                Ok((outcome, at)) => {
                    metrics.decided(job.workload(), outcome, at);
                    let next = schedule.next_after(at);
                    metrics.next(job.workload(), next);
                    wait = wait.min(next.map_or(RECHECK, |next| self.until(next)));
                }
                Err(error) => {
                    tracing::error!(job = %job.id, %error, "a periodic launch failed; retrying");
                    metrics.decided(job.workload(), LaunchOutcome::Failed, 0);
                    wait = wait.min(TRY_AGAIN);
                }
            }
        }
        wait
    }

    fn until(&self, second: u64) -> Duration {
        let at = Duration::from_secs(second);
        at.saturating_sub(Duration::from_nanos(self.ctx.clock.now().0)).min(RECHECK)
    }

    /// The clock was ahead at the last decision about this job: follows the current clock from now on.
    async fn begin_again(&self, parent: &ParentJob) -> Result<(), RunnerError> {
        let job = &parent.record.job.id;
        tracing::warn!(%job, "the clock was set back by more than a day: periodic launches follow it from now on");
        let record = ParentRecord { decided: self.seconds(), ..ParentRecord::clone(&parent.record) };
        self.save_parent(&parent.record, record).await
    }

    async fn skip(&self, parent: &ParentJob, due: DueLaunch) -> Result<(), RunnerError> {
        let record = ParentRecord { decided: due.at, ..ParentRecord::clone(&parent.record) };
        self.save_parent(&parent.record, record).await
    }

    async fn save_parent(&self, before: &ParentRecord, record: ParentRecord) -> Result<(), RunnerError> {
        let id = record.job.id.clone();
        let mut batch = Batch::default();
        record::put(&mut batch, record::parent_key(&id), &record);
        if let Err(error) = self.ctx.journal.commit(batch).await {
            self.take_back_parent(&id, Some(before));
            return Err(RunnerError::StateDb(error));
        }
        self.parents.advance(&id, record);
        Ok(())
    }

    /// Launches the child of a due second, once.
    async fn launch(
        self: &Arc<Self>,
        ledger: &mut Ledger,
        parent: &ParentJob,
        at: u64,
    ) -> Result<LaunchedChild, RunnerError> {
        let before = &*parent.record;
        let child = before.job.periodic_child(at);
        let decided = before.decided.max(at);
        let record = ParentRecord { decided, last_launch: Some(at), ..before.clone() };
        let known: Vec<AllocId> =
            self.allocs.all().iter().filter(|alloc| alloc.job.id == child.id).map(|alloc| alloc.id.clone()).collect();
        if !known.is_empty() {
            self.save_parent(before, record).await?;
            return Ok(LaunchedChild { id: child.id, allocs: known, existed: true });
        }
        let mut batch = Batch::default();
        record::put(&mut batch, record::parent_key(&before.job.id), &record);
        let id = child.id.clone();
        let reply = self.admit(ledger, (child, None), batch).await.inspect_err(|_| {
            self.take_back_parent(&before.job.id, Some(before));
        })?;
        self.parents.advance(&before.job.id, record);
        tracing::info!(job = %before.job.id, child = %id, "periodic job launched");
        Ok(LaunchedChild { id, allocs: reply.allocs, existed: false })
    }

    async fn force(self: &Arc<Self>, id: &str) -> Result<LaunchedChild, RunnerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        let mut ledger = self.ledger().await;
        let parent = self.parents.get(id).ok_or_else(|| self.unknown_job(id))?;
        let job = &parent.record.job;
        let refused = |problem| Err(RunnerError::JobKind { job: job.id.clone(), problem });
        match &job.launching.periodic {
            None => return refused("is not periodic: `allostat dispatch` launches it"),
            Some(clock) if !clock.enabled => return refused("is periodic and not enabled: nothing launches it"),
            Some(_) if job.launching.parameterized.is_some() => {
                return refused("is parameterized: `allostat dispatch` launches it");
            }
            Some(_) => {}
        }
        let at = self.seconds();
        let launched = self.launch(&mut ledger, &parent, at).await?;
        self.ctx.metrics.launches.decided(job.workload(), LaunchOutcome::Forced, at);
        self.parents.changed.notify_one();
        Ok(launched)
    }

    async fn dispatch(self: &Arc<Self>, id: &str, given: DispatchParameters) -> Result<LaunchedChild, RunnerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        let mut ledger = self.ledger().await;
        let parent = self.parents.get(id).ok_or_else(|| self.unknown_job(id))?;
        let job = &parent.record.job;
        let token = given.token.clone().filter(|token| !token.is_empty());
        let unique = AllocId::random();
        let given = DispatchParameters { token: token.clone(), ..given };
        let child = job.dispatched_child(given, self.seconds(), unique.short());
        let child = child.map_err(|refusal| RunnerError::Dispatch { job: job.id.clone(), refusal })?;
        if let Some(known) = token.and_then(|token| self.dispatched_before(&job.id, &token)) {
            return Ok(known);
        }
        for (group, task) in child.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task))) {
            size::check(&child, group, task, &self.ctx.inherited).map_err(|error| RunnerError::Dispatch {
                job: job.id.clone(),
                refusal: DispatchRefusal::TooLong(error.to_string()),
            })?;
        }
        let id = child.id.clone();
        let reply = if child.is_parent() {
            self.register(&ledger, child).await?
        } else {
            self.admit(&mut ledger, (child, None), Batch::default()).await?
        };
        tracing::info!(job = %job.id, child = %id, "parameterized job dispatched");
        Ok(LaunchedChild { id, allocs: reply.allocs, existed: false })
    }

    /// The recorded child with that token.
    fn dispatched_before(&self, parent: &JobId, token: &str) -> Option<LaunchedChild> {
        let is_it = |job: &Job| {
            let of = job.launching.child.as_ref();
            of.is_some_and(|child| child.parent == *parent && child.token.as_deref() == Some(token))
        };
        let registered = self.parents.all().into_iter().find(|one| is_it(&one.record.job));
        let known: Vec<_> = self.allocs.all().into_iter().filter(|alloc| is_it(&alloc.job)).collect();
        let id = registered.map(|one| one.record.job.id.clone()).or_else(|| known.first().map(|a| a.job.id.clone()))?;
        let allocs = known.iter().filter(|alloc| alloc.job.id == id).map(|alloc| alloc.id.clone()).collect();
        Some(LaunchedChild { id, allocs, existed: true })
    }
}

fn count_missed(manager: &Manager, job: &Job, due: DueLaunch) {
    if due.missed {
        tracing::warn!(job = %job.id, "periodic launches were missed; launching once now");
        manager.ctx.metrics.launches.decided(job.workload(), LaunchOutcome::Missed, 0);
    }
}
