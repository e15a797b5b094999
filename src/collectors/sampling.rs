//! What all readers share: the hierarchies, the descriptor budget, the error counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::process::Proc;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;

/// Concurrency: any thread; atomics only.
#[derive(Debug)]
pub struct Sampling {
    pub roots: Roots,
    pub layout: Layout,
    pub budget: FdBudget,
    pub errors: ErrorCounts,
    /// `None` where there is none: then nothing is known about processes.
    pub(super) proc: Option<Proc>,
    readers: AtomicU64,
}

impl Sampling {
    pub fn new(roots: Roots, layout: Layout, budget: FdBudget) -> Arc<Sampling> {
        let proc = Proc::open(&roots.proc);
        let (errors, readers) = (ErrorCounts::default(), AtomicU64::new(0));
        Arc::new(Sampling { roots, layout, budget, errors, proc, readers })
    }

    /// When, within a time, one more reader has its turn.
    pub(super) fn stagger(&self, over: Duration) -> Duration {
        super::reader::spread(&self.readers, over)
    }
}

/// How many descriptors the readers may keep open together.
///
/// Degrades in this order: two for the probes of each task's reader come first; what is read regularly even of a sleeping
/// task gets what they leave, the rest half of that. As readers are added, others hand back what they hold above their
/// share. A file that gets no descriptor is opened for each read, relative to the root of its hierarchy, at some five
/// times the cost.
#[derive(Debug)]
pub struct FdBudget {
    limit: u64,
    /// What the probes of the readers there are may need.
    reserved: AtomicU64,
    probes: AtomicU64,
    others: AtomicU64,
    reopened: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Probe,
    Regular,
    Rest,
}

impl FdBudget {
    /// What the rest of the agent keeps for itself: connections, logs, the database, supervisors' records.
    const RESERVE: u64 = 512;

    /// Three quarters of the soft limit on descriptors, less a reserve. Who wants more raises the soft limit first.
    pub fn from_limit() -> FdBudget {
        let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
        FdBudget::of((soft / 4 * 3).saturating_sub(Self::RESERVE))
    }
    pub fn of(limit: u64) -> FdBudget {
        let [reserved, probes, others, reopened] = [const { AtomicU64::new(0) }; 4];
        FdBudget { limit, reserved, probes, others, reopened }
    }
    pub fn limit(&self) -> u64 {
        self.limit
    }
    pub fn used(&self) -> u64 {
        self.probes.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed)
    }
    /// Reads so far that had to open their file because no descriptor was left to keep.
    pub fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Relaxed)
    }

    /// A reader comes that needs so many probes.
    pub(super) fn reserve(&self, probes: u64) {
        self.reserved.fetch_add(probes, Ordering::Relaxed);
    }
    pub(super) fn release(&self, probes: u64) {
        self.reserved.fetch_sub(probes, Ordering::Relaxed);
    }

    /// What all of a rank and above may hold.
    fn share(&self, rank: Rank) -> u64 {
        let left = self.limit.saturating_sub(self.reserved.load(Ordering::Relaxed));
        match rank {
            Rank::Probe => self.limit,
            Rank::Regular => left,
            Rank::Rest => left / 2,
        }
    }
    fn held(&self, rank: Rank) -> &AtomicU64 {
        if rank == Rank::Probe { &self.probes } else { &self.others }
    }

    pub(super) fn take(&self, rank: Rank) -> bool {
        let share = self.share(rank);
        let taken = |held: u64| (held < share).then_some(held + 1);
        self.used() < self.limit && self.held(rank).fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
    /// More is held at this rank than it may be: the next one who uses such a descriptor hands it back.
    pub(super) fn is_over(&self, rank: Rank) -> bool {
        self.held(rank).load(Ordering::Relaxed) > self.share(rank)
    }
    pub(super) fn give_back(&self, rank: Rank) {
        self.held(rank).fetch_sub(1, Ordering::Relaxed);
    }
    pub(super) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why a source gave no value although it should have: the `reason` label, a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorReason {
    /// The kernel's text is not what is documented.
    Parse,
    /// EACCES, EPERM.
    Permission,
    /// The thing went away between two system calls: expected, kept apart from real errors.
    NotFoundRace,
    /// It did not answer in time.
    Timeout,
    /// Any other error of the system.
    Io,
}

impl ErrorReason {
    pub const ALL: [ErrorReason; 5] =
        [ErrorReason::Parse, ErrorReason::Permission, ErrorReason::NotFoundRace, ErrorReason::Timeout, ErrorReason::Io];
    pub fn of(error: &std::io::Error) -> ErrorReason {
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorReason::Permission,
            std::io::ErrorKind::NotFound => ErrorReason::NotFoundRace,
            std::io::ErrorKind::TimedOut => ErrorReason::Timeout,
            _ => ErrorReason::Io,
        }
    }
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorReason::Parse => "parse",
            ErrorReason::Permission => "permission",
            ErrorReason::NotFoundRace => "not_found_race",
            ErrorReason::Timeout => "timeout",
            ErrorReason::Io => "io",
        }
    }
}

/// Errors by reason, each born at 0.
#[derive(Debug, Default)]
pub struct ErrorCounts([AtomicU64; 5]);

impl ErrorCounts {
    /// Counts, and logs the 1st, 2nd, 4th, 8th ... of its reason, so that a file which stays broken does not fill the log.
    pub fn report(&self, reason: ErrorReason, what: impl FnOnce() -> String) {
        let Some((_, count)) = ErrorReason::ALL.iter().zip(&self.0).find(|(r, _)| **r == reason) else { return };
        let so_far = count.fetch_add(1, Ordering::Relaxed) + 1;
        if so_far.is_power_of_two() {
            tracing::warn!(reason = reason.as_str(), so_far, "cannot read a measure: {}", what());
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = (ErrorReason, u64)> + '_ {
        ErrorReason::ALL.iter().zip(&self.0).map(|(r, n)| (*r, n.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_at_every_tick_gets_the_last_descriptors() {
        let budget = FdBudget::of(8);
        let taken = |rank| (0..10).take_while(|_| budget.take(rank)).count();
        budget.reserve(2);
        assert_eq!(taken(Rank::Rest), 3);
        assert_eq!(taken(Rank::Regular), 3);
        assert_eq!(taken(Rank::Probe), 2);
        assert_eq!(budget.used(), 8);
    }

    #[test]
    fn when_readers_come_others_hand_back_what_is_above_their_share() {
        let budget = FdBudget::of(8);
        assert!((0..4).all(|_| budget.take(Rank::Rest)));
        assert!(!budget.is_over(Rank::Rest));
        budget.reserve(4);
        assert!(budget.is_over(Rank::Rest) && !budget.is_over(Rank::Regular));
        budget.give_back(Rank::Rest);
        budget.give_back(Rank::Rest);
        assert!(!budget.is_over(Rank::Rest));
        budget.release(4);
        assert!(budget.take(Rank::Rest));
    }

    #[test]
    fn every_reason_is_born_at_zero_and_counts_alone() {
        let errors = ErrorCounts::default();
        errors.report(ErrorReason::Parse, String::new);
        let counts: Vec<_> = errors.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counts, [(ErrorReason::Parse, 1)]);
        assert_eq!(errors.iter().count(), ErrorReason::ALL.len());
    }
}
