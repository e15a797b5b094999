//! Memory of a task. Source: cgroup v1 memory controller, v2 `memory.*`;
//! Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst. Units: bytes, events.

use super::hierarchy::FileHierarchy;
use super::raw::{AncestorLimit, RawValues, lower};
use super::table::{AncestorFile, KernelFile, SubjectFiles, number, value, values};
use crate::host::hierarchy::CgroupVersion;
use crate::kernel::ParseError;
use crate::kernel::cgroup::{limit, memory_events, memory_stat, oom_control};
use crate::model::measure::{Cell, ChangeTrigger, Measure, Nature, ValueSource};
use crate::model::metric::Value;
use crate::model::profile::Profile::{Full, Lean, Standard};
use crate::model::units::{Limit, Unit};
use crate::model::usage::{Field, Usage};

const V1: FileHierarchy = FileHierarchy::V1("memory");
const V2: FileHierarchy = FileHierarchy::V2("memory");
/// Fields of `memory.stat`, on either version.
const STAT: &[Field] = &[
    Field::memory_working_set_bytes,
    Field::memory_rss_bytes,
    Field::memory_cache_bytes,
    Field::memory_shmem_bytes,
    Field::memory_mapped_bytes,
    Field::memory_dirty_bytes,
    Field::memory_swap_bytes,
    Field::memory_kernel_bytes,
    Field::memory_limit_bytes,
    Field::page_faults_minor,
    Field::page_faults_major,
    Field::workingset_refaults_anon,
    Field::workingset_refaults_file,
];
/// Without a kernel peak, usage provides the sampled peak.
const USAGE: &[Field] = &[Field::memory_usage_bytes, Field::memory_working_set_bytes, Field::memory_sampled_peak_bytes];
const PEAK: &[Field] = &[Field::memory_peak_bytes, Field::memory_sampled_peak_bytes];

const FILES: &[KernelFile] = &[
    KernelFile::new(V1, "memory.usage_in_bytes", ChangeTrigger::Tick, USAGE, |raw, bytes| {
        usage(raw, "memory.usage_in_bytes", bytes)
    }),
    KernelFile::new(V1, "memory.stat", ChangeTrigger::Asleep, STAT, |raw, bytes| {
        let (found, error) = values(bytes, memory_stat::v1);
        stat(raw, CgroupVersion::V1, &found);
        let lowest = found.hierarchical_limit.map(limit::v1);
        raw.ancestors = lowest.map_or(AncestorLimit::Unknown, AncestorLimit::Lowest);
        error
    }),
    KernelFile::new(V1, "memory.max_usage_in_bytes", ChangeTrigger::Stirred, PEAK, |raw, bytes| {
        peak(raw, "memory.max_usage_in_bytes", bytes)
    }),
    KernelFile::new(V1, "memory.failcnt", ChangeTrigger::Stirred, &[Field::memory_limit_hits], |raw, bytes| {
        let (hits, error) = number("memory.failcnt", bytes);
        raw.failcnt = hits;
        error
    }),
    // Absent without swap accounting; no charge is refused by that limit then.
    KernelFile::new(V1, "memory.memsw.failcnt", ChangeTrigger::Stirred, &[Field::memory_limit_hits], |raw, bytes| {
        let (hits, error) = number("memory.memsw.failcnt", bytes);
        raw.memsw_failcnt = hits;
        error
    }),
    KernelFile::new(V1, "memory.oom_control", ChangeTrigger::Stirred, &[Field::oom_kills], |raw, bytes| {
        let (kills, error) = values(bytes, oom_control::oom_kills);
        raw.usage.set(Field::oom_kills, kills);
        error
    }),
    KernelFile::new(V1, "memory.limit_in_bytes", ChangeTrigger::Set, &[Field::memory_limit_bytes], |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse_v1("memory.limit_in_bytes", b));
        raw.memory_limit = limit;
        error
    }),
    KernelFile::new(
        V1,
        "memory.soft_limit_in_bytes",
        ChangeTrigger::Set,
        &[Field::memory_reservation_bytes],
        |raw, bytes| {
            let (limit, error) = value(bytes, |b| limit::parse_v1("memory.soft_limit_in_bytes", b));
            raw.usage.set(Field::memory_reservation_bytes, limit.and_then(Limit::finite));
            error
        },
    ),
    KernelFile::new(V2, "memory.current", ChangeTrigger::Tick, USAGE, |raw, bytes| usage(raw, "memory.current", bytes)),
    KernelFile::new(V2, "memory.stat", ChangeTrigger::Asleep, STAT, |raw, bytes| {
        let (found, error) = values(bytes, memory_stat::v2);
        stat(raw, CgroupVersion::V2, &found);
        error
    }),
    KernelFile::new(V2, "memory.peak", ChangeTrigger::Stirred, PEAK, |raw, bytes| peak(raw, "memory.peak", bytes)),
    KernelFile::new(
        V2,
        "memory.events",
        ChangeTrigger::Stirred,
        &[Field::memory_limit_hits, Field::memory_high_events, Field::oom_kills, Field::oom_group_kills],
        |raw, bytes| {
            let (events, error) = values(bytes, memory_events::parse);
            raw.usage.set(Field::memory_limit_hits, events.max);
            raw.usage.set(Field::memory_high_events, events.high);
            raw.usage.set(Field::oom_kills, events.oom_kill);
            raw.usage.set(Field::oom_group_kills, events.oom_group_kill);
            error
        },
    ),
    KernelFile::new(V2, "memory.max", ChangeTrigger::Set, &[Field::memory_limit_bytes], |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.max", b));
        raw.memory_limit = limit;
        error
    })
    .with_above(AncestorFile::Each(&ANCESTOR_LIMIT)),
    KernelFile::new(V2, "memory.low", ChangeTrigger::Set, &[Field::memory_reservation_bytes], |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.low", b));
        // 0 is the default: nothing is reserved.
        raw.usage.set(Field::memory_reservation_bytes, limit.and_then(Limit::finite).filter(|n| *n > 0));
        error
    }),
];

