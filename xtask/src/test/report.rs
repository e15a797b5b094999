//! What ran, what of it failed, and the lines that a run ends with.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::suites::Suite;
use crate::Result;
use crate::libtest::LibtestOutput;
use crate::skips::{AllowedSkips, Circumstances, Judgement};

/// What one suite did in one place. Tests have their IDs.
#[derive(Debug, Clone, Default)]
pub struct Section {
    pub place: String,
    pub suite: String,
    /// All that were to run.
    pub tests: Vec<String>,
    pub printed: LibtestOutput,
    /// `(test, reason)`
    pub skips: Vec<(String, String)>,
    /// Tests that failed at first and then passed two of three, and how the first failure read.
    pub flaky: Vec<(String, String)>,
    pub times: Vec<(String, Duration)>,
}

impl Section {
    pub fn new(place: &str, suite: &str, tests: Vec<String>) -> Section {
        let printed = LibtestOutput { finished: true, ..LibtestOutput::default() };
        Section { place: place.into(), suite: suite.into(), tests, printed, ..Section::default() }
    }

    /// Adds what a process of the suite printed.
    pub fn add(&mut self, (printed, skips): (LibtestOutput, Vec<(String, String)>), suite: &Suite) {
        self.printed.add(printed, |test| suite.id(test));
        self.skips.extend(skips.into_iter().map(|(test, reason)| (suite.id(&test), reason)));
    }

    pub fn print(&self, took: Duration) {
        let LibtestOutput { passed, failed, .. } = &self.printed;
        let seconds = took.as_secs_f64();
        println!("  {:<10} {:<13} {passed:>4} passed, {} failed  {seconds:.1} s", self.place, self.suite, failed.len());
        // The end of a run has them in full, which one that is cut off does not reach.
        failed.iter().for_each(|name| println!("    FAILED {name}{}", self.printed.why(name)));
    }

    /// The test ran here to its end, well or not.
    fn ran(&self, test: &str) -> bool {
        let skipped = self.skips.iter().any(|(name, _)| same_test(name, test));
        !skipped && self.tests.iter().any(|name| same_test(name, test))
    }
}

/// A skip names its test with or without the modules around it.
pub fn same_test(a: &str, b: &str) -> bool {
    a == b || a.ends_with(&format!("::{b}")) || b.ends_with(&format!("::{a}"))
}

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    pub passed: usize,
    pub skipped: usize,
    /// `place: id: where and why`
    pub red: Vec<String>,
    pub flaky: Vec<String>,
}

impl Verdict {
    /// For files: the place and the ID of each, with the beginning of why.
    pub fn shortened(tests: &[String]) -> Vec<String> {
        tests.iter().map(|test| test.replace('\n', " ").chars().take(240).collect()).collect()
    }

    /// Both as one.
    pub fn and(mut self, other: Verdict) -> Verdict {
        self.red.extend(other.red);
        self.flaky.extend(other.flaky);
        Verdict { passed: self.passed + other.passed, skipped: self.skipped + other.skipped, ..self }
    }

    pub fn counts(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.red.len(), self.skipped)
    }
}

/// Whether a place (the first) runs a test (the second, by its ID).
pub type Runs<'a> = dyn Fn(&str, &str) -> bool + 'a;

/// How strictly skips are judged.
pub struct Strictness<'a> {
    pub allowed: &'a AllowedSkips,
    pub circumstances: Circumstances,
    /// What other slices run; `None`: this run is everything, and nothing is left to another.
    pub elsewhere: Option<&'a Runs<'a>>,
    /// A part was named by hand: where else a test runs cannot be known.
    pub partial: bool,
}

