//! Converts plugin messages into model values, or rejects a message as a whole and names the invalid field. Pure.
//!
//! Errors: [`InvalidField`], with the field's path in the message, such as `device_group[0].devices[2].id`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use crate::devices::protocol::messages::{
    Container, Detected, Fact, FactValue, FingerprintAnswer, Group, GroupStats, InstanceStats, Moment, Mount, Node,
    Stat, Stats, StatsAnswer,
};
use crate::model::attribute::{Attribute, Number, UnitName};
use crate::model::device::{
    Device, DeviceFacts, DeviceGroup, DeviceKind, DeviceMount, DeviceNode, DeviceReading, DeviceReservation,
    DeviceUsage,
};
use crate::model::id::DeviceId;
use crate::model::stat::{StatObject, StatReading, StatValue};
use crate::model::text::{LONGEST_LABEL_VALUE, steers_a_terminal};
use crate::model::units::Timestamp;

/// Limit per plugin.
const MOST_DEVICES: usize = 10_000;
/// Limit per group; for values, per device.
const MOST_ATTRIBUTES: usize = 1_000;
const MOST_TEXT_BYTES: usize = 4 << 10;

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {what}")]
pub(in crate::devices) struct InvalidField {
    path: String,
    what: String,
}

impl InvalidField {
    fn at(path: impl Display, what: impl Display) -> InvalidField {
        InvalidField { path: path.to_string(), what: what.to_string() }
    }
    fn within(self, outer: impl Display) -> InvalidField {
        InvalidField { path: format!("{outer}.{}", self.path), ..self }
    }
}

