//! Log records of workloads: the output of managed tasks, if it is enabled, and starts and ends of observed tasks.
//!
//! ```text
//! log files of tasks ── allowance ──► lines ─┐
//! observed tasks of a snapshot ── events ────┴► positions (durable) ──► outbox ──► deliver
//! ```
//! A queue of their own: output cannot push out events, and its batches are numbered for [`positions`]. What is read is
//! bounded for each task and in sum. A stream that falls too far behind continues with its newest output; what it
//! leaves out is counted.

mod allowance;
mod files;
mod gathered;
mod lines;
mod observed;
mod positions;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::time::MissedTickBehavior;

use allowance::Allowance;
use files::{OutputDirectory, PIECE};
use gathered::GatheredRecords;
use lines::{OutputLine, first_line};
use positions::{OutputPlace, OutputPlaces, StreamKey, report};
use times::OutputTimes;

use super::attribute::{attribute, key_value};
use super::logs::{SAMPLED, text};
use super::message::scope;
use super::names::SCHEMA_URL;
use super::outbox::Outbox;
use super::packed::pack;
use super::resource::HostIdentity;
use super::settings::{Compression, Config, ForwardedStream};
use crate::host::clock::{Clock, SystemClock};
use crate::model::id::{AllocId, TaskName};
use crate::model::task::TaskState;
use crate::model::trace::TraceId;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, Snapshot, Snapshots};
use crate::telemetry::Metrics;
use crate::telemetry::otlp::{LossReason, OutputLoss};

/// Of one batch: collectors accept 4 MiB at most, and bytes that are no text take three times their length.
const BATCH_BYTES: u64 = 1 << 20;
/// What a record costs beside its text: so there are not too many empty lines either.
const RECORD_BYTES: u64 = 64;
/// A stream that is further behind continues with its newest output.
const MOST_BEHIND: u64 = 16 << 20;
/// A line without an end is sent when nothing has followed it for so long.
const OPEN_LINE: Duration = Duration::from_secs(5);
const EACH: Duration = Duration::from_secs(1);
/// A task that has ended is read until nothing has come for so long.
const QUIET: Duration = Duration::from_secs(3);
/// Places of an alloc that is in no snapshot are kept for so long: observed ones are found again after a restart.
const RETAINED_FOR: Duration = Duration::from_secs(600);
const SWEEP: Duration = Duration::from_secs(60);
/// A driver that follows a stored log removes its last bytes when the agent starts, and writes them again.
const REWRITTEN: Duration = Duration::from_secs(10);
/// Where the positions are, in the queue's directory.
const PLACES: &str = "places";

/// What is known of a stream beside its place.
#[derive(Debug, Default)]
struct StreamState {
    /// Where it goes on, if that is not what is durable: output was left out since.
    skipped_to: Option<OutputPlace>,
    /// Where a line without an end ends, and since when.
    open_line: Option<(OutputPlace, Instant)>,
    /// Bytes that were there and are not read.
    behind: u64,
    /// The attempt that has ended, and since when nothing has come.
    quiet: Option<(u32, Instant)>,
    /// Since when its files end before its place.
    cut: Option<Instant>,
}

/// A stream that is to be read.
struct OpenStream {
    key: StreamKey,
    index: usize,
    /// The attempt with which its task has ended.
    ended: Option<u32>,
    file_bytes: u64,
    /// Its driver may remove the end of its files, and write the same again.
    is_rewritten: bool,
}

/// The resource of a task.
type ResourceOf<'r> = &'r dyn Fn(&AllocId, &TaskName) -> Resource;

/// Makes them.
pub(super) struct WorkloadMaker {
    identity: Arc<HostIdentity>,
    compression: Compression,
    streams: Vec<ForwardedStream>,
    task_rate: u64,
    /// `<data>/alloc`
    allocs: PathBuf,
    metrics: Arc<Metrics>,
    places: OutputPlaces,
    /// Number of the next batch.
    next: u64,
    states: BTreeMap<StreamKey, StreamState>,
    tasks: BTreeMap<(AllocId, TaskName), Allowance>,
    total: Allowance,
    /// Numbers of the files with the times of a task, listed once in each second.
    times: BTreeMap<(AllocId, TaskName), Vec<u64>>,
    /// Where the next round begins: with a small allowance each has its turn.
    turn: usize,
    swept: Instant,
    /// Since when allocs with places are in no snapshot.
    missing: BTreeMap<AllocId, Instant>,
}

