//! A real agent pushes to a collector that misbehaves in every way that one can.

mod delta;
mod destinations;
mod exposed;
mod grpc;
mod lifecycle;
mod outage;
mod output;
mod python;
mod receiver;
mod rotel;
mod tls;

use crate::{by_python, certificates, otlp_points as otlp};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::{Agent, AgentOptions, how_many, patience, wait_for};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use prost::Message;
use receiver::{PROTOBUF, Reaction, Receiver, Request, plain};

fn agent(receiver: &Receiver, more: &[(&str, &str)]) -> Agent {
    Agent::with(AgentOptions { env: receiver.env(more), ..AgentOptions::default() })
}

fn limit() -> Duration {
    Duration::from_secs(30) * patience()
}

/// Enqueued, exported, rejected, dropped, queued: of one body, in which they add up. A busy disk cannot take a
/// collection each 200 ms: what was turned away for that is left out of those dropped.
fn ledger(agent: &Agent) -> Option<[u64; 5]> {
    let body = agent.metrics();
    let of = |part: &str| body.one(&format!("allostat_otlp_points_{part}_total"), &[]).map(crate::common::Sample::u64);
    let lost = |labels: &[(&str, &str)]| -> u64 {
        body.all("allostat_otlp_points_dropped_total", labels).iter().map(|s| s.u64()).sum()
    };
    let (dropped, slow) = (lost(&[]), lost(&[("reason", "slow_disk")]));
    let queued = body.one("allostat_otlp_queue_points", &[]).map(crate::common::Sample::u64);
    let all = [of("enqueued")?, of("exported")?, of("rejected")?, dropped, queued?];
    assert_eq!(all[0], all[1..].iter().sum::<u64>(), "{all:?}");
    let [enqueued, exported, rejected, _, queued] = all;
    Some([enqueued, exported, rejected, dropped - slow, queued])
}

/// When the points of the host were made: one moment for each collection.
fn moments(requests: &[Request]) -> Vec<u64> {
    let of = |request: &Request| {
        let mut at = request.points().into_iter().filter(|point| point.metric == "system.memory.limit");
        at.next().map(|point| point.at)
    };
    requests.iter().filter_map(of).collect()
}

/// Promise (Measured values): An OTLP/HTTP collector receives what `/metrics` exposes, with the configured headers and
/// attributes
#[test]
fn live_agent_pushes_the_values_that_it_exposes() {
    let receiver = Receiver::start(|_, _| plain(200));
    let more = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=tenant%20one"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=weaker"),
        ("OTEL_SERVICE_NAME", "edge"),
    ];
    let agent = agent(&receiver, &more);
    agent.run(
        "job \"pushed\" {\n group \"g\" {\n task \"sleeps\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n \
         args = [\"600\"]\n }\n }\n }\n}\n",
    );
    let point = wait_for("the task's points", limit(), || {
        let all: Vec<otlp::DataPoint> = receiver.taken().iter().flat_map(Request::points).collect();
        all.into_iter().find(|point| point.metric == "allostat.task.uptime")
    });
    let id = &agent.alloc_ids()[0];
    assert_eq!(point.resource["service.instance.id"], format!("{id}/sleeps"));
    assert_eq!(point.resource["service.name"], "pushed");
    assert_eq!(point.resource["deployment.environment.name"], "test");
    let of_host =
        |point: &otlp::DataPoint| point.metric == "system.memory.limit" && point.resource["service.name"] == "edge";
    assert!(receiver.taken().iter().flat_map(Request::points).any(|point| of_host(&point)));
    let first = &receiver.taken()[0];
    assert_eq!(first.path, "/v1/metrics");
    assert_eq!(first.header("content-type"), Some("application/x-protobuf"));
    assert_eq!((first.header("content-encoding"), first.header("x-scope")), (Some("gzip"), Some("tenant one")));
    assert!(
        ledger(&agent).is_some_and(|[_, exported, rejected, dropped, _]| exported > 100 && rejected + dropped == 0)
    );
    assert!(agent.metrics().u64("allostat_otlp_requests_total", &[("code", "200")]) >= 1);
    agent.stop();
}

