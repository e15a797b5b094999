//! What a task asks of devices: which, how many, what must be true of them and what is liked about them.
//!
//! ```text
//! device "nvidia/gpu" { count = 2   constraint { memory >= 20 GiB }   affinity { weight } }
//!         └ DeviceName                └ Constraint: must hold            └ ranks what is left
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use super::attribute::{Attribute, AttributeError};
use super::operator::{BadPattern, Operator};

/// So many devices of one make, for one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    pub name: DeviceName,
    pub count: u32,
    /// Each must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinities: Vec<Affinity>,
    /// The first of these that the node can satisfy counts. Each has the constraints and affinities above as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_available: Vec<DeviceOption>,
}

/// One way to satisfy a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOption {
    pub count: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinities: Vec<Affinity>,
}

impl DeviceRequest {
    /// Each way to satisfy it, in the order of preference: at least one, and none of them has options of its own.
    pub fn options(&self) -> Vec<DeviceRequest> {
        let plain = DeviceRequest { first_available: Vec::new(), ..self.clone() };
        if self.first_available.is_empty() {
            return vec![plain];
        }
        let with = |option: &DeviceOption| DeviceRequest {
            count: option.count,
            constraints: [&plain.constraints[..], &option.constraints].concat(),
            affinities: [&plain.affinities[..], &option.affinities].concat(),
            ..plain.clone()
        };
        self.first_available.iter().map(with).collect()
    }
}

/// `gpu`, `nvidia/gpu` or `nvidia/gpu/Tesla T4`: what is not said may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName {
    pub vendor: Option<String>,
    pub kind: String,
    pub name: Option<String>,
}

/// A text that names no devices: a part of it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write `type`, `vendor/type` or `vendor/type/name`")]
pub struct NotAName;

impl DeviceName {
    /// A name may have slashes in it, the parts before it not.
    ///
    /// Errors: an empty part.
    pub fn parse(text: &str) -> Result<DeviceName, NotAName> {
        let parts: Vec<&str> = text.splitn(3, '/').collect();
        let (vendor, kind, name) = match parts.as_slice() {
            [kind] => (None, *kind, None),
            [vendor, kind] => (Some(*vendor), *kind, None),
            [vendor, kind, name] => (Some(*vendor), *kind, Some(*name)),
            _ => return Err(NotAName),
        };
        if parts.iter().any(|part| part.trim().is_empty()) {
            return Err(NotAName);
        }
        Ok(DeviceName { vendor: vendor.map(str::to_owned), kind: kind.to_owned(), name: name.map(str::to_owned) })
    }
}

impl TryFrom<String> for DeviceName {
    type Error = NotAName;
    fn try_from(text: String) -> Result<DeviceName, NotAName> {
        DeviceName::parse(&text)
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> String {
        name.to_string()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vendor) = &self.vendor {
            write!(f, "{vendor}/")?;
        }
        f.write_str(&self.kind)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, "/{name}"))
    }
}

/// `${device.attr.memory}` `>=` `20 GiB`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    pub attribute: Property,
    pub operator: Operator,
    /// As it is written. Empty: the operator takes none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// A constraint that need not hold: devices that meet it come before others; with a negative weight after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    #[serde(flatten)]
    pub constraint: Constraint,
    /// -100 to 100, without 0.
    pub weight: i8,
}

/// What can be asked about a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Property {
    /// `device.attr.memory`: what its plugin says of it.
    Attribute(String),
    Vendor,
    Type,
    /// The last part of its name.
    Model,
    /// Its own id.
    Ids,
}

impl Property {
    const WORDS: [(&str, Property); 4] = [
        ("device.vendor", Property::Vendor),
        ("device.type", Property::Type),
        ("device.model", Property::Model),
        ("device.ids", Property::Ids),
    ];
    /// What stands between `${` and `}`. `None`: there is no such thing.
    pub fn parse(text: &str) -> Option<Property> {
        let attribute = text.strip_prefix("device.attr.").filter(|name| !name.is_empty());
        let word = || Property::WORDS.iter().find(|(word, _)| *word == text).map(|(_, property)| property.clone());
        attribute.map(|name| Property::Attribute(name.to_owned())).or_else(word)
    }
    pub fn words() -> impl Iterator<Item = &'static str> {
        Property::WORDS.iter().map(|(word, _)| *word)
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Property::WORDS.iter().find(|(_, property)| property == self);
        match (self, word) {
            (Property::Attribute(name), _) => write!(f, "device.attr.{name}"),
            (_, Some((word, _))) => f.write_str(word),
            (_, None) => Ok(()),
        }
    }
}

impl TryFrom<String> for Property {
    type Error = String;
    fn try_from(text: String) -> Result<Property, String> {
        Property::parse(&text).ok_or_else(|| format!("{text} is no attribute of a device"))
    }
}

impl From<Property> for String {
    fn from(property: Property) -> String {
        property.to_string()
    }
}

/// Why a value can be held against nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    #[error(transparent)]
    Number(#[from] AttributeError),
    #[error(transparent)]
    Pattern(#[from] BadPattern),
}

impl Constraint {
    /// Errors: its value can be held against nothing.
    pub fn check(&self) -> Result<(), BadValue> {
        match self.operator {
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => Attribute::parse(&self.value).map(|_| ()).map_err(BadValue::Number),
            other => other.check(&self.value).map_err(BadValue::Pattern),
        }
    }
}

impl fmt::Display for Constraint {
    /// `device.attr.memory >= 20 GiB`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attribute, self.operator.as_str())?;
        if self.operator.takes_value() { write!(f, " {}", self.value) } else { Ok(()) }
    }
}

impl Affinity {
    pub const WEIGHT: i8 = 50;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraint(attribute: &str, operator: &str, value: &str) -> Constraint {
        Constraint {
            attribute: Property::parse(attribute).unwrap(),
            operator: Operator::parse(operator).unwrap(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn value_that_cannot_be_compared_is_rejected() {
        for (operator, value, expected) in [
            (">=", "99999999999999999999", "99999999999999999999 does not fit 64 bits"),
            ("version", ">= x", "it is no version"),
            ("regexp", "(", "it is no regular expression: unclosed group"),
        ] {
            let error = constraint("device.attr.memory", operator, value).check().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_name_has_up_to_three_parts_and_none_is_empty() {
        for name in ["gpu", "nvidia/gpu", "nvidia/gpu/Tesla T4"] {
            assert_eq!(DeviceName::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(DeviceName::parse("a/b/c/d").unwrap().name.as_deref(), Some("c/d"));
        for none in ["", "/", "a/", "/b", "a//c", " "] {
            assert_eq!(DeviceName::parse(none), Err(NotAName), "{none}");
        }
    }

    #[test]
    fn a_request_comes_back_as_it_was_stored() {
        let constraint = constraint("device.attr.memory", ">=", "20 GiB");
        let affinities = vec![Affinity { constraint: constraint.clone(), weight: -5 }];
        let name = DeviceName::parse("nvidia/gpu/Tesla T4").unwrap();
        let first_available = Vec::new();
        let request = DeviceRequest { name, count: 2, constraints: vec![constraint], affinities, first_available };
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<DeviceRequest>(&json).unwrap(), request);
        let requested = r#"{"attribute":"device.attr.memory","operator":">=","value":"20 GiB""#;
        let expected = format!(
            r#"{{"name":"nvidia/gpu/Tesla T4","count":2,"constraints":[{requested}}}],"affinities":[{requested},"weight":-5}}]}}"#
        );
        assert_eq!(json, expected);
    }
}
