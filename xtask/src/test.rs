//! `cargo xtask test`: every test in every place, counted.

mod host;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cargo::{self, Built, TestBinary};
use crate::guest::{self, Chosen, GUESTS, Guest, Job, System};
use crate::libtest::{self, Printed};
use crate::parts::{self, Parts, Purpose};
use crate::skips::{AllowedSkips, Circumstances, Judgement};
use crate::steps::{Step, Steps};
use crate::{Result, power, run};

/// These take longest in a guest, by far, and ask least of its kernel: each of their tests runs in one of those with cgroup v2, not in
/// all. A binary, and what the names of the tests begin with.
const DIVIDED: &[(&str, &str)] =
    &[("live", ""), ("observed", ""), ("supervisor", ""), ("kernel_pass", "wrong::"), ("kernel_ends", "where_")];
/// Of one test binary, on a slow machine beside the other lane and builds.
const HOST_LIMIT: Duration = Duration::from_secs(2_400);
/// So many tests may fail beside all else and pass alone: what is late once on a busy machine is told and no verdict. More are one.
const MOST_AGAIN: usize = 2;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    only: Vec<String>,
    filter: String,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--only" => {
                    let place = words.next().ok_or("--only needs a place: host, checks, power or a guest")?;
                    let known =
                        ["host", "checks", "power"].contains(place) || GUESTS.iter().any(|guest| guest.name == *place);
                    if !known {
                        return Err(format!("there is no place {place}").into());
                    }
                    options.only.push((*place).to_owned());
                }
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                filter => options.filter = filter.to_owned(),
            }
        }
        Ok(options)
    }
    fn wants(&self, place: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == place)
    }
    fn everything(&self) -> bool {
        *self == Options::default()
    }
}

/// What one binary did in one place.
#[derive(Debug, Clone, Default)]
struct Section {
    place: String,
    binary: String,
    /// All its tests that matched the filter; empty where they cannot be listed.
    tests: Vec<String>,
    printed: Printed,
    /// `(test, reason)`
    skips: Vec<(String, String)>,
    /// Those that failed beside all else and passed alone.
    passed_alone: Vec<String>,
}

impl Section {
    /// The test was run here to its end, well or not.
    fn ran(&self, test: &str) -> bool {
        let skipped = self.skips.iter().any(|(name, _)| same_test(name, test));
        self.printed.finished && !skipped && self.tests.iter().any(|name| same_test(name, test))
    }
}

/// A skip names its test with or without the modules around it.
fn same_test(a: &str, b: &str) -> bool {
    a == b || a.ends_with(&format!("::{b}")) || b.ends_with(&format!("::{a}"))
}

pub fn run(options: &Options) -> Result<bool> {
    let root = crate::root();
    let logs = root.join("target/test-run");
    fs::create_dir_all(&logs)?;
    let allowed = AllowedSkips::parse(&fs::read_to_string(root.join("tests/allowed-skips"))?)
        .map_err(|e| format!("tests/allowed-skips: {e}"))?;
    let steps = Steps::begin();
    let parts = steps.step("parts", || parts::get(&root, Purpose::Tests))?;
    let built = steps.step("build", || cargo::build(&root, &["test", "--no-run", "--workspace"]))?;

    let agent = OnceLock::new();
    let all =
        All { root: &root, logs: &logs, parts: &parts, built: &built, guests_agent: &agent, options, steps: &steps };
    // One after the other: tests of the host that measure time are wrong at times beside machines that take every processor, and machines
    // are late beside each other.
    let mut sections: Vec<Section> = steps.beside(all.before_guests())?.into_iter().flatten().collect();
    if GUESTS.iter().any(|guest| options.wants(guest.name)) {
        sections.extend(steps.step("guests", || all.guests())?);
    }
    steps.step("alone", || all.again(&mut sections))?;
    let circumstances = Circumstances { root: is_root()?, debian: parts::can_be_had() };
    Ok(judge(&sections, &allowed, circumstances, options, &steps))
}

/// What every place needs.
#[derive(Clone, Copy)]
struct All<'a> {
    root: &'a Path,
    logs: &'a Path,
    parts: &'a Parts,
    built: &'a Built,
    guests_agent: &'a OnceLock<Built>,
    options: &'a Options,
    steps: &'a Steps,
}

