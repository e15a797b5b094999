//! `cargo xtask test`: every test in every place, counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cargo::{self, Built, TestBinary};
use crate::guest::{GUESTS, Guest, Job, System};
use crate::libtest::{self, Printed};
use crate::parts::{self, Parts, Purpose};
use crate::skips::{AllowedSkips, Circumstances, Judgement};
use crate::{Result, power, run};

/// These start agents and compare what they measure: one test at a time.
const ONE_AT_A_TIME: &[&str] = &["live", "supervisor", "prometheus", "boards", "systemd", "chaos"];
const HOST_LIMIT: Duration = Duration::from_secs(900);

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
    let mut times = Times::default();
    let parts = times.step("parts", || parts::get(&root, Purpose::Tests))?;
    let built = times.step("build", || cargo::build(&root, &["test", "--no-run", "--workspace"]))?;

    let mut sections = Vec::new();
    if options.wants("host") {
        times.step("host", || host(&root, &logs, &parts, &built, options, &mut sections))?;
    }
    if options.wants("checks") && options.filter.is_empty() {
        times.step("checks", || checks(&root, &parts, &mut sections))?;
    }
    if options.wants("power") && options.filter.is_empty() {
        times.step("power", || power(&logs, &parts, &built, &mut sections))?;
    }
    let guests: Vec<&Guest> = GUESTS.iter().filter(|guest| options.wants(guest.name)).collect();
    let guests = guests.into_iter().filter(|g| needed(g, options)).collect::<Vec<_>>();
    if !guests.is_empty() {
        times.step("guests", || in_guests(&guests, &logs, &parts, &built, options, &mut sections))?;
    }

    let circumstances = Circumstances { root: is_root()?, debian: parts::can_be_had() };
    Ok(judge(&sections, &allowed, circumstances, options, &times))
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

fn host(
    root: &Path,
    logs: &Path,
    parts: &Parts,
    built: &Built,
    options: &Options,
    sections: &mut Vec<Section>,
) -> Result<()> {
    for test in &built.tests {
        let mut command = Command::new(&test.path);
        command.current_dir(&test.package).env("CARGO_MANIFEST_DIR", &test.package);
        if ONE_AT_A_TIME.contains(&test.name.as_str()) {
            command.arg("--test-threads=1");
        }
        sections.push(on_host(command, &test.name, logs, parts, options, &list(test, options)?)?);
    }
    let mut doc = cargo::cargo();
    doc.current_dir(root).args(["test", "--quiet", "--doc", "--workspace", "--"]);
    sections.push(on_host(doc, "documentation", logs, parts, options, &[])?);
    Ok(())
}

/// The names of a binary's tests that match the filter.
fn list(test: &TestBinary, options: &Options) -> Result<Vec<String>> {
    let said = run::output(Command::new(&test.path).args(["--list", "--format", "terse"]).current_dir(&test.package))?;
    let mut names = libtest::list(&said);
    names.retain(|name| name.contains(&options.filter));
    Ok(names)
}

fn on_host(
    mut command: Command,
    name: &str,
    logs: &Path,
    parts: &Parts,
    options: &Options,
    tests: &[String],
) -> Result<Section> {
    let (log, skips) = (logs.join(format!("host-{name}.log")), logs.join(format!("host-{name}.skips")));
    fs::write(&skips, "")?;
    command.env("ALLOSTAT_SKIPS", &skips).env("ALLOSTAT_PARTS", &parts.dir).env("ALLOSTAT_PLACE", "host");
    if !options.filter.is_empty() {
        command.arg(&options.filter);
    }
    let began = Instant::now();
    let ended = run::logged(&mut command, &log, HOST_LIMIT)?;
    let mut printed = libtest::parse(&String::from_utf8_lossy(&fs::read(&log)?));
    printed.finished &= ended.is_some_and(|status| status.success() || printed.failures > 0);
    let section = Section {
        place: "host".into(),
        binary: name.into(),
        tests: tests.to_vec(),
        printed,
        skips: fs::read_to_string(&skips)?.lines().filter_map(skip_line).collect(),
    };
    say(&section, began.elapsed());
    Ok(section)
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
}

/// Checks by programs that are not test binaries: each counts as a test.
fn checks(root: &Path, parts: &Parts, sections: &mut Vec<Section>) -> Result<()> {
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
        let Some(promtool) = parts.program("promtool") else {
            section.printed.passed += 1; // A skip is taken off what passed, as with libtest.
            section.skips.push((name, "no-prometheus".into()));
            continue;
        };
        match run::output(Command::new(promtool).args([verb, "rules"]).arg(&path)) {
            Ok(_) => section.printed.passed += 1,
            Err(error) => {
                section.printed.failures += 1;
                section.printed.details += &format!("---- {name} ----\n{error}\n");
                section.printed.failed.push(name);
            }
        }
    }
    say(&section, began.elapsed());
    sections.push(section);
    Ok(())
}

