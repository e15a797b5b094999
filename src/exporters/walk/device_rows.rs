//! Devices of a snapshot, row by row.

use std::collections::{BTreeMap, HashSet};

use crate::board::devices::{DeviceView, DevicesView};
use crate::model::device::{DeviceUsageSum, TaskDevice};
use crate::model::id::AllocId;
use crate::snapshot::Snapshot;

/// Devices, row by row.
#[derive(Debug, Default)]
pub(super) struct DeviceWalk<'a> {
    pub(super) wholes: Vec<&'a DeviceView>,
    pub(super) instances: Vec<&'a DeviceView>,
    pub(super) tasks: Vec<&'a TaskDevice>,
    pub(super) allocs: Vec<AllocDevice<'a>>,
}

/// What the tasks of an alloc are on a device, together.
#[derive(Debug)]
pub(super) struct AllocDevice<'a> {
    /// The first of them: they have alloc and device in common.
    pub(super) of: &'a TaskDevice,
    pub(super) reserved: bool,
    pub(super) usage: DeviceUsageSum,
    pub(super) ended: bool,
}

impl<'a> DeviceWalk<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> DeviceWalk<'a> {
        let view: &DevicesView = &snapshot.devices;
        let (instances, wholes) = view.devices.iter().map(|view| &**view).partition(|view| view.is_instance());
        let retired: HashSet<&AllocId> = if view.uses.is_empty() {
            HashSet::new()
        } else {
            snapshot.allocs.iter().filter(|alloc| alloc.retired).map(|alloc| &alloc.identity.id).collect()
        };
        let tasks: Vec<&TaskDevice> =
            view.uses.iter().map(|of| &**of).filter(|of| !retired.contains(&of.alloc.id)).collect();
        let allocs = together(&tasks);
        DeviceWalk { wholes, instances, tasks, allocs }
    }
}

/// Of each alloc each device once, in their order.
fn together<'a>(tasks: &[&'a TaskDevice]) -> Vec<AllocDevice<'a>> {
    let mut all: Vec<AllocDevice<'a>> = Vec::new();
    for of_alloc in tasks.chunk_by(|a, b| a.alloc.id == b.alloc.id) {
        let mut devices: BTreeMap<&str, AllocDevice<'a>> = BTreeMap::new();
        for task in of_alloc {
            let fresh = || AllocDevice { of: task, reserved: false, usage: DeviceUsageSum::default(), ended: true };
            let sum = devices.entry(task.device.as_str()).or_insert_with(fresh);
            sum.reserved |= task.reserved;
            sum.ended &= task.ended;
            if task.ended { sum.usage.add_ended(&task.usage) } else { sum.usage.add(&task.usage) }
        }
        all.extend(devices.into_values());
    }
    all
}
