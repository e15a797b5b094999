//! What cAdvisor and the kubelet would say of this host, under their names: `GET /metrics/cadvisor`.
//!
//! A row is a container, that is a task whose cgroup is there, as long as it runs; of a pod its own cgroup too, and the
//! host's root. Its values are those of that cgroup alone, as in cAdvisor: a container that is started again counts
//! from 0.
//!
//! Source: cAdvisor 0.49, docs/storage/prometheus.md and its handlers of cgroups; the kubelet's labels of its
//! `/metrics/cadvisor`.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use super::root;
use super::tables::{native, one, peer_measures, unit_of};
use crate::exporters::prometheus;
use crate::exporters::walk::{
    Filter, Listener, MeasuredRows, PageSource, PeerReading, PeerRow, Rows, Walk, families, is_named_pod,
};
use crate::model::alloc::{AllocSource, TaskIdentity};
use crate::model::answer::Format;
use crate::model::disk_io::DiskIo;
use crate::model::host::NodeInfo;
use crate::model::measure::{Cell, Measure, Nature};
use crate::model::metric::{MetricDesc, Value};
use crate::model::usage::{Field, Usage};
use crate::snapshot::{Aggregation, AllocView, Snapshot, TaskView};
use crate::telemetry::Metrics;

/// What belongs to a network namespace, and not to a cgroup.
const NETWORK: [Field; 8] = [
    Field::network_receive_bytes,
    Field::network_receive_packets,
    Field::network_receive_errors,
    Field::network_receive_drops,
    Field::network_transmit_bytes,
    Field::network_transmit_packets,
    Field::network_transmit_errors,
    Field::network_transmit_drops,
];

static CONTAINER_ROWS: Rows = Rows::new(
    "container_",
    &["id", "image", "name"],
    |walk| walk.peers().len(),
    |walk, row| walk.peers()[row].subject(),
);

static OF_CONTAINERS: MeasuredRows<PeerReading> = MeasuredRows {
    rows: &CONTAINER_ROWS,
    families: LazyLock::new(|| families::of(&CONTAINER_ROWS, MEASURES.iter())),
    readings: |walk| walk.peers().iter().map(|peer| (&peer.reading, true)).collect(),
    exemplars: None,
};

