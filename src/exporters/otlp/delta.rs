//! Delta temporality: the queue holds sums from their beginning. On its way out each becomes the difference to the sum
//! that the collector took last. What is lost, refused or dropped is in the next difference; nothing is exported twice.
//!
//! ```text
//! batch 7: sum 40 since noon ──► known: batch 5, sum 25 at 12:10 ──► 15 since 12:10 ──► taken ──► known: batch 7, sum 40
//!                                                                                   └► not: as it was
//! ```
//! What the collector took last is durable before the batch is settled: killed in between, the agent leaves the same
//! points out when the batch comes again. A sum with an unknown start is first exported once its start is known.

use std::path::Path;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint, metric,
    number_data_point,
};
use prost::Message;

use super::message::NO_RECORDED_VALUE;
use super::resource::instance;
use super::settings::Temporality;
use crate::model::exponential::DenseBuckets;
use crate::model::units::{Nanos, Timestamp};
use crate::store::keyed::{KeyedLog, KeyedState};

/// Under it stands before when nothing is known.
const UNKNOWN: u128 = 0;
/// A series that was not exported for so long, while others were, is forgotten.
const FORGOTTEN: Nanos = Nanos(48 * 3_600 * 1_000_000_000);

/// What a collector took last of a series.
#[derive(Clone, PartialEq, Message)]
struct LastPoint {
    /// Of the queue.
    #[prost(uint64, tag = "1")]
    batch: u64,
    #[prost(fixed64, tag = "2")]
    at: u64,
    #[prost(sint64, optional, tag = "3")]
    int: Option<i64>,
    #[prost(double, optional, tag = "4")]
    double: Option<f64>,
    #[prost(uint64, repeated, tag = "5")]
    counts: Vec<u64>,
    /// Of exponential buckets, with the next two.
    #[prost(sint32, optional, tag = "6")]
    scale: Option<i32>,
    #[prost(sint32, tag = "7")]
    offset: i32,
    #[prost(uint64, tag = "8")]
    zeros: u64,
}

impl LastPoint {
    /// `None`: its buckets had bounds of their own.
    fn dense(&self) -> Option<DenseBuckets> {
        let LastPoint { offset, zeros, .. } = *self;
        self.scale.map(|scale| DenseBuckets { scale, zeros, offset, counts: self.counts.clone() })
    }
}

/// What is to be noted once it was taken.
pub(super) type Notes = Vec<(u128, Option<Vec<u8>>)>;

/// Concurrency: one owner.
pub(super) struct DeltaState {
    destination: String,
    log: KeyedLog,
    temporality: Temporality,
    /// Of sums that began before, it is not known what was exported.
    unknown_before: u64,
}

impl DeltaState {
    /// `has_exported`: the collector had points before, of whatever kind. `next`: of the queue's batches.
    pub fn open(
        destination: &str,
        path: &Path,
        temporality: Temporality,
        has_exported: bool,
        next: u64,
        now: Timestamp,
    ) -> DeltaState {
        let (log, state) = KeyedLog::open(path);
        let mut delta = DeltaState { destination: destination.to_owned(), log, temporality, unknown_before: 0 };
        let last = |value: &[u8]| LastPoint::decode(value).unwrap_or_default();
        let all = || delta.log.values().filter(|(key, _)| *key != UNKNOWN);
        let is_ahead = all().any(|(_, value)| last(value).batch >= next);
        if is_ahead || state == KeyedState::Damaged || (state == KeyedState::New && has_exported) {
            // The queue is a new one, or this file was lost.
            let removed: Notes = all().map(|(key, _)| (key, None)).collect();
            delta.forget(removed, Some(now.0));
            return delta;
        }
        let unknown = delta.log.get(UNKNOWN).and_then(|value| value.try_into().ok());
        delta.unknown_before = unknown.map_or(0, u64::from_le_bytes);
        let newest = Timestamp(all().map(|(_, value)| last(value).at).max().unwrap_or(0));
        let is_old = |value: &[u8]| newest.since(Timestamp(last(value).at)) > FORGOTTEN;
        let removed: Notes = all().filter(|(_, value)| is_old(value)).map(|(key, _)| (key, None)).collect();
        if !removed.is_empty() {
            delta.forget(removed, None);
        }
        delta
    }

