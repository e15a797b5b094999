//! Whether a device satisfies a request. Pure.

use std::cmp::Ordering;

use crate::model::attribute::Attribute;
use crate::model::demand::{Constraint, DeviceName, DeviceRequest, Property};
use crate::model::device::{Device, DeviceGroup, DeviceKind};

/// The properties that constraints are compared with.
#[derive(Debug, Clone, Copy)]
pub struct OfferedDevice<'a> {
    pub group: &'a DeviceGroup,
    pub device: &'a Device,
}

/// Whether the requested name matches the group.
pub fn is_called(requested: &DeviceName, kind: &DeviceKind) -> bool {
    let is = |requested: &Option<String>, there: &str| requested.as_deref().is_none_or(|requested| requested == there);
    requested.kind == kind.kind && is(&requested.vendor, &kind.vendor) && is(&requested.name, &kind.name)
}

impl OfferedDevice<'_> {
    /// `None`: the plugin does not report it.
    pub fn property(&self, property: &Property) -> Option<Attribute> {
        let text = |text: &str| Some(Attribute::Text(text.to_owned()));
        match property {
            Property::Attribute(name) => self.group.attribute(self.device, name).cloned(),
            Property::Vendor => text(&self.group.kind.vendor),
            Property::Type => text(&self.group.kind.kind),
            Property::Model => text(&self.group.kind.name),
            Property::Ids => text(self.device.id.as_str()),
        }
    }

    /// Values that cannot be compared (text with a number, units with another base) never satisfy a constraint.
    pub fn meets(&self, constraint: &Constraint) -> bool {
        let there = self.property(&constraint.attribute);
        constraint.operator.holds(there.as_ref(), &constraint.value, compare)
    }

    /// Sum of the weights of the affinities that hold.
    pub fn score(&self, request: &DeviceRequest) -> i64 {
        let holds = request.affinities.iter().filter(|affinity| self.meets(&affinity.constraint));
        holds.map(|affinity| i64::from(affinity.weight)).sum()
    }
}

/// A text is compared literally, even if the other side looks like a number.
fn compare(there: &Attribute, requested: &str) -> Option<Ordering> {
    let requested = match there {
        Attribute::Text(_) => Attribute::Text(requested.to_owned()),
        Attribute::Number { .. } | Attribute::Bool(_) => Attribute::parse(requested).ok()?,
    };
    there.compare(&requested).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::operator::Operator;

    fn attributes() -> BTreeMap<String, Attribute> {
        let parsed = |text: &str| Attribute::parse(text).unwrap();
        [
            ("memory", parsed("15360 MiB")),
            ("power", parsed("500 mW")),
            ("cores", parsed("40")),
            ("ecc", parsed("true")),
            ("driver_version", Attribute::Text("535.104.05".to_owned())),
            ("modes", Attribute::Text("a, b,c".to_owned())),
            ("number_as_text", Attribute::Text("7".to_owned())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
    fn kind() -> DeviceKind {
        DeviceKind { vendor: "nvidia".to_owned(), kind: "gpu".to_owned(), name: "Tesla T4".to_owned() }
    }
    fn meets(attribute: &str, operator: &str, value: &str) -> bool {
        let constraint = Constraint {
            attribute: Property::parse(attribute).unwrap(),
            operator: Operator::parse(operator).unwrap(),
            value: value.to_owned(),
        };
        constraint.check().unwrap();
        let group = DeviceGroup { kind: kind(), attributes: attributes(), devices: Vec::new() };
        OfferedDevice { group: &group, device: &Device::of("GPU-1".into()) }.meets(&constraint)
    }

    #[test]
    fn an_attribute_that_differs_within_a_group_is_that_of_the_device() {
        let with = |id: &str, memory: &str| Device {
            attributes: [("memory".to_owned(), Attribute::parse(memory).unwrap())].into(),
            ..Device::of(id.into())
        };
        let devices = vec![with("GPU-1", "40 GiB"), with("GPU-2", "80 GiB")];
        let group = DeviceGroup { kind: kind(), attributes: attributes(), devices };
        let constraint = Constraint {
            attribute: Property::parse("device.attr.memory").unwrap(),
            operator: Operator::parse(">=").unwrap(),
            value: "60 GiB".to_owned(),
        };
        let meets: Vec<bool> =
            group.devices.iter().map(|device| OfferedDevice { group: &group, device }.meets(&constraint)).collect();
        assert_eq!(meets, [false, true]);
    }

    #[test]
    fn device_constraint_is_compared_with_the_device_attributes() {
        for (attribute, operator, value, expected) in [
            ("device.attr.memory", ">=", "15 GiB", true),
            ("device.attr.memory", ">", "15 GiB", false),
            ("device.attr.memory", "<", "16 GB", false),
            ("device.attr.memory", "=", "15 GiB", true),
            ("device.attr.power", "!=", "100 mW", true),
            ("device.attr.power", "<", "1 W", true),
            ("device.attr.cores", ">=", "40", true),
            ("device.attr.ecc", "=", "true", true),
            ("device.attr.driver_version", "=", "535.104.05", true),
            ("device.attr.driver_version", "version", ">= 535, < 600", true),
            ("device.attr.driver_version", "version", "< 535.104.5", false),
            ("device.attr.number_as_text", "=", "7", true),
            ("device.attr.modes", "set_contains", "c, a", true),
            ("device.attr.modes", "set_contains", "a,d", false),
            ("device.attr.modes", "set_contains_any", "d,b", true),
            ("device.attr.modes", "set_contains_any", "d", false),
            ("device.attr.memory", "is_set", "", true),
            ("device.attr.memory", "is_not_set", "", false),
            ("device.model", "regexp", "^Tesla .4$", true),
            ("device.model", "regexp", "^T4", false),
            ("device.vendor", "=", "nvidia", true),
            ("device.type", "!=", "gpu", false),
            ("device.ids", "set_contains_any", "GPU-0,GPU-1", true),
            ("device.ids", "=", "GPU-0", false),
        ] {
            assert_eq!(meets(attribute, operator, value), expected, "{attribute} {operator} {value}");
        }
    }

    #[test]
    fn missing_device_attribute_matches_only_not_equal_and_is_not_set() {
        let held = Operator::ALL.into_iter().filter(|o| meets("device.attr.none", o.as_str(), "1"));
        assert_eq!(held.collect::<Vec<_>>(), [Operator::NotEqual, Operator::IsNotSet]);
    }

    #[test]
    fn incomparable_device_attributes_never_match() {
        for operator in ["=", "!=", "<", "<=", ">", ">="] {
            for (attribute, value) in [("memory", "15"), ("memory", "5 W"), ("cores", "many"), ("ecc", "1")] {
                assert!(!meets(&format!("device.attr.{attribute}"), operator, value), "{attribute} {operator} {value}");
            }
        }
        assert!(!meets("device.attr.modes", "version", ">= 0"));
    }

    #[test]
    fn device_name_matches_any_value_of_its_omitted_parts() {
        for (name, called) in [
            ("gpu", true),
            ("nvidia/gpu", true),
            ("nvidia/gpu/Tesla T4", true),
            ("amd/gpu", false),
            ("nvidia", false),
            ("nvidia/gpu/Tesla", false),
        ] {
            assert_eq!(is_called(&DeviceName::parse(name).unwrap(), &kind()), called, "{name}");
        }
    }
}
