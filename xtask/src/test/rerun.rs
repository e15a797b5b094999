//! A failed test runs again, alone: it counts as passed, and as flaky, if two of three runs pass. A skip is no pass.

use std::time::{Duration, Instant};

use super::report::Section;
use super::suites::Suite;
use super::{Context, report, state};
use crate::Result;
use crate::guest::{GUESTS, Guest, SelectedSuite};
use crate::power::{self, Trial};

const ATTEMPTS: u32 = 3;
const PASSES: u32 = 2;
/// More failures than these are no matter of chance.
const MOST_TESTS: usize = 12;
const MOST_TIME: Duration = Duration::from_secs(300);

/// What the runs of one test came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tally {
    passes: u32,
    failures: u32,
}

impl Tally {
    fn add(&mut self, passed: bool) {
        if passed { self.passes += 1 } else { self.failures += 1 }
    }
    /// `None`: another run decides.
    fn decided(self) -> Option<bool> {
        if self.passes >= PASSES { Some(true) } else { (self.failures > ATTEMPTS - PASSES).then_some(false) }
    }
}

/// Runs each of these tests until two of three runs decide, or until no time is left. `run` runs once what it is given,
/// and has for each whether it passed.
fn tally(
    ids: &[String],
    mut has_time: impl FnMut() -> bool,
    mut run: impl FnMut(&[String]) -> Result<Vec<bool>>,
) -> Result<Vec<(String, Tally)>> {
    let mut tallies: Vec<(String, Tally)> = ids.iter().map(|id| (id.clone(), Tally::default())).collect();
    loop {
        let open = tallies.iter_mut().filter(|(_, tally)| tally.decided().is_none());
        let mut open: Vec<&mut (String, Tally)> = open.collect();
        if open.is_empty() || !has_time() {
            return Ok(tallies);
        }
        let ids: Vec<String> = open.iter().map(|(id, _)| id.clone()).collect();
        open.iter_mut().zip(run(&ids)?).for_each(|((_, tally), passed)| tally.add(passed));
    }
}

/// Those that passed two of three times. What time left undecided has not passed.
fn that_passed(tallies: Vec<(String, Tally)>) -> Vec<String> {
    tallies.into_iter().filter(|(_, tally)| tally.decided() == Some(true)).map(|(id, _)| id).collect()
}

/// Has what failed judged again, place by place, unless so much failed that it cannot be chance: a test that `judge`
/// lets pass is flaky.
fn settle(sections: &mut [Section], mut judge: impl FnMut(&str, &[String]) -> Result<Vec<String>>) -> Result<()> {
    let failures: usize = sections.iter().map(|section| section.printed.failed.len()).sum();
    if failures == 0 {
        return Ok(());
    }
    if failures > MOST_TESTS {
        println!("{failures} tests failed, more than {MOST_TESTS}: none is run again");
        return Ok(());
    }
    println!("again, alone: {failures} tests that failed");
    for section in sections.iter_mut().filter(|section| !section.printed.failed.is_empty()) {
        for id in judge(&section.place, &section.printed.failed)? {
            section.flaky.push((id.clone(), section.printed.why(&id).to_owned()));
            section.printed.failed.retain(|failed| *failed != id);
            section.printed.passed += 1;
        }
    }
    Ok(())
}

/// What runs a failed test again on this host.
enum Runner<'a> {
    Test(&'a Suite, &'a String),
    Power(Trial),
    /// A check that is no test, such as the end of a process behind its last one: it stays failed.
    Absent,
}

fn runner<'a>(suites: &'a [Suite], id: &str) -> Runner<'a> {
    if let Some(trial) = power::trials().into_iter().find(|trial| trial.name == *id) {
        return Runner::Power(trial);
    }
    find(suites, id).map_or(Runner::Absent, |(suite, test)| Runner::Test(suite, test))
}

/// The directory of a guest's logs: that of the first run stays, and so does each of these.
fn logs_of_guest(guest: &str, run: u32) -> String {
    if run == 1 { format!("{guest}-again") } else { format!("{guest}-again{run}") }
}

/// What a guest runs of these; `None`: one of them is no test.
fn selection(suites: &[Suite], ids: &[String]) -> Option<Vec<SelectedSuite>> {
    let mut tests: Vec<SelectedSuite> = Vec::new();
    for id in ids {
        let (suite, test) = find(suites, id)?;
        // A suite is named once in a guest's report.
        match tests.iter_mut().find(|one| one.suite == suite.name) {
            Some(one) => one.names.push(test.clone()),
            None => tests.push(SelectedSuite {
                suite: suite.name.clone(),
                binary: suite.binary.clone(),
                names: vec![test.clone()],
            }),
        }
    }
    Some(tests)
}

