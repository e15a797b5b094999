//! The agent's own memory: its limit, and what it leaves out to stay below it.

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Registry};

use super::registered::{counter, gauge, gauges};
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static MEMORY_LIMIT: MetricDesc = MetricDesc::gauge(
    "allostat_agent_memory_limit_bytes",
    Unit::Bytes,
    "Memory limit of the agent: agent.memory_limit_mib, or its cgroup's limit if lower.",
    &[],
)
.absent_when("neither is set")
.otlp("allostat.agent.memory.limit", "By");

pub static MEMORY_SHED: MetricDesc = MetricDesc::gauge(
    "allostat_agent_memory_shed",
    Unit::None,
    "1 while the agent sheds this data to stay below its memory limit (new_observed, observed, detail).",
    &["what"],
)
.absent_when("the agent has no memory limit")
.otlp("allostat.agent.memory.shed", "1");

pub static MEMORY_SHED_TOTAL: MetricDesc = MetricDesc::counter(
    "allostat_agent_memory_sheds_total",
    Unit::None,
    "Times that the agent began to shed more data to stay below its memory limit.",
    &[],
)
.absent_when("the agent has no memory limit")
.otlp("allostat.agent.memory.sheds", "{time}");
}

words! {
    /// What the agent leaves out, the least important first.
    pub enum SheddingLevel {
        /// Observed workloads that begin are not added.
        NewObserved = "new_observed",
        /// Observed allocs have no series; the totals of their workloads stay.
        Observed = "observed",
        /// Of managed allocs the profile `lean` is exposed.
        Detail = "detail",
    }
}

/// Concurrency: any thread; atomics.
pub struct MemoryMetrics {
    limit: IntGauge,
    shed: IntGaugeVec,
    sheds: IntCounter,
}

impl MemoryMetrics {
    /// Registers them: only an agent with a limit has these series.
    pub(super) fn new(registry: &Registry) -> MemoryMetrics {
        let metrics = MemoryMetrics {
            limit: gauge(registry, &MEMORY_LIMIT),
            shed: gauges(registry, &MEMORY_SHED),
            sheds: counter(registry, &MEMORY_SHED_TOTAL),
        };
        metrics.sheds(None, false);
        metrics
    }

    /// `bytes`: the limit in force.
    pub fn limited(&self, bytes: u64) {
        self.limit.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Everything up to `most` is left out; `is_more`: more than before.
    pub fn sheds(&self, most: Option<SheddingLevel>, is_more: bool) {
        for what in SheddingLevel::ALL {
            let is_shed = most >= Some(what);
            self.shed.with_label_values(&[what.as_str()]).set(i64::from(is_shed));
        }
        self.sheds.inc_by(u64::from(is_more));
    }
}