peer_measures! {
    Live "last_seen" = "time of the snapshot", "", "Time at which the container was last seen.",
        [[] => |r| Some(Value::Nanos(r.seen_at?.0))];
    Live "start_time_seconds" = "`allostat_task_start_time_seconds`; of containers, their creation",
        "of one that ran before the agent, the start of its oldest process; absent if that cannot be read",
        "Time at which the container was created or started.", [[] => |r| Some(Value::Nanos(r.started_at?.0))];
    Counter "cpu_usage_seconds_total" = "`allostat_task_cpu_usage_seconds_total`",
        "`cpu=\"total\"` only, as in the kubelet",
        "CPU time used.", [[("cpu", "total")] => |r| r.of(Field::cpu_usage_ns)];
    Counter "cpu_user_seconds_total" = "`allostat_task_cpu_seconds_total{mode=\"user\"}`", "", "CPU time in user mode.",
        [[] => |r| r.of(Field::cpu_user_ns)];
    Counter "cpu_system_seconds_total" = "`allostat_task_cpu_seconds_total{mode=\"system\"}`", "",
        "CPU time in kernel mode.",
        [[] => |r| r.of(Field::cpu_system_ns)];
    Counter "cpu_cfs_periods_total" = "`allostat_task_cpu_cfs_periods_total`", "absent without a quota, as in cAdvisor",
        "Elapsed periods of its CPU quota.", [[] => |r| r.of(Field::cpu_cfs_periods)];
    Counter "cpu_cfs_throttled_periods_total" = "`allostat_task_cpu_cfs_throttled_periods_total`",
        "absent without a quota, as in cAdvisor",
        "Periods in which it was throttled.", [[] => |r| r.of(Field::cpu_cfs_throttled_periods)];
    Counter "cpu_cfs_throttled_seconds_total" = "`allostat_task_cpu_throttled_seconds_total`",
        "absent without a quota, as in cAdvisor",
        "Time for which it was throttled.", [[] => |r| r.of(Field::cpu_throttled_ns)];
    Counter "cpu_cfs_burst_periods_total" = "`allostat_task_cpu_burst_periods_total`", "absent without a quota",
        "Periods in which it used burst time above its quota.", [[] => |r| r.of(Field::cpu_burst_periods)];
    Counter "cpu_cfs_burst_seconds_total" = "`allostat_task_cpu_burst_seconds_total`", "absent without a quota",
        "Burst CPU time above its quota.", [[] => |r| r.of(Field::cpu_burst_ns)];
    Live "memory_usage_bytes" = "`allostat_task_memory_usage_bytes`", "", "Memory charged, including page cache.",
        [[] => |r| r.of(Field::memory_usage_bytes)];
    Live "memory_working_set_bytes" = "`allostat_task_memory_working_set_bytes`", "",
        "Memory in use minus inactive page cache.",
        [[] => |r| r.of(Field::memory_working_set_bytes)];
    Peak "memory_max_usage_bytes" = "`allostat_task_memory_peak_bytes`",
        "absent where the kernel has no peak (v2 before 5.19): cAdvisor prints 0", "Highest memory ever charged.",
        [[] => |r| r.of(Field::memory_peak_bytes)];
    Live "memory_rss" = "`allostat_task_memory_rss_bytes`", "", "Anonymous memory, in bytes.",
        [[] => |r| r.of(Field::memory_rss_bytes)];
    Live "memory_cache" = "`allostat_task_memory_cache_bytes`", "", "Page cache, in bytes.",
        [[] => |r| r.of(Field::memory_cache_bytes)];
    Live "memory_swap" = "`allostat_task_memory_swap_bytes`",
        "absent where swap is not accounted: cAdvisor prints 0", "Swap in use, in bytes.",
        [[] => |r| r.of(Field::memory_swap_bytes)];
    Live "memory_mapped_file" = "`allostat_task_memory_mapped_bytes`", "", "Mapped files, in bytes.",
        [[] => |r| r.of(Field::memory_mapped_bytes)];
    Live "memory_kernel_usage" = "`allostat_task_memory_kernel_bytes`", "", "Kernel memory, in bytes.",
        [[] => |r| r.of(Field::memory_kernel_bytes)];
    Live "memory_total_inactive_file_bytes" =
        "`allostat_task_memory_usage_bytes` minus `allostat_task_memory_working_set_bytes`",
        "absent where it is all of the usage: there may be more", "Inactive page cache.",
        [[] => |r| inactive_file(r)];
    Live "memory_file_dirty_bytes" = "`allostat_task_memory_dirty_bytes`",
        "not a name of cAdvisor 0.49; newer ones have it", "Page cache waiting to be written to disk.",
        [[] => |r| r.of(Field::memory_dirty_bytes)];
    Counter "memory_workingset_refault_anon_total" = "`allostat_task_workingset_refaults_total{kind=\"anon\"}`",
        "absent on v1, as there", "Refaults of anonymous pages that were evicted recently.",
        [[] => |r| r.of(Field::workingset_refaults_anon)];
    Counter "memory_workingset_refault_file_total" = "`allostat_task_workingset_refaults_total{kind=\"file\"}`",
        "absent on v1, as there", "Refaults of pages of files that were evicted recently.",
        [[] => |r| r.of(Field::workingset_refaults_file)];
    Counter "memory_failcnt" = "`allostat_task_memory_limit_hits_total`",
        "`unknown` in OpenMetrics, whose counters end in `_total`", "Memory charges that failed at the limit.",
        [[] => |r| r.of(Field::memory_limit_hits)];
    Counter "memory_failures_total" = "`allostat_task_page_faults_total`",
        "includes child cgroups in both scopes; cAdvisor has the cgroup alone in both",
        "Page faults.", [
            [("failure_type", "pgfault"), ("scope", "container")] => |r| faults(r),
            [("failure_type", "pgfault"), ("scope", "hierarchy")] => |r| faults(r),
            [("failure_type", "pgmajfault"), ("scope", "container")] => |r| r.of(Field::page_faults_major),
            [("failure_type", "pgmajfault"), ("scope", "hierarchy")] => |r| r.of(Field::page_faults_major)
        ];
    Counter "oom_events_total" = "`allostat_task_oom_kills_total`",
        "kills counted by the cgroup; cAdvisor reads the kernel log",
        "Processes killed by the kernel's OOM killer.", [[] => |r| r.of(Field::oom_kills)];
    Counter "fs_reads_bytes_total" = "`allostat_task_io_read_bytes_total`",
        DEVICES, "Bytes read from disks.",
        [[] => |r| r.of(Field::io_read_bytes)];
    Counter "fs_writes_bytes_total" = "`allostat_task_io_written_bytes_total`",
        DEVICES, "Bytes written to disks.",
        [[] => |r| r.of(Field::io_written_bytes)];
    Counter "fs_reads_total" = "`allostat_task_io_reads_total`",
        DEVICES, "Reads from disks.",
        [[] => |r| r.of(Field::io_reads)];
    Counter "fs_writes_total" = "`allostat_task_io_writes_total`",
        DEVICES, "Writes to disks.",
        [[] => |r| r.of(Field::io_writes)];
    Counter "network_receive_bytes_total" = "`allostat_task_network_receive_bytes_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Bytes received.", [[] => |r| r.of(Field::network_receive_bytes)];
    Counter "network_receive_packets_total" = "`allostat_task_network_receive_packets_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Packets received.", [[] => |r| r.of(Field::network_receive_packets)];
    Counter "network_receive_errors_total" = "`allostat_task_network_receive_errors_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Packets received with errors.", [[] => |r| r.of(Field::network_receive_errors)];
    Counter "network_receive_packets_dropped_total" = "`allostat_task_network_receive_drops_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Received packets that were dropped.", [[] => |r| r.of(Field::network_receive_drops)];
    Counter "network_transmit_bytes_total" = "`allostat_task_network_transmit_bytes_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Bytes sent.", [[] => |r| r.of(Field::network_transmit_bytes)];
    Counter "network_transmit_packets_total" = "`allostat_task_network_transmit_packets_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Packets sent.", [[] => |r| r.of(Field::network_transmit_packets)];
    Counter "network_transmit_errors_total" = "`allostat_task_network_transmit_errors_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Packets not sent because of errors.", [[] => |r| r.of(Field::network_transmit_errors)];
    Counter "network_transmit_packets_dropped_total" = "`allostat_task_network_transmit_drops_total`",
        "sum over the interfaces of a container; `id=\"/\"` has those of the host, each with its `interface`",
        "Packets dropped instead of sent.", [[] => |r| r.of(Field::network_transmit_drops)];
    Live "processes" = "`allostat_task_processes`", "", "Processes.", [[] => |r| r.of(Field::processes)];
    Live "threads" = "`allostat_task_pids_current`", "", "Threads.", [[] => |r| r.of(Field::pids_current)];
    Limit "threads_max" = "`allostat_task_pids_limit`",
        "absent without a limit: cAdvisor prints 0",
        "Limit of threads.",
        [[] => |r| r.of(Field::pids_limit)];
    Live "file_descriptors" = "`allostat_task_open_fds`", "",
        "Open file descriptors.", [[] => |r| r.of(Field::open_fds)];
    Counter "pressure_cpu_waiting_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"cpu\",kind=\"some\"}`",
        "absent where the kernel has no PSI", "Time in which some of its threads waited for a CPU.",
        [[] => |r| r.of(Field::pressure_cpu_some_ns)];
    Counter "pressure_cpu_stalled_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"cpu\",kind=\"full\"}`",
        "absent where the kernel has no PSI", "Time in which all of its threads waited for a CPU.",
        [[] => |r| r.of(Field::pressure_cpu_full_ns)];
    Counter "pressure_memory_waiting_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"memory\",kind=\"some\"}`",
        "absent where the kernel has no PSI", "Time in which some of its threads waited for memory.",
        [[] => |r| r.of(Field::pressure_memory_some_ns)];
    Counter "pressure_memory_stalled_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"memory\",kind=\"full\"}`",
        "absent where the kernel has no PSI", "Time in which all of its threads waited for memory.",
        [[] => |r| r.of(Field::pressure_memory_full_ns)];
    Counter "pressure_io_waiting_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"io\",kind=\"some\"}`",
        "absent where the kernel has no PSI", "Time in which some of its threads waited for disks.",
        [[] => |r| r.of(Field::pressure_io_some_ns)];
    Counter "pressure_io_stalled_seconds_total" =
        "`allostat_task_pressure_stall_seconds_total{resource=\"io\",kind=\"full\"}`",
        "absent where the kernel has no PSI", "Time in which all of its threads waited for disks.",
        [[] => |r| r.of(Field::pressure_io_full_ns)];
    Limit "spec_cpu_quota" = "`allostat_task_cpu_limit_cores`, in microseconds of a period",
        "absent without a quota, as in cAdvisor",
        "CPU quota per period, in microseconds.", [[] => |r| r.plain(Field::cpu_quota_us)];
    Limit "spec_cpu_period" = "`cpu.cfs_period_us`, `cpu.max`", "",
        "Length of a quota period, in microseconds.",
        [[] => |r| r.plain(Field::cpu_period_us)];
    Limit "spec_cpu_shares" = "`allostat_task_cpu_shares`, else `allostat_task_cpu_weight`",
        "a weight is converted to shares, as in cAdvisor",
        "Relative CPU share under contention.", [[] => |r| shares(r)];
    Limit "spec_memory_limit_bytes" = "`allostat_task_memory_limit_bytes`",
        "the lowest limit up the tree, absent without one; cAdvisor prints the limit of the cgroup alone, and 0 for \
         none",
        "Memory limit.", [[] => |r| r.of(Field::memory_limit_bytes)];
    Limit "spec_memory_reservation_limit_bytes" = "`allostat_task_memory_reservation_bytes`",
        "v1 only: on v2 versions of cAdvisor differ", "Memory reservation (soft limit).",
        [[] => |r| r.memory_soft_limit_bytes.map(Value::Int)];
}

