//! What a Nomad client would say of its allocs and of this host, under its names: `GET /metrics/nomad`.
//!
//! Of our own allocs, and of those that a Nomad here runs. Nomad reports CPU usage of a task in percent, from two
//! readings. This page does the same, from the readings of two scrapes.
//!
//! Source: Nomad 1.8, `client/client.go`, `client/allocrunner/taskrunner`; its operations/metrics-reference.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::nomad_host::{self, HostCpu, HostTimes};
use super::tables::{native, one, peer_measures, unit_of};
use crate::exporters::prometheus;
use crate::exporters::walk::{Filter, Listener, MeasuredRows, PageSource, PeerReading, PeerRow, Rows, Walk, families};
use crate::model::alloc::{AllocSource, TaskIdentity};
use crate::model::answer::Format;
use crate::model::id::{AllocId, TaskName};
use crate::model::job::Resources;
use crate::model::measure::{Cell, Measure, Nature};
use crate::model::metric::{MetricDesc, Value};
use crate::model::task::{Outcome, TaskState, TaskStatus};
use crate::model::units::{Timestamp, Unit};
use crate::model::usage::{Field, Usage};
use crate::snapshot::{AllocView, Snapshot, TaskView};
use crate::telemetry::{Metrics, lock};

const MIB: u64 = 1 << 20;

static NOMAD_ROWS: Rows = Rows::new(
    "nomad_client_allocs_",
    &["job", "task_group", "alloc_id", "task", "namespace", "host"],
    |walk| walk.peers().len(),
    |walk, row| walk.peers()[row].subject(),
);

static OF_NOMAD: MeasuredRows<PeerReading> = MeasuredRows {
    rows: &NOMAD_ROWS,
    families: LazyLock::new(|| families::of(&NOMAD_ROWS, MEASURES.iter())),
    readings: |walk| walk.peers().iter().map(|peer| (&peer.reading, peer.reading.runs)).collect(),
    exemplars: None,
};

