//! `cargo xtask test`: builds once, runs tests in their places, counts.
//!
//! ```text
//! tiers     tests/tiers: what the gate leaves to a slice          suites   modules of the test binaries
//! slices    the parts of the full run                             ledger   tests/ledger: when each ran last
//! changed   what a change can break                               state    the host before the run
//! flaky     tests/ledger/flaky: tests that passed two of three
//! host      suites in lanes on this host                          guests   suites in small virtual machines
//! rerun     failed tests once more, alone                         report   the lines at the end
//! ```

mod changed;
mod flaky;
mod from_nothing;
mod guests;
mod host;
mod ledger;
mod report;
mod rerun;
mod slices;
mod state;
mod suites;
mod tiers;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::host::ChosenTests;
use self::report::{Section, Strictness, Verdict};
use self::slices::Slice;
use self::suites::Suite;
use self::tiers::Tiers;
use crate::cargo::{self, BuiltPrograms};
use crate::guest::{GUESTS, Guest, SelectedSuite, System};
use crate::parts::{self, Parts, Purpose};
use crate::skips::{AllowedSkips, Circumstances};
use crate::steps::{Step, Steps};
use crate::{Result, power, run};

/// What of the tests runs.
#[derive(Debug, Clone, Default, PartialEq)]
enum Scope {
    #[default]
    Gate,
    All,
    Slice(Slice),
    /// What differs from a commit, and can break.
    Changed(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    scope: Scope,
    only: Vec<String>,
    filter: String,
    seed: Option<u64>,
    list: bool,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            match *word {
                "--all" => options.scope = Scope::All,
                "--list" => options.list = true,
                "--slice" => {
                    let name = words.next().ok_or_else(|| format!("--slice takes one of {:?}", slices::names()))?;
                    options.scope = Scope::Slice(slices::named(name)?);
                }
                "--changed" => {
                    let base = words.next_if(|word| !word.starts_with('-'));
                    options.scope = Scope::Changed(base.map_or("HEAD", |base| base).to_owned());
                }
                "--seed" => {
                    let seed = words.next().and_then(|word| word.parse().ok());
                    options.seed = Some(seed.ok_or("--seed takes a whole number")?);
                }
                "--only" => {
                    let place = words.next().ok_or("--only takes a place: host, power or a guest")?;
                    let known = ["host", "power"].contains(place) || GUESTS.iter().any(|guest| guest.name == *place);
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

    fn includes(&self, place: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == place)
    }

    /// Whether a place or a part of a name was given; tiers are then ignored.
    fn is_by_hand(&self) -> bool {
        !self.only.is_empty() || !self.filter.is_empty()
    }

    /// Whether format, minimum Rust version and dependencies are checked as well.
    fn checks_the_source(&self) -> bool {
        matches!(self.scope, Scope::Gate | Scope::All) && !self.is_by_hand()
    }

    /// Whether its flaky tests go into the ledger: those of a slice as well, whose own file the next run overwrites.
    fn is_recorded(&self) -> bool {
        matches!(self.scope, Scope::Gate | Scope::All | Scope::Slice(_)) && !self.is_by_hand()
    }

    fn size(&self) -> Size {
        match self.scope {
            Scope::Gate | Scope::Changed(_) => Size::Gate,
            Scope::All | Scope::Slice(_) => Size::Full { seed: self.seed.unwrap_or_else(random) },
        }
    }
}

fn random() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs()) % 1_000_000_007
}

/// How much of the same each test does: `ALLOSTAT_SIZE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// Few of each kind, and property tests that begin with the same seed each time.
    Gate,
    Full {
        seed: u64,
    },
}

