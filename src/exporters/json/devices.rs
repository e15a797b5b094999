//! Devices as the API reports them: all of a host, and those of an alloc.
//!
//! ```text
//! /v1/devices            devices: each with all that is known of it, and the tasks on it
//! /v1/allocs/{id}/stats  devices: each of the alloc once, by id, with what was read of it and what the alloc uses of it
//!                        tasks/T/devices: what the task uses of each, by the same ids; what they share stands above, once
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::fields::{MeasureTable, MeasuredValues, measured};
use crate::board::devices::{AllocDevices, DeviceView, PluginView};
use crate::devices::measures;
use crate::model::answer::{Detail, WITHHELD};
use crate::model::attribute::Attribute;
use crate::model::device::{DeviceReading, DeviceUsage, DeviceUsageSum, TaskDevice};
use crate::model::id::{AllocId, DeviceId, TaskName};
use crate::model::measure::Measure;
use crate::model::stat::StatObject;
use crate::model::units::Timestamp;
use crate::snapshot::Snapshot;

/// Devices of this host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DevicesAnswer {
    /// Number of the tick.
    pub epoch: u64,
    pub taken_at: Timestamp,
    pub devices: Vec<DeviceAnswer>,
    pub plugins: Vec<DevicePluginAnswer>,
}

/// A plugin and its state.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DevicePluginAnswer {
    pub name: String,
    pub up: bool,
    /// How often it ended or failed, by reason.
    pub faults: BTreeMap<&'static str, u64>,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a device is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceMake {
    pub vendor: String,
    /// `gpu`, `fpga` ...
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    /// The device that this MIG instance belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
}

/// The state of a device, and what was read of it last.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceNow {
    /// Its plugin lists it, and it answers.
    pub up: bool,
    /// A call to it did not return in time.
    pub stuck: bool,
    pub healthy: bool,
    /// Why it is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// Values under the names of their metrics, without `allostat_device_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<MeasuredValues<DeviceTable>>,
    /// Errors by XID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid_errors: Option<BTreeMap<String, XidAnswer>>,
    /// What the plugin reports beyond the values. Texts only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<StatObject>,
}

/// One kind of GPU error.
#[derive(Debug, Serialize, JsonSchema)]
pub struct XidAnswer {
    /// Since the agent watches.
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
}

/// A device with all that is known of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceAnswer {
    pub id: DeviceId,
    pub plugin: String,
    #[serde(flatten)]
    pub device: DeviceMake,
    #[serde(flatten)]
    pub now: DeviceNow,
    /// What the plugin reports about this device and its model. Texts only for clients that may act.
    pub attributes: BTreeMap<String, Attribute>,
    /// Memory in use that belongs to no task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unowned_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vbios_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Files below `/dev`. Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// Its instances (MIG).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Vec<DeviceId>>,
    /// Tasks that hold or use it.
    pub tasks: Vec<HolderAnswer>,
}

/// A task that holds or uses a device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HolderAnswer {
    pub alloc_id: AllocId,
    pub task: TaskName,
    #[serde(flatten)]
    pub used: UseOfDevice,
}

/// What a task uses of a device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UseOfDevice {
    /// The device was given to the task, whether it uses it or not.
    pub reserved: bool,
    /// The task has ended.
    #[serde(rename = "final")]
    pub is_final: bool,
    #[serde(flatten)]
    pub values: MeasuredValues<TaskDeviceTable>,
}

/// A device of an alloc. A removed device has no name; a device that no running task holds has no state.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct DeviceOfAlloc {
    #[serde(flatten)]
    pub device: Option<DeviceMake>,
    #[serde(flatten)]
    pub now: Option<DeviceNow>,
    /// Sums over the tasks of the alloc. Absent if its tasks hold only MIG instances of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<MeasuredValues<TaskDeviceTable>>,
    /// A task of the alloc was given the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<bool>,
    /// All its tasks on this device have ended.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    pub is_final: Option<bool>,
}