peer_measures! {
    Live "memory_usage" = "`allostat_task_memory_usage_bytes`", "", "Memory charged, including page cache, in bytes.",
        [[] => |r| r.of(Field::memory_usage_bytes)];
    Live "memory_rss" = "`allostat_task_memory_rss_bytes`", "", "Anonymous memory, in bytes.",
        [[] => |r| r.of(Field::memory_rss_bytes)];
    Live "memory_cache" = "`allostat_task_memory_cache_bytes`", "", "Page cache, in bytes.",
        [[] => |r| r.of(Field::memory_cache_bytes)];
    Live "memory_swap" = "`allostat_task_memory_swap_bytes`",
        "swap alone; on v1 Nomad's process drivers print memory plus swap", "Swap in use, in bytes.",
        [[] => |r| r.of(Field::memory_swap_bytes)];
    Live "memory_mapped_file" = "`allostat_task_memory_mapped_bytes`", "", "Mapped files, in bytes.",
        [[] => |r| r.of(Field::memory_mapped_bytes)];
    Live "memory_max_usage" = "`allostat_task_memory_peak_bytes`",
        "absent where the kernel has no peak: Nomad prints 0 for Docker on v2",
            "Highest memory ever charged, in bytes.",
        [[] => |r| r.of(Field::memory_peak_bytes)];
    Live "memory_kernel_usage" = "`allostat_task_memory_kernel_bytes`", "", "Kernel memory, in bytes.",
        [[] => |r| r.of(Field::memory_kernel_bytes)];
    Limit "memory_allocated" = "`memory` of the job file",
        "managed allocs only",
        "Memory requested by its job, in bytes.",
        [[] => |r| r.requested_memory_bytes.map(Value::Int)];
    Limit "memory_max_allocated" = "`memory_max` of the job file",
        "managed allocs only",
        "Maximum memory allowed by its job, in bytes.",
        [[] => |r| r.requested_memory_max_bytes.map(Value::Int)];
    Live "cpu_total_percent" = "`allostat_task_cpu_usage_seconds_total`", PERCENT, "CPU time, in percent of one CPU.",
        [[] => |r| percent(r.cores[0])];
    Live "cpu_user" = "`allostat_task_cpu_seconds_total{mode=\"user\"}`", PERCENT,
        "CPU time in user mode, in percent of one CPU.",
        [[] => |r| percent(r.cores[1])];
    Live "cpu_system" = "`allostat_task_cpu_seconds_total{mode=\"system\"}`", PERCENT,
        "CPU time in kernel mode, in percent of one CPU.",
        [[] => |r| percent(r.cores[2])];
    Live "cpu_total_ticks" = "`allostat_task_cpu_usage_seconds_total`, times `cpu.totalcompute` of `/v1/node` by CPUs",
        "as the percentages; absent where the host reports no CPU frequency", "CPU time, in MHz.",
        [[] => |r| Some(Value::Float(r.cores[0]? * r.core_mhz?))];
    Live "cpu_throttled_periods" = "`allostat_task_cpu_cfs_throttled_periods_total`",
        "absent without a quota: Nomad prints 0", "Periods in which it was throttled.",
        [[] => |r| r.of(Field::cpu_cfs_throttled_periods)];
    Live "cpu_throttled_time" = "`allostat_task_cpu_throttled_seconds_total`", "absent without a quota: Nomad prints 0",
        "Time for which it was throttled, in nanoseconds.", [[] => |r| r.plain(Field::cpu_throttled_ns)];
    Limit "cpu_allocated" = "`cpu` of the job file", "managed allocs only", "CPU requested by its job, in MHz.",
        [[] => |r| r.requested_cpu_mhz.map(Value::Int)];
    Counter "running" = "`allostat_workload_events_total{event=\"started\"}`", BY_TASK,
        "Times that the task was started.", [[] => |r| r.starts.map(Value::Int)];
    Counter "restart" = "`allostat_task_restarts_total`", BY_TASK,
        "Times that the task was restarted.", [[] => |r| r.restarts.map(Value::Int)];
    Counter "oom_killed" = "`allostat_task_oom_kills_total`", BY_TASK,
        "Attempts in which the kernel's OOM killer killed a process.",
        [[] => |r| r.oom_attempts.map(Value::Int)];
    Counter "complete" = "`allostat_task_state`", BY_TASK,
        "1 once the task has completed successfully.", [[] => |r| r.completed.map(Value::Int)];
    Counter "failed" = "`allostat_task_state`", BY_TASK,
        "1 once the task has failed.", [[] => |r| r.failed.map(Value::Int)];
}

const PERCENT: &str =
    "between the last two scrapes (Nomad: over its last second); absent in the first scrape and 5 min after the last";
const BY_TASK: &str = "managed allocs only, by task; `unknown` in OpenMetrics";

fn percent(cores: Option<f64>) -> Option<Value> {
    cores.map(|cores| Value::Float(cores * 100.0))
}

macro_rules! gauges {
    ($($name:ident $called:literal = $field:literal, $differs:literal, $help:literal;)*) => {
        $(static $name: MetricDesc =
            MetricDesc::gauge($called, Unit::None, $help, &["host"]).from_source($field).absent_when($differs);)*
        static GAUGES: &[&MetricDesc] = &[$(&$name),*];
    };
}

