//! `/proc`: opened once, and how it counts descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::scratch::{self, Scratch};
use crate::host::roots::open_path;

/// `/proc`, and how it counts descriptors.
#[derive(Debug)]
pub(super) struct Proc {
    root: OwnedFd,
    /// The size of `/proc/PID/fd` is the number of its entries (6.2).
    fds_by_size: bool,
    /// The number of the host's network namespace, which is that of the first process: of its `net/dev`, which each namespace has
    /// its own of and everybody may look at, as nobody may at `ns/net` of who has more rights.
    host_network: Option<u64>,
}

impl Proc {
    pub(super) fn open(path: &Path) -> Option<Proc> {
        let root = open_path(path).ok()?;
        // Whoever asks has descriptors: only a kernel that does not count shows 0.
        let fds_by_size = rustix::fs::fstatfs(&root).is_ok_and(|s| s.f_type == rustix::fs::PROC_SUPER_MAGIC)
            && rustix::fs::statat(&root, "self/fd", AtFlags::empty()).is_ok_and(|s| s.st_size > 0);
        let host_network = rustix::fs::statat(&root, "1/net/dev", AtFlags::empty()).ok().map(|stat| stat.st_ino);
        Some(Proc { root, fds_by_size, host_network })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn host_network(&self) -> Option<u64> {
        self.host_network
    }

    /// Errors: ENOENT, ESRCH: the process is gone. EACCES: it is somebody else's.
    pub(super) fn open_fds(&self, scratch: &mut Scratch, pid: u32) -> Result<u64, Errno> {
        use std::fmt::Write;
        scratch.path.clear();
        write!(scratch.path, "{pid}/fd").map_err(|_| Errno::NOMEM)?;
        if self.fds_by_size {
            let stat = rustix::fs::statat(&self.root, &scratch.path, AtFlags::empty())?;
            return Ok(u64::try_from(stat.st_size).unwrap_or_default());
        }
        let directory = scratch::open(self.root.as_fd(), &scratch.path, OFlags::DIRECTORY)?;
        let mut entries = 0;
        scratch::names(&directory, |_| entries += 1)?;
        Ok(entries)
    }
}
