//! Events of allocs become the spans of their traces. Pure, but for the file that keeps what has begun.
//!
//! ```text
//! trace of the alloc
//! submit                   the root: created → received, sent at once
//! ├─ prerun                all hooks of the alloc, before those of its tasks
//! │  └─ hook NAME          one of them
//! └─ alloc                 created → its last event
//!    └─ task               received → its last event
//!
//! trace of each attempt
//! attempt                  restarting or set up → ended; links to the attempt before and to `submit`
//! ├─ backoff               restarting → set up
//! ├─ start                 its hooks begin → it runs
//! │  ├─ prestart           all hooks of the task
//! │  │  └─ hook NAME       one of them
//! │  ├─ setup              the durable record of what is about to run
//! │  └─ driver             until the main process runs
//! ├─ running               it runs → it is asked to end, or ends
//! └─ kill                  it is asked to end → all of it is gone
//! ```
//! A trace has a bounded number of spans however long a service lives, and its root is there from the start. A crash
//! loop is bounded too: of the attempts of a task in an hour only the first [`DETAILED`] have children.
//!
//! A span is made once, with the event that ends it. What has begun is kept beside the queue: after a kill of the agent
//! the events that came since are heard again, and those whose spans are in the queue make none.

use std::path::Path;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message;

use super::attribute::{int, key_value};
use super::logs::{SAMPLED, details};
use crate::model::event::{Event, EventKind};
use crate::model::id::{AllocId, TaskName};
use crate::model::task::{Outcome, TaskState};
use crate::model::trace::{SpanId, TraceId};
use crate::snapshot::AllocView;
use crate::store::keyed::KeyedLog;

/// What is open of an alloc. Times: nanoseconds since 1970; 0: not yet, or not known.
#[derive(Clone, PartialEq, Message)]
struct OpenTrace {
    #[prost(string, tag = "1")]
    alloc: String,
    /// Of the last event that was heard.
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(fixed64, tag = "3")]
    began: u64,
    /// How often all its tasks have begun again.
    #[prost(uint32, tag = "4")]
    life: u32,
    #[prost(bool, tag = "5")]
    has_ended: bool,
    #[prost(message, repeated, tag = "6")]
    tasks: Vec<OpenTaskSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct OpenTaskSpan {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(fixed64, tag = "2")]
    began: u64,
    /// Of the alloc, in which it began.
    #[prost(uint32, tag = "3")]
    life: u32,
    #[prost(bool, tag = "4")]
    has_ended: bool,
    #[prost(message, optional, tag = "5")]
    attempt: Option<OpenAttempt>,
    /// The attempt before.
    #[prost(uint32, optional, tag = "6")]
    last: Option<u32>,
    #[prost(fixed64, tag = "7")]
    waits_since: u64,
    #[prost(string, tag = "8")]
    reason: String,
    /// When the hour began in which attempts are counted.
    #[prost(fixed64, tag = "9")]
    hour: u64,
    /// Attempts since then.
    #[prost(uint32, tag = "10")]
    attempts: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OpenAttempt {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(fixed64, tag = "2")]
    began: u64,
    #[prost(fixed64, tag = "3")]
    started: u64,
    #[prost(fixed64, tag = "4")]
    kill_requested: u64,
    /// Why it could not be started.
    #[prost(string, tag = "5")]
    failure: String,
    /// It is one of too many: its span has no children.
    #[prost(bool, tag = "6")]
    is_brief: bool,
    /// Children that were left out.
    #[prost(uint32, tag = "7")]
    omitted: u32,
}

/// So many attempts of a task in an hour have children.
const DETAILED: u32 = 5;
const HOUR: u64 = 3_600 * 1_000_000_000;

/// In which trace a span is, and on which resource.
#[derive(Clone, Copy)]
enum TraceBranch {
    /// That of the alloc.
    Alloc,
    /// A task, in the trace of its alloc.
    Task,
    Attempt(u32),
}

/// A span, and whose it is: a task's, or the alloc's itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MadeSpan {
    pub alloc: AllocId,
    pub task: Option<TaskName>,
    pub span: Span,
}

