//! Requests as the queue has them: packed, as most of them are sent.

use std::io::{self, Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;

use super::settings::Compression;

/// Nothing that we pack is larger.
const LARGEST_BYTES: u64 = 256 << 20;
/// Names and times repeat so much that more costs time and gains little.
const LEVEL: u8 = 1;
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// As the queue has it.
pub fn pack(request: &impl Message, compression: Compression) -> Vec<u8> {
    packed(&request.encode_to_vec(), compression)
}

fn packed(plain: &[u8], compression: Compression) -> Vec<u8> {
    let written = match compression {
        Compression::Zstd => zstd::bulk::compress(plain, LEVEL.into()),
        // On disk it is packed also where it goes out plain.
        Compression::Gzip | Compression::None => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(LEVEL.into()));
            encoder.write_all(plain).and_then(|()| encoder.finish())
        }
    };
    written.expect("writing to memory must succeed")
}

/// How it is packed: what the queue has may be of before the setting was changed.
pub(super) fn compression(bytes: &[u8]) -> Compression {
    if bytes.starts_with(&ZSTD) { Compression::Zstd } else { Compression::Gzip }
}

/// As it goes out.
///
/// Errors: it cannot be unpacked.
pub(super) fn packed_as(bytes: &[u8], accepted: Compression) -> io::Result<Vec<u8>> {
    match accepted {
        accepted if accepted == compression(bytes) => Ok(bytes.to_vec()),
        Compression::None => unpack(bytes),
        accepted => Ok(packed(&unpack(bytes)?, accepted)),
    }
}

fn unpack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    match compression(bytes) {
        Compression::Zstd => zstd::Decoder::new(bytes)?.take(LARGEST_BYTES).read_to_end(&mut plain)?,
        Compression::Gzip | Compression::None => GzDecoder::new(bytes).take(LARGEST_BYTES).read_to_end(&mut plain)?,
    };
    Ok(plain)
}

pub(super) fn read<R: Message + Default>(bytes: &[u8]) -> io::Result<R> {
    R::decode(unpack(bytes)?.as_slice()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_request_is_recompressed_as_requested(plain: Vec<u8>) {
            for retained in Compression::ALL {
                let bytes = packed(&plain, retained);
                for accepted in Compression::ALL {
                    let sent = packed_as(&bytes, accepted).unwrap();
                    let received = if accepted == Compression::None { sent } else {
                        prop_assert_eq!(compression(&sent), accepted);
                        unpack(&sent).unwrap()
                    };
                    prop_assert_eq!(&received, &plain);
                }
            }
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, is_zstd: bool) {
            let bytes = if is_zstd { [ZSTD.as_slice(), &bytes].concat() } else { bytes };
            let _ = (unpack(&bytes), read::<ExportMetricsServiceRequest>(&bytes));
        }
    }
}
