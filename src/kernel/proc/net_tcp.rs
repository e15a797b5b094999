//! `/proc/net/tcp` and `/proc/net/tcp6`: connections of the network namespace and their owners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::kernel::text::{digits, lines, words};

/// One end of an established connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Owner of the socket.
    pub uid: u32,
    /// `None`: not accepted yet. The file shows user 0 then, whatever the listener's user.
    pub inode: Option<u64>,
}

const ESTABLISHED: &[u8] = b"01";

/// The end at `local` of the connection with `remote`. `None`: no established connection.
///
/// Source: Documentation/networking/proc_net_tcp.rst; `get_tcp4_sock` in net/ipv4/tcp_ipv4.c. An address has network
/// byte order, printed as 32-bit numbers in host byte order.
pub fn end(bytes: &[u8], local: SocketAddr, remote: SocketAddr) -> Option<Endpoint> {
    lines(bytes).find_map(|(_, line)| {
        let mut words = words(line).skip(1);
        let (own, other, state) = (address(words.next()?)?, address(words.next()?)?, words.next()?);
        if state != ESTABLISHED || own != plain(local) || other != plain(remote) {
            return None;
        }
        // tx:rx, tr:tm, retrnsmt; then, after uid, timeout.
        let uid = words.nth(3).and_then(digits).and_then(|uid| u32::try_from(uid).ok())?;
        let inode = words.nth(1).and_then(digits)?;
        Some(Endpoint { uid, inode: Some(inode).filter(|inode| *inode != 0) })
    })
}

/// Inodes of the sockets that prevent a bind to this address: unconnected sockets bound to it, or to all addresses.
/// Works for `/proc/net/udp` and `/proc/net/udp6` too.
pub fn bound(bytes: &[u8], at: SocketAddr) -> Vec<u64> {
    let (ip, port) = plain(at);
    let sockets = lines(bytes).filter_map(|(_, line)| {
        let mut words = words(line).skip(1);
        let (own, other) = (address(words.next()?)?, address(words.next()?)?);
        let same = own.0 == ip || own.0.is_unspecified() || ip.is_unspecified();
        if own.1 != port || other.1 != 0 || !same {
            return None;
        }
        // st, tx:rx, tr:tm, retrnsmt, uid, timeout.
        words.nth(6).and_then(digits).filter(|inode| *inode != 0)
    });
    sockets.collect()
}

/// An IPv4-mapped IPv6 address counts as IPv4, so a dual-stack listener matches both.
fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:260C`
fn address(word: &[u8]) -> Option<(IpAddr, u16)> {
    let (ip, port) = std::str::from_utf8(word).ok()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let number = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(number(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&number(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Captured: a listener on 9740, an accepted connection to it, and one that waits to be accepted.
    const V4: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:260C 00000000:0000 0A 00000000:00000001 00:00000000 00000000 65534        0 1206 1 00000000c2a3f2f0 100 0 0 10 0
   1: 0100007F:260C 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000 65534        0 1301 1 0000000011111111 20 0 0 10 -1
   2: 0100007F:260C 0100007F:D2F2 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000022222222 20 0 0 10 -1
   3: 0100007F:D2F0 0100007F:260C 01 00000000:00000000 00:00000000 00000000     0        0 1300 1 0000000033333333 20 0 0 10 -1
   4: 0100007F:260C 0100007F:D2F4 06 00000000:00000000 03:00000D7C 00000000     0        0 0 3 0000000044444444
";
    const V6: &[u8] = b"  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100007F:260C 0000000000000000FFFF00000100007F:D2F6 01 00000000:00000000 00:00000000 00000000  1000        0 77 1 0 20 0 0 10 -1
   1: 00000000000000000000000001000000:260C 00000000000000000000000001000000:D2F8 01 00000000:00000000 00:00000000 00000000  1001        0 78 1 0 20 0 0 10 -1
";

    fn found(bytes: &[u8], ip: &str, port: u16) -> Option<(u32, Option<u64>)> {
        let at = |port| SocketAddr::new(ip.parse().unwrap(), port);
        end(bytes, at(9740), at(port)).map(|end| (end.uid, end.inode))
    }

    #[test]
    fn the_other_end_of_a_connection_is_found_and_an_unaccepted_one_has_none() {
        assert_eq!(found(V4, "127.0.0.1", 0xD2F0), Some((65534, Some(1301))));
        assert_eq!(found(V4, "127.0.0.1", 0xD2F2), Some((0, None)));
        assert_eq!(found(V6, "127.0.0.1", 0xD2F6), Some((1000, Some(77))));
        assert_eq!(found(V6, "::1", 0xD2F8), Some((1001, Some(78))));
    }

    #[test]
    fn socket_that_ended_listens_or_belongs_to_another_user_is_none() {
        for (bytes, port) in [(V4, 0xD2F4), (V4, 0), (V4, 1), (V6, 0xD2F0), (b"", 0xD2F0), (b"  sl\n", 0xD2F0)] {
            assert_eq!(found(bytes, "127.0.0.1", port), None, "{port}");
        }
        let cut: Vec<u8> = V4.split(|b| *b == b'\n').nth(2).unwrap()[..90].to_vec();
        assert_eq!(found(&cut, "127.0.0.1", 0xD2F0), None);
    }

    #[test]
    fn listener_occupies_its_port_and_a_connection_does_not() {
        let at = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        assert_eq!(bound(V4, at("127.0.0.1", 9740)), [1206]);
        assert_eq!(bound(V4, at("0.0.0.0", 9740)), [1206], "every address is this one too");
        for other in [at("127.0.0.2", 9740), at("127.0.0.1", 9741), at("127.0.0.1", 0xD2F0)] {
            assert_eq!(bound(V4, other), Vec::<u64>::new(), "{other}");
        }
        assert_eq!(bound(V6, at("::1", 9740)), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..V4.len()) {
            found(&bytes, "127.0.0.1", 1);
            bound(&bytes, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1));
            let mut odd = V4.to_vec();
            odd.splice(at..at, bytes);
            found(&odd, "127.0.0.1", 0xD2F0);
        }
    }
}
