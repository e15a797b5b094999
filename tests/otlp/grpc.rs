//! A collector of gRPC that is not there yet at first, and then takes everything.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use prost::Message;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::receiver::Request;
use super::{ledger, limit, moments};
use crate::common::{Agent, AgentOptions, wait_for};

/// What a collector does with the nth request, counted from 1.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Message, status, and details of that as they are sent.
    Status(Vec<u8>, &'static str, &'static str),
    /// The stream is reset instead of an answer.
    Reset,
    /// Nothing is said for as long as the other one waits.
    Silence,
    /// An answer without its end: no status is ever sent.
    CutOff,
}

fn status(status: &'static str) -> Reply {
    Reply::Status(Vec::new(), status, "")
}

type React = Arc<dyn Fn(usize) -> Reply + Send + Sync>;

fn answer(
    message: &[u8],
    status: &'static str,
    details: &'static str,
) -> hyper::Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
    let framed = [&[0][..], &u32::try_from(message.len()).expect("small").to_be_bytes(), message].concat();
    let trailers = async move {
        let mut map = hyper::HeaderMap::new();
        // Of one that is cut off there is none.
        if !status.is_empty() {
            map.insert("grpc-status", hyper::header::HeaderValue::from_static(status));
        }
        if !details.is_empty() {
            map.insert("grpc-status-details-bin", hyper::header::HeaderValue::from_static(details));
        }
        Some(Ok(map))
    };
    let body = Full::new(Bytes::from(framed)).with_trailers(trailers);
    hyper::Response::builder().header("content-type", "application/grpc").body(body).expect("an answer")
}

pub struct Collector {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    /// Is not there for the first request, takes the second in part, and everything after it.
    pub fn start(tls: Option<Arc<ServerConfig>>) -> Collector {
        Collector::with(tls, |n| {
            let partial = ExportMetricsPartialSuccess { rejected_data_points: 2, ..Default::default() };
            let partial = ExportMetricsServiceResponse { partial_success: Some(partial) };
            match n {
                1 => status("14"),
                2 => Reply::Status(partial.encode_to_vec(), "0", ""),
                _ => status("0"),
            }
        })
    }
    pub fn with(tls: Option<Arc<ServerConfig>>, react: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Collector {
        let react: React = Arc::new(react);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let log = Arc::clone(&seen);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, react, tls) = (Arc::clone(&log), Arc::clone(&react), tls.clone().map(TlsAcceptor::from));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, log, react).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, log, react).await;
                            }
                        }
                    }
                });
            }
        });
        Collector { address, seen, _runtime: runtime }
    }
    /// Pushes metrics to it five times a second. `more`: one setting.
    fn agent(&self, more: (&str, &str)) -> Agent {
        let endpoint = format!("http://{}", self.address);
        let env = [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "200"),
            more,
        ];
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Agent::with(AgentOptions { env, ..AgentOptions::default() })
    }
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    log: Arc<Mutex<Vec<Request>>>,
    react: React,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (log, react) = (Arc::clone(&log), Arc::clone(&react));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            assert_eq!(body[0], 1, "it is compressed");
            let length = u32::from_be_bytes(body[1..5].try_into().expect("four bytes")) as usize;
            assert_eq!(length, body.len() - 5);
            let text = |name: &str| head.headers.get(name).map_or("", |v| v.to_str().expect("text")).to_owned();
            let request = Request {
                path: head.uri.path().to_owned(),
                headers: vec![
                    ("content-encoding".to_owned(), text("grpc-encoding")),
                    ("x-scope".to_owned(), text("x-scope")),
                    ("scheme".to_owned(), head.uri.scheme_str().unwrap_or_default().to_owned()),
                ],
                body: body[5..].to_vec(),
                at: Instant::now(),
            };
            let count = {
                let mut log = log.lock().expect("not poisoned");
                log.push(request);
                log.len()
            };
            match react(count) {
                Reply::Status(message, status, details) => Ok(answer(&message, status, details)),
                Reply::CutOff => Ok(answer(&[], "", "")),
                Reply::Reset => Err(std::io::Error::other("reset")),
                Reply::Silence => std::future::pending().await,
            }
        }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // A client that hangs up has had its answers.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

/// Promise (Measured values): A gRPC collector receives what was queued while it was away; points that it rejects are
/// counted
#[test]
fn a_collector_gets_over_grpc_what_it_was_not_there_for() {
    let collector = Collector::start(None);
    let agent = collector.agent(("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=one"));
    let counts = wait_for("points to be taken", limit(), || ledger(&agent).filter(|l| l[1] > 500));
    assert_eq!((counts[2], counts[3]), (2, 0), "two were rejected by a partial success");
    let seen = collector.seen();
    assert_eq!(seen[0].body, seen[1].body, "the same until it is taken");
    assert_eq!(seen[0].path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
    assert_eq!(seen[0].header("x-scope"), Some("one"));
    assert!(seen[0].points().iter().any(|point| point.metric == "system.memory.limit"));
    let body = agent.metrics();
    assert_eq!(body.u64("allostat_otlp_requests_total", &[("code", "grpc-14")]), 1);
    agent.stop();
}

/// Each in its turn, as over HTTP: every batch comes once it is taken, in its order.
#[test]
fn a_collector_that_misbehaves_over_grpc_gets_everything_in_order_once_it_takes_it() {
    // Resource exhausted, to be asked again in 7.5 s: encoded by another library.
    const LATER: &str = "CAgaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIBxCAyrXuAQ==";
    let collector = Collector::with(None, |n| match n {
        1 => Reply::Reset,
        2 => Reply::Silence,
        3 => Reply::CutOff,
        4 => Reply::Status(Vec::new(), "8", LATER),
        5 => status("4"),
        _ => status("0"),
    });
    let agent = collector.agent(("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"));
    // The waits between its tries are random, each up to twice the one before, and alone may add up to half a minute.
    let counts = wait_for("points to be taken", limit() * 4, || ledger(&agent).filter(|l| l[1] > 1_000));
    assert_eq!((counts[2], counts[3]), (0, 0), "nothing is lost, nothing is refused");
    let seen = collector.seen();
    assert!(seen[..6].iter().all(|request| request.body == seen[0].body), "the same until it is taken");
    assert_ne!(seen[6].body, seen[0].body);
    let waited = seen[4].at - seen[3].at;
    assert!(waited.as_millis() >= 7_500, "it came again after {waited:?}");
    let moments = moments(&seen[5..]);
    assert!(moments.is_sorted() && moments.len() > 2, "{moments:?}");
    let body = agent.metrics();
    let code = |code: &str| body.u64("allostat_otlp_requests_total", &[("code", code)]);
    assert_eq!(["grpc-8", "grpc-4"].map(code), [1; 2]);
    assert_eq!(code("broken"), 2, "reset, and without an end");
    // A slow machine may be late once more.
    assert!(code("timeout") >= 1 && body.u64("allostat_otlp_retries_total", &[]) >= 5);
    agent.stop();
}
