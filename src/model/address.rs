//! Addresses of the host's network interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Of an interface. Source: linux/if.h.
pub const UP: u32 = 1;
pub const BROADCAST: u32 = 2;
pub const LOOPBACK: u32 = 8;
pub const POINT_TO_POINT: u32 = 0x10;
pub const RUNNING: u32 = 0x40;
pub const MULTICAST: u32 = 0x1000;

/// One address of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub interface: String,
    pub block: AddressBlock,
    pub flags: u32,
    /// The IPv4 default route leads through its interface.
    pub is_default: bool,
}

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    pub ip: IpAddr,
    pub prefix: u8,
}

impl AddressBlock {
    /// `10.0.0.0/8`; an address alone is a network of itself. `None`: it is neither.
    pub fn parse(text: &str) -> Option<AddressBlock> {
        let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
        let ip: IpAddr = ip.parse().ok()?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) => digits.parse().ok().filter(|prefix| *prefix <= longest)?,
            None => longest,
        };
        Some(AddressBlock { ip, prefix })
    }

    pub fn netmask(self) -> IpAddr {
        match self.ip {
            IpAddr::V4(_) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                Ipv4Addr::from_bits(mask).into()
            }
            IpAddr::V6(_) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                Ipv6Addr::from_bits(mask).into()
            }
        }
    }

    /// The first address of its network, with the same prefix.
    pub fn network(self) -> AddressBlock {
        let ip = match (self.ip, self.netmask()) {
            (IpAddr::V4(ip), IpAddr::V4(mask)) => (ip & mask).into(),
            (IpAddr::V6(ip), IpAddr::V6(mask)) => (ip & mask).into(),
            (ip, _) => ip,
        };
        AddressBlock { ip, ..self }
    }

    /// Whether the whole network of the other one is in this network.
    pub fn contains(self, other: AddressBlock) -> bool {
        let within = AddressBlock { prefix: self.prefix, ..other };
        self.ip.is_ipv4() == other.ip.is_ipv4()
            && self.prefix <= other.prefix
            && self.network().ip == within.network().ip
    }
}

impl std::fmt::Display for AddressBlock {
    /// An address alone has no prefix.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ip, self.prefix) {
            (IpAddr::V4(ip), 32) => write!(f, "{ip}"),
            (IpAddr::V6(ip), 128) => write!(f, "{ip}"),
            (ip, prefix) => write!(f, "{ip}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> AddressBlock {
        AddressBlock::parse(text).unwrap()
    }

    #[test]
    fn network_contains_what_lies_in_it_as_a_whole() {
        for (outer, inner, expected) in [
            ("10.0.0.0/8", "10.1.2.3/24", true),
            ("10.1.2.3/24", "10.0.0.0/8", false),
            ("0.0.0.0/0", "10.1.2.3/24", true),
            ("192.168.1.0/24", "192.168.2.7/24", false),
            ("fc00::/7", "fd00::1/64", true),
            ("::/0", "10.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
        ] {
            assert_eq!(block(outer).contains(block(inner)), expected, "{inner} in {outer}");
        }
        for wrong in ["10.0.0.0/33", "10.0.0/8", "x", "", "10.0.0.1/", "fd00::1/129", "10.0.0.1/-1"] {
            assert_eq!(AddressBlock::parse(wrong), None, "{wrong}");
        }
        let shown = ["10.1.2.3/24", "10.1.2.3/32", "fd00::1/64"].map(|text| {
            let block = block(text);
            format!("{block} {} {}", block.network(), block.netmask())
        });
        assert_eq!(
            shown,
            [
                "10.1.2.3/24 10.1.2.0/24 255.255.255.0",
                "10.1.2.3 10.1.2.3 255.255.255.255",
                "fd00::1/64 fd00::/64 ffff:ffff:ffff:ffff::"
            ]
        );
    }
}
