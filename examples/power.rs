//! The writer of the power test (`xtask/src/power.rs`), which runs in a machine that is switched off under it.
//!
//! ```text
//! power DIR [unsynced]     checks DIR: prints `have WRITER N` (records 0..N of it are there), then `go`; then writes through
//!                          the agent's own journal for ever: `ack WRITER N` once record N of a writer is durable
//! ```
//! Three more writers are what OTLP keeps, beside DIR: batches that its queue has taken, batches that it has settled,
//! and the last sums that a collector received.
//!
//! `unsynced`, the negative control: fsync and fdatasync do nothing. What is lost then shows that the test can see a
//! loss.

#![allow(unsafe_code)] // Taking the place of two functions of the C library has no safe form.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allostat::host::clock::{Clock, SystemClock};
use allostat::runner::journal::Journal;
use allostat::store::keyed::{KeyedLog, KeyedState};
use allostat::store::queue::{PushOutcome, Queue, QueueLimits, SegmentFiles};
use allostat::store::{Batch, SledStore, Store};
use allostat::telemetry::Metrics;

const WRITERS: usize = 4;
const PUSHED: usize = WRITERS;
const SETTLED: usize = WRITERS + 1;
const RECEIVED: usize = WRITERS + 2;
/// A segment is a sixteenth: many come and go between two failures.
const QUEUE_BYTES: u64 = 1 << 20;
/// Batches that wait; fewer than fit in.
const BACKLOG: u64 = 300;

static UNSYNCED: AtomicBool = AtomicBool::new(false);

fn sync(number: libc::c_long, fd: libc::c_int) -> libc::c_int {
    if UNSYNCED.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: the system calls that the C library would have made, with the same one argument.
    -libc::c_int::from(unsafe { libc::syscall(number, fd) } != 0)
}

/// In the place of the C library's, for the whole program.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: libc::c_int) -> libc::c_int {
    sync(libc::SYS_fsync, fd)
}

/// See `fsync`.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: libc::c_int) -> libc::c_int {
    sync(libc::SYS_fdatasync, fd)
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader is gone with the machine.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn key(writer: usize, n: u64) -> String {
    format!("task/{writer}/{n:08}")
}

/// As large as a small task's record, and different from every other one.
fn value(writer: usize, n: u64) -> Vec<u8> {
    format!("{writer}:{n};").into_bytes().into_iter().cycle().take(600).collect()
}

/// How many records of a writer are there, one after the other; a record that is wrong or beyond a gap is said.
fn check(store: &dyn Store, writer: usize) -> u64 {
    let found = store.scan(&format!("task/{writer}/")).expect("the store must be readable");
    let mut next = 0;
    for (at, found) in found {
        if at != key(writer, next) || found != value(writer, next) {
            print_line(&format!("wrong {at} where {} was expected", key(writer, next)));
            break;
        }
        next += 1;
    }
    // Written in the same batch as the newest record.
    let counted = store.get(&format!("alloc/{writer}")).expect("the store must be readable");
    if counted.map_or(0, |n| String::from_utf8_lossy(&n).parse().unwrap_or(u64::MAX)) != next {
        print_line(&format!("wrong alloc/{writer}: half of a batch"));
    }
    next
}

/// What OTLP keeps: checked, and then written for ever. Each batch is one point.
struct DurableState {
    queue: Queue,
    received: KeyedLog,
    last: u64,
}

impl DurableState {
    fn open(sibling: &Path) -> DurableState {
        let limits = QueueLimits { bytes: QUEUE_BYTES, age: std::time::Duration::from_secs(86_400), memory_bytes: 0 };
        let queue = Queue::open(Box::new(SegmentFiles::new(&sibling.with_file_name("otlp"))), limits);
        let ledger = queue.ledger();
        if !ledger.balances() || ledger.rejected > 0 || ledger.dropped.iter().any(|n| *n > 0) {
            print_line(&format!("wrong ledger: {ledger:?}"));
        }
        if let Some(error) = &queue.refused {
            print_line(&format!("wrong queue: {error}"));
        }
        let (received, state) = KeyedLog::open(&sibling.with_file_name("received"));
        if state == KeyedState::Damaged {
            print_line("wrong received: it is damaged");
        }
        let last = received.get(1).map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap_or(u64::MAX));
        // Written in the same commit.
        if last > 0 && received.get(u128::from(2 + last % 50)) != Some(value(RECEIVED, last).as_slice()) {
            print_line("wrong received: half of a commit");
        }
        for (writer, n) in [(PUSHED, ledger.enqueued), (SETTLED, ledger.exported), (RECEIVED, last)] {
            print_line(&format!("have {writer} {n}"));
        }
        DurableState { queue, received, last }
    }

    fn write(mut self) {
        loop {
            let ledger = self.queue.ledger();
            match self.queue.push(SystemClock.now(), 1, value(PUSHED, ledger.enqueued)) {
                PushOutcome::Durable => print_line(&format!("ack {PUSHED} {}", ledger.enqueued)),
                other => return print_line(&format!("wrong push: {other:?}")),
            }
            while self.queue.ledger().queued > BACKLOG {
                let settled = self.queue.ledger().exported;
                let Some(front) = self.queue.front(SystemClock.now()) else {
                    return print_line("wrong front: there is none");
                };
                if front.bytes != value(PUSHED, settled) {
                    return print_line(&format!("wrong front: {} where {settled} was expected", front.id));
                }
                self.queue.settle(SystemClock.now(), front.id, 0);
                if let Some(error) = &self.queue.refused {
                    return print_line(&format!("wrong settle: {error}"));
                }
                print_line(&format!("ack {SETTLED} {settled}"));
            }
            let next = self.last + 1;
            let changes = [(1, next.to_string().into_bytes()), (u128::from(2 + next % 50), value(RECEIVED, next))];
            if let Err(error) = self.received.commit(&changes.map(|(key, value)| (key, Some(value)))) {
                return print_line(&format!("wrong received: {error}"));
            }
            print_line(&format!("ack {RECEIVED} {}", self.last));
            self.last = next;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().expect("power DIR [unsynced]");
    UNSYNCED.store(args.iter().any(|arg| arg == "unsynced"), Ordering::Relaxed);
    let store = Arc::new(SledStore::open(Path::new(dir)).expect("the store must open, whatever the power did"));
    for (key, word) in store.scan("quarantine/").expect("the store must be readable") {
        print_line(&format!("wrong {key}: {}", String::from_utf8_lossy(&word)));
    }
    let begin: Vec<u64> = (0..WRITERS).map(|writer| check(store.as_ref(), writer)).collect();
    for (writer, n) in begin.iter().enumerate() {
        print_line(&format!("have {writer} {n}"));
    }
    let retained = DurableState::open(Path::new(dir));
    let journal = Journal::start(store, Arc::new(Metrics::new())).expect("a thread must start");
    print_line("go");
    std::thread::spawn(move || retained.write());
    let mut writers = tokio::task::JoinSet::new();
    for (writer, begin) in begin.into_iter().enumerate() {
        let journal = journal.clone();
        writers.spawn(async move {
            for n in begin.. {
                let mut batch = Batch::default();
                batch.put(key(writer, n), value(writer, n));
                batch.put(format!("alloc/{writer}"), (n + 1).to_string().into_bytes());
                match journal.commit(batch).await {
                    Ok(()) => print_line(&format!("ack {writer} {n}")),
                    Err(error) => return print_line(&format!("wrong commit: {error}")),
                }
            }
        });
    }
    while writers.join_next().await.is_some() {}
}
