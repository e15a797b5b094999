//! Ended allocs that nobody needs any more: too many, too old, or in the way on a full disk.
//!
//! ```text
//! each minute, or asked: chosen and forgotten (one batch, under the ledger) ─► their directories removed, two at once, under no lock
//! ```
//! An alloc of which something may still run, because a task of it was given up, stays whatever the limits say.
//! Another one goes when every scraper had its final series and their time is over (`collectable`), oldest first. Only a full
//! disk does not wait for that; then it is said and counted. What was forgotten and not removed yet has a tombstone: the next
//! agent goes on with it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use super::owner::{Destroyed, Ended};
use super::{Handle, Manager, RunnerError, lock};
use crate::model::id::AllocId;
use crate::model::units::{Nanos, Steady};
use crate::runner::kept::record;
use crate::store::{Batch, StoreError};
use crate::telemetry::metrics::GcReason;

/// How often the runner looks for allocs to collect, and for workloads to retire.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Directories that are removed at once: more only make the disk slower for who works.
const AT_ONCE: usize = 2;

/// Which ended allocs go without being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcConfig {
    /// Ended allocs that are kept; the oldest above it go.
    pub max_terminal: usize,
    /// Ended for longer than this, they go. `None`: however long.
    pub max_age: Option<Duration>,
    /// Of the data directory's file system: fuller than this, the oldest go.
    pub disk_used_percent: u64,
    pub inodes_used_percent: u64,
}

impl Default for GcConfig {
    fn default() -> GcConfig {
        GcConfig { max_terminal: 2_000, max_age: None, disk_used_percent: 80, inodes_used_percent: 70 }
    }
}

/// How full the data directory's file system is, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    pub used_percent: u64,
    pub inodes_percent: u64,
}

impl GcConfig {
    fn is_too_full(&self, fill: Fill) -> bool {
        fill.used_percent > self.disk_used_percent || fill.inodes_percent > self.inodes_used_percent
    }
}

/// What is to be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collect {
    /// What the limits say.
    Limits,
    /// Whatever has ended.
    All,
    One(AllocId),
}

/// What became of it: removed, or kept and why. What the limits do not ask for is not spoken of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    pub removed: Vec<(AllocId, GcReason)>,
    pub kept: Vec<(AllocId, String)>,
    /// With [`Collect::All`]: what has not ended, so that nobody asked for it to go.
    pub live: Vec<AllocId>,
    /// Of those removed: what is still on the host, and why. The next start of an agent tries again.
    pub left: Vec<(AllocId, String)>,
}

/// An ended alloc, as far as collecting goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    ended_at: Option<Steady>,
    /// Its final series were delivered, and their time is over.
    free: bool,
    /// A task of it was given up: nobody else would know of what is there.
    may_run: bool,
}

/// Which of the ended allocs go, and what is said of those that do not.
#[derive(Default)]
struct Choice {
    going: Vec<(usize, GcReason)>,
    kept: Vec<(AllocId, String)>,
    live: Vec<AllocId>,
}

impl Choice {
    fn of(going: Vec<(usize, GcReason)>) -> Choice {
        Choice { going, ..Choice::default() }
    }
}

/// Pure: which of these, oldest first, the limits want gone, and why.
fn by_limits(ended: &[Candidate], config: &GcConfig, now: Steady) -> Vec<(usize, GcReason)> {
    let excess = ended.len().saturating_sub(config.max_terminal);
    let too_old = |c: &Candidate| {
        config.max_age.zip(c.ended_at).is_some_and(|(most, at)| now.since(at) > Nanos::from_duration(most))
    };
    let free = || ended.iter().enumerate().filter(|(_, c)| c.free && !c.may_run);
    let mut chosen: BTreeMap<usize, GcReason> =
        free().filter(|(_, c)| too_old(c)).map(|(at, _)| (at, GcReason::Age)).collect();
    let more = excess.saturating_sub(chosen.len());
    let surplus: Vec<usize> = free().map(|(at, _)| at).filter(|at| !chosen.contains_key(at)).take(more).collect();
    chosen.extend(surplus.into_iter().map(|at| (at, GcReason::Count)));
    chosen.into_iter().collect()
}

/// Pure: which go for want of room, a few at a time: those that nobody waits for first.
fn by_pressure(ended: &[Candidate]) -> Vec<(usize, GcReason)> {
    let of = |free: bool, reason| {
        let goes = move |c: &Candidate| c.free == free && !c.may_run;
        ended.iter().enumerate().filter(move |(_, c)| goes(c)).map(move |(at, _)| (at, reason))
    };
    of(true, GcReason::Disk).chain(of(false, GcReason::DiskUnread)).take(AT_ONCE).collect()
}

impl Handle {
    /// Removes ended allocs now, and says what went and what did not. Their counters stay, in their workload's totals.
    ///
    /// Errors: there is no such alloc; the state database refuses writes.
    pub async fn collect(&self, what: Collect) -> Result<Collected, RunnerError> {
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        if let Collect::One(id) = &what {
            self.0.alloc(id)?;
        }
        self.0.collect(&what).await.map_err(RunnerError::StateDb)
    }
}

