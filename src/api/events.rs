//! `GET /v1/events`: what happened, oldest first.
//!
//! | asked | answered |
//! |---|---|
//! | `?since=N` | one page as JSON; ask again with `since` = `next` for what came after |
//! | `?follow=1`, or `Accept: text/event-stream` | server-sent events: all after `since` (0 unless given), then each as it happens |
//!
//! A server-sent event has the event's number as `id`, its kind as `event` and the event itself as `data`. Events that
//! are not kept any more are one event `missed` in their place, `{"missed": n}`. A reader that comes back with
//! `Last-Event-ID` (a browser does so by itself) goes on behind it. `?alloc=ID` and `?task=NAME` narrow both forms;
//! `missed` counts events of all.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::Access;
use super::contract::{EndpointAnswer, Parameter, QueryRule};
use super::error::{ApiError, Code};
use super::http::{ApiRequest, Origin, Reply};
use super::stream::PieceSource;
use super::{ApiContext, Method, Route, allocs};
use crate::board::events::{Item, Reader};
use crate::exporters::json as views;
use crate::exporters::json::EventAnswer;
use crate::exporters::prometheus::BrokenOff;
use crate::model::answer::Detail;
use crate::model::event::Event;
use crate::model::id::AllocId;
use crate::runner::drivers::BoxFuture;
use crate::telemetry::Metrics;

pub(super) static EVENTS: Route = Route {
    method: Method::Get,
    path: "/v1/events",
    access: Access::Read,
    about: "events after ?since=N, of all allocs or of ?alloc=ID, ?task=NAME; ?follow=1 streams new ones",
    query: QueryRule::Once(&[
        Parameter::new("since", "Only events with a higher number."),
        Parameter::new("from", "Another name of `since`."),
        Parameter::new("alloc", "Only events of this alloc: its ID, a prefix of it or a name."),
        Parameter::new("task", "Only events of tasks of this name."),
        Parameter::new("follow", "`1` streams new events as text/event-stream, as Accept does."),
    ]),
    body: None,
    answers: &[
        EndpointAnswer::json::<EventsAnswer>(),
        EndpointAnswer::other(
            &[EVENT_STREAM],
            "Each event as one message: the number as id, the kind as event, JSON as data",
        ),
    ],
    handler: |context, request| Box::pin(async { events(context, request) }),
};

/// Events in the order of their numbers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventsAnswer {
    pub events: Vec<EventAnswer>,
    /// The number to go on with, as `since`.
    pub next: u64,
    /// Events after `since` that are not kept any more.
    pub missed: u64,
}

/// One answer holds at most so many.
const PAGE: usize = 1000;
/// One piece of a followed answer holds at most so many: what a reader that stops reading may have waiting.
const PIECE: usize = 64;
/// Between two signs of life where nothing happens: what stands between us and a reader must not think it dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const EVENT_STREAM: &str = "text/event-stream";

/// Followers stay, so they may take half of the seats at most, on TCP and on the Unix socket each: who follows cannot
/// lock out who scrapes.
pub struct Followers {
    tcp: Arc<Semaphore>,
    socket: Arc<Semaphore>,
}

impl Followers {
    pub fn of(max_connections: usize) -> Followers {
        let slots = || Arc::new(Semaphore::new((max_connections / 2).max(1)));
        Followers { tcp: slots(), socket: slots() }
    }
    fn seat(&self, origin: Origin) -> Result<OwnedSemaphorePermit, ApiError> {
        let slots = match origin {
            Origin::Tcp { .. } => &self.tcp,
            Origin::Socket => &self.socket,
        };
        let full = |_| {
            ApiError::new(Code::TooManyConnections, "too many clients follow already; retry later, or without follow")
        };
        Arc::clone(slots).try_acquire_owned().map_err(full)
    }
}

/// Which events a reader wants.
#[derive(Debug, Clone, Default)]
struct EventFilter {
    alloc: Option<AllocId>,
    task: Option<String>,
}

