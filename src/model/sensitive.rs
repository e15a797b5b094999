//! Values of sensitive variables, and what replaces them in every text that a person can read.
//!
//! They are part of a job's record, so that an agent that was restarted still hides them. Two jobs that differ in them
//! alone are the same job: its tasks would run the same.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Stands in place of a sensitive value.
pub const HIDDEN: &str = "(sensitive)";
/// In characters. A shorter value is part of almost every text, and is not hidden.
pub const SHORTEST: usize = 3;
/// Texts and lines of texts of one job.
pub const MOST: usize = 1_000;
/// Bytes of all texts of one job.
pub const MOST_BYTES: usize = 64 << 10;
/// Of a text that was cut, so much at least is recognized.
const CUT_FROM: usize = 8;

/// Texts that no person sees.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SensitiveValues {
    texts: BTreeSet<String>,
    /// Counted when they are added.
    #[serde(skip)]
    count: usize,
    #[serde(skip)]
    bytes: usize,
    /// Built when a text is hidden for the first time.
    #[serde(skip)]
    needles: OnceLock<Arc<Needles>>,
}

impl PartialEq for SensitiveValues {
    fn eq(&self, _: &SensitiveValues) -> bool {
        true
    }
}

impl Eq for SensitiveValues {}

/// How many there are: the values themselves reach no log.
impl fmt::Debug for SensitiveValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SensitiveValues({})", self.texts.len())
    }
}

