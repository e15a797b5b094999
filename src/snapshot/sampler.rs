//! The one thread that samples: at each tick, and at once when the board changes. A client's read may complete a tick.
//!
//! ```text
//!         ┌──────── deadline reached ───► collect host, read every alloc, to the publisher (epoch + 1) ─┐
//! wait ───┤                                                                                             ├──► wait
//!         └── board changed ── 2 ms since the last one? ──► publish what changed, read what has begun ──┘
//! ```
//! Deadlines do not drift: the next one is counted from the last one, and those that were missed are counted.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::agent::{self, CollectorRecord, TASKS};
use super::assemble::{Assembler, ClockReading, TickInputs};
use super::publisher::{KernelPassAccess, SnapshotPublisher, Snapshots};
use super::scrapers::SharedScrapers;
use super::{Config, PreviousTick, Snapshot};
use crate::board::Board;
use crate::board::devices::DeviceSource;
use crate::collectors::{Collector, ErrorReason, SamplingContext, capability};
use crate::host::clock::Clock;
use crate::model::host::NodeInfo;
use crate::model::metric::Samples;
use crate::model::units::{Nanos, Timestamp};
use crate::telemetry::{Metrics, chain, logging};

/// Changes within so long after a publication share the next one.
const COALESCE: Duration = Duration::from_millis(2);
/// A pass after one that took longer is shared by all cores, and so is the first, which opens every file. A shorter one
/// would gain too little.
const LONG: Duration = Duration::from_millis(50);
/// A difference between the two clocks that is a jump and no drift.
const STEP: Duration = Duration::from_millis(500);

/// Dependencies of a sampler: configuration, sources of values, and receivers of its results.
pub struct Parts {
    pub config: Config,
    pub board: Arc<Board>,
    /// `None`: no device is followed.
    pub devices: Option<Arc<dyn DeviceSource>>,
    pub sampling: Arc<SamplingContext>,
    pub collectors: Vec<Box<dyn Collector>>,
    pub info: Arc<NodeInfo>,
    pub metrics: Arc<Metrics>,
    pub scrapers: Arc<SharedScrapers>,
    pub clock: Arc<dyn Clock>,
}

