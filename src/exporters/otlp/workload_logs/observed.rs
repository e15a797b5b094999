//! Starts and ends of observed tasks as log records, in the words of managed ones. Pure.

use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

use super::gathered::GatheredRecords;
use super::positions::{ENDS, OutputPlace, OutputPlaces, STARTS, StreamKey};
use crate::exporters::otlp::attribute::{attribute, int, key_value};
use crate::exporters::otlp::logs::{severity_text, text};
use crate::model::event::EventKind;
use crate::model::observed::ObservedTask;
use crate::model::task::{Exit, ExitStatus, Outcome};
use crate::model::units::Timestamp;
use crate::snapshot::Snapshot;

/// Those that are not in the queue, and how many ends were forgotten before they could be: an observed task keeps the
/// newest.
pub(super) fn events(snapshot: &Snapshot, places: &OutputPlaces, now: Timestamp) -> (GatheredRecords, u64) {
    let (mut gathered, mut forgotten) = (GatheredRecords::default(), 0);
    for alloc in &snapshot.allocs {
        for (known, view) in alloc.tasks() {
            let Some(task) = view.observed.as_deref() else { continue };
            let key = |stream| StreamKey { alloc: alloc.identity.id.clone(), task: known.name.clone(), stream };
            let queued = QueuedEvents { start: places.get(&key(STARTS)), end: places.get(&key(ENDS)) };
            let (records, newest, missed) = of_task(task, alloc.identity.source.as_str(), queued, now);
            forgotten += missed;
            if !records.is_empty() {
                gathered.records.insert((alloc.identity.id.clone(), known.name.clone()), records);
                gathered.moved.extend(newest.start.map(|place| (key(STARTS), place)));
                gathered.moved.extend(newest.end.map(|place| (key(ENDS), place)));
            }
        }
    }
    (gathered, forgotten)
}

/// The newest start and end of a task that are in the queue. `file` is their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct QueuedEvents {
    start: Option<OutputPlace>,
    /// `bytes`: the number of attempts that ended.
    end: Option<OutputPlace>,
}

/// In the order of time, and how many ends were forgotten.
fn of_task(
    task: &ObservedTask,
    source: &str,
    queued: QueuedEvents,
    now: Timestamp,
) -> (Vec<LogRecord>, QueuedEvents, u64) {
    let mut newest = queued;
    let end = queued.end.unwrap_or_default();
    // An observer that lost its state counts from 0 again, and a clock may be set back: either says that an end is new.
    let is_new = |exit: &&Exit| u64::from(exit.attempt) >= end.bytes || exit.finished_at.0 > end.file;
    let ends: Vec<&Exit> = task.exits.iter().map(|exit| &**exit).filter(is_new).collect();
    // Of a task that was never queued, the earlier ends are history.
    let missed = match (queued.end.or(queued.start), ends.first()) {
        (Some(_), Some(first)) => u64::from(first.attempt).saturating_sub(end.bytes),
        _ => 0,
    };
    if let Some(last) = ends.last() {
        newest.end = Some(OutputPlace { file: last.finished_at.0, bytes: u64::from(last.attempt) + 1 });
    }
    let mut records: Vec<LogRecord> = ends.iter().map(|exit| ended(exit, source, now)).collect();
    let start = queued.start.unwrap_or_default();
    if let Some(since) = task.since.filter(|since| task.runs && since.0 > start.file) {
        newest.start = Some(OutputPlace { file: since.0, bytes: 0 });
        records.push(started(since, source, now));
    }
    records.sort_by_key(|record| record.time_unix_nano);
    (records, newest, missed)
}

fn started(at: Timestamp, source: &str, now: Timestamp) -> LogRecord {
    record(EventKind::Started, SeverityNumber::Info, (at, now), "task started", vec![source_of(source)])
}

fn ended(exit: &Exit, source: &str, now: Timestamp) -> LogRecord {
    let mut attributes = vec![source_of(source), key_value("allostat.exit.outcome", exit.outcome.as_str())];
    match &exit.status {
        ExitStatus::Code(code) => attributes.push(int("process.exit.code", (*code).into())),
        ExitStatus::Signal(signal) => attributes.push(int("allostat.exit.signal", (*signal).into())),
        ExitStatus::NotStarted(why) | ExitStatus::Unknown(why) => attributes.push(key_value("error.message", why)),
    }
    if let Some(word) = exit.result.and_then(|result| result.word_unlike(&exit.status)) {
        attributes.push(key_value("allostat.exit.result", word));
    }
    if let Some(kills) = exit.oom_kills.filter(|kills| *kills > 0) {
        attributes.push(int("allostat.oom_kills", kills));
    }
    attributes.extend(exit.started_at.map(|began| {
        let run = exit.finished_at.since(began).as_secs_f64();
        attribute("allostat.run_duration".to_owned(), any_value::Value::DoubleValue(run))
    }));
    let severity = match exit.outcome {
        Outcome::Success | Outcome::Killed | Outcome::Unknown => SeverityNumber::Info,
        Outcome::Error | Outcome::Signal | Outcome::Oom => SeverityNumber::Warn,
    };
    record(EventKind::Terminated, severity, (exit.finished_at, now), &exit.described(), attributes)
}

