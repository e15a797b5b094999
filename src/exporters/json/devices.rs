//! Devices as the API tells them: all of a host, and those of an alloc.
//!
//! ```text
//! /v1/devices            devices: each with all that is known of it, and the tasks on it
//! /v1/allocs/{id}/stats  devices: each of the alloc once, by id, with what was read of it and what the alloc uses of it
//!                        tasks/T/devices: what the task uses of each, by the same ids; what they share stands above, once
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::fields::{measured, set};
use crate::board::devices::{AllocDevices, DeviceView, PluginView};
use crate::devices::measures;
use crate::model::answer::{Detail, WITHHELD};
use crate::model::device::{DeviceReading, DeviceUsage, DeviceUsageSum, TaskDevice};
use crate::model::id::{DeviceId, TaskName};
use crate::model::measure::Measure;
use crate::snapshot::Snapshot;

/// `/v1/devices`.
pub fn all(snapshot: &Snapshot, detail: Detail) -> Value {
    let view = &*snapshot.devices;
    let mut tasks: HashMap<&DeviceId, Vec<&TaskDevice>> = HashMap::new();
    for of in view.uses.iter().filter(|of| !of.ended) {
        tasks.entry(&of.device).or_default().push(of);
    }
    let mut parts: HashMap<&DeviceId, Vec<&DeviceId>> = HashMap::new();
    for device in &view.devices {
        device.device.facts.parent.iter().for_each(|whole| parts.entry(whole).or_default().push(&device.device.id));
    }
    let rows = view.devices.iter().map(|device| {
        let id = &device.device.id;
        let mut row = whole_row(device, detail);
        set(&mut row, "instances", parts.get(id));
        row["tasks"] = tasks.get(id).into_iter().flatten().map(|of| holder(of)).collect();
        row
    });
    json!({
        "epoch": snapshot.epoch,
        "taken_at": snapshot.taken_at,
        "devices": rows.collect::<Vec<_>>(),
        "plugins": view.plugins.iter().map(|plugin| plugin_row(plugin, detail)).collect::<Vec<_>>(),
    })
}

fn plugin_row(plugin: &PluginView, detail: Detail) -> Value {
    let mut row = json!({ "name": plugin.name, "up": plugin.down.is_none(), "faults": plugin.faults });
    if let Some(down) = &plugin.down {
        row["reason"] = json!(down.reason);
        row["message"] = json!(if detail == Detail::Full { &down.message } else { WITHHELD });
    }
    row
}

/// All that is known of a device.
fn whole_row(view: &DeviceView, detail: Detail) -> Value {
    let mut row = row(view, detail);
    row["id"] = json!(view.device.id);
    row["plugin"] = json!(view.plugin);
    let told = view.attributes.iter().filter(|(_, attribute)| detail.tells(attribute));
    row["attributes"] = json!(told.collect::<BTreeMap<_, _>>());
    set(&mut row, "unowned_memory_bytes", view.unowned_bytes);
    let facts = &view.device.facts;
    let text = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
    set(&mut row, "index", facts.index);
    set(&mut row, "pci_bus_id", text(&facts.pci_bus_id));
    set(&mut row, "driver_version", text(&facts.driver_version));
    set(&mut row, "vbios_version", text(&facts.vbios_version));
    set(&mut row, "numa_node", facts.numa_node);
    set(&mut row, "gpu_instance", facts.gpu_instance);
    set(&mut row, "compute_instance", facts.compute_instance);
    if detail == Detail::Full {
        set(&mut row, "serial", text(&facts.serial));
        set(&mut row, "nodes", Some(&facts.nodes).filter(|nodes| !nodes.is_empty()));
    }
    row
}

/// What it is, how it is, and what was read of it.
fn row(view: &DeviceView, detail: Detail) -> Value {
    let mut row = identity(view);
    row["up"] = json!(view.up);
    row["stuck"] = json!(view.stuck);
    row["healthy"] = json!(view.device.unhealthy.is_none());
    set(
        &mut row,
        "why",
        view.device.unhealthy.as_deref().map(|why| if detail == Detail::Full { why } else { WITHHELD }),
    );
    if let Some(reading) = view.reading.as_deref().filter(|reading| reading.up) {
        read(&mut row, view, reading, detail);
    }
    row
}

