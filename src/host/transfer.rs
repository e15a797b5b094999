//! Moves a directory atomically: nothing is lost, and no reader sees it in both places.
//!
//! ```text
//! both places on one file system: rename
//! else: copy to a temporary name beside the target ─► sync ─► rename ─► remove the source
//! ```
//! A user's processes may create links in both places at any time: each component is opened without following links,
//! and the moved directory is compared with the one checked before.
//!
//! Source: rename(2) (EXDEV: another file system, or another project quota), openat(2), syncfs(2).

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::tree;

const WAY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Nesting depth: each level holds two descriptors open while it is copied.
const DEEPEST: usize = 100;
/// Bytes copied between two checks for cancellation.
const CHUNK: usize = 4 << 20;
/// Limit of one extended attribute and of the list of names. Source: `XATTR_SIZE_MAX`, `XATTR_LIST_MAX`.
const XATTR: usize = 64 << 10;

/// The result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveResult {
    /// The source does not exist.
    Absent,
    /// The target is not empty.
    Taken,
    Renamed,
    Copied,
}

/// The path of a directory: `root` is trusted, the components below it are not.
#[derive(Debug, Clone, Copy)]
pub struct RootedPath<'a> {
    pub root: &'a Path,
    /// The components below `root`; the last one is the directory's name.
    pub names: &'a [&'a str],
}

impl RootedPath<'_> {
    /// The parent directory, opened, and the name. `None`: it does not exist.
    fn open_parent(&self) -> io::Result<Option<(OwnedFd, &str)>> {
        let Some((name, above)) = self.names.split_last() else { return Err(io::ErrorKind::InvalidInput.into()) };
        if self.names.iter().any(|name| name.is_empty() || matches!(*name, "." | "..") || name.contains(['/', '\0'])) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let open = |at: BorrowedFd<'_>, path: &Path| match rustix::fs::openat(at, path, WAY, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some).map_err(io::Error::from),
        };
        let Some(mut at) = open(CWD, self.root)? else { return Ok(None) };
        for directory in above {
            let Some(next) = open(at.as_fd(), Path::new(directory))? else { return Ok(None) };
            at = next;
        }
        Ok(Some((at, name)))
    }
    /// Whether there is a directory. Errors: it, or one above it, is no directory.
    pub fn is_dir(&self) -> io::Result<bool> {
        let Some((parent, name)) = self.open_parent()? else { return Ok(false) };
        match rustix::fs::openat(&parent, name, WAY, Mode::empty()) {
            Err(Errno::NOENT) => Ok(false),
            opened => opened.map(|_| true).map_err(io::Error::from),
        }
    }
    /// Whether there is nothing, or an empty directory. Errors: it, or one above it, is no directory.
    pub fn is_free(&self) -> io::Result<bool> {
        let Some((parent, name)) = self.open_parent()? else { return Err(io::ErrorKind::NotFound.into()) };
        is_empty_or_absent(&parent, name)
    }
    fn path(&self) -> PathBuf {
        self.names.iter().fold(self.root.to_owned(), |path, name| path.join(name))
    }
}

/// Moves a directory to a path that is free or an empty directory. Idempotent. Setting `called_off` cancels it soon.
///
/// Errors: the source or the target is not a directory; an I/O error; `Interrupted`: cancelled. The source is intact
/// then.
pub fn move_dir(from: RootedPath<'_>, to: RootedPath<'_>, called_off: &AtomicBool) -> io::Result<MoveResult> {
    let Some((old_parent, old_name)) = from.open_parent()? else { return Ok(MoveResult::Absent) };
    let old = match rustix::fs::openat(&old_parent, old_name, WAY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(MoveResult::Absent),
        opened => opened?,
    };
    let Some((new_parent, new_name)) = to.open_parent()? else { return Err(io::ErrorKind::NotFound.into()) };
    if !is_empty_or_absent(&new_parent, new_name)? {
        return Ok(MoveResult::Taken);
    }
    let moved = match rustix::fs::renameat(&old_parent, old_name, &new_parent, new_name) {
        Ok(()) => MoveResult::Renamed,
        Err(Errno::XDEV) => {
            copy(&old, &new_parent, new_name, &to.path(), called_off)?;
            MoveResult::Copied
        }
        Err(e) => return Err(e.into()),
    };
    if moved == MoveResult::Renamed {
        must_be(&old, &new_parent, new_name).inspect_err(|_| {
            // It is another file or directory: move it back, or remove it.
            if rustix::fs::renameat(&new_parent, new_name, &old_parent, old_name).is_err() {
                let _ = tree::remove_in(new_parent.as_fd(), OsStr::new(new_name), &to.path());
            }
        })?;
        rustix::fs::fsync(&old_parent)?;
    }
    rustix::fs::fsync(&new_parent)?;
    if moved == MoveResult::Copied {
        // Leftovers are removed with their alloc: the target is complete.
        let _ = tree::remove_in(old_parent.as_fd(), OsStr::new(old_name), &from.path());
    }
    Ok(moved)
}

