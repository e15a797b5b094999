//! Memory and swap of the host. Source: `/proc/meminfo`; `MemAvailable` since 3.14.

use std::sync::LazyLock;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::meminfo::{self, Meminfo};
use crate::model::metric::{MetricDesc, Samples};
use crate::model::profile::Profile;
use crate::model::units::Unit;

static TOTAL: MetricDesc =
    MetricDesc::gauge("allostat_host_memory_total_bytes", Unit::Bytes, "Memory managed by the kernel (MemTotal).", &[])
        .from_source("/proc/meminfo MemTotal")
        .absent_when("the kernel does not report it")
        .otlp("system.memory.limit", "By");

static AVAILABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_memory_available_bytes",
    Unit::Bytes,
    "Memory available without swapping, estimated by the kernel (MemAvailable).",
    &[],
)
.from_source("/proc/meminfo MemAvailable (3.14)")
.absent_when("the kernel does not report it")
.otlp("system.memory.linux.available", "By");

static SWAP_USED: MetricDesc = MetricDesc::gauge("allostat_host_swap_used_bytes", Unit::Bytes, "Swap in use.", &[])
    .from_source("/proc/meminfo SwapTotal - SwapFree")
    .absent_when("the kernel has no swap support")
    .otlp("system.paging.usage", "By");

static ALLOCATABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocatable_memory_bytes",
    Unit::Bytes,
    "Memory that allocs can be given (MemTotal).",
    &[],
)
.from_source("/proc/meminfo MemTotal")
.absent_when("the kernel does not report it")
.otlp("allostat.host.allocatable.memory", "By");

static SWAP_TOTAL: MetricDesc = MetricDesc::gauge("allostat_host_swap_total_bytes", Unit::Bytes, "Total swap.", &[])
    .from_source("/proc/meminfo SwapTotal")
    .absent_when("the kernel has no swap support (0 where no swap is configured)")
    .from_profile(Profile::Standard)
    .otlp("allostat.host.swap.limit", "By");

static CACHED: MetricDesc = part(
    "allostat_host_memory_cached_bytes",
    "Page cache, including tmpfs and shared memory; not all of it is reclaimable.",
    "/proc/meminfo Cached",
)
.from_profile(Profile::Standard)
.otlp("system.memory.usage", "By");

static FREE: MetricDesc =
    part("allostat_host_memory_free_bytes", "Unused memory (MemFree); low values are normal.", "/proc/meminfo MemFree")
        .otlp("system.memory.usage", "By");

static BUFFERS: MetricDesc = part(
    "allostat_host_memory_buffers_bytes",
    "Page cache of block devices, mainly file system metadata.",
    "/proc/meminfo Buffers",
)
.otlp("system.memory.usage", "By");

static USED: MetricDesc = part(
    "allostat_host_memory_used_bytes",
    "Total minus free, buffers and page cache; total minus available is the better estimate of used memory.",
    "/proc/meminfo MemTotal - MemFree - Buffers - Cached",
)
.otlp("system.memory.usage", "By");

static ANONYMOUS: MetricDesc =
    part("allostat_host_memory_anonymous_bytes", "Anonymous memory of processes.", "/proc/meminfo AnonPages (2.6.18)")
        .otlp("allostat.host.memory.anonymous", "By");

static SHARED: MetricDesc = part(
    "allostat_host_memory_shared_bytes",
    "Memory in tmpfs and shared memory; also counted in cached.",
    "/proc/meminfo Shmem (2.6.32)",
)
.otlp("system.memory.linux.shared", "By");

static SLAB_RECLAIMABLE: MetricDesc = part(
    "allostat_host_memory_slab_reclaimable_bytes",
    "Reclaimable kernel slab memory, mainly inodes and directory entries.",
    "/proc/meminfo SReclaimable (2.6.19)",
)
.otlp("system.memory.linux.slab.usage", "By");

static SLAB_UNRECLAIMABLE: MetricDesc = part(
    "allostat_host_memory_slab_unreclaimable_bytes",
    "Unreclaimable kernel slab memory; steady growth indicates a leak.",
    "/proc/meminfo SUnreclaim (2.6.19)",
)
.otlp("system.memory.linux.slab.usage", "By");