/// Concurrency: one owner.
pub(super) struct Traces {
    log: KeyedLog,
}

/// What one event makes.
struct EventSpans<'e> {
    event: &'e Event,
    alloc: &'e AllocId,
    task: &'e TaskName,
    made: Vec<MadeSpan>,
}

impl Traces {
    pub fn open(path: &Path) -> Traces {
        let (log, _) = KeyedLog::open(path);
        Traces { log }
    }

    /// Hears events in their order, those that it heard before as well. `known`: the alloc as it was shown after them.
    /// Gives the spans that end with each; nothing of it is kept before [`Traces::keep`].
    pub fn observe<'v>(
        &self,
        events: &[Arc<Event>],
        known: impl Fn(&AllocId) -> Option<&'v AllocView>,
    ) -> (Vec<(u64, MadeSpan)>, TraceNotes) {
        let mut notes = TraceNotes::default();
        let mut made = Vec::new();
        for event in events {
            let (Some(alloc), Some(task)) = (&event.alloc_id, &event.task) else { continue };
            let key = u128::from_be_bytes(TraceId::of(alloc).0);
            let retained = || self.log.get(key).and_then(|value| OpenTrace::decode(value).ok());
            let at = notes.0.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                let new = || OpenTrace { alloc: alloc.to_string(), ..OpenTrace::default() };
                notes.0.push((key, retained().unwrap_or_else(new)));
                notes.0.len() - 1
            });
            let open = &mut notes.0[at].1;
            if event.seq <= open.seq {
                continue;
            }
            open.seq = event.seq;
            let mut received = EventSpans { event, alloc, task, made: Vec::new() };
            received.happened(open, known(alloc));
            made.extend(received.made.into_iter().map(|span| (event.seq, span)));
        }
        (made, notes)
    }

    /// What was heard is durable when it returns. `is_known`: allocs that have ended and are not known any more are
    /// forgotten.
    pub fn keep(&mut self, destination: &str, notes: TraceNotes, is_known: impl Fn(&AllocId) -> bool) {
        let removed = self.log.values().filter_map(|(key, value)| {
            let open = OpenTrace::decode(value).ok()?;
            (open.has_ended && !is_known(&open.alloc.as_str().into())).then_some((key, None))
        });
        let mut changes: Vec<_> = removed.collect();
        changes.extend(notes.0.into_iter().map(|(key, open)| (key, Some(open.encode_to_vec()))));
        if changes.is_empty() {
            return;
        }
        if let Err(error) = self.log.commit(&changes) {
            tracing::error!(destination, error = error.to_string(), "failed to persist open traces");
        }
    }
}

/// What was heard of allocs.
#[derive(Default)]
pub(super) struct TraceNotes(Vec<(u128, OpenTrace)>);

fn of_task(alloc: &AllocId, task: &TaskName, life: u32) -> SpanId {
    SpanId::of(alloc, &["task", task.as_str(), &life.to_string()])
}