/// Adds up, and prints what failed and what was skipped.
pub fn judge(sections: &[Section], strictness: &Strictness<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut skipped = BTreeSet::new();
    let mut elsewhere = 0;
    for section in sections {
        let Section { place, suite, printed, flaky, .. } = section;
        if !printed.failed.is_empty() || !flaky.is_empty() {
            println!("\n=== {place}: {suite} ===\n{}", printed.details);
        }
        verdict.red.extend(printed.failed.iter().map(|id| format!("{place}: {id}{}", printed.why(id))));
        verdict.flaky.extend(flaky.iter().map(|(id, why)| format!("{place}: {id}{why}")));
        let ignored = printed.ignored.iter().map(|test| (test.clone(), "ignored".to_owned()));
        let ignored: Vec<_> = ignored.collect();
        let mut left_out = BTreeSet::new();
        for (test, reason) in section.skips.iter().chain(&ignored) {
            left_out.insert(test);
            let runs = |other: &str| {
                let is_there = |section: &&Section| section.suite == *suite && section.place == other;
                other != place
                    && (sections.iter().filter(is_there).any(|section| section.ran(test))
                        || strictness.elsewhere.is_some_and(|elsewhere| elsewhere(other, test)))
            };
            match strictness.allowed.judge(reason, strictness.circumstances, runs) {
                Judgement::RanElsewhere => elsewhere += 1,
                Judgement::Forbidden if !strictness.partial => {
                    verdict.red.push(format!("{place}: {test}: skipped, which is not allowed here: {reason}"));
                }
                Judgement::Allowed | Judgement::Forbidden => {
                    skipped.insert(format!("{place}: {test}: {reason}"));
                }
            }
        }
        verdict.passed += printed.passed.saturating_sub(left_out.len().saturating_sub(ignored.len()));
    }
    println!();
    if elsewhere > 0 {
        println!("{elsewhere} times a test left a place to another that can run it (tests/allowed-skips)");
    }
    skipped.iter().for_each(|skip| println!("skipped {skip}"));
    verdict.flaky.iter().for_each(|test| println!("FLAKY, failed at first and passed two of three: {test}"));
    verdict.red.iter().for_each(|test| println!("FAILED {test}"));
    verdict.skipped = skipped.len();
    verdict
}

/// Seconds of each test, the longest first: what to look at before a suite is cut.
pub fn write_times(sections: &[Section], to: &Path) -> Result<()> {
    let mut times: Vec<(f64, String)> = Vec::new();
    for section in sections {
        times.extend(section.times.iter().map(|(id, took)| (took.as_secs_f64(), format!("{}\t{id}", section.place))));
    }
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text = String::new();
    times.iter().for_each(|(seconds, what)| {
        let _ = writeln!(text, "{seconds:.2}\t{what}");
    });
    Ok(fs::write(to, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(place: &str, tests: &[&str], skips: &[(&str, &str)]) -> Section {
        let mut section = Section::new(place, "live", tests.iter().map(|t| (*t).to_owned()).collect());
        section.printed.passed = tests.len();
        section.skips = skips.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        section
    }

    fn verdict(sections: &[Section], elsewhere: Option<&Runs<'_>>) -> Verdict {
        let allowed = AllowedSkips::parse("no-cgroup-v2 elsewhere:v2-6.1\nno-gpu always").unwrap();
        let circumstances = Circumstances { root: true, debian: true };
        judge(sections, &Strictness { allowed: &allowed, circumstances, elsewhere, partial: false })
    }

    #[test]
    fn skip_is_no_pass_and_counts_unless_the_test_ran_elsewhere() {
        let host = section("host", &["live::a", "live::b"], &[("live::a", "no-cgroup-v2")]);
        let guest = section("v2-6.1", &["live::a"], &[]);
        assert_eq!(verdict(&[host.clone(), guest], None), Verdict { passed: 2, ..Verdict::default() });
        let alone = verdict(std::slice::from_ref(&host), None);
        assert_eq!((alone.passed, alone.red.len()), (1, 1), "{alone:?}");
        let left = verdict(std::slice::from_ref(&host), Some(&|place, test| place == "v2-6.1" && test == "live::a"));
        assert_eq!((left.passed, left.red.len(), left.skipped), (1, 0, 0));
        let same = section("v2-6.1", &["live::a"], &[("live::a", "no-cgroup-v2")]);
        assert_eq!(verdict(&[same], Some(&|_, _| true)).red.len(), 1, "a place does not excuse its own skip");
        let gpu = verdict(&[section("host", &["live::a"], &[("live::a", "no-gpu")])], None);
        assert_eq!((gpu.passed, gpu.skipped), (0, 1));
    }
}
