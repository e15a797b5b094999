//! The exposition: Prometheus text 0.0.4 and OpenMetrics 1.0.0, written by our own encoder.
//!
//! ```text
//! Snapshot, Metrics ── Encoder (labels cached, pages reused) ──► Bodies (one per snapshot and format) ──► scrapers
//! ```
//! Not here yet: protobuf and native histograms.

mod ahead;
mod bodies;
mod created;
mod durations;
mod encode;
mod exemplar;
mod header;
mod labels;
mod measures;
mod page;
mod registry;

pub use bodies::Bodies;
pub use encode::{Encoder, Itself};

pub use crate::model::answer::{Encoding, Format};
