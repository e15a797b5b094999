//! A real agent pushes to a collector that misbehaves in every way that one can.

#[macro_use]
mod common;
#[path = "common/otlp.rs"]
mod otlp;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Agent, AgentOptions, patience, wait_for};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use prost::Message;

/// What a receiver does with a request.
#[derive(Debug, Clone)]
enum Reaction {
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Hangs up without a word.
    Reset,
    /// Hangs up in the middle of its answer.
    CutOff,
    /// Reads, and says nothing for as long as the other one waits.
    Silence,
    /// The answer comes byte by byte.
    Slowly,
}

fn plain(status: u16) -> Reaction {
    Reaction::Answer(status, Vec::new(), Vec::new())
}

#[derive(Debug, Clone)]
struct Request {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
    fn points(&self) -> Vec<otlp::Told> {
        let mut plain = Vec::new();
        if self.header("content-encoding") == Some("gzip") {
            GzDecoder::new(self.body.as_slice()).read_to_end(&mut plain).expect("gzip");
        } else {
            plain.clone_from(&self.body);
        }
        otlp::points(&otlp::decode(&plain))
    }
}

type React = dyn Fn(usize, &Request) -> Reaction + Send + Sync;

struct Receiver {
    address: SocketAddr,
    /// With what was done with them.
    seen: Arc<Mutex<Vec<(Request, Reaction)>>>,
    is_closed: Arc<AtomicBool>,
}

impl Receiver {
    /// `react`: to the nth request.
    fn start(react: impl Fn(usize, &Request) -> Reaction + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (seen, is_closed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let react: Arc<React> = Arc::new(react);
        let (log, closed) = (Arc::clone(&seen), Arc::clone(&is_closed));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let (react, log) = (Arc::clone(&react), Arc::clone(&log));
                std::thread::spawn(move || serve(stream, &*react, &log));
            }
        });
        Receiver { address, seen, is_closed }
    }
    fn seen(&self) -> Vec<(Request, Reaction)> {
        self.seen.lock().expect("nobody panics with it").clone()
    }
    /// Those that were taken, in their order.
    fn taken(&self) -> Vec<Request> {
        let taken = |reaction: &Reaction| matches!(reaction, Reaction::Answer(200, ..) | Reaction::Slowly);
        self.seen().into_iter().filter(|(_, reaction)| taken(reaction)).map(|(request, _)| request).collect()
    }
    fn env(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            ("ALLOSTAT_TICK", "100ms"),
        ];
        all.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, react: &React, log: &Mutex<Vec<(Request, Reaction)>>) {
    let (mut buffer, mut chunk) = (Vec::new(), [0; 65536]);
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            }
        };
        let text = String::from_utf8(buffer[..head].to_vec()).expect("a head is text");
        let mut lines = text.lines();
        let path = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a path").to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length =
            headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().expect("n"));
        while buffer.len() < head + length {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            }
        }
        let body = buffer[head..head + length].to_vec();
        buffer.drain(..head + length);
        let request = Request { path, headers, body };
        let reaction = {
            let mut log = log.lock().expect("nobody panics with it");
            let reaction = react(log.len(), &request);
            log.push((request, reaction.clone()));
            reaction
        };
        let sent = match reaction {
            Reaction::Answer(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
                headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
                stream.write_all(&[head.as_bytes(), b"\r\n", &body].concat())
            }
            Reaction::Reset => return,
            Reaction::CutOff => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf");
                return;
            }
            Reaction::Silence => {
                // Until the other one has had enough.
                let _ = stream.read(&mut chunk);
                return;
            }
            Reaction::Slowly => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".iter().try_for_each(|byte| {
                std::thread::sleep(Duration::from_millis(5));
                stream.write_all(&[*byte])
            }),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn agent(receiver: &Receiver, more: &[(&str, &str)]) -> Agent {
    Agent::with(AgentOptions { env: receiver.env(more), ..AgentOptions::default() })
}

fn limit() -> Duration {
    Duration::from_secs(30) * patience()
}

