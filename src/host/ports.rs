//! Ports in use on this host, and their processes. Source: bind(2), `/proc/net/{tcp,tcp6,udp,udp6}`, `/proc/PID/fd`.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Instant;

use super::roots::Roots;
use crate::kernel::proc::net_tcp;

/// Limit of processes searched for the socket.
const PROCESSES: usize = 20_000;
/// Limit of descriptors searched per process.
const DESCRIPTORS: usize = 20_000;
/// Limit of descriptors searched in all.
const LINKS: usize = 200_000;

/// Whether a process has bound the TCP or UDP port at this address. Binds both for a moment; a client that connects
/// within those microseconds gets a reset.
///
/// An error other than EADDRINUSE counts as free: an address of another host, or a port that this user may not bind.
pub fn is_bound(at: SocketAddr) -> bool {
    let in_use = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
    // The standard library sets SO_REUSEADDR for TCP, so connections in TIME_WAIT cause no conflict.
    TcpListener::bind(at).is_err_and(in_use) || UdpSocket::bind(at).is_err_and(in_use)
}

/// As [`is_bound`], at every address: a task may bind all of them.
pub fn is_bound_anywhere(port: u16) -> bool {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    any.into_iter().any(|ip| is_bound(SocketAddr::new(ip, port)))
}

/// The process that has bound it: `nginx (PID 812)`. `None`: not found, as for processes of other users or network
/// namespaces, or not until then. Reads the descriptors of all processes, which takes long on a host with many.
pub fn user_of(roots: &Roots, at: SocketAddr, until: Instant) -> Option<String> {
    search(roots, at, until, LINKS)
}

fn search(roots: &Roots, at: SocketAddr, until: Instant, links: usize) -> Option<String> {
    let is_late = || Instant::now() >= until;
    let mut inodes = Vec::new();
    for file in ["net/tcp", "net/tcp6", "net/udp", "net/udp6"] {
        // Each has a line for each socket of the host.
        if is_late() {
            return None;
        }
        inodes.extend(roots.read_proc(file).map(|bytes| net_tcp::bound(&bytes, at)).unwrap_or_default());
    }
    if inodes.is_empty() {
        return None;
    }
    let expected: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut left = links;
    let processes = std::fs::read_dir(roots.proc("")).ok()?.flatten().take(PROCESSES);
    for process in processes {
        if is_late() {
            return None;
        }
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten().take(DESCRIPTORS) {
            if left == 0 || is_late() {
                return None;
            }
            left -= 1;
            let Ok(link) = std::fs::read_link(descriptor.path()) else { continue };
            if expected.iter().any(|socket| link.as_os_str() == socket.as_str()) {
                let name = roots.read_proc(format!("{pid}/comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).trim().escape_debug().to_string();
                return Some(format!("{name} (PID {pid})"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Far beyond the duration of a test.
    fn unlimited(roots: &Roots, at: SocketAddr) -> Option<String> {
        search(roots, at, Instant::now() + Duration::from_secs(3_600), usize::MAX)
    }

    #[test]
    fn a_port_with_a_listener_is_bound_and_its_program_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert!(is_bound(at));
        assert!(is_bound_anywhere(at.port()));
        let user = unlimited(&Roots::default(), at).expect("it is this process");
        assert!(user.ends_with(&format!("(PID {})", std::process::id())), "{user}");
    }

    #[test]
    fn a_port_of_udp_alone_is_bound() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        assert!(is_bound(at) && is_bound_anywhere(at.port()));
        assert!(unlimited(&Roots::default(), at).is_some());
    }

    #[test]
    fn an_address_of_another_listener_is_not_bound() {
        assert!(!is_bound("203.0.113.1:8080".parse().unwrap()));
    }

    #[test]
    fn search_for_a_program_ends_at_its_deadline_and_after_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n";
        std::fs::create_dir_all(roots.proc("net")).unwrap();
        std::fs::write(roots.proc("net/tcp"), sockets).unwrap();
        for (pid, inode) in [(7, 1), (8, 2), (9, 4711)] {
            let descriptors = roots.proc(format!("{pid}/fd"));
            std::fs::create_dir_all(&descriptors).unwrap();
            std::fs::write(roots.proc(format!("{pid}/comm")), format!("program-{pid}\n")).unwrap();
            std::os::unix::fs::symlink(format!("socket:[{inode}]"), descriptors.join("3")).unwrap();
        }
        let at = "0.0.0.0:8080".parse().unwrap();
        assert_eq!(unlimited(&roots, at), Some("program-9 (PID 9)".to_owned()));
        let late = Instant::now();
        assert_eq!(search(&roots, at, late, usize::MAX), None);
        let early = late + Duration::from_secs(3_600);
        assert_eq!(search(&roots, at, early, 3), Some("program-9 (PID 9)".to_owned()));
        assert_eq!(search(&roots, at, early, 0), None);
    }
}
