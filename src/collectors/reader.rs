//! Reads a task's or alloc's cgroup repeatedly, with open descriptors, and keeps the last reading.
//!
//! ```text
//! tick ── probes: memory usage, CPU time
//!           ├─ neither changed, now and at the last tick ── 9 s since the last full reading? ── no ── done
//!           │                                                └─ yes ── files that can change while all processes sleep
//!           └─ changed ── every file that can have changed with it; settings each 9 s
//! ```
//! Values in the rows of the kernel pass ([`kernel_pass`](super::kernel_pass)) are not read from files, probes
//! included. The tick after a change counts as a change too, because the kernel may write some values late.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::cgroup::{CgroupFiles, DueFiles, StaleCgroup};
use super::file_replacement::{FileReplacement, RowUse};
use super::kernel_ends::{self, EndedCgroup};
use super::kernel_pass::ReaderSelection;
use super::nested_oom;
use super::netns_owners::NetnsOwners;
use super::pass_rows::PassRows;
use super::process;
use super::raw::RawValues;
use super::sampling::SamplingContext;
use super::scratch::{self, Scratch};
use super::subjects::files;
use super::traffic::TaskTraffic;
use super::window::{PeakWindow, stored_peak};
use crate::kernel::bpf::walk::RowValue;
use crate::model::disk_io::DiskIo;
use crate::model::id::{CgroupPath, ProcessId};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};
use crate::telemetry::lock;

/// Keeps every sample younger than 10 s even if nothing changes. With a tick each second a reading is due at each ninth
/// tick, because the result is visible only when the pass is over.
const READ_INTERVAL: Duration = Duration::from_millis(8_500);
/// Interval for the settings of an idle cgroup.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(60);

/// Interval for listing the processes of a busy task whose number of processes and threads stays the same. Listing
/// costs as much as all other files together.
const LIST_INTERVAL: Duration = READ_INTERVAL;
/// Tasks with more processes are listed only at that interval, because each process adds to the cost.
const MANY: u64 = 64;

/// Usage of a task and the time of its reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Usage of this attempt alone. Replaced as a whole: the same `Arc` means that nothing changed.
    pub usage: Arc<Usage>,
    /// When files other than the probes were read last; up to 10 s ago for an idle task.
    pub at: Timestamp,
    /// The final values of an ended attempt: nothing is in use.
    pub is_end: bool,
    /// The reading that rates are taken against.
    pub before: Option<RateBaseline>,
    /// I/O by block device. `None`: no device was used, or it is not known by device.
    pub disks: Option<Arc<[DiskIo]>>,
    /// Start of the oldest process at the first listing of an observed cgroup. `None`: unknown.
    pub began: Option<Timestamp>,
}

/// A reading at least [`RATES_OVER`] older than the reading that holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RateBaseline {
    pub usage: Arc<Usage>,
    pub at: Timestamp,
}

/// Rates over less time are noise: a reading that a client requests between two ticks is no reference for the next one.
const RATES_OVER: Nanos = Nanos(500_000_000);

impl Reading {
    /// A reading of an attempt that still runs, as far as is known.
    pub fn of(usage: Arc<Usage>, at: Timestamp) -> Reading {
        Reading { usage, at, is_end: false, before: None, disks: None, began: None }
    }
    /// It replaces `old`, and takes it, or what that was compared with, as its reference.
    fn after(self, old: Option<&Reading>) -> Reading {
        let before = old.and_then(|old| old.reference(self.at));
        Reading { before, ..self }
    }
    fn reference(&self, at: Timestamp) -> Option<RateBaseline> {
        let itself = || RateBaseline { usage: Arc::clone(&self.usage), at: self.at };
        if at.since(self.at) >= RATES_OVER { Some(itself()) } else { self.before.clone() }
    }
}

/// Result of [`TaskReader::read_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingChange {
    /// Nothing changed and no file was due: same reading as before.
    None,
    /// Same values, read at a later time.
    Later,
    /// The usage changed.
    Changed,
}

