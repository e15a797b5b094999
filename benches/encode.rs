//! What it costs to write the exposition, beside the `prometheus` crate's encoder on the same families and beside plain
//! copying of the same bytes, all in one run.
//!
//! Each time is the best of its rounds: what the machine can do when no other process wants the core. `formats` has the
//! same for each format.
//!
//! `cargo bench --bench encode [-- TASKS]`. Lines: `bench <tab> name <tab> value <tab> unit <tab> ratio <tab> to what`.

#[path = "shared/formats.rs"]
mod formats;
#[path = "../tests/common/protobuf.rs"]
#[allow(dead_code)]
mod protobuf;
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::exporters::prometheus::{Bodies, Encoder, Encoding, Format, write};
use allostat::exporters::walk::{Filter, Selection, Walk};
use allostat::model::profile::Profile;
use allostat::model::usage::Field;
use allostat::snapshot::Snapshot;
use allostat::telemetry::Metrics;
use prometheus::{Encoder as _, TextEncoder};

const ROUNDS: usize = 41;
/// As a reader gets them.
const PAGE: usize = 128 * 1024;
const COPY: &str = "encode/plain_copy";

fn main() {
    let tasks = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(1_000);
    let (board, readings) = synthetic::many(tasks);
    let info = synthetic::info("v2", Vec::new());
    let mut assembler = synthetic::assembler(info.clone());
    let snapshot = synthetic::tick(&mut assembler, &board, &readings, Default::default());
    assemble(&mut assembler, &board, &readings);

    let metrics = Metrics::new();
    let mut encoder = Encoder::default();
    let (page, len) = encode(&mut encoder, &snapshot, &metrics, Vec::new());
    let text = String::from_utf8(page[..len].to_vec()).expect("an exposition must be text");
    let samples = text.lines().filter(|l| !l.starts_with('#')).count();
    report("encode/series", samples as f64, "series", None);
    let of_tasks = per_task(&text);
    report("encode/series_per_task", of_tasks.0 as f64 / tasks as f64, "series", None);
    report("encode/bytes_per_task", of_tasks.1 as f64 / tasks as f64, "bytes", None);
    report("encode/bytes_per_sample", len as f64 / samples as f64, "bytes", None);

    // Warm: the labels are known. Page by page, as a reader gets it; interleaved with the floor, so that both meet the
    // same noise.
    let lines: Vec<&[u8]> = text.as_bytes().split_inclusive(|b| *b == b'\n').collect();
    let mut plain: Vec<u8> = Vec::with_capacity(len);
    let (mut warm, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let written = in_pages(&mut encoder, &snapshot, &metrics);
        warm.push(began.elapsed());
        assert!(written.abs_diff(len) < 4_096, "the body changed its size");
        let began = Instant::now();
        plain.clear();
        lines.iter().for_each(|line| plain.extend_from_slice(line));
        black_box(&plain);
        floor.push(began.elapsed());
    }
    let cold: Vec<Duration> = (0..ROUNDS / 4)
        .map(|_| {
            let mut encoder = Encoder::default();
            let began = Instant::now();
            black_box(encode(&mut encoder, &snapshot, &metrics, Vec::new()));
            began.elapsed()
        })
        .collect();
    let peer_families = families(&text);
    let mut out = Vec::with_capacity(len);
    let peer: Vec<Duration> = (0..5)
        .map(|_| {
            out.clear();
            let began = Instant::now();
            TextEncoder::new().encode(&peer_families, &mut out).expect("memory must take it");
            black_box(&out);
            began.elapsed()
        })
        .collect();
    let (warm, floor, cold, peer) = (best(warm), best(floor), best(cold), best(peer));
    let rate = |d: Duration| samples as f64 / d.as_secs_f64() / 1e6;
    report("encode/plain_copy", rate(floor), "M samples/s", None);
    report("encode/warm", rate(warm), "M samples/s", Some((rate(warm) / rate(floor), COPY)));
    report(
        "encode/warm_time",
        warm.as_secs_f64() * 1e3,
        "ms",
        Some((warm.as_secs_f64() / floor.as_secs_f64(), "the time of plain copying")),
    );
    report("encode/cold", rate(cold), "M samples/s", Some((rate(cold) / rate(floor), COPY)));
    report("encode/prometheus_crate", rate(peer), "M samples/s", Some((rate(peer) / rate(floor), COPY)));
    report("encode/faster_than_prometheus_crate", rate(warm) / rate(peer), "times encode/prometheus_crate", None);
    compress(&snapshot, len, warm);
    formats::all(&snapshot, &metrics);
    profiles();
}