impl Manager {
    pub fn tidy_if_many(&self) {
        if lock(&self.allocs).len() > self.ctx.config.gc.max_terminal {
            self.tidy.notify_one();
        }
    }

    /// Removes what an agent before this one had begun to; then collects and retires when there is something to do, for as long
    /// as the agent runs.
    pub async fn keep_tidy(self: Arc<Self>, tombstones: Vec<Destroyed>) {
        if let Err(error) = self.bury(tombstones).await {
            tracing::warn!(%error, "that allocs are removed is not saved: the next start tries it again");
        }
        loop {
            tokio::select! {
                () = self.tidy.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            if let Some(news) = self.ctx.line.news() {
                let mut batch = Batch::default();
                record::put(&mut batch, record::LINE_KEY.to_owned(), &news);
                // Refused: looked at again.
                if self.ctx.journal.commit(batch).await.is_ok() {
                    self.ctx.line.note(&news);
                }
            }
            if let Err(error) = self.collect(&Collect::Limits).await {
                tracing::warn!(%error, "ended allocs are not collected: the state database refuses writes");
            }
        }
    }

    /// Collects what is asked for, then for as long as the disk is too full, and retires workloads.
    async fn collect(&self, what: &Collect) -> Result<Collected, StoreError> {
        let mut all = self.collect_once(|manager, ended, now| manager.choose(what, ended, now)).await?;
        if *what == Collect::Limits {
            while self.fill().await.is_some_and(|fill| self.ctx.config.gc.is_too_full(fill)) {
                let more = self.collect_once(|_, ended, _| Choice::of(by_pressure(&candidates(ended)))).await?;
                if more.removed.is_empty() {
                    break;
                }
                for (id, reason) in &more.removed {
                    let unread = *reason == GcReason::DiskUnread;
                    tracing::warn!(alloc_id = %id, unread, "the disk is too full: an ended alloc is removed");
                }
                all.removed.extend(more.removed);
                all.left.extend(more.left);
            }
        }
        let mut ledger = self.ledger().await;
        let retired = self.retire(&mut ledger).await;
        drop(ledger);
        all.left.extend(self.bury(retired?).await?);
        Ok(all)
    }

    /// One choice: forgotten under the ledger, removed under no lock.
    async fn collect_once(
        &self,
        choose: impl FnOnce(&Manager, &[(Ended, bool)], Steady) -> Choice,
    ) -> Result<Collected, StoreError> {
        let mut ledger = self.ledger().await;
        let ended = self.ended_oldest_first();
        let Choice { going, kept, live } = choose(self, &ended, self.ctx.line.now());
        let reasons: BTreeMap<usize, GcReason> = going.into_iter().collect();
        let going = ended.into_iter().enumerate().filter(|(at, _)| reasons.contains_key(at));
        let destroyed = self.forget(&mut ledger, going.map(|(_, (ended, _))| ended).collect()).await?;
        drop(ledger);
        let removed: Vec<_> = destroyed.iter().map(|d| d.id().clone()).zip(reasons.into_values()).collect();
        removed.iter().for_each(|(_, reason)| self.ctx.metrics.alloc_collected(*reason));
        let left = self.bury(destroyed).await?;
        Ok(Collected { removed, kept, live, left })
    }

    fn choose(&self, what: &Collect, ended: &[(Ended, bool)], now: Steady) -> Choice {
        if *what == Collect::Limits {
            return Choice::of(by_limits(&candidates(ended), &self.ctx.config.gc, now));
        }
        let wanted = |id: &AllocId| matches!(what, Collect::All) || *what == Collect::One(id.clone());
        let mut choice = Choice::default();
        let known = ended.iter().map(|(ended, free)| (ended.alloc(), free)).enumerate();
        for (at, (alloc, free)) in known.filter(|(_, (alloc, _))| wanted(&alloc.id)) {
            if let Some(task) = alloc.one_that_may_run() {
                // Tried again now.
                alloc.nudge(task);
                let name = &alloc.task(task).name;
                choice.kept.push((
                    alloc.id.clone(),
                    format!("its task {name:?} was given up and may still run: it is being ended"),
                ));
            } else if *free {
                choice.going.push((at, GcReason::Requested));
            } else {
                let why = "its final series are still shown: not every scraper had them, or their time is not over";
                choice.kept.push((alloc.id.clone(), why.to_owned()));
            }
        }
        let over: HashSet<&AllocId> = ended.iter().map(|(ended, _)| &ended.alloc().id).collect();
        choice.live = lock(&self.allocs).keys().filter(|id| wanted(id) && !over.contains(id)).cloned().collect();
        if *what != Collect::All {
            let why = |id: &AllocId| match self.alloc(id) {
                Ok(alloc) if alloc.is_terminal() => "its end is not on record yet: the state database takes no writes",
                _ => "it has not ended",
            };
            choice.kept.extend(choice.live.drain(..).map(|id| (id.clone(), why(&id).to_owned())));
        }
        choice
    }

    fn ended_oldest_first(&self) -> Vec<(Ended, bool)> {
        let mut ended = self.ended();
        ended.sort_by_key(|e| e.alloc().serial);
        let collectable = lock(&self.collectable);
        let free = |e: &Ended| collectable.contains(&e.alloc().id);
        let free: Vec<bool> = ended.iter().map(free).collect();
        ended.into_iter().zip(free).collect()
    }

    /// `None`: the file system does not say.
    async fn fill(&self) -> Option<Fill> {
        let fill = Arc::clone(&self.ctx.fill);
        self.ctx.blocking(move || fill()).await.ok().flatten()
    }

    /// Removes the directories of collected allocs, then their tombstones. What cannot be removed keeps its own, and is told.
    pub async fn bury(&self, destroyed: Vec<Destroyed>) -> Result<Vec<(AllocId, String)>, StoreError> {
        let mut waiting = destroyed.into_iter();
        let mut left = Vec::new();
        let mut removing = JoinSet::new();
        let mut batch = Batch::default();
        loop {
            while removing.len() < AT_ONCE
                && let Some(destroyed) = waiting.next()
            {
                let ctx = Arc::clone(&self.ctx);
                removing.spawn(async move { (destroyed.remove(&ctx).await, destroyed) });
            }
            // Ends: the hooks that remove have deadlines.
            match removing.join_next().await {
                None => break,
                Some(Ok((failed, destroyed))) => {
                    let id = destroyed.id();
                    for error in &failed {
                        tracing::warn!(alloc_id = %id, %error, "something of it cannot be removed; tried again at the next start");
                    }
                    if failed.is_empty() {
                        batch.remove(record::tombstone_key(id));
                    }
                    left.extend(failed.into_iter().map(|failed| (id.clone(), failed.failure.message)));
                }
                Some(Err(error)) => tracing::error!(%error, "removing an alloc's directories failed"),
            }
        }
        if !batch.is_empty() {
            self.ctx.journal.commit(batch).await?;
        }
        Ok(left)
    }

    pub fn ended(&self) -> Vec<Ended> {
        lock(&self.allocs).values().filter_map(|e| Ended::of(&e.alloc)).collect()
    }
}

fn candidates(ended: &[(Ended, bool)]) -> Vec<Candidate> {
    let candidate = |(ended, free): &(Ended, bool)| {
        let alloc = ended.alloc();
        Candidate { ended_at: alloc.finished_at(), free: *free, may_run: alloc.one_that_may_run().is_some() }
    };
    ended.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(secs))
    }
    fn ended(secs: u64, free: bool) -> Candidate {
        Candidate { ended_at: Some(at(secs)), free, may_run: false }
    }

    #[test]
    fn age_takes_what_is_too_old_and_count_the_oldest_of_the_rest() {
        let config = GcConfig { max_terminal: 2, max_age: Some(Duration::from_secs(100)), ..GcConfig::default() };
        let all = [ended(10, true), ended(20, false), ended(150, true), ended(160, true), ended(170, true)];
        let chosen = by_limits(&all, &config, at(200));
        assert_eq!(chosen, [(0, GcReason::Age), (2, GcReason::Count), (3, GcReason::Count)], "1 waits for its scraper");
        assert_eq!(by_limits(&all[..1], &config, at(110)), [], "exactly as old as allowed");
        assert_eq!(by_limits(&all[..1], &GcConfig { max_age: None, ..config }, at(9_999)), []);
    }

    #[test]
    fn want_of_room_takes_two_at_a_time_and_the_undelivered_last() {
        let all = [ended(1, false), ended(2, true), ended(3, false)];
        assert_eq!(by_pressure(&all), [(1, GcReason::Disk), (0, GcReason::DiskUnread)]);
        assert_eq!(by_pressure(&[]), []);
    }

    #[test]
    fn what_may_still_run_is_never_taken_however_old_it_is_and_full_the_disk() {
        let config = GcConfig { max_terminal: 0, max_age: Some(Duration::ZERO), ..GcConfig::default() };
        let all = [true, false].map(|free| Candidate { may_run: true, ..ended(1, free) });
        assert_eq!(by_limits(&all, &config, at(9_999)), []);
        assert_eq!(by_pressure(&all), []);
    }

    proptest! {
        #[test]
        fn limits_never_take_what_is_not_free_nor_more_than_they_must(
            all in proptest::collection::vec((0..1_000_u64, any::<bool>()), 0..40),
            max_terminal in 0..20_usize,
            max_age in proptest::option::of(0..1_000_u64),
        ) {
            let all: Vec<_> = all.into_iter().map(|(secs, free)| ended(secs, free)).collect();
            let config = GcConfig { max_terminal, max_age: max_age.map(Duration::from_secs), ..GcConfig::default() };
            let chosen = by_limits(&all, &config, at(1_000));
            prop_assert!(chosen.iter().all(|(at, _)| all[*at].free));
            let count = chosen.iter().filter(|(_, why)| *why == GcReason::Count).count();
            prop_assert!(count == 0 || all.len() - chosen.len() >= max_terminal);
            prop_assert!(all.len() - chosen.len() <= max_terminal || all.iter().filter(|c| c.free).count() == chosen.len());
        }
    }
}
