//! Pushes as long as there are snapshots, where an endpoint is set: collects in its time, and lets a thread deliver.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use prost::Message;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use super::collect::{Endings, collect_each};
use super::delta::DeltaState;
use super::exposed::collect_exposed;
use super::flat::flatten;
use super::lifecycle::LifecycleMaker;
use super::outbox::Outbox;
use super::parts::{LARGEST_BYTES, parts, points};
use super::resource::HostIdentity;
use super::send::Sender;
use super::settings::{Compression, Config, DEFAULT, MetricNames, Temporality};
use super::workload_logs::{self, WorkloadMaker};
use super::{deliver, lifecycle, packed};
use crate::board::events::EventLog;
use crate::exporters::walk::{Filter, Selection, Walk};
use crate::host::clock::{Clock, SystemClock};
use crate::host::untrusted;
use crate::snapshot::Snapshots;
use crate::store::queue::{Queue, QueueLimits, SegmentFiles};
use crate::telemetry::otlp::{Lane, OtlpSignal};
use crate::telemetry::{Metrics, chain};

/// The queue's directory, in the data directory; with a dash and the name behind it that of a further destination.
pub const QUEUE_DIR: &str = "otlp";
/// The sums that the collector took last, in the queue's directory, for delta temporality. Earlier agents used this
/// name.
const TAKEN_SUMS: &str = "told";
/// What the disk refuses waits here.
const MEMORY_BYTES: usize = 16 << 20;

/// Each signal to each destination by itself: own queue, own thread, own pace. `None`: no endpoint is set, and nothing
/// of it is there. `selection`: what `/metrics` has.
pub fn run(
    (config, selection): (&Config, &Arc<Selection>),
    data_dir: &Path,
    metrics: &Arc<Metrics>,
    snapshots: &Snapshots,
    events: &Arc<EventLog>,
) -> Option<JoinHandle<()>> {
    let mut all = JoinSet::new();
    for ((name, config), signal) in config.all().iter().flat_map(|one| OtlpSignal::ALL.map(|signal| (one, signal))) {
        let Some(endpoint) = config.target(signal) else { continue };
        let config = config.of(signal);
        let (protocol, what) = (config.protocol.as_str(), signal.as_str());
        tracing::info!(destination = name, signal = what, %endpoint, protocol, "push started");
        match Sender::new(&config, signal, endpoint) {
            Ok(sender) => {
                let dir =
                    data_dir.join(if name == DEFAULT { QUEUE_DIR.to_owned() } else { format!("{QUEUE_DIR}-{name}") });
                let dir = if signal == OtlpSignal::Metrics { dir } else { dir.join(signal.as_str()) };
                let (metrics, snapshots, events) = (Arc::clone(metrics), snapshots.clone(), Arc::clone(events));
                let data_dir = data_dir.to_owned();
                let (lane, selection) = ((name.clone(), signal), Arc::clone(selection));
                let opening = LaneSetup { lane, config, selection, data_dir, dir, metrics };
                all.spawn(to(opening, sender, snapshots, events));
            }
            Err(error) => {
                tracing::error!(destination = name, signal = what, error = chain(&error), "push cannot start");
            }
        }
    }
    // Called off, it calls them all off.
    (!all.is_empty()).then(|| tokio::spawn(async move { while all.join_next().await.is_some() {} }))
}

/// One signal on its way to one destination.
#[derive(Clone)]
struct LaneSetup {
    lane: Lane,
    config: Config,
    /// What `/metrics` has.
    selection: Arc<Selection>,
    data_dir: PathBuf,
    /// Of its queue.
    dir: PathBuf,
    metrics: Arc<Metrics>,
}

async fn to(opening: LaneSetup, mut sender: Sender, snapshots: Snapshots, events: Arc<EventLog>) {
    let LaneSetup { lane: (name, signal), config, selection, data_dir, dir, metrics } = opening.clone();
    let (service_name, attributes) = (config.service_name.clone(), config.resource_attributes.clone());
    let identity = HostIdentity { host_id: host_id(), service_name, attributes };
    let opened = tokio::task::spawn_blocking(move || {
        let (queue, delta) = open(&opening);
        let LaneSetup { lane, config, metrics, .. } = opening;
        let queued = queue.next_id() - 1;
        (Outbox::new(lane, queue, config.queue_bytes, metrics), delta, queued)
    });
    let Ok((outbox, delta, queued)) = opened.await else { return };
    // Dropped when this is called off.
    let outbox = OutboxCloser(Arc::new(outbox));
    let of_thread = Arc::clone(&outbox.0);
    let thread = std::thread::Builder::new().name("otlp".to_owned());
    if let Err(error) = thread.spawn(move || deliver::run(&of_thread, &mut sender, delta)) {
        let (error, signal) = (error.to_string(), signal.as_str());
        tracing::error!(destination = name, signal, error, "push cannot start: no thread");
        return;
    }
    match signal {
        OtlpSignal::Metrics => {
            let selected = filter(&config, selection);
            collect_all((&config, selected), identity, &outbox.0, &metrics, &snapshots).await;
        }
        OtlpSignal::WorkloadLogs => {
            let name = outbox.0.destination().to_owned();
            let open = move || WorkloadMaker::open(&name, &config, identity, (&data_dir, &dir), queued + 1, metrics);
            let Ok(maker) = tokio::task::spawn_blocking(open).await else { return };
            workload_logs::run(maker, Arc::clone(&outbox.0), snapshots).await;
        }
        OtlpSignal::Logs | OtlpSignal::Traces => {
            let compression = config.compression;
            let maker =
                tokio::task::spawn_blocking(move || LifecycleMaker::open(signal, identity, compression, &dir, queued));
            let Ok(maker) = maker.await else { return };
            lifecycle::run(maker, Arc::clone(&outbox.0), &events, snapshots).await;
        }
    }
}

