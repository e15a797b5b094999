//! CPU time, quota and throttling of a task. Source: cgroup v1 cpu and cpuacct controllers, v2 `cpu.*`;
//! Documentation/scheduler/sched-bwc.rst, cgroup-v2.rst.

use super::hierarchy::FileHierarchy;
use super::raw::RawValues;
use super::table::{KernelFile, SubjectFiles, number, value, values};
use crate::kernel::ParseError;
use crate::kernel::cgroup::{cpu_max, cpu_stat, cpuacct, cpuset};
use crate::model::measure::{Cell, ChangeTrigger, Measure, Nature, ValueSource};
use crate::model::metric::Value;
use crate::model::profile::Profile::{Full, Lean, Standard};
use crate::model::units::Unit;
use crate::model::usage::{Field, Usage};

const ACCT: FileHierarchy = FileHierarchy::V1("cpuacct");
const V1: FileHierarchy = FileHierarchy::V1("cpu");
const V2: FileHierarchy = FileHierarchy::V2("cpu");

const MODES: &[Field] = &[Field::cpu_user_ns, Field::cpu_system_ns];
/// CPU usage on a hybrid host whose v1 hierarchies have no cgroup for the service (no CPU accounting on v1).
const UNIFIED: &[Field] = &[Field::cpu_usage_ns, Field::cpu_user_ns, Field::cpu_system_ns];
/// Shown only with a quota, so the files that provide the quota provide these as well.
const THROTTLING: &[Field] = &[
    Field::cpu_cfs_periods,
    Field::cpu_cfs_throttled_periods,
    Field::cpu_throttled_ns,
    Field::cpu_burst_periods,
    Field::cpu_burst_ns,
];
const QUOTA: &[Field] = &[
    Field::cpu_quota_us,
    Field::cpu_period_us,
    Field::cpu_cfs_periods,
    Field::cpu_cfs_throttled_periods,
    Field::cpu_throttled_ns,
    Field::cpu_burst_periods,
    Field::cpu_burst_ns,
];
const STAT: &[Field] = &[
    Field::cpu_usage_ns,
    Field::cpu_user_ns,
    Field::cpu_system_ns,
    Field::cpu_cfs_periods,
    Field::cpu_cfs_throttled_periods,
    Field::cpu_throttled_ns,
    Field::cpu_burst_periods,
    Field::cpu_burst_ns,
];

const FILES: &[KernelFile] = &[
    // v1 estimates user and system time from clock ticks: a task shorter than a tick has neither. The unified tree of
    // the same host divides the exact CPU time.
    KernelFile::new(FileHierarchy::HybridUnified("cpuacct"), "cpu.stat", ChangeTrigger::Ran, UNIFIED, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v2);
        raw.exact_modes = stat.user_ns.zip(stat.system_ns);
        raw.unified_cpu_ns = stat.usage_ns;
        error
    }),
    KernelFile::new(ACCT, "cpuacct.usage_user", ChangeTrigger::Ran, MODES, |raw, bytes| {
        let (ns, error) = number("cpuacct.usage_user", bytes);
        raw.user_ns = ns;
        error
    })
    .if_needed(|raw| raw.exact_modes.is_none()),
    KernelFile::new(ACCT, "cpuacct.usage_sys", ChangeTrigger::Ran, MODES, |raw, bytes| {
        let (ns, error) = number("cpuacct.usage_sys", bytes);
        raw.system_ns = ns;
        error
    })
    .if_needed(|raw| raw.exact_modes.is_none()),
    // Resolution is 10 ms: used only if the kernel has no finer file.
    KernelFile::new(ACCT, "cpuacct.stat", ChangeTrigger::Ran, MODES, |raw, bytes| {
        let (ticks, error) = values(bytes, cpuacct::stat);
        raw.ticks = ticks;
        raw.ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        error
    })
    .if_needed(|raw| raw.exact_modes.is_none() && (raw.user_ns.is_none() || raw.system_ns.is_none())),
    KernelFile::new(V1, "cpu.stat", ChangeTrigger::Ran, THROTTLING, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v1);
        raw.cpu_stat = stat;
        error
    }),
    KernelFile::new(V1, "cpu.cfs_quota_us", ChangeTrigger::Set, QUOTA, |raw, bytes| {
        let (quota, error) = value(bytes, cpu_max::v1_quota);
        raw.quota = quota;
        error
    }),
    KernelFile::new(V1, "cpu.cfs_period_us", ChangeTrigger::Set, &[Field::cpu_period_us], |raw, bytes| {
        let (period, error) = number("cpu.cfs_period_us", bytes);
        raw.usage.set(Field::cpu_period_us, period);
        error
    }),
    // The usage lines exist even without the cpu controller.
    KernelFile::new(FileHierarchy::UnifiedUnlessV1("cpuacct"), "cpu.stat", ChangeTrigger::Tick, STAT, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v2);
        raw.usage.set(Field::cpu_usage_ns, stat.usage_ns);
        raw.cpu_stat = stat;
        error
    }),
    KernelFile::new(V2, "cpu.max", ChangeTrigger::Set, QUOTA, |raw, bytes| {
        let (max, error) = value(bytes, cpu_max::v2);
        raw.quota = max.map(|(quota, _)| quota);
        raw.usage.set(Field::cpu_period_us, max.map(|(_, period)| period));
        error
    }),
    KernelFile::new(
        FileHierarchy::V1("cpuset"),
        "cpuset.effective_cpus",
        ChangeTrigger::Set,
        &[Field::cpuset_cpus],
        |raw, bytes| cpus(raw, "cpuset.effective_cpus", bytes),
    ),
    KernelFile::new(
        FileHierarchy::V2("cpuset"),
        "cpuset.cpus.effective",
        ChangeTrigger::Set,
        &[Field::cpuset_cpus],
        |raw, bytes| cpus(raw, "cpuset.cpus.effective", bytes),
    ),
];

