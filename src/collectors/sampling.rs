//! What all readers share: the hierarchies, the descriptor budget, the error counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::kernel_pass::{KernelPass, Readers};
use super::networks::Networks;
use super::pass_rows::PassRows;
use super::proc::Proc;
use super::root_files::RootFiles;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::words;

/// Concurrency: any thread; atomics only.
#[derive(Debug)]
pub struct Sampling {
    pub roots: Roots,
    pub layout: Layout,
    pub budget: FdBudget,
    pub errors: ErrorCounts,
    /// Readers reset the kernel's peaks: `capability` says that they can and may.
    pub(super) windows: bool,
    /// `None` where there is none: then nothing is known about processes.
    pub(super) proc: Option<Proc>,
    pub(super) root_files: RootFiles,
    pub(super) networks: Networks,
    /// Without it everything is read from files.
    pass: OnceLock<KernelPass>,
    readers: AtomicU64,
}

impl Sampling {
    pub fn new(roots: Roots, layout: Layout, budget: FdBudget) -> Arc<Sampling> {
        Sampling::with_window_peaks(roots, layout, budget, false)
    }
    /// `windows`: whether readers reset the kernel's memory peaks, to have one of the last minute.
    pub fn with_window_peaks(roots: Roots, layout: Layout, budget: FdBudget, windows: bool) -> Arc<Sampling> {
        let proc = Proc::open(&roots.proc);
        let (errors, readers, pass) = (ErrorCounts::default(), AtomicU64::new(0), OnceLock::new());
        let (root_files, networks) = (RootFiles::default(), Networks::default());
        Arc::new(Sampling { roots, layout, budget, errors, windows, proc, root_files, networks, pass, readers })
    }

    /// From now on its rows are looked at before any file. A second one is none.
    pub fn set_kernel_pass(&self, pass: KernelPass) {
        let _ = self.pass.set(pass);
    }
    pub fn kernel_pass(&self) -> Option<&KernelPass> {
        self.pass.get()
    }
    /// Takes a kernel pass for looks at this very moment, where there is one. Blocks: see [`KernelPass::take`].
    pub fn take_pass(&self, now: Instant) {
        self.take_pass_for(now, Readers::All);
    }
    /// The same, where some of the readers are asked.
    pub fn take_pass_for(&self, now: Instant, whose: Readers) {
        if let Some(pass) = self.pass.get() {
            pass.take(&self.layout, now, whose);
        }
    }
    pub(super) fn rows(&self, now: Instant) -> Option<Arc<PassRows>> {
        self.pass.get()?.rows(now)
    }

    /// When, within a time, one more reader has its turn, so that readers made together are not read together.
    pub(super) fn stagger(&self, over: Duration) -> Duration {
        // The golden ratio of 2^32: consecutive numbers land far apart.
        let at = self.readers.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_769) & 0xffff_ffff;
        over / 1024 * u32::try_from(at >> 22).unwrap_or_default()
    }
}

/// How many descriptors the readers may keep open together.
///
/// Degrades in the order of [`Rank`], the last one first: each rank gets what those before it do not need, and hands back
/// what it holds above that as readers are added. A file that gets no descriptor is opened for each read, relative to the
/// root of its hierarchy, at some five times the cost; its value is the same. Only a window peak is absent then (v2).
#[derive(Debug)]
pub struct FdBudget {
    limit: u64,
    /// What the readers there are need, by rank.
    needed: [AtomicU64; Rank::COUNT],
    held: [AtomicU64; Rank::COUNT],
    reopened: AtomicU64,
    told: AtomicBool,
}

/// How much it costs not to keep a file open: the first one keeps its descriptor longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// What is read of a task at every tick.
    Probe,
    /// What holds a state of its own in the kernel: without it there is no value.
    Window,
    /// What is read each 9 s even where nothing moves.
    Regular,
    /// What is read at each tick in which something moved.
    Moving,
    /// What changes only if somebody sets it.
    Setting,
    /// What the kernel pass tells: it is read when its cgroup comes and when it goes.
    Told,
}

