//! Garbage collection of ended allocs: too many, too old, or in the way on a full disk.
//!
//! ```text
//! each minute, or on request: chosen and forgotten (one batch, under the ledger) ─► directories removed, two at a time
//! ```
//! An alloc with an abandoned task that may still run stays, whatever the limits say. So does a failed alloc that is to
//! be rescheduled, and one whose data its replacement takes over. Other allocs are removed, oldest first, when every
//! scraper has received their final series and the retention is over (`collectable`). Only a full disk does not wait
//! for that; then it is logged and counted. An alloc that was forgotten but not removed has a tombstone: the next agent
//! continues from it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Handle, Manager, RunnerError};
use crate::model::id::{AllocId, JobId};
use crate::model::units::Steady;
use crate::runner::alloc::{DestroyedAlloc, EndedAlloc};
use crate::runner::decide::limits::{AT_ONCE, Candidate, Fill, by_limits, by_pressure};
use crate::runner::persistence::record;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::{Batch, StoreError};
use crate::telemetry::metrics::GcReason;

/// Interval of garbage collection and of the retirement of workloads.
const INTERVAL: Duration = Duration::from_secs(60);

/// What to collect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GcScope {
    /// What exceeds the limits.
    Limits,
    /// All ended allocs.
    All,
    One(AllocId),
}

/// The result: what was removed, and what was kept and why. Allocs within the limits are not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcResult {
    pub removed: Vec<(AllocId, GcReason)>,
    pub retained: Vec<(AllocId, String)>,
    /// Kept as well: their final series are still exposed.
    pub shown: Vec<AllocId>,
    /// With [`GcScope::All`]: allocs that have not ended, which are not collected.
    pub live: Vec<AllocId>,
    /// Removed, but with remains on the host, and why. The next start of an agent retries.
    pub left: Vec<(AllocId, String)>,
}

/// The ended allocs to remove, and what is reported of those that stay.
#[derive(Default)]
struct GcChoice {
    to_remove: Vec<(usize, GcReason)>,
    retained: Vec<(AllocId, String)>,
    shown: Vec<AllocId>,
    live: Vec<AllocId>,
}

impl GcChoice {
    fn of(going: Vec<(usize, GcReason)>) -> GcChoice {
        GcChoice { to_remove: going, ..GcChoice::default() }
    }
}

impl Handle {
    /// Removes ended allocs now and reports what was removed and kept. Their counters stay in their workload's totals.
    ///
    /// Errors: there is no such alloc; the state database refuses writes.
    pub async fn collect(&self, what: GcScope) -> Result<GcResult, RunnerError> {
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        if let GcScope::One(id) = &what {
            self.0.alloc(id)?;
        }
        self.0.collect(&what).await.map_err(RunnerError::StateDb)
    }
}

impl Manager {
    pub fn collect_if_many(&self) {
        if self.allocs.count() > self.ctx.config.gc.max_terminal {
            self.tidy.notify_one();
        }
    }

