//! Load of the host. Source: `/proc/loadavg`. Units: threads.

use std::borrow::Cow;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::kernel::proc::loadavg;
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::profile::Profile;
use crate::model::units::Unit;

static AVERAGE: MetricDesc = MetricDesc::gauge(
    "allostat_host_load_average",
    Unit::None,
    "Load average of the host: threads running, runnable or blocked on disk I/O, by window.",
    &["window"],
)
.from_source("/proc/loadavg")
.absent_when("the kernel does not report it")
.from_profile(Profile::Standard)
.otlp("allostat.host.load_average", "{thread}");

static METRICS: &[&MetricDesc] = &[&AVERAGE];

/// Load averages of the host.
#[derive(Debug)]
pub(super) struct LoadCollector;

impl Collector for LoadCollector {
    fn name(&self) -> &'static str {
        "load"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        for (window, average) in ["1m", "5m", "15m"].into_iter().zip(loadavg::parse(&roots.read_proc("loadavg")?)?) {
            out.push_owned(&AVERAGE, vec![Cow::Borrowed(window)], Value::Float(average));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;

    #[test]
    fn three_windows_are_shown_and_of_a_broken_file_none() {
        let (dir, roots) = host(&[("proc/loadavg", "0.50 1.25 2.00 1/234 567\n")]);
        let mut out = Samples::default();
        LoadCollector.collect(&roots, &mut out).unwrap();
        let expected = ["load_average{1m} Float(0.5)", "load_average{5m} Float(1.25)", "load_average{15m} Float(2.0)"];
        assert_eq!(lines(&out), expected);
        std::fs::write(dir.path().join("proc/loadavg"), "0.50 x").unwrap();
        let mut out = Samples::default();
        assert!(LoadCollector.collect(&roots, &mut out).is_err() && out.0.is_empty());
    }
}
