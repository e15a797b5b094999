//! The same snapshot in the shape of Nomad's client API, for what reads that.
//!
//! Source: Nomad's HTTP API, `/v1/client/allocation/:id/stats` and `/v1/client/stats`; `AllocResourceUsage` and `HostStats` there.
//! Absent when: Nomad derives it from two readings (`Percent`, `SystemMode`, `UserMode`, `TotalTicks`, the CPUs of the host): a rate
//! is for who scrapes. `Measured` names what is there, as in Nomad.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fields::set;
use crate::board::devices::DeviceView;
use crate::devices::stats::{stats_of, summary_of};
use crate::model::answer::Detail;
use crate::model::attribute::{Number, UnitName};
use crate::model::device::{DeviceKind, DeviceReading, TaskDevice};
use crate::model::metric;
use crate::model::stat::{StatObject, StatReading, StatValue};
use crate::model::usage::{Field, Usage};
use crate::snapshot::{AllocView, Snapshot};

/// `AllocResourceUsage`: of the tasks those that run.
pub fn allocation(snapshot: &Snapshot, alloc: &AllocView, detail: Detail) -> Value {
    let devices = snapshot.devices.of_alloc(&alloc.identity.id);
    let live = |uses: &[Arc<TaskDevice>]| -> BTreeMap<_, _> {
        let live = uses.iter().filter(|of| !of.ended);
        live.filter_map(|of| devices.devices.get_key_value(&of.device)).map(|(id, view)| (*id, *view)).collect()
    };
    let running = alloc.tasks().filter(|(_, task)| task.attempt.is_some()).map(|(known, task)| {
        let own = live(devices.of_task(&known.name));
        let mut row = json!({ "ResourceUsage": usage(&task.usage, groups(own.into_values(), detail)) });
        set(&mut row, "Timestamp", task.sampled_at);
        (known.name.to_string(), row)
    });
    let mut all = json!({
        "ResourceUsage": usage(&alloc.usage, groups(live(devices.uses).into_values(), detail)),
        "Tasks": running.collect::<Map<_, _>>(),
    });
    set(&mut all, "Timestamp", alloc.sampled_at);
    all
}

/// `HostStats`.
pub fn client(snapshot: &Snapshot, detail: Detail) -> Value {
    let host = |name: &str, label: Option<&str>| {
        let is_it = |s: &&metric::Sample| s.desc.name == name && s.labels.first().map(|l| &**l) == label;
        snapshot.host.0.iter().find(is_it).and_then(|sample| match sample.value {
            metric::Value::Int(n) => Some(n),
            metric::Value::Nanos(_) | metric::Value::Float(_) => None,
        })
    };
    let memory = |name| host(name, None);
    let (total, available) =
        (memory("allostat_host_memory_total_bytes"), memory("allostat_host_memory_available_bytes"));
    let used = total.zip(available).and_then(|(total, available)| total.checked_sub(available));
    let disk = |name| host(name, Some("data"));
    let mut all = json!({
        "Timestamp": snapshot.taken_at,
        "Memory": given([("Total", total), ("Available", available), ("Used", used)]),
        "AllocDirStats": given([
            ("Size", disk("allostat_host_filesystem_size_bytes")),
            ("Available", disk("allostat_host_filesystem_avail_bytes")),
        ]),
        "CPU": [],
        "DiskStats": [],
        "DeviceStats": groups(snapshot.devices.devices.iter().map(|device| &**device), detail),
    });
    set(&mut all, "Uptime", snapshot.info.booted_at.map(|since| snapshot.taken_at.since(since).0 / 1_000_000_000));
    all
}