impl Size {
    fn environment(self) -> Vec<(&'static str, String)> {
        let (size, seed) = match self {
            Size::Gate => ("gate", 1),
            Size::Full { seed } => ("full", seed),
        };
        let mut variables = vec![("ALLOSTAT_SIZE", size.to_owned())];
        for name in ["PROPTEST_RNG_SEED", "ALLOSTAT_FUZZ_SEED", "ALLOSTAT_SEED"] {
            variables.push((name, seed.to_string()));
        }
        if self == Size::Gate {
            variables.push(("PROPTEST_CASES", "64".to_owned()));
        }
        variables
    }

    fn limits(self, patience: u32) -> Limits {
        let seconds = |gate, full| Duration::from_secs(if self == Size::Gate { gate } else { full }) * patience;
        Limits { test: seconds(400, 900), suite: seconds(400, 1_200), guest: seconds(400, 900) }
    }
}

/// How long a process may print nothing before it is killed.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// With a process of its own.
    test: Duration,
    /// All of a suite in one process, which prints each test that ended.
    suite: Duration,
    /// A test in a guest; as long again for each of its suites.
    guest: Duration,
}

/// What every place needs.
struct Context<'a> {
    logs: &'a Path,
    parts: &'a Parts,
    built: &'a BuiltPrograms,
    steps: &'a Steps,
    size: Size,
    limits: Limits,
    patience: u32,
}

/// What runs where.
struct Plan<'a> {
    host: Vec<ChosenTests<'a>>,
    guests: Vec<(&'static Guest, Vec<SelectedSuite>)>,
    power: bool,
}

pub fn run(options: &Options) -> Result<bool> {
    let root = crate::root();
    let logs = root.join("target/test-run");
    fs::create_dir_all(&logs)?;
    if options.list {
        return list(&root);
    }
    let steps = Steps::begin();
    state::prepare();
    let start = match &options.scope {
        Scope::Slice(slice) if !options.is_by_hand() => Some((*slice, ledger::Start::of(&root, slice)?)),
        Scope::Slice(_) | Scope::Gate | Scope::All | Scope::Changed(_) => None,
    };
    let size = options.size();
    let verdict = match &options.scope {
        Scope::Slice(slice) if *slice == slices::FROM_NOTHING => from_nothing::run(&root, &logs, &steps),
        Scope::All if !options.is_by_hand() => tests(options, size, &root, &logs, &steps)
            .and_then(|verdict| Ok(verdict.and(from_nothing::run(&root, &logs, &steps)?))),
        Scope::Gate | Scope::All | Scope::Slice(_) | Scope::Changed(_) => tests(options, size, &root, &logs, &steps),
    };
    println!("\n{steps}\n");
    let mut verdict = verdict?;
    let is_gate = options.scope == Scope::Gate && !options.is_by_hand();
    if is_gate {
        flaky::report_unrecorded(&root);
    }
    if options.is_recorded() {
        flaky::record(&root, &Verdict::shortened(&verdict.flaky))?;
    }
    if let Some((slice, start)) = start {
        let entry = ledger::Entry {
            green: verdict.red.is_empty(),
            counts: verdict.counts(),
            seconds: steps.elapsed().as_secs(),
            seed: if let Size::Full { seed } = size { seed } else { 0 },
            flaky: Verdict::shortened(&verdict.flaky),
            red: Verdict::shortened(&verdict.red),
            ..ledger::Entry::default()
        };
        ledger::record(&root, &slice, start, entry)?;
    }
    if is_gate {
        let due = ledger::report(&root)?;
        due.iter().for_each(|slice| println!("FAILED {slice}"));
        verdict.red.extend(due);
    }
    println!("{}", verdict.counts());
    Ok(verdict.red.is_empty())
}

fn tiers(root: &Path) -> Result<Tiers> {
    let text = fs::read_to_string(root.join("tests/tiers"))?;
    Ok(Tiers::parse(&text, &slices::names()).map_err(|e| format!("tests/tiers: {e}"))?)
}

