//! Converts model values to protocol messages. Pure.

use crate::devices::protocol::messages::{
    Container, Detected, Fact, FactValue, FingerprintAnswer, Group, GroupStats, InstanceStats, Locality, Moment, Mount,
    Node, ReserveAnswer, Stat, Stats, StatsAnswer,
};
use crate::devices::stats::{stats_of, summary_of};
use crate::model::attribute::{Attribute, Number, UnitName};
use crate::model::device::{Device, DeviceGroup, DeviceReading, DeviceReservation};
use crate::model::stat::{StatObject, StatReading, StatValue};
use crate::model::units::Timestamp;

pub(super) fn fingerprint(groups: &[DeviceGroup]) -> FingerprintAnswer {
    FingerprintAnswer { device_group: groups.iter().map(group).collect() }
}

fn group(group: &DeviceGroup) -> Group {
    Group {
        vendor: group.kind.vendor.clone(),
        device_type: group.kind.kind.clone(),
        device_name: group.kind.name.clone(),
        devices: group.devices.iter().map(device).collect(),
        attributes: group.attributes.iter().map(|(name, attribute)| (name.clone(), fact(attribute))).collect(),
    }
}

fn device(device: &Device) -> Detected {
    let pci_bus_id = device.facts.pci_bus_id.clone();
    Detected {
        id: device.id.as_str().to_owned(),
        healthy: device.unhealthy.is_none(),
        health_description: device.unhealthy.clone().unwrap_or_default(),
        hw_locality: (!pci_bus_id.is_empty()).then_some(Locality { pci_bus_id }),
    }
}

fn fact(attribute: &Attribute) -> Fact {
    let (value, unit) = match attribute {
        Attribute::Number { value, unit } => (number(*value), unit.as_ref()),
        Attribute::Text(text) => (FactValue::Text(text.clone()), None),
        Attribute::Bool(bool) => (FactValue::Bool(*bool), None),
    };
    Fact { value: Some(value), unit: written(unit) }
}

/// Numbers that do not fit into a signed 64-bit integer are rounded.
fn number(number: Number) -> FactValue {
    let whole = number.as_int().and_then(|n| i64::try_from(n).ok());
    whole.map_or_else(|| FactValue::Float(number.as_f64()), FactValue::Int)
}

fn written(unit: Option<&UnitName>) -> String {
    unit.map(|unit| unit.as_str().to_owned()).unwrap_or_default()
}

/// Statistics of the devices that are in a group.
pub(super) fn stats(groups: &[DeviceGroup], readings: &[DeviceReading]) -> StatsAnswer {
    let of = |group: &DeviceGroup| {
        let read = |device: &Device| readings.iter().find(|reading| reading.device == device.id);
        let both = |device: &Device| Some((device.id.as_str().to_owned(), instance(read(device)?)));
        GroupStats {
            vendor: group.kind.vendor.clone(),
            kind: group.kind.kind.clone(),
            name: group.kind.name.clone(),
            instance_stats: group.devices.iter().filter_map(both).collect(),
        }
    };
    StatsAnswer { groups: groups.iter().map(of).collect() }
}

/// A plugin's own statistics are added to the standard ones.
fn instance(reading: &DeviceReading) -> InstanceStats {
    let mut stats = stats_of(&reading.values);
    stats.attributes.extend(reading.stats.attributes.clone());
    stats.nested.extend(reading.stats.nested.clone());
    InstanceStats {
        summary: summary_of(&stats).map(stat),
        stats: Some(object(&stats)),
        timestamp: Some(moment(reading.at)),
    }
}

fn moment(at: Timestamp) -> Moment {
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Moment { seconds: whole(at.0 / 1_000_000_000), nanos: i32::try_from(at.0 % 1_000_000_000).unwrap_or(0) }
}

fn object(object: &StatObject) -> Stats {
    Stats {
        nested: object.nested.iter().map(|(name, nested)| (name.clone(), self::object(nested))).collect(),
        attributes: object.attributes.iter().map(|(name, value)| (name.clone(), stat(value))).collect(),
    }
}

fn stat(value: &StatValue) -> Stat {
    let mut reported = Stat { desc: value.description.clone().unwrap_or_default(), ..Stat::default() };
    match &value.value {
        None => {}
        Some(StatReading::Text(text)) => reported.text = Some(text.clone()),
        Some(StatReading::Bool(bool)) => reported.bool = Some(*bool),
        Some(StatReading::Ratio { numerator, denominator, unit }) => {
            reported.unit = written(unit.as_ref());
            (reported.int_numerator, reported.float_numerator) = split(Some(*numerator));
            (reported.int_denominator, reported.float_denominator) = split(*denominator);
        }
    }
    reported
}

