//! Creates directories with their modes and owners, and tightens those that an earlier agent left too open.
//!
//! A task may own a parent directory and replace entries in it meanwhile. So no directory is reached through a link,
//! and mode and owner are set on the open descriptor, whatever the path leads to by then. The mode of an existing
//! directory is never widened, except that of the data directory under root.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Dir, Gid, IFlags, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::host::access::{self, DIRECTORY, is_directory};
use crate::host::secrets_fs;
use crate::host::whole_dir::{self, DirRights, may_be_unfinished};
use crate::telemetry::lock;

/// Numeric owner of a task's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    pub uid: u32,
    pub gid: u32,
}

/// The mode bits of group and others.
const GROUP_AND_OTHER: u32 = 0o077;
const STICKY: u32 = 0o1000;

/// For `alloc/<alloc id>/alloc` and its entries. The directory above is closed, and within it no task can move entries
/// of another. World-writable with the sticky bit, because only then the kernel protects from planted links and pipes
/// (`fs.protected_*`).
pub(super) const SHARED: u32 = 0o1777;
/// The same without ACLs: accessible only for the agent's user.
const CLOSED: u32 = 0o1700;
/// For the directory of an alloc: the users of its tasks may traverse it, by an ACL.
pub(super) const ALLOC: u32 = 0o700;
/// The same without ACLs: every user may traverse it.
const PASSAGE: u32 = 0o711;
/// For a task's own directories.
pub(super) const TASK: u32 = 0o700;
pub(super) const LOGS: u32 = 0o750;

/// Target state of a directory.
pub(super) struct DirectoryTarget<'a> {
    pub path: &'a Path,
    pub mode: u32,
    /// `None`: the agent's user.
    pub owner: Option<FileOwner>,
}

impl<'a> DirectoryTarget<'a> {
    pub fn owned_by_agent(path: &'a Path, mode: u32) -> DirectoryTarget<'a> {
        DirectoryTarget { path, mode, owner: None }
    }
}

pub(super) fn make_dirs<const N: usize>(target: [DirectoryTarget<'_>; N]) -> io::Result<()> {
    target.iter().try_for_each(|w| make_dir(w).map_err(|e| explain(w.path, &e)))
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The mode to set: never wider than the current one or the wanted one; sticky if wanted and writable by others. Pure.
fn tightened(found: u32, requested: u32) -> u32 {
    let open = found & requested & 0o777;
    let sticky = if open & 0o022 != 0 { requested & STICKY } else { 0 };
    (found & 0o7000) | sticky | open
}

/// Creates the last directory of a path, or tightens it if it exists.
///
/// Errors: the path exists and is no directory.
pub(super) fn make_dir(target: &DirectoryTarget<'_>) -> io::Result<()> {
    let (Some(parent), Some(name)) = (target.path.parent(), target.path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no parent directory"));
    };
    let parent = rustix::fs::open(parent, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let made = match whole_dir::begin(&parent, name) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e.into()),
    };
    if !made {
        // Checked without opening it: a directory with the right mode need not be readable for the agent.
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_directory(&stat) {
            return Err(not_a_directory());
        }
        if is_right(&stat, target) {
            return Ok(());
        }
    }
    let directory = rustix::fs::openat(&parent, name, DIRECTORY, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => not_a_directory(),
        e => e.into(),
    })?;
    let rights = DirRights { mode: target.mode, owner: target.owner.map(|owner| (owner.uid, owner.gid)) };
    if whole_dir::finish(&directory, rights)? {
        return Ok(());
    }
    if made && target.owner.is_some() {
        // By the owner of the parent; a foreign directory must not change its owner.
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it was replaced during its creation"));
    }
    adopt(&parent, &directory, target.owner)?;
    tighten(&directory, target.mode).map(drop)
}

/// Whether it is a directory that an agent has finished.
pub(super) fn is_whole_dir(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|stat| is_directory(&stat) && !may_be_unfinished(&stat))
}

