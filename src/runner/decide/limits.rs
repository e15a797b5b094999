//! Selects the ended allocs that garbage collection removes without a request. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::units::{Nanos, Steady};
use crate::telemetry::metrics::GcReason;

/// Number of directories that are removed at the same time. More would slow down the disk for running tasks.
pub const AT_ONCE: usize = 2;

/// Number of ended children kept per job. Children of a job that is launched each second would push out all others.
pub const MAX_ENDED_CHILDREN: usize = 100;

/// Limits for ended allocs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcConfig {
    /// Maximum number of ended allocs; the oldest beyond it are removed.
    pub max_terminal: usize,
    /// Maximum time since the end. `None`: no limit.
    pub max_age: Option<Duration>,
    /// Maximum usage of the data directory's file system; above it, the oldest are removed.
    pub disk_used_percent: u64,
    pub inodes_used_percent: u64,
}

impl Default for GcConfig {
    fn default() -> GcConfig {
        GcConfig { max_terminal: 2_000, max_age: None, disk_used_percent: 80, inodes_used_percent: 70 }
    }
}

/// Usage of the data directory's file system, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fill {
    pub used_percent: u64,
    pub inodes_percent: u64,
}

impl GcConfig {
    pub fn is_too_full(&self, fill: Fill) -> bool {
        fill.used_percent > self.disk_used_percent || fill.inodes_percent > self.inodes_used_percent
    }
}

/// An ended alloc, as seen by garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub ended_at: Option<Steady>,
    /// Its final series were delivered, and their retention is over.
    pub free: bool,
    /// A task of it was abandoned: its record is all that names the processes that may be left.
    pub may_run: bool,
    /// For a child: the parent job, as a number within this run.
    pub parent: Option<usize>,
    /// Its replacement is pending, or takes over its data.
    pub needed: bool,
}

impl Candidate {
    fn stays(&self) -> bool {
        self.may_run || self.needed
    }
}

/// Selects from these allocs (oldest first) those that exceed the limits, with the reason.
pub fn by_limits(ended: &[Candidate], config: &GcConfig, now: Steady) -> Vec<(usize, GcReason)> {
    let excess = ended.len().saturating_sub(config.max_terminal);
    let too_old = |c: &Candidate| {
        config.max_age.zip(c.ended_at).is_some_and(|(most, at)| now.since(at) > Nanos::from_duration(most))
    };
    let free = || ended.iter().enumerate().filter(|(_, c)| c.free && !c.stays());
    let mut chosen: BTreeMap<usize, GcReason> =
        free().filter(|(_, c)| too_old(c)).map(|(at, _)| (at, GcReason::Age)).collect();
    let mut of_parent: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, candidate) in ended.iter().enumerate().rev() {
        let Some(parent) = candidate.parent else { continue };
        let newer = of_parent.entry(parent).or_default();
        if *newer >= MAX_ENDED_CHILDREN && candidate.free && !candidate.stays() {
            chosen.entry(at).or_insert(GcReason::Count);
        }
        *newer += 1;
    }
    let more = excess.saturating_sub(chosen.len());
    let surplus: Vec<usize> = free().map(|(at, _)| at).filter(|at| !chosen.contains_key(at)).take(more).collect();
    chosen.extend(surplus.into_iter().map(|at| (at, GcReason::Count)));
    chosen.into_iter().collect()
}

/// Selects a few allocs to free disk space: first those whose series no scraper waits for.
pub fn by_pressure(ended: &[Candidate]) -> Vec<(usize, GcReason)> {
    let of = |free: bool, reason| {
        let goes = move |c: &Candidate| c.free == free && !c.stays();
        ended.iter().enumerate().filter(move |(_, c)| goes(c)).map(move |(at, _)| (at, reason))
    };
    of(true, GcReason::Disk).chain(of(false, GcReason::DiskUnread)).take(AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(secs))
    }
    fn ended(secs: u64, free: bool) -> Candidate {
        Candidate { ended_at: Some(at(secs)), free, may_run: false, parent: None, needed: false }
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

    /// Children of other jobs, and allocs that are no children, stay.
    #[test]
    fn gc_retains_the_newest_children_of_each_job() {
        let child = |secs, parent| Candidate { parent, ..ended(secs, true) };
        let mut all: Vec<Candidate> = (0..150).map(|secs| child(secs, Some(0))).collect();
        all.extend((0..3).map(|secs| child(secs, Some(1))));
        all.push(ended(5, true));
        let chosen = by_limits(&all, &GcConfig::default(), at(200));
        assert_eq!(chosen, (0..50).map(|at| (at, GcReason::Count)).collect::<Vec<_>>());
        all[10].free = false;
        assert_eq!(by_limits(&all, &GcConfig::default(), at(200)).len(), 49, "its last series were not delivered yet");
    }

    #[test]
    fn gc_under_disk_pressure_takes_two_allocs_and_undelivered_ones_last() {
        let all = [ended(1, false), ended(2, true), ended(3, false)];
        assert_eq!(by_pressure(&all), [(1, GcReason::Disk), (0, GcReason::DiskUnread)]);
        assert_eq!(by_pressure(&[]), []);
    }

    /// Not even when the retention of its workload is over; `gc` reports it. Later agents end it too, and it is removed
    /// when no process is left. A `stop` that waited for it fails and names it.
    #[test]
    fn gc_never_takes_an_alloc_that_may_still_run_whatever_its_age_or_the_disk() {
        let config = GcConfig { max_terminal: 0, max_age: Some(Duration::ZERO), ..GcConfig::default() };
        let retained =
            |free| [Candidate { may_run: true, ..ended(1, free) }, Candidate { needed: true, ..ended(1, free) }];
        let all = [true, false].map(retained).concat();
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
            let free = all.iter().filter(|c| c.free).count();
            prop_assert!(all.len() - chosen.len() <= max_terminal || free == chosen.len());
        }
    }
}
