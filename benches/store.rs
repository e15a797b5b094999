//! What a durable record costs beside the same bytes written and synced by hand, alone and with others waiting; and
//! what a record costs that is there already. On the disk of `ALLOSTAT_TEST_DIR` or the temporary directory.
//!
//! `cargo bench --bench store`

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::runner::journal::Journal;
use allostat::store::{Batch, SledStore};
use allostat::telemetry::Metrics;
use common::test_dir;
use shared::report;

/// Of one alloc, as FLOORS.md measured its peers with.
const RECORD_BYTES: usize = 3_488;
const ROUNDS: u64 = 300;
const DUPLICATES: u32 = 20_000;
/// Writers at once, and the names of their figures.
const ROWS: [(usize, [&str; 4]); 3] = [
    (1, ["store/raw-1-p50", "store/write-1-p50", "store/write-1-p99", "store/commits-1"]),
    (16, ["store/raw-16-p50", "store/write-16-p50", "store/write-16-p99", "store/commits-16"]),
    (256, ["store/raw-256-p50", "store/write-256-p50", "store/write-256-p99", "store/commits-256"]),
];

/// The floor: a file that is appended to.
struct Raw {
    file: File,
    at: u64,
}

impl Raw {
    fn new(dir: &Path) -> Raw {
        Raw { file: File::create(dir.join("raw")).expect("the directory must be writable"), at: 0 }
    }
    /// One write of this many records, and one sync.
    fn write(&mut self, records: usize) -> Duration {
        let bytes = vec![7; records * RECORD_BYTES];
        let started_at = Instant::now();
        self.file.write_all_at(&bytes, self.at).expect("there must be room");
        self.file.sync_data().expect("the disk must answer");
        self.at += bytes.len() as u64;
        started_at.elapsed()
    }
}

fn record(writer: usize, round: u64) -> Batch {
    let mut value = vec![b'x'; RECORD_BYTES];
    value[..8].copy_from_slice(&round.to_le_bytes());
    let mut batch = Batch::default();
    batch.put(format!("task/{writer:04}/main"), value);
    batch
}

/// Every writer writes once; the time until the last one knows that its record is durable.
async fn together(journal: &Journal, writers: usize, round: u64) -> Duration {
    let batches: Vec<Batch> = (0..writers).map(|writer| record(writer, round)).collect();
    let started_at = Instant::now();
    let mut waiting = tokio::task::JoinSet::new();
    for batch in batches {
        let journal = journal.clone();
        waiting.spawn(async move { journal.commit(batch).await.expect("the disk must take it") });
    }
    while let Some(done) = waiting.join_next().await {
        done.expect("a writer must not panic");
    }
    started_at.elapsed()
}

fn micros(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6
}

/// Reads, writes and waits of this thread.
fn calls() -> [u64; 3] {
    let of = |file: &str, name: &str| -> u64 {
        let text = fs::read_to_string(file).expect("/proc must be there");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel counts it");
        line.trim().parse().expect("a number")
    };
    let (io, status) = ("/proc/thread-self/io", "/proc/thread-self/status");
    [of(status, "voluntary_ctxt_switches:"), of(io, "syscw:"), of(io, "syscr:")]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime must be makeable");
    let dir = test_dir();
    let store = Arc::new(SledStore::open(&dir.path().join("state")).expect("the store must open"));
    let metrics = Arc::new(Metrics::new());
    let journal = Journal::start(store, Arc::clone(&metrics)).expect("a thread must start");
    let mut raw = Raw::new(dir.path());
    let (mut round, mut alone) = (0, None);
    for (writers, [raw_name, name, slow_name, commits_name]) in ROWS {
        let (mut by_hand, mut own) = (Vec::new(), Vec::new());
        let commits = committed(&metrics);
        let rounds = if writers == 256 { ROUNDS / 5 } else { ROUNDS };
        for _ in 0..rounds {
            round += 1;
            by_hand.push(raw.write(writers));
            own.push(runtime.block_on(together(&journal, writers, round)));
        }
        #[allow(clippy::cast_precision_loss)] // Some thousands.
        let commits = (committed(&metrics) - commits) / rounds as f64;
        let (raw_50, raw_99) = (micros(&mut by_hand, 50), micros(&mut by_hand, 99));
        let (p50, p99) = (micros(&mut own, 50), micros(&mut own, 99));
        report(raw_name, raw_50, "us: the same bytes in one write and one fdatasync", None);
        report(name, p50, "us until all are durable", Some((p50 / raw_50, raw_name)));
        report(slow_name, p99, "us", Some((p99 / raw_99, "99 of 100 of the same by hand")));
        report(commits_name, commits, "commits for one write of each", None);
        let alone = *alone.get_or_insert(raw_50);
        if writers == 16 {
            let each = p50 / 16.0;
            report("store/write-16-each", each, "us each", Some((each / alone, "store/raw-1-p50")));
        }
    }

    let batches: Vec<Batch> = (0..DUPLICATES).map(|_| record(0, round)).collect();
    let before = calls();
    let reading = calls()[2] - before[2];
    let before = calls();
    let started_at = Instant::now();
    runtime.block_on(async {
        for batch in batches {
            journal.commit(batch).await.expect("nothing is to be done");
        }
    });
    let each = started_at.elapsed().as_secs_f64() * 1e6 / f64::from(DUPLICATES);
    let after = calls();
    report("store/duplicate", each, "us each", None);
    #[allow(clippy::cast_precision_loss)] // A few, or none.
    let made = (after[0] - before[0] + after[1] - before[1] + (after[2] - before[2]).saturating_sub(reading)) as f64;
    report("store/duplicate-calls", made, "reads, writes and waits of 20,000 duplicates", None);
}

/// Durable commits so far.
fn committed(metrics: &Metrics) -> f64 {
    let families = metrics.gather();
    let writes = families.iter().find(|family| family.name() == "allostat_state_db_writes_total");
    writes.map_or(0.0, |family| family.get_metric()[0].get_counter().get_value())
}
