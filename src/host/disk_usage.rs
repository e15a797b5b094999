//! Disk usage of a directory tree: a slow walk in small steps that follows no link and crosses no mount.
//!
//! Units: bytes as allocated (`st_blocks`); holes count 0. A file with several hard links in the tree counts once.
//! Source: getdents64(2), fstat(2), openat2(2).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;
/// A tree with more entries is not measured.
pub const MOST_ENTRIES: u64 = 1_000_000;
/// Nesting depth: each level holds one descriptor open.
const DEEPEST: usize = 64;
/// Entries between two checks of the time.
const STEP: u64 = 64;
/// Work before each pause.
const BURST: Duration = Duration::from_millis(2);

/// Pauses after a burst of the given length. Returns `false` to cancel the walk.
pub type Rest<'a> = &'a mut dyn FnMut(Duration) -> bool;

/// Disk usage of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeUsage {
    pub bytes: u64,
    pub entries: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// Too deep or too many entries.
    #[error("it has more than {MOST_ENTRIES} entries, or directories nested deeper than {DEEPEST}")]
    TooLarge,
    #[error("the walk was cancelled")]
    CalledOff,
    #[error(transparent)]
    Read(#[from] io::Error),
}

impl From<Errno> for UsageError {
    fn from(errno: Errno) -> UsageError {
        UsageError::Read(errno.into())
    }
}

/// Errors: the root cannot be read. Below it, entries that vanish or cannot be opened are skipped.
pub fn of_tree(root: &Path, rest: Rest<'_>) -> Result<TreeUsage, UsageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&root)?;
    let mut walk = UsageWalk {
        device: stat.st_dev,
        usage: TreeUsage { bytes: blocks(&stat), entries: 1 },
        linked: HashSet::new(),
        burst: Instant::now(),
        rest,
    };
    walk.all(root)?;
    Ok(walk.usage)
}

/// One walk of a tree.
struct UsageWalk<'a> {
    device: u64,
    usage: TreeUsage,
    /// Inode numbers of files with several links that were counted.
    linked: HashSet<u64>,
    burst: Instant,
    rest: Rest<'a>,
}

impl UsageWalk<'_> {
    fn all(&mut self, root: OwnedFd) -> Result<(), UsageError> {
        let mut open = vec![entries(root)?];
        while let Some(directory) = open.last_mut() {
            let Some(entry) = directory.next() else {
                open.pop();
                continue;
            };
            // If reading the directory fails midway, the entries read so far count.
            let Ok(entry) = entry else {
                open.pop();
                continue;
            };
            if entry.file_name() == c"." || entry.file_name() == c".." {
                continue;
            }
            self.pause()?;
            let Some((below, stat)) = held(directory, entry.file_name()).map_or_else(left_out, found)? else {
                continue;
            };
            if stat.st_dev != self.device {
                continue;
            }
            self.count(&stat);
            if self.usage.entries > MOST_ENTRIES {
                return Err(UsageError::TooLarge);
            }
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                if open.len() >= DEEPEST {
                    return Err(UsageError::TooLarge);
                }
                if let Some(below) = reopened(&below).map_or_else(left_out, found)? {
                    open.push(below);
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, stat: &Stat) {
        self.usage.entries += 1;
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        if is_directory || stat.st_nlink <= 1 || self.linked.insert(stat.st_ino) {
            self.usage.bytes = self.usage.bytes.saturating_add(blocks(stat));
        }
    }

    fn pause(&mut self) -> Result<(), UsageError> {
        if !self.usage.entries.is_multiple_of(STEP) || self.burst.elapsed() < BURST {
            return Ok(());
        }
        let goes_on = (self.rest)(self.burst.elapsed());
        self.burst = Instant::now();
        if goes_on { Ok(()) } else { Err(UsageError::CalledOff) }
    }
}

fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK)
}

fn entries(directory: OwnedFd) -> io::Result<Dir> {
    Ok(Dir::new(directory)?)
}

fn found<T>(found: T) -> Result<Option<T>, UsageError> {
    Ok(Some(found))
}

/// `None`: the entry vanished, cannot be opened or is on another file system. Errors: any other, such as no free
/// descriptor.
fn left_out<T>(errno: Errno) -> Result<Option<T>, UsageError> {
    match errno {
        Errno::NOENT | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NOTDIR => Ok(None),
        other => Err(other.into()),
    }
}

/// Stats an entry without opening it and without following a mount: a user's file system may never answer.
fn held(directory: &Dir, name: &CStr) -> rustix::io::Result<(OwnedFd, Stat)> {
    let at = directory.fd()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let found = match rustix::fs::openat2(at, name, flags, Mode::empty(), resolve) {
        // Before Linux 5.6, or denied by a seccomp filter.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(at, name, flags, Mode::empty())?,
        found => found?,
    };
    let stat = rustix::fs::fstat(&found)?;
    Ok((found, stat))
}

/// Opens the same directory for reading, even if its name now refers to another.
fn reopened(held: &OwnedFd) -> rustix::io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Dir::new(rustix::fs::openat(held, c".", flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn usage(root: &Path) -> TreeUsage {
        of_tree(root, &mut |_| true).unwrap()
    }

    #[test]
    fn a_tree_counts_what_it_has_on_the_disk_and_each_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        let empty = usage(&tree);
        std::fs::write(tree.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        let before = usage(&tree);
        assert!(before.bytes >= empty.bytes + (1 << 20) && before.bytes < empty.bytes + (2 << 20), "{before:?}");
        assert_eq!(before.entries, 4);
        std::fs::hard_link(tree.join("a/b/file"), tree.join("again")).unwrap();
        let hole = std::fs::File::create(tree.join("hole")).unwrap();
        hole.set_len(1 << 40).unwrap();
        std::fs::write(dir.path().join("outside"), vec![1; 8 << 20]).unwrap();
        symlink(dir.path(), tree.join("way")).unwrap();
        symlink(dir.path().join("outside"), tree.join("link")).unwrap();
        let after = usage(&tree);
        assert!(after.bytes < before.bytes + (1 << 20), "{after:?}: neither links nor holes count");
        assert_eq!(after.entries, 8);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_not_counted_and_one_is_called_off() {
        let dir = tempfile::tempdir().unwrap();
        let deep: std::path::PathBuf = std::iter::repeat_n("d", DEEPEST + 1).collect();
        std::fs::create_dir_all(dir.path().join(deep)).unwrap();
        assert!(matches!(of_tree(dir.path(), &mut |_| true), Err(UsageError::TooLarge)));
        let wide = tempfile::tempdir().unwrap();
        for n in 0..5_000 {
            std::fs::write(wide.path().join(n.to_string()), "").unwrap();
        }
        let mut rests = 0;
        let ended = of_tree(wide.path(), &mut |_| {
            rests += 1;
            false
        });
        // A fast enough machine finishes in one burst.
        assert!(rests == 0 || matches!(ended, Err(UsageError::CalledOff)), "{ended:?}");
        assert!(matches!(of_tree(&wide.path().join("none"), &mut |_| true), Err(UsageError::Read(_))));
    }
}