impl WorkloadMaker {
    /// `dirs`: the data directory, and that of the queue. `next`: the number of the queue's next batch.
    pub fn open(
        destination: &str,
        config: &Config,
        identity: HostIdentity,
        (data_dir, dir): (&Path, &Path),
        next: u64,
        metrics: Arc<Metrics>,
    ) -> WorkloadMaker {
        WorkloadMaker {
            identity: Arc::new(identity),
            compression: config.compression,
            streams: config.task_streams.clone(),
            task_rate: config.task_rate,
            allocs: data_dir.join("alloc"),
            metrics,
            places: OutputPlaces::open(destination, &dir.join(PLACES), next),
            next,
            states: BTreeMap::new(),
            tasks: BTreeMap::new(),
            total: Allowance::new(config.tasks_rate, Instant::now()),
            times: BTreeMap::new(),
            turn: 0,
            swept: Instant::now(),
            missing: BTreeMap::new(),
        }
    }

    /// Queues what is new. Blocks on the disk.
    fn push(&mut self, snapshot: &Snapshot, outbox: &Outbox, now: Instant) {
        let known: BTreeMap<&AllocId, &AllocView> =
            snapshot.allocs.iter().map(|view| (&view.identity.id, &**view)).collect();
        let identity = Arc::clone(&self.identity);
        let resource = |alloc: &AllocId, task: &TaskName| {
            identity.owner(&snapshot.info, (alloc, Some(task)), known.get(alloc).copied())
        };
        let (events, forgotten) = observed::events(snapshot, &self.places, SystemClock.now());
        if forgotten > 0 {
            outbox.lost(forgotten, LossReason::Forgotten);
        }
        self.queue(events, &resource, outbox);
        if !self.streams.is_empty() {
            let open = self.streams_of(snapshot);
            self.push_output(&open, &resource, outbox, now);
        }
        self.forget(outbox.destination(), &known.keys().copied().collect(), now);
    }

    /// `open`: all streams that there are.
    fn push_output(&mut self, open: &[OpenStream], resource: ResourceOf<'_>, outbox: &Outbox, now: Instant) {
        let destination = outbox.destination();
        self.begin(open, destination, now);
        // While the disk refuses batches, output waits in the files of the tasks.
        while self.total.has_some() && outbox.flush() {
            let gathered = self.round(open, destination, now);
            if !self.queue(gathered, resource, outbox) {
                break;
            }
        }
        for stream in open {
            self.catch_up(stream, destination);
        }
    }

    /// False: there was nothing, or the disk refuses it.
    fn queue(&mut self, gathered: GatheredRecords, resource: ResourceOf<'_>, outbox: &Outbox) -> bool {
        let count: u64 = gathered.records.values().map(|records| records.len() as u64).sum();
        if count == 0 {
            return false;
        }
        let of = |((alloc, task), log_records): ((AllocId, TaskName), Vec<LogRecord>)| ResourceLogs {
            resource: Some(resource(&alloc, &task)),
            scope_logs: vec![ScopeLogs { scope: Some(scope()), log_records, schema_url: SCHEMA_URL.to_owned() }],
            schema_url: SCHEMA_URL.to_owned(),
        };
        let resource_logs = gathered.records.into_iter().map(of).collect();
        let bytes = pack(&ExportLogsServiceRequest { resource_logs }, self.compression);
        let moved: Vec<_> = gathered.moved.into_iter().collect();
        report(outbox.destination(), self.places.move_to(self.next, &moved));
        let is_durable = outbox.push_as(self.next, (count, bytes));
        if is_durable {
            self.places.durable(self.next);
        }
        self.next += 1;
        is_durable
    }

    /// Those of managed tasks.
    fn streams_of(&self, snapshot: &Snapshot) -> Vec<OpenStream> {
        let mut open = Vec::new();
        for alloc in &snapshot.allocs {
            let Some(status) = &alloc.status else { continue };
            let group = status.job.group(status.group.as_str());
            for (known, view) in alloc.tasks() {
                let logs = group.and_then(|group| group.task(known.name.as_str())).map(|task| &task.logs);
                let Some(logs) = logs.filter(|logs| !logs.disabled) else { continue };
                let status = view.managed.as_ref().map(|managed| &managed.status);
                let ended = status.filter(|status| status.state == TaskState::Dead).map(|status| status.attempt);
                for stream in &self.streams {
                    let (alloc, task) = (alloc.identity.id.clone(), known.name.clone());
                    let key = StreamKey { alloc, task, stream: stream.as_str() };
                    let (index, file_bytes) = (stream.index(), logs.max_file_bytes);
                    let is_rewritten = known.driver.as_deref() == Some("docker");
                    open.push(OpenStream { key, index, ended, file_bytes, is_rewritten });
                }
            }
        }
        open
    }

