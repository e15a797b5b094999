//! Named network namespaces: a file each, kept alive by a bind mount. Source: network_namespaces(7), ip-netns(8),
//! rtnetlink(7).

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{StatFs, statfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use rustix::thread::UnshareFlags;

/// Source: linux/magic.h, `NSFS_MAGIC`.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Whether a network namespace is mounted on this path.
pub fn exists(path: &Path) -> bool {
    statfs(path).is_ok_and(|found: StatFs| u64::try_from(found.f_type).is_ok_and(|magic| magic == NSFS_MAGIC))
}

/// Creates a network namespace with its loopback up and mounts it on a file, which is created too. It exists until
/// [`remove`]. An existing one is left unchanged.
///
/// Errors: the first failed step; everything is undone.
pub fn create(path: &Path) -> io::Result<()> {
    if exists(path) {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    // An agent may have died between creating the file and mounting on it.
    File::options().create(true).append(true).open(path)?;
    let of = path.to_owned();
    // The new namespace belongs to its own thread and disappears from this process with that thread.
    let made = std::thread::spawn(move || enter_new_and_mount_on(&of)).join();
    let made = made.unwrap_or_else(|_| Err(io::Error::other("an internal error: the thread panicked")));
    if made.is_err() {
        let _ = fs::remove_file(path);
    }
    made
}

fn enter_new_and_mount_on(path: &Path) -> io::Result<()> {
    #[expect(deprecated, reason = "it is unsafe for flags that unshare the descriptor table; this one does not")]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    set_loopback_up()?;
    mount_bind("/proc/thread-self/ns/net", path)?;
    Ok(())
}

/// Brings up interface 1, the loopback of every network namespace, with an RTM_NEWLINK in this thread's namespace.
fn set_loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const LOOPBACK: i32 = 1;
    const IFF_UP: u32 = 1;
    let mut message = Vec::with_capacity(32);
    message.extend(32u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    // Sequence number and port id: the kernel chooses the port id.
    message.extend(1u32.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    // struct ifinfomsg: family and type are ignored.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // struct nlmsgerr follows the header: 0, or a negative errno.
    let code =
        answer.get(16..20).filter(|_| length >= 20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Unmounts a network namespace and removes its file. The namespace ends with its last process. Idempotent.
///
/// Errors: the unmount or the removal of the file failed.
pub fn remove(path: &Path) -> io::Result<()> {
    // An agent that died may have mounted it twice.
    while exists(path) {
        match unmount(path, UnmountFlags::DETACH) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_namespace_exists_without_a_process_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("netns/one");
        match create(&path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return assert!(!path.exists()),
            made => made.unwrap(),
        }
        create(&path).unwrap();
        assert!(exists(&path));
        let own = fs::metadata("/proc/self/ns/net").unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_ne!(std::os::unix::fs::MetadataExt::ino(&own), std::os::unix::fs::MetadataExt::ino(&made));
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn file_without_a_namespace_is_no_namespace_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        assert!(!exists(&path));
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
