//! The language law: text that a person reads uses the field's terms. Names in code have a list of their own: names of
//! tests and of crates alone may use these words.
//!
//! Promise (Input validation): Text for people uses the terms of the glossary; few exceptions, each with its reason

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::house::documents::tests_in;
use crate::house::logs::{self, arguments};
use crate::house::source::{blank, has_word, walk};
use crate::house::wording;

/// The exceptions of all laws of words together.
const MOST_EXCEPTIONS: usize = 30;

/// File, part of the line, and why the word stays.
const EXCEPTIONS: &[Exception] = &[
    ("src/exporters/otlp/push.rs", "TAKEN_SUMS: &str =", "the name of a file that earlier agents wrote"),
    ("src/runner/persistence/record.rs", "Not::not\", rename =", "a field of stored records"),
];

/// Words of the dialect, and the better ones (`docs/glossary.md`).
const REPLACED: &[(&str, &str)] = &[
    ("told|tells?|telling", "report, record, expose, distinguish"),
    ("whoever", "the reader, the user, the scraper"),
    ("who (?:asks|looks|reads|comes|waits)", "the client, the scraper, the reader"),
    ("nobody", "no user, no process, no agent"),
    ("somebody", "another user, another process"),
    ("anew", "again"),
    ("of which", "a sentence of its own"),
    ("what others|others'|others run", "observed workloads"),
    ("looked for", "recovered, searched"),
    ("given up", "abandoned"),
    ("mends?|mended", "fix"),
    ("wish(?:es|ed)?", "desired state, request"),
    ("undertakers?", "reaper"),
    ("cues?", "event, action"),
    ("nudged?", "wake"),
    ("aloud", "with an error, with a warning"),
    ("repeating it does no harm", "idempotent"),
];

/// Endings of files with text for people; below `deploy` every file has some.
const KINDS: [&str; 13] = ["rs", "md", "yml", "yaml", "json", "hcl", "toml", "js", "html", "ts", "tsx", "mjs", "sh"];

/// File, a part of the line or a name, and why it stays.
pub type Exception = (&'static str, &'static str, &'static str);

pub fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let tops = [
        ".ci",
        ".github",
        "alerts",
        "benches",
        "dashboards",
        "deploy",
        "docs",
        "examples",
        "fake-nvml",
        "src",
        "tests",
        "xtask",
    ];
    for top in tops {
        walk(Path::new(top), &mut |path| {
            let is_text = [".ci", "deploy"].contains(&top)
                || path.extension().is_some_and(|e| KINDS.iter().any(|kind| e == *kind));
            let name = path.to_string_lossy().into_owned();
            // Generated from texts that are counted where they stand; and the law itself.
            let is_own = !name.contains("/golden/") && !name.starts_with("tests/house/language");
            let is_generated = ["docs/metrics.md", "docs/settings.md"].contains(&name.as_str());
            let is_foreign = ["/target/", "/node_modules/", "/dist/"].iter().any(|place| name.contains(place));
            if is_text && is_own && !is_generated && !is_foreign {
                found.extend(fs::read_to_string(path).ok().map(|text| (name, text)));
            }
        });
    }
    for page in ["README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"] {
        found.push((page.to_owned(), fs::read_to_string(page).expect("it is there")));
    }
    found
}

pub struct Offence {
    pub at: String,
    pub word: String,
    pub better: &'static str,
}

fn offences(texts: &[(String, String)]) -> Vec<Offence> {
    let rules: Vec<(Regex, &'static str)> = REPLACED
        .iter()
        .map(|(words, better)| (Regex::new(&format!(r"(?i)\b(?:{words})\b")).expect("our own"), *better))
        .collect();
    let mut found = Vec::new();
    for (path, text) in texts {
        let is_code = path.ends_with(".rs");
        let lines = text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| !is_excepted(path, line)) {
            let line = if is_code { in_words(line) } else { line.to_owned() };
            let line = line.as_str();
            for (rule, better) in &rules {
                found.extend(rule.find_iter(line).filter(|word| !is_account(line, word.start())).map(|word| Offence {
                    at: format!("{path}:{}", number + 1),
                    word: word.as_str().to_owned(),
                    better,
                }));
            }
        }
    }
    found
}

fn is_excepted(path: &str, line: &str) -> bool {
    EXCEPTIONS.iter().any(|(file, part, _)| *file == path && line.contains(part))
}

/// Names as words: `is_told` and `IsTold` have the word `told`. The account `nobody` is a name as well.
fn in_words(line: &str) -> String {
    let line =
        ["NOBODY_UID", "as_nobody"].iter().fold(line.to_owned(), |line, account| line.replace(account, "account"));
    let mut words = String::with_capacity(line.len() + 16);
    let mut last = ' ';
    for c in line.chars() {
        if c.is_uppercase() && last.is_lowercase() {
            words.push('·');
        }
        words.push(if c == '_' { '·' } else { c });
        last = c;
    }
    words
}

/// `nobody` is a user as well: then it is quoted, or said to be one.
fn is_account(line: &str, at: usize) -> bool {
    let (before, word) = line.split_at(at);
    word.starts_with("nobody")
        && ["\"", "`", "user ", "user·", "by ", "as ", "(", "-u "].iter().any(|p| before.ends_with(p))
}

