//! Where tests run: the gate or a slice. And no test may be flaky again and again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::source::walk;

/// So often may one test be in `tests/ledger/flaky` and in the files of the slices, each run counted once.
const MENTIONS: usize = 2;

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

/// The lines of `tests/ledger/flaky`, to which the gate and the slices append, and those that only the file of a slice
/// has: of a run in a clone that was thrown away.
fn all_lines(flaky: &str, slices: &[String]) -> String {
    let mut lines: Vec<String> = flaky.lines().map(str::to_owned).collect();
    for slice in slices {
        let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim().to_owned());
        let date = slice.lines().find_map(|line| value(line, "date ")).unwrap_or_default();
        let own = slice.lines().filter_map(|line| value(line, "flaky ")).map(|test| format!("{date} {test}"));
        let missing: Vec<String> = own.filter(|line| !lines.contains(line)).collect();
        lines.extend(missing);
    }
    lines.join("\n")
}

/// The test of each line.
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
    let read = |name: &str| fs::read_to_string(format!("tests/ledger/{name}")).unwrap_or_default();
    let entries = fs::read_dir("tests/ledger").expect("the ledger must be there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // A file with an extension is no run's.
    let slices: Vec<String> =
        names.filter(|name| name != "flaky" && !name.contains('.')).map(|name| read(&name)).collect();
    assert!(slices.iter().any(|slice| slice.starts_with("slice ")), "the slices were not found");
    let often = too_often(&all_lines(&read("flaky"), &slices));
    assert!(often.is_empty(), "find the cause, then take their lines out of tests/ledger: {often:?}");
    let line = "2026-11-29 host: a::b: src/x.rs:1:2: why\n";
    assert_eq!(too_often(&line.repeat(3)), [("a::b".to_owned(), 3)].into());
    assert!(too_often(&line.repeat(2)).is_empty());
    let slice = |date: &str| format!("slice    x\ndate     {date}\nflaky    host: a::b: src/x.rs:1:2: why\n");
    let slices = [slice("2026-11-29"), slice("2026-11-30")];
    assert_eq!(too_often(&all_lines(&line.repeat(2), &slices)), [("a::b".to_owned(), 3)].into());
    assert!(too_often(&all_lines(line, &slices)).is_empty(), "a run that both files have is one");
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
