//! What became of the points that are pushed, where any are.

use super::listener::{Families, Listener, SINGLE, by};
use super::subject::Labels;
use crate::model::metric::Value;
use crate::telemetry::Metrics;
use crate::telemetry::otlp::{
    BYTES, CAPACITY, CORRUPT, DROPPED, ENQUEUED, EXPORTED, IN_MEMORY, LossReason, OLDEST, QUEUED, REJECTED, REQUESTS,
    RETRIES, SEGMENTS, TRUNCATED,
};

pub(super) fn walk(out: &mut Families<'_, impl Listener>, metrics: &Metrics) {
    let Some(state) = metrics.push.told() else { return };
    let ledger = &state.ledger;
    for (desc, value) in [(&ENQUEUED, ledger.enqueued), (&EXPORTED, ledger.exported), (&REJECTED, ledger.rejected)] {
        out.one(desc, SINGLE, [Value::Int(value)]);
    }
    out.one(&DROPPED, &by("reason", LossReason::ALL.map(LossReason::as_str)), ledger.dropped.map(Value::Int));
    let rest = [
        (&QUEUED, ledger.queued),
        (&BYTES, state.bytes),
        (&CAPACITY, state.capacity_bytes),
        (&SEGMENTS, state.segments),
        (&IN_MEMORY, state.in_memory),
        (&CORRUPT, state.corrupt_records),
        (&TRUNCATED, state.truncated_bytes),
        (&RETRIES, state.retries),
    ];
    for (desc, value) in rest {
        out.one(desc, SINGLE, [Value::Int(value)]);
    }
    out.one(&OLDEST, SINGLE, state.oldest.map(|at| Value::Nanos(at.0)));
    let codes: Vec<Labels<'_>> = by("code", state.requests.keys().map(String::as_str));
    out.one(&REQUESTS, &codes, state.requests.values().map(|n| Value::Int(*n)));
}
