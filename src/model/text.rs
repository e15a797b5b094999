//! Text from outside the agent, before it becomes a label, a log line or a line on a terminal.
//!
//! ```text
//! label_value  a label or a text of a snapshot: at most 200 bytes, cut texts keep a digest, nothing steers a terminal
//! label_path   a path as a label: the same, at most 512 bytes
//! log_text     a field of a log line: one line of at most 1 kB
//! event_text   a message or a detail of an event: at most 4 kB
//! terminal     whatever a command prints, except what `logs` shows; terminal_lines: the same of a text that has lines
//! ```

use std::borrow::Cow;

use super::raw_name;

/// The longest label value, in bytes; the digest of a cut one is part of it.
pub const LONGEST_LABEL_VALUE: usize = 200;
/// The longest path of a cgroup or a mount as a label: one of a pod has 200 to 350 bytes.
pub const LONGEST_LABEL_PATH: usize = 512;
/// The longest text from outside in one field of a log line, in bytes as it is written.
pub const LONGEST_LOG_TEXT: usize = 1_000;
/// The longest message of an event, and the longest of its details, in bytes: events are kept, stored and served.
pub const LONGEST_EVENT_TEXT: usize = 4_096;
/// `~` and 16 hexadecimal digits.
const DIGEST: usize = 17;

/// Whether a terminal is steered by this character instead of showing it: control characters, and those that turn the
/// direction of the text around, so that a name can pass for another one, or hide what stands beside it.
///
/// Source: Unicode 16, UAX #9, "Explicit Directional" formatting characters.
pub fn steers_a_terminal(c: char) -> bool {
    let turns_direction =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // A line or paragraph separator begins a line of its own where it is shown.
    c.is_control() || turns_direction || matches!(c, '\u{2028}' | '\u{2029}')
}

/// At most [`LONGEST_LABEL_VALUE`] bytes, without characters that steer a terminal. Two texts that differ stay
/// different: one that is changed ends in `~` and a digest of the whole.
pub fn label_value(text: &str) -> Cow<'_, str> {
    bounded(text, LONGEST_LABEL_VALUE)
}

/// As [`label_value`], of at most [`LONGEST_LABEL_PATH`] bytes: for paths of cgroups and mounts.
pub fn label_path(text: &str) -> Cow<'_, str> {
    bounded(text, LONGEST_LABEL_PATH)
}

fn bounded(text: &str, longest: usize) -> Cow<'_, str> {
    let is_retained = |c: char| !steers_a_terminal(c) && raw_name::byte(c).is_none();
    let is_plain = || text.bytes().all(|b| (b' '..=b'~').contains(&b)) || text.chars().all(is_retained);
    if text.len() <= longest && is_plain() {
        return Cow::Borrowed(text);
    }
    // What is behind the first bytes is not shown in any case, however long it is.
    let head = cut(text, longest);
    let clean: String = raw_name::shown(head).chars().map(|c| if steers_a_terminal(c) { '?' } else { c }).collect();
    Cow::Owned(format!("{}~{:016x}", cut(&clean, longest - DIGEST), digest(text)))
}

/// One line of at most [`LONGEST_LOG_TEXT`] bytes, escapes included; what is left out is said at its end.
pub fn log_text(text: &str) -> String {
    let text = text.trim_end();
    let (mut shown, mut taken) = (String::new(), 0);
    for c in text.chars() {
        let before = shown.len();
        if steers_a_terminal(c) {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
        // Up to ten bytes for one: the text before it may have been short enough.
        if shown.len() > LONGEST_LOG_TEXT {
            shown.truncate(before);
            break;
        }
        taken += c.len_utf8();
    }
    with_rest(shown, text, taken)
}

/// At most [`LONGEST_EVENT_TEXT`] bytes; what is left out is said at its end.
pub fn event_text(text: String) -> String {
    if text.len() <= LONGEST_EVENT_TEXT {
        return text;
    }
    with_rest(cut(&text, LONGEST_EVENT_TEXT).to_owned(), &text, LONGEST_EVENT_TEXT)
}

fn with_rest(head: String, text: &str, longest: usize) -> String {
    match text.len().checked_sub(longest) {
        None | Some(0) => head,
        Some(more) => format!("{head}… ({more} bytes more)"),
    }
}

/// Characters that would steer a terminal are written as Rust writes them: `\u{1b}`.
pub fn terminal(text: &str) -> Cow<'_, str> {
    escaped(text, steers_a_terminal)
}

/// The same, but for ends of lines and tabs.
pub fn terminal_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| steers_a_terminal(c) && c != '\n' && c != '\t')
}

fn escaped(text: &str, steers: fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// At most so many bytes of it, whole characters.
pub fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The same in each run of the agent. FNV-1a: it keeps names apart and protects nothing.
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn label_values_are_unchanged_cut_or_cleaned() {
        assert!(matches!(label_value("naïve-web_1"), Cow::Borrowed(_)));
        let long = "a".repeat(201);
        let cut = label_value(&long);
        assert_eq!(cut.len(), LONGEST_LABEL_VALUE);
        assert_ne!(cut, label_value(&format!("{}b", "a".repeat(200))));
        let steered = label_value("user@\u{1b}[2J.service");
        assert!(steered.starts_with("user@?[2J.service~"), "{steered}");
        assert_ne!(label_value("a\u{1}"), label_value("a\u{2}"));
        assert!(label_value("o\u{efff}d").starts_with("o\\xffd~"));
    }

    #[test]
    fn a_log_text_is_one_line_that_counts_what_it_leaves_out() {
        assert_eq!(log_text("exit 1\n"), "exit 1");
        assert_eq!(log_text("one\ntwo\u{1b}[2J"), "one\\ntwo\\u{1b}[2J");
        let long = log_text(&"x".repeat(100_000));
        assert!(long.ends_with("x… (99000 bytes more)") && long.len() < 1_100, "{long}");
        let escapes = log_text(&"\u{1b}".repeat(100_000));
        assert!(escapes.ends_with("\\u{1b}… (99834 bytes more)") && escapes.len() < 1_100, "{escapes}");
    }

    proptest! {
        #[test]
        fn no_text_steers_a_terminal_or_grows(text in ".{0,400}") {
            let label = label_value(&text).into_owned();
            prop_assert!(label.len() <= LONGEST_LABEL_VALUE && !label.chars().any(steers_a_terminal));
            prop_assert_eq!(label_value(&label), &*label, "a clean text stays as it is");
            prop_assert_eq!(label_path(&label), &*label, "nor does a writer change it");
            let line = log_text(&text.repeat(20));
            prop_assert!(!line.chars().any(steers_a_terminal) && line.len() <= LONGEST_LOG_TEXT + 30);
            prop_assert!(!terminal(&text).chars().any(steers_a_terminal));
        }
    }
}
