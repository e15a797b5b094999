//! Processes, threads and descriptors of a task. Source: the pids controller, `cgroup.procs`, `/proc/PID/fd`.

use super::hierarchy::FileHierarchy;
use super::table::{KernelFile, SubjectFiles, number, values};
use crate::kernel::cgroup::pids_events;
use crate::model::measure::{ChangeTrigger, Measure, ValueSource};
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};

macro_rules! both {
    ($($name:literal, $field:ident, $parse:expr;)*) => {
        &[$(
            KernelFile::new(FileHierarchy::V1("pids"), $name, ChangeTrigger::Ran, &[Field::$field], $parse),
            KernelFile::new(FileHierarchy::V2("pids"), $name, ChangeTrigger::Ran, &[Field::$field], $parse),
        )*]
    };
}

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: FILES };

const FILES: &[KernelFile] = both! {
    "pids.peak", pids_peak, |raw, bytes| {
        let (peak, error) = number("pids.peak", bytes);
        raw.usage.set(Field::pids_peak, peak);
        error
    };
    "pids.events", pids_limit_hits, |raw, bytes| {
        let (hits, error) = values(bytes, pids_events::limit_hits);
        raw.usage.set(Field::pids_limit_hits, hits);
        error
    };
};

const MEASURES: &[Measure<Usage>] = &[
    Measure::of(Field::pids_current, "Current number of processes and threads.")
        // A process that is moved into the cgroup need not run, so CPU time does not reveal it.
        .in_profiles(Standard, Full, Full)
        .on_v1(number_of("pids.current", ChangeTrigger::Asleep))
        .on_v2(number_of("pids.current", ChangeTrigger::Asleep))
        .absent_when("no pids controller")
        .otlp("allostat.task.pids.current", "{thread}"),
    Measure::of(Field::pids_peak, "Highest number of processes and threads, recorded by the kernel.")
        .sources("pids.peak (newer kernels)", "pids.peak (newer kernels)")
        .absent_when("the kernel records no peak")
        .otlp("allostat.task.pids.peak", "{thread}"),
    Measure::of(Field::pids_limit, "Limit of processes and threads (pids.max).")
        .in_profiles(Standard, Full, Full)
        .on_v1(number_of("pids.max", ChangeTrigger::Set))
        .on_v2(number_of("pids.max", ChangeTrigger::Set))
        .absent_when("unlimited")
        .otlp("allostat.task.pids.limit", "{thread}"),
    Measure::of(Field::pids_limit_hits, "Processes and threads that failed to start because of pids_limit.")
        .sources("pids.events max", "pids.events max")
        .absent_when("the kernel does not count them")
        .otlp("allostat.task.pids.limit_hits", "{event}"),
    Measure::of(Field::processes, "Current number of processes, without threads; up to 5 s old.")
        .sources("cgroup.procs of the cgroup and those below it", "cgroup.procs of the cgroup and those below it")
        .absent_when("cgroup.procs cannot be read")
        .otlp("allostat.task.processes", "{process}"),
    Measure::of(Field::open_fds, "Open file descriptors of all processes; up to 5 s old.")
        .sources(
            "size of /proc/PID/fd (6.2), else the number of its entries",
            "size of /proc/PID/fd (6.2), else the number of its entries",
        )
        .absent_when("the descriptors of some process cannot be read")
        .otlp("allostat.task.open_fds", "{file_descriptor}"),
];

const fn number_of(file: &'static str, when: ChangeTrigger) -> ValueSource {
    ValueSource::Number { controller: "pids", file, when }
}
