//! Slices: the parts of the full run that the gate leaves out. `tests/ledger/<slice>` records the last run of each.

use crate::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub name: &'static str,
    pub what: &'static str,
    /// Files and directories that it covers: it is due when one of them has changed.
    pub directories: &'static [&'static str],
}

/// What kernels with cgroup v2 read and run.
const V2_DIRECTORIES: &[&str] = &[
    "src/board",
    "src/collectors",
    "src/host",
    "src/kernel",
    "src/observe",
    "src/runner",
    "src/store",
    "src/supervisor",
    "tests/cgroups.rs",
    "tests/common",
    "tests/kernel_ends.rs",
    "tests/kernel_pass",
    "tests/live",
    "tests/observed",
    "tests/places.rs",
    "tests/reader.rs",
    "tests/supervisor",
    "xtask/src/guest",
];

pub const HOST_LONG: Slice = Slice {
    name: "host-long",
    what: "every host test that needs no container and no board, at full size with a random seed",
    directories: &[
        "benches",
        "examples",
        "fake-nvml",
        "src",
        "tests/boards",
        "tests/chaos",
        "tests/common",
        "tests/fixtures",
        "tests/hooks",
        "tests/live",
        "tests/migration",
        "tests/observed",
        "tests/path_races.rs",
        "tests/supervisor",
        "tests/templates",
        "tests/untrusted",
        "tests/untrusted.rs",
    ],
};
pub const V2_OLD: Slice =
    Slice { name: "v2-6.1", what: "cgroup tests in a guest with Linux 6.1", directories: V2_DIRECTORIES };
pub const V2_NEW: Slice =
    Slice { name: "v2-6.12", what: "cgroup tests in a guest with Linux 6.12", directories: V2_DIRECTORIES };
pub const SYSTEMD_POWER: Slice = Slice {
    name: "systemd-power",
    what: "a guest that boots systemd, and guests that are switched off while they write",
    directories: &[
        "deploy",
        "examples/power.rs",
        "src/host",
        "src/observe",
        "src/runner",
        "src/store",
        "src/supervisor",
        "tests/common",
        "tests/observed",
        "tests/systemd",
        "xtask/src/guest",
        "xtask/src/package",
        "xtask/src/power.rs",
    ],
};
pub const CONTAINERS_BOARDS: Slice = Slice {
    name: "containers-boards",
    what: "Docker, Podman and containerd; boards and alerts on real stores, in every profile",
    directories: &[
        "alerts",
        "dashboards",
        "deploy",
        "src/api",
        "src/exporters",
        "src/observe",
        "src/runner",
        "tests/boards",
        "tests/common",
        "tests/containers",
        "tests/observed",
        "tests/pages",
        "tests/prometheus.rs",
    ],
};
pub const FROM_NOTHING: Slice = Slice {
    name: "from-nothing",
    what: "a fresh clone without any cache: plain clippy, plain rustc, parts, the demo of README.md",
    directories: &[".ci", "Cargo.lock", "Cargo.toml", "README.md", "build.rs", "src/cli/demo", "xtask/src/parts"],
};

pub const ALL: &[Slice] = &[HOST_LONG, V2_OLD, V2_NEW, SYSTEMD_POWER, CONTAINERS_BOARDS, FROM_NOTHING];

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|slice| slice.name).collect()
}

pub fn named(name: &str) -> Result<Slice> {
    let found = ALL.iter().find(|slice| slice.name == name).copied();
    Ok(found.ok_or_else(|| format!("no slice {name}: {}", names().join(", ")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_exist_and_names_are_unique() {
        for slice in ALL {
            for room in slice.directories {
                assert!(crate::root().join(room).exists(), "{}: {room}", slice.name);
            }
            assert_eq!(ALL.iter().filter(|other| other.name == slice.name).count(), 1);
        }
        assert!(named("nowhere").unwrap_err().to_string().contains("host-long"));
    }

    /// A slice that runs a suite is due when the suite has changed.
    #[test]
    fn tests_that_the_gate_leaves_out_lie_in_a_directory_of_their_slice() {
        let root = crate::root();
        let text = std::fs::read_to_string(root.join("tests/tiers")).expect("tests/tiers is there");
        let tiers = super::super::tiers::Tiers::parse(&text, &names()).expect("it is sound");
        let (mut wrong, mut count) = (Vec::new(), 0);
        for tests in tiers.left() {
            let Some(slice) = tiers.slice_of(tests) else { continue };
            let suite = tests.split("::").next().unwrap_or(tests);
            let places = [format!("tests/{suite}"), format!("tests/{suite}.rs"), format!("src/{suite}")];
            let place = places.iter().find(|place| root.join(place).exists());
            let place = place.unwrap_or_else(|| panic!("there is no suite {suite}"));
            let directories = named(slice).expect("the parser knows it").directories;
            count += 1;
            if !directories.iter().any(|own| place == own || place.starts_with(&format!("{own}/"))) {
                wrong.push(format!("{slice}: {place} of {tests}"));
            }
        }
        assert!(count > 30, "the tests were not found: {count}");
        assert!(wrong.is_empty(), "add them to the directories of the slice:\n{}", wrong.join("\n"));
    }
}
