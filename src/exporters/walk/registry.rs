//! The agent's registry and its timings in our own words, in order of name.

use std::sync::Arc;

use prometheus::proto::MetricFamily;

use super::listener::{Families, HistogramPoint, Listener};
use super::rows::ONE_ROW;
use super::subject::Labels;
use crate::model::metric::{Kind, Value};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::descriptor;
use crate::telemetry::timings::Timings;

pub(super) fn walk(out: &mut Families<'_, impl Listener>, metrics: &Metrics) {
    let mut timings = metrics.timings().into_iter().peekable();
    for family in metrics.gather() {
        while let Some(earlier) = timings.next_if(|timings| timings.desc.name < family.name()) {
            timed(out, earlier, metrics);
        }
        counted(out, &family);
    }
    timings.for_each(|rest| timed(out, rest, metrics));
}

fn counted(out: &mut Families<'_, impl Listener>, family: &MetricFamily) {
    let Some(desc) = descriptor(family.name()) else { return };
    let metrics = family.get_metric();
    let cells: Vec<Labels<'_>> =
        metrics.iter().map(|m| m.get_label().iter().map(|l| (l.name(), l.value())).collect()).collect();
    match desc.kind {
        Kind::Counter => out.one(desc, &cells, metrics.iter().map(|m| number(m.get_counter().get_value()))),
        // Histograms are timings: none is in the registry.
        Kind::Gauge | Kind::Info | Kind::Histogram => {
            out.one(desc, &cells, metrics.iter().map(|m| number(m.get_gauge().get_value())))
        }
    }
}

fn timed(out: &mut Families<'_, impl Listener>, timings: &Timings, metrics: &Metrics) {
    let all = timings.all();
    let names = timings.desc.labels.iter().copied();
    let cells: Vec<Labels<'_>> =
        all.iter().map(|(values, _)| names.clone().zip(values.iter().map(String::as_str)).collect()).collect();
    let points = all.iter().enumerate().map(|(cell, (_, histogram))| HistogramPoint {
        row: 0,
        cell,
        buckets: histogram.buckets.iter().map(|bucket| (bucket.count, bucket.latest.as_deref())),
        sum: Value::Nanos(histogram.sum.0),
        exponential: Arc::clone(&histogram.exponential),
        since: metrics.began(),
    });
    out.histograms(timings.desc, &ONE_ROW, (&cells, timings.bounds), points);
}

/// The registry keeps counters as `u64` and gives them as floats: whole ones are written as such.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative, below 2^53")]
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) { Value::Int(value as u64) } else { Value::Float(value) }
}
