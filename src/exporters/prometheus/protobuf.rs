//! A walk into delimited protocol buffers: the one format of a scrape that has native histograms, and in which every
//! counter says since when it counts.
//!
//! ```text
//! length  MetricFamily { name, help, type, metric { labels of the row | labels of the cell | value }, metric ... }
//! length  MetricFamily ...
//! ```
//! Readers merge fields that lie side by side: so the labels of a row are rendered once, and copied to each metric.

use std::rc::Rc;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::body_stream::PIECE;
use super::messages::{
    BucketMessage, BucketSpan, CounterValue, ExemplarMessage, FamilyHead, GaugeValue, HistogramValue, LABEL, LabelPair,
    METRIC, MetricType, MetricValue, TimestampMessage,
};
use super::page::PageSink;
use super::{body_info, exemplar, header};
use crate::exporters::walk::{Head, HistogramPoint, Listener, PageSource, Point, Rows, Walk, written};
use crate::model::answer::Format;
use crate::model::exponential::Exponential;
use crate::model::metric::{Exemplar, Kind, Value};
use crate::model::units::Timestamp;

/// Writes a whole body over what stands in `bytes`. Family by family to the sink, where there is one; gives the rest
/// and its length.
pub(super) fn write(walk: &Walk<'_>, mut bytes: Vec<u8>, sink: Option<PageSink<'_>>) -> (Vec<u8>, usize) {
    bytes.clear();
    let mut body = Messages { out: bytes, sink, family: Vec::new(), walk, rows: Vec::new(), counts: Vec::new() };
    body_info::profile(&mut body, walk);
    walk.expose(&mut body);
    let counts = std::mem::take(&mut body.counts);
    body_info::series(&mut body, walk, &counts);
    let len = body.out.len();
    (body.out, len)
}

/// See [`super::encode_page`].
pub(super) fn encode_page(walk: &Walk<'_>, page: &impl PageSource) -> Vec<u8> {
    let mut body =
        Messages { out: Vec::new(), sink: None, family: Vec::new(), walk, rows: Vec::new(), counts: Vec::new() };
    page.expose(walk, &mut body);
    body.out
}

struct Messages<'a, 's> {
    out: Vec<u8>,
    sink: Option<PageSink<'s>>,
    /// The one that is being written: its length comes first.
    family: Vec<u8>,
    walk: &'a Walk<'a>,
    rows: Vec<(&'static Rows, Rc<[RowBytes]>)>,
    /// Series per family, as in the text formats.
    counts: Vec<(&'static str, u64)>,
}

/// The labels of a row, as fields of a metric.
struct RowBytes {
    own: Vec<u8>,
    /// With those of its info.
    all: Vec<u8>,
    since: Option<Timestamp>,
}

impl Listener for Messages<'_, '_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let labels = self.begin(head);
        let cells: Vec<Vec<u8>> = head.cells.iter().map(|cell| pairs(cell)).collect();
        let mut series = 0;
        for (points, row) in rows.zip(&*labels) {
            let of_row = if head.desc.kind == Kind::Info { &row.all } else { &row.own };
            for (cell, point) in cells.iter().zip(points) {
                let Some(point) = point else { continue };
                self.metric(&[of_row, cell], &value(head.desc.kind, point, row.since, self.walk.has_traces));
                series += 1;
            }
        }
        self.end(head, series);
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        let labels = self.begin(head);
        let cells: Vec<Vec<u8>> = head.cells.iter().map(|cell| pairs(cell)).collect();
        let mut series = 0;
        for point in all {
            let (row, cell) = (point.row, point.cell);
            let histogram = histogram(head.bounds, point, self.walk.has_traces);
            series += histogram.buckets.len() as u64 + 2;
            let value = MetricValue { histogram: Some(histogram), ..MetricValue::default() };
            self.metric(&[&labels[row].own, &cells[cell]], &value);
        }
        self.end(head, series);
    }
}

impl Messages<'_, '_> {
    /// Gives the labels of its rows.
    fn begin(&mut self, head: &Head<'_>) -> Rc<[RowBytes]> {
        let kind = match head.desc.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Info => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let of = FamilyHead {
            name: header::family_name(head.desc, Format::Protobuf).to_owned(),
            help: head.desc.help.to_owned(),
            kind: Some(kind.into()),
            unit: header::unit_word(head.desc.unit).unwrap_or_default().to_owned(),
        };
        self.family.clear();
        of.encode_raw(&mut self.family);
        if let Some((_, labels)) = self.rows.iter().find(|(kind, _)| *kind == head.rows) {
            return Rc::clone(labels);
        }
        let render = |row| {
            let of = self.walk.subject(head.rows, row);
            let own = pairs(&of.labels);
            RowBytes { all: [own.clone(), pairs(&of.info)].concat(), own, since: of.since }
        };
        let labels: Rc<[RowBytes]> = (0..(head.rows.count)(self.walk)).map(render).collect();
        self.rows.push((head.rows, Rc::clone(&labels)));
        labels
    }

    fn metric(&mut self, labels: &[&Vec<u8>; 2], value: &MetricValue) {
        let len = labels.iter().map(|part| part.len()).sum::<usize>() + value.encoded_len();
        encode_key(METRIC, WireType::LengthDelimited, &mut self.family);
        encode_varint(len as u64, &mut self.family);
        labels.iter().for_each(|part| self.family.extend_from_slice(part));
        value.encode_raw(&mut self.family);
    }

