//! What is wrong in a file of a user: where, why, and what to write instead.
//!
//! Job files and configuration files report through the same type, on the terminal and in the API. Columns count
//! characters from 1, a tab is one; lines count from 1 and end with `\n` or `\r\n`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::sensitive::SensitiveValues;
use crate::model::text::{event_text, steers_a_terminal};

/// A range of bytes of the file.
pub type Span = Range<usize>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted; this part of it has no effect, or less than one could think.
    Warning,
}

/// One problem, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Diagnostic {
    pub severity: Severity,
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// How many characters of the line are meant; at least 1.
    pub width: usize,
    /// The path of the field: `job.web.group.app.task.server.resources.memory`. Empty where the syntax is broken.
    pub field: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The line itself, without its end.
    pub source_line: String,
}

/// All problems of one file, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl std::error::Error for Diagnostics {}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl Diagnostic {
    /// Without sensitive values; columns stay where they are.
    #[must_use]
    pub fn without(mut self, values: &SensitiveValues) -> Diagnostic {
        if !values.is_empty() {
            self.message = values.hide(&self.message).into_owned();
            self.suggestion = self.suggestion.map(|suggestion| values.hide(&suggestion).into_owned());
            self.field = values.hide(&self.field).into_owned();
            self.source_line = values.hide_in_line(&self.source_line).into_owned();
        }
        self
    }
}

/// How much of a very long line (JSON in one line) is shown around the place, in characters.
const SHOWN_BEFORE: usize = 60;
const SHOWN_IN_ALL: usize = 150;

impl fmt::Display for Diagnostic {
    /// ```text
    /// web.hcl:12:9: error: `memroy` is not a field of `resources`
    ///    12 |         memroy = 200
    ///       |         ^^^^^^
    ///       = did you mean `memory`?
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{}:{}:{}: {severity}: {}", self.file, self.line, self.column, self.message)?;
        let before = self.column.saturating_sub(1);
        let skipped = if self.source_line.chars().count() > SHOWN_IN_ALL && before > SHOWN_BEFORE {
            before - SHOWN_BEFORE
        } else {
            0
        };
        let mut shown = String::new();
        let mut under = String::new();
        if skipped > 0 {
            shown.push('…');
            under.push(' ');
        }
        for (i, c) in self.source_line.chars().enumerate().skip(skipped).take(SHOWN_IN_ALL) {
            // A control character could rewrite the terminal.
            shown.push(if steers_a_terminal(c) && c != '\t' { '\u{fffd}' } else { c });
            let wide = is_wide(c);
            if i < before {
                under.push_str(if c == '\t' { "\t" } else { "  ".get(..if wide { 2 } else { 1 }).unwrap_or(" ") });
            } else if i < before + self.width {
                under.push_str(if wide { "^^" } else { "^" });
            }
        }
        if self.source_line.chars().count() > skipped + SHOWN_IN_ALL {
            shown.push('…');
        }
        if !under.ends_with('^') {
            under.push('^');
        }
        writeln!(f, "{:>5} | {shown}", self.line)?;
        write!(f, "      | {under}")?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "\n      = {suggestion}"),
            None => Ok(()),
        }
    }
}

/// Two columns on a terminal: East Asian scripts and emoji.
fn is_wide(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60
        | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f900..=0x1f9ff | 0x20000..=0x3fffd)
}

/// Text out of the file as it may stand in a message: in backticks, short, without control characters.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("`");
    for (i, c) in text.chars().enumerate() {
        if i == 60 {
            quoted.push('…');
            break;
        }
        if steers_a_terminal(c) {
            quoted.extend(c.escape_default());
        } else {
            quoted.push(c);
        }
    }
    quoted.push('`');
    quoted
}

/// Larger files are refused before they are read: the HCL parser takes quadratic time for very large objects.
pub const MAX_FILE_BYTES: usize = 256 << 10;

/// The text of one file, and where its lines begin.
#[derive(Debug, Clone)]
pub struct SourceText {
    file: String,
    text: String,
    line_starts: Vec<usize>,
}

