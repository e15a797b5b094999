//! The same snapshot in the shape of Nomad's client API, for what reads that.
//!
//! Source: Nomad's HTTP API, `/v1/client/allocation/:id/stats` and `/v1/client/stats`; `AllocResourceUsage` and
//! `HostStats` there.
//! Absent when: Nomad derives it from two readings (`Percent`, `SystemMode`, `UserMode`, `TotalTicks`, the CPUs of the
//! host): a rate is for who scrapes. `Measured` names what is there, as in Nomad.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::board::devices::DeviceView;
use crate::devices::stats::{stats_of, summary_of};
use crate::model::answer::Detail;
use crate::model::attribute::{Number, UnitName};
use crate::model::device::{DeviceKind, DeviceReading, TaskDevice};
use crate::model::id::{DeviceId, TaskName};
use crate::model::metric;
use crate::model::stat::{StatObject, StatReading, StatValue};
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};
use crate::snapshot::{AllocView, Snapshot};

/// Nomad's `AllocResourceUsage`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadAllocStats {
    pub resource_usage: NomadUsage,
    /// Tasks that run, by name.
    pub tasks: BTreeMap<TaskName, NomadTaskStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Nomad's `TaskResourceUsage`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadTaskStats {
    pub resource_usage: NomadUsage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Nomad's `ResourceUsage`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadUsage {
    pub memory_stats: NomadStats<MemoryNames>,
    pub cpu_stats: NomadStats<CpuNames>,
    pub device_stats: Vec<NomadDeviceGroup>,
}

/// Nomad's `HostStats`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadHostStats {
    pub timestamp: Timestamp,
    pub memory: NomadHostMemory,
    /// The volume of the data directory.
    pub alloc_dir_stats: NomadHostDisk,
    /// Always empty.
    #[serde(rename = "CPU")]
    pub cpu: Vec<u64>,
    /// Always empty.
    pub disk_stats: Vec<u64>,
    pub device_stats: Vec<NomadDeviceGroup>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime: Option<u64>,
}

/// Nomad's `HostMemoryStats`, in bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadHostMemory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// Nomad's `HostDiskStats`, in bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadHostDisk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
}

/// Nomad's `DeviceGroupStats`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadDeviceGroup {
    pub vendor: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub name: String,
    /// By the ID of the device.
    pub instance_stats: BTreeMap<DeviceId, NomadDeviceStats>,
}

/// Nomad's `DeviceStats`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadDeviceStats {
    pub stats: NomadStatObject,
    /// RFC 3339, in UTC.
    pub timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<NomadStatValue>,
}

/// Nomad's `StatObject`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadStatObject {
    pub attributes: BTreeMap<String, NomadStatValue>,
    pub nested: BTreeMap<String, NomadStatObject>,
}

/// Nomad's `StatValue`: a number of one sort, a text or a boolean.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct NomadStatValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int_numerator_val: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int_denominator_val: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float_numerator_val: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float_denominator_val: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string_val: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bool_val: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desc: Option<String>,
}

/// `AllocResourceUsage`: of the tasks those that run.
pub fn allocation(snapshot: &Snapshot, alloc: &AllocView, detail: Detail) -> NomadAllocStats {
    let devices = snapshot.devices.of_alloc(&alloc.identity.id);
    let live = |uses: &[Arc<TaskDevice>]| -> BTreeMap<_, _> {
        let live = uses.iter().filter(|of| !of.ended);
        live.filter_map(|of| devices.devices.get_key_value(&of.device)).map(|(id, view)| (*id, *view)).collect()
    };
    let running = alloc.tasks().filter(|(_, task)| task.attempt.is_some()).map(|(known, task)| {
        let own = live(devices.of_task(&known.name));
        let resource_usage = usage(&task.usage, groups(own.into_values(), detail));
        (known.name.clone(), NomadTaskStats { resource_usage, timestamp: task.sampled_at })
    });
    NomadAllocStats {
        resource_usage: usage(&alloc.usage, groups(live(devices.uses).into_values(), detail)),
        tasks: running.collect(),
        timestamp: alloc.sampled_at,
    }
}

/// `HostStats`.
pub fn client(snapshot: &Snapshot, detail: Detail) -> NomadHostStats {
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
    NomadHostStats {
        timestamp: snapshot.taken_at,
        memory: NomadHostMemory { total, available, used },
        alloc_dir_stats: NomadHostDisk {
            size: disk("allostat_host_filesystem_size_bytes"),
            available: disk("allostat_host_filesystem_avail_bytes"),
        },
        cpu: Vec::new(),
        disk_stats: Vec::new(),
        device_stats: groups(snapshot.devices.devices.iter().map(|device| &**device), detail),
        uptime: snapshot.info.booted_at.map(|since| snapshot.taken_at.since(since).0 / 1_000_000_000),
    }
}

/// Names of values in Nomad: as `Measured` has them, the key, and the field itself.
pub trait NomadNames: 'static {
    /// Of the schema.
    const SCHEMA: &'static str;
    const ALL: &'static [(&'static str, &'static str, Field)];
}

/// Nomad's `MemoryStats`.
#[derive(Debug)]
pub struct MemoryNames;

impl NomadNames for MemoryNames {
    const SCHEMA: &'static str = "NomadMemoryStats";
    const ALL: &'static [(&'static str, &'static str, Field)] = &[
        ("RSS", "RSS", Field::memory_rss_bytes),
        ("Cache", "Cache", Field::memory_cache_bytes),
        ("Swap", "Swap", Field::memory_swap_bytes),
        ("Mapped File", "MappedFile", Field::memory_mapped_bytes),
        ("Usage", "Usage", Field::memory_usage_bytes),
        ("Max Usage", "MaxUsage", Field::memory_peak_bytes),
        ("Kernel Usage", "KernelUsage", Field::memory_kernel_bytes),
    ];
}

