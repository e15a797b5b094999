//! What pushing costs: points of 1,000 tasks made, packed and durably queued on one core, and the memory of an agent
//! that drains ten million of them.
//!
//! Beside it, in the same run: the same packed bytes appended and synced by hand; and the `opentelemetry` SDK with its
//! OTLP exporter on the same points, which it records and sends, uncompressed and not durable as it is by itself, to a
//! receiver on this host that takes everything. Its points carry what our resources say, as one provider has one
//! resource.
//!
//! `cargo bench --bench otlp [-- TASKS]`. The backlog is made through the queue's own API and drained by a real agent.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use allostat::exporters::otlp::{
    Compression, Endings, HistogramAggregation, HostIdentity, LARGEST_BYTES, collect, pack, parts, points,
};
use allostat::exporters::walk::{Filter, Walk};
use allostat::host::clock::{Clock, SystemClock};
use allostat::store::queue::{PushOutcome, Queue, QueueLimits, SegmentFiles};
use allostat::telemetry::Metrics;
use flate2::read::GzDecoder;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Gauge, MeterProvider as _};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, WithHttpConfig};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{self as proto, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric;
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use prost::Message;

use common::{Agent, AgentOptions, is_root, wait_for};
use shared::{end, report, sink};

const ROUNDS: usize = 7;
const BACKLOG: u64 = 10_000_000;
/// As it is by itself.
const QUEUE_BYTES: u64 = 256 << 20;
const MIB: f64 = 1_048_576.0;

fn main() {
    let tasks = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(1_000);
    let (board, readings) = synthetic::many(tasks);
    let mut assembler = synthetic::assembler(synthetic::info("v2", Vec::new()));
    let snapshot = synthetic::tick(&mut assembler, &board, &readings, Default::default());
    let (metrics, everything) = (Metrics::new(), Filter::default());
    let (identity, mut endings) = (HostIdentity::default(), Endings::default());
    let mut make = || {
        let walk = Walk::new(&snapshot, &metrics, &everything);
        collect(&walk, &identity, HistogramAggregation::Explicit, &mut endings)
    };
    let packed = |request| -> Vec<(u64, Vec<u8>)> {
        let parts = parts(request, LARGEST_BYTES).into_iter();
        parts.map(|part| (points(&part), pack(&part, Compression::Gzip))).collect()
    };

    let request = make();
    let batches = packed(request.clone());
    let (count, bytes) = batches.iter().fold((0, 0), |(n, bytes), (points, batch)| (n + points, bytes + batch.len()));
    report("otlp/points", float(count), "points of one push", None);
    report("otlp/batches", float(batches.len() as u64), "batches of them", None);
    let plain = request.encoded_len() as u64;
    report("otlp/plain-bytes-per-point", float(plain) / float(count), "bytes, before they are packed", None);

    let dir = common::test_dir();
    let (mut own, mut own_cpu, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    let mut queue = open(&dir.path().join("queue"));
    let mut file = fs::File::create(dir.path().join("raw")).expect("our own directory");
    for _ in 0..ROUNDS {
        let (began, cpu) = (Instant::now(), shared::cpu(std::process::id()));
        push(&mut queue, packed(make()));
        own.push(began.elapsed().as_secs_f64());
        own_cpu.push(shared::cpu(std::process::id()).saturating_sub(cpu).as_secs_f64());
        let began = Instant::now();
        for (_, batch) in &batches {
            file.write_all(batch).and_then(|()| file.sync_data()).expect("the disk takes it");
        }
        raw.push(began.elapsed().as_secs_f64());
    }
    let on_disk = float(queue.bytes()) / float(queue.ledger().queued);
    let [own, own_cpu, raw] = [own, own_cpu, raw].map(|mut times| shared::median(&mut times));
    let rate = |seconds: f64| float(count) / seconds / 1e6;
    report("otlp/raw-append", rate(raw), "M points/s: the same bytes, written and synced by hand", None);
    let (sdk, flush) = Sdk::start(&request).measure(count);
    report("otlp/sdk", rate(sdk), "M points/s: recorded, encoded, sent by the `opentelemetry` SDK", None);
    report("otlp/sdk-without-recording", rate(flush), "M points/s", None);
    report("otlp/queued", rate(own), "M points/s, made, packed, durable", Some((sdk / own, "otlp/sdk")));
    report("otlp/queued-beside-raw", rate(own), "M points/s", Some((raw / own, "otlp/raw-append")));
    report("otlp/queued-cpu", rate(own_cpu), "M points per CPU second", None);
    let unpacked = float(bytes as u64) / float(count);
    report("otlp/disk-per-point", on_disk, "bytes in the queue", Some((on_disk / unpacked, "the packed bytes alone")));
    drop((queue, file));
    if is_root() {
        drain(&batches, plain / batches.len() as u64);
    } else {
        println!("the drain needs root: an agent");
    }
}

fn open(dir: &Path) -> Queue {
    let limits = QueueLimits { bytes: QUEUE_BYTES, age: Duration::from_secs(86_400), memory_bytes: 1 << 24 };
    Queue::open(Box::new(SegmentFiles::new(dir)), limits)
}

fn push(queue: &mut Queue, batches: Vec<(u64, Vec<u8>)>) {
    for (points, batch) in batches {
        assert_eq!(queue.push(SystemClock.now(), points, batch), PushOutcome::Durable, "{:?}", queue.refused);
    }
}

/// The peak of an agent that finds the backlog, beside that of one that finds nothing.
fn drain(batches: &[(u64, Vec<u8>)], batch_bytes: u64) {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    // The backlog is a few bodies again and again: the receiver is to take little from the core that is measured.
    let known: Mutex<HashMap<Vec<u8>, u64>> = Mutex::default();
    let collector = sink::start(move |path, body| {
        if path == "/v1/metrics" {
            let mut known = known.lock().expect("no one panics here");
            let points = known.get(body).copied().unwrap_or_else(|| {
                let points = points_in(body);
                known.insert(body.to_vec(), points);
                points
            });
            counted.fetch_add(points, Ordering::Relaxed);
        }
    });
    let config = format!(
        "otlp {{\n  endpoint = \"http://{collector}\"\n  queue_bytes = {QUEUE_BYTES}\n  interval = \"1m\"\n}}\n"
    );
    let peak = |backlog: u64| {
        taken.store(0, Ordering::Relaxed);
        let mut agent = Agent::to_start(AgentOptions { config: config.clone(), ..AgentOptions::default() });
        let mut queue = open(&agent.data_dir().join("otlp"));
        let mut all = batches.iter().cycle();
        while queue.ledger().queued < backlog {
            push(&mut queue, all.next().cloned().into_iter().collect());
        }
        let queued = queue.ledger().queued;
        if backlog > 0 {
            report("otlp/backlog", float(queued), "points", None);
            report("otlp/backlog-bytes", float(queue.bytes()) / MIB, "MiB on disk", None);
        }
        drop(queue);
        let began = Instant::now();
        agent.start_again();
        // Its own first push comes behind the backlog.
        wait_for("the points to be taken", Duration::from_secs(900), || {
            (taken.load(Ordering::Relaxed) > queued).then_some(())
        });
        let took = began.elapsed();
        let high = status(agent.pid(), "VmHWM:");
        end(agent);
        (float(high), took.as_secs_f64(), queued)
    };
    let (without, _, _) = peak(0);
    let (with, took, queued) = peak(BACKLOG);
    report("otlp/drain", float(queued) / took / 1e6, "M points/s, from the agent's start on", None);
    report("otlp/rss-without-backlog", without / MIB, "MiB, peak of the agent", None);
    let more = with - without;
    let batch = float(batch_bytes);
    report(
        "otlp/rss-of-backlog",
        more / MIB,
        "MiB more, peak while it drains",
        Some((more / batch, "one batch, unpacked")),
    );
}

fn points_in(body: &[u8]) -> u64 {
    let mut plain = Vec::new();
    GzDecoder::new(body).read_to_end(&mut plain).expect("gzip is sent");
    points(&ExportMetricsServiceRequest::decode(plain.as_slice()).expect("a request of OTLP"))
}

fn status(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent must live");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kB is a number") * 1024
}

#[allow(clippy::cast_precision_loss)] // Far below 2^53.
fn float(n: u64) -> f64 {
    n as f64
}

/// The `opentelemetry` SDK with all points of a request in gauges.
struct Sdk {
    provider: SdkMeterProvider,
    /// Of each point: where it goes, its value, its attributes with those of its resource.
    points: Vec<(usize, f64, Vec<KeyValue>)>,
    instruments: Vec<Gauge<f64>>,
    taken: Arc<AtomicU64>,
}

impl Sdk {
    fn start(request: &ExportMetricsServiceRequest) -> Sdk {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&taken);
        let address = sink::start(move |_, body| {
            counted.fetch_add(body.len() as u64, Ordering::Relaxed);
        });
        let client = Null { address, stream: Mutex::new(None) };
        let exporter = MetricExporter::builder().with_http().with_http_client(client);
        let exporter = exporter.with_max_request_body_size(1 << 30).build().expect("an exporter");
        let reader = PeriodicReader::builder(exporter).with_interval(Duration::from_secs(86_400)).build();
        // Else it folds what is beyond 2,000 series of an instrument into one.
        let roomy = |_: &Instrument| Stream::builder().with_cardinality_limit(1_000_000).build().ok();
        let provider = SdkMeterProvider::builder().with_reader(reader).with_view(roomy).build();
        let meter = provider.meter("bench");
        let (mut names, mut instruments, mut points) = (Vec::new(), Vec::new(), Vec::new());
        for resource in &request.resource_metrics {
            let of_resource = resource.resource.iter().flat_map(|resource| &resource.attributes);
            let of_resource: Vec<KeyValue> = of_resource.map(key_value).collect();
            for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
                let place = names.iter().position(|name| *name == metric.name).unwrap_or_else(|| {
                    names.push(metric.name.clone());
                    instruments.push(meter.f64_gauge(metric.name.clone()).with_unit(metric.unit.clone()).build());
                    names.len() - 1
                });
                let numbers = match &metric.data {
                    Some(metric::Data::Gauge(gauge)) => &gauge.data_points,
                    Some(metric::Data::Sum(sum)) => &sum.data_points,
                    // Some tens, of the agent itself.
                    _ => continue,
                };
                points.extend(numbers.iter().enumerate().map(|(at, point)| {
                    let own = point.attributes.iter().map(key_value);
                    (place, f64::from(u32::try_from(at).unwrap_or(0)), of_resource.iter().cloned().chain(own).collect())
                }));
            }
        }
        Sdk { provider, points, instruments, taken }
    }

    /// Seconds for all points, recorded and sent; and sent alone.
    fn measure(&self, count: u64) -> (f64, f64) {
        let (mut whole, mut flushes) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for (place, value, attributes) in &self.points {
                self.instruments[*place].record(*value, attributes);
            }
            let recorded = began.elapsed();
            self.provider.force_flush().expect("the receiver takes everything");
            whole.push(began.elapsed().as_secs_f64());
            flushes.push((began.elapsed() - recorded).as_secs_f64());
        }
        // Something like a hundred bytes a point at least: it did send them.
        assert!(self.taken.load(Ordering::Relaxed) > count * 100, "the SDK did not send its points");
        (shared::median(&mut whole), shared::median(&mut flushes))
    }
}

fn key_value(pair: &proto::KeyValue) -> KeyValue {
    match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => KeyValue::new(pair.key.clone(), text.clone()),
        other => panic!("{} is {other:?}", pair.key),
    }
}

/// The least client: one connection, one request after the other.
#[derive(Debug)]
struct Null {
    address: SocketAddr,
    stream: Mutex<Option<BufReader<TcpStream>>>,
}

type Answered<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Null {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> Answered<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let mut open = self.stream.lock().expect("no one panics here");
            let mut stream = match open.take() {
                Some(stream) => stream,
                None => BufReader::new(TcpStream::connect(self.address)?),
            };
            let (path, body) = (request.uri().path(), request.body());
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", self.address, body.len());
            stream.get_mut().write_all(head.as_bytes())?;
            stream.get_mut().write_all(body)?;
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line)?;
            }
            *open = Some(stream);
            Ok(Response::new(Bytes::new()))
        })
    }
}
