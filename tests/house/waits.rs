//! No wait without an end: whatever the runner waits for says who ends the wait, and nothing runs that nobody holds.

use std::fs;

use crate::source::sources;

/// What waits for as long as somebody else likes.
const WAITS: [&str; 8] = [
    ".changed().await",
    ".notified().await",
    ".recv().await",
    ".acquire().await",
    ".join_next().await",
    ".wait_for(",
    "pending().await",
    "pending::<()>().await",
];
/// So far above the wait its reason may stand.
const NEAR: usize = 2;
const REASON: &str = "// Ends: ";

/// Lines (from 1) of code that waits without a word on what ends it. `text`: the same lines with their comments.
fn without_reason<'a>(code: impl Iterator<Item = (usize, &'a str)>, text: &[&str]) -> Vec<usize> {
    let waits = code.filter(|(_, line)| WAITS.iter().any(|wait| line.contains(wait)));
    let silent = |number: &usize| !text[number.saturating_sub(1 + NEAR)..*number].iter().any(|l| l.contains(REASON));
    waits.map(|(number, _)| number).filter(silent).collect()
}

#[test]
fn every_wait_of_the_runner_says_what_ends_it() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in sources().into_iter().filter(|s| s.room == "runner") {
        let text = fs::read_to_string(format!("src/{}", source.path)).expect("source must be readable");
        let lines: Vec<&str> = text.lines().collect();
        seen += source.code().filter(|(_, line)| WAITS.iter().any(|wait| line.contains(wait))).count();
        let silent = without_reason(source.code(), &lines);
        wrong.extend(silent.into_iter().map(|n| format!("src/{}:{n}: {}", source.path, lines[n - 1].trim())));
    }
    assert!(seen > 15, "the waits were not found: {seen}");
    assert!(wrong.is_empty(), "add `{REASON}...`, or a deadline:\n{}", wrong.join("\n"));
}

#[test]
fn nothing_of_the_runner_runs_that_nobody_holds() {
    let mut wrong = Vec::new();
    for source in sources().into_iter().filter(|s| s.room == "runner") {
        let detached = source.code().filter(|(_, line)| line.trim_start().starts_with("tokio::spawn("));
        wrong.extend(detached.map(|(number, line)| format!("src/{}:{number}: {}", source.path, line.trim())));
    }
    assert!(wrong.is_empty(), "give it to an owner, or to `Context::see_to`:\n{}", wrong.join("\n"));
}

#[test]
fn a_wait_without_a_reason_is_found_where_it_stands() {
    let text = ["// Ends: soon.", "a.changed().await;", "", "", "b.recv().await;", "c();"];
    let code = text.iter().enumerate().map(|(at, line)| (at + 1, *line)).filter(|(_, l)| !l.starts_with("//"));
    assert_eq!(without_reason(code, &text), [5]);
}
