//! JSON of an agent, which may be hostile: what a command reads of it steers no terminal, wherever it is shown.

use std::borrow::Cow;
use std::fmt::Write;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::model::text::{steers_a_terminal, terminal_lines};

/// The value with every text and every name in it as [`terminal_lines`] gives it.
pub fn read<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let is_plain = std::str::from_utf8(json)
        .is_ok_and(|text| !text.contains("\\u") && !text.chars().any(|c| steers_a_terminal(c) && c != '\n'));
    if is_plain {
        return serde_json::from_slice(json);
    }
    serde_json::from_value(clean(serde_json::from_slice(json)?))
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

    use serde_json::json;

    use super::*;

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
    fn json_that_is_shown_means_the_same_and_steers_nothing() {
        let value = json!({ "a\u{202e}\u{7f}": "b\u{1b}[2J\u{9b}\u{2028}\n\té" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = shown(&text);
        assert!(!shown.chars().any(|c| steers_a_terminal(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