/// Nomad's `CpuStats`.
#[derive(Debug)]
pub struct CpuNames;

impl NomadNames for CpuNames {
    const SCHEMA: &'static str = "NomadCpuStats";
    const ALL: &'static [(&'static str, &'static str, Field)] = &[
        ("Throttled Periods", "ThrottledPeriods", Field::cpu_cfs_throttled_periods),
        ("Throttled Time", "ThrottledTime", Field::cpu_throttled_ns),
    ];
}

/// Some values of a usage under Nomad's names; `Measured` lists those that are there.
#[derive(Debug)]
pub struct NomadStats<N>(Usage, PhantomData<N>);

impl<N: NomadNames> NomadStats<N> {
    fn there(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        N::ALL.iter().filter_map(|(name, key, field)| Some((*name, *key, self.0.get(*field)?)))
    }
}

impl<N: NomadNames> Serialize for NomadStats<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_map(None)?;
        for (_, key, value) in self.there() {
            all.serialize_entry(key, &value)?;
        }
        all.serialize_entry("Measured", &self.there().map(|(name, ..)| name).collect::<Vec<_>>())?;
        all.end()
    }
}

impl<N: NomadNames> JsonSchema for NomadStats<N> {
    fn schema_name() -> Cow<'static, str> {
        N::SCHEMA.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values = N::ALL.iter().map(|(_, key, _)| ((*key).to_owned(), json!({ "type": "integer", "minimum": 0 })));
        let mut properties: Map<String, Value> = values.collect();
        properties.insert("Measured".to_owned(), json!({ "type": "array", "items": { "type": "string" } }));
        json_schema!({ "type": "object", "properties": properties, "required": ["Measured"] })
    }
}

fn usage(usage: &Usage, device_stats: Vec<NomadDeviceGroup>) -> NomadUsage {
    NomadUsage {
        memory_stats: NomadStats(usage.clone(), PhantomData),
        cpu_stats: NomadStats(usage.clone(), PhantomData),
        device_stats,
    }
}

/// `DeviceGroupStats`: each make once, and in it each device once. Of what does not answer nothing is said.
fn groups<'a>(devices: impl Iterator<Item = &'a DeviceView>, detail: Detail) -> Vec<NomadDeviceGroup> {
    let mut groups: BTreeMap<&DeviceKind, BTreeMap<DeviceId, NomadDeviceStats>> = BTreeMap::new();
    for view in devices {
        if let Some(reading) = view.reading.as_deref().filter(|reading| reading.up) {
            groups.entry(&view.kind).or_default().insert(view.device.id.clone(), instance(reading, detail));
        }
    }
    let row = |(kind, instance_stats): (&DeviceKind, _)| NomadDeviceGroup {
        vendor: kind.vendor.clone(),
        kind: kind.kind.clone(),
        name: kind.name.clone(),
        instance_stats,
    };
    groups.into_iter().map(row).collect()
}

/// Measures known by name, beside the stats that its plugin reports.
fn instance(reading: &DeviceReading, detail: Detail) -> NomadDeviceStats {
    let (mut stats, own) = (stats_of(&reading.values), detail.stats(&reading.stats));
    stats.attributes.extend(own.attributes);
    stats.nested.extend(own.nested);
    NomadDeviceStats { stats: object(&stats), timestamp: reading.at.rfc3339(), summary: summary_of(&stats).map(value) }
}

fn object(of: &StatObject) -> NomadStatObject {
    NomadStatObject {
        attributes: of.attributes.iter().map(|(name, stat)| (name.clone(), value(stat))).collect(),
        nested: of.nested.iter().map(|(name, nested)| (name.clone(), object(nested))).collect(),
    }
}

fn value(stat: &StatValue) -> NomadStatValue {
    let mut row = match &stat.value {
        None => NomadStatValue::default(),
        Some(StatReading::Text(text)) => NomadStatValue { string_val: Some(text.clone()), ..NomadStatValue::default() },
        Some(StatReading::Bool(is_so)) => NomadStatValue { bool_val: Some(*is_so), ..NomadStatValue::default() },
        Some(StatReading::Ratio { numerator, denominator, unit }) => NomadStatValue {
            unit: unit.as_ref().map(UnitName::as_str).map(str::to_owned),
            ..ratio(*numerator, *denominator)
        },
    };
    row.desc = stat.description.clone();
    row
}

/// Whole where both are, in 64 bits with a sign; a number and its denominator are of one sort.
fn ratio(numerator: Number, denominator: Option<Number>) -> NomadStatValue {
    let whole = |n: Number| n.as_int().and_then(|n| i64::try_from(n).ok());
    let none = NomadStatValue::default();
    match (whole(numerator), denominator.map(whole)) {
        (Some(numerator), None) => NomadStatValue { int_numerator_val: Some(numerator), ..none },
        (Some(numerator), Some(Some(denominator))) => {
            NomadStatValue { int_numerator_val: Some(numerator), int_denominator_val: Some(denominator), ..none }
        }
        (None, _) | (Some(_), Some(None)) => NomadStatValue {
            float_numerator_val: Some(numerator.as_f64()),
            float_denominator_val: denominator.map(Number::as_f64),
            ..none
        },
    }
}
