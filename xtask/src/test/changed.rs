//! What a change can break: the suites that look at the files that differ from a commit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::{Result, run};

/// Run in any case: unit tests, the house's laws, golden files.
const ALWAYS: &[&str] = &[
    "allostat::",
    "conventions::",
    "dropin::",
    "exposition::",
    "house::",
    "jobfiles::",
    "jobspec::",
    "names::",
    "passes::",
    "readings::",
    "snapshot::",
    "texts::",
    "untrusted::",
];

/// Beginning of a path, and beginnings of the IDs that look at what is there. All rows that fit count. The tests of one
/// module take less than three minutes: `live::` takes the longest, so only modules that it tests best bring all of it.
const READ_BY_TESTS: &[(&str, &[&str])] = &[
    ("Cargo", &["commands::", "live::memory"]),
    ("README.md", &["newcomer::"]),
    ("alerts", &["boards::"]),
    ("dashboards", &["boards::"]),
    ("deploy", &["boards::", "commands::"]),
    (
        "docs",
        &["boards::deploy", "boards::files", "boards::pictures", "boards::runbooks", "documented::", "questions::"],
    ),
    ("examples", &["newcomer::", "live::memory", "worked_examples::"]),
    ("fake-nvml", &["devices::", "fake_nvml::", "nvml_exports::", "nvml_faults::", "nvml_header::", "nvml_profiles::"]),
    ("src/api", &["access::", "endpoints::", "observed::commands", "openapi::", "outputs::", "pages::", "top::"]),
    ("src/api/checks.rs", &["services::"]),
    ("src/api/events.rs", &["logs::"]),
    ("src/api/exec", &["exec::"]),
    ("src/api/files.rs", &["volumes::"]),
    ("src/api/launches.rs", &["launches::"]),
    ("src/api/logs", &["logs::"]),
    ("src/api/migration.rs", &["migration::"]),
    ("src/api/services.rs", &["services::"]),
    ("src/board", &["ended::", "live::", "services::", "supervisor::"]),
    ("src/cli", &["commands::", "documented::", "hostile::", "newcomer::", "outputs::", "terminals::", "top::"]),
    ("src/cli", &["completions::", "questions::"]),
    ("src/cli/dispatch.rs", &["launches::"]),
    ("src/cli/events.rs", &["logs::"]),
    ("src/cli/exec", &["exec::"]),
    ("src/cli/fs.rs", &["volumes::"]),
    ("src/cli/last_output.rs", &["ended::"]),
    ("src/cli/logs", &["logs::"]),
    ("src/cli/periodic.rs", &["launches::"]),
    ("src/collectors", &["kernel_ends::", "kernel_pass::", "impostors::", "live::memory", "live::limits", "reader::"]),
    ("src/config", &["commands::"]),
    ("src/daemon", &["commands::", "endpoints::", "live::contained"]),
    ("src/devices", &["devices::", "gpu::", "nvml_header::", "plugins::"]),
    ("src/exporters/history", &["live::history"]),
    ("src/exporters/otlp", &["otlp::"]),
    ("src/exporters", &["prometheus::"]),
    ("src/fingerprint", &["commands::", "endpoints::", "placement::"]),
    (
        "src/host",
        &["access::", "kernel_pass::", "network::", "other_users::", "path_races::", "reader::", "supervisor::"],
    ),
    ("src/jobspec", &["commands::", "evaluation::", "jobforms::", "launches::", "raw_exec::", "variables::"]),
    ("src/kernel", &["kernel_ends::", "kernel_pass::", "reader::", "live::host", "live::memory"]),
    ("src/lib.rs", &[]),
    ("src/main.rs", &["commands::"]),
    ("src/model", &["live::memory"]),
    ("src/observe", &["observed::"]),
    ("src/runner", &["ended::", "live::again", "live::records", "live::short", "live::survive"]),
    ("src/runner/alloc", &["live::", "network::", "replaced::"]),
    ("src/runner/artifacts", &["artifacts::", "path_races::"]),
    ("src/runner/cgroups.rs", &["live::", "supervisor::"]),
    ("src/runner/checks", &["services::"]),
    ("src/runner/cni", &["network::"]),
    ("src/runner/cores.rs", &["live::limits", "placement::"]),
    ("src/runner/decide", &["launches::", "live::", "placement::", "replaced::"]),
    ("src/runner/devices.rs", &["devices::"]),
    ("src/runner/disk.rs", &["live::disk", "volumes::"]),
    ("src/runner/drivers", &["exec::", "live::", "raw_exec::", "supervisor::", "volumes::"]),
    ("src/runner/drivers/docker", &["containers::"]),
    (
        "src/runner/hooks",
        &["artifacts::", "hooks::", "migration::", "network::", "path_races::", "templates::", "volumes::"],
    ),
    ("src/runner/manager", &["launches::", "live::", "placement::", "replaced::"]),
    ("src/runner/migration", &["migration::", "path_races::", "replaced::"]),
    ("src/runner/networks", &["network::"]),
    ("src/runner/persistence", &["chaos::", "hooks::", "live::"]),
    ("src/runner/ports", &["network::"]),
    ("src/runner/rendering", &["templates::"]),
    ("src/runner/snapshot_archive.rs", &["migration::", "path_races::"]),
    ("src/runner/task", &["live::", "logs::", "supervisor::"]),
    ("src/runner/templates", &["templates::"]),
    ("src/snapshot", &["live::coherent", "live::stale"]),
    ("src/store", &["chaos::", "failing_disk::", "full_disk::", "live::disk", "reserve::"]),
    ("src/supervisor", &["exec::", "live::survive", "live::orphans", "logs::", "supervisor::"]),
    ("src/telemetry", &["outputs::"]),
    ("tests/common", &["commands::", "harness::", "live::memory", "observed::steps", "reader::"]),
    ("xtask", &["xtask-bin::"]),
    ("xtask/src/guest", &["places::"]),
];

