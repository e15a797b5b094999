//! An hour in which no collector takes anything, by a simulated clock, on real files: a process of its own fills and
//! empties the queue, and is killed.
//!
//! Promise (Measured values): An hour of outage with two kills delivers each point in order; only points in flight are
//! repeated

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use allostat::model::units::{Nanos, Timestamp};
use allostat::store::queue::{PushOutcome, Queue, QueueLimits, SegmentFiles};

use crate::common::{end, test_dir};

const LIMITS: QueueLimits =
    QueueLimits { bytes: 16 << 20, age: Duration::from_secs(48 * 3_600), memory_bytes: 1 << 20 };
const BEGAN: Timestamp = Timestamp(1_800_000_000_000_000_000);
/// Between two collections, and between two tries.
const STEP: Nanos = Nanos(10_000_000_000);
/// Of an hour.
const STEPS: u64 = 360;
const POINTS: u64 = 50;

/// Says to a process that it is the one that is killed: `fill` or `empty`, and where the queue is.
const WHAT: &str = "ALLOSTAT_TEST_OUTAGE";
/// Behind which number it waits to be killed.
const UNTIL: &str = "ALLOSTAT_TEST_OUTAGE_UNTIL";
const WHERE: &str = "ALLOSTAT_TEST_OUTAGE_DIR";
const CHILD_TEST: &str = "otlp::outage::child_process_fills_and_empties_the_queue";

fn opened(dir: &Path) -> Queue {
    Queue::open(Box::new(SegmentFiles::new(dir)), LIMITS)
}

/// A batch of points of one moment, which it names.
fn batch(step: u64) -> Vec<u8> {
    (0..POINTS).flat_map(|point| [step.to_le_bytes(), point.to_le_bytes()].concat()).collect()
}

/// Nothing by itself: the test below runs it as another process.
#[test]
fn child_process_fills_and_empties_the_queue() {
    let (Ok(what), Ok(dir)) = (std::env::var(WHAT), std::env::var(WHERE)) else { return };
    let mut queue = opened(Path::new(&dir));
    if what == "fill" {
        // It goes on behind what it had queued before it was killed.
        let done = queue.ledger().enqueued / POINTS;
        for step in done..STEPS {
            let now = BEGAN.plus(Nanos(STEP.0 * step));
            assert_eq!(queue.push(now, POINTS, batch(step)), PushOutcome::Durable);
            // Tried, and not taken.
            assert_eq!(queue.front(now).expect("a batch").bytes, batch(0), "the oldest, until it is taken");
            let ledger = queue.ledger();
            assert!(ledger.balances() && ledger.queued == (step + 1) * POINTS, "{ledger:?}");
            print_step(step);
        }
        return;
    }
    let now = BEGAN.plus(Nanos(STEP.0 * STEPS));
    while let Some(parcel) = queue.front(now) {
        let step = u64::from_le_bytes(parcel.bytes[..8].try_into().expect("eight bytes"));
        assert_eq!(parcel.bytes, batch(step));
        // The collector has it, whatever becomes of who sent it.
        print_step(step);
        queue.settle(now, parcel.id, 0);
    }
}

fn print_step(step: u64) {
    println!("\nsaid {step}");
    while std::env::var(UNTIL).is_ok_and(|until| until == step.to_string()) {
        std::thread::park();
    }
}

fn start(what: &str, dir: &Path, until: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own binary"));
    command.args(["--exact", CHILD_TEST, "--nocapture", "--test-threads=1"]).env(WHAT, what).env(WHERE, dir);
    command.envs(until.map(|until| (UNTIL, until.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// All that it said, over kills behind the numbers in `kills`: what each of those processes said.
fn killed(what: &str, dir: &Path, kills: &[u64]) -> Vec<Vec<u64>> {
    let mut reported = Vec::new();
    for kill in kills.iter().copied().map(Some).chain([None]) {
        let mut child = start(what, dir, kill);
        let mut own = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("text");
            let Some(step) = line.strip_prefix("said ").and_then(|step| step.parse().ok()) else { continue };
            own.push(step);
            if kill == Some(step) {
                end(child.id());
            }
        }
        let status = child.wait().expect("our own child");
        assert_eq!(status.success(), kill.is_none(), "{status} {own:?}");
        reported.push(own);
    }
    reported
}

#[test]
fn outage_of_an_hour_with_two_kills_delivers_each_point_in_order() {
    let dir = test_dir();
    killed("fill", dir.path(), &[STEPS / 3, STEPS / 2]);
    let ledger = opened(dir.path()).ledger();
    assert_eq!((ledger.enqueued, ledger.queued), (STEPS * POINTS, STEPS * POINTS), "each is there once");
    // It is back, and who sends is killed twice more.
    let taken = killed("empty", dir.path(), &[STEPS / 4, STEPS / 2]);
    let mut next = 0;
    for (process, own) in taken.iter().enumerate() {
        let first = *own.first().expect("each takes some");
        // What one that was killed had sent last may not have been noted any more.
        let is_again = process > 0 && first + 1 == next;
        assert!(first == next || is_again, "{first} behind {next}");
        assert_eq!(*own, (first..first + own.len() as u64).collect::<Vec<_>>(), "each once, in its order");
        next = first + own.len() as u64;
    }
    assert_eq!(next, STEPS);
    let ledger = opened(dir.path()).ledger();
    assert_eq!((ledger.enqueued, ledger.exported, ledger.queued), (STEPS * POINTS, STEPS * POINTS, 0));
}