struct OutboxCloser(Arc<Outbox>);

impl Drop for OutboxCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn open(opening: &LaneSetup) -> (Queue, Option<DeltaState>) {
    let LaneSetup { lane: (name, signal), config, dir, .. } = opening;
    let limits = QueueLimits { bytes: config.queue_bytes, age: config.queue_age, memory_bytes: MEMORY_BYTES };
    let queue = Queue::open(Box::new(SegmentFiles::new(dir)), limits);
    if let Some(error) = &queue.refused {
        tracing::error!(
            destination = name,
            signal = signal.as_str(),
            error = error.to_string(),
            "failed to read part of the queue of points; the rest is pushed"
        );
    }
    let (records, bytes) = (queue.corrupt_records, queue.truncated_bytes);
    if records + bytes > 0 {
        let signal = signal.as_str();
        tracing::warn!(
            destination = name,
            signal,
            records,
            bytes,
            "queue of points is damaged or incomplete at its end"
        );
    }
    if *signal != OtlpSignal::Metrics {
        return (queue, None);
    }
    let taken_sums = dir.join(TAKEN_SUMS);
    let delta = match config.temporality {
        // Stores that know the names of `/metrics` know sums from their beginning only.
        _ if config.names == MetricNames::Prometheus => None,
        Temporality::Cumulative => {
            // It will not be true any more.
            if std::fs::remove_file(taken_sums).is_ok() {
                tracing::info!(destination = name, "cumulative sums are exported again");
            }
            None
        }
        temporality => Some(DeltaState::open(
            name,
            &taken_sums,
            temporality,
            queue.ledger().exported > 0,
            queue.next_id(),
            SystemClock.now(),
        )),
    };
    (queue, delta)
}

/// By its own names everything, by those of `/metrics` what that has.
fn filter(config: &Config, selection: Arc<Selection>) -> Filter {
    match config.names {
        MetricNames::Conventions => Filter::default(),
        MetricNames::Prometheus => Filter::default().selecting(selection),
    }
}

/// Never waits for the queue: what comes while the disk is busy is dropped, and counted.
async fn collect_all(
    (config, filter): (&Config, Filter),
    identity: HostIdentity,
    outbox: &Arc<Outbox>,
    metrics: &Arc<Metrics>,
    snapshots: &Snapshots,
) {
    let mut interval = tokio::time::interval(config.interval);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (is_flat, compression, aggregation) = (config.flat, config.compression, config.aggregation);
    let (names, filter) = (config.names, Arc::new(filter));
    let (mut endings, identity) = (Endings::default(), Arc::new(identity));
    let (mut door, mut exported) = (OutboxWriter { outbox: Arc::clone(outbox), pushing: None }, 0);
    // The first comes at once, when nothing is known yet.
    let mut snapshots = snapshots.clone();
    if snapshots.wait_for(|snapshot| snapshot.epoch > 0).await.is_err() {
        return;
    }
    loop {
        interval.tick().await;
        let snapshot = snapshots.refresh().await;
        // Its points would have the times of those before them.
        if std::mem::replace(&mut exported, snapshot.version) == snapshot.version {
            continue;
        }
        let (metrics, identity, filter) = (Arc::clone(metrics), Arc::clone(&identity), Arc::clone(&filter));
        let work = move || {
            let walk = Walk::new(&snapshot, &metrics, &filter);
            let is_exposed = names == MetricNames::Prometheus;
            // Its labels are on its points already.
            let mut batches = RequestBatches::new(is_flat && !is_exposed, compression);
            let add = |resource| batches.add(resource);
            if is_exposed {
                collect_exposed(&walk, &identity, (aggregation, is_flat), &mut endings, add);
            } else {
                collect_each(&walk, &identity, aggregation, &mut endings, add);
            }
            (batches.end(), endings)
        };
        let Ok((batches, again)) = tokio::task::spawn_blocking(work).await else {
            tracing::error!(destination = outbox.destination(), "collecting points failed");
            return;
        };
        endings = again;
        door.put(batches);
    }
}

