//! Kills all processes of a cgroup and removes it.
//!
//! || host | method |
//! |---|---|
//! || v2, hybrid (5.14) | `cgroup.kill` of the unified hierarchy: one write, no process can escape |
//! || v1 | `freezer.state`: freeze, SIGKILL to each, thaw: no fork in between, no pid reuse |
//! || neither | SIGKILL by pidfd to each process listed twice, repeated until none is left |

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Cgroup, CgroupDir, CgroupError};
use crate::host::process;
use crate::kernel::cgroup::procs;

/// How long to wait for a freeze: it never completes while a process is in uninterruptible sleep.
const FREEZE: Duration = Duration::from_millis(100);

impl Cgroup {
    /// The processes in the cgroup and its descendants, without zombies; empty if the cgroup does not exist.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        // The hierarchy that `kill` uses, so that both see the same processes.
        let Some(place) = self.ending_place() else { return Ok(Vec::new()) };
        let mut pids = Vec::new();
        collect_pids(&place.directory, &mut pids).map(|()| pids)
    }

    fn ending_place(&self) -> Option<&CgroupDir> {
        let kills = self.unified().filter(|p| p.directory.join("cgroup.kill").exists());
        kills.or_else(|| self.controller("freezer")).or_else(|| self.places.first())
    }

    /// Sends SIGKILL to every process. Does not wait for their end.
    pub fn kill(&self) -> Result<(), CgroupError> {
        let Some(place) = self.ending_place() else { return Ok(()) };
        match place.kill_by_file() {
            Some(Ok(())) => {
                // On v1 a frozen process does not die: thaw it, even if another process froze it.
                if let Some(freezer) = self.controller("freezer") {
                    freezer.thaw();
                }
                return Ok(());
            }
            Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => {}
            Some(Err(source)) => return Err(CgroupError::Kill { path: place.directory.clone(), source }),
            None => {}
        }
        let frozen = place.freeze();
        let result = kill_listed(&place.directory, frozen);
        place.thaw();
        result
    }

    /// Kills every process and waits for their end. Errors: some are left after `patience` (ETIMEDOUT).
    pub fn end(&self, patience: Duration) -> Result<(), CgroupError> {
        let started = Instant::now();
        let mut pause = Duration::from_micros(200);
        while !self.pids()?.is_empty() {
            if started.elapsed() > patience {
                let path = self.ending_place().map(|p| p.directory.clone()).unwrap_or_default();
                return Err(CgroupError::Kill { path, source: io::Error::from_raw_os_error(libc::ETIMEDOUT) });
            }
            self.kill()?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Removes the cgroup and its descendants in every hierarchy; a missing one is no error. Retries EBUSY for
    /// `patience`: the kernel releases the last process a moment after it was reaped.
    pub fn remove(&self, patience: Duration) -> Result<(), CgroupError> {
        let until = Instant::now() + patience;
        let mut first_error = None;
        for place in &self.places {
            if let Err((path, source)) = remove_tree(&place.directory, until) {
                first_error.get_or_insert(CgroupError::Remove { path, source });
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

impl CgroupDir {
    /// `None`: the cgroup has no such file.
    fn kill_by_file(&self) -> Option<io::Result<()>> {
        self.unified.then(|| write(&self.directory.join("cgroup.kill"), "1"))
    }

    /// Whether all of it is frozen now.
    fn freeze(&self) -> bool {
        let state = self.directory.join("freezer.state");
        if self.unified || write(&state, "FROZEN").is_err() {
            return false;
        }
        let started = Instant::now();
        while started.elapsed() < FREEZE {
            match std::fs::read_to_string(&state) {
                Ok(text) if text.trim() == "FROZEN" => return true,
                Ok(_) => std::thread::sleep(Duration::from_micros(200)),
                Err(_) => return false,
            }
        }
        false
    }

    /// Includes descendants, which someone else may have frozen.
    fn thaw(&self) {
        if !self.unified {
            thaw_tree(&self.directory);
        }
    }
}

fn thaw_tree(directory: &Path) {
    // A missing file means that it was never frozen.
    let _ = write(&directory.join("freezer.state"), "THAWED");
    children(directory).unwrap_or_default().iter().for_each(|child| thaw_tree(child));
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    use io::Write;
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn kill_listed(directory: &Path, frozen: bool) -> Result<(), CgroupError> {
    let kill_error = |source| CgroupError::Kill { path: directory.to_owned(), source };
    let mut listed = Vec::new();
    collect_pids(directory, &mut listed)?;
    if frozen {
        return listed.into_iter().try_for_each(|pid| process::signal_pid(pid, 9).map(drop)).map_err(kill_error);
    }
    // Not frozen: a pid may be reused between listing and signal, but not while its pidfd is open and it is listed
    // again.
    let held: Vec<_> = listed
        .iter()
        .filter_map(|pid| process::identity(*pid).ok().flatten())
        .filter_map(|id| process::Process::open(id).ok().flatten())
        .collect();
    let mut again = Vec::new();
    collect_pids(directory, &mut again)?;
    for process in held.iter().filter(|p| again.contains(&p.id().pid)) {
        process.signal(9).map_err(kill_error)?;
    }
    Ok(())
}

fn collect_pids(directory: &Path, pids: &mut Vec<u32>) -> Result<(), CgroupError> {
    let is_removed = |e: &io::Error| e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV);
    let list = |path: &Path, source| CgroupError::List { path: path.to_owned(), source };
    match std::fs::read(directory.join("cgroup.procs")) {
        Ok(text) => {
            if let ((), Some(error)) = procs::pids("cgroup.procs", &text, pids) {
                return Err(list(directory, io::Error::new(io::ErrorKind::InvalidData, error.to_string())));
            }
        }
        Err(e) if is_removed(&e) => return Ok(()),
        // A threaded cgroup: its domain cgroup lists the processes.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(e) => return Err(list(directory, e)),
    }
    for child in children(directory).map_err(|e| list(directory, e))? {
        collect_pids(&child, pids)?;
    }
    Ok(())
}

pub(super) fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // A cgroup directory has two links plus one for each child: most have no child and need no listing.
    match std::fs::metadata(directory) {
        Ok(meta) if std::os::unix::fs::MetadataExt::nlink(&meta) == 2 => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn remove_tree(directory: &Path, until: Instant) -> Result<(), (PathBuf, io::Error)> {
    let failed = |e| (directory.to_owned(), e);
    for child in children(directory).map_err(failed)? {
        remove_tree(&child, until)?;
    }
    let mut pause = Duration::from_micros(100);
    loop {
        match std::fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => std::thread::sleep(pause),
            Err(e) => return Err(failed(e)),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
