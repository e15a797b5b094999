//! Values of sensitive variables, and what replaces them in every text that a person can read.
//!
//! They are part of a job's record, so that an agent that was restarted still hides them. Two jobs that differ in them
//! alone are the same job: its tasks would run the same.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Stands in place of a sensitive value.
pub const HIDDEN: &str = "(sensitive)";
/// In characters. A shorter value is part of almost every text, and is not hidden.
pub const SHORTEST: usize = 3;
/// Texts of one job.
pub const MOST: usize = 1_000;
/// Of a text that was cut, so much at least is recognized.
const CUT_FROM: usize = 8;

/// Texts that no person sees.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SensitiveValues(BTreeSet<String>);

impl PartialEq for SensitiveValues {
    fn eq(&self, _: &SensitiveValues) -> bool {
        true
    }
}

impl Eq for SensitiveValues {}

/// How many there are: the values themselves reach no log.
impl fmt::Debug for SensitiveValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SensitiveValues({})", self.0.len())
    }
}

impl SensitiveValues {
    /// Hides the text from now on, wherever it stands in another one. `false`: there are too many.
    pub fn add(&mut self, text: &str) -> bool {
        let text = text.trim();
        // What says nothing of a secret stands in too many texts.
        let is_word = matches!(text, "true" | "false" | "null");
        if is_word || text.chars().count() < SHORTEST {
            return true;
        }
        self.0.insert(text.to_owned());
        self.0.len() <= MOST
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// These and the others.
    #[must_use]
    pub fn with(&self, others: &SensitiveValues) -> SensitiveValues {
        SensitiveValues(self.0.union(&others.0).cloned().collect())
    }

    /// The text without them. One that was cut (`…`) is recognized by its beginning.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replaced(text, |_| HIDDEN.to_owned())
    }
    /// A line of a file: what is hidden is as wide as before, so that columns stay where they are.
    pub fn hide_in_line<'t>(&self, line: &'t str) -> Cow<'t, str> {
        self.replaced(line, |hidden| "*".repeat(hidden.chars().count()))
    }
    /// Each text and each number in it, and the keys of objects.
    pub fn hide_in_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.hide(text).into(),
            Value::Number(number) if self.0.contains(&number.to_string()) => HIDDEN.into(),
            Value::Array(list) => list.iter().map(|one| self.hide_in_json(one)).collect(),
            Value::Object(object) => {
                let entries = object.iter().map(|(key, one)| (self.hide(key).into_owned(), self.hide_in_json(one)));
                Value::Object(entries.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn replaced<'t>(&self, text: &'t str, instead: impl Fn(&str) -> String) -> Cow<'t, str> {
        let needles = self.needles();
        let mut out = String::new();
        let (mut from, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match needles.iter().find_map(|needle| begins(rest, needle)) {
                Some(length) => {
                    out.push_str(&text[from..at]);
                    out.push_str(&instead(&rest[..length]));
                    at += length;
                    from = at;
                }
                None => at += rest.chars().next().map_or(1, char::len_utf8),
            }
        }
        if from == 0 { Cow::Borrowed(text) } else { Cow::Owned(out + &text[from..]) }
    }

    /// The longest first, also as they stand in templates, in quotes and in messages.
    fn needles(&self) -> Vec<String> {
        let mut needles = BTreeSet::new();
        for text in &self.0 {
            let debug = format!("{text:?}");
            let inner = |quoted: &str| quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned();
            let steers = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            needles.insert(inner(&debug));
            needles.insert(inner(&Value::from(text.as_str()).to_string()));
            needles.insert(text.chars().map(steers).collect());
            needles.insert(text.replace("${", "$${"));
            // The lines of a longer text appear alone.
            let lines = text.lines().map(str::trim).filter(|line| line.chars().count() >= CUT_FROM);
            needles.extend(lines.map(str::to_owned));
            needles.insert(text.clone());
        }
        let mut needles: Vec<String> = needles.into_iter().collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        needles
    }
}

/// How many bytes of the text are the needle, or the beginning of it that was left where the text was cut.
fn begins(text: &str, needle: &str) -> Option<usize> {
    if text.starts_with(needle) {
        return Some(needle.len());
    }
    let same = text.chars().zip(needle.chars()).take_while(|(a, b)| a == b);
    let (count, length) = same.fold((0, 0), |(count, length), (c, _)| (count + 1, length + c.len_utf8()));
    (count >= CUT_FROM && text[length..].starts_with('…')).then_some(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(texts: &[&str]) -> SensitiveValues {
        let mut all = SensitiveValues::default();
        texts.iter().for_each(|text| assert!(all.add(text)));
        all
    }

    #[test]
    fn values_are_hidden_wherever_they_stand() {
        let all = of(&["hunter2", "hunter22", "x\"y\nz", "a${b}", "12345"]);
        for (text, hidden) in [
            ("no secret", "no secret"),
            ("hunter2", HIDDEN),
            ("pre-hunter22-post hunter2", "pre-(sensitive)-post (sensitive)"),
            (r#"it is "x\"y\nz""#, r#"it is "(sensitive)""#),
            ("`x\"y\\nz`", "`(sensitive)`"),
            ("a$${b}", HIDDEN),
            ("port 12345", "port (sensitive)"),
        ] {
            assert_eq!(all.hide(text), hidden, "{text}");
        }
        assert_eq!(all.hide_in_line("a = \"hunter2\" # b"), "a = \"*******\" # b");
        let value = json!({ "hunter2": ["hunter2", 12345, 1234, true], "k": null });
        assert_eq!(all.hide_in_json(&value), json!({ HIDDEN: [HIDDEN, HIDDEN, 1234, true], "k": null }));
        assert_eq!(format!("{all:?}"), "SensitiveValues(5)");
    }

    #[test]
    fn a_value_that_was_cut_and_a_line_of_it_are_hidden() {
        let all = of(&["correct-horse-battery-staple", "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\n-----END KEY-----"]);
        assert_eq!(all.hide("`correct-horse-ba…` is wrong"), "`(sensitive)…` is wrong");
        assert_eq!(all.hide("correct-horse"), "correct-horse", "that is another text");
        assert_eq!(all.hide("line MIIEpAIBAAKCAQEA of it"), "line (sensitive) of it");
    }

    #[test]
    fn short_values_and_words_of_the_language_are_not_hidden() {
        let all = of(&["", "ab", " a ", "true", "null"]);
        assert!(all.is_empty());
        assert_eq!(all.hide("ab true"), "ab true");
    }

    #[test]
    fn more_than_a_thousand_values_are_refused() {
        let mut all = SensitiveValues::default();
        assert!((0..MOST).all(|n| all.add(&format!("secret {n}"))));
        assert!(all.add("secret 1") && !all.add("one more"));
    }

    proptest! {
        #[test]
        fn no_text_has_the_value_any_more(before in ".{0,20}", secret in "[a-z\"\\\\ä\n$]{3,20}", after in ".{0,20}") {
            let mut all = SensitiveValues::default();
            all.add(&secret);
            let secret = secret.trim().to_owned();
            prop_assume!(secret.chars().count() >= SHORTEST && !HIDDEN.contains(&secret));
            let hidden = all.hide(&format!("{before}{secret}{after}")).into_owned();
            prop_assert!(hidden.contains(HIDDEN));
            let alone = format!("<{secret}>");
            prop_assert!(!all.hide(&alone).contains(&secret));
        }
    }
}
