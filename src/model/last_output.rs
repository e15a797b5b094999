//! The last lines that an attempt wrote to stderr, kept with its end: a few, fit for a terminal.

use serde::{Deserialize, Serialize};

use super::text::terminal_lines;

/// The end of what one attempt wrote to stderr.
///
/// Shape: at most 20 lines and 4 KiB (`LINES` and `LONGEST`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LastOutput {
    /// Lines without the end of the last one. Nothing in it steers a terminal.
    pub text: String,
    /// Earlier output is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl LastOutput {
    pub const LINES: usize = 20;
    /// In bytes.
    pub const LONGEST: usize = 4 << 10;
    /// As many bytes of a log are enough: most escape sequences are shorter than the text that they colour.
    pub const READ: usize = 4 * LastOutput::LONGEST;

    /// Of the end of a log. `cut`: the log has more before it, so that its first line may lack its beginning. `None`:
    /// it is empty.
    pub fn of(bytes: &[u8], cut: bool) -> Option<LastOutput> {
        let text = String::from_utf8_lossy(bytes);
        let clean = text.split('\n').map(shown_line).collect::<Vec<_>>();
        let written = clean.iter().rposition(|line| !line.trim().is_empty())? + 1;
        let first = clean.iter().position(|line| !line.trim().is_empty()).unwrap_or(0);
        let start = written.saturating_sub(LastOutput::LINES).max(first);
        let mut cut = cut || start > first;
        let mut text = clean[start..written].join("\n");
        if let Some(over) = text.len().checked_sub(LastOutput::LONGEST).filter(|over| *over > 0) {
            let at = (over..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            // From the beginning of a line, unless one alone is longer.
            let at = text[at..].find('\n').map_or(at, |end| at + end + 1);
            text.drain(..at);
            cut = true;
        }
        Some(LastOutput { text, cut })
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines()
    }
}

/// A line as a terminal would show it at last: without colours, and of a progress bar its last state.
fn shown_line(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    terminal_lines(&without_sequences(line)).into_owned()
}

/// Without escape sequences of ECMA-48: `ESC [ ... letter`, `ESC ] ... BEL`, and `ESC` with one character.
fn without_sequences(line: &str) -> String {
    let mut retained = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            retained.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
            Some(']') => {
                // Ends with BEL, or with ESC and a backslash.
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            Some(_) | None => {}
        }
    }
    retained
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::text::steers_a_terminal;

    fn text(bytes: &[u8]) -> Option<String> {
        LastOutput::of(bytes, false).map(|output| output.text)
    }

    #[test]
    fn last_output_loses_colours_progress_bars_and_blank_ends() {
        assert_eq!(text(b""), None);
        assert_eq!(text(b"\n \n"), None, "blank lines are no output");
        assert_eq!(text(b"\n\x1b[31mred\x1b[0m\r\n10 %\r20 %\r30 %\n\n").unwrap(), "red\n30 %");
        assert_eq!(text(b"a\x1b]0;title\x07b\x1b]8;;x\x1b\\c\x1bMd").unwrap(), "abcd");
        assert_eq!(text(b"tab\tand \x08 bell\xff").unwrap(), "tab\tand \\u{8} bell\u{fffd}");
    }

    #[test]
    fn last_output_holds_the_last_lines_and_reports_the_cut() {
        let many: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        let output = LastOutput::of(many.as_bytes(), false).unwrap();
        assert_eq!((output.lines().count(), output.cut), (LastOutput::LINES, true));
        assert!(output.text.starts_with("line 11\n") && output.text.ends_with("line 30"), "{}", output.text);
        let short = LastOutput::of(b"one\n", false).unwrap();
        assert_eq!((short.text.as_str(), short.cut), ("one", false));
        assert!(LastOutput::of(b"one\n", true).unwrap().cut, "the log says more before it");
        let wide = format!("{}\n{}\nend\n", "a".repeat(3_000), "b".repeat(3_000));
        let output = LastOutput::of(wide.as_bytes(), false).unwrap();
        assert!(output.text.starts_with('b') && output.text.ends_with("\nend") && output.cut, "{}", output.text.len());
        let one = LastOutput::of("ü".repeat(9_000).as_bytes(), false).unwrap();
        assert_eq!(one.text.len(), LastOutput::LONGEST);
    }

    proptest! {
        #[test]
        fn last_output_is_bounded_and_steers_no_terminal(
            bytes in prop::collection::vec(any::<u8>(), 0..20_000),
            cut in any::<bool>(),
        ) {
            if let Some(output) = LastOutput::of(&bytes, cut) {
                prop_assert!(output.text.len() <= LastOutput::LONGEST && output.lines().count() <= LastOutput::LINES);
                prop_assert!(!output.text.chars().any(|c| steers_a_terminal(c) && c != '\n' && c != '\t'));
                prop_assert!(!output.text.is_empty());
            }
        }

        #[test]
        fn last_output_preserves_plain_text(lines in prop::collection::vec("[a-z ]{0,30}[a-z]", 1..20)) {
            let log = lines.join("\n");
            prop_assert_eq!(text(log.as_bytes()), Some(log));
        }
    }
}
