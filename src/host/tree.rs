//! Removes a directory tree, except for mounts.
//!
//! `remove_dir_all` would delete through a mount below the task's directory (a bind mount of someone's data, a tmpfs).
//! Here each directory is opened first and its mount ID is checked. No path is resolved twice, so no process can insert
//! a link or a mount in between.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("something is mounted on {}: unmount it, and it is removed", .0.display())]
    Mounted(PathBuf),
    #[error("cannot remove {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Removes as much as possible. A missing path is no error. Links above the last component are followed.
///
/// Errors: the first entry that could not be removed; the others are gone.
pub fn remove(path: &Path) -> Result<(), RemoveError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |e: io::Error| RemoveError::Io { path, source: e }
    };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(fail(path)(io::ErrorKind::InvalidInput.into()));
    };
    let parent = match rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(fail(path)(e.into())),
    };
    remove_in(parent.as_fd(), name, path)
}

/// As [`remove`], in an open directory: for a path above which another user can create links. `path`: for errors.
pub fn remove_in(parent: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), RemoveError> {
    let mount = mount_of(parent).map_err(|source| RemoveError::Io { path: path.to_owned(), source })?;
    let mut sweep = TreeRemoval { mount, top: None, parked: Vec::new(), parkings: 0, first_error: None };
    sweep.remove(parent, name, path, 0);
    sweep.first_error.map_or(Ok(()), Err)
}

/// Recursion depth: each level holds one descriptor open.
const DEEPEST: u32 = 64;

/// The mount ID of an open file. Source: `/proc/self/fdinfo/FD`, `mnt_id` (3.15).
fn mount_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "fdinfo has no mnt_id"))
}

/// One removal of a tree.
struct TreeRemoval {
    mount: u64,
    top: Option<OwnedFd>,
    /// Names in the top directory of subtrees that were moved up because they were too deep.
    parked: Vec<String>,
    parkings: u32,
    first_error: Option<RemoveError>,
}

impl TreeRemoval {
    fn fail(&mut self, error: RemoveError) {
        self.first_error.get_or_insert(error);
    }
    fn io_error(&mut self, path: &Path, error: impl Into<io::Error>) {
        self.fail(RemoveError::Io { path: path.to_owned(), source: error.into() });
    }

    fn remove(&mut self, parent: BorrowedFd<'_>, name: &OsStr, path: &Path, depth: u32) {
        let refused = match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return,
            // A directory (POSIX allows EPERM for it), an immutable file, or a mount point.
            Err(e @ (Errno::ISDIR | Errno::PERM | Errno::BUSY)) => e,
            Err(e) => return self.io_error(path, e),
        };
        if depth > DEEPEST && self.park(parent, name) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory: OwnedFd = match openat(parent, name, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return,
            Err(Errno::NOTDIR | Errno::LOOP) if refused == Errno::PERM => return self.io_error(path, refused),
            Err(Errno::NOTDIR | Errno::LOOP) => return self.fail(RemoveError::Mounted(path.to_owned())),
            Err(e) => return self.io_error(path, e),
        };
        match mount_of(directory.as_fd()) {
            Ok(id) if id == self.mount => {}
            Ok(_) => return self.fail(RemoveError::Mounted(path.to_owned())),
            Err(e) => return self.io_error(path, e),
        }
        if depth == 0 {
            match directory.try_clone() {
                Ok(top) => self.top = Some(top),
                Err(e) => return self.io_error(path, e),
            }
        }
        self.remove_entries(&directory, path, depth);
        while depth == 0
            && let Some(parked) = self.parked.pop()
        {
            self.remove(directory.as_fd(), OsStr::new(&parked), &path.join(&parked), 1);
        }
        // If something is left in it, that error is recorded already.
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => self.io_error(path, e),
        }
    }

    fn remove_entries(&mut self, directory: &OwnedFd, path: &Path, depth: u32) {
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(e) => return self.io_error(path, e),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => return self.io_error(path, e),
            };
            let child = OsStr::from_bytes(entry.file_name().to_bytes());
            if child != "." && child != ".." {
                self.remove(directory.as_fd(), child, &path.join(child), depth + 1);
            }
        }
    }

    /// Moves a directory that is too deep to the top, for removal from there. A mount stays.
    fn park(&mut self, parent: BorrowedFd<'_>, name: &OsStr) -> bool {
        let Some(top) = &self.top else { return false };
        self.parkings += 1;
        let place = format!(".removed-{}-{}", std::process::id(), self.parkings);
        let moved = rustix::fs::renameat(parent, name, top, &place).is_ok();
        if moved {
            self.parked.push(place);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("alloc");
        std::fs::create_dir_all(root.join("task/local/deep")).unwrap();
        std::fs::write(root.join("task/local/deep/file"), "x").unwrap();
        (dir, root)
    }

    #[test]
    fn tree_removal_removes_the_whole_tree_and_no_symlink_target() {
        let (dir, root) = tree();
        std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
        std::fs::write(dir.path().join("elsewhere/kept"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), root.join("task/link")).unwrap();
        remove(&root).unwrap();
        assert!(!root.exists() && dir.path().join("elsewhere/kept").exists());
        remove(&root).unwrap();
        remove(&dir.path().join("no/such/parent")).unwrap();
    }

    #[test]
    fn a_tree_deeper_than_descriptors_or_paths_go_is_removed() {
        let (_dir, root) = tree();
        let mut at = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn an_immutable_file_is_no_mount() {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        let (_dir, root) = tree();
        let path = root.join("task/local/deep/file");
        let file = std::fs::File::open(&path).unwrap();
        let Some(flags) = ioctl_getflags(&file).ok().filter(|f| ioctl_setflags(&file, *f | IFlags::IMMUTABLE).is_ok())
        else {
            eprintln!("no file can be made immutable here");
            return;
        };
        let error = remove(&root).unwrap_err();
        ioctl_setflags(&file, flags).unwrap();
        let is_denied = matches!(
            &error,
            RemoveError::Io { path: at, source } if *at == path && source.raw_os_error() == Some(libc::EPERM)
        );
        assert!(is_denied, "{error}");
        remove(&root).unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn tree_removal_stops_at_a_mount() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: cannot mount");
            return;
        }
        let (dir, root) = tree();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("precious"), "x").unwrap();
        let mounted = root.join("task/mounted");
        std::fs::create_dir(&mounted).unwrap();
        let mount = std::process::Command::new("mount").arg("--bind").args([&data, &mounted]).status();
        if !mount.is_ok_and(|status| status.success()) {
            eprintln!("cannot mount here");
            return;
        }
        let error = remove(&root).unwrap_err();
        let unmounted = std::process::Command::new("umount").arg(&mounted).status().unwrap();
        assert!(unmounted.success());
        assert!(matches!(&error, RemoveError::Mounted(at) if *at == mounted), "{error}");
        assert!(data.join("precious").exists());
        assert!(!root.join("task/local").exists(), "what is beside it goes");
        remove(&root).unwrap();
        assert!(!root.exists());
    }
}
