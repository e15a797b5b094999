//! Lazy snapshot publication: sampling is eager, assembly happens on demand.
//!
//! ```text
//! tick ── read ──► does a client read, or will it soon? ── yes ──► assembled, published
//!                        └── no ──► deferred ◄── "what is new?" ── a scraper, a push, a command: assembled for it
//! ```
//! A scraper with an interval of 15 s sees one tick of fifteen. Assembling the other fourteen would cost as much as
//! reading them, and no client would see them. A client gets what was read at the newest tick, as if it had been
//! assembled then.
//!
//! Without clients observed cgroups are not even read at most ticks, where the kernel reports what each has used when
//! it ends. They are read at each fourth such tick, and at once for a client in between.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::assemble::{Assembler, ClockReading, TickInputs};
use super::pass::{SamplingPass, can_skip};
use super::{Snapshot, parents};
use crate::board::{Board, BoardView, PublishedAlloc};
use crate::collectors::{ReaderSelection, SamplingContext};
use crate::host::clock::Clock;
use crate::model::alloc::AllocSource;
use crate::telemetry::metrics::DropReason;
use crate::telemetry::{Metrics, lock};

/// So many ticks in a row are deferred at most. The one after them is assembled without a client, because some changes
/// depend on time alone: ended allocs retire.
const MOST_DEFERRED: u64 = 9;
/// Observed cgroups are skipped for so long: with ticks of a second each fourth one reads them. Values of an ended
/// cgroup that the kernel does not report with its end are so old.
const OBSERVED_EACH: Duration = Duration::from_millis(3_500);

/// So long a client waits for a pass: one over thousands of tasks takes a tenth of it. `/healthz` reports one that
/// hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// The publisher's access to the kernel pass: it takes passes, and decides whether observed cgroups may be skipped.
#[derive(Default)]
pub struct KernelPassAccess {
    /// `None`: all values are read from files.
    pub sampling: Option<Arc<SamplingContext>>,
    /// The kernel reports what observed cgroups have used when they end.
    pub reports_ends: bool,
}

impl KernelPassAccess {
    fn take(&self, now: Instant, readers: ReaderSelection) {
        if let Some(sampling) = &self.sampling {
            sampling.take_pass_for(now, readers);
        }
    }
    /// Whether observed cgroups may be skipped at a tick without a client.
    fn can_skip_observed(&self, now: Instant) -> bool {
        let pass = self.sampling.as_ref().and_then(|sampling| sampling.kernel_pass());
        self.reports_ends && pass.is_some_and(|pass| !pass.is_due(now) && pass.trusts_all_files())
    }
}

/// Which readers read at a tick; `None`: none. `since`: time since observed ones were read, if they may be skipped now.
/// `has_own`: a task runs that may not be skipped.
fn readers_due(since: Option<Duration>, has_own: bool) -> Option<ReaderSelection> {
    match since {
        Some(since) if since < OBSERVED_EACH => has_own.then_some(ReaderSelection::Managed),
        _ => Some(ReaderSelection::All),
    }
}

/// Whether a client is about to read before the next tick.
pub type ReadPredictor = Box<dyn Fn() -> bool + Send + Sync>;

/// Samples at each tick, and publishes a snapshot when a client reads. Concurrency: one thread samples at ticks; any
/// thread reads, and may complete a tick.
pub struct SnapshotPublisher {
    board: Arc<Board>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    kernel_pass: KernelPassAccess,
    work: Mutex<PublisherState>,
    /// What was read last is in no snapshot.
    is_deferred: AtomicBool,
    /// A client has read since the last tick.
    is_watched: AtomicBool,
    read_predictor: OnceLock<ReadPredictor>,
    /// See [`Snapshots::final_series_stay`].
    keeps_for: Duration,
}

