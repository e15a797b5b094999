//! Updates of jobs: their allocs are replaced `max_parallel` at a time, as the `update` of their group says.
//!
//! ```text
//! submission ──► the update's record, the first new allocs, the end of those before: one batch
//!     └─ an alloc is healthy, or has ended ──► decide::update ──► the next step, again one batch
//! ```
//! The next step follows from the records of the allocs. If the agent dies before a batch, nothing of it has happened;
//! after it, the allocs are recovered like any others. A stop on request cancels the update: stopped allocs are not
//! replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::layout::{JobLayout, lives, state};
use super::{Handle, Manager};
use crate::model::event::EventKind;
use crate::model::id::JobId;
use crate::model::job::{Job, TaskGroup};
use crate::model::update::{JobUpdate, UpdateState};
use crate::runner::alloc::Alloc;
use crate::runner::decide::update::{NewAlloc, RollingGroup, UpdateStep, update};
use crate::runner::persistence::record::{self, JobRecord};
use crate::runner::persistence::update::{UpdateRecord, update_key};
use crate::store::{Batch, StoreError};

/// Maximum wait for any deadline: the host may be suspended meanwhile, and timers do not count that.
const RECHECK: Duration = Duration::from_secs(30);
/// Delay before a step whose write failed is retried.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum number of allocs of an update that are listed.
const NAMED: usize = 1_000;

impl Handle {
    /// The last update of each job that had one.
    pub fn updates(&self) -> Vec<JobUpdate> {
        self.0.updates.all().iter().map(|record| self.0.shown_update(record)).collect()
    }
}

impl Manager {
    /// The last stable version of a job that is submitted again.
    pub(super) fn stable(&self, earlier: Option<&UpdateRecord>, running: &[Arc<Alloc>]) -> Option<Box<JobRecord>> {
        match earlier {
            Some(update) if update.state == UpdateState::Successful => {
                Some(Box::new(JobRecord { job: update.job.clone(), version: update.version }))
            }
            Some(update) => update.stable.clone(),
            None => {
                let first = running.first()?;
                let came_up = |alloc: &&Arc<Alloc>| alloc.version == first.version && state(alloc) == NewAlloc::Healthy;
                let all = running.iter().filter(came_up).count() == running.len();
                all.then(|| Box::new(JobRecord { job: Job::clone(&first.job), version: first.version }))
            }
        }
    }

    pub(super) fn begin_update(
        &self,
        job: &Job,
        version: u64,
        stable: Option<Box<JobRecord>>,
        reverts: Option<u64>,
    ) -> UpdateRecord {
        UpdateRecord {
            job: job.clone(),
            version,
            stable,
            state: UpdateState::Running,
            reason: String::new(),
            began_at: self.ctx.clock.now(),
            progress: self.ctx.line.now(),
            healthy: 0,
            reverts,
        }
    }

    /// Called when a submission is durable, with its update. `None`: it has none.
    pub(super) fn updates_follow(&self, job: &JobId, update: Option<UpdateRecord>) {
        if let Some(earlier) = self.updates.get(job).filter(|earlier| earlier.is_active()) {
            self.ctx.metrics.updates.ended(earlier.job.workload(), UpdateState::Cancelled);
        }
        match update {
            Some(update) => {
                self.ctx.metrics.updates.known(update.job.workload());
                self.ctx.metrics.updates.runs(update.job.workload(), true);
                self.updates.put(update);
            }
            None => self.updates.remove(job),
        }
        self.ctx.judged.notify_one();
    }

    /// A refused change may have reached the disk anyway.
    pub(super) fn take_back_update(&self, job: &JobId, earlier: Option<&UpdateRecord>) {
        let mut batch = Batch::default();
        match earlier {
            Some(record) => record::put(&mut batch, update_key(job), record),
            None => batch.remove(update_key(job)),
        }
        self.ctx.journal.amend(batch);
    }

    /// Restores the updates that an earlier agent recorded.
    pub(super) fn found_updates(&self, records: Vec<UpdateRecord>) {
        for record in records {
            self.ctx.metrics.updates.known(record.job.workload());
            self.ctx.metrics.updates.runs(record.job.workload(), record.is_active());
            self.updates.put(record);
        }
    }