/// Into the queue, one collection at a time.
struct OutboxWriter {
    outbox: Arc<Outbox>,
    pushing: Option<JoinHandle<()>>,
}

impl OutboxWriter {
    /// Never waits: batches that come while those before are still on their way to the disk are dropped.
    fn put(&mut self, batches: Vec<(u64, Vec<u8>)>) {
        if self.pushing.as_ref().is_some_and(|pushing| !pushing.is_finished()) {
            self.outbox.drop_points(batches.iter().map(|(points, _)| points).sum());
            return;
        }
        let outbox = Arc::clone(&self.outbox);
        self.pushing = Some(tokio::task::spawn_blocking(move || outbox.push(batches)));
    }
}

/// What receivers take, made while resources come: only one request is in memory unpacked.
struct RequestBatches {
    is_flat: bool,
    compression: Compression,
    open: ExportMetricsServiceRequest,
    open_bytes: usize,
    /// Points, and the request as it goes onto the disk.
    closed: Vec<(u64, Vec<u8>)>,
}

impl RequestBatches {
    fn new(is_flat: bool, compression: Compression) -> RequestBatches {
        let open = ExportMetricsServiceRequest::default();
        RequestBatches { is_flat, compression, open, open_bytes: 0, closed: Vec::new() }
    }
    fn add(&mut self, resource: ResourceMetrics) {
        // With its tag and its length.
        let bytes = resource.encoded_len() + 8;
        if self.open_bytes + bytes > LARGEST_BYTES {
            self.close();
        }
        self.open_bytes += bytes;
        self.open.resource_metrics.push(resource);
    }
    fn close(&mut self) {
        self.open_bytes = 0;
        let mut request = std::mem::take(&mut self.open);
        if self.is_flat {
            flatten(&mut request);
        }
        let packed = |part| (points(&part), packed::pack(&part, self.compression));
        self.closed.extend(parts(request, LARGEST_BYTES).into_iter().map(packed));
    }
    fn end(mut self) -> Vec<(u64, Vec<u8>)> {
        self.close();
        self.closed
    }
}

/// Source: machine-id(5).
fn host_id() -> Option<String> {
    let id = untrusted::read_to_string(Path::new("/etc/machine-id"), 64).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::store::queue::QueueFiles;
    use crate::telemetry::otlp::LossReason;

    /// A disk that says when it is asked to write, and does it when it is let.
    struct SlowDisk {
        files: SegmentFiles,
        began: Sender<()>,
        go_on: Receiver<()>,
    }

    impl QueueFiles for SlowDisk {
        fn list(&mut self) -> io::Result<Vec<u64>> {
            self.files.list()
        }
        fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
            self.files.read(segment)
        }
        fn read_at(&mut self, segment: u64, offset: u64, length: usize) -> io::Result<Vec<u8>> {
            self.files.read_at(segment, offset, length)
        }
        fn create(&mut self, segment: u64) -> io::Result<()> {
            self.files.create(segment)
        }
        fn write_at(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.files.write_at(segment, offset, bytes)
        }
        fn sync(&mut self, segment: u64) -> io::Result<()> {
            let _ = (self.began.send(()), self.go_on.recv());
            self.files.sync(segment)
        }
        fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
            self.files.truncate(segment, length)
        }
        fn remove(&mut self, segment: u64) -> io::Result<()> {
            self.files.remove(segment)
        }
    }

    #[tokio::test]
    async fn put_on_busy_disk_drops_and_counts_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let limits = QueueLimits { bytes: 1 << 20, age: std::time::Duration::from_secs(60), memory_bytes: 1 << 20 };
        let ((began, request_rx), (release, go_on)) = (channel(), channel());
        let disk = SlowDisk { files: SegmentFiles::new(dir.path()), began, go_on };
        let (lane, metrics): (Lane, _) = (("default".into(), OtlpSignal::Metrics), Arc::new(Metrics::new()));
        let outbox = Outbox::new(lane.clone(), Queue::open(Box::new(disk), limits), 1 << 20, Arc::clone(&metrics));
        let mut door = OutboxWriter { outbox: Arc::new(outbox), pushing: None };
        let batch = |points: u64| vec![(points, vec![0; 100])];
        door.put(batch(1));
        let request_rx =
            tokio::task::spawn_blocking(move || request_rx.recv().map(|()| request_rx)).await.unwrap().unwrap();
        // The first is at the disk, which does not answer.
        door.put(batch(20));
        door.put(batch(300));
        drop((release, request_rx));
        door.pushing.take().unwrap().await.unwrap();
        door.put(batch(4_000));
        door.pushing.take().unwrap().await.unwrap();
        let ledger = metrics.push.states()[&lane].ledger;
        assert_eq!((ledger.queued, ledger.dropped[LossReason::SlowDisk.index()]), (4_001, 320));
        assert_eq!(ledger.enqueued, 4_321);
    }
}
