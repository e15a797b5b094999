//! What happens, as logs and traces: every event once, every alloc one tree, over kills of the agent too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::limit;
use super::receiver::{Reaction, Receiver, Request, plain};
use crate::common::{Agent, AgentOptions, unix, wait_for};

const ON: [(&str, &str); 2] = [("OTEL_LOGS_EXPORTER", "otlp"), ("OTEL_TRACES_EXPORTER", "otlp")];

/// Fails as often as it may, and then for good.
fn failing(restarts: u32) -> String {
    format!(
        "job \"falls\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts = 0\n unlimited = false\n }}\n restart {{\n attempts = {restarts}\n interval = \"1h\"\n delay = \"200ms\"\n \
         mode = \"fail\"\n }}\n task \"t\" {{\n driver = \"raw_exec\"\n traceparent = true\n config {{\n command = \"/bin/sh\"\n args = \
         [\"-c\", \"echo $TRACEPARENT; sleep 0.1; exit 3\"]\n }}\n }}\n }}\n}}\n"
    )
}

pub fn text(of: &[KeyValue], name: &str) -> String {
    let value = of.iter().find(|attribute| attribute.key == name).and_then(|a| a.value.as_ref()?.value.clone());
    match value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(n)) => n.to_string(),
        other => panic!("{name} is {other:?}"),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Each batch once, and how many came again.
fn once(receiver: &Receiver, path: &str) -> (Vec<Request>, usize) {
    let (mut once, all): (Vec<Request>, _) = (Vec::new(), receiver.of(path));
    let count = all.len();
    for request in all {
        if !once.iter().any(|known| known.body == request.body) {
            once.push(request);
        }
    }
    let again = count - once.len();
    (once, again)
}

/// Those of events of this agent.
fn records(receiver: &Receiver) -> Vec<(String, LogRecord)> {
    let is_event = |record: &LogRecord| record.attributes.iter().any(|of| of.key == "allostat.event.id");
    all_records(receiver).into_iter().filter(|(_, record)| is_event(record)).collect()
}

/// With the instance of their resource.
pub fn all_records(receiver: &Receiver) -> Vec<(String, LogRecord)> {
    let requests = once(receiver, "/v1/logs").0.into_iter();
    let requests = requests.map(|r| ExportLogsServiceRequest::decode(r.plain().as_slice()).expect("logs"));
    let resources = requests.flat_map(|request| request.resource_logs);
    let records = resources.flat_map(|of| {
        let owner = text(&of.resource.expect("a resource").attributes, "service.instance.id");
        let records = of.scope_logs.into_iter().flat_map(|scope| scope.log_records);
        records.map(|record| (owner.clone(), record)).collect::<Vec<_>>()
    });
    records.collect()
}

fn spans(receiver: &Receiver) -> Vec<(String, Span)> {
    let requests = once(receiver, "/v1/traces").0.into_iter();
    let requests = requests.map(|r| ExportTraceServiceRequest::decode(r.plain().as_slice()).expect("traces"));
    let resources = requests.flat_map(|request| request.resource_spans);
    let spans = resources.flat_map(|of| {
        let owner = text(&of.resource.expect("a resource").attributes, "service.instance.id");
        let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(|span| (owner.clone(), span)).collect::<Vec<_>>()
    });
    spans.collect()
}

/// Trace and span of each exemplar of a histogram.
fn exemplars(receiver: &Receiver) -> Vec<(Vec<u8>, Vec<u8>)> {
    let requests = receiver.of("/v1/metrics");
    let metrics = requests.iter().flat_map(|request| request.decoded().resource_metrics);
    let metrics = metrics.flat_map(|of| of.scope_metrics).flat_map(|scope| scope.metrics);
    let points = metrics.flat_map(|metric| match metric.data {
        Some(metric::Data::Histogram(histogram)) => histogram.data_points,
        _ => Vec::new(),
    });
    points.flat_map(|point| point.exemplars).map(|of| (of.trace_id, of.span_id)).collect()
}

fn number(record: &LogRecord) -> u64 {
    text(&record.attributes, "allostat.event.id").parse().expect("a number")
}