impl EventFilter {
    fn matches(&self, event: &Event) -> bool {
        self.alloc.as_ref().is_none_or(|id| event.alloc_id.as_ref() == Some(id))
            && self.task.as_deref().is_none_or(|task| event.task.as_ref().is_some_and(|of| of.as_str() == task))
    }
}

fn events(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let query = request.query();
    let alloc = query.get("alloc").map(|id| allocs::find(&context.snapshot(), id)).transpose();
    let alloc = alloc.map_err(|e| e.on("alloc"))?;
    let task = query.get("task");
    // A misspelled one would be followed for ever.
    if let (Some(alloc), Some(task)) = (&alloc, task) {
        allocs::task_of(alloc, task)?;
    }
    let filter = EventFilter { alloc: alloc.map(|alloc| alloc.identity.id.clone()), task: task.map(str::to_owned) };
    let since = place(request)?;
    let detail = request.origin.detail();
    if accepts_stream(request)? {
        let feed = EventFeed {
            _seat: context.followers.seat(request.origin)?,
            reader: context.runner.events().follow(since),
            detail,
            filter,
            metrics: Arc::clone(&context.metrics),
            sent_id: since,
            has_read: since > 0,
            next_sign: None,
        };
        return Ok(Reply::following(EVENT_STREAM, Box::new(feed)));
    }
    let page = context.runner.events().since(since, PAGE);
    let next = page.events.last().map_or(page.newest, |event| event.seq);
    if since > 0 {
        context.metrics.events_missed(page.missed);
    }
    let selected = page.events.iter().filter(|e| filter.matches(e));
    let events = selected.map(|event| views::event(&detail.event(event))).collect();
    Ok(Reply::json(&EventsAnswer { events, next, missed: page.missed }))
}

/// Behind which number to begin. The header is of a reader that comes back, to where it once began: it knows better.
fn place(request: &ApiRequest) -> Result<u64, ApiError> {
    if let Some(id) = request.header("last-event-id").filter(|id| !id.is_empty()) {
        let no_number = |_| ApiError::bad_parameter("last-event-id", format!("Last-Event-ID is no number: {id:?}"));
        return id.parse().map_err(no_number);
    }
    let query = request.query();
    match (query.number("since")?, query.number("from")?) {
        (Some(_), Some(_)) => Err(ApiError::bad_parameter("from", "from is another word for since: give one of them")),
        (since, from) => Ok(since.or(from).unwrap_or(0)),
    }
}

fn accepts_stream(request: &ApiRequest) -> Result<bool, ApiError> {
    if request.query().get("follow").is_some() {
        return request.query().flag("follow");
    }
    let accept = request.list_header("accept").unwrap_or_default();
    Ok(accept.split(',').any(|range| range.split(';').next().is_some_and(|kind| kind.trim() == EVENT_STREAM)))
}

/// The events of one follower, as they go to the wire.
struct EventFeed {
    reader: Reader,
    detail: Detail,
    filter: EventFilter,
    metrics: Arc<Metrics>,
    /// The last id that was sent.
    sent_id: u64,
    /// What is missing now was missed; before that it was only too old.
    has_read: bool,
    /// `None`: nothing was sent yet.
    next_sign: Option<Instant>,
    _seat: OwnedSemaphorePermit,
}

impl PieceSource for EventFeed {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, BrokenOff>> {
        Box::pin(async move { Ok(self.piece().await) })
    }
}

impl EventFeed {
    async fn piece(&mut self) -> Option<Bytes> {
        loop {
            // The first at once: the reader knows then that it is heard, and where it stands.
            let Some(sign) = self.next_sign else { return Some(self.sign_of_life()) };
            match tokio::time::timeout_at(sign, self.reader.next(PIECE)).await {
                Ok(None) => return None,
                Ok(Some(items)) => {
                    let text = self.encode(&items);
                    if !text.is_empty() {
                        return Some(self.sent(text));
                    }
                    if Instant::now() >= sign {
                        return Some(self.sign_of_life());
                    }
                }
                Err(_) => return Some(self.sign_of_life()),
            }
        }
    }

