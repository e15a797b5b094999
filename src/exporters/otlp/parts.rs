//! A request in parts: receivers refuse what is too large, and one bad point refuses all that came with it.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics, metric};
use prost::Message;

/// What most receivers take as one message is 4 MiB.
pub const LARGEST_BYTES: usize = 2 << 20;

/// Data points in it.
pub fn points(request: &ExportMetricsServiceRequest) -> u64 {
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics).map(|metric| points_of(metric) as u64).sum()
}

fn points_of(metric: &Metric) -> usize {
    match &metric.data {
        Some(metric::Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(metric::Data::Sum(sum)) => sum.data_points.len(),
        Some(metric::Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(metric::Data::ExponentialHistogram(histogram)) => histogram.data_points.len(),
        Some(metric::Data::Summary(summary)) => summary.data_points.len(),
        None => 0,
    }
}

/// In its order; each but one that is a single point has at most `largest` bytes.
pub fn parts(request: ExportMetricsServiceRequest, largest: usize) -> Vec<ExportMetricsServiceRequest> {
    let (mut parts, mut rest) = (Vec::new(), vec![request]);
    while let Some(request) = rest.pop() {
        if request.encoded_len() <= largest {
            parts.push(request);
            continue;
        }
        match halves(request) {
            Ok((first, second)) => rest.extend([second, first]),
            Err(single) => parts.push(single),
        }
    }
    parts.retain(|part| points(part) > 0);
    parts
}

/// Two requests that say together what this one says, the first half first.
///
/// Errors: it is a single point, or none: itself.
#[allow(clippy::result_large_err, reason = "a request is one vector")]
pub fn halves(
    mut request: ExportMetricsServiceRequest,
) -> Result<(ExportMetricsServiceRequest, ExportMetricsServiceRequest), ExportMetricsServiceRequest> {
    if points(&request) < 2 {
        return Err(request);
    }
    let second = second_half(&mut request.resource_metrics, &mut |resource: &mut ResourceMetrics| {
        let scopes = second_half(&mut resource.scope_metrics, &mut |scope: &mut ScopeMetrics| {
            let metrics = second_half(&mut scope.metrics, &mut second_of_metric);
            ScopeMetrics { metrics, scope: scope.scope.clone(), schema_url: scope.schema_url.clone() }
        });
        ResourceMetrics {
            scope_metrics: scopes,
            resource: resource.resource.clone(),
            schema_url: resource.schema_url.clone(),
        }
    });
    Ok((request, ExportMetricsServiceRequest { resource_metrics: second }))
}

/// Takes it out: of several the later ones, of a single one its own second half.
pub(super) fn second_half<T>(all: &mut Vec<T>, of_one: &mut dyn FnMut(&mut T) -> T) -> Vec<T> {
    match all.as_mut_slice() {
        [] => Vec::new(),
        [one] => vec![of_one(one)],
        several => {
            let half = several.len() / 2;
            all.split_off(half)
        }
    }
}

fn second_of_metric(metric: &mut Metric) -> Metric {
    let mut second = metric.clone();
    let half = points_of(metric) / 2;
    keep(metric, |at| at < half);
    keep(&mut second, |at| at >= half);
    second
}

fn keep(metric: &mut Metric, accepts: impl Fn(usize) -> bool) {
    fn retain_points<T>(points: &mut Vec<T>, accepts: impl Fn(usize) -> bool) {
        let mut at = 0;
        points.retain(|_| {
            at += 1;
            accepts(at - 1)
        });
    }
    match &mut metric.data {
        Some(metric::Data::Gauge(gauge)) => retain_points(&mut gauge.data_points, accepts),
        Some(metric::Data::Sum(sum)) => retain_points(&mut sum.data_points, accepts),
        Some(metric::Data::Histogram(histogram)) => retain_points(&mut histogram.data_points, accepts),
        Some(metric::Data::ExponentialHistogram(histogram)) => retain_points(&mut histogram.data_points, accepts),
        Some(metric::Data::Summary(summary)) => retain_points(&mut summary.data_points, accepts),
        None => {}
    }
}

/// Promise (Measured values): An OTLP request in parts has the content of the whole, in its order
#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{Gauge, NumberDataPoint};
    use proptest::prelude::*;

    use super::*;

    fn request(shape: &[Vec<usize>]) -> ExportMetricsServiceRequest {
        let mut time = 0;
        let mut metric = |points: &usize| {
            let mut point = || {
                time += 1;
                NumberDataPoint { time_unix_nano: time, ..NumberDataPoint::default() }
            };
            let data_points = (0..*points).map(|_| point()).collect();
            Metric { data: Some(metric::Data::Gauge(Gauge { data_points })), ..Metric::default() }
        };
        let mut resource = |metrics: &Vec<usize>| ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: metrics.iter().map(&mut metric).collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        };
        ExportMetricsServiceRequest { resource_metrics: shape.iter().map(&mut resource).collect() }
    }

    fn times(request: &ExportMetricsServiceRequest) -> Vec<u64> {
        let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        let gauges = scopes.flat_map(|scope| &scope.metrics).flat_map(|metric| match &metric.data {
            Some(metric::Data::Gauge(gauge)) => gauge.data_points.as_slice(),
            _ => &[],
        });
        gauges.map(|point| point.time_unix_nano).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// However small the parts: each point once, in order, and none larger than it may be but a single one.
        #[test]
        fn request_parts_hold_the_points_of_the_whole_in_order(
            shape in prop::collection::vec(prop::collection::vec(0_usize..6, 0..5), 0..6),
            largest in 0_usize..400,
        ) {
            let whole = request(&shape);
            let parts = parts(whole.clone(), largest);
            prop_assert!(parts.iter().all(|part| points(part) == 1 || part.encoded_len() <= largest));
            prop_assert_eq!(parts.iter().flat_map(times).collect::<Vec<_>>(), times(&whole));
            prop_assert_eq!(parts.iter().map(points).sum::<u64>(), points(&whole));
        }
        #[test]
        fn halves_end_with_single_points(
            shape in prop::collection::vec(prop::collection::vec(0_usize..6, 0..5), 0..6),
        ) {
            let whole = request(&shape);
            let (mut rest, mut single, mut steps) = (vec![whole.clone()], Vec::new(), 0);
            while let Some(request) = rest.pop() {
                steps += 1;
                prop_assert!(steps < 1_000, "it goes on forever");
                match halves(request) {
                    Ok((first, second)) => rest.extend([second, first]),
                    Err(one) => single.extend(times(&one)),
                }
            }
            prop_assert_eq!(single, times(&whole));
        }
    }
}