/// Enqueued, exported, rejected, dropped, queued: of one body, in which they add up. A busy disk cannot take a collection each 200 ms:
/// what was turned away for that is left out of those dropped.
fn ledger(agent: &Agent) -> Option<[u64; 5]> {
    let body = agent.metrics();
    let of = |part: &str| body.one(&format!("allostat_otlp_points_{part}_total"), &[]).map(common::Sample::u64);
    let lost = |labels: &[(&str, &str)]| -> u64 {
        body.all("allostat_otlp_points_dropped_total", labels).iter().map(|s| s.u64()).sum()
    };
    let (dropped, slow) = (lost(&[]), lost(&[("reason", "slow_disk")]));
    let queued = body.one("allostat_otlp_queue_points", &[]).map(common::Sample::u64);
    let all = [of("enqueued")?, of("exported")?, of("rejected")?, dropped, queued?];
    assert_eq!(all[0], all[1..].iter().sum::<u64>(), "{all:?}");
    let [enqueued, exported, rejected, _, queued] = all;
    Some([enqueued, exported, rejected, dropped - slow, queued])
}

/// When the points of the host were made: one moment for each collection.
fn moments(requests: &[Request]) -> Vec<u64> {
    let of = |request: &Request| {
        let mut at = request.points().into_iter().filter(|told| told.metric == "system.memory.limit");
        at.next().map(|told| told.at)
    };
    requests.iter().filter_map(of).collect()
}