    /// Without a series there is no family.
    fn end(&mut self, head: &Head<'_>, series: u64) {
        if series > 0 {
            encode_varint(self.family.len() as u64, &mut self.out);
            self.out.extend_from_slice(&self.family);
            self.counts.push((head.desc.name, series));
            if let Some(sink) = self.sink.as_mut().filter(|_| self.out.len() >= PIECE) {
                let len = self.out.len();
                self.out = sink(std::mem::take(&mut self.out), len);
                self.out.clear();
            }
        }
    }
}

/// An empty value is the same as no label.
fn pairs(labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let pair = LabelPair { name: (*name).to_owned(), value: written(name, value).into_owned() };
        out.reserve(key_len(LABEL) + encoded_len_varint(u64::MAX) + pair.encoded_len());
        prost::encoding::message::encode(LABEL, &pair, &mut out);
    }
    out
}

fn value(kind: Kind, point: Point<'_>, since: Option<Timestamp>, has_traces: bool) -> MetricValue {
    let value = Some(number(point.value));
    match kind {
        Kind::Counter => {
            let counter = CounterValue {
                value,
                exemplar: point.exemplar.and_then(|of| example(of, has_traces)),
                created: since.map(moment),
            };
            MetricValue { counter: Some(counter), ..MetricValue::default() }
        }
        Kind::Gauge | Kind::Info | Kind::Histogram => {
            MetricValue { gauge: Some(GaugeValue { value }), ..MetricValue::default() }
        }
    }
}

fn histogram<'p, B>(bounds: &[f64], point: HistogramPoint<B>, has_traces: bool) -> HistogramValue
where
    B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
{
    let mut upto = 0;
    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
    let bucket = |(upper, (n, exemplar)): (f64, (u64, Option<&Exemplar>))| {
        upto += n;
        let exemplar = exemplar.and_then(|of| example(of, has_traces));
        BucketMessage { cumulative_count: Some(upto), upper_bound: Some(upper), exemplar }
    };
    let buckets = bounds.zip(point.buckets).map(bucket).collect();
    let (spans, deltas) = native(&point.exponential);
    HistogramValue {
        count: Some(upto),
        sum: Some(number(point.sum)),
        buckets,
        created: point.since.map(moment),
        schema: Some(point.exponential.schema()),
        zero_threshold: Some(Exponential::ZERO_THRESHOLD),
        zero_count: Some(point.exponential.zeros()),
        spans,
        deltas,
    }
}

/// Runs of buckets that have neighbouring numbers. One without a bucket has an empty run: it says that there is a
/// native histogram.
fn native(of: &Exponential) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<BucketSpan>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (number, count) in of.buckets() {
        match spans.last_mut() {
            Some(span) if number == next => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan { offset: Some(number - next), length: Some(1) }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (number + 1, count);
    }
    if spans.is_empty() {
        spans.push(BucketSpan { offset: Some(0), length: Some(0) });
    }
    (spans, deltas)
}

fn example(of: &Exemplar, has_traces: bool) -> Option<ExemplarMessage> {
    let mut ids = exemplar::Ids::of(of, has_traces);
    let pair = |(name, value): &(&str, &str)| LabelPair { name: (*name).to_owned(), value: (*value).to_owned() };
    let labels = exemplar::labels(of, &mut ids)?;
    let labels = labels.iter().filter(|(_, value)| !value.is_empty()).map(pair).collect();
    Some(ExemplarMessage { labels, value: Some(number(of.value)), at: Some(moment(of.at)) })
}

fn moment(at: Timestamp) -> TimestampMessage {
    const SECOND: u64 = 1_000_000_000;
    let nanos = i32::try_from(at.0 % SECOND).expect("less than a second must fit");
    TimestampMessage { seconds: i64::try_from(at.0 / SECOND).unwrap_or(i64::MAX), nanos }
}

/// The number that a reader of the text gets: the nearest to its decimals.
#[allow(clippy::cast_precision_loss, reason = "the nearest is meant")]
fn number(value: Value) -> f64 {
    /// Up to here the quotient of two exact numbers is the nearest.
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Int(n) => n as f64,
        Value::Nanos(n) if n <= EXACT => n as f64 / 1e9,
        Value::Nanos(n) => {
            let text = format!("{}.{:09}", n / 1_000_000_000, n % 1_000_000_000);
            text.parse().expect("decimals must be a number")
        }
        Value::Float(f) => f,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64]) -> (Vec<(i32, u32)>, Vec<i64>) {
        let mut of = Exponential::default();
        values.iter().for_each(|value| of.observe(*value));
        let (spans, deltas) = native(&of);
        (spans.iter().map(|span| (span.offset(), span.length())).collect(), deltas)
    }

    #[test]
    fn buckets_become_runs_and_differences() {
        assert_eq!(runs(&[]), (vec![(0, 0)], vec![]));
        assert_eq!(runs(&[1.0, 1.0, 1.05, 4.0]), (vec![(0, 2), (14, 1)], vec![2, -1, 0]));
        assert_eq!(runs(&[0.5, 2.0]), (vec![(-8, 1), (15, 1)], vec![1, 0]));
    }

    #[test]
    fn a_number_is_the_one_that_the_text_is_read_as() {
        for n in [0, 1, 1_500_000_000, (1 << 53) + 1, 40_001_276_000_000_007, u64::MAX] {
            let text = format!("{}.{:09}", n / 1_000_000_000, n % 1_000_000_000);
            assert_eq!(number(Value::Nanos(n)), text.parse::<f64>().unwrap(), "{n}");
        }
        assert_eq!(number(Value::Int(u64::MAX)), 18_446_744_073_709_551_615.0);
    }
}