const DEVICES: &str =
    "one row for each `device`; a pod's own cgroup, and a container that used no device, have a sum without it";

fn inactive_file(of: &PeerReading) -> Option<Value> {
    let working_set = of.usage.memory_working_set_bytes().filter(|bytes| *bytes > 0)?;
    of.usage.memory_usage_bytes()?.checked_sub(working_set).map(Value::Int)
}

/// Of either kind: cAdvisor has the major ones among these too.
fn faults(of: &PeerReading) -> Option<Value> {
    Some(Value::Int(of.usage.page_faults_minor()?.saturating_add(of.usage.page_faults_major()?)))
}

/// v2 has weights, 1 to 10,000; shares are 2 to 262,144.
fn shares(of: &PeerReading) -> Option<Value> {
    let of_weight = |weight: u64| 2 + (weight.clamp(1, 10_000) - 1) * 262_142 / 9_999;
    of.usage.cpu_shares().or_else(|| of.usage.cpu_weight().map(of_weight)).map(Value::Int)
}

static MACHINE_CPU_CORES: MetricDesc =
    MetricDesc::gauge("machine_cpu_cores", unit_of(""), "CPUs of this host.", &[]).from_source("`/v1/node`: `cpus`");
static MACHINE_MEMORY: MetricDesc =
    MetricDesc::gauge("machine_memory_bytes", unit_of("_bytes"), "Memory of this host.", &[])
        .from_source("`/v1/node`: `memory_bytes`");