/// Promise (Measured values): Without an OTLP endpoint there is no thread, no file and no series for it
#[test]
fn without_an_endpoint_there_is_no_thread_no_file_and_no_series_of_it() {
    let agent = Agent::start();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert!(!names.map(|name| name.trim().to_owned()).any(|name| name == "otlp"));
    assert!(!agent.data_dir().join("otlp").exists());
    assert!(!agent.metrics().names().iter().any(|name| name.contains("otlp")));
    agent.stop();
}

/// Each in its turn, and after them whole: every batch comes, in its order, and the books balance.
///
/// Promise (Measured values): A collector that is slow, throttles, fails, disconnects or hangs receives every batch in
/// order once it accepts
#[test]
fn a_receiver_that_misbehaves_gets_everything_in_order_once_it_takes_it() {
    let receiver = Receiver::start(|n, _| match n {
        0 => plain(503),
        1 => Reaction::Reset,
        2 => Reaction::CutOff,
        3 => Reaction::Silence,
        4 => Reaction::Answer(429, vec![("retry-after", "1".to_owned())], Vec::new()),
        5 => Reaction::Slowly,
        6 => plain(502),
        7 => plain(504),
        _ => plain(200),
    });
    let agent = agent(&receiver, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "700")]);
    wait_for("the receiver to have taken some", limit(), || {
        (receiver.taken().len() > 12 && ledger(&agent)?[4] < 2_000).then_some(())
    });
    let seen = receiver.seen();
    let first = &seen[0].0.body;
    assert!(seen[..6].iter().all(|(request, _)| request.body == *first), "the same until it is taken");
    assert_ne!(seen[6].0.body, *first);
    let moments = moments(&receiver.taken());
    assert!(moments.is_sorted() && moments.len() > 5, "{moments:?}");
    let [_, _, rejected, dropped, _] = ledger(&agent).unwrap();
    assert_eq!((rejected, dropped), (0, 0));
    let body = agent.metrics();
    let codes = |code: &str| body.u64("allostat_otlp_requests_total", &[("code", code)]);
    assert_eq!(["503", "429", "502", "504", "timeout"].map(codes), [1; 5]);
    assert_eq!(codes("broken"), 2, "hung up, and cut off");
    assert_eq!(body.u64("allostat_otlp_retries_total", &[]), 7);
    agent.stop();
}

/// By itself an agent would come again after a fraction of a second.
///
/// Promise (Measured values): A collector that answers `Retry-After`, in seconds or as a date, is not contacted before
#[test]
fn collector_with_retry_after_is_not_contacted_before() {
    const RETRY_AFTER: u64 = 3;
    let receiver = Receiver::start(|n, _| {
        let date = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(RETRY_AFTER + 1));
        match n {
            0 => Reaction::Answer(429, vec![("retry-after", RETRY_AFTER.to_string())], Vec::new()),
            // A date has whole seconds: it is between those asked for and one more.
            1 => Reaction::Answer(503, vec![("retry-after", date())], Vec::new()),
            _ => plain(200),
        }
    });
    let agent = agent(&receiver, &[]);
    wait_for("it to be taken", limit(), || (receiver.seen().len() > 2).then_some(()));
    let at: Vec<_> = receiver.seen().iter().take(3).map(|(request, _)| (request.at, request.body.clone())).collect();
    for pair in at.windows(2) {
        let waited = pair[1].0 - pair[0].0;
        assert!(waited >= Duration::from_secs(RETRY_AFTER), "it came again after {waited:?}");
        assert_eq!(pair[0].1, pair[1].1, "with the same");
    }
    agent.stop();
}