impl Context<'_> {
    /// Runs what failed again: on the host one test at a time, in a guest all of its own in one boot.
    pub fn again(&self, sections: &mut [Section], suites: &[Suite]) -> Result<()> {
        let until = Instant::now() + MOST_TIME * self.patience;
        let has_time = || Instant::now() < until;
        settle(sections, |place, failed| match GUESTS.iter().find(|guest| guest.name == place) {
            Some(guest) => self.in_guest(guest, suites, failed, has_time),
            None => self.one_by_one(suites, failed, has_time),
        })
    }

    fn one_by_one(&self, suites: &[Suite], failed: &[String], has_time: impl Fn() -> bool) -> Result<Vec<String>> {
        let mut tallies = Vec::new();
        for id in failed {
            let own = tally(std::slice::from_ref(id), &has_time, |_| Ok(vec![self.once(suites, id)?]))?;
            for (id, tally) in &own {
                println!("  {id}: {} of {} passed", tally.passes, tally.passes + tally.failures);
            }
            tallies.extend(own);
        }
        Ok(that_passed(tallies))
    }

    fn once(&self, suites: &[Suite], id: &str) -> Result<bool> {
        match runner(suites, id) {
            Runner::Absent => Ok(false),
            Runner::Power(trial) => {
                let writer = self.built.binary("power").ok_or("cargo built no example `power`")?;
                // The first run's consoles stay.
                Ok(trial.run(self.parts, writer, &self.logs.join("power-again")).is_ok())
            }
            Runner::Test(suite, test) => {
                let log = self.logs.join(format!("again-{}.log", suite.name));
                // A test that was killed left its own.
                state::sweep();
                let (printed, skips) = self.process(suite, std::slice::from_ref(test), &log, self.limits.test)?;
                Ok(printed.finished && printed.failed.is_empty() && printed.passed == 1 && skips.is_empty())
            }
        }
    }

    fn in_guest(
        &self,
        guest: &Guest,
        suites: &[Suite],
        failed: &[String],
        has_time: impl Fn() -> bool,
    ) -> Result<Vec<String>> {
        let mut runs = 0;
        let tallies = tally(failed, has_time, |ids| {
            runs += 1;
            let Some(tests) = selection(suites, ids) else { return Ok(vec![false; ids.len()]) };
            let sections = self.guest(guest, &logs_of_guest(guest.name, runs), &tests)?;
            Ok(ids.iter().map(|id| sections.iter().any(|section| passed(section, id))).collect())
        })?;
        Ok(that_passed(tallies))
    }
}

fn passed(section: &Section, id: &String) -> bool {
    section.tests.contains(id)
        && section.printed.finished
        && !section.printed.failed.contains(id)
        && !section.skips.iter().any(|(test, _)| report::same_test(test, id))
}