impl<'a> All<'a> {
    fn of_the_host(self) -> Vec<Step<'a, Vec<Section>>> {
        let mut steps: Vec<Step<'a, Vec<Section>>> = Vec::new();
        if self.options.wants("host") {
            for lane in host::Lane::ALL {
                steps.push((lane.name(), Box::new(move || self.host(lane))));
            }
        }
        if self.options.wants("checks") && self.options.filter.is_empty() {
            steps.push(("checks", Box::new(move || self.checks())));
        }
        steps
    }
    fn host_and_power(self) -> Result<Vec<Section>> {
        let mut sections: Vec<Section> = self.steps.beside(self.of_the_host())?.into_iter().flatten().collect();
        if self.options.wants("power") && self.options.filter.is_empty() {
            sections.extend(self.steps.step("power", || self.power())?);
        }
        Ok(sections)
    }
    fn before_guests(self) -> Vec<Step<'a, Vec<Section>>> {
        let mut steps: Vec<Step<'a, Vec<Section>>> = vec![("host and power", Box::new(move || self.host_and_power()))];
        // Its build takes minutes of two processors, of which these leave the most.
        if self.options.everything() {
            steps.push(("guests' agent", Box::new(move || self.guests_agent().map(|_| Vec::new()))));
        }
        steps
    }
}

/// v1 is tested on the host; a guest does it only where the host cannot.
fn needed(guest: &Guest, options: &Options) -> bool {
    guest.system != System::V1
        || options.only.iter().any(|only| only == guest.name)
        || !is_root().unwrap_or(false)
        || !fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines().any(|line| line.contains(" cgroup rw"))
}

fn is_root() -> Result<bool> {
    Ok(run::output(Command::new("id").arg("-u"))?.trim() == "0")
}

