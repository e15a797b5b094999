//! CPU time, quota and throttling of a task. Source: cgroup v1 cpu and cpuacct controllers, v2 `cpu.*`;
//! Documentation/scheduler/sched-bwc.rst, cgroup-v2.rst.

use super::raw::Raw;
use super::table::{File, Home, When, number, value, values};
use crate::kernel::ParseError;
use crate::kernel::cgroup::{cpu_max, cpu_stat, cpuacct, cpuset};
use crate::model::metric::{AllocRule, Cell, Kind, Measure, MetricDesc, Value};
use crate::model::units::Unit;
use crate::model::usage::Field;

const ACCT: Home = Home::V1("cpuacct");
const V1: Home = Home::V1("cpu");
const V2: Home = Home::V2("cpu");

pub(super) static FILES: &[File] = &[
    File::new(ACCT, "cpuacct.usage", When::Tick, |raw, bytes| {
        let (ns, error) = number("cpuacct.usage", bytes);
        raw.usage.set(Field::cpu_usage_ns, ns);
        error
    }),
    // v1 tells the modes apart by counting clock ticks: a task shorter than a tick has none of either. The unified tree
    // of the same host divides the exact time instead.
    File::new(Home::UnifiedBesideV1("cpuacct"), "cpu.stat", When::Ran, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v2);
        raw.exact_modes = stat.user_ns.zip(stat.system_ns);
        error
    })
    .only_tasks(),
    File::new(ACCT, "cpuacct.usage_user", When::Ran, |raw, bytes| {
        let (ns, error) = number("cpuacct.usage_user", bytes);
        raw.user_ns = ns;
        error
    })
    .only_tasks()
    .if_needed(|raw| raw.exact_modes.is_none()),
    File::new(ACCT, "cpuacct.usage_sys", When::Ran, |raw, bytes| {
        let (ns, error) = number("cpuacct.usage_sys", bytes);
        raw.system_ns = ns;
        error
    })
    .only_tasks()
    .if_needed(|raw| raw.exact_modes.is_none()),
    // In ticks of 10 ms: only where the kernel has nothing finer.
    File::new(ACCT, "cpuacct.stat", When::Ran, |raw, bytes| {
        let (ticks, error) = values(bytes, cpuacct::stat);
        raw.ticks = ticks;
        raw.ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        error
    })
    .only_tasks()
    .if_needed(|raw| raw.exact_modes.is_none() && (raw.user_ns.is_none() || raw.system_ns.is_none())),
    File::new(V1, "cpu.stat", When::Ran, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v1);
        raw.cpu_stat = stat;
        error
    })
    .only_tasks(),
    File::new(V1, "cpu.cfs_quota_us", When::Set, |raw, bytes| {
        let (quota, error) = value(bytes, cpu_max::v1_quota);
        raw.quota = quota;
        error
    }),
    File::new(V1, "cpu.cfs_period_us", When::Set, |raw, bytes| {
        let (period, error) = number("cpu.cfs_period_us", bytes);
        raw.usage.set(Field::cpu_period_us, period);
        error
    }),
    File::new(V1, "cpu.shares", When::Set, |raw, bytes| {
        let (shares, error) = number("cpu.shares", bytes);
        raw.usage.set(Field::cpu_shares, shares);
        error
    }),
    // Its usage lines are there also without the cpu controller.
    File::new(Home::UnifiedUnlessV1("cpuacct"), "cpu.stat", When::Tick, |raw, bytes| {
        let (stat, error) = values(bytes, cpu_stat::v2);
        raw.usage.set(Field::cpu_usage_ns, stat.usage_ns);
        raw.cpu_stat = stat;
        error
    }),
    File::new(V2, "cpu.max", When::Set, |raw, bytes| {
        let (max, error) = value(bytes, cpu_max::v2);
        raw.quota = max.map(|(quota, _)| quota);
        raw.usage.set(Field::cpu_period_us, max.map(|(_, period)| period));
        error
    }),
    File::new(V2, "cpu.weight", When::Set, |raw, bytes| {
        let (weight, error) = number("cpu.weight", bytes);
        raw.usage.set(Field::cpu_weight, weight);
        error
    }),
    File::new(Home::V1("cpuset"), "cpuset.effective_cpus", When::Set, |raw, bytes| {
        cpus(raw, "cpuset.effective_cpus", bytes)
    }),
    File::new(Home::V2("cpuset"), "cpuset.cpus.effective", When::Set, |raw, bytes| {
        cpus(raw, "cpuset.cpus.effective", bytes)
    }),
];

fn cpus(raw: &mut Raw, file: &'static str, bytes: Option<&[u8]>) -> Option<ParseError> {
    let (cpus, error) = value(bytes, |b| cpuset::count(file, b));
    raw.usage.set(Field::cpuset_cpus, cpus);
    error
}

const NO_QUOTA: &str = "no quota is set: the kernel would print 0";