static VERSION: MetricDesc = MetricDesc::info(
    "cadvisor_version_info",
    "Kernel version of this host; exposed by allostat, not by cAdvisor.",
    &["kernelVersion"],
)
.from_source("`/v1/node`: `kernel`")
.absent_when("has no version of cAdvisor, Docker or the distribution");

/// In the order of the page.
pub fn descriptors() -> Vec<&'static MetricDesc> {
    let of_containers = OF_CONTAINERS.families.iter().map(|family| &family.desc);
    of_containers.chain([&MACHINE_CPU_CORES, &MACHINE_MEMORY, &VERSION]).collect()
}

/// The whole page. Costs: some milliseconds for a thousand containers.
pub fn encode(snapshot: &Snapshot, metrics: &Metrics, format: Format) -> Vec<u8> {
    let everything = Filter::default();
    let walk = Walk::new(snapshot, metrics, &everything).with_peers(rows(snapshot));
    prometheus::encode_page(&walk, format, &Containers)
}

struct Containers;

impl PageSource for Containers {
    fn expose(&self, walk: &Walk<'_>, listener: &mut impl Listener) {
        walk.expose_measures(listener, &OF_CONTAINERS);
        let info = &walk.snapshot.info;
        one(listener, &MACHINE_CPU_CORES, &[Vec::new()], [Some(Value::Int(info.cpus))]);
        one(listener, &MACHINE_MEMORY, &[Vec::new()], [info.memory_bytes.map(Value::Int)]);
        one(listener, &VERSION, &[vec![("kernelVersion", info.kernel.as_str())]], [Some(Value::Int(1))]);
    }
}