    /// Those that are gone are dropped, with what was not read of them.
    fn begin(&mut self, open: &[OpenStream], destination: &str, now: Instant) {
        self.times.clear();
        for OpenStream { key, .. } in open {
            let subject = (key.alloc.clone(), key.task.clone());
            self.tasks.entry(subject).or_insert_with(|| Allowance::new(self.task_rate, now));
        }
        self.total.refill(now);
        self.tasks.values_mut().for_each(|allowance| allowance.refill(now));
        // Every reason is known from the start.
        OutputLoss::ALL.into_iter().for_each(|reason| self.metrics.push.output_lost(destination, reason, 0));
        let known: BTreeSet<&StreamKey> = open.iter().map(|stream| &stream.key).collect();
        let removed: Vec<StreamKey> = self.states.keys().filter(|key| !known.contains(key)).cloned().collect();
        for key in removed {
            let behind = self.states.remove(&key).map_or(0, |state| state.behind);
            self.metrics.push.output_lost(destination, OutputLoss::Removed, behind);
            self.tasks.remove(&(key.alloc, key.task));
        }
    }

    /// One batch: pieces of each stream in turn, as far as there is an allowance.
    fn round(&mut self, open: &[OpenStream], destination: &str, now: Instant) -> GatheredRecords {
        let mut gathered = GatheredRecords::default();
        let mut idle = 0;
        while idle < open.len() && gathered.bytes < BATCH_BYTES && self.total.has_some() {
            let stream = &open[self.turn % open.len()];
            self.turn = (self.turn + 1) % open.len();
            let before = gathered.bytes;
            if let Err(error) = self.read(stream, &mut gathered, destination, now)
                && error.kind() != io::ErrorKind::NotFound
            {
                let (alloc, task, error) = (stream.key.alloc.as_str(), stream.key.task.as_str(), error.to_string());
                tracing::debug!(destination, alloc_id = alloc, task, error, "task output not read");
            }
            idle = if gathered.bytes == before { idle + 1 } else { 0 };
        }
        gathered
    }

    fn read(
        &mut self,
        stream: &OpenStream,
        gathered: &mut GatheredRecords,
        destination: &str,
        now: Instant,
    ) -> io::Result<()> {
        let key = &stream.key;
        let state = self.states.entry(key.clone()).or_default();
        // A later attempt may have come and gone.
        state.quiet = state.quiet.filter(|(attempt, _)| stream.ended == Some(*attempt));
        let Some(allowance) = self.tasks.get_mut(&(key.alloc.clone(), key.task.clone())) else { return Ok(()) };
        let is_over = state.quiet.is_some_and(|(_, since)| now.duration_since(since) >= QUIET);
        if is_over || !allowance.has_some() {
            return Ok(());
        }
        let directory = OutputDirectory::open(&logs_of(&self.allocs, &key.alloc))?;
        let durable = || gathered.moved.get(key).copied().or_else(|| self.places.get(key));
        let from = state.skipped_to.or_else(durable);
        let prefix = format!("{}.{}.", key.task, key.stream);
        let chunk = directory.next(&prefix, from, (PIECE, stream.file_bytes))?;
        state.cut = chunk.is_cut.then(|| state.cut.unwrap_or(now));
        if stream.is_rewritten && state.cut.is_some_and(|since| now.duration_since(since) < REWRITTEN) {
            return Ok(());
        }
        self.metrics.push.output_lost(destination, OutputLoss::Rotated, chunk.rotated);
        let end = OutputPlace { bytes: chunk.place.bytes + chunk.bytes.len() as u64, ..chunk.place };
        if chunk.rotated > 0 || chunk.is_cut {
            state.skipped_to = Some(chunk.place);
        }
        if chunk.bytes.is_empty() {
            (state.behind, state.open_line) = (0, None);
            state.quiet = state.quiet.or(stream.ended.map(|attempt| (attempt, now)));
            return Ok(());
        }
        state.quiet = None;
        let waited = state.open_line.is_some_and(|(at, since)| at == end && now.duration_since(since) >= OPEN_LINE);
        let is_closed = chunk.is_end && (chunk.is_closed || stream.ended.is_some() || waited);
        let subject = (key.alloc.clone(), key.task.clone());
        let listed = || OutputTimes::files(&directory, key.task.as_str());
        let numbers = self.times.entry(subject.clone()).or_insert_with(listed);
        let times = OutputTimes::read(&directory, key.task.as_str(), (stream.index, numbers));
        // After both are read: no line is observed before it was written.
        let observed = SystemClock.now();
        let (mut place, mut rest) = (chunk.place, chunk.bytes.as_slice());
        while allowance.has_some() && self.total.has_some() && gathered.bytes < BATCH_BYTES {
            let Some(line) = first_line(rest, is_closed) else { break };
            rest = &rest[line.bytes..];
            place.bytes += line.bytes as u64;
            let cost = line.text.len() as u64 + RECORD_BYTES;
            allowance.charge(cost);
            self.total.charge(cost);
            gathered.bytes += cost;
            let record = record(line, key, (times.at(place), observed));
            gathered.records.entry(subject.clone()).or_default().push(record);
            gathered.moved.insert(key.clone(), place);
            state.skipped_to = None;
        }
        state.behind = rest.len() as u64 + chunk.left;
        // What is left has no line end: it is sent when nothing follows.
        let is_open = !rest.is_empty() && first_line(rest, false).is_none();
        state.open_line = match state.open_line {
            Some((at, since)) if is_open && at == end => Some((at, since)),
            _ if is_open && chunk.is_end => Some((end, now)),
            _ => None,
        };
        Ok(())
    }

