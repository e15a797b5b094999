//! The exposition: Prometheus text 0.0.4 and OpenMetrics 1.0.0, written by our own encoder.
//!
//! ```text
//! Walk ── Encoder (labels cached, pages reused) ──► Bodies (one per snapshot and format) ──► scrapers
//! ```
//! Not here yet: protobuf and native histograms.

mod ahead;
mod bodies;
mod encode;
mod exemplar;
mod header;
mod labels;
mod page;

use super::walk::Walk;
use crate::model::metric::MetricDesc;

pub use bodies::Bodies;
pub use encode::Encoder;

pub use crate::model::answer::{Encoding, Format};

/// What it tells of itself.
pub static METRICS: &[&MetricDesc] = &[&encode::PROFILE, &encode::SERIES];

/// One body for nobody who comes again.
pub fn encode(walk: &Walk<'_>, format: Format) -> Vec<u8> {
    let (mut bytes, len) = Encoder::default().encode(walk, format, Vec::new());
    bytes.truncate(len);
    bytes
}
