//! OTLP: what a walk says, as messages of the OpenTelemetry protocol, pushed to a collector; and what happened, as logs
//! and traces.
//!
//! ```text
//! Walk ── collect ──► one request ── flat? ── parts ──► packed ──► outbox (store::queue, on disk) ── deliver ── delta? ──► send ──► collector
//! task output, observed tasks ── workload_logs ────────► packed ──► outbox ───────── deliver ────────────────────────► send ──► collector
//! events ── lifecycle ──► logs, traces ────────────────► packed ──► outbox of each ───────────────── deliver ────────────► send ──► collector
//! ```
//! By itself sums are cumulative, with true start times; a point has the time at which its value was read. What is
//! absent is absent; what was exported before and is absent now gets one more point, without a value. `exposed` takes
//! the place of `collect` where metrics have the names of `/metrics`. `docs/otlp.md` is what users may rely on.

mod answer;
mod attribute;
mod batch;
mod collect;
mod container;
mod deliver;
mod delta;
mod exposed;
mod flat;
mod lifecycle;
mod logs;
mod message;
mod names;
mod outbox;
mod packed;
mod parts;
mod push;
mod resource;
mod send;
mod settings;
mod states;
mod traces;
mod workload_logs;

use prost::Message;

use super::walk::Walk;

pub use collect::{Endings, collect};
pub use message::NO_RECORDED_VALUE;
pub use names::SCHEMA_URL;
pub(super) use names::otlp_form;
pub use packed::pack;
pub use parts::{LARGEST_BYTES, halves, parts, points};
pub use push::{QUEUE_DIR, run};
pub use resource::HostIdentity;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use send::send_once;
pub use settings::{
    Compression, Config, DEFAULT, ForwardedStream, HistogramAggregation, MetricNames, Protocol, PushEndpoint, Scheme,
    SignalConfig, Temporality, destination_name, endpoint, headers, joined, pairs,
};

/// One request, without any that was exported before.
pub fn encode(walk: &Walk<'_>) -> Vec<u8> {
    collect(walk, &HostIdentity::default(), HistogramAggregation::Explicit, &mut Endings::default()).encode_to_vec()
}
