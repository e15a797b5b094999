//! Between who reads and who looks. What runs is read at each tick; what was read is put together when somebody looks.
//!
//! ```text
//! tick ── read ──► does anybody look, or is about to? ── yes ──► put together, published
//!                        └── no ──► left on the desk ◄── "what is new?" ── a scraper, a push, a command: put together for it
//! ```
//! A scraper that comes each 15 s sees one tick of fifteen: to put the others together costs as much as to read, for nobody. Who looks gets
//! what was read at the newest tick, as if it had been put together then.
//!
//! Others' cgroups are not even read for nobody, where the kernel tells what each has used when it ends: at each fourth such tick they are, and
//! at once for who looks in between.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::assemble::{Assembler, Moment, Tick};
use super::pass::{Pass, can_wait};
use super::{Snapshot, parents};
use crate::board::{Board, BoardView, Published};
use crate::collectors::{Readers, Sampling};
use crate::host::clock::Clock;
use crate::model::alloc::AllocSource;
use crate::telemetry::metrics::DropReason;
use crate::telemetry::{Metrics, lock};

/// So many ticks in a row are left; the one after them is put together for whoever waits for time to pass: what has ended retires then.
const MOST_LEFT: u64 = 9;
/// Others' cgroups are left out for so long, at each fourth tick of a second they are not: of one that ends, what the kernel does not tell
/// then is as of so long before.
const OTHERS_EACH: Duration = Duration::from_millis(3_500);

/// So long who looks waits for a pass: one over thousands of tasks takes a tenth of it. One that hangs is told by `/healthz`.
const PATIENCE: Duration = Duration::from_secs(1);

/// What readers read with.
#[derive(Default)]
pub struct Walks {
    /// `None`: files.
    pub sampling: Option<Arc<Sampling>>,
    /// The kernel tells what others' cgroups have used when they end.
    pub tells_ends: bool,
}

impl Walks {
    fn take(&self, now: Instant, whose: Readers) {
        if let Some(sampling) = &self.sampling {
            sampling.take_pass_for(now, whose);
        }
    }
    /// Whether others' cgroups may be left out at a tick that nobody looks at.
    fn can_spare_others(&self, now: Instant) -> bool {
        let pass = self.sampling.as_ref().and_then(|sampling| sampling.kernel_pass());
        self.tells_ends && pass.is_some_and(|pass| !pass.is_due(now) && pass.trusts_all_files())
    }
}

/// Readers readers are asked at a tick; `None`: nobody's. `since`: others' were asked so long ago, and may be left out now; `has_own`: something
/// runs that is not others'.
fn asked(since: Option<Duration>, has_own: bool) -> Option<Readers> {
    match since {
        Some(since) if since < OTHERS_EACH => has_own.then_some(Readers::Managed),
        _ => Some(Readers::All),
    }
}

/// Whether somebody is about to look before the next tick.
pub type Foresight = Box<dyn Fn() -> bool + Send + Sync>;

/// Concurrency: one thread reads, any thread looks.
pub struct Desk {
    board: Arc<Board>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    walks: Walks,
    work: Mutex<Assembly>,
    /// What was read last is in no snapshot.
    is_left: AtomicBool,
    /// Somebody has looked since the last tick.
    is_watched: AtomicBool,
    foresight: OnceLock<Foresight>,
    /// See [`Snapshots::final_series_stay`].
    keeps_for: Duration,
}

/// What snapshots are made with.
pub(super) struct Assembly {
    assembler: Assembler,
    publish: watch::Sender<Arc<Snapshot>>,
    /// The newest tick that was left.
    left: Option<Tick>,
    /// When others' cgroups were read last; and whether a tick has left them out since.
    others_read: Option<Instant>,
    others_wait: bool,
    /// So many may read.
    threads: NonZero<usize>,
    /// So far, and up to the newest snapshot.
    ticks: u64,
    shown: u64,
    /// The board's version that was published last.
    seen: u64,
    published: Instant,
}

/// What was put together, for who looks at it: the lifecycle is of now, and values of the newest tick for whoever asks for the newest.
#[derive(Debug, Clone)]
pub struct Snapshots {
    published: watch::Receiver<Arc<Snapshot>>,
    desk: Arc<Desk>,
}

