//! Reads what a libtest binary printed. The summary lines count; names come from the list of failures and from
//! `--list`, because a line `test x ... ok` may carry other text in its middle.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct LibtestOutput {
    pub passed: usize,
    pub failed: Vec<String>,
    pub ignored: Vec<String>,
    /// What the failed tests printed.
    pub details: String,
    /// It ended with a summary. Without one it crashed, or was stopped.
    pub finished: bool,
    /// Tests whose lines were printed, in that order: with several threads they have ended, with one the last may not.
    pub started: Vec<String>,
    /// Those of them whose line says that they passed or were ignored.
    pub ended_well: BTreeSet<String>,
    /// Where each failed test panicked, and its message.
    pub whys: BTreeMap<String, String>,
}

/// In place of a name that the list of failures lacks.
const UNNAMED: &str = "a test whose name was not printed";

pub fn parse(text: &str) -> LibtestOutput {
    let mut printed = LibtestOutput::default();
    let mut failures = 0;
    for line in text.lines() {
        if let Some(at) = line.find("test result: ") {
            printed.finished = true;
            printed.passed = printed.passed.saturating_add(count(&line[at..], "passed"));
            failures += count(&line[at..], "failed").min(10_000);
        } else if let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            printed.started.push(name.to_owned());
            let is_ignored = result.trim_end() == "ignored" || result.starts_with("ignored,");
            if is_ignored {
                printed.ignored.push(name.to_owned());
            }
            // What a child printed may stand before it.
            if is_ignored || result.trim_end().ends_with("ok") {
                printed.ended_well.insert(name.to_owned());
            }
        }
    }
    if failures > 0 || !printed.finished {
        let lists: Vec<usize> = text.match_indices("\nfailures:\n").map(|(at, _)| at).collect();
        if let (Some(first), Some(last)) = (lists.first(), lists.last()) {
            printed.details = text[*first..*last].trim().trim_start_matches("failures:").trim().to_owned();
            for list in &lists {
                let names = text[*list..].lines().skip(2).map_while(|line| line.strip_prefix("    "));
                printed.failed.extend(names.map(|name| name.split(" (line ").next().unwrap_or(name).to_owned()));
            }
        }
    }
    printed.failed.extend((printed.failed.len()..failures).map(|_| UNNAMED.to_owned()));
    for name in &printed.failed {
        printed.whys.insert(name.clone(), why(&printed.details, name));
    }
    printed
}

impl LibtestOutput {
    /// The process ended before its summary, and `how` says how: each test without a line that it ended well has
    /// failed. If all have one, the process itself failed behind them.
    pub fn cut_off(&mut self, tests: &[String], how: &str) {
        let lost: Vec<&String> = tests.iter().filter(|test| !self.ended_well.contains(*test)).collect();
        self.passed = self.ended_well.len().saturating_sub(self.ignored.len());
        self.failed.clear();
        for name in &lost {
            let text =
                if self.started.contains(name) || tests.len() == 1 { "did not end well" } else { "did not begin" };
            self.whys.insert((*name).clone(), format!(": {text}: {how}"));
            self.failed.push((*name).clone());
        }
        if lost.is_empty() {
            self.fail(
                tests.first().cloned().unwrap_or_default(),
                &format!("the process of this and later tests: {how}"),
            );
        }
    }

    /// A finished process must have run each test that it was to run.
    pub fn check_count(&mut self, tests: &[String]) {
        let ran = self.passed + self.failed.len() + self.ignored.len();
        if self.finished && ran != tests.len() {
            let first = tests.first().cloned().unwrap_or_default();
            self.fail(first, &format!("{ran} tests ran in this process, not {}", tests.len()));
        }
    }

    /// Adds another process's tests under other names.
    pub fn add(&mut self, other: LibtestOutput, id: impl Fn(&str) -> String) {
        self.passed += other.passed;
        self.failed.extend(other.failed.iter().map(|name| id(name)));
        self.ignored.extend(other.ignored.iter().map(|name| id(name)));
        self.started.extend(other.started.iter().map(|name| id(name)));
        self.whys.extend(other.whys.into_iter().map(|(name, why)| (id(&name), why)));
        self.finished &= other.finished;
        if !other.details.is_empty() {
            self.details += &other.details;
            self.details.push('\n');
        }
    }

    /// A check that is no test of a binary failed.
    pub fn fail(&mut self, name: String, wrong: &str) {
        self.details += &format!("---- {name} ----\n{wrong}\n");
        let first = wrong.lines().next().unwrap_or_default();
        self.whys.insert(name.clone(), format!(": {}", first.chars().take(300).collect::<String>()));
        self.failed.push(name);
    }

    /// Where a failed test panicked, and its message: a line behind `: `, or nothing.
    pub fn why(&self, test: &str) -> &str {
        self.whys.get(test).map_or("", String::as_str)
    }
}