impl EventSpans<'_> {
    fn happened(&mut self, open: &mut OpenTrace, known: Option<&AllocView>) {
        use EventKind::{
            DriverFailure, FailedRestore, FailedValidation, Killed, Killing, NotRestarting, Received, RestartSignaled,
            Restarting, SetupFailure, Started, TaskSetup, Terminated,
        };
        let at = self.event.time.0;
        if open.began == 0 {
            let made = known.and_then(|alloc| alloc.identity.created_at).map_or(0, |made| made.0);
            open.began = if made > 0 { made.min(at) } else { at };
            if self.event.kind == Received {
                self.span(TraceBranch::Alloc, "submit", SpanId::submit(self.alloc), None, (open.began, at), Vec::new());
            }
        }
        let place = open.tasks.iter().position(|task| task.name == self.task.as_str()).unwrap_or_else(|| {
            open.tasks.push(OpenTaskSpan {
                name: self.task.to_string(),
                began: at,
                life: open.life,
                ..OpenTaskSpan::default()
            });
            open.tasks.len() - 1
        });
        if matches!(self.event.kind, RestartSignaled | TaskSetup) && open.tasks[place].has_ended {
            // All its tasks begin again.
            if std::mem::take(&mut open.has_ended) {
                (open.life, open.began) = (open.life + 1, at);
            }
            let task = &mut open.tasks[place];
            (task.has_ended, task.began, task.life) = (false, at, open.life);
        }
        if self.event.kind == TaskSetup {
            self.prerun();
        }
        let task = &mut open.tasks[place];
        match self.event.kind {
            TaskSetup => self.begins(task),
            Started => self.starts(task),
            Killing => {
                if let Some(attempt) = task.attempt.as_mut().filter(|attempt| attempt.kill_requested == 0) {
                    attempt.kill_requested = at;
                }
            }
            Terminated => self.ends(task),
            DriverFailure | SetupFailure | FailedValidation => {
                if let Some(attempt) = &mut task.attempt {
                    attempt.failure.clone_from(&self.event.message);
                }
            }
            FailedRestore => {
                if let Some(attempt) = &mut task.attempt {
                    attempt.failure.clone_from(&self.event.message);
                }
                self.ends(task);
            }
            NotRestarting | Killed => self.ends(task),
            Restarting => {
                self.ends(task);
                task.waits_since = at;
                task.reason = self.event.details.get("reason").cloned().unwrap_or_default();
            }
            // They are in the log of their time, and begin and end nothing.
            _ => {}
        }
        self.last_of(open, place, known);
    }

    /// The alloc's own hooks, whose times are in the first event behind them.
    fn prerun(&mut self) {
        let Some(over) = self.event.details.get("alloc_hooks_over_ns").and_then(|at| at.parse::<u64>().ok()) else {
            return;
        };
        let hooks = hook_times(self.event, "alloc_hooks");
        let mut from = over.saturating_sub(hooks.iter().map(|(_, took)| took).sum());
        // They run again with the next agent, if a task of it begins then.
        let at = over.to_string();
        let all = SpanId::of(self.alloc, &["prerun", &at]);
        self.span(TraceBranch::Alloc, "prerun", all, Some(SpanId::submit(self.alloc)), (from, over), Vec::new());
        for (name, took) in hooks {
            let to = from.saturating_add(took);
            let id = SpanId::of(self.alloc, &["prerun", &at, name]);
            self.span(TraceBranch::Alloc, &format!("hook {name}"), id, Some(all), (from, to), Vec::new());
            from = to;
        }
    }

    fn begins(&mut self, task: &mut OpenTaskSpan) {
        let reported = self.event.details.get("attempt").and_then(|number| number.parse().ok());
        if reported.is_some() && task.attempt.as_ref().map(|attempt| attempt.number) == reported {
            // The agent was killed before it ran: the next one sets the same attempt up.
            return;
        }
        self.ends(task);
        let at = self.event.time.0;
        let number = reported.unwrap_or_else(|| task.last.map_or(0, |last| last + 1));
        // The clock may have been set back.
        if task.hour == 0 || at.saturating_sub(task.hour) >= HOUR {
            (task.hour, task.attempts) = (at, 0);
        }
        task.attempts = task.attempts.saturating_add(1);
        let mut attempt =
            OpenAttempt { number, began: at, is_brief: task.attempts > DETAILED, ..OpenAttempt::default() };
        let since = std::mem::take(&mut task.waits_since);
        if since > 0 {
            attempt.began = since.min(at);
            let id = SpanId::of(self.alloc, &["task", self.task.as_str(), "backoff", &number.to_string()]);
            let reason = key_value("allostat.restart.reason", &task.reason);
            let parent = SpanId::attempt(self.alloc, self.task, number);
            self.child(&mut attempt, "backoff", id, parent, (since, at), vec![reason]);
        }
        task.attempt = Some(attempt);
    }

    /// Its event says how long each part of the start took, which it ends.
    fn starts(&mut self, task: &mut OpenTaskSpan) {
        let Some(attempt) = &mut task.attempt else { return };
        let at = self.event.time.0;
        attempt.started = at;
        let took = |name: &str| self.event.details.get(&format!("{name}_ns")).and_then(|ns| ns.parse::<u64>().ok());
        let (Some(prestart), Some(setup), Some(driver)) = (took("prestart"), took("setup"), took("driver")) else {
            return;
        };
        let hooks = hook_times(self.event, "hooks");
        let number = attempt.number.to_string();
        let place = |rest: &[&str]| -> SpanId {
            let words = [&["task", self.task.as_str(), "attempt", &number], rest].concat();
            SpanId::of(self.alloc, &words)
        };
        // Durations and the clock differ by some microseconds, and no part begins before the whole.
        let began = |before: u64| at.saturating_sub(before).max(task.began.min(at));
        let marks = [began(driver + setup + prestart), began(driver + setup), began(driver), at];
        // The event that it begins with comes when its first hooks have run.
        attempt.began = attempt.began.min(marks[0]);
        let (start, own) = (place(&["start"]), place(&[]));
        let first = place(&["start", "prestart"]);
        let mut spans = vec![
            ("start".to_owned(), start, own, (marks[0], at)),
            ("prestart".to_owned(), first, start, (marks[0], marks[1])),
        ];
        let mut from = marks[0];
        for (name, took) in hooks {
            let to = from.saturating_add(took).min(marks[1]);
            spans.push((format!("hook {name}"), place(&["start", "prestart", name]), first, (from, to)));
            from = to;
        }
        spans.push(("setup".to_owned(), place(&["start", "setup"]), start, (marks[1], marks[2])));
        spans.push(("driver".to_owned(), place(&["start", "driver"]), start, (marks[2], at)));
        for (name, id, parent, times) in spans {
            self.child(attempt, &name, id, parent, times, Vec::new());
        }
    }

    /// The attempt, if there is one.
    fn ends(&mut self, task: &mut OpenTaskSpan) {
        let Some(mut attempt) = task.attempt.take() else { return };
        let at = self.event.time.0;
        let (id, number) = (SpanId::attempt(self.alloc, self.task, attempt.number), attempt.number.to_string());
        let (alloc, task_name) = (self.alloc, self.task);
        let part = |name: &str| SpanId::of(alloc, &["task", task_name.as_str(), "attempt", &number, name]);
        if attempt.started > 0 {
            let requested =
                if attempt.kill_requested > 0 { attempt.kill_requested.clamp(attempt.started, at) } else { at };
            let started = attempt.started;
            self.child(&mut attempt, "running", part("running"), id, (started, requested), Vec::new());
            if attempt.kill_requested > 0 {
                self.child(&mut attempt, "kill", part("kill"), id, (requested, at), Vec::new());
            }
        }
        let mut attributes = vec![int("allostat.task.attempt", attempt.number.into())];
        if attempt.omitted > 0 {
            attributes.push(int("allostat.spans.omitted", attempt.omitted.into()));
        }
        let mut failure = attempt.failure;
        if self.event.kind == EventKind::Terminated {
            attributes.extend(details(self.event).filter(|detail| detail.key != "allostat.task.attempt"));
            let outcome = self.event.details.get("outcome").and_then(|word| Outcome::parse(word));
            failure = match outcome {
                Some(Outcome::Success | Outcome::Killed) => String::new(),
                _ => self.event.message.clone(),
            };
        }
        let link = |trace: TraceId, span: SpanId, attributes| Link {
            trace_id: trace.0.to_vec(),
            span_id: span.0.to_vec(),
            attributes,
            flags: SAMPLED,
            ..Link::default()
        };
        let mut links = Vec::new();
        if let Some(last) = task.last.replace(attempt.number) {
            let before = SpanId::attempt(self.alloc, self.task, last);
            let reason = std::mem::take(&mut task.reason);
            let attributes =
                if reason.is_empty() { vec![] } else { vec![key_value("allostat.restart.reason", &reason)] };
            links.push(link(TraceId::attempt(self.alloc, self.task, last), before, attributes));
        }
        links.push(link(TraceId::of(self.alloc), SpanId::submit(self.alloc), Vec::new()));
        let branch = TraceBranch::Attempt(attempt.number);
        let span = self.span(branch, "attempt", id, None, (attempt.began, at), attributes);
        span.links = links;
        if !failure.is_empty() {
            span.status = Some(Status { message: failure, code: StatusCode::Error.into() });
        }
    }

    /// With its last event a task ends, and with the last one of all tasks the alloc.
    fn last_of(&mut self, open: &mut OpenTrace, place: usize, known: Option<&AllocView>) {
        let Some(status) = known.and_then(|alloc| alloc.status.as_ref()) else { return };
        let last = |name: &str| {
            let of = status.tasks.iter().find(|task| task.name.as_str() == name)?;
            let seq = of.events.back()?.seq;
            Some((of, seq))
        };
        let Some((of, _)) =
            last(self.task.as_str()).filter(|(of, seq)| of.state == TaskState::Dead && *seq == self.event.seq)
        else {
            return;
        };
        let at = self.event.time.0;
        let task = &mut open.tasks[place];
        self.ends(task);
        if !std::mem::replace(&mut task.has_ended, true) {
            let id = of_task(self.alloc, self.task, task.life);
            let parent = SpanId::alloc(self.alloc, task.life);
            let attributes = vec![int("allostat.task.restarts", of.restarts.iter().sum())];
            let (is_failed, why) = (of.failed, self.event.message.clone());
            let span = self.span(TraceBranch::Task, "task", id, Some(parent), (task.began, at), attributes);
            if is_failed {
                span.status = Some(Status { message: why, code: StatusCode::Error.into() });
            }
        }
        let newest = status.tasks.iter().filter_map(|task| task.events.back()).map(|event| event.seq).max();
        if status.finished_at.is_none() || newest != Some(self.event.seq) || open.has_ended {
            return;
        }
        open.has_ended = true;
        let id = SpanId::alloc(self.alloc, open.life);
        let attributes = vec![key_value("allostat.alloc.state", status.state.as_str())];
        let is_failed = status.tasks.iter().any(|task| task.failed);
        let parent = Some(SpanId::submit(self.alloc));
        let span = self.span(TraceBranch::Alloc, "alloc", id, parent, (open.began, at), attributes);
        if is_failed {
            span.status = Some(Status { message: status.description().into_owned(), code: StatusCode::Error.into() });
        }
    }

    /// A span below that of an attempt, if that one has children.
    fn child(
        &mut self,
        attempt: &mut OpenAttempt,
        name: &str,
        id: SpanId,
        parent: SpanId,
        times: (u64, u64),
        attributes: Vec<KeyValue>,
    ) {
        if attempt.is_brief {
            attempt.omitted += 1;
        } else {
            self.span(TraceBranch::Attempt(attempt.number), name, id, Some(parent), times, attributes);
        }
    }

    fn span(
        &mut self,
        branch: TraceBranch,
        name: &str,
        id: SpanId,
        parent: Option<SpanId>,
        (start, end): (u64, u64),
        attributes: Vec<KeyValue>,
    ) -> &mut Span {
        let (trace, task) = match branch {
            TraceBranch::Alloc => (TraceId::of(self.alloc), None),
            TraceBranch::Task => (TraceId::of(self.alloc), Some(self.task.clone())),
            TraceBranch::Attempt(number) => (TraceId::attempt(self.alloc, self.task, number), Some(self.task.clone())),
        };
        let span = Span {
            trace_id: trace.0.to_vec(),
            span_id: id.0.to_vec(),
            parent_span_id: parent.map_or_else(Vec::new, |parent| parent.0.to_vec()),
            flags: SAMPLED,
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: start,
            // The clock may have been set back.
            end_time_unix_nano: end.max(start),
            attributes,
            ..Span::default()
        };
        self.made.push(MadeSpan { alloc: self.alloc.clone(), task, span });
        &mut self.made.last_mut().expect("it was pushed").span
    }
}

