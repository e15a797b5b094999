//! An event as a log record. Pure.
//!
//! Source: OpenTelemetry, "Logs Data Model" (severity, event name); semantic conventions 1.44.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

use super::attribute::{attribute, int, key_value};
use crate::model::event::{Event, EventKind};
use crate::model::task::Outcome;
use crate::model::trace::{SpanId, TraceId};
use crate::model::units::{Nanos, Timestamp};

/// What a detail of an event is called; those that no convention knows are `allostat.*`.
const NAMES: &[(&str, &str)] = &[
    ("error", "error.message"),
    ("exit_code", "process.exit.code"),
    ("signal", "allostat.exit.signal"),
    ("outcome", "allostat.exit.outcome"),
    ("attempt", "allostat.task.attempt"),
    ("hook", "allostat.hook.name"),
    ("phase", "allostat.hook.phase"),
    ("device", "hw.id"),
];

/// Sampled, as W3C has it.
pub(super) const SAMPLED: u32 = 1;

/// `observed`: when it was made. An event of an attempt is in the trace of that attempt, others are in that of their alloc.
pub(super) fn record(event: &Event, observed: Timestamp) -> LogRecord {
    let severity = severity(event);
    let mut attributes = vec![int("allostat.event.id", event.seq)];
    attributes.extend(details(event));
    let attempt = attempt(event);
    let trace = attempt.map(|(trace, _)| trace).or_else(|| event.alloc_id.as_ref().map(TraceId::of));
    LogRecord {
        time_unix_nano: event.time.0,
        observed_time_unix_nano: observed.0,
        severity_number: severity.into(),
        // Without `SEVERITY_NUMBER_`.
        severity_text: severity.as_str_name().rsplit('_').next().unwrap_or_default().to_owned(),
        body: Some(text(event.message.clone())),
        attributes,
        flags: if trace.is_some() { SAMPLED } else { 0 },
        trace_id: trace.map_or_else(Vec::new, |id| id.0.to_vec()),
        span_id: attempt.map_or_else(Vec::new, |(_, id)| id.0.to_vec()),
        event_name: event_name(event),
        ..LogRecord::default()
    }
}

/// The trace and the span of its attempt.
fn attempt(event: &Event) -> Option<(TraceId, SpanId)> {
    let (alloc, task) = (event.alloc_id.as_ref()?, event.task.as_ref()?);
    // Rescheduling counts attempts of its own.
    let number = event.details.get("attempt").filter(|_| event.kind != EventKind::Rescheduling)?.parse().ok()?;
    Some((TraceId::attempt(alloc, task, number), SpanId::attempt(alloc, task, number)))
}

fn event_name(event: &Event) -> String {
    let of = if event.task.is_some() { "task" } else { "host" };
    format!("allostat.{of}.{}", event.kind.label())
}

/// An error is what somebody should look at, a warning what went wrong and is seen to.
fn severity(event: &Event) -> SeverityNumber {
    use EventKind::{
        AllocUnhealthy, ArtifactFailed, Device, DownloadingArtifacts, Driver, DriverFailure, ExecEnded, ExecStarted,
        FailedRestore, FailedValidation, HookFailed, Killed, Killing, LeaderDead, MainTasksDead, Migration, Network,
        NotPlaced, NotRescheduling, NotRestarting, Received, Rescheduling, RestartSignaled, Restarting, Restored,
        SetupFailure, ShutdownDelay, SiblingFailed, Signaling, Started, TaskSetup, Terminated, Update,
    };
    let outcome = event.details.get("outcome").and_then(|word| Outcome::parse(word));
    match event.kind {
        _ if event.fails_task => SeverityNumber::Error,
        ArtifactFailed | SetupFailure | FailedValidation | DriverFailure | FailedRestore => SeverityNumber::Error,
        Terminated if outcome.is_some_and(|outcome| !matches!(outcome, Outcome::Success | Outcome::Killed)) => {
            SeverityNumber::Warn
        }
        Killed if event.details.contains("error") => SeverityNumber::Error,
        AllocUnhealthy | HookFailed | NotPlaced | NotRescheduling | NotRestarting | Rescheduling | SiblingFailed => {
            SeverityNumber::Warn
        }
        Update if event.details.get("status").is_some_and(|status| status == "failed" || status == "running") => {
            SeverityNumber::Warn
        }
        Migration if event.message.starts_with("migration failed") => SeverityNumber::Warn,
        Received | TaskSetup | DownloadingArtifacts | ExecEnded | ExecStarted | Migration | Network | Driver
        | Device | Started | Terminated | Restarting | RestartSignaled | Signaling | LeaderDead | MainTasksDead
        | ShutdownDelay | Killing | Killed | Restored | Update => SeverityNumber::Info,
    }
}

