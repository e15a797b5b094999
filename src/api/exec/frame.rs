//! What goes over the connection of an exec session, once it stopped being HTTP: frames in both directions.
//!
//! ```text
//! kind (1 byte)   length (2 bytes, big endian)   payload
//!   0 input       1 output    2 errors            bytes, at most 16 KiB
//!   3 end of input                                nothing
//!   4 size                                        columns, rows (2 bytes each)
//!   5 credit                                      bytes that may be sent in addition (4 bytes)
//!   6 exit                                        exit code (1 byte)
//!   7 failed                                      why how it ended is not known, UTF-8
//! ```
//! A side may have sent [`WINDOW`] bytes that the other has not granted credit for, and no more: so neither buffers
//! more, and a side that always reads never waits for what it wrote.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::host::pty::WindowSize;

/// What the connection speaks: the value of `Upgrade`.
pub const EXEC_PROTOCOL: &str = "allostat-exec/1";
/// Of input, and of output and errors together.
pub const WINDOW: usize = 64 << 10;
/// Of one frame.
pub const LONGEST_PAYLOAD: usize = 16 << 10;
const HEAD: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecFrame {
    Input(Bytes),
    Output(Bytes),
    Errors(Bytes),
    EndOfInput,
    Size(WindowSize),
    Credit(u32),
    Exit(u8),
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the exec stream is not valid: {0}")]
pub struct BadFrame(pub &'static str);

impl ExecFrame {
    /// Of a text no more than fits.
    pub fn encode(&self) -> Bytes {
        let mut payload = BytesMut::new();
        let kind = match self {
            ExecFrame::Input(bytes) => return framed(0, bytes),
            ExecFrame::Output(bytes) => return framed(1, bytes),
            ExecFrame::Errors(bytes) => return framed(2, bytes),
            ExecFrame::EndOfInput => 3,
            ExecFrame::Size(size) => {
                payload.put_u16(size.columns);
                payload.put_u16(size.rows);
                4
            }
            ExecFrame::Credit(bytes) => {
                payload.put_u32(*bytes);
                5
            }
            ExecFrame::Exit(code) => {
                payload.put_u8(*code);
                6
            }
            ExecFrame::Failed(why) => return framed(7, crate::model::text::cut(why, LONGEST_PAYLOAD).as_bytes()),
        };
        framed(kind, &payload)
    }

    fn decode(kind: u8, mut payload: Bytes) -> Result<ExecFrame, BadFrame> {
        let exactly = |length: usize| if payload.len() == length { Ok(()) } else { Err(BadFrame("a frame's length")) };
        Ok(match kind {
            0 => ExecFrame::Input(payload),
            1 => ExecFrame::Output(payload),
            2 => ExecFrame::Errors(payload),
            3 => exactly(0).map(|()| ExecFrame::EndOfInput)?,
            4 => {
                exactly(4)?;
                ExecFrame::Size(WindowSize { columns: payload.get_u16(), rows: payload.get_u16() })
            }
            5 => exactly(4).map(|()| ExecFrame::Credit(payload.get_u32()))?,
            6 => exactly(1).map(|()| ExecFrame::Exit(payload.get_u8()))?,
            7 => ExecFrame::Failed(String::from_utf8_lossy(&payload).into_owned()),
            _ => return Err(BadFrame("a frame of unknown kind")),
        })
    }
}

fn framed(kind: u8, payload: &[u8]) -> Bytes {
    debug_assert!(payload.len() <= LONGEST_PAYLOAD);
    let mut frame = BytesMut::with_capacity(HEAD + payload.len());
    frame.put_u8(kind);
    frame.put_u16(u16::try_from(payload.len()).unwrap_or(u16::MAX));
    frame.put_slice(payload);
    frame.freeze()
}

/// Frames out of bytes that come in pieces of any size. It holds what was fed and is not taken yet.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    held: BytesMut,
}

impl FrameDecoder {
    /// Where the next bytes may be read to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.held.reserve(HEAD + LONGEST_PAYLOAD);
        &mut self.held
    }

    /// `None`: it is not whole yet. Errors: this is no such stream.
    pub fn frame(&mut self) -> Result<Option<ExecFrame>, BadFrame> {
        let [kind, high, low, ..] = *self.held else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > LONGEST_PAYLOAD {
            return Err(BadFrame("a frame is too long"));
        }
        if self.held.len() < HEAD + length {
            return Ok(None);
        }
        self.held.advance(HEAD);
        ExecFrame::decode(kind, self.held.split_to(length).freeze()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Vec<ExecFrame> {
        vec![
            ExecFrame::Input(Bytes::from_static(b"in")),
            ExecFrame::Output(Bytes::from(vec![7; LONGEST_PAYLOAD])),
            ExecFrame::Errors(Bytes::new()),
            ExecFrame::EndOfInput,
            ExecFrame::Size(WindowSize { columns: 300, rows: 50 }),
            ExecFrame::Credit(70_000),
            ExecFrame::Exit(137),
            ExecFrame::Failed("why".to_owned()),
        ]
    }

    #[test]
    fn too_long_unknown_and_wrong_frames_are_refused() {
        for wrong in [&[1, 0x40, 1][..], &[8, 0, 0], &[6, 0, 2, 1, 1], &[3, 0, 1, 0], &[4, 0, 1, 0]] {
            let mut decoder = FrameDecoder::default();
            decoder.buffer().extend_from_slice(wrong);
            assert!(decoder.frame().is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(cut in 1_usize..5000) {
            let wire: Vec<u8> = some().iter().flat_map(|frame| frame.encode().to_vec()).collect();
            let (mut decoder, mut read) = (FrameDecoder::default(), Vec::new());
            for piece in wire.chunks(cut) {
                decoder.buffer().extend_from_slice(piece);
                while let Some(frame) = decoder.frame().unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, some());
        }
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = FrameDecoder::default();
            decoder.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = decoder.frame() {}
        }
    }
}
