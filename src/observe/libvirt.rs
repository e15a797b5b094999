//! libvirt: a machine is an alloc with one task: its emulator and all its virtual processors.
//!
//! ```text
//! /machine.slice/machine-qemu\x2d<n>\x2d<name>.scope     with systemd; machine-lxc\x2d… too
//! /machine/qemu-<n>-<name>.libvirt-qemu                  without; <name>.libvirt-qemu before 1.3
//! ```

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, Recognised, is_number, unescape};
use crate::model::alloc::AllocSource;

pub static LIBVIRT: ObservedSource = ObservedSource { word: AllocSource::Libvirt, recognise, runtime: None };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let machine = match at.name().strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope")) {
        Some(scope) => numbered(&unescape(scope))?,
        None => {
            let kinds = [".libvirt-qemu", ".libvirt-lxc"];
            let machine = kinds.into_iter().find_map(|kind| at.name().strip_suffix(kind))?;
            numbered(machine).unwrap_or_else(|| machine.to_owned())
        }
    };
    (!machine.is_empty()).then(|| Recognised::named(AllocSource::Libvirt, &machine).into())
}

/// `web` of `qemu-1-web`.
fn numbered(machine: &str) -> Option<String> {
    let rest = ["qemu-", "lxc-"].into_iter().find_map(|kind| machine.strip_prefix(kind))?;
    let (number, name) = rest.split_once('-')?;
    is_number(number).then(|| name.to_owned())
}