/// Errors: the directory was replaced before the rename.
fn must_be(moved: &OwnedFd, parent: &OwnedFd, name: &str) -> io::Result<()> {
    let now = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_it = is_same(&rustix::fs::fstat(moved)?, &now);
    if is_it { Ok(()) } else { Err(io::Error::other("it was replaced while it was moved")) }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn is_empty_or_absent(parent: &OwnedFd, name: &str) -> io::Result<bool> {
    let directory = match rustix::fs::openat(parent, name, WAY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(true),
        opened => opened?,
    };
    // One name alone: a task may have made millions.
    Ok(names(&directory)?.next().transpose()?.is_none())
}

/// The names in a directory, read as they are asked for.
fn names(directory: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<CString>>> {
    let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| match entry {
        Ok(entry) => (!matches!(entry.file_name().to_bytes(), b"." | b"..")).then(|| Ok(entry.file_name().to_owned())),
        Err(e) => Some(Err(e.into())),
    };
    Ok(Dir::read_from(directory)?.filter_map(name))
}

/// Copies to a temporary name beside the target, so that the target's name appears only when it is complete.
fn copy(old: &OwnedFd, new_parent: &OwnedFd, name: &str, path: &Path, called_off: &AtomicBool) -> io::Result<()> {
    let end = (0..=name.len().min(200)).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    let draft = format!(".{}.moving", &name[..end]);
    let draft_path = path.with_file_name(&draft);
    // Left by an agent that died.
    let remove = || tree::remove_in(new_parent.as_fd(), OsStr::new(&draft), &draft_path);
    remove().map_err(io::Error::other)?;
    let copied = (|| {
        let stat = rustix::fs::fstat(old)?;
        let new = new_directory(new_parent.as_fd(), &CString::new(draft.as_str())?)?;
        let mut copying = TreeCopy { called_off, device: stat.st_dev, linked: HashMap::new(), top: new.try_clone()? };
        copying.contents(old, &new, &mut Vec::new())?;
        rights(&new, old, &stat)?;
        rustix::fs::syncfs(&new)?;
        rustix::fs::renameat(new_parent, draft.as_str(), new_parent, name)?;
        must_be(&new, new_parent, name)
    })();
    if copied.is_err() {
        let _ = remove();
    }
    copied
}

fn new_directory(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
    Ok(rustix::fs::openat(parent, name, WAY, Mode::empty())?)
}

/// Copies owner, mode, extended attributes and times to an open file. The owner first, because chown clears the
/// set-user-ID bit.
fn rights(new: &OwnedFd, old: &OwnedFd, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    match rustix::fs::fchown(new, Some(uid), Some(gid)) {
        // Only root can change owners; another user's agent has only its own files.
        Ok(()) | Err(Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    rustix::fs::fchmod(new, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    extended_attributes(new, old)?;
    Ok(rustix::fs::futimens(new, &times(stat))?)
}

fn times(stat: &Stat) -> Timestamps {
    #[allow(clippy::cast_possible_wrap, reason = "nanoseconds are below 10^9")]
    let at = |secs, nanos: u64| Timespec { tv_sec: secs, tv_nsec: nanos as _ };
    Timestamps {
        last_access: at(stat.st_atime, stat.st_atime_nsec),
        last_modification: at(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn extended_attributes(new: &OwnedFd, old: &OwnedFd) -> io::Result<()> {
    let mut names = vec![0; XATTR];
    let length = match rustix::fs::flistxattr(old, &mut names) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        listed => listed?,
    };
    let mut value = vec![0; XATTR];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = match rustix::fs::fgetxattr(old, name, &mut value) {
            // Removed meanwhile.
            Err(Errno::NODATA) => continue,
            got => got?,
        };
        match rustix::fs::fsetxattr(new, name, &value[..length], rustix::fs::XattrFlags::empty()) {
            // The target file system does not support it, or the kernel reserves it.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// One copy of a tree to another file system.
struct TreeCopy<'a> {
    called_off: &'a AtomicBool,
    /// The device of the tree. An entry on another device is a mount, which is an error.
    device: u64,
    /// Files with several links: the path of the first copy, below the top.
    linked: HashMap<u64, PathBuf>,
    top: OwnedFd,
}

impl TreeCopy<'_> {
    fn check(&self) -> io::Result<()> {
        if self.called_off.load(Ordering::Relaxed) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    fn contents(&mut self, old: &OwnedFd, new: &OwnedFd, way: &mut Vec<CString>) -> io::Result<()> {
        if way.len() >= DEEPEST {
            return Err(io::Error::other(format!("more than {DEEPEST} directories in one another")));
        }
        for name in names(old)? {
            self.check()?;
            way.push(name?);
            let copied = self.entry(old, new, way);
            way.pop();
            copied?;
        }
        Ok(())
    }

    fn entry(&mut self, old: &OwnedFd, new: &OwnedFd, way: &mut Vec<CString>) -> io::Result<()> {
        let name = way.last().cloned().unwrap_or_default();
        let name = name.as_c_str();
        let stat = rustix::fs::statat(old, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stat.st_dev != self.device {
            return Err(io::Error::other(format!("something is mounted on {}", shown(way))));
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let from = rustix::fs::openat(old, name, WAY, Mode::empty())?;
                let to = new_directory(new.as_fd(), name)?;
                self.contents(&from, &to, way)?;
                rights(&to, &from, &stat)
            }
            FileType::RegularFile => self.file(old, new, way, &stat),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(old, name, Vec::new())?;
                rustix::fs::symlinkat(target, new, name)?;
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                let _ = rustix::fs::chownat(new, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
                Ok(rustix::fs::utimensat(new, name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            FileType::Fifo => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                rustix::fs::mknodat(new, name, FileType::Fifo, mode, 0)?;
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                let _ = rustix::fs::chownat(new, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
                Ok(())
            }
            // No process listens on it any more.
            FileType::Socket => Ok(()),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                Err(io::Error::other(format!("{} is a device", shown(way))))
            }
        }
    }

    fn file(&mut self, old: &OwnedFd, new: &OwnedFd, way: &[CString], stat: &Stat) -> io::Result<()> {
        let Some(name) = way.last() else { return Ok(()) };
        if stat.st_nlink > 1 {
            if let Some(first) = self.linked.get(&stat.st_ino) {
                return Ok(rustix::fs::linkat(&self.top, first, new, name.as_c_str(), AtFlags::empty())?);
            }
            self.linked.insert(stat.st_ino, exactly(way));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let from = rustix::fs::openat(old, name.as_c_str(), flags, Mode::empty())?;
        if !is_same(stat, &rustix::fs::fstat(&from)?) {
            return Err(io::Error::other(format!("{} was replaced while it was copied", shown(way))));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(new, name.as_c_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.bytes(&from, &to, size)?;
        // Restores a hole at the end.
        rustix::fs::ftruncate(&to, size)?;
        rights(&to, &from, stat)
    }

    /// Copies the data extents at the same offsets; holes stay holes.
    fn bytes(&self, from: &OwnedFd, to: &OwnedFd, size: u64) -> io::Result<()> {
        let mut at = 0;
        while at < size {
            let begin = match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                // The file system does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                begin => begin?,
            };
            let end = match rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(begin)) {
                Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
                end => end?.min(size),
            };
            let (mut read_at, mut write_at) = (begin, begin);
            while read_at < end {
                self.check()?;
                let most = usize::try_from(end - read_at).unwrap_or(CHUNK).min(CHUNK);
                let done = match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), most) {
                    Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        let done = through_memory(from, to, read_at, most)?;
                        (read_at, write_at) = (read_at + done as u64, write_at + done as u64);
                        done
                    }
                    done => done?,
                };
                if done == 0 {
                    return Err(io::Error::other("a file became shorter while it was copied"));
                }
            }
            at = end.max(begin + 1);
        }
        Ok(())
    }
}

fn through_memory(from: &OwnedFd, to: &OwnedFd, at: u64, most: usize) -> io::Result<usize> {
    let mut buffer = vec![0; most.min(256 << 10)];
    let length = rustix::io::pread(from, &mut buffer, at)?;
    let mut written = 0;
    while written < length {
        written += rustix::io::pwrite(to, &buffer[written..length], at + written as u64)?;
    }
    Ok(length)
}

/// The path below the top, byte for byte.
fn exactly(way: &[CString]) -> PathBuf {
    way.iter().map(|name| OsStr::from_bytes(name.to_bytes())).collect()
}

fn shown(way: &[CString]) -> String {
    way.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

    use super::*;

    struct MoveFixture {
        dir: tempfile::TempDir,
    }

    impl MoveFixture {
        fn new() -> MoveFixture {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("old/task")).unwrap();
            fs::create_dir_all(dir.path().join("new/task")).unwrap();
            MoveFixture { dir }
        }
        fn old(&self) -> PathBuf {
            self.dir.path().join("old/task/local")
        }
        fn new_one(&self) -> PathBuf {
            self.dir.path().join("new/task/local")
        }
        fn go(&self, called_off: bool) -> io::Result<MoveResult> {
            let (old, new) = (self.dir.path().join("old"), self.dir.path().join("new"));
            let names = ["task", "local"];
            move_dir(
                RootedPath { root: &old, names: &names },
                RootedPath { root: &new, names: &names },
                &AtomicBool::new(called_off),
            )
        }
        /// As if both places were on different file systems.
        fn copy(&self, called_off: &AtomicBool) -> io::Result<()> {
            let open = |path: &Path| rustix::fs::open(path, WAY, Mode::empty()).unwrap();
            let new = self.new_one();
            copy(&open(&self.old()), &open(new.parent().unwrap()), "local", &new, called_off)
        }
    }

    /// With modes, times, hard and symbolic links, a hole, a pipe and an odd name.
    fn fill(at: &Path) {
        fs::create_dir_all(at.join("deep/er")).unwrap();
        fs::write(at.join("deep/er/file"), vec![7; 300_000]).unwrap();
        fs::set_permissions(at.join("deep/er/file"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::hard_link(at.join("deep/er/file"), at.join("again")).unwrap();
        symlink("/etc/passwd", at.join("link")).unwrap();
        let sparse = fs::File::create(at.join("sparse")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (32 << 20) + 5).unwrap();
        fs::write(at.join(OsStr::from_bytes(b"odd\xff\nname")), "x").unwrap();
        rustix::fs::mknodat(CWD, at.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        fs::set_permissions(at.join("deep"), fs::Permissions::from_mode(0o750)).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::open(at.join("deep/er/file")).unwrap().set_modified(old).unwrap();
    }

    fn check(at: &Path) {
        let file = at.join("deep/er/file").metadata().unwrap();
        assert_eq!((file.mode() & 0o7777, file.mtime(), file.nlink()), (0o4751, 1_000_000_000, 2));
        assert_eq!(fs::read(at.join("again")).unwrap(), vec![7; 300_000]);
        assert_eq!(at.join("again").metadata().unwrap().ino(), file.ino());
        assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("/etc/passwd"));
        let sparse = at.join("sparse").metadata().unwrap();
        assert!(sparse.len() == 64 << 20 && sparse.blocks() * 512 < 1 << 20, "{} blocks", sparse.blocks());
        assert_eq!(&fs::read(at.join("sparse")).unwrap()[(32 << 20) + 5..][..3], b"end");
        assert_eq!(fs::read(at.join(OsStr::from_bytes(b"odd\xff\nname"))).unwrap(), b"x");
        assert!(at.join("pipe").metadata().unwrap().file_type().is_fifo());
        assert_eq!(at.join("deep").metadata().unwrap().mode() & 0o7777, 0o750);
    }

    #[test]
    fn directory_is_renamed_over_an_empty_one_and_repeating_it_changes_nothing() {
        for empty in [false, true] {
            let places = MoveFixture::new();
            assert_eq!(places.go(false).unwrap(), MoveResult::Absent);
            fs::create_dir(places.old()).unwrap();
            fill(&places.old());
            if empty {
                fs::create_dir(places.new_one()).unwrap();
            }
            let inode = places.old().metadata().unwrap().ino();
            assert_eq!(places.go(false).unwrap(), MoveResult::Renamed);
            assert_eq!(places.new_one().metadata().unwrap().ino(), inode);
            check(&places.new_one());
            assert_eq!(places.go(false).unwrap(), MoveResult::Absent);
            fs::create_dir(places.old()).unwrap();
            assert_eq!(places.go(false).unwrap(), MoveResult::Taken, "what is there stays");
            check(&places.new_one());
        }
    }

    #[test]
    fn copy_has_the_same_files_modes_links_holes_and_times() {
        let places = MoveFixture::new();
        fs::create_dir(places.old()).unwrap();
        fill(&places.old());
        // Left by an agent that died while it copied.
        fs::create_dir_all(places.new_one().with_file_name(".local.moving/half")).unwrap();
        places.copy(&AtomicBool::new(false)).unwrap();
        check(&places.new_one());
        check(&places.old());
        let sibling: Vec<_> = fs::read_dir(places.new_one().parent().unwrap()).unwrap().collect();
        assert_eq!(sibling.len(), 1, "no draft stays: {sibling:?}");
    }

    #[test]
    fn between_two_file_systems_it_is_copied_and_the_old_one_removed() {
        let shm =
            tempfile::tempdir_in("/dev/shm").expect("the kernel's own file system of shared memory must be there");
        let places = MoveFixture::new();
        fs::create_dir(places.old()).unwrap();
        fill(&places.old());
        assert_ne!(shm.path().metadata().unwrap().dev(), places.old().metadata().unwrap().dev());
        fs::create_dir(shm.path().join("task")).unwrap();
        let (old, names) = (places.dir.path().join("old"), ["task", "local"]);
        let moved = move_dir(
            RootedPath { root: &old, names: &names },
            RootedPath { root: shm.path(), names: &names },
            &AtomicBool::new(false),
        );
        assert_eq!(moved.unwrap(), MoveResult::Copied);
        check(&shm.path().join("task/local"));
        assert!(!places.old().exists());
    }

    #[test]
    fn failed_or_called_off_copy_leaves_the_old_one_whole_and_nothing_of_the_new() {
        let places = MoveFixture::new();
        fs::create_dir(places.old()).unwrap();
        fill(&places.old());
        let called_off = places.copy(&AtomicBool::new(true)).unwrap_err();
        assert_eq!(called_off.kind(), io::ErrorKind::Interrupted);
        let mut deep = places.old();
        for _ in 0..=DEEPEST {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        assert!(places.copy(&AtomicBool::new(false)).unwrap_err().to_string().contains("directories in one another"));
        check(&places.old());
        assert_eq!(fs::read_dir(places.new_one().parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn no_planted_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let places = MoveFixture::new();
        symlink(outside.path(), places.old()).unwrap();
        assert!(places.go(false).is_err(), "the directory itself");
        fs::remove_file(places.old()).unwrap();
        fs::create_dir(places.old()).unwrap();
        symlink(outside.path(), places.new_one()).unwrap();
        assert!(places.go(false).is_err(), "its new place");
        assert!(places.old().exists());
        fs::remove_dir_all(places.dir.path().join("old/task")).unwrap();
        symlink(outside.path(), places.dir.path().join("old/task")).unwrap();
        assert!(places.go(false).is_err(), "on the way");
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
        for names in [&["..", "x"][..], &["a/b"], &[""], &[]] {
            let root = places.dir.path();
            let odd = move_dir(RootedPath { root, names }, RootedPath { root, names }, &AtomicBool::new(false));
            assert_eq!(odd.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{names:?}");
        }
    }

    /// A user who swaps a directory for a link as fast as possible moves only files of its own.
    #[test]
    fn racer_that_swaps_the_directory_for_a_link_gets_nothing() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let places = MoveFixture::new();
        let (over, old) = (AtomicBool::new(false), places.old());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = fs::create_dir(&old);
                    let _ = fs::remove_dir(&old);
                    let _ = symlink(outside.path(), &old);
                    let _ = fs::remove_file(&old);
                }
            });
            let began = std::time::Instant::now();
            while began.elapsed() < std::time::Duration::from_millis(500) {
                if matches!(places.go(false), Ok(MoveResult::Renamed)) {
                    let moved = places.new_one().symlink_metadata().unwrap();
                    assert!(moved.is_dir(), "a link was taken for the directory");
                }
                let left = places.new_one().symlink_metadata().is_ok_and(|left| !left.is_dir());
                assert!(!left, "a link stays in the new place");
                let _ = fs::remove_dir(places.new_one());
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    }
}
