//! The agent about itself, once per tick: its process, its collectors, what it can measure.

use std::sync::Arc;

use crate::collectors::{ErrorReason, SamplingContext};
use crate::host::roots::Roots;
use crate::kernel::proc::pid_stat;
use crate::model::host::NodeInfo;
use crate::model::metric::{MetricDesc, Samples, Value, families};
use crate::model::units::{Nanos, Timestamp, Unit};

/// The `collector` label of the pass over all tasks and allocs.
pub const TASKS: &str = "task";

families! {
pub static LAST_SAMPLE: MetricDesc = MetricDesc::gauge(
    "allostat_collector_last_sample_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the collector's last sample with values; its age shows whether the collector hangs.",
    &["collector"],
)
.absent_when("no sample yet")
.otlp("allostat.collector.last_sample", "s");

pub static OLDEST_SAMPLE: MetricDesc = MetricDesc::gauge(
    "allostat_collector_oldest_sample_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time at which the oldest exposed value was read, as of the last tick; ended tasks are not counted.",
    &["collector"],
)
.absent_when("the collector exposes nothing; task: no task is running")
.otlp("allostat.collector.oldest_sample", "s");

pub static INTERVAL: MetricDesc =
    MetricDesc::gauge("allostat_collector_interval_seconds", Unit::Seconds, "Sampling interval.", &[])
        .otlp("allostat.collector.interval", "s");

pub static STUCK: MetricDesc = MetricDesc::gauge(
    "allostat_collector_stuck",
    Unit::None,
    "1 while a kernel call of the collector exceeds its deadline; its values are absent meanwhile.",
    &["collector"],
)
.absent_when("the collector makes no call that can block")
.otlp("allostat.collector.stuck", "1");

pub static ERRORS: MetricDesc = MetricDesc::counter(
    "allostat_collector_errors_total",
    Unit::None,
    "Values that a collector failed to read, by reason; not_found_race (gone between two calls) is harmless.",
    &["collector", "reason"],
)
.otlp("allostat.collector.errors", "{error}");

pub static CAPABILITY: MetricDesc = MetricDesc::gauge(
    "allostat_capability",
    Unit::None,
    "1 if this host, kernel and user allow the feature to be measured, else 0; /v1/node gives the reason.",
    &["feature"],
)
.absent_when("unknown: there is nothing to probe, or it may not be read; /v1/node gives the reason")
.otlp("allostat.capability", "1");

pub static OPEN_FILES: MetricDesc = MetricDesc::gauge(
    "allostat_collector_kept_files",
    Unit::None,
    "Kernel files kept open for sampling.",
    &[],
)
.otlp("allostat.collector.kept_files", "{file}");

pub static OPEN_FILES_LIMIT: MetricDesc = MetricDesc::gauge(
    "allostat_collector_kept_files_limit",
    Unit::None,
    "Maximum number of kernel files kept open, set by the descriptor limit of the process.",
    &[],
)
.otlp("allostat.collector.kept_files.limit", "{file}");

pub static NEEDED_FILES: MetricDesc = MetricDesc::gauge(
    "allostat_collector_wanted_files",
    Unit::None,
    "Kernel files that the agent would keep open without the descriptor limit.",
    &[],
)
.otlp("allostat.collector.wanted_files", "{file}");

pub static REOPENED: MetricDesc = MetricDesc::counter(
    "allostat_collector_reopened_files_total",
    Unit::None,
    "Readings that reopened their file because of the descriptor limit, at about five times the cost.",
    &[],
)
.otlp("allostat.collector.reopened_files", "{file}");

pub static PROCESS_CPU: MetricDesc = MetricDesc::counter(
    "process_cpu_seconds_total",
    Unit::Seconds,
    "CPU time of the agent process, user and system.",
    &[],
)
.from_source("/proc/self/stat utime, stime")
.otlp("allostat.process.cpu.time", "s");

pub static PROCESS_RESIDENT: MetricDesc =
    MetricDesc::gauge("process_resident_memory_bytes", Unit::Bytes, "Resident memory of the agent process.", &[])
        .from_source("/proc/self/stat rss")
        .otlp("process.memory.usage", "By");

pub static PROCESS_FDS: MetricDesc =
    MetricDesc::gauge("process_open_fds", Unit::None, "Open file descriptors of the agent process.", &[])
        .from_source("/proc/self/fd: st_size (6.2), else counted")
        .otlp("process.unix.file_descriptor.count", "{file_descriptor}");

pub static PROCESS_MAX_FDS: MetricDesc = MetricDesc::gauge(
    "process_max_fds",
    Unit::None,
    "Limit of open file descriptors of the agent process.",
    &[],
)
.from_source("getrlimit RLIMIT_NOFILE")
.absent_when("unlimited");

pub static PROCESS_START: MetricDesc = MetricDesc::gauge(
    "process_start_time_seconds",
    Unit::Seconds,
    "Start time of the agent process, in seconds since 1970.",
    &[],
)
.from_source("/proc/self/stat starttime, /proc/stat btime")
.absent_when("the host's boot time is unknown");
}

