//! Parser for the stream of a container's log. Pure.
//!
//! ```text
//! no terminal   1 byte stream, 3 bytes 0, 4 bytes length (big endian), `2026-01-02T03:04:05.678901234Z `, message
//! terminal      `2026-01-02T03:04:05.678901234Z `, message, again after each newline and after each 16 KiB
//! ```
//! Source: Docker Engine API, `/containers/{id}/logs` and `/attach` ("Stream format"); messages of more than 16 KiB
//! come in parts.

use crate::model::moment::moment;
use crate::model::units::Timestamp;

/// Maximum length of a timestamp.
const LONGEST_MOMENT: usize = 40;
/// A message of a terminal is split there.
const PART: u64 = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogStream {
    Stdout,
    Stderr,
}

#[derive(Debug, PartialEq, Eq)]
pub enum LogPiece<'a> {
    /// A message begins.
    Begin(LogStream, Timestamp),
    Text(&'a [u8]),
    /// The message is complete.
    End,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log stream is not valid: {0}")]
pub struct BadStream(&'static str);

/// Parses a stream in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    is_terminal: bool,
    state: State,
    /// The result of a header or a timestamp.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    /// Remaining bytes of the message, with its timestamp; unknown for a terminal.
    Moment(LogStream, u64),
    Text(u64),
}

impl Decoder {
    pub fn new(is_terminal: bool) -> Decoder {
        let mut decoder = Decoder { is_terminal, state: State::Head, held: Vec::new() };
        decoder.next_message();
        decoder
    }

    fn next_message(&mut self) {
        self.held.clear();
        self.state = if self.is_terminal { State::Moment(LogStream::Stdout, u64::MAX) } else { State::Head };
    }

    /// Errors: this is no such stream; nothing more of it can be parsed.
    pub fn take(&mut self, mut bytes: &[u8], mut see: impl FnMut(LogPiece<'_>)) -> Result<(), BadStream> {
        while let Some(first) = bytes.first() {
            match self.state {
                State::Head => {
                    self.held.push(*first);
                    bytes = &bytes[1..];
                    if let Ok(head) = <[u8; 8]>::try_from(self.held.as_slice()) {
                        self.state = head_of(head)?;
                        self.held.clear();
                    }
                }
                State::Moment(stream, left) => {
                    bytes = &bytes[1..];
                    if *first == b' ' {
                        let text = std::str::from_utf8(&self.held).ok();
                        let at = text.and_then(moment).ok_or(BadStream("a message without a time"))?;
                        see(LogPiece::Begin(stream, at));
                        self.held.clear();
                        self.state = State::Text(if self.is_terminal { 0 } else { left - 1 });
                        if !self.is_terminal && left == 1 {
                            see(LogPiece::End);
                            self.next_message();
                        }
                    } else {
                        self.held.push(*first);
                        if self.held.len() > LONGEST_MOMENT || left <= 1 {
                            return Err(BadStream("a message without a time"));
                        }
                        self.state = State::Moment(stream, if self.is_terminal { left } else { left - 1 });
                    }
                }
                State::Text(count) => bytes = self.text(bytes, count, &mut see),
            }
        }
        Ok(())
    }

    /// Passes on the rest. `count`: remaining bytes of the message; for a terminal, bytes so far.
    fn text<'a>(&mut self, bytes: &'a [u8], count: u64, see: &mut impl FnMut(LogPiece<'_>)) -> &'a [u8] {
        let room = if self.is_terminal { PART - count } else { count };
        let most = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let newline = bytes[..most].iter().position(|byte| *byte == b'\n').filter(|_| self.is_terminal);
        let (now, rest) = bytes.split_at(newline.map_or(most, |at| at + 1));
        see(LogPiece::Text(now));
        let is_over = newline.is_some() || now.len() as u64 == room;
        if is_over {
            see(LogPiece::End);
            self.next_message();
        } else {
            let done = now.len() as u64;
            self.state = State::Text(if self.is_terminal { count + done } else { count - done });
        }
        rest
    }
}

fn head_of(head: [u8; 8]) -> Result<State, BadStream> {
    let [stream, a, b, c, length @ ..] = head;
    let stream = match stream {
        0 | 1 => LogStream::Stdout,
        2 => LogStream::Stderr,
        _ => return Err(BadStream("an unknown stream")),
    };
    if (a, b, c) != (0, 0, 0) {
        return Err(BadStream("a head that is none"));
    }
    match u32::from_be_bytes(length) {
        0 => Err(BadStream("an empty message")),
        length => Ok(State::Moment(stream, u64::from(length))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: &str = "2026-11-28T10:26:20.455795117Z";

    fn frame(stream: u8, text: &[u8]) -> Vec<u8> {
        let all = [AT.as_bytes(), b" ", text].concat();
        let length = u32::try_from(all.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0], &length[..], &all].concat()
    }

    /// Each message, with its stream.
    fn read(is_terminal: bool, bytes: &[u8], step: usize) -> Result<Vec<(LogStream, Vec<u8>)>, BadStream> {
        let (mut decoder, mut all, mut open) = (Decoder::new(is_terminal), Vec::new(), 0);
        for piece in bytes.chunks(step.max(1)) {
            decoder.take(piece, |piece| match piece {
                LogPiece::Begin(stream, at) => {
                    assert_eq!(at, moment(AT).unwrap());
                    all.push((stream, Vec::new()));
                    open += 1;
                }
                LogPiece::Text(text) => all.last_mut().unwrap().1.extend_from_slice(text),
                LogPiece::End => open -= 1,
            })?;
        }
        assert!((0..=1).contains(&open));
        Ok(all)
    }

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        let long = vec![b'a'; 40_000];
        let stream = [frame(1, b"one\n"), frame(2, b"two\n"), frame(1, b""), frame(1, &long)].concat();
        let expected = [
            (LogStream::Stdout, b"one\n".to_vec()),
            (LogStream::Stderr, b"two\n".to_vec()),
            (LogStream::Stdout, Vec::new()),
            (LogStream::Stdout, long),
        ];
        for step in [1, 2, 7, 8, 9, 38, 39, 40, 1_000, 100_000] {
            assert_eq!(read(false, &stream, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn docker_terminal_stream_has_a_time_per_line_and_per_part_of_a_long_line() {
        let part = vec![b'b'; 16 << 10];
        let stream = [AT.as_bytes(), b" one\n", AT.as_bytes(), b" ", &part, AT.as_bytes(), b" rest\n"].concat();
        let expected = [b"one\n".to_vec(), part, b"rest\n".to_vec()].map(|text| (LogStream::Stdout, text));
        for step in [1, 5, 31, 20_000] {
            assert_eq!(read(true, &stream, step).unwrap(), expected, "{step}");
        }
    }

    #[test]
    fn malformed_docker_log_stream_is_an_error() {
        for wrong in [
            &b"HTTP/1.1 200 OK\r\n"[..],
            &[3, 0, 0, 0, 0, 0, 0, 5, b'x'],
            &[1, 1, 0, 0, 0, 0, 0, 5],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &frame(1, b"x").iter().map(|byte| if *byte == b'T' { b'x' } else { *byte }).collect::<Vec<_>>(),
            &[&[1, 0, 0, 0, 0, 0, 0, 3][..], b"202"].concat(),
            &[&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], &[b'7'; 100]].concat(),
        ] {
            assert!(read(false, wrong, 3).is_err(), "{wrong:?}");
        }
        assert!(read(true, &[b'7'; 100], 3).is_err());
    }

    proptest! {
        #[test]
        fn no_stream_panics_and_holds_little(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            terminal: bool,
            step in 1usize..50,
        ) {
            let mut decoder = Decoder::new(terminal);
            for piece in bytes.chunks(step) {
                if decoder.take(piece, |_| {}).is_err() {
                    break;
                }
                prop_assert!(decoder.held.len() <= LONGEST_MOMENT + 1);
            }
        }
        #[test]
        fn any_messages_come_out(
            messages in proptest::collection::vec((1u8..3, proptest::collection::vec(any::<u8>(), 0..60)), 0..8),
            step in 1usize..200,
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|(stream, text)| frame(*stream, text)).collect();
            let stream_of = |number: u8| if number == 1 { LogStream::Stdout } else { LogStream::Stderr };
            let expected: Vec<_> = messages.into_iter().map(|(number, text)| (stream_of(number), text)).collect();
            prop_assert_eq!(read(false, &stream, step).unwrap(), expected);
        }
    }
}
