//! Which tests the gate leaves to a slice, and which of them its guest runs: `tests/tiers`.
//!
//! ```text
//! # where             tests, by the beginning of their IDs      why
//! host-long           live::follow::stalled_event_reader_       # 65 s
//! gate-guest          live::memory::
//! host-only           live::follow::stalled_event_reader_       # asks nothing of a kernel
//! ```
//! An ID is `suite::path::of::the_test`; the longest beginning that fits decides. `gate-guest` tests run on the host as
//! well. `tests/house` reads the same file, so this module uses the standard library alone.

/// In place of a slice: tests that the gate runs in its guest as well, and tests that no guest runs.
const GUEST: &str = "gate-guest";
const HOST: &str = "host-only";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tiers {
    /// Beginning of an ID, slice.
    left: Vec<(String, String)>,
    core: Vec<String>,
    host_only: Vec<String>,
}

impl Tiers {
    /// Errors: a line that is not two words, or names no known slice; the line's number is in the text.
    pub fn parse(text: &str, slices: &[&str]) -> Result<Tiers, String> {
        let mut tiers = Tiers::default();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            match words[..] {
                [] => {}
                [GUEST, tests] => tiers.core.push(tests.to_owned()),
                [HOST, tests] => tiers.host_only.push(tests.to_owned()),
                [slice, tests] if slices.contains(&slice) => tiers.left.push((tests.to_owned(), slice.to_owned())),
                [slice, _] => return Err(format!("line {}: no slice {slice}: {}", at + 1, slices.join(", "))),
                _ => return Err(format!("line {}: expected a slice and the beginning of test IDs", at + 1)),
            }
        }
        Ok(tiers)
    }

    /// The slice that runs a test; `None`: the gate does.
    pub fn slice_of(&self, id: &str) -> Option<&str> {
        let fitting = self.left.iter().filter(|(tests, _)| id.starts_with(tests.as_str()));
        fitting.max_by_key(|(tests, _)| tests.len()).map(|(_, slice)| slice.as_str())
    }

    /// Whether the gate's guest runs it.
    pub fn is_core(&self, id: &str) -> bool {
        self.core.iter().any(|tests| id.starts_with(tests.as_str()))
    }

    /// Whether no guest runs it.
    pub fn is_host_only(&self, id: &str) -> bool {
        self.host_only.iter().any(|tests| id.starts_with(tests.as_str()))
    }

    /// The beginnings of tests that do not run in every place.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.left.iter().map(|(tests, _)| tests.as_str()).chain(self.host_only.iter().map(String::as_str))
    }

    /// Those of the gate's guest.
    pub fn core(&self) -> impl Iterator<Item = &str> {
        self.core.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_beginning_decides_and_unlisted_tests_are_the_gates() {
        let text = "# a comment\nhost-long live::  # 300 s\nboards live::short::\ngate-guest live::short::a\nhost-only live::x";
        let tiers = Tiers::parse(text, &["host-long", "boards"]).unwrap();
        assert_eq!(tiers.slice_of("live::memory::x"), Some("host-long"));
        assert_eq!(tiers.slice_of("live::short::x"), Some("boards"));
        assert_eq!(tiers.slice_of("observed::live::x"), None);
        assert!(tiers.is_core("live::short::all") && !tiers.is_core("live::short::b"));
        assert!(tiers.is_host_only("live::x::y") && !tiers.is_host_only("live::short::a"));
        assert_eq!((tiers.left().count(), tiers.core().count()), (3, 1));
    }

    #[test]
    fn unknown_slice_or_missing_beginning_is_refused_with_its_line() {
        assert!(Tiers::parse("\nnowhere a::b", &["x"]).unwrap_err().starts_with("line 2: no slice nowhere"));
        assert!(Tiers::parse("x", &["x"]).unwrap_err().starts_with("line 1"));
    }
}
