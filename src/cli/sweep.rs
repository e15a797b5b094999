//! `allostat sweep`: removes what a demo has made, whatever happened to the demo itself. Hidden.
//!
//! It waits until its standard input ends: that happens when the demo closes it, panics or is killed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::CliSession;
use super::exit::{CliError, CliExit, CliResult};
use crate::daemon;
use crate::host::cgroup::Cgroup;
use crate::host::hierarchy::Layout;
use crate::host::process::{self, Process};
use crate::host::roots::Roots;
use crate::host::systemd::{SystemdManager, SystemdUnit};
use crate::host::{tree, untrusted};
use crate::model::id::CgroupPath;
use crate::runner::datadir;
use crate::supervisor::TASKS;
use crate::telemetry::chain;

/// Both names begin so, or nothing is touched.
pub const PREFIX: &str = "allostat-demo-";
/// How long supervisors may take to write their last reading and leave; then they are killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long what was killed may take until it is gone: a busy host gives it a processor late.
const EXIT_WITHIN: Duration = Duration::from_secs(30);

/// Remove what a demo has made
#[derive(Debug, clap::Args)]
pub struct SweepCommand {
    dir: PathBuf,
    cgroup_parent: String,
}

impl SweepCommand {
    pub fn run(self, _: &mut CliSession<'_>) -> CliResult {
        let named = |name: Option<&str>| name.is_some_and(|n| n.starts_with(PREFIX));
        let dir_name = self.dir.file_name().and_then(|n| n.to_str());
        if !named(dir_name) || !named(self.cgroup_parent.strip_prefix('/')) || self.cgroup_parent.contains("..") {
            return Err(CliError::new(CliExit::Usage, format!("both names begin with {PREFIX}")));
        }
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let mut left = Vec::new();
        let layout = Layout::detect(&Roots::default()).map_err(|e| CliError::failed(e.to_string()))?;
        let scope = scope(&self.dir);
        let in_scope = scope.as_ref().and_then(|(_, unit)| unit.cgroup.as_ref()).map(|path| path.child(TASKS));
        let parent = in_scope.unwrap_or_else(|| CgroupPath::new(self.cgroup_parent.as_str()));
        let parent = Cgroup::at(&layout, &parent).with_devices(&layout);
        let began = Instant::now();
        loop {
            // A supervisor may be about to start its task: until none is left, there may be something to end again.
            let ended = parent.end(PATIENCE);
            let (supervisors, tasks) = processes_of(&self.dir);
            kill(&tasks);
            if supervisors.is_empty() && tasks.is_empty() && ended.is_ok() {
                break;
            }
            if began.elapsed() > EXIT_WITHIN {
                left.extend(ended.err().map(|error| error.to_string()));
                break;
            }
            if began.elapsed() > PATIENCE {
                kill(&supervisors);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Err(error) = parent.remove(PATIENCE) {
            left.push(error.to_string());
        }
        // With the manager that keeps it.
        if let Some(Err(error)) = scope.map(|(name, _)| SystemdManager::User.stop(&name)) {
            left.push(error);
        }
        if let Err(error) = datadir::unmount_all_secrets(&data_dir(&self.dir)) {
            left.push(error.to_string());
        }
        if let Err(error) = tree::remove(&self.dir) {
            left.push(chain(&error));
        }
        if left.is_empty() {
            Ok(CliExit::Done)
        } else {
            Err(CliError::failed(format!("left behind: {}", left.join("; "))))
        }
    }
}

/// Where a demo has its data, in the directory that it has made.
pub fn data_dir(dir: &Path) -> PathBuf {
    dir.join("data")
}

/// The scope of systemd that an ordinary user's demo has made, if it is still there.
fn scope(dir: &Path) -> Option<(String, SystemdUnit)> {
    let name = daemon::scope_name(&data_dir(dir));
    let unit = daemon::has_scope_of_user().then(|| SystemdManager::User.unit(&name).ok()).flatten()?;
    unit.active.then_some((name, unit))
}

/// Supervisors (they have the directory in their arguments) and tasks (in their environment), by pid.
fn processes_of(dir: &Path) -> (Vec<u32>, Vec<u32>) {
    let (mut supervisors, mut tasks) = (Vec::new(), Vec::new());
    let Some(mark) = dir.to_str() else { return (supervisors, tasks) };
    let has = |process: &Path, file: &str| {
        let text = untrusted::memory(process, file, untrusted::LARGEST_ENVIRONMENT);
        text.is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark.as_bytes()))
    };
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        if has(&entry.path(), "cmdline") {
            supervisors.push(pid);
        } else if has(&entry.path(), "environ") {
            tasks.push(pid);
        }
    }
    (supervisors, tasks)
}

/// By identity: a pid that belongs to another process by now is left alone.
fn kill(pids: &[u32]) {
    const SIGKILL: u8 = 9;
    for pid in pids {
        let found = process::identity(*pid).ok().flatten().and_then(|id| Process::open(id).ok().flatten());
        if let Some(process) = found {
            let _ = process.signal(SIGKILL);
        }
    }
}