/// Promise (Measured values): A point that the collector rejects is rejected alone; a partial success is counted and
/// never resent
#[test]
fn bad_point_is_rejected_alone_and_a_partial_success_is_never_sent_again() {
    let is_bad = |point: &otlp::DataPoint| point.metric == "allostat.tasks" && point.attributes["state"] == "dead";
    let receiver = Receiver::start(move |n, request| {
        let points = request.points();
        if points.iter().any(is_bad) {
            // Too large and bad are the same to it.
            return plain(if points.len() > 50 { 413 } else { 400 });
        }
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "three are odd".to_owned() };
        let answer = ExportMetricsServiceResponse { partial_success: (n < 2).then_some(partial) };
        Reaction::Answer(200, vec![(PROTOBUF.0, PROTOBUF.1.to_owned())], answer.encode_to_vec())
    });
    let agent = agent(&receiver, &[("OTEL_METRIC_EXPORT_INTERVAL", "60000")]);
    let [enqueued, exported, rejected, dropped, _] = wait_for("all but one point", limit(), || {
        ledger(&agent).filter(|[enqueued, _, _, _, queued]| *enqueued > 0 && *queued == 0)
    });
    let parts = receiver.taken();
    let partial =
        3 * receiver.seen().iter().take(2).filter(|(_, r)| matches!(r, Reaction::Answer(200, ..))).count() as u64;
    assert_eq!((rejected, dropped), (1 + partial, 0), "of {enqueued}");
    let taken: usize = parts.iter().map(|part| part.points().len()).sum();
    assert_eq!(taken as u64, enqueued - 1, "each other point came once");
    assert_eq!(exported, enqueued - rejected);
    assert!(!parts.iter().any(|part| part.points().iter().any(is_bad)));
    agent.stop();
}

/// A portal, a proxy's page, another service at this address: none of them has the points, whatever the status.
#[test]
fn page_with_status_200_is_no_success_and_the_batch_remains_durable() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let receiver = Receiver::start(move |n, _| match up.load(Ordering::SeqCst) {
        true => plain(200),
        false => {
            let page = format!("<!doctype html><title>Log in, {n}</title>").into_bytes();
            Reaction::Answer(200, vec![("content-type", "text/html; charset=utf-8".to_owned())], page)
        }
    });
    let mut agent = agent(&receiver, &[]);
    let log = wait_for("it to be asked again", limit(), || (receiver.seen().len() > 2).then(|| agent.log()));
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("push failed; points are queued")).collect();
    assert!(lines.len() == 1 && lines[0].contains("text/html"), "once: {lines:?}");
    let [_, exported, rejected, _, queued] = wait_for("the books", limit(), || ledger(&agent));
    assert!(exported == 0 && rejected == 0 && queued > 0, "{exported} exported, {rejected} rejected");
    let first = receiver.seen()[0].0.body.clone();
    agent.kill();
    is_up.store(true, Ordering::SeqCst);
    let before = receiver.seen().len();
    agent.start_again();
    wait_for("it to be taken", limit(), || ledger(&agent).filter(|counts| counts[1] > 0));
    assert!(receiver.seen()[before].0.body == first, "the batch that was answered with a page comes again");
    agent.stop();
}

#[test]
fn permanently_refused_batch_is_sent_once() {
    let receiver = Receiver::start(|n, _| plain(if n == 0 { 403 } else { 200 }));
    let agent = agent(&receiver, &[]);
    let rejected = wait_for("a second request", limit(), || ledger(&agent).filter(|l| l[1] > 0).map(|l| l[2]));
    let seen = receiver.seen();
    assert_ne!(seen[0].0.body, seen[1].0.body, "it does not come again");
    assert_eq!(rejected, seen[0].0.points().len() as u64);
    agent.stop();
}

