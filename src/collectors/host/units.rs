//! Failed units of the host's systemd. Source: `systemctl list-units --state=failed`.
//!
//! Shape: their number, and one value of each, at most [`MAX_UNITS`]. Read every [`INTERVAL`] by a thread of its own.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::blocking_probe::BlockingProbe;
use crate::collectors::{CollectError, Collector};
use crate::host::roots::{ReadError, Roots};
use crate::host::systemd::{SystemdManager, is_booted};
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::units::Unit;

const MAX_UNITS: usize = 64;
/// A call starts a process, which takes some milliseconds of CPU time.
const INTERVAL: Duration = Duration::from_secs(15);

static COUNT: MetricDesc = MetricDesc::gauge(
    "allostat_host_failed_units",
    Unit::None,
    "Units of the host's systemd that have failed and were neither started again nor reset.",
    &[],
)
.from_source("systemctl list-units --state=failed")
.absent_when("systemd does not run here or does not respond")
.otlp("allostat.host.units.failed", "{unit}");

static INFO: MetricDesc = MetricDesc::gauge(
    "allostat_host_unit_failed",
    Unit::None,
    "1 for each unit of the host's systemd that has failed.",
    &["unit"],
)
.from_source("systemctl list-units --state=failed")
.absent_when("the unit has not failed, systemd does not run here or does not respond, or 64 are exposed")
.otlp("allostat.host.unit.failed", "1");

static METRICS: &[&MetricDesc] = &[&COUNT, &INFO];

/// Failed units of the host's systemd.
#[derive(Debug, Default)]
pub(super) struct FailedUnitCollector {
    /// `None`: it was not needed yet, or its thread could not be created.
    probe: Option<BlockingProbe<Vec<String>>>,
    requested_at: Option<Instant>,
}

impl FailedUnitCollector {
    fn collect_at(&mut self, now: Instant, out: &mut Samples) -> Result<(), CollectError> {
        let Some(probe) = &mut self.probe else { return Ok(()) };
        probe.take(now)?;
        if self.requested_at.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL) {
            self.requested_at = Some(now);
            probe.request(now);
        }
        if let Some(units) = probe.known(now)? {
            out.push_int(&COUNT, &[], u64::try_from(units.len()).unwrap_or(u64::MAX));
            for unit in units.iter().take(MAX_UNITS) {
                out.push_owned(&INFO, vec![Cow::Owned(unit.clone())], Value::Int(1));
            }
        }
        Ok(())
    }
}

impl Collector for FailedUnitCollector {
    fn name(&self) -> &'static str {
        "units"
    }
    fn metrics(&self) -> &'static [&'static MetricDesc] {
        METRICS
    }
    fn collect(&mut self, roots: &Roots, out: &mut Samples) -> Result<(), CollectError> {
        if !roots.are_of_this_kernel() || !is_booted() {
            return Err(CollectError::Absent("systemd does not run here".to_owned()));
        }
        if self.probe.is_none() {
            let failed = || Ok(SystemdManager::System.failed_units().map_err(|e| ReadError::new("systemctl", e))?);
            self.probe = BlockingProbe::new("failed-units", "systemd".to_owned(), failed);
        }
        self.collect_at(Instant::now(), out)
    }
    fn age(&self) -> Duration {
        let taken_at = self.probe.as_ref().and_then(BlockingProbe::started_at);
        taken_at.map_or(Duration::ZERO, |at| at.elapsed())
    }
    fn stuck(&self) -> Option<bool> {
        Some(self.probe.as_ref().is_some_and(|probe| probe.is_stuck(Instant::now())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::blocking_probe::DEADLINE;
    use super::super::tests::lines;
    use super::*;

    /// Answers of the probe come from the channel.
    fn collector() -> (FailedUnitCollector, mpsc::SyncSender<Result<Vec<String>, CollectError>>) {
        let (answer, answers) = mpsc::sync_channel(0);
        let probe = BlockingProbe::new("failed-units", "systemd".to_owned(), move || {
            answers.recv().unwrap_or_else(|_| Err(CollectError::Absent("closed".to_owned())))
        });
        (FailedUnitCollector { probe, requested_at: None }, answer)
    }

    /// Waits until the probe's thread has handed over what was sent.
    fn next_lines(collector: &mut FailedUnitCollector, now: Instant) -> Result<Vec<String>, CollectError> {
        while collector.probe.as_ref().is_some_and(BlockingProbe::is_pending) {
            collector.probe.as_mut().unwrap().take(now)?;
            std::thread::yield_now();
        }
        let mut out = Samples::default();
        collector.collect_at(now, &mut out)?;
        Ok(lines(&out))
    }

    fn unit(n: usize) -> String {
        format!("unit-{n}.service")
    }

    #[test]
    fn failed_units_are_counted_and_named_up_to_a_limit() {
        let (mut collector, answer) = collector();
        let now = Instant::now();
        assert_eq!(next_lines(&mut collector, now).unwrap(), [""; 0], "nothing is known before the first answer");
        answer.send(Ok(vec![])).unwrap();
        assert_eq!(next_lines(&mut collector, now).unwrap(), ["failed_units{} Int(0)"]);

        let later = now + INTERVAL;
        collector.collect_at(later, &mut Samples::default()).unwrap();
        answer.send(Ok((0..70).map(unit).collect())).unwrap();
        let found = next_lines(&mut collector, later).unwrap();
        assert_eq!(found[..2], ["failed_units{} Int(70)", "unit_failed{unit-0.service} Int(1)"]);
        assert_eq!(found.len(), 1 + MAX_UNITS);
    }

    #[test]
    fn silent_or_failing_systemd_gives_no_value() {
        let (mut collector, answer) = collector();
        let now = Instant::now();
        next_lines(&mut collector, now).unwrap();
        answer.send(Ok(vec![unit(1)])).unwrap();
        assert_eq!(next_lines(&mut collector, now).unwrap().len(), 2);

        let later = now + INTERVAL;
        collector.collect_at(later, &mut Samples::default()).unwrap();
        let late = later + DEADLINE + Duration::from_millis(1);
        let error = collector.collect_at(late, &mut Samples::default()).unwrap_err();
        assert!(matches!(error, CollectError::Timeout(_)), "{error:?}");

        answer.send(Err(CollectError::Timeout("no bus".to_owned()))).unwrap();
        let error = next_lines(&mut collector, late).unwrap_err();
        assert!(error.to_string().contains("no bus"), "{error}");
        let mut out = Samples::default();
        collector.collect_at(late, &mut out).unwrap();
        assert_eq!(out.0, []);
    }
}