/// Hints to ext4 that the directories created in this one are unrelated, so that it spreads them over the disk.
/// Otherwise ext4 looks for a free inode near the parent, past all that were removed there in the last minutes: after
/// some thousands, each new directory takes a tenth of a millisecond or more. Other file systems ignore the hint.
///
/// Source: chattr(1), `T`; `find_group_orlov` and `recently_deleted` in the kernel's `fs/ext4/ialloc.c`.
pub(super) fn spread(path: &Path) {
    let hint = || -> io::Result<()> {
        let directory = access::open_dir(path)?;
        let flags = rustix::fs::ioctl_getflags(&directory)?;
        if !flags.contains(IFlags::TOPDIR) {
            rustix::fs::ioctl_setflags(&directory, flags | IFlags::TOPDIR)?;
        }
        Ok(())
    };
    if let Err(error) = hint() {
        tracing::debug!(path = %path.display(), %error, "cannot set the directory placement hint (chattr +T)");
    }
}

fn is_right(stat: &Stat, target: &DirectoryTarget<'_>) -> bool {
    let mode = stat.st_mode & 0o7777;
    !may_be_unfinished(stat)
        && stat.st_uid == target.owner.map_or_else(us, |owner| owner.uid)
        && tightened(mode, target.mode) == mode
}

fn give(directory: &OwnedFd, owner: Option<FileOwner>) -> io::Result<()> {
    let Some(FileOwner { uid, gid }) = owner else { return Ok(()) };
    Ok(rustix::fs::fchown(directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Gives a directory below another one to its owner, without its entries.
pub(super) fn give_below(root: &Path, names: &[&str], owner: FileOwner) -> io::Result<()> {
    let mut at = access::open_dir(root)?;
    for name in names {
        at = rustix::fs::openat(&at, *name, DIRECTORY, Mode::empty())?;
    }
    give(&at, Some(owner))
}

/// Corrects the owner of a directory that belongs to another user, unless that user may have created it: the account
/// has a new UID, or the agent ran as another user before.
fn adopt(parent: &OwnedFd, directory: &OwnedFd, owner: Option<FileOwner>) -> io::Result<()> {
    if us() != 0 || rustix::fs::fstat(directory)?.st_uid == owner.map_or(0, |owner| owner.uid) {
        return Ok(());
    }
    let above = rustix::fs::fstat(parent)?;
    if above.st_uid != 0 || above.st_mode & 0o022 != 0 {
        return Ok(());
    }
    give(directory, owner.or(Some(FileOwner { uid: 0, gid: 0 })))
}

/// Returns whether the mode changed. Directories of other users stay as they are unless the agent is root.
fn tighten(directory: &OwnedFd, requested: u32) -> io::Result<bool> {
    let stat = rustix::fs::fstat(directory)?;
    let mode = stat.st_mode & 0o7777;
    let right = tightened(mode, requested);
    if right == mode || (stat.st_uid != us() && us() != 0) {
        return Ok(false);
    }
    rustix::fs::fchmod(directory, Mode::from_raw_mode(right))?;
    Ok(true)
}

fn not_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "something that is not a directory is there")
}

/// Mounts a tmpfs on the directory for secrets of a task.
pub(super) fn mount_secrets(alloc: &Path, task: &str, name: &str, owner: Option<FileOwner>) -> io::Result<()> {
    let task = rustix::fs::openat(access::open_dir(alloc)?, task, DIRECTORY, Mode::empty())?;
    let open = || rustix::fs::openat(&task, name, DIRECTORY, Mode::empty());
    let directory = open()?;
    if secrets_fs::is_mounted(directory.as_fd()) {
        return Ok(());
    }
    let mount = secrets_fs::mount(directory.as_fd(), owner.map(|owner| (owner.uid, owner.gid)))?;
    // Its owner may have moved the directory meanwhile: what is written by its path would reach the disk.
    if secrets_fs::is_mounted(open()?.as_fd()) {
        return Ok(());
    }
    secrets_fs::detach(mount.as_fd())?;
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "it was replaced while a tmpfs was mounted on it"))
}

