//! An event as a log record. Pure.
//!
//! Source: OpenTelemetry, "Logs Data Model" (severity, event name); semantic conventions 1.44.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

use super::attribute::{attribute, int, key_value, map};
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

/// What it is called in an event of this kind: the same key says something else there.
const NAMES_OF_KINDS: &[(EventKind, &str, &str)] = &[
    (EventKind::Killing, "signal", "allostat.kill.signal"),
    (EventKind::Signaling, "signal", "allostat.kill.signal"),
    (EventKind::Rescheduling, "attempt", "allostat.reschedule.attempt"),
];

/// Integers.
const NUMBERS: &[&str] = &["exit_code", "signal", "attempt", "oom_kills", "bytes", "looks"];

/// How long each hook took, in one text.
const HOOKS: &[&str] = &["hooks", "alloc_hooks"];

/// Sampled, as W3C has it.
pub(super) const SAMPLED: u32 = 1;

/// `observed`: when it was made. An event of an attempt is in the trace of that attempt, others are in that of their
/// alloc.
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
        severity_text: severity_text(severity),
        body: Some(text(event.message.clone())),
        attributes,
        flags: if trace.is_some() { SAMPLED } else { 0 },
        trace_id: trace.map_or_else(Vec::new, |id| id.0.to_vec()),
        span_id: attempt.map_or_else(Vec::new, |(_, id)| id.0.to_vec()),
        event_name: event_name(event),
        ..LogRecord::default()
    }
}

/// Without `SEVERITY_NUMBER_`.
pub(super) fn severity_text(severity: SeverityNumber) -> String {
    severity.as_str_name().rsplit('_').next().unwrap_or_default().to_owned()
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

/// An error needs the attention of an operator; a warning went wrong and is handled.
fn severity(event: &Event) -> SeverityNumber {
    use EventKind::{
        AllocUnhealthy, ArtifactFailed, Device, DownloadingArtifacts, Driver, DriverFailure, ExecEnded, ExecStarted,
        FailedRestore, FailedValidation, HookFailed, Killed, Killing, LeaderDead, MainTasksDead, Migration, Network,
        NotPlaced, NotRescheduling, NotRestarting, Received, Rescheduling, RestartSignaled, Restarting, Restored,
        SetupFailure, ShutdownDelay, SiblingFailed, Signaling, Started, TaskSetup, Template, Terminated, Update,
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
        Template if event.details.contains("error") => SeverityNumber::Warn,
        Migration if event.message.starts_with("migration failed") => SeverityNumber::Warn,
        Received | TaskSetup | DownloadingArtifacts | ExecEnded | ExecStarted | Migration | Network | Driver
        | Device | Started | Terminated | Restarting | RestartSignaled | Signaling | LeaderDead | MainTasksDead
        | ShutdownDelay | Killing | Killed | Restored | Template | Update => SeverityNumber::Info,
    }
}

/// Its details as attributes: times in seconds, as metrics have them. A key has one type.
pub(super) fn details(event: &Event) -> impl Iterator<Item = KeyValue> + '_ {
    event.details.iter().map(|(key, value)| typed(event.kind, key, value))
}

fn typed(kind: EventKind, key: &str, value: &str) -> KeyValue {
    use any_value::Value::{BoolValue, DoubleValue, IntValue};
    if let Some((stem, nanos)) = key.strip_suffix("_ns").zip(value.parse().ok()) {
        return attribute(format!("allostat.{stem}"), DoubleValue(Nanos(nanos).as_secs_f64()));
    }
    let own = NAMES_OF_KINDS.iter().find(|(of, name_here, _)| *of == kind && *name_here == key).map(|(.., name)| *name);
    let known = own.or_else(|| NAMES.iter().find(|(name_here, _)| *name_here == key).map(|(_, name)| *name));
    let name = known.map_or_else(|| format!("allostat.{key}"), str::to_owned);
    let is_number = NUMBERS.contains(&key) || key.ends_with("_bytes");
    match value {
        "true" => attribute(name, BoolValue(true)),
        "false" => attribute(name, BoolValue(false)),
        _ if HOOKS.contains(&key) => map(&name, hook_seconds(value)),
        _ if is_number && own.is_none_or(|name| name.ends_with(".attempt")) => {
            value.parse().map_or_else(|_| key_value(&name, value), |n| attribute(name.clone(), IntValue(n)))
        }
        _ if key == "seconds" => {
            value.parse().map_or_else(|_| key_value(&name, value), |n| attribute(name.clone(), DoubleValue(n)))
        }
        _ => key_value(&name, value),
    }
}