    /// Leaves out what is too old for a stream to be read in its allowance.
    fn catch_up(&mut self, stream: &OpenStream, destination: &str) {
        let key = &stream.key;
        let Some(state) = self.states.get_mut(key).filter(|state| state.behind > 0) else { return };
        let has_some = self.tasks.get(&(key.alloc.clone(), key.task.clone())).is_some_and(Allowance::has_some);
        if has_some && self.total.has_some() {
            return;
        }
        let from = state.skipped_to.or_else(|| self.places.get(key)).unwrap_or_default();
        let prefix = format!("{}.{}.", key.task, key.stream);
        let skipped = OutputDirectory::open(&logs_of(&self.allocs, &key.alloc))
            .and_then(|directory| directory.skip(&prefix, from, MOST_BEHIND));
        if let Ok((place, passed)) = skipped
            && passed > 0
        {
            state.skipped_to = Some(place);
            self.metrics.push.output_lost(destination, OutputLoss::Rate, passed);
        }
    }

    /// Places of allocs that are gone.
    fn forget(&mut self, destination: &str, known: &BTreeSet<&AllocId>, now: Instant) {
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let retained = self.places.allocs();
        self.missing.retain(|alloc, _| !known.contains(alloc));
        for alloc in retained.into_iter().filter(|alloc| !known.contains(alloc)) {
            self.missing.entry(alloc).or_insert(now);
        }
        let is_old = |since: &Instant| now.duration_since(*since) >= RETAINED_FOR;
        let removed: Vec<AllocId> =
            self.missing.iter().filter(|(_, since)| is_old(since)).map(|(alloc, _)| alloc.clone()).collect();
        if !removed.is_empty() {
            report(destination, self.places.forget(&removed));
            self.missing.retain(|_, since| !is_old(since));
        }
    }
}

fn logs_of(allocs: &Path, alloc: &AllocId) -> PathBuf {
    allocs.join(alloc.as_str()).join("alloc/logs")
}

/// `at`: when it was written, if that is known, and when it was read.
fn record(line: OutputLine, key: &StreamKey, (written, read): (Option<Timestamp>, Timestamp)) -> LogRecord {
    let mut attributes = vec![key_value("log.iostream", key.stream)];
    if line.is_partial {
        attributes.push(attribute("allostat.log.partial".to_owned(), any_value::Value::BoolValue(true)));
    }
    LogRecord {
        time_unix_nano: written.map_or(0, |at| at.0),
        observed_time_unix_nano: read.0,
        body: Some(text(line.text)),
        attributes,
        flags: SAMPLED,
        trace_id: TraceId::of(&key.alloc).0.to_vec(),
        ..LogRecord::default()
    }
}

/// Until there are no more snapshots.
pub(super) async fn run(mut maker: WorkloadMaker, outbox: Arc<Outbox>, mut snapshots: Snapshots) {
    let mut interval = tokio::time::interval(EACH);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if snapshots.wait_for(|snapshot| snapshot.epoch > 0).await.is_err() {
        return;
    }
    loop {
        interval.tick().await;
        let snapshot = Arc::clone(&snapshots.borrow());
        let queue = Arc::clone(&outbox);
        let work = move || {
            maker.push(&snapshot, &queue, Instant::now());
            maker
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(again) => maker = again,
            Err(error) => {
                tracing::error!(
                    destination = outbox.destination(),
                    error = error.to_string(),
                    "pushing of workload logs stopped"
                );
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
