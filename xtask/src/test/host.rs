//! What runs on this host: suites beside each other, then those that want no neighbours.
//!
//! ```text
//! workers   each takes the next test of the first suite that may run one more, or a whole suite that shares one process
//! then      suites that want no neighbours, one test after the other
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::report::Section;
use super::suites::Suite;
use super::{Context, skip_line};
use crate::libtest::{self, LibtestOutput};
use crate::steps::Step;
use crate::{Result, run};

/// Tests mostly wait: for the next second, the next scrape.
const WORKERS: [&str; 4] = ["worker 1", "worker 2", "worker 3", "worker 4"];
/// Begun first, since they take longest; all others follow in the order of their names.
const FIRST: &[&str] =
    &["live", "observed", "boards", "allostat", "plugins", "otlp", "commands", "devices", "prometheus"];
/// So many tests of this suite may run at once.
const MOST_AT_ONCE: &[(&str, usize)] = &[("live", 2)];
/// Total time of a process, in limits of its silence: on a machine that is three times slower a suite may need that.
const MOST_SILENCES: u32 = 4;
/// They compare their values with the kernel's of the same moment, or count its work: nothing runs beside them.
const ALONE: &[&str] = &["kernel_pass", "kernel_ends", "reader"];
/// One test at a time, each in a process of its own, so that one that hangs costs itself alone.
const ONE_AT_A_TIME: &[&str] = &[
    "live",
    "observed",
    "supervisor",
    "prometheus",
    "boards",
    "systemd",
    "chaos",
    "kernel_pass",
    "kernel_ends",
    "impostors",
    "reader",
];

/// Tests of one suite that are to run.
#[derive(Debug, Clone)]
pub struct ChosenTests<'a> {
    pub suite: &'a Suite,
    pub tests: Vec<String>,
}

/// What is left to run, and what ran.
struct Queue<'a> {
    /// In the order in which they are begun; of each suite the tests that one process runs.
    waiting: Vec<(&'a Suite, VecDeque<Vec<String>>)>,
    running: BTreeMap<&'a str, usize>,
    started: BTreeMap<&'a str, Instant>,
    sections: Vec<Section>,
}

impl<'a> Queue<'a> {
    fn new(chosen: &[&ChosenTests<'a>]) -> Queue<'a> {
        let place = |suite: &str| FIRST.iter().position(|first| *first == suite).unwrap_or(FIRST.len());
        let mut chosen: Vec<&&ChosenTests<'a>> = chosen.iter().collect();
        chosen.sort_by_key(|one| (place(&one.suite.name), one.suite.name.as_str()));
        let section = |one: &&&ChosenTests<'a>| {
            Section::new("host", &one.suite.name, one.tests.iter().map(|test| one.suite.id(test)).collect())
        };
        let sections = chosen.iter().map(section).collect();
        let waiting = chosen.into_iter().map(|one| {
            let is_apart = ONE_AT_A_TIME.contains(&one.suite.name.as_str());
            let apart = one.tests.iter().map(|test| vec![test.clone()]);
            (one.suite, if is_apart { apart.collect() } else { [one.tests.clone()].into() })
        });
        Queue { waiting: waiting.collect(), running: BTreeMap::new(), started: BTreeMap::new(), sections }
    }

    /// The next tests that may run now. `Err`: nothing may before another one has ended; `None`: all have begun.
    fn next(&mut self) -> Option<std::result::Result<(&'a Suite, Vec<String>), ()>> {
        if self.waiting.iter().all(|(_, tests)| tests.is_empty()) {
            return None;
        }
        for (suite, tests) in self.waiting.iter_mut().filter(|(_, tests)| !tests.is_empty()) {
            let running = self.running.entry(&suite.name).or_default();
            let most = MOST_AT_ONCE.iter().find(|(name, _)| *name == suite.name).map_or(1, |(_, most)| *most);
            if *running < most
                && let Some(tests) = tests.pop_front()
            {
                *running += 1;
                self.started.entry(&suite.name).or_insert_with(Instant::now);
                return Some(Ok((suite, tests)));
            }
        }
        Some(Err(()))
    }

    fn ended(
        &mut self,
        suite: &'a Suite,
        tests: &[String],
        took: Duration,
        printed: (LibtestOutput, Vec<(String, String)>),
    ) {
        let left = self.waiting.iter().find(|(of, _)| of.name == suite.name).map_or(0, |(_, tests)| tests.len());
        let running = self.running.entry(&suite.name).or_default();
        *running -= 1;
        let is_over = *running == 0 && left == 0;
        if let Some(section) = self.sections.iter_mut().find(|section| section.suite == suite.name) {
            let what = if let [test] = tests { suite.id(test) } else { format!("{} (all)", suite.name) };
            section.times.push((what, took));
            section.add(printed, suite);
            if is_over {
                section.print(self.started.get(suite.name.as_str()).map_or(took, Instant::elapsed));
            }
        }
    }
}

/// Suites that run beside each other, in so many workers.
struct Lane<'a> {
    name: &'static str,
    chosen: Vec<&'a ChosenTests<'a>>,
    workers: &'static [&'static str],
}

