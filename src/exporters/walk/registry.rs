//! The agent's registry in our own words.

use prometheus::proto::Metric;

use super::listener::{Families, HistogramPoint, Listener};
use super::rows::ONE_ROW;
use super::subject::Labels;
use crate::model::metric::{Exemplar, Kind, Value};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::descriptor;

pub(super) fn walk(out: &mut Families<'_, impl Listener>, metrics: &Metrics) {
    for family in metrics.gather() {
        let Some(desc) = descriptor(family.name()) else { continue };
        let metrics = family.get_metric();
        let cells: Vec<Labels<'_>> =
            metrics.iter().map(|m| m.get_label().iter().map(|l| (l.name(), l.value())).collect()).collect();
        match desc.kind {
            Kind::Histogram => {
                let first = metrics.first().map(|metric| metric.get_histogram().get_bucket());
                let bounds: Vec<f64> = first.unwrap_or_default().iter().map(|bucket| bucket.upper_bound()).collect();
                let all = metrics.iter().enumerate().map(|(cell, metric)| histogram(cell, metric));
                out.histograms(desc, &ONE_ROW, (&cells, &bounds), all);
            }
            Kind::Counter => out.one(desc, &cells, metrics.iter().map(|m| number(m.get_counter().get_value()))),
            Kind::Gauge | Kind::Info => {
                out.one(desc, &cells, metrics.iter().map(|m| number(m.get_gauge().get_value())))
            }
        }
    }
}

/// The registry counts what lies below each bound, and keeps no bucket for the rest.
fn histogram(cell: usize, metric: &Metric) -> HistogramPoint<impl Iterator<Item = (u64, Option<&Exemplar>)>> {
    let histogram = metric.get_histogram();
    let below = histogram.get_bucket().iter().map(|bucket| bucket.cumulative_count());
    let mut before = 0;
    let buckets = below
        .chain([histogram.get_sample_count()])
        .map(move |upto| (upto.saturating_sub(std::mem::replace(&mut before, upto)), None));
    HistogramPoint { row: 0, cell, buckets, sum: Value::Float(histogram.get_sample_sum()) }
}

/// The registry keeps counters as `u64` and gives them as floats: whole ones are written as such.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative, below 2^53")]
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) { Value::Int(value as u64) } else { Value::Float(value) }
}