/// Unmounts the secrets of every task of an alloc.
///
/// Errors: the first one that cannot be unmounted; the others are.
pub(super) fn unmount_secrets(alloc: &Path, name: &str) -> io::Result<()> {
    let alloc = match access::open_dir(alloc) {
        Ok(alloc) => alloc,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut result = Ok(());
    for (task, _) in owners(&alloc)? {
        let Some(task) = open_in(alloc.as_fd(), &task)? else { continue };
        result = result.and(secrets_fs::unmount(task.as_fd(), name).map(drop));
    }
    result
}

/// `None`: there is no directory of that name.
fn open_in(parent: BorrowedFd<'_>, name: &str) -> io::Result<Option<OwnedFd>> {
    match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Subdirectories by name, with their owners. Names that are no UTF-8 are skipped.
fn owners(directory: &OwnedFd) -> io::Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_directory(&stat) => found.push((name.to_owned(), stat.st_uid)),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

/// Name of the directory that the tasks of an alloc share, next to their own.
pub(super) const SHARED_NAME: &str = "alloc";

/// Controls which users may traverse the directories of allocs. Serialized: each change starts from the current users.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<bool>);

impl Gates {
    /// Lets the owners of an alloc's task directories traverse the alloc's directory, and no other user. Returns
    /// whether that changed. `newcomer`: the owner of a directory that was just created.
    pub fn close(&self, path: &Path, newcomer: Option<u32>) -> io::Result<bool> {
        let directory = access::open_dir(path)?;
        let newcomer = newcomer.filter(|uid| *uid != us());
        let stat = rustix::fs::fstat(&directory)?;
        let is_closed = stat.st_uid == us() && stat.st_mode & 0o067 == 0;
        let is_let_pass = |uid| access::traversal_users(&directory).map(|passers| passers.contains(&uid));
        if is_closed && newcomer.map_or(Ok(true), is_let_pass)? {
            return Ok(false);
        }
        let mut reported = lock(&self.0);
        if us() == 0 && stat.st_uid != 0 {
            // Created by an agent of that user, who could replace its entries.
            give(&directory, Some(FileOwner { uid: 0, gid: 0 }))?;
        }
        let peer = owners(&directory)?.into_iter().filter(|(name, _)| name != SHARED_NAME);
        let users: BTreeSet<u32> = peer.map(|(_, uid)| uid).chain(newcomer).filter(|uid| *uid != us()).collect();
        let (without_acl, shared) = if users.is_empty() {
            (Some(ALLOC), SHARED)
        } else if access::grant_traversal(&directory, &users)? {
            (None, SHARED)
        } else {
            if !std::mem::replace(&mut *reported, true) {
                tracing::warn!(
                    path = %path.display(),
                    "file system without ACLs: the shared directory of allocs is accessible only for the agent's user"
                );
            }
            (Some(PASSAGE), CLOSED)
        };
        if let Some(shared_dir) = open_in(directory.as_fd(), SHARED_NAME)? {
            let mode = rustix::fs::fstat(&shared_dir)?.st_mode & 0o7777;
            // Opened only when the directory above is closed by now; a mode that a task set stays.
            if shared == CLOSED && mode & GROUP_AND_OTHER != 0 || shared == SHARED && mode == CLOSED {
                rustix::fs::fchmod(&shared_dir, Mode::from_raw_mode(shared))?;
            }
        }
        if let Some(mode) = without_acl {
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
        }
        let after = rustix::fs::fstat(&directory)?;
        Ok(after.st_mode != stat.st_mode)
    }
}

/// Result of tightening the directories of an earlier agent.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TightenedDirectories {
    pub directories: u64,
    pub example: Option<String>,
    /// Directories that could not be tightened.
    pub problems: Vec<String>,
}

impl TightenedDirectories {
    fn note(&mut self, changed: io::Result<bool>, path: impl FnOnce() -> String) {
        match changed {
            Ok(false) => {}
            Ok(true) => {
                self.directories += 1;
                self.example.get_or_insert_with(path);
            }
            Err(error) => self.problems.push(format!("{}: {error}", path())),
        }
    }
}

/// Tightens an alloc's directory and its entries if it is open to others: earlier agents created it with mode 0755. It
/// is changed last. If it is tight already, this is a single check. Running tasks are unaffected: they are owners or
/// root.
pub(super) fn close_alloc(gates: &Gates, path: &Path, closed: &mut TightenedDirectories) {
    let name = |more: &[&str]| more.iter().fold(path.to_owned(), |path, name| path.join(name)).display().to_string();
    let is_open = || -> io::Result<Option<OwnedFd>> {
        let stat = rustix::fs::lstat(path)?;
        if !is_directory(&stat) || stat.st_mode & 0o067 == 0 {
            return Ok(None);
        }
        access::open_dir(path).map(Some)
    };
    let directory = match is_open() {
        Ok(Some(directory)) => directory,
        Ok(None) => return,
        Err(error) => return closed.note(Err(error), || name(&[])),
    };
    let inside = match owners(&directory) {
        Ok(inside) => inside,
        Err(error) => return closed.note(Err(error), || name(&[])),
    };
    for (child, owner) in inside {
        let (mode, below): (u32, &[(&str, u32)]) = match child.as_str() {
            SHARED_NAME => (SHARED, &[("data", SHARED), ("tmp", SHARED), ("logs", LOGS)]),
            _ => (TASK, &[("local", TASK), ("tmp", TASK), ("secrets", TASK), ("private", TASK)]),
        };
        let opened = match open_in(directory.as_fd(), &child) {
            Ok(Some(opened)) => opened,
            Ok(None) => continue,
            Err(error) => {
                closed.note(Err(error), || name(&[&child]));
                continue;
            }
        };
        closed.note(tighten(&opened, mode), || name(&[&child]));
        for (grandchild, mode) in below {
            let tightened = open_in(opened.as_fd(), grandchild).and_then(|found| {
                // A directory of another user, created by a task, is not changed.
                let own = |d: &OwnedFd| rustix::fs::fstat(d).map(|stat| stat.st_uid == owner);
                match found {
                    Some(directory) if own(&directory)? => tighten(&directory, *mode),
                    _ => Ok(false),
                }
            });
            closed.note(tightened, || name(&[&child, grandchild]));
        }
    }
    closed.note(gates.close(path, None), || name(&[]));
}

/// Entries of a data directory; some have temporary siblings while they are rewritten.
const KNOWN: [&str; 9] =
    ["lock", "allostat.sock", "cgroup-parent", "shown", "samples", "alloc", "run", "history", "lost+found"];
const WITH_SIBLINGS: [&str; 5] = ["state", "known-as", "device-uses", "observed", "otlp"];
/// Mode of the data directory: tasks of other users traverse it to reach their own.
pub(super) const DATA: u32 = 0o711;

/// Creates the data directory, with missing parents.
pub(super) fn make_root(path: &Path) -> io::Result<()> {
    make_way(path, DATA)
}

fn make_way(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::ErrorKind::InvalidInput.into()),
    };
    // The agent of an ordinary user runs tasks of that user alone: no other user needs access.
    make_way(parent, if us() == 0 { DATA } else { 0o700 })?;
    match std::fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let directory = access::open_dir(path)?;
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?)
}