/// One after the other.
fn lanes<'a>(chosen: &'a [ChosenTests<'a>]) -> [Lane<'a>; 2] {
    let is_alone = |one: &&ChosenTests<'a>| ALONE.contains(&one.suite.name.as_str());
    let (alone, sibling): (Vec<_>, Vec<_>) = chosen.iter().partition(is_alone);
    [
        Lane { name: "host", chosen: sibling, workers: &WORKERS },
        Lane { name: "host, alone", chosen: alone, workers: &WORKERS[..1] },
    ]
}

impl<'a> Context<'a> {
    /// Beside each other, then what runs alone.
    pub fn host(&'a self, chosen: &'a [ChosenTests<'a>]) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        for Lane { name, chosen, workers } in lanes(chosen) {
            sections.extend(self.queue(name, &chosen, workers)?);
        }
        Ok(sections)
    }

    fn queue(&'a self, name: &str, chosen: &[&ChosenTests<'a>], workers: &'a [&'a str]) -> Result<Vec<Section>> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let queue = Mutex::new(Queue::new(chosen));
        let steps = workers.iter().map(|worker| {
            let work: Step<'_, ()> = (worker, Box::new(|| self.work(worker, &queue)));
            work
        });
        self.steps.in_parallel(name, steps.collect())?;
        Ok(queue.into_inner().unwrap_or_else(PoisonError::into_inner).sections)
    }

    fn work(&self, worker: &str, queue: &Mutex<Queue<'a>>) -> Result<()> {
        let lock = || -> MutexGuard<'_, Queue<'a>> { queue.lock().unwrap_or_else(PoisonError::into_inner) };
        loop {
            let next = lock().next();
            let (suite, tests) = match next {
                None => return Ok(()),
                Some(Ok(next)) => next,
                Some(Err(())) => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let log = self.logs.join(format!("host-{}-{}.log", suite.name, worker.replace(' ', "-")));
            let limit = if tests.len() == 1 { self.limits.test } else { self.limits.suite };
            let started_at = Instant::now();
            // An error of ours is a failure of these tests: the others go on.
            let printed = self.process(suite, &tests, &log, limit).unwrap_or_else(|error| {
                let mut printed = LibtestOutput::default();
                printed.cut_off(&tests, &error.to_string());
                (printed, Vec::new())
            });
            lock().ended(suite, &tests, started_at.elapsed(), printed);
        }
    }

    /// Runs tests of a suite in one process; what it printed and which it skipped.
    pub fn process(
        &self,
        suite: &Suite,
        tests: &[String],
        log: &Path,
        limit: Duration,
    ) -> Result<(LibtestOutput, Vec<(String, String)>)> {
        let skips = log.with_extension("skips");
        fs::write(&skips, "")?;
        let mut command = suite.command(tests);
        self.environment(&mut command, &skips);
        if tests.len() == 1 {
            command.arg("--test-threads=1");
        }
        let ended = run::logged(&mut command, log, limit, limit * MOST_SILENCES)?;
        let mut printed = libtest::parse(&String::from_utf8_lossy(&fs::read(log)?));
        printed.finished &= ended.is_some_and(|status| status.success() || !printed.failed.is_empty());
        if !printed.finished {
            let how = ended.map_or_else(|| format!("over its limit of {limit:?}"), |status| status.to_string());
            printed.cut_off(tests, &how);
        }
        printed.check_count(tests);
        Ok((printed, fs::read_to_string(&skips)?.lines().filter_map(skip_line).collect()))
    }

    fn environment(&self, command: &mut Command, skips: &Path) {
        command.env("ALLOSTAT_SKIPS", skips).env("ALLOSTAT_PARTS", &self.parts.dir).env("ALLOSTAT_PLACE", "host");
        // The place of a panic is enough; frames below it would push the failure out of a report's end.
        command.env("RUST_BACKTRACE", "0");
        command.envs(self.size.environment()).env("ALLOSTAT_PATIENCE", self.patience.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::suites::tests::suite;

    #[test]
    fn suites_that_compare_with_the_kernel_run_last_and_in_one_worker() {
        let names = ["kernel_ends::a", "kernel_pass::b", "kernel_passing::c", "live::d", "reader::e"];
        let suites = suite("cgroups", &names);
        let chosen: Vec<ChosenTests<'_>> =
            suites.iter().map(|suite| ChosenTests { suite, tests: suite.tests.clone() }).collect();
        let [concurrent, alone] = lanes(&chosen);
        let names = |lane: &Lane<'_>| lane.chosen.iter().map(|one| one.suite.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&concurrent), ["kernel_passing", "live"]);
        assert_eq!(names(&alone), ["kernel_ends", "kernel_pass", "reader"]);
        assert_eq!((concurrent.workers.len(), alone.workers.len()), (WORKERS.len(), 1));
    }

    #[test]
    fn suites_of_the_lists_exist_and_what_runs_alone_has_a_process_for_each_test() {
        let all = FIRST.iter().chain(ALONE).chain(ONE_AT_A_TIME).chain(MOST_AT_ONCE.iter().map(|(suite, _)| suite));
        for suite in all {
            let tests = crate::root().join("tests").join(suite);
            let is_there = tests.join("mod.rs").exists() || tests.with_extension("rs").exists();
            assert!(is_there || *suite == "allostat", "there is no suite {suite}");
        }
        assert!(ALONE.iter().all(|suite| ONE_AT_A_TIME.contains(suite)), "{ALONE:?}");
    }

    #[test]
    fn long_suites_begin_first_and_no_more_of_one_run_at_once_than_may() {
        let suites = suite("cgroups", &["live::a", "live::b", "live::c", "zone::d", "zone::e"]);
        let chosen: Vec<ChosenTests<'_>> =
            suites.iter().map(|suite| ChosenTests { suite, tests: suite.tests.clone() }).rev().collect();
        let mut queue = Queue::new(&chosen.iter().collect::<Vec<_>>());
        let mut next = || queue.next().map(|next| next.map(|(_, tests)| tests.join(" ")));
        assert_eq!((next(), next()), (Some(Ok("live::a".into())), Some(Ok("live::b".into()))));
        assert_eq!(next(), Some(Ok("zone::d zone::e".into())), "these share a process");
        assert_eq!(next(), Some(Err(())), "the third of live waits");
        let live = &suites[0];
        queue.ended(live, &["live::a".to_owned()], Duration::ZERO, (LibtestOutput::default(), Vec::new()));
        assert_eq!(queue.next().map(|next| next.map(|(_, tests)| tests)), Some(Ok(vec!["live::c".to_owned()])));
        assert!(queue.next().is_none());
        assert_eq!(queue.sections[0].times.len(), 1);
    }
}
