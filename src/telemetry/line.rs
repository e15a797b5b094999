//! One event, one line, whatever its fields hold: a newline in a job's `command` must not begin a log line of its own.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::model::text::steers_a_terminal;

/// Writes what it gets as one line. Concurrency: the formatter hands over each event in one write.
#[derive(Debug, Clone)]
pub struct OneLine<M>(pub M);

pub struct EscapingWriter<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = EscapingWriter<M::Writer>;
    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        // Nearly always nothing.
        if line.iter().any(|byte| byte.is_ascii_control() || *byte == 0xc2) {
            let mut text = escaped(&String::from_utf8_lossy(line));
            text.push('\n');
            self.0.write_all(text.as_bytes())?;
        } else {
            self.0.write_all(event)?;
        }
        Ok(event.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Without control characters, but for tabs and the formatter's colours.
fn escaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len() + 16);
    for (at, c) in line.char_indices() {
        match c {
            '\t' => text.push(c),
            '\x1b' if is_colour(&line[at..]) => text.push(c),
            c if steers_a_terminal(c) => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text
}

/// `ESC [ 1 ; 31 m`
fn is_colour(text: &str) -> bool {
    let inside =
        text.strip_prefix("\x1b[").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
    inside.is_some_and(|rest| rest.starts_with('m'))
}