/// It is the collector then, and not a point: it is not asked twice for each.
#[test]
fn receiver_that_refuses_everything_is_not_sent_each_point_alone() {
    let receiver = Receiver::start(|_, _| plain(400));
    let agent = agent(&receiver, &[("OTEL_METRIC_EXPORT_INTERVAL", "60000")]);
    let [enqueued, _, rejected, dropped, _] = wait_for("the end of it", limit(), || {
        ledger(&agent).filter(|[enqueued, _, _, _, queued]| *enqueued > 0 && *queued == 0)
    });
    assert_eq!((rejected, dropped), (enqueued, 0));
    let requested = receiver.seen().len();
    assert!(enqueued > 150 && requested == 101, "{requested} requests for {enqueued} points");
    agent.stop();
}

/// An outage with the agent killed in it, again and again: no batch that was counted is lost, what comes twice was in
/// flight.
///
/// Promise (Measured values): Killed repeatedly during an outage, the agent delivers every batch in order; only those
/// in flight are repeated
#[test]
fn killed_in_an_outage_again_and_again_the_agent_delivers_every_batch_in_order() {
    let kills = how_many(3, 6);
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let receiver = Receiver::start(move |n, _| {
        let takes = up.load(Ordering::SeqCst);
        // Each tenth answer gets lost: whether the batch was taken is unknown.
        if takes && n % 10 == 9 { Reaction::Reset } else { plain(if takes { 200 } else { 503 }) }
    });
    let mut agent = agent(&receiver, &[]);
    let mut enqueued = 0;
    for kill in 0..kills {
        let before = enqueued;
        enqueued = wait_for("more points", limit(), || ledger(&agent).map(|l| l[0]).filter(|n| *n > before + 500));
        is_up.store(kill % 2 == 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(130 * (kill as u64 + 1)));
        enqueued = ledger(&agent).map_or(enqueued, |l| l[0]);
        agent.kill();
        agent.start_again();
        let now = wait_for("the books", limit(), || ledger(&agent));
        assert!(now[0] >= enqueued, "{} were counted, and {} are", enqueued, now[0]);
        assert_eq!(now[3], 0, "nothing is dropped: {now:?}");
    }
    is_up.store(true, Ordering::SeqCst);
    wait_for("the backlog to be gone", limit(), || ledger(&agent).filter(|l| l[0] > enqueued && l[4] < 3_000));
    agent.terminate();
    let taken = receiver.taken();
    let mut once: Vec<&Request> = Vec::new();
    for request in &taken {
        if !once.iter().any(|known| known.body == request.body) {
            once.push(request);
        }
    }
    assert!(taken.len() - once.len() <= kills + 1, "{} came twice", taken.len() - once.len());
    let moments = moments(&once.into_iter().cloned().collect::<Vec<_>>());
    assert!(moments.is_sorted() && moments.len() > kills, "{moments:?}");
    let distinct: BTreeSet<u64> = moments.iter().copied().collect();
    assert_eq!(distinct.len(), moments.len());
}