/// Each test by its ID, who runs it on the host (the gate or a slice), and the guests that run it.
fn list(root: &Path) -> Result<bool> {
    let (tiers, suites) = (tiers(root)?, suites::all(&cargo::build_tests(root)?)?);
    for suite in &suites {
        for id in suite.tests.iter().map(|test| suite.id(test)) {
            let guests = GUESTS
                .iter()
                .filter(|guest| guest.system != System::V1 && guest.chooses(&id) && !tiers.is_host_only(&id));
            let mut guests: Vec<&str> = guests.map(|guest| guest.name).collect();
            guests.extend(tiers.is_core(&id).then_some("gate-guest"));
            println!("{id}\t{}\t{}", tiers.slice_of(&id).unwrap_or("gate"), guests.join(" "));
        }
    }
    Ok(true)
}

fn tests(options: &Options, size: Size, root: &Path, logs: &Path, steps: &Steps) -> Result<Verdict> {
    let tiers = tiers(root)?;
    let text = fs::read_to_string(root.join("tests/allowed-skips"))?;
    let allowed = AllowedSkips::parse(&text).map_err(|e| format!("tests/allowed-skips: {e}"))?;
    let patience = state::patience();
    println!("size: {size:?}; deadlines times {patience}");
    if options.checks_the_source() {
        steps.step("format", || run::output(cargo::cargo().current_dir(root).args(["fmt", "--all", "--check"])))?;
    }
    let parts = steps.step("parts", || parts::get(root, Purpose::Tests))?;
    if options.checks_the_source() {
        steps.step("dependencies", || {
            cargo::check_rust_version(root)?;
            if parts.missing("cargo-deny").is_some() && parts::can_be_had() {
                return Err("cargo-deny cannot be had, so licences and sources are not checked".into());
            }
            cargo::check_dependencies(root, parts.program("cargo-deny").as_deref())
        })?;
    }
    let built = steps.step("build and lints", || cargo::build_tests(root))?;
    let suites = suites::all(&built)?;
    check_names(&tiers, &suites)?;
    let changed = match &options.scope {
        Scope::Changed(base) => Some(changed::since(root, base)?),
        Scope::Gate | Scope::All | Scope::Slice(_) => None,
    };
    let plan = plan(options, root, &tiers, &suites, changed.as_deref());
    if plan.host.is_empty() && plan.guests.is_empty() && !plan.power {
        return Err("no test is chosen: cargo xtask lists the words".into());
    }
    let context = Context { logs, parts: &parts, built: &built, steps, size, limits: size.limits(patience), patience };

    let mut sections = context.host(&plan.host)?;
    if plan.power {
        sections.push(context.power()?);
    }
    // After the host's: tests that measure time are wrong at times beside machines that take every processor.
    sections.extend(context.guests(&plan.guests)?);
    steps.step("again", || context.again(&mut sections, &suites))?;
    report::write_times(&sections, &logs.join("times.txt"))?;

    // Another slice may run what is skipped here: the host every suite, a guest those that it chooses.
    let elsewhere = |place: &str, id: &str| {
        let whole = suites.iter().flat_map(|suite| suite.tests.iter().map(|test| suite.id(test)));
        let whole: Vec<String> = whole.filter(|whole| report::same_test(whole, id)).collect();
        let guest = GUESTS.iter().find(|guest| guest.name == place);
        let runs = |guest: &Guest, id: &str| guest.chooses(id) && !tiers.is_host_only(id);
        whole.iter().any(|id| guest.map_or(place == "host", |guest| runs(guest, id)))
    };
    let strictness = Strictness {
        allowed: &allowed,
        circumstances: Circumstances { root: is_root()?, debian: parts::can_be_had() },
        elsewhere: if options.scope == Scope::All { None } else { Some(&elsewhere) },
        partial: options.is_by_hand(),
    };
    Ok(report::judge(&sections, &strictness))
}

