//! The gate is representative: each promise has a test in it, or its row names the slice whose tests hold it. And no
//! test may be flaky again and again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::papers::{proofs, tests_in};
use super::source::walk;
use super::tiers::Tiers;

/// So often may one test be in `tests/ledger/flaky` and in the files of the slices.
const MENTIONS: usize = 2;

fn tiers() -> (Tiers, Vec<String>) {
    let text = fs::read_to_string("xtask/src/test/slices.rs").expect("the slices must be there");
    let names = text.lines().filter_map(|line| line.trim().split_once("name: \"")?.1.split('"').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    let text = fs::read_to_string("tests/tiers").expect("the tiers must be there");
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    (Tiers::parse(&text, &known).expect("tests/tiers must be readable"), names)
}

/// The ID of every test, by its file: inline modules around it are left out.
fn ids() -> Vec<String> {
    let mut ids = Vec::new();
    for (root, crate_name) in [
        ("src", "allostat::"),
        ("tests", ""),
        ("fake-nvml/src", "fake_nvml::"),
        ("fake-nvml/tests", ""),
        ("xtask/src", "xtask-bin::"),
    ] {
        walk(Path::new(root), &mut |path| {
            let module = path.strip_prefix(root).expect("it was found there").with_extension("");
            let module = module.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod");
            // `keeper_tests.rs` is the module `keeper::tests`.
            let module: Vec<String> = module.map(|part| part.trim_end_matches("_tests").to_owned()).collect();
            if path.extension().is_some_and(|e| e == "rs") {
                let tests = tests_in(&fs::read_to_string(path).expect("source must be readable"));
                ids.extend(tests.into_iter().map(|test| format!("{crate_name}{}::{test}", module.join("::"))));
            }
        });
    }
    ids
}

/// Whether a proof names a test: modules around it, in their order, and the beginning, the middle or the end of its
/// name; or modules alone.
fn names(proof: &str, id: &str) -> bool {
    // Every case of an alert runs in the gate.
    let proof = if proof.starts_with("alerts/tests/") { "boards::profiles::every_alert_…" } else { proof };
    let fits = |proof: &str, part: &str| match (proof.strip_prefix('…'), proof.strip_suffix('…')) {
        (Some(middle), Some(_)) => part.contains(middle.trim_end_matches('…')),
        (Some(end), None) => part.ends_with(end),
        (None, Some(beginning)) => part.starts_with(beginning),
        (None, None) => part == proof,
    };
    let mut parts = id.split("::");
    proof.split("::").filter(|part| *part != "tests").all(|one| parts.any(|part| fits(one, part)))
}

#[test]
fn promise_has_a_test_in_the_gate_or_names_its_slice() {
    let (tiers, slices) = tiers();
    let ids = ids();
    let text = fs::read_to_string("docs/promises.md").expect("the paper must be readable");
    let mut rows: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (line, proof) in proofs(&text) {
        rows.entry(line).or_default().push(proof);
    }
    let lines: Vec<&str> = text.lines().collect();
    let is_in_gate = |proof: &String| ids.iter().any(|id| names(proof, id) && tiers.slice_of(id).is_none());
    // A slice that the row names, and in which one of its proofs runs.
    let is_left = |line: usize, proofs: &[String]| {
        let place = lines[line - 1].rsplit(" | ").next().unwrap_or_default();
        let named: Vec<_> = slices.iter().filter(|slice| place.contains(slice.as_str())).collect();
        let runs_in = |id: &String| tiers.slice_of(id).is_some_and(|of| named.iter().any(|slice| slice.as_str() == of));
        let is_there = |proof: &String| ids.iter().any(|id| names(proof, id) && runs_in(id));
        let is_command = proofs.iter().any(|proof| proof.contains('/'));
        proofs.iter().any(is_there) || (is_command && !named.is_empty())
    };
    let missing = rows.iter().filter(|(line, proofs)| !proofs.iter().any(is_in_gate) && !is_left(**line, proofs));
    let missing: Vec<String> =
        missing.map(|(line, proofs)| format!("docs/promises.md:{line}: {}", proofs.join(", "))).collect();
    assert!(
        missing.is_empty(),
        "no test of the gate holds these, and \"where\" names no slice:\n{}",
        missing.join("\n")
    );
}

#[test]
fn proof_names_tests_by_modules_and_parts_of_their_names() {
    let id = "live::memory::held_memory_is_usage";
    for proof in ["live::memory", "live::held_…", "memory::tests::…is_usage", "…memory_is…", "live"] {
        assert!(names(proof, id), "{proof}");
    }
    assert!(!names("memory::live", id) && !names("live::memory::usage", id));
}

/// Of the files of `tests`, those that the binaries share, and one that is no test.
const NO_SUITES: [&str; 3] = ["common", "pictures", "synthetic"];

#[test]
fn each_suite_is_a_module_of_one_test_binary() {
    const BINARIES: [&str; 3] = ["plain", "cgroups", "agents"];
    let heads = BINARIES.map(|name| fs::read_to_string(format!("tests/{name}.rs")).expect("a test binary"));
    let mut wrong = Vec::new();
    for entry in fs::read_dir("tests").expect("the tests must be there").flatten() {
        let path = entry.path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let is_suite = path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
        let times = heads.iter().filter(|head| head.lines().any(|line| line == format!("mod {name};"))).count();
        if is_suite && times != 1 && !BINARIES.contains(&name.as_str()) && !NO_SUITES.contains(&name.as_str()) {
            wrong.push(format!("tests/{name}: in {times} of {BINARIES:?}"));
        }
    }
    assert!(wrong.is_empty(), "a suite that no binary names never runs:\n{}", wrong.join("\n"));
}

/// The test of each line of `tests/ledger/flaky`, to which the gate and the slices append.
fn flaky(text: &str) -> Vec<String> {
    let test = |line: &str| {
        let words = line.split_whitespace().find(|word| word.contains("::"))?;
        Some(words.trim_end_matches(':').to_owned())
    };
    text.lines().filter_map(test).collect()
}

fn too_often(text: &str) -> BTreeMap<String, usize> {
    let mut mentions: BTreeMap<String, usize> = BTreeMap::new();
    flaky(text).into_iter().for_each(|test| *mentions.entry(test).or_default() += 1);
    mentions.retain(|_, times| *times > MENTIONS);
    mentions
}

#[test]
fn test_that_was_flaky_three_times_is_fixed() {
    let text = fs::read_to_string("tests/ledger/flaky").unwrap_or_default();
    let often = too_often(&text);
    assert!(often.is_empty(), "find the cause, then take their lines out of tests/ledger/flaky: {often:?}");
    let line = "2026-11-29 host: a::b: src/x.rs:1:2: why\n";
    assert_eq!(too_often(&line.repeat(3)), [("a::b".to_owned(), 3)].into());
    assert!(too_often(&line.repeat(2)).is_empty());
}

/// `cargo xtask docs` runs every test that makes a page or a golden file.
#[test]
fn each_generated_page_is_written_by_one_command() {
    let command = fs::read_to_string("xtask/src/main.rs").expect("the command must be readable");
    let mut left = Vec::new();
    walk(Path::new("tests"), &mut |path| {
        let text =
            if path.extension().is_some_and(|e| e == "rs") { fs::read_to_string(path) } else { Ok(String::new()) };
        let module = path.with_extension("");
        let module: Vec<_> =
            module.iter().skip(1).map(|part| part.to_string_lossy()).filter(|part| part != "mod").collect();
        let makes =
            text.expect("source must be readable").lines().any(|l| l.contains("golden(") || l.contains("golden_part("));
        let is_shared = module.first().is_some_and(|first| first == "common" || first == "house");
        if makes && !is_shared && !command.contains(&format!("\"{}::\"", module.join("::"))) {
            left.push(path.display().to_string());
        }
    });
    assert!(left.is_empty(), "add their modules to GENERATED of xtask/src/main.rs: {left:?}");
}
