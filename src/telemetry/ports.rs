//! What allocs hold of the ports of this node.

use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::registered::{gauge, gauges};
use crate::model::metric::{MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static PORTS_HELD: MetricDesc = MetricDesc::gauge(
    "allostat_ports_held",
    Unit::None,
    "Ports that managed allocs hold, in the range of dynamic ports and outside of it.",
    &["range"],
)
.from_profile(Profile::Standard)
.otlp("allostat.ports.held", "{port}");

pub static PORTS_DYNAMIC: MetricDesc = MetricDesc::gauge(
    "allostat_ports_dynamic",
    Unit::None,
    "Size of the range of dynamic ports (network.min_dynamic_port to network.max_dynamic_port).",
    &[],
)
.from_profile(Profile::Standard)
.otlp("allostat.ports.dynamic", "{port}");
}

words! {
    pub enum PortRange {
        Dynamic = "dynamic",
        Other = "other",
    }
}

/// Concurrency: any thread; atomics.
#[derive(Clone)]
pub struct PortMetrics {
    held: IntGaugeVec,
    dynamic: IntGauge,
}

impl PortMetrics {
    pub(super) fn new(registry: &Registry) -> PortMetrics {
        let metrics = PortMetrics { held: gauges(registry, &PORTS_HELD), dynamic: gauge(registry, &PORTS_DYNAMIC) };
        for range in PortRange::ALL {
            metrics.held(range, 0);
        }
        metrics
    }
    /// Known at the start of the agent.
    pub fn range(&self, size: u32) {
        self.dynamic.set(i64::from(size));
    }
    pub fn held(&self, range: PortRange, ports: usize) {
        self.held.with_label_values(&[range.as_str()]).set(i64::try_from(ports).unwrap_or(i64::MAX));
    }
}
