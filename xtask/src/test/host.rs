//! What runs on this host: suites in lanes beside each other, then those that want no neighbours.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::report::Section;
use super::suites::Suite;
use super::{Context, skip_line};
use crate::libtest::{self, Printed};
use crate::steps::Step;
use crate::{Result, run};

/// Lanes mostly wait: for the next second, the next scrape. Suites that are in none run in the first, `rest`.
const LANES: &[(&str, &[&str])] = &[
    ("rest", &[]),
    ("tasks", &["live", "supervisor", "chaos", "top"]),
    ("observers", &["observed", "commands", "plugins"]),
    ("receivers", &["boards", "prometheus", "otlp", "devices"]),
];
/// They compare their values with the kernel's of the same moment, or count its work: nothing runs beside them.
const ALONE: &[&str] = &["kernel_pass", "kernel_ends", "liars", "reader"];
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
    "liars",
    "reader",
];

/// Tests of one suite that are to run.
#[derive(Debug, Clone)]
pub struct Chosen<'a> {
    pub suite: &'a Suite,
    pub tests: Vec<String>,
}

impl<'a> Context<'a> {
    /// The lanes, then what runs alone.
    pub fn host(&'a self, chosen: &'a [Chosen<'a>]) -> Result<Vec<Section>> {
        let mut lanes: Vec<Step<'a, Vec<Section>>> = Vec::new();
        for (name, _) in LANES {
            let of_lane: Vec<&Chosen<'_>> = chosen.iter().filter(|one| lane(&one.suite.name) == Some(*name)).collect();
            if !of_lane.is_empty() {
                lanes.push((name, Box::new(move || of_lane.into_iter().map(|one| self.suite(one)).collect())));
            }
        }
        let mut sections: Vec<Section> = self.steps.beside("host lanes", lanes)?.into_iter().flatten().collect();
        let alone: Vec<&Chosen<'_>> = chosen.iter().filter(|one| lane(&one.suite.name).is_none()).collect();
        if !alone.is_empty() {
            let run = || alone.into_iter().map(|one| self.suite(one)).collect::<Result<Vec<_>>>();
            sections.extend(self.steps.step("host, alone", run)?);
        }
        Ok(sections)
    }

    fn suite(&self, chosen: &Chosen<'_>) -> Result<Section> {
        let Chosen { suite, tests } = chosen;
        let log = self.logs.join(format!("host-{}.log", suite.name));
        let began = Instant::now();
        let mut section = Section::new("host", &suite.name, tests.iter().map(|test| suite.id(test)).collect());
        if ONE_AT_A_TIME.contains(&suite.name.as_str()) {
            for test in tests {
                let begun = Instant::now();
                let one = self.process(suite, std::slice::from_ref(test), &log, self.limits.test)?;
                section.add(one, suite);
                section.times.push((suite.id(test), begun.elapsed()));
            }
        } else {
            let one = self.process(suite, tests, &log, self.limits.suite)?;
            section.add(one, suite);
            section.times.push((format!("{} (all)", suite.name), began.elapsed()));
        }
        section.say(began.elapsed());
        Ok(section)
    }

    /// Runs tests of a suite in one process; what it printed and which it skipped.
    pub fn process(
        &self,
        suite: &Suite,
        tests: &[String],
        log: &Path,
        limit: Duration,
    ) -> Result<(Printed, Vec<(String, String)>)> {
        let skips = log.with_extension("skips");
        fs::write(&skips, "")?;
        let mut command = suite.command(tests);
        self.environment(&mut command, &skips);
        if tests.len() == 1 {
            command.arg("--test-threads=1");
        }
        let ended = run::logged(&mut command, log, limit)?;
        let mut printed = libtest::parse(&String::from_utf8_lossy(&fs::read(log)?));
        printed.finished &= ended.is_some_and(|status| status.success() || !printed.failed.is_empty());
        if !printed.finished {
            let how = ended.map_or_else(|| format!("over its limit of {limit:?}"), |status| status.to_string());
            printed.cut_off(tests, tests.len() == 1, &how);
        }
        Ok((printed, fs::read_to_string(&skips)?.lines().filter_map(skip_line).collect()))
    }

    fn environment(&self, command: &mut Command, skips: &Path) {
        command.env("ALLOSTAT_SKIPS", skips).env("ALLOSTAT_PARTS", &self.parts.dir).env("ALLOSTAT_PLACE", "host");
        // The place of a panic is enough; frames below it would push the failure out of a report's end.
        command.env("RUST_BACKTRACE", "0");
        command.envs(self.size.environment()).env("ALLOSTAT_PATIENCE", self.patience.to_string());
    }
}

/// `None`: nothing runs beside it.
fn lane(suite: &str) -> Option<&'static str> {
    if ALONE.contains(&suite) {
        return None;
    }
    let named = LANES.iter().find(|(_, suites)| suites.contains(&suite)).map(|(name, _)| *name);
    named.or_else(|| LANES.first().map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_runs_in_its_lane_alone_or_with_the_rest() {
        assert_eq!((lane("live"), lane("kernel_pass"), lane("texts")), (Some("tasks"), None, Some("rest")));
    }
}
