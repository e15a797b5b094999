//! How long an event takes to all its readers, beside waking as many by hand; and what readers of events cost the
//! thread that records them.
//!
//! `cargo bench --bench broadcast`

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allostat::board::events::EventLog;
use allostat::model::event::{Event, EventKind};
use allostat::model::small_map::SmallMap;
use allostat::model::units::Timestamp;
use shared::{median, p99, report};
use tokio::sync::Notify;

const LISTENERS: usize = 1000;
const ROUNDS: usize = 300;
const EVENTS: usize = 200_000;
const TURNS: usize = 7;

/// Counts which listeners have seen a round, and wakes the waiter when all have.
#[derive(Default)]
struct Tally {
    seen: AtomicUsize,
    all: Notify,
}

impl Tally {
    fn saw(&self) {
        if self.seen.fetch_add(1, Ordering::SeqCst) + 1 == LISTENERS {
            self.all.notify_one();
        }
    }
    /// From `wake` until all have seen what it woke them for.
    async fn time(&self, wake: impl FnOnce()) -> f64 {
        self.seen.store(0, Ordering::SeqCst);
        let started_at = Instant::now();
        wake();
        self.all.notified().await;
        let took = started_at.elapsed();
        // All wait again.
        tokio::time::sleep(Duration::from_millis(2)).await;
        took.as_secs_f64() * 1e6
    }
}

fn main() {
    // As the agent's own.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime must be makeable");
    runtime.block_on(broadcast());
    events(&runtime);
}

async fn broadcast() {
    let (floor_tally, tally) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
    let bells: Vec<Arc<Notify>> = (0..LISTENERS).map(|_| Arc::default()).collect();
    for wake in &bells {
        let (wake, tally) = (Arc::clone(wake), Arc::clone(&floor_tally));
        tokio::spawn(async move {
            loop {
                wake.notified().await;
                tally.saw();
            }
        });
    }
    let log = Arc::new(EventLog::default());
    for _ in 0..LISTENERS {
        let (mut reader, tally) = (log.follow(0), Arc::clone(&tally));
        tokio::spawn(async move {
            while reader.next(64).await.is_some() {
                tally.saw();
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (mut floor, mut own, mut sending) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        floor.push(floor_tally.time(|| bells.iter().for_each(|wake| wake.notify_one())).await);
        let took = tally.time(|| {
            let started_at = Instant::now();
            show(&log, round);
            sending.push(started_at.elapsed().as_secs_f64() * 1e6);
        });
        own.push(took.await);
    }
    let (floor_50, floor_99) = (median(&mut floor), p99(&mut floor));
    report("broadcast/floor-1000-p50", floor_50, "us: 1,000 tokio tasks woken one by one", None);
    report("broadcast/floor-1000-p99", floor_99, "us", None);
    let (own_p50, own_p99) = (median(&mut own), p99(&mut own));
    report(
        "broadcast/1000-p50",
        own_p50,
        "us, from its record until all 1,000 have seen it",
        Some((own_p50 / floor_50, "broadcast/floor-1000-p50")),
    );
    report("broadcast/1000-p99", own_p99, "us", Some((own_p99 / floor_99, "broadcast/floor-1000-p99")));
    report("broadcast/send-1000", median(&mut sending), "us of the recording thread", None);
    log.close();
}

/// One event more, numbered and shown.
fn show(log: &EventLog, n: usize) {
    let staged = log.stage(Event {
        seq: 0,
        task_seq: n as u64,
        time: Timestamp(1),
        kind: EventKind::Started,
        workload: Some("job".into()),
        alloc_id: Some("alloc".into()),
        task: Some("task".into()),
        message: String::new(),
        details: SmallMap::default(),
        fails_task: false,
    });
    log.settle(&[staged.seq]);
}

/// How the log is read while events are recorded.
#[derive(Clone, Copy)]
enum Reading {
    NoReader,
    Never,
    Keen,
}

fn events(runtime: &tokio::runtime::Runtime) {
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (at, reading) in [Reading::NoReader, Reading::Never, Reading::Keen].into_iter().enumerate() {
            rates[at].push(rate(runtime, reading));
        }
    }
    let [alone, never, keen] = rates.map(|mut rates| median(&mut rates));
    report("events/no-reader", alone, "million events a second, numbered and shown one by one", None);
    report("events/one-never-reads", never, "million events a second", Some((alone / never, "no reader, in time")));
    report("events/one-reads-all", keen, "million events a second", Some((alone / keen, "no reader, in time")));
}

/// Million events a second.
#[allow(clippy::cast_precision_loss)] // Some hundred thousand.
fn rate(runtime: &tokio::runtime::Runtime, reading: Reading) -> f64 {
    let log = Arc::new(EventLog::default());
    let never = matches!(reading, Reading::Never).then(|| log.follow(0));
    if let Reading::Keen = reading {
        let mut reader = log.follow(0);
        runtime.spawn(async move { while reader.next(64).await.is_some() {} });
    }
    let started_at = Instant::now();
    for n in 0..EVENTS {
        show(&log, n);
    }
    let rate = EVENTS as f64 / started_at.elapsed().as_secs_f64() / 1e6;
    drop(never);
    log.close();
    rate
}
