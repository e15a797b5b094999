//! What runs in small virtual machines: which tests in which, and what they reported.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::report::Section;
use super::suites::Suite;
use super::{Context, skip_line};
use crate::guest::{GUESTS, Guest, Job, SelectedSuite, System};
use crate::libtest::{self, LibtestOutput};
use crate::steps::Step;
use crate::{Result, run};

/// These take longest in a guest, by far, and ask least of its kernel: each of their tests runs in one of those with
/// cgroup v2, not in all. The beginning of their IDs.
const DIVIDED: &[&str] = &["live::", "observed::", "supervisor::", "kernel_pass::wrong::", "kernel_ends::where_"];

/// One test that takes its machine with it costs the others nothing but time.
const MOST_BOOTS: u32 = 3;

/// v1 is tested on the host; a guest does it only where the host cannot.
pub fn is_needed(guest: &Guest) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    guest.system != System::V1
        || !super::is_root().unwrap_or(false)
        || !mounts.lines().any(|line| line.contains(" cgroup rw"))
}

/// Guests that divide tests among each other.
fn dividing() -> impl Iterator<Item = &'static Guest> {
    GUESTS.iter().filter(|guest| guest.system == System::V2)
}

/// Of the IDs those that a guest runs: a divided one has its turn in one of the guests.
fn share_of<'a>(guest: &Guest, ids: impl Iterator<Item = (&'a Suite, &'a String)>) -> Vec<(&'a Suite, &'a String)> {
    let (guests, own) = (dividing().count(), dividing().position(|other| other.name == guest.name));
    let mut turn = 0;
    let is_own = |(suite, test): &(&Suite, &String)| {
        let id = suite.id(test);
        let (Some(own), true) = (own, DIVIDED.iter().any(|beginning| id.starts_with(beginning))) else { return true };
        turn += 1;
        turn % guests == own
    };
    ids.filter(is_own).collect()
}

/// The tests of each suite for which `accepts` holds and that run in a guest; `divide`: its share of those that are
/// divided.
pub fn select(guest: &Guest, suites: &[Suite], divide: bool, accepts: impl Fn(&str) -> bool) -> Vec<SelectedSuite> {
    let all = suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let chosen = all.filter(|(suite, test)| guest.chooses(&suite.id(test)));
    let chosen = if divide { share_of(guest, chosen) } else { chosen.collect() };
    let mut selected: Vec<SelectedSuite> = Vec::new();
    for (suite, test) in chosen.into_iter().filter(|(suite, test)| accepts(&suite.id(test))) {
        match selected.last_mut().filter(|last| last.suite == suite.name) {
            Some(last) => last.names.push(test.clone()),
            None => selected.push(SelectedSuite {
                suite: suite.name.clone(),
                binary: suite.binary.clone(),
                names: vec![test.clone()],
            }),
        }
    }
    selected
}

