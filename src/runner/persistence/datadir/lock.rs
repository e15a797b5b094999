//! The lock of a data directory: one agent at a time, and which process holds it.
//!
//! Mode 0600: any process that can open a file can lock it, and block every agent. The PID in the file is only a hint
//! for users: the kernel knows who holds the lock.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::error::DataDirError;

/// How long a child that a killed agent was starting may hold its locks: until its exec, no other process can take
/// them.
pub const LET_GO: Duration = Duration::from_secs(1);

pub(super) fn lock(root: &Path) -> Result<File, DataDirError> {
    let path = root.join("lock");
    let failed = |source: io::Error| DataDirError::Lock { path: path.clone(), source };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let mut file = options.open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => DataDirError::Make { path: root.to_owned(), source },
        _ => failed(source),
    })?;
    // Explicit: neither the umask nor an earlier agent decides the mode.
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
    let until = Instant::now() + LET_GO;
    let locked = loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let owner = holder(&file).unwrap_or_else(|| "a process that is not visible here".to_owned());
            return Err(DataDirError::Locked { path: root.to_owned(), owner });
        }
        Err(e) => return Err(failed(e.into())),
    }
    let mut note = || -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    // The PID is a hint for users; a full disk must not prevent the start.
    let _ = note();
    Ok(file)
}

/// Describes a live process that has the locked file open. `None`: this user may not inspect it.
///
/// Source: `/proc/PID/fdinfo/FD`, `lock:` (4.1). `/proc/locks` would name the process that took the lock, which may
/// have ended and left it to a child with the same open file; on some file systems it also has another device than
/// stat(2).
fn holder(file: &File) -> Option<String> {
    let meta = file.metadata().ok()?;
    let requested = (meta.dev(), meta.ino());
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| holds(*pid, requested))?;
    let text = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (called, status) = (text("comm"), text("status"));
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1)).unwrap_or("unknown");
    let is_own = uid.parse() == Ok(rustix::process::geteuid().as_raw());
    Some(match called.trim() {
        "allostat" if is_own => format!("another agent (pid {pid})"),
        other => format!("pid {pid} ({}, of uid {uid})", other.escape_debug()),
    })
}

fn holds(pid: u32, requested: (u64, u64)) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        // The path first, without touching the file: other open files may be on a disk that hangs.
        let named = std::fs::read_link(entry.path()).is_ok_and(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().trim_end_matches(" (deleted)") == "lock")
        });
        let same = || std::fs::metadata(entry.path()).is_ok_and(|meta| (meta.dev(), meta.ino()) == requested);
        let locks = || {
            let number = entry.file_name();
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy()));
            info.is_ok_and(|info| info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK")))
        };
        named && same() && locks()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::super::DataDir;
    use super::*;

    #[test]
    fn second_agent_gets_an_error_with_the_holder_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path()).unwrap();
        let message = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
        assert!(message.contains("--data-dir"), "{message}");
        drop(first);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn lock_file_is_private_and_its_holder_is_named_by_pid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        // As an earlier agent left it, with the PID of a dead process.
        std::fs::write(&path, "4194303\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        // The process takes the lock and ends; its child keeps it.
        let script = "exec 9<\"$0\"; flock -xn 9 || exit 1; echo held; sleep 600 & exit";
        let mut taker = Command::new("sh");
        taker.args(["-c", script]).arg(&path).stdout(Stdio::null()).process_group(0);
        use std::os::unix::process::CommandExt;
        let mut taker = taker.spawn().unwrap();
        let group = taker.id();
        assert!(taker.wait().unwrap().success(), "flock(1) is there");
        let message = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(!message.contains("4194303") && !message.contains(&format!("pid {group} ")), "{message}");
        let named = message.split("pid ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let called = std::fs::read_to_string(format!("/proc/{named}/comm")).unwrap();
        assert_eq!(called.trim(), "sleep", "{message}");
        Command::new("kill").arg(named).status().unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while DataDir::open(dir.path()).is_err() {
            assert!(Instant::now() < until, "it is free now");
        }
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    }
}