    fn forget(&mut self, mut removed: Notes, unknown_before: Option<u64>) {
        if let Some(at) = unknown_before {
            tracing::warn!(
                destination = self.destination,
                "last exported points unknown; sums are exported from their next point"
            );
            self.unknown_before = at;
            removed.push((UNKNOWN, Some(at.to_le_bytes().to_vec())));
        }
        self.note(&removed);
    }

    /// The request becomes what is to be exported of it, which may be nothing.
    pub fn convert(&self, batch: u64, request: &mut ExportMetricsServiceRequest) -> Notes {
        let mut notes = Vec::new();
        for of in &mut request.resource_metrics {
            let owner = of.resource.as_ref().map_or("", instance).to_owned();
            for scope in &mut of.scope_metrics {
                scope.metrics.retain_mut(|metric| self.metric(batch, &owner, metric, &mut notes));
            }
            of.scope_metrics.retain(|scope| !scope.metrics.is_empty());
        }
        request.resource_metrics.retain(|of| !of.scope_metrics.is_empty());
        notes
    }

    /// False: nothing of it is to be exported.
    fn metric(&self, batch: u64, owner: &str, metric: &mut Metric, notes: &mut Notes) -> bool {
        let key = |attributes: &[KeyValue]| series(owner, &metric.name, attributes);
        let temporality = AggregationTemporality::Delta.into();
        match &mut metric.data {
            Some(metric::Data::Sum(sum)) if sum.is_monotonic && self.temporality == Temporality::Delta => {
                sum.aggregation_temporality = temporality;
                sum.data_points.retain_mut(|point| self.number(batch, key(&point.attributes), point, notes));
                !sum.data_points.is_empty()
            }
            Some(metric::Data::Histogram(histogram)) if self.temporality != Temporality::Cumulative => {
                histogram.aggregation_temporality = temporality;
                histogram.data_points.retain_mut(|point| self.buckets(batch, key(&point.attributes), point, notes));
                !histogram.data_points.is_empty()
            }
            Some(metric::Data::ExponentialHistogram(all)) if self.temporality != Temporality::Cumulative => {
                all.aggregation_temporality = temporality;
                all.data_points.retain_mut(|point| self.exponential(batch, key(&point.attributes), point, notes));
                !all.data_points.is_empty()
            }
            _ => true,
        }
    }

    fn number(&self, batch: u64, key: u128, point: &mut NumberDataPoint, notes: &mut Notes) -> bool {
        use number_data_point::Value::{AsDouble, AsInt};
        let Some(value) = point.value.filter(|_| point.flags & NO_RECORDED_VALUE == 0) else {
            return self.ended(key, notes);
        };
        let (int, double) = match value {
            AsInt(n) => (Some(n), None),
            AsDouble(n) => (None, Some(n)),
        };
        let now = LastPoint { batch, at: point.time_unix_nano, int, double, ..LastPoint::default() };
        let before = match self.since(&now, key, point.start_time_unix_nano, notes) {
            DeltaStart::Nothing => return false,
            DeltaStart::Beginning => return true,
            DeltaStart::Last(before) => before,
        };
        let less = match (value, before.int, before.double) {
            (AsInt(now), Some(before), _) if now >= before => Some(AsInt(now - before)),
            (AsDouble(now), _, Some(before)) if now >= before => Some(AsDouble(now - before)),
            // It was reset, at an unknown time.
            _ => None,
        };
        point.value = less.or(point.value);
        point.start_time_unix_nano = start(&before, &now);
        true
    }

