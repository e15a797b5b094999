//! `docs/promises.md` is made from the promises above the tests that prove them:
//!
//! ```text
//! /// Promise (Short tasks): The exit of each task is counted, however short it runs
//! #[test]
//! fn ...
//! ```
//! `//!` instead: every test of the file proves it. `(Short tasks, slice systemd-power)`: the program of a slice does.
//! Cases of alerts (`alerts/tests/*.yml`) have theirs in a comment (`#`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::documents::tests_in;
use super::source::walk;
use super::tiers::Tiers;
use crate::common::golden;

/// Of the text of a promise. Details belong to the comment of its test.
const LONGEST: usize = 120;
/// A section with fewer promises is a misspelt one.
const SMALLEST_SECTION: usize = 5;
const HEAD: &str = "\
# Promises and their tests

What must be true, the test that fails if it is not, and the run that holds it: the gate (`cargo xtask test`), the gate
and its guest with cgroup v2, or a slice (`cargo xtask test --slice NAME`). `cargo xtask docs` makes this page from the
tests. Users find the twenty guarantees that matter most, with figures, in [guarantees.md](guarantees.md).
";

#[derive(Debug, PartialEq)]
struct Promise {
    section: String,
    text: String,
    /// The test, or the file whose tests all prove it: `runner::tests::gc::x`, `alerts/tests/otlp.yml`.
    proof: String,
    /// `None`: no test is there.
    place: Option<String>,
}

fn tiers() -> Tiers {
    let text = fs::read_to_string("xtask/src/test/slices.rs").expect("the slices must be there");
    let names = text.lines().filter_map(|line| line.trim().split_once("name: \"")?.1.split('"').next());
    let names: Vec<&str> = names.collect();
    let text = fs::read_to_string("tests/tiers").expect("the tiers must be there");
    Tiers::parse(&text, &names).expect("tests/tiers must be readable")
}

/// Where one of these tests runs; `None`: there is none.
fn place(tiers: &Tiers, ids: &[String]) -> Option<String> {
    if ids.iter().any(|id| tiers.is_core(id)) {
        return Some("gate and guest".to_owned());
    }
    let slices: Vec<Option<&str>> = ids.iter().map(|id| tiers.slice_of(id)).collect();
    let first = slices.first()?;
    if slices.contains(&None) { Some("gate".to_owned()) } else { first.map(str::to_owned) }
}

/// A promise as it is written: section, slice, text, and the name of the test or module below it.
#[derive(Debug, PartialEq)]
struct Written {
    section: String,
    slice: Option<String>,
    text: String,
    /// `None`: the whole file.
    item: Option<String>,
}

/// The promises of a file, in their order.
fn written(text: &str) -> Vec<Written> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(mark) = ["//! ", "/// ", "# "].into_iter().find(|mark| line.starts_with(&format!("{mark}Promise (")))
        else {
            continue;
        };
        let goes_on = |line: &&&str| line.starts_with(mark) && !line[mark.len()..].starts_with("Promise (");
        let words: Vec<&str> = std::iter::once(line)
            .chain(lines[at + 1..].iter().take_while(goes_on))
            .map(|line| line[mark.len()..].trim())
            .collect();
        let words = words.join(" ");
        let (head, text) = words["Promise (".len()..].split_once("): ").expect("a section and a text");
        let (section, slice) = match head.split_once(", slice ") {
            Some((section, slice)) => (section, Some(slice.to_owned())),
            None => (head, None),
        };
        let item = || {
            let below = lines[at..].iter().find_map(|line| line.split_once("fn ").or_else(|| line.split_once("mod ")));
            let (_, rest) = below.expect("an item below the promise");
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        let item = (mark == "/// ").then(item);
        found.push(Written { section: section.to_owned(), slice, text: text.to_owned(), item });
    }
    found
}

