//! For stores that keep nothing of a resource: what it says stands on each of its points as well.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric};

/// What a point says itself stays.
pub(super) fn flatten(request: &mut ExportMetricsServiceRequest) {
    for of in &mut request.resource_metrics {
        let Some(resource) = &of.resource else { continue };
        let add = |attributes: &mut Vec<KeyValue>| {
            let own = attributes.len();
            let lacking =
                resource.attributes.iter().filter(|a| !attributes[..own].iter().any(|known| known.key == a.key));
            let lacking: Vec<KeyValue> = lacking.cloned().collect();
            attributes.extend(lacking);
        };
        of.scope_metrics.iter_mut().flat_map(|scope| &mut scope.metrics).for_each(|metric| each(metric, &add));
    }
}

/// The attributes of each point.
fn each(metric: &mut Metric, change: &impl Fn(&mut Vec<KeyValue>)) {
    match &mut metric.data {
        Some(metric::Data::Gauge(gauge)) => gauge.data_points.iter_mut().for_each(|p| change(&mut p.attributes)),
        Some(metric::Data::Sum(sum)) => sum.data_points.iter_mut().for_each(|p| change(&mut p.attributes)),
        Some(metric::Data::Histogram(all)) => all.data_points.iter_mut().for_each(|p| change(&mut p.attributes)),
        Some(metric::Data::ExponentialHistogram(all)) => {
            all.data_points.iter_mut().for_each(|p| change(&mut p.attributes));
        }
        Some(metric::Data::Summary(all)) => all.data_points.iter_mut().for_each(|p| change(&mut p.attributes)),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{Gauge, NumberDataPoint, ResourceMetrics, ScopeMetrics};
    use opentelemetry_proto::tonic::resource::v1::Resource;

    use super::super::attribute::key_value;
    use super::*;

    #[test]
    fn flat_otlp_points_have_resource_attributes_unless_they_override_them() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| key_value(key, value)).collect::<Vec<_>>();
        let point = |pairs| NumberDataPoint { attributes: of(pairs), ..NumberDataPoint::default() };
        let gauge = Gauge { data_points: vec![point(&[("task", "own"), ("mode", "user")]), point(&[])] };
        let metric = Metric { data: Some(metric::Data::Gauge(gauge)), ..Metric::default() };
        let resource = Resource { attributes: of(&[("alloc", "a"), ("task", "t")]), ..Resource::default() };
        let scope_metrics = vec![ScopeMetrics { metrics: vec![metric], ..ScopeMetrics::default() }];
        let of_resource = ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() };
        let mut request = ExportMetricsServiceRequest { resource_metrics: vec![of_resource] };
        flatten(&mut request);
        let Some(metric::Data::Gauge(gauge)) = &request.resource_metrics[0].scope_metrics[0].metrics[0].data else {
            panic!("it is a gauge")
        };
        let attributes: Vec<_> = gauge.data_points.iter().map(|point| point.attributes.clone()).collect();
        assert_eq!(
            attributes,
            [of(&[("task", "own"), ("mode", "user"), ("alloc", "a")]), of(&[("alloc", "a"), ("task", "t")])]
        );
        assert_eq!(request.resource_metrics[0].resource.as_ref().map(|r| r.attributes.len()), Some(2), "and it stays");
    }
}