    fn buckets(&self, batch: u64, key: u128, point: &mut HistogramDataPoint, notes: &mut Notes) -> bool {
        if point.flags & NO_RECORDED_VALUE != 0 {
            return self.ended(key, notes);
        }
        let at = point.time_unix_nano;
        let now =
            LastPoint { batch, at, double: point.sum, counts: point.bucket_counts.clone(), ..LastPoint::default() };
        let before = match self.since(&now, key, point.start_time_unix_nano, notes) {
            DeltaStart::Nothing => return false,
            DeltaStart::Beginning => return true,
            DeltaStart::Last(before) => before,
        };
        point.start_time_unix_nano = start(&before, &now);
        let is_more =
            before.counts.len() == now.counts.len() && before.counts.iter().zip(&now.counts).all(|(b, n)| b <= n);
        if is_more {
            point.bucket_counts.iter_mut().zip(&before.counts).for_each(|(n, before)| *n -= before);
            point.count = point.bucket_counts.iter().sum();
            point.sum = point.sum.zip(before.double).map(|(now, before)| now - before);
            // Those before were exported before.
            point.exemplars.retain(|exemplar| exemplar.time_unix_nano > before.at);
        }
        true
    }

    fn exponential(&self, batch: u64, key: u128, point: &mut ExponentialHistogramDataPoint, notes: &mut Notes) -> bool {
        if point.flags & NO_RECORDED_VALUE != 0 {
            return self.ended(key, notes);
        }
        let Buckets { offset, bucket_counts: counts } = point.positive.clone().unwrap_or_default();
        let (scale, zeros, at) = (point.scale, point.zero_count, point.time_unix_nano);
        let now = LastPoint { batch, at, double: point.sum, counts, scale: Some(scale), offset, zeros, int: None };
        let before = match self.since(&now, key, point.start_time_unix_nano, notes) {
            DeltaStart::Nothing => return false,
            DeltaStart::Beginning => return true,
            DeltaStart::Last(before) => before,
        };
        point.start_time_unix_nano = start(&before, &now);
        if let Some(more) = now.dense().zip(before.dense()).and_then(|(now, before)| now.since(&before)) {
            (point.count, point.zero_count) = (more.count(), more.zeros);
            point.positive = Some(Buckets { offset: more.offset, bucket_counts: more.counts });
            point.sum = point.sum.zip(before.double).map(|(now, before)| now - before);
            point.exemplars.retain(|exemplar| exemplar.time_unix_nano > before.at);
        }
        true
    }

    /// The end of a series that was exported before; nothing is known of it any more.
    fn ended(&self, key: u128, notes: &mut Notes) -> bool {
        notes.push((key, None));
        true
    }

    /// The start of the interval of a point; what is to be noted of it.
    fn since(&self, now: &LastPoint, key: u128, start: u64, notes: &mut Notes) -> DeltaStart {
        let before = self.log.get(key).and_then(|value| LastPoint::decode(value).ok());
        if before.as_ref().is_some_and(|before| before.batch >= now.batch) {
            return DeltaStart::Nothing;
        }
        let same = |before: &LastPoint| *before == LastPoint { batch: before.batch, ..now.clone() };
        if before.as_ref().is_some_and(|before| before.at == now.at && same(before)) {
            return DeltaStart::Nothing;
        }
        notes.push((key, Some(now.encode_to_vec())));
        match before {
            Some(before) if start <= before.at => DeltaStart::Last(before),
            // It began after that, and is exported whole.
            Some(_) => DeltaStart::Beginning,
            None if start == 0 || start <= self.unknown_before => DeltaStart::Nothing,
            None => DeltaStart::Beginning,
        }
    }

    /// The collector has taken it.
    pub fn note(&mut self, notes: &Notes) {
        if notes.is_empty() {
            return;
        }
        if let Err(error) = self.log.commit(notes) {
            let destination = &self.destination;
            tracing::error!(destination, error = error.to_string(), "failed to persist the last exported points");
        }
    }
}

