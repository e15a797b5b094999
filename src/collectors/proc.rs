//! `/proc`, opened once, and how to count file descriptors on this kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::scratch::{self, Scratch};
use crate::host::roots::open_path;

/// An open `/proc`.
#[derive(Debug)]
pub(super) struct ProcRoot {
    root: OwnedFd,
    /// The size of `/proc/PID/fd` is the number of its entries (since 6.2).
    fds_by_size: bool,
    /// Inode of `net/dev` in the host's network namespace, that of PID 1. Every namespace has its own `net/dev`, which
    /// any user may stat; `ns/net` of a more privileged process is not readable.
    host_network: Option<u64>,
}

impl ProcRoot {
    pub(super) fn open(path: &Path) -> Option<ProcRoot> {
        let root = open_path(path).ok()?;
        // This process has open descriptors, so size 0 means that the kernel does not count them.
        let fds_by_size = rustix::fs::fstatfs(&root).is_ok_and(|s| s.f_type == rustix::fs::PROC_SUPER_MAGIC)
            && rustix::fs::statat(&root, "self/fd", AtFlags::empty()).is_ok_and(|s| s.st_size > 0);
        let host_network = rustix::fs::statat(&root, "1/net/dev", AtFlags::empty()).ok().map(|stat| stat.st_ino);
        Some(ProcRoot { root, fds_by_size, host_network })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn host_network(&self) -> Option<u64> {
        self.host_network
    }

    /// Errors: ENOENT, ESRCH: the process is gone. EACCES: it belongs to another user.
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
