//! An hour in which nobody takes anything, by a clock that is told, on real files.

use std::path::Path;
use std::time::Duration;

use allostat::model::units::{Nanos, Timestamp};
use allostat::store::queue::{Accepted, Parcel, Queue, QueueLimits, SegmentFiles};

use super::common::test_dir;

const LIMITS: QueueLimits =
    QueueLimits { bytes: 16 << 20, age: Duration::from_secs(48 * 3_600), memory_bytes: 1 << 20 };
/// Between two collections, and between two tries.
const STEP: Nanos = Nanos(10_000_000_000);
/// Of an hour.
const STEPS: u64 = 360;
const POINTS: u64 = 50;

/// As an agent that was killed leaves it: what it had in memory is gone, what it had written is there.
fn opened(dir: &Path) -> Queue {
    Queue::open(Box::new(SegmentFiles::new(dir)), LIMITS)
}

/// A batch of points of one moment, which it names.
fn batch(step: u64) -> Vec<u8> {
    (0..POINTS).flat_map(|point| [step.to_le_bytes(), point.to_le_bytes()].concat()).collect()
}

#[test]
fn an_hour_of_outage_with_two_kills_in_it_delivers_each_point_in_order_and_twice_only_what_was_in_flight() {
    let dir = test_dir();
    let mut queue = opened(dir.path());
    let mut now = Timestamp(1_800_000_000_000_000_000);
    for step in 0..STEPS {
        now = now.plus(STEP);
        assert_eq!(queue.push(now, POINTS, batch(step)), Accepted::Durable);
        // Tried, and not taken.
        let tried = queue.front(now).expect("a batch");
        assert_eq!(tried.bytes, batch(0), "the oldest, until it is taken");
        if [STEPS / 3, STEPS / 2].contains(&step) {
            queue = opened(dir.path());
        }
        let ledger = queue.ledger();
        assert!(ledger.balances() && ledger.queued == (step + 1) * POINTS, "{ledger:?}");
    }
    // It is back; twice the agent is killed between the answer and the note of it.
    let (mut taken, mut in_flight): (Vec<Parcel>, Vec<u64>) = (Vec::new(), Vec::new());
    while let Some(parcel) = queue.front(now) {
        let (id, count) = (parcel.id, taken.len() as u64);
        taken.push(parcel);
        if [STEPS / 4, STEPS / 2].contains(&count) {
            in_flight.push(id);
            queue = opened(dir.path());
        } else {
            queue.settle(now, id, 0);
        }
    }
    let mut twice = Vec::new();
    taken.dedup_by(|parcel, before| {
        let is_same = parcel.id == before.id;
        assert!(!is_same || parcel == before, "what comes twice is the same");
        twice.extend(is_same.then_some(parcel.id));
        is_same
    });
    assert_eq!(twice, in_flight);
    let told: Vec<Vec<u8>> = taken.into_iter().map(|parcel| parcel.bytes).collect();
    assert_eq!(told, (0..STEPS).map(batch).collect::<Vec<_>>(), "each once, in its order");
    let ledger = queue.ledger();
    assert_eq!((ledger.enqueued, ledger.exported, ledger.queued), (STEPS * POINTS, STEPS * POINTS, 0));
}
