//! The slice `from-nothing`: what a newcomer and a new machine do, from a fresh clone without any cache.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::report::{self, Section, Strictness, Verdict};
use crate::skips::{AllowedSkips, Circumstances};
use crate::steps::Steps;
use crate::{Result, cargo, run};

/// The command of README.md, and what it prints once it measures.
const DEMO: &[&str] = &["run", "--", "demo"];
/// A step that takes longer hangs. How long each took is in the table of steps, and people judge it.
const MOST: Duration = Duration::from_secs(3_000);

pub fn run(root: &Path, logs: &Path, steps: &Steps) -> Result<Verdict> {
    let work = tempfile::Builder::new().prefix("allostat-from-nothing-").tempdir()?;
    let clone = work.path().join("allostat");
    run::output(Command::new("git").args(["clone", "--quiet"]).arg(root).arg(&clone))?;
    let mut section = Section::new("new", "from-nothing", Vec::new());
    let mut step = |name: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let id = format!("from-nothing::{name}");
        section.tests.push(id.clone());
        let started_at = Instant::now();
        match steps.step(name, work) {
            Ok(()) => section.printed.passed += 1,
            Err(wrong) => section.printed.fail(id.clone(), &wrong.to_string()),
        }
        section.times.push((id, started_at.elapsed()));
        Ok(())
    };
    let here = |arguments: &[&str]| {
        let mut command = plain();
        command.current_dir(&clone).args(arguments);
        command
    };
    let logged = |mut command: Command, log: &str| -> Result<()> {
        let log = logs.join(log);
        match run::logged(&mut command, &log, MOST, MOST)? {
            Some(status) if status.success() => Ok(()),
            ended => Err(format!("{ended:?}: {}", tail(&log)).into()),
        }
    };
    step("demo", &mut || demo(here(DEMO), &logs.join("new-demo.log")))?;
    step("clippy", &mut || {
        logged(here(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]), "new-clippy.log")
    })?;
    step("tests build", &mut || logged(here(&["test", "--no-run", "--workspace"]), "new-build.log"))?;
    step("parts", &mut || logged(here(&["xtask", "parts"]), "new-parts.log"))?;
    step("minimum Rust version", &mut || cargo::check_rust_version(&clone))?;
    section.print(steps.elapsed());
    let strictness = Strictness {
        allowed: &AllowedSkips::default(),
        circumstances: Circumstances { root: true, debian: true },
        elsewhere: None,
        partial: false,
    };
    Ok(report::judge(&[section], &strictness))
}

/// Cargo without the variables by which caches and lints are shared.
fn plain() -> Command {
    let mut command = cargo::cargo();
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_INCREMENTAL",
        "CARGO_PROFILE_DEV_DEBUG",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "ALLOSTAT_PARTS_DIR",
    ] {
        command.env_remove(name);
    }
    command
}

/// Until its table shows a task that runs; then it is stopped as Ctrl-C stops it.
fn demo(mut command: Command, log: &Path) -> Result<()> {
    let file = fs::File::create(log)?;
    let mut child = command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let started_at = Instant::now();
    let seen = loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.contains("leak") && text.contains("running") {
            break true;
        }
        if child.try_wait()?.is_some() || started_at.elapsed() > MOST {
            break false;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    // The demo itself, which cargo has become.
    // It may have ended by itself, which is the failure.
    let _ = run::output(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let ended = run::wait(child, Duration::from_secs(60))?;
    if seen && ended.is_some() { Ok(()) } else { Err(format!("{ended:?}: {}", tail(log)).into()) }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
