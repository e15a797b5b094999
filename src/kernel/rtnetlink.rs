//! Links and addresses of a network namespace: the messages of rtnetlink dumps. Source: rtnetlink(7), linux/netlink.h,
//! linux/if_link.h, linux/if_addr.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
pub const GET_LINK: u16 = 18;
pub const GET_ADDRESS: u16 = 22;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Of both kinds of messages.
const HEADER: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub flags: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAddress {
    pub index: u32,
    pub ip: IpAddr,
    pub prefix: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpItem {
    Link(Link),
    Address(LinkAddress),
}

/// What a datagram of a dump ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpEnd {
    More,
    Done,
    /// A negative errno, or 0 if the message is too short for one.
    Failed(i32),
}

/// The request for a dump of one kind.
pub fn request(kind: u16) -> [u8; 32] {
    const REQUEST_AND_DUMP: u16 = 1 | 0x300;
    let mut message = [0; 32];
    let fields: [(usize, &[u8]); 4] = [
        (0, &32u32.to_ne_bytes()),
        (4, &kind.to_ne_bytes()),
        (6, &REQUEST_AND_DUMP.to_ne_bytes()),
        (8, &1u32.to_ne_bytes()),
    ];
    for (at, bytes) in fields {
        if let Some(field) = message.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }
    message
}

/// Reads one datagram. Messages and attributes that are not understood are passed over.
pub fn parse(datagram: &[u8], into: &mut Vec<DumpItem>) -> DumpEnd {
    let mut rest = datagram;
    while let Some(length) = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()) {
        let Some(message) = rest.get(..length).filter(|message| message.len() >= HEADER) else { break };
        match u16_at(message, 4) {
            Some(DONE) => return DumpEnd::Done,
            Some(ERROR) => {
                return DumpEnd::Failed(
                    u32_at(message, HEADER).map_or(0, |code| i32::from_ne_bytes(code.to_ne_bytes())),
                );
            }
            Some(NEW_LINK) => into.extend(link(message).map(DumpItem::Link)),
            Some(NEW_ADDRESS) => into.extend(address(message).map(DumpItem::Address)),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    DumpEnd::More
}

fn link(message: &[u8]) -> Option<Link> {
    const NAME: u16 = 3;
    let index = u32_at(message, HEADER + 4)?;
    let flags = u32_at(message, HEADER + 8)?;
    let name = attributes(message, HEADER + 16).find(|(kind, _)| *kind == NAME)?.1;
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Some(Link { index, name: String::from_utf8_lossy(name).into_owned(), flags })
}

fn address(message: &[u8]) -> Option<LinkAddress> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let (family, prefix) = (*message.get(HEADER)?, *message.get(HEADER + 1)?);
    let index = u32_at(message, HEADER + 4)?;
    let of =
        |expected: u16| attributes(message, HEADER + 8).find(|(kind, _)| *kind == expected).map(|(_, value)| value);
    // Of a point-to-point link, `ADDRESS` is that of the other end.
    let value = of(LOCAL).or_else(|| of(ADDRESS))?;
    let ip: IpAddr = match family {
        AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into(),
        AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
        _ => return None,
    };
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    (prefix <= longest).then_some(LinkAddress { index, ip, prefix })
}

/// Kind and value of each.
fn attributes(message: &[u8], from: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = message.get(from..).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let (kind, value) = (u16_at(rest, 2)?, rest.get(4..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut rest = body.to_vec();
        for (kind, value) in attributes {
            let length = u16::try_from(4 + value.len()).unwrap();
            rest.extend(length.to_ne_bytes());
            rest.extend(kind.to_ne_bytes());
            rest.extend_from_slice(value);
            rest.resize(rest.len().next_multiple_of(4), 0);
        }
        let length = u32::try_from(HEADER + rest.len()).unwrap();
        let mut all = length.to_ne_bytes().to_vec();
        all.extend(kind.to_ne_bytes());
        all.extend([0; 10]);
        all.extend(rest);
        all
    }
    fn link_body(index: u32, flags: u32) -> Vec<u8> {
        [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat()
    }
    fn address_body(family: u8, prefix: u8, index: u32) -> Vec<u8> {
        [[family, prefix, 0, 0], index.to_ne_bytes()].concat()
    }

    #[test]
    fn dump_has_links_and_addresses_of_both_families() {
        let mut found = Vec::new();
        let links = message(NEW_LINK, &link_body(2, 0x1043), &[(9, &[1]), (3, b"eth0\0")]);
        assert_eq!(parse(&links, &mut found), DumpEnd::More);
        let four = address_body(AF_INET, 24, 2);
        let mut addresses = message(NEW_ADDRESS, &four, &[(1, &[10, 0, 0, 1]), (2, &[10, 0, 0, 7]), (3, b"eth0\0")]);
        let six: [u8; 16] = "fd00::7".parse::<Ipv6Addr>().unwrap().octets();
        addresses.extend(message(NEW_ADDRESS, &address_body(AF_INET6, 64, 2), &[(1, &six)]));
        addresses.extend(message(NEW_ADDRESS, &address_body(7, 64, 2), &[(1, &six)]));
        addresses.extend(message(NEW_ADDRESS, &address_body(AF_INET, 64, 2), &[(1, &[10, 0, 0, 9])]));
        addresses.extend(message(DONE, &[0; 4], &[]));
        assert_eq!(parse(&addresses, &mut found), DumpEnd::Done);
        let expected = [
            DumpItem::Link(Link { index: 2, name: "eth0".to_owned(), flags: 0x1043 }),
            DumpItem::Address(LinkAddress { index: 2, ip: [10, 0, 0, 7].into(), prefix: 24 }),
            DumpItem::Address(LinkAddress { index: 2, ip: six.into(), prefix: 64 }),
        ];
        assert_eq!(found, expected, "another family and a prefix that cannot be are left out");
        let refused = message(ERROR, &(-1i32).to_ne_bytes(), &[]);
        assert_eq!(parse(&refused, &mut found), DumpEnd::Failed(-1));
        assert_eq!(parse(&[], &mut found), DumpEnd::More);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u16..24) {
            parse(&bytes, &mut Vec::new());
            parse(&message(kind, &bytes, &[]), &mut Vec::new());
        }
    }
}
