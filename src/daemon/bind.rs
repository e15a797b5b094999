//! Takes the two addresses.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{TcpListener, UnixListener};

use super::error::DaemonError;
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

/// A socket that only its owner can open, from its first moment. One that an agent left behind is replaced; one on which
/// somebody answers is not.
pub(super) fn unix(path: &Path) -> Result<(UnixListener, SocketFile), DaemonError> {
    let until = Instant::now() + LET_GO;
    let listener = loop {
        match listen(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other.map_err(|source| DaemonError::Socket { path: path.to_owned(), source })?,
        }
    };
    Ok((listener, SocketFile(path.to_owned())))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    clear(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before `listen`, so there is no moment with other permissions.
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
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
        drop(listen(&path).unwrap());
        assert!(path.exists(), "a socket outlives its listener");
        let second = unix(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(second);
        assert!(!path.exists(), "an agent that ends leaves none behind");
    }

    #[tokio::test]
    async fn a_socket_on_which_somebody_answers_stays_and_so_does_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let _first = unix(&path).unwrap();
        let error = unix(&path).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(unix(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_with_what_to_do() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = tcp(Some(held.local_addr().unwrap())).await.unwrap_err();
        assert!(error.hint().is_some_and(|h| h.contains("--listen")));
    }
}