fn find<'a>(suites: &'a [Suite], id: &str) -> Option<(&'a Suite, &'a String)> {
    suites.iter().find_map(|suite| suite.tests.iter().find(|test| suite.id(test) == id).map(|test| (suite, test)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::suites::tests::suite;

    fn decided(runs: &[bool]) -> Option<bool> {
        let mut tally = Tally::default();
        runs.iter().for_each(|passed| tally.add(*passed));
        tally.decided()
    }

    #[test]
    fn two_of_three_runs_decide() {
        assert_eq!(decided(&[true]), None);
        assert_eq!((decided(&[true, true]), decided(&[false, true, true])), (Some(true), Some(true)));
        assert_eq!((decided(&[false, false]), decided(&[true, false])), (Some(false), None));
        assert_eq!(decided(&[true, false, false]), Some(false));
    }

    fn failing(place: &str, ids: &[&str]) -> Section {
        let mut section = Section::new(place, "live", ids.iter().map(|id| (*id).to_owned()).collect());
        section.printed.failed = section.tests.clone();
        section.printed.whys = ids.iter().map(|id| ((*id).to_owned(), format!(": why of {id}"))).collect();
        section
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("live::{n}")).collect()
    }

    #[test]
    fn each_test_runs_again_until_two_of_three_runs_decide() {
        let ids = ["good", "bad", "mixed"].map(str::to_owned);
        let mut runs = Vec::new();
        let tallies = tally(
            &ids,
            || true,
            |open| {
                runs.push(open.join(" "));
                let first = runs.len() == 1;
                Ok(open.iter().map(|id| id == "good" || (id == "mixed" && !first)).collect())
            },
        );
        let tallies = tallies.unwrap();
        assert_eq!(runs, ["good bad mixed", "good bad mixed", "mixed"], "what is decided runs no more");
        assert_eq!(tallies[1].1, Tally { passes: 0, failures: 2 });
        assert_eq!(that_passed(tallies), ["good", "mixed"]);
    }

    #[test]
    fn test_that_time_leaves_undecided_has_not_passed() {
        let ids = ["a".to_owned()];
        let mut left = 1;
        let mut has_time = || std::mem::replace(&mut left, 0) > 0;
        let tallies = tally(&ids, &mut has_time, |_| Ok(vec![true])).unwrap();
        assert_eq!(tallies[0].1, Tally { passes: 1, failures: 0 }, "one run fitted");
        assert!(that_passed(tallies).is_empty());
        assert!(tally(&ids, || true, |_| Err("no disk".into())).is_err());
    }

    #[test]
    fn more_than_twelve_failures_are_not_judged_again() {
        let ids = names(MOST_TESTS + 1);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut sections = [failing("host", &ids[..6]), failing("v2-6.1", &ids[6..])];
        settle(&mut sections, |_, _| panic!("nothing may run again")).unwrap();
        assert_eq!(sections.iter().map(|section| section.printed.failed.len()).sum::<usize>(), MOST_TESTS + 1);
        let mut sections = [failing("host", &ids[..6]), failing("v2-6.1", &ids[6..MOST_TESTS])];
        let mut places = Vec::new();
        settle(&mut sections, |place, failed| {
            places.push(format!("{place} {}", failed.len()));
            Ok(failed[..2].to_vec())
        })
        .unwrap();
        assert_eq!(places, ["host 6", "v2-6.1 6"]);
    }

    #[test]
    fn test_that_passes_again_is_flaky_with_the_reason_of_its_first_failure() {
        let mut sections = [failing("host", &["live::a", "live::b"]), failing("host", &[])];
        settle(&mut sections, |_, failed| Ok(vec![failed[1].clone()])).unwrap();
        assert_eq!(sections[0].flaky, [("live::b".to_owned(), ": why of live::b".to_owned())]);
        assert_eq!(
            (sections[0].printed.failed.as_slice(), sections[0].printed.passed),
            (&["live::a".to_owned()][..], 1)
        );
    }

    #[test]
    fn power_failure_and_test_are_run_again_and_a_check_is_not() {
        let suites = suite("cgroups", &["live::a"]);
        let trials = power::trials();
        assert!(trials.len() > 1);
        for trial in trials {
            assert!(matches!(runner(&suites, &trial.name), Runner::Power(own) if own == trial), "{}", trial.name);
        }
        assert!(matches!(runner(&suites, "live::a"), Runner::Test(_, test) if test == "live::a"));
        assert!(matches!(runner(&suites, "the end of a process"), Runner::Absent));
    }

    #[test]
    fn each_run_of_a_guest_has_logs_of_its_own_and_names_each_suite_once() {
        let names: Vec<String> = (1..=ATTEMPTS).map(|run| logs_of_guest("v2-6.1", run)).collect();
        assert_eq!(names, ["v2-6.1-again", "v2-6.1-again2", "v2-6.1-again3"]);
        let suites = suite("cgroups", &["live::a", "observed::b", "live::c"]);
        let ids = ["live::a", "observed::b", "live::c"].map(str::to_owned);
        let tests = selection(&suites, &ids).unwrap();
        let tests: Vec<(String, String)> = tests.into_iter().map(|one| (one.suite, one.names.join(" "))).collect();
        assert_eq!(tests, [("live".into(), "live::a live::c".into()), ("observed".into(), "observed::b".into())]);
        assert!(selection(&suites, &["no test".to_owned()]).is_none());
    }

    #[test]
    fn skipped_or_unfinished_test_has_not_passed() {
        let id = "live::a".to_owned();
        let mut section = Section::new("v2-6.1", "live", vec![id.clone()]);
        assert!(passed(&section, &id));
        section.skips.push(("a".into(), "no-gpu".into()));
        assert!(!passed(&section, &id));
        section.skips.clear();
        section.printed.finished = false;
        assert!(!passed(&section, &id));
    }
}
