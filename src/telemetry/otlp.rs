//! What became of the points that are sent to a collector: a ledger that balances at every moment, and what the queue
//! on disk holds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::panics::lock;
use super::timings::Timings;
use crate::model::metric::{Kind, MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::{Timestamp, Unit};
use crate::model::words;

words! {
    /// What is sent. Each has endpoints, a queue and a ledger of its own.
    pub enum OtlpSignal {
        /// Data points.
        Metrics = "metrics",
        /// A record for each event.
        Logs = "logs",
        /// A span for each stretch of an alloc's life.
        Traces = "traces",
        /// Log records of workloads: output of tasks, events of observed ones. Sent where logs are.
        WorkloadLogs = "workload_logs",
    }
}

impl OtlpSignal {
    /// The one whose settings it has.
    pub fn settings(self) -> OtlpSignal {
        match self {
            OtlpSignal::WorkloadLogs => OtlpSignal::Logs,
            own => own,
        }
    }
}

words! {
    /// Why output of tasks is not sent.
    pub enum OutputLoss {
        /// It came faster than the allowance, and the backlog was full.
        Rate = "rate",
        /// Rotation removed it before it was read.
        Rotated = "rotated",
        /// Its alloc was garbage-collected before it was read.
        Removed = "removed",
    }
}

words! {
    /// Why points are lost.
    pub enum LossReason {
        /// The queue is full: the oldest go.
        Capacity = "capacity",
        /// They waited for longer than they are kept.
        Age = "age",
        /// They could not be read back.
        Corrupt = "corrupt",
        /// The disk refused them, and memory was full.
        Disk = "disk",
        /// The disk was still busy with those before them.
        SlowDisk = "slow_disk",
        /// The agent no longer had the event that one would have been made of.
        Forgotten = "forgotten",
    }
}

/// Points, records or spans: `enqueued` is the sum of all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PointCounts {
    pub enqueued: u64,
    pub exported: u64,
    /// The collector will not have them, however often they are sent.
    pub rejected: u64,
    /// In the order of [`LossReason::ALL`].
    pub dropped: [u64; LossReason::ALL.len()],
    pub queued: u64,
}

impl PointCounts {
    pub fn settled(&self) -> u64 {
        self.dropped.iter().fold(self.exported.saturating_add(self.rejected), |sum, n| sum.saturating_add(*n))
    }
    pub fn balances(&self) -> bool {
        self.enqueued == self.settled().saturating_add(self.queued)
    }
}

/// The state of pushing to one destination.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PushState {
    pub ledger: PointCounts,
    /// Of what waits.
    pub bytes: u64,
    pub segments: u64,
    pub capacity_bytes: u64,
    /// When the oldest batch in the queue was made.
    pub oldest: Option<Timestamp>,
    pub corrupt_records: u64,
    pub truncated_bytes: u64,
    /// Batches that wait in memory because the disk refuses them.
    pub in_memory: u64,
    /// Answers by status code; without an answer by what kept it away.
    pub requests: BTreeMap<String, u64>,
    pub retries: u64,
}

/// Where to, and what.
pub type Lane = (String, OtlpSignal);

/// How long a collector may take: 5 ms to 30 s.
const ANSWERS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// By lane; empty without a destination. Concurrency: any thread; a short lock.
#[derive(Debug)]
pub struct Push {
    lanes: Mutex<BTreeMap<Lane, PushState>>,
    /// Bytes of output that are not sent, by destination, in the order of [`OutputLoss::ALL`].
    outputs: Mutex<BTreeMap<String, [u64; OutputLoss::ALL.len()]>>,
    pub(super) duration: Timings,
}

impl Default for Push {
    fn default() -> Push {
        Push { lanes: Mutex::default(), outputs: Mutex::default(), duration: Timings::new(&REQUEST_DURATION, ANSWERS) }
    }
}

impl Push {
    pub fn update(&self, lane: &Lane, change: impl FnOnce(&mut PushState)) {
        let mut all = lock(&self.lanes);
        match all.get_mut(lane) {
            Some(state) => change(state),
            None => {
                self.duration.known(&[&lane.0, lane.1.as_str()]);
                change(all.entry(lane.clone()).or_default());
            }
        }
    }
    /// One request, with its answer or without.
    pub fn count_request(&self, lane: &Lane, code: String, is_retry: bool, took: Duration) {
        self.duration.took(&[&lane.0, lane.1.as_str()], took);
        self.update(lane, |state| {
            *state.requests.entry(code).or_default() += 1;
            state.retries += u64::from(is_retry);
        });
    }
    pub fn states(&self) -> BTreeMap<Lane, PushState> {
        lock(&self.lanes).clone()
    }
    /// Task output that a destination does not get; 0 makes it known.
    pub fn output_lost(&self, destination: &str, reason: OutputLoss, bytes: u64) {
        let mut all = lock(&self.outputs);
        let add = |lost: &mut u64| *lost = lost.saturating_add(bytes);
        match all.get_mut(destination) {
            Some(lost) => add(&mut lost[reason.index()]),
            None => add(&mut all.entry(destination.to_owned()).or_default()[reason.index()]),
        }
    }
    pub fn outputs_lost(&self) -> BTreeMap<String, [u64; OutputLoss::ALL.len()]> {
        lock(&self.outputs).clone()
    }
    /// Whether traces of allocs are pushed.
    pub fn has_traces(&self) -> bool {
        lock(&self.lanes).keys().any(|(_, signal)| *signal == OtlpSignal::Traces)
    }
}

