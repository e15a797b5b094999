//! Whom the agent started for an attempt, where nothing is left that says so.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::host::process::{Process, identity};
use crate::model::id::ProcessId;

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

/// Each supervisor of our user, with its run directory, but for those that need not be looked at.
pub fn all(mut is_known: impl FnMut(u32) -> bool) -> io::Result<Vec<(ProcessId, PathBuf)>> {
    let mut found = Vec::new();
    for pid in pids()? {
        let pid = pid?;
        if !is_known(pid)
            && let Some(run_dir) = executed_for(pid)
            && let Some(id) = identity(pid)?
        {
            found.push((id, run_dir));
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

/// Anybody can call himself so: only those of our own user are believed, who see the same file system at that path. An agent in a
/// container has a directory of the same name, and its supervisors are among our processes.
/// Source: `/proc/PID/{cmdline,root,fd/0}`; the last is the record, also when it was removed.
fn executed_for(pid: u32) -> Option<PathBuf> {
    let ours = rustix::process::geteuid().as_raw();
    let place = format!("/proc/{pid}");
    std::fs::metadata(&place).ok().filter(|meta| meta.uid() == ours)?;
    let line = std::fs::read(format!("{place}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip(1);
    (words.next()? == b"supervise").then_some(())?;
    let run_dir = PathBuf::from(OsStr::from_bytes(words.next()?));
    let root = |of: &str| std::fs::metadata(format!("{of}/root")).ok().map(|meta| (meta.dev(), meta.ino()));
    let same_root = root(&place)? == root("/proc/self")?;
    let device = run_dir.ancestors().find_map(|above| std::fs::metadata(above).ok())?.dev();
    let same_device = std::fs::metadata(format!("{place}/fd/0")).ok()?.dev() == device;
    (same_root && same_device).then_some(run_dir)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Reads its input, under the name of a supervisor of `run_dir`.
    fn named_for(dir: &Path, run_dir: &Path, held: File) -> Child {
        std::fs::write(dir.join("supervise"), "sleep 600 & wait\n").unwrap();
        let mut command = Command::new("/bin/sh");
        command.arg0("allostat").arg("supervise").arg(run_dir).current_dir(dir).stdin(held).stdout(Stdio::null());
        let child = command.process_group(0).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !std::fs::read(format!("/proc/{}/cmdline", child.id())).is_ok_and(|line| line.starts_with(b"allostat\0"))
        {
            assert!(Instant::now() < until, "it does not execute its program");
            std::thread::sleep(Duration::from_millis(2));
        }
        child
    }

    fn end(mut child: Child) {
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_is_called_like_a_supervisor_is_one_if_its_record_lies_where_ours_do() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run/a/t/0");
        let record = File::create(dir.path().join("record")).unwrap();
        std::fs::remove_file(dir.path().join("record")).unwrap();
        let own = named_for(dir.path(), &run_dir, record);
        let found = find(&run_dir).unwrap().map(|process| process.id().pid);
        let below = executed_for(own.id());
        let wrong = find(&dir.path().join("run/a/t/1")).unwrap();
        let pid = own.id();
        end(own);
        assert_eq!((found, below.as_deref()), (Some(pid), Some(&*run_dir)), "its record may have been removed");
        assert!(wrong.is_none());
        // As that of an agent in a container, whose data directory has the same name.
        let foreign = named_for(dir.path(), &run_dir, File::open("/proc/self/stat").unwrap());
        let found = find(&run_dir).unwrap();
        end(foreign);
        assert!(found.is_none());
    }
}
