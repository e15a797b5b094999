//! systemd: a service or scope is an alloc with one task, unless it contains other allocs. Slices are parents.
//!
//! ```text
//! /system.slice/nginx.service                                         workload: the slice
//! /user.slice/user-1000.slice/user@1000.service/app.slice/a.service   unit of a user manager: 1000/a.service
//! /machine.slice/systemd-nspawn@web.service/payload/…                 a machine: one task, whatever it runs
//! ```
//! Units inside of a unit are ignored, except below a user manager: a container may run a systemd of its own, whose
//! units have the same names as the host's.

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, EndBy, Naming, OwnCgroup, Recognised};
use crate::model::alloc::AllocSource;

pub static SYSTEMD: ObservedSource = ObservedSource { word: AllocSource::Systemd, recognise, runtime: None };

/// The user whose systemd manager runs in a cgroup of this name.
pub fn manager_of(name: &str) -> Option<u32> {
    name.strip_prefix("user@")?.strip_suffix(".service")?.parse().ok()
}

/// systemd-nspawn services, and machines registered with systemd-machined.
fn is_machine(unit: &str) -> bool {
    (unit.starts_with("systemd-nspawn@") && unit.ends_with(".service"))
        || (unit.starts_with("machine-") && unit.ends_with(".scope"))
}

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    if at.above().find(is_unit).is_some_and(|unit| manager_of(unit).is_none()) {
        return None;
    }
    // systemd prefixes names that could clash with kernel files by an underscore.
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