static DIRTY: MetricDesc =
    part("allostat_host_memory_dirty_bytes", "Memory waiting to be written to disk.", "/proc/meminfo Dirty")
        .otlp("allostat.host.memory.dirty", "By");

static WRITEBACK: MetricDesc = part(
    "allostat_host_memory_writeback_bytes",
    "Memory being written to disk at this moment.",
    "/proc/meminfo Writeback",
)
.otlp("allostat.host.memory.writeback", "By");

const fn part(name: &'static str, help: &'static str, source: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, Unit::Bytes, help, &[])
        .from_source(source)
        .absent_when("the kernel does not report it")
        .from_profile(Profile::Full)
}

/// How to read a value. `None`: absent.
type ReadMemoryValue = fn(&Meminfo) -> Option<u64>;

static PARTS: [(&MetricDesc, ReadMemoryValue); 15] = [
    (&TOTAL, |info| info.total),
    (&AVAILABLE, |info| info.available),
    (&SWAP_USED, |info| Some(info.swap_total?.saturating_sub(info.swap_free?))),
    (&ALLOCATABLE, |info| info.total),
    (&SWAP_TOTAL, |info| info.swap_total),
    (&CACHED, |info| info.cached),
    (&FREE, |info| info.free),
    (&BUFFERS, |info| info.buffers),
    (&USED, |info| {
        let unused = info.free?.checked_add(info.buffers?)?.checked_add(info.cached?)?;
        Some(info.total?.saturating_sub(unused))
    }),
    (&ANONYMOUS, |info| info.anonymous),
    (&SHARED, |info| info.shared),
    (&SLAB_RECLAIMABLE, |info| info.slab_reclaimable),
    (&SLAB_UNRECLAIMABLE, |info| info.slab_unreclaimable),
    (&DIRTY, |info| info.dirty),
    (&WRITEBACK, |info| info.writeback),
];

static METRICS: LazyLock<Vec<&MetricDesc>> = LazyLock::new(|| PARTS.iter().map(|(desc, _)| *desc).collect());

/// Memory and swap of the host.
#[derive(Debug)]
pub(super) struct MemoryCollector;

impl Collector for MemoryCollector {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        &METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let (info, error) = meminfo::parse(&roots.read_proc("meminfo")?);
        for (desc, value) in &PARTS {
            if let Some(bytes) = value(&info) {
                out.push_int(desc, &[], bytes);
            }
        }
        error.map_or(Ok(()), |e| Err(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    #[test]
    fn memory_available_is_absent_on_an_old_kernel() {
        let (_dir, roots) =
            host(&[("proc/meminfo", "MemTotal: 16 kB\nMemFree: 3 kB\nSwapTotal: 4 kB\nSwapFree: 1 kB\n")]);
        let mut out = Samples::default();
        MemoryCollector.collect(&roots, &mut out).unwrap();
        let expected = [
            "memory_total_bytes{} Int(16384)",
            "swap_used_bytes{} Int(3072)",
            "allocatable_memory_bytes{} Int(16384)",
            "swap_total_bytes{} Int(4096)",
            "memory_free_bytes{} Int(3072)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn memory_used_excludes_free_cache_and_buffers_and_all_parts_sum_to_the_total() {
        let text = "MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 5 kB\nCached: 25 kB\nShmem: 3 kB\nSReclaimable: 4 kB\n\
            SUnreclaim: 6 kB\nDirty: 1 kB\nWriteback: 0 kB\nAnonPages: 40 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n";
        let (_dir, roots) = host(&[("proc/meminfo", text)]);
        let mut out = Samples::default();
        MemoryCollector.collect(&roots, &mut out).unwrap();
        let kib = |desc: &MetricDesc| out.int(desc).map(|bytes| bytes / 1024);
        assert_eq!([&USED, &FREE, &BUFFERS, &CACHED, &TOTAL].map(kib), [60, 10, 5, 25, 100].map(Some));
        let rest = [&SHARED, &SLAB_RECLAIMABLE, &SLAB_UNRECLAIMABLE, &DIRTY, &WRITEBACK, &ANONYMOUS, &SWAP_TOTAL];
        assert_eq!(rest.map(kib), [3, 4, 6, 1, 0, 40, 0].map(Some));
        assert_eq!(out.int(&AVAILABLE), None);
    }
}