impl SensitiveValues {
    /// Hides the text from now on, wherever it stands in another one. `false`: there are too many. It is hidden all the
    /// same, so that the message which refuses the job does not show it.
    pub fn add(&mut self, text: &str) -> bool {
        let text = text.trim();
        // What says nothing of a secret stands in too many texts.
        let is_word = matches!(text, "true" | "false" | "null");
        if !is_word && text.chars().count() >= SHORTEST && self.texts.insert(text.to_owned()) {
            let lines = Some(text.lines().count()).filter(|lines| *lines > 1).unwrap_or(0);
            self.count = self.count.saturating_add(1 + lines);
            self.bytes = self.bytes.saturating_add(text.len());
            self.needles = OnceLock::new();
        }
        self.count <= MOST && self.bytes <= MOST_BYTES
    }
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
    /// These and the others.
    #[must_use]
    pub fn with(&self, rest: &SensitiveValues) -> SensitiveValues {
        SensitiveValues { texts: self.texts.union(&rest.texts).cloned().collect(), ..SensitiveValues::default() }
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
            Value::Number(number) if self.texts.contains(&number.to_string()) => HIDDEN.into(),
            Value::Array(list) => list.iter().map(|one| self.hide_in_json(one)).collect(),
            Value::Object(object) => {
                let entries = object.iter().map(|(key, one)| (self.hide(key).into_owned(), self.hide_in_json(one)));
                Value::Object(entries.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn replaced<'t>(&self, text: &'t str, instead: impl Fn(&str) -> String) -> Cow<'t, str> {
        if self.texts.is_empty() {
            return Cow::Borrowed(text);
        }
        let needles = self.needles.get_or_init(|| Arc::new(Needles::of(&self.texts)));
        let mut out = String::new();
        let (mut from, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match needles.begins(rest) {
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
}

/// What is searched for: each text also as it stands in templates, in quotes and in messages, and its lines.
struct Needles {
    /// In the order of their bytes.
    all: Vec<String>,
    /// Where those that begin with a byte are among them.
    by_first: Vec<(usize, usize)>,
}

impl Needles {
    fn of(texts: &BTreeSet<String>) -> Needles {
        let mut needles = BTreeSet::new();
        for text in texts {
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
        let all: Vec<String> = needles.into_iter().filter(|needle| !needle.is_empty()).collect();
        let at = |first: u8, is_behind: bool| {
            all.partition_point(|needle| {
                let own = needle.as_bytes().first().copied().unwrap_or(0);
                own < first || (is_behind && own == first)
            })
        };
        let by_first = (0..=u8::MAX).map(|first| (at(first, false), at(first, true))).collect();
        Needles { all, by_first }
    }

    /// How many bytes of the text are the longest needle with which it begins, or the beginning of one that was left
    /// where the text was cut. Compares each byte of the text with the needles that are the same up to it.
    fn begins(&self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        let (mut low, mut high) = *self.by_first.get(usize::from(*bytes.first()?))?;
        let (mut found, mut chars) = (None, 0);
        let byte = |needle: &String, at: usize| needle.as_bytes().get(at).copied();
        for depth in 1..=bytes.len() {
            // Those that have an end here stand before those that go on.
            if low < high && self.all[low].len() == depth {
                (found, low) = (Some(depth), low + 1);
            }
            if low == high {
                break;
            }
            if text.is_char_boundary(depth) {
                chars += 1;
                if chars >= CUT_FROM && text[depth..].starts_with('…') {
                    found = Some(depth);
                }
            }
            let Some(next) = bytes.get(depth).copied() else { break };
            let same = &self.all[low..high];
            let (from, to) = (
                same.partition_point(|needle| byte(needle, depth) < Some(next)),
                same.partition_point(|needle| byte(needle, depth) <= Some(next)),
            );
            (low, high) = (low + from, low + to);
        }
        found
    }
}

/// Promise (Input validation): Sensitive values of a job are bounded in number and bytes, and prepared for the search
/// once
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
    fn short_values_and_literals_are_not_hidden() {
        let all = of(&["", "ab", " a ", "true", "null"]);
        assert!(all.is_empty());
        assert_eq!(all.hide("ab true"), "ab true");
    }

    #[test]
    fn more_than_a_thousand_values_and_lines_or_64_kib_are_refused_and_hidden() {
        let mut all = SensitiveValues::default();
        assert!((0..MOST).all(|n| all.add(&format!("secret {n}"))));
        assert!(all.add("secret 1") && !all.add("one more"));
        assert_eq!(all.hide("the value `one more`"), "the value `(sensitive)`");
        let lines: Vec<String> = (0..MOST).map(|n| format!("line {n}")).collect();
        assert!(SensitiveValues::default().add(&lines[1..].join("\n")));
        assert!(!SensitiveValues::default().add(&lines.join("\n")), "and the text itself");
        assert!(SensitiveValues::default().add(&"x".repeat(MOST_BYTES)));
        let mut long = of(&["abc"]);
        assert!(!long.add(&"x".repeat(MOST_BYTES)));
    }

    #[test]
    fn longest_value_counts_and_a_shorter_one_that_was_not_cut() {
        let all = of(&["secret", "secret-long", "secret-longer-than", "äöüß-größer", "äöü"]);
        for (text, hidden) in [
            ("secret-longer", "(sensitive)er"),
            ("secret-lon", "(sensitive)-lon"),
            ("secret-longer-t…", "(sensitive)…"),
            ("secret-l…", "(sensitive)…"),
            ("secr…", "secr…"),
            ("äöüß-grö…", "(sensitive)…"),
            ("äöüß-gr", "(sensitive)ß-gr"),
        ] {
            assert_eq!(all.hide(text), hidden, "{text}");
        }
    }

    /// Events are hidden under a lock: what is searched for is prepared once, and again after a new value.
    #[test]
    fn needles_are_prepared_once_for_all_texts() {
        let mut all = of(&["secret", "other"]);
        assert!(all.needles.get().is_none(), "not before they are needed");
        assert_eq!(all.hide("a secret"), "a (sensitive)");
        let prepared = all.needles.get().map(Arc::clone).unwrap();
        assert!(matches!(all.hide("nothing"), Cow::Borrowed(_)));
        assert!(Arc::ptr_eq(&prepared, all.needles.get().unwrap()));
        all.add("third");
        assert_eq!(all.hide("a third secret"), "a (sensitive) (sensitive)");
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
