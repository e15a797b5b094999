//! Whom the agent started for an attempt, where nothing is left that says so.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::record::FILE;
use crate::host::process::{Process, identity, is_resource_shortage};
use crate::host::untrusted;
use crate::model::id::ProcessId;

/// The supervisor of a run directory, known by the record that it holds. `None`: none of our user's lives.
/// Source: `/proc/PID/{cmdline,fd/0}` of every process.
pub fn find(run_dir: &Path) -> io::Result<Option<Process>> {
    for pid in pids()? {
        let pid = pid?;
        if !is_executed_for(pid, run_dir)? {
            continue;
        }
        // Once more when no other process can have its pid any more.
        if let Some(id) = identity(pid)?
            && let Some(process) = Process::open(id)?
            && is_executed_for(pid, run_dir)?
            && !process.has_ended()?
        {
            return Ok(Some(process));
        }
    }
    Ok(None)
}

/// The run directories below `top` for which supervisors of our user were executed before this process was: no agent's
/// but of one that is gone, if `top` is an agent's own. Who begins or ends meanwhile may be missed.
pub fn all_below(top: &Path) -> io::Result<Vec<PathBuf>> {
    let own = identity(std::process::id())?.ok_or(io::ErrorKind::NotFound)?;
    let mut found = Vec::new();
    for pid in pids()? {
        let pid = pid?;
        if let Some(run_dir) = executed_for(pid)?
            && run_dir.starts_with(top)
            && identity(pid)?.is_some_and(|id| id.start_ticks < own.start_ticks)
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
            && let Some(run_dir) = executed_for(pid)?
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
/// Errors: what it takes to look is wanting.
pub fn is_executed_for(pid: u32, run_dir: &Path) -> io::Result<bool> {
    Ok(executed_for(pid)?.is_some_and(|dir| dir.as_os_str() == run_dir.as_os_str()))
}

/// Anybody can call himself so: only those of our own user are believed, who see the same file system. An agent in a
/// container has a directory of the same name, and its supervisors are among our processes.
///
/// Not by what it was executed as: a data directory that is moved takes its supervisors with it. What one holds is its
/// record, and the kernel knows where that lies by now, or where it lay when it was removed.
/// Source: `/proc/PID/{cmdline,root,fd/0}`. Errors: what it takes to look is wanting.
fn executed_for(pid: u32) -> io::Result<Option<PathBuf>> {
    let own = rustix::process::geteuid().as_raw();
    let place = format!("/proc/{pid}");
    if !std::fs::metadata(&place).is_ok_and(|meta| meta.uid() == own) {
        return Ok(None);
    }
    // A process that hides itself belongs to root there, whatever its user, and its line may have any length.
    let line = match untrusted::memory(Path::new(&place), "cmdline", 4 << 10) {
        Ok(line) => line,
        Err(e) if is_resource_shortage(&e) => return Err(e),
        Err(_) => return Ok(None),
    };
    if line.split(|byte| *byte == 0).nth(1) != Some(b"supervise") {
        return Ok(None);
    }
    let root = |of: &str| std::fs::metadata(format!("{of}/root")).ok().map(|meta| (meta.dev(), meta.ino()));
    let held = Path::new(&place).join("fd/0");
    let same_root = root(&place).is_some_and(|peer| root("/proc/self") == Some(peer));
    let Some(run_dir) = record_directory(&held).filter(|_| same_root) else { return Ok(None) };
    // What another file system shows at the same path is another record.
    let device = run_dir.ancestors().find_map(|above| std::fs::metadata(above).ok()).map(|meta| meta.dev());
    let same_device = std::fs::metadata(&held).ok().map(|meta| meta.dev()) == device;
    Ok(Some(run_dir).filter(|_| same_device))
}

/// The run directory of another agent, if a supervisor's record lies in that, and not in `run_dir`: of one attempt
/// there are two where a data directory was copied. `None`: where its record lies says nothing against it.
pub fn is_for_another(pid: u32, run_dir: &Path) -> Option<PathBuf> {
    let lies = record_directory(&Path::new("/proc").join(pid.to_string()).join("fd/0"))?;
    (lies != run_dir && same_attempt(&lies, run_dir)).then_some(lies)
}

/// Whether two are called `run/<alloc id>/<task>/<attempt>` alike.
fn same_attempt(one: &Path, other: &Path) -> bool {
    const NAMES: usize = 4;
    one.iter().rev().take(NAMES).eq(other.iter().rev().take(NAMES))
}

/// The directory in which the record lies that is open there, or lay when it was removed. `None`: it is no record.
/// Source: a link of `/proc/PID/fd`, which follows each directory above the file wherever it is moved.
fn record_directory(held: &Path) -> Option<PathBuf> {
    const REMOVED: &[u8] = b" (deleted)";
    let path = std::fs::read_link(held).ok()?.into_os_string().into_vec();
    let path = PathBuf::from(OsString::from_vec(path.strip_suffix(REMOVED).unwrap_or(&path).to_vec()));
    path.parent().filter(|_| path.ends_with(FILE)).map(Path::to_owned)
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
        let until = Instant::now() + Duration::from_secs(300);
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
    fn process_named_as_supervisor_is_found_only_with_its_record_in_our_data_dir() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let run_dir = dir.join("run/a/t/0");
        std::fs::create_dir_all(&run_dir).unwrap();
        let record = File::create(run_dir.join(FILE)).unwrap();
        let own = named_for(&dir, &run_dir, record);
        let pid = own.id();
        let found = |run_dir: &Path| find(run_dir).unwrap().map(|process| process.id().pid);
        assert_eq!(found(&run_dir), Some(pid));
        assert_eq!(found(&dir.join("run/a/t/1")), None);
        // What is moved takes it along, and what is copied does not.
        let moved = dir.join("moved/a/t/0");
        std::fs::rename(dir.join("run"), dir.join("moved")).unwrap();
        std::fs::create_dir_all(&run_dir).unwrap();
        std::fs::copy(moved.join(FILE), run_dir.join(FILE)).unwrap();
        assert_eq!((found(&moved), found(&run_dir)), (Some(pid), None));
        std::fs::remove_dir_all(dir.join("moved")).unwrap();
        let below = executed_for(pid).unwrap();
        let removed = found(&moved);
        end(own);
        assert_eq!((removed, below), (Some(pid), Some(moved)), "its record may have been removed");
        // As that of an agent in a container, whose data directory has the same name.
        let foreign = named_for(&dir, &run_dir, File::open("/proc/self/stat").unwrap());
        let found = find(&run_dir).unwrap();
        end(foreign);
        assert!(found.is_none());
    }
}
