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

/// Interfaces, and addresses. A template must not choose from a part of them.
const MOST: usize = 4_096;
/// The kernel answers at once.
const TIMEOUT: Duration = Duration::from_secs(2);

/// All addresses, by the index of their interface.
///
/// Errors: the kernel does not answer a dump; there are more than [`MOST`] interfaces or addresses.
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
    collected(|buffer| Ok(recv(&socket, buffer, RecvFlags::empty())?.0))
}

/// The items of all datagrams up to the kernel's last message. `receive` fills the buffer with one.
fn collected(mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<DumpItem>> {
    // The kernel's datagrams of a dump have at most 32 KiB.
    let (mut buffer, mut found) = (vec![0; 64 << 10], Vec::new());
    // The last message may have a datagram of its own.
    for _ in 0..=MOST {
        let length = receive(&mut buffer)?;
        let end = rtnetlink::parse(buffer.get(..length).unwrap_or(&[]), &mut found);
        match end {
            DumpEnd::Failed(code) => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            _ if found.len() > MOST => break,
            DumpEnd::More => {}
            DumpEnd::Done => return Ok(found),
        }
    }
    Err(io::Error::other(format!("there are more than {MOST} interfaces or addresses")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::address::LOOPBACK;

    /// A message of an address 10.x.x.x/8, as the kernel sends it.
    fn address(number: u32) -> Vec<u8> {
        let header = [&32u32.to_ne_bytes()[..], &20u16.to_ne_bytes(), &[0; 10]].concat();
        let ip = (0x0a00_0000 | number).to_be_bytes();
        // IPv4, a prefix of 8 bits, of interface 1; an attribute of 8 bytes, which is of kind 2.
        [&header[..], &[2, 8, 0, 0], &1u32.to_ne_bytes(), &8u16.to_ne_bytes(), &2u16.to_ne_bytes(), &ip].concat()
    }
    fn done() -> Vec<u8> {
        [&20u32.to_ne_bytes()[..], &3u16.to_ne_bytes(), &[0; 14]].concat()
    }
    /// Another receive after the last datagram is the error of a socket that has timed out.
    fn collect(datagrams: Vec<Vec<u8>>) -> io::Result<Vec<DumpItem>> {
        let mut datagrams = datagrams.into_iter();
        collected(|buffer| {
            let datagram = datagrams.next().ok_or(io::ErrorKind::WouldBlock)?;
            buffer[..datagram.len()].copy_from_slice(&datagram);
            Ok(datagram.len())
        })
    }

    #[test]
    fn dump_beyond_its_bound_is_an_error_and_not_a_part() {
        let most = u32::try_from(MOST).unwrap();
        let of = |count: u32| (0..count).map(address).collect::<Vec<_>>();
        for per_datagram in [1, 500] {
            let datagrams = |count| of(count).chunks(per_datagram).map(<[_]>::concat).collect::<Vec<_>>();
            let all = collect([datagrams(most), vec![done()]].concat()).unwrap();
            assert_eq!(all.len(), MOST);
            for beyond in [datagrams(most + 1), [datagrams(most + 1), vec![done()]].concat()] {
                let error = collect(beyond).unwrap_err();
                assert_eq!(error.to_string(), "there are more than 4096 interfaces or addresses");
            }
        }
        let empty = vec![Vec::new(); MOST + 1];
        assert!(
            collect(empty).unwrap_err().to_string().contains("more than 4096"),
            "the kernel's last message is missing"
        );
        assert_eq!(collect(vec![address(1)]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(collect(vec![[address(1), done()].concat()]).unwrap().len(), 1);
    }

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
