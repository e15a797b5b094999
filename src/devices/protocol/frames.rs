//! gRPC message framing: compression flag, length in 4 bytes, message. Pure.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use super::MOST_BYTES;

const PREFIX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::devices) enum GrpcFrameError {
    #[error("message of {0} bytes; the limit is {MOST_BYTES}")]
    TooLarge(usize),
    #[error("unexpected compressed message")]
    Compressed,
}

/// Splits received bytes into complete messages.
#[derive(Debug, Default)]
pub(in crate::devices) struct GrpcFrames {
    bytes: BytesMut,
}

impl GrpcFrames {
    pub(in crate::devices) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// `None`: incomplete.
    ///
    /// Errors: reported as soon as the header is known, before the message has arrived.
    pub(in crate::devices) fn next(&mut self) -> Result<Option<Bytes>, GrpcFrameError> {
        let Some((flag, length)) = self.bytes.first_chunk::<PREFIX>().map(|[flag, length @ ..]| (*flag, *length))
        else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MOST_BYTES {
            return Err(GrpcFrameError::TooLarge(length));
        }
        if flag != 0 {
            return Err(GrpcFrameError::Compressed);
        }
        if self.bytes.len() < PREFIX + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }
    /// Whether an incomplete message remains.
    pub(in crate::devices) fn is_amid(&self) -> bool {
        !self.bytes.is_empty()
    }
}

/// The receiver rejects messages above its limit.
pub(in crate::devices) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::devices::protocol::messages::StdioData;

    #[test]
    fn oversized_or_compressed_frame_is_refused_at_its_head() {
        let refused = |head: &[u8]| {
            let mut frames = GrpcFrames::default();
            frames.push(head);
            frames.next().unwrap_err()
        };
        assert_eq!(refused(&[0, 0, 0x40, 0, 1]), GrpcFrameError::TooLarge(MOST_BYTES + 1));
        assert_eq!(refused(&[1, 0, 0, 0, 1]), GrpcFrameError::Compressed);
    }

    proptest! {
        #[test]
        fn messages_come_back_however_they_are_cut(
            all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
            cut in 1..9usize,
        ) {
            let message = |data: &Vec<u8>| StdioData { channel: 1, data: data.clone() };
            let bytes: Vec<u8> = all.iter().flat_map(|data| framed(&message(data)).to_vec()).collect();
            let (mut frames, mut found) = (GrpcFrames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.push(piece);
                while let Some(message) = frames.next().unwrap() {
                    found.push(StdioData::decode(message).unwrap().data);
                }
            }
            prop_assert_eq!(found, all);
            prop_assert!(!frames.is_amid());
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let mut frames = GrpcFrames::default();
            frames.push(&bytes);
            while let Ok(Some(_)) = frames.next() {}
        }
    }
}