/// Why there is no new reading.
#[derive(Debug, thiserror::Error)]
pub enum ReadingError {
    /// The cgroup was removed. This is no error, and never a zero.
    #[error("the cgroup is gone")]
    Removed,
}

/// Samples one task and owns its descriptors.
///
/// Concurrency: the runner and the sampler share it. Reads exclude each other; [`TaskReader::latest`] never blocks on a
/// read.
#[derive(Debug)]
pub struct TaskReader {
    sampling: Arc<SamplingContext>,
    inner: Mutex<Inner>,
    latest: Mutex<LatestReading>,
    /// Counters at the first reading, for a reader that starts at 0 there. Unset: counters are absolute.
    baseline: Option<Box<OnceLock<Usage>>>,
    /// Where readings are persisted, for a source that does not keep its counters.
    sink: OnceLock<Box<dyn ReadingSink>>,
}

/// The last reading of a task, as other threads get it.
#[derive(Debug, Default)]
struct LatestReading {
    reading: Option<Reading>,
    /// The reader is closed: `reading` is final.
    closed: bool,
}

/// Receives each new reading before it becomes visible.
pub trait ReadingSink: std::fmt::Debug + Send + Sync {
    fn persist(&self, reading: &Reading);
}

/// State that only one read at a time uses.
#[derive(Debug)]
struct Inner {
    pace: ReadSchedule,
    source: ReadingSource,
    raw: RawValues,
    removed: bool,
}

/// When the files of a task are read next. Kept together: a thousand readers do not fit into the CPU cache from one
/// tick to the next.
#[derive(Debug, Default)]
struct ReadSchedule {
    /// Last probe values: memory in use, CPU time used.
    probed: (Option<u64>, Option<u64>),
    next_read: Option<Instant>,
    next_settings: Option<Instant>,
    /// A change was seen at the last tick.
    stirred: bool,
    /// When its processes are listed next, and the number of processes and threads at the last listing.
    next_list: Option<Instant>,
    listed: Option<u64>,
    /// The last listing had more than [`MANY`] processes.
    many: bool,
}

impl ReadSchedule {
    /// Whether to list processes now. If so, schedules the next listing.
    fn lists(&mut self, pids: Option<u64>, now: Instant, everything: bool, stagger: impl FnOnce() -> Duration) -> bool {
        let first = self.next_list.is_none();
        // Without a count, processes may have been replaced.
        let same = self.many || (pids.is_some() && pids == self.listed);
        if !first && !everything && same && self.next_list.is_some_and(|at| at > now) {
            return false;
        }
        (self.listed, self.next_list) = (pids, Some(now + if first { stagger() } else { LIST_INTERVAL }));
        true
    }
}

/// Where the values of a reading come from.
#[derive(Debug)]
enum ReadingSource {
    Cgroup {
        files: CgroupFiles,
        network: TaskTraffic,
        /// Lists its processes. An alloc's are the sum of its tasks' instead.
        processes: bool,
        /// It is read when one of its tasks changed, not at every tick.
        on_demand: bool,
        /// The cgroup existed before this agent started.
        preexisting: bool,
        /// The cgroup is observed: nothing is reset in it.
        only_reads: bool,
        window: Option<Box<PeakWindow>>,
    },
    Processes(ProcessId),
    /// A driver reports the usage. Holds the reading that was returned last.
    Reported(Option<Reading>),
}

impl ReadingSource {
    /// A managed cgroup that this agent created.
    fn cgroup(files: CgroupFiles, processes: bool, on_demand: bool) -> ReadingSource {
        let network = TaskTraffic::default();
        ReadingSource::Cgroup {
            files,
            network,
            processes,
            on_demand,
            preexisting: false,
            only_reads: false,
            window: None,
        }
    }
}

