//! Whether the host's clock can be trusted. Source: adjtimex(2).

use std::borrow::Cow;

use crate::collectors::{CollectError, Collector};
use crate::host::roots::Roots;
use crate::host::timex::{ClockAccuracy, clock_accuracy};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

static SYNCHRONIZED: MetricDesc = gauge(
    "allostat_host_clock_synchronized",
    Unit::None,
    "1 if a time service keeps the host's clock synchronized, else 0.",
)
.from_source("adjtimex(2), STA_UNSYNC")
.otlp("allostat.host.clock.synchronized", "1");

static OFFSET: MetricDesc = gauge(
    "allostat_host_clock_offset_seconds",
    Unit::Seconds,
    "Offset that the kernel's clock loop still has to correct; negative if the clock is ahead.",
)
.from_source("adjtimex(2), offset")
.otlp("allostat.host.clock.offset", "s");

static MAX_ERROR: MetricDesc = gauge(
    "allostat_host_clock_max_error_seconds",
    Unit::Seconds,
    "Largest possible error of the clock; grows until the time service corrects the clock again.",
)
.from_source("adjtimex(2), maxerror")
.otlp("allostat.host.clock.max_error", "s");

static METRICS: &[&MetricDesc] = &[&SYNCHRONIZED, &OFFSET, &MAX_ERROR];

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> MetricDesc {
    MetricDesc::gauge(name, unit, help, &[]).absent_when("a seccomp filter refuses the call")
}

/// State of the host's clock discipline.
#[derive(Debug)]
pub(super) struct ClockCollector;

impl Collector for ClockCollector {
    fn name(&self) -> &'static str {
        "clock"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        if !roots.are_of_this_kernel() {
            return Err(CollectError::Absent("the clock of another host cannot be read".to_owned()));
        }
        let accuracy = clock_accuracy().map_err(|e| CollectError::Absent(format!("adjtimex(2) is refused: {e}")))?;
        push(accuracy, out);
        Ok(())
    }
}

fn push(accuracy: ClockAccuracy, out: &mut Samples) {
    out.push_int(&SYNCHRONIZED, &[], u64::from(accuracy.is_synchronized));
    out.push_owned(&OFFSET, Vec::<Cow<'static, str>>::new(), Value::Float(accuracy.offset_seconds));
    out.push_nanos(&MAX_ERROR, &[], accuracy.max_error.0);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{host, lines};
    use super::*;
    use crate::model::units::Nanos;

    #[test]
    fn clock_state_is_shown_in_seconds() {
        let mut out = Samples::default();
        let max_error = Nanos(16_000_000_000);
        push(ClockAccuracy { is_synchronized: false, offset_seconds: -0.05, max_error }, &mut out);
        let expected = [
            "clock_synchronized{} Int(0)",
            "clock_offset_seconds{} Float(-0.05)",
            "clock_max_error_seconds{} Nanos(16000000000)",
        ];
        assert_eq!(lines(&out), expected);
    }

    #[test]
    fn clock_of_a_host_of_files_is_absent() {
        let (_dir, roots) = host(&[]);
        assert!(matches!(ClockCollector.collect(&roots, &mut Samples::default()), Err(CollectError::Absent(_))));
    }
}
