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
];

/// Beginning of a path, and beginnings of the IDs that look at what is there.
const READ_BY_TESTS: &[(&str, &[&str])] = &[
    ("Cargo", &["commands::", "live::memory"]),
    ("alerts", &["boards::"]),
    ("dashboards", &["boards::"]),
    ("deploy", &["boards::", "commands::"]),
    ("examples", &["newcomer::", "live::memory"]),
    ("fake-nvml", &["devices::", "fake_nvml::", "nvml_exports::", "nvml_faults::", "nvml_profiles::"]),
    ("src/api", &["access::", "endpoints::", "observed::commands", "outputs::", "pages::", "top::"]),
    ("src/board", &["live::", "supervisor::"]),
    ("src/cli", &["commands::", "hostile::", "newcomer::", "outputs::", "terminals::", "top::"]),
    ("src/collectors", &["kernel_ends::", "kernel_pass::", "impostors::", "live::memory", "live::limits", "reader::"]),
    ("src/config", &["commands::"]),
    ("src/daemon", &["commands::", "endpoints::", "live::contained"]),
    ("src/devices", &["devices::", "plugins::"]),
    ("src/exporters/history", &["live::history"]),
    ("src/exporters/otlp", &["otlp::"]),
    ("src/exporters", &["prometheus::"]),
    ("src/fingerprint", &["commands::", "endpoints::"]),
    ("src/host", &["access::", "kernel_pass::", "reader::", "other_users::", "supervisor::"]),
    ("src/jobspec", &["commands::", "jobforms::", "variables::"]),
    ("src/kernel", &["kernel_ends::", "kernel_pass::", "reader::", "live::host", "live::memory"]),
    ("src/lib.rs", &[]),
    ("src/main.rs", &["commands::"]),
    ("src/model", &["live::memory"]),
    ("src/observe", &["observed::"]),
    ("src/runner", &["live::", "supervisor::"]),
    ("src/runner/drivers/docker", &["containers::"]),
    ("src/snapshot", &["live::coherent", "live::stale"]),
    ("src/store", &["failing_disk::", "full_disk::", "live::disk", "reserve::"]),
    ("src/supervisor", &["live::survive", "live::orphans", "supervisor::"]),
    ("src/telemetry", &["outputs::"]),
    ("tests/common", &["commands::", "live::memory", "observed::steps", "reader::"]),
    ("xtask", &["xtask-bin::"]),
];

/// Every beginning that stands here.
pub fn beginnings() -> impl Iterator<Item = &'static str> {
    ALWAYS.iter().chain(READ_BY_TESTS.iter().flat_map(|(_, ids)| *ids)).copied()
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
