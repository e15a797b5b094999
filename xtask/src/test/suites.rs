//! Suites: modules of the merged integration-test binaries, and every other test binary as a whole.

use std::collections::BTreeMap;
use std::process::Command;

use crate::cargo::{BuiltPrograms, TestBinary};
use crate::{Result, libtest, run};

/// Each first module of these is a suite of its own, run by processes of its own.
pub const MERGED: &[&str] = &["plain", "cgroups", "agents"];

#[derive(Debug, Clone)]
pub struct Suite {
    /// `live` for `tests/live/`, `allostat` for the library's unit tests.
    pub name: String,
    pub binary: TestBinary,
    /// As the binary calls them.
    pub tests: Vec<String>,
    merged: bool,
}

impl Suite {
    /// How files and reports name a test of this suite.
    pub fn id(&self, test: &str) -> String {
        if self.merged { test.to_owned() } else { format!("{}::{test}", self.name) }
    }

    /// Runs some of its tests, as cargo would.
    pub fn command(&self, tests: &[String]) -> Command {
        let mut command = Command::new(&self.binary.path);
        command.current_dir(&self.binary.package).env("CARGO_MANIFEST_DIR", &self.binary.package);
        if self.merged || tests.len() < self.tests.len() {
            command.arg("--exact").args(tests);
        }
        command
    }
}

pub fn all(built: &BuiltPrograms) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for binary in &built.tests {
        let mut list = Command::new(&binary.path);
        let printed = run::output(list.args(["--list", "--format", "terse"]).current_dir(&binary.package))?;
        suites.extend(of(binary, libtest::list(&printed)));
    }
    Ok(suites)
}

fn of(binary: &TestBinary, tests: Vec<String>) -> Vec<Suite> {
    let merged = MERGED.contains(&binary.name.as_str());
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let module = test.split("::").next().filter(|_| merged);
        by_name.entry(module.unwrap_or(&binary.name).to_owned()).or_default().push(test);
    }
    let suite = |(name, tests)| Suite { name, binary: binary.clone(), tests, merged };
    by_name.into_iter().map(suite).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn suite(binary: &str, tests: &[&str]) -> Vec<Suite> {
        let binary = TestBinary { name: binary.into(), path: binary.into(), package: "/p".into() };
        of(&binary, tests.iter().map(|test| (*test).to_owned()).collect())
    }

    #[test]
    fn merged_binary_is_one_suite_per_module_and_others_are_whole() {
        let merged = suite("cgroups", &["live::memory::a", "reader::b", "live::c"]);
        assert_eq!(merged.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["live", "reader"]);
        assert_eq!(merged[0].id("live::c"), "live::c");
        let whole = suite("allostat", &["live::a", "b"]);
        assert_eq!((whole.len(), whole[0].id("live::a")), (1, "allostat::live::a".to_owned()));
    }

    #[test]
    fn part_of_a_suite_is_named_exactly() {
        let whole = &suite("allostat", &["a", "b"])[0];
        assert_eq!(whole.command(&whole.tests).get_args().count(), 0);
        assert_eq!(whole.command(&whole.tests[..1]).get_args().collect::<Vec<_>>(), ["--exact", "a"]);
        let merged = &suite("cgroups", &["live::a"])[0];
        assert_eq!(merged.command(&merged.tests).get_args().count(), 2, "others are in the same binary");
    }
}
