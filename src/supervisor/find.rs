//! Whom the agent started for an attempt, where nothing is left that says so.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::host::process::{Process, identity};

/// The supervisor of a run directory, known by what it was executed as. `None`: none of our user's lives.
/// Source: `/proc/PID/cmdline` of every process.
pub fn find(run_dir: &Path) -> io::Result<Option<Process>> {
    for pid in pids()? {
        let pid = pid?;
        if !is_executed_for(pid, run_dir) {
            continue;
        }
        // Once more when nobody else can have its pid any more.
        if let Some(id) = identity(pid)?
            && let Some(process) = Process::open(id)?
            && is_executed_for(pid, run_dir)
            && !process.has_ended()?
        {
            return Ok(Some(process));
        }
    }
    Ok(None)
}

/// The run directories below `top` for which supervisors of our user were executed before this process was: no agent's but of one
/// that is gone, if `top` is an agent's own. Who begins or ends meanwhile may be missed.
pub fn all_below(top: &Path) -> io::Result<Vec<PathBuf>> {
    let ours = identity(std::process::id())?.ok_or(io::ErrorKind::NotFound)?;
    let mut found = Vec::new();
    for pid in pids()? {
        let pid = pid?;
        if let Some(run_dir) = executed_for(pid)
            && run_dir.starts_with(top)
            && identity(pid)?.is_some_and(|id| id.start_ticks < ours.start_ticks)
        {
            found.push(run_dir);
        }
    }
    Ok(found)
}

fn pids() -> io::Result<impl Iterator<Item = io::Result<u32>>> {
    let pid = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).transpose()
    };
    Ok(std::fs::read_dir("/proc")?.filter_map(pid))
}

/// Whether a process is the supervisor of that directory. Who may be gone by now.
pub fn is_executed_for(pid: u32, run_dir: &Path) -> bool {
    executed_for(pid).is_some_and(|dir| dir.as_os_str() == run_dir.as_os_str())
}

/// Anybody can call himself so: only those of our own user are believed.
fn executed_for(pid: u32) -> Option<PathBuf> {
    let ours = rustix::process::geteuid().as_raw();
    let place = format!("/proc/{pid}");
    std::fs::metadata(&place).ok().filter(|meta| meta.uid() == ours)?;
    let line = std::fs::read(format!("{place}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip(1);
    (words.next()? == b"supervise").then_some(())?;
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}