/// `env=1200 devices=800`; what is not said so is left out.
fn hook_times<'e>(event: &'e Event, detail: &str) -> Vec<(&'e str, u64)> {
    let pairs = event.details.get(detail).into_iter().flat_map(|all| all.split(' '));
    pairs.filter_map(|pair| pair.split_once('=')).filter_map(|(name, took)| Some((name, took.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::units::Timestamp;

    const ALLOC: &str = "6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61";

    fn event(seq: u64, kind: EventKind, details: &[(&str, &str)]) -> Arc<Event> {
        Arc::new(Event {
            seq,
            task_seq: seq,
            time: Timestamp(seq * 100),
            kind,
            workload: Some("j".into()),
            alloc_id: Some(ALLOC.into()),
            task: Some("t".into()),
            message: format!("{} {seq}", kind.label()),
            details: details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            fails_task: false,
        })
    }

    /// Name, start and end of what these events make, heard one batch after the other by one agent each.
    fn made(dir: &Path, batches: &[&[Arc<Event>]]) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        for events in batches {
            let mut traces = Traces::open(&dir.join("open"));
            let (made, notes) = traces.observe(events, |_| None);
            traces.keep("c", notes, |_| true);
            all.extend(made.into_iter().map(|(_, made)| made.span));
        }
        all.into_iter().map(|span| (span.name, span.start_time_unix_nano, span.end_time_unix_nano)).collect()
    }

    fn life() -> Vec<Arc<Event>> {
        use EventKind::{DriverFailure, Killed, Killing, Received, Restarting, Started, TaskSetup, Terminated};
        let took =
            [("attempt", "1"), ("hooks", "env=5 odd"), ("prestart_ns", "70"), ("setup_ns", "20"), ("driver_ns", "30")];
        let end = [("attempt", "1"), ("outcome", "killed"), ("signal", "15")];
        vec![
            event(1, Received, &[]),
            event(
                2,
                TaskSetup,
                &[("attempt", "0"), ("alloc_hooks", "dir=20 cgroup=30"), ("alloc_hooks_over_ns", "190")],
            ),
            event(3, DriverFailure, &[("error", "no such file")]),
            event(4, Restarting, &[("reason", "start_failure")]),
            event(5, TaskSetup, &[("attempt", "1")]),
            event(6, Started, &took),
            event(7, Killing, &[]),
            event(8, Terminated, &end),
            event(9, Killed, &[]),
        ]
    }

    #[test]
    fn spans_are_equal_wherever_the_agent_was_killed_and_whichever_events_are_repeated() {
        let all = life();
        let whole = made(tempfile::tempdir().unwrap().path(), &[&all]);
        let expected = [
            ("submit", 100, 100),
            ("prerun", 140, 190),
            ("hook dir", 140, 160),
            ("hook cgroup", 160, 190),
            ("attempt", 200, 400),
            ("backoff", 400, 500),
            ("start", 480, 600),
            ("prestart", 480, 550),
            ("hook env", 480, 485),
            ("setup", 550, 570),
            ("driver", 570, 600),
            ("running", 600, 700),
            ("kill", 700, 800),
            ("attempt", 400, 800),
        ];
        assert_eq!(whole, expected.map(|(name, from, to)| (name.to_owned(), from, to)));
        for cut in 0..all.len() {
            for again in 0..=cut {
                let dir = tempfile::tempdir().unwrap();
                assert_eq!(
                    made(dir.path(), &[&all[..cut], &all[again..]]),
                    whole,
                    "killed after {cut}, heard from {again}"
                );
            }
        }
    }

    /// As the events are where the agent is killed between both, which are in the record of the task.
    #[test]
    fn an_attempt_that_is_set_up_twice_is_one_attempt() {
        let set_up = |seq| event(seq, EventKind::TaskSetup, &[("attempt", "0")]);
        let all = [set_up(1), set_up(2), event(3, EventKind::Started, &[]), event(4, EventKind::Terminated, &[])];
        let dir = tempfile::tempdir().unwrap();
        let spans = made(dir.path(), &[&all]);
        assert_eq!(spans, [("running", 300, 400), ("attempt", 100, 400)].map(|(n, f, t)| (n.to_owned(), f, t)));
    }

    #[test]
    fn failed_start_attempt_has_its_reason_and_the_next_attempt_links_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (made, _) = Traces::open(dir.path()).observe(&life(), |_| None);
        let attempts: Vec<Span> =
            made.into_iter().map(|(_, made)| made.span).filter(|span| span.name == "attempt").collect();
        let status = attempts[0].status.as_ref().unwrap();
        assert_eq!((status.code, status.message.as_str()), (2, "driver_failure 3"));
        assert_eq!(attempts[1].status, None, "it was asked to end");
        let links = |of: &Span| of.links.iter().map(|link| link.span_id.clone()).collect::<Vec<_>>();
        let submit = SpanId::submit(&ALLOC.into()).0.to_vec();
        assert_eq!(links(&attempts[0]), std::slice::from_ref(&submit));
        assert_eq!(links(&attempts[1]), [attempts[0].span_id.clone(), submit]);
        assert_eq!(attempts[1].links[0].trace_id, attempts[0].trace_id);
        assert!(attempts.iter().all(|span| span.parent_span_id.is_empty()), "each is the root of its trace");
        assert_ne!(attempts[0].trace_id, attempts[1].trace_id);
    }

    /// 400 attempts in 40 minutes, then one an hour later; the agent is killed in the middle.
    #[test]
    fn crash_loop_has_few_spans_with_children_and_each_trace_is_bounded() {
        use EventKind::{Received, Restarting, Started, TaskSetup, Terminated};
        const MINUTE: u64 = 60_000_000_000;
        let (mut all, mut seq) = (vec![event(1, Received, &[])], 1);
        let mut push = |kind, attempt: u32, time: u64| {
            seq += 1;
            let number = attempt.to_string();
            let took = [
                ("attempt", number.as_str()),
                ("hooks", "env=5"),
                ("prestart_ns", "7"),
                ("setup_ns", "2"),
                ("driver_ns", "3"),
            ];
            let details: &[(&str, &str)] = if kind == Restarting { &[("reason", "policy")] } else { &took };
            let known = Event { time: Timestamp(time), ..(*event(seq, kind, details)).clone() };
            all.push(Arc::new(known));
        };
        for attempt in 0..400 {
            let at = 100 + u64::from(attempt) * MINUTE / 10;
            for (step, kind) in [TaskSetup, Started, Terminated, Restarting].into_iter().enumerate() {
                push(kind, attempt, at + 10 * step as u64);
            }
        }
        for (step, kind) in [TaskSetup, Started, Terminated].into_iter().enumerate() {
            push(kind, 400, 200 * MINUTE + 10 * step as u64);
        }
        let dir = tempfile::tempdir().unwrap();
        let mut made = Vec::new();
        for events in all.chunks(777) {
            let mut traces = Traces::open(&dir.path().join("open"));
            let (spans, notes) = traces.observe(events, |_| None);
            traces.keep("c", notes, |_| true);
            made.extend(spans.into_iter().map(|(_, made)| made.span));
        }
        let mut traces: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
        for span in made {
            traces.entry(span.trace_id.clone()).or_default().push(span);
        }
        assert_eq!(traces.len(), 1 + 401, "one of the alloc, one of each attempt");
        assert!(traces.values().all(|spans| spans.iter().filter(|span| span.parent_span_id.is_empty()).count() == 1));
        let mut detailed: Vec<usize> = traces.values().map(Vec::len).filter(|count| *count > 1).collect();
        detailed.sort_unstable();
        // The first one has no backoff.
        assert_eq!(detailed, [7, 8, 8, 8, 8, 8]);
        let omitted = |span: &Span| span.attributes.iter().any(|attribute| attribute.key == "allostat.spans.omitted");
        assert_eq!(traces.values().flatten().filter(|span| omitted(span)).count(), 395);
    }

    /// The events before are not there any more, or traces were disabled then.
    #[test]
    fn span_with_an_unknown_start_is_left_out() {
        let all = life();
        for from in 0..all.len() {
            let dir = tempfile::tempdir().unwrap();
            let spans = made(dir.path(), &[&all[from..]]);
            assert!(spans.iter().all(|(_, from, to)| *from > 0 && from <= to), "{spans:?}");
        }
    }
}
