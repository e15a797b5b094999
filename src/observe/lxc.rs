//! LXC and LXD: a container is an alloc with one task. The monitor process beside it is ignored.
//!
//! ```text
//! …/lxc.payload.<name>, …/lxc.payload/<name>     LXC 4 and later
//! /lxc/<name>                                    before
//! ```

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, RecognisedTask};
use crate::model::alloc::AllocSource;

pub static LXC: ObservedSource = ObservedSource { word: AllocSource::Lxc, recognise, runtime: None };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let (name, parent) = (at.name(), at.parent());
    if name.starts_with("lxc.monitor.") || parent == "lxc.monitor" {
        return Some(CgroupVerdict::Helper);
    }
    let container = name.strip_prefix("lxc.payload.").or_else(|| {
        let below = parent == "lxc.payload" || (parent == "lxc" && at.depth() == 2);
        below.then_some(name)
    })?;
    (!container.is_empty()).then(|| RecognisedTask::named(AllocSource::Lxc, container).into())
}
