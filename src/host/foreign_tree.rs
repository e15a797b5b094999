//! A directory tree that other users write, accessed through its root. Whatever they rename, link or mount there
//! concurrently, nothing outside the tree and nothing hidden by its owner is opened.
//!
//! ```text
//! path ─► names ─► hidden? ─► openat2 without following links ─► found
//!           ▲                     │ a component is a symbolic link
//!           └── its target, if it stays below the root ◄── readlink
//! ```
//! So the final open resolves no link, and the hidden check applies to the real names.
//!
//! Source: openat2(2), `O_PATH` in open(2), proc_pid_fd(5).

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::untrusted;

/// The kernel's own limit. Source: path_resolution(7).
const MOST_LINKS: usize = 40;
/// Longer paths are refused.
const MOST_NAMES: usize = 256;
/// `O_PATH`: refers to the file without opening it.
const NAMES: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether the tree's owner hides the file at this path.
pub type IsHidden = fn(&[OsString]) -> bool;

/// A directory tree that another user may change while it is read.
#[derive(Debug)]
pub struct ForeignTree {
    root: OwnedFd,
    is_hidden: IsHidden,
}

/// A file in the tree, held by a descriptor: its path may refer to another file by now.
#[derive(Debug)]
pub struct FoundFile {
    /// The path below the root; empty: the root itself.
    pub names: Vec<OsString>,
    pub facts: FileFacts,
    descriptor: OwnedFd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    pub kind: FileType,
    pub mode: u32,
    pub size_bytes: u64,
    /// Nanoseconds since the epoch; `None`: before the epoch.
    pub modified_nanos: Option<u64>,
    pub uid: u32,
    pub gid: u32,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    pub name: OsString,
    pub facts: FileFacts,
}

impl ForeignTree {
    /// Errors: those of open(2).
    pub fn open(root: &Path, is_hidden: IsHidden) -> io::Result<ForeignTree> {
        let root = rustix::fs::open(root, NAMES | OFlags::DIRECTORY, Mode::empty())?;
        Ok(ForeignTree { root, is_hidden })
    }

    /// For another thread. Errors: no descriptor is left.
    pub fn try_clone(&self) -> io::Result<ForeignTree> {
        Ok(ForeignTree { root: self.root.try_clone()?, is_hidden: self.is_hidden })
    }

