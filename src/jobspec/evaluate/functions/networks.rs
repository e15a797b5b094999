//! Blocks of IP addresses.

use std::net::IpAddr;

use super::arguments::{ANY, HclFunction, pure, text, whole};
use crate::jobspec::evaluate::value::HclValue;
use crate::model::address::AddressBlock;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("cidrhost", (2, 2), |a| {
        let block = CidrBlock::of(&text(a, 0)?)?;
        let (number, hosts) = (i128::from(whole(a, 1)?), block.hosts());
        // Negative: counted from the end.
        let at = if number < 0 { hosts.checked_sub(number.unsigned_abs()) } else { u128::try_from(number).ok() };
        let at = at.filter(|at| *at < hosts).ok_or("the block has no such address")?;
        Ok(HclValue::Text(block.address(block.start | at).to_string()))
    }),
    pure("cidrnetmask", (1, 1), |a| match written(&text(a, 0)?)?.netmask() {
        IpAddr::V4(mask) => Ok(HclValue::Text(mask.to_string())),
        IpAddr::V6(_) => Err("only IPv4 has netmasks".to_owned()),
    }),
    pure("cidrsubnet", (3, 3), |a| {
        let number = u128::try_from(whole(a, 2)?).map_err(|_| "a number of a subnet is not negative")?;
        let block = CidrBlock::of(&text(a, 0)?)?;
        block.subnet(whole(a, 1)?, number).map(|subnet| HclValue::Text(subnet.shown()))
    }),
    pure("cidrsubnets", (2, ANY), |a| {
        let block = CidrBlock::of(&text(a, 0)?)?;
        let (mut next, mut all) = (block.start, Vec::new());
        for at in 1..a.len() {
            let mut subnet = block.subnet(whole(a, at)?, 0)?;
            // Aligned to its own size, behind the one before it.
            let size = subnet.hosts();
            subnet.start = next.div_ceil(size).checked_mul(size).ok_or("the block is too small")?;
            next = subnet.start.checked_add(size).ok_or("the block is too small")?;
            if next - block.start > block.hosts() {
                return Err("the block is too small".to_owned());
            }
            all.push(HclValue::Text(subnet.shown()));
        }
        Ok(HclValue::List(all))
    }),
];

/// With its prefix, unlike [`AddressBlock::parse`].
fn written(text: &str) -> Result<AddressBlock, String> {
    let block = AddressBlock::parse(text).filter(|_| text.contains('/'));
    block.ok_or_else(|| format!("{text:?} is no block such as 10.0.0.0/8"))
}

#[derive(Clone)]
struct CidrBlock {
    start: u128,
    prefix: u32,
    /// 32 or 128.
    bits: u32,
}

impl CidrBlock {
    fn of(text: &str) -> Result<CidrBlock, String> {
        let network = written(text)?.network();
        let (start, bits) = match network.ip {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        Ok(CidrBlock { start, prefix: u32::from(network.prefix), bits })
    }

    /// Addresses in it; the largest block of IPv6 has one less than it should.
    fn hosts(&self) -> u128 {
        1_u128.checked_shl(self.bits - self.prefix).unwrap_or(u128::MAX)
    }

    fn subnet(&self, more: i64, number: u128) -> Result<CidrBlock, String> {
        let prefix = u32::try_from(more).ok().and_then(|more| self.prefix.checked_add(more));
        let prefix = prefix.filter(|prefix| *prefix <= self.bits).ok_or("the prefix gets too long")?;
        if prefix == self.prefix && number == 0 {
            return Ok(self.clone());
        }
        if number.checked_shr(prefix - self.prefix).unwrap_or(0) != 0 {
            return Err(format!("a prefix of {prefix} bits has no subnet {number}"));
        }
        let offset = number.checked_shl(self.bits - prefix).unwrap_or(0);
        Ok(CidrBlock { start: self.start | offset, prefix, bits: self.bits })
    }

    #[allow(clippy::cast_possible_truncation)]
    fn address(&self, number: u128) -> IpAddr {
        // Of IPv4 only 32 bits are used.
        if self.bits == 32 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.address(self.start), self.prefix)
    }
}
