//! What became of the ends that are kept on record.

use std::sync::OnceLock;

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::registered::{counters, gauge};
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static HISTORY_ENDS: MetricDesc = MetricDesc::counter(
    "allostat_history_ends_total",
    Unit::None,
    "Ends of managed and observed allocs by outcome of their history record: written to disk, or lost.",
    &["outcome"],
)
.absent_when("history is off (history.keep is 0)")
.otlp("allostat.history.ends", "{end}");

pub static HISTORY_WAITING: MetricDesc = MetricDesc::gauge(
    "allostat_history_waiting_ends",
    Unit::None,
    "History records held in memory because disk writes fail.",
    &[],
)
.absent_when("history is off (history.keep is 0)")
.otlp("allostat.history.waiting", "{end}");

pub static RECENT_BYTES: MetricDesc = MetricDesc::gauge(
    "allostat_history_series_bytes",
    Unit::Bytes,
    "Memory of the last hour that the page and allostat top show, within history.series_max_bytes.",
    &[],
)
.absent_when("no last hour is kept (history.series_max_bytes is 0)")
.otlp("allostat.history.series", "By");

pub static RECENT_LEFT_OUT: MetricDesc = MetricDesc::gauge(
    "allostat_history_series_left_out_tasks",
    Unit::None,
    "Running tasks without a last hour because history.series_max_bytes has no room for them.",
    &[],
)
.absent_when("no last hour is kept (history.series_max_bytes is 0)")
.otlp("allostat.history.series.left_out", "{task}");
}

words! {
    /// What became of an end.
    pub enum EndOutcome {
        Written = "written",
        Lost = "lost",
    }
}

/// Concurrency: any thread; atomics. Nothing of it is there where nothing is kept.
pub struct EndsOnRecord {
    registry: Registry,
    counts: OnceLock<(IntCounterVec, IntGauge)>,
}

impl EndsOnRecord {
    pub(super) fn new(registry: &Registry) -> EndsOnRecord {
        EndsOnRecord { registry: registry.clone(), counts: OnceLock::new() }
    }

    /// Lines that were written and that were lost since this was said last, and how many wait.
    pub fn count_lines(&self, written: usize, lost: usize, waiting: usize) {
        let (ends, waits) = self
            .counts
            .get_or_init(|| (counters(&self.registry, &HISTORY_ENDS), gauge(&self.registry, &HISTORY_WAITING)));
        for (outcome, lines) in [(EndOutcome::Written, written), (EndOutcome::Lost, lost)] {
            ends.with_label_values(&[outcome.as_str()]).inc_by(u64::try_from(lines).unwrap_or(u64::MAX));
        }
        waits.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}

/// Concurrency: any thread; atomics. Nothing of it is there where no last hour is kept.
pub struct RecentUse {
    registry: Registry,
    gauges: OnceLock<[IntGauge; 2]>,
}

impl RecentUse {
    pub(super) fn new(registry: &Registry) -> RecentUse {
        RecentUse { registry: registry.clone(), gauges: OnceLock::new() }
    }

    /// After a point: memory, and running tasks without room.
    pub fn record_size(&self, bytes: usize, left_out: usize) {
        let descs = [&RECENT_BYTES, &RECENT_LEFT_OUT];
        let gauges = self.gauges.get_or_init(|| descs.map(|desc| gauge(&self.registry, desc)));
        for (gauge, value) in gauges.iter().zip([bytes, left_out]) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
}
