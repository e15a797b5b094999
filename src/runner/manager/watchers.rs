//! Finds out which agent watches each supervisor of this user on this host: this agent, another one, or none.
//!
//! | a supervisor | watched by |
//! |---|---|
//! | that an attempt of this agent names, by its process or run directory | this agent |
//! | whose record is in a data directory that another agent holds locked | another agent |
//! | any other, in this agent's data directory too | no agent: a stray |
//!
//! A stray supervisor and its task keep running, and no agent restarts, measures or ends the task: its agent is gone or
//! lost its records. Strays are only reported here. An agent ends orphans ([`super::orphans`]) well before an alert
//! fires.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::found::{Stray, Watchers};
use super::{Handle, Manager};
use crate::model::id::ProcessId;
use crate::supervisor;
use crate::telemetry::lock;
use crate::telemetry::metrics::WatchedBy;

/// Interval between scans of all processes, without and with strays.
const SELDOM: Duration = Duration::from_secs(300);
const OFTEN: Duration = Duration::from_secs(15);
/// A process that starts or ends may be named by no attempt for a moment: a stray must be one for this long.
const SURE: Duration = Duration::from_secs(1);
/// Maximum number of listed strays; all are counted.
const LISTED: usize = 100;

/// Processes and run directories named by the attempts of this agent.
#[derive(Debug, Default)]
struct AttemptProcesses {
    pids: HashSet<u32>,
    run_dirs: HashSet<PathBuf>,
}

impl Handle {
    /// `None`: no scan was made yet.
    pub fn watchers(&self) -> Option<Watchers> {
        lock(&self.0.found.watchers).clone()
    }

