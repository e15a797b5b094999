//! Whom the agent started for an attempt, where nothing is left that says so.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::host::process::{Process, identity};

/// The supervisor of a run directory, known by what it was executed as. `None`: none of our user's lives.
/// Source: `/proc/PID/cmdline` of every process.
pub fn find(run_dir: &Path) -> io::Result<Option<Process>> {
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
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

/// Who may be gone by now. Anybody can call himself so: only those of our own user are believed.
fn is_executed_for(pid: u32, run_dir: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    let place = format!("/proc/{pid}");
    if !std::fs::metadata(&place).is_ok_and(|meta| meta.uid() == ours) {
        return false;
    }
    let line = std::fs::read(format!("{place}/cmdline")).unwrap_or_default();
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"supervise") && words.next() == Some(run_dir.as_os_str().as_bytes())
}