/// As the document draws it: the trace of the alloc, then that of each attempt.
fn drawn(all: &[&Span]) -> String {
    fn name(span: &Span, all: &[&Span]) -> String {
        if span.name != "attempt" {
            return span.name.clone();
        }
        let own = format!("attempt {}", text(&span.attributes, "allostat.task.attempt"));
        let linked = span.links.iter().map(|link| {
            let is_it = |of: &&&Span| of.span_id == link.span_id && of.trace_id == link.trace_id;
            all.iter().find(is_it).expect("a linked span is there")
        });
        let names: Vec<_> = linked.map(|of| name(&Span { links: vec![], ..(**of).clone() }, all)).collect();
        if names.is_empty() { own } else { format!("{own}, links to {}", names.join(" and ")) }
    }
    fn below(parent: &[u8], indent: &str, all: &[&Span], out: &mut String) {
        let mut children: Vec<_> = all.iter().filter(|span| span.parent_span_id == parent).collect();
        children.sort_by_key(|span| span.start_time_unix_nano);
        for (at, child) in children.iter().enumerate() {
            let (branch, more) = if at + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            *out += &format!("{indent}{branch}{}\n", name(child, all));
            below(&child.span_id, &format!("{indent}{more}"), all, out);
        }
    }
    let mut traces: Vec<&[u8]> = all.iter().map(|span| span.trace_id.as_slice()).collect();
    traces.sort_unstable();
    traces.dedup();
    let mut roots: Vec<_> = all.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(roots.len(), traces.len(), "each trace has one root: {roots:?}");
    roots.sort_by_key(|span| span.start_time_unix_nano);
    let trees = roots.iter().map(|root| {
        let mut out = format!("{}\n", name(root, all));
        let own: Vec<&Span> = all.iter().filter(|span| span.trace_id == root.trace_id).copied().collect();
        below(&root.span_id, "", &own, &mut out);
        out
    });
    trees.collect::<Vec<_>>().join("\n")
}