impl Rank {
    const COUNT: usize = 6;
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
        let [needed, held] = [const { [const { AtomicU64::new(0) }; Rank::COUNT] }; 2];
        FdBudget { limit, needed, held, reopened: AtomicU64::new(0), told: AtomicBool::new(false) }
    }
    pub fn limit(&self) -> u64 {
        self.limit
    }
    pub fn used(&self) -> u64 {
        sum(&self.held)
    }
    /// What all readers there are would keep open if they could.
    pub fn needed(&self) -> u64 {
        sum(&self.needed)
    }
    /// Reads so far that had to open their file because no descriptor was left to keep.
    pub fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Relaxed)
    }

    /// A reader comes with a file of this rank.
    pub(super) fn need(&self, rank: Rank) {
        self.needed[rank as usize].fetch_add(1, Ordering::Relaxed);
    }
    /// Says once that there are too few.
    pub(super) fn tell_if_short(&self) {
        let (needed, limit) = (sum(&self.needed[..Rank::Told as usize]), self.limit);
        if needed > limit && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                needed,
                limit,
                "too few descriptors to keep every kernel file open: settings are opened anew for each reading first, and the \
                 same values cost more; raise the limit (LimitNOFILE, ulimit -Hn)"
            );
        }
    }
    /// It goes, or there is no such file.
    pub(super) fn need_no_more(&self, rank: Rank) {
        self.needed[rank as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// What this rank and those after it may hold together: what those before it do not need.
    fn share(&self, rank: Rank) -> u64 {
        self.limit.saturating_sub(sum(&self.needed[..rank as usize]))
    }
    fn held_from(&self, rank: Rank) -> u64 {
        sum(&self.held[rank as usize..])
    }

    pub(super) fn take(&self, rank: Rank) -> bool {
        let free = self.used() < self.limit && self.held_from(rank) < self.share(rank);
        if free {
            self.held[rank as usize].fetch_add(1, Ordering::Relaxed);
        }
        free
    }
    /// This rank holds more than it may, even if those after it held nothing: the next one who uses such a descriptor hands
    /// it back.
    pub(super) fn is_over(&self, rank: Rank) -> bool {
        self.held[rank as usize].load(Ordering::Relaxed) > self.share(rank)
    }
    pub(super) fn give_back(&self, rank: Rank) {
        self.held[rank as usize].fetch_sub(1, Ordering::Relaxed);
    }
    pub(super) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }
}

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|n| n.load(Ordering::Relaxed)).sum()
}

words! {
    /// Why a source gave no value although it should have: the `reason` label, a closed list.
    pub enum ErrorReason {
        /// The kernel's text is not what is documented.
        Parse = "parse",
        /// EACCES, EPERM.
        Permission = "permission",
        /// The thing went away between two system calls: expected, kept apart from real errors.
        NotFoundRace = "not_found_race",
        /// It did not answer in time.
        Timeout = "timeout",
        /// Any other error of the system.
        Io = "io",
    }
}

impl ErrorReason {
    pub fn of(error: &std::io::Error) -> ErrorReason {
        match error.kind() {
            std::io::ErrorKind::PermissionDenied => ErrorReason::Permission,
            std::io::ErrorKind::NotFound => ErrorReason::NotFoundRace,
            std::io::ErrorKind::TimedOut => ErrorReason::Timeout,
            _ => ErrorReason::Io,
        }
    }
}

/// Errors by reason, each born at 0.
#[derive(Debug, Default)]
pub struct ErrorCounts([AtomicU64; 5]);

impl ErrorCounts {
    /// Counts, and logs the 1st, 2nd, 4th, 8th ... of its reason, so that a file which stays broken does not fill the log.
    pub fn report(&self, reason: ErrorReason, what: impl FnOnce() -> String) {
        let so_far = self.0[reason.index()].fetch_add(1, Ordering::Relaxed) + 1;
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

    fn needing(limit: u64, needs: [u64; Rank::COUNT]) -> FdBudget {
        let budget = FdBudget::of(limit);
        let ranks = [Rank::Probe, Rank::Window, Rank::Regular, Rank::Moving, Rank::Setting, Rank::Told];
        ranks.into_iter().zip(needs).for_each(|(rank, n)| (0..n).for_each(|_| budget.need(rank)));
        budget
    }

    #[test]
    fn each_rank_gets_what_those_before_it_leave() {
        let taken = |budget: &FdBudget, rank| (0..10).take_while(|_| budget.take(rank)).count();
        let budget = needing(8, [2, 0, 3, 2, 5, 3]);
        // In the worst order: who may wait longest asks first.
        let got = [Rank::Setting, Rank::Moving, Rank::Regular, Rank::Probe].map(|rank| taken(&budget, rank));
        assert_eq!(got, [1, 2, 3, 2]);
        assert_eq!((budget.used(), budget.needed()), (8, 15), "what a pass tells has what is left over");

        let budget = needing(8, [2, 0, 9, 2, 5, 0]);
        let got = [Rank::Setting, Rank::Moving, Rank::Regular, Rank::Probe].map(|rank| taken(&budget, rank));
        assert_eq!(got, [0, 0, 6, 2]);
    }

    #[test]
    fn when_readers_come_the_last_rank_hands_back_first() {
        let budget = needing(8, [1, 0, 1, 1, 5, 0]);
        assert!((0..5).all(|_| budget.take(Rank::Setting)) && budget.take(Rank::Moving));
        assert!(!budget.is_over(Rank::Setting));
        budget.need(Rank::Probe);
        assert!(budget.is_over(Rank::Setting) && !budget.is_over(Rank::Moving));
        budget.give_back(Rank::Setting);
        assert!(!budget.is_over(Rank::Setting));
        budget.need_no_more(Rank::Probe);
        assert!(budget.take(Rank::Setting));
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