impl<'a> Context<'a> {
    /// Machines beside each other, each with its tests.
    pub fn guests(&'a self, machines: &'a [(&'static Guest, Vec<SelectedSuite>)]) -> Result<Vec<Section>> {
        let mut steps: Vec<Step<'a, Vec<Section>>> = Vec::new();
        let mut sections = Vec::new();
        for (guest, tests) in machines.iter().filter(|(_, tests)| !tests.is_empty()) {
            if let Some(missing) = guest.missing(self.parts) {
                println!("  {:<10} cannot run: {}", guest.name, missing.why);
                let mut section = Section::new(guest.name, "guest", Vec::new());
                section.printed.passed = 1; // A skip is taken off what passed.
                section.skips.push((format!("everything in {}", guest.name), missing.reason.into()));
                sections.push(section);
                continue;
            }
            steps.push((guest.name, Box::new(move || self.guest(guest, guest.name, tests))));
        }
        if !steps.is_empty() {
            sections.extend(self.steps.in_parallel("guests", steps)?.into_iter().flatten());
        }
        Ok(sections)
    }

    /// One machine; `name` is that of its directory of logs. Where it dies, tests that did not begin get another one.
    pub fn guest(&self, guest: &Guest, name: &str, tests: &[SelectedSuite]) -> Result<Vec<Section>> {
        let new = |one: &SelectedSuite| Section::new(guest.name, &one.suite, one.names.clone());
        let mut sections: Vec<Section> = tests.iter().map(new).collect();
        let mut left = tests.to_vec();
        for boot in 1..=MOST_BOOTS {
            let name = if boot == 1 { name.to_owned() } else { format!("{name}-{boot}") };
            left = self.boot(guest, &name, &left, &mut sections)?;
            if left.is_empty() {
                break;
            }
            println!("  {:<10} the machine died; {} suites had tests that did not begin", guest.name, left.len());
        }
        for SelectedSuite { suite, names, .. } in left {
            let mut printed = LibtestOutput { finished: true, ..LibtestOutput::default() };
            printed.cut_off(&names, &format!("{MOST_BOOTS} machines died"));
            sections
                .iter_mut()
                .filter(|s| s.suite == suite)
                .for_each(|s| s.printed.add(printed.clone(), str::to_owned));
        }
        sections.iter().for_each(|section| section.print(section.times.iter().map(|(_, took)| *took).sum()));
        Ok(sections)
    }

    /// Runs tests in a machine and adds what they gave; those that did not begin.
    fn boot(
        &self,
        guest: &Guest,
        name: &str,
        tests: &[SelectedSuite],
        into: &mut [Section],
    ) -> Result<Vec<SelectedSuite>> {
        let allostat = self.built.binary("allostat").ok_or("cargo built no allostat")?;
        let workload = self.built.binary("workload").ok_or("cargo built no workload")?;
        let mut environment = self.size.environment();
        environment.push(("ALLOSTAT_PATIENCE", self.patience.to_string()));
        let job = Job {
            name,
            tests,
            environment: &environment,
            limit: self.limits.guest,
            allostat,
            workload,
            logs: self.logs,
        };
        let report = guest.run(self.parts, &job)?;
        let mut left = Vec::new();
        for one in tests {
            let ran = report.ran.iter().find(|ran| ran.suite == one.suite);
            let mut printed = ran.map(|ran| libtest::parse(&ran.output)).unwrap_or_default();
            printed.finished &= ran.is_some_and(|ran| ran.code == Some(0) || !printed.failed.is_empty());
            if printed.finished {
                printed.check_count(&one.names);
            } else {
                let (started, not): (Vec<String>, Vec<String>) =
                    one.names.iter().cloned().partition(|test| printed.started.contains(test));
                if !started.is_empty() {
                    printed.cut_off(&started, "the machine died, or was silent for too long");
                    let output = ran.map_or("", |ran| ran.output.as_str());
                    printed.details += &format!("{output}\n--- the console of {name} ---\n{}", report.console);
                }
                if !not.is_empty() {
                    left.push(SelectedSuite { names: not, ..one.clone() });
                }
                printed.finished = true;
            }
            let Some(section) = into.iter_mut().find(|section| section.suite == one.suite) else { continue };
            section.printed.add(printed, str::to_owned);
            let own = report.skips.iter().filter(|(of, _)| *of == one.suite);
            section.skips.extend(own.filter_map(|(_, line)| skip_line(line)));
            section.times.extend(report.times.iter().filter(|(test, _)| one.names.contains(test)).cloned());
        }
        Ok(left)
    }
}

/// The guest of the gate: one kernel or the other, as the commit has it, so that both have their turns.
pub fn of_the_gate(root: &Path) -> &'static Guest {
    let head = run::output(Command::new("git").arg("-C").arg(root).args(["rev-parse", "HEAD"])).unwrap_or_default();
    let guests: Vec<&'static Guest> = dividing().collect();
    guests[head.trim().bytes().map(usize::from).sum::<usize>() % guests.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::suites::tests::suite;

    fn names(selected: &[SelectedSuite]) -> Vec<&str> {
        selected.iter().flat_map(|one| one.names.iter().map(String::as_str)).collect()
    }

    #[test]
    fn divided_test_runs_in_one_guest_and_any_other_in_all() {
        let suites =
            suite("cgroups", &["kernel_pass::every", "kernel_pass::wrong::a", "kernel_pass::wrong::b", "top::x"]);
        let [a, b] = [&GUESTS[0], &GUESTS[1]].map(|guest| select(guest, &suites, true, |_| true));
        assert_eq!(names(&a), ["kernel_pass::every", "kernel_pass::wrong::b"]);
        assert_eq!(names(&b), ["kernel_pass::every", "kernel_pass::wrong::a"]);
        let all = select(&GUESTS[0], &suites, false, |id| id != "kernel_pass::wrong::b");
        assert_eq!(names(&all), ["kernel_pass::every", "kernel_pass::wrong::a"]);
    }

    #[test]
    fn module_of_a_suite_is_chosen_without_its_siblings() {
        let suites = suite("cgroups", &["observed::narrow::a", "observed::docker::b", "systemd::c", "systemd2::d"]);
        let systemd = GUESTS.iter().find(|guest| guest.system == System::Systemd).unwrap();
        assert_eq!(names(&select(systemd, &suites, true, |_| true)), ["observed::narrow::a", "systemd::c"]);
    }
}
