//! Who is at the other end of a connection to a process of this host. Anybody may listen on a port, or leave a socket where
//! another one is looked for: what is asked for no address by name asks here first.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::access::{self, Exposed};
use super::roots::Roots;
use crate::kernel::proc::net_tcp;

/// Whom a client talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Whoever is there: somebody named the address.
    Named,
    /// A process of root's or of the user's who asks, and nobody else.
    Ours,
    /// A process of root's alone.
    Root,
}

impl Trust {
    pub fn covers(self, uid: u32) -> bool {
        match self {
            Trust::Named => true,
            Trust::Ours => uid == 0 || uid == rustix::process::geteuid().as_raw(),
            Trust::Root => uid == 0,
        }
    }
}

/// The user besides root and us who has power over a path: a link or a directory of his may lead to another socket of root's.
pub fn exposed(path: &Path) -> io::Result<Option<u32>> {
    Ok(match access::exposed(path)? {
        Some(Exposed::Owned { uid, .. }) => Some(uid),
        // The owner of the listener is checked in any case.
        Some(Exposed::Open { .. }) | None => None,
    })
}

/// Who has accepted this very connection. `None`: nobody yet, so that nothing can be told.
///
/// Errors: it is not there any more, or nowhere to be seen.
pub fn accepted(roots: &Roots, ours: SocketAddr, theirs: SocketAddr) -> io::Result<Option<u32>> {
    let mut unread = None;
    for file in ["net/tcp", "net/tcp6"] {
        match roots.read_proc(file) {
            // Their end: it is local to them.
            Ok(text) => match net_tcp::end(&text, theirs, ours) {
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
    fn a_connection_is_whose_accepted_it_and_nobodys_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let who =
            |stream: &TcpStream| accepted(&Roots::default(), stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        assert_eq!(who(&ours).unwrap(), None);
        let theirs = listener.accept().unwrap();
        assert_eq!(who(&ours).unwrap(), Some(rustix::process::geteuid().as_raw()));
        drop((theirs, listener));
        assert!(who(&ours).is_err(), "it has hung up");
        assert!(
            accepted(
                &Roots { proc: "/nowhere".into(), ..Roots::default() },
                ours.local_addr().unwrap(),
                ours.peer_addr().unwrap()
            )
            .is_err()
        );
    }
}