fn promises() -> Vec<Promise> {
    let tiers = tiers();
    let mut found = Vec::new();
    for (root, crate_name) in [
        ("alerts/tests", ""),
        ("fake-nvml/src", "fake_nvml::"),
        ("fake-nvml/tests", ""),
        ("src", "allostat::"),
        ("tests", ""),
        ("xtask/src", "xtask-bin::"),
    ] {
        walk(Path::new(root), &mut |path| {
            let is_alert = path.extension().is_some_and(|e| e == "yml") && root == "alerts/tests";
            let is_source = path.extension().is_some_and(|e| e == "rs");
            if !(is_alert || is_source) || path.ends_with("house/promises.rs") {
                return;
            }
            let text = fs::read_to_string(path).expect("source must be readable");
            let module = path.strip_prefix(root).expect("it was found there").with_extension("");
            let module = module.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod");
            // `keeper_tests.rs` is the module `keeper::tests`.
            let module: Vec<String> = module.map(|part| part.trim_end_matches("_tests").to_owned()).collect();
            let module = module.join("::");
            let tests = tests_in(&text);
            let id = |test: &str| format!("{crate_name}{module}::{test}");
            for Written { section, slice, text, item } in written(&text) {
                let ids: Vec<String> = match &item {
                    Some(test) if tests.contains(test) => vec![id(test)],
                    _ => tests.iter().map(|test| id(test)).collect(),
                };
                let is_test = item.as_ref().is_none_or(|item| tests.contains(item) || item.starts_with("test"));
                assert!(is_test, "{}: no test is below {text:?}: {item:?}", path.display());
                let proof = match (&item, is_alert) {
                    (Some(test), _) if tests.contains(test) => format!("{module}::{test}"),
                    (_, true) => path.display().to_string(),
                    (Some(_), false) | (None, false) => module.clone(),
                };
                let gate = || is_alert.then(|| "gate".to_owned());
                let place = gate().or(slice).or_else(|| place(&tiers, &ids));
                found.push(Promise { section, text, proof, place });
            }
        });
    }
    found
}

#[test]
fn page_of_promises_is_made_from_the_tests() {
    let mut sections: BTreeMap<String, Vec<Promise>> = BTreeMap::new();
    for promise in promises() {
        sections.entry(promise.section.clone()).or_default().push(promise);
    }
    let mut page = HEAD.to_owned();
    for (section, promises) in &sections {
        page += &format!("\n## {section}\n\n| promise | test | runs in |\n|---|---|---|\n");
        for Promise { text, proof, place, .. } in promises {
            page += &format!("| {text} | `{proof}` | {} |\n", place.as_deref().unwrap_or_default());
        }
    }
    let small: Vec<_> = sections.iter().filter(|(_, all)| all.len() < SMALLEST_SECTION).map(|(name, _)| name).collect();
    assert!(small.is_empty(), "sections of few promises, or misspelt: {small:?}");
    golden("docs/promises.md", &page);
}

#[test]
fn promise_is_one_line_written_once_whose_test_runs_somewhere() {
    let all = promises();
    let long = all.iter().filter(|promise| promise.text.chars().count() > LONGEST);
    let mut seen = BTreeSet::new();
    let twice = all.iter().filter(|promise| !seen.insert(&promise.text));
    let nowhere = all.iter().filter(|promise| promise.place.is_none());
    let wrong: Vec<_> = long.chain(twice).chain(nowhere).collect();
    assert!(wrong.is_empty(), "longer than {LONGEST} characters, said twice, or without a test that runs: {wrong:#?}");
}

#[test]
fn promise_is_read_to_its_end_and_belongs_to_the_test_below_it() {
    let text = "//! A file.\n//!\n//! Promise (A b): of the\n//! file\n\n    /// Why.\n    ///\n    /// Promise (A): one\n    \
                /// more\n    /// Promise (C, slice power): two\n    #[cfg(x)]\n    #[test]\n    fn a_b() {}";
    let of = |section: &str, slice: Option<&str>, text: &str, item: Option<&str>| Written {
        section: section.to_owned(),
        slice: slice.map(str::to_owned),
        text: text.to_owned(),
        item: item.map(str::to_owned),
    };
    let expected = [
        of("A b", None, "of the file", None),
        of("A", None, "one more", Some("a_b")),
        of("C", Some("power"), "two", Some("a_b")),
    ];
    assert_eq!(written(text), expected);
    assert_eq!(written("# Promise (A): of\n# alerts\nrules: []\n"), [of("A", None, "of alerts", None)]);
}
