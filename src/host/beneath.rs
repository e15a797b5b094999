//! Files below a directory in which another user may create symbolic links at any time: each component is opened
//! without following links.
//!
//! Source: openat(2) with `O_NOFOLLOW`, renameat(2).

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::untrusted;
use super::whole_dir::{self, DirRights};

const WAY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// The mode of parent directories that are created.
const DIRECTORY_MODE: u32 = 0o755;

/// Mode and owner of a file to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRights {
    pub mode: u32,
    /// uid and gid; `None`: those of the agent.
    pub owner: Option<(u32, u32)>,
}

/// Replaces a file atomically and creates missing parent directories with the same owner. `components`: the path below
/// `root`; the last one is the file name.
///
/// Errors: those of open(2), write(2) and rename(2); ELOOP, ENOTDIR: a parent is a symbolic link or a file;
/// `InvalidInput`: `components` is empty, or a name is not a single path component.
pub fn write(root: &Path, components: &[&str], bytes: &[u8], rights: FileRights) -> io::Result<()> {
    let (name, above) = checked(components)?;
    let owner = rights.owner.map(|(uid, gid)| (Uid::from_raw(uid), Gid::from_raw(gid)));
    let at = directory(root, above, rights.owner)?;
    let mut cut = name.len().min(200);
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    let draft = format!(".{}.allostat", name.get(..cut).unwrap_or_default());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || rustix::fs::openat(&at, draft.as_str(), flags, Mode::from_raw_mode(0o600));
    let file = match create() {
        // Left by an agent that died while writing, or created by another user.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&at, draft.as_str(), AtFlags::empty())?;
            create()?
        }
        created => created?,
    };
    let written = fill(file, bytes, rights.mode, owner).and_then(|()| {
        rustix::fs::renameat(&at, draft.as_str(), &at, *name)?;
        Ok(())
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&at, draft.as_str(), AtFlags::empty());
    }
    written
}

/// Opens a directory below `root`; creates it and its parents if they are missing. Without components: `root` itself.
///
/// Errors: those of [`write`].
pub fn directory(root: &Path, components: &[&str], owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    if !components.is_empty() {
        checked(components)?;
    }
    let mut at = rustix::fs::open(root, WAY, Mode::empty())?;
    for directory in components {
        at = whole_dir::open(&at, *directory, DirRights { mode: DIRECTORY_MODE, owner })?;
    }
    Ok(at)
}

/// Opens a directory below `root` that exists. Without components: `root` itself.
///
/// Errors: those of openat(2); ELOOP, ENOTDIR: a component is a symbolic link or a file.
pub fn existing(root: &Path, components: &[&str]) -> io::Result<OwnedFd> {
    if !components.is_empty() {
        checked(components)?;
    }
    let mut at = rustix::fs::open(root, WAY, Mode::empty())?;
    for directory in components {
        at = rustix::fs::openat(&at, *directory, WAY, Mode::empty())?;
    }
    Ok(at)
}

/// Names in a directory, sorted, and whether each is a directory. Names that are no UTF-8, links and special files are
/// left out.
///
/// Errors: those of getdents(2); `FileTooLarge`: it has more than `most` names.
pub fn names(directory: &OwnedFd, most: usize) -> io::Result<Vec<(String, bool)>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let kind = match entry.file_type() {
            // Some file systems do not report it.
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
                stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
            }
            known => known,
        };
        if matches!(name, "." | "..") || !(kind.is_file() || kind.is_dir()) {
            continue;
        }
        if found.len() == most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} names")));
        }
        found.push((name.to_owned(), kind.is_dir()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads a regular file of at most `limit` bytes below `root`.
///
/// Errors: as [`open`]'s; `FileTooLarge`: it is larger.
pub fn read(root: &Path, components: &[&str], limit: usize) -> io::Result<Vec<u8>> {
    untrusted::read_all(open(root, components)?, limit)
}

/// A regular file below `root`, to read.
///
/// Errors: as [`write`]'s; `InvalidInput`: no regular file.
pub fn open(root: &Path, components: &[&str]) -> io::Result<File> {
    let (name, above) = checked(components)?;
    let mut at = rustix::fs::open(root, WAY, Mode::empty())?;
    for directory in above {
        at = rustix::fs::openat(&at, *directory, WAY, Mode::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&at, *name, flags, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(File::from(file))
}

fn checked<'c, 'n>(components: &'c [&'n str]) -> io::Result<(&'c &'n str, &'c [&'n str])> {
    let is_one = |name: &&&str| !name.is_empty() && !matches!(**name, "." | "..") && !name.contains(['/', '\0']);
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a path below the directory");
    if components.iter().filter(is_one).count() != components.len() {
        return Err(invalid());
    }
    components.split_last().ok_or_else(invalid)
}

fn fill(file: OwnedFd, bytes: &[u8], mode: u32, owner: Option<(Uid, Gid)>) -> io::Result<()> {
    let mut file = File::from(file);
    file.write_all(bytes)?;
    if let Some((uid, gid)) = owner {
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_its_directories_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let rights = FileRights { mode: 0o640, owner: None };
        for text in ["one", "two"] {
            write(dir.path(), &["local", "etc", "app.conf"], text.as_bytes(), rights).unwrap();
            assert_eq!(read(dir.path(), &["local", "etc", "app.conf"], 3).unwrap(), text.as_bytes());
        }
        let mode = dir.path().join("local/etc/app.conf").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(std::fs::read_dir(dir.path().join("local/etc")).unwrap().count(), 1, "no draft stays");
        assert_eq!(read(dir.path(), &["local", "etc", "app.conf"], 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn names_of_a_directory_are_sorted_and_bounded_and_without_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/deep")).unwrap();
        std::fs::write(dir.path().join("a/x"), "").unwrap();
        symlink("x", dir.path().join("a/link")).unwrap();
        symlink("a", dir.path().join("way")).unwrap();
        let of = |components: &[&str], most| existing(dir.path(), components).and_then(|at| names(&at, most));
        assert_eq!(of(&["a"], 2).unwrap(), [("deep".to_owned(), true), ("x".to_owned(), false)]);
        assert_eq!(of(&["a"], 1).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(of(&[], 9).unwrap(), [("a".to_owned(), true)]);
        assert!(of(&["way"], 9).is_err() && of(&["none"], 9).is_err() && !dir.path().join("none").exists());
        assert_eq!(of(&[".."], 9).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn no_planted_link_is_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rights = FileRights { mode: 0o644, owner: None };
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        symlink(outside.path(), dir.path().join("way")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join(".file.allostat")).unwrap();
        assert!(write(dir.path(), &["way", "secret"], b"x", rights).is_err());
        assert!(read(dir.path(), &["way", "secret"], 99).is_err() && read(dir.path(), &["file"], 99).is_err());
        write(dir.path(), &["file"], b"own", rights).unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"own", "the link was replaced");
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
        for odd in [&["..", "x"][..], &["a/b"], &[""], &[], &["."]] {
            assert_eq!(write(dir.path(), odd, b"", rights).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{odd:?}");
        }
    }
}