impl SourceText {
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> SourceText {
        let text = text.into();
        let line_starts =
            std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        let line_starts = line_starts.collect();
        SourceText { file: file.into(), text, line_starts }
    }
    pub fn file(&self) -> &str {
        &self.file
    }
    pub fn text(&self) -> &str {
        &self.text
    }
    /// The text of a span; empty if it is none of this file.
    pub fn slice(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or("")
    }
    /// Line and column (both from 1) of a byte, and its line.
    pub fn locate(&self, offset: usize) -> (usize, usize, &str) {
        let offset = self.floor(offset);
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let end = self.line_starts.get(line).map_or(self.text.len(), |next| next - 1);
        let full = self.text.get(start..end).unwrap_or("");
        let shown = full.strip_suffix('\r').unwrap_or(full);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        (line, column, shown)
    }
    pub fn diagnostic(&self, severity: Severity, span: &Span, field: &str, message: String) -> Diagnostic {
        let (line, column, source_line) = self.locate(span.start);
        let marked = self.slice(&(self.floor(span.start)..self.floor(span.end)));
        let width = marked.lines().next().map_or(0, |first| first.chars().count()).max(1);
        Diagnostic {
            severity,
            file: self.file.clone(),
            line,
            column,
            width,
            field: field.to_owned(),
            // It may cite a value, which may have megabytes.
            message: event_text(message),
            suggestion: None,
            source_line: source_line.to_owned(),
        }
    }
    /// Stands for problems beyond [`MAX_PROBLEMS`].
    pub(super) fn dropped(&self, count: usize) -> Diagnostic {
        let dropped = self.diagnostic(Severity::Error, &(0..0), "", format!("{count} more problems are not shown"));
        Diagnostic { suggestion: Some("correct those that are shown first".to_owned()), ..dropped }
    }
    /// The next lower byte at which a character begins.
    fn floor(&self, offset: usize) -> usize {
        let offset = offset.min(self.text.len());
        (0..=offset).rev().find(|&i| self.text.is_char_boundary(i)).unwrap_or(0)
    }
}

/// Gathers the problems of one file while it is read: reading goes on after each.
///
/// Concurrency: used by one thread.
#[derive(Debug)]
pub struct Problems<'s> {
    source: &'s SourceText,
    found: RefCell<Vec<(usize, Diagnostic)>>,
    /// Errors beyond [`MAX_PROBLEMS`]: counted only.
    dropped: Cell<usize>,
    /// Of a job file: `${...}` where nothing is interpolated is text, as in Nomad. Elsewhere it is a mistake.
    keeps_references: Cell<bool>,
    /// In no message.
    sensitive: RefCell<SensitiveValues>,
}

/// How many problems of one file are reported in full.
pub const MAX_PROBLEMS: usize = 50;

impl<'s> Problems<'s> {
    pub fn new(source: &'s SourceText) -> Problems<'s> {
        Problems {
            source,
            found: RefCell::default(),
            dropped: Cell::new(0),
            keeps_references: Cell::new(false),
            sensitive: RefCell::default(),
        }
    }
    /// Keeps these values out of every message, whenever it was made.
    pub fn keep_secret(&self, values: SensitiveValues) {
        *self.sensitive.borrow_mut() = values;
    }
    pub fn sensitive(&self) -> SensitiveValues {
        self.sensitive.borrow().clone()
    }
    pub fn keep_references(&self) {
        self.keeps_references.set(true);
    }
    pub fn keeps_references(&self) -> bool {
        self.keeps_references.get()
    }
    pub fn source(&self) -> &'s SourceText {
        self.source
    }
    pub fn error(&self, span: &Span, field: &str, message: impl Into<String>, suggestion: Option<String>) {
        self.add(Severity::Error, span, field, message.into(), suggestion);
    }
    pub fn warn(&self, span: &Span, field: &str, message: impl Into<String>, suggestion: Option<String>) {
        self.add(Severity::Warning, span, field, message.into(), suggestion);
    }
    fn add(&self, severity: Severity, span: &Span, field: &str, message: String, suggestion: Option<String>) {
        if self.found.borrow().len() >= MAX_PROBLEMS {
            self.dropped.set(self.dropped.get() + usize::from(severity == Severity::Error));
            return;
        }
        let diagnostic = Diagnostic { suggestion, ..self.source.diagnostic(severity, span, field, message) };
        self.found.borrow_mut().push((span.start, diagnostic));
    }
    pub fn has_errors(&self) -> bool {
        self.dropped.get() > 0 || self.found.borrow().iter().any(|(_, d)| d.severity == Severity::Error)
    }
    /// Gives a path to what was found before there were paths.
    pub(super) fn name_fields(&self, path_at: impl Fn(usize) -> String) {
        for (offset, diagnostic) in self.found.borrow_mut().iter_mut().filter(|(_, d)| d.field.is_empty()) {
            diagnostic.field = path_at(*offset);
        }
    }
    /// What was found, in file order: errors and warnings apart.
    pub fn into_parts(self) -> (Diagnostics, Vec<Diagnostic>) {
        let mut found = self.found.into_inner();
        found.sort_by_key(|(offset, _)| *offset);
        let sensitive = self.sensitive.into_inner();
        let shown = found.into_iter().map(|(_, diagnostic)| diagnostic.without(&sensitive));
        let (mut errors, warnings): (Vec<_>, Vec<_>) = shown.partition(|d| d.severity == Severity::Error);
        let dropped = self.dropped.get();
        if dropped > 0 {
            errors.push(self.source.dropped(dropped));
        }
        (Diagnostics(errors), warnings)
    }
}