fn given<const N: usize>(fields: [(&str, Option<u64>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

/// As `Measured` calls them, and the field itself.
const MEMORY: [(&str, &str, Field); 7] = [
    ("RSS", "RSS", Field::memory_rss_bytes),
    ("Cache", "Cache", Field::memory_cache_bytes),
    ("Swap", "Swap", Field::memory_swap_bytes),
    ("Mapped File", "MappedFile", Field::memory_mapped_bytes),
    ("Usage", "Usage", Field::memory_usage_bytes),
    ("Max Usage", "MaxUsage", Field::memory_peak_bytes),
    ("Kernel Usage", "KernelUsage", Field::memory_kernel_bytes),
];

const CPU: [(&str, &str, Field); 2] = [
    ("Throttled Periods", "ThrottledPeriods", Field::cpu_cfs_throttled_periods),
    ("Throttled Time", "ThrottledTime", Field::cpu_throttled_ns),
];

fn usage(usage: &Usage, devices: Value) -> Value {
    json!({ "MemoryStats": fields(&MEMORY, usage), "CpuStats": fields(&CPU, usage), "DeviceStats": devices })
}

fn fields(of: &[(&str, &str, Field)], usage: &Usage) -> Value {
    let there = || of.iter().filter_map(|(name, key, field)| Some((*name, *key, usage.get(*field)?)));
    let mut all: Map<_, _> = there().map(|(_, key, value)| (key.to_owned(), json!(value))).collect();
    all.insert("Measured".to_owned(), there().map(|(name, ..)| name).collect());
    all.into()
}

/// `DeviceGroupStats`: each make once, and in it each device once. Of what does not answer nothing is said.
fn groups<'a>(devices: impl Iterator<Item = &'a DeviceView>, detail: Detail) -> Value {
    let mut groups: BTreeMap<&DeviceKind, Map<String, Value>> = BTreeMap::new();
    for view in devices {
        if let Some(reading) = view.reading.as_deref().filter(|reading| reading.up) {
            let id = view.device.id.to_string();
            groups.entry(&view.kind).or_default().insert(id, instance(reading, detail));
        }
    }
    let row = |(kind, instances): (&DeviceKind, _)| json!({ "Vendor": kind.vendor, "Type": kind.kind, "Name": kind.name, "InstanceStats": Value::Object(instances) });
    groups.into_iter().map(row).collect()
}

/// What is known by name stands beside what its plugin tells.
fn instance(reading: &DeviceReading, detail: Detail) -> Value {
    let (mut told, own) = (stats_of(&reading.values), detail.stats(&reading.stats));
    told.attributes.extend(own.attributes);
    told.nested.extend(own.nested);
    let mut row = json!({ "Stats": object(&told), "Timestamp": reading.at.rfc3339() });
    set(&mut row, "Summary", summary_of(&told).map(value));
    row
}

fn object(of: &StatObject) -> Value {
    json!({
        "Attributes": of.attributes.iter().map(|(name, stat)| (name.clone(), value(stat))).collect::<Map<_, _>>(),
        "Nested": of.nested.iter().map(|(name, nested)| (name.clone(), object(nested))).collect::<Map<_, _>>(),
    })
}

fn value(stat: &StatValue) -> Value {
    let mut row = json!({});
    match &stat.value {
        None => {}
        Some(StatReading::Text(text)) => row["StringVal"] = json!(text),
        Some(StatReading::Bool(is_so)) => row["BoolVal"] = json!(is_so),
        Some(StatReading::Ratio { numerator, denominator, unit }) => {
            ratio(&mut row, *numerator, *denominator);
            set(&mut row, "Unit", unit.as_ref().map(UnitName::as_str));
        }
    }
    set(&mut row, "Desc", stat.description.as_ref());
    row
}

/// Whole where both are, in 64 bits with a sign; a number and its denominator are of one sort.
fn ratio(row: &mut Value, numerator: Number, denominator: Option<Number>) {
    let whole = |n: Number| n.as_int().and_then(|n| i64::try_from(n).ok());
    match (whole(numerator), denominator.map(whole)) {
        (Some(numerator), None) => row["IntNumeratorVal"] = json!(numerator),
        (Some(numerator), Some(Some(denominator))) => {
            row["IntNumeratorVal"] = json!(numerator);
            row["IntDenominatorVal"] = json!(denominator);
        }
        (None, _) | (Some(_), Some(None)) => {
            row["FloatNumeratorVal"] = json!(numerator.as_f64());
            set(row, "FloatDenominatorVal", denominator.map(Number::as_f64));
        }
    }
}