/// Sets the mode of an existing data directory, and of its entries. A directory with other entries or a sticky bit was
/// created for other purposes and stays as it is.
pub(super) fn close_root(root: &Path) -> io::Result<()> {
    let directory = access::open_dir(root)?;
    let stat = rustix::fs::fstat(&directory)?;
    let mode = stat.st_mode & 0o7777;
    let is_own = stat.st_uid == us();
    let mut alien = None;
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let known = KNOWN.contains(&name.as_str()) || WITH_SIBLINGS.iter().any(|own| name.starts_with(own));
        if !known && name != "." && name != ".." {
            alien = Some(name);
            break;
        }
    }
    let widened = if us() == 0 { DATA & 0o011 } else { 0 };
    let right = tightened(mode, DATA) | widened;
    if right != mode && is_own && mode & STICKY == 0 && alien.is_none() {
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(right))?;
        let [before, now] = [mode, right].map(|mode| format!("{mode:04o}"));
        tracing::warn!(path = %root.display(), before, now, "mode of the data directory changed");
    } else if mode & 0o022 != 0 && mode & STICKY == 0 {
        tracing::warn!(
            path = %root.display(),
            alien,
            "other users can replace entries of the data directory: run `chmod go-w` on it"
        );
    }
    let own = ["shown", "samples", "device-uses", "observed"].map(|name| (name, 0o600));
    for (name, mode) in own.into_iter().chain([("cgroup-parent", 0o644)]) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&directory, name, flags, Mode::empty()) else { continue };
        tighten(&file, mode)?;
    }
    Ok(())
}