impl Snapshots {
    pub(crate) fn new(published: watch::Receiver<Arc<Snapshot>>, desk: Arc<Desk>) -> Snapshots {
        Snapshots { published, desk }
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

    /// What the newest tick has read. Blocks while it is put together, some milliseconds for a thousand tasks, or until a tick is over.
    pub fn newest(&self) -> Arc<Snapshot> {
        if self.desk.watch() {
            self.desk.put_together();
        }
        Arc::clone(&self.borrow())
    }
    /// The same for a client that reads seldom: the tick after this one may be left, as if none had read.
    pub fn newest_unwatched(&self) -> Arc<Snapshot> {
        if self.desk.is_left.load(Ordering::Acquire) {
            self.desk.put_together();
        }
        Arc::clone(&self.borrow())
    }
    /// The same for who must not block.
    pub async fn bring(&self) -> Arc<Snapshot> {
        if self.desk.watch() {
            let desk = Arc::clone(&self.desk);
            if tokio::task::spawn_blocking(move || desk.put_together()).await.is_err() {
                tracing::error!("putting a snapshot together failed");
            }
        }
        Arc::clone(&self.borrow())
    }
    /// What is read next will be looked at.
    pub fn expect(&self) {
        self.desk.watch();
    }
    /// So long at most after the end of an alloc.
    pub fn final_series_stay(&self) -> Duration {
        self.desk.keeps_for
    }
    /// Asked at each tick whether somebody is about to look. A second one is none.
    pub fn foresee(&self, foresight: Foresight) {
        let _ = self.desk.foresight.set(foresight);
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk")
            .field("is_left", &self.is_left)
            .field("is_watched", &self.is_watched)
            .finish_non_exhaustive()
    }
}

impl Desk {
    pub(crate) fn new(
        (board, clock, metrics): (Arc<Board>, Arc<dyn Clock>, Arc<Metrics>),
        assembler: Assembler,
        walks: Walks,
        publish: watch::Sender<Arc<Snapshot>>,
    ) -> Desk {
        let (published, keeps_for) = (clock.instant(), assembler.keeps_for());
        let work = Assembly {
            assembler,
            publish,
            left: None,
            others_read: None,
            others_wait: false,
            threads: NonZero::<usize>::MIN,
            ticks: 0,
            shown: 0,
            seen: 0,
            published,
        };
        let (is_left, is_watched) = (AtomicBool::new(false), AtomicBool::new(false));
        Desk {
            board,
            clock,
            metrics,
            walks,
            work: Mutex::new(work),
            is_left,
            is_watched,
            foresight: OnceLock::new(),
            keeps_for,
        }
    }

    /// Somebody looks. Gives whether what was read last is in no snapshot.
    fn watch(&self) -> bool {
        self.is_watched.store(true, Ordering::Relaxed);
        self.is_left.load(Ordering::Acquire)
    }

    /// Whoever else wants something of it waits.
    pub(super) fn begin(&self) -> MutexGuard<'_, Assembly> {
        lock(&self.work)
    }

    /// The same for who looks. `None`: a pass hangs, and what was shown before has to do.
    fn begin_soon(&self) -> Option<MutexGuard<'_, Assembly>> {
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

    /// What is read by a tick. `threads`: so many may read. Gives `false` if others' cgroups were not.
    pub(super) fn tick(&self, work: &mut Assembly, tick: Tick, moment: Moment, threads: NonZero<usize>) -> bool {
        let board = self.board.view();
        let is_watched = self.is_watched.swap(false, Ordering::Relaxed);
        let is_wanted = is_watched || self.foresight.get().is_some_and(|foresight| foresight());
        let pass = if work.shown == 0 { Pass::first(moment) } else { Pass::over_all(moment) };
        let mut pass = pass.on(threads);
        work.threads = threads;
        work.ticks += 1;
        // For the first one everybody waits; and what has begun or ended is built of what is read with it.
        let is_late = work.shown == 0 || work.ticks > work.shown + MOST_LEFT;
        let may_wait = !is_wanted && !is_late && work.seen == board.version && work.assembler.shows(&board);
        let whose = self.walk(work, &board, moment.now, may_wait);
        if whose != Some(Readers::All) {
            pass = pass.sparing_others();
        }
        if may_wait {
            if whose.is_some() {
                work.assembler.only_read(&board, &mut pass.silent());
            }
            work.left = Some(tick);
            self.is_left.store(true, Ordering::Release);
        } else {
            if work.left.is_some() {
                pass = pass.telling_all();
            }
            self.build(work, &board, tick, moment, &mut pass);
        }
        whose == Some(Readers::All)
    }

    /// Whose readers are to be asked at this tick, which have rows then. `may_wait`: nobody looks.
    fn walk(&self, work: &mut Assembly, board: &BoardView, now: Instant, may_wait: bool) -> Option<Readers> {
        let can_spare = may_wait && self.walks.can_spare_others(now);
        let since = work.others_read.filter(|_| can_spare).map(|at| now.saturating_duration_since(at));
        let runs = |alloc: &&Arc<Published>| !can_wait(alloc) && alloc.readers.iter().any(Option::is_some);
        let whose = asked(since, board.allocs.iter().any(|alloc| runs(&alloc)));
        if whose == Some(Readers::All) {
            self.walks.take(now, Readers::All);
            (work.others_read, work.others_wait) = (Some(now), false);
            return whose;
        }
        work.others_wait = true;
        // Of processes without a cgroup no row tells.
        if board.allocs.iter().filter(runs).any(|alloc| alloc.identity.source == AllocSource::Managed) {
            self.walks.take(now, Readers::Managed);
        }
        whose
    }

