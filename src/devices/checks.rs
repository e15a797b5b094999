//! What a plugin says is believed only if it can be. Pure. Errors name the field.

use std::collections::BTreeSet;

use super::plugin::{PluginError, PluginFault};
use crate::model::device::{DeviceGroup, DeviceProcess, DeviceReading, DeviceUsage};
use crate::model::id::DeviceId;

/// More than any host has: a plugin that says so is broken.
const MOST_DEVICES: usize = 10_000;
const MOST_PROCESSES: usize = 100_000;

fn invalid(message: String) -> PluginError {
    PluginError::new(PluginFault::Invalid, message)
}

/// Names that are not empty, ids that are there once.
pub fn groups(groups: &[DeviceGroup]) -> Result<(), PluginError> {
    let count: usize = groups.iter().map(|group| group.devices.len()).sum();
    if count > MOST_DEVICES {
        return Err(invalid(format!("groups: {count} devices, more than {MOST_DEVICES}")));
    }
    let (mut kinds, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (at, group) in groups.iter().enumerate() {
        let parts = [("vendor", &group.kind.vendor), ("type", &group.kind.kind), ("name", &group.kind.name)];
        if let Some((part, _)) = parts.iter().find(|(_, text)| text.is_empty()) {
            return Err(invalid(format!("groups[{at}].{part}: it is empty")));
        }
        if !kinds.insert(&group.kind) {
            return Err(invalid(format!("groups[{at}]: {} is there twice", group.kind)));
        }
        for (n, device) in group.devices.iter().enumerate() {
            if device.id.as_str().is_empty() {
                return Err(invalid(format!("groups[{at}].devices[{n}].id: it is empty")));
            }
            if !ids.insert(&device.id) {
                return Err(invalid(format!("groups[{at}].devices[{n}].id: {} is there twice", device.id)));
            }
        }
    }
    Ok(())
}

/// Finite numbers, shares that are none of more than the whole.
pub fn reading(reading: &DeviceReading) -> Result<(), PluginError> {
    let DeviceUsage { utilization, activity, .. } = &*reading.values;
    shares(&reading.device, utilization.iter().chain(activity).copied())?;
    processes(&reading.device, reading.processes.as_deref().unwrap_or_default())
}

/// As of a reading.
pub fn processes(device: &DeviceId, processes: &[DeviceProcess]) -> Result<(), PluginError> {
    if processes.len() > MOST_PROCESSES {
        return Err(invalid(format!("{device}: {} processes, more than {MOST_PROCESSES}", processes.len())));
    }
    shares(device, processes.iter().map(|process| process.sm_ratio))
}

fn shares(device: &DeviceId, mut shares: impl Iterator<Item = Option<f64>>) -> Result<(), PluginError> {
    match shares.find_map(|share| share.filter(|share| !(0.0..=1.0).contains(share))) {
        Some(share) => Err(invalid(format!("{device}: a share of {share} is none between 0 and 1"))),
        None => Ok(()),
    }
}
