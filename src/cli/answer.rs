//! JSON of an agent, which may be hostile: what a command reads of it steers no terminal, wherever it is shown.

use std::borrow::Cow;
use std::fmt::Write;

use serde::de::{DeserializeOwned, Error};

use crate::model::text::steers_a_terminal;

/// The value with every text and every name in it as [`terminal_lines`](crate::model::text::terminal_lines)
/// gives it.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    // Bytes that are no UTF-8 may stand where the reader skips them.
    let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
    let is_plain = !text.contains('\\') && !text.chars().any(|c| steers_a_terminal(c) && c != '\n');
    if is_plain { serde_json::from_str(text) } else { serde_json::from_str(&cleaned(text)) }
}

/// JSON text with the same values, cleaned. As text: as values, 58 MB of `{"":0}` are 5 GB of memory.
fn cleaned(json: &str) -> String {
    let mut clean = String::with_capacity(json.len() + 16);
    let mut rest = json;
    let mut is_string = false;
    while let Some(next) = rest.chars().next() {
        let escape = if is_string && next == '\\' { escape(rest) } else { None };
        let (shown, length) = escape.unwrap_or((next, next.len_utf8()));
        let (written, after) = rest.split_at(length);
        is_string ^= next == '"';
        // Between texts it is white space, or no JSON.
        if is_string && steers_a_terminal(shown) && shown != '\n' && shown != '\t' {
            clean.extend(shown.escape_default().flat_map(|c| (c == '\\').then_some('\\').into_iter().chain([c])));
        } else {
            clean.push_str(written);
        }
        rest = after;
    }
    clean
}

/// The character of an escape that begins here, and the length of the escape. `None`: it is none.
fn escape(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
    match text.as_bytes().get(1)? {
        b'b' => Some(('\u{8}', 2)),
        b'f' => Some(('\u{c}', 2)),
        b'r' => Some(('\r', 2)),
        b'u' => {
            let first = unit(2)?;
            let second = text.get(6..8).filter(|next| *next == "\\u").and_then(|_| unit(8));
            let pair = second.and_then(|second| char::decode_utf16([first, second]).next()?.ok());
            match char::from_u32(first.into()) {
                Some(single) => Some((single, 6)),
                None => pair.map(|pair| (pair, 12)),
            }
        }
        byte if byte.is_ascii() => Some((' ', 2)),
        _ => None,
    }
}

/// JSON text with what would steer a terminal as JSON escapes it: it means the same.
pub fn shown(json: &str) -> Cow<'_, str> {
    let steers = |c: char| steers_a_terminal(c) && c != '\n';
    if !json.chars().any(steers) {
        return Cow::Borrowed(json);
    }
    json.chars()
        .fold(String::with_capacity(json.len() + 16), |mut shown, c| {
            let _ = if steers(c) { write!(shown, "\\u{:04x}", u32::from(c)) } else { write!(shown, "{c}") };
            shown
        })
        .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::text::terminal_lines;

    #[test]
    fn texts_and_names_of_an_answer_are_cleaned_and_numbers_are_unchanged() {
        let answer =
            json!({ "a\u{202e}": ["b\u{1b}[2J", 18_446_744_073_709_551_615_u64, 0.5, null, "one\ntwo\u{9b}"] });
        for text in [answer.to_string(), answer.to_string().replace('\u{202e}', "\\u202e")] {
            let read: BTreeMap<String, Value> = read(text.as_bytes()).unwrap();
            let expected = json!(["b\\u{1b}[2J", 18_446_744_073_709_551_615_u64, 0.5, null, "one\ntwo\\u{9b}"]);
            assert_eq!(read, BTreeMap::from([("a\\u{202e}".to_owned(), expected)]));
        }
        assert_eq!(read::<Vec<u64>>(b"[1,\n 2]").unwrap(), [1, 2]);
    }

    #[test]
    fn short_escapes_of_control_characters_are_cleaned() {
        let read: Vec<String> = read(br#"["a\rb\b\f", "\u001b\\r\"\/", "\ud83d\ude00\n\t\u202E"]"#).unwrap();
        assert_eq!(read, ["a\\rb\\u{8}\\u{c}", "\\u{1b}\\r\"/", "\u{1f600}\n\t\\u{202e}"]);
        assert!(super::read::<Vec<String>>(b"[\"\xff\"]").is_err());
    }

    fn clean(value: Value) -> Value {
        match value {
            Value::String(text) => terminal_lines(&text).into(),
            Value::Array(all) => all.into_iter().map(clean).collect(),
            Value::Object(all) => {
                all.into_iter().map(|(name, value)| (terminal_lines(&name).into_owned(), clean(value))).collect()
            }
            other => other,
        }
    }

    proptest! {
        #[test]
        fn cleaned_text_has_the_values_that_cleaned_values_have(
            text in r#"([\[\]{}:, ]|"([a-z\\\x1b\u{202e}]|\\[bfnrt"/\\]|\\u00[01][0-9A-f]|\\ud83d\\ude00){0,4}"|[0-9]{1,3}){0,9}"#
        ) {
            let expected = serde_json::from_str::<Value>(&text).ok().map(clean);
            let read = read::<Value>(text.as_bytes()).ok();
            prop_assert!(expected.is_none() || read == expected, "{:?}, {:?}", read, expected);
        }
    }

    #[test]
    fn json_that_is_shown_means_the_same_and_steers_nothing() {
        let value = json!({ "a\u{202e}\u{7f}": "b\u{1b}[2J\u{9b}\u{2028}\n\té" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = shown(&text);
        assert!(!shown.chars().any(|c| steers_a_terminal(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
