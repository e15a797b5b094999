//! One buffer per thread, reused for all files: no allocation per file or number after warm-up.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry};
use rustix::io::Errno;
use rustix::path::Arg;

/// Buffers of one thread, reused for all files.
#[derive(Debug)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    /// A path relative to a root, rebuilt for each file.
    pub(super) path: OsString,
    pub(super) pids: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { bytes: vec![0; 16 << 10], path: OsString::new(), pids: Vec::new() });
}

/// Lends the thread's buffer to `work`, which must not call this function.
pub(super) fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}

/// Opens a path relative to an O_PATH descriptor; follows no symlink at its end.
pub(super) fn open(root: BorrowedFd<'_>, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | flags, Mode::empty())
}

/// Larger files are not read: `net/dev` of a user's network namespace grows with the interfaces that the user creates.
const MOST_BYTES: usize = 32 << 20;

impl Scratch {
    fn grow(&mut self) -> Result<(), Errno> {
        let length = self.bytes.len() * 2;
        if length > MOST_BYTES {
            return Err(Errno::FBIG);
        }
        self.bytes.resize(length, 0);
        Ok(())
    }

    /// Reads a file that the kernel returns in one read, from its start.
    pub(super) fn read(&mut self, file: impl AsFd) -> Result<&[u8], Errno> {
        loop {
            let n = rustix::io::pread(file.as_fd(), &mut self.bytes[..], 0)?;
            if n < self.bytes.len() {
                return Ok(self.bytes.get(..n).unwrap_or_default());
            }
            self.grow()?;
        }
    }

    /// Reads a list from its start, with a descriptor that was read before. The kernel returns a page at a time; a
    /// piece that is shorter than its page is the last one.
    pub(super) fn reread_list(&mut self, file: impl AsFd) -> Result<&[u8], Errno> {
        /// A page minus the longest line.
        const PAGE: usize = 4096 - 64;
        let mut filled = 0;
        loop {
            if self.bytes.len() < filled + 2 * PAGE {
                self.grow()?;
            }
            let rest = self.bytes.get_mut(filled..).unwrap_or_default();
            let n = rustix::io::pread(file.as_fd(), rest, u64::try_from(filled).unwrap_or(u64::MAX))?;
            filled += n;
            if n < PAGE {
                return Ok(self.bytes.get(..filled).unwrap_or_default());
            }
        }
    }

    /// Reads a file that the kernel may return in several pieces, such as a list.
    pub(super) fn read_list(&mut self, file: impl AsFd) -> Result<&[u8], Errno> {
        let mut filled = 0;
        loop {
            if filled == self.bytes.len() {
                self.grow()?;
            }
            let rest = self.bytes.get_mut(filled..).unwrap_or_default();
            match rustix::io::read(file.as_fd(), rest)? {
                0 => return Ok(self.bytes.get(..filled).unwrap_or_default()),
                n => filled += n,
            }
        }
    }
}

/// The child cgroups, with their inodes.
pub(super) fn below(root: BorrowedFd<'_>, path: &Path) -> Result<Vec<(PathBuf, u64)>, Errno> {
    let mut below = Vec::new();
    // The link count of a cgroup directory includes its children, so a cgroup without children need not be listed.
    if rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink == 2 {
        return Ok(below);
    }
    let directory = open(root, path, OFlags::DIRECTORY)?;
    names(&directory, |entry| {
        if entry.file_type() == FileType::Directory {
            below.push((path.join(OsStr::from_bytes(entry.file_name().to_bytes())), entry.ino()));
        }
    })?;
    Ok(below)
}

pub(super) fn names(directory: &OwnedFd, mut each: impl FnMut(&RawDirEntry<'_>)) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(8 << 10);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            each(&entry);
        }
    }
    Ok(())
}
