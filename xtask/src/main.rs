//! What a developer runs besides `cargo`: every test with its real parts, and the benchmarks.
//!
//! ```text
//! main       words of the command line
//! test       build once, run the gate, a slice or everything, count
//!   steps    one after the other, or beside each other
//!   cargo    builds, and says which binaries came out
//!   libtest  reads what a test binary printed
//!   skips    which skips are allowed
//! parts/     real programs and kernels, got as Debian packages and unpacked below target; nothing is installed
//! power      a small machine is switched off while it writes
//! guest/     a small virtual machine with a complete cgroup v2 that runs test binaries
//! package/   tarball, .deb, .rpm and image, for those who install
//! bench      benchmarks into docs/figures.md and the README
//! pictures   of the boards, into docs/boards
//! ```

mod bench;
mod cargo;
mod guest;
mod libtest;
mod package;
mod parts;
mod pictures;
mod power;
mod run;
#[cfg(test)]
#[path = "../../tests/common/skip.rs"]
mod skip;
mod skips;
mod steps;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

/// Errors here are read by a developer at once: text is enough.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const HELP: &str = "\
cargo xtask test                              the gate: format, lints, host tests at small sizes, one small virtual machine
cargo xtask test --slice NAME                 a part of the full run, into tests/ledger/NAME: host-long, v2-6.1, v2-6.12,
                                              systemd-power, containers-boards, from-nothing
cargo xtask test --all                        everything at full size, with random seeds (--seed N repeats one)
cargo xtask test --changed [BASE]             what the changes since BASE (default: HEAD) can break
cargo xtask test --list                       every test with the slice that runs it, and the guests
cargo xtask test [--only PLACE]... [FILTER]   tests by a part of their names; PLACE: host, power, v2-6.1, v2-6.12, v2-systemd, v1-6.1
cargo xtask bench [--all] [NAME]... [NUMBER]  the benchmarks, into docs/figures.md and the table of README.md
                                              NUMBER: goes on to what is named, as the minutes of `hour` or the tasks of `encode`
cargo xtask bench --from FILE                 the same of a run that printed into that file
cargo xtask chaos [KILLS]                     200 allocs and an agent that is killed again and again (default: 300 times);
                                              then one that dies before and after each single write of its state, and
                                              before each change that a hook makes
cargo xtask pictures [--hold] [SECONDS]       the boards drawn by Grafana's own components, on real data, into docs/boards; needs root,
                                              npm and a Chromium. SECONDS: so long is measured before (default: 480); --hold: until Enter
cargo xtask package [--binary PATH]           a tarball, a .deb, an .rpm and an image with checksums and SBOM, into target/package
cargo xtask package --binary PATH --image BASE TO   the image alone, with the C library below BASE, into TO
cargo xtask docs                              writes the generated pages and golden files again; review the difference
cargo xtask parts [--bench]                   only gets the real programs and kernels that they use
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.split_first() {
        Some((&"test", rest)) => test::Options::parse(rest).and_then(|options| test::run(&options)),
        Some((&"bench", rest)) => bench::run(rest),
        Some((&"chaos", rest)) => chaos(rest),
        Some((&"pictures", rest)) => pictures::Options::parse(rest).and_then(|options| pictures::run(&options)),
        Some((&"docs", [])) => docs(),
        Some((&"package", rest)) => package::Options::parse(rest).and_then(|options| package::run(&options)),
        Some((&"parts", [])) => parts::get(&root(), parts::Purpose::Tests).map(|parts| parts.is_whole()),
        Some((&"parts", ["--bench"])) => parts::get(&root(), parts::Purpose::Bench).map(|parts| parts.is_whole()),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Tests whose agent dies: with more kills, at each moment between two writes, and before each change of a hook. What
/// they met is printed.
fn chaos(words: &[&str]) -> Result<bool> {
    let kills = match words {
        [] => "300",
        [kills] if kills.parse::<u32>().is_ok() => kills,
        _ => return Err("say how many kills: cargo xtask chaos 300".into()),
    };
    let mut is_done = true;
    for (suite, tests) in [("cgroups", "chaos::"), ("agents", "hooks::steps::")] {
        let mut cargo = cargo::cargo();
        cargo
            .current_dir(root())
            .args(["test", "--test", suite, tests, "--", "--show-output", "--test-threads=1"])
            .env("ALLOSTAT_CHAOS_KILLS", kills)
            .env("ALLOSTAT_CHAOS_STRIDE", "1");
        is_done &= cargo.status()?.success();
    }
    Ok(is_done)
}

/// Tests whose results are pages or golden files, by their binaries.
const GENERATED: [(&str, &[&str]); 2] = [
    ("plain", &["texts::", "exposition::", "jobspec::", "dropin::", "house::"]),
    (
        "agents",
        &[
            "boards::deploy::",
            "boards::laws::",
            "boards::profiles::",
            "boards::renamed::",
            "boards::runbooks::",
            "devices::",
        ],
    ),
];

/// Errors: cargo cannot be started.
fn docs() -> Result<bool> {
    let mut is_done = true;
    for (suite, tests) in GENERATED {
        let mut cargo = cargo::cargo();
        cargo.current_dir(root()).args(["test", "--test", suite, "--"]).args(tests).env("ALLOSTAT_BLESS", "1");
        is_done &= cargo.status()?.success();
    }
    Ok(is_done)
}

/// The workspace's root.
fn root() -> PathBuf {
    let member =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    member.parent().expect("xtask must be a member of the workspace").to_owned()
}
