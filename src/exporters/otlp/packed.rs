//! Requests as the queue has them: gzip of a message, which is how most of them are sent.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;

/// Nothing that we pack is larger.
const LARGEST_BYTES: u64 = 256 << 20;

/// Level 1: names and times repeat so much that more costs time and gains little.
pub(super) fn pack(request: &ExportMetricsServiceRequest) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    let written = encoder.write_all(&request.encode_to_vec()).and_then(|()| encoder.finish());
    written.expect("writing to memory must succeed")
}

pub(super) fn unpack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).take(LARGEST_BYTES).read_to_end(&mut plain)?;
    Ok(plain)
}

pub(super) fn read(bytes: &[u8]) -> io::Result<ExportMetricsServiceRequest> {
    ExportMetricsServiceRequest::decode(unpack(bytes)?.as_slice()).map_err(io::Error::other)
}