/// Its details as attributes: times in seconds, as metrics have them.
pub(super) fn details(event: &Event) -> impl Iterator<Item = KeyValue> + '_ {
    event.details.iter().map(|(key, value)| {
        if let Some((stem, nanos)) = key.strip_suffix("_ns").zip(value.parse().ok()) {
            let value = any_value::Value::DoubleValue(Nanos(nanos).as_secs_f64());
            return attribute(format!("allostat.{stem}"), value);
        }
        let known = NAMES.iter().find(|(ours, _)| *ours == key);
        let name = known.map_or_else(|| format!("allostat.{key}"), |(_, name)| (*name).to_owned());
        match value.parse() {
            Ok(n) if ["exit_code", "signal", "attempt", "oom_kills"].contains(&key) => {
                attribute(name, any_value::Value::IntValue(n))
            }
            _ => key_value(&name, value),
        }
    })
}

fn text(text: String) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, details: &[(&str, &str)]) -> Event {
        Event {
            seq: 7,
            task_seq: 3,
            time: Timestamp(11),
            kind,
            workload: Some("j".into()),
            alloc_id: Some("6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61".into()),
            task: Some("t".into()),
            message: "said".to_owned(),
            details: details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            fails_task: false,
        }
    }

    #[test]
    fn an_event_is_a_record_with_its_name_its_time_and_its_details_in_the_words_of_the_conventions() {
        let details = [("attempt", "2"), ("exit_code", "3"), ("outcome", "failed"), ("delay_ns", "1500000000")];
        let event = event(EventKind::Terminated, &details);
        let told = record(&event, Timestamp(12));
        assert_eq!((told.time_unix_nano, told.observed_time_unix_nano), (11, 12));
        assert_eq!(told.event_name, "allostat.task.terminated");
        let (alloc, task) = (event.alloc_id.clone().unwrap(), event.task.clone().unwrap());
        assert_eq!(told.trace_id, TraceId::attempt(&alloc, &task, 2).0);
        assert_eq!((told.span_id, told.flags), (SpanId::attempt(&alloc, &task, 2).0.to_vec(), 1));
        let attributes: Vec<_> =
            told.attributes.into_iter().map(|a| (a.key, a.value.unwrap().value.unwrap())).collect();
        let expected = [
            ("allostat.event.id", any_value::Value::IntValue(7)),
            ("allostat.task.attempt", any_value::Value::IntValue(2)),
            ("allostat.delay", any_value::Value::DoubleValue(1.5)),
            ("process.exit.code", any_value::Value::IntValue(3)),
            ("allostat.exit.outcome", any_value::Value::StringValue("failed".to_owned())),
        ];
        assert_eq!(attributes, expected.map(|(key, value)| (key.to_owned(), value)));
    }

    #[test]
    fn how_bad_it_is_follows_from_what_happened() {
        let of = |kind, details: &[(&str, &str)]| record(&event(kind, details), Timestamp(0)).severity_text;
        assert_eq!(of(EventKind::Started, &[]), "INFO");
        assert_eq!(of(EventKind::Terminated, &[("outcome", "success")]), "INFO");
        assert_eq!(of(EventKind::Terminated, &[("outcome", "killed")]), "INFO");
        assert_eq!(of(EventKind::Terminated, &[("outcome", "oom")]), "WARN");
        assert_eq!(of(EventKind::DriverFailure, &[]), "ERROR");
        let failing = Event { fails_task: true, ..event(EventKind::NotRestarting, &[]) };
        assert_eq!(record(&failing, Timestamp(0)).severity_text, "ERROR");
    }

    #[test]
    fn event_of_no_attempt_is_in_the_trace_of_its_alloc() {
        for (kind, details) in [(EventKind::Received, &[][..]), (EventKind::Rescheduling, &[("attempt", "1")])] {
            let event = event(kind, details);
            let told = record(&event, Timestamp(0));
            assert_eq!(told.trace_id, TraceId::of(&event.alloc_id.unwrap()).0);
            assert!(told.span_id.is_empty() && told.flags == SAMPLED);
        }
    }

    #[test]
    fn what_happened_to_no_task_is_the_hosts_and_in_no_trace() {
        let of_host = Event { alloc_id: None, task: None, workload: None, ..event(EventKind::Device, &[]) };
        let told = record(&of_host, Timestamp(0));
        assert_eq!((told.event_name.as_str(), told.flags), ("allostat.host.device", 0));
        assert!(told.trace_id.is_empty() && told.span_id.is_empty());
    }
}