/// Suites that no row names, each with the reason.
const NAMED_BY_NO_ROW: &[(&str, &str)] =
    &[("systemd", "process 1 of one guest runs it, in the slice systemd-power; `--changed` starts no guest")];

/// Every beginning that stands here.
pub fn beginnings() -> impl Iterator<Item = &'static str> {
    ALWAYS.iter().chain(READ_BY_TESTS.iter().flat_map(|(_, ids)| *ids)).copied()
}

/// Of these suites the first one that no change of another file would run, although no reason is given for it.
pub fn unread<'a>(mut suites: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_named = |suite: &str| beginnings().any(|id| id.split("::").next() == Some(suite));
    suites.find(|suite| !is_named(suite) && !NAMED_BY_NO_ROW.iter().any(|(name, _)| name == suite))
}

/// The beginnings of the IDs of the tests that the changes since `base` can break, those of the working tree included.
pub fn since(root: &Path, base: &str) -> Result<Vec<String>> {
    let git = |arguments: &[&str]| run::output(Command::new("git").arg("-C").arg(root).args(arguments));
    let mut files = git(&["diff", "--name-only", base])?;
    files += &git(&["ls-files", "--others", "--exclude-standard"])?;
    let beginnings = of(files.lines());
    println!("changed since {base}: {} files; tests: {}", files.lines().count(), beginnings.join(" "));
    Ok(beginnings)
}

fn of<'a>(files: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut beginnings: BTreeSet<String> = ALWAYS.iter().map(|id| (*id).to_owned()).collect();
    for file in files {
        if let Some(rest) = file.strip_prefix("tests/") {
            let suite = rest.split(['/', '.']).next().unwrap_or_default();
            beginnings.insert(format!("{suite}::"));
        }
        let reading = READ_BY_TESTS.iter().filter(|(place, _)| file.starts_with(place));
        beginnings.extend(reading.flat_map(|(_, ids)| ids.iter().map(|id| (*id).to_owned())));
    }
    beginnings.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_brings_the_suites_that_look_at_it() {
        let found = of(["src/observe/docker.rs", "tests/reader.rs"].into_iter());
        for id in ["observed::", "reader::", "house::"] {
            assert!(found.contains(&id.to_owned()), "{id} is not in {found:?}");
        }
        assert!(!found.contains(&"otlp::".to_owned()));
    }

    #[test]
    fn hook_brings_its_suites_and_not_the_long_ones() {
        let found = of(["src/runner/hooks/template.rs"].into_iter());
        for id in ["artifacts::", "hooks::", "live::short", "templates::", "volumes::"] {
            assert!(found.contains(&id.to_owned()), "{id} is not in {found:?}");
        }
        assert!(!found.contains(&"live::".to_owned()) && !found.contains(&"supervisor::".to_owned()), "{found:?}");
    }

    /// What a merged test binary or the directory of another package names.
    fn suites() -> Vec<String> {
        let (root, mut suites) = (crate::root(), vec!["allostat".to_owned(), "xtask-bin".to_owned()]);
        for binary in crate::test::suites::MERGED {
            let text = std::fs::read_to_string(root.join(format!("tests/{binary}.rs"))).unwrap();
            let modules = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
            // What the binaries share has no tests.
            let is_suite = |name: &&str| {
                root.join(format!("tests/{name}.rs")).exists() || root.join("tests").join(name).join("mod.rs").exists()
            };
            let is_shared = |name: &&str| ["common", "synthetic"].contains(name);
            suites.extend(modules.filter(is_suite).filter(|name| !is_shared(name)).map(str::to_owned));
        }
        for entry in std::fs::read_dir(root.join("fake-nvml/tests")).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                suites.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
        }
        suites
    }

    #[test]
    fn each_suite_is_run_by_a_change_of_another_file_or_has_a_reason() {
        let suites = suites();
        assert!(suites.len() > 60, "the suites were not found: {suites:?}");
        assert_eq!(unread(suites.iter().map(String::as_str)), None, "add it to a row of READ_BY_TESTS");
        assert_eq!(unread(["live", "brand_new", "systemd"].into_iter()), Some("brand_new"));
        for (name, _) in NAMED_BY_NO_ROW {
            assert!(suites.iter().any(|suite| suite == name), "there is no suite {name}");
            assert!(!beginnings().any(|id| id.split("::").next() == Some(*name)), "{name} is named by a row");
        }
    }

    #[test]
    fn each_room_of_the_source_is_looked_at_and_each_place_exists() {
        let root = crate::root();
        for entry in std::fs::read_dir(root.join("src")).unwrap().flatten() {
            let name = format!("src/{}", entry.file_name().to_string_lossy());
            assert!(READ_BY_TESTS.iter().any(|(place, _)| name.starts_with(place)), "nothing looks at {name}");
        }
        for (place, _) in READ_BY_TESTS {
            assert!(root.join(place).exists() || *place == "Cargo", "{place} is not there");
        }
    }
}