#[test]
fn text_for_people_uses_the_terms_of_the_field() {
    let texts = texts();
    let mut wrong = String::new();
    for Offence { at, word, better } in offences(&texts) {
        let _ = writeln!(wrong, "  {at}: {word:?}; better: {better}");
    }
    assert!(wrong.is_empty(), "docs/glossary.md has the terms of the field\n{wrong}");
    for (file, part, reason) in EXCEPTIONS {
        let is_there = texts.iter().any(|(path, text)| path == file && text.contains(part));
        assert!(is_there, "{file} has no {part:?} any more ({reason})");
    }
    let exceptions = [EXCEPTIONS, GIVEN_NAMES, wording::EXCEPTIONS, logs::ABOUT_ALL].concat();
    assert!(exceptions.len() <= MOST_EXCEPTIONS, "{} exceptions, at most {MOST_EXCEPTIONS}", exceptions.len());
    assert!(exceptions.iter().all(|(.., reason)| reason.len() > 10), "each has a reason: {exceptions:?}");
}

#[test]
fn word_of_the_dialect_is_found_with_its_place() {
    let text = "fine\nNobody tells\nthe store, retold".to_owned();
    let found = offences(&[("src/observe/x.rs".to_owned(), text)]);
    let places: Vec<_> = found.iter().map(|o| (o.at.as_str(), o.word.as_str())).collect();
    let at = "src/observe/x.rs:2";
    assert_eq!(places, [(at, "tells"), (at, "Nobody")]);
    let names = ("src/a.rs".to_owned(), "let is_told = ToldAlloc(NOBODY_UID);".to_owned());
    assert_eq!(offences(&[names]).len(), 2);
}

/// Words that do not say what a value is or what a function does, and those that do.
const REPLACED_IN_NAMES: &[(&str, &str)] = &[
    ("say|says|said|saying|unsaid", "report, message, output, reported"),
    ("ask|asks|asked|asking|asker|askers", "request, query, requested, requested_at"),
    ("look|looks|looked|looking|onlooker", "read, poll, inspect, check, update"),
    ("want|wants|wanted|unwanted", "requested, needed, expected, is_shown"),
    ("sought", "query, expected"),
    ("others|theirs", "observed, rest, peer"),
    ("ours|mine", "managed, own"),
    ("whose|whom", "owner, subject, labels"),
    ("told", "reported, recorded"),
    ("kept|unkept", "record, stored, retained, journal"),
    ("noted", "recorded"),
    ("gone", "removed, removed_at, exited"),
    ("begun", "started, started_at"),
    ("beside", "concurrent, background, in_task, sibling"),
    ("hear|hears|heard", "receive, received, observe"),
    ("news", "changes, update"),
    ("meant", "selected, suggestion"),
    ("whereabouts", "path, location"),
];
/// Where a name is given from outside of the code.
const GIVEN_NAMES: &[Exception] = &[
    ("src/cli/agent.rs", "meant", "field of a log line"),
    ("src/collectors/exit_self_test.rs", "wanted", "field of a log line"),
];

/// The names in the code of a file, and the parts of its own path.
fn names(path: &str, text: &str) -> Vec<(usize, String)> {
    let tests = tests_in(text);
    let mut names: Vec<(usize, String)> = path.split(['/', '.']).map(|part| (0, part.to_owned())).collect();
    for (number, line) in blank(text).lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        names.extend(
            words.filter(|word| !tests.iter().any(|test| test == word)).map(|word| (number + 1, word.to_owned())),
        );
    }
    names
}

fn offending_names(texts: &[(String, String)]) -> Vec<Offence> {
    let rules: Vec<(Regex, &'static str)> = REPLACED_IN_NAMES
        .iter()
        .map(|(words, better)| (Regex::new(&format!(r"(?i)\b(?:{words})\b")).expect("our own"), *better))
        .collect();
    let mut found = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, name) in names(path, text) {
            let is_given = GIVEN_NAMES.iter().any(|(file, given, _)| file == path && *given == name);
            let words = in_words(&name);
            found.extend(
                rules.iter().filter(|(rule, _)| !is_given && rule.is_match(&words)).map(|(_, better)| Offence {
                    at: format!("{path}:{number}"),
                    word: name.clone(),
                    better,
                }),
            );
        }
    }
    found
}

#[test]
fn names_in_code_use_the_terms_of_the_field() {
    let texts = texts();
    let mut wrong = String::new();
    for Offence { at, word, better } in offending_names(&texts) {
        let _ = writeln!(wrong, "  {at}: {word}; better: {better}");
    }
    assert!(wrong.is_empty(), "a name says what the value is, or what the function does with it:\n{wrong}");
    for (file, name, reason) in GIVEN_NAMES {
        let text = texts.iter().find(|(path, _)| path == file).map(|(_, text)| blank(text));
        assert!(text.is_some_and(|text| has_word(&text, name)), "{file} has no {name} any more ({reason})");
    }
}

