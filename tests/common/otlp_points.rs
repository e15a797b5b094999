//! Reads what OTLP says, point by point.

#![allow(dead_code)]

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Exemplar, exemplar, metric, number_data_point};
use prost::Message;

pub type Attributes = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq)]
pub struct DataPoint {
    pub resource: Attributes,
    pub metric: String,
    pub unit: String,
    /// `sum`, `up-down sum`, `gauge`, `histogram`, `exponential_histogram`
    pub kind: &'static str,
    /// It says what came since `start`, which is not the series' beginning.
    pub is_delta: bool,
    pub attributes: Attributes,
    pub start: u64,
    pub at: u64,
    pub value: Value,
    pub exemplars: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Histogram {
        bounds: Vec<f64>,
        counts: Vec<u64>,
        sum: f64,
    },
    Exponential {
        scale: i32,
        zeros: u64,
        offset: i32,
        counts: Vec<u64>,
        sum: f64,
    },
    /// A point that says that there is no value.
    Ended,
}

#[track_caller]
pub fn decode(bytes: &[u8]) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest::decode(bytes).expect("it must be a request of OTLP")
}

fn attributes(all: &[KeyValue]) -> Attributes {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        // As Python shows them.
        Some(any_value::Value::ArrayValue(list)) => {
            let one = |value: &AnyValue| match &value.value {
                Some(any_value::Value::StringValue(text)) => text.clone(),
                other => panic!("{} has {other:?}", attribute.key),
            };
            serde_json::to_string(&list.values.iter().map(one).collect::<Vec<_>>()).expect("texts are JSON")
        }
        other => panic!("{} is {other:?}", attribute.key),
    };
    let map: Attributes = all.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect();
    assert_eq!(map.len(), all.len(), "an attribute stands there twice: {all:?}");
    map
}

fn exemplars(all: &[Exemplar]) -> Vec<String> {
    let text = |exemplar: &Exemplar| {
        let value = match exemplar.value {
            Some(exemplar::Value::AsInt(n)) => n.to_string(),
            Some(exemplar::Value::AsDouble(n)) => n.to_string(),
            None => panic!("an exemplar without a value"),
        };
        format!("{} {value} @{}", shown(&attributes(&exemplar.filtered_attributes)), exemplar.time_unix_nano)
    };
    all.iter().map(text).collect()
}

/// Every point, in its order; all are cumulative.
pub fn points(request: &ExportMetricsServiceRequest) -> Vec<DataPoint> {
    let all = points_of_any_kind(request);
    assert!(!all.iter().any(|point| point.is_delta), "cumulative");
    all
}