/// `env=1200 devices=800`, in nanoseconds, as attributes in seconds. Anything else in it is left out.
fn hook_seconds(value: &str) -> Vec<KeyValue> {
    let pairs = value.split(' ').filter_map(|pair| pair.split_once('='));
    let known = pairs.filter_map(|(name, nanos)| Some((name, nanos.parse().ok()?)));
    known
        .map(|(name, nanos)| attribute(name.to_owned(), any_value::Value::DoubleValue(Nanos(nanos).as_secs_f64())))
        .collect()
}

pub(super) fn text(text: String) -> AnyValue {
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
    fn event_log_record_has_its_name_times_and_convention_attributes() {
        let details = [("attempt", "2"), ("exit_code", "3"), ("outcome", "failed"), ("delay_ns", "1500000000")];
        let event = event(EventKind::Terminated, &details);
        let sent = record(&event, Timestamp(12));
        assert_eq!((sent.time_unix_nano, sent.observed_time_unix_nano), (11, 12));
        assert_eq!(sent.event_name, "allostat.task.terminated");
        let (alloc, task) = (event.alloc_id.clone().unwrap(), event.task.clone().unwrap());
        assert_eq!(sent.trace_id, TraceId::attempt(&alloc, &task, 2).0);
        assert_eq!((sent.span_id, sent.flags), (SpanId::attempt(&alloc, &task, 2).0.to_vec(), 1));
        let attributes: Vec<_> =
            sent.attributes.into_iter().map(|a| (a.key, a.value.unwrap().value.unwrap())).collect();
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
    fn details_are_typed_and_a_key_has_one_type() {
        use any_value::Value::{BoolValue, DoubleValue, IntValue, StringValue};
        let of = |kind, details: &[(&str, &str)]| -> Vec<(String, any_value::Value)> {
            let all = super::details(&event(kind, details)).collect::<Vec<_>>();
            all.into_iter().map(|sent| (sent.key, sent.value.unwrap().value.unwrap())).collect()
        };
        let text = |text: &str| StringValue(text.to_owned());
        let one = |kind, key: &str, value: &str| of(kind, &[(key, value)]).pop().unwrap();
        assert_eq!(one(EventKind::Killing, "signal", "SIGINT"), ("allostat.kill.signal".to_owned(), text("SIGINT")));
        assert_eq!(one(EventKind::Terminated, "signal", "9"), ("allostat.exit.signal".to_owned(), IntValue(9)));
        assert_eq!(
            one(EventKind::Rescheduling, "attempt", "2"),
            ("allostat.reschedule.attempt".to_owned(), IntValue(2))
        );
        assert_eq!(
            one(EventKind::Terminated, "stdout_lost_bytes", "70"),
            ("allostat.stdout_lost_bytes".to_owned(), IntValue(70))
        );
        assert_eq!(one(EventKind::Driver, "healthy", "true"), ("allostat.healthy".to_owned(), BoolValue(true)));
        assert_eq!(
            one(EventKind::DownloadingArtifacts, "seconds", "1.250"),
            ("allostat.seconds".to_owned(), DoubleValue(1.25))
        );
        let (key, hooks) = one(EventKind::Started, "hooks", "env=1500000000 odd devices=x validate=0");
        let any_value::Value::KvlistValue(hooks) = hooks else { panic!("{hooks:?}") };
        let hooks: Vec<_> = hooks.values.into_iter().map(|of| (of.key, of.value.unwrap().value.unwrap())).collect();
        let expected = [("env".to_owned(), DoubleValue(1.5)), ("validate".to_owned(), DoubleValue(0.0))];
        assert_eq!((key.as_str(), hooks.as_slice()), ("allostat.hooks", expected.as_slice()));
    }

    #[test]
    fn event_severity_follows_its_kind_and_outcome() {
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
            let sent = record(&event, Timestamp(0));
            assert_eq!(sent.trace_id, TraceId::of(&event.alloc_id.unwrap()).0);
            assert!(sent.span_id.is_empty() && sent.flags == SAMPLED);
        }
    }

    #[test]
    fn event_without_task_belongs_to_the_host_and_to_no_trace() {
        let of_host = Event { alloc_id: None, task: None, workload: None, ..event(EventKind::Device, &[]) };
        let sent = record(&of_host, Timestamp(0));
        assert_eq!((sent.event_name.as_str(), sent.flags), ("allostat.host.device", 0));
        assert!(sent.trace_id.is_empty() && sent.span_id.is_empty());
    }
}