const UNSET: &str = "no endpoint is set";

/// Those that go on across restarts of the agent.
pub static GOES_ON: &[&MetricDesc] = &[&ENQUEUED, &EXPORTED, &REJECTED, &DROPPED];

families! {
pub static ENQUEUED: MetricDesc = MetricDesc::counter(
    "allostat_otlp_points_enqueued_total",
    Unit::None,
    "Points (log records, spans) made for the collector: exported + rejected + dropped + queued; across restarts.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.points.enqueued", "{data_point}");

pub static EXPORTED: MetricDesc = MetricDesc::counter(
    "allostat_otlp_points_exported_total",
    Unit::None,
    "Points that the collector accepted.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.points.exported", "{data_point}");

pub static REJECTED: MetricDesc = MetricDesc::counter(
    "allostat_otlp_points_rejected_total",
    Unit::None,
    "Points that the collector rejected for good, alone or in a partial success.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.points.rejected", "{data_point}");

pub static DROPPED: MetricDesc = MetricDesc::counter(
    "allostat_otlp_points_dropped_total",
    Unit::None,
    "Points lost before they were exported, by reason.",
    &["destination", "signal", "reason"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.points.dropped", "{data_point}");

pub static OUTPUT_LOST: MetricDesc = MetricDesc::counter(
    "allostat_otlp_task_output_dropped_bytes_total",
    Unit::Bytes,
    "Task output not sent as log records, by reason (rate, rotated, removed); an estimate for rotated files.",
    &["destination", "reason"],
)
.absent_when("otlp.logs_tasks is none")
.otlp("allostat.otlp.task_output.dropped", "By");

pub static QUEUED: MetricDesc =
    MetricDesc::gauge("allostat_otlp_queue_points", Unit::None,
        "Points waiting to be sent.", &["destination", "signal"])
        .absent_when(UNSET)
        .otlp("allostat.otlp.queue.points", "{data_point}");

pub static BYTES: MetricDesc =
    MetricDesc::gauge("allostat_otlp_queue_bytes", Unit::Bytes,
        "Bytes waiting to be sent; the queue's files on disk are somewhat larger.", &["destination", "signal"])
        .absent_when(UNSET)
        .otlp("allostat.otlp.queue.size", "By");

pub static CAPACITY: MetricDesc =
    MetricDesc::gauge("allostat_otlp_queue_capacity_bytes", Unit::Bytes,
        "Maximum size of the queue's files.", &["destination", "signal"])
        .absent_when(UNSET)
        .otlp("allostat.otlp.queue.capacity", "By");

pub static SEGMENTS: MetricDesc =
    MetricDesc::gauge("allostat_otlp_queue_segments", Unit::None,
        "Number of files of the queue.", &["destination", "signal"])
        .absent_when(UNSET)
        .otlp("allostat.otlp.queue.segments", "{segment}");

pub static IN_MEMORY: MetricDesc = MetricDesc::gauge(
    "allostat_otlp_queue_in_memory",
    Unit::None,
    "Batches held in memory because disk writes fail; they are lost when the agent ends.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.queue.in_memory", "{batch}");

pub static OLDEST: MetricDesc = MetricDesc::gauge(
    "allostat_otlp_queue_oldest_timestamp_seconds",
    Unit::TimestampSeconds,
    "Creation time of the oldest batch in the queue.",
    &["destination", "signal"],
)
.absent_when("no endpoint is set, or the queue is empty")
.otlp("allostat.otlp.queue.oldest", "s");

pub static CORRUPT: MetricDesc = MetricDesc::counter(
    "allostat_otlp_queue_corrupt_records_total",
    Unit::None,
    "Unreadable places in the queue's files.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.queue.corrupt_records", "{record}");

pub static TRUNCATED: MetricDesc = MetricDesc::counter(
    "allostat_otlp_queue_truncated_bytes_total",
    Unit::Bytes,
    "Bytes of unfinished writes cut off at the end of the queue's files after a crash.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.queue.truncated", "By");

pub static REQUESTS: MetricDesc = MetricDesc::counter(
    "allostat_otlp_requests_total",
    Unit::None,
    "Requests to the collector by HTTP status, gRPC status (grpc-N), or failure (timeout, connect, tls, broken).",
    &["destination", "signal", "code"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.requests", "{request}");

pub static RETRIES: MetricDesc = MetricDesc::counter(
    "allostat_otlp_retries_total",
    Unit::None,
    "Requests sent again after no answer or an answer that requested a retry.",
    &["destination", "signal"],
)
.absent_when(UNSET)
.otlp("allostat.otlp.retries", "{request}");

pub static REQUEST_DURATION: MetricDesc = MetricDesc::new(
    "allostat_otlp_request_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Duration of requests to the collector, until an answer or a failure.",
    &["destination", "signal"],
)
.from_profile(Profile::Standard)
.absent_when(UNSET)
.otlp("allostat.otlp.request.duration", "s");
}