/// Gives the length of the body.
fn in_pages(encoder: &mut Encoder, snapshot: &Snapshot, metrics: &Metrics) -> usize {
    let everything = Filter::default();
    let walk = Walk::new(snapshot, metrics, &everything);
    let labels = encoder.labels(&walk, Format::Text);
    let mut written = 0;
    let mut full = |page: Vec<u8>, len: usize| {
        black_box(&page[..len]);
        written += len;
        page
    };
    let (_, rest) = write(&walk, Format::Text, &labels, vec![0; PAGE], Some(&mut full));
    written + rest
}

fn encode(encoder: &mut Encoder, snapshot: &Snapshot, metrics: &Metrics, page: Vec<u8>) -> (Vec<u8>, usize) {
    encoder.encode(&Walk::new(snapshot, metrics, &Filter::default()), Format::Text, page)
}

/// A publication in which nothing moved, in which one alloc changed, and in which everything moved.
fn assemble(
    assembler: &mut allostat::snapshot::assemble::Assembler,
    board: &allostat::board::BoardView,
    reported: &synthetic::TaskReadings,
) {
    use allostat::snapshot::assemble::ClockReading;
    let moment = || ClockReading { now: Instant::now(), at: synthetic::NOW };
    let mut quiet = Vec::new();
    let mut one = Vec::new();
    let mut reported = reported.clone();
    for round in 0..ROUNDS {
        let began = Instant::now();
        black_box(assembler.change(board, &mut reported, moment()));
        quiet.push(began.elapsed());
        let mut changed = board.clone();
        let place = round % changed.allocs.len();
        changed.allocs[place] = Arc::new((*changed.allocs[place]).clone());
        let began = Instant::now();
        black_box(assembler.change(&changed, &mut reported, moment()));
        one.push(began.elapsed());
        assembler.change(board, &mut reported, moment());
    }
    report("snapshot/nothing_changed", best(quiet).as_secs_f64() * 1e6, "us", None);
    report("snapshot/one_alloc_changed", best(one).as_secs_f64() * 1e6, "us", None);
    let mut moved = Vec::new();
    for round in 0..9_u64 {
        for usage in reported.0.values_mut() {
            let mut next = (**usage).clone();
            next.set(Field::cpu_usage_ns, next.cpu_usage_ns().map(|n| n + round + 1));
            *usage = Arc::new(next);
        }
        let began = Instant::now();
        let tick = allostat::snapshot::assemble::TickInputs::default();
        black_box(assembler.tick(board, &mut reported, tick, moment()));
        moved.push(began.elapsed());
    }
    report("snapshot/everything_moved", best(moved).as_secs_f64() * 1e6, "us", None);
}

