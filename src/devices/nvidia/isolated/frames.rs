//! Framing between agent and helper: four bytes of length (little-endian), then JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Larger than the longest list of devices that is accepted.
const LARGEST: usize = 16 << 20;
const LENGTH: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(super) enum HelperFrameError {
    #[error("message of {0} bytes; the limit is {LARGEST}")]
    TooLarge(usize),
    #[error("invalid message")]
    Garbled(#[source] serde_json::Error),
}

pub(super) fn write(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; LENGTH];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - LENGTH).ok().filter(|length| *length as usize <= LARGEST);
    let length = length.ok_or_else(|| io::Error::other(HelperFrameError::TooLarge(bytes.len() - LENGTH)))?;
    bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
    out.write_all(&bytes)?;
    out.flush()
}

/// Received bytes of an incomplete message.
#[derive(Debug, Default)]
pub(super) struct HelperFrames(Vec<u8>);

impl HelperFrames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next complete message. Errors: the rest of the stream cannot be read either.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, HelperFrameError> {
        let Some(length) = self.0.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(HelperFrameError::TooLarge(length));
        }
        let Some(message) = self.0.get(LENGTH..LENGTH + length) else { return Ok(None) };
        let read = serde_json::from_slice(message).map_err(HelperFrameError::Garbled)?;
        self.0.drain(..LENGTH + length);
        Ok(Some(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framed_messages_are_complete_and_ordered_however_they_are_split() {
        let mut sent = Vec::new();
        write(&mut sent, &"one").unwrap();
        write(&mut sent, &"").unwrap();
        write(&mut sent, &"three".repeat(10_000)).unwrap();
        for size in [1, 3, 7, 4096, sent.len()] {
            let (mut frames, mut lengths) = (HelperFrames::default(), Vec::new());
            for part in sent.chunks(size) {
                frames.push(part);
                while let Some(text) = frames.next::<String>().unwrap() {
                    lengths.push(text.len());
                }
            }
            assert_eq!((lengths, frames.0.len()), (vec![3, 0, 50_000], 0), "in pieces of {size}");
        }
    }

    #[test]
    fn oversized_or_malformed_helper_message_is_refused_before_it_is_gathered() {
        let mut frames = HelperFrames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert!(matches!(frames.next::<String>(), Err(HelperFrameError::TooLarge(_))));
        let mut frames = HelperFrames::default();
        frames.push(&[2, 0, 0, 0, b'{', b'{']);
        assert!(matches!(frames.next::<String>(), Err(HelperFrameError::Garbled(_))));
        assert!(write(&mut Vec::new(), &"x".repeat(LARGEST)).is_err());
    }
}