enum DeltaStart {
    /// There is nothing to export.
    Nothing,
    /// As it is.
    Beginning,
    Last(LastPoint),
}

/// 0, which is not known, where the clock was set back in between.
fn start(before: &LastPoint, now: &LastPoint) -> u64 {
    if before.at < now.at { before.at } else { 0 }
}

/// FNV-1a: whose series it is, as a number that stays the same.
fn series(owner: &str, metric: &str, attributes: &[KeyValue]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut bytes = [owner.as_bytes(), &[0xFF], metric.as_bytes(), &[0xFF]].concat();
    attributes.iter().for_each(|attribute| bytes.extend(attribute.encode_length_delimited_to_vec()));
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{
        ExponentialHistogram, Histogram, ResourceMetrics, ScopeMetrics, Sum,
    };
    use proptest::prelude::*;

    use super::*;

    const BEGAN: u64 = 1_000;

    /// Of a sum of integers, one of floats and two histograms, which count the same.
    fn request(at: u64, start: u64, value: u64) -> ExportMetricsServiceRequest {
        let cumulative: i32 = AggregationTemporality::Cumulative.into();
        let number = |value| NumberDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: at,
            value: Some(value),
            ..NumberDataPoint::default()
        };
        let sum = |value| {
            metric::Data::Sum(Sum {
                data_points: vec![number(value)],
                aggregation_temporality: cumulative,
                is_monotonic: true,
            })
        };
        let histogram = HistogramDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: at,
            count: 3 * value,
            sum: Some(value as f64),
            bucket_counts: vec![value, 2 * value],
            explicit_bounds: vec![1.0],
            ..HistogramDataPoint::default()
        };
        let histogram =
            metric::Data::Histogram(Histogram { data_points: vec![histogram], aggregation_temporality: cumulative });
        let exponential = metric::Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![ExponentialHistogramDataPoint {
                start_time_unix_nano: start,
                time_unix_nano: at,
                count: 3 * value,
                sum: Some(value as f64),
                zero_count: value,
                // It is coarser the more there is.
                scale: if value < 40 { 3 } else { 2 },
                positive: Some(Buckets { offset: if value < 40 { 6 } else { 3 }, bucket_counts: vec![2 * value] }),
                ..ExponentialHistogramDataPoint::default()
            }],
            aggregation_temporality: cumulative,
        });
        let all = [
            sum(number_data_point::Value::AsInt(i64::try_from(value).unwrap())),
            sum(number_data_point::Value::AsDouble(value as f64 / 8.0)),
            histogram,
            exponential,
        ];
        let named = all.into_iter().enumerate();
        let metrics = named.map(|(n, data)| Metric { name: n.to_string(), data: Some(data), ..Metric::default() });
        let scope_metrics = vec![ScopeMetrics { metrics: metrics.collect(), ..ScopeMetrics::default() }];
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics { scope_metrics, ..ResourceMetrics::default() }],
        }
    }

    /// Start, time and value of what is exported; the four agree.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "small and not negative")]
    fn exported(request: &ExportMetricsServiceRequest) -> Option<(u64, u64, u64)> {
        let metrics: Vec<&Metric> =
            request.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|s| &s.metrics).collect();
        let delta: i32 = AggregationTemporality::Delta.into();
        let mut all = metrics.iter().map(|metric| match metric.data.as_ref().unwrap() {
            metric::Data::Sum(sum) => {
                assert_eq!(sum.aggregation_temporality, delta);
                let point = &sum.data_points[0];
                let value = match point.value.unwrap() {
                    number_data_point::Value::AsInt(n) => n as u64,
                    number_data_point::Value::AsDouble(n) => (n * 8.0) as u64,
                };
                (point.start_time_unix_nano, point.time_unix_nano, value)
            }
            metric::Data::Histogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality, delta);
                let point = &histogram.data_points[0];
                let value = point.bucket_counts[0];
                assert_eq!((point.count, point.sum), (3 * value, Some(value as f64)));
                (point.start_time_unix_nano, point.time_unix_nano, value)
            }
            metric::Data::ExponentialHistogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality, delta);
                let point = &histogram.data_points[0];
                let value = point.zero_count;
                assert_eq!((point.count, point.sum), (3 * value, Some(value as f64)));
                assert_eq!(point.positive.as_ref().unwrap().bucket_counts, [2 * value]);
                (point.start_time_unix_nano, point.time_unix_nano, value)
            }
            other => panic!("{other:?}"),
        });
        let first = all.next()?;
        assert_eq!(all.collect::<Vec<_>>(), [first; 3]);
        Some(first)
    }

    fn opened(dir: &Path, has_exported: bool, next: u64) -> DeltaState {
        DeltaState::open("c", &dir.join("exported"), Temporality::Delta, has_exported, next, Timestamp(50_000))
    }

    #[derive(Debug, Clone)]
    enum Fate {
        Taken,
        /// Dropped by the queue, or refused for good.
        Lost,
        /// Not taken: it comes again, from another agent too.
        Again(bool),
        /// Taken and noted, and the agent is killed before the queue knows.
        Killed,
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever becomes of batches and agents: the differences add up to the sum, and their times follow each
        /// other.
        ///
        /// Promise (Measured values): Deltas add up to the sum, through lost batches, outages and kills; none is sent
        /// twice
        #[test]
        fn differences_add_up_whatever_is_lost_on_the_way(
            steps in prop::collection::vec((0_u64..9, prop_oneof![
                3 => Just(Fate::Taken),
                1 => Just(Fate::Lost),
                1 => any::<bool>().prop_map(Fate::Again),
                1 => Just(Fate::Killed),
            ]), 1..40)
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut delta = opened(dir.path(), false, 1);
            let (mut value, mut sum, mut last, mut was_exported) = (0, 0, BEGAN, false);
            for (at, (more, fate)) in steps.into_iter().enumerate() {
                value += more;
                let (batch, time) = (at as u64 + 1, 2_000 + 10 * at as u64);
                let convert = |delta: &mut DeltaState| {
                    let mut request = request(time, BEGAN, value);
                    let notes = delta.convert(batch, &mut request);
                    (exported(&request), notes)
                };
                let mut take = |delta: &mut DeltaState| {
                    let (point, notes) = convert(delta);
                    delta.note(&notes);
                    if let Some((start, at, more)) = point {
                        assert_eq!((start, at), (last, time));
                        last = at;
                        sum += more;
                    }
                };
                match fate {
                    Fate::Lost => continue,
                    Fate::Taken => take(&mut delta),
                    Fate::Again(is_new_agent) => {
                        convert(&mut delta);
                        if is_new_agent {
                            delta = opened(dir.path(), was_exported, batch + 1);
                        }
                        take(&mut delta);
                    }
                    Fate::Killed => {
                        take(&mut delta);
                        delta = opened(dir.path(), true, batch + 1);
                        take(&mut delta);
                    }
                }
                was_exported = true;
                prop_assert_eq!(sum, value);
            }
        }
    }

    /// What is exported of these, one after the other.
    fn all(delta: &mut DeltaState, points: &[(u64, u64, u64)]) -> Vec<Option<(u64, u64, u64)>> {
        let convert = |(batch, (at, start, value)): (usize, &(u64, u64, u64))| {
            let mut request = request(*at, *start, *value);
            let notes = delta.convert(batch as u64 + 10, &mut request);
            delta.note(&notes);
            exported(&request)
        };
        points.iter().enumerate().map(convert).collect()
    }

    #[test]
    fn restarted_sum_is_exported_whole_and_one_without_a_start_from_its_second_point() {
        let dir = tempfile::tempdir().unwrap();
        let mut delta = opened(dir.path(), false, 10);
        let points = [(100, 0, 7), (200, 0, 9), (300, 250, 4), (400, 250, 4), (500, 250, 3)];
        let expected = [
            None,
            Some((100, 200, 2)),
            // It says itself when it began.
            Some((250, 300, 4)),
            Some((300, 400, 0)),
            // It fell, and does not say when.
            Some((400, 500, 3)),
        ];
        assert_eq!(all(&mut delta, &points), expected);
    }

    #[test]
    fn start_after_a_clock_set_back_is_unknown_and_an_unmoved_point_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let mut delta = opened(dir.path(), false, 10);
        let points = [(900, 50, 7), (900, 50, 7), (600, 50, 9), (700, 50, 9)];
        assert_eq!(all(&mut delta, &points), [Some((50, 900, 7)), None, Some((0, 600, 2)), Some((600, 700, 0))]);
    }

    /// The file is lost or damaged, the queue is a new one, or the collector had sums before: what it has is unknown.
    #[test]
    fn lost_state_exports_old_sums_from_their_next_point_and_new_ones_whole() {
        let dir = tempfile::tempdir().unwrap();
        let check = |delta: &mut DeltaState| {
            let (old, new) = ((60_000, BEGAN, 7), (61_000, BEGAN, 8));
            assert_eq!(all(delta, &[old, new]), [None, Some((60_000, 61_000, 1))]);
        };
        check(&mut opened(dir.path(), true, 10));
        // The batches of the queue begin at 1 again.
        check(&mut opened(dir.path(), true, 1));
        let path = dir.path().join("exported");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30] ^= 1;
        let whole = bytes.clone();
        bytes.extend(whole[..20].iter());
        std::fs::write(&path, [&bytes[..], &std::fs::read(&path).unwrap()].concat()).unwrap();
        check(&mut opened(dir.path(), true, 100));
        let delta = opened(dir.path(), true, 100);
        let mut young = request(70_000, 65_000, 5);
        for of in &mut young.resource_metrics[0].scope_metrics[0].metrics {
            of.name += " of another";
        }
        delta.convert(200, &mut young);
        assert_eq!(exported(&young), Some((65_000, 70_000, 5)), "it began since");
    }

    #[test]
    fn low_memory_is_of_histograms_alone_and_an_end_is_exported_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exported");
        let mut delta = DeltaState::open("c", &path, Temporality::LowMemory, false, 1, Timestamp(1));
        let mut first = request(100, 50, 7);
        let notes = delta.convert(1, &mut first);
        delta.note(&notes);
        let temporality = |metric: &Metric| match metric.data.as_ref().unwrap() {
            metric::Data::Sum(sum) => sum.aggregation_temporality,
            metric::Data::Histogram(histogram) => histogram.aggregation_temporality,
            metric::Data::ExponentialHistogram(histogram) => histogram.aggregation_temporality,
            other => panic!("{other:?}"),
        };
        let metrics = &first.resource_metrics[0].scope_metrics[0].metrics;
        assert_eq!(metrics.iter().map(temporality).collect::<Vec<_>>(), [2, 2, 1, 1]);
        let mut end = request(200, 0, 0);
        for metric in &mut end.resource_metrics[0].scope_metrics[0].metrics {
            match &mut metric.data {
                Some(metric::Data::Histogram(all)) => all.data_points[0].flags = NO_RECORDED_VALUE,
                Some(metric::Data::ExponentialHistogram(all)) => all.data_points[0].flags = NO_RECORDED_VALUE,
                _ => {}
            }
        }
        let notes = delta.convert(2, &mut end);
        assert_eq!(end.resource_metrics[0].scope_metrics[0].metrics.len(), 4, "the end is exported");
        delta.note(&notes);
        assert_eq!(KeyedLog::open(&path).0.values().count(), 0);
    }
}
