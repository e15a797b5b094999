//! Reads delimited `io.prometheus.client.MetricFamily` messages: field numbers by the document, written down once more.

use std::collections::BTreeMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Family {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub help: String,
    /// 0 counter, 1 gauge, 4 histogram.
    #[prost(int32, tag = "3")]
    pub kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub metrics: Vec<Metric>,
    #[prost(string, tag = "5")]
    pub unit: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    #[prost(double, tag = "1")]
    pub value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Counter {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(message, optional, tag = "2")]
    pub exemplar: Option<Exemplar>,
    #[prost(message, optional, tag = "3")]
    pub created: Option<At>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(double, tag = "2")]
    pub sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub buckets: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    pub schema: i32,
    #[prost(double, tag = "6")]
    pub zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    pub zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    pub spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    pub deltas: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    pub created: Option<At>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Bucket {
    #[prost(uint64, tag = "1")]
    pub cumulative: u64,
    #[prost(double, tag = "2")]
    pub upper: f64,
    #[prost(message, optional, tag = "3")]
    pub exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(message, optional, tag = "3")]
    pub at: Option<At>,
}

#[derive(Clone, PartialEq, Message)]
pub struct At {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Panics on whatever is none.
#[track_caller]
pub fn decode(mut bytes: &[u8]) -> Vec<Family> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(Family::decode_length_delimited(&mut bytes).expect("a whole message"));
    }
    all
}

/// Name and labels.
pub type Series = (String, BTreeMap<String, String>);

/// Every series as the text formats have it.
pub fn series(families: &[Family]) -> BTreeMap<Series, f64> {
    let mut all = BTreeMap::new();
    for (family, metric) in families.iter().flat_map(|family| family.metrics.iter().map(move |metric| (family, metric)))
    {
        let labels: BTreeMap<String, String> =
            metric.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect();
        let mut emit = |suffix: &str, le: Option<String>, value: f64| {
            let mut labels = labels.clone();
            labels.extend(le.map(|le| ("le".to_owned(), le)));
            let earlier = all.insert((format!("{}{suffix}", family.name), labels), value);
            assert_eq!(earlier, None, "{} says a series twice", family.name);
        };
        match (family.kind, &metric.counter, &metric.gauge, &metric.histogram) {
            (0, Some(counter), None, None) => emit("", None, counter.value),
            (1, None, Some(gauge), None) => emit("", None, gauge.value),
            #[allow(clippy::cast_precision_loss)]
            (4, None, None, Some(histogram)) => {
                for bucket in &histogram.buckets {
                    let le = if bucket.upper.is_infinite() { "+Inf".to_owned() } else { bucket.upper.to_string() };
                    emit("_bucket", Some(le), bucket.cumulative as f64);
                }
                emit("_sum", None, histogram.sum);
                emit("_count", None, histogram.count as f64);
            }
            odd => panic!("{}: {odd:?}", family.name),
        }
    }
    all
}

/// For people who read a difference.
pub fn text(families: &[Family]) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let labels = |labels: &[Label]| {
        let pairs: Vec<String> = labels.iter().map(|label| format!("{}={:?}", label.name, label.value)).collect();
        pairs.join(",")
    };
    let at =
        |at: &Option<At>| at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("{}.{:09}", at.seconds, at.nanos));
    let exemplar = |of: &Option<Exemplar>| {
        of.as_ref().map_or_else(String::new, |of| format!(" # {} {} {}", labels(&of.labels), of.value, at(&of.at)))
    };
    for family in families {
        let _ = writeln!(out, "{} kind {} unit {:?}: {}", family.name, family.kind, family.unit, family.help);
        for metric in &family.metrics {
            let _ = write!(out, "  {{{}}}", labels(&metric.labels));
            if let Some(gauge) = &metric.gauge {
                let _ = write!(out, " {}", gauge.value);
            }
            if let Some(counter) = &metric.counter {
                let _ =
                    write!(out, " {} created {}{}", counter.value, at(&counter.created), exemplar(&counter.exemplar));
            }
            if let Some(of) = &metric.histogram {
                let _ = write!(out, " count {} sum {} created {}", of.count, of.sum, at(&of.created));
                for bucket in &of.buckets {
                    let _ =
                        write!(out, "\n    <= {}: {}{}", bucket.upper, bucket.cumulative, exemplar(&bucket.exemplar));
                }
                let spans: Vec<String> =
                    of.spans.iter().map(|span| format!("{}+{}", span.offset, span.length)).collect();
                let _ = write!(out, "\n    schema {} zero {} <= {:e}", of.schema, of.zero_count, of.zero_threshold);
                let _ = write!(out, " spans [{}] deltas {:?}", spans.join(", "), of.deltas);
            }
            out.push('\n');
        }
    }
    out
}
