//! A directory tree that is made entry by entry from the names of an archive. Nothing is written through a link: each
//! component is opened in its directory without following one, and links that lead out of the tree are refused.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, openat};
use rustix::io::Errno;

use super::meter::UnpackMeter;
use super::staging::{Staging, TREE};

const WAY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Directories in directories.
pub const DEEPEST: usize = 128;
/// Of a whole name in an archive, in bytes. Source: limits.h, `PATH_MAX`.
const LONGEST_PATH: usize = 4096;

/// The components of a name in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPath(pub Vec<String>);

impl EntryPath {
    /// Empty: the top of the tree.
    ///
    /// Errors: it is absolute, has `..`, or is too long or too deep, in a sentence.
    pub fn parse(name: &[u8]) -> Result<EntryPath, String> {
        let shown = || String::from_utf8_lossy(name).chars().take(200).collect::<String>();
        let text = std::str::from_utf8(name).map_err(|_| format!("the name {:?} is no UTF-8", shown()))?;
        if name.len() > LONGEST_PATH || text.contains('\0') {
            return Err(format!("the name {:?} is too long or contains a zero byte", shown()));
        }
        if text.starts_with('/') {
            return Err(format!("{:?} is an absolute path", shown()));
        }
        let components: Vec<&str> = text.split('/').filter(|component| !matches!(*component, "" | ".")).collect();
        if components.contains(&"..") {
            return Err(format!("{:?} has a component `..`", shown()));
        }
        if components.len() > DEEPEST {
            return Err(format!("{:?} is more than {DEEPEST} directories deep", shown()));
        }
        Ok(EntryPath(components.into_iter().map(str::to_owned).collect()))
    }
    fn shown(&self) -> String {
        self.0.join("/").chars().take(200).collect()
    }
}

/// Whether a symbolic link at so many directories below a top stays below it, whatever other such links its way goes
/// through: `..` only at its beginning, and not more of them than there are directories above it.
pub(super) fn link_stays(target: &[u8], depth: usize) -> bool {
    let Ok(text) = std::str::from_utf8(target) else { return false };
    if text.is_empty() || text.starts_with('/') {
        return false;
    }
    let components: Vec<&str> = text.split('/').filter(|component| !matches!(*component, "" | ".")).collect();
    let up = components.iter().take_while(|component| **component == "..").count();
    up <= depth && !components.iter().skip(up).any(|component| *component == "..")
}

/// What an entry has besides its content.
#[derive(Debug, Clone, Default)]
pub struct EntryRights {
    pub mode: u32,
    /// Seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
    /// uid and gid; `None`: those of the tree.
    pub owner: Option<(u32, u32)>,
    /// Names and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl EntryRights {
    pub fn of_file(mode: u32, mtime: Option<i64>) -> EntryRights {
        EntryRights { mode, mtime: mtime.map(|seconds| (seconds, 0)), ..EntryRights::default() }
    }
    fn times(&self) -> Option<Timestamps> {
        let (tv_sec, nanos) = self.mtime?;
        let time = Timespec { tv_sec, tv_nsec: nanos.into() };
        Some(Timestamps { last_access: time, last_modification: time })
    }
}

pub struct ArchiveTree<'a> {
    top: OwnedFd,
    owner: Option<(Uid, Gid)>,
    meter: &'a UnpackMeter<'a>,
}

