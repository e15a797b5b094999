//! Access rights: who may traverse a directory (its mode and its POSIX ACL), and files that no other user can change.
//!
//! Source: acl(5). `include/uapi/linux/posix_acl_xattr.h` defines the bytes of `system.posix_acl_access`: a version,
//! then entries of tag, permissions and id, little-endian, sorted by tag and id.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

use super::process::Account;
use super::untrusted;

const NAME: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
/// In bytes. An inode of ext4 holds fewer entries.
const LARGEST: usize = 8 * 1024;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

const PASS: u16 = 1;
const ALL: u16 = 7;

/// An entry of a POSIX ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for Entry { tag, permissions, id } in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// `None`: the bytes have another version or are not an ACL.
fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = bytes.split_first_chunk::<4>()?;
    let entry = |e: &[u8; 8]| Entry {
        tag: u16::from_le_bytes([e[0], e[1]]),
        permissions: u16::from_le_bytes([e[2], e[3]]),
        id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
    };
    let (entries, odd) = rest.as_chunks::<8>();
    (u32::from_le_bytes(*version) == VERSION && odd.is_empty()).then(|| entries.iter().map(entry).collect())
}

/// Decodes the ACL that `read` returns for a directory. `None`: the file system does not support ACLs. Empty: the
/// directory has no ACL.
fn entries(read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Option<Vec<Entry>>> {
    let mut bytes = [0; LARGEST];
    match read(&mut bytes) {
        Ok(length) => match bytes.get(..length).and_then(decode) {
            Some(entries) => Ok(Some(entries)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "its POSIX ACL has an unknown format")),
        },
        Err(Errno::NODATA) => Ok(Some(Vec::new())),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether the file system supports POSIX ACLs.
pub fn keeps_acls(directory: &Path) -> io::Result<bool> {
    Ok(entries(|bytes| rustix::fs::getxattr(directory, NAME, bytes))?.is_some())
}

/// The users, besides the owner, to whom the ACL grants traversal by uid.
pub fn traversal_users(directory: &OwnedFd) -> io::Result<BTreeSet<u32>> {
    let entries = entries(|bytes| rustix::fs::fgetxattr(directory, NAME, bytes))?.unwrap_or_default();
    let masked = entries.iter().any(|e| e.tag == MASK && e.permissions & PASS == 0);
    let passes = |e: &&Entry| e.tag == USER && e.permissions & PASS != 0 && !masked;
    Ok(entries.iter().filter(passes).map(|e| e.id).collect())
}

/// Restricts a directory of the agent to these users, who may traverse it but neither list nor change it. `false`: the
/// file system does not support ACLs, and nothing was changed.
pub fn grant_traversal(directory: &OwnedFd, users: &BTreeSet<u32>) -> io::Result<bool> {
    let plain = |tag, permissions| Entry { tag, permissions, id: NO_ID };
    let named = users.iter().map(|id| Entry { tag: USER, permissions: PASS, id: *id });
    let all: Vec<Entry> = std::iter::once(plain(OWNER, ALL))
        .chain(named)
        .chain([plain(GROUP, 0), plain(MASK, PASS), plain(OTHER, 0)])
        .collect();
    match rustix::fs::fsetxattr(directory, NAME, &encode(&all), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The first directory on the path (including `directory`) that the user may not traverse, and its mode.
pub fn first_not_traversable(account: &Account, directory: &Path) -> io::Result<Option<(PathBuf, u32)>> {
    let mut way: Vec<&Path> = directory.ancestors().collect();
    way.reverse();
    for above in way {
        let stat = rustix::fs::stat(above)?;
        let acl = entries(|bytes| rustix::fs::getxattr(above, NAME, bytes))?.unwrap_or_default();
        if !passes(account, (stat.st_uid, stat.st_gid, stat.st_mode), &acl) {
            return Ok(Some((above.to_owned(), stat.st_mode & 0o7777)));
        }
    }
    Ok(None)
}

/// Why a user other than root and the agent's own can change a path: that user owns it or a parent, or a parent is
/// world-writable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExposedPath {
    #[error("{} belongs to another user (uid {uid})", path.display())]
    Owned { path: PathBuf, uid: u32 },
    #[error("every user can replace files in {} (mode {mode:04o})", path.display())]
    Open { path: PathBuf, mode: u32 },
}

/// The first component of `path`, including `path` itself and every symbolic link, that another user can change.
/// `None`: no other user can change it, or it does not exist yet. A world-writable directory counts only when the agent
/// runs as root; `path` itself may be world-writable.
///
/// After `None`, no other user can change the path, so `path` can be opened by name. Errors: those of lstat(2) and
/// readlink(2); a loop of links.
pub fn exposed(path: &Path) -> io::Result<Option<ExposedPath>> {
    exposed_to(path, false)
}

/// As [`exposed`], but checks only the parents of `path` and `path` itself if it is a symbolic link.
pub fn exposed_way(path: &Path) -> io::Result<Option<ExposedPath>> {
    exposed_to(path, true)
}

fn exposed_to(path: &Path, only_way: bool) -> io::Result<Option<ExposedPath>> {
    let mut left: Vec<PathBuf> = parts(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = left.pop() {
        let next = at.join(&part);
        let stat = match rustix::fs::lstat(&next) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let is_link = FileType::from_raw_mode(stat.st_mode).is_symlink();
        if let Some(uid) = other_user(stat.st_uid).filter(|_| !only_way || is_link || !left.is_empty()) {
            return Ok(Some(ExposedPath::Owned { path: next, uid }));
        }
        if is_link {
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            left.extend(parts(&std::fs::read_link(&next)?));
            continue;
        }
        let mode = stat.st_mode & 0o7777;
        if rustix::process::geteuid().is_root() && !left.is_empty() && mode & 0o1002 == 0o002 {
            return Ok(Some(ExposedPath::Open { path: next, mode }));
        }
        // `at` contains no link, so `..` is the parent directory.
        at = match part.as_os_str() == ".." {
            true => at.parent().unwrap_or(&at).to_owned(),
            false => next,
        };
    }
    Ok(None)
}

/// Opens a regular file that configures the agent. Root or the agent's user must own the file and every directory and
/// link on its path; no other user may write it.
///
/// Errors: those of open(2); `InvalidInput`: not a regular file; `PermissionDenied`: another user can change it.
pub fn open_own(path: &Path) -> io::Result<File> {
    open_without(path, 0o022, "other users may write it", "chmod go-w")
}

/// As [`open_own`], for a token or a private key: no other user may read it either.
pub fn open_secret(path: &Path) -> io::Result<File> {
    open_without(path, 0o077, "other users may read or write it", "chmod 600")
}

fn open_without(path: &Path, forbidden: u32, why: &str, what_to_do: &str) -> io::Result<File> {
    let denied = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if let Some(why) = exposed(path)? {
        return denied(why.to_string());
    }
    let file = rustix::fs::open(path, untrusted::FLAGS, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let (kind, mode) = (FileType::from_raw_mode(stat.st_mode), stat.st_mode & 0o7777);
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is not a regular file but {kind:?}")));
    }
    if mode & forbidden != 0 {
        return denied(format!("{why} (mode {mode:04o}): {what_to_do} {}", path.display()));
    }
    Ok(file.into())
}

/// The kernel's own limit. Source: path_resolution(7).
const MOST_LINKS: usize = 40;

/// The path's components in reverse order.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

/// The uid, unless it is root's or the agent's.
fn other_user(uid: u32) -> Option<u32> {
    let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw() || is_overflow_user(uid);
    (!is_own).then_some(uid)
}

/// Whether `uid` is the overflow user of a user namespace. Files whose owner is not mapped into the namespace appear to
/// belong to it, and no process in the namespace has that uid. Source: user_namespaces(7).
fn is_overflow_user(uid: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let whole = read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    !whole && read("/proc/sys/kernel/overflowuid").trim().parse() == Ok(uid)
}

/// Pure: the kernel's rule for a user other than root.
fn passes(account: &Account, (owner, group, mode): (u32, u32, u32), acl: &[Entry]) -> bool {
    let (of_owner, of_group, of_other) = (mode & 0o100 != 0, mode & 0o010 != 0, mode & 0o001 != 0);
    let in_group = |id: u32| account.gid == id || account.groups.contains(&id);
    if account.uid == owner {
        return of_owner;
    }
    // With an ACL, the group bits of the mode are the ACL's mask.
    if let Some(own) = acl.iter().find(|e| e.tag == USER && e.id == account.uid) {
        return of_group && own.permissions & PASS != 0;
    }
    let groups = acl.iter().filter(|e| e.tag == NAMED_GROUP && in_group(e.id) || e.tag == GROUP && in_group(group));
    let granted: Vec<bool> = groups.map(|e| e.permissions & PASS != 0).collect();
    match (acl.is_empty(), granted.as_slice()) {
        (true, _) if in_group(group) => of_group,
        (true, _) | (false, []) => of_other,
        (false, granted) => of_group && granted.contains(&true),
    }
}

/// Opens a directory; fails if `path` itself is a symbolic link.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// The flags for opening a directory. They do not follow a symbolic link.
pub const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

pub fn is_directory(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn account(uid: u32, groups: &[u32]) -> Account {
        let gid = groups[0];
        Account { name: "u".into(), uid, gid, groups: groups.to_vec(), home: "/".into(), shell: "/bin/sh".into() }
    }

    #[test]
    fn directory_traversal_by_mode_is_decided_by_the_first_matching_class() {
        for (mode, uid, group, expected) in [
            (0o700, 5, 5, true),
            (0o011, 5, 9, false),
            (0o710, 6, 7, true),
            (0o701, 6, 7, false),
            (0o701, 6, 8, true),
            (0o700, 6, 8, false),
        ] {
            assert_eq!(passes(&account(uid, &[group]), (5, 7, mode), &[]), expected, "{mode:o} {uid} {group}");
        }
    }

    #[test]
    fn acl_grants_traversal_to_its_users_only() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open_dir(dir.path()).unwrap();
        if !keeps_acls(dir.path()).unwrap() || !grant_traversal(&opened, &BTreeSet::from([7, 4_000_000])).unwrap() {
            return;
        }
        let mode = dir.path().metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o710, "the mask stands where the group did");
        assert_eq!(traversal_users(&opened).unwrap(), BTreeSet::from([7, 4_000_000]));
        let acl = entries(|bytes| rustix::fs::fgetxattr(&opened, NAME, bytes)).unwrap().unwrap();
        let stat = rustix::fs::fstat(&opened).unwrap();
        let who = (stat.st_uid, stat.st_gid, stat.st_mode);
        assert!(passes(&account(7, &[1]), who, &acl));
        assert!(!passes(&account(8, &[stat.st_gid]), who, &acl), "the owner's group does not");
        assert!(!passes(&account(8, &[1]), who, &acl));
        // After chmod, the mask decides.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(traversal_users(&opened).unwrap(), BTreeSet::new());
    }

    #[test]
    fn exposed_follows_each_link_and_names_the_first_of_another_user() {
        use std::os::unix::fs::{chown, lchown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("ours/deep")).unwrap();
        std::fs::create_dir(path("his")).unwrap();
        std::fs::write(path("ours/file"), "").unwrap();
        symlink("../ours", path("his/link")).unwrap();
        symlink(path("ours"), path("alias")).unwrap();
        symlink("his/link/deep/../file", path("far")).unwrap();
        symlink("loop", path("loop")).unwrap();
        for safe in ["ours/file", "alias/file", "far", "ours/none/deeper", "his/link/file"] {
            assert_eq!(exposed(&path(safe)).unwrap(), None, "{safe}");
        }
        assert!(exposed(&path("loop")).is_err());
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::fs::set_permissions(path("ours"), PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(exposed(&path("ours")).unwrap(), None, "what is in it is what counts");
        let open = ExposedPath::Open { path: path("ours"), mode: 0o777 };
        assert_eq!(exposed(&path("alias/file")).unwrap(), Some(open));
        std::fs::set_permissions(path("ours"), PermissionsExt::from_mode(0o755)).unwrap();
        lchown(path("alias"), Some(12_345), None).unwrap();
        chown(path("his"), Some(12_345), None).unwrap();
        for (way, of) in [("alias/file", "alias"), ("far", "his"), ("his/new", "his")] {
            let expected = ExposedPath::Owned { path: path(of), uid: 12_345 };
            assert_eq!(exposed(&path(way)).unwrap(), Some(expected), "{way}");
        }
    }

    #[test]
    fn a_secret_is_readable_and_a_setting_writable_by_its_owner_alone() {
        use std::os::unix::fs::{chown, lchown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("token"), dir.path().join("link"));
        std::fs::write(&path, "t").unwrap();
        symlink("token", &link).unwrap();
        for mode in 0o000..=0o777_u32 {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode | 0o400)).unwrap();
            assert_eq!(open_secret(&link).is_ok(), mode & 0o077 == 0, "{mode:o}");
            assert_eq!(open_own(&link).is_ok(), mode & 0o022 == 0, "{mode:o}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let why = open_secret(&path).unwrap_err().to_string();
        assert!(why.contains("(mode 0644): chmod 600 "), "{why}");
        assert_eq!(open_own(dir.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        if rustix::process::geteuid().is_root() {
            lchown(&link, Some(12_345), None).unwrap();
            let why = open_own(&link).unwrap_err().to_string();
            assert!(why.contains("link belongs to another user (uid 12345)"), "{why}");
            chown(&path, Some(12_345), None).unwrap();
            assert!(open_own(&path).is_err());
        }
    }

    #[test]
    fn malformed_acl_decodes_to_none() {
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[2, 0, 0, 0, 1]), None);
        assert_eq!(decode(&[3, 0, 0, 0]), None);
        let some = [Entry { tag: USER, permissions: 1, id: 9 }];
        assert_eq!(decode(&encode(&some)).unwrap(), some);
    }
}
