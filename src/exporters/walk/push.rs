//! What became of the points that are pushed, where any are.

use super::listener::{Families, Listener};
use super::subject::Labels;
use crate::model::metric::Value;
use crate::telemetry::Metrics;
use crate::telemetry::otlp::{
    BYTES, CAPACITY, CORRUPT, DROPPED, ENQUEUED, EXPORTED, IN_MEMORY, Lane, LossReason, OLDEST, OUTPUT_LOST,
    OutputLoss, PushState, QUEUED, REJECTED, REQUESTS, RETRIES, SEGMENTS, TRUNCATED,
};

pub(super) fn walk(out: &mut Families<'_, impl Listener>, metrics: &Metrics) {
    let all = metrics.push.states();
    if all.is_empty() {
        return;
    }
    let cells: Vec<Labels<'_>> = all.keys().map(labels).collect();
    let mut expose = |desc, of: fn(&PushState) -> u64| out.one(desc, &cells, all.values().map(|s| Value::Int(of(s))));
    expose(&ENQUEUED, |state| state.ledger.enqueued);
    expose(&EXPORTED, |state| state.ledger.exported);
    expose(&REJECTED, |state| state.ledger.rejected);
    expose(&QUEUED, |state| state.ledger.queued);
    expose(&BYTES, |state| state.bytes);
    expose(&CAPACITY, |state| state.capacity_bytes);
    expose(&SEGMENTS, |state| state.segments);
    expose(&IN_MEMORY, |state| state.in_memory);
    expose(&CORRUPT, |state| state.corrupt_records);
    expose(&TRUNCATED, |state| state.truncated_bytes);
    expose(&RETRIES, |state| state.retries);
    let reasons = LossReason::ALL.map(LossReason::as_str);
    let dropped = all.iter().flat_map(|(lane, state)| {
        reasons.into_iter().zip(state.ledger.dropped).map(move |(reason, n)| (and(lane, ("reason", reason)), n))
    });
    let (cells, values): (Vec<_>, Vec<_>) = dropped.unzip();
    out.one(&DROPPED, &cells, values.into_iter().map(Value::Int));
    let outputs = metrics.push.outputs_lost();
    let lost = outputs.iter().flat_map(|(destination, lost)| {
        let reasons = OutputLoss::ALL.map(OutputLoss::as_str).into_iter().zip(*lost);
        reasons.map(move |(reason, n)| (vec![("destination", destination.as_str()), ("reason", reason)], n))
    });
    let (cells, values): (Vec<Labels<'_>>, Vec<_>) = lost.unzip();
    out.one(&OUTPUT_LOST, &cells, values.into_iter().map(Value::Int));
    let oldest = all.iter().filter_map(|(lane, state)| Some((labels(lane), state.oldest?.0)));
    let (cells, values): (Vec<Labels<'_>>, Vec<_>) = oldest.unzip();
    out.one(&OLDEST, &cells, values.into_iter().map(Value::Nanos));
    let requests = all
        .iter()
        .flat_map(|(lane, state)| state.requests.iter().map(move |(code, n)| (and(lane, ("code", code.as_str())), *n)));
    let (cells, values): (Vec<_>, Vec<_>) = requests.unzip();
    out.one(&REQUESTS, &cells, values.into_iter().map(Value::Int));
}

fn labels((destination, signal): &Lane) -> Labels<'_> {
    vec![("destination", destination), ("signal", signal.as_str())]
}

fn and<'a>(lane: &'a Lane, rest: (&'a str, &'a str)) -> Labels<'a> {
    labels(lane).into_iter().chain([rest]).collect()
}