/// Promise (Measured values): OTLP settings are OpenTelemetry's variables; a wrong one is refused with its place, and
/// no secret is shown
#[test]
fn invalid_otlp_settings_are_refused_with_their_place() {
    let refused = |config: &str, env: &[(&str, &str)]| {
        let dir = crate::common::test_dir();
        let file = dir.path().join("agent.hcl");
        std::fs::write(&file, config).unwrap();
        let mut command = std::process::Command::new(crate::common::allostat());
        command.args(["agent", "--print-config", "--config"]).arg(&file).envs(env.iter().copied());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ok, why) = refused("otlp {\n  endpoint = \"ftp://collector:4318\"\n}\n", &[]);
    assert!(!ok && why.contains(":2:") && why.contains("write http://host:port or https://host:port"), "{why}");
    let (ok, why) = refused("otlp {\n  client_key = \"/etc/key.pem\"\n}\n", &[]);
    assert!(!ok && why.contains("client_certificate and client_key are given together"), "{why}");
    let (ok, why) = refused("otlp {\n  endpoint = \"collector:4318\"\n}\n", &[]);
    assert!(!ok && why.contains("has neither http:// nor https://"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon")]);
    assert!(!ok && why.contains("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT") && why.contains("soon"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret%0A")]);
    assert!(!ok && why.contains("OTEL_EXPORTER_OTLP_HEADERS") && !why.contains("s3cret"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "gamma")]);
    assert!(!ok && why.contains("TEMPORALITY_PREFERENCE") && why.contains("cumulative"), "{why}");
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let (ok, why) = refused("", &[endpoint, ("OTEL_METRIC_EXPORT_INTERVAL", "600000")]);
    assert!(!ok && why.contains("otlp.interval (10m0s) is longer than telemetry.retention (5m0s)"), "{why}");
    let (ok, why) = refused("otlp {\n  protocol = \"grpc\"\n  endpoint = \"http://[::1]:4317\"\n}\n", &[]);
    assert!(ok, "{why}");
}

/// 4 MiB of `google.rpc.Status` are two million details, 190 MiB as a list.
///
/// Promise (Measured values): Error answers of a collector take no more memory than their text
#[test]
fn error_answer_with_millions_of_details_takes_no_more_memory_than_its_text() {
    const MOST_MEMORY: u64 = 150 << 10;
    let details = || vec![(PROTOBUF.0, PROTOBUF.1.to_owned())];
    let receiver = Receiver::start(move |n, _| match n {
        0..3 => Reaction::Answer(400, details(), [0x1a, 0].repeat((2 << 20) - 64)),
        _ => plain(200),
    });
    let agent = agent(&receiver, &[]);
    wait_for("a request after the errors", limit(), || (!receiver.taken().is_empty()).then_some(()));
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    let peak: u64 = peak.expect("a peak");
    assert!(peak < MOST_MEMORY, "{peak} kB");
}

/// `google.rpc.Status`, as far as it is a text.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
}

/// Lines, escape and bidirectional characters, and what looks like the end of a field: as a page, as an error of OTLP,
/// and beside a success.
///
/// Promise (Measured values): 100 kB of a collector's text are one line of the log, with at most 1 kB of them, escaped
#[test]
fn text_of_100_kb_from_a_collector_is_one_bounded_line_of_the_log() {
    let text = "x\u{1b}[2J\u{202e}\" level=ERROR msg=\"lost\u{9b}31m\r\u{2028}\n".repeat(2_500);
    assert!(text.len() >= 100_000);
    let encoded = || vec![(PROTOBUF.0, PROTOBUF.1.to_owned())];
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 1, error_message: text.clone() };
    let partial = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let status = RpcStatus { message: text.clone() }.encode_to_vec();
    let page = vec![("content-type", "text/plain".to_owned())];
    let (rejected, partly) = ("collector rejected points", "partial success reported by the collector");
    for (logged, answer) in [
        (rejected, Reaction::Answer(403, page, text.into_bytes())),
        (rejected, Reaction::Answer(403, encoded(), status)),
        (partly, Reaction::Answer(200, encoded(), partial)),
    ] {
        let receiver = Receiver::start(move |_, _| answer.clone());
        let agent = agent(&receiver, &[]);
        let log = wait_for("its text in the log", limit(), || Some(agent.log()).filter(|log| log.contains(logged)));
        let line = log.lines().find(|line| line.contains(logged)).expect("it is there");
        assert!(line.contains("x[2J") || line.contains("x\\\\u{1b}[2J"), "its text is there: {line}");
        // The quotes around it may double each backslash.
        let (before, rest) = line.split_once(logged).expect("it is in there");
        assert!(before.len() < 100 && rest.len() < 1_500, "{} bytes: {line}", line.len());
        for line in log.lines() {
            let level = line.split(' ').find(|word| !word.is_empty() && !word.starts_with("20"));
            assert!(level.is_some_and(|level| ["ERROR", "WARN", "INFO", "DEBUG"].contains(&level)), "{line}");
            assert!(!line.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)), "{line}");
        }
        agent.stop();
    }
}