#[test]
fn what_a_live_agent_pushes_is_what_it_exposes() {
    let receiver = Receiver::start(|_, _| plain(200));
    let more = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=tenant%20one"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let agent = agent(&receiver, &more);
    agent.run(
        "job \"pushed\" {\n group \"g\" {\n task \"sleeps\" {\n driver = \"raw_exec\"\n config {\n command = \"/bin/sleep\"\n \
         args = [\"600\"]\n }\n }\n }\n}\n",
    );
    let told = wait_for("the task's points", limit(), || {
        let all: Vec<otlp::Told> = receiver.taken().iter().flat_map(Request::points).collect();
        all.into_iter().find(|told| told.metric == "container.uptime")
    });
    let id = &agent.alloc_ids()[0];
    assert_eq!(told.resource["service.instance.id"], format!("{id}/sleeps"));
    assert_eq!(told.resource["service.name"], "pushed");
    assert_eq!(told.resource["deployment.environment.name"], "test");
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

#[test]
fn one_bad_point_is_refused_alone_and_a_partial_success_is_never_sent_again() {
    let is_bad = |told: &otlp::Told| told.metric == "allostat.tasks" && told.attributes["state"] == "dead";
    let receiver = Receiver::start(move |n, request| {
        let points = request.points();
        if points.iter().any(is_bad) {
            // Too large and bad are the same to it.
            return plain(if points.len() > 50 { 413 } else { 400 });
        }
        let partial =
            ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "three are odd".to_owned() };
        let answer = ExportMetricsServiceResponse { partial_success: (n < 2).then_some(partial) };
        Reaction::Answer(200, Vec::new(), answer.encode_to_vec())
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

#[test]
fn what_will_never_be_taken_is_refused_once() {
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
fn a_receiver_to_which_everything_is_bad_is_not_asked_for_each_point() {
    let receiver = Receiver::start(|_, _| plain(400));
    let agent = agent(&receiver, &[("OTEL_METRIC_EXPORT_INTERVAL", "60000")]);
    let [enqueued, _, rejected, dropped, _] = wait_for("the end of it", limit(), || {
        ledger(&agent).filter(|[enqueued, _, _, _, queued]| *enqueued > 0 && *queued == 0)
    });
    assert_eq!((rejected, dropped), (enqueued, 0));
    let asked = receiver.seen().len();
    assert!(enqueued > 150 && asked == 101, "{asked} requests for {enqueued} points");
    agent.stop();
}

/// An outage with the agent killed in it, again and again: no batch that was counted is lost, what comes twice was in flight.
#[test]
fn killed_in_an_outage_again_and_again_the_agent_delivers_every_batch_in_order() {
    const KILLS: usize = 6;
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let receiver = Receiver::start(move |n, _| {
        let takes = up.load(Ordering::SeqCst);
        // Each tenth answer gets lost: whether it was taken nobody knows.
        if takes && n % 10 == 9 { Reaction::Reset } else { plain(if takes { 200 } else { 503 }) }
    });
    let mut agent = agent(&receiver, &[]);
    let mut enqueued = 0;
    for kill in 0..KILLS {
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
    assert!(taken.len() - once.len() <= KILLS + 1, "{} came twice", taken.len() - once.len());
    let moments = moments(&once.into_iter().cloned().collect::<Vec<_>>());
    assert!(moments.is_sorted() && moments.len() > KILLS, "{moments:?}");
    let distinct: BTreeSet<u64> = moments.iter().copied().collect();
    assert_eq!(distinct.len(), moments.len());
}

#[test]
fn what_cannot_be_is_refused_with_the_place_where_it_stands() {
    let refused = |config: &str, env: &[(&str, &str)]| {
        let dir = common::test_dir();
        let file = dir.path().join("agent.hcl");
        std::fs::write(&file, config).unwrap();
        let mut command = std::process::Command::new(common::allostat());
        command.args(["agent", "--print-config", "--config"]).arg(&file).envs(env.iter().copied());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ok, why) = refused("otlp {\n  endpoint = \"https://collector:4318\"\n}\n", &[]);
    assert!(!ok && why.contains(":2:") && why.contains("TLS, which is not built in"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon")]);
    assert!(!ok && why.contains("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT") && why.contains("soon"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=s3cret%0A")]);
    assert!(!ok && why.contains("OTEL_EXPORTER_OTLP_HEADERS") && !why.contains("s3cret"), "{why}");
    let (ok, why) = refused("", &[("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")]);
    assert!(!ok && why.contains("TEMPORALITY_PREFERENCE") && why.contains("cumulative"), "{why}");
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let (ok, why) = refused("", &[endpoint, ("OTEL_METRIC_EXPORT_INTERVAL", "600000")]);
    assert!(!ok && why.contains("otlp.interval (10m0s) is longer than telemetry.retention (5m0s)"), "{why}");
    let (ok, why) = refused("otlp {\n  protocol = \"grpc\"\n  endpoint = \"http://[::1]:4317\"\n}\n", &[]);
    assert!(ok, "{why}");
}

/// A collector of gRPC that is not there yet at first, and then takes everything.
mod grpc {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    use super::*;

    /// Message and status of an answer.
    fn answer(
        message: &[u8],
        status: &'static str,
    ) -> hyper::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
        let framed = [&[0][..], &u32::try_from(message.len()).expect("small").to_be_bytes(), message].concat();
        let trailers = async move {
            let mut map = hyper::HeaderMap::new();
            map.insert("grpc-status", hyper::header::HeaderValue::from_static(status));
            Some(Ok(map))
        };
        let body = Full::new(Bytes::from(framed)).with_trailers(trailers);
        hyper::Response::builder().header("content-type", "application/grpc").body(body).expect("an answer")
    }

    #[test]
    fn a_collector_gets_over_grpc_what_it_was_not_there_for() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let log = Arc::clone(&seen);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                let serve = service_fn(move |request: hyper::Request<Incoming>| {
                    let log = Arc::clone(&log);
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.expect("a body").to_bytes();
                        assert_eq!(body[0], 1, "it is compressed");
                        let length = u32::from_be_bytes(body[1..5].try_into().expect("four bytes")) as usize;
                        assert_eq!(length, body.len() - 5);
                        let text =
                            |name: &str| head.headers.get(name).map_or("", |v| v.to_str().expect("text")).to_owned();
                        let request = Request {
                            path: head.uri.path().to_owned(),
                            headers: vec![
                                ("content-encoding".to_owned(), text("grpc-encoding")),
                                ("x-scope".to_owned(), text("x-scope")),
                            ],
                            body: body[5..].to_vec(),
                        };
                        let mut log = log.lock().expect("nobody panics with it");
                        log.push(request);
                        let partial = ExportMetricsPartialSuccess { rejected_data_points: 2, ..Default::default() };
                        let partial = ExportMetricsServiceResponse { partial_success: Some(partial) };
                        Ok::<_, Infallible>(match log.len() {
                            1 => answer(&[], "14"),
                            2 => answer(&partial.encode_to_vec(), "0"),
                            _ => answer(&[], "0"),
                        })
                    }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), serve));
            }
        });
        let endpoint = format!("http://{address}");
        let env = [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=one"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
        ];
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
        let counts = wait_for("points to be taken", limit(), || ledger(&agent).filter(|l| l[1] > 500));
        assert_eq!((counts[2], counts[3]), (2, 0), "two were rejected by a partial success");
        let seen = seen.lock().expect("nobody panics with it").clone();
        assert_eq!(seen[0].body, seen[1].body, "the same until it is taken");
        assert_eq!(seen[0].path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
        assert_eq!(seen[0].header("x-scope"), Some("one"));
        assert!(seen[0].points().iter().any(|told| told.metric == "system.memory.limit"));
        let body = agent.metrics();
        assert_eq!(body.u64("allostat_otlp_requests_total", &[("code", "grpc-14")]), 1);
        agent.stop();
    }
}
