//! The documents name what is there: each test, module and file that `docs/nomad-tests.md`, `docs/security.md`,
//! `docs/attacks.md` and `docs/guarantees.md` give as a proof exists, and so does each place to which
//! `CONTRIBUTING.md` sends contributors who add something.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::house::source::walk;

const PAPER: &str = "docs/nomad-tests.md";
const SECURITY: &str = "docs/security.md";
const ATTACKS: &str = "docs/attacks.md";
const GUARANTEES: &str = "docs/guarantees.md";
const PLACES: &str = "CONTRIBUTING.md";
/// What can be named: tests and modules with tests, by their whole paths.
#[derive(Default)]
struct There {
    tests: BTreeSet<String>,
    modules: BTreeSet<String>,
}

impl There {
    /// A file of tests. `path`: below the root of its crate.
    fn add(&mut self, path: &Path, text: &str) {
        let module = path.with_extension("");
        let parts = module.iter().map(|part| part.to_string_lossy()).filter(|part| part != "mod");
        // `keeper_tests.rs` is the module `keeper::tests`; tests at the end of a file are called by the file.
        let parts: Vec<String> = parts.map(|part| part.trim_end_matches("_tests").to_owned()).collect();
        let tests = tests_in(text);
        if !tests.is_empty() {
            self.modules.extend((1..=parts.len()).map(|length| parts[..length].join("::")));
        }
        self.tests.extend(tests.iter().map(|test| format!("{}::{test}", parts.join("::"))));
    }
}

fn there() -> There {
    let mut there = There::default();
    for root in ["src", "tests", "benches", "fake-nvml/src", "fake-nvml/tests", "xtask/src"] {
        walk(Path::new(root), &mut |path| {
            if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(path).expect("source must be readable");
                there.add(path.strip_prefix(root).expect("it was found there"), &text);
            }
        });
    }
    there
}

/// The functions behind `#[test]` and its like, whatever stands between.
pub fn tests_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked) {
            found.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            marked = false;
        }
    }
    found
}

/// `a::{b_…,c}` names `a::b_…` and `a::c`.
fn expanded(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (inside, tail) = rest.split_once('}').unwrap_or((rest, ""));
    inside.split(',').map(|one| format!("{head}{}{tail}", one.trim())).collect()
}

/// The whole path: of a name alone, another test may have it. `…` at its beginning: any module, and a part of the name.
fn is_there(name: &str, there: &There) -> bool {
    if name.contains('/') {
        return Path::new(name).exists();
    }
    let mut tests = there.tests.iter();
    match (name.strip_prefix('…'), name.strip_suffix('…')) {
        (Some(part), _) => {
            let part = part.trim_end_matches('…');
            tests.any(|test| test.rsplit("::").next().is_some_and(|last| last.contains(part)))
        }
        (None, Some(beginning)) => tests.any(|test| test.starts_with(beginning)),
        (None, None) => there.tests.contains(name) || there.modules.contains(name),
    }
}

/// What stands in the second column of the tables, between backticks.
fn proofs(text: &str) -> Vec<(usize, String)> {
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| **"));
    rows.flat_map(|(at, line)| {
        let proof = line.split(" | ").nth(1).unwrap_or_default();
        let names = proof.split('`').skip(1).step_by(2).flat_map(expanded);
        names.map(move |name| (at + 1, name)).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn proofs_of_the_table_of_nomads_tests_exist() {
    let there = there();
    let text = fs::read_to_string(PAPER).expect("the paper must be readable");
    let proofs = proofs(&text);
    assert!(proofs.len() > 60, "the proofs were not found: {}", proofs.len());
    let missing = proofs.into_iter().filter(|(_, name)| !is_there(name, &there));
    let missing: Vec<_> = missing.map(|(line, name)| format!("{PAPER}:{line}: {name}")).collect();
    assert!(missing.is_empty(), "there is no such test, module or file:\n{}", missing.join("\n"));
}

#[test]
fn a_proof_that_is_not_there_is_missed() {
    let mut there = There::default();
    there.add(Path::new("m/mod.rs"), "#[test]\n#[should_panic]\nfn a_b_c() {}");
    there.add(Path::new("x/keeper_tests.rs"), "#[tokio::test]\nasync fn d_e() {}");
    there.add(Path::new("idle.rs"), "fn f() {}");
    let text = "| promise | test | where |\n\
                | x `no` | `m::{a_b_…,b_…}`, `…b_c`, `m`, `n`, `src/none.rs`, `x::a_b_c`, `a_b_…`, `idle`, `x::keeper::d_e` | host |";
    let missing: Vec<_> = proofs(text).into_iter().filter(|(_, n)| !is_there(n, &there)).map(|(_, n)| n).collect();
    assert_eq!(missing, ["m::b_…", "n", "src/none.rs", "x::a_b_c", "a_b_…", "idle"]);
}

/// Of each row of the table that begins with `head`: its line, its first cell, and the tests in its fifth and last one.
fn rows_of<'t>(text: &'t str, head: &str) -> Vec<(usize, &'t str, Vec<String>)> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(head));
    let rows = lines.skip(2).take_while(|(_, line)| line.starts_with('|'));
    rows.map(|(at, line)| {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let tests = cells.get(4).map(|cell| cell.split('`').skip(1).step_by(2).flat_map(expanded).collect());
        (at + 1, cells[0], tests.unwrap_or_default())
    })
    .collect()
}

/// Rows of a table of `page` without a test, or with one that does not exist.
fn unproven(page: &str, rows: &[(usize, &str, Vec<String>)], there: &There) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, first, tests) in rows {
        if tests.is_empty() {
            wrong.push(format!("{page}:{line}: no test is named for {first:?}"));
        }
        let missing = tests.iter().filter(|name| !is_there(name, there));
        wrong.extend(missing.map(|name| format!("{page}:{line}: there is no test {name}")));
    }
    wrong
}