pub static MEASURES: &[Measure] = &[
    MetricDesc::per_task(
        "cpu_usage_seconds_total",
        Kind::Counter,
        Unit::Seconds,
        "CPU time used by all processes that were ever in the cgroup, those that have ended included.",
        &[Cell::plain(|u| u.cpu_usage_ns().map(Value::Nanos))],
    )
    .sources("cpuacct.usage", "cpu.stat usage_usec")
    .absent_when("no cgroup tells CPU time")
    .otlp("container.cpu.time", "s"),
    MetricDesc::per_task(
        "cpu_seconds_total",
        Kind::Counter,
        Unit::Seconds,
        "CPU time used, in user and in system mode. On a host with v1 hierarchies only, the kernel tells them apart by clock ticks: \
         together they may then differ from cpu_usage_seconds_total, which the scheduler counts by itself.",
        &[
            Cell::with(&[("mode", "user")], |u| u.cpu_user_ns().map(Value::Nanos)),
            Cell::with(&[("mode", "system")], |u| u.cpu_system_ns().map(Value::Nanos)),
        ],
    )
    .sources("cpu.stat of the unified tree, else cpuacct.usage_user, cpuacct.usage_sys, else cpuacct.stat", "cpu.stat user_usec, system_usec")
    .absent_when("the kernel does not tell the modes apart")
    .for_alloc(AllocRule::Sum)
    .otlp("container.cpu.time", "s"),
    throttling(
        "cpu_cfs_periods_total",
        Unit::None,
        "Periods of the quota in which the task wanted to run.",
        &[Cell::plain(|u| u.cpu_cfs_periods().map(Value::Int))],
    )
    .sources("cpu.stat nr_periods", "cpu.stat nr_periods")
    .otlp("allostat.task.cpu.throttling.periods", "{period}"),
    throttling(
        "cpu_cfs_throttled_periods_total",
        Unit::None,
        "Periods of the quota in which the task used it up and had to wait.",
        &[Cell::plain(|u| u.cpu_cfs_throttled_periods().map(Value::Int))],
    )
    .sources("cpu.stat nr_throttled", "cpu.stat nr_throttled")
    .otlp("allostat.task.cpu.throttling.throttled_periods", "{period}"),
    throttling(
        "cpu_throttled_seconds_total",
        Unit::Seconds,
        "Time for which the task had to wait because its quota was used up, summed over CPUs.",
        &[Cell::plain(|u| u.cpu_throttled_ns().map(Value::Nanos))],
    )
    .sources("cpu.stat throttled_time", "cpu.stat throttled_usec")
    .otlp("allostat.task.cpu.throttling.time", "s"),
    throttling(
        "cpu_burst_periods_total",
        Unit::None,
        "Periods in which the task used more than its quota from what it had saved.",
        &[Cell::plain(|u| u.cpu_burst_periods().map(Value::Int))],
    )
    .sources("cpu.stat nr_bursts (5.14)", "cpu.stat nr_bursts (5.14)")
    .otlp("allostat.task.cpu.burst.periods", "{period}"),
    throttling(
        "cpu_burst_seconds_total",
        Unit::Seconds,
        "CPU time above the quota, from what was saved.",
        &[Cell::plain(|u| u.cpu_burst_ns().map(Value::Nanos))],
    )
    .sources("cpu.stat burst_time (5.14)", "cpu.stat burst_usec (5.14)")
    .otlp("allostat.task.cpu.burst.time", "s"),
    setting(
        "cpu_limit_cores",
        Unit::Cores,
        "How many CPUs the quota allows: quota / period.",
        &[Cell::plain(|u| {
            let (quota, period) = u.cpu_quota_us().zip(u.cpu_period_us().filter(|p| *p > 0))?;
            // Both are far below 2^53 µs.
            #[allow(clippy::cast_precision_loss)]
            Some(Value::Float(quota as f64 / period as f64))
        })],
    )
    .sources("cpu.cfs_quota_us / cpu.cfs_period_us", "cpu.max")
    .absent_when("unlimited")
    .otlp("allostat.task.cpu.limit", "{cpu}"),
    setting(
        "cpu_shares",
        Unit::None,
        "Relative share of CPU time when there is not enough; 1024 is the default. Not comparable to cpu_weight.",
        &[Cell::plain(|u| u.cpu_shares().map(Value::Int))],
    )
    .sources("cpu.shares", "-")
    .absent_when("cgroup v2: see cpu_weight")
    .otlp("allostat.task.cpu.shares", "1"),
    setting(
        "cpu_weight",
        Unit::None,
        "Relative weight of CPU time when there is not enough; 100 is the default. Not comparable to cpu_shares.",
        &[Cell::plain(|u| u.cpu_weight().map(Value::Int))],
    )
    .sources("-", "cpu.weight")
    .absent_when("cgroup v1: see cpu_shares")
    .otlp("allostat.task.cpu.weight", "1"),
    setting(
        "cpuset_cpus",
        Unit::None,
        "CPUs that the task may run on.",
        &[Cell::plain(|u| u.cpuset_cpus().map(Value::Int))],
    )
    .sources("cpuset.effective_cpus", "cpuset.cpus.effective")
    .absent_when("the task is in no cpuset of its own")
    .otlp("allostat.task.cpuset.cpus", "{cpu}"),
];

/// What a quota does to the task: its own, so that an alloc's is the sum of its tasks'.
const fn throttling(stem: &'static str, unit: Unit, help: &'static str, cells: &'static [Cell]) -> Measure {
    MetricDesc::per_task(stem, Kind::Counter, unit, help, cells).absent_when(NO_QUOTA).for_alloc(AllocRule::Sum)
}

const fn setting(stem: &'static str, unit: Unit, help: &'static str, cells: &'static [Cell]) -> Measure {
    MetricDesc::per_task(stem, Kind::Gauge, unit, help, cells).stays()
}