    /// Finishes removals that an earlier agent began; then collects and retires when needed, as long as the agent runs.
    pub async fn collect_garbage(self: Arc<Self>, tombstones: Vec<DestroyedAlloc>) {
        if let Err(error) = self.bury(tombstones).await {
            tracing::warn!(%error, "failed to persist the removal of allocs; the next start retries");
        }
        loop {
            tokio::select! {
                () = self.tidy.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            if let Some(changed) = self.ctx.line.unrecorded() {
                let mut batch = Batch::default();
                record::put(&mut batch, record::LINE_KEY.to_owned(), &changed);
                // Refused: retried.
                if self.ctx.journal.commit(batch).await.is_ok() {
                    self.ctx.line.note(&changed);
                }
            }
            if let Err(error) = self.collect(&GcScope::Limits).await {
                tracing::warn!(%error, "ended allocs are not collected: the state database refuses writes");
            }
        }
    }

    /// Collects what was requested, then continues while the disk is too full, and retires workloads.
    async fn collect(&self, what: &GcScope) -> Result<GcResult, StoreError> {
        let mut all = self.collect_once(|manager, ended, now| manager.choose(what, ended, now)).await?;
        if *what == GcScope::Limits {
            while self.fill().await.is_some_and(|fill| self.ctx.config.gc.is_too_full(fill)) {
                let choose = |manager: &Manager, ended: &[(EndedAlloc, bool)], _| {
                    GcChoice::of(by_pressure(&candidates(ended, &manager.allocs.needed())))
                };
                let more = self.collect_once(choose).await?;
                if more.removed.is_empty() {
                    break;
                }
                for (id, reason) in &more.removed {
                    let unread = *reason == GcReason::DiskUnread;
                    tracing::warn!(alloc_id = %id, unread, "disk too full; removing an ended alloc");
                }
                all.removed.extend(more.removed);
                all.left.extend(more.left);
            }
        }
        let mut ledger = self.ledger().await;
        let retired = ledger.retire(&self.ctx, &self.allocs, &self.parents.workloads()).await;
        drop(ledger);
        all.left.extend(self.bury(retired?).await?);
        Ok(all)
    }

    /// One pass: allocs are forgotten under the ledger and removed without a lock.
    async fn collect_once(
        &self,
        choose: impl FnOnce(&Manager, &[(EndedAlloc, bool)], Steady) -> GcChoice,
    ) -> Result<GcResult, StoreError> {
        let mut ledger = self.ledger().await;
        let ended = self.allocs.ended();
        let GcChoice { to_remove: going, retained: stored, shown, live } = choose(self, &ended, self.ctx.line.now());
        let reasons: BTreeMap<usize, GcReason> = going.into_iter().collect();
        let going = ended.into_iter().enumerate().filter(|(at, _)| reasons.contains_key(at));
        let going = going.map(|(_, (ended, _))| ended).collect();
        let destroyed = ledger.forget(&self.ctx, &self.allocs, going).await?;
        drop(ledger);
        let removed: Vec<_> = destroyed.iter().map(|d| d.id().clone()).zip(reasons.into_values()).collect();
        removed.iter().for_each(|(_, reason)| self.ctx.metrics.alloc_collected(*reason));
        let left = self.bury(destroyed).await?;
        Ok(GcResult { removed, retained: stored, shown, live, left })
    }

    fn choose(&self, what: &GcScope, ended: &[(EndedAlloc, bool)], now: Steady) -> GcChoice {
        let needed = self.allocs.needed();
        if *what == GcScope::Limits {
            return GcChoice::of(by_limits(&candidates(ended, &needed), &self.ctx.config.gc, now));
        }
        let accepts = |id: &AllocId| matches!(what, GcScope::All) || *what == GcScope::One(id.clone());
        let mut choice = GcChoice::default();
        let known = ended.iter().map(|(ended, free)| (ended.alloc(), free)).enumerate();
        for (at, (alloc, free)) in known.filter(|(_, (alloc, _))| accepts(&alloc.id)) {
            if let Some(task) = alloc.first_that_may_run() {
                // Try again now to end it.
                alloc.wake_task(task);
                let name = &alloc.task(task).name;
                choice.retained.push((
                    alloc.id.clone(),
                    format!("its task {name:?} was abandoned and may still run: it is being ended"),
                ));
            } else if alloc.awaits_replacement() {
                let why = "it failed and is to be rescheduled: `allostat stop` cancels that";
                choice.retained.push((alloc.id.clone(), why.to_owned()));
            } else if needed.contains(&alloc.id) {
                choice.retained.push((alloc.id.clone(), "the alloc that replaces it takes its data".to_owned()));
            } else if *free {
                choice.to_remove.push((at, GcReason::Requested));
            } else {
                choice.shown.push(alloc.id.clone());
            }
        }
        let over: HashSet<&AllocId> = ended.iter().map(|(ended, _)| &ended.alloc().id).collect();
        let known = self.allocs.all().into_iter().map(|alloc| alloc.id.clone());
        choice.live = known.filter(|id| accepts(id) && !over.contains(id)).collect();
        if *what != GcScope::All {
            let why = |id: &AllocId| match self.alloc(id) {
                Ok(alloc) if alloc.is_terminal() => "its end is not recorded yet: the state database refuses writes",
                _ => "it has not ended",
            };
            choice.retained.extend(choice.live.drain(..).map(|id| (id.clone(), why(&id).to_owned())));
        }
        choice
    }

    /// `None`: the file system does not report it.
    async fn fill(&self) -> Option<Fill> {
        let fill = Arc::clone(&self.ctx.fill);
        self.ctx.blocking.block(move || fill()).await.ok().flatten()
    }

    /// Removes the directories of collected allocs, then their tombstones. An alloc that cannot be removed keeps its
    /// tombstone and is returned.
    pub async fn bury(&self, destroyed: Vec<DestroyedAlloc>) -> Result<Vec<(AllocId, String)>, StoreError> {
        let mut waiting = destroyed.into_iter();
        let mut left = Vec::new();
        let (mut removing, mut ids) = (JoinSet::new(), HashMap::new());
        let mut batch = Batch::default();
        loop {
            while removing.len() < AT_ONCE
                && let Some(destroyed) = waiting.next()
            {
                let (ctx, hooks) = (Arc::clone(&self.ctx), Arc::clone(&self.hooks));
                let id = destroyed.id().clone();
                let work = removing.spawn(async move { (destroyed.remove(&ctx, &hooks).await, destroyed) });
                ids.insert(work.id(), id);
            }
            match removing.join_next().ends_with(Ends::Deadline).await {
                None => break,
                Some(Ok((failed, destroyed))) => {
                    let id = destroyed.id();
                    for error in &failed {
                        tracing::warn!(
                            alloc_id = %id,
                            %error,
                            "failed to remove part of an alloc; the next start retries"
                        );
                    }
                    if failed.is_empty() {
                        batch.remove(record::tombstone_key(id));
                    }
                    left.extend(failed.into_iter().map(|failed| (id.clone(), failed.failure.message)));
                }
                Some(Err(error)) => {
                    let id = ids.get(&error.id()).map(tracing::field::display);
                    tracing::error!(alloc_id = id, %error, "failed to remove the directories of an alloc");
                }
            }
        }
        if !batch.is_empty() {
            self.ctx.journal.commit(batch).await?;
        }
        Ok(left)
    }
}

fn candidates<'a>(ended: &'a [(EndedAlloc, bool)], needed: &HashSet<AllocId>) -> Vec<Candidate> {
    let mut parents: HashMap<&JobId, usize> = HashMap::new();
    let candidate = |(ended, free): &'a (EndedAlloc, bool)| {
        let alloc = ended.alloc();
        let count = parents.len();
        let parent = alloc.job.parent().map(|parent| *parents.entry(parent).or_insert(count));
        let may_run = alloc.first_that_may_run().is_some();
        Candidate { ended_at: alloc.finished_at(), free: *free, may_run, parent, needed: needed.contains(&alloc.id) }
    };
    ended.iter().map(candidate).collect()
}