/// What one collector went through so far.
#[derive(Debug, Clone)]
pub(super) struct CollectorRecord {
    pub(super) name: &'static str,
    pub(super) last_sample: Option<Timestamp>,
    /// Of what it shows; of tasks the snapshot knows it.
    pub(super) oldest: Option<Timestamp>,
    pub(super) stuck: Option<bool>,
    /// In the order of `ErrorReason::ALL`.
    pub(super) errors: [u64; ErrorReason::ALL.len()],
}

impl CollectorRecord {
    pub(super) fn new(name: &'static str) -> CollectorRecord {
        CollectorRecord { name, last_sample: None, oldest: None, stuck: None, errors: [0; ErrorReason::ALL.len()] }
    }
    pub(super) fn count(&mut self, reason: ErrorReason) {
        self.errors[reason.index()] += 1;
    }
}

pub(super) fn collectors(out: &mut Samples, records: &[CollectorRecord], interval: Nanos) {
    out.push_nanos(&INTERVAL, &[], interval.0);
    for record in records {
        if let Some(at) = record.last_sample {
            out.push(&LAST_SAMPLE, &[record.name], Value::Nanos(at.0));
        }
    }
    for record in records {
        if let Some(stuck) = record.stuck {
            out.push_int(&STUCK, &[record.name], u64::from(stuck));
        }
    }
    for record in records {
        for (reason, n) in ErrorReason::ALL.iter().zip(record.errors) {
            out.push_int(&ERRORS, &[record.name, reason.as_str()], n);
        }
    }
}

/// How old what is shown may be: of tasks, then of each host collector.
pub(super) fn ages(out: &mut Samples, tasks: Option<Timestamp>, host: impl Iterator<Item = (&'static str, Timestamp)>) {
    for (name, at) in tasks.map(|at| (TASKS, at)).into_iter().chain(host) {
        out.push(&OLDEST_SAMPLE, &[name], Value::Nanos(at.0));
    }
}

pub(super) fn capabilities(out: &mut Samples, info: &NodeInfo) {
    for capability in info.capabilities.iter().filter(|capability| !capability.unknown) {
        out.push_owned(&CAPABILITY, vec![capability.feature.clone()], Value::Int(u64::from(capability.available)));
    }
}

pub(super) fn descriptors(out: &mut Samples, sampling: &Arc<SamplingContext>) {
    out.push_int(&OPEN_FILES, &[], sampling.budget.used());
    out.push_int(&OPEN_FILES_LIMIT, &[], sampling.budget.limit());
    out.push_int(&NEEDED_FILES, &[], sampling.budget.needed());
    out.push_int(&REOPENED, &[], sampling.budget.reopened());
}

/// The agent's own process. What cannot be read is absent; other values do not depend on it.
pub(super) fn process(out: &mut Samples, roots: &Roots, info: &NodeInfo) {
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let nanos = |ticks: u64| {
        let seconds = (ticks / ticks_per_second).saturating_mul(1_000_000_000);
        Nanos(seconds.saturating_add(ticks % ticks_per_second * 1_000_000_000 / ticks_per_second))
    };
    if let Some(stat) = roots.read_proc("self/stat").ok().and_then(|text| pid_stat::parse(&text).ok()) {
        out.push_nanos(&PROCESS_CPU, &[], nanos(stat.user_ticks.saturating_add(stat.system_ticks)).0);
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        out.push_int(&PROCESS_RESIDENT, &[], stat.rss_pages.saturating_mul(page));
        if let Some(booted_at) = info.booted_at {
            out.push_nanos(&PROCESS_START, &[], booted_at.plus(nanos(stat.start_ticks)).0);
        }
    }
    if let Some(fds) = open_fds(roots) {
        out.push_int(&PROCESS_FDS, &[], fds);
    }
    if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        out.push_int(&PROCESS_MAX_FDS, &[], limit);
    }
}