/// `memory.max` of each ancestor (the root has none). The lowest limit counts.
pub(super) static ANCESTOR_LIMIT: KernelFile =
    KernelFile::new(V2, "memory.max", ChangeTrigger::Set, &[Field::memory_limit_bytes], |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.max", b));
        raw.ancestors = match (raw.ancestors, limit, &error) {
            (AncestorLimit::Unknown, _, _) | (_, _, Some(_)) => AncestorLimit::Unknown,
            (AncestorLimit::Lowest(lowest), limit, None) => {
                AncestorLimit::Lowest(lower(lowest, limit.unwrap_or(Limit::Max)))
            }
        };
        error
    });

/// The fields of `memory.stat` that both versions share. Swap and kernel memory are in `memory.stat` of one version and
/// in a separate file of the other.
pub(super) fn stat(raw: &mut RawValues, version: CgroupVersion, stat: &memory_stat::MemoryStat) {
    match version {
        CgroupVersion::V1 => raw.usage.set(Field::memory_swap_bytes, stat.swap),
        CgroupVersion::V2 => raw.usage.set(Field::memory_kernel_bytes, stat.kernel),
    }
    raw.usage.set(Field::memory_rss_bytes, stat.anon);
    raw.usage.set(Field::memory_cache_bytes, stat.file);
    raw.usage.set(Field::memory_shmem_bytes, stat.shmem);
    raw.usage.set(Field::memory_mapped_bytes, stat.mapped);
    raw.usage.set(Field::memory_dirty_bytes, stat.dirty);
    raw.usage.set(Field::workingset_refaults_anon, stat.refault_anon);
    raw.usage.set(Field::workingset_refaults_file, stat.refault_file);
    raw.inactive_file = stat.inactive_file;
    raw.page_faults = stat.pgfault;
    raw.major_faults = stat.pgmajfault;
}

fn usage(raw: &mut RawValues, file: &'static str, bytes: Option<&[u8]>) -> Option<ParseError> {
    let (usage, error) = number(file, bytes);
    raw.usage.set(Field::memory_usage_bytes, usage);
    error
}

fn peak(raw: &mut RawValues, file: &'static str, bytes: Option<&[u8]>) -> Option<ParseError> {
    let (peak, error) = number(file, bytes);
    raw.peak_missing = bytes.is_none();
    raw.usage.set(Field::memory_peak_bytes, peak);
    error
}

pub(super) static SUBJECT: SubjectFiles = SubjectFiles { measures: MEASURES, files: FILES };

const NO_CONTROLLER: &str = "no memory controller";
const NO_STAT: &str = "memory.stat cannot be read";

