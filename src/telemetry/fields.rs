//! Fields of a log line as `name=value`: no value can be read as another field, or steers a terminal.
//!
//! Strings are always quoted. Anything else, the message too, is quoted only if it needs it, so that errors stay
//! readable.

use std::borrow::Cow;
use std::fmt;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::model::text::{cut, steers_a_terminal};

/// The longest value, in bytes before it is quoted: a path of a cgroup fits.
const LONGEST: usize = 4 << 10;

#[derive(Debug, Clone, Copy, Default)]
pub struct QuotedFields;

impl<'w> FormatFields<'w> for QuotedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = FieldLine { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct FieldLine<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl FieldLine<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.write(field.name(), value);
        }
    }
    fn write(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.is_empty) {
            self.writer.write_char(' ')?;
        }
        match (name, self.writer.has_ansi_escapes()) {
            ("message", _) => self.writer.write_fmt(value),
            // The name in italics, the sign dimmed.
            (name, true) => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}"),
            (name, false) => write!(self.writer, "{name}={value}"),
        }
    }
}

impl Visit for FieldLine<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.put(field, format_args!("{:?}", bounded(value)));
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let text = bounded(&text);
        if is_plain(&text) {
            self.put(field, format_args!("{text}"));
        } else {
            self.put(field, format_args!("{text:?}"));
        }
    }
}

/// Whether it needs no quotes: it has no sign of a field, and quotes of its own are closed.
fn is_plain(text: &str) -> bool {
    let quotes = text.matches('"').count();
    let is_closed = quotes.is_multiple_of(2) && (quotes == 0 || !text.contains('\\'));
    !text.chars().any(steers_a_terminal) && (is_quoted(text) || (is_closed && !text.contains('=')))
}

/// Whether it is one quoted string, as `{:?}` writes it.
fn is_quoted(text: &str) -> bool {
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut chars = inside.unwrap_or("\"").chars();
    while let Some(c) = chars.next() {
        if c == '"' || (c == '\\' && chars.next().is_none()) {
            return false;
        }
    }
    true
}

fn bounded(text: &str) -> Cow<'_, str> {
    match text.len().checked_sub(LONGEST) {
        None | Some(0) => Cow::Borrowed(text),
        Some(more) => Cow::Owned(format!("{}… ({more} bytes more)", cut(text, LONGEST))),
    }
}
