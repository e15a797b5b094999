//! A text as Go's `%q`, HTML, JavaScript, URLs and JSON have it.

use std::fmt::Write as _;

/// In double quotes, as a literal of Go.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        escape(&mut out, c, '"');
    }
    out.push('"');
    out
}

/// What is quoted already, in ASCII only.
pub(super) fn ascii(quoted: &str) -> String {
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        match u32::from(c) {
            0..0x80 => out.push(c),
            n if n < 0x10000 => drop(write!(out, "\\u{n:04x}")),
            n => drop(write!(out, "\\U{n:08x}")),
        }
    }
    out
}

/// A character in single quotes, as a literal of Go.
pub(super) fn quote_character(c: char) -> String {
    let mut out = String::from("'");
    escape(&mut out, c, '\'');
    out.push('\'');
    out
}

fn escape(out: &mut String, c: char, quote: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if c == quote => out.extend(['\\', c]),
        c if is_printable(c) => out.push(c),
        // Writing to a string does not fail.
        c if c < ' ' || c == '\u{7f}' => drop(write!(out, "\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x10000 => drop(write!(out, "\\u{:04x}", u32::from(c))),
        c => drop(write!(out, "\\U{:08x}", u32::from(c))),
    }
}

fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_control() || c.is_whitespace() => false,
        // Unassigned, private and format characters are what Rust escapes as well.
        c => c.escape_debug().len() == 1 || c.is_alphanumeric(),
    }
}

pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

pub(super) fn javascript(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str("\\u003C"),
            '>' => out.push_str("\\u003E"),
            '&' => out.push_str("\\u0026"),
            '=' => out.push_str("\\u003D"),
            c if c < ' ' || !is_printable(c) => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// As a value of a query.
pub(super) fn url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            other => drop(write!(out, "%{other:02X}")),
        }
    }
    out
}

/// A string of JSON. `escapes_html`: `<`, `>` and `&` as Go's encoder writes them.
pub(super) fn json(out: &mut String, text: &str, escapes_html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' if escapes_html => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c if c < ' ' || matches!(c, '\u{2028}' | '\u{2029}') => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
