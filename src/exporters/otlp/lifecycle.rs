//! What happens becomes logs and traces: events of the runner, made when a snapshot knows them, into a queue of their
//! own.
//!
//! ```text
//! events ── a snapshot that knows them ──► logs   ─┐ a record each       number of a batch: that of the last event in it, so that
//!                                          traces ─┴► outbox ── deliver   the queue itself says up to where everything is in it
//! ```
//! An event is in the record of its task before anybody hears of it. So what an agent heard and had not queued when it
//! was killed is heard by the next one, and what it had queued is known by the number of the last batch: none is lost,
//! and none is queued twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

use super::batch::Counted;
use super::logs;
use super::message::scope;
use super::names::SCHEMA_URL;
use super::outbox::Outbox;
use super::packed::pack;
use super::resource::HostIdentity;
use super::settings::Compression;
use super::traces::Traces;
use crate::board::events::{EventLog, Item};
use crate::host::clock::{Clock, SystemClock};
use crate::model::event::Event;
use crate::model::id::{AllocId, TaskName};
use crate::snapshot::{AllocView, Snapshot, Snapshots};
use crate::telemetry::otlp::{LossReason, OtlpSignal};

/// What has begun of traces, in the queue's directory.
const OPEN: &str = "open";
/// Of one batch.
const EVENTS: usize = 128;
/// So many ticks a snapshot may take to know what happened: an alloc that it does not know then was forgotten
/// meanwhile.
const TICKS: u64 = 3;

/// Makes one signal of events.
pub(super) struct LifecycleMaker {
    pub identity: HostIdentity,
    pub compression: Compression,
    /// Up to here everything is in the queue.
    queued: u64,
    /// `None`: logs are made.
    traces: Option<Traces>,
}

/// Whose a record or a span is; no alloc: the host's.
type Owner = (Option<AllocId>, Option<TaskName>);

impl LifecycleMaker {
    /// `queued`: the number of the last batch.
    pub fn open(
        signal: OtlpSignal,
        identity: HostIdentity,
        compression: Compression,
        dir: &Path,
        queued: u64,
    ) -> LifecycleMaker {
        let traces = (signal == OtlpSignal::Traces).then(|| Traces::open(&dir.join(OPEN)));
        LifecycleMaker { identity, compression, queued, traces }
    }

    /// Behind which event to begin: traces hear again what they may not have kept. `newest`: the newest event that
    /// there is.
    pub fn from(&mut self, destination: &str, newest: u64) -> u64 {
        if self.queued > newest {
            // The agent's state was lost, or is an older one: rather twice than never.
            let queued = self.queued;
            tracing::warn!(destination, queued, newest, "event numbers restarted; all stored events are pushed again");
            self.queued = 0;
        }
        if self.traces.is_some() { 0 } else { self.queued }
    }

    /// Makes what these events are, and queues it. Blocks on the disk.
    pub fn push(&mut self, items: &[Item], snapshot: &Snapshot, outbox: &Outbox) {
        let Some(last) = items.last().map(Item::place) else { return };
        let events: Vec<Arc<Event>> = items.iter().filter_map(event).cloned().collect();
        let missed = items.iter().map(|item| if let Item::Missed { count, .. } = item { *count } else { 0 }).sum();
        let find = |id: &AllocId| snapshot.allocs.iter().find(|alloc| alloc.identity.id == *id).map(|alloc| &**alloc);
        // Those before are in the queue.
        let is_new = |seq: u64| seq > self.queued;
        if self.queued > 0 && missed > 0 && self.traces.is_none() {
            let (destination, signal) = (outbox.destination(), outbox.signal().as_str());
            tracing::warn!(destination, signal, missed, "events expired before they could be pushed");
            outbox.lost(missed, LossReason::Forgotten);
        }
        let (batch, notes) = match &self.traces {
            None => (self.logs(events.iter().filter(|event| is_new(event.seq)), snapshot, &find), None),
            Some(traces) => {
                let (made, notes) = traces.observe(&events, find);
                let mut spans: BTreeMap<Owner, Vec<Span>> = BTreeMap::new();
                for (_, made) in made.into_iter().filter(|(seq, _)| is_new(*seq)) {
                    spans.entry((Some(made.alloc), made.task)).or_default().push(made.span);
                }
                (self.spans(spans, snapshot, &find), Some(notes))
            }
        };
        if batch.0 > 0 {
            outbox.push_as(last, batch);
        }
        self.queued = self.queued.max(last);
        if let (Some(traces), Some(notes)) = (&mut self.traces, notes) {
            traces.keep(outbox.destination(), notes, |id| find(id).is_some());
        }
    }