/// State of the publisher between two publications: the assembler, the deferred tick, and what was read and published
/// last.
pub(super) struct PublisherState {
    assembler: Assembler,
    publish: watch::Sender<Arc<Snapshot>>,
    /// The newest tick that was deferred.
    deferred: Option<TickInputs>,
    /// When observed cgroups were read last; and whether a tick has skipped them since.
    observed_read: Option<Instant>,
    observed_skipped: bool,
    /// Maximum number of reading threads.
    threads: NonZero<usize>,
    /// Ticks so far, and those in the newest snapshot.
    ticks: u64,
    shown: u64,
    /// The board's version that was published last.
    seen: u64,
    published: Instant,
}

/// The published snapshots. The lifecycle in them is current; values are those of the newest tick for a client that
/// requests the newest.
#[derive(Debug, Clone)]
pub struct Snapshots {
    published: watch::Receiver<Arc<Snapshot>>,
    publisher: Arc<SnapshotPublisher>,
}

impl Snapshots {
    pub(crate) fn new(published: watch::Receiver<Arc<Snapshot>>, publisher: Arc<SnapshotPublisher>) -> Snapshots {
        Snapshots { published, publisher }
    }
    /// As it is: its values may be some ticks old.
    pub fn borrow(&self) -> watch::Ref<'_, Arc<Snapshot>> {
        self.published.borrow()
    }
    pub fn borrow_and_update(&mut self) -> watch::Ref<'_, Arc<Snapshot>> {
        self.published.borrow_and_update()
    }
    /// Another one is there. Errors: there will be no more.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.published.changed().await
    }
    /// Errors: there will be no more.
    pub async fn wait_for(&mut self, is_it: impl FnMut(&Arc<Snapshot>) -> bool) -> Result<(), watch::error::RecvError> {
        self.published.wait_for(is_it).await.map(drop)
    }

    /// What the newest tick has read. Blocks while it is assembled, some milliseconds for a thousand tasks, or until a
    /// tick is over.
    pub fn newest(&self) -> Arc<Snapshot> {
        if self.publisher.watch() {
            self.publisher.assemble_deferred();
        }
        Arc::clone(&self.borrow())
    }
    /// The same for a client that reads seldom: the tick after this one may be deferred, as if none had read.
    pub fn newest_unwatched(&self) -> Arc<Snapshot> {
        if self.publisher.is_deferred.load(Ordering::Acquire) {
            self.publisher.assemble_deferred();
        }
        Arc::clone(&self.borrow())
    }
    /// The same for a caller that must not block.
    pub async fn refresh(&self) -> Arc<Snapshot> {
        if self.publisher.watch() {
            let publisher = Arc::clone(&self.publisher);
            if tokio::task::spawn_blocking(move || publisher.assemble_deferred()).await.is_err() {
                tracing::error!("failed to assemble a snapshot");
            }
        }
        Arc::clone(&self.borrow())
    }
    /// A client will read what is sampled next.
    pub fn announce_read(&self) {
        self.publisher.watch();
    }
    /// So long at most after the end of an alloc.
    pub fn final_series_stay(&self) -> Duration {
        self.publisher.keeps_for
    }
    /// Sets the function that predicts at each tick whether a client is about to read. Only the first one has effect.
    pub fn set_read_predictor(&self, read_predictor: ReadPredictor) {
        let _ = self.publisher.read_predictor.set(read_predictor);
    }
}

impl std::fmt::Debug for SnapshotPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotPublisher")
            .field("is_deferred", &self.is_deferred)
            .field("is_watched", &self.is_watched)
            .finish_non_exhaustive()
    }
}

