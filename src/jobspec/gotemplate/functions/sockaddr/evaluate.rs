//! Executes a pipeline of `sockaddr`.

use std::cmp::Ordering;
use std::net::IpAddr;

use regex::Regex;

use super::blocks;
use super::pipeline::{
    AddressKind, AddressSet, AddressTest, ListSource, SockaddrAttribute, SockaddrFilter, SockaddrOutput,
    SockaddrPipeline, SortKey,
};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::functions::arguments::Tools;
use crate::model::address::{BROADCAST, InterfaceAddress, LOOPBACK, MULTICAST, POINT_TO_POINT, RUNNING, UP};

/// go-sockaddr's order of its own lists.
const BY_USE: [(SortKey, bool); 3] = [(SortKey::Default, false), (SortKey::Family, false), (SortKey::Size, false)];
const BY_SIZE: [(SortKey, bool); 2] = [(SortKey::Family, false), (SortKey::Size, false)];

/// Errors: an offset beyond the list; a pattern that is too large.
pub(super) fn evaluate(
    pipeline: &SockaddrPipeline,
    all: Vec<InterfaceAddress>,
    tools: &Tools<'_>,
) -> Result<String, FunctionFault> {
    match pipeline {
        SockaddrPipeline::Ip(set) => {
            let list = match set {
                AddressSet::Private => source(ListSource::Private, all),
                AddressSet::Public => source(ListSource::Public, all),
                AddressSet::Interface(name) => {
                    let name = tools.pattern(name)?;
                    let of_name = |one: &InterfaceAddress| name.is_match(&one.interface) && is_forwardable(one);
                    sorted(retained(all, of_name), &BY_SIZE)
                }
            };
            Ok(list.first().map(|one| one.block.ip.to_string()).unwrap_or_default())
        }
        SockaddrPipeline::Ips(set) => {
            let list = match set {
                AddressSet::Private => retained(all, |one| blocks::is_special(one.block) && is_forwardable(one)),
                AddressSet::Public => retained(all, |one| !blocks::is_special(one.block)),
                AddressSet::Interface(name) => {
                    let name = tools.pattern(name)?;
                    retained(all, |one| name.is_match(&one.interface))
                }
            };
            let list = sorted(list, &BY_SIZE);
            Ok(list.iter().map(|one| one.block.ip.to_string()).collect::<Vec<_>>().join(" "))
        }
        SockaddrPipeline::List { source: of, filters, end } => {
            let mut list = source(*of, all);
            for filter in filters {
                list = filtered(list, filter, tools)?;
            }
            Ok(match end {
                SockaddrOutput::First(attribute) => list.first().map(|one| shown(one, *attribute)).unwrap_or_default(),
                SockaddrOutput::Join(attribute, between) => {
                    list.iter().map(|one| shown(one, *attribute)).collect::<Vec<_>>().join(between)
                }
            })
        }
    }
}

fn source(of: ListSource, all: Vec<InterfaceAddress>) -> Vec<InterfaceAddress> {
    let is_usable = |one: &InterfaceAddress| is_forwardable(one) && one.flags & UP != 0;
    match of {
        ListSource::All => all,
        ListSource::Default => retained(all, |one| one.is_default),
        ListSource::Private => sorted(retained(all, |one| is_usable(one) && blocks::is_special(one.block)), &BY_USE),
        ListSource::Public => sorted(retained(all, |one| is_usable(one) && !blocks::is_special(one.block)), &BY_USE),
    }
}

fn is_forwardable(one: &InterfaceAddress) -> bool {
    blocks::is_forwardable(one.block)
}

fn retained(mut list: Vec<InterfaceAddress>, keep: impl Fn(&InterfaceAddress) -> bool) -> Vec<InterfaceAddress> {
    list.retain(keep);
    list
}