/// CPU time that the agent has used, of what [`process`] pushed.
pub fn cpu_ns(agent: &Samples) -> Option<u64> {
    match agent.0.iter().find(|sample| sample.desc.name == PROCESS_CPU.name)?.value {
        Value::Nanos(ns) => Some(ns),
        Value::Int(_) | Value::Float(_) => None,
    }
}

fn open_fds(roots: &Roots) -> Option<u64> {
    let directory = roots.proc("self/fd");
    match std::fs::metadata(&directory).ok()?.len() {
        // Before 6.2 the size is 0, and they must be counted; the listing itself holds one.
        0 => u64::try_from(std::fs::read_dir(&directory).ok()?.count()).ok().map(|n| n.saturating_sub(1)),
        n => Some(n),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::id::BootId;

    pub(crate) fn info() -> NodeInfo {
        NodeInfo {
            identity: crate::model::host::NodeIdentity::default(),
            hostname: "h".into(),
            kernel: "6.1".into(),
            boot_id: BootId("b".into()),
            booted_at: Some(Timestamp(1_000_000_000_000_000_000)),
            cpus: 1,
            memory_bytes: None,
            cgroup_mode: "v2".into(),
            capabilities: vec![],
        }
    }

    fn value(samples: &Samples, desc: &MetricDesc) -> Option<Value> {
        samples.0.iter().find(|s| s.desc.name == desc.name).map(|s| s.value)
    }

    #[test]
    fn this_process_has_memory_descriptors_and_a_start() {
        let mut out = Samples::default();
        process(&mut out, &Roots::default(), &info());
        let Some(Value::Int(resident)) = value(&out, &PROCESS_RESIDENT) else { panic!("no resident memory") };
        assert!(resident > 100_000, "{resident}");
        // Other tests of this process open and close descriptors meanwhile; the kernel also counts numbers that it has
        // given to an open or a pipe that a thread is still waiting for, at most two of each thread.
        let counted = |of: &str| std::fs::read_dir(format!("/proc/self/{of}")).unwrap().count() as u64;
        let is_counted = |_: &u32| {
            let (before, mut out) = (counted("fd"), Samples::default());
            process(&mut out, &Roots::default(), &info());
            let Some(Value::Int(fds)) = value(&out, &PROCESS_FDS) else { panic!("no descriptors") };
            let (after, threads) = (counted("fd"), counted("task"));
            (before.min(after).saturating_sub(1)..=before.max(after) + 2 * threads).contains(&fds)
        };
        assert!((0..10_000).any(|n| is_counted(&n)), "its count is never between two others");
        assert!(matches!(value(&out, &PROCESS_START), Some(Value::Nanos(n)) if n > 1_000_000_000_000_000_000));
    }

    #[test]
    fn without_proc_the_process_is_absent_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().to_owned(), ..Roots::default() };
        let mut out = Samples::default();
        process(&mut out, &roots, &info());
        assert!(value(&out, &PROCESS_CPU).is_none() && value(&out, &PROCESS_FDS).is_none());
    }

    #[test]
    fn every_reason_of_every_collector_is_born_at_zero() {
        let mut out = Samples::default();
        let mut record = CollectorRecord::new("memory");
        collectors(&mut out, std::slice::from_ref(&record), Nanos::from_secs(1));
        assert!(value(&out, &LAST_SAMPLE).is_none(), "it never had values");
        let errors =
            |s: &Samples| s.0.iter().filter(|s| s.desc.name == ERRORS.name).map(|s| s.value).collect::<Vec<_>>();
        assert_eq!(errors(&out), vec![Value::Int(0); 5]);
        record.count(ErrorReason::Parse);
        let mut out = Samples::default();
        collectors(&mut out, &[record], Nanos::from_secs(1));
        assert_eq!(errors(&out)[0], Value::Int(1));
    }
}
