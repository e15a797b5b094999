//! Reads what a libtest binary printed. The summary lines count; names come from the list of failures and from `--list`,
//! because a line `test x ... ok` may carry somebody else's words in its middle.

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Printed {
    pub passed: usize,
    pub failed: Vec<String>,
    /// Failures, of which `failed` has the names that were found.
    pub failures: usize,
    pub ignored: Vec<String>,
    /// What the failed tests said.
    pub details: String,
    /// It ended with a summary. Without one it crashed, or was stopped.
    pub finished: bool,
    /// The test that was begun last, for the case that it never finished.
    pub last: Option<String>,
}

pub fn parse(text: &str) -> Printed {
    let mut printed = Printed::default();
    for line in text.lines() {
        if let Some(at) = line.find("test result: ") {
            printed.finished = true;
            printed.passed = printed.passed.saturating_add(count(&line[at..], "passed"));
            printed.failures = printed.failures.saturating_add(count(&line[at..], "failed"));
        } else if let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            printed.last = Some(name.to_owned());
            if result.trim_end() == "ignored" || result.starts_with("ignored,") {
                printed.ignored.push(name.to_owned());
            }
        }
    }
    if printed.failures > 0 || !printed.finished {
        let lists: Vec<usize> = text.match_indices("\nfailures:\n").map(|(at, _)| at).collect();
        if let (Some(first), Some(last)) = (lists.first(), lists.last()) {
            printed.details = text[*first..*last].trim().trim_start_matches("failures:").trim().to_owned();
            for list in &lists {
                let names = text[*list..].lines().skip(2).map_while(|line| line.strip_prefix("    "));
                printed.failed.extend(names.map(|name| name.split(" (line ").next().unwrap_or(name).to_owned()));
            }
        }
    }
    printed.failures = printed.failures.max(printed.failed.len());
    printed
}

impl Printed {
    /// Where a failed test panicked, and what it said: a line or two behind `: `, or nothing.
    pub fn why(&self, test: &str) -> String {
        let of_it = self.details.split_once(&format!("---- {test} stdout ----")).map(|(_, rest)| rest);
        let of_it = of_it.map(|rest| rest.split("\n---- ").next().unwrap_or(rest));
        let lines = of_it.unwrap_or_default().lines().skip_while(|line| !line.contains(" panicked at "));
        let said: Vec<&str> = lines.take(4).filter(|line| !line.starts_with("note: ")).collect();
        let said = said.join(" ");
        let at = said.split_once(" panicked at ").map_or("", |(_, at)| at).trim();
        if at.is_empty() { String::new() } else { format!(": {}", at.chars().take(300).collect::<String>()) }
    }
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
        assert_eq!(printed, Printed { passed: 2, finished: true, last: Some("b".into()), ..Printed::default() });
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
    fn a_failure_says_where_and_why_in_a_line() {
        let details = "---- m::a stdout ----\nnoise\n\nthread 'm::a' panicked at tests/x.rs:7:9:\nassertion failed: left\n  left: 1\n right: 2\n\
                       note: run with\n\n---- m::ab stdout ----\nno panic here";
        let printed = Printed { details: details.into(), ..Printed::default() };
        assert_eq!(printed.why("m::a"), ": tests/x.rs:7:9: assertion failed: left   left: 1  right: 2");
        assert_eq!((printed.why("m::ab"), printed.why("other")), (String::new(), String::new()));
    }

    #[test]
    fn a_crash_is_not_a_finish() {
        let printed = parse("running 2 tests\ntest a ... ok\ntest b ... ");
        assert!(!printed.finished);
        assert_eq!(printed.last.as_deref(), Some("b"));
    }

    #[test]
    fn several_summaries_add_up() {
        let one = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(parse(&format!("{one}{one}")).passed, 4);
    }

    #[test]
    fn a_failure_without_a_name_still_counts() {
        assert_eq!(parse("test result: FAILED. 0 passed; 2 failed; 0 ignored").failures, 2);
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
