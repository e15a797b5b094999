//! Ports in use on this host, and their processes. Source: bind(2), `/proc/net/{tcp,tcp6,udp,udp6}`, `/proc/PID/fd`.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use super::roots::Roots;
use crate::kernel::proc::net_tcp;

/// Limit of processes searched for the socket.
const PROCESSES: usize = 20_000;
/// Limit of descriptors searched per process.
const DESCRIPTORS: usize = 20_000;

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
/// namespaces.
pub fn user_of(roots: &Roots, at: SocketAddr) -> Option<String> {
    let inodes: Vec<u64> = ["net/tcp", "net/tcp6", "net/udp", "net/udp6"]
        .iter()
        .filter_map(|file| roots.read_proc(file).ok())
        .flat_map(|bytes| net_tcp::bound(&bytes, at))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = std::fs::read_dir(roots.proc("")).ok()?.flatten().take(PROCESSES);
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let is_it = |link: std::path::PathBuf| wanted.iter().any(|socket| link.as_os_str() == socket.as_str());
        if descriptors.flatten().take(DESCRIPTORS).any(|one| std::fs::read_link(one.path()).is_ok_and(is_it)) {
            let name = roots.read_proc(format!("{pid}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim().escape_debug().to_string();
            return Some(format!("{name} (PID {pid})"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_a_listener_is_bound_and_its_program_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert!(is_bound(at));
        assert!(is_bound_anywhere(at.port()));
        let user = user_of(&Roots::default(), at).expect("it is this process");
        assert!(user.ends_with(&format!("(PID {})", std::process::id())), "{user}");
    }

    #[test]
    fn a_port_of_udp_alone_is_bound() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        assert!(is_bound(at) && is_bound_anywhere(at.port()));
        assert!(user_of(&Roots::default(), at).is_some());
    }

    #[test]
    fn an_address_of_somebody_else_is_not_bound() {
        assert!(!is_bound("203.0.113.1:8080".parse().unwrap()));
    }
}
