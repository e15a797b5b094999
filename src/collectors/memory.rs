//! Memory of a task. Source: cgroup v1 memory controller, v2 `memory.*`; Documentation/admin-guide/cgroup-v1/memory.rst,
//! cgroup-v2.rst. Units: bytes, events.

use super::raw::{Ancestors, Raw, lower};
use super::table::{File, Home, When, number, value, values};
use crate::kernel::ParseError;
use crate::kernel::cgroup::{limit, memory_events, memory_stat, oom_control};
use crate::model::metric::{AllocRule, Cell, Kind, Measure, MetricDesc, Value};
use crate::model::units::{Limit, Unit};
use crate::model::usage::Field;

const V1: Home = Home::V1("memory");
const V2: Home = Home::V2("memory");
/// The stem of the measure whose workload family names an alloc with its latest kill.
pub const OOM_KILLS: &str = "oom_kills_total";

/// A file whose one number is a field of `Usage`.
macro_rules! single {
    ($home:expr, $name:literal, $when:expr, $field:ident) => {
        File::new($home, $name, $when, |raw, bytes| {
            let (value, error) = number($name, bytes);
            raw.usage.set(Field::$field, value);
            error
        })
    };
}

/// The only series of a measure: one field as it is.
macro_rules! cell {
    ($field:ident) => {
        Cell::plain(|u| u.$field().map(Value::Int))
    };
}

pub(super) static FILES: &[File] = &[
    single!(V1, "memory.usage_in_bytes", When::Tick, memory_usage_bytes),
    File::new(V1, "memory.stat", When::Asleep, |raw, bytes| {
        let (found, error) = values(bytes, memory_stat::v1);
        stat(raw, &found);
        raw.usage.set(Field::memory_swap_bytes, found.swap);
        let lowest = found.hierarchical_limit.map(limit::v1);
        raw.ancestors = lowest.map_or(Ancestors::Unknown, Ancestors::Lowest);
        error
    }),
    File::new(V1, "memory.max_usage_in_bytes", When::Stirred, |raw, bytes| {
        peak(raw, "memory.max_usage_in_bytes", bytes)
    }),
    File::new(V1, "memory.failcnt", When::Stirred, |raw, bytes| {
        let (hits, error) = number("memory.failcnt", bytes);
        raw.failcnt = hits;
        error
    })
    .only_tasks(),
    // Absent without swap accounting: then nothing can be refused by it.
    File::new(V1, "memory.memsw.failcnt", When::Stirred, |raw, bytes| {
        let (hits, error) = number("memory.memsw.failcnt", bytes);
        raw.memsw_failcnt = hits;
        error
    })
    .only_tasks(),
    File::new(V1, "memory.oom_control", When::Stirred, |raw, bytes| {
        let (kills, error) = values(bytes, oom_control::oom_kills);
        raw.usage.set(Field::oom_kills, kills);
        error
    })
    .only_tasks(),
    single!(V1, "memory.kmem.usage_in_bytes", When::Stirred, memory_kernel_bytes).only_live(),
    File::new(V1, "memory.limit_in_bytes", When::Set, |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse_v1("memory.limit_in_bytes", b));
        raw.memory_limit = limit;
        error
    }),
    File::new(V1, "memory.soft_limit_in_bytes", When::Set, |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse_v1("memory.soft_limit_in_bytes", b));
        raw.usage.set(Field::memory_reservation_bytes, limit.and_then(Limit::finite));
        error
    }),
    single!(V2, "memory.current", When::Tick, memory_usage_bytes),
    File::new(V2, "memory.stat", When::Asleep, |raw, bytes| {
        let (found, error) = values(bytes, memory_stat::v2);
        stat(raw, &found);
        raw.usage.set(Field::memory_kernel_bytes, found.kernel);
        error
    }),
    File::new(V2, "memory.peak", When::Stirred, |raw, bytes| peak(raw, "memory.peak", bytes)),
    File::new(V2, "memory.events", When::Stirred, |raw, bytes| {
        let (events, error) = values(bytes, memory_events::parse);
        raw.usage.set(Field::memory_limit_hits, events.max);
        raw.usage.set(Field::memory_high_events, events.high);
        raw.usage.set(Field::oom_kills, events.oom_kill);
        raw.usage.set(Field::oom_group_kills, events.oom_group_kill);
        error
    })
    .only_tasks(),
    single!(V2, "memory.swap.current", When::Asleep, memory_swap_bytes).only_live(),
    File::new(V2, "memory.max", When::Set, |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.max", b));
        raw.memory_limit = limit;
        error
    }),
    File::new(V2, "memory.high", When::Set, |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.high", b));
        raw.usage.set(Field::memory_high_bytes, limit.and_then(Limit::finite));
        error
    }),
    File::new(V2, "memory.low", When::Set, |raw, bytes| {
        let (limit, error) = value(bytes, |b| limit::parse("memory.low", b));
        // 0 is the default: nothing is reserved.
        raw.usage.set(Field::memory_reservation_bytes, limit.and_then(Limit::finite).filter(|n| *n > 0));
        error
    }),
];

