//! What a metric is in Prometheus's protocol buffers, but for its labels: these are written beside it, rendered once
//! for each row.
//!
//! Source: `io/prometheus/client/metrics.proto` of prometheus/client_model: names and field numbers.

/// `io.prometheus.client.MetricFamily` without its metrics.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FamilyHead {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) help: String,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    pub(super) kind: Option<i32>,
    #[prost(string, tag = "5")]
    pub(super) unit: String,
}

/// Of a family: one more metric.
pub(super) const METRIC: u32 = 4;
/// Of a metric: one more label.
pub(super) const LABEL: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `io.prometheus.client.Metric` without its labels: one of these.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MetricValue {
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<GaugeValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<CounterValue>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<HistogramValue>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct GaugeValue {
    #[prost(double, optional, tag = "1")]
    pub(super) value: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CounterValue {
    #[prost(double, optional, tag = "1")]
    pub(super) value: Option<f64>,
    #[prost(message, optional, tag = "2")]
    pub(super) exemplar: Option<ExemplarMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) created: Option<TimestampMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct HistogramValue {
    #[prost(uint64, optional, tag = "1")]
    pub(super) count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) buckets: Vec<BucketMessage>,
    #[prost(message, optional, tag = "15")]
    pub(super) created: Option<TimestampMessage>,
    // What follows is the native histogram.
    #[prost(sint32, optional, tag = "5")]
    pub(super) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(super) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) spans: Vec<BucketSpan>,
    /// Of each bucket in the spans what it has more than the one before it.
    #[prost(sint64, repeated, tag = "13")]
    pub(super) deltas: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub(super) cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) upper_bound: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub(super) exemplar: Option<ExemplarMessage>,
}

/// Buckets side by side.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct BucketSpan {
    /// How many numbers lie between the span before it, or 0, and its first bucket.
    #[prost(sint32, optional, tag = "1")]
    pub(super) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) length: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExemplarMessage {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(double, optional, tag = "2")]
    pub(super) value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub(super) at: Option<TimestampMessage>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct TimestampMessage {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