fn source_of(source: &str) -> KeyValue {
    key_value("allostat.alloc.source", source)
}

fn record(
    kind: EventKind,
    severity: SeverityNumber,
    (at, now): (Timestamp, Timestamp),
    body: &str,
    attributes: Vec<KeyValue>,
) -> LogRecord {
    LogRecord {
        time_unix_nano: at.0,
        observed_time_unix_nano: now.0,
        severity_number: severity.into(),
        severity_text: severity_text(severity),
        body: Some(text(body.to_owned())),
        attributes,
        event_name: format!("allostat.task.{}", kind.label()),
        ..LogRecord::default()
    }
}

/// Promise (Measured values): Starts and ends of observed workloads are log records, each once
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::task::LostOutput;

    fn exit(attempt: u32, at: u64, outcome: Outcome, status: ExitStatus) -> Exit {
        Exit {
            attempt,
            outcome,
            status,
            started_at: Some(Timestamp(at - 5)),
            finished_at: Timestamp(at),
            oom_kills: (outcome == Outcome::Oom).then_some(1),
            usage: Arc::default(),
            lost_output: LostOutput::default(),
            last_output: None,
            result: None,
        }
    }

    fn bodies(records: &[LogRecord]) -> Vec<String> {
        let body = |record: &LogRecord| match record.body.clone().and_then(|body| body.value) {
            Some(any_value::Value::StringValue(text)) => format!("{} {text}", record.time_unix_nano),
            other => panic!("{other:?}"),
        };
        records.iter().map(body).collect()
    }

    #[test]
    fn starts_and_ends_of_an_observed_task_are_sent_once() {
        let mut task = ObservedTask { runs: true, since: Some(Timestamp(10)), ..ObservedTask::default() };
        let (records, first, missed) = of_task(&task, "docker", QueuedEvents::default(), Timestamp(1));
        assert_eq!((bodies(&records), missed), (vec!["10 task started".to_owned()], 0));
        assert!(of_task(&task, "docker", first, Timestamp(1)).0.is_empty());
        task.add_exit(exit(0, 20, Outcome::Oom, ExitStatus::Signal(9)));
        task.add_exit(exit(1, 30, Outcome::Error, ExitStatus::Code(3)));
        task.since = Some(Timestamp(40));
        let (records, second, _) = of_task(&task, "docker", first, Timestamp(50));
        let expected = ["20 OOM killed", "30 exit 3", "40 task started"];
        assert_eq!(bodies(&records), expected);
        let at = |file, bytes| Some(OutputPlace { file, bytes });
        assert_eq!(second, QueuedEvents { start: at(40, 0), end: at(30, 2) });
        assert_eq!(records[0].severity_text, "WARN");
        assert_eq!(records[0].event_name, "allostat.task.terminated");
        assert!(of_task(&task, "docker", second, Timestamp(50)).0.is_empty());
        // Only the newest ten are kept.
        for attempt in 2..20 {
            task.add_exit(exit(attempt, 100 + u64::from(attempt), Outcome::Success, ExitStatus::Code(0)));
        }
        let (records, third, missed) = of_task(&task, "docker", second, Timestamp(200));
        assert_eq!((records.len(), missed, third.end), (10, 8, at(119, 20)));
    }

    #[test]
    fn end_is_sent_when_the_observer_counts_from_0_again_or_the_clock_is_set_back() {
        let queued = QueuedEvents { end: Some(OutputPlace { file: 25, bytes: 1 }), ..QueuedEvents::default() };
        for (attempt, at) in [(0, 30), (1, 20)] {
            let mut task = ObservedTask::default();
            task.add_exit(exit(attempt, at, Outcome::Success, ExitStatus::Code(0)));
            let (records, newest, missed) = of_task(&task, "systemd", queued, Timestamp(40));
            assert_eq!((records.len(), missed), (1, 0), "attempt {attempt} at {at}");
            assert!(of_task(&task, "systemd", newest, Timestamp(40)).0.is_empty());
        }
    }
}