    /// Continues updates, as long as the agent runs.
    pub(super) async fn follow_updates(self: Arc<Self>) {
        while !self.closed.load(Ordering::SeqCst) {
            let mut wait = RECHECK;
            let (active, ended): (Vec<_>, Vec<_>) =
                self.updates.all().into_iter().partition(|record| record.is_active());
            for record in active {
                wait = wait.min(self.advance(&record.job.id).await);
            }
            self.forget_updates(&ended).await;
            tokio::select! {
                () = self.ctx.judged.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Takes the next step of an update; returns when to evaluate it again.
    async fn advance(self: &Arc<Self>, id: &JobId) -> Duration {
        let mut ledger = self.ledger().await;
        let Some(record) = self.updates.get(id) else { return RECHECK };
        if self.closed.load(Ordering::SeqCst) || !record.is_active() {
            return RECHECK;
        }
        let job = Arc::new(record.job.clone());
        let layout = self.layout(&job, record.version);
        let (at, groups): (Vec<usize>, Vec<RollingGroup>) = layout.rolling().into_iter().unzip();
        let now = self.ctx.line.now();
        let count = groups.iter().flat_map(|group| &group.new).filter(|new| **new == NewAlloc::Healthy).count();
        let healthy = u32::try_from(count).unwrap_or(u32::MAX);
        let progress = if healthy > record.healthy { now } else { record.progress };
        let mut next = UpdateRecord { healthy, progress, ..UpdateRecord::clone(&record) };
        let done = match update(&groups, progress, now) {
            UpdateStep::Replace(turns) => {
                let placement = layout.turns(at.into_iter().zip(turns).collect());
                let mut batch = Batch::default();
                record::put(&mut batch, update_key(id), &next);
                let placed = self.place(&mut ledger, (&job, record.version), placement, batch, 0).await;
                placed.map(|_| (next, RECHECK))
            }
            UpdateStep::Wait(due) => {
                let left = due.map_or(RECHECK, |due| due.since(now).as_duration()).min(RECHECK);
                if healthy == record.healthy {
                    return left;
                }
                self.write_update(&next).await.map(|()| (next, left))
            }
            UpdateStep::Succeed => {
                next.state = UpdateState::Successful;
                self.write_update(&next).await.map(|()| (next, RECHECK))
            }
            UpdateStep::Cancel => {
                let next = next.ended(UpdateState::Cancelled, "its allocs were stopped".to_owned());
                self.write_update(&next).await.map(|()| (next, RECHECK))
            }
            UpdateStep::Fail(why) => {
                let stable = next
                    .stable
                    .clone()
                    .filter(|stable| layout.auto_reverts() && next.reverts.is_none() && !stable.job.runs_as(&next.job));
                match stable {
                    Some(stable) => self.revert(&mut ledger, &next, &stable, &why).await.map(|next| (next, RECHECK)),
                    None => {
                        let next = next.ended(UpdateState::Failed, why);
                        self.write_update(&next).await.map(|()| (next, RECHECK))
                    }
                }
            }
        };
        match done {
            Ok((next, wait)) => {
                self.report_end(&record, &next, &layout);
                self.updates.put(next);
                wait
            }
            Err(error) => {
                self.take_back_update(id, Some(&record));
                tracing::error!(job = %id, %error, "failed to persist a step of an update; retrying");
                RETRY
            }
        }
    }

    /// Reverts to the last stable version: its allocs that still run stay, the others are replaced.
    async fn revert(
        self: &Arc<Self>,
        ledger: &mut super::Ledger,
        failed: &UpdateRecord,
        stable: &JobRecord,
        why: &str,
    ) -> Result<UpdateRecord, StoreError> {
        let job = Arc::new(stable.job.clone());
        let mut next = self.begin_update(&job, stable.version, Some(Box::new(stable.clone())), Some(failed.version));
        next.reason = why.to_owned();
        let live = self.allocs.live(|alloc| alloc.job.id == job.id);
        let placement = self.layout(&job, stable.version).beginning(&live);
        let mut batch = Batch::default();
        record::put(&mut batch, update_key(&job.id), &next);
        self.place(ledger, (&job, stable.version), placement, batch, 0).await?;
        Ok(next)
    }

    async fn write_update(&self, record: &UpdateRecord) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        record::put(&mut batch, update_key(&record.job.id), record);
        self.ctx.journal.commit(batch).await
    }

    /// Removes the updates of jobs that have no allocs any more.
    async fn forget_updates(&self, ended: &[Arc<UpdateRecord>]) {
        let known = || self.allocs.all().iter().map(|alloc| alloc.job.id.clone()).collect::<BTreeSet<JobId>>();
        let is_removed = |known: &BTreeSet<JobId>| ended.iter().any(|record| !known.contains(&record.job.id));
        if ended.is_empty() || !is_removed(&known()) {
            return;
        }
        // Held, so that none of these jobs is submitted meanwhile.
        let _ledger = self.ledger().await;
        let known = known();
        for record in ended {
            let id = &record.job.id;
            let is_same = self.updates.get(id).is_some_and(|now| Arc::ptr_eq(&now, record));
            if known.contains(id) || !is_same {
                continue;
            }
            let mut batch = Batch::default();
            batch.remove(update_key(id));
            match self.ctx.journal.commit(batch).await {
                Ok(()) => {
                    self.updates.remove(id);
                    self.ctx.metrics.updates.retired(record.job.workload());
                }
                Err(error) => tracing::error!(job = %id, %error, "failed to remove the record of an update"),
            }
        }
    }

    /// Called before allocs are stopped on request: an update does not replace stopped allocs.
    pub(super) async fn cancel_updates(&self, allocs: &[Arc<Alloc>]) {
        let is_active = |id: &JobId| self.updates.get(id).is_some_and(|update| update.is_active());
        let jobs: BTreeSet<&JobId> = allocs.iter().map(|alloc| &alloc.job.id).filter(|id| is_active(id)).collect();
        if jobs.is_empty() {
            return;
        }
        let _ledger = self.ledger().await;
        for record in jobs.into_iter().filter_map(|id| self.updates.get(id)).filter(|record| record.is_active()) {
            let next = record.ended(UpdateState::Cancelled, "an alloc of it was stopped on request".to_owned());
            if let Err(error) = self.write_update(&next).await {
                // It is cancelled anyway: a stop must work with a full disk too.
                tracing::error!(job = %next.job.id, %error, "failed to persist the cancellation of an update");
            }
            let layout = self.layout(&Arc::new(next.job.clone()), next.version);
            self.report_end(&record, &next, &layout);
            self.updates.put(next);
        }
    }

    /// Whether an alloc of that version may start although there are allocs of later versions: those failed, or an
    /// update is running.
    pub(super) fn may_start_version(&self, alloc: &Alloc) -> bool {
        let update = self.updates.get(&alloc.job.id);
        update.is_some_and(|update| update.version == alloc.version || (update.is_active() && !alloc.is_terminal()))
    }

    /// Logs, counts and reports the end of an update or its revert.
    fn report_end(&self, before: &UpdateRecord, after: &UpdateRecord, layout: &JobLayout) {
        let (job, workload) = (&after.job.id, after.job.workload());
        let ends = before.is_active() && !after.is_active();
        let reverts = before.reverts.is_none() && after.reverts.is_some();
        if !ends && !reverts {
            return;
        }
        let text = sentence(after, None);
        let metrics = &self.ctx.metrics.updates;
        if reverts {
            metrics.ended(workload, UpdateState::Failed);
        } else {
            metrics.ended(workload, after.state);
            metrics.runs(workload, false);
        }
        let (version, status) = (after.version, after.state.as_str());
        match after.state {
            UpdateState::Failed => tracing::warn!(job = %job, version, status, reason = after.reason, "update failed"),
            UpdateState::Running => {
                tracing::warn!(job = %job, version, reason = after.reason, "update failed; reverting");
            }
            UpdateState::Successful | UpdateState::Cancelled => {
                tracing::info!(job = %job, version, status, "update ended");
            }
        }
        // One alloc carries the event: the one that decided the update, if there is one.
        let decided = layout.current().find(|alloc| matches!(state(alloc), NewAlloc::Unhealthy(_)));
        let last = layout.current().max_by_key(|alloc| alloc.serial);
        if let Some(alloc) = decided.or(last) {
            alloc.report_update(EventKind::Update, &text, status);
        }
    }

    fn shown_update(&self, record: &UpdateRecord) -> JobUpdate {
        let job = Arc::new(record.job.clone());
        let layout = self.layout(&job, record.version);
        let groups: Vec<RollingGroup> = layout.rolling().into_iter().map(|(_, group)| group).collect();
        let count = |is_it: fn(&NewAlloc) -> bool| {
            u32::try_from(groups.iter().flat_map(|group| &group.new).filter(|new| is_it(new)).count())
                .unwrap_or(u32::MAX)
        };
        let rolls = |group: &&TaskGroup| group.update.is_some();
        let desired = job.groups.iter().filter(rolls).fold(0_u32, |sum, group| sum.saturating_add(group.count));
        let healthy = count(|new| *new == NewAlloc::Healthy);
        let outdated = groups.iter().map(|group| group.outdated.len()).sum::<usize>();
        JobUpdate {
            job: record.job.id.clone(),
            version: record.version,
            status: record.state,
            description: sentence(record, Some((healthy, desired))),
            began_at: record.began_at,
            desired,
            healthy,
            unhealthy: count(|new| matches!(new, NewAlloc::Unhealthy(_))),
            pending: count(|new| *new == NewAlloc::Pending),
            outdated: u32::try_from(outdated).unwrap_or(u32::MAX),
            reverts_version: record.reverts,
            allocs: layout
                .current()
                .filter(|alloc| lives(alloc))
                .map(|alloc| alloc.id.to_string())
                .take(NAMED)
                .collect(),
        }
    }
}

/// The description of an update. `healthy`: number of healthy and of desired allocs, while that changes.
fn sentence(record: &UpdateRecord, healthy: Option<(u32, u32)>) -> String {
    let UpdateRecord { version, reason, reverts, .. } = record;
    let count = |text: String| match healthy {
        Some((healthy, desired)) => format!("{text}: {healthy} of {desired} allocs healthy"),
        None => text,
    };
    match (record.state, reverts) {
        (UpdateState::Running, None) => count(format!("update to version {version}")),
        (UpdateState::Running, Some(failed)) => {
            count(format!("update to version {failed} failed: {reason}; reverting to version {version}"))
        }
        (UpdateState::Successful, None) => format!("update to version {version} is healthy"),
        (UpdateState::Successful, Some(failed)) => {
            format!("reverted to version {version}, since version {failed} failed: {reason}")
        }
        (UpdateState::Failed, None) => format!("update to version {version} failed: {reason}"),
        (UpdateState::Failed, Some(failed)) => {
            format!("update to version {failed} failed, and so did the revert to version {version}: {reason}")
        }
        (UpdateState::Cancelled, _) => format!("update to version {version} is cancelled: {reason}"),
    }
}