/// Promise (Measured values): Each event is one OTLP log record, each alloc and attempt one trace: the trees in
/// `docs/otlp.md`
/// Promise (Measured values): A task with `traceparent` finds its attempt's span in `TRACEPARENT`; exemplars lead to
/// the trace of their alloc
#[test]
fn alloc_with_a_restart_has_the_documented_traces_and_a_record_per_event() {
    let receiver = Receiver::start(|_, _| plain(200));
    let agent = Agent::with(AgentOptions { env: receiver.env(&ON), ..AgentOptions::default() });
    agent.run(&failing(1));
    let id = agent.alloc_ids()[0].clone();
    let trace = id.replace('-', "");
    wait_for("the whole alloc", limit(), || {
        spans(&receiver).iter().any(|(_, span)| span.name == "alloc").then_some(())
    });
    let all = spans(&receiver);
    let of_alloc = [
        "submit",
        "alloc",
        "task",
        "prerun",
        "hook migrate",
        "hook migrate_remote",
        "hook ports",
        "hook cgroup",
        "hook network",
        "hook stats",
    ];
    for (_, span) in &all {
        let is_of_alloc = of_alloc.contains(&span.name.as_str());
        assert_eq!(hex(&span.trace_id) == trace, is_of_alloc, "the trace of an alloc is its ID: {}", span.name);
    }
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/otlp.md")).unwrap();
    let drawing =
        document.split("```text\nsubmit\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a drawing");
    assert_eq!(drawn(&all.iter().map(|(_, span)| span).collect::<Vec<_>>()), format!("submit\n{drawing}"));
    for (owner, span) in &all {
        let is_of_alloc = of_alloc.contains(&span.name.as_str()) && span.name != "task";
        let expected = if is_of_alloc { id.clone() } else { format!("{id}/t") };
        assert_eq!(*owner, expected, "{}", span.name);
        // What follows the submission is later than it.
        let parent = all.iter().map(|(_, of)| of).find(|of| of.span_id == span.parent_span_id && of.name != "submit");
        let is_within = |of: &Span| {
            of.start_time_unix_nano <= span.start_time_unix_nano && span.end_time_unix_nano <= of.end_time_unix_nano
        };
        assert!(parent.is_none_or(is_within), "{} in {parent:?}", span.name);
        let is_error = span.status.as_ref().is_some_and(|status| status.code == 2);
        assert_eq!(is_error, ["attempt", "task", "alloc"].contains(&span.name.as_str()), "{}", span.name);
        let has_reason = span.status.as_ref().is_some_and(|status| !status.message.is_empty());
        assert_eq!(has_reason, is_error, "{}: {:?}", span.name, span.status);
    }
    // The task has its place in its environment.
    let attempts: Vec<&Span> = all.iter().map(|(_, span)| span).filter(|span| span.name == "attempt").collect();
    let log = agent.request("GET", &format!("/v1/allocs/{id}/logs/t?stream=stdout"), "");
    let expected: Vec<String> =
        attempts.iter().map(|span| format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))).collect();
    assert_eq!(log.text().lines().collect::<Vec<_>>(), expected);

    let events = agent.json("/v1/events?since=0");
    let events = events["events"].as_array().unwrap();
    let records = wait_for("each event as a record", limit(), || {
        Some(records(&receiver)).filter(|records| records.len() >= events.len())
    });
    let numbers: Vec<u64> = records.iter().map(|(_, record)| number(record)).collect();
    assert_eq!(numbers, events.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>());
    for ((owner, record), event) in records.iter().zip(events) {
        assert_eq!(*owner, format!("{id}/t"));
        let attempt = attempts.iter().find(|span| span.span_id == record.span_id);
        let expected = attempt.map_or(trace.clone(), |span| hex(&span.trace_id));
        assert_eq!((hex(&record.trace_id), attempt.is_some()), (expected, !record.span_id.is_empty()));
        assert!(record.event_name.starts_with("allostat.task."));
        let body = record.body.clone().and_then(|body| body.value);
        assert_eq!(body, Some(any_value::Value::StringValue(event["message"].as_str().unwrap().to_owned())));
    }
    let hooks = records.iter().find(|(_, record)| record.event_name == "allostat.task.started").map(|(_, record)| {
        let hooks =
            record.attributes.iter().find(|of| of.key == "allostat.hooks").and_then(|of| of.value.clone()?.value);
        let Some(any_value::Value::KvlistValue(hooks)) = hooks else { panic!("{hooks:?} is no map") };
        hooks.values.into_iter().map(|of| of.key).collect::<Vec<_>>()
    });
    assert!(hooks.is_some_and(|hooks| hooks.contains(&"env".to_owned())), "details are typed");
    let exits = records.iter().filter(|(_, record)| record.event_name == "allostat.task.terminated");
    for ((_, exit), attempt) in exits.zip(&attempts) {
        assert_eq!((text(&exit.attributes, "process.exit.code").as_str(), exit.severity_text.as_str()), ("3", "WARN"));
        assert_eq!(exit.span_id, attempt.span_id);
    }
    // From a histogram to the trace.
    let accept = [("Accept", "application/openmetrics-text")];
    let body = unix(&agent.socket(), "GET", "/metrics", &accept, b"").unwrap();
    assert!(body.text().contains(&format!("trace_id=\"{trace}\"")), "an exemplar leads to it");
    let accept = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    let body = unix(&agent.socket(), "GET", "/metrics", &[("Accept", accept)], b"").unwrap().body;
    // Fields 1 and 2 of its label: name and value, each behind its length.
    let label = [&b"\x0a\x08trace_id\x12\x20"[..], trace.as_bytes()].concat();
    assert!(body.windows(label.len()).any(|bytes| bytes == label), "one in protobuf too");
    let root = all.iter().find(|(_, span)| span.name == "submit").map(|(_, span)| hex(&span.span_id));
    let led_to = wait_for("points with exemplars", limit(), || {
        let led_to: BTreeSet<_> =
            exemplars(&receiver).into_iter().map(|(trace, span)| (hex(&trace), hex(&span))).collect();
        (!led_to.is_empty()).then_some(led_to)
    });
    assert_eq!(led_to, BTreeSet::from([(trace.clone(), root.expect("an alloc has a root"))]), "and each one of OTLP");
    // The books of each signal.
    let body = agent.metrics();
    for (signal, count) in [("logs", records.len()), ("traces", all.len())] {
        let of = |what: &str| body.u64(&format!("allostat_otlp_points_{what}_total"), &[("signal", signal)]);
        let answers: u64 =
            body.all("allostat_otlp_requests_total", &[("signal", signal)]).iter().map(|s| s.u64()).sum();
        let timed = body.u64("allostat_otlp_request_duration_seconds_count", &[("signal", signal)]);
        assert!(answers > 0 && timed == answers, "{signal}: {answers} answers, {timed} timed");
        assert_eq!((of("enqueued"), of("exported"), of("rejected")), (count as u64, count as u64, 0), "{signal}");
    }
    agent.stop();
}

