//! State shared by all readers: hierarchies, descriptor budget, error counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::disks::DiskNames;
use super::kernel_pass::{KernelPass, ReaderSelection};
use super::netns_owners::NetnsOwners;
use super::pass_rows::PassRows;
use super::proc::ProcRoot;
use super::root_files::RootFiles;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::words;

/// State shared by all readers of this agent. Concurrency: any thread; locks are short.
#[derive(Debug)]
pub struct SamplingContext {
    pub roots: Roots,
    pub layout: Layout,
    pub budget: FdBudget,
    pub errors: ErrorCounts,
    /// Readers may reset the kernel's memory peaks; see `capability`.
    pub(super) windows: bool,
    /// `None`: `/proc` cannot be opened, so process data is absent.
    pub(super) proc: Option<ProcRoot>,
    pub(super) root_files: RootFiles,
    pub(super) networks: NetnsOwners,
    pub(super) disk_names: DiskNames,
    /// Unset: all values are read from files.
    pass: OnceLock<KernelPass>,
    readers: AtomicU64,
}

impl SamplingContext {
    pub fn new(roots: Roots, layout: Layout, budget: FdBudget) -> Arc<SamplingContext> {
        SamplingContext::with_window_peaks(roots, layout, budget, false)
    }
    /// `windows`: readers reset the kernel's memory peaks to get a peak of the last 60 s.
    pub fn with_window_peaks(roots: Roots, layout: Layout, budget: FdBudget, windows: bool) -> Arc<SamplingContext> {
        let proc = ProcRoot::open(&roots.proc);
        let (errors, readers, pass) = (ErrorCounts::default(), AtomicU64::new(0), OnceLock::new());
        let (root_files, networks) = (RootFiles::default(), NetnsOwners::default());
        let disk_names = DiskNames::new(&roots.sys);
        Arc::new(SamplingContext {
            roots,
            layout,
            budget,
            errors,
            windows,
            proc,
            root_files,
            networks,
            disk_names,
            pass,
            readers,
        })
    }

    /// Enables the kernel pass. Later calls have no effect.
    pub fn set_kernel_pass(&self, pass: KernelPass) {
        let _ = self.pass.set(pass);
    }
    pub fn kernel_pass(&self) -> Option<&KernelPass> {
        self.pass.get()
    }
    /// Runs the kernel pass, if there is one, for readings at `now`. Blocks: see [`KernelPass::take`].
    pub fn take_pass(&self, now: Instant) {
        self.take_pass_for(now, ReaderSelection::All);
    }
    /// Like [`SamplingContext::take_pass`], for some of the readers.
    pub fn take_pass_for(&self, now: Instant, readers: ReaderSelection) {
        if let Some(pass) = self.pass.get() {
            pass.take(&self.layout, now, readers);
        }
    }
    pub(super) fn rows(&self, now: Instant) -> Option<Arc<PassRows>> {
        self.pass.get()?.rows(now)
    }

    /// An offset within `over`, different for each call: readers created together are not all due at the same tick.
    pub(super) fn stagger(&self, over: Duration) -> Duration {
        // Multiplication by 2^32 divided by the golden ratio spreads consecutive numbers evenly.
        let at = self.readers.fetch_add(1, Ordering::Relaxed).wrapping_mul(2_654_435_769) & 0xffff_ffff;
        over / 1024 * u32::try_from(at >> 22).unwrap_or_default()
    }
}

/// Limits the number of descriptors that all readers keep open together.
///
/// Under shortage the last [`FdRank`] loses its descriptors first: each rank gets what the ranks before it do not need,
/// and returns the excess as readers are added. A file without a descriptor is opened for each read, relative to its
/// hierarchy's root, at about five times the cost and with the same value. Only the window peak becomes absent (v2).
#[derive(Debug)]
pub struct FdBudget {
    limit: u64,
    /// Descriptors that the existing readers need, by rank.
    needed: [AtomicU64; FdRank::COUNT],
    held: [AtomicU64; FdRank::COUNT],
    reopened: AtomicU64,
    warned: AtomicBool,
}

/// Priority of a descriptor: the first rank keeps its descriptors longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FdRank {
    /// Read at every tick.
    Probe,
    /// Holds state in the kernel: without the descriptor there is no value.
    Window,
    /// Read each 9 s, even if nothing changes.
    Regular,
    /// Read at each tick with a change.
    Moving,
    /// Settings.
    Setting,
    /// Replaced by rows of the kernel pass: read only when the cgroup appears and ends.
    Replaced,
}

impl FdRank {
    const COUNT: usize = 6;
}

impl FdBudget {
    /// Reserved for the rest of the agent: connections, logs, the database, supervisor records.
    const RESERVE: u64 = 512;