impl TaskReader {
    /// Reads a task's cgroup, which must exist. Opens no file yet.
    pub fn for_cgroup(sampling: &Arc<SamplingContext>, path: CgroupPath) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, &[], false);
        TaskReader::new(sampling, ReadingSource::cgroup(files, true, false))
    }
    /// Reads an alloc's own cgroup. Processes and descriptors are not read but summed over its tasks. It has no probes:
    /// when one of its tasks changes, the caller reads `everything`; otherwise it is read each 9 s.
    pub fn for_alloc_cgroup(sampling: &Arc<SamplingContext>, path: CgroupPath) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, &[], true);
        TaskReader::new(sampling, ReadingSource::cgroup(files, false, true))
    }
    /// Reads an observed cgroup above those of tasks, including what the kernel counts for its own limits. Processes
    /// are not read but summed over its tasks.
    pub fn for_parent_cgroup(sampling: &Arc<SamplingContext>, path: CgroupPath) -> TaskReader {
        TaskReader::of_several(sampling, path, false)
    }
    /// Like [`TaskReader::for_parent_cgroup`] for an alloc's own cgroup: when one of its tasks changes, the caller
    /// reads `everything`.
    pub fn for_limited_alloc_cgroup(sampling: &Arc<SamplingContext>, path: CgroupPath) -> TaskReader {
        TaskReader::of_several(sampling, path, true)
    }
    fn of_several(sampling: &Arc<SamplingContext>, path: CgroupPath, on_demand: bool) -> TaskReader {
        let mut files = CgroupFiles::new(sampling, path, &[], false);
        files.drop_local_files();
        TaskReader::new(sampling, ReadingSource::cgroup(files, false, on_demand)).read_only()
    }
    /// Marks the cgroup as older than this agent: the window peak is absent for the first 60 s.
    pub fn preexisting(self) -> TaskReader {
        if let ReadingSource::Cgroup { preexisting, .. } = &mut lock(&self.inner).source {
            *preexisting = true;
        }
        self
    }
    /// Marks the cgroup as observed: it is only read, so it has no window peak.
    pub fn read_only(self) -> TaskReader {
        if let ReadingSource::Cgroup { files, only_reads, .. } = &mut lock(&self.inner).source {
            *only_reads = true;
            files.set_observed();
        }
        self
    }
    /// Counts from the first reading, for a cgroup whose counters include earlier usage. Peaks are absent, because
    /// their time is unknown.
    pub fn counting_from_now(self) -> TaskReader {
        TaskReader { baseline: Some(Box::default()), ..self }
    }
    /// Reads some files of a cgroup only, by their keys: for benchmarks.
    pub fn for_files(sampling: &Arc<SamplingContext>, path: CgroupPath, keys: &[&str]) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, keys, false);
        TaskReader::new(sampling, ReadingSource::cgroup(files, false, false))
    }
    /// Sums the processes below a supervisor (without the supervisor), where no cgroup could be created. Shared pages
    /// count in each process. The usage of processes that were never waited for is lost.
    pub fn for_processes(sampling: &Arc<SamplingContext>, supervisor: ProcessId) -> TaskReader {
        TaskReader::new(sampling, ReadingSource::Processes(supervisor))
    }

    /// A reader of values that the driver reports by [`TaskReader::report`] at any time; nothing waits for them. When
    /// the reports stop, the last one stays, with its time.
    pub fn reported(sampling: &Arc<SamplingContext>) -> TaskReader {
        TaskReader::new(sampling, ReadingSource::Reported(None))
    }
    /// Records a report. Counters never fall; an impossible value is replaced by the last possible one.
    pub fn report(&self, mut usage: Usage, at: Timestamp) {
        let impossible = usage.drop_impossible();
        let before = self.latest();
        match &before {
            Some(before) if impossible => usage.not_below(&before.usage),
            Some(before) => usage.keep_rising(&before.usage),
            None => {}
        }
        self.set_latest(Reading::of(Arc::new(usage), at));
    }

    /// Whether the source keeps its counters across a restart of the agent, as a cgroup does.
    pub fn survives_restart(&self) -> bool {
        matches!(lock(&self.inner).source, ReadingSource::Cgroup { .. })
    }
    /// Continues from the persisted reading of an earlier reader of the same attempt, and persists new readings.
    pub fn persist_in(&self, earlier: Option<Reading>, sink: Box<dyn ReadingSink>) {
        // A driver may return the same reader twice for one attempt; the sink is already set then.
        if self.sink.set(sink).is_err() {
            return;
        }
        let mut latest = lock(&self.latest);
        latest.reading = match (latest.reading.take(), earlier) {
            (Some(reading), Some(earlier)) => {
                let mut usage = Usage::clone(&reading.usage);
                usage.keep_rising(&earlier.usage);
                Some(Reading { usage: Arc::new(usage), ..reading })
            }
            (reading, earlier) => reading.or(earlier),
        };
    }

    /// Makes the current reading final and returns it: the usage of the attempt.
    pub fn close(&self) -> Option<Reading> {
        let mut latest = lock(&self.latest);
        latest.closed = true;
        latest.reading.clone()
    }
    /// Like [`TaskReader::close`], with the recorded final values. If there is no reading, as right after a restart of
    /// the agent, the final values are visible until they are exported; otherwise sums would drop for a moment.
    pub fn close_with(&self, end: &Usage, at: Timestamp) -> Option<Reading> {
        let last = self.close();
        if last.is_none() && *end != Usage::default() {
            lock(&self.latest).reading =
                Some(Reading { is_end: true, ..Reading::of(Arc::new(end.without_live()), at) });
        }
        last
    }

    fn set_latest(&self, reading: Reading) {
        if let Some(sink) = self.sink.get() {
            sink.persist(&reading);
        }
        let mut latest = lock(&self.latest);
        if !latest.closed {
            latest.reading = Some(reading.after(latest.reading.as_ref()));
        }
    }

    fn new(sampling: &Arc<SamplingContext>, source: ReadingSource) -> TaskReader {
        let inner = Inner { pace: ReadSchedule::default(), source, raw: RawValues::default(), removed: false };
        let (inner, latest, sink) = (Mutex::new(inner), Mutex::default(), OnceLock::new());
        TaskReader { sampling: Arc::clone(sampling), inner, latest, baseline: None, sink }
    }

    /// Reads the files that can have changed. `now` decides which are due; `everything` reads all, except an alloc's
    /// settings.
    ///
    /// Errors: `ReadingError::Removed`, permanently: the cgroup was removed, or the supervisor ended. Any other failure
    /// makes its field absent and is counted in `SamplingContext::errors`.
    pub fn read(&self, now: Instant, at: Timestamp, everything: bool) -> Result<Reading, ReadingError> {
        self.read_change(now, at, everything)?;
        // Only a reader that is gone never had a reading.
        self.latest().ok_or(ReadingError::Removed)
    }

    /// Like [`TaskReader::read`], but returns only what changed.
    pub fn read_change(&self, now: Instant, at: Timestamp, everything: bool) -> Result<ReadingChange, ReadingError> {
        let mut inner = lock(&self.inner);
        if let ReadingSource::Reported(handed_on) = &mut inner.source {
            let mut latest = lock(&self.latest);
            let reading = latest.reading.get_or_insert_with(|| Reading::of(Arc::default(), at)).clone();
            drop(latest);
            let change = match handed_on {
                Some(last) if *last == reading => ReadingChange::None,
                Some(last) if last.usage == reading.usage => ReadingChange::Later,
                Some(_) | None => ReadingChange::Changed,
            };
            *handed_on = Some(reading);
            return Ok(change);
        }
        let read = match inner.removed {
            true => Err(StaleCgroup),
            false => {
                let rows = self.sampling.rows(now);
                scratch::with(|s| inner.read(&self.sampling, s, rows.as_deref(), now, everything))
            }
        };
        match read {
            Ok(ReadExtent::Nothing) => Ok(ReadingChange::None),
            Ok(ReadExtent::Window) => {
                let earlier = self.latest().map(|reading| reading.at);
                Ok(self.publish(&mut inner.raw, earlier.unwrap_or(at)))
            }
            Ok(ReadExtent::All) => Ok(self.publish(&mut inner.raw, at)),
            Err(StaleCgroup) => {
                inner.close(&self.sampling.networks);
                Err(ReadingError::Removed)
            }
        }
    }

    /// Combines the values and publishes them as the latest reading.
    fn publish(&self, raw: &mut RawValues, at: Timestamp) -> ReadingChange {
        let before = self.latest().map(|reading| reading.usage);
        let mut usage = raw.finish();
        if let Some(baseline) = &self.baseline {
            let first = baseline.get_or_init(|| usage.counters());
            usage.count_from(first);
        }
        if let Some(before) = &before {
            usage.keep_rising(before);
        }
        if raw.peak_missing {
            let seen = before.as_ref().and_then(|b| b.memory_sampled_peak_bytes());
            usage.set(Field::memory_sampled_peak_bytes, usage.memory_usage_bytes().max(seen));
        }
        match before {
            Some(before) if *before == usage => {
                if let Some(reading) = &mut lock(&self.latest).reading {
                    *reading = Reading { at, before: reading.reference(at), ..reading.clone() };
                }
                ReadingChange::Later
            }
            _ => {
                // Counts by device begin with the cgroup.
                let disks = raw.disks.publish(&self.sampling.disk_names).filter(|_| self.baseline.is_none());
                let began = raw.began;
                self.set_latest(Reading { disks, began, ..Reading::of(Arc::new(usage), at) });
                ReadingChange::Changed
            }
        }
    }

    /// Whether the removed cgroup is the one of this reader. `None`: the reader has none in that hierarchy.
    pub fn is_of(&self, ended: &EndedCgroup) -> Option<bool> {
        match &lock(&self.inner).source {
            ReadingSource::Cgroup { files, .. } => files.inode_in(ended.hierarchy).map(|inode| inode == ended.inode),
            ReadingSource::Processes(_) | ReadingSource::Reported(_) => None,
        }
    }

    /// Of its cgroup, by the index of the hierarchy.
    pub fn inodes(&self) -> Box<[(usize, u64)]> {
        match &lock(&self.inner).source {
            ReadingSource::Cgroup { files, .. } => files.inodes(),
            ReadingSource::Processes(_) | ReadingSource::Reported(_) => Box::default(),
        }
    }

    /// Applies the final values of a removed cgroup, from the record of one hierarchy. Reads no file.
    pub fn end(&self, ended: &EndedCgroup, at: Timestamp) {
        let mut inner = lock(&self.inner);
        let Some(hierarchy) = self.sampling.layout.hierarchies().get(ended.hierarchy) else { return };
        let pass = self.sampling.kernel_pass();
        for file in files().filter(|file| pass.is_none_or(|pass| pass.row_trust.trusts(file))) {
            let replacement = kernel_ends::replacement_at_end(file);
            let Some(FileReplacement { how: RowUse::Values(apply), .. }) = replacement else { continue };
            if file.hierarchy.is(&self.sampling.layout, hierarchy) {
                // Fields that the record lacks keep their last value.
                let _ = apply(&mut inner.raw, ended.row());
            }
        }
        self.publish(&mut inner.raw, at);
    }

    /// Applies the OOM kills of a removed cgroup below this one.
    pub fn end_below(&self, ended: &EndedCgroup, at: Timestamp) {
        let layout = &self.sampling.layout;
        let is_it =
            layout.hierarchies().get(ended.hierarchy).is_some_and(|hierarchy| nested_oom::HOME.is(layout, hierarchy));
        let Some(kills) = ended.row().get(RowValue::OomKills).filter(|kills| is_it && *kills > 0) else { return };
        let mut inner = lock(&self.inner);
        inner.raw.nested_oom_kills.get_or_insert_default().ended(ended.inode, kills);
        self.publish(&mut inner.raw, at);
    }

    /// Whether a reading is due even if nothing changes.
    pub fn is_due(&self, now: Instant) -> bool {
        lock(&self.inner).pace.next_read.is_none_or(|at| at <= now)
    }

    /// Whether this cgroup has a memory or CPU limit of its own, as of the last reading.
    pub fn has_own_limit(&self) -> bool {
        let inner = lock(&self.inner);
        [inner.raw.memory_limit, inner.raw.quota].into_iter().flatten().any(|limit| limit.finite().is_some())
    }

    /// Whether the path still leads to the same cgroup in every hierarchy.
    pub fn is_same_cgroup(&self) -> bool {
        match &lock(&self.inner).source {
            ReadingSource::Cgroup { files, .. } => files.is_same_cgroup(),
            ReadingSource::Processes(_) | ReadingSource::Reported(_) => true,
        }
    }

    /// Whether the source is gone.
    pub fn is_removed(&self) -> bool {
        lock(&self.inner).removed
    }

    /// The latest reading, without a system call.
    pub fn latest(&self) -> Option<Reading> {
        lock(&self.latest).reading.clone()
    }
}