/// `memory.max` of each cgroup above, up to the root, which has none: the lowest of all is what counts.
pub(super) static ANCESTOR_LIMIT: File = File::new(V2, "memory.max", When::Set, |raw, bytes| {
    let (limit, error) = value(bytes, |b| limit::parse("memory.max", b));
    raw.ancestors = match (raw.ancestors, limit, &error) {
        (Ancestors::Unknown, _, _) | (_, _, Some(_)) => Ancestors::Unknown,
        (Ancestors::Lowest(lowest), limit, None) => Ancestors::Lowest(lower(lowest, limit.unwrap_or(Limit::Max))),
    };
    error
});

/// What both versions tell in `memory.stat`. Swap and kernel memory stand there in one version and in a file of their own
/// in the other.
fn stat(raw: &mut Raw, stat: &memory_stat::MemoryStat) {
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

fn peak(raw: &mut Raw, file: &'static str, bytes: Option<&[u8]>) -> Option<ParseError> {
    let (peak, error) = number(file, bytes);
    raw.peak_missing = bytes.is_none();
    raw.usage.set(Field::memory_peak_bytes, peak);
    error
}

const NO_CONTROLLER: &str = "no memory controller";
const NO_STAT: &str = "memory.stat cannot be read";

pub static MEASURES: &[Measure] = &[
    bytes(
        "memory_usage_bytes",
        "Memory charged to the cgroup: anonymous, page cache and kernel memory. Page cache counts here and is given up under \
         pressure: see memory_working_set_bytes.",
        &[cell!(memory_usage_bytes)],
    )
    .sources("memory.usage_in_bytes", "memory.current")
    .absent_when(NO_CONTROLLER)
    .otlp("container.memory.usage", "By"),
    bytes(
        "memory_peak_bytes",
        "Highest memory_usage_bytes of the whole life, as the kernel kept it: exact also for tasks shorter than the sampling \
         interval. Over restarts the maximum of all attempts.",
        &[cell!(memory_peak_bytes)],
    )
    .sources("memory.max_usage_in_bytes", "memory.peak (5.19)")
    .absent_when("the kernel keeps no peak; see memory_sampled_peak_bytes")
    .stays()
    .otlp("allostat.task.memory.peak", "By"),
    bytes(
        "memory_window_peak_bytes",
        "Highest memory_usage_bytes of the last 60 s, as the kernel kept it: its peak is read and reset each 5 s, so that a \
         scraper of up to 60 s misses no spike. What rises between a reading and its reset, some microseconds, is not in it; \
         on cgroup v1 it is not in memory_peak_bytes either.",
        &[cell!(memory_window_peak_bytes)],
    )
    .sources("memory.max_usage_in_bytes, reset for all readers (cgroup.peak_window_v1)", "memory.peak, reset for us alone (6.12)")
    .absent_when("cgroup v1 without cgroup.peak_window_v1, an older kernel, no descriptor to keep, the first 5 s, or less than a minute since an agent found it running")
    .otlp("allostat.task.memory.window_peak", "By"),
    bytes(
        "memory_sampled_peak_bytes",
        "Highest memory_usage_bytes that was sampled, only where the kernel keeps no peak: what rose and fell between two \
         samples is missed.",
        &[cell!(memory_sampled_peak_bytes)],
    )
    .sources("memory.usage_in_bytes", "memory.current")
    .absent_when("the kernel keeps a peak: memory_peak_bytes")
    .stays()
    .otlp("allostat.task.memory.sampled_peak", "By"),
    bytes(
        "memory_working_set_bytes",
        "memory_usage_bytes less the inactive page cache of the same moment, not below 0: what cannot be given up easily.",
        &[cell!(memory_working_set_bytes)],
    )
    .sources("usage_in_bytes - memory.stat total_inactive_file", "memory.current - memory.stat inactive_file")
    .absent_when(NO_STAT)
    .otlp("container.memory.working_set", "By"),
    bytes(
        "memory_rss_bytes",
        "Anonymous memory of the cgroup. Where the task is measured by its processes: the sum of their resident sets, with \
         shared pages counted in each.",
        &[cell!(memory_rss_bytes)],
    )
    .sources("memory.stat total_rss", "memory.stat anon")
    .absent_when(NO_STAT)
    .otlp("container.memory.rss", "By"),
    bytes("memory_cache_bytes", "Page cache, shared memory included.", &[cell!(memory_cache_bytes)])
        .sources("memory.stat total_cache", "memory.stat file")
        .absent_when(NO_STAT)
        .otlp("allostat.task.memory.cache", "By"),
    bytes("memory_shmem_bytes", "Shared memory and tmpfs.", &[cell!(memory_shmem_bytes)])
        .sources("memory.stat total_shmem", "memory.stat shmem")
        .absent_when("the kernel does not say")
        .otlp("allostat.task.memory.shmem", "By"),
    bytes("memory_mapped_bytes", "Page cache that is mapped into a process.", &[cell!(memory_mapped_bytes)])
        .sources("memory.stat total_mapped_file", "memory.stat file_mapped")
        .absent_when("the kernel does not say")
        .otlp("allostat.task.memory.mapped", "By"),
    bytes("memory_dirty_bytes", "Page cache that waits to be written to disk.", &[cell!(memory_dirty_bytes)])
        .sources("memory.stat total_dirty", "memory.stat file_dirty")
        .absent_when("the kernel does not say")
        .otlp("allostat.task.memory.dirty", "By"),
    bytes("memory_swap_bytes", "Swap used; memory itself not included.", &[cell!(memory_swap_bytes)])
        .sources("memory.stat total_swap", "memory.swap.current")
        .absent_when("the kernel does not account for swap")
        .otlp("allostat.task.memory.swap", "By"),
    bytes("memory_kernel_bytes", "Memory that the kernel uses for the task.", &[cell!(memory_kernel_bytes)])
        .sources("memory.kmem.usage_in_bytes", "memory.stat kernel (5.18)")
        .absent_when("the kernel does not say")
        .otlp("allostat.task.memory.kernel", "By"),
    bytes(
        "memory_limit_bytes",
        "Lowest memory limit from the cgroup up to the root: where the OOM killer begins.",
        &[cell!(memory_limit_bytes)],
    )
    .sources("min(memory.limit_in_bytes, memory.stat hierarchical_memory_limit)", "lowest memory.max up the tree")
    .absent_when("unlimited")
    .stays()
    .otlp("allostat.task.memory.limit", "By"),
    bytes("memory_high_bytes", "Usage above which the task is throttled and reclaimed.", &[cell!(memory_high_bytes)])
        .sources("-", "memory.high")
        .absent_when("not set, or cgroup v1")
        .stays()
        .otlp("allostat.task.memory.high", "By"),
    bytes(
        "memory_reservation_bytes",
        "Memory that is protected from reclaim (v2), or to which reclaim shrinks the task first (v1).",
        &[cell!(memory_reservation_bytes)],
    )
    .sources("memory.soft_limit_in_bytes", "memory.low")
    .absent_when("not set")
    .stays()
    .otlp("allostat.task.memory.reservation", "By"),
    bytes(
        "memory_available_bytes",
        "memory_limit_bytes less memory_working_set_bytes, not below 0.",
        &[Cell::plain(|u| {
            let (limit, working_set) = u.memory_limit_bytes().zip(u.memory_working_set_bytes())?;
            Some(Value::Int(limit.saturating_sub(working_set)))
        })],
    )
    .sources("limit - working set", "limit - working set")
    .absent_when("unlimited")
    .otlp("container.memory.available", "By"),
    events(
        "memory_limit_hits_total",
        "How often usage met the limit. Not comparable across cgroup versions: v1 counts each failed charge, so that one OOM \
         can give thousands.",
        &[cell!(memory_limit_hits)],
    )
    .sources("memory.failcnt + memory.memsw.failcnt", "memory.events max")
    .absent_when(NO_CONTROLLER)
    .otlp("allostat.task.memory.limit_hits", "{event}"),
    events(
        "memory_high_events_total",
        "How often the task was throttled because usage was above memory_high_bytes.",
        &[cell!(memory_high_events)],
    )
    .sources("-", "memory.events high")
    .absent_when("cgroup v1")
    .otlp("allostat.task.memory.high_events", "{event}"),
    events(OOM_KILLS, "Processes of the task that the OOM killer ended.", &[cell!(oom_kills)])
        .sources("memory.oom_control oom_kill (4.13)", "memory.events oom_kill")
        .absent_when("the kernel does not count them")
        .tells_created()
        .otlp("allostat.task.oom_kills", "{kill}"),
    events(
        "oom_group_kills_total",
        "How often the OOM killer ended the whole cgroup at once.",
        &[cell!(oom_group_kills)],
    )
    .sources("-", "memory.events oom_group_kill (5.17)")
    .absent_when("cgroup v1 or an older kernel")
    .otlp("allostat.task.oom_group_kills", "{kill}"),
    MetricDesc::per_task(
        "page_faults_total",
        Kind::Counter,
        Unit::None,
        "Page faults: minor were served from memory, major had to wait for a disk.",
        &[
            Cell::with(&[("kind", "minor")], |u| u.page_faults_minor().map(Value::Int)),
            Cell::with(&[("kind", "major")], |u| u.page_faults_major().map(Value::Int)),
        ],
    )
    .sources(
        "memory.stat total_pgfault, total_pgmajfault; at the end wait4 where that says more",
        "memory.stat pgfault, pgmajfault; at the end wait4 where that says more",
    )
    .absent_when("the kernel does not say")
    .for_alloc(AllocRule::Sum)
    .otlp("container.paging.faults", "{fault}"),
    MetricDesc::per_task(
        "workingset_refaults_total",
        Kind::Counter,
        Unit::None,
        "Pages that were reclaimed and needed again soon after: memory is too tight.",
        &[
            Cell::with(&[("kind", "anon")], |u| u.workingset_refaults_anon().map(Value::Int)),
            Cell::with(&[("kind", "file")], |u| u.workingset_refaults_file().map(Value::Int)),
        ],
    )
    .sources("-", "memory.stat workingset_refault_anon, workingset_refault_file (5.9)")
    .absent_when("cgroup v1 or an older kernel")
    .otlp("allostat.task.memory.workingset_refaults", "{fault}"),
    bytes(
        "max_rss_bytes",
        "Largest resident set that any single process of the task had; the only peak where there is no cgroup. Known when the \
         task has ended.",
        &[cell!(max_rss_bytes)],
    )
    .sources("wait4 ru_maxrss", "wait4 ru_maxrss")
    .absent_when("no attempt has ended")
    .stays()
    .for_alloc(AllocRule::TaskOnly)
    .otlp("allostat.task.memory.max_rss", "By"),
];

const fn bytes(stem: &'static str, help: &'static str, cells: &'static [Cell]) -> Measure {
    MetricDesc::per_task(stem, Kind::Gauge, Unit::Bytes, help, cells)
}

/// Events of the task's own limit, which only v2 hands up the tree.
const fn events(stem: &'static str, help: &'static str, cells: &'static [Cell]) -> Measure {
    MetricDesc::per_task(stem, Kind::Counter, Unit::None, help, cells).for_alloc(AllocRule::Sum)
}