    fn encode(&mut self, items: &[Item]) -> String {
        let mut text = String::new();
        for item in items {
            let (id, kind, data) = match item {
                Item::Event(event) if !self.filter.matches(event) => continue,
                Item::Event(event) => {
                    let shown = views::event(&self.detail.event(event));
                    let data = serde_json::to_string(&shown).unwrap_or_default();
                    (event.seq, event.kind.label(), data)
                }
                Item::Missed { count, upto } => {
                    if self.has_read {
                        self.metrics.events_missed(*count);
                    }
                    (*upto, "missed", json!({ "missed": count }).to_string())
                }
            };
            self.sent_id = id;
            // JSON has no line breaks of its own, so it is one line.
            let _ = write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n");
        }
        self.has_read = true;
        text
    }

    /// Nothing happened. The number of events that it filters out is sent all the same: it need not read them again,
    /// nor does it count them as missed.
    fn sign_of_life(&mut self) -> Bytes {
        let place = self.reader.place();
        if place == self.sent_id {
            return self.sent(":\n\n".to_owned());
        }
        self.sent_id = place;
        self.sent(format!(":\nid: {place}\n\n"))
    }

    fn sent(&mut self, text: String) -> Bytes {
        self.next_sign = Some(Instant::now() + KEEP_ALIVE);
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::events::EventLog;
    use crate::model::event::EventKind;
    use crate::model::units::Timestamp;

    fn feed(log: &Arc<EventLog>, since: u64, filter: EventFilter) -> EventFeed {
        EventFeed {
            _seat: Followers::of(2).seat(Origin::Socket).unwrap(),
            reader: log.follow(since),
            detail: Detail::Full,
            filter,
            metrics: Arc::default(),
            sent_id: since,
            has_read: since > 0,
            next_sign: None,
        }
    }
    fn push(log: &EventLog, task: &str) {
        let event = Event {
            seq: 0,
            task_seq: 1,
            time: Timestamp(1),
            kind: EventKind::Started,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some(task.into()),
            message: "a\nb".to_owned(),
            details: crate::model::small_map::SmallMap::default(),
            fails_task: false,
        };
        log.settle(&[log.stage(event).seq]);
    }
    async fn next(feed: &mut EventFeed) -> String {
        String::from_utf8(feed.next().await.unwrap().expect("it goes on").to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_gives_a_sign_of_life_each_15_s() {
        let log = Arc::new(EventLog::default());
        let mut feed = feed(&log, 0, EventFilter::default());
        assert_eq!(next(&mut feed).await, ":\n\n", "the first at once");
        for _ in 0..3 {
            let began = Instant::now();
            assert_eq!(next(&mut feed).await, ":\n\n");
            assert_eq!(began.elapsed().as_secs(), 15);
        }
        push(&log, "t");
        let event = next(&mut feed).await;
        assert!(event.starts_with("id: 1\nevent: started\ndata: {") && event.contains("\"seq\":1,"), "{event}");
        assert!(event.ends_with("}\n\n") && event.lines().count() == 4, "one line of data: {event}");
    }

    #[tokio::test(start_paused = true)]
    async fn filtered_event_reader_gets_place_and_heartbeats_in_a_flood_of_other_events() {
        let log = Arc::new(EventLog::default());
        let filter = EventFilter { task: Some("rare".to_owned()), ..EventFilter::default() };
        let mut feed = feed(&log, 0, filter);
        assert_eq!(next(&mut feed).await, ":\n\n");
        let flood = async {
            for n in 0_u64.. {
                push(&log, if n == 2500 { "rare" } else { "other" });
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let read = async {
            let sign = next(&mut feed).await;
            let place: u64 = sign.strip_prefix(":\nid: ").and_then(|s| s.trim().parse().ok()).expect(&sign);
            assert!((1400..=1600).contains(&place), "after 15 s: {place}");
            assert!(next(&mut feed).await.starts_with("id: 2501\nevent: started\n"));
        };
        tokio::select! { () = flood => {}, () = read => {} }
    }
}
