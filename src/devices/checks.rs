//! Validates the reports of device plugins. Pure. Errors name the field.

use std::collections::BTreeSet;

use super::plugin::{PluginError, PluginFault};
use crate::model::device::{DeviceGroup, DeviceProcess, DeviceReading, DeviceUsage};
use crate::model::id::DeviceId;

/// Far more than any host has: a plugin that reports more is broken.
const MOST_DEVICES: usize = 10_000;
const MOST_PROCESSES: usize = 100_000;

fn invalid(message: String) -> PluginError {
    PluginError::new(PluginFault::Invalid, message)
}

/// Checks that names are not empty and IDs are unique.
pub fn groups(groups: &[DeviceGroup]) -> Result<(), PluginError> {
    let count: usize = groups.iter().map(|group| group.devices.len()).sum();
    if count > MOST_DEVICES {
        return Err(invalid(format!("groups: {count} devices, more than {MOST_DEVICES}")));
    }
    let (mut kinds, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (at, group) in groups.iter().enumerate() {
        let parts = [("vendor", &group.kind.vendor), ("type", &group.kind.kind), ("name", &group.kind.name)];
        if let Some((part, _)) = parts.iter().find(|(_, text)| text.is_empty()) {
            return Err(invalid(format!("groups[{at}].{part}: is empty")));
        }
        if !kinds.insert(&group.kind) {
            return Err(invalid(format!("groups[{at}]: {} is listed twice", group.kind)));
        }
        for (n, device) in group.devices.iter().enumerate() {
            if device.id.as_str().is_empty() {
                return Err(invalid(format!("groups[{at}].devices[{n}].id: is empty")));
            }
            if !ids.insert(&device.id) {
                return Err(invalid(format!("groups[{at}].devices[{n}].id: {} is listed twice", device.id)));
            }
        }
    }
    Ok(())
}

/// Checks that ratios are finite and between 0 and 1, and that the list of processes is bounded.
pub fn reading(reading: &DeviceReading) -> Result<(), PluginError> {
    let DeviceUsage { utilization, activity, .. } = &*reading.values;
    shares(&reading.device, utilization.iter().chain(activity).copied())?;
    processes(&reading.device, reading.processes.as_deref().unwrap_or_default())
}

/// As [`reading`], for processes alone.
pub fn processes(device: &DeviceId, processes: &[DeviceProcess]) -> Result<(), PluginError> {
    if processes.len() > MOST_PROCESSES {
        return Err(invalid(format!("{device}: {} processes, more than {MOST_PROCESSES}", processes.len())));
    }
    shares(device, processes.iter().map(|process| process.sm_ratio))
}

fn shares(device: &DeviceId, mut shares: impl Iterator<Item = Option<f64>>) -> Result<(), PluginError> {
    match shares.find_map(|share| share.filter(|share| !(0.0..=1.0).contains(share))) {
        Some(share) => Err(invalid(format!("{device}: ratio {share} is not between 0 and 1"))),
        None => Ok(()),
    }
}
