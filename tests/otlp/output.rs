//! Output of tasks as log records: bounded, in order, and once over kills of the agent and outages of the collector.
//!
//! Promise (Measured values): Pushed task output is bounded, in order over kills and repeats only batches in flight;
//! what is left out is counted

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use super::lifecycle::{all_records, hex, text};
use super::limit;
use super::receiver::{Receiver, plain};
use crate::common::{Agent, AgentOptions, wait_for};

const ON: [(&str, &str); 2] = [("OTEL_LOGS_EXPORTER", "otlp"), ("ALLOSTAT_OTLP_LOGS_TASKS", "stdout,stderr")];

fn job(script: &str) -> String {
    format!(
        "job \"writes\" {{\n type = \"batch\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \
         \"/bin/sh\"\n args = [\"-c\", <<EOF\n{script}\nEOF\n ]\n }}\n }}\n }}\n}}\n"
    )
}

fn body(record: &LogRecord) -> String {
    match record.body.clone().and_then(|body| body.value) {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// By stream, in the order in which they came, with their resource.
fn output(receiver: &Receiver) -> BTreeMap<String, Vec<(String, LogRecord)>> {
    let mut streams: BTreeMap<String, Vec<(String, LogRecord)>> = BTreeMap::new();
    for (owner, record) in all_records(receiver) {
        if record.attributes.iter().any(|attribute| attribute.key == "log.iostream") {
            streams.entry(text(&record.attributes, "log.iostream")).or_default().push((owner, record));
        }
    }
    streams
}

#[test]
fn output_of_tasks_is_pushed_once_and_in_order_over_kills_and_outages() {
    const LINES: usize = 600;
    let receiver = Receiver::start(|n, _| plain(if n % 5 == 2 { 503 } else { 200 }));
    let mut agent = Agent::with(AgentOptions { env: receiver.env(&ON), ..AgentOptions::default() });
    let script = format!(
        "printf 'a\\377b\\000c\\n'; n=0; while [ $n -lt {LINES} ]; do n=$((n + 1)); echo out $n; echo err $n >&2; \
         [ $((n % 20)) = 0 ] && sleep 0.2; done; printf 'no end'"
    );
    agent.run(&job(&script));
    let id = agent.alloc_ids()[0].clone();
    let count = |receiver: &Receiver| output(receiver).values().map(Vec::len).sum::<usize>();
    for kill in 1..=3 {
        wait_for("more output", limit(), || (count(&receiver) > kill * 150).then_some(()));
        agent.kill();
        agent.start_again();
    }
    let all = wait_for("all of it", limit(), || {
        let all = output(&receiver);
        let is_whole = all.get("stdout").is_some_and(|all| all.iter().any(|(_, record)| body(record) == "no end"));
        (is_whole && all.get("stderr").is_some_and(|all| all.len() >= LINES)).then_some(all)
    });
    let numbered = |stream: &str, word: &str| -> Vec<usize> {
        let own = all[stream].iter().filter_map(|(_, record)| body(record).strip_prefix(word)?.parse().ok());
        own.collect()
    };
    assert_eq!(numbered("stdout", "out "), (1..=LINES).collect::<Vec<_>>(), "each line once, in order");
    assert_eq!(numbered("stderr", "err "), (1..=LINES).collect::<Vec<_>>());
    assert_eq!(body(&all["stdout"][0].1), "a\u{FFFD}b\u{FFFD}c", "bytes that are no text are replaced");
    let last = &all["stdout"].last().expect("it has some").1;
    let is_partial = |record: &LogRecord| record.attributes.iter().any(|of| of.key == "allostat.log.partial");
    assert!(body(last) == "no end" && is_partial(last) && !is_partial(&all["stdout"][1].1));
    for (owner, record) in all.values().flatten() {
        assert_eq!((owner.as_str(), hex(&record.trace_id)), (format!("{id}/t").as_str(), id.replace('-', "")));
        assert!(record.severity_number == 0 && record.span_id.is_empty() && record.observed_time_unix_nano > 0);
        assert!(record.time_unix_nano <= record.observed_time_unix_nano, "{record:?}");
    }
    let timed = all.values().flatten().filter(|(_, record)| record.time_unix_nano > 0).count();
    assert!(timed > LINES, "{timed} have the time at which they were written");
    let body = agent.metrics();
    let of = |what: &str| body.u64(&format!("allostat_otlp_points_{what}_total"), &[("signal", "workload_logs")]);
    assert!(of("enqueued") >= 2 * LINES as u64 + 2 && of("rejected") == 0);
    for reason in ["rate", "rotated", "removed"] {
        let labels = [("destination", "default"), ("reason", reason)];
        assert_eq!(body.u64("allostat_otlp_task_output_dropped_bytes_total", &labels), 0, "{reason}");
    }
    agent.stop();
}

#[test]
fn output_beyond_the_rate_is_left_out_and_counted_and_a_quiet_task_is_not_affected() {
    let receiver = Receiver::start(|_, _| plain(200));
    let more = [ON[0], ON[1], ("ALLOSTAT_OTLP_LOGS_TASKS_RATE", "2048")];
    let agent = Agent::with(AgentOptions { env: receiver.env(&more), ..AgentOptions::default() });
    agent.run(&job("yes 'a line of a task that writes too much' | head -c 40000000; sleep 600"));
    agent.run(&job("echo quiet; sleep 600").replace("writes", "quiet"));
    let labels = [("destination", "default"), ("reason", "rate")];
    let lost = wait_for("output to be left out", limit(), || {
        let body = agent.metrics();
        let lost = body.one("allostat_otlp_task_output_dropped_bytes_total", &labels)?.u64();
        (lost > 20_000_000).then_some(lost)
    });
    assert!(lost < 40_000_000);
    wait_for("the quiet task", limit(), || {
        output(&receiver).get("stdout")?.iter().any(|(_, record)| body(record) == "quiet").then_some(())
    });
    let sent: usize = output(&receiver)["stdout"].iter().map(|(_, record)| body(record).len()).sum();
    assert!(sent < 4_000_000, "{sent} bytes");
    agent.stop();
}

/// Promise (Measured values): Task output is not pushed unless it is enabled
#[test]
fn output_of_tasks_is_not_pushed_unless_it_is_enabled() {
    let receiver = Receiver::start(|_, _| plain(200));
    let agent = Agent::with(AgentOptions { env: receiver.env(&ON[..1]), ..AgentOptions::default() });
    agent.run(&job("echo out"));
    wait_for("its end", limit(), || {
        all_records(&receiver).iter().any(|(_, record)| record.event_name.ends_with("terminated")).then_some(())
    });
    assert!(output(&receiver).is_empty());
    assert!(!agent.metrics().names().iter().any(|name| name.contains("task_output")));
    agent.stop();
}