/// Whether a refusal names what would be right: in its advice, or in its own words.
#[cfg(test)]
pub fn names_what_is_right(message: &str, advice: Option<&str>) -> bool {
    const WORDS: [&str; 27] = [
        "must be",
        " takes ",
        " take ",
        "write ",
        "it is `",
        "it is 1",
        "it is an",
        " is for ",
        " has 1 ",
        "at least",
        "at most",
        " has a `",
        " has an `",
        " have a ",
        " belongs in ",
        " exclude each other",
        " is less than ",
        " is true or false",
        ", not ",
        " is a ",
        " is not between ",
        ": `count` is ",
        " needs a",
        "as in ",
        "the header ",
        " is not supported: ",
        "expected ",
    ];
    advice.is_some() || WORDS.iter().any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str, what: &str) -> Diagnostic {
        let start = text.find(what).expect("must be there");
        SourceText::new("x.hcl", text).diagnostic(Severity::Error, &(start..start + what.len()), "a.b", "wrong".into())
    }

    #[test]
    fn the_line_stands_under_the_message_with_a_caret_under_the_place() {
        let shown = at("job {\n  cpu = 5\n}\n", "cpu").to_string();
        assert_eq!(shown, "x.hcl:2:3: error: wrong\n    2 |   cpu = 5\n      |   ^^^");
    }

    #[test]
    fn tabs_are_preserved_so_that_the_caret_is_below_its_character() {
        let shown = at("a\n\t\tcpu = 5", "cpu").to_string();
        assert_eq!(shown, "x.hcl:2:3: error: wrong\n    2 | \t\tcpu = 5\n      | \t\t^^^");
    }

    #[test]
    fn columns_count_characters_and_line_ends_of_windows_are_no_part_of_a_line() {
        let d = at("ä\r\nköpü = cpu\r\n", "cpu");
        assert_eq!((d.line, d.column, d.width, d.source_line.as_str()), (2, 8, 3, "köpü = cpu"));
        let shown = at("日本 cpu", "cpu").to_string();
        assert!(shown.ends_with("    1 | 日本 cpu\n      |      ^^^"), "{shown}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let shown = at("a \u{1b}[31m cpu", "cpu").to_string();
        assert!(!shown.contains('\u{1b}') && quote("\u{1b}[0m\n") == "`\\u{1b}[0m\\n`", "{shown}");
    }

    #[test]
    fn message_that_cites_a_large_value_is_cut() {
        let source = SourceText::new("job.hcl", "x");
        let diagnostic = source.diagnostic(Severity::Error, &(0..1), "x", format!("not {}", "v".repeat(1 << 20)));
        assert!(diagnostic.message.len() < 5_000 && diagnostic.message.ends_with("bytes more)"));
    }

    #[test]
    fn very_long_line_is_shown_only_around_the_error() {
        let text = format!("{}cpu{}", "x".repeat(5000), "y".repeat(5000));
        let shown = at(&text, "cpu").to_string();
        assert!(shown.len() < 450 && shown.contains("cpu") && shown.contains("^^^"), "{shown}");
    }

    /// Promise (Input validation): Each refusal of a job file names what would be right
    #[test]
    fn refusal_that_only_negates_needs_an_advice() {
        for (message, advice, expected) in [
            ("there is no signal `SIGNIT`", None, false),
            ("there is no signal `SIGNIT`", Some("did you mean `SIGINT`?"), true),
            ("`mode` cannot be `wait`: it is `fail` or `delay`", None, true),
            ("`memory` must be at least 10", None, true),
        ] {
            assert_eq!(names_what_is_right(message, advice), expected, "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_can_be_shown(text in ".{0,80}(\n|\r\n|\t)?.{0,80}", a in 0usize..200, b in 0usize..200) {
            let source = SourceText::new("f", text.clone());
            let d = source.diagnostic(Severity::Error, &(a..b), "", String::new());
            prop_assert!(d.line >= 1 && d.column >= 1 && d.width >= 1);
            prop_assert!(!d.to_string().is_empty());
        }
    }
}
