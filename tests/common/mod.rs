//! What every test binary under `tests/` shares: finding programs, skipping loudly, a real agent, a real Prometheus.
//!
//! The binaries run on the host and in small guests: two with a complete cgroup v2, one that boots systemd. In a guest
//! there is no source tree, so whatever is looked up here is named by an environment variable first:
//!
//! ```text
//! ALLOSTAT_BIN         the `allostat` binary
//! ALLOSTAT_WORKLOAD    the `workload` example
//! ALLOSTAT_PARTS       where `cargo xtask test` unpacked Prometheus and others
//! ALLOSTAT_TEST_DIR    a directory on a real disk for data (default: the system's temporary directory)
//! ALLOSTAT_SKIPS       the file that skips are appended to
//! ALLOSTAT_PLACE       `host`, or the guest's name: `v2-6.1`, `v2-6.12`, `v2-systemd`
//! ALLOSTAT_SIZE        `gate`: few repetitions; otherwise all of them
//! ALLOSTAT_PATIENCE    factor of all deadlines on a slow machine (default: 1); `cargo xtask test` sets it from a measurement
//! ```

// Each test binary compiles this module for itself and uses its own part of it.
#![allow(dead_code, unused_imports, unused_macros)]

mod agent;
mod btf;
mod cgroups;
mod command_lines;
mod docker;
mod driver;
mod exposition;
mod golden;
mod http;
mod monotone;
mod mounted;
mod ports;
mod programs;
mod prometheus;
mod skip;
mod terminal;

pub use agent::{Agent, AgentOptions, Cli, alone, assert_contains, unmount_secrets};
pub use btf::{Description, description};
pub use cgroups::{Cgroups, counts_io, is_root, mounted_v1, mounted_v2, work_in};
pub use command_lines::{CommandLine, call, command_lines, documents, is_mention, is_usage, words};
pub use docker::{Docker, make_rootfs, program};
pub use driver::{driver_context, sampling};
pub use exposition::{Exposition, Sample};
pub use golden::{golden, golden_part};
pub use http::{Response, exchange, tcp, unix};
pub use monotone::{Random, all_return, counters, none_fell};
pub use mounted::Mounted;
pub use ports::free_address;
pub use programs::{
    allostat, can_have_network, default_address_free, default_address_shared, end, environment, helpers, in_guest,
    is_helper, must_have_pass, part, part_file, part_of, place, test_dir, workload, write_secret, xtask,
};
pub use prometheus::{Prometheus, Promtool, Verdict, python_openmetrics, python_parsed};
pub use skip::{skip, skip_here};
pub use terminal::{OnTerminal, drawn};

use std::time::{Duration, Instant};

/// Waits until `check` gives something, never for a duration: `what` says what was waited for when it never came.
#[track_caller]
pub fn wait_for<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(began.elapsed() < limit, "waited {limit:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Factor of every deadline: `ALLOSTAT_PATIENCE`, and ten times as much in a guest, which emulates its processor. For
/// deadlines only, never for sleeps.
#[track_caller]
pub fn patience() -> u32 {
    let set = std::env::var("ALLOSTAT_PATIENCE").ok().filter(|text| !text.is_empty());
    let factor = set.map_or(1, |text| match text.parse() {
        Ok(factor @ 1..) => factor,
        _ => panic!("ALLOSTAT_PATIENCE is {text:?}, and must be a whole number of at least 1"),
    });
    if place() == "host" { factor } else { factor.saturating_mul(10) }
}

/// How often a test does the same: `gate` times in the gate (`ALLOSTAT_SIZE=gate`), else `full` times.
pub fn how_many(gate: usize, full: usize) -> usize {
    if std::env::var("ALLOSTAT_SIZE").is_ok_and(|size| size == "gate") { gate } else { full }
}

/// Ends the test as skipped, with a short reason in kebab case; the test's name is found by itself.
#[macro_export]
macro_rules! skip_test {
    ($reason:expr) => {{
        fn here() {}
        $crate::common::skip_here(std::any::type_name_of_val(&here), $reason);
        return;
    }};
}
