//! The exposition: Prometheus text 0.0.4 and 1.0.0, OpenMetrics 1.0.0 and protocol buffers, written by our own encoder.
//!
//! ```text
//! Walk ── labels cached ── page after page ──┬──► BodyStream: to the first client of a snapshot, while it is written
//!                                            └──► Bodies: kept for the next client, or compressed
//! ```
//! Names and labels of ours have no character that needs UTF-8 names: text 1.0.0 is 0.0.4 but for what it is called.

mod bodies;
mod body_info;
mod body_stream;
mod encode;
mod exemplar;
mod header;
mod labels;
mod messages;
mod page;
mod precompute;
mod protobuf;

use super::walk::{Listener, PageSource, Walk};
use crate::model::metric::MetricDesc;

pub use bodies::{Bodies, compressed};
pub use body_stream::{BodyStart, BodyStream, BrokenOff, PieceWriter};
pub use encode::{BodyLabels, Encoder, write};
pub use page::PageSink;

pub use crate::model::answer::{Encoding, Format};

/// What it exposes about itself.
pub static METRICS: &[&MetricDesc] = &[&body_info::PROFILE, &body_info::SERIES];

/// A walk with the metrics of a body about itself around it: `expose` gives the number of series of each family.
pub fn with_itself<L: Listener>(
    walk: &Walk<'_>,
    listener: &mut L,
    expose: impl FnOnce(&mut L) -> Vec<(&'static str, u64)>,
) {
    body_info::profile(listener, walk);
    let counts = expose(listener);
    body_info::series(listener, walk, &counts);
}

/// One body, without a cache for the next one.
pub fn encode(walk: &Walk<'_>, format: Format) -> Vec<u8> {
    let (mut bytes, len) = Encoder::default().encode(walk, format, Vec::new());
    bytes.truncate(len);
    bytes
}

/// A page under other names than ours: it says nothing of itself.
pub fn encode_page(walk: &Walk<'_>, format: Format, page: &impl PageSource) -> Vec<u8> {
    match format {
        Format::Protobuf => protobuf::encode_page(walk, page),
        Format::Text | Format::OpenMetrics => encode::encode_page(walk, format, page),
    }
}
