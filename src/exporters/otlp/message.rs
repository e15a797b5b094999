//! Points that were gathered, as messages: one metric for all points of its name in a resource.
//!
//! Source: opentelemetry/proto/metrics/v1/metrics.proto.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as ExemplarMessage, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge,
    Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::attribute::key_value;
use super::names::{self, Instrument, SCHEMA_URL, SeriesNaming};
use super::settings::HistogramAggregation;
use crate::model::exponential::Exponential;
use crate::model::metric::{Exemplar, MetricDesc, Value};
use crate::model::trace::{SpanId, TraceId};
use crate::model::units::{Nanos, Unit};

/// There is no value: `FLAG_NO_RECORDED_VALUE_MASK`.
pub const NO_RECORDED_VALUE: u32 = 1;

/// Attributes of a point: names and values.
pub(super) type PointAttributes = Arc<[(String, String)]>;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub desc: &'static MetricDesc,
    pub naming: SeriesNaming,
    pub attributes: PointAttributes,
}

pub(super) struct SeriesPoint {
    pub series: Series,
    /// 0: not known, or nothing that begins.
    pub start: u64,
    pub at: u64,
    pub value: PointValue,
}

pub(super) enum PointValue {
    Number(Option<Value>, Option<ExemplarMessage>),
    Observed(HistogramObservations),
    /// It was exported, and is absent now.
    Ended,
}

/// What a histogram says; which of both buckets go out is set.
pub(super) struct HistogramObservations {
    pub bounds: Arc<[f64]>,
    pub counts: Vec<u64>,
    pub exponential: Arc<Exponential>,
    pub sum: f64,
    pub exemplars: Vec<ExemplarMessage>,
}

/// `None`: it has no points.
pub(super) fn message(
    resource: &Resource,
    points: Vec<SeriesPoint>,
    aggregation: HistogramAggregation,
) -> Option<ResourceMetrics> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut by_name: HashMap<Cow<'static, str>, usize> = HashMap::new();
    for point in points {
        let Some((name, unit, instrument)) = names::of(point.series.desc, point.series.naming) else { continue };
        let place = *by_name.entry(name).or_insert_with_key(|name| {
            metrics.push(Metric {
                name: name.clone().into_owned(),
                description: point.series.desc.help.to_owned(),
                unit: unit.to_owned(),
                data: Some(empty(instrument, aggregation)),
                ..Metric::default()
            });
            metrics.len() - 1
        });
        push(&mut metrics[place], point);
    }
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics, schema_url: SCHEMA_URL.to_owned() }];
    let is_empty = scope_metrics[0].metrics.is_empty();
    let schema_url = SCHEMA_URL.to_owned();
    (!is_empty).then(|| ResourceMetrics { resource: Some(resource.clone()), scope_metrics, schema_url })
}

/// Who says it.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "allostat".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn empty(instrument: Instrument, aggregation: HistogramAggregation) -> metric::Data {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data_points = Vec::new();
    match instrument {
        Instrument::Gauge => metric::Data::Gauge(Gauge { data_points }),
        Instrument::Counter | Instrument::UpDownCounter => {
            let is_monotonic = instrument == Instrument::Counter;
            metric::Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
        }
        Instrument::Histogram if aggregation == HistogramAggregation::Exponential => {
            metric::Data::ExponentialHistogram(ExponentialHistogram {
                data_points: Vec::new(),
                aggregation_temporality,
            })
        }
        Instrument::Histogram => {
            metric::Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality })
        }
    }
}

fn push(metric: &mut Metric, exported: SeriesPoint) {
    let attributes: Vec<KeyValue> =
        exported.series.attributes.iter().map(|(key, value)| key_value(key, value)).collect();
    let (start_time_unix_nano, time_unix_nano) = (exported.start, exported.at);
    let flags = if let PointValue::Ended = exported.value { NO_RECORDED_VALUE } else { 0 };
    match &mut metric.data {
        Some(metric::Data::Gauge(Gauge { data_points }) | metric::Data::Sum(Sum { data_points, .. })) => {
            let (value, exemplar) =
                if let PointValue::Number(value, exemplar) = exported.value { (value, exemplar) } else { (None, None) };
            data_points.push(NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                exemplars: exemplar.into_iter().collect(),
                flags,
                value: value.map(|value| number(exported.series.desc.unit, value)),
            });
        }
        Some(metric::Data::Histogram(Histogram { data_points, .. })) => {
            let mut point = HistogramDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                flags,
                ..HistogramDataPoint::default()
            };
            if let PointValue::Observed(observed) = exported.value {
                point.count = observed.counts.iter().sum();
                point.sum = Some(observed.sum);
                point.bucket_counts = observed.counts;
                point.explicit_bounds = observed.bounds.to_vec();
                point.exemplars = observed.exemplars;
            }
            data_points.push(point);
        }
        Some(metric::Data::ExponentialHistogram(ExponentialHistogram { data_points, .. })) => {
            let mut point = ExponentialHistogramDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                flags,
                ..ExponentialHistogramDataPoint::default()
            };
            if let PointValue::Observed(observed) = exported.value {
                let dense = observed.exponential.dense();
                point.count = dense.count();
                point.sum = Some(observed.sum);
                point.scale = dense.scale;
                point.zero_count = dense.zeros;
                point.zero_threshold = Exponential::ZERO_THRESHOLD;
                point.positive = Some(Buckets { offset: dense.offset, bucket_counts: dense.counts });
                point.exemplars = observed.exemplars;
            }
            data_points.push(point);
        }
        _ => {}
    }
}

/// Counts and bytes are integers, whatever has another unit is a float: one metric is always one of both, as far as
/// OTLP's integers reach.
fn number(unit: Unit, value: Value) -> number_data_point::Value {
    let whole =
        if let (Unit::None | Unit::Bytes, Value::Int(n)) = (unit, value) { i64::try_from(n).ok() } else { None };
    whole.map_or_else(|| number_data_point::Value::AsDouble(seconds(value)), number_data_point::Value::AsInt)
}

#[allow(clippy::cast_precision_loss, reason = "what is no count is a float in OTLP")]
pub(super) fn seconds(value: Value) -> f64 {
    match value {
        Value::Int(n) => n as f64,
        Value::Nanos(n) => Nanos(n).as_secs_f64(),
        Value::Float(f) => f,
    }
}

/// `has_traces`: the trace of its alloc is exported.
pub(super) fn exemplar_message(exemplar: &Exemplar, has_traces: bool) -> ExemplarMessage {
    let mut filtered_attributes = vec![key_value("allostat.alloc.id", exemplar.alloc_id.as_str())];
    filtered_attributes.extend(exemplar.event_id.map(|id| key_value("allostat.event.id", &id.to_string())));
    let value = match number(Unit::None, exemplar.value) {
        number_data_point::Value::AsInt(n) => exemplar::Value::AsInt(n),
        number_data_point::Value::AsDouble(n) => exemplar::Value::AsDouble(n),
    };
    let alloc = &exemplar.alloc_id;
    ExemplarMessage {
        trace_id: if has_traces { TraceId::of(alloc).0.to_vec() } else { Vec::new() },
        span_id: if has_traces { SpanId::submit(alloc).0.to_vec() } else { Vec::new() },
        filtered_attributes,
        time_unix_nano: exemplar.at.0,
        value: Some(value),
    }
}
