//! A small tmpfs for the secrets of one task: no disk, swap space or backup gets them, and they end with the power.
//!
//! Source: fsopen(2), fsmount(2), move_mount(2) (Linux 5.2), tmpfs(5); its option `noswap` (6.4).
//!
//! The task's user may own the directory above: mounts are attached to and detached from open directories, never to
//! paths. A mark that only root can set distinguishes them from file systems that the administrator mounted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::access::DIRECTORY;
use super::untrusted;
use crate::kernel::proc::mountinfo;

/// Bytes of each, Nomad's default.
const SIZE: &str = "1048576";
/// Files and directories of each: their inodes are kernel memory.
const INODES: &str = "1024";
/// Its source in the table of mounts.
pub const SOURCE: &str = "allostat-secrets";
const MARK: &str = "trusted.allostat.secrets";
/// 100,000 mounts, the kernel's own limit, take 20 MB.
const LARGEST_TABLE: usize = 32 << 20;

/// Why secrets of tasks stay on the disk of the data directory. `None`: each task can have its own tmpfs. Mounts one
/// and lets it go, attached to nothing.
pub fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount a tmpfs".to_owned());
    }
    if let Err(error) = detached(None) {
        return Some(format!("a tmpfs cannot be mounted: {error}"));
    }
    match untrusted::read("/proc/self/mountinfo".as_ref(), LARGEST_TABLE) {
        Ok(table) if mountinfo::root_is_slave(&table) => Some(
            "the agent has a mount namespace of its own (PrivateTmp=, ProtectSystem=), which the next agent would not \
             share with running tasks"
                .to_owned(),
        ),
        Ok(_) => None,
        Err(error) => Some(format!("/proc/self/mountinfo: {error}")),
    }
}

/// Mounts a tmpfs on a directory that was opened without following links, and returns its root. `owner`: uid and gid;
/// `None`: the agent's.
///
/// Errors: those of the calls above; ENOSPC: `fs.mount-max` mounts exist.
pub fn mount(directory: BorrowedFd<'_>, owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    let mount = detached(owner)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, c"", directory, c"", flags)?;
    Ok(mount)
}

fn detached(owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    let fs = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let (uid, gid) = owner.map_or((String::new(), String::new()), |(uid, gid)| (uid.to_string(), gid.to_string()));
    let owner = [("uid", uid.as_str()), ("gid", gid.as_str())];
    let options = [("source", SOURCE), ("size", SIZE), ("nr_inodes", INODES), ("mode", "0700")];
    for (name, value) in options.into_iter().chain(owner).filter(|(_, value)| !value.is_empty()) {
        fsconfig_set_string(fs.as_fd(), name, value)?;
    }
    // Linux 6.4. Older kernels refuse the option alone.
    let _ = fsconfig_set_flag(fs.as_fd(), "noswap");
    fsconfig_create(fs.as_fd())?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let root = rustix::fs::openat(&mount, c".", DIRECTORY, Mode::empty())?;
    rustix::fs::fsetxattr(&root, MARK, b"1", XattrFlags::CREATE)?;
    Ok(mount)
}

/// Whether an open directory is the root of one that [`mount`] mounted.
pub fn is_mounted(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr(directory, MARK, &mut [0_u8; 8]).is_ok()
}

/// Unmounts what [`mount`] mounted on `name` in an open directory, with all that is in it. Processes that still use
/// it keep it until they end. Idempotent; anything else that is there or is mounted there stays.
///
/// Errors: those of openat(2) and umount2(2).
pub fn unmount(parent: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let root = match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if !is_mounted(root.as_fd()) {
        return Ok(false);
    }
    detach(root.as_fd())?;
    Ok(true)
}

/// Unmounts a file system by its open root, wherever it is mounted by now.
pub fn detach(root: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::mount::unmount(format!("/proc/self/fd/{}", root.as_raw_fd()), UnmountFlags::DETACH)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn secrets_mount_has_owner_mode_and_size_and_is_removed_with_its_contents() {
        if let Some(reason) = unavailable() {
            eprintln!("no tmpfs here: {reason}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let secrets = dir.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("earlier"), "x").unwrap();
        drop(mount(open(&secrets).as_fd(), Some((1234, 4321))).unwrap());
        let root = open(&secrets);
        assert!(is_mounted(root.as_fd()) && !secrets.join("earlier").exists());
        let meta = secrets.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.permissions().mode() & 0o7777), (1234, 4321, 0o700));
        std::fs::write(secrets.join("token"), vec![b'x'; 1 << 19]).unwrap();
        let full = std::fs::write(secrets.join("large"), vec![b'x'; 1 << 20]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        drop(root);
        let parent = open(dir.path());
        assert!(unmount(parent.as_fd(), "secrets").unwrap());
        assert!(!unmount(parent.as_fd(), "secrets").unwrap(), "idempotent");
        assert!(secrets.join("earlier").exists() && !secrets.join("token").exists());
        assert!(!unmount(parent.as_fd(), "nothing").unwrap());
    }

    #[test]
    fn mounts_of_the_administrator_or_behind_a_symlink_are_not_unmounted() {
        if let Some(reason) = unavailable() {
            eprintln!("no tmpfs here: {reason}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [peer, own, link] = ["secrets", "ours", "link"].map(|name| dir.path().join(name));
        std::fs::create_dir(&peer).unwrap();
        std::fs::create_dir(&own).unwrap();
        let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&peer).status().unwrap();
        assert!(mounted.success());
        drop(mount(open(&own).as_fd(), None).unwrap());
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let parent = open(dir.path());
        let [left, through_link] = ["secrets", "link"].map(|name| unmount(parent.as_fd(), name));
        let is_there = is_mounted(open(&own).as_fd());
        let unmounted = std::process::Command::new("umount").arg(&peer).status().unwrap();
        assert!(unmount(parent.as_fd(), "ours").unwrap());
        assert!(unmounted.success() && is_there);
        assert!(!left.unwrap() && !through_link.unwrap());
    }
}
