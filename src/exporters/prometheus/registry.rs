//! The agent's registry in our own words.

use prometheus::proto::{Metric, MetricFamily};

use super::Format;
use super::encode::Body;
use super::labels::block;
use super::page::Page;
use crate::exporters::walk::Source;
use crate::model::metric::{Kind, Value};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::descriptor;

pub(super) fn write(body: &mut Body<'_>, metrics: &Metrics) {
    let format = body.format;
    for family in metrics.gather() {
        let Some(desc) = descriptor(family.name()) else { continue };
        body.family(desc, Source::Agent, |page, _| write_family(page, &family, desc.kind, format));
    }
}

fn write_family(page: &mut Page, family: &MetricFamily, kind: Kind, format: Format) -> u64 {
    let mut series = 0;
    for metric in family.get_metric() {
        let labels = block(metric.get_label().iter().map(|l| (l.name(), l.value())));
        match kind {
            Kind::Histogram => series += histogram(page, family.name(), &labels, metric, format),
            Kind::Counter => {
                line(page, family.name(), &labels, number(metric.get_counter().get_value()));
                series += 1;
            }
            Kind::Gauge | Kind::Info => {
                line(page, family.name(), &labels, number(metric.get_gauge().get_value()));
                series += 1;
            }
        }
    }
    series
}

fn histogram(page: &mut Page, name: &str, labels: &str, metric: &Metric, format: Format) -> u64 {
    let histogram = metric.get_histogram();
    let open = if labels.is_empty() { "{".to_owned() } else { format!("{labels},") };
    let mut series = 2;
    for bucket in histogram.get_bucket() {
        let le = bound(bucket.upper_bound(), format);
        page.text(&format!("{name}_bucket{open}le=\"{le}\"}} "));
        page.end_line(Value::Int(bucket.cumulative_count()));
        series += 1;
    }
    if histogram.get_bucket().last().is_none_or(|b| b.upper_bound().is_finite()) {
        page.text(&format!("{name}_bucket{open}le=\"+Inf\"}} "));
        page.end_line(Value::Int(histogram.get_sample_count()));
        series += 1;
    }
    line(page, &format!("{name}_sum"), labels, Value::Float(histogram.get_sample_sum()));
    line(page, &format!("{name}_count"), labels, Value::Int(histogram.get_sample_count()));
    series
}

fn line(page: &mut Page, name: &str, labels: &str, value: Value) {
    page.text(name);
    page.text(labels);
    page.text(if labels.is_empty() { " " } else { "} " });
    page.end_line(value);
}

/// OpenMetrics wants `1.0` where text has `1`.
pub(super) fn bound(upper: f64, format: Format) -> String {
    match format {
        _ if upper == f64::INFINITY => "+Inf".to_owned(),
        Format::OpenMetrics if upper.fract() == 0.0 => format!("{upper:.1}"),
        Format::OpenMetrics | Format::Text => upper.to_string(),
    }
}

/// The registry keeps counters as `u64` and gives them as floats: whole ones are written as such.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative, below 2^53")]
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) { Value::Int(value as u64) } else { Value::Float(value) }
}