gauges! {
    PENDING "nomad_client_allocations_pending" = "`allostat_allocs{state=\"pending\"}`",
        "managed allocs only", "Allocs that do not run yet.";
    RUNNING "nomad_client_allocations_running" = "`allostat_allocs{state=\"running\"}`",
        "managed allocs only", "Allocs that run.";
    TERMINAL "nomad_client_allocations_terminal" = "`allostat_allocs{state=~\"complete|failed\"}`",
        "managed allocs only", "Allocs that have ended.";
    ALLOCATED_CPU "nomad_client_allocated_cpu" = "`cpu` of the job files",
        "managed allocs that have not ended",
        "CPU requested by allocs, in MHz.";
    ALLOCATED_MEMORY "nomad_client_allocated_memory" = "`memory` of the job files",
        "managed allocs that have not ended",
        "Memory requested by allocs, in MiB.";
    ALLOCATED_MAX "nomad_client_allocated_max_memory" = "`memory_max`, else `memory`, of the job files",
        "managed allocs that have not ended",
        "Maximum memory allowed for allocs, in MiB.";
    FREE_CPU "nomad_client_unallocated_cpu" =
        "`cpu.totalcompute` of `/v1/node` minus allocated CPU",
        "absent where the host reports no CPU frequency; nothing is reserved",
        "CPU not requested by any alloc, in MHz.";
    FREE_MEMORY "nomad_client_unallocated_memory" =
        "`allostat_host_memory_total_bytes` minus allocated memory", "nothing is reserved",
        "Memory not requested by any alloc, in MiB.";
    HOST_TOTAL "nomad_client_host_memory_total" = "`allostat_host_memory_total_bytes`", "never",
        "Memory of this host, in bytes.";
    HOST_AVAILABLE "nomad_client_host_memory_available" = "`allostat_host_memory_available_bytes`", "never",
        "Memory available without swapping, in bytes.";
    HOST_USED "nomad_client_host_memory_used" =
        "`allostat_host_memory_total_bytes` minus `allostat_host_memory_available_bytes`",
        "page cache that is not reclaimable counts as used", "Memory in use, in bytes.";
    UPTIME "nomad_client_uptime" = "`/v1/node`: `booted_at`", "never", "Uptime of this host, in seconds.";
}

/// In the order of the page.
pub fn descriptors() -> Vec<&'static MetricDesc> {
    let of_allocs = OF_NOMAD.families.iter().map(|family| &family.desc);
    of_allocs.chain(GAUGES.iter().copied()).chain(nomad_host::descriptors()).collect()
}

/// The whole page. `total_mhz`: of all CPUs together, where the host reports it.
pub fn encode(
    snapshot: &Snapshot,
    metrics: &Metrics,
    format: Format,
    (window, total_mhz): (&CpuWindow, Option<f64>),
) -> Vec<u8> {
    let everything = Filter::default();
    let (cores, cpu) = window.measure(snapshot);
    #[allow(clippy::cast_precision_loss, reason = "a host has fewer CPUs than that")]
    let core_mhz = total_mhz.filter(|_| snapshot.info.cpus > 0).map(|mhz| mhz / snapshot.info.cpus as f64);
    let rows = rows(snapshot, &cores, core_mhz);
    let walk = Walk::new(snapshot, metrics, &everything).with_peers(rows);
    prometheus::encode_page(&walk, format, &Client { total_mhz, cpu })
}

struct Client {
    total_mhz: Option<f64>,
    cpu: Option<HostCpu>,
}

impl PageSource for Client {
    #[allow(clippy::cast_precision_loss, reason = "MiB and MHz of one host")]
    fn expose(&self, walk: &Walk<'_>, listener: &mut impl Listener) {
        walk.expose_measures(listener, &OF_NOMAD);
        let snapshot = walk.snapshot;
        let host = [vec![("host", snapshot.info.hostname.as_str())]];
        let mut gauge = |desc, value: Option<Value>| one(listener, desc, &host, [value]);
        let [pending, running, complete, failed] = snapshot.counts.allocs;
        gauge(&PENDING, Some(Value::Int(pending)));
        gauge(&RUNNING, Some(Value::Int(running)));
        gauge(&TERMINAL, Some(Value::Int(complete + failed)));
        let requests: Vec<&Resources> = requested_resources(snapshot).collect();
        let cpu: u64 = requests.iter().filter_map(|of| of.cpu_shares).sum();
        let memory = requests.iter().filter_map(|of| of.memory_bytes).sum::<u64>() / MIB;
        let most = requests.iter().filter_map(|of| of.memory_max_bytes.or(of.memory_bytes)).sum::<u64>() / MIB;
        gauge(&ALLOCATED_CPU, Some(Value::Int(cpu)));
        gauge(&ALLOCATED_MEMORY, Some(Value::Int(memory)));
        gauge(&ALLOCATED_MAX, Some(Value::Int(most)));
        let bytes = |name: &str| {
            let sample = snapshot.host.0.iter().find(|sample| sample.desc.name == name)?;
            if let Value::Int(bytes) = sample.value { Some(bytes) } else { None }
        };
        let total = bytes("allostat_host_memory_total_bytes");
        let available = bytes("allostat_host_memory_available_bytes");
        // Below 0 where more was promised than there is.
        gauge(&FREE_CPU, self.total_mhz.map(|mhz| Value::Float(mhz - cpu as f64)));
        gauge(&FREE_MEMORY, total.map(|total| Value::Float((total / MIB) as f64 - memory as f64)));
        gauge(&HOST_TOTAL, total.map(Value::Int));
        gauge(&HOST_AVAILABLE, available.map(Value::Int));
        gauge(&HOST_USED, total.zip(available).and_then(|(total, free)| total.checked_sub(free)).map(Value::Int));
        let uptime = snapshot.info.booted_at.map(|at| snapshot.taken_at.since(at).0 / 1_000_000_000);
        gauge(&UPTIME, uptime.map(Value::Int));
        nomad_host::expose(listener, snapshot, self.cpu, self.total_mhz);
    }
}

