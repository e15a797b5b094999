//! PSI stall time of the host's processes, for CPU, memory and I/O. Source: `/proc/pressure/{cpu,memory,io}` (4.20).

use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::kernel::pressure;
use crate::model::metric::{MetricDesc, Samples};
use crate::model::units::Unit;

static STALL: MetricDesc = MetricDesc::counter(
    "allostat_host_pressure_stall_seconds_total",
    Unit::Seconds,
    "PSI stall time: some or all runnable processes of the host waited for the resource.",
    &["resource", "kind"],
)
.from_source("/proc/pressure (4.20)")
.absent_when("the kernel has no PSI, or it is off (psi=0)")
.otlp("allostat.host.pressure.stall", "s");

static METRICS: &[&MetricDesc] = &[&STALL];

/// PSI stall time of the host.
#[derive(Debug)]
pub(super) struct PressureCollector;

impl Collector for PressureCollector {
    fn name(&self) -> &'static str {
        "pressure"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        let mut result = Ok(());
        let mut absent = 0;
        for resource in ["cpu", "memory", "io"] {
            let (psi, error) = match roots.read_proc(format!("pressure/{resource}")) {
                Ok(bytes) => pressure::parse(resource, &bytes),
                Err(ReadError::Absent { .. }) => {
                    absent += 1;
                    continue;
                }
                Err(error) => {
                    result = Err(error.into());
                    continue;
                }
            };
            if let Some(ns) = psi.some_ns {
                out.push_nanos(&STALL, &[resource, "some"], ns);
            }
            // "full" CPU pressure is undefined for the whole host; the kernel prints 0.
            if let Some(ns) = psi.full_ns.filter(|_| resource != "cpu") {
                out.push_nanos(&STALL, &[resource, "full"], ns);
            }
            if let Some(error) = error {
                result = Err(error.into());
            }
        }
        if absent == 3 {
            return Err(CollectError::Absent("this kernel has no pressure stall information".to_owned()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    const PSI: &str =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";

    #[test]
    fn the_host_has_no_full_for_cpu() {
        let (_dir, roots) = host(&[("proc/pressure/cpu", PSI), ("proc/pressure/io", PSI)]);
        let mut out = Samples::default();
        PressureCollector.collect(&roots, &mut out).unwrap();
        let expected = [
            "pressure_stall_seconds_total{cpu,some} Nanos(7000)",
            "pressure_stall_seconds_total{io,some} Nanos(7000)",
            "pressure_stall_seconds_total{io,full} Nanos(5000)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn malformed_pressure_file_affects_no_other() {
        let (_dir, roots) = host(&[("proc/pressure/cpu", "garbage"), ("proc/pressure/io", PSI)]);
        let mut out = Samples::default();
        assert!(PressureCollector.collect(&roots, &mut out).is_err());
        assert_eq!(out.0.len(), 2);
    }
}