    /// The board has changed.
    pub(super) fn change(&self) {
        let mut work = self.begin();
        let (board, moment) = (self.board.view(), self.moment());
        let snapshot = work.assembler.change(&board, &mut Pass::over_new(moment), moment);
        self.show(&mut work, board.version, snapshot);
    }

    /// As a tick that nobody looked at.
    #[cfg(test)]
    pub(crate) fn leave(&self) {
        let mut work = self.begin();
        (work.ticks, work.left) = (work.ticks + 1, Some(Tick::default()));
        self.is_left.store(true, Ordering::Release);
    }

    fn put_together(&self) {
        let Some(mut work) = self.begin_soon() else { return };
        if let Some(tick) = work.left.take() {
            let (moment, board) = (self.moment(), self.board.view());
            let mut pass = Pass::over_new(moment).telling_all();
            if std::mem::take(&mut work.others_wait) && board.allocs.iter().any(|alloc| can_wait(alloc)) {
                self.walks.take(moment.now, Readers::Observed);
                work.others_read = Some(moment.now);
                pass = pass.with_others().on(work.threads);
            }
            self.build(&mut work, &board, tick, moment, &mut pass);
        }
    }

    fn build(&self, work: &mut Assembly, board: &BoardView, mut tick: Tick, moment: Moment, readings: &mut Pass) {
        self.is_left.store(false, Ordering::Release);
        // It has what those before it would have told.
        work.left = None;
        tick.unseen = work.ticks - work.shown - 1;
        tick.parents = parents::views(&board.parents, moment);
        work.shown = work.ticks;
        let (mut snapshot, withdrawn) = work.assembler.tick(board, readings, tick, moment);
        let mut version = board.version;
        if work.seen == 0 && self.board.version() != version {
            // A task that was found running and ended between the look at the board and its first reading has taken its cgroup
            // with it: nothing would be known of it here. The board knows already.
            let board = self.board.view();
            version = board.version;
            snapshot = work.assembler.change(&board, &mut Pass::over_new(moment), moment);
        }
        for (reason, series) in withdrawn.retired.iter().filter_map(|r| r.lost) {
            self.metrics.series_dropped(reason, series);
        }
        self.metrics.series_dropped(DropReason::Churn, withdrawn.unshown);
        self.show(work, version, snapshot);
    }

    fn show(&self, work: &mut Assembly, version: u64, snapshot: Arc<Snapshot>) {
        work.seen = version;
        self.board.mark(snapshot.steady_at);
        work.published = Instant::now();
        work.publish.send_replace(snapshot);
    }

    fn moment(&self) -> Moment {
        Moment { now: self.clock.instant(), at: self.clock.now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock::SystemClock;
    use crate::model::units::Timestamp;
    use crate::snapshot::Config;
    use crate::snapshot::itself::tests::info;

    #[test]
    fn what_others_run_is_read_at_each_fourth_tick_of_a_second_and_at_each_of_four() {
        let at = |tick: u64, ticks: u64| -> Vec<Option<Readers>> {
            let mut read = None;
            let turn = |n: u64| {
                let now = Duration::from_millis(n * tick);
                let whose = asked(read.map(|at| now.saturating_sub(at)), n.is_multiple_of(2));
                read = if whose == Some(Readers::All) { Some(now) } else { read };
                whose
            };
            (0..ticks).map(turn).collect()
        };
        let (all, ours) = (Some(Readers::All), Some(Readers::Managed));
        assert_eq!(at(1_000, 9), [all, None, ours, None, all, None, ours, None, all]);
        assert_eq!(at(4_000, 3), [all, all, all]);
        assert_eq!(asked(None, false), all, "somebody looks, or they were never read");
    }

    #[test]
    fn a_pass_that_hangs_keeps_nobody_from_what_was_shown() {
        let empty = Snapshot::empty(Arc::new(info()), Timestamp(7));
        let (publish, published) = watch::channel(Arc::new(empty.clone()));
        let of = (Arc::<Board>::default(), Arc::new(SystemClock) as Arc<dyn Clock>, Arc::new(Metrics::new()));
        let desk = Arc::new(Desk::new(of, Assembler::new(empty, &Config::default()), Walks::default(), publish));
        let snapshots = Snapshots::new(published, Arc::clone(&desk));
        desk.leave();
        assert_eq!(snapshots.newest().epoch, 1, "what was left is put together");
        desk.leave();
        let hangs = desk.begin();
        let seen = std::thread::scope(|scope| scope.spawn(|| snapshots.newest().epoch).join());
        assert_eq!(seen.ok(), Some(1));
        drop(hangs);
        assert_eq!(snapshots.newest().epoch, 2);
    }
}
