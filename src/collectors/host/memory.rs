//! Memory and swap of the host. Source: `/proc/meminfo`; `MemAvailable` since 3.14.

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::meminfo;
use crate::model::metric::{MetricDesc, Samples};
use crate::model::units::Unit;

static TOTAL: MetricDesc =
    MetricDesc::gauge("allostat_host_memory_total_bytes", Unit::Bytes, "Memory that the kernel manages.", &[])
        .from_source("/proc/meminfo MemTotal")
        .absent_when("the kernel does not say")
        .otlp("system.memory.limit", "By");

static AVAILABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_memory_available_bytes",
    Unit::Bytes,
    "Memory that can be had without swapping, as the kernel estimates it.",
    &[],
)
.from_source("/proc/meminfo MemAvailable (3.14)")
.absent_when("the kernel does not say")
.otlp("system.memory.linux.available", "By");

static SWAP_USED: MetricDesc = MetricDesc::gauge("allostat_host_swap_used_bytes", Unit::Bytes, "Swap in use.", &[])
    .from_source("/proc/meminfo SwapTotal - SwapFree")
    .absent_when("the kernel has no swap")
    .otlp("system.paging.usage", "By");

static ALLOCATABLE: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocatable_memory_bytes",
    Unit::Bytes,
    "Memory that allocs can be given: all that the kernel manages.",
    &[],
)
.from_source("/proc/meminfo MemTotal")
.absent_when("the kernel does not say")
.otlp("allostat.host.allocatable.memory", "By");

static METRICS: &[&MetricDesc] = &[&TOTAL, &AVAILABLE, &SWAP_USED, &ALLOCATABLE];

#[derive(Debug)]
pub(super) struct Memory;

impl Collector for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let (info, error) = meminfo::parse(&roots.read_proc("meminfo")?);
        let swap_used = info.swap_total.zip(info.swap_free).map(|(total, free)| total.saturating_sub(free));
        for (desc, value) in
            [(&TOTAL, info.total), (&AVAILABLE, info.available), (&SWAP_USED, swap_used), (&ALLOCATABLE, info.total)]
        {
            if let Some(bytes) = value {
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
    fn an_old_kernel_does_not_say_what_is_available() {
        let (_dir, roots) =
            host(&[("proc/meminfo", "MemTotal: 16 kB\nMemFree: 3 kB\nSwapTotal: 4 kB\nSwapFree: 1 kB\n")]);
        let mut out = Samples::default();
        Memory.collect(&roots, &mut out).unwrap();
        let expected =
            ["memory_total_bytes{} Int(16384)", "swap_used_bytes{} Int(3072)", "allocatable_memory_bytes{} Int(16384)"];
        assert_eq!(lines(&out), expected);
    }
}