impl<'a> ArchiveTree<'a> {
    /// Empty, in a staging.
    pub fn new(
        staging: &Staging,
        owner: Option<(u32, u32)>,
        meter: &'a UnpackMeter<'a>,
    ) -> io::Result<ArchiveTree<'a>> {
        let owner = owner.map(|(uid, gid)| (Uid::from_raw(uid), Gid::from_raw(gid)));
        let top = made(&staging.directory(), TREE, 0o755, owner)?;
        Ok(ArchiveTree { top, owner, meter })
    }

    /// The directory of an entry; those on the way are made.
    fn parent(&self, above: &[String]) -> io::Result<OwnedFd> {
        let mut at = self.top.try_clone()?;
        for name in above {
            at = match openat(&at, name.as_str(), WAY, Mode::empty()) {
                Err(Errno::NOENT) => {
                    self.meter.enters()?;
                    made(&at, name, 0o755, self.owner)?
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    return Err(hostile(format!("{name:?} is no directory, and an entry is to be written through it")));
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    fn place<'p>(&self, path: &'p EntryPath) -> io::Result<(OwnedFd, &'p str)> {
        let (name, above) = path.0.split_last().ok_or_else(|| hostile("an entry that is no directory has no name"))?;
        Ok((self.parent(above)?, name))
    }

    pub fn directory(&self, path: &EntryPath, mode: u32) -> io::Result<()> {
        self.meter.enters()?;
        let Some((name, above)) = path.0.split_last() else { return Ok(()) };
        let parent = self.parent(above)?;
        made(&parent, name, mode, self.owner).map(drop).map_err(|e| named(path, e))
    }

    /// A directory whose mode and time are set by [`ArchiveTree::finish`], when everything is in it.
    pub fn begin(&self, path: &EntryPath, rights: &EntryRights) -> io::Result<()> {
        self.meter.enters()?;
        let Some((name, above)) = path.0.split_last() else { return Ok(()) };
        let parent = self.parent(above)?;
        let directory = made(&parent, name, 0o700, self.owner_of(rights)).map_err(|e| named(path, e))?;
        set_xattrs(directory.as_fd(), &rights.xattrs).map_err(|e| named(path, e))
    }
    /// Gives a directory its mode, with the setgid and sticky bits, and its time.
    pub fn finish(&self, path: &EntryPath, rights: &EntryRights) -> io::Result<()> {
        let mut at = self.top.try_clone()?;
        for name in &path.0 {
            at = openat(&at, name.as_str(), WAY, Mode::empty()).map_err(|e| named(path, e.into()))?;
        }
        rustix::fs::fchmod(&at, Mode::from_raw_mode(rights.mode & 0o3777))?;
        if let Some(times) = rights.times() {
            let _ = rustix::fs::futimens(&at, &times);
        }
        Ok(())
    }

    fn owner_of(&self, rights: &EntryRights) -> Option<(Uid, Gid)> {
        let own = rights.owner.map(|(uid, gid)| (Uid::from_raw(uid), Gid::from_raw(gid)));
        own.or(self.owner)
    }

    /// A regular file with all that the reader gives. One of that name is replaced.
    pub fn file(&self, path: &EntryPath, rights: &EntryRights, from: &mut dyn Read) -> io::Result<()> {
        self.file_by(path, rights, &mut |file| self.meter.copy(from, file).map(drop))
    }

    /// A regular file with all that `fill` writes. One of that name is replaced.
    pub fn file_by(
        &self,
        path: &EntryPath,
        rights: &EntryRights,
        fill: &mut dyn FnMut(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        self.meter.enters()?;
        let (parent, name) = self.place(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.clear(&parent, name).map_err(|e| named(path, e))?;
        let file = openat(&parent, name, flags, Mode::from_raw_mode(0o600)).map_err(|e| named(path, e.into()))?;
        let mut file = File::from(file);
        fill(&mut file)?;
        self.grant(path, rights, &file)
    }

    /// Moves an open regular file of the staging here. One of that name is replaced.
    pub(super) fn adopt(
        &self,
        path: &EntryPath,
        rights: &EntryRights,
        (from, old_name, file): (BorrowedFd<'_>, &str, &File),
    ) -> io::Result<()> {
        self.meter.enters()?;
        let (parent, name) = self.place(path)?;
        self.grant(path, rights, file)?;
        rustix::fs::renameat(from, old_name, &parent, name).map_err(|e| named(path, e.into()))
    }

    fn grant(&self, path: &EntryPath, rights: &EntryRights, file: &File) -> io::Result<()> {
        set_xattrs(file.as_fd(), &rights.xattrs).map_err(|e| named(path, e))?;
        if let Some((uid, gid)) = self.owner_of(rights) {
            rustix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        // Without setuid, setgid and sticky bits.
        rustix::fs::fchmod(file, Mode::from_raw_mode(rights.mode & 0o777))?;
        if let Some(times) = rights.times() {
            // A time that the file system does not keep is no reason to fail.
            let _ = rustix::fs::futimens(file, &times);
        }
        Ok(())
    }

    pub fn symlink(&self, path: &EntryPath, target: &[u8], rights: &EntryRights) -> io::Result<()> {
        self.meter.enters()?;
        let depth = path.0.len().saturating_sub(1);
        if !link_stays(target, depth) {
            let target = String::from_utf8_lossy(target).chars().take(200).collect::<String>();
            return Err(hostile(format!("the link {:?} leads to {target:?}, out of the archive", path.shown())));
        }
        let (parent, name) = self.place(path)?;
        self.clear(&parent, name).map_err(|e| named(path, e))?;
        rustix::fs::symlinkat(target, &parent, name).map_err(|e| named(path, e.into()))?;
        if let Some((uid, gid)) = self.owner_of(rights) {
            rustix::fs::chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(times) = rights.times() {
            let _ = rustix::fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
        Ok(())
    }

    /// A second name of a file of the same archive.
    pub fn hard_link(&self, path: &EntryPath, target: &EntryPath) -> io::Result<()> {
        self.meter.enters()?;
        let odd = || hostile(format!("the hard link {:?} leads to no file of the archive", path.shown()));
        let (of, above) = target.0.split_last().ok_or_else(odd)?;
        let mut from = self.top.try_clone()?;
        for name in above {
            from = openat(&from, name.as_str(), WAY, Mode::empty()).map_err(|_| odd())?;
        }
        let found = rustix::fs::statat(&from, of.as_str(), AtFlags::SYMLINK_NOFOLLOW).map_err(|_| odd())?;
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Err(odd());
        }
        let (parent, name) = self.place(path)?;
        if path == target {
            return Ok(());
        }
        self.clear(&parent, name).map_err(|e| named(path, e))?;
        rustix::fs::linkat(&from, of.as_str(), &parent, name, AtFlags::empty()).map_err(|e| named(path, e.into()))
    }

    /// Makes place for an entry of that name that comes again.
    fn clear(&self, parent: &OwnedFd, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub fn top(&self) -> &OwnedFd {
        &self.top
    }
}

fn made(at: &impl AsFd, name: &str, mode: u32, owner: Option<(Uid, Gid)>) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let directory = openat(at, name, WAY, Mode::empty())?;
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(&directory, Some(uid), Some(gid))?;
    }
    // The owner can always work in it, and so can we while it is unpacked.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode((mode & 0o777) | 0o700))?;
    Ok(directory)
}

fn set_xattrs(file: BorrowedFd<'_>, xattrs: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
    for (name, value) in xattrs {
        match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
            // The file system does not support them.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Of an archive that is broken or hostile.
pub fn hostile(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Of an archive that ends too early.
pub(super) fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive breaks off")
}

fn named(path: &EntryPath, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{:?}: {error}", path.shown()))
}

/// Checks a tree that another program made: every link stays in it, there are files, directories and links alone, and
/// not more of them than allowed. Gives the bytes of its files.
pub(super) fn inspect(top: &impl AsFd, meter: &UnpackMeter<'_>) -> io::Result<u64> {
    let top = openat(top, ".", WAY, Mode::empty())?;
    inspect_below(&top, 0, meter)
}

fn inspect_below(at: &OwnedFd, depth: usize, meter: &UnpackMeter<'_>) -> io::Result<u64> {
    if depth > DEEPEST {
        return Err(hostile(format!("it is more than {DEEPEST} directories deep")));
    }
    let mut bytes = 0_u64;
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        meter.enters()?;
        let found = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let shown = || name.to_string_lossy().chars().take(200).collect::<String>();
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => {
                let size = u64::try_from(found.st_size).unwrap_or(0);
                meter.unpacks(size)?;
                bytes = bytes.saturating_add(size);
            }
            FileType::Directory => {
                let below = openat(at, name, WAY, Mode::empty())?;
                bytes = bytes.saturating_add(inspect_below(&below, depth + 1, meter)?);
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(at, name, Vec::new())?;
                if !link_stays(target.to_bytes(), depth) {
                    let target: PathBuf = target.to_string_lossy().chars().take(200).collect::<String>().into();
                    return Err(hostile(format!("the link {:?} leads to {target:?}, out of the tree", shown())));
                }
            }
            other => return Err(hostile(format!("{:?} is a {other:?}, and no file, directory or link", shown()))),
        }
    }
    Ok(bytes)
}

/// Calls this with each name in a directory, which may move it away. Each counts as an entry; none is held.
pub(super) fn each_name(
    at: &OwnedFd,
    meter: &UnpackMeter<'_>,
    mut with: impl FnMut(&CStr) -> io::Result<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            meter.counts()?;
            with(entry.file_name())?;
        }
    }
    Ok(())
}

/// The regular files below a directory, at most so many of them. Two descriptors are open at once.
pub(super) fn files(top: &OwnedFd, most: usize) -> io::Result<Vec<Vec<String>>> {
    let mut found = Vec::new();
    let mut ahead: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = ahead.pop() {
        let mut at = openat(top, ".", WAY, Mode::empty())?;
        for name in &path {
            at = openat(&at, name.as_str(), WAY, Mode::empty())?;
        }
        for entry in Dir::read_from(&at)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..")) else {
                continue;
            };
            let here = || path.iter().map(String::as_str).chain([name]).map(str::to_owned).collect();
            let kind = FileType::from_raw_mode(rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
            if kind.is_dir() {
                ahead.push(here());
            } else if kind.is_file() {
                found.push(here());
            }
            if found.len() >= most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}
