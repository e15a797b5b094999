//! Page faults, swap traffic and OOM kills of the host. Source: `/proc/vmstat`.

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::vmstat;
use crate::model::metric::{MetricDesc, Samples};
use crate::model::units::Unit;

static FAULTS: MetricDesc = MetricDesc::counter(
    "allostat_host_page_faults_total",
    Unit::None,
    "Page faults of the host: minor (served from memory) and major (waited for a disk).",
    &["kind"],
)
.from_source("/proc/vmstat pgfault, pgmajfault")
.absent_when("the kernel does not report it")
.otlp("system.paging.faults", "{fault}");

static SWAPPED_IN: MetricDesc =
    swap("allostat_host_swap_read_bytes_total", "Bytes read from swap.", "/proc/vmstat pswpin")
        .otlp("allostat.host.swap.read", "By");

static SWAPPED_OUT: MetricDesc =
    swap("allostat_host_swap_written_bytes_total", "Bytes written to swap.", "/proc/vmstat pswpout")
        .otlp("allostat.host.swap.written", "By");

static OOM_KILLS: MetricDesc = MetricDesc::counter(
    "allostat_host_oom_kills_total",
    Unit::None,
    "Processes killed by the kernel's OOM killer since boot, in all cgroups.",
    &[],
)
.from_source("/proc/vmstat oom_kill (4.13)")
.absent_when("the kernel is older than 4.13")
.otlp("allostat.host.oom_kills", "{kill}");

static METRICS: &[&MetricDesc] = &[&FAULTS, &SWAPPED_IN, &SWAPPED_OUT, &OOM_KILLS];

const fn swap(name: &'static str, help: &'static str, source: &'static str) -> MetricDesc {
    MetricDesc::counter(name, Unit::Bytes, help, &[]).from_source(source).absent_when("the kernel has no swap support")
}

/// Page faults, swap traffic and OOM kills of the host.
#[derive(Debug)]
pub(super) struct VmstatCollector;

impl Collector for VmstatCollector {
    fn name(&self) -> &'static str {
        "vmstat"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let (found, error) = vmstat::parse(&roots.read_proc("vmstat")?);
        if let (Some(all), Some(major)) = (found.faults, found.major_faults) {
            out.push_int(&FAULTS, &["minor"], all.saturating_sub(major));
        }
        if let Some(major) = found.major_faults {
            out.push_int(&FAULTS, &["major"], major);
        }
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        for (desc, pages) in [(&SWAPPED_IN, found.swapped_in_pages), (&SWAPPED_OUT, found.swapped_out_pages)] {
            if let Some(pages) = pages {
                out.push_int(desc, &[], pages.saturating_mul(page));
            }
        }
        if let Some(kills) = found.oom_kills {
            out.push_int(&OOM_KILLS, &[], kills);
        }
        error.map_or(Ok(()), |e| Err(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    #[test]
    fn minor_faults_are_all_without_the_major_ones() {
        let (_dir, roots) = host(&[("proc/vmstat", "pgfault 100\npgmajfault 7\npswpin 1\noom_kill 3\n")]);
        let mut out = Samples::default();
        VmstatCollector.collect(&roots, &mut out).unwrap();
        let swapped = format!("swap_read_bytes_total{{}} Int({})", rustix::param::page_size());
        let expected = [
            "page_faults_total{minor} Int(93)",
            "page_faults_total{major} Int(7)",
            &*swapped,
            "oom_kills_total{} Int(3)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn a_bad_value_is_an_error_and_costs_no_other() {
        let (_dir, roots) = host(&[("proc/vmstat", "pgfault x\npgmajfault 7\noom_kill 3\n")]);
        let mut out = Samples::default();
        assert!(VmstatCollector.collect(&roots, &mut out).is_err());
        assert_eq!(lines(&out), ["page_faults_total{major} Int(7)", "oom_kills_total{} Int(3)"]);
    }
}