    /// Three quarters of the soft limit of descriptors, minus a reserve. Raise the soft limit before the call.
    pub fn from_limit() -> FdBudget {
        let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
        FdBudget::of((soft / 4 * 3).saturating_sub(Self::RESERVE))
    }
    pub fn of(limit: u64) -> FdBudget {
        let [needed, held] = [const { [const { AtomicU64::new(0) }; FdRank::COUNT] }; 2];
        FdBudget { limit, needed, held, reopened: AtomicU64::new(0), warned: AtomicBool::new(false) }
    }
    pub fn limit(&self) -> u64 {
        self.limit
    }
    pub fn used(&self) -> u64 {
        sum(&self.held)
    }
    /// Descriptors that all existing readers would keep open without the limit.
    pub fn needed(&self) -> u64 {
        sum(&self.needed)
    }
    /// Reads so far that had to open their file, because the budget was used up.
    pub fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Relaxed)
    }

    /// A reader adds a file of this rank.
    pub(super) fn need(&self, rank: FdRank) {
        self.needed[rank as usize].fetch_add(1, Ordering::Relaxed);
    }
    /// Logs once that the budget is too small.
    pub(super) fn warn_if_short(&self) {
        let (needed, limit) = (sum(&self.needed[..FdRank::Replaced as usize]), self.limit);
        if needed > limit && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                needed,
                limit,
                "too few file descriptors to keep all kernel files open; sampling costs more, values stay correct; \
                 raise the limit (LimitNOFILE, ulimit -Hn)"
            );
        }
    }
    /// A reader drops a file of this rank, or the file does not exist.
    pub(super) fn release_need(&self, rank: FdRank) {
        self.needed[rank as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Descriptors for this rank and those after it: what the ranks before it do not need.
    fn share(&self, rank: FdRank) -> u64 {
        self.limit.saturating_sub(sum(&self.needed[..rank as usize]))
    }
    fn held_from(&self, rank: FdRank) -> u64 {
        sum(&self.held[rank as usize..])
    }

    pub(super) fn take(&self, rank: FdRank) -> bool {
        let free = self.used() < self.limit && self.held_from(rank) < self.share(rank);
        if free {
            self.held[rank as usize].fetch_add(1, Ordering::Relaxed);
        }
        free
    }
    /// Whether this rank holds more than its share, even without the ranks after it. The next reader that uses such a
    /// descriptor returns it.
    pub(super) fn is_over(&self, rank: FdRank) -> bool {
        self.held[rank as usize].load(Ordering::Relaxed) > self.share(rank)
    }
    pub(super) fn release(&self, rank: FdRank) {
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
    /// Why a source gave no value although it should have: the `reason` label.
    pub enum ErrorReason {
        /// The content does not have the documented format.
        Parse = "parse",
        /// EACCES, EPERM.
        Permission = "permission",
        /// The file vanished between two system calls. Expected, so it has a reason of its own.
        NotFoundRace = "not_found_race",
        /// The source did not answer in time.
        Timeout = "timeout",
        /// Any other system error.
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

/// Number of errors by reason, each starting at 0.
#[derive(Debug, Default)]
pub struct ErrorCounts([AtomicU64; 5]);

impl ErrorCounts {
    /// Counts an error, and logs the 1st, 2nd, 4th, 8th ... of its reason: a permanent error does not flood the log.
    pub fn report(&self, reason: ErrorReason, what: impl FnOnce() -> String) {
        let so_far = self.0[reason.index()].fetch_add(1, Ordering::Relaxed) + 1;
        if so_far.is_power_of_two() {
            tracing::warn!(reason = reason.as_str(), so_far, what = what(), "collector read failed");
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = (ErrorReason, u64)> + '_ {
        ErrorReason::ALL.iter().zip(&self.0).map(|(r, n)| (*r, n.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needing(limit: u64, needs: [u64; FdRank::COUNT]) -> FdBudget {
        let budget = FdBudget::of(limit);
        let ranks = [FdRank::Probe, FdRank::Window, FdRank::Regular, FdRank::Moving, FdRank::Setting, FdRank::Replaced];
        ranks.into_iter().zip(needs).for_each(|(rank, n)| (0..n).for_each(|_| budget.need(rank)));
        budget
    }

    #[test]
    fn each_rank_gets_what_those_before_it_leave() {
        let taken = |budget: &FdBudget, rank| (0..10).take_while(|_| budget.take(rank)).count();
        let budget = needing(8, [2, 0, 3, 2, 5, 3]);
        // In the worst order: the lowest priority takes first.
        let got = [FdRank::Setting, FdRank::Moving, FdRank::Regular, FdRank::Probe].map(|rank| taken(&budget, rank));
        assert_eq!(got, [1, 2, 3, 2]);
        assert_eq!((budget.used(), budget.needed()), (8, 15), "files that rows replace get the rest");

        let budget = needing(8, [2, 0, 9, 2, 5, 0]);
        let got = [FdRank::Setting, FdRank::Moving, FdRank::Regular, FdRank::Probe].map(|rank| taken(&budget, rank));
        assert_eq!(got, [0, 0, 6, 2]);
    }

    #[test]
    fn descriptor_budget_demand_of_readers_releases_the_last_rank_first() {
        let budget = needing(8, [1, 0, 1, 1, 5, 0]);
        assert!((0..5).all(|_| budget.take(FdRank::Setting)) && budget.take(FdRank::Moving));
        assert!(!budget.is_over(FdRank::Setting));
        budget.need(FdRank::Probe);
        assert!(budget.is_over(FdRank::Setting) && !budget.is_over(FdRank::Moving));
        budget.release(FdRank::Setting);
        assert!(!budget.is_over(FdRank::Setting));
        budget.release_need(FdRank::Probe);
        assert!(budget.take(FdRank::Setting));
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