/// Refuses a beginning that fits no test, and one of the gate's guest that no guest would run.
fn check_names(tiers: &Tiers, suites: &[Suite]) -> Result<()> {
    let ids: Vec<String> = suites.iter().flat_map(|suite| suite.tests.iter().map(|test| suite.id(test))).collect();
    let is_known = |beginning: &&str| ids.iter().any(|id| id.starts_with(beginning));
    let v2 = || GUESTS.iter().filter(|guest| guest.system == System::V2);
    let runs = |beginning: &&str| ids.iter().any(|id| id.starts_with(beginning) && v2().any(|guest| guest.chooses(id)));
    if let Some(unknown) = tiers.left().find(|beginning| !is_known(beginning)) {
        return Err(format!("tests/tiers: no test begins with {unknown}").into());
    }
    if let Some(unknown) = tiers.core().find(|beginning| !runs(beginning)) {
        return Err(format!("tests/tiers: no test that begins with {unknown} runs in a guest").into());
    }
    if let Some(unknown) = changed::beginnings().find(|beginning| !is_known(beginning)) {
        return Err(format!("xtask/src/test/changed.rs: no test begins with {unknown}").into());
    }
    if let Some(unread) = changed::unread(suites.iter().map(|suite| suite.name.as_str())) {
        return Err(format!("xtask/src/test/changed.rs: no row names the suite {unread}").into());
    }
    Ok(())
}

fn plan<'a>(
    options: &Options,
    root: &Path,
    tiers: &Tiers,
    suites: &'a [Suite],
    changed: Option<&[String]>,
) -> Plan<'a> {
    let by_hand = options.is_by_hand();
    let fits = |id: &str| id.contains(&options.filter);
    let on_host = |id: &str| {
        let slice = tiers.slice_of(id);
        fits(id)
            && match &options.scope {
                _ if by_hand => true,
                Scope::Gate => slice.is_none(),
                Scope::All => true,
                Scope::Slice(own) if *own == slices::HOST_LONG => slice.is_none_or(|slice| slice == own.name),
                Scope::Slice(own) => slice == Some(own.name),
                Scope::Changed(_) => {
                    slice.is_none() && changed.unwrap_or_default().iter().any(|beginning| id.starts_with(beginning))
                }
            }
    };
    let host = suites.iter().map(|suite| {
        let tests = suite.tests.iter().filter(|test| options.includes("host") && on_host(&suite.id(test)));
        ChosenTests { suite, tests: tests.cloned().collect() }
    });
    let host: Vec<ChosenTests<'a>> = host.filter(|chosen| !chosen.tests.is_empty()).collect();

    let of_the_gate = guests::of_the_gate(root);
    let in_guest = |guest: &Guest, id: &str| {
        fits(id)
            && (by_hand || !tiers.is_host_only(id))
            && match &options.scope {
                _ if by_hand => options.includes(guest.name),
                Scope::Gate => guest.name == of_the_gate.name && tiers.is_core(id),
                Scope::All => true,
                Scope::Slice(own) if *own == slices::SYSTEMD_POWER => guest.system == System::Systemd,
                Scope::Slice(own) => own.name == guest.name,
                Scope::Changed(_) => false,
            }
    };
    let needed =
        GUESTS.iter().filter(|guest| options.only.iter().any(|only| only == guest.name) || guests::is_needed(guest));
    // The gate runs each test of its core, in the guest whose turn it is.
    let divide = !by_hand && options.scope != Scope::Gate;
    let guests = needed.map(|guest| (guest, guests::select(guest, suites, divide, |id| in_guest(guest, id))));
    let power = match &options.scope {
        _ if by_hand => options.only.iter().any(|only| only == "power"),
        Scope::All => true,
        Scope::Slice(own) => *own == slices::SYSTEMD_POWER,
        Scope::Gate | Scope::Changed(_) => false,
    };
    Plan { host, guests: guests.filter(|(_, tests)| !tests.is_empty()).collect(), power }
}