fn split(value: Option<Number>) -> (Option<i64>, Option<f64>) {
    match value.map(number) {
        Some(FactValue::Int(int)) => (Some(int), None),
        Some(FactValue::Float(float)) => (None, Some(float)),
        Some(FactValue::Text(_) | FactValue::Bool(_)) | None => (None, None),
    }
}

pub(super) fn reservation(reserved: DeviceReservation) -> ReserveAnswer {
    let mounts = reserved.mounts.into_iter();
    let nodes = reserved.nodes.into_iter();
    let container = Container {
        envs: reserved.env,
        mounts: mounts
            .map(|m| Mount { task_path: m.task_path, host_path: m.host_path, read_only: m.read_only })
            .collect(),
        devices: nodes
            .map(|n| Node { task_path: n.task_path, host_path: n.host_path, permissions: n.permissions })
            .collect(),
    };
    ReserveAnswer { container_res: Some(container) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::devices::external::report;
    use crate::model::device::{DeviceFacts, DeviceKind, DeviceUsage};
    use crate::model::id::DeviceId;

    fn attributes() -> impl Strategy<Value = Attribute> {
        let numbers = prop_oneof![
            any::<i64>().prop_map(Number::from),
            (-1e300..1e300f64).prop_map(|float| Number::float(float).unwrap()),
        ];
        let units = prop::option::of(prop_oneof!["MiB", "W", "°F"].prop_map(|unit: String| UnitName::from(unit)));
        prop_oneof![
            (numbers, units).prop_map(|(value, unit)| Attribute::Number { value, unit }),
            ".{0,9}".prop_map(Attribute::Text),
            any::<bool>().prop_map(Attribute::Bool),
        ]
    }

    fn values() -> impl Strategy<Value = StatValue> {
        let reading = (attributes(), prop::option::of(any::<i64>())).prop_map(|(attribute, of)| match attribute {
            Attribute::Number { value, unit } => {
                StatReading::Ratio { numerator: value, denominator: of.map(Number::from), unit }
            }
            Attribute::Text(text) => StatReading::Text(text),
            Attribute::Bool(bool) => StatReading::Bool(bool),
        });
        (prop::option::of(reading), prop::option::of("[a-z]{1,5}"))
            .prop_map(|(value, description)| StatValue { value, description })
    }

    fn group(attributes: BTreeMap<String, Attribute>, ill: Option<String>) -> DeviceGroup {
        let kind = DeviceKind { vendor: "v".into(), kind: "t".into(), name: "n".into() };
        let facts = DeviceFacts { pci_bus_id: "0".into(), ..DeviceFacts::default() };
        DeviceGroup {
            kind,
            attributes,
            devices: vec![Device { unhealthy: ill, facts, ..Device::of(DeviceId::from("d")) }],
        }
    }

    proptest! {
        #[test]
        fn served_device_answers_are_read_back_equal(
            facts in prop::collection::btree_map("[a-z]{1,3}", attributes(), 0..4),
            stats in prop::collection::btree_map("[a-z]{1,3}", values(), 0..4),
            ill in prop::option::of("[a-z]{1,9}"),
            at in 0..u64::MAX / 2,
        ) {
            let groups = vec![group(facts, ill)];
            prop_assert_eq!(&report::groups(fingerprint(&groups)).unwrap(), &groups);
            let object = StatObject { nested: [("n".to_owned(), StatObject { attributes: stats.clone(), ..StatObject::default() })].into(), attributes: stats };
            let reading = DeviceReading {
                device: DeviceId::from("d"),
                at: Timestamp(at),
                up: true,
                values: Arc::new(DeviceUsage::default()),
                stats: Arc::new(object),
                processes: None,
            };
            let known = [DeviceId::from("d")].into();
            let reported = super::stats(&groups, std::slice::from_ref(&reading));
            let (read, unknown) = report::readings(reported, &known, Timestamp(0)).unwrap();
            prop_assert_eq!((read, unknown), (vec![reading], vec![]));
        }
    }

    #[test]
    fn a_reading_of_a_device_in_no_group_is_not_exposed() {
        assert_eq!(stats(&[], &[]), StatsAnswer::default());
    }
}
