//! From the staging to the destination, by rename: what a task's user plants there is replaced, never followed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, openat};
use rustix::io::Errno;

use super::meter::{UnpackMeter, fault};
use super::order::{ArtifactError, ArtifactOrder, ArtifactScope};
use super::staging::{Staging, TREE};
use super::tree::{DEEPEST, each_name, hostile, inspect};
use super::unpack::UnpackedTree;
use crate::host::beneath;
use crate::host::whole_dir::{self, DirRights};
use crate::telemetry::artifacts::ArtifactOutcome;

const WAY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Moves what was made to the destination. A directory that is there already is merged with it.
pub(super) fn install(
    staging: &Staging,
    placed: UnpackedTree,
    order: &ArtifactOrder,
    scope: &ArtifactScope,
    meter: &UnpackMeter<'_>,
) -> Result<(), ArtifactError> {
    let broken = |e: io::Error| fault(&e, ArtifactOutcome::Archive, "cannot use it");
    let failed = |e: io::Error| fault(&e, ArtifactOutcome::Install, "cannot put it at its destination");
    let mut top = openat(staging.directory(), TREE, WAY, Mode::empty()).map_err(|e| broken(e.into()))?;
    let components: Vec<&str> = order.components.iter().map(String::as_str).collect();
    let recounted = meter.recount();
    let merge = TreeMerge { owner: scope.owner, meter: &recounted };
    match placed {
        UnpackedTree::Directory => {
            if let Some(subdirectory) = &order.source.subdirectory {
                top = below(&top, subdirectory, &meter.recount()).map_err(broken)?;
                // A link that stayed within the whole may lead out of a part.
                inspect(&top, &meter.recount()).map_err(broken)?;
            }
            let to = beneath::directory(&order.root, &components, scope.owner).map_err(failed)?;
            merge.all(&top, &to, 0).map_err(failed)
        }
        UnpackedTree::File(path) => {
            let (Some((name, above)), Some((file, way))) = (components.split_last(), path.split_last()) else {
                return Err(ArtifactError::new(ArtifactOutcome::Install, "its destination names no file"));
            };
            for component in way {
                top = openat(&top, component.as_str(), WAY, Mode::empty()).map_err(|e| broken(e.into()))?;
            }
            let to = beneath::directory(&order.root, above, scope.owner).map_err(failed)?;
            let name_of = |name: &str| CString::new(name).map_err(io::Error::from);
            let moved = name_of(file).and_then(|file| merge.one(&top, &file, &to, name_of(name)?.as_c_str()));
            moved.map_err(failed)
        }
    }
}

/// The directory of that path; `*` stands for any characters of the only name that fits.
fn below(top: &OwnedFd, path: &str, meter: &UnpackMeter<'_>) -> io::Result<OwnedFd> {
    let mut at = openat(top, ".", WAY, Mode::empty())?;
    for pattern in path.split('/').filter(|component| !matches!(*component, "" | ".")) {
        let missing = |why: &str| io::Error::new(io::ErrorKind::NotFound, format!("the subdirectory {path:?} {why}"));
        let name = if pattern.contains('*') {
            let mut only = None;
            each_name(&at, meter, |name| match only {
                _ if !fits(pattern.as_bytes(), name.to_bytes()) => Ok(()),
                None => {
                    only = Some(name.to_owned());
                    Ok(())
                }
                Some(_) => Err(missing("fits more than one of its directories")),
            })?;
            only.ok_or_else(|| missing("is not in it"))?
        } else {
            CString::new(pattern)?
        };
        at = match openat(&at, name.as_c_str(), WAY, Mode::empty()) {
            Err(Errno::NOENT) => return Err(missing("is not in it")),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(missing("is no directory")),
            opened => opened?,
        };
    }
    Ok(at)
}

/// Each `*` takes as little as it can, in the order of the pattern: linear in its parts.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'*').collect();
    let (Some((first, rest)), Some((last, _))) = (parts.split_first(), parts.split_last()) else { return false };
    let Some((_, middle)) = rest.split_last() else { return pattern == name };
    let inner = name.strip_prefix(*first).and_then(|name| name.strip_suffix(*last));
    let Some(mut inner) = inner else { return false };
    for part in middle.iter().filter(|part| !part.is_empty()) {
        let Some(at) = inner.windows(part.len()).position(|window| window == *part) else { return false };
        inner = inner.get(at + part.len()..).unwrap_or_default();
    }
    true
}

