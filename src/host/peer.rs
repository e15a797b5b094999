//! The user at the other end of a local connection. Any user may listen on a port or create a socket at the expected
//! path, so a client that uses a default address checks the server's user first.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::access::{self, ExposedPath};
use super::roots::Roots;
use crate::kernel::proc::net_tcp;

/// Which servers a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Any server: the user configured the address.
    Named,
    /// Only a process of root or of the client's own user.
    OwnUser,
    /// A process of root's alone.
    Root,
}

impl Trust {
    pub fn covers(self, uid: u32) -> bool {
        match self {
            Trust::Named => true,
            Trust::OwnUser => uid == 0 || uid == rustix::process::geteuid().as_raw(),
            Trust::Root => uid == 0,
        }
    }
}

/// The uid of a user, other than root and the agent's, who can change a path: a link or directory of that user may lead
/// to another socket of root's.
pub fn exposed(path: &Path) -> io::Result<Option<u32>> {
    Ok(match access::exposed(path)? {
        Some(ExposedPath::Owned { uid, .. }) => Some(uid),
        // The caller checks the listener's user in any case.
        Some(ExposedPath::Open { .. }) | None => None,
    })
}

/// The uid of the process that accepted this connection. `None`: not accepted yet.
///
/// Errors: the connection is gone, or not listed.
pub fn accepted(roots: &Roots, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let mut unread = None;
    for file in ["net/tcp", "net/tcp6"] {
        match roots.read_proc(file) {
            // The server's end of the connection.
            Ok(text) => match net_tcp::end(&text, remote, local) {
                Some(end) => return Ok(end.inode.map(|_| end.uid)),
                None => continue,
            },
            Err(error) => unread = Some(error),
        }
    }
    Err(unread.map_or_else(|| io::ErrorKind::ConnectionReset.into(), io::Error::other))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_belongs_to_the_process_that_accepted_it_and_to_none_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let who =
            |stream: &TcpStream| accepted(&Roots::default(), stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert_eq!(who(&own).unwrap(), None);
        let remote = listener.accept().unwrap();
        assert_eq!(who(&own).unwrap(), Some(rustix::process::geteuid().as_raw()));
        drop((remote, listener));
        assert!(who(&own).is_err(), "it has hung up");
        assert!(
            accepted(
                &Roots { proc: "/nowhere".into(), ..Roots::default() },
                own.local_addr().unwrap(),
                own.peer_addr().unwrap()
            )
            .is_err()
        );
    }
}