/// Converts the complete list of devices.
pub(in crate::devices) fn groups(answer: FingerprintAnswer) -> Result<Vec<DeviceGroup>, InvalidField> {
    let (mut kinds, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let mut groups = Vec::new();
    for (at, reported) in answer.device_group.into_iter().enumerate() {
        let path = format!("device_group[{at}]");
        let group = group(reported, &mut ids).map_err(|e| e.within(&path))?;
        if !kinds.insert(group.kind.clone()) {
            return Err(InvalidField::at(path, format_args!("lists {} twice", group.kind)));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn group(reported: Group, ids: &mut BTreeSet<DeviceId>) -> Result<DeviceGroup, InvalidField> {
    let kind = DeviceKind {
        vendor: present("vendor", reported.vendor)?,
        kind: present("device_type", reported.device_type)?,
        name: present("device_name", reported.device_name)?,
    };
    few("attributes", reported.attributes.len(), MOST_ATTRIBUTES)?;
    let attributes = reported.attributes.into_iter().map(|(name, fact)| {
        let path = entry("attributes", &name);
        Ok((present("name", name).map_err(|e| e.within(&path))?, attribute(fact).map_err(|e| e.within(&path))?))
    });
    let attributes = attributes.collect::<Result<BTreeMap<_, _>, InvalidField>>()?;
    let mut devices = Vec::new();
    for (at, reported) in reported.devices.into_iter().enumerate() {
        let path = format!("devices[{at}]");
        let device = device(reported).map_err(|e| e.within(&path))?;
        if !ids.insert(device.id.clone()) {
            return Err(InvalidField::at("id", format_args!("lists {:?} twice", device.id.as_str())).within(path));
        }
        few("devices", ids.len(), MOST_DEVICES)?;
        devices.push(device);
    }
    Ok(DeviceGroup { kind, attributes, devices })
}

fn device(reported: Detected) -> Result<Device, InvalidField> {
    let id = DeviceId::new(present("id", reported.id)?);
    let description = short("health_description", reported.health_description)?;
    let why = if description.is_empty() { "the plugin gives no reason".to_owned() } else { description };
    let pci_bus_id = label("hw_locality.pci_bus_id", reported.hw_locality.unwrap_or_default().pci_bus_id)?;
    let facts = DeviceFacts { pci_bus_id, ..DeviceFacts::default() };
    Ok(Device { unhealthy: (!reported.healthy).then_some(why), facts, ..Device::of(id) })
}

fn attribute(reported: Fact) -> Result<Attribute, InvalidField> {
    let unit = unit(reported.unit)?;
    let number = |value| Attribute::Number { value, unit: unit.clone() };
    let attribute = match reported.value {
        None => return Err(InvalidField::at("value", "is missing")),
        Some(FactValue::Float(float)) => return Ok(number(finite("float_val", float)?)),
        Some(FactValue::Int(int)) => return Ok(number(int.into())),
        Some(FactValue::Text(text)) => Attribute::Text(short("string_val", text)?),
        Some(FactValue::Bool(bool)) => Attribute::Bool(bool),
    };
    match unit {
        None => Ok(attribute),
        Some(_) => Err(InvalidField::at("unit", "is set, but the value is not a number")),
    }
}

/// Converts readings. Returns the IDs of devices that the plugin did not list separately. `now`: time of readings
/// without a timestamp.
pub(in crate::devices) fn readings(
    answer: StatsAnswer,
    known: &BTreeSet<DeviceId>,
    now: Timestamp,
) -> Result<(Vec<DeviceReading>, Vec<DeviceId>), InvalidField> {
    let (mut readings, mut unknown, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (at, GroupStats { instance_stats, .. }) in answer.groups.into_iter().enumerate() {
        for (id, reported) in instance_stats {
            let path = format!("groups[{at}].{}", entry("instance_stats", &id));
            let id = DeviceId::new(id);
            if !seen.insert(id.clone()) {
                return Err(InvalidField::at(path, "is listed twice"));
            }
            if known.contains(&id) {
                readings.push(reading(id, reported, now).map_err(|e| e.within(&path))?);
            } else {
                unknown.push(id);
            }
        }
    }
    Ok((readings, unknown))
}

fn reading(device: DeviceId, reported: InstanceStats, now: Timestamp) -> Result<DeviceReading, InvalidField> {
    if let Some(summary) = reported.summary {
        stat(summary).map_err(|e| e.within("summary"))?;
    }
    let mut count = 0;
    let stats = object(reported.stats.unwrap_or_default(), &mut count).map_err(|e| e.within("stats"))?;
    let at = reported
        .timestamp
        .map_or(Some(now), moment)
        .ok_or_else(|| InvalidField::at("timestamp", "is not a valid time"))?;
    let values = Arc::new(DeviceUsage::default());
    Ok(DeviceReading { device, at, up: true, values, stats: Arc::new(stats), processes: None })
}

/// `None`: before 1970, or after 2554.
fn moment(reported: Moment) -> Option<Timestamp> {
    let nanos = u64::try_from(reported.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let seconds = u64::try_from(reported.seconds).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos).map(Timestamp)
}

/// The protobuf decoder limits the nesting depth.
fn object(reported: Stats, count: &mut usize) -> Result<StatObject, InvalidField> {
    *count += reported.attributes.len() + reported.nested.len();
    few("attributes", *count, MOST_ATTRIBUTES)?;
    let mut object = StatObject::default();
    for (name, value) in reported.attributes {
        let path = entry("attributes", &name);
        let value = stat(value).map_err(|e| e.within(&path))?;
        object.attributes.insert(label("name", name).map_err(|e| e.within(&path))?, value);
    }
    for (name, value) in reported.nested {
        let path = entry("nested", &name);
        let value = self::object(value, count).map_err(|e| e.within(&path))?;
        object.nested.insert(label("name", name).map_err(|e| e.within(&path))?, value);
    }
    Ok(object)
}

fn stat(reported: Stat) -> Result<StatValue, InvalidField> {
    let number = |name: &str, int: Option<i64>, float: Option<f64>| match (int, float) {
        (Some(_), Some(_)) => {
            Err(InvalidField::at(format_args!("int_{name}_val"), format_args!("is set together with float_{name}_val")))
        }
        (Some(int), None) => Ok(Some(int.into())),
        (None, Some(float)) => finite(&format!("float_{name}_val"), float).map(Some),
        (None, None) => Ok(None),
    };
    let numerator = number("numerator", reported.int_numerator, reported.float_numerator)?;
    let denominator = number("denominator", reported.int_denominator, reported.float_denominator)?;
    let unit = unit(reported.unit)?;
    let value = match (numerator, reported.text, reported.bool) {
        (Some(numerator), None, None) => Some(StatReading::Ratio { numerator, denominator, unit }),
        (None, ..) if denominator.is_some() => {
            return Err(InvalidField::at("numerator_val", "is missing although a denominator is set"));
        }
        (None, Some(text), None) => Some(StatReading::Text(short("string_val", text)?)),
        (None, None, Some(bool)) => Some(StatReading::Bool(bool)),
        (None, None, None) => None,
        (Some(_), ..) | (None, Some(_), Some(_)) => return Err(InvalidField::at("value", "has two types")),
    };
    let description = Some(short("desc", reported.desc)?).filter(|text| !text.is_empty());
    Ok(StatValue { value, description })
}

/// Converts the answer to a reservation.
pub(in crate::devices) fn reservation(reported: Container) -> Result<DeviceReservation, InvalidField> {
    few("envs", reported.envs.len(), MOST_ATTRIBUTES)?;
    few("mounts", reported.mounts.len(), MOST_ATTRIBUTES)?;
    few("devices", reported.devices.len(), MOST_ATTRIBUTES)?;
    let variable = |(name, value): (String, String)| {
        let path = entry("envs", &name);
        if name.contains(['=', '\0']) || value.contains('\0') {
            return Err(InvalidField::at(path, "is not a valid environment variable"));
        }
        let value = short("value", value).map_err(|e| e.within(&path))?;
        Ok((present("name", name).map_err(|e| e.within(&path))?, value))
    };
    let env = reported.envs.into_iter().map(variable).collect::<Result<_, InvalidField>>()?;
    let each = |list, at, e: InvalidField| e.within(format_args!("{list}[{at}]"));
    let mounts = reported
        .mounts
        .into_iter()
        .enumerate()
        .map(|(at, reported)| mount(reported).map_err(|e| each("mounts", at, e)));
    let nodes = reported
        .devices
        .into_iter()
        .enumerate()
        .map(|(at, reported)| node(reported).map_err(|e| each("devices", at, e)));
    Ok(DeviceReservation { env, mounts: mounts.collect::<Result<_, _>>()?, nodes: nodes.collect::<Result<_, _>>()? })
}

fn mount(reported: Mount) -> Result<DeviceMount, InvalidField> {
    let (task_path, host_path) =
        (absolute("task_path", reported.task_path)?, absolute("host_path", reported.host_path)?);
    Ok(DeviceMount { task_path, host_path, read_only: reported.read_only })
}

fn node(reported: Node) -> Result<DeviceNode, InvalidField> {
    let (task_path, host_path) =
        (absolute("task_path", reported.task_path)?, absolute("host_path", reported.host_path)?);
    let permissions = reported.permissions;
    if permissions.is_empty() || permissions.len() > 3 || permissions.contains(|c| !"rwm".contains(c)) {
        return Err(InvalidField::at("permissions", "is not a combination of r, w and m"));
    }
    Ok(DeviceNode { task_path, host_path, permissions })
}

/// Path of a map entry, with the key shortened for the message.
fn entry(field: &str, key: &str) -> String {
    let key: String = key.chars().take(80).collect();
    format!("{field}[{key:?}]")
}

fn few(field: &str, count: usize, most: usize) -> Result<(), InvalidField> {
    if count <= most { Ok(()) } else { Err(InvalidField::at(field, format_args!("has more than {most}"))) }
}

fn short(field: &str, text: String) -> Result<String, InvalidField> {
    let most = MOST_TEXT_BYTES;
    if text.len() <= most {
        Ok(text)
    } else {
        Err(InvalidField::at(field, format_args!("has {} bytes, more than {most}", text.len())))
    }
}

fn present(field: &str, text: String) -> Result<String, InvalidField> {
    if text.is_empty() { Err(InvalidField::at(field, "is empty")) } else { label(field, text) }
}

/// A text that becomes the value of a label.
fn label(field: &str, text: String) -> Result<String, InvalidField> {
    match text.len() {
        n if n > LONGEST_LABEL_VALUE => {
            Err(InvalidField::at(field, format_args!("has {n} bytes, more than {LONGEST_LABEL_VALUE}")))
        }
        _ if text.contains(steers_a_terminal) => {
            Err(InvalidField::at(field, "has a control or bidirectional character"))
        }
        _ => Ok(text),
    }
}

fn absolute(field: &str, path: String) -> Result<String, InvalidField> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(InvalidField::at(field, "is not an absolute path"));
    }
    short(field, path)
}

fn finite(field: &str, float: f64) -> Result<Number, InvalidField> {
    Number::float(float).map_err(|_| InvalidField::at(field, "is not finite"))
}

fn unit(reported: String) -> Result<Option<UnitName>, InvalidField> {
    let unit = short("unit", reported)?;
    Ok((!unit.is_empty()).then(|| UnitName::from(unit)))
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
