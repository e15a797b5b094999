//! What became of the points that are pushed, where any are.

use super::listener::{Families, Listener, by};
use super::subject::Labels;
use crate::model::metric::Value;
use crate::telemetry::Metrics;
use crate::telemetry::otlp::{
    BYTES, CAPACITY, CORRUPT, DROPPED, ENQUEUED, EXPORTED, IN_MEMORY, LossReason, OLDEST, PushState, QUEUED, REJECTED,
    REQUESTS, RETRIES, SEGMENTS, TRUNCATED,
};

pub(super) fn walk(out: &mut Families<'_, impl Listener>, metrics: &Metrics) {
    let all = metrics.push.told();
    if all.is_empty() {
        return;
    }
    let cells = by("destination", all.keys().map(String::as_str));
    let mut told = |desc, of: fn(&PushState) -> u64| out.one(desc, &cells, all.values().map(|s| Value::Int(of(s))));
    told(&ENQUEUED, |state| state.ledger.enqueued);
    told(&EXPORTED, |state| state.ledger.exported);
    told(&REJECTED, |state| state.ledger.rejected);
    told(&QUEUED, |state| state.ledger.queued);
    told(&BYTES, |state| state.bytes);
    told(&CAPACITY, |state| state.capacity_bytes);
    told(&SEGMENTS, |state| state.segments);
    told(&IN_MEMORY, |state| state.in_memory);
    told(&CORRUPT, |state| state.corrupt_records);
    told(&TRUNCATED, |state| state.truncated_bytes);
    told(&RETRIES, |state| state.retries);
    let reasons = LossReason::ALL.map(LossReason::as_str);
    let dropped = all.iter().flat_map(|(name, state)| {
        reasons.into_iter().zip(state.ledger.dropped).map(move |(reason, n)| (labels(name, ("reason", reason)), n))
    });
    let (cells, values): (Vec<_>, Vec<_>) = dropped.unzip();
    out.one(&DROPPED, &cells, values.into_iter().map(Value::Int));
    let oldest = all.iter().filter_map(|(name, state)| Some((vec![("destination", name.as_str())], state.oldest?.0)));
    let (cells, values): (Vec<Labels<'_>>, Vec<_>) = oldest.unzip();
    out.one(&OLDEST, &cells, values.into_iter().map(Value::Nanos));
    let requests = all.iter().flat_map(|(name, state)| {
        state.requests.iter().map(move |(code, n)| (labels(name, ("code", code.as_str())), *n))
    });
    let (cells, values): (Vec<_>, Vec<_>) = requests.unzip();
    out.one(&REQUESTS, &cells, values.into_iter().map(Value::Int));
}

fn labels<'a>(destination: &'a str, rest: (&'a str, &'a str)) -> Labels<'a> {
    vec![("destination", destination), rest]
}
