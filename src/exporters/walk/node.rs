//! What there is one of: the node and its totals, the host, the agent.

use super::lifecycle::{
    ALLOCS, ALLOCS_WAITING, BUILD_INFO, HOST_ALLOCATED_CPU, HOST_ALLOCATED_MEMORY, NODE_ALLOCS, NODE_CPU, NODE_EXITS,
    NODE_OOM_KILLS, NODE_RESTARTS, SCHEMA, TASKS,
};
use super::listener::{Families, Listener, SINGLE, by};
use super::subject::Labels;
use crate::model::alloc::AllocState;
use crate::model::metric::{MetricDesc, Sample, Samples, Value};
use crate::model::placement::PlacementReason;
use crate::model::task::{Outcome, RestartReason, TaskState};
use crate::snapshot::Snapshot;

pub(super) fn build(out: &mut Families<'_, impl Listener>) {
    out.one(&BUILD_INFO, &[vec![("version", env!("CARGO_PKG_VERSION")), ("schema", SCHEMA)]], [Value::Int(1)]);
}

/// What there is now.
pub(super) fn counts(out: &mut Families<'_, impl Listener>, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    out.one(&ALLOCS, &by("state", AllocState::ALL.map(AllocState::as_str)), counts.allocs.map(Value::Int));
    let reasons = by("reason", PlacementReason::ALL.map(PlacementReason::as_str));
    out.one(&ALLOCS_WAITING, &reasons, counts.waiting.map(Value::Int));
    out.one(&TASKS, &by("state", TaskState::ALL.map(TaskState::as_str)), counts.tasks.map(Value::Int));
    out.one(&HOST_ALLOCATED_MEMORY, SINGLE, [Value::Int(counts.allocated_memory_bytes)]);
    out.one(&HOST_ALLOCATED_CPU, SINGLE, [Value::Float(counts.allocated_cpu_cores)]);
}

/// What the agent ever ran.
pub(super) fn totals(out: &mut Families<'_, impl Listener>, snapshot: &Snapshot) {
    let node = &snapshot.node;
    out.one(&NODE_EXITS, &by("outcome", Outcome::ALL.map(Outcome::as_str)), node.exits.map(Value::Int));
    out.one(&NODE_OOM_KILLS, SINGLE, node.oom_kills.map(Value::Int));
    let reasons = by("reason", RestartReason::ALL.map(RestartReason::as_str));
    out.one(&NODE_RESTARTS, &reasons, node.restarts.map(Value::Int));
    out.one(&NODE_CPU, SINGLE, node.cpu_usage_ns.map(Value::Nanos));
    out.one(&NODE_ALLOCS, SINGLE, [Value::Int(node.allocs)]);
}

/// What collectors pushed: gathered by family, in the order of their first samples.
pub(super) fn samples(out: &mut Families<'_, impl Listener>, samples: &Samples) {
    let mut families: Vec<(&'static MetricDesc, Vec<&Sample>)> = Vec::new();
    for sample in &samples.0 {
        match families.iter_mut().find(|(desc, _)| desc.name == sample.desc.name) {
            Some((_, of)) => of.push(sample),
            None => families.push((sample.desc, vec![sample])),
        }
    }
    for (desc, samples) in families {
        let cells: Vec<Labels<'_>> = samples
            .iter()
            .map(|sample| desc.labels.iter().copied().zip(sample.labels.iter().map(AsRef::as_ref)).collect())
            .collect();
        out.one(desc, &cells, samples.iter().map(|sample| sample.value));
    }
}