/// What who scrapes each 15 s gets in a day, in each profile, where each task is a job of its own: nothing costs more
/// series.
fn profiles() {
    const SCRAPES: f64 = 86_400.0 / 15.0;
    for tasks in [10, 100, 1_000] {
        let (board, readings) = synthetic::many_jobs(tasks);
        let metrics = Arc::new(Metrics::new());
        board
            .allocs
            .iter()
            .filter_map(|alloc| alloc.identity.workload.as_ref())
            .for_each(|job| metrics.durations.known(job));
        let mut assembler = synthetic::assembler(synthetic::info("v2", Vec::new()));
        let snapshot = synthetic::tick(&mut assembler, &board, &readings, Default::default());
        for profile in Profile::ALL {
            let bodies = Bodies::new(Arc::clone(&metrics), Arc::new(Selection::of(profile)));
            let text = bodies.get(&snapshot, Format::Text, Encoding::Identity);
            let gzip = bodies.get(&snapshot, Format::Text, Encoding::Gzip).len();
            let text = std::str::from_utf8(&text).expect("an exposition must be text");
            let samples = text.lines().filter(|l| !l.starts_with('#')).count();
            let name = |what: &str| format!("profile/{}/{tasks}/{what}", profile.as_str());
            report(&name("series_per_task"), per_task(text).0 as f64 / tasks as f64, "series", None);
            report(&name("series"), samples as f64, "series", None);
            report(&name("body"), text.len() as f64, "bytes", None);
            report(&name("gzip"), gzip as f64, "bytes", None);
            report(&name("samples_a_day"), samples as f64 * SCRAPES / 1e6, "million", None);
            report(&name("gzip_a_day"), gzip as f64 * SCRAPES / 1e6, "MB", None);
        }
    }
}

fn compress(snapshot: &Snapshot, len: usize, encoding: Duration) {
    let bodies = Bodies::new(Arc::new(Metrics::new()), Arc::new(Selection::of(Profile::Full)));
    let mut times = Vec::new();
    let mut size = 0;
    for round in 0..5 {
        let mut next = snapshot.clone();
        next.version += round + 1;
        bodies.get(&next, Format::Text, Encoding::Identity);
        let began = Instant::now();
        size = bodies.get(&next, Format::Text, Encoding::Gzip).len();
        times.push(began.elapsed());
    }
    let took = best(times);
    report(
        "encode/gzip_time",
        took.as_secs_f64() * 1e3,
        "ms",
        Some((took.as_secs_f64() / encoding.as_secs_f64(), "encode/warm_time")),
    );
    report("encode/gzip_size", size as f64, "bytes", Some((size as f64 / len as f64, "the body")));
}

/// Series and bytes of the task and alloc families.
fn per_task(text: &str) -> (usize, usize) {
    let of_tasks = text.lines().filter(|l| l.contains("alloc_id=\""));
    of_tasks.fold((0, 0), |(series, bytes), line| (series + 1, bytes + line.len() + 1))
}

/// The same samples as the `prometheus` crate would hold them.
fn families(text: &str) -> Vec<prometheus::proto::MetricFamily> {
    use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
    let mut families: BTreeMap<&str, MetricFamily> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let family = families.entry(name).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help("help".to_owned());
            let counter = name.ends_with("_total");
            family.set_field_type(if counter { MetricType::COUNTER } else { MetricType::GAUGE });
            family
        });
        let mut metric = Metric::default();
        let pairs =
            labels.trim_end_matches('}').split("\",").filter_map(|l| l.split_once("=\"")).map(|(name, value)| {
                let mut pair = LabelPair::default();
                pair.set_name(name.to_owned());
                pair.set_value(value.trim_end_matches('"').to_owned());
                pair
            });
        metric.set_label(pairs.collect());
        let value: f64 = value.parse().expect("a value is a number");
        if name.ends_with("_total") {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        family.mut_metric().push(metric);
    }
    families.into_values().collect()
}

fn best(times: Vec<Duration>) -> Duration {
    times.into_iter().min().expect("there was a round")
}

fn report(name: &str, value: f64, unit: &str, ratio: Option<(f64, &str)>) {
    let ratio = ratio.map_or_else(|| "-".to_owned(), |(ratio, to)| format!("{ratio:.3}\t{to}"));
    println!("bench\t{name}\t{value:.2}\t{unit}\t{ratio}");
}