fn shown(name: &CStr) -> String {
    name.to_string_lossy().chars().take(200).collect()
}

struct TreeMerge<'a> {
    owner: Option<(u32, u32)>,
    meter: &'a UnpackMeter<'a>,
}

impl TreeMerge<'_> {
    fn all(&self, from: &OwnedFd, to: &OwnedFd, depth: usize) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is more than {DEEPEST} directories deep"),
            ));
        }
        each_name(from, self.meter, |name| {
            let found = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(found.st_mode);
            let moved = if kind.is_dir() { self.tree(from, name, to, depth) } else { self.one(from, name, to, name) };
            // A bound that was reached stays one.
            moved.map_err(|e| match e.raw_os_error() {
                Some(_) => io::Error::new(e.kind(), format!("{:?}: {e}", shown(name))),
                None => e,
            })
        })
    }

    fn tree(&self, from: &OwnedFd, name: &CStr, to: &OwnedFd, depth: usize) -> io::Result<()> {
        let whole = || rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE);
        match whole() {
            Ok(()) => return Ok(()),
            // EXIST: it is merged. XDEV: another file system. INVAL: one that does not know the flag.
            Err(Errno::EXIST | Errno::XDEV | Errno::INVAL | Errno::NOSYS) => {}
            Err(e) => return Err(e.into()),
        }
        let inner = openat(from, name, WAY, Mode::empty())?;
        let rights = DirRights { mode: rustix::fs::fstat(&inner)?.st_mode & 0o777, owner: self.owner };
        let there = match openat(to, name, WAY, Mode::empty()) {
            // A link or a file.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                rustix::fs::unlinkat(to, name, AtFlags::empty())?;
                whole_dir::open(to, name, rights)?
            }
            _ => whole_dir::open(to, name, rights)?,
        };
        self.all(&inner, &there, depth + 1)
    }

    /// A file or a link; one that is there is replaced in one step.
    fn one(&self, from: &OwnedFd, name: &CStr, to: &OwnedFd, target: &CStr) -> io::Result<()> {
        match rustix::fs::renameat(from, name, to, target) {
            Err(Errno::XDEV) => self.copied(from, name, to, target),
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                let message = format!("{:?} is a directory there, and a file is to replace it", shown(target));
                Err(io::Error::new(io::ErrorKind::IsADirectory, message))
            }
            moved => Ok(moved?),
        }
    }

    fn copied(&self, from: &OwnedFd, name: &CStr, to: &OwnedFd, target: &CStr) -> io::Result<()> {
        let draft = format!(".{}.allostat", shown(target).chars().take(60).collect::<String>());
        match rustix::fs::unlinkat(to, draft.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let copied =
            self.draft(from, name, to, &draft).and_then(|()| Ok(rustix::fs::renameat(to, draft.as_str(), to, target)?));
        if copied.is_err() {
            let _ = rustix::fs::unlinkat(to, draft.as_str(), AtFlags::empty());
        }
        copied
    }

    fn draft(&self, from: &OwnedFd, name: &CStr, to: &OwnedFd, draft: &str) -> io::Result<()> {
        let owner = self.owner.map(|(uid, gid)| (Uid::from_raw(uid), Gid::from_raw(gid)));
        let found = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode).is_symlink() {
            let link = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(&link, to, draft)?;
            if let Some((uid, gid)) = owner {
                rustix::fs::chownat(to, draft, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
        } else {
            let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let mut source = File::from(openat(from, name, read, Mode::empty())?);
            let opened = rustix::fs::fstat(&source)?;
            let uid = self.owner.map_or(rustix::process::geteuid().as_raw(), |(uid, _)| uid);
            let is_it = (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino);
            // Another link of a file that the user cannot read would give it away.
            if !is_it || !FileType::from_raw_mode(opened.st_mode).is_file() || opened.st_uid != uid {
                return Err(hostile(format!("{:?} is no regular file of the task's user", shown(name))));
            }
            let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut copy = File::from(openat(to, draft, write, Mode::RUSR | Mode::WUSR)?);
            self.meter.copy(&mut source, &mut copy)?;
            if let Some((uid, gid)) = owner {
                rustix::fs::fchown(&copy, Some(uid), Some(gid))?;
            }
            rustix::fs::fchmod(copy.as_fd(), Mode::from_raw_mode(opened.st_mode & 0o777))?;
        }
        Ok(())
    }
}
