//! Directories that are created whole: with their owner and their mode, whenever the agent dies.
//!
//! ```text
//! mkdir (mode 0400) ─► chown ─► chmod
//! ```
//! An empty directory of mode 0400 is one that an agent did not finish; the next one that needs it does.
//!
//! Source: mkdir(2), chown(2), chmod(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Gid, Mode, OFlags, RawDir, Stat, Uid};
use rustix::io::Errno;
use rustix::path::Arg;

const WAY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Readable, so that an agent without root opens it.
const UNFINISHED: Mode = Mode::RUSR;

/// Mode and owner of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirRights {
    pub mode: u32,
    /// uid and gid; `None`: those of the agent.
    pub owner: Option<(u32, u32)>,
}

/// Creates a directory, without its rights.
///
/// Errors: those of mkdir(2).
pub fn begin(at: impl AsFd, name: impl Arg) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(at, name, UNFINISHED)
}

/// Whether an agent may not have finished it: `finish` finds out.
pub fn may_be_unfinished(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_mode & 0o777 == UNFINISHED.as_raw_mode()
}

/// Gives a directory its rights if it has none yet, and says whether it did. One that has its rights, or belongs to
/// another user, stays as it is.
pub fn finish(directory: impl AsFd, rights: DirRights) -> io::Result<bool> {
    let stat = rustix::fs::fstat(&directory)?;
    let own = rustix::process::geteuid().as_raw();
    let is_own = stat.st_uid == own || rights.owner.is_some_and(|(uid, _)| uid == stat.st_uid);
    if !may_be_unfinished(&stat) || !is_own || !is_empty(&directory)? {
        return Ok(false);
    }
    if let Some((uid, gid)) = rights.owner {
        rustix::fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    // Explicit: the umask must not decide.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(rights.mode))?;
    Ok(true)
}

/// Opens a directory, which is created or finished first where it is not whole. No link is followed.
///
/// Errors: those of mkdir(2), chown(2) and open(2); ELOOP, ENOTDIR: it is something else.
pub fn open(at: impl AsFd, name: impl Arg + Copy, rights: DirRights) -> io::Result<OwnedFd> {
    let open = || rustix::fs::openat(&at, name, WAY, Mode::empty());
    let directory = match open() {
        Err(Errno::NOENT) => {
            match begin(&at, name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            open()?
        }
        opened => opened?,
    };
    finish(&directory, rights)?;
    Ok(directory)
}

/// Reads from the descriptor itself: opening `.` again would need the right to search it.
fn is_empty(directory: impl AsFd) -> io::Result<bool> {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    const RIGHTS: DirRights = DirRights { mode: 0o1777, owner: None };

    fn mode(path: &std::path::Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn directory_that_was_begun_is_finished_and_any_other_stays_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        let at = fs::File::open(top.path()).unwrap();
        open(&at, "new", RIGHTS).unwrap();
        begin(&at, "begun").unwrap();
        open(&at, "begun", RIGHTS).unwrap();
        assert_eq!((mode(&top.path().join("new")), mode(&top.path().join("begun"))), (0o1777, 0o1777));
        for (name, set, has_entry) in [("closed", 0o700, false), ("full", 0o400, true)] {
            let path = top.path().join(name);
            fs::create_dir(&path).unwrap();
            if has_entry {
                fs::write(path.join("x"), "").unwrap();
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(set)).unwrap();
            open(&at, name, RIGHTS).unwrap();
            assert_eq!(mode(&path), set, "{name}");
        }
        symlink("new", top.path().join("link")).unwrap();
        assert!(open(&at, "link", RIGHTS).is_err());
    }

    /// A child without rights, whatever user runs the tests.
    #[test]
    fn directory_is_created_whole_by_an_ordinary_user_too() {
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let at = fs::File::open(top.path()).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                if is_root {
                    // Of this thread alone; with root's user go its rights.
                    rustix::thread::set_thread_uid(Uid::from_raw(4_001)).unwrap();
                }
                open(&at, "new", RIGHTS).map(drop)
            });
            made.join().unwrap().unwrap();
        });
        assert_eq!(mode(&top.path().join("new")), 0o1777);
    }

    #[test]
    fn directory_of_its_owner_is_finished_and_that_of_another_user_is_not() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let at = fs::File::open(top.path()).unwrap();
        let rights = DirRights { mode: 0o700, owner: Some((4_001, 4_002)) };
        for (name, uid, expected) in
            [("ours", 0, (4_001, 0o700)), ("its", 4_001, (4_001, 0o700)), ("other", 4_003, (4_003, 0o400))]
        {
            begin(&at, name).unwrap();
            std::os::unix::fs::chown(top.path().join(name), Some(uid), None).unwrap();
            open(&at, name, rights).unwrap();
            let about = top.path().join(name).metadata().unwrap();
            assert_eq!((about.uid(), about.mode() & 0o7777), expected, "{name}");
        }
    }
}