/// What was read, apart from the probes.
enum ReadExtent {
    Nothing,
    /// A sub-window ended and changed the window peak.
    Window,
    /// The due files; all of them at the first reading.
    All,
}

impl Inner {
    fn read(
        &mut self,
        sampling: &Arc<SamplingContext>,
        scratch: &mut Scratch,
        rows: Option<&PassRows>,
        now: Instant,
        everything: bool,
    ) -> Result<ReadExtent, StaleCgroup> {
        let (files, network, processes, on_demand, preexisting, only_reads, window) = match &mut self.source {
            ReadingSource::Processes(supervisor) => {
                process::sum(sampling, *supervisor, scratch, &mut self.raw.usage)?;
                self.pace.next_read = Some(now + READ_INTERVAL);
                // The sums replace the cgroup's own counters; nothing is derived from them.
                self.raw.user_ns = self.raw.usage.cpu_user_ns();
                self.raw.system_ns = self.raw.usage.cpu_system_ns();
                self.raw.major_faults = self.raw.usage.page_faults_major();
                self.raw.page_faults =
                    self.raw.usage.page_faults_minor().zip(self.raw.major_faults).map(|(a, b)| a.saturating_add(b));
                return Ok(ReadExtent::All);
            }
            ReadingSource::Cgroup { files, network, processes, on_demand, preexisting, only_reads, window } => {
                (files, network, *processes, *on_demand, *preexisting, *only_reads, window)
            }
            // Returned by `read_change` already.
            ReadingSource::Reported(_) => return Ok(ReadExtent::Nothing),
        };
        let raw = &mut self.raw;
        let first = self.pace.next_read.is_none();
        let read_due = self.pace.next_read.is_none_or(|at| at <= now);
        if first {
            raw.stored_peak = stored_peak(&sampling.layout, files.path());
            if !only_reads {
                *window =
                    PeakWindow::begin(sampling, files.path(), preexisting, now, &mut raw.stored_peak).map(Box::new);
            }
        }
        // The first reading uses files only, to learn which ones are missing.
        let pass = sampling.kernel_pass().filter(|_| !first);
        // With rows of all values a reading costs almost nothing.
        let all_rows = pass.is_some() && rows.is_some_and(|rows| rows.are_all) && !on_demand;
        let update = read_due || all_rows;
        // The next full walk, within seconds, shows changed settings without opening files.
        let waits = pass.is_some() && !on_demand && rows.is_some_and(|rows| !rows.are_all);
        let rows = pass.zip(rows).map(|(pass, rows)| {
            if files.is_comparison_due(rows) {
                pass.start_row_check(files.path());
            }
            files.rows(rows, &pass.row_trust, only_reads)
        });
        let rows = rows.as_ref();
        if on_demand && !everything && !update {
            return Ok(if close(window, files.path(), raw, now) { ReadExtent::Window } else { ReadExtent::Nothing });
        }
        files.probe(scratch, raw, rows)?;
        let probed = (raw.usage.memory_usage_bytes(), raw.usage.cpu_usage_ns());
        // Without CPU time, assume that the task ran.
        let ran = probed.1 != self.pace.probed.1 || probed.1.is_none();
        let moved = ran || probed.0 != self.pace.probed.0;
        let unsettled = std::mem::replace(&mut self.pace.stirred, moved);
        self.pace.probed = probed;

        // Rows reveal changed settings by themselves.
        let seldom = read_due && moved && !rows.is_some_and(|rows| files.show_settings(rows));
        let set = !waits && (seldom || self.pace.next_settings.is_none_or(|at| at <= now));
        let due = if first || (everything && !on_demand) {
            DueFiles::ALL
        } else {
            let (moved, ran) = (moved || unsettled || everything, ran || unsettled || everything);
            DueFiles { asleep: moved || (update && !on_demand), stirred: moved, ran, set }
        };
        if let Some(pass) = pass.filter(|_| moved || unsettled) {
            pass.note_moved(if only_reads { ReaderSelection::Observed } else { ReaderSelection::Managed });
        }
        if read_due || everything || (all_rows && !moved) {
            self.pace.next_read = Some(now + if first { sampling.stagger(READ_INTERVAL) } else { READ_INTERVAL });
        }
        if due.set {
            self.pace.next_settings =
                Some(now + if first { sampling.stagger(SETTINGS_INTERVAL) } else { SETTINGS_INTERVAL });
        }
        if let Some(window) = window {
            window.moved |= moved || unsettled || everything;
        }
        let closed = close(window, files.path(), raw, now);
        if !(due.asleep || due.stirred || due.ran || due.set) {
            return Ok(match (update, closed) {
                (true, _) => ReadExtent::All,
                (false, true) => ReadExtent::Window,
                (false, false) => ReadExtent::Nothing,
            });
        }
        files.read_due(scratch, raw, rows, due)?;
        let stagger = || sampling.stagger(LIST_INTERVAL);
        let is_needed = processes && (due.ran || self.pace.next_list.is_none());
        let lists = is_needed && self.pace.lists(raw.usage.pids_current(), now, everything, stagger);
        // The victim of an OOM kill had memory, so memory changed.
        if lists || (due.stirred && raw.nested_oom_kills.as_ref().is_some_and(|kills| kills.are_few())) {
            nested_oom::read_below(&sampling.layout, files.path(), scratch, &mut raw.nested_oom_kills);
        }
        if lists {
            process::count(sampling, files, scratch, raw, only_reads)?;
            self.pace.many = raw.usage.processes().is_some_and(|count| count > MANY);
        }
        let is_checked = processes && (due.ran || read_due);
        if is_checked && network.read(sampling, scratch, (now, lists), &mut raw.usage) {
            self.pace.next_list = None;
        }
        Ok(ReadExtent::All)
    }

