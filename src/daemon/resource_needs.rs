//! What an agent needs of its limits, and has: descriptors and threads. It says so at its start, and does not begin
//! with less than it takes to see what runs: without that it must not act on tasks.

use std::io;

use super::DaemonError;
use crate::collectors::FdBudget;
use crate::host::roots::Roots;
use crate::host::{process, secrets_fs};
use crate::runner::datadir::DataDir;

/// Its own: database, sockets, connections, kernel files of the host, and what is open for a moment. Beside that each
/// task needs one for its supervisor, and better some more for the kernel files of its cgroup ([`FdBudget`]).
const OWN: u64 = 96;
/// Below that it does not start.
const LEAST: u64 = 128;
/// Runtime, journal, sampler, and those that block for a moment: with fewer, something would be waited for that never
/// begins.
const THREADS: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// The limit on descriptors; `None`: there is none.
    limit: Option<u64>,
}

impl Needs {
    /// Raises what may be raised. Errors: it is too little to begin with.
    pub fn check() -> Result<Needs, DaemonError> {
        let limit = process::raise_descriptor_limit().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot raise the limit on descriptors; fewer kernel files are kept open");
            process::original_descriptor_limit()
        });
        match limit {
            Some(has) if has < LEAST => Err(DaemonError::Descriptors { has, least: LEAST }),
            Some(_) | None => Ok(Needs { limit }),
        }
    }

    /// Says what is needed for the tasks that an agent before this one has left, as far as its directory shows.
    pub fn log(&self, data_dir: &DataDir) {
        let attempts = |id| data_dir.attempts(&id).map_or(0, |places| places.len());
        let tasks: usize = data_dir.in_run().unwrap_or_default().into_iter().map(attempts).sum();
        let needed = OWN.saturating_add(u64::try_from(tasks).unwrap_or(u64::MAX));
        match self.limit {
            Some(has) if has < needed => {
                tracing::warn!(
                    has,
                    needed,
                    tasks,
                    "too few descriptors for all tasks: the remaining ones run on, and are recovered when one is free; \
                     raise LimitNOFILE= or `ulimit -Hn`"
                );
            }
            has => tracing::info!(has, needed, tasks, "descriptors"),
        }
    }

    /// So many supervisors can be watched.
    pub fn watches(&self, kernel_files: &FdBudget) -> usize {
        let rest = OWN.saturating_add(kernel_files.limit());
        let left = self.limit.unwrap_or(u64::MAX).saturating_sub(rest);
        usize::try_from(left).unwrap_or(usize::MAX).min(tokio::sync::Semaphore::MAX_PERMITS)
    }
}

/// Whether all that are needed can be had at once: they are made, and end. Before anything else, which would wait for
/// them.
pub(super) fn check_threads() -> Result<(), DaemonError> {
    threads(THREADS)
}

/// Errors: how many could be had.
fn threads(needed: usize) -> Result<(), DaemonError> {
    let made: Vec<io::Result<_>> = std::thread::scope(|scope| {
        let (until, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let made = (0..needed)
            .map(|_| {
                let wait = std::sync::Arc::clone(&wait);
                let work = move || drop(wait.lock().map(|wait| wait.recv()));
                std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).map(drop)
            })
            .collect();
        // All of them end.
        drop(until);
        made
    });
    let has = made.iter().filter(|made| made.is_ok()).count();
    match made.into_iter().find_map(Result::err) {
        Some(source) => Err(DaemonError::Threads { has, needed, source }),
        None => Ok(()),
    }
}

/// Whether tasks have a tmpfs for their secrets. Logs why not.
pub(super) fn secrets_in_memory() -> bool {
    let unavailable = secrets_fs::unavailable();
    if let Some(reason) = &unavailable {
        tracing::info!(reason, "secrets of tasks are stored on the disk of the data directory");
    }
    unavailable.is_none()
}

/// Where tasks of several users share a directory, the kernel can keep one from being led by what another planted
/// there, if it is set to. Source: `/proc/sys/fs/protected_{symlinks,hardlinks,fifos,regular}`,
/// Documentation/admin-guide/sysctl/fs.rst.
pub(super) fn warn_of_unprotected_links(roots: &Roots) {
    let off = |name: &&str| roots.read_proc(format!("sys/fs/{name}")).is_ok_and(|value| value.trim_ascii() == b"0");
    let unprotected: Vec<&str> = ["protected_symlinks", "protected_hardlinks", "protected_fifos", "protected_regular"]
        .into_iter()
        .filter(off)
        .collect();
    if !unprotected.is_empty() && rustix::process::geteuid().is_root() {
        let settings = unprotected.join(", ");
        tracing::warn!(
            settings,
            "kernel protection of links and pipes in shared directories is off: set fs.<name> to 1 (sysctl)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fd_limit_remainder_is_for_supervisor_watches() {
        let watches = |limit| Needs { limit }.watches(&FdBudget::of(10));
        assert_eq!((watches(Some(128)), watches(Some(50))), (22, 0));
        assert_eq!(watches(None), tokio::sync::Semaphore::MAX_PERMITS);
    }

    #[test]
    fn threads_that_can_be_had_are_no_error() {
        threads(THREADS).unwrap();
    }
}
