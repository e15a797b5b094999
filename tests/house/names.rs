//! Names: each type has one of its own, and a test is called by its subject, condition and outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::house::documents::tests_in;
use crate::house::source::{Source, sources, walk};

/// Names that several modules may give to a type of theirs: the module's name stands in front of them where they are
/// used, or nothing else uses them.
const IDIOMATIC: [&str; 9] = ["Action", "Client", "Config", "Entry", "Inner", "Parts", "Reader", "State", "Step"];

/// `pub(super) struct Name`, and its like; `type Name` where it is not indented, as the types of traits are.
fn type_name(line: &str) -> Option<&str> {
    let is_of_module = !line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let alias = is_of_module.then_some("type ");
    let mut kinds = ["struct ", "enum ", "trait ", "union "].into_iter().chain(alias);
    let rest = kinds.find_map(|kind| line.strip_prefix(kind))?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// The files that define a type of a name, of those that several define.
fn files_by_name(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources {
        for name in source.code().filter_map(|(_, line)| type_name(line)) {
            files.entry(name.to_owned()).or_default().push(source.path.clone());
        }
    }
    files.retain(|_, files| files.len() > 1);
    files
}

#[test]
fn type_name_means_one_thing() {
    let found = files_by_name(&sources());
    let wrong = found.iter().filter(|(name, _)| !IDIOMATIC.contains(&name.as_str()));
    let wrong: Vec<String> = wrong.map(|(name, files)| format!("{name}: {}", files.join(", "))).collect();
    assert!(wrong.is_empty(), "rename all but one of each:\n{}", wrong.join("\n"));
    let past: BTreeSet<&str> = IDIOMATIC.into_iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(past.is_empty(), "no two files have these any more: {past:?}");
}

#[test]
fn type_name_of_two_files_is_found() {
    let source = |path: &str, text: &str| Source::new(path.to_owned(), text);
    let all = [
        source(
            "host/a.rs",
            "pub struct Stop;\npub(super) struct Alias<T>(T);\nstruct Item;\nstruct Inner;\n// enum Comment\n",
        ),
        source(
            "host/b.rs",
            "    enum Stop {}\npub type Alias<T> = Vec<T>;\nimpl Iterator for Stop {\n    type Item = u8;\n}\n",
        ),
        source("host/c.rs", "enum Comment {}\n#[cfg(test)]\nmod tests {\n    struct Inner;\n}\n"),
    ];
    assert_eq!(files_by_name(&all).into_keys().collect::<Vec<_>>(), ["Alias", "Stop"]);
}

/// Words with which the name of a test says nothing about its subject.
const NO_SUBJECTS: [&str; 10] = ["what", "who", "whose", "that", "where", "when", "how", "nothing", "it", "of"];
/// Of the name of a test.
const LONGEST_TEST: usize = 80;

fn is_odd(test: &str) -> bool {
    let first = test.split('_').next().unwrap_or_default();
    test.len() > LONGEST_TEST || NO_SUBJECTS.contains(&first)
}

#[test]
fn test_is_named_by_subject_condition_and_outcome() {
    let mut odd = Vec::new();
    for root in ["src", "tests", "fake-nvml", "xtask"] {
        walk(Path::new(root), &mut |path| {
            if path.extension().is_some_and(|e| e == "rs") {
                let tests = tests_in(&fs::read_to_string(path).expect("source must be readable"));
                odd.extend(tests.into_iter().filter(|t| is_odd(t)).map(|t| format!("{}: {t}", path.display())));
            }
        });
    }
    assert!(odd.is_empty(), "at most {LONGEST_TEST} characters, and the subject first:\n{}", odd.join("\n"));
    assert!(is_odd("what_is_written_is_read") && is_odd(&"a".repeat(81)) && !is_odd("whatever"));
}
