//! The law of wording: what users read in pages, configurations, alerts, commands and errors uses the verbs of the
//! field. Comments and names in the code may use more words (`language.rs`).
//!
//! Promise (Input validation): Pages, messages and alerts use the verbs of the field

use std::fmt::Write as _;

use regex::Regex;

use super::language::{Exception, Offence, texts};
use super::source::sources;

/// Words of the dialect, and better ones (`docs/glossary.md`).
const REPLACED: &[(&str, &str)] = &[
    ("ours|theirs|of our own", "own, managed, this agent's"),
    ("used up", "exhausted"),
    ("turned away", "rejected, dropped"),
    ("on record", "recorded"),
    ("put together", "assembled, grouped"),
    ("say|says|said|saying", "reports, shows, names, has"),
    ("asks?|asked|asking", "requests, queries, prompts"),
    ("hears?|heard", "receives, received"),
    ("looked|looking|looks? (?:on|at|for|into)", "read, observed, searched"),
    ("wants", "needs, requests, must"),
    ("knows|knew", "has, supports, identifies"),
    ("for want of", "for lack of"),
    ("doors?", "trust boundary, listener"),
];

/// File, part of the line, and why the word stays.
pub const EXCEPTIONS: &[Exception] = &[
    ("CONTRIBUTING.md", "words such as `asked`", "it names the words that are refused"),
    ("deploy/package/deb/postrm", "multi-user.target.wants", "a directory of systemd"),
];

/// Pages and configurations that users read. `docs/promises.md` is made from comments of tests.
fn is_for_users(path: &str) -> bool {
    let tops = [".github/", "alerts/", "dashboards/", "deploy/", "docs/", "examples/", "src/api/page/"];
    let is_of_users = !path.contains('/') || tops.iter().any(|top| path.starts_with(top));
    is_of_users && !path.ends_with(".rs") && path != "docs/promises.md"
}

/// Path, number and text of each line that users read.
fn lines() -> Vec<(String, usize, String)> {
    let pages = texts().into_iter().filter(|(path, _)| is_for_users(path)).flat_map(|(path, text)| {
        let numbered = text.lines().map(str::to_owned).enumerate().collect::<Vec<_>>();
        numbered.into_iter().map(move |(at, line)| (path.clone(), at + 1, line))
    });
    let sources = sources();
    let messages = sources
        .iter()
        .flat_map(|source| source.texts().map(move |(at, text)| (format!("src/{}", source.path), at, text.to_owned())));
    pages.chain(messages).collect()
}

fn offences(lines: &[(String, usize, String)]) -> Vec<Offence> {
    let rules = REPLACED
        .iter()
        .map(|(words, better)| (Regex::new(&format!(r"(?i)\b(?:{words})\b")).expect("our own"), *better));
    let rules: Vec<(Regex, &'static str)> = rules.collect();
    let mut found = Vec::new();
    for (path, number, line) in lines {
        let is_excused = EXCEPTIONS.iter().any(|(file, part, _)| file == path && line.contains(part));
        for (rule, better) in rules.iter().filter(|_| !is_excused) {
            found.extend(rule.find_iter(line).map(|word| Offence {
                at: format!("{path}:{number}"),
                word: word.as_str().to_owned(),
                better,
            }));
        }
    }
    found
}

#[test]
fn pages_and_messages_use_the_verbs_of_the_field() {
    let lines = lines();
    let of_code = lines.iter().filter(|(path, ..)| path.ends_with(".rs")).count();
    assert!(
        of_code > 5_000 && lines.len() > of_code + 10_000,
        "the texts were not found: {of_code} of {}",
        lines.len()
    );
    let mut wrong = String::new();
    for Offence { at, word, better } in offences(&lines) {
        let _ = writeln!(wrong, "  {at}: {word:?}; better: {better}");
    }
    assert!(wrong.is_empty(), "docs/glossary.md has the terms of the field\n{wrong}");
    for (file, part, reason) in EXCEPTIONS {
        let is_there = lines.iter().any(|(path, _, line)| path == file && line.contains(part));
        assert!(is_there, "{file} has no {part:?} any more ({reason})");
    }
}

#[test]
fn word_that_users_do_not_search_for_is_found_with_its_line() {
    let line = |path: &str, text: &str| (path.to_owned(), 3, text.to_owned());
    let found = offences(&[
        line("docs/a.md", "The log says why; nothing is on record."),
        line("src/a.rs", "\"the door\""),
        line("docs/b.md", "Look up a workload, and doorbells."),
        line("CONTRIBUTING.md", "  words such as `asked`, `kept`"),
    ]);
    let found: Vec<_> = found.iter().map(|found| (found.at.as_str(), found.word.as_str())).collect();
    assert_eq!(found, [("docs/a.md:3", "on record"), ("docs/a.md:3", "says"), ("src/a.rs:3", "door")]);
}