/// A running sampler. Dropping it ends the thread within a tick.
pub struct Sampler {
    pub snapshots: Snapshots,
    pub heartbeat: Arc<Heartbeat>,
    stop: Arc<AtomicBool>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Time of the last tick. `/healthz` reports the agent as unhealthy if it is too long ago.
#[derive(Debug)]
pub struct Heartbeat {
    started: Instant,
    tick: Duration,
    last_nanos: AtomicU64,
}

impl Heartbeat {
    pub fn new(tick: Duration) -> Heartbeat {
        Heartbeat { started: Instant::now(), tick, last_nanos: AtomicU64::new(0) }
    }
    pub fn beat(&self) {
        self.last_nanos.store(Nanos::from_duration(self.started.elapsed()).0, Ordering::Relaxed);
    }
    /// How long ago the last tick was (or the start).
    pub fn age(&self) -> Duration {
        self.started.elapsed().saturating_sub(Nanos(self.last_nanos.load(Ordering::Relaxed)).as_duration())
    }
    /// Not more than three ticks were missed.
    pub fn alive(&self) -> bool {
        self.age() < self.tick * 4
    }
}

impl Sampler {
    /// Starts the thread. Errors: no thread could be started.
    pub fn start(parts: Parts) -> std::io::Result<Sampler> {
        let empty = empty(&parts);
        let (publish, snapshots) = watch::channel(Arc::new(empty.clone()));
        let heartbeat = Arc::new(Heartbeat::new(parts.config.tick));
        let stop = Arc::new(AtomicBool::new(false));
        let work = SamplerThread::new(parts, empty, publish, Arc::clone(&heartbeat));
        let stopped = Arc::clone(&stop);
        let snapshots = Snapshots::new(snapshots, Arc::clone(&work.publisher));
        std::thread::Builder::new().name("sampler".into()).spawn(move || work.run(&stopped))?;
        Ok(Sampler { snapshots, heartbeat, stop })
    }
}

/// Nothing yet. Dwells count on from where an agent before this one had shown them: the wall clock may have gone back
/// since.
fn empty(parts: &Parts) -> Snapshot {
    let mut empty = Snapshot::empty(Arc::clone(&parts.info), parts.clock.now());
    empty.steady_at = empty.steady_at.max(parts.board.marked());
    empty
}

/// One pass over the host and the cgroups, without a thread: for `allostat metrics` where no agent runs.
pub fn once(parts: Parts) -> Arc<Snapshot> {
    let empty = empty(&parts);
    let (publish, snapshots) = watch::channel(Arc::new(empty.clone()));
    let mut work = SamplerThread::new(parts, empty, publish, Arc::new(Heartbeat::new(Duration::ZERO)));
    work.tick();
    Arc::clone(&snapshots.borrow())
}

struct SamplerThread {
    parts: Parts,
    publisher: Arc<SnapshotPublisher>,
    heartbeat: Arc<Heartbeat>,
    /// Of the tasks' readers first, then of each host collector.
    records: Vec<CollectorRecord>,
    clocks: (Instant, Timestamp),
    /// A long pass is shared by so many.
    threads: NonZero<usize>,
    /// The last one over everything; `None`: there was none yet.
    took: Option<Duration>,
    before: Option<Arc<PreviousTick>>,
}

impl SamplerThread {
    fn new(
        parts: Parts,
        empty: Snapshot,
        publish: watch::Sender<Arc<Snapshot>>,
        heartbeat: Arc<Heartbeat>,
    ) -> SamplerThread {
        let names = std::iter::once(TASKS).chain(parts.collectors.iter().map(|c| c.name()));
        let records: Vec<CollectorRecord> = names.map(CollectorRecord::new).collect();
        for record in &records {
            parts.metrics.collector_known(record.name);
        }
        let clocks = (parts.clock.instant(), parts.clock.now());
        let of = (Arc::clone(&parts.board), Arc::clone(&parts.clock), Arc::clone(&parts.metrics));
        let reports_ends = parts.info.can(capability::KERNEL_ENDS);
        let kernel_pass = KernelPassAccess { sampling: Some(Arc::clone(&parts.sampling)), reports_ends };
        let publisher =
            Arc::new(SnapshotPublisher::new(of, Assembler::new(empty, &parts.config), kernel_pass, publish));
        // Once: it reads files.
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        SamplerThread { parts, publisher, heartbeat, records, clocks, threads, took: None, before: None }
    }

    fn run(mut self, stop: &AtomicBool) {
        let tick = self.parts.config.tick;
        let mut deadline = Instant::now();
        let publisher = Arc::clone(&self.publisher);
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let (seen, published) = publisher.newest();
            if now >= deadline {
                self.tick();
                let (next, skipped) = next_deadline(deadline, tick, Instant::now());
                deadline = next;
                if skipped > 0 {
                    self.parts.metrics.ticks_skipped(skipped);
                }
            } else if self.parts.board.version() != seen {
                let free = published + COALESCE;
                match free.min(deadline).checked_duration_since(now) {
                    Some(wait) if !wait.is_zero() => std::thread::sleep(wait),
                    _ => publisher.change(),
                }
            } else {
                self.parts.board.wait_change(seen, deadline - now);
            }
        }
    }