/// What the tasks of our own allocs ask for that have not ended.
fn requested_resources(snapshot: &Snapshot) -> impl Iterator<Item = &Resources> {
    let live = snapshot.allocs.iter().filter_map(|alloc| alloc.status.as_ref()).filter(|status| !status.is_terminal());
    live.filter_map(|status| status.task_group()).flat_map(|group| group.tasks.iter().map(|task| &task.resources))
}

fn rows(snapshot: &Snapshot, cores: &Cores, core_mhz: Option<f64>) -> Vec<PeerRow> {
    let of_nomad = |alloc: &&Arc<AllocView>| {
        !alloc.retired && matches!(alloc.identity.source, AllocSource::Managed | AllocSource::Nomad)
    };
    let tasks = snapshot.allocs.iter().filter(of_nomad).flat_map(|alloc| alloc.tasks().map(move |task| (alloc, task)));
    let row = |(alloc, task): (&Arc<AllocView>, (&TaskIdentity, &TaskView))| {
        let cores = cores.get(&(alloc.identity.id.clone(), task.0.name.clone())).copied().unwrap_or_default();
        let reading = PeerReading { cores, core_mhz, ..reading(alloc, task) };
        PeerRow { labels: labels(alloc, task.0, &snapshot.info.hostname), reading }
    };
    tasks.map(row).collect()
}

fn labels(alloc: &AllocView, task: &TaskIdentity, host: &str) -> Vec<(std::borrow::Cow<'static, str>, String)> {
    let of = &alloc.identity;
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    vec![
        ("job".into(), text(of.workload.as_ref().map(|job| job.as_str()))),
        ("task_group".into(), text(of.group.as_ref().map(|group| group.as_str()))),
        ("alloc_id".into(), native(alloc).to_owned()),
        ("task".into(), task.name.to_string()),
        ("namespace".into(), of.namespace.clone()),
        ("host".into(), host.to_owned()),
    ]
}

fn reading(alloc: &AllocView, (known, task): (&TaskIdentity, &TaskView)) -> PeerReading {
    let runs = task.attempt.is_some();
    let usage = task.attempt.clone().unwrap_or_default();
    // What has ended has nothing of the host any more.
    let requested = alloc
        .status
        .as_ref()
        .filter(|_| !alloc.ended)
        .and_then(|status| status.task_group()?.task(known.name.as_str()));
    let requested = requested.map(|task| &task.resources);
    let reading = PeerReading {
        usage,
        runs,
        requested_cpu_mhz: requested.and_then(|of| of.cpu_shares),
        requested_memory_bytes: requested.and_then(|of| of.memory_bytes),
        requested_memory_max_bytes: requested.and_then(|of| of.memory_max_bytes),
        ..PeerReading::default()
    };
    match &task.managed {
        Some(managed) => counted(&managed.status, reading),
        None => reading,
    }
}