/// While the collector is there and while it is not: what the agent had not queued yet is made by the next one.
/// Collectors that take metrics and nothing else answer 404 to the rest.
///
/// Promise (Measured values): A permanent refusal by a collector is reported with its signal; the span of a failed task
/// has the reason
#[test]
fn refusal_of_a_collector_is_logged_with_its_signal() {
    let receiver = Receiver::start(|_, request| match request.path.as_str() {
        "/v1/logs" => Reaction::Answer(404, Vec::new(), b"no pipeline for logs".to_vec()),
        _ => plain(200),
    });
    let agent = Agent::with(AgentOptions { env: receiver.env(&ON), ..AgentOptions::default() });
    agent.run(&failing(0));
    let line = wait_for("what the log says of it", limit(), || {
        let log = agent.log();
        let is_it =
            |line: &&str| line.contains("collector rejected points; they are dropped") && line.contains("\"logs\"");
        log.lines().find(is_it).map(str::to_owned)
    });
    assert!(line.contains("signal=\"logs\"") && line.contains("404: no pipeline for logs"), "{line}");
    agent.stop();
}

/// Promise (Measured values): Killed between events, the agent sends each event and each span once; only batches in
/// flight are repeated
#[test]
fn agent_killed_between_events_exports_each_event_and_each_span_once() {
    const KILLS: usize = 4;
    let receiver = Receiver::start(|n, _| plain(if n % 7 == 3 { 503 } else { 200 }));
    let mut agent = Agent::with(AgentOptions { env: receiver.env(&ON), ..AgentOptions::default() });
    agent.run(&failing(8));
    let id = agent.alloc_ids()[0].clone();
    for kill in 0..KILLS {
        let before = records(&receiver).len();
        wait_for("more records", limit(), || (records(&receiver).len() > before + 2).then_some(()));
        std::thread::sleep(Duration::from_millis(37 * kill as u64));
        agent.kill();
        agent.start_again();
    }
    wait_for("the whole alloc", limit(), || {
        spans(&receiver).iter().any(|(_, span)| span.name == "alloc").then_some(())
    });
    let records = wait_for("its last record", limit(), || {
        let records = records(&receiver);
        records.iter().any(|(_, record)| record.event_name == "allostat.task.not_restarting").then_some(records)
    });
    let expected: BTreeMap<String, u64> = {
        let counts = &agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["event_counts"];
        serde_json::from_value(counts.clone()).unwrap_or_else(|_| panic!("{counts}"))
    };
    agent.terminate();
    for path in ["/v1/logs", "/v1/traces"] {
        let (_, again) = once(&receiver, path);
        assert!(again <= KILLS, "{again} batches came twice to {path}");
    }
    let numbers: Vec<u64> = records.iter().map(|(_, record)| number(record)).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "each in its order, and none twice: {numbers:?}");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (_, record) in &records {
        *counts.entry(record.event_name.trim_start_matches("allostat.task.").to_owned()).or_default() += 1;
    }
    assert_eq!(counts, expected, "none is lost");
    let all = spans(&receiver);
    let made: BTreeSet<&[u8]> = all.iter().map(|(_, span)| span.span_id.as_slice()).collect();
    assert_eq!(made.len(), all.len(), "no span is made twice");
    let named = |name: &str| all.iter().filter(|(_, span)| span.name == name).count();
    // Only the first attempts of an hour have children.
    assert_eq!(["attempt", "running", "backoff", "task", "alloc", "submit"].map(named), [9, 5, 4, 1, 1, 1]);
}