impl All<'_> {
    /// Machines that are switched off while they write: each is a test.
    fn power(self) -> Result<Vec<Section>> {
        let began = Instant::now();
        let mut section = Section { place: "power".into(), binary: "power".into(), ..Section::default() };
        section.printed.finished = true;
        if let Some(missing) = power::missing(self.parts) {
            println!("  power    cannot run: {}", missing.why);
            section.printed.passed = 1; // A skip is taken off what passed, as with libtest.
            section.skips.push(("power failures".into(), missing.reason.into()));
        } else {
            let writer = self.built.binary("power").ok_or("cargo built no example `power`")?;
            for (name, wrong) in power::run(self.parts, writer, self.logs) {
                section.tests.push(name.clone());
                match wrong {
                    None => section.printed.passed += 1,
                    Some(wrong) => {
                        section.printed.failures += 1;
                        section.printed.details += &format!("---- {name} ----\n{wrong}\n");
                        section.printed.failed.push(name);
                    }
                }
            }
        }
        say(&section, began.elapsed());
        Ok(vec![section])
    }

    fn guests(self) -> Result<Vec<Section>> {
        let (mut sections, mut running) = (Vec::new(), Vec::new());
        let wanted = || GUESTS.iter().filter(|guest| self.options.wants(guest.name) && needed(guest, self.options));
        // Who asks for one of them asks for all that it can run.
        let divide = self.options.only.is_empty();
        let same = |guest: &&Guest| divide && guest.system == System::V2 && guest.missing(self.parts).is_none();
        for guest in wanted() {
            let share = wanted().filter(same).position(|same| same.name == guest.name);
            let mut tests = Vec::new();
            for test in &self.built.tests {
                let Some(module) = guest.chooses(&test.name) else { continue };
                let mut names = list(test, self.options)?;
                names.retain(|name| name.starts_with(module));
                if let Some(share) = share {
                    names = share_of(&test.name, names, share, wanted().filter(same).count());
                }
                if !names.is_empty() {
                    tests.push(Chosen { test: test.clone(), names });
                }
            }
            // Nothing to do there is no reason to boot.
            if tests.is_empty() {
                continue;
            }
            let Some(missing) = guest.missing(self.parts) else {
                running.push((guest, tests));
                continue;
            };
            println!("  {:<8} cannot run: {}", guest.name, missing.why);
            let mut section = Section { place: guest.name.into(), binary: "guest".into(), ..Section::default() };
            section.printed = Printed { passed: 1, finished: true, ..Printed::default() };
            section.skips.push((format!("everything in {}", guest.name), missing.reason.into()));
            sections.push(section);
        }
        if !running.is_empty() {
            let agent = &self.guests_agent()?;
            let begin = |(guest, tests): (&'static Guest, Vec<Chosen>)| {
                let run: Step<'_, _> = (guest.name, Box::new(move || self.guest(guest, agent, &tests)));
                run
            };
            let ran = self.steps.beside(running.into_iter().map(begin).collect())?;
            sections.extend(ran.into_iter().flatten());
        }
        Ok(sections)
    }

    /// Built once.
    fn guests_agent(self) -> Result<Built> {
        if let Some(built) = self.guests_agent.get() {
            return Ok(built.clone());
        }
        let built = cargo::build_idle(self.root, &["build", "--profile", guest::PROFILE, "--bin", "allostat"])?;
        Ok(self.guests_agent.get_or_init(|| built).clone())
    }

    /// Each test that failed, where there are few, with nothing beside it.
    fn again(self, sections: &mut [Section]) -> Result<()> {
        let failures: usize = sections.iter().map(|section| section.printed.failures).sum();
        let whole = sections.iter().all(|section| section.printed.finished);
        if !whole || failures == 0 || failures > MOST_AGAIN {
            return Ok(());
        }
        for section in sections {
            let Some(test) = self.built.tests.iter().find(|test| test.name == section.binary) else { continue };
            for name in std::mem::take(&mut section.printed.failed) {
                let passes = match GUESTS.iter().find(|guest| guest.name == section.place) {
                    Some(guest) => self.alone_in(guest, test, &name)?,
                    None => self.alone(test, &name)?,
                };
                if passes {
                    section.printed.failures -= 1;
                    section.printed.passed += 1;
                    section.passed_alone.push(name);
                } else {
                    section.printed.failed.push(name);
                }
            }
        }
        Ok(())
    }
    fn alone(self, test: &TestBinary, name: &str) -> Result<bool> {
        let mut command = Command::new(&test.path);
        command.current_dir(&test.package).env("CARGO_MANIFEST_DIR", &test.package).args(["--exact", name]);
        command.env("ALLOSTAT_PARTS", &self.parts.dir).env("ALLOSTAT_PLACE", "host");
        let log = self.logs.join(format!("alone-{}.log", test.name));
        Ok(run::logged(&mut command, &log, HOST_LIMIT)?.is_some_and(|status| status.success()))
    }
    fn alone_in(self, guest: &Guest, test: &TestBinary, name: &str) -> Result<bool> {
        let chosen = Chosen { test: test.clone(), names: vec![name.to_owned()] };
        let ran = self.guest(guest, &self.guests_agent()?, &[chosen])?;
        Ok(ran.iter().all(|section| section.printed.finished && section.printed.failures == 0))
    }

    /// Test binaries, one after the other, on a machine of its own.
    fn guest(self, guest: &Guest, agent: &Built, tests: &[Chosen]) -> Result<Vec<Section>> {
        let allostat = agent.binary("allostat").ok_or("cargo built no allostat")?;
        let workload = self.built.binary("workload").ok_or("cargo built no workload")?;
        let job = Job { tests, allostat, workload, logs: self.logs };
        let report = guest.run(self.parts, &job)?;
        let mut sections = Vec::new();
        for Chosen { test, names } in tests {
            let ran = report.ran.iter().find(|ran| ran.binary == test.name);
            let mut printed = ran.map(|ran| libtest::parse(&ran.output)).unwrap_or_default();
            printed.finished &= ran.is_some_and(|ran| ran.code == Some(0) || printed.failures > 0);
            if !printed.finished {
                printed.details += &format!(
                    "{}\n--- the console of {} ---\n{}",
                    ran.map_or("it never began", |ran| ran.output.as_str()),
                    guest.name,
                    report.console
                );
            }
            let own = report.skips.iter().filter(|(binary, _)| *binary == test.name);
            let section = Section {
                place: guest.name.into(),
                binary: test.name.clone(),
                tests: names.clone(),
                printed,
                skips: own.filter_map(|(_, line)| skip_line(line)).collect(),
                passed_alone: Vec::new(),
            };
            say(&section, Duration::from_secs_f64(ran.map_or(0.0, |ran| ran.seconds.max(0.0))));
            sections.push(section);
        }
        Ok(sections)
    }
}

/// Of the tests of a binary those that one guest runs of so many.
fn share_of(binary: &str, names: Vec<String>, share: usize, guests: usize) -> Vec<String> {
    let is_divided = |name: &String| DIVIDED.iter().any(|(of, first)| *of == binary && name.starts_with(first));
    let (divided, whole): (Vec<String>, Vec<String>) = names.into_iter().partition(is_divided);
    whole.into_iter().chain(divided.into_iter().skip(share).step_by(guests)).collect()
}