    fn tick(&mut self) {
        let began = self.moment();
        self.watch_clock(began);
        let mut host = Samples::default();
        for (collector, record) in self.parts.collectors.iter_mut().zip(&mut self.records[1..]) {
            collect(collector.as_mut(), record, &self.parts.sampling, &mut host, &self.parts.metrics, began.at);
        }
        let started = Instant::now();
        let publisher = Arc::clone(&self.publisher);
        let mut work = publisher.begin();
        // A client in the meantime has read later than this tick began.
        let moment = self.moment();
        let mut agent = Samples::default();
        self.records[0].last_sample = Some(moment.at);
        for (slot, (_, n)) in self.records[0].errors.iter_mut().zip(self.parts.sampling.errors.iter()) {
            *slot = n;
        }
        agent::collectors(&mut agent, &self.records, Nanos::from_duration(self.parts.config.tick));
        agent::capabilities(&mut agent, &self.parts.info);
        agent::descriptors(&mut agent, &self.parts.sampling);
        agent::process(&mut agent, &self.parts.sampling.roots, &self.parts.info);
        let threads = if self.took.is_none_or(|took| took > LONG) { self.threads } else { NonZero::<usize>::MIN };
        let acknowledged = self.parts.scrapers.acknowledged_by_all(moment.now);
        let oldest = self.records.iter().filter_map(|r| Some((r.name, r.oldest?))).collect();
        let devices = self.parts.devices.as_ref().map(|devices| devices.view()).unwrap_or_default();
        let services = self.parts.board.services.all();
        let host = Arc::new(host);
        let this = PreviousTick { at: began.at, host: Arc::clone(&host), own_cpu_ns: agent::cpu_ns(&agent) };
        let before = self.before.replace(Arc::new(this));
        let tick = TickInputs {
            at: began.at,
            host,
            agent,
            before,
            devices,
            services,
            oldest,
            acknowledged,
            ..TickInputs::default()
        };
        let was_whole = publisher.tick(&mut work, tick, moment, threads);
        drop(work);
        let took = started.elapsed();
        if was_whole {
            self.took = Some(took);
        }
        self.parts.metrics.collector_took(TASKS, took);
        self.heartbeat.beat();
        logging::log_suppressed(&self.parts.metrics);
    }

    fn moment(&self) -> ClockReading {
        ClockReading { now: self.parts.clock.instant(), at: self.parts.clock.now() }
    }

    fn watch_clock(&mut self, moment: ClockReading) {
        let (instant, wall) = std::mem::replace(&mut self.clocks, (moment.now, moment.at));
        let expected = wall.plus(Nanos::from_duration(moment.now.saturating_duration_since(instant)));
        if moment.at.0.abs_diff(expected.0) > Nanos::from_duration(STEP).0 {
            tracing::warn!(from = expected.0, to = moment.at.0, "wall clock jumped");
            self.parts.metrics.clock_stepped();
        }
    }
}

/// One collector's pass: its duration, outcome and errors are measured for it, and its failure is its own.
fn collect(
    collector: &mut dyn Collector,
    record: &mut CollectorRecord,
    sampling: &SamplingContext,
    out: &mut Samples,
    metrics: &Metrics,
    at: Timestamp,
) {
    let (started, before) = (Instant::now(), out.0.len());
    let result = collector.collect(&sampling.roots, out);
    metrics.collector_took(record.name, started.elapsed());
    record.stuck = collector.stuck();
    if let Err(error) = &result
        && let Some(reason) = error.reason()
    {
        record.count(reason);
        if reason != ErrorReason::NotFoundRace {
            tracing::warn!(collector = record.name, error = %chain(error), "collector failed");
        }
    }
    record.oldest = None;
    if out.0.len() > before {
        record.last_sample = Some(at);
        record.oldest = Some(Timestamp(at.0.saturating_sub(Nanos::from_duration(collector.age()).0)));
    }
}

/// The first deadline after `now`, and how many lay between.
fn next_deadline(deadline: Instant, tick: Duration, now: Instant) -> (Instant, u64) {
    let tick = tick.max(Duration::from_millis(1));
    let late = now.saturating_duration_since(deadline);
    let missed = late.as_nanos() / tick.as_nanos();
    let missed = u32::try_from(missed).unwrap_or(u32::MAX);
    (deadline + tick * missed.saturating_add(1), u64::from(missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_do_not_drift_and_missed_ones_are_counted() {
        let start = Instant::now();
        let tick = Duration::from_secs(1);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(next_deadline(start, tick, at(3)), (at(1_000), 0));
        assert_eq!(next_deadline(start, tick, at(999)), (at(1_000), 0));
        assert_eq!(next_deadline(start, tick, at(1_000)), (at(2_000), 1));
        assert_eq!(next_deadline(start, tick, at(3_700)), (at(4_000), 3));
    }

    #[test]
    fn a_heart_that_missed_three_ticks_still_beats_and_then_not() {
        let heart = Heartbeat::new(Duration::from_millis(20));
        // Between the two of a try this thread may be kept waiting for longer than three ticks.
        let beats = || {
            heart.beat();
            heart.alive()
        };
        assert!((0..1_000).any(|_| beats()));
        std::thread::sleep(Duration::from_millis(90));
        assert!(!heart.alive());
        assert!((0..1_000).any(|_| beats()));
    }
}
