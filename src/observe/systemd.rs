//! systemd: a service or a scope is an alloc with one task, unless allocs of others live inside of it. Slices are sums.
//!
//! ```text
//! /system.slice/nginx.service                                         workload: the slice
//! /user.slice/user-1000.slice/user@1000.service/app.slice/a.service   of the systemd of a user: 1000/a.service
//! /machine.slice/systemd-nspawn@web.service/payload/…                 a machine: one task, whatever runs in it
//! ```
//! Inside of a unit there are no units of this systemd, unless the unit is that of a user's own systemd: another one may run there, in a
//! container, with units that are called like those of the host.

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, EndBy, Naming, OwnCgroup, Recognised};
use crate::model::alloc::AllocSource;

pub static SYSTEMD: ObservedSource = ObservedSource { word: AllocSource::Systemd, recognise, runtime: None };

/// The user whose systemd runs in a cgroup of this name.
pub fn manager_of(name: &str) -> Option<u32> {
    name.strip_prefix("user@")?.strip_suffix(".service")?.parse().ok()
}

/// systemd-nspawn as a service, and what systemd-machined has registered.
fn is_machine(unit: &str) -> bool {
    (unit.starts_with("systemd-nspawn@") && unit.ends_with(".service"))
        || (unit.starts_with("machine-") && unit.ends_with(".scope"))
}

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    if at.above().find(is_unit).is_some_and(|unit| manager_of(unit).is_none()) {
        return None;
    }
    // systemd puts an underscore before what the kernel could take for a file of its own.
    let unit = at.name().strip_prefix('_').unwrap_or(at.name());
    let (stem, kind) = unit.rsplit_once('.')?;
    match kind {
        _ if stem.is_empty() => return None,
        "service" | "scope" => {}
        "slice" | "mount" | "socket" | "swap" => return Some(CgroupVerdict::Group),
        _ => return None,
    }
    let naming = Naming {
        workload: at.above().find(|name| name.ends_with(".slice")).map(str::to_owned),
        driver: Some("systemd".to_owned()),
        ..Naming::of(unit)
    };
    let source = AllocSource::Systemd;
    let (own, ends_by) = (OwnCgroup::Task, EndBy::LastProcess);
    Some(Recognised { source, container: None, own, is_closed: is_machine(unit), ends_by, naming, user: None }.into())
}