#[test]
fn every_guarantee_is_numbered_and_names_tests_that_exist() {
    const HEAD: &str = "| | guarantee |";
    let there = there();
    let text = fs::read_to_string(GUARANTEES).expect("the page must be readable");
    let rows = rows_of(&text, HEAD);
    let numbers: Vec<&str> = rows.iter().map(|(_, number, _)| *number).collect();
    let expected: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected, "{GUARANTEES} has twenty rows");
    let wrong = unproven(GUARANTEES, &rows, &there);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let table = format!("{HEAD} measured |\n|---|---|\n| 1 | a | b | c | `m::x_…` |\n| 2 | a | b | c | d |\n");
    let expected = ["p:3: there is no test m::x_…", "p:4: no test is named for \"2\""];
    assert_eq!(unproven("p", &rows_of(&table, HEAD), &there), expected);
}

#[test]
fn every_input_of_the_security_model_names_its_tests() {
    const HEAD: &str = "| input | who can write it |";
    let there = there();
    let text = fs::read_to_string(SECURITY).expect("the paper must be readable");
    let inputs = rows_of(&text, HEAD);
    assert!(inputs.len() >= 27, "the table was not found: {}", inputs.len());
    let wrong = unproven(SECURITY, &inputs, &there);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let table = "| input | who can write it | limit | enforced by | test |\n|---|---|---|---|---|\n\
                 | a | b | c | `d` | `m::{x,y_…}` |\n| e | f | g | h |\n\nend";
    let expected = [(3, "a", vec!["m::x".to_owned(), "m::y_…".to_owned()]), (4, "e", vec![])];
    assert_eq!(rows_of(table, HEAD), expected);
}

/// A module or a test, or the beginning of its name.
fn is_name(part: &str) -> bool {
    let name = part.trim_end_matches('…');
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The tests that a page of attacks names: in its text, and in the last column of its tables. `Err`: a row that says
/// "fixed", and names no test.
fn cited(text: &str) -> Vec<(usize, Result<String, String>)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let is_row = line.starts_with('|');
        let cell = if is_row { line.trim_matches(['|', ' ']).rsplit(" | ").next().unwrap_or_default() } else { line };
        // In the text a module may stand alone.
        let is_path = |name: &str| (!is_row || name.contains("::")) && name.split("::").all(is_name);
        let is_one = |name: &String| name.starts_with("tests/") || is_path(name);
        let names: Vec<String> = cell.split('`').skip(1).step_by(2).flat_map(expanded).filter(is_one).collect();
        if names.is_empty() && cell.contains("**fixed**") {
            found.push((at + 1, Err(line.to_owned())));
        }
        found.extend(names.into_iter().map(|name| (at + 1, Ok(name))));
    }
    found
}

#[test]
fn tests_that_repeat_an_attack_exist() {
    let there = there();
    let text = fs::read_to_string(ATTACKS).expect("the paper must be readable");
    let cited = cited(&text);
    assert!(cited.len() > 25, "the names were not found: {}", cited.len());
    let wrong = cited.into_iter().filter_map(|(line, name)| match name {
        Ok(name) if is_there(&name, &there) => None,
        Ok(name) => Some(format!("{ATTACKS}:{line}: there is no test {name}")),
        Err(row) => Some(format!("{ATTACKS}:{line}: no test is named for {row}")),
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let page = "Repeated by `a` and `x y`.\n| attack | result |\n|---|---|\n| `git::ext::` | `q` **fixed** |\n\
                | b | **fixed** (`m::{c_…,d}`), `F_X` |\n| c | as it is (`tests/e.rs`) |\n";
    let expected = [(1, Ok("a")), (5, Ok("m::c_…")), (5, Ok("m::d")), (6, Ok("tests/e.rs"))];
    let mut expected: Vec<_> = expected.map(|(line, name)| (line, name.map(str::to_owned))).into();
    expected.insert(1, (4, Err("| `git::ext::` | `q` **fixed** |".to_owned())));
    assert_eq!(self::cited(page), expected);
}

/// Of a row of "where does it go?": places that are not there, and lists that are not in the file named beside them.
fn astray(row: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for cell in row.split(" | ") {
        let names = cell.split('`').skip(1).step_by(2);
        let (places, lists): (Vec<&str>, Vec<&str>) = names.partition(|name| name.contains(['/', '.']));
        for place in &places {
            let there = place.split_once('<').map_or(*place, |(directory, _)| directory);
            if !Path::new(there).exists() {
                wrong.push((*place).to_owned());
            }
        }
        if let [file] = places[..] {
            let text = fs::read_to_string(file).unwrap_or_default();
            wrong.extend(lists.iter().filter(|list| !text.contains(**list)).map(|list| format!("{list} in {file}")));
        }
    }
    wrong
}

#[test]
fn every_documented_place_for_new_code_exists() {
    let text = fs::read_to_string(PLACES).expect("the paper must be readable");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 10, "the table was not found");
    let wrong: Vec<String> = rows.into_iter().flat_map(astray).collect();
    assert!(wrong.is_empty(), "{PLACES} sends to what is not there:\n{}", wrong.join("\n"));
    assert_eq!(
        astray("| x | `src/none/<name>.rs` | `NOWHERE`, `src/lib.rs` |"),
        ["src/none/<name>.rs", "NOWHERE in src/lib.rs"]
    );
}
