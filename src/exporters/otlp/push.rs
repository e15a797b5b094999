//! Pushes as long as there are snapshots, where an endpoint is set: collects in its time, and lets a thread deliver.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::collect::{Endings, collect};
use super::delta::Delta;
use super::flat::flatten;
use super::outbox::Outbox;
use super::parts::{LARGEST_BYTES, parts, points};
use super::resource::HostIdentity;
use super::send::Sender;
use super::settings::{Config, DEFAULT, Temporality};
use super::{deliver, packed};
use crate::exporters::walk::{Filter, Walk};
use crate::host::clock::{Clock, SystemClock};
use crate::snapshot::Snapshot;
use crate::store::queue::{Queue, QueueLimits, SegmentFiles};
use crate::telemetry::{Metrics, chain};

/// The queue's directory, in the data directory; with a dash and the name behind it that of a further destination.
pub const QUEUE_DIR: &str = "otlp";
/// What the collector was told last, in the queue's directory: where it is told differences.
const TOLD: &str = "told";
/// What the disk refuses waits here.
const MEMORY_BYTES: usize = 16 << 20;

/// To each destination by itself: own queue, own thread, own pace. `None`: no endpoint is set, and nothing of it is there.
pub fn run(
    config: &Config,
    data_dir: &Path,
    metrics: &Arc<Metrics>,
    snapshots: &watch::Receiver<Arc<Snapshot>>,
) -> Option<JoinHandle<()>> {
    let mut all = JoinSet::new();
    for (name, config) in config.all() {
        let Some(endpoint) = config.target() else { continue };
        tracing::info!(destination = name, %endpoint, protocol = config.protocol.as_str(), "metrics are pushed");
        match Sender::new(&config, endpoint) {
            Ok(sender) => {
                let dir =
                    data_dir.join(if name == DEFAULT { QUEUE_DIR.to_owned() } else { format!("{QUEUE_DIR}-{name}") });
                all.spawn(to(name, config, sender, dir, Arc::clone(metrics), snapshots.clone()));
            }
            Err(error) => {
                tracing::error!(destination = name, error = chain(&error), "metrics cannot be pushed");
            }
        }
    }
    // Called off, it calls them all off.
    (!all.is_empty()).then(|| tokio::spawn(async move { while all.join_next().await.is_some() {} }))
}

async fn to(
    name: String,
    config: Config,
    mut sender: Sender,
    dir: PathBuf,
    metrics: Arc<Metrics>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
) {
    let (service_name, attributes) = (config.service_name.clone(), config.resource_attributes.clone());
    let identity = HostIdentity { host_id: host_id(), service_name, attributes };
    let of_outbox = (name.clone(), config.clone(), Arc::clone(&metrics));
    let opened = tokio::task::spawn_blocking(move || open(&of_outbox.0, &dir, &of_outbox.1, of_outbox.2)).await;
    let Ok((outbox, delta)) = opened else { return };
    // Dropped when this is called off.
    let outbox = Closing(Arc::new(outbox));
    let of_thread = Arc::clone(&outbox.0);
    let thread = std::thread::Builder::new().name("otlp".to_owned());
    if let Err(error) = thread.spawn(move || deliver::run(&of_thread, &mut sender, delta)) {
        tracing::error!(destination = name, error = error.to_string(), "no thread can be had: metrics are not pushed");
        return;
    }
    collect_all(&config, identity, &outbox.0, &metrics, &snapshots).await;
}

struct Closing(Arc<Outbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn open(name: &str, dir: &Path, config: &Config, metrics: Arc<Metrics>) -> (Outbox, Option<Delta>) {
    let limits = QueueLimits { bytes: config.queue_bytes, age: config.queue_age, memory_bytes: MEMORY_BYTES };
    let queue = Queue::open(Box::new(SegmentFiles::new(dir)), limits);
    if let Some(error) = &queue.refused {
        tracing::error!(
            destination = name,
            error = error.to_string(),
            "queue of points cannot be read whole: what can be read is sent"
        );
    }
    let (records, bytes) = (queue.corrupt_records, queue.truncated_bytes);
    if records + bytes > 0 {
        tracing::warn!(destination = name, records, bytes, "queue of points was damaged, or its end was being written");
    }
    let told = dir.join(TOLD);
    let delta = match config.temporality {
        Temporality::Cumulative => {
            // It will not be true any more.
            if std::fs::remove_file(told).is_ok() {
                tracing::info!(destination = name, "sums are told from their beginning again");
            }
            None
        }
        temporality => {
            Some(Delta::open(&told, temporality, queue.ledger().exported > 0, queue.next_id(), SystemClock.now()))
        }
    };
    (Outbox::new(name, queue, limits.bytes, metrics), delta)
}

/// Never waits for the queue: what comes while the disk is busy is dropped, and counted.
async fn collect_all(
    config: &Config,
    identity: HostIdentity,
    outbox: &Arc<Outbox>,
    metrics: &Arc<Metrics>,
    snapshots: &watch::Receiver<Arc<Snapshot>>,
) {
    let mut interval = tokio::time::interval(config.interval);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (is_flat, compression, aggregation) = (config.flat, config.compression, config.aggregation);
    let (mut endings, identity) = (Endings::default(), Arc::new(identity));
    let (mut pushing, mut told): (Option<JoinHandle<()>>, u64) = (None, 0);
    // The first comes at once, when nothing is known yet.
    let mut snapshots = snapshots.clone();
    if snapshots.wait_for(|snapshot| snapshot.epoch > 0).await.is_err() {
        return;
    }
    loop {
        interval.tick().await;
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        // Its points would have the times of those before them.
        if std::mem::replace(&mut told, snapshot.version) == snapshot.version {
            continue;
        }
        let (metrics, identity) = (Arc::clone(metrics), Arc::clone(&identity));
        let work = move || {
            let everything = Filter::default();
            let walk = Walk::new(&snapshot, &metrics, &everything);
            let mut request = collect(&walk, &identity, aggregation, &mut endings);
            if is_flat {
                flatten(&mut request);
            }
            let packed = |part| (points(&part), packed::pack(&part, compression));
            let batches = parts(request, LARGEST_BYTES).into_iter().map(packed);
            (batches.collect::<Vec<_>>(), endings)
        };
        let Ok((batches, again)) = tokio::task::spawn_blocking(work).await else {
            tracing::error!("collecting points failed");
            return;
        };
        endings = again;
        if pushing.as_ref().is_some_and(|pushing| !pushing.is_finished()) {
            outbox.turn_away(batches.iter().map(|(points, _)| points).sum());
            continue;
        }
        let outbox = Arc::clone(outbox);
        pushing = Some(tokio::task::spawn_blocking(move || outbox.push(batches)));
    }
}

/// Source: machine-id(5).
fn host_id() -> Option<String> {
    let id = std::fs::read_to_string("/etc/machine-id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