/// Of each alloc its containers, and behind those of a pod the pod.
fn rows(snapshot: &Snapshot) -> Vec<PeerRow> {
    let mut rows = Vec::new();
    // One above its workload's churn limit has no series of its own here either.
    for alloc in snapshot.allocs.iter().filter(|alloc| !alloc.ended && !alloc.retired) {
        let before = rows.len();
        rows.extend(alloc.tasks().filter_map(|task| container(alloc, task, snapshot)).flatten());
        if rows.len() > before {
            rows.extend(pod(alloc, snapshot));
        }
    }
    rows.extend(root::rows(snapshot));
    rows
}

/// `None`: it does not run, or in no cgroup of its own.
fn container(
    alloc: &AllocView,
    (known, task): (&TaskIdentity, &TaskView),
    snapshot: &Snapshot,
) -> Option<Vec<PeerRow>> {
    let host = &*snapshot.info;
    let usage = Arc::clone(task.attempt.as_ref()?);
    let managed = task.managed.as_ref().map(|task| &task.status);
    let observed = task.observed.as_ref();
    let cgroup = managed.and_then(|task| task.cgroup.as_ref()).or_else(|| observed?.cgroup.as_ref())?;
    let id = cgroup.as_str().to_owned();
    let name = name(alloc, known, &id);
    let mut labels =
        vec![("id".into(), id), ("image".into(), known.image.clone().unwrap_or_default()), ("name".into(), name)];
    if is_named_pod(&alloc.identity) {
        labels.extend(pod_labels(alloc, Some(known), host));
    }
    let chosen = alloc.observed.iter().flat_map(|alloc| &alloc.labels);
    labels.extend(chosen.map(|label| (format!("container_{}", label.name).into(), label.value.clone())));
    let started_at = match managed {
        Some(task) => task.started_at,
        None => alloc.identity.created_at.or(task.started_at),
    };
    let memory_soft_limit_bytes = usage.memory_reservation_bytes().filter(|_| is_v1(host));
    let seen_at = Some(snapshot.taken_at);
    let reading =
        PeerReading { usage, seen_at, started_at, memory_soft_limit_bytes, runs: true, ..PeerReading::default() };
    Some(by_device(PeerRow { labels, reading }, task.disks.as_deref().unwrap_or_default()))
}

