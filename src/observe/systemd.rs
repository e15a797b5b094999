//! systemd: a service or a scope is an alloc with one task, unless allocs of others live inside of it. Slices are sums.
//!
//! ```text
//! /system.slice/nginx.service                                         workload: the slice
//! /user.slice/user-1000.slice/user@1000.service/app.slice/a.service   of the systemd of a user: 1000/a.service
//! ```

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, EndBy, Naming, OwnCgroup, Recognised};
use crate::model::alloc::AllocSource;

pub static SYSTEMD: ObservedSource = ObservedSource { word: AllocSource::Systemd, recognise, runtime: None };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    // systemd puts an underscore before what the kernel could take for a file of its own.
    let unit = at.name().strip_prefix('_').unwrap_or(at.name());
    let (stem, kind) = unit.rsplit_once('.')?;
    match kind {
        _ if stem.is_empty() => return None,
        "service" | "scope" => {}
        "slice" | "mount" | "socket" | "swap" => return Some(CgroupVerdict::Group),
        _ => return None,
    }
    let user = at.above().find_map(|name| name.strip_prefix("user@")?.strip_suffix(".service"));
    let native = user.map_or_else(|| unit.to_owned(), |user| format!("{user}/{unit}"));
    let naming = Naming {
        name: unit.to_owned(),
        task: unit.to_owned(),
        workload: at.above().find(|name| name.ends_with(".slice")).map(str::to_owned),
        user: user.map(str::to_owned),
        driver: Some("systemd".to_owned()),
        ..Naming::of(&native)
    };
    let source = AllocSource::Systemd;
    let (own, ends_by) = (OwnCgroup::Task, EndBy::LastProcess);
    Some(Recognised { source, container: None, own, is_closed: false, ends_by, naming }.into())
}