#[test]
fn name_of_the_dialect_is_found_outside_of_strings_and_test_names() {
    let text =
        "struct LookResult;\n// kept\nlet x = \"said\";\nfn is_gone() {}\n#[test]\nfn what_is_kept_is_kept() {}\n";
    let found = offending_names(&[("src/a/kept.rs".to_owned(), text.to_owned())]);
    let found: Vec<_> = found.iter().map(|o| (o.at.as_str(), o.word.as_str())).collect();
    assert_eq!(found, [("src/a/kept.rs:0", "kept"), ("src/a/kept.rs:1", "LookResult"), ("src/a/kept.rs:4", "is_gone")]);
}

/// Calls whose text the user of a command reads after an error.
const REFUSALS: [&str; 4] = ["CliError::new(", "CliError::failed(", ".hint(", ".remark("];

/// Lines of calls that give the placeholder of the usage line in place of an ID or a name.
fn placeholders(text: &str) -> Vec<usize> {
    let calls = REFUSALS.iter().flat_map(|call| text.match_indices(call));
    let is_placeholder = |argument: &String| has_word(argument, "ALLOC");
    let mut found: Vec<usize> = calls
        .filter(|(at, call)| arguments(&text[at + call.len()..]).iter().any(is_placeholder))
        .map(|(at, _)| text[..at].matches('\n').count() + 1)
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn errors_and_hints_name_ids_and_never_a_placeholder() {
    let (mut found, mut calls) = (Vec::new(), 0);
    walk(Path::new("src/cli"), &mut |path| {
        if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(path).expect("source must be readable");
            calls += REFUSALS.iter().map(|call| text.matches(call).count()).sum::<usize>();
            found.extend(placeholders(&text).iter().map(|line| format!("{}:{line}", path.display())));
        }
    });
    assert!(calls > 100, "the calls were not found: {calls}");
    assert!(found.is_empty(), "give the ID or the name:\n{}", found.join("\n"));
    let text = "let a = CliError::failed(format!(\"no {}\", f(x))).hint(\"`stop ALLOC` ends it\");\n\
                x.hint(format!(\"`stop {id}`\"));\nsession.remark(\n\"ALLOCS\");\nCliError::new(E::A, \"give ALLOC\")";
    assert_eq!(placeholders(text), [1, 5]);
}

/// Advice that takes a word out of a job file, by a part of its line, and why the job means the same without it.
const REMOVING_ADVICE: &[(&str, &str, &str)] = &[
    ("src/jobspec/values.rs", "`max_run_duration` is 0", "0 is no bound"),
    ("src/jobspec/values.rs", "the value is null", "null is the absence of a value"),
    ("src/jobspec/template_places.rs", "change_mode = \\\"restart\\\"", "restart is the default"),
    ("src/runner/drivers/docker/config.rs", "is for containers of Windows", "no container of Linux has an isolation"),
    ("src/runner/drivers/docker/config.rs", "a tmpfs has none", "a tmpfs is mounted without a source"),
];

/// Each line with advice to remove something, with its place.
fn removing_advice(path: &str, text: &str) -> Vec<(String, String)> {
    let rule =
        r#""[^"]*\b(?:(?:remove|delete|drop|omit) (?:it|them|this|that|these|one)|leave (?:it|them|this|that) out)\b"#;
    let rule = Regex::new(rule).expect("our own");
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let is_error = |line: &str| line.contains("cannot remove") || line.contains("failed to remove");
    let lines =
        text.lines().enumerate().filter(|(_, line)| rule.is_match(line) && !is_comment(line) && !is_error(line));
    lines.map(|(number, line)| (format!("{path}:{}", number + 1), line.trim().to_owned())).collect()
}

#[test]
fn advice_on_job_files_removes_only_what_changes_nothing() {
    let is_of_jobs = |path: &str| ["src/jobspec/", "src/runner/drivers/"].iter().any(|top| path.starts_with(top));
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    let (mut wrong, mut seen) = (String::new(), Vec::new());
    for (path, text) in texts().iter().filter(|(path, _)| is_of_jobs(path) && !is_test(path)) {
        for (at, line) in removing_advice(path, text) {
            match REMOVING_ADVICE.iter().find(|(file, part, _)| file == path && line.contains(part)) {
                Some(entry) => seen.push(entry),
                None => drop(writeln!(wrong, "  {at}: {line}")),
            }
        }
    }
    assert!(wrong.is_empty(), "name what would be right; removing it changes what the job means:\n{wrong}");
    for entry in REMOVING_ADVICE {
        assert!(seen.contains(&entry), "{} has no {:?} any more ({})", entry.0, entry.1, entry.2);
    }
}

#[test]
fn advice_to_remove_something_is_found_with_its_line() {
    let text = "// \"remove it\"\nSome(\"remove it\".to_owned())\nlet a = \"write x, or leave them out\";\nformat!(\"cannot remove it: {e}\")\n";
    let found: Vec<String> = removing_advice("src/jobspec/x.rs", text).into_iter().map(|(at, _)| at).collect();
    assert_eq!(found, ["src/jobspec/x.rs:2", "src/jobspec/x.rs:3"]);
}