    /// Finds a path; an absolute path starts at the root too. Follows links that stay below the root.
    ///
    /// Errors: `NotFound`; `PermissionDenied`: it leads out of the tree, or is hidden; `InvalidInput`: not a valid
    /// path.
    pub fn find(&self, path: &str) -> io::Result<FoundFile> {
        let mut names = Vec::new();
        append(&mut names, Path::new(path.trim_start_matches('/')))?;
        for _ in 0..=MOST_LINKS {
            if (self.is_hidden)(&names) {
                return Err(denied("it is in a directory private to the task"));
            }
            match self.literally(&names) {
                Ok(descriptor) => {
                    let facts = facts(&rustix::fs::fstat(&descriptor)?);
                    if facts.kind != FileType::Symlink {
                        return Ok(FoundFile { names, facts, descriptor });
                    }
                    self.follow(&mut names)?;
                }
                Err(Errno::LOOP | Errno::NOTDIR) => self.follow(&mut names)?,
                Err(Errno::XDEV) => return Err(denied("another file system is mounted there")),
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// What has these names, a link as well: none is followed, and no mount crossed.
    ///
    /// Errors: those of openat2(2); `PermissionDenied`: it is hidden.
    pub fn exactly(&self, names: Vec<OsString>) -> io::Result<FoundFile> {
        if (self.is_hidden)(&names) {
            return Err(denied("it is in a directory that is the task's alone"));
        }
        let descriptor = self.literally(&names)?;
        let facts = facts(&rustix::fs::fstat(&descriptor)?);
        Ok(FoundFile { names, facts, descriptor })
    }

    /// Replaces the first link in `names` by its target. Errors: there is no link, or it leads out of the tree.
    fn follow(&self, names: &mut Vec<OsString>) -> io::Result<()> {
        for at in 0..names.len() {
            let found = self.literally(&names[..=at])?;
            if FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != FileType::Symlink {
                continue;
            }
            let target = rustix::fs::readlinkat(&found, c"", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(CString::into_bytes(target)));
            if target.is_absolute() {
                return Err(denied("a link on the path is absolute: it leads out of the alloc directory"));
            }
            let rest = names.split_off(at + 1);
            names.pop();
            append(names, &target)?;
            names.extend(rest);
            return if names.len() > MOST_NAMES { Err(Errno::NAMETOOLONG.into()) } else { Ok(()) };
        }
        Err(Errno::NOTDIR.into())
    }

    /// Opens exactly these names: follows no link and crosses no mount.
    fn literally(&self, names: &[OsString]) -> rustix::io::Result<OwnedFd> {
        let path: PathBuf = if names.is_empty() { ".".into() } else { names.iter().collect() };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.root, &path, NAMES, Mode::empty(), resolve) {
            // Before Linux 5.6, or denied by a seccomp filter.
            Err(Errno::NOSYS | Errno::PERM) => self.step_by_step(names),
            opened => opened,
        }
    }

    /// Emulates openat2, one component at a time.
    fn step_by_step(&self, names: &[OsString]) -> rustix::io::Result<OwnedFd> {
        let device = rustix::fs::fstat(&self.root)?.st_dev;
        let mut at = rustix::fs::openat(&self.root, c".", NAMES, Mode::empty())?;
        for name in names {
            at = rustix::fs::openat(&at, name.as_os_str(), NAMES, Mode::empty()).map_err(|errno| {
                let on_link =
                    rustix::fs::fstat(&at).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
                if on_link { Errno::LOOP } else { errno }
            })?;
            if rustix::fs::fstat(&at)?.st_dev != device {
                return Err(Errno::XDEV);
            }
        }
        Ok(at)
    }

    /// The entries of a directory sorted by name, without hidden ones, and the number of entries beyond `most`.
    ///
    /// Errors: `NotADirectory`; those of open(2) and getdents(2).
    pub fn list(&self, directory: &FoundFile, most: usize) -> io::Result<(Vec<TreeEntry>, usize)> {
        let opened = directory.reopen(FileType::Directory, OFlags::DIRECTORY)?;
        let (mut entries, mut omitted) = (Vec::new(), 0);
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let mut names = directory.names.clone();
            names.push(name.clone());
            if (self.is_hidden)(&names) {
                continue;
            }
            if entries.len() == most {
                omitted += 1;
                continue;
            }
            // Skip an entry that has vanished.
            if let Ok(stat) = rustix::fs::statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW) {
                entries.push(TreeEntry { name, facts: facts(&stat) });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((entries, omitted))
    }

    /// The names in a directory, sorted, without hidden ones: those that disappear meanwhile too. Each is checked
    /// before it is kept.
    ///
    /// Errors: `FileTooLarge`: the check refuses a name; those of open(2) and getdents(2).
    pub fn names(
        &self,
        directory: &FoundFile,
        mut check: impl FnMut(&OsString) -> Result<(), String>,
    ) -> io::Result<Vec<OsString>> {
        let opened = directory.reopen(FileType::Directory, OFlags::DIRECTORY)?;
        let (mut names, mut path) = (Vec::new(), directory.names.clone());
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            path.push(name.clone());
            let is_entry = name != "." && name != ".." && !(self.is_hidden)(&path);
            path.pop();
            if is_entry {
                check(&name).map_err(|why| io::Error::new(io::ErrorKind::FileTooLarge, why))?;
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl FoundFile {
    /// Whether both are the same file. Errors: those of fstat(2).
    pub fn is_same_as(&self, other: &FoundFile) -> io::Result<bool> {
        let (one, other) = (rustix::fs::fstat(&self.descriptor)?, rustix::fs::fstat(&other.descriptor)?);
        Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Of a link: what it names. Errors: those of readlink(2).
    pub fn target(&self) -> io::Result<OsString> {
        let target = rustix::fs::readlinkat(&self.descriptor, c"", Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Opens it for reading. Errors: `InvalidInput`: not a regular file; those of open(2).
    pub fn open(&self) -> io::Result<File> {
        self.reopen(FileType::RegularFile, OFlags::empty()).map(File::from)
    }

    /// Opens a directory. Errors: `NotADirectory`; those of open(2).
    pub fn open_directory(&self) -> io::Result<OwnedFd> {
        self.reopen(FileType::Directory, OFlags::DIRECTORY)
    }

    /// Opens the inode that was found, through its descriptor: no device or FIFO is opened, even if the name was
    /// replaced.
    fn reopen(&self, kind: FileType, also: OFlags) -> io::Result<OwnedFd> {
        if self.facts.kind != kind {
            let expected = if kind == FileType::Directory { "directory" } else { "regular file" };
            let (error, is) = match self.facts.kind {
                FileType::Directory => (io::ErrorKind::IsADirectory, "a directory"),
                FileType::RegularFile => (io::ErrorKind::NotADirectory, "a regular file"),
                _ => (io::ErrorKind::InvalidInput, "something else"),
            };
            return Err(io::Error::new(error, format!("it is not a {expected} but {is}")));
        }
        let path = format!("/proc/self/fd/{}", self.descriptor.as_fd().as_raw_fd());
        Ok(rustix::fs::open(path, untrusted::FLAGS | also, Mode::empty())?)
    }
}

fn denied(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Errors: the path leads above the root or is not valid.
fn append(names: &mut Vec<OsString>, path: &Path) -> io::Result<()> {
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.as_bytes().contains(&0) => names.push(name.to_owned()),
            Component::Normal(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a valid path")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            Component::ParentDir => {
                names.pop().ok_or_else(|| denied("it leads out of the alloc directory"))?;
            }
        }
    }
    if names.len() > MOST_NAMES { Err(Errno::NAMETOOLONG.into()) } else { Ok(()) }
}

#[allow(clippy::useless_conversion, reason = "types of stat differ between architectures")]
fn facts(stat: &Stat) -> FileFacts {
    let seconds = u64::try_from(stat.st_mtime).ok();
    let nanos =
        seconds.and_then(|seconds| seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(stat.st_mtime_nsec)));
    FileFacts {
        kind: FileType::from_raw_mode(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified_nanos: nanos,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn hides_secrets(names: &[OsString]) -> bool {
        names.get(1).is_some_and(|name| name == "secrets")
    }

    /// A tree and a file outside it.
    fn planted() -> (tempfile::TempDir, ForeignTree) {
        let top = tempfile::tempdir().unwrap();
        let alloc = top.path().join("alloc");
        for directory in ["web/local/deep", "web/secrets", "alloc/data"] {
            std::fs::create_dir_all(alloc.join(directory)).unwrap();
        }
        std::fs::write(top.path().join("outside"), "OUTSIDE").unwrap();
        std::fs::write(alloc.join("web/secrets/token"), "OUTSIDE").unwrap();
        std::fs::write(alloc.join("web/local/deep/a"), "inside").unwrap();
        let links = [
            ("../../outside", "alloc/out"),
            ("/etc/passwd", "web/local/passwd"),
            ("../secrets/token", "web/local/token"),
            ("secrets", "web/same"),
            ("deep", "web/local/way"),
            ("way/a", "web/local/file"),
            ("circle", "web/local/circle"),
        ];
        for (target, name) in links {
            symlink(target, alloc.join(name)).unwrap();
        }
        let tree = ForeignTree::open(&alloc, hides_secrets).unwrap();
        (top, tree)
    }

    fn text(tree: &ForeignTree, path: &str) -> io::Result<String> {
        let mut text = String::new();
        tree.find(path)?.open()?.take(100).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn links_are_followed_inside_and_lead_nowhere_else() {
        let (_top, tree) = planted();
        for path in ["web/local/deep/a", "/web/local/way/a", "web/local/file", "web/./local/way/../deep/a"] {
            assert_eq!(text(&tree, path).unwrap(), "inside", "{path}");
        }
        for path in [
            "alloc/out",
            "web/local/passwd",
            "web/local/token",
            "web/same/token",
            "web/secrets/token",
            "web/local/../secrets/token",
            "web/secrets",
            "..",
            "../outside",
            "web/../../outside",
        ] {
            assert_eq!(text(&tree, path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{path}");
        }
        assert_eq!(text(&tree, "web/local/circle").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(text(&tree, "web/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(text(&tree, "web/local").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn without_openat2_each_name_is_opened_alone_with_the_same_result() {
        let (_top, tree) = planted();
        let names = |path: &str| Path::new(path).iter().map(OsStr::to_owned).collect::<Vec<_>>();
        for path in
            ["web/local/deep/a", "web/local/way", "web/local/way/a", "web/local/deep/a/b", "web/none", "alloc/out"]
        {
            let (one, other) = (tree.literally(&names(path)), tree.step_by_step(&names(path)));
            assert_eq!(one.as_ref().err(), other.as_ref().err(), "{path}");
        }
    }

    #[test]
    fn directory_listing_omits_hidden_entries_and_counts_the_rest() {
        let (_top, tree) = planted();
        let names = |path: &str, most| {
            let (entries, omitted) = tree.list(&tree.find(path).unwrap(), most).unwrap();
            (entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect::<Vec<_>>(), omitted)
        };
        assert_eq!(names("web", 99), (vec!["local".to_owned(), "same".to_owned()], 0));
        assert_eq!(names("web/local", 99).0, ["circle", "deep", "file", "passwd", "token", "way"]);
        let (some, omitted) = names("web/local", 2);
        assert_eq!((some.len(), omitted), (2, 4));
        let file = tree.find("web/local/deep/a").unwrap();
        assert_eq!(tree.list(&file, 9).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!((file.facts.size_bytes, file.facts.kind), (6, FileType::RegularFile));
    }

    #[test]
    fn a_fifo_is_not_waited_for() {
        let (top, tree) = planted();
        let fifo = top.path().join("alloc/web/local/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(text(&tree, "web/local/fifo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    /// A task that replaces a directory by an outward link, and a file by a link to its secrets, while the tree is
    /// read.
    #[test]
    fn racer_that_swaps_links_for_seconds_gets_nothing_from_outside() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};
        let (top, tree) = planted();
        let local = top.path().join("alloc/web/local");
        std::fs::create_dir(local.join("real")).unwrap();
        std::fs::write(local.join("real/outside"), "inside").unwrap();
        std::fs::write(local.join("real/token"), "inside").unwrap();
        symlink("../../..", local.join("up")).unwrap();
        symlink("../secrets", local.join("hidden")).unwrap();
        let done = AtomicBool::new(false);
        let (mut read, mut swapped) = (0_u64, 0_u64);
        std::thread::scope(|scope| {
            let racer = scope.spawn(|| {
                let mut swaps = 0;
                while !done.load(Ordering::Relaxed) {
                    for other in ["up", "hidden"] {
                        // Replaced atomically: one of the two always exists.
                        let swap = rustix::fs::RenameFlags::EXCHANGE;
                        let (one, two) = (local.join("real"), local.join(other));
                        for _ in 0..2 {
                            rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, swap).unwrap();
                            swaps += 1;
                        }
                    }
                }
                swaps
            });
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                for path in ["web/local/real/outside", "web/local/real/token"] {
                    if let Ok(text) = text(&tree, path) {
                        assert_eq!(text, "inside", "{path}");
                        read += 1;
                    }
                }
                if let Ok(found) = tree.find("web/local/real") {
                    assert!(!found.names.contains(&OsString::from("secrets")) && !found.names.is_empty());
                }
            }
            done.store(true, Ordering::Relaxed);
            swapped = racer.join().unwrap();
        });
        assert!(read > 100 && swapped > 100, "{read} reads, {swapped} swaps: they met");
    }
}