pub(super) fn explain(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }
    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn existing_mode_is_tightened_and_never_widened() {
        assert_eq!(tightened(0o777, TASK), 0o700);
        assert_eq!(tightened(0o500, TASK), 0o500);
        assert_eq!(tightened(0o777, SHARED), 0o1777);
        assert_eq!(tightened(0o755, SHARED), 0o755, "set by a task");
        assert_eq!(tightened(0o710, DATA), 0o710);
        assert_eq!(tightened(0o2755, LOGS), 0o2750);
    }

    #[test]
    fn data_directory_gets_its_mode_unless_it_has_other_uses() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b/data");
        make_root(&root).unwrap();
        let above = if us() == 0 { DATA } else { 0o700 };
        assert_eq!((mode(&root), mode(&dir.path().join("a"))), (DATA, above));
        for own in ["history", "otlp", "otlp-logs", "state.new"] {
            std::fs::create_dir(root.join(own)).unwrap();
        }
        for open in [0o777, 0o755, 0o775] {
            set(&root, open);
            close_root(&root).unwrap();
            assert_eq!(mode(&root), DATA, "{open:o}");
        }
        set(&root, 0o700);
        close_root(&root).unwrap();
        assert_eq!(
            mode(&root),
            if us() == 0 { DATA } else { 0o700 },
            "root's directory serves tasks of other users too"
        );
        set(&root, 0o1777);
        close_root(&root).unwrap();
        assert_eq!(mode(&root), 0o1777, "/tmp keeps its mode");
        set(&root, 0o775);
        std::fs::write(root.join("another's"), "").unwrap();
        close_root(&root).unwrap();
        assert_eq!(mode(&root), 0o775);
    }

    #[test]
    fn tree_of_an_earlier_agent_is_tightened_once() {
        let dir = tempfile::tempdir().unwrap();
        let alloc = dir.path().join("id");
        let old = [
            ("", 0o755, 0o700),
            ("alloc", 0o777, 0o1777),
            ("alloc/data", 0o1777, 0o1777),
            ("alloc/logs", 0o755, 0o750),
            ("web", 0o755, 0o700),
            ("web/local", 0o777, 0o700),
            ("web/tmp", 0o777, 0o700),
            ("web/secrets", 0o700, 0o700),
        ];
        for (name, before, _) in old {
            std::fs::create_dir(alloc.join(name)).unwrap();
            set(&alloc.join(name), before);
        }
        let elsewhere = dir.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        set(&elsewhere, 0o777);
        std::os::unix::fs::symlink(&elsewhere, alloc.join("web/private")).unwrap();
        let mut closed = TightenedDirectories::default();
        close_alloc(&Gates::default(), &alloc, &mut closed);
        assert_eq!((closed.directories, closed.problems.as_slice()), (6, &[][..]), "{closed:?}");
        for (name, _, after) in old {
            assert_eq!(mode(&alloc.join(name)), after, "{name}");
        }
        assert_eq!(mode(&elsewhere), 0o777, "links are not followed");
        let mut again = TightenedDirectories::default();
        close_alloc(&Gates::default(), &alloc, &mut again);
        assert_eq!(again, TightenedDirectories::default());
    }

    #[test]
    fn alloc_users_may_traverse_and_wrong_owners_are_corrected() {
        let dir = tempfile::tempdir().unwrap();
        let alloc = dir.path().join("id");
        let (shared, web) = (alloc.join(SHARED_NAME), alloc.join("web"));
        make_dirs([DirectoryTarget::owned_by_agent(&alloc, ALLOC), DirectoryTarget::owned_by_agent(&shared, SHARED)])
            .unwrap();
        let opened = access::open_dir(&alloc).unwrap();
        if us() != 0 || !access::keeps_acls(&alloc).unwrap() {
            return;
        }
        let gates = Gates::default();
        let of = |uid| Some(FileOwner { uid, gid: uid });
        for (task, uid) in [(&web, 1), (&alloc.join("db"), 2)] {
            make_dir(&DirectoryTarget { path: task, mode: TASK, owner: of(uid) }).unwrap();
            assert!(gates.close(&alloc, Some(uid)).is_ok());
            assert!(!gates.close(&alloc, Some(uid)).unwrap(), "they may traverse it already");
        }
        assert_eq!(access::traversal_users(&opened).unwrap(), BTreeSet::from([1, 2]));
        assert_eq!((mode(&alloc), mode(&shared)), (0o710, 0o1777));
        // The account has a new UID.
        make_dir(&DirectoryTarget { path: &web, mode: TASK, owner: of(3) }).unwrap();
        gates.close(&alloc, Some(3)).unwrap();
        assert_eq!(web.metadata().unwrap().uid(), 3);
        assert_eq!(access::traversal_users(&opened).unwrap(), BTreeSet::from([2, 3]));
        // A directory created by the task itself keeps its owner.
        std::fs::create_dir(web.join("local")).unwrap();
        std::os::unix::fs::chown(web.join("local"), Some(9), Some(9)).unwrap();
        make_dir(&DirectoryTarget { path: &web.join("local"), mode: TASK, owner: of(3) }).unwrap();
        assert_eq!(web.join("local").metadata().unwrap().uid(), 9);
    }
}
