//! Special-purpose blocks of addresses. Source: RFC 6890 and the RFCs that it names, as go-sockaddr has them.

use crate::model::address::AddressBlock;

/// Each RFC with its blocks.
const OF_RFCS: &[(&str, &[&str])] = &[
    ("1918", &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]),
    ("3927", &["169.254.0.0/16"]),
    ("4193", &["fc00::/7"]),
    ("6598", &["100.64.0.0/10"]),
    ("6890", SPECIAL),
];

const SPECIAL: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "64:ff9b::/96",
    "::ffff:0:0/96",
    "100::/64",
    "2001::/16",
    "2002::/16",
    "fc00::/7",
    "fe80::/10",
];

/// No router forwards them.
const NOT_FORWARDED: &[&str] = &[
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "::/128",
    "::ffff:0:0/96",
    "2001:db8::/32",
    "2001:10::/28",
    "fe80::/10",
];

/// `None`: not one of these RFCs.
pub(super) fn of_rfc(number: &str) -> Option<Vec<AddressBlock>> {
    let (_, blocks) = OF_RFCS.iter().find(|(known, _)| *known == number)?;
    Some(parsed(blocks))
}

pub(super) fn rfcs() -> impl Iterator<Item = &'static str> {
    OF_RFCS.iter().map(|(number, _)| *number)
}

/// Private, shared and other special-purpose addresses.
pub(super) fn is_special(block: AddressBlock) -> bool {
    parsed(SPECIAL).into_iter().any(|outer| outer.contains(block))
}

pub(super) fn is_forwardable(block: AddressBlock) -> bool {
    !parsed(NOT_FORWARDED).into_iter().any(|outer| outer.contains(block))
}

fn parsed(blocks: &[&str]) -> Vec<AddressBlock> {
    blocks.iter().filter_map(|block| AddressBlock::parse(block)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_one() {
        let all = OF_RFCS.iter().flat_map(|(_, blocks)| *blocks).chain(NOT_FORWARDED);
        for block in all {
            let parsed = AddressBlock::parse(block).unwrap_or_else(|| panic!("{block}"));
            assert_eq!(parsed.network(), parsed, "{block}");
        }
    }
}
