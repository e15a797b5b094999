//! The queue between collection and delivery, and its metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::host::clock::{Clock, SystemClock};
use crate::store::queue::{Parcel, PushOutcome, Queue};
use crate::telemetry::otlp::{Lane, LossReason, OtlpSignal, PushState};
use crate::telemetry::{Metrics, lock};

/// So often a waiting thread checks whether it is to end, and whether something is too old.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Concurrency: any thread; callers wait for the disk.
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    came: Condvar,
    is_closed: AtomicBool,
    /// Points that were turned away while the disk was busy.
    turned_away: AtomicU64,
    lane: Lane,
    metrics: Arc<Metrics>,
}

impl Outbox {
    pub fn new(lane: Lane, queue: Queue, capacity_bytes: u64, metrics: Arc<Metrics>) -> Outbox {
        metrics.push.update(&lane, |state| state.capacity_bytes = capacity_bytes);
        let outbox = Outbox {
            queue: Mutex::new(queue),
            came: Condvar::new(),
            is_closed: AtomicBool::new(false),
            turned_away: AtomicU64::new(0),
            lane,
            metrics,
        };
        outbox.publish(&lock(&outbox.queue));
        outbox
    }

    pub fn destination(&self) -> &str {
        &self.lane.0
    }
    pub fn signal(&self) -> OtlpSignal {
        self.lane.1
    }

    /// Takes batches over, with their points: what the disk refuses waits in memory.
    pub fn push(&self, batches: Vec<(u64, Vec<u8>)>) {
        let mut queue = lock(&self.queue);
        if self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        match self.turned_away.swap(0, Ordering::SeqCst) {
            0 => {}
            points => queue.lost_before(points, LossReason::SlowDisk),
        }
        for (points, bytes) in batches {
            let accepted = queue.push(SystemClock.now(), points, bytes);
            self.accepted(&queue, accepted, points);
        }
        self.publish(&queue);
        drop(queue);
        self.came.notify_all();
    }

    /// Takes one batch over under a number of its own, which is higher than that of any before it. `false`: it is not
    /// durable.
    pub fn push_as(&self, id: u64, (points, bytes): (u64, Vec<u8>)) -> bool {
        let mut queue = lock(&self.queue);
        if self.is_closed.load(Ordering::SeqCst) {
            return false;
        }
        let accepted = queue.push_as(SystemClock.now(), id, points, bytes);
        self.accepted(&queue, accepted, points);
        self.publish(&queue);
        drop(queue);
        self.came.notify_all();
        accepted == PushOutcome::Durable
    }

    /// Writes batches that an earlier failure left in memory. `false`: the disk still refuses them, or the outbox is
    /// closed.
    pub fn flush(&self) -> bool {
        let mut queue = lock(&self.queue);
        if self.is_closed.load(Ordering::SeqCst) {
            return false;
        }
        let is_durable = queue.flush(SystemClock.now());
        self.publish(&queue);
        is_durable
    }

    fn accepted(&self, queue: &Queue, accepted: PushOutcome, points: u64) {
        if accepted != PushOutcome::Durable {
            let error = queue.refused.as_ref().map(ToString::to_string);
            let (destination, signal) = (self.destination(), self.signal().as_str());
            tracing::error!(
                destination,
                signal,
                error,
                points,
                "queued points are not persisted: the disk refuses writes"
            );
        }
    }

    /// These never came to the door.
    pub fn lost(&self, points: u64, reason: LossReason) {
        let mut queue = lock(&self.queue);
        if !self.is_closed.load(Ordering::SeqCst) {
            queue.lost_before(points, reason);
            self.publish(&queue);
        }
    }

    /// Drops and counts points that come while the disk is busy with earlier ones.
    pub fn drop_points(&self, points: u64) {
        tracing::error!(
            destination = self.destination(),
            signal = self.signal().as_str(),
            points,
            "points dropped: the disk is still busy with earlier ones"
        );
        self.turned_away.fetch_add(points, Ordering::SeqCst);
    }

    /// Points that wait.
    #[cfg(test)]
    pub fn queued(&self) -> u64 {
        lock(&self.queue).ledger().queued
    }

    /// Waits for the oldest parcel. `None`: it is over.
    pub fn next(&self) -> Option<Parcel> {
        let mut queue = lock(&self.queue);
        loop {
            if self.is_closed.load(Ordering::SeqCst) {
                return None;
            }
            let front = queue.front(SystemClock.now());
            self.publish(&queue);
            if front.is_some() {
                return front;
            }
            queue = self.came.wait_timeout(queue, CHECK_EVERY).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    pub fn settle(&self, id: u64, rejected: u64) {
        let mut queue = lock(&self.queue);
        // The next agent may have them already.
        if !self.is_closed.load(Ordering::SeqCst) {
            queue.settle(SystemClock.now(), id, rejected);
            self.publish(&queue);
        }
    }

    /// Waits, or until it is over.
    pub fn rest(&self, wait: Duration) {
        let mut left = wait;
        while !left.is_zero() && !self.is_closed.load(Ordering::SeqCst) {
            let step = left.min(CHECK_EVERY);
            std::thread::sleep(step);
            left -= step;
        }
    }

    pub fn count_request(&self, code: String, is_retry: bool, took: Duration) {
        self.metrics.push.count_request(&self.lane, code, is_retry, took);
    }

    /// Nothing is written any more once it returns but what is being written.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.came.notify_all();
    }

    fn publish(&self, queue: &Queue) {
        self.metrics.push.update(&self.lane, |state| {
            *state = PushState {
                ledger: queue.ledger(),
                bytes: queue.waiting_bytes(),
                segments: queue.segments() as u64,
                oldest: queue.oldest(),
                in_memory: queue.in_memory() as u64,
                corrupt_records: queue.corrupt_records,
                truncated_bytes: queue.truncated_bytes,
                capacity_bytes: state.capacity_bytes,
                requests: std::mem::take(&mut state.requests),
                retries: state.retries,
            };
        });
    }
}

/// Promise (Measured values): Points dropped because of a busy disk, and events that expired, are counted as lost, with
/// the reason
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::queue::{QueueLimits, SegmentFiles};

    /// Points that never reach the queue are counted in its ledger all the same, with the reason.
    #[test]
    fn points_dropped_by_a_busy_disk_and_expired_events_are_counted_as_lost() {
        let dir = tempfile::tempdir().unwrap();
        let limits = QueueLimits { bytes: 1 << 20, age: Duration::from_secs(60), memory_bytes: 1 << 20 };
        let queue = Queue::open(Box::new(SegmentFiles::new(dir.path())), limits);
        let lane: Lane = ("default".into(), OtlpSignal::Logs);
        let outbox = Outbox::new(lane.clone(), queue, 1 << 20, Arc::new(Metrics::new()));
        outbox.drop_points(5);
        outbox.drop_points(2);
        outbox.push(vec![(3, b"three".to_vec())]);
        outbox.lost(11, LossReason::Forgotten);
        let ledger = lock(&outbox.queue).ledger();
        let lost = |reason: LossReason| ledger.dropped[reason.index()];
        assert_eq!((lost(LossReason::SlowDisk), lost(LossReason::Forgotten)), (7, 11));
        assert_eq!((ledger.enqueued, ledger.queued, ledger.dropped.iter().sum::<u64>()), (21, 3, 18));
        assert!(ledger.balances());
        outbox.push(vec![(1, b"one".to_vec())]);
        assert_eq!(lock(&outbox.queue).ledger().dropped[LossReason::SlowDisk.index()], 7, "once");
    }
}
