//! `/v1/events` followed: over both doors, resumed, by readers that stall, go, or are too many.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::board::events::CAPACITY;
use crate::model::event::{Event, EventKind};
use crate::model::small_map::SmallMap;
use crate::model::units::Timestamp;

fn happen(log: &EventLog, kind: EventKind, message: &str) {
    let event = Event {
        seq: 0,
        task_seq: 1,
        time: Timestamp(1),
        kind,
        workload: Some("j".into()),
        alloc_id: Some("a".into()),
        task: Some("t".into()),
        message: message.to_owned(),
        details: SmallMap::default(),
        fails_task: false,
    };
    log.settle(&[log.stage(event).seq]);
}

/// A follower: what came so far. Pieces end where events do, so the lines are whole for all the chunks between them.
struct FollowerStream<S> {
    stream: S,
    text: String,
}

impl<S: Read + Write> FollowerStream<S> {
    fn begin(mut stream: S, target: &str, headers: &str) -> FollowerStream<S> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        FollowerStream { stream, text: String::new() }
    }
    /// False: the end.
    fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        let n = self.stream.read(&mut buffer).expect("the server must say something in time");
        self.text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        n > 0
    }
    fn until(&mut self, words: &str) {
        while !self.text.contains(words) {
            assert!(self.more(), "it ended before {words:?}: {}", self.text);
        }
    }
    fn ids(&self) -> Vec<u64> {
        self.text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
    }
}

impl Server {
    fn follow_tcp(&self, target: &str, headers: &str) -> FollowerStream<TcpStream> {
        let stream = TcpStream::connect(self.tcp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        FollowerStream::begin(stream, target, headers)
    }
    fn follow_unix(&self, target: &str, headers: &str) -> FollowerStream<UnixStream> {
        let stream = UnixStream::connect(&self.unix).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        FollowerStream::begin(stream, target, headers)
    }
    fn missed(&self) -> u64 {
        self.metrics.events_missed_total()
    }
}

#[test]
fn events_are_followed_on_both_listeners_with_reasons_on_the_socket_only() {
    let server = server();
    let log = server.log();
    happen(log, EventKind::Started, "before");
    let mut tcp = server.follow_tcp("/v1/events", "Accept: text/html, text/event-stream;q=0.9\r\n");
    let mut unix = server.follow_unix("/v1/events?follow=true", "");
    tcp.until("before");
    unix.until("before");
    happen(log, EventKind::DriverFailure, "no such file: SECRET");
    happen(log, EventKind::Started, "after");
    tcp.until("after");
    unix.until("after");
    for text in [&tcp.text, &unix.text] {
        assert!(text.to_lowercase().contains("content-type: text/event-stream\r\n"), "{text}");
        assert!(text.contains("id: 2\nevent: driver_failure\ndata: {"), "{text}");
    }
    assert_eq!((tcp.ids(), unix.ids()), (vec![1, 2, 3], vec![1, 2, 3]));
    assert!(unix.text.contains("SECRET") && !tcp.text.contains("SECRET"), "{}", tcp.text);
}

#[test]
fn without_following_it_is_json_and_what_is_no_place_is_refused() {
    let server = server();
    happen(server.log(), EventKind::Started, "one");
    for (target, headers) in
        [("/v1/events", ""), ("/v1/events?follow=0", "Accept: text/event-stream\r\n"), ("/v1/events?from=0", "")]
    {
        let page: Value = serde_json::from_slice(&server.tcp("GET", target, headers).body).unwrap();
        assert_eq!((&page["events"][0]["seq"], &page["next"]), (&json!(1), &json!(1)), "{target}");
    }
    assert_eq!(server.tcp("GET", "/v1/events?follow=1", "Last-Event-ID: x\r\n").status, 400);
    assert_eq!(server.tcp("GET", "/v1/events?follow=1&since=1&from=1", "").status, 400);
    assert_eq!(server.tcp("GET", "/v1/events?follow=maybe", "").status, 400);
    assert_eq!(server.tcp("GET", "/v1/events?follow=1&alloc=zz", "").status, 404);
    let head = server.tcp("HEAD", "/v1/events?follow=1", "");
    assert!(head.body.is_empty() && head.head.contains("text/event-stream"), "{}", head.head);
}

#[test]
fn reconnected_event_reader_resumes_and_gets_its_missed_count() {
    let server = server();
    let log = server.log();
    for _ in 0..5 {
        happen(log, EventKind::Started, "early");
    }
    // Where the URL began and where the reader stands: the reader knows better.
    let mut again = server.follow_tcp("/v1/events?follow=1&since=0", "Last-Event-ID: 3\r\n");
    again.until("id: 5\n");
    assert_eq!(again.ids(), [4, 5]);
    for _ in 0..CAPACITY {
        happen(log, EventKind::Started, "late");
    }
    assert_eq!(server.missed(), 0);
    let mut late = server.follow_tcp("/v1/events?follow=1&from=3", "");
    late.until("id: 6\n");
    assert!(late.text.contains("id: 5\nevent: missed\ndata: {\"missed\":2}\n\nid: 6\n"), "{}", &late.text[..300]);
    assert_eq!(server.missed(), 2);
    server.follow_tcp("/v1/events?follow=1", "").until("id: 6\n");
    assert_eq!(server.missed(), 2, "who begins has missed nothing");
}

/// A follower may be silent, gets a sign of life each 15 s, frees its place when it goes, and leaves half of the seats
/// to others.
///
/// Promise (Event streams): A follower may be silent, gets a keepalive, and leaves half of the places to others
#[test]
fn a_follower_may_be_silent_for_longer_than_anybody_else() {
    let short = Duration::from_millis(400);
    let patience = ConnectionTimeouts { idle: short, receive: short, write: short };
    let server = server_with(Config { patience, ..Config::default() });
    let mut reading = server.follow_tcp("/v1/events?follow=1", "");
    reading.until(":\n\n");
    std::thread::sleep(short * 4);
    happen(server.log(), EventKind::Started, "at last");
    reading.until("at last");
}

#[test]
fn stalled_event_reader_delays_no_other_reader_and_is_disconnected() {
    const FLOW: u64 = 10_000;
    let patient =
        |write| Config { patience: ConnectionTimeouts { write, ..ConnectionTimeouts::default() }, ..Config::default() };
    let server = server_with(patient(Duration::from_secs(3_600)));
    let log = Arc::clone(server.log());
    let stalled = server.follow_unix("/v1/events?follow=1", "");
    let mut keen = server.follow_unix("/v1/events?follow=1", "");
    eventually("both follow", || log.readers() == 2);
    // How far the keen one has come: it is not it that is to fall behind, on a busy machine either.
    let read = Arc::new(AtomicU64::new(0));
    let flow = std::thread::spawn({
        let (log, read) = (Arc::clone(&log), Arc::clone(&read));
        move || {
            for n in 1..=FLOW {
                happen(&log, EventKind::Started, &"x".repeat(200));
                eventually("the keen one reads", || n < read.load(Ordering::SeqCst) + CAPACITY as u64 / 2);
            }
        }
    });
    let mut ids = Vec::new();
    while ids.last() != Some(&FLOW) {
        assert!(keen.more(), "the keen one is served to the end");
        // Whole lines only.
        let end = keen.text.rfind("\n\n").map_or(0, |at| at + 2);
        ids.extend(keen.text[..end].lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok()));
        keen.text.drain(..end);
        assert!(!keen.text.contains("event: missed"));
        read.store(ids.last().copied().unwrap_or(0), Ordering::SeqCst);
    }
    assert_eq!(ids, (1..=FLOW).collect::<Vec<_>>(), "each event, once, in order");
    flow.join().unwrap();
    assert_eq!(log.readers(), 2, "the stalled one is still there: no event waited for it");
    drop(stalled);