fn why(details: &str, test: &str) -> String {
    let own = details.split_once(&format!("---- {test} stdout ----")).map(|(_, rest)| rest);
    let own = own.map(|rest| rest.split("\n---- ").next().unwrap_or(rest));
    let lines = own.unwrap_or_default().lines().skip_while(|line| !line.contains(" panicked at "));
    let text: Vec<&str> = lines.take(4).filter(|line| !line.starts_with("note: ")).collect();
    let text = text.join(" ");
    let at = text.split_once(" panicked at ").map_or("", |(_, at)| at).trim();
    if at.is_empty() { String::new() } else { format!(": {}", at.chars().take(300).collect::<String>()) }
}

fn count(summary: &str, what: &str) -> usize {
    let words: Vec<&str> = summary.split([' ', ';']).filter(|w| !w.is_empty()).collect();
    let at = words.iter().position(|word| *word == what);
    at.and_then(|at| words[at.checked_sub(1)?].parse().ok()).unwrap_or(0)
}

/// The names that `--list --format terse` printed.
pub fn list(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_good_run_is_counted() {
        let printed = parse(
            "\nrunning 2 tests\ntest a ... ok\ntest b - should panic ... ok\n\ntest result: ok. 2 passed; 0 failed; \
             0 ignored; 0 measured; 3 filtered out; finished in 0.00s\n",
        );
        assert_eq!((printed.passed, printed.finished, printed.failed.len()), (2, true, 0));
        assert_eq!(printed.started, ["a", "b"]);
    }

    #[test]
    fn failures_have_their_names_and_words() {
        let text = "running 3 tests\ntest a ... FAILED\ntest m::b ... noise of a childok\ntest c ... ignored, later\n\n\
                    failures:\n\n---- a stdout ----\nthread 'a' panicked\nwhy\n\n\nfailures:\n    a\n\n\
                    test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let printed = parse(text);
        assert_eq!((printed.passed, &printed.failed, &printed.ignored), (1, &vec!["a".into()], &vec!["c".into()]));
        assert!(printed.details.contains("thread 'a' panicked\nwhy"), "{}", printed.details);
    }

    #[test]
    fn failure_has_its_place_and_message_in_one_line() {
        let details = "---- m::a stdout ----\nnoise\n\nthread 'm::a' panicked at tests/x.rs:7:9:\nassertion failed: left\n  \
                       left: 1\n right: 2\nnote: run with\n\n---- m::ab stdout ----\nno panic here";
        assert_eq!(why(details, "m::a"), ": tests/x.rs:7:9: assertion failed: left   left: 1  right: 2");
        assert_eq!((why(details, "m::ab"), why(details, "other")), (String::new(), String::new()));
    }

    #[test]
    fn crash_is_no_finish_and_fails_every_test_without_a_result() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut printed = parse("running 3 tests\ntest a ... ok\ntest b ... ");
        assert!(!printed.finished);
        printed.cut_off(&names, "signal 9");
        assert_eq!((printed.passed, &printed.failed[..]), (1, &names[1..]));
        assert_eq!(printed.why("b"), ": did not end well: signal 9");
        assert_eq!(printed.why("c"), ": did not begin: signal 9");
        let mut parallel = parse("running 3 tests\ntest a ... ok\ntest b ... ok\n");
        parallel.cut_off(&names, "signal 9");
        assert_eq!((parallel.passed, &parallel.failed[..]), (2, &names[2..]));
    }

    #[test]
    fn failed_test_stays_failed_when_its_process_dies_later() {
        let names = ["a", "b"].map(str::to_owned);
        let mut printed = parse("running 2 tests\ntest a ... FAILED\ntest b ... ok\n");
        printed.cut_off(&names, "signal 6");
        assert_eq!((printed.passed, &printed.failed[..]), (1, &names[..1]));
        let mut at_its_end = parse("running 2 tests\ntest a ... ok\ntest b ... ok\n");
        at_its_end.cut_off(&names, "signal 6");
        assert_eq!(at_its_end.failed.len(), 1, "a crash behind the last test is a failure");
    }

    #[test]
    fn process_that_ran_other_tests_than_it_was_to_run_has_failed() {
        let mut printed = parse("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored");
        printed.check_count(&["a".to_owned()]);
        assert_eq!(printed.failed, ["a"]);
    }

    #[test]
    fn tests_of_another_process_are_added_under_their_ids() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nthread 'a' panicked at x.rs:1:1:\nno\n\n\nfailures:\n    a\n\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored";
        let mut all = LibtestOutput { finished: true, passed: 1, ..LibtestOutput::default() };
        all.add(parse(text), |name| format!("lib::{name}"));
        assert_eq!((all.passed, &all.failed[..]), (3, &["lib::a".to_owned()][..]));
        assert_eq!(all.why("lib::a"), ": x.rs:1:1: no");
    }

    #[test]
    fn several_summaries_add_up() {
        let one = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(parse(&format!("{one}{one}")).passed, 4);
    }

    #[test]
    fn a_failure_without_a_name_still_counts() {
        assert_eq!(parse("test result: FAILED. 0 passed; 2 failed; 0 ignored").failed.len(), 2);
    }

    #[test]
    fn the_list_gives_names() {
        assert_eq!(list("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }

    proptest! {
        #[test]
        fn no_output_panics(text in "(test |failures:|\n|    a| \\.\\.\\. |ok|test result: |[0-9]+ (passed|failed);|.)*") {
            parse(&text);
        }
    }
}