/// The names of a binary's tests that match the filter.
fn list(test: &TestBinary, options: &Options) -> Result<Vec<String>> {
    let said = run::output(Command::new(&test.path).args(["--list", "--format", "terse"]).current_dir(&test.package))?;
    let mut names = libtest::list(&said);
    names.retain(|name| name.contains(&options.filter));
    Ok(names)
}

fn skip_line(line: &str) -> Option<(String, String)> {
    line.split_once('\t').map(|(test, reason)| (test.to_owned(), reason.to_owned()))
}

fn say(section: &Section, took: Duration) {
    let Printed { passed, failures, finished, .. } = &section.printed;
    if *passed > 0 || *failures > 0 || !finished {
        let end = if *finished { "" } else { ", DID NOT FINISH" };
        println!(
            "  {:<8} {:<16} {:>4} ran well, {failures} failed{end}  {:.1} s",
            section.place,
            section.binary,
            passed,
            took.as_secs_f64()
        );
    }
    // What failed is told in full at the end, which a run that is cut off does not reach.
    section.printed.failed.iter().for_each(|name| println!("    FAILED {name}"));
}

/// Adds up, prints what failed and what was skipped, and ends with the line that counts.
fn judge(
    sections: &[Section],
    allowed: &AllowedSkips,
    circumstances: Circumstances,
    options: &Options,
    steps: &Steps,
) -> bool {
    let (mut passed, mut failed) = (0, 0);
    // Last of all, where people look first.
    let mut names: Vec<String> = Vec::new();
    let mut skipped = BTreeSet::new();
    let mut elsewhere = 0;
    for section in sections {
        let Section { place, binary, printed, passed_alone, .. } = section;
        failed += printed.failures;
        if printed.failures > 0 || !printed.finished || !passed_alone.is_empty() {
            println!("\n=== {place}: {binary} ===\n{}", printed.details);
        }
        let said = |name: &String| format!("{place}: {binary}: {name}{}", printed.why(name));
        names.extend(printed.failed.iter().map(|name| format!("FAILED {}", said(name))));
        names.extend(
            passed_alone.iter().map(|name| format!("FLAKY, it passed alone and wants mending: {}", said(name))),
        );
        if !printed.finished {
            failed += 1;
            let last = printed.last.as_deref().unwrap_or("before its first test");
            names.push(format!("FAILED {place}: {binary} did not finish; it was last seen at: {last}"));
        }
        let mut left_out = BTreeSet::new();
        let ignored = printed.ignored.iter().map(|test| (test.clone(), "ignored".to_owned()));
        let ignored: Vec<_> = ignored.collect();
        for (test, reason) in section.skips.iter().chain(&ignored) {
            left_out.insert(test);
            let other = |s: &&Section| s.binary == *binary && s.place != *place;
            let ran_elsewhere = sections.iter().filter(other).any(|other| other.ran(test));
            match allowed.judge(reason, ran_elsewhere, circumstances) {
                Judgement::RanElsewhere => elsewhere += 1,
                Judgement::Allowed => {
                    skipped.insert(format!("{place}: {binary}: {test}: {reason}"));
                }
                // Part of the places was left out on purpose: where else it runs cannot be known.
                Judgement::Forbidden if !options.everything() => {
                    skipped.insert(format!("{place}: {binary}: {test}: {reason}"));
                }
                Judgement::Forbidden => {
                    failed += 1;
                    let what = format!("{test} was skipped, which is not allowed here: {reason}");
                    names.push(format!("FAILED {place}: {binary}: {what}"));
                }
            }
        }
        passed += printed.passed.saturating_sub(left_out.len().saturating_sub(ignored.len()));
    }
    println!("\n{steps}");
    if elsewhere > 0 {
        println!("{elsewhere} times a test left a place to another that can run it (see tests/allowed-skips)");
    }
    for skip in &skipped {
        println!("skipped {skip}");
    }
    names.iter().for_each(|name| println!("{name}"));
    println!("{passed} passed, {failed} failed, {} skipped", skipped.len());
    failed == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_divided_test_runs_in_one_guest_and_each_other_one_in_all() {
        let names = || ["wrong::a", "every_field", "wrong::b", "wrong::c"].map(str::to_owned).to_vec();
        assert_eq!(share_of("kernel_pass", names(), 0, 2), ["every_field", "wrong::a", "wrong::c"]);
        assert_eq!(share_of("kernel_pass", names(), 1, 2), ["every_field", "wrong::b"]);
        assert_eq!(share_of("reader", names(), 1, 2), names());
        assert_eq!(share_of("kernel_pass", names(), 0, 1).len(), 4, "one guest alone runs all");
    }
}