    /// Scans repeatedly, until the agent drops it.
    pub async fn watch_supervisors(self) {
        let mut reported = HashSet::new();
        loop {
            let mut seen = self.0.scan_supervisors().await;
            if seen.as_ref().is_some_and(|(_, strays)| !strays.is_empty()) {
                let first: HashSet<ProcessId> =
                    seen.iter().flat_map(|(_, strays)| strays.iter().map(|s| s.process)).collect();
                tokio::time::sleep(SURE).await;
                seen = self.0.scan_supervisors().await;
                seen.iter_mut().for_each(|(_, strays)| strays.retain(|stray| first.contains(&stray.process)));
            }
            let mut pause = SELDOM;
            if let Some((watched, strays)) = seen {
                let watchers = of(watched, strays, &mut reported);
                if watchers.counts[WatchedBy::NoAgent.index()] > 0 {
                    pause = OFTEN;
                }
                self.0.ctx.metrics.watchers(watchers.counts);
                *lock(&self.0.found.watchers) = Some(watchers);
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// Counts supervisors, and logs each stray once.
fn of(watched: u64, mut strays: Vec<Stray>, reported: &mut HashSet<(ProcessId, WatchedBy)>) -> Watchers {
    let mut counts = [0; WatchedBy::ALL.len()];
    counts[WatchedBy::ThisAgent.index()] = watched;
    for Stray { process, run_dir, watched_by } in &strays {
        counts[watched_by.index()] += 1;
        if reported.insert((*process, *watched_by)) && *watched_by == WatchedBy::NoAgent {
            tracing::warn!(pid = process.pid, run_dir = %run_dir.display(), "supervisor is watched by no agent");
        }
    }
    let there: HashSet<ProcessId> = strays.iter().map(|stray| stray.process).collect();
    reported.retain(|(process, _)| there.contains(process));
    // Those that need a person come first, for lists that show a few.
    strays.sort_by_key(|stray| stray.watched_by != WatchedBy::NoAgent);
    strays.truncate(LISTED);
    Watchers { counts, strays }
}

impl Manager {
    /// The number of this agent's supervisors, and the others. `None`: the scan failed.
    async fn scan_supervisors(self: &Arc<Self>) -> Option<(u64, Vec<Stray>)> {
        let manager = Arc::clone(self);
        let scanned = self.ctx.blocking.block(move || manager.scan()).await;
        match scanned.and_then(|scanned| scanned.map_err(|e| e.to_string())) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!(error, "failed to scan the host for supervisors");
                None
            }
        }
    }

    /// Blocks.
    fn scan(&self) -> io::Result<(u64, Vec<Stray>)> {
        let before = self.known();
        let mut watched = 0;
        // Supervisors known by PID need no further reads.
        let found = supervisor::all(|pid| {
            let known = before.pids.contains(&pid);
            watched += u64::from(known);
            known
        })?;
        let after = self.known();
        let own = std::fs::metadata(self.ctx.data_dir.root()).ok().map(|meta| (meta.dev(), meta.ino()));
        let mut strays = Vec::new();
        for (process, run_dir) in found {
            if after.names(process, &run_dir) || before.names(process, &run_dir) {
                watched += 1;
                continue;
            }
            let root = data_dir_of(&run_dir);
            let id = root.and_then(|root| std::fs::metadata(root).ok()).map(|meta| (meta.dev(), meta.ino()));
            let another = (id.is_none() || id != own) && root.is_some_and(is_held);
            let watched_by = if another { WatchedBy::AnotherAgent } else { WatchedBy::NoAgent };
            strays.push(Stray { process, run_dir, watched_by });
        }
        Ok((watched, strays))
    }

    fn known(&self) -> AttemptProcesses {
        let allocs = self.allocs.all();
        let handles = allocs
            .iter()
            .flat_map(|alloc| (0..alloc.group().tasks.len()).filter_map(|at| alloc.handle(at)).collect::<Vec<_>>());
        let mut known = AttemptProcesses::default();
        for handle in handles {
            known.pids.extend(handle.supervisor.map(|supervisor| supervisor.pid));
            known.run_dirs.insert(handle.run_dir);
        }
        known
    }
}

impl AttemptProcesses {
    fn names(&self, process: ProcessId, run_dir: &Path) -> bool {
        self.pids.contains(&process.pid) || self.run_dirs.contains(run_dir)
    }
}

/// `<data>/run/<alloc id>/<task>/<attempt>`
fn data_dir_of(run_dir: &Path) -> Option<&Path> {
    let run = run_dir.ancestors().nth(3)?;
    run.parent().filter(|_| run.ends_with("run"))
}

/// Whether an agent holds it. An agent that starts at this moment retries for longer than this check takes.
fn is_held(data_dir: &Path) -> bool {
    let Ok(file) = File::open(data_dir.join("lock")) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_is_held_as_long_as_its_agent_lives() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run/a/t/0");
        assert_eq!(data_dir_of(&run_dir), Some(dir.path()));
        assert_eq!(data_dir_of(Path::new("/elsewhere/a/t/0")), None);
        assert!(!is_held(dir.path()), "it was never locked");
        let file = File::create(dir.path().join("lock")).unwrap();
        assert!(!is_held(dir.path()));
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_held(dir.path()));
        drop(file);
        assert!(!is_held(dir.path()) && !is_held(dir.path()), "the check itself does not hold it");
    }

    #[test]
    fn supervisors_are_counted_by_watcher_and_logged_once() {
        let stray = |pid, watched_by| Stray {
            process: ProcessId { pid, start_ticks: 1 },
            run_dir: "/d/run/a/t/0".into(),
            watched_by,
        };
        let mut reported = HashSet::new();
        let strays =
            vec![stray(7, WatchedBy::NoAgent), stray(8, WatchedBy::AnotherAgent), stray(9, WatchedBy::NoAgent)];
        let sorted = [0, 2, 1].map(|at| strays[at].clone()).to_vec();
        assert_eq!(of(5, strays, &mut reported), Watchers { counts: [5, 1, 2], strays: sorted });
        assert_eq!(reported.len(), 3);
        assert_eq!(of(5, Vec::new(), &mut reported), Watchers { counts: [5, 0, 0], strays: Vec::new() });
        assert!(reported.is_empty(), "nothing grows");
    }
}
