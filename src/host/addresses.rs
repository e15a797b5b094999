//! Addresses of the interfaces in the agent's network namespace. Source: rtnetlink(7), `/proc/net/route`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use super::roots::Roots;
use crate::kernel::proc::net_route;
use crate::kernel::rtnetlink::{self, DumpEnd, DumpItem, Link};
use crate::model::address::{AddressBlock, InterfaceAddress};

/// A host with more has them for containers.
const MOST: usize = 4_096;
/// The kernel answers at once.
const TIMEOUT: Duration = Duration::from_secs(2);

/// All addresses, by the index of their interface; the first [`MOST`].
///
/// Errors: the kernel does not answer a dump.
pub fn all(roots: &Roots) -> io::Result<Vec<InterfaceAddress>> {
    let mut links: BTreeMap<u32, Link> = BTreeMap::new();
    for item in dump(rtnetlink::GET_LINK)? {
        if let DumpItem::Link(link) = item {
            links.insert(link.index, link);
        }
    }
    let route = roots.read_proc("net/route").ok();
    let default = route.and_then(|bytes| net_route::default_interface(&bytes));
    let mut found: Vec<(u32, InterfaceAddress)> = Vec::new();
    for item in dump(rtnetlink::GET_ADDRESS)? {
        let DumpItem::Address(address) = item else { continue };
        // An interface that has come between the two dumps.
        let Some(link) = links.get(&address.index) else { continue };
        let one = InterfaceAddress {
            interface: link.name.clone(),
            block: AddressBlock { ip: address.ip, prefix: address.prefix },
            flags: link.flags,
            is_default: default.as_ref() == Some(&link.name),
        };
        found.push((address.index, one));
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, one)| one).collect())
}

fn dump(kind: u16) -> io::Result<Vec<DumpItem>> {
    // Protocol 0 is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    send(&socket, &rtnetlink::request(kind), SendFlags::empty())?;
    // The kernel's datagrams of a dump have at most 32 KiB.
    let (mut buffer, mut found) = (vec![0; 64 << 10], Vec::new());
    // Ends: with the kernel's last message, or with the bound.
    for _ in 0..MOST {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        match rtnetlink::parse(buffer.get(..length).unwrap_or(&[]), &mut found) {
            DumpEnd::Failed(code) => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            DumpEnd::More if found.len() < MOST => {}
            DumpEnd::More | DumpEnd::Done => break,
        }
    }
    found.truncate(MOST);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::LOOPBACK;

    /// Also in a namespace that has nothing else.
    #[test]
    fn loopback_flag_is_on_loopback_addresses_alone() {
        let all = all(&Roots::default()).unwrap();
        for one in &all {
            let is_loopback = one.flags & LOOPBACK != 0;
            assert!(is_loopback || !one.block.ip.is_loopback(), "{one:?}");
            assert!(!one.interface.is_empty(), "{one:?}");
        }
        let bound = |one: &InterfaceAddress| std::net::UdpSocket::bind((one.block.ip, 0)).is_ok();
        let four: Vec<_> = all.iter().filter(|one| one.block.ip.is_ipv4()).collect();
        assert!(four.into_iter().all(bound), "each is an address of this host: {all:?}");
    }
}