/// Machines that are switched off while they write: each is a test.
fn power(logs: &Path, parts: &Parts, built: &Built, sections: &mut Vec<Section>) -> Result<()> {
    let began = Instant::now();
    let mut section = Section { place: "power".into(), binary: "power".into(), ..Section::default() };
    section.printed.finished = true;
    if let Some(missing) = power::missing(parts) {
        println!("  power    cannot run: {}", missing.why);
        section.printed.passed = 1; // A skip is taken off what passed, as with libtest.
        section.skips.push(("power failures".into(), missing.reason.into()));
    } else {
        let writer = built.binary("power").ok_or("cargo built no example `power`")?;
        for (name, wrong) in power::run(parts, writer, logs) {
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
    sections.push(section);
    Ok(())
}

fn in_guests(
    guests: &[&Guest],
    logs: &Path,
    parts: &Parts,
    built: &Built,
    options: &Options,
    sections: &mut Vec<Section>,
) -> Result<()> {
    let allostat = built.binary("allostat").ok_or("cargo built no allostat")?;
    let workload = built.binary("workload").ok_or("cargo built no workload")?;
    let mut lists = BTreeMap::new();
    for test in built.tests.iter().filter(|test| guests.iter().any(|g| g.tests.contains(&test.name.as_str()))) {
        lists.insert(test.name.as_str(), list(test, options)?);
    }
    // Nothing to do there is no reason to boot.
    let asked = |guest: &&&Guest| guest.tests.iter().any(|name| lists.get(name).is_some_and(|names| !names.is_empty()));
    let guests: Vec<&Guest> = guests.iter().filter(asked).copied().collect();
    let of = |guest: &Guest| -> Vec<TestBinary> {
        built.tests.iter().filter(|test| guest.tests.contains(&test.name.as_str())).cloned().collect()
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = guests
            .iter()
            .filter(|guest| guest.missing(parts).is_none())
            .map(|guest| {
                let run = move || {
                    let job = Job { tests: &of(guest), allostat, workload, filter: &options.filter, logs };
                    guest.run(parts, &job).map_err(|e| e.to_string())
                };
                (*guest, scope.spawn(run))
            })
            .collect();
        running.into_iter().map(|(guest, thread)| (guest, thread.join())).collect()
    });
    for guest in &guests {
        if let Some(missing) = guest.missing(parts) {
            println!("  {:<8} cannot run: {}", guest.name, missing.why);
            let mut section = Section { place: guest.name.into(), binary: "guest".into(), ..Section::default() };
            section.printed = Printed { passed: 1, finished: true, ..Printed::default() };
            section.skips.push((format!("everything in {}", guest.name), missing.reason.into()));
            sections.push(section);
        }
    }
    for (guest, result) in results {
        let report = result.map_err(|_| format!("the thread of guest {} panicked", guest.name))?;
        let report = report.map_err(|e| format!("guest {}: {e}", guest.name))?;
        for test in of(guest) {
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
                tests: lists.get(test.name.as_str()).cloned().unwrap_or_default(),
                printed,
                skips: own.filter_map(|(_, line)| skip_line(line)).collect(),
            };
            say(&section, Duration::from_secs_f64(ran.map_or(0.0, |ran| ran.seconds.max(0.0))));
            sections.push(section);
        }
    }
    Ok(())
}

/// Adds up, prints what failed and what was skipped, and ends with the line that counts.
fn judge(
    sections: &[Section],
    allowed: &AllowedSkips,
    circumstances: Circumstances,
    options: &Options,
    times: &Times,
) -> bool {
    let (mut passed, mut failed) = (0, 0);
    let mut skipped = BTreeSet::new();
    let mut elsewhere = 0;
    for section in sections {
        let Section { place, binary, printed, .. } = section;
        failed += printed.failures;
        if printed.failures > 0 || !printed.finished {
            println!("\n=== {place}: {binary} ===\n{}", printed.details);
        }
        for name in &printed.failed {
            println!("FAILED {place}: {binary}: {name}");
        }
        if !printed.finished {
            failed += 1;
            let last = printed.last.as_deref().unwrap_or("before its first test");
            println!("FAILED {place}: {binary} did not finish; it was last seen at: {last}");
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
                    println!("FAILED {place}: {binary}: {test} was skipped, which is not allowed here: {reason}");
                }
            }
        }
        passed += printed.passed.saturating_sub(left_out.len().saturating_sub(ignored.len()));
    }
    println!("\n{times}");
    if elsewhere > 0 {
        println!("{elsewhere} times a test left a place to another that can run it (see tests/allowed-skips)");
    }
    for skip in &skipped {
        println!("skipped {skip}");
    }
    println!("{passed} passed, {failed} failed, {} skipped", skipped.len());
    failed == 0
}

/// How long each step took.
#[derive(Debug, Default)]
struct Times(Vec<(&'static str, Duration)>);

impl Times {
    fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("{name}:");
        let began = Instant::now();
        let done = work();
        self.0.push((name, began.elapsed()));
        done
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps: Vec<String> =
            self.0.iter().map(|(name, took)| format!("{name} {:.1} s", took.as_secs_f64())).collect();
        write!(f, "{}", steps.join(", "))
    }
}