/// The row, and one more for each device with what was read from it and written to it.
fn by_device(row: PeerRow, disks: &[DiskIo]) -> Vec<PeerRow> {
    const FIELDS: [Field; 4] = [Field::io_read_bytes, Field::io_written_bytes, Field::io_reads, Field::io_writes];
    if disks.is_empty() {
        return vec![row];
    }
    let of_device = |disk: &DiskIo| {
        let mut usage = Usage::default();
        FIELDS.into_iter().zip(disk.counts).for_each(|(field, count)| usage.set(field, count));
        let device = ("device".into(), format!("/dev/{}", disk.disk));
        let labels = row.labels.iter().cloned().chain([device]).collect();
        PeerRow { labels, reading: PeerReading { usage: Arc::new(usage), runs: true, ..PeerReading::default() } }
    };
    let of_devices: Vec<PeerRow> = disks.iter().map(of_device).collect();
    let mut usage = Usage::clone(&row.reading.usage);
    FIELDS.into_iter().for_each(|field| usage.set(field, None));
    let whole = PeerRow { reading: PeerReading { usage: Arc::new(usage), ..row.reading }, labels: row.labels };
    std::iter::once(whole).chain(of_devices).collect()
}

/// What cAdvisor calls it: a container by its runtime's name, or id; what is no container has only the path of its
/// cgroup.
fn name(alloc: &AllocView, known: &TaskIdentity, cgroup: &str) -> String {
    match alloc.identity.source {
        AllocSource::Docker | AllocSource::Podman | AllocSource::Containerd | AllocSource::Lxc => {
            alloc.identity.name.clone()
        }
        AllocSource::Kubernetes => {
            let last = cgroup.rsplit('/').next().unwrap_or(cgroup);
            let id = last.strip_suffix(".scope").unwrap_or(last);
            id.rsplit('-').next().unwrap_or(id).to_owned()
        }
        // As Nomad calls its containers.
        AllocSource::Managed => format!("{}-{}", known.name, alloc.identity.id),
        AllocSource::Nomad => format!("{}-{}", known.name, native(alloc)),
        AllocSource::Systemd
        | AllocSource::Slurm
        | AllocSource::Libvirt
        | AllocSource::Process
        | AllocSource::Cgroup => String::new(),
    }
}

/// The labels that the kubelet gives a pod, and its containers. The node is the host name.
fn pod_labels(
    alloc: &AllocView,
    container: Option<&TaskIdentity>,
    host: &NodeInfo,
) -> impl Iterator<Item = (Cow<'static, str>, String)> {
    let of = &alloc.identity;
    let container = container.map(|known| ("container", known.name.to_string()));
    let pod = [("namespace", of.namespace.clone()), ("pod", of.name.clone())];
    let all = pod.into_iter().chain(container).chain([("node", host.hostname.clone())]);
    all.map(|(label, value)| (label.into(), value))
}

fn is_v1(host: &NodeInfo) -> bool {
    host.cgroup_mode != "v2"
}

fn pod(alloc: &AllocView, snapshot: &Snapshot) -> Option<PeerRow> {
    let host = &*snapshot.info;
    let of = Some(&alloc.identity).filter(|of| is_named_pod(of))?;
    let cgroup = of.cgroup.as_ref().filter(|_| alloc.aggregation == Aggregation::Cgroup)?;
    let labels = std::iter::once(("id".into(), cgroup.to_string())).chain(pod_labels(alloc, None, host)).collect();
    let mut usage = Usage::clone(&alloc.usage);
    // The rules add up all rows of a pod, and the container that holds its network has the traffic already.
    NETWORK.into_iter().for_each(|field| usage.set(field, None));
    let memory_soft_limit_bytes = usage.memory_reservation_bytes().filter(|_| is_v1(host));
    let reading = PeerReading {
        usage: Arc::new(usage),
        seen_at: Some(snapshot.taken_at),
        started_at: of.created_at,
        memory_soft_limit_bytes,
        runs: true,
        ..PeerReading::default()
    };
    Some(PeerRow { labels, reading })
}