impl SnapshotPublisher {
    pub(crate) fn new(
        (board, clock, metrics): (Arc<Board>, Arc<dyn Clock>, Arc<Metrics>),
        assembler: Assembler,
        kernel_pass: KernelPassAccess,
        publish: watch::Sender<Arc<Snapshot>>,
    ) -> SnapshotPublisher {
        let (published, keeps_for) = (clock.instant(), assembler.keeps_for());
        let work = PublisherState {
            assembler,
            publish,
            deferred: None,
            observed_read: None,
            observed_skipped: false,
            threads: NonZero::<usize>::MIN,
            ticks: 0,
            shown: 0,
            seen: 0,
            published,
        };
        let (is_deferred, is_watched) = (AtomicBool::new(false), AtomicBool::new(false));
        SnapshotPublisher {
            board,
            clock,
            metrics,
            kernel_pass,
            work: Mutex::new(work),
            is_deferred,
            is_watched,
            read_predictor: OnceLock::new(),
            keeps_for,
        }
    }

    /// A client reads. Returns whether what was read last is in no snapshot.
    fn watch(&self) -> bool {
        self.is_watched.store(true, Ordering::Relaxed);
        self.is_deferred.load(Ordering::Acquire)
    }

    /// Every other caller waits until the guard is dropped.
    pub(super) fn begin(&self) -> MutexGuard<'_, PublisherState> {
        lock(&self.work)
    }

    /// The same for a client. `None`: a pass hangs, and the previous snapshot has to do.
    fn begin_soon(&self) -> Option<MutexGuard<'_, PublisherState>> {
        let began = Instant::now();
        loop {
            match self.work.try_lock() {
                Ok(work) => return Some(work),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// The board's version that was published last, and when that was.
    pub(super) fn newest(&self) -> (u64, Instant) {
        let work = self.begin();
        (work.seen, work.published)
    }

    /// Reads and publishes, or defers. `threads`: maximum number of reading threads. Returns `false` if observed
    /// cgroups were skipped.
    pub(super) fn tick(
        &self,
        work: &mut PublisherState,
        tick: TickInputs,
        moment: ClockReading,
        threads: NonZero<usize>,
    ) -> bool {
        let board = self.board.view();
        let is_watched = self.is_watched.swap(false, Ordering::Relaxed);
        let has_waiters = is_watched || self.read_predictor.get().is_some_and(|read_predictor| read_predictor());
        let pass = if work.shown == 0 { SamplingPass::first(moment) } else { SamplingPass::over_all(moment) };
        let mut pass = pass.on(threads);
        work.threads = threads;
        work.ticks += 1;
        // Every client waits for the first one; and what has begun or ended is built of what is read with it.
        let is_late = work.shown == 0 || work.ticks > work.shown + MOST_DEFERRED;
        let may_defer = !has_waiters && !is_late && work.seen == board.version && work.assembler.shows(&board);
        let readers = self.walk(work, &board, moment.now, may_defer);
        if readers != Some(ReaderSelection::All) {
            pass = pass.without_observed();
        }
        if may_defer {
            if readers.is_some() {
                work.assembler.only_read(&board, &mut pass.silent());
            }
            work.deferred = Some(tick);
            self.is_deferred.store(true, Ordering::Release);
        } else {
            if work.deferred.is_some() {
                pass = pass.returning_all();
            }
            self.build(work, &board, tick, moment, &mut pass);
        }
        readers == Some(ReaderSelection::All)
    }

    /// Takes a kernel pass for the readers that read at this tick, and returns which these are. `may_defer`: no client
    /// reads.
    fn walk(
        &self,
        work: &mut PublisherState,
        board: &BoardView,
        now: Instant,
        may_defer: bool,
    ) -> Option<ReaderSelection> {
        let skips_observed = may_defer && self.kernel_pass.can_skip_observed(now);
        let since = work.observed_read.filter(|_| skips_observed).map(|at| now.saturating_duration_since(at));
        let runs = |alloc: &&Arc<PublishedAlloc>| !can_skip(alloc) && alloc.readers.iter().any(Option::is_some);
        let readers = readers_due(since, board.allocs.iter().any(|alloc| runs(&alloc)));
        if readers == Some(ReaderSelection::All) {
            self.kernel_pass.take(now, ReaderSelection::All);
            (work.observed_read, work.observed_skipped) = (Some(now), false);
            return readers;
        }
        work.observed_skipped = true;
        // Processes without a cgroup have no row.
        if board.allocs.iter().filter(runs).any(|alloc| alloc.identity.source == AllocSource::Managed) {
            self.kernel_pass.take(now, ReaderSelection::Managed);
        }
        readers
    }

    /// The board has changed.
    pub(super) fn change(&self) {
        let mut work = self.begin();
        let (board, moment) = (self.board.view(), self.moment());
        let snapshot = work.assembler.change(&board, &mut SamplingPass::over_new(moment), moment);
        self.show(&mut work, board.version, snapshot);
    }

    /// As a tick without a client.
    #[cfg(test)]
    pub(crate) fn defer(&self) {
        let mut work = self.begin();
        (work.ticks, work.deferred) = (work.ticks + 1, Some(TickInputs::default()));
        self.is_deferred.store(true, Ordering::Release);
    }

    fn assemble_deferred(&self) {
        let Some(mut work) = self.begin_soon() else { return };
        if let Some(tick) = work.deferred.take() {
            let (moment, board) = (self.moment(), self.board.view());
            let mut pass = SamplingPass::over_new(moment).returning_all();
            if std::mem::take(&mut work.observed_skipped) && board.allocs.iter().any(|alloc| can_skip(alloc)) {
                self.kernel_pass.take(moment.now, ReaderSelection::Observed);
                work.observed_read = Some(moment.now);
                pass = pass.with_observed().on(work.threads);
            }
            self.build(&mut work, &board, tick, moment, &mut pass);
        }
    }

    fn build(
        &self,
        work: &mut PublisherState,
        board: &BoardView,
        mut tick: TickInputs,
        moment: ClockReading,
        readings: &mut SamplingPass,
    ) {
        self.is_deferred.store(false, Ordering::Release);
        // It has what the deferred ticks before it have read.
        work.deferred = None;
        tick.unseen = work.ticks - work.shown - 1;
        tick.parents = parents::views(&board.parents, moment);
        work.shown = work.ticks;
        let (mut snapshot, removals) = work.assembler.tick(board, readings, tick, moment);
        let mut version = board.version;
        if work.seen == 0 && self.board.version() != version {
            // A task that was found running and ended between the view of the board and its first reading has taken its
            // cgroup with it: nothing would be known of it here. The board has the end already.
            let board = self.board.view();
            version = board.version;
            snapshot = work.assembler.change(&board, &mut SamplingPass::over_new(moment), moment);
        }
        for (reason, series) in removals.retired.iter().filter_map(|r| r.lost) {
            self.metrics.series_dropped(reason, series);
        }
        self.metrics.series_dropped(DropReason::Churn, removals.unshown);
        self.show(work, version, snapshot);
    }

    fn show(&self, work: &mut PublisherState, version: u64, snapshot: Arc<Snapshot>) {
        work.seen = version;
        self.board.mark(snapshot.steady_at);
        work.published = Instant::now();
        work.publish.send_replace(snapshot);
    }

    fn moment(&self) -> ClockReading {
        ClockReading { now: self.clock.instant(), at: self.clock.now() }
    }
}

/// Promise (Absent values and sums): A pass that hangs delays no client: the previous snapshot is exposed
#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock::SystemClock;
    use crate::model::units::Timestamp;
    use crate::snapshot::Config;
    use crate::snapshot::agent::tests::info;

    #[test]
    fn observed_cgroups_without_clients_are_read_every_four_seconds() {
        let at = |tick: u64, ticks: u64| -> Vec<Option<ReaderSelection>> {
            let mut read = None;
            let turn = |n: u64| {
                let now = Duration::from_millis(n * tick);
                let readers = readers_due(read.map(|at| now.saturating_sub(at)), n.is_multiple_of(2));
                read = if readers == Some(ReaderSelection::All) { Some(now) } else { read };
                readers
            };
            (0..ticks).map(turn).collect()
        };
        let (all, managed) = (Some(ReaderSelection::All), Some(ReaderSelection::Managed));
        assert_eq!(at(1_000, 9), [all, None, managed, None, all, None, managed, None, all]);
        assert_eq!(at(4_000, 3), [all, all, all]);
        assert_eq!(readers_due(None, false), all, "a client reads, or they were never read");
    }

    fn published() -> (Arc<SnapshotPublisher>, Snapshots) {
        let empty = Snapshot::empty(Arc::new(info()), Timestamp(7));
        let (publish, published) = watch::channel(Arc::new(empty.clone()));
        let of = (Arc::<Board>::default(), Arc::new(SystemClock) as Arc<dyn Clock>, Arc::new(Metrics::new()));
        let assembler = Assembler::new(empty, &Config::default());
        let publisher = Arc::new(SnapshotPublisher::new(of, assembler, KernelPassAccess::default(), publish));
        let snapshots = Snapshots::new(published, Arc::clone(&publisher));
        (publisher, snapshots)
    }

    /// Promise (Absent values and sums): P-14.1 Each of many listeners sees snapshots in order, and the last one always
    #[tokio::test]
    async fn listeners_see_the_newest_snapshot_in_order_until_the_publisher_is_gone() {
        const LISTENERS: usize = 100;
        const ROUNDS: u64 = 40;
        /// So many are published before a listener has its turn.
        const AT_ONCE: u64 = 5;
        let (publisher, snapshots) = published();
        let listen = |mut receiver: watch::Receiver<Arc<Snapshot>>| {
            tokio::spawn(async move {
                let mut epochs = vec![receiver.borrow_and_update().epoch];
                while receiver.changed().await.is_ok() {
                    epochs.push(receiver.borrow_and_update().epoch);
                }
                epochs
            })
        };
        let listeners: Vec<_> = (0..LISTENERS).map(|_| listen(snapshots.published.clone())).collect();
        tokio::task::yield_now().await;
        for round in 1..=ROUNDS {
            for _ in 0..AT_ONCE {
                publisher.defer();
                snapshots.newest();
            }
            tokio::task::yield_now().await;
            assert_eq!(snapshots.clone().borrow().epoch, round * AT_ONCE, "a new listener begins with the last one");
        }
        let listening = || publisher.begin().publish.receiver_count();
        let before = listening();
        let dropped: Vec<_> = (0..LISTENERS).map(|_| snapshots.clone()).collect();
        assert_eq!(listening(), before + LISTENERS);
        drop(dropped);
        assert_eq!(listening(), before, "a dropped listener is forgotten");

        let late = snapshots.published.clone();
        drop((snapshots, publisher));
        for listener in listeners {
            let epochs = listener.await.unwrap();
            assert!(epochs.is_sorted_by(|a, b| a < b), "never an older one, and none twice: {epochs:?}");
            assert_eq!(epochs.last(), Some(&(ROUNDS * AT_ONCE)), "the last one is never missed");
            assert!(epochs.len() as u64 <= ROUNDS + 1, "of several at once it sees the newest alone: {epochs:?}");
        }
        assert_eq!(listen(late).await.unwrap(), [ROUNDS * AT_ONCE], "after the end: the last one, and the end");
    }

    #[test]
    fn client_during_hanging_pass_gets_previous_snapshot() {
        let (publisher, snapshots) = published();
        publisher.defer();
        assert_eq!(snapshots.newest().epoch, 1, "the deferred tick is assembled");
        publisher.defer();
        let hangs = publisher.begin();
        let seen = std::thread::scope(|scope| scope.spawn(|| snapshots.newest().epoch).join());
        assert_eq!(seen.ok(), Some(1));
        drop(hangs);
        assert_eq!(snapshots.newest().epoch, 2);
    }
}
