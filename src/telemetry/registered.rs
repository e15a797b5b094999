//! Counters and gauges in the registry, each as its descriptor says.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::model::metric::MetricDesc;

pub(super) fn register<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let collector = made.expect("our own names and labels must be valid");
    registry.register(Box::new(collector.clone())).expect("our own names must be unique");
    collector
}

pub(super) fn counter(registry: &Registry, desc: &MetricDesc) -> IntCounter {
    register(registry, IntCounter::new(desc.name, desc.help))
}

pub(super) fn gauge(registry: &Registry, desc: &MetricDesc) -> IntGauge {
    register(registry, IntGauge::new(desc.name, desc.help))
}

pub(super) fn gauges(registry: &Registry, desc: &MetricDesc) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(desc.name, desc.help), desc.labels))
}

pub(super) fn counters(registry: &Registry, desc: &MetricDesc) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(desc.name, desc.help), desc.labels))
}