fn identity(view: &DeviceView) -> Value {
    let mut row = json!({ "vendor": view.kind.vendor, "type": view.kind.kind, "name": view.kind.name });
    set(&mut row, "parent", view.device.facts.parent.as_ref());
    row
}

fn read(row: &mut Value, view: &DeviceView, reading: &DeviceReading, detail: Detail) {
    let of: &[Measure<DeviceUsage>] = if view.is_instance() { measures::INSTANCE } else { measures::DEVICE };
    row["read_at"] = json!(reading.at);
    row["values"] = measured(of.iter(), &reading.values).into();
    let xids = reading.values.xids.iter().map(|(number, xid)| {
        let mut told = json!({ "count": xid.count });
        set(&mut told, "last_at", xid.last);
        (number.to_string(), told)
    });
    set(row, "xid_errors", Some(xids.collect::<Map<_, _>>()).filter(|xids| !xids.is_empty()));
    let stats = detail.stats(&reading.stats);
    set(row, "stats", Some(stats).filter(|stats| *stats != Default::default()));
}

fn holder(of: &TaskDevice) -> Value {
    let mut row = on_task(of);
    row["alloc_id"] = json!(of.alloc.id);
    row["task"] = json!(of.task);
    row
}

/// What a task uses of a device.
fn on_task(of: &TaskDevice) -> Value {
    let told = measures::ON_TASK.iter().filter(|measure| !(of.ended && measure.nature().goes_with_the_end()));
    let mut row: Value = measured(told, &of.usage).into();
    row["reserved"] = json!(of.reserved);
    row["final"] = json!(of.ended);
    row
}

/// Of a task of `/v1/allocs/{id}/stats`, by device. `None`: it has none.
pub(super) fn of_task(devices: &AllocDevices<'_>, task: &TaskName) -> Option<Map<String, Value>> {
    let rows = devices.of_task(task).iter().map(|of| (of.device.to_string(), on_task(of)));
    Some(rows.collect()).filter(|rows: &Map<_, _>| !rows.is_empty())
}

/// Of `/v1/allocs/{id}/stats`: each device once. `None`: the alloc has none.
pub(super) fn of_alloc(devices: &AllocDevices<'_>, detail: Detail) -> Option<Map<String, Value>> {
    let mut uses: BTreeMap<&DeviceId, Vec<&TaskDevice>> = BTreeMap::new();
    for of in devices.uses {
        uses.entry(&of.device).or_default().push(of);
    }
    let live = devices.uses.iter().filter(|of| !of.ended).flat_map(|of| [&of.device, &of.whole]);
    let live: HashSet<&DeviceId> = live.collect();
    let mut rows: BTreeMap<&DeviceId, Value> = BTreeMap::new();
    for (id, view) in &devices.devices {
        // What is read of it now is not of who has ended.
        rows.insert(id, if live.contains(*id) { row(view, detail) } else { identity(view) });
    }
    for (id, tasks) in uses {
        let row = rows.entry(id).or_insert_with(|| json!({}));
        for (name, value) in together(&tasks) {
            row[name] = value;
        }
    }
    let rows: Map<_, _> = rows.into_iter().map(|(id, row)| (id.to_string(), row)).collect();
    Some(rows).filter(|rows| !rows.is_empty())
}

/// What the tasks of an alloc use of a device, as its series say it.
fn together(tasks: &[&TaskDevice]) -> [(&'static str, Value); 3] {
    let ended = tasks.iter().all(|of| of.ended);
    let mut sum = DeviceUsageSum::default();
    for of in tasks {
        if of.ended { sum.add_ended(&of.usage) } else { sum.add(&of.usage) }
    }
    let told = measures::ON_TASK.iter().filter(|measure| {
        let nature = measure.nature();
        nature.is_of_allocs() && !(ended && nature.goes_with_the_end())
    });
    let reserved = tasks.iter().any(|of| of.reserved);
    [("usage", measured(told, sum.get()).into()), ("reserved", json!(reserved)), ("final", json!(ended))]
}