const MEASURES: &[Measure<Usage>] = &[
    Measure::of(Field::memory_usage_bytes, "Memory charged to the cgroup: anonymous, page cache and kernel memory.")
        .in_profiles(Standard, Standard, Full)
        .sources("memory.usage_in_bytes", "memory.current")
        .absent_when(NO_CONTROLLER)
        .otlp("container.memory.usage", "By"),
    Measure::of(
        Field::memory_peak_bytes,
        "Lifetime peak of memory_usage_bytes, recorded by the kernel; the maximum over restarts.",
    )
    .in_profiles(Lean, Standard, Full)
    .sources("memory.max_usage_in_bytes", "memory.peak (5.19)")
    .absent_when("the kernel records no peak; see memory_sampled_peak_bytes")
    .otlp("allostat.task.memory.peak", "By"),
    Measure::of(
        Field::memory_window_peak_bytes,
        "Peak of memory_usage_bytes in the last 60 s, recorded by the kernel in windows of 5 s.",
    )
    .in_profiles(Standard, Full, Full)
    .sources(
        "memory.max_usage_in_bytes, reset for all readers (cgroup.peak_window_v1)",
        "memory.peak, reset for this agent only (6.12)",
    )
    .absent_when(
        "cgroup v1 without cgroup.peak_window_v1; v2 before Linux 6.12; no free file descriptor; the first 5 s; less \
         than 60 s after an agent found it running",
    )
    .otlp("allostat.task.memory.window_peak", "By"),
    Measure::of(
        Field::memory_sampled_peak_bytes,
        "Highest sampled memory_usage_bytes; spikes between two samples are missed.",
    )
    .in_profiles(Lean, Full, Full)
    .sources("memory.usage_in_bytes", "memory.current")
    .absent_when("the kernel records a peak: see memory_peak_bytes")
    .otlp("allostat.task.memory.sampled_peak", "By"),
    Measure::of(
        Field::memory_working_set_bytes,
        "memory_usage_bytes minus inactive page cache, at least 0: memory not easily reclaimed.",
    )
    .in_profiles(Lean, Standard, Full)
    .sources("usage_in_bytes - memory.stat total_inactive_file", "memory.current - memory.stat inactive_file")
    .absent_when(NO_STAT)
    .otlp("container.memory.working_set", "By"),
    Measure::of(
        Field::memory_rss_bytes,
        "Anonymous memory of the cgroup; without a cgroup, the sum of resident sets of its processes.",
    )
    .in_profiles(Standard, Full, Full)
    .sources("memory.stat total_rss", "memory.stat anon")
    .absent_when(NO_STAT)
    .otlp("container.memory.rss", "By"),
    Measure::of(Field::memory_cache_bytes, "Page cache, including shared memory.")
        .sources("memory.stat total_cache", "memory.stat file")
        .absent_when(NO_STAT)
        .otlp("allostat.task.memory.cache", "By"),
    Measure::of(Field::memory_shmem_bytes, "Shared memory and tmpfs.")
        .sources("memory.stat total_shmem", "memory.stat shmem")
        .absent_when("the kernel does not report it")
        .otlp("allostat.task.memory.shmem", "By"),
    Measure::of(Field::memory_mapped_bytes, "Page cache mapped into processes.")
        .sources("memory.stat total_mapped_file", "memory.stat file_mapped")
        .absent_when("the kernel does not report it")
        .otlp("allostat.task.memory.mapped", "By"),
    Measure::of(Field::memory_dirty_bytes, "Page cache waiting to be written to disk.")
        .sources("memory.stat total_dirty", "memory.stat file_dirty")
        .absent_when("the kernel does not report it")
        .otlp("allostat.task.memory.dirty", "By"),
    Measure::of(Field::memory_swap_bytes, "Swap used, without memory.")
        .on_v1(ValueSource::Described("memory.stat total_swap"))
        .on_v2(number_of("memory.swap.current", ChangeTrigger::Asleep))
        .absent_when("the kernel does not account for swap")
        .otlp("allostat.task.memory.swap", "By"),
    Measure::of(Field::memory_zswap_bytes, "Compressed size in zswap of swapped-out pages.")
        .on_v2(number_of("memory.zswap.current", ChangeTrigger::Asleep))
        .absent_when("cgroup v1, or a kernel before 5.19 or without zswap")
        .otlp("allostat.task.memory.zswap", "By"),
    Measure::of(Field::memory_kernel_bytes, "Kernel memory charged to the cgroup.")
        .on_v1(number_of("memory.kmem.usage_in_bytes", ChangeTrigger::Stirred))
        .on_v2(ValueSource::Described("memory.stat kernel (5.18)"))
        .absent_when("the kernel does not report it")
        .otlp("allostat.task.memory.kernel", "By"),
    Measure::of(
        Field::memory_limit_bytes,
        "Lowest memory limit from the cgroup up to the root, at which the OOM killer acts.",
    )
    .in_profiles(Lean, Full, Full)
    .sources("min(memory.limit_in_bytes, memory.stat hierarchical_memory_limit)", "lowest memory.max up the tree")
    .absent_when("unlimited")
    .otlp("allostat.task.memory.limit", "By"),
    Measure::of(Field::memory_high_bytes, "Usage above which the cgroup is throttled and reclaimed (memory.high).")
        .on_v2(number_of("memory.high", ChangeTrigger::Set))
        .absent_when("not set, or cgroup v1")
        .otlp("allostat.task.memory.high", "By"),
    Measure::of(
        Field::memory_reservation_bytes,
        "Memory protected from reclaim (v2 memory.low), or the soft limit for reclaim (v1).",
    )
    .sources("memory.soft_limit_in_bytes", "memory.low")
    .absent_when("not set")
    .otlp("allostat.task.memory.reservation", "By"),
    Measure::new(
        "memory_available_bytes",
        "memory_limit_bytes minus memory_working_set_bytes, at least 0.",
        &[Cell {
            labels: &[],
            nature: Nature::Live,
            unit: Unit::Bytes,
            get: |u: &Usage| {
                let (limit, working_set) = u.memory_limit_bytes().zip(u.memory_working_set_bytes())?;
                Some(Value::Int(limit.saturating_sub(working_set)))
            },
        }],
    )
    .in_profiles(Full, Full, Full)
    .sources("limit - working set", "limit - working set")
    .absent_when("unlimited")
    .otlp("container.memory.available", "By"),
    Measure::of(Field::memory_limit_hits, "Times that usage reached the limit; v1 counts each failed charge.")
        .sources("memory.failcnt + memory.memsw.failcnt", "memory.events max")
        .absent_when(NO_CONTROLLER)
        .otlp("allostat.task.memory.limit_hits", "{event}"),
    Measure::of(Field::memory_high_events, "Times that the cgroup was throttled above memory_high_bytes.")
        .sources("-", "memory.events high")
        .absent_when("cgroup v1")
        .otlp("allostat.task.memory.high_events", "{event}"),
    Measure::of(Field::oom_kills, "Processes killed by the kernel's OOM killer.")
        .in_profiles(Lean, Full, Lean)
        .sources("memory.oom_control oom_kill (4.13)", "memory.events oom_kill")
        .absent_when("the kernel does not count them")
        .with_created()
        .otlp("allostat.task.oom_kills", "{kill}"),
    Measure::of(Field::oom_group_kills, "Times that the OOM killer killed the whole cgroup (memory.oom.group).")
        .sources("-", "memory.events oom_group_kill (5.17)")
        .absent_when("cgroup v1, or an older kernel")
        .otlp("allostat.task.oom_group_kills", "{kill}"),
    Measure::new(
        "page_faults_total",
        "Page faults: minor (served from memory) and major (waited for a disk).",
        &[
            Cell::of(Field::page_faults_minor, &[("kind", "minor")]),
            Cell::of(Field::page_faults_major, &[("kind", "major")]),
        ],
    )
    .in_profiles(Full, Full, Full)
    .sources(
        "memory.stat total_pgfault, total_pgmajfault; at the end wait4 if higher",
        "memory.stat pgfault, pgmajfault; at the end wait4 if higher",
    )
    .absent_when("the kernel does not report it")
    .otlp("container.paging.faults", "{fault}"),
    Measure::new(
        "workingset_refaults_total",
        "Pages reclaimed and soon needed again; rises when memory is short.",
        &[
            Cell::of(Field::workingset_refaults_anon, &[("kind", "anon")]),
            Cell::of(Field::workingset_refaults_file, &[("kind", "file")]),
        ],
    )
    .in_profiles(Full, Full, Full)
    .sources("-", "memory.stat workingset_refault_anon, workingset_refault_file (5.9)")
    .absent_when("cgroup v1, or an older kernel")
    .otlp("allostat.task.memory.workingset_refaults", "{fault}"),
    Measure::of(
        Field::max_rss_bytes,
        "Largest resident set of any single process of the task; with a cgroup, of ended attempts only.",
    )
    .sources(MAX_RSS, MAX_RSS)
    .absent_when("the task has a cgroup, and no attempt has ended")
    .otlp("allostat.task.memory.max_rss", "By"),
];

const MAX_RSS: &str = "wait4 ru_maxrss; without a cgroup also /proc/PID/status VmHWM while the process runs";

const fn number_of(file: &'static str, when: ChangeTrigger) -> ValueSource {
    ValueSource::Number { controller: "memory", file, when }
}
