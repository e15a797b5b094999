//! The exposition: Prometheus text 0.0.4 and OpenMetrics 1.0.0, written by our own encoder.
//!
//! ```text
//! Snapshot, Metrics ── Encoder (labels cached, pages reused) ──► Bodies (one per snapshot and format) ──► scrapers
//! ```
//! Not here yet: exemplars, `_created`, protobuf and native histograms.

mod ahead;
mod bodies;
mod encode;
mod filter;
mod header;
mod labels;
pub mod lifecycle;
mod measures;
mod page;
mod registry;

pub use bodies::Bodies;
pub use encode::{Encoder, Itself};
pub use filter::{Filter, FilterError, Source};

/// What a scraper can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus text 0.0.4: the default.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub const ALL: [Format; 2] = [Format::Text, Format::OpenMetrics];
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
    /// The `format` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::OpenMetrics => "openmetrics",
        }
    }
}

/// How the body travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    Identity,
    Gzip,
}

impl Encoding {
    pub const ALL: [Encoding; 2] = [Encoding::Identity, Encoding::Gzip];
    /// The `encoding` label, and the word of `Content-Encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
        }
    }
}
