//! The store that the recorder writes and the API reads, and the recorder.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::hour::{RecentConfig, RecentHour};
use super::{answer, evict};
use crate::model::id::AllocId;
use crate::model::units::Timestamp;
use crate::snapshot::{Snapshot, Snapshots};
use crate::telemetry::{Metrics, lock};

/// Concurrency: one task records, any thread reads.
#[derive(Debug)]
pub struct RecentHistory {
    config: RecentConfig,
    hour: Mutex<RecentHour>,
    /// The answer about all tasks, and the slot that it is of.
    body: Mutex<Option<(u64, Bytes)>>,
}

impl RecentHistory {
    /// `None`: nothing is to be kept.
    pub fn new(config: RecentConfig) -> Option<Arc<RecentHistory>> {
        let recent = Mutex::default();
        (config.max_bytes > 0).then(|| Arc::new(RecentHistory { config, hour: recent, body: Mutex::new(None) }))
    }

    /// One more point of every running task. `false`: the snapshot has no newer reading. Blocks for some milliseconds.
    pub fn record(&self, snapshot: &Snapshot, metrics: &Metrics) -> bool {
        let mut hour = lock(&self.hour);
        if snapshot.epoch == hour.epoch {
            return false;
        }
        hour.record(snapshot, &self.config);
        let max = usize::try_from(self.config.max_bytes).unwrap_or(usize::MAX);
        let evicted = evict::fit(&mut hour, max);
        hour.left_out += evicted;
        metrics.recent.record_size(hour.bytes, hour.left_out);
        true
    }

    /// The curves of CPU and memory of all tasks, and those of the host, with the time of the newest point; encoded
    /// once for each slot.
    pub fn series(&self) -> (Timestamp, Bytes) {
        let mut body = lock(&self.body);
        let hour = lock(&self.hour);
        let at = hour.times.back().copied().unwrap_or_default();
        if let Some((_, ready)) = body.as_ref().filter(|(slot, _)| *slot == hour.slot) {
            return (at, ready.clone());
        }
        let new = Bytes::from(answer::series(&hour, &self.config));
        *body = Some((hour.slot, new.clone()));
        (at, new)
    }

    /// The slot that [`RecentHistory::series`] is of.
    pub fn slot(&self) -> u64 {
        lock(&self.hour).slot
    }

    /// Every curve of one alloc. Without points where nothing was recorded of it.
    pub fn of_alloc(&self, id: &AllocId) -> Vec<u8> {
        answer::alloc(&lock(&self.hour), &self.config, id)
    }

    /// Whether anything is kept of the alloc.
    pub fn knows(&self, id: &AllocId) -> bool {
        lock(&self.hour).allocs.contains_key(id)
    }

    /// What no client has read for a slot gives its memory back.
    fn forget_body(&self, slot: u64) {
        let mut body = lock(&self.body);
        *body = body.take().filter(|(of, _)| of + 1 >= slot);
    }
}

/// Records as long as there are snapshots. `None`: nothing is to be kept.
pub fn run(
    recent: Option<&Arc<RecentHistory>>,
    snapshots: &Snapshots,
    metrics: &Arc<Metrics>,
) -> Option<JoinHandle<()>> {
    Some(tokio::spawn(follow(Arc::clone(recent?), snapshots.clone(), Arc::clone(metrics))))
}

/// Where no client reads, a snapshot is published at each tenth tick. That one is taken if it comes near the time of a
/// point, so that a point costs no snapshot of its own.
async fn follow(recent: Arc<RecentHistory>, mut snapshots: Snapshots, metrics: Arc<Metrics>) {
    let (interval, near) = (recent.config.interval, recent.config.interval / 5);
    let (mut due, mut epoch) = (Instant::now(), 0);
    loop {
        // Until the agent stops.
        let published = tokio::time::timeout_at(due + near, published(&mut snapshots, due - near, epoch));
        let snapshot = match published.await {
            Ok(Some(snapshot)) => Some(snapshot),
            Ok(None) => return,
            Err(_) => None,
        };
        let (store, counts, newest) = (Arc::clone(&recent), Arc::clone(&metrics), snapshots.clone());
        let recorded = tokio::task::spawn_blocking(move || {
            let snapshot = snapshot.unwrap_or_else(|| newest.newest_unwatched());
            store.record(&snapshot, &counts);
            store.forget_body(store.slot());
            snapshot.epoch
        });
        match recorded.await {
            Ok(recorded) => epoch = recorded,
            Err(error) => {
                tracing::error!(error = error.to_string(), "recording the last hour stopped");
                return;
            }
        }
        // After a suspended host or a long stop the points that are missed are left out.
        due = (due + interval).max(Instant::now() + near);
    }
}

/// The first snapshot from `from` on with a newer reading than that of `epoch`. `None`: there will be no more.
async fn published(snapshots: &mut Snapshots, from: Instant, epoch: u64) -> Option<Arc<Snapshot>> {
    tokio::time::sleep_until(from).await;
    // One from before is no point of this time.
    drop(snapshots.borrow_and_update());
    loop {
        snapshots.changed().await.ok()?;
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        if snapshot.epoch > epoch {
            return Some(snapshot);
        }
    }
}
