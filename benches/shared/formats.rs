//! What each format of the exposition costs: samples, bytes, encoding, compressing, each time beside something of the
//! same run: plain copying of the same pieces, the encoder of others, the level that others use.
//!
//! Text 1.0.0 is text 0.0.4 but for its Content-Type: one row is both. Each time is the best of its rounds. The peer of
//! text is the `prometheus` crate's encoder, that of protocol buffers `prost`, each on the families as it holds them
//! itself.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use allostat::exporters::prometheus::{Encoder, Encoding, Format, compressed};
use allostat::exporters::walk::{Filter, Walk};
use allostat::snapshot::Snapshot;
use allostat::telemetry::Metrics;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use super::{ROUNDS, best, families, protobuf, report};

/// Of what takes tens of milliseconds.
const FEW: usize = 5;

pub fn all(snapshot: &Snapshot, metrics: &Metrics) {
    let everything = Filter::default();
    let mut text_took = Duration::ZERO;
    for kind in Format::ALL {
        let walk = Walk::new(snapshot, metrics, &everything);
        let mut encoder = Encoder::default();
        let (mut page, mut len) = encoder.encode(&walk, kind, Vec::new());
        let body = page[..len].to_vec();
        let pieces = pieces(&body, kind);
        let mut copy: Vec<u8> = Vec::with_capacity(body.len());
        let (mut own, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            (page, len) = encoder.encode(&walk, kind, page);
            own.push(began.elapsed());
            assert_eq!(len, body.len(), "the body changed its size");
            let began = Instant::now();
            copy.clear();
            pieces.iter().for_each(|piece| copy.extend_from_slice(piece));
            black_box(&copy);
            floor.push(began.elapsed());
        }
        let (own, floor) = (best(own), best(floor));
        if kind == Format::Text {
            text_took = own;
        }
        let format = kind.as_str();
        let name = |what: &str| format!("encode/{format}/{what}");
        let samples = samples(&body, kind);
        report(&name("samples"), samples, "series", None);
        report(&name("bytes"), count(body.len()), "bytes", None);
        report(&name("bytes-per-sample"), count(body.len()) / samples, "bytes", None);
        report(&name("copy"), millis(floor), "ms: the same pieces copied", None);
        report(&name("encode"), millis(own), "ms", Some((own.as_secs_f64() / floor.as_secs_f64(), &name("copy"))));
        report(&name("encode-beside-text"), millis(own), "ms", Some((ratio(own, text_took), "encode/text/encode")));
        if let Some((peer, who)) = encode_with_peers(&body, kind) {
            report(&name("peer"), millis(peer), &format!("ms: {who}"), None);
            report(&name("encode-beside-peer"), millis(own), "ms", Some((ratio(own, peer), who)));
        }
        for (encoding, usual) in [(Encoding::Gzip, "gzip, level 6"), (Encoding::Zstd, "zstd, level 3")] {
            let (took, size) = timed(|| compressed(&body, encoding).len());
            // Of the same bytes, by the level that is usual.
            let (peer_time, their_size) = timed(|| match encoding {
                Encoding::Gzip => gzip(&body, 6),
                Encoding::Zstd | Encoding::Identity => zstd::bulk::compress(&body, 3).expect("memory takes it").len(),
            });
            let name = |what: &str| name(&format!("{}-{what}", encoding.as_str()));
            report(&name("time"), millis(took), "ms", Some((ratio(took, peer_time), usual)));
            report(&name("size"), count(size), "bytes", Some((count(size) / count(body.len()), "the body")));
            report(
                &name("size-of-usual"),
                count(their_size),
                &format!("bytes, {usual}"),
                Some((count(size) / count(their_size), usual)),
            );
        }
    }
}

/// What plain copying copies one by one: lines, or families.
fn pieces(body: &[u8], format: Format) -> Vec<&[u8]> {
    match format {
        Format::Text | Format::OpenMetrics => body.split_inclusive(|byte| *byte == b'\n').collect(),
        Format::Protobuf => {
            let (mut rest, mut pieces) = (body, Vec::new());
            while !rest.is_empty() {
                let mut after = rest;
                let length = prost::decode_length_delimiter(&mut after).expect("a length");
                let (piece, next) = rest.split_at(rest.len() - after.len() + length);
                pieces.push(piece);
                rest = next;
            }
            pieces
        }
    }
}

/// Series, as each format counts them: of protocol buffers as they would stand in text, native histograms beside them.
fn samples(body: &[u8], format: Format) -> f64 {
    match format {
        Format::Text | Format::OpenMetrics => {
            count(body.split(|b| *b == b'\n').filter(|l| !l.is_empty() && l[0] != b'#').count())
        }
        Format::Protobuf => count(protobuf::series(&protobuf::decode(body)).len()),
    }
}

/// What another encoder takes for the same families.
fn encode_with_peers(body: &[u8], format: Format) -> Option<(Duration, &'static str)> {
    match format {
        Format::Text => {
            use prometheus::Encoder as _;
            let families = families(std::str::from_utf8(body).expect("an exposition is text"));
            let mut out = Vec::with_capacity(body.len());
            let (took, ()) = timed(|| {
                out.clear();
                prometheus::TextEncoder::new().encode(&families, &mut out).expect("memory takes it");
                black_box(&out);
            });
            Some((took, "the `prometheus` crate's text encoder"))
        }
        Format::Protobuf => {
            let families = protobuf::decode(body);
            let mut out = Vec::with_capacity(body.len());
            let (took, ()) = timed(|| {
                out.clear();
                families.iter().for_each(|family| family.encode_length_delimited(&mut out).expect("memory takes it"));
                black_box(&out);
            });
            Some((took, "prost, the same families"))
        }
        // None that is in Rust writes it from families that it is given.
        Format::OpenMetrics => None,
    }
}

fn gzip(body: &[u8], level: u32) -> usize {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::new(level));
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.expect("memory takes it").len()
}

/// The best of a few, and what the last gave.
fn timed<T>(mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let began = Instant::now();
        let done = work();
        (began.elapsed(), done)
    };
    let mut best = once();
    for _ in 1..FEW {
        let (took, done) = once();
        best = (took.min(best.0), done);
    }
    best
}

fn ratio(own: Duration, peer: Duration) -> f64 {
    own.as_secs_f64() / peer.as_secs_f64()
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss)] // Some millions.
fn count(n: usize) -> f64 {
    n as f64
}
