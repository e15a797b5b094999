//! Takes the two addresses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Gid;
use tokio::net::{TcpListener, UnixListener};

use super::error::DaemonError;
use crate::host::process;
use crate::runner::datadir::LET_GO;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

pub(super) async fn tcp(address: Option<SocketAddr>) -> Result<Option<TcpListener>, DaemonError> {
    let Some(address) = address else { return Ok(None) };
    let until = Instant::now() + LET_GO;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(Some(listener)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(source) => return Err(DaemonError::Listen { address, source }),
        }
    }
}

/// The socket's file: goes with this.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, "cannot remove the socket");
        }
    }
}

/// A socket that only its owner can open, and the members of `group`, from its first moment. One that an agent left
/// behind is replaced; one where a process still answers is not.
pub(super) fn unix(path: &Path, group: Option<&str>) -> Result<(UnixListener, SocketFile), DaemonError> {
    let of_group = |name: &str| process::group(name);
    let gid = group.map(of_group).transpose();
    let gid = gid.map_err(|source| DaemonError::SocketGroup { name: group.unwrap_or_default().to_owned(), source })?;
    let until = Instant::now() + LET_GO;
    let listener = loop {
        match listen(path, gid) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other.map_err(|source| DaemonError::Socket { path: path.to_owned(), source })?,
        }
    };
    Ok((listener, SocketFile(path.to_owned())))
}

fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    clear(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let owner = Mode::RUSR | Mode::WUSR;
    // The file gets it when it is made, less the umask. Source: unix_bind_bsd in the kernel's net/unix/af_unix.c.
    rustix::fs::fchmod(&socket, owner)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // No client can connect before `listen`.
    set_mode(path, owner, group)?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Through a descriptor of the socket itself: what another user puts in its place meanwhile keeps its mode and group.
fn set_mode(path: &Path, owner: Mode, group: Option<u32>) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if !FileType::from_raw_mode(stat.st_mode).is_socket() || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it was replaced while it was made"));
    }
    let mode = match group {
        None => owner,
        Some(gid) => {
            rustix::fs::chownat(&file, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
            owner | Mode::RGRP | Mode::WGRP
        }
    };
    // fchmod(2) takes no descriptor of a path.
    let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(by_descriptor, mode)?)
}

fn clear(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket stands there"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Err(e) => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn the_socket_is_for_its_owner_and_one_that_was_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        drop(listen(&path, None).unwrap());
        assert!(path.exists(), "a socket outlives its listener");
        let second = unix(&path, None).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(second);
        assert!(!path.exists(), "an agent that ends leaves none behind");
    }

    #[tokio::test]
    async fn socket_in_use_or_a_regular_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let _first = unix(&path, None).unwrap();
        let error = unix(&path, None).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(unix(&file, None).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn set_mode_changes_the_socket_and_nothing_that_was_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = (dir.path().join("file"), dir.path().join("a.sock"));
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &path).unwrap();
        set_mode(&path, Mode::RUSR | Mode::WUSR, Some(0)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&file, &path).unwrap();
        set_mode(&path, Mode::RUSR | Mode::WUSR, Some(0)).unwrap_err();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        let gid = rustix::process::getegid().as_raw();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        set_mode(&path, Mode::RUSR | Mode::WUSR, Some(gid)).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[tokio::test]
    async fn port_in_use_is_reported_with_a_hint() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = tcp(Some(held.local_addr().unwrap())).await.unwrap_err();
        assert!(error.hint().is_some_and(|h| h.contains("--listen")));
    }
}