/// Values of a device as a whole.
#[derive(Debug)]
pub struct DeviceTable;

impl MeasureTable for DeviceTable {
    const NAME: &'static str = "MeasuredOfDevice";
    fn paths() -> Vec<Vec<&'static str>> {
        let all = measures::DEVICE.iter().chain(measures::INSTANCE);
        all.flat_map(Measure::paths).collect()
    }
}

/// Values of a task on a device.
#[derive(Debug)]
pub struct TaskDeviceTable;

impl MeasureTable for TaskDeviceTable {
    const NAME: &'static str = "MeasuredOfTask";
    fn paths() -> Vec<Vec<&'static str>> {
        measures::ON_TASK.iter().flat_map(Measure::paths).collect()
    }
}

/// `/v1/devices`.
pub fn all(snapshot: &Snapshot, detail: Detail) -> DevicesAnswer {
    let view = &*snapshot.devices;
    let mut tasks: HashMap<&DeviceId, Vec<&TaskDevice>> = HashMap::new();
    for of in view.uses.iter().filter(|of| !of.ended) {
        tasks.entry(&of.device).or_default().push(of);
    }
    let mut parts: HashMap<&DeviceId, Vec<DeviceId>> = HashMap::new();
    for device in &view.devices {
        let facts = &device.device.facts;
        facts.parent.iter().for_each(|whole| parts.entry(whole).or_default().push(device.device.id.clone()));
    }
    let rows = view.devices.iter().map(|device| {
        let id = &device.device.id;
        let tasks = tasks.get(id).into_iter().flatten().map(|of| holder(of)).collect();
        DeviceAnswer { instances: parts.remove(id), tasks, ..whole_row(device, detail) }
    });
    DevicesAnswer {
        epoch: snapshot.epoch,
        taken_at: snapshot.taken_at,
        devices: rows.collect(),
        plugins: view.plugins.iter().map(|plugin| plugin_row(plugin, detail)).collect(),
    }
}

fn plugin_row(plugin: &PluginView, detail: Detail) -> DevicePluginAnswer {
    let message = |message: &String| if detail == Detail::Full { message.clone() } else { WITHHELD.to_owned() };
    DevicePluginAnswer {
        name: plugin.name.to_string(),
        up: plugin.down.is_none(),
        faults: plugin.faults.clone(),
        reason: plugin.down.as_ref().map(|down| down.reason),
        message: plugin.down.as_ref().map(|down| message(&down.message)),
    }
}

/// All that is known of a device.
fn whole_row(view: &DeviceView, detail: Detail) -> DeviceAnswer {
    let facts = &view.device.facts;
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let is_full = detail == Detail::Full;
    let attributes = view.attributes.iter().filter(|(_, attribute)| detail.shows(attribute));
    DeviceAnswer {
        id: view.device.id.clone(),
        plugin: view.plugin.to_string(),
        device: name(view),
        now: now(view, detail),
        attributes: attributes.map(|(name, attribute)| (name.clone(), attribute.clone())).collect(),
        unowned_memory_bytes: view.unowned_bytes,
        index: facts.index,
        pci_bus_id: text(&facts.pci_bus_id),
        driver_version: text(&facts.driver_version),
        vbios_version: text(&facts.vbios_version),
        numa_node: facts.numa_node,
        gpu_instance: facts.gpu_instance,
        compute_instance: facts.compute_instance,
        serial: text(&facts.serial).filter(|_| is_full),
        nodes: Some(facts.nodes.clone()).filter(|nodes| is_full && !nodes.is_empty()),
        instances: None,
        tasks: Vec::new(),
    }
}

fn name(view: &DeviceView) -> DeviceMake {
    DeviceMake {
        vendor: view.kind.vendor.clone(),
        kind: view.kind.kind.clone(),
        name: view.kind.name.clone(),
        parent: view.device.facts.parent.clone(),
    }
}