/// The same, of whatever temporality.
pub fn points_of_any_kind(request: &ExportMetricsServiceRequest) -> Vec<DataPoint> {
    const DELTA: i32 = 1;
    const CUMULATIVE: i32 = 2;
    const ENDED: u32 = 1;
    let mut all = Vec::new();
    for of in &request.resource_metrics {
        // Names of the conventions have dots, those of `/metrics` have none and no schema.
        let mut metrics = of.scope_metrics.iter().flat_map(|scope| &scope.metrics);
        let is_conventional = metrics.any(|metric| metric.name.contains('.'));
        assert_eq!(of.schema_url, if is_conventional { "https://opentelemetry.io/schemas/1.44.0" } else { "" });
        let resource = attributes(&of.resource.as_ref().expect("a resource").attributes);
        for metric in of.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            let is_delta = match metric.data.as_ref().expect("a metric has data") {
                metric::Data::Sum(sum) => sum.aggregation_temporality,
                metric::Data::Histogram(histogram) => histogram.aggregation_temporality,
                metric::Data::ExponentialHistogram(histogram) => histogram.aggregation_temporality,
                _ => CUMULATIVE,
            };
            assert!([DELTA, CUMULATIVE].contains(&is_delta));
            let is_delta = is_delta == DELTA;
            let point = |kind, own: &[KeyValue], start, at, value, of: &[Exemplar]| DataPoint {
                resource: resource.clone(),
                metric: metric.name.clone(),
                unit: metric.unit.clone(),
                kind,
                is_delta,
                attributes: attributes(own),
                start,
                at,
                value,
                exemplars: exemplars(of),
            };
            let (kind, numbers) = match metric.data.as_ref().expect("a metric has data") {
                metric::Data::Gauge(gauge) => ("gauge", &gauge.data_points),
                metric::Data::Sum(sum) => {
                    assert!(sum.is_monotonic || !is_delta, "what may fall is sent whole");
                    (if sum.is_monotonic { "sum" } else { "up-down sum" }, &sum.data_points)
                }
                metric::Data::Histogram(histogram) => {
                    all.extend(histogram.data_points.iter().map(|p| {
                        let bounds = p.explicit_bounds.clone();
                        let value = match p.flags {
                            ENDED => Value::Ended,
                            _ => {
                                assert_eq!(p.count, p.bucket_counts.iter().sum::<u64>());
                                assert_eq!(p.bucket_counts.len(), bounds.len() + 1);
                                Value::Histogram { bounds, counts: p.bucket_counts.clone(), sum: p.sum.expect("a sum") }
                            }
                        };
                        point("histogram", &p.attributes, p.start_time_unix_nano, p.time_unix_nano, value, &p.exemplars)
                    }));
                    continue;
                }
                metric::Data::ExponentialHistogram(histogram) => {
                    all.extend(histogram.data_points.iter().map(|p| {
                        assert_eq!(p.negative, None, "nothing lasts less than no time");
                        let value = match (p.flags, &p.positive) {
                            (ENDED, None) => Value::Ended,
                            (0, Some(positive)) => {
                                let counts = positive.bucket_counts.clone();
                                assert_eq!(p.count, p.zero_count + counts.iter().sum::<u64>());
                                let (zeros, sum) = (p.zero_count, p.sum.expect("a sum"));
                                Value::Exponential { scale: p.scale, zeros, offset: positive.offset, counts, sum }
                            }
                            other => panic!("{}: {other:?}", metric.name),
                        };
                        let (start, at) = (p.start_time_unix_nano, p.time_unix_nano);
                        point("exponential_histogram", &p.attributes, start, at, value, &p.exemplars)
                    }));
                    continue;
                }
                other => panic!("{}: {other:?}", metric.name),
            };
            all.extend(numbers.iter().map(|p| {
                let value = match (p.flags, &p.value) {
                    (ENDED, None) => Value::Ended,
                    (0, Some(number_data_point::Value::AsInt(n))) => Value::Int(*n),
                    (0, Some(number_data_point::Value::AsDouble(n))) => Value::Float(*n),
                    other => panic!("{}: {other:?}", metric.name),
                };
                point(kind, &p.attributes, p.start_time_unix_nano, p.time_unix_nano, value, &p.exemplars)
            }));
        }
    }
    all
}

fn shown(attributes: &Attributes) -> String {
    let all: Vec<String> = attributes.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    format!("{{{}}}", all.join(","))
}

/// For people: what a golden file holds.
pub fn text(bytes: &[u8]) -> String {
    let (mut out, mut last) = (String::new(), (Attributes::new(), String::new()));
    for point in points(&decode(bytes)) {
        if point.resource != last.0 {
            out += &format!("{}\n", shown(&point.resource));
        }
        if (&point.resource, &point.metric) != (&last.0, &last.1) {
            out += &format!("  {} ({}, {})\n", point.metric, point.kind, point.unit);
        }
        let value = match &point.value {
            Value::Int(n) => n.to_string(),
            Value::Float(n) => format!("{n:?}"),
            Value::Histogram { bounds, counts, sum } => format!("{counts:?} up to {bounds:?}, sum {sum:?}"),
            Value::Exponential { scale, zeros, offset, counts, sum } => {
                format!("{zeros} at 0, {counts:?} from {offset} of scale {scale}, sum {sum:?}")
            }
            Value::Ended => "ended".to_owned(),
        };
        let since = if point.start == 0 { String::new() } else { format!(" since {}", point.start) };
        out += &format!("    {} {value} @{}{since}\n", shown(&point.attributes), point.at);
        point.exemplars.iter().for_each(|exemplar| out += &format!("      # {exemplar}\n"));
        last = (point.resource, point.metric);
    }
    out
}