impl<'a> Context<'a> {
    /// Machines that are switched off while they write: each is a test.
    fn power(&'a self) -> Result<Section> {
        let trials = power::trials();
        let mut section = Section::new("power", "power", trials.iter().map(|trial| trial.name.clone()).collect());
        if let Some(missing) = power::missing(self.parts) {
            println!("  power cannot run: {}", missing.why);
            section.printed.passed = 1; // A skip is taken off what passed.
            section.skips.push(("power failures".into(), missing.reason.into()));
            return Ok(section);
        }
        let writer = self.built.binary("power").ok_or("cargo built no example `power`")?;
        let steps = trials.iter().map(|trial| {
            let run: Step<'_, std::result::Result<String, String>> = (
                &trial.name,
                Box::new(move || Ok(trial.run(self.parts, writer, self.logs).map_err(|e| e.to_string()))),
            );
            run
        });
        let ended = self.steps.in_parallel("power", steps.collect())?;
        for (trial, ended) in trials.into_iter().zip(ended) {
            match ended {
                Ok(words) => {
                    println!("  power      {words}");
                    section.printed.passed += 1;
                }
                Err(wrong) => section.printed.fail(trial.name, &wrong),
            }
        }
        Ok(section)
    }
}

fn is_root() -> Result<bool> {
    Ok(run::output(Command::new("id").arg("-u"))?.trim() == "0")
}

fn skip_line(line: &str) -> Option<(String, String)> {
    line.split_once('\t').map(|(test, reason)| (test.to_owned(), reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::suites::tests::suite;
    use super::*;

    fn hosts(words: &[&str]) -> Vec<String> {
        let suites = suite("cgroups", &["live::long::a", "live::b", "observed::docker::c"]);
        let tiers =
            Tiers::parse("host-long live::long::\ncontainers-boards observed::docker::", &slices::names()).unwrap();
        let options = Options::parse(words).unwrap();
        let plan = plan(&options, &crate::root(), &tiers, &suites, Some(&["live::".to_owned()]));
        plan.host.into_iter().flat_map(|chosen| chosen.tests).collect()
    }

    #[test]
    fn each_scope_runs_its_tests_on_the_host() {
        assert_eq!(hosts(&[]), ["live::b"]);
        assert_eq!(hosts(&["--slice", "host-long"]), ["live::long::a", "live::b"]);
        assert_eq!(hosts(&["--slice", "containers-boards"]), ["observed::docker::c"]);
        assert_eq!(hosts(&["--slice", "v2-6.1"]), [] as [&str; 0]);
        assert_eq!(hosts(&["--all"]).len(), 3);
        assert_eq!(hosts(&["--changed"]), ["live::b"]);
        assert_eq!(hosts(&["long"]), ["live::long::a"], "what is named runs, whatever its tier");
        assert_eq!(hosts(&["--only", "v2-6.1"]), [] as [&str; 0]);
    }

    #[test]
    fn gate_begins_with_the_same_seed_and_a_slice_with_its_own() {
        let seed =
            |options: &Options| options.size().environment().iter().find(|(n, _)| *n == "PROPTEST_RNG_SEED").cloned();
        let gate = Options::default();
        assert_eq!(seed(&gate), seed(&gate));
        let slice = Options::parse(&["--slice", "host-long", "--seed", "7"]).unwrap();
        assert_eq!(seed(&slice).unwrap().1, "7");
    }

    #[test]
    fn gate_and_full_run_check_the_source_and_a_part_of_them_does_not() {
        let checks = |words: &[&str]| Options::parse(words).unwrap().checks_the_source();
        assert!(checks(&[]) && checks(&["--all"]) && checks(&["--all", "--seed", "3"]));
        for part in [&["--slice", "host-long"][..], &["--changed"], &["live::"], &["--all", "--only", "host"]] {
            assert!(!checks(part), "{part:?}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for words in [&["--slice", "x"][..], &["--slice"], &["--only", "moon"], &["--seed", "x"], &["--bogus"]] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }
}