fn counted(task: &TaskStatus, reading: PeerReading) -> PeerReading {
    let is_over = task.state == TaskState::Dead;
    PeerReading {
        starts: Some(task.event_counts.get("started").copied().unwrap_or(0)),
        restarts: Some(task.restarts_total()),
        // An agent before this one counted the attempts alone that ended so.
        oom_attempts: Some(task.oom_attempts.max(task.exit_counts[Outcome::Oom.index()])),
        completed: Some(u64::from(is_over && !task.failed)),
        failed: Some(u64::from(is_over && task.failed)),
        ..reading
    }
}

/// CPU time in cores of each task: all, of the user, of the kernel.
type Cores = HashMap<(AllocId, TaskName), [Option<f64>; 3]>;

/// What tasks had used at one tick.
#[derive(Debug)]
struct UsageAtTick {
    epoch: u64,
    /// When its readings were taken: of managed tasks, of observed tasks. A request may have the latter read later.
    at: [Option<Timestamp>; 2],
    used: HashMap<(AllocId, TaskName), TaskCpuTime>,
    host: Option<(Timestamp, HostTimes)>,
}

#[derive(Debug, Clone, Copy)]
struct TaskCpuTime {
    /// Whose it is: which of the two moments is meant.
    kind: usize,
    cpu: [Option<u64>; 3],
}

/// From one scrape to the next: without a scraper it costs nothing. Concurrency: any thread.
#[derive(Debug, Default)]
pub struct CpuWindow(Mutex<[Option<UsageAtTick>; 2]>);

/// A longer one says little of now.
const LONGEST: u64 = 300 * 1_000_000_000;

impl CpuWindow {
    /// What each task and the host used since the scrape before. Absent: of one that was not there then.
    fn measure(&self, snapshot: &Snapshot) -> (Cores, Option<HostCpu>) {
        let mut retained = lock(&self.0);
        // A scraper that comes twice within a tick gets the same answer.
        if retained[1].as_ref().is_none_or(|latest| latest.epoch < snapshot.epoch) {
            let latest = retained[1].replace(UsageAtTick::at(snapshot));
            retained[0] = latest;
        }
        let [Some(before), Some(now)] = &*retained else { return (Cores::new(), None) };
        let windows = [0, 1].map(|kind| {
            let window = now.at[kind]?.since(before.at[kind]?).0;
            (1..=LONGEST).contains(&window).then_some(window)
        });
        #[allow(clippy::cast_precision_loss, reason = "a ratio of two times")]
        let cores = |now: Option<u64>, before: Option<u64>, window: u64| {
            Some(now?.checked_sub(before?)? as f64 / window as f64)
        };
        let both = now.used.iter().filter_map(|(subject, now)| {
            let (window, before) = (windows[now.kind]?, before.used.get(subject)?);
            Some((subject.clone(), [0, 1, 2].map(|n| cores(now.cpu[n], before.cpu[n], window))))
        });
        (both.collect(), host(before, now))
    }
}

fn host(before: &UsageAtTick, now: &UsageAtTick) -> Option<HostCpu> {
    let ((earlier, before), (at, now)) = (before.host.as_ref()?, now.host.as_ref()?);
    if at.since(*earlier).0 > LONGEST { None } else { now.since(before) }
}

impl UsageAtTick {
    fn at(snapshot: &Snapshot) -> UsageAtTick {
        let tasks = || snapshot.allocs.iter().filter(|a| !a.ended).flat_map(|a| a.tasks().map(move |task| (a, task)));
        // What did not move was looked at with what did, and is as old as that.
        let kind = |alloc: &AllocView| usize::from(alloc.identity.source != AllocSource::Managed);
        let sampled =
            |of: usize| tasks().filter(move |(a, _)| kind(a) == of).filter_map(|(_, (_, task))| task.sampled_at);
        let at = [0, 1].map(|of| sampled(of).max());
        let cpu = |usage: &Usage| [usage.cpu_usage_ns(), usage.cpu_user_ns(), usage.cpu_system_ns()];
        let used = tasks().map(|(alloc, (known, task))| {
            ((alloc.identity.id.clone(), known.name.clone()), TaskCpuTime { kind: kind(alloc), cpu: cpu(&task.usage) })
        });
        UsageAtTick { epoch: snapshot.epoch, at, used: used.collect(), host: HostTimes::at(snapshot) }
    }
}