    fn logs<'e, 'v>(
        &self,
        events: impl Iterator<Item = &'e Arc<Event>>,
        snapshot: &Snapshot,
        find: &impl Fn(&AllocId) -> Option<&'v AllocView>,
    ) -> Counted {
        let now = SystemClock.now();
        let mut all: Vec<(Owner, Vec<LogRecord>)> = Vec::new();
        for event in events {
            let record = logs::record(event, now);
            let owner = (event.alloc_id.clone(), event.task.clone());
            match all.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, records)) => records.push(record),
                None => all.push((owner, vec![record])),
            }
        }
        let count = all.iter().map(|(_, records)| records.len() as u64).sum();
        let of = |(owner, log_records)| ResourceLogs {
            resource: Some(self.resource(&owner, snapshot, find)),
            scope_logs: vec![ScopeLogs { scope: Some(scope()), log_records, schema_url: SCHEMA_URL.to_owned() }],
            schema_url: SCHEMA_URL.to_owned(),
        };
        let request = ExportLogsServiceRequest { resource_logs: all.into_iter().map(of).collect() };
        (count, pack(&request, self.compression))
    }

    fn spans<'v>(
        &self,
        all: BTreeMap<Owner, Vec<Span>>,
        snapshot: &Snapshot,
        find: &impl Fn(&AllocId) -> Option<&'v AllocView>,
    ) -> Counted {
        let count = all.values().map(|spans| spans.len() as u64).sum();
        let of = |(owner, spans)| ResourceSpans {
            resource: Some(self.resource(&owner, snapshot, find)),
            scope_spans: vec![ScopeSpans { scope: Some(scope()), spans, schema_url: SCHEMA_URL.to_owned() }],
            schema_url: SCHEMA_URL.to_owned(),
        };
        let request = ExportTraceServiceRequest { resource_spans: all.into_iter().map(of).collect() };
        (count, pack(&request, self.compression))
    }

    /// The same that its metrics have. Of an alloc that was forgotten meanwhile what its ids say.
    fn resource<'v>(
        &self,
        (alloc, task): &Owner,
        snapshot: &Snapshot,
        find: &impl Fn(&AllocId) -> Option<&'v AllocView>,
    ) -> Resource {
        let node = &*snapshot.info;
        match alloc {
            Some(id) => self.identity.owner(node, (id, task.as_ref()), find(id)),
            None => self.identity.host(node),
        }
    }
}

fn event(item: &Item) -> Option<&Arc<Event>> {
    match item {
        Item::Event(event) => Some(event),
        Item::Missed { .. } => None,
    }
}

/// Until the log is closed.
pub(super) async fn run(
    mut maker: LifecycleMaker,
    outbox: Arc<Outbox>,
    events: &Arc<EventLog>,
    mut snapshots: Snapshots,
) {
    let newest = events.since(u64::MAX, 0).newest;
    let mut reader = events.follow(maker.from(outbox.destination(), newest));
    while let Some(items) = reader.next(EVENTS).await {
        let Some(snapshot) = known(&items, &mut snapshots).await else { return };
        let queue = Arc::clone(&outbox);
        let work = move || {
            maker.push(&items, &snapshot, &queue);
            maker
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(again) => maker = again,
            Err(error) => {
                tracing::error!(
                    destination = outbox.destination(),
                    error = error.to_string(),
                    "pushing of events stopped"
                );
                return;
            }
        }
    }
}

/// The first snapshot that has these events. `None`: there will be no more.
async fn known(items: &[Item], snapshots: &mut Snapshots) -> Option<Arc<Snapshot>> {
    let mut since = None;
    loop {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        let since = *since.get_or_insert(snapshot.epoch);
        let is_late = snapshot.epoch >= since + TICKS;
        if snapshot.epoch > 0 && (is_late || items.iter().filter_map(event).all(|event| has(&snapshot, event))) {
            return Some(snapshot);
        }
        snapshots.announce_read();
        snapshots.changed().await.ok()?;
    }
}

fn has(snapshot: &Snapshot, event: &Event) -> bool {
    let (Some(id), Some(name)) = (&event.alloc_id, &event.task) else { return true };
    let alloc = snapshot.allocs.iter().find(|alloc| alloc.identity.id == *id);
    let status = alloc.and_then(|alloc| alloc.status.as_ref());
    let task = status.and_then(|status| status.tasks.iter().find(|task| task.name == *name));
    task.and_then(|task| task.events.back()).is_some_and(|last| last.seq >= event.seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_otlp_items_are_not_made_again_unless_event_numbers_restart() {
        let dir = tempfile::tempdir().unwrap();
        let opened = |signal| LifecycleMaker::open(signal, HostIdentity::default(), Compression::Gzip, dir.path(), 500);
        assert_eq!(opened(OtlpSignal::Logs).from("c", 500), 500);
        assert_eq!(opened(OtlpSignal::Logs).from("c", 499), 0);
        let mut traces = opened(OtlpSignal::Traces);
        assert_eq!((traces.from("c", 700), traces.queued), (0, 500), "it hears them, and makes nothing");
    }
}