/// How it is, and what was read of it.
fn now(view: &DeviceView, detail: Detail) -> DeviceNow {
    let why = view.device.unhealthy.as_deref().map(|why| if detail == Detail::Full { why } else { WITHHELD });
    let reading = view.reading.as_deref().filter(|reading| reading.up);
    let of: &[Measure<DeviceUsage>] = if view.is_instance() { measures::INSTANCE } else { measures::DEVICE };
    DeviceNow {
        up: view.up,
        stuck: view.stuck,
        healthy: view.device.unhealthy.is_none(),
        why: why.map(str::to_owned),
        read_at: reading.map(|reading| reading.at),
        values: reading.map(|reading| measured(of.iter(), &*reading.values)),
        xid_errors: reading.map(xid_errors).filter(|xids| !xids.is_empty()),
        stats: reading.map(|reading| detail.stats(&reading.stats)).filter(|stats| *stats != StatObject::default()),
    }
}

fn xid_errors(reading: &DeviceReading) -> BTreeMap<String, XidAnswer> {
    let xids = reading.values.xids.iter();
    xids.map(|(number, xid)| (number.to_string(), XidAnswer { count: xid.count, last_at: xid.last })).collect()
}

fn holder(of: &TaskDevice) -> HolderAnswer {
    HolderAnswer { alloc_id: of.alloc.id.clone(), task: of.task.clone(), used: on_task(of) }
}

/// What a task uses of a device.
fn on_task(of: &TaskDevice) -> UseOfDevice {
    let exposed = measures::ON_TASK.iter().filter(|measure| !(of.ended && measure.nature().goes_with_the_end()));
    UseOfDevice { reserved: of.reserved, is_final: of.ended, values: measured(exposed, &of.usage) }
}

/// Of a task of `/v1/allocs/{id}/stats`, by device. `None`: it has none.
pub(super) fn of_task(devices: &AllocDevices<'_>, task: &TaskName) -> Option<BTreeMap<DeviceId, UseOfDevice>> {
    let rows = devices.of_task(task).iter().map(|of| (of.device.clone(), on_task(of)));
    Some(rows.collect()).filter(|rows: &BTreeMap<_, _>| !rows.is_empty())
}

/// Of `/v1/allocs/{id}/stats`: each device once. `None`: the alloc has none.
pub(super) fn of_alloc(devices: &AllocDevices<'_>, detail: Detail) -> Option<BTreeMap<DeviceId, DeviceOfAlloc>> {
    let mut uses: BTreeMap<&DeviceId, Vec<&TaskDevice>> = BTreeMap::new();
    for of in devices.uses {
        uses.entry(&of.device).or_default().push(of);
    }
    let live = devices.uses.iter().filter(|of| !of.ended).flat_map(|of| [&of.device, &of.whole]);
    let live: HashSet<&DeviceId> = live.collect();
    let mut rows: BTreeMap<DeviceId, DeviceOfAlloc> = BTreeMap::new();
    for (id, view) in &devices.devices {
        // What is read of it now is not of who has ended.
        let now = live.contains(*id).then(|| now(view, detail));
        rows.insert((*id).clone(), DeviceOfAlloc { device: Some(name(view)), now, ..DeviceOfAlloc::default() });
    }
    for (id, tasks) in uses {
        together(rows.entry(id.clone()).or_default(), &tasks);
    }
    Some(rows).filter(|rows| !rows.is_empty())
}

/// What the tasks of an alloc use of a device, as its series say it.
fn together(row: &mut DeviceOfAlloc, tasks: &[&TaskDevice]) {
    let ended = tasks.iter().all(|of| of.ended);
    let mut sum = DeviceUsageSum::default();
    for of in tasks {
        if of.ended { sum.add_ended(&of.usage) } else { sum.add(&of.usage) }
    }
    let exposed = measures::ON_TASK.iter().filter(|measure| {
        let nature = measure.nature();
        nature.is_of_allocs() && !(ended && nature.goes_with_the_end())
    });
    row.usage = Some(measured(exposed, sum.get()));
    row.reserved = Some(tasks.iter().any(|of| of.reserved));
    row.is_final = Some(ended);
}