/// One task, by its command.
fn job(name: &str, kind: &str, command: &str) -> String {
    format!(
        "job \"{name}\" {{\n type = \"{kind}\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \
         \"/bin/sleep\"\n args = [\"{command}\"]\n }}\n }}\n }}\n}}\n"
    )
}

/// Promise (Measured values): The trace of a service has its root from the start; the spans of a crash loop are bounded
#[test]
fn restarted_alloc_has_a_second_alloc_span_and_a_stopped_one_a_kill() {
    let receiver = Receiver::start(|_, _| plain(200));
    let agent = Agent::with(AgentOptions { env: receiver.env(&ON), ..AgentOptions::default() });
    let named = |name: &str| -> Vec<Span> {
        spans(&receiver).into_iter().map(|(_, span)| span).filter(|span| span.name == name).collect()
    };
    let ended = |count: usize| wait_for("its end", limit(), || (named("alloc").len() == count).then_some(()));
    agent.run(&job("again", "batch", "0.1"));
    let id = agent.alloc_ids()[0].clone();
    ended(1);
    agent.cli(&["restart", &id, "--all"]).ok();
    ended(2);
    let (allocs, tasks, attempts, roots) = (named("alloc"), named("task"), named("attempt"), named("submit"));
    assert_eq!((allocs.len(), tasks.len(), attempts.len(), roots.len()), (2, 2, 2, 1));
    assert!(roots[0].parent_span_id.is_empty());
    for at in 0..2 {
        assert_eq!(allocs[at].trace_id, roots[0].trace_id);
        assert_eq!(allocs[at].parent_span_id, roots[0].span_id);
        assert_eq!(tasks[at].parent_span_id, allocs[at].span_id);
        assert!(attempts[at].parent_span_id.is_empty() && attempts[at].trace_id != roots[0].trace_id);
        assert!(allocs[at].start_time_unix_nano <= attempts[at].start_time_unix_nano);
    }
    assert!(allocs[0].end_time_unix_nano <= allocs[1].start_time_unix_nano);

    agent.run(&job("serves", "service", "600"));
    let serves = wait_for("it to run", limit(), || {
        let id = agent.alloc_ids().into_iter().find(|other| *other != id)?;
        (agent.json(&format!("/v1/allocs/{id}"))["tasks"]["t"]["state"] == "running").then_some(id)
    });
    wait_for("its root while it runs", limit(), || {
        named("submit").into_iter().find(|root| hex(&root.trace_id) == serves.replace('-', ""))
    });
    agent.cli(&["stop", &serves]).ok();
    ended(3);
    let [running, kill, attempt] = ["running", "kill", "attempt"].map(|name| named(name).pop().expect("it is there"));
    assert_eq!(running.end_time_unix_nano, kill.start_time_unix_nano);
    assert_eq!(kill.end_time_unix_nano, attempt.end_time_unix_nano);
    assert!(attempt.status.is_none() && named("alloc").iter().all(|span| span.status.is_none()), "all ended well");
    agent.stop();
}

/// Whose job says nothing of it has no such variable, and whose `env` has one keeps that.
#[test]
fn traceparent_is_set_only_for_tasks_that_request_it() {
    let agent = Agent::start();
    for (id, more, expected) in [
        ("silent", "", "unset"),
        ("refuses", "traceparent = false", "unset"),
        ("own", "traceparent = true\n env {\n TRACEPARENT = \"mine\"\n }", "mine"),
    ] {
        let before = agent.alloc_ids();
        let job = failing(0).replace("falls", id).replace("traceparent = true", more);
        agent.run(&job.replace("$TRACEPARENT", "$${TRACEPARENT-unset}"));
        let alloc = agent.alloc_ids().into_iter().find(|alloc| !before.contains(alloc)).expect("it was accepted");
        let log = || agent.request("GET", &format!("/v1/allocs/{alloc}/logs/t?stream=stdout"), "");
        let line = wait_for("its line", limit(), || log().text().lines().next().map(str::to_owned));
        assert_eq!(line, expected, "{id}");
    }
    agent.stop();
}
