//! Paths of `proc`, `sys`, the cgroup hierarchies and files of other programs. The same setting serves test fixtures
//! and containers.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::untrusted;

/// Larger files below `proc` are not read: 200,000 sockets take 30 MB.
const LARGEST_PROC_FILE: usize = 32 << 20;

/// Why a kernel file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// ENOENT, ENOTDIR, EOPNOTSUPP: this kernel or machine has no such file.
    #[error("{} does not exist here", path.display())]
    Absent { path: PathBuf },
    /// ENODEV, ESRCH: the object of the file has gone.
    #[error("{} has vanished", path.display())]
    Vanished { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl ReadError {
    pub fn new(path: impl Into<PathBuf>, source: io::Error) -> ReadError {
        let path = path.into();
        match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::OPNOTSUPP) => {
                ReadError::Absent { path }
            }
            Some(rustix::io::Errno::NODEV | rustix::io::Errno::SRCH) => ReadError::Vanished { path },
            _ => ReadError::Io { path, source },
        }
    }
}

/// Where the kernel's file systems are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// The directory with `etc`, `run`, `usr` and `var`.
    pub root: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots::below(Path::new("/"))
    }
}

impl Roots {
    /// The roots of a host whose file system is below `root`.
    pub fn below(root: &Path) -> Roots {
        Roots { proc: root.join("proc"), sys: root.join("sys"), root: root.to_owned() }
    }

    /// Whether system calls of this process are about the host of these files.
    pub fn are_of_this_kernel(&self) -> bool {
        self.proc == Path::new("/proc")
    }

    /// The same roots with another [`Roots::root`].
    pub fn with_root(self, root: &Path) -> Roots {
        Roots { root: root.to_owned(), ..self }
    }

    /// A file of the host, by its absolute path.
    pub fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.proc.join(relative)
    }

    /// Reads a whole file below `proc`, up to 32 MiB. For files backed by a process's memory use [`untrusted::memory`].
    pub fn read_proc(&self, relative: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let path = self.proc(relative);
        untrusted::read(&path, LARGEST_PROC_FILE).map_err(|e| ReadError::new(path, e))
    }

    /// Maps a mount point from mountinfo into these roots: below `sys` if it is below the kernel's `/sys`.
    pub fn mounted(&self, mount_point: &Path) -> PathBuf {
        if mount_point.starts_with(&self.sys) {
            return mount_point.to_owned();
        }
        match mount_point.strip_prefix("/sys") {
            Ok(below) => self.sys.join(below),
            Err(_) => mount_point.to_owned(),
        }
    }
}

/// Opens a directory with O_PATH, as a starting point: needs no read permission.
pub fn open_path(path: &Path) -> Result<OwnedFd, ReadError> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| ReadError::new(path, e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_below_sys_follow_the_root_that_was_set() {
        let roots = Roots::below(Path::new("/t"));
        assert_eq!(roots.mounted(Path::new("/sys/fs/cgroup/memory")), Path::new("/t/sys/fs/cgroup/memory"));
        assert_eq!(roots.mounted(Path::new("/t/sys/fs/cgroup")), Path::new("/t/sys/fs/cgroup"));
        assert_eq!(Roots::default().mounted(Path::new("/sys/fs/cgroup")), Path::new("/sys/fs/cgroup"));
        assert_eq!(Roots::default().mounted(Path::new("/cgroup/cpu")), Path::new("/cgroup/cpu"));
    }

    #[test]
    fn files_of_the_host_are_below_its_root() {
        assert_eq!(Roots::below(Path::new("/t")).file("/run/x"), Path::new("/t/run/x"));
        assert_eq!(Roots::default().file("/run/x"), Path::new("/run/x"));
    }

    #[test]
    fn a_missing_file_is_absent_and_a_vanished_process_is_gone() {
        let absent = Roots::default().read_proc("no-such-file").unwrap_err();
        assert!(matches!(absent, ReadError::Absent { .. }));
        let removed = ReadError::new("/x", io::Error::from(rustix::io::Errno::NODEV));
        assert!(matches!(removed, ReadError::Vanished { .. }));
    }
}