fn filtered(
    mut list: Vec<InterfaceAddress>,
    filter: &SockaddrFilter,
    tools: &Tools<'_>,
) -> Result<Vec<InterfaceAddress>, FunctionFault> {
    match filter {
        SockaddrFilter::Include(test) | SockaddrFilter::Exclude(test) => {
            let pattern = match test {
                AddressTest::Address(pattern) | AddressTest::Name(pattern) => Some(tools.pattern(pattern)?),
                AddressTest::Flags(..)
                | AddressTest::Within(_)
                | AddressTest::MaskBits(_)
                | AddressTest::Family { .. } => None,
            };
            let is_include = matches!(filter, SockaddrFilter::Include(_));
            list.retain(|one| passes(one, test, pattern.as_ref()) == is_include);
        }
        SockaddrFilter::Sort(keys) => list = sorted(list, keys),
        SockaddrFilter::UniqueAddress => list.dedup_by(|a, b| a.block == b.block),
        SockaddrFilter::UniqueName => list.dedup_by(|a, b| a.interface == b.interface),
        SockaddrFilter::Limit(most) => list.truncate(*most),
        SockaddrFilter::Offset(distance) | SockaddrFilter::OffsetBack(distance) => {
            let beyond = || format!("the offset {distance} is beyond the {} addresses of the list", list.len());
            let rest = list.len().checked_sub(*distance).ok_or_else(beyond)?;
            let from = if matches!(filter, SockaddrFilter::Offset(_)) { *distance } else { rest };
            list.drain(..from);
        }
    }
    Ok(list)
}

/// `pattern`: that of the test, compiled.
fn passes(one: &InterfaceAddress, test: &AddressTest, pattern: Option<&Regex>) -> bool {
    let matches = |text: &str| pattern.is_some_and(|pattern| pattern.is_match(text));
    match test {
        AddressTest::Address(_) => matches(&one.block.to_string()),
        AddressTest::Name(_) => matches(&one.interface),
        AddressTest::Flags(bits, kinds) => {
            (*bits != 0 && one.flags & bits == *bits) || kinds.iter().any(|kind| is_of_kind(one, *kind))
        }
        AddressTest::Within(outer) => outer.iter().any(|outer| outer.contains(one.block)),
        AddressTest::MaskBits(bits) => one.block.prefix == *bits,
        AddressTest::Family { v4, v6 } => {
            if one.block.ip.is_ipv4() {
                *v4
            } else {
                *v6
            }
        }
    }
}

/// As Go's package net has them.
fn is_of_kind(one: &InterfaceAddress, kind: AddressKind) -> bool {
    let ip = one.block.ip;
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    match kind {
        AddressKind::Forwardable => is_forwardable(one),
        AddressKind::GlobalUnicast => {
            let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local || is_broadcast)
        }
        AddressKind::LinkLocalUnicast => is_link_local,
        AddressKind::Loopback => ip.is_loopback(),
        AddressKind::Multicast => ip.is_multicast(),
    }
}

fn sorted(mut list: Vec<InterfaceAddress>, keys: &[(SortKey, bool)]) -> Vec<InterfaceAddress> {
    list.sort_by(|a, b| {
        let compared = keys.iter().map(|(key, is_descending)| {
            let order = compare(a, b, *key);
            if *is_descending { order.reverse() } else { order }
        });
        compared.fold(Ordering::Equal, Ordering::then)
    });
    list
}

fn compare(a: &InterfaceAddress, b: &InterfaceAddress, key: SortKey) -> Ordering {
    match key {
        SortKey::Address => a.block.ip.cmp(&b.block.ip),
        SortKey::Default => b.is_default.cmp(&a.is_default),
        SortKey::Name => a.interface.cmp(&b.interface),
        // The largest network first.
        SortKey::Size => a.block.prefix.cmp(&b.block.prefix),
        SortKey::Family => a.block.ip.is_ipv6().cmp(&b.block.ip.is_ipv6()),
    }
}

fn shown(one: &InterfaceAddress, attribute: SockaddrAttribute) -> String {
    match attribute {
        SockaddrAttribute::Address => one.block.ip.to_string(),
        SockaddrAttribute::Flags => {
            let names = [
                (UP, "up"),
                (BROADCAST, "broadcast"),
                (LOOPBACK, "loopback"),
                (POINT_TO_POINT, "pointtopoint"),
                (MULTICAST, "multicast"),
                (RUNNING, "running"),
            ];
            let set = names.iter().filter(|(bit, _)| one.flags & bit != 0).map(|(_, name)| *name);
            set.collect::<Vec<_>>().join("|")
        }
        SockaddrAttribute::MaskBits => one.block.prefix.to_string(),
        SockaddrAttribute::Name => one.interface.clone(),
        SockaddrAttribute::Netmask => one.block.netmask().to_string(),
        SockaddrAttribute::Network => one.block.network().to_string(),
        SockaddrAttribute::Text => one.block.to_string(),
        SockaddrAttribute::Family => if one.block.ip.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
    }
}
