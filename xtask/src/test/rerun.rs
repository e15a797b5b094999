//! A failed test runs again, alone: it counts as passed, and as flaky, if two of three runs pass. A skip is no pass.

use std::time::{Duration, Instant};

use super::report::Section;
use super::suites::Suite;
use super::{Context, report, state};
use crate::guest::{GUESTS, Guest, SelectedSuite};
use crate::{Result, power};

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

impl Context<'_> {
    /// Runs what failed again, one test at a time, unless so much failed that it cannot be chance.
    pub fn again(&self, sections: &mut [Section], suites: &[Suite]) -> Result<()> {
        let failures: usize = sections.iter().map(|section| section.printed.failed.len()).sum();
        if failures == 0 {
            return Ok(());
        }
        if failures > MOST_TESTS {
            println!("{failures} tests failed, more than {MOST_TESTS}: none is run again");
            return Ok(());
        }
        println!("again, alone: {failures} tests that failed");
        let until = Instant::now() + MOST_TIME * self.patience;
        for section in sections.iter_mut().filter(|section| !section.printed.failed.is_empty()) {
            let failed = section.printed.failed.clone();
            let passed = match GUESTS.iter().find(|guest| guest.name == section.place) {
                Some(guest) => self.in_guest(guest, suites, &failed, until)?,
                None => self.one_by_one(suites, &failed, until)?,
            };
            for id in passed {
                section.flaky.push((id.clone(), section.printed.why(&id).to_owned()));
                section.printed.failed.retain(|failed| *failed != id);
                section.printed.passed += 1;
            }
        }
        Ok(())
    }

    /// Those that pass two of three times.
    fn one_by_one(&self, suites: &[Suite], failed: &[String], until: Instant) -> Result<Vec<String>> {
        let mut passed = Vec::new();
        for id in failed {
            let mut tally = Tally::default();
            while tally.decided().is_none() && Instant::now() < until {
                tally.add(self.once(suites, id)?);
            }
            println!("  {id}: {} of {} passed", tally.passes, tally.passes + tally.failures);
            passed.extend((tally.decided() == Some(true)).then(|| id.clone()));
        }
        Ok(passed)
    }

    fn once(&self, suites: &[Suite], id: &str) -> Result<bool> {
        if let Some(trial) = power::trials().into_iter().find(|trial| trial.name == *id) {
            let writer = self.built.binary("power").ok_or("cargo built no example `power`")?;
            return Ok(trial.run(self.parts, writer, self.logs).is_ok());
        }
        let Some((suite, test)) = find(suites, id) else { return Ok(false) };
        let log = self.logs.join(format!("again-{}.log", suite.name));
        // A test that was killed left its own.
        state::sweep();
        let (printed, skips) = self.process(suite, std::slice::from_ref(test), &log, self.limits.test)?;
        Ok(printed.finished && printed.failed.is_empty() && printed.passed == 1 && skips.is_empty())
    }

    /// One boot for each run of all of them; logs of the first run stay.
    fn in_guest(&self, guest: &Guest, suites: &[Suite], failed: &[String], until: Instant) -> Result<Vec<String>> {
        let mut tallies: Vec<(String, Tally)> = failed.iter().map(|id| (id.clone(), Tally::default())).collect();
        while tallies.iter().any(|(_, tally)| tally.decided().is_none()) && Instant::now() < until {
            let mut tests: Vec<SelectedSuite> = Vec::new();
            for (id, _) in tallies.iter().filter(|(_, tally)| tally.decided().is_none()) {
                let Some((suite, test)) = find(suites, id) else { return Ok(Vec::new()) };
                let (suite, binary) = (suite.name.clone(), suite.binary.clone());
                tests.push(SelectedSuite { suite, binary, names: vec![test.clone()] });
            }
            // A suite is named once in a guest's report.
            tests.sort_by(|a, b| a.suite.cmp(&b.suite));
            tests.dedup_by(|next, first| {
                next.suite == first.suite && {
                    first.names.append(&mut next.names);
                    true
                }
            });
            let sections = self.guest(guest, &format!("{}-again", guest.name), &tests)?;
            for (id, tally) in tallies.iter_mut().filter(|(_, tally)| tally.decided().is_none()) {
                tally.add(sections.iter().any(|section| passed(section, id)));
            }
        }
        Ok(tallies.into_iter().filter(|(_, tally)| tally.decided() == Some(true)).map(|(id, _)| id).collect())
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