fn cpus(raw: &mut RawValues, file: &'static str, bytes: Option<&[u8]>) -> Option<ParseError> {
    let (cpus, error) = value(bytes, |b| cpuset::count(file, b));
    raw.usage.set(Field::cpuset_cpus, cpus);
    error
}

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: FILES };

const NO_QUOTA: &str = "no quota is set (the kernel would report 0)";

const MEASURES: &[Measure<Usage>] = &[
    Measure::of(Field::cpu_usage_ns, "CPU time of all processes that ever ran in the cgroup.")
        .in_profiles(Lean, Full, Lean)
        .called("cpu_usage_seconds_total")
        .on_v1(ValueSource::Number { controller: "cpuacct", file: "cpuacct.usage", when: ChangeTrigger::Tick })
        .on_v2(ValueSource::Described("cpu.stat usage_usec"))
        .absent_when("no cgroup accounts CPU time")
        .otlp("container.cpu.time", "s"),
    Measure::new(
        "cpu_seconds_total",
        "CPU time in user and system mode; counted by clock ticks on v1-only hosts.",
        &[Cell::of(Field::cpu_user_ns, &[("mode", "user")]), Cell::of(Field::cpu_system_ns, &[("mode", "system")])],
    )
    .in_profiles(Full, Full, Full)
    .sources(
        "cpu.stat of the unified tree, else cpuacct.usage_user, cpuacct.usage_sys, else cpuacct.stat",
        "cpu.stat user_usec, system_usec",
    )
    .absent_when("the kernel does not separate the modes")
    .otlp("container.cpu.time", "s"),
    Measure::of(Field::cpu_cfs_periods, "CFS quota periods in which the cgroup was runnable.")
        .in_profiles(Standard, Full, Full)
        .absent_when(NO_QUOTA)
        .sources("cpu.stat nr_periods", "cpu.stat nr_periods")
        .otlp("allostat.task.cpu.throttling.periods", "{period}"),
    Measure::of(Field::cpu_cfs_throttled_periods, "CFS quota periods in which the cgroup was throttled.")
        .in_profiles(Standard, Full, Full)
        .absent_when(NO_QUOTA)
        .sources("cpu.stat nr_throttled", "cpu.stat nr_throttled")
        .otlp("allostat.task.cpu.throttling.throttled_periods", "{period}"),
    Measure::of(Field::cpu_throttled_ns, "Time throttled by the CPU quota, summed over CPUs.")
        .called("cpu_throttled_seconds_total")
        .absent_when(NO_QUOTA)
        .sources("cpu.stat throttled_time", "cpu.stat throttled_usec")
        .otlp("allostat.task.cpu.throttling.time", "s"),
    Measure::of(Field::cpu_burst_periods, "CFS quota periods that exceeded the quota with saved burst time.")
        .absent_when(NO_QUOTA)
        .sources("cpu.stat nr_bursts (5.14)", "cpu.stat nr_bursts (5.14)")
        .otlp("allostat.task.cpu.burst.periods", "{period}"),
    Measure::of(Field::cpu_burst_ns, "CPU time above the quota, taken from saved burst time.")
        .called("cpu_burst_seconds_total")
        .absent_when(NO_QUOTA)
        .sources("cpu.stat burst_time (5.14)", "cpu.stat burst_usec (5.14)")
        .otlp("allostat.task.cpu.burst.time", "s"),
    Measure::new(
        "cpu_limit_cores",
        "CPU quota in cores: quota / period.",
        &[Cell {
            labels: &[],
            nature: Nature::Limit,
            unit: Unit::Cores,
            get: |u: &Usage| {
                let (quota, period) = u.cpu_quota_us().zip(u.cpu_period_us().filter(|p| *p > 0))?;
                // Both are far below 2^53 µs.
                #[allow(clippy::cast_precision_loss)]
                Some(Value::Float(quota as f64 / period as f64))
            },
        }],
    )
    .in_profiles(Standard, Full, Full)
    .sources("cpu.cfs_quota_us / cpu.cfs_period_us", "cpu.max")
    .absent_when("unlimited")
    .otlp("allostat.task.cpu.limit", "{cpu}"),
    Measure::of(
        Field::cpu_shares,
        "Relative CPU weight under contention (v1 cpu.shares, default 1024); not comparable to cpu_weight.",
    )
    .on_v1(ValueSource::Number { controller: "cpu", file: "cpu.shares", when: ChangeTrigger::Set })
    .absent_when("cgroup v2: see cpu_weight")
    .otlp("allostat.task.cpu.shares", "1"),
    Measure::of(
        Field::cpu_weight,
        "Relative CPU weight under contention (v2 cpu.weight, default 100); not comparable to cpu_shares.",
    )
    .on_v2(ValueSource::Number { controller: "cpu", file: "cpu.weight", when: ChangeTrigger::Set })
    .absent_when("cgroup v1: see cpu_shares")
    .otlp("allostat.task.cpu.weight", "1"),
    Measure::of(Field::cpuset_cpus, "CPUs that the processes may run on.")
        .sources("cpuset.effective_cpus", "cpuset.cpus.effective")
        .absent_when("the task has no cpuset of its own")
        .otlp("allostat.task.cpuset.cpus", "{cpu}"),
];