    fn close(&mut self, networks: &NetnsOwners) {
        self.removed = true;
        if let ReadingSource::Cgroup { files, network, window, .. } = &mut self.source {
            files.close();
            network.close(networks);
            *window = None;
        }
    }
}

/// Ends a sub-window if it is due. Returns whether the window peak changed.
fn close(window: &mut Option<Box<PeakWindow>>, path: &CgroupPath, raw: &mut RawValues, now: Instant) -> bool {
    let Some(window) = window.as_mut().filter(|w| w.is_due(now)) else { return false };
    let highest = window.close(path, now, raw.usage.memory_usage_bytes(), &mut raw.stored_peak);
    let changed = raw.usage.memory_window_peak_bytes() != highest;
    raw.usage.set(Field::memory_window_peak_bytes, highest);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_process_count_is_listed_at_its_interval_and_a_changed_one_at_once() {
        let (mut pace, now) = (ReadSchedule::default(), Instant::now());
        let mut lists = |pids, after, everything| pace.lists(pids, now + after, everything, || LIST_INTERVAL);
        let second = Duration::from_secs(1);
        assert!(lists(Some(3), Duration::ZERO, false), "the first time");
        assert!(!lists(Some(3), second, false));
        assert!(lists(Some(4), 2 * second, false), "one more");
        assert!(!lists(Some(4), 10 * second, false));
        assert!(lists(Some(4), 11 * second, false), "it is time");
        assert!(lists(Some(4), 12 * second, true), "all is read, as at the end");
        assert!(
            lists(None, 13 * second, false) && lists(None, 14 * second, false),
            "the number of processes is unknown"
        );
        pace.many = true;
        let mut lists = |pids, after| pace.lists(pids, now + after, false, || LIST_INTERVAL);
        assert!(
            !lists(Some(200), 15 * second) && !lists(Some(300), 22 * second),
            "so many are listed at their time only"
        );
        assert!(lists(Some(300), 23 * second) && !lists(Some(200), 24 * second));
    }
}
