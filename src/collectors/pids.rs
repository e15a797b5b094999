//! Processes, threads and descriptors of a task. Source: the pids controller, `cgroup.procs`, `/proc/PID/fd`.

use super::table::{File, Home, When, number, value, values};
use crate::kernel::cgroup::{limit, pids_events};
use crate::model::metric::{AllocRule, Cell, Kind, Measure, MetricDesc, Value};
use crate::model::units::{Limit, Unit};
use crate::model::usage::Field;

macro_rules! both {
    ($($name:literal, $when:expr, $live:expr, $only_tasks:expr, $apply:expr;)*) => {
        &[$(
            File { at_end: !$live, only_tasks: $only_tasks, ..File::new(Home::V1("pids"), $name, $when, $apply) },
            File { at_end: !$live, only_tasks: $only_tasks, ..File::new(Home::V2("pids"), $name, $when, $apply) },
        )*]
    };
}

pub(super) static FILES: &[File] = both! {
    // A process that is moved here from outside does not have to run.
    "pids.current", When::Asleep, true, false, |raw, bytes| {
        let (current, error) = number("pids.current", bytes);
        raw.usage.set(Field::pids_current, current);
        error
    };
    "pids.peak", When::Ran, false, false, |raw, bytes| {
        let (peak, error) = number("pids.peak", bytes);
        raw.usage.set(Field::pids_peak, peak);
        error
    };
    "pids.events", When::Ran, false, true, |raw, bytes| {
        let (hits, error) = values(bytes, pids_events::limit_hits);
        raw.usage.set(Field::pids_limit_hits, hits);
        error
    };
    "pids.max", When::Set, false, false, |raw, bytes| {
        let (max, error) = value(bytes, |b| limit::parse("pids.max", b));
        raw.usage.set(Field::pids_limit, max.and_then(Limit::finite));
        error
    };
};

pub static MEASURES: &[Measure] = &[
    gauge("pids_current", "Processes and threads now.", &[Cell::plain(|u| u.pids_current().map(Value::Int))])
        .sources("pids.current", "pids.current")
        .absent_when("no pids controller")
        .otlp("allostat.task.pids.current", "{thread}"),
    gauge(
        "pids_peak",
        "Most processes and threads at any one time, as the kernel kept it.",
        &[Cell::plain(|u| u.pids_peak().map(Value::Int))],
    )
    .sources("pids.peak (newer kernels)", "pids.peak (newer kernels)")
    .absent_when("the kernel keeps no peak")
    .stays()
    .otlp("allostat.task.pids.peak", "{thread}"),
    gauge(
        "pids_limit",
        "Most processes and threads that the task may have.",
        &[Cell::plain(|u| u.pids_limit().map(Value::Int))],
    )
    .sources("pids.max", "pids.max")
    .absent_when("unlimited")
    .stays()
    .otlp("allostat.task.pids.limit", "{thread}"),
    MetricDesc::per_task(
        "pids_limit_hits_total",
        Kind::Counter,
        Unit::None,
        "How often starting a process or thread failed because of pids_limit.",
        &[Cell::plain(|u| u.pids_limit_hits().map(Value::Int))],
    )
    .sources("pids.events max", "pids.events max")
    .absent_when("the kernel does not count them")
    .for_alloc(AllocRule::Sum)
    .otlp("allostat.task.pids.limit_hits", "{event}"),
    gauge("processes", "Processes now, threads not counted.", &[Cell::plain(|u| u.processes().map(Value::Int))])
        .sources("cgroup.procs of the cgroup and those below it", "cgroup.procs of the cgroup and those below it")
        .absent_when("cgroup.procs cannot be read")
        .for_alloc(AllocRule::Sum)
        .otlp("allostat.task.processes", "{process}"),
    gauge("open_fds", "Open file descriptors of all processes.", &[Cell::plain(|u| u.open_fds().map(Value::Int))])
        .sources("size of /proc/PID/fd (6.2), else its entries", "size of /proc/PID/fd (6.2), else its entries")
        .absent_when("the descriptors of some process may not be looked at")
        .for_alloc(AllocRule::Sum)
        .otlp("allostat.task.open_fds", "{file_descriptor}"),
];

const fn gauge(stem: &'static str, help: &'static str, cells: &'static [Cell]) -> Measure {
    MetricDesc::per_task(stem, Kind::Gauge, Unit::None, help, cells)
}