    let server = server_with(patient(Duration::from_millis(200)));
    let log = server.log();
    let _stalled = server.follow_unix("/v1/events?follow=1", "");
    eventually("it follows", || log.readers() == 1);
    eventually("the stalled one is let go", || {
        (0..100).for_each(|_| happen(log, EventKind::Started, &"x".repeat(200)));
        log.readers() == 0
    });
}

#[test]
fn closed_event_reader_frees_its_place_and_followers_leave_connections_for_requests() {
    let server = server_with(Config { max_connections: 4, ..Config::default() });
    let log = server.log();
    let mut held: Vec<_> = (0..2).map(|_| server.follow_tcp("/v1/events?follow=1", "")).collect();
    held.iter_mut().for_each(|reading| reading.until(":\n\n"));
    let refused = server.tcp("GET", "/v1/events?follow=1", "");
    assert_eq!((refused.status, refused.code().as_str()), (503, "too_many_connections"));
    assert_eq!(server.tcp("GET", "/v1/events", "").status, 200, "others have seats");
    server.follow_unix("/v1/events?follow=1", "").until(":\n\n");
    eventually("the one on the socket has gone", || log.readers() == 2);
    held.pop();
    eventually("its place is free", || log.readers() == 1);
    server.follow_tcp("/v1/events?follow=1", "").until(":\n\n");
}

#[test]
fn event_streams_end_at_once_when_the_log_closes() {
    let server = server();
    let log = server.log();
    let mut readings: Vec<_> = (0..20).map(|_| server.follow_unix("/v1/events?follow=1", "")).collect();
    readings.iter_mut().for_each(|reading| reading.until(":\n\n"));
    happen(log, EventKind::Started, "last words");
    readings.iter_mut().for_each(|reading| reading.until("last words"));
    log.close();
    server.stop.send_replace(true);
    for reading in &mut readings {
        while reading.more() {}
        assert!(reading.text.ends_with("0\r\n\r\n"), "a whole answer: {}", reading.text);
        let (_, last) = reading.text.split_once("last words").unwrap();
        assert!(!last.contains(":\n\n"), "it has waited until the next sign of life: {last}");
    }
}
