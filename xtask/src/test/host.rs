//! What runs on this host itself: test binaries in two lanes, and checks by other programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{All, HOST_LIMIT, Section, list, say, skip_line};
use crate::{Result, cargo, libtest, run};

/// These start agents and compare what they measure: one test at a time, and in a lane of their own.
const MEASURING: &[&str] = &["live", "observed", "supervisor", "systemd", "chaos"];
/// In that lane, too: they look at what the kernel counts of few processes.
const KERNEL: &[&str] = &["kernel_pass", "kernel_ends", "liars", "passes", "places", "reader", "harness"];
/// One test at a time: each has a Prometheus beside its agent.
const SCRAPED: &[&str] = &["boards", "prometheus"];

/// Test binaries that run one after the other. Both lanes mostly wait: for the next second, the next scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Measuring,
    Rest,
}

impl Lane {
    pub const ALL: [Lane; 2] = [Lane::Measuring, Lane::Rest];

    pub fn name(self) -> &'static str {
        match self {
            Lane::Measuring => "host, what measures",
            Lane::Rest => "host, the rest",
        }
    }
    fn of(binary: &str) -> Lane {
        if MEASURING.contains(&binary) || KERNEL.contains(&binary) { Lane::Measuring } else { Lane::Rest }
    }
}

impl All<'_> {
    pub fn host(self, lane: Lane) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        for test in self.built.tests.iter().filter(|test| Lane::of(&test.name) == lane) {
            let mut command = Command::new(&test.path);
            command.current_dir(&test.package).env("CARGO_MANIFEST_DIR", &test.package);
            if MEASURING.contains(&test.name.as_str()) || SCRAPED.contains(&test.name.as_str()) {
                command.arg("--test-threads=1");
            }
            sections.push(self.on_host(command, &test.name, list(test, self.options)?)?);
        }
        if lane == Lane::Rest {
            let mut doc = cargo::cargo();
            doc.current_dir(self.root).args(["test", "--quiet", "--doc", "--workspace", "--"]);
            sections.push(self.on_host(doc, "documentation", Vec::new())?);
        }
        Ok(sections)
    }

    fn on_host(self, mut command: Command, name: &str, tests: Vec<String>) -> Result<Section> {
        let (log, skips) = (self.logs.join(format!("host-{name}.log")), self.logs.join(format!("host-{name}.skips")));
        fs::write(&skips, "")?;
        command.env("ALLOSTAT_SKIPS", &skips).env("ALLOSTAT_PARTS", &self.parts.dir).env("ALLOSTAT_PLACE", "host");
        // The place of a panic is told; the frames below it would push what failed out of a record of the end.
        command.env("RUST_BACKTRACE", "0");
        if !self.options.filter.is_empty() {
            command.arg(&self.options.filter);
        }
        let began = Instant::now();
        let ended = run::logged(&mut command, &log, HOST_LIMIT)?;
        let mut printed = libtest::parse(&String::from_utf8_lossy(&fs::read(&log)?));
        printed.finished &= ended.is_some_and(|status| status.success() || printed.failures > 0);
        let skips = fs::read_to_string(&skips)?.lines().filter_map(skip_line).collect();
        let section =
            Section { place: "host".into(), binary: name.into(), tests, printed, skips, passed_alone: Vec::new() };
        say(&section, began.elapsed());
        Ok(section)
    }

    /// Checks by programs that are not test binaries: each counts as a test. They only compute.
    pub fn checks(self) -> Result<Vec<Section>> {
        let root = self.root;
        let yml = |dir: &str| -> Vec<PathBuf> {
            let entries = fs::read_dir(root.join(dir)).into_iter().flatten().flatten().map(|entry| entry.path());
            let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "yml")).collect();
            paths.sort();
            paths
        };
        let mut wanted: Vec<(&str, PathBuf)> = yml("alerts").into_iter().map(|path| ("check", path)).collect();
        wanted.extend(yml("alerts/tests").into_iter().map(|path| ("test", path)));
        let mut section = Section { place: "checks".into(), binary: "promtool".into(), ..Section::default() };
        section.printed.finished = true;
        let began = Instant::now();
        for (verb, path) in wanted {
            let name = format!("{verb} rules {}", path.strip_prefix(root).unwrap_or(&path).display());
            section.tests.push(name.clone());
            let Some(promtool) = self.parts.program("promtool") else {
                section.printed.passed += 1; // A skip is taken off what passed, as with libtest.
                section.skips.push((name, "no-prometheus".into()));
                continue;
            };
            match run::output(run::idle(promtool).args([verb, "rules"]).arg(&path)) {
                Ok(_) => section.printed.passed += 1,
                Err(error) => {
                    section.printed.failures += 1;
                    section.printed.details += &format!("---- {name} ----\n{error}\n");
                    section.printed.failed.push(name);
                }
            }
        }
        say(&section, began.elapsed());
        Ok(vec![section])
    }
}
