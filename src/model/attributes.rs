//! What is known of a host, by name; the names are Nomad's where it has one.

use std::collections::BTreeMap;

use super::attribute::{Attribute, AttributeUnit, Number, UnitName};
use super::words;

words! {
    /// Every attribute that a fingerprinter looks for. Those of drivers stand below [`OF_DRIVERS`].
    pub enum HostAttribute {
        /// As Go calls it: `amd64`, `arm64`.
        CpuArch = "cpu.arch",
        /// MHz, of the fastest one.
        CpuFrequency = "cpu.frequency",
        CpuModelName = "cpu.modelname",
        /// On which the agent, and so its tasks, may run.
        CpuNumCores = "cpu.numcores",
        /// MHz, of all that are online.
        CpuTotalCompute = "cpu.totalcompute",
        /// As `uname -m` says.
        KernelArch = "kernel.arch",
        KernelName = "kernel.name",
        KernelVersion = "kernel.version",
        MemoryTotalBytes = "memory.totalbytes",
        OsCgroupsVersion = "os.cgroups.version",
        OsName = "os.name",
        /// Names, separated by commas.
        OsSignals = "os.signals",
        OsVersion = "os.version",
        UniqueCgroupMountpoint = "unique.cgroup.mountpoint",
        UniqueCgroupVersion = "unique.cgroup.version",
        UniqueHostname = "unique.hostname",
        UniqueNetworkIpAddress = "unique.network.ip-address",
        UniqueStorageBytesFree = "unique.storage.bytesfree",
        UniqueStorageBytesTotal = "unique.storage.bytestotal",
        UniqueStorageVolume = "unique.storage.volume",
    }
}

/// What drivers say of themselves: `driver.raw_exec` while it is healthy, `driver.raw_exec.cgroups`.
pub const OF_DRIVERS: &str = "driver.";

/// By name; what is not known is not there.
pub type Attributes = BTreeMap<String, Attribute>;

/// What becomes of one attribute. An empty text is a text like any other.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeChange {
    Set(Attribute),
    Remove,
}

/// What has to be changed for attributes to be as a fingerprinter has just found them. What it does not name stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AttributeDiff(BTreeMap<String, AttributeChange>);

impl AttributeDiff {
    /// `None`: the host has no such thing, or does not say.
    #[must_use]
    pub fn with(mut self, name: HostAttribute, found: Option<Attribute>) -> AttributeDiff {
        let change = found.map_or(AttributeChange::Remove, AttributeChange::Set);
        self.0.insert(name.as_str().to_owned(), change);
        self
    }

    /// Makes `after` of `before`.
    pub fn between(before: &Attributes, after: &Attributes) -> AttributeDiff {
        let removed = before.keys().filter(|name| !after.contains_key(*name));
        let removed = removed.map(|name| (name.clone(), AttributeChange::Remove));
        let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        let set = set.map(|(name, value)| (name.clone(), AttributeChange::Set(value.clone())));
        AttributeDiff(removed.chain(set).collect())
    }

    /// Whether it would change anything there.
    pub fn changes(&self, attributes: &Attributes) -> bool {
        self.0.iter().any(|(name, change)| match change {
            AttributeChange::Set(value) => attributes.get(name) != Some(value),
            AttributeChange::Remove => attributes.contains_key(name),
        })
    }

    pub fn apply_to(self, attributes: &mut Attributes) {
        for (name, change) in self.0 {
            match change {
                AttributeChange::Set(value) => attributes.insert(name, value),
                AttributeChange::Remove => attributes.remove(&name),
            };
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Attribute {
        Attribute::Text(text)
    }
}

impl From<u64> for Attribute {
    fn from(value: u64) -> Attribute {
        Attribute::Number { value: value.into(), unit: None }
    }
}

impl Attribute {
    pub fn with_unit(value: Number, unit: AttributeUnit) -> Attribute {
        Attribute::Number { value, unit: Some(UnitName::Known(unit)) }
    }

    /// As a job file's reference to it reads: a number without its unit, which the attribute's documentation says.
    pub fn bare(&self) -> String {
        match self {
            Attribute::Number { value, .. } => value.to_string(),
            Attribute::Text(text) => text.clone(),
            Attribute::Bool(value) => value.to_string(),
        }
    }
}

/// Promise (Durability and recovery): P-6.2 One pass over the host sets and removes as a whole; an empty text, 0 and
/// false are values
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_attributes() -> impl Strategy<Value = Attributes> {
        let attribute = prop_oneof![
            any::<u64>().prop_map(Attribute::from),
            "[a-c]{0,2}".prop_map(Attribute::from),
            any::<bool>().prop_map(Attribute::Bool),
        ];
        proptest::collection::btree_map("[a-e]", attribute, 0..5)
    }

    proptest! {
        #[test]
        fn attribute_diff_between_two_sets_applies_once_and_then_changes_nothing(
            before in any_attributes(), after in any_attributes(), other in any::<u64>()
        ) {
            let diff = AttributeDiff::between(&before, &after);
            prop_assert_eq!(diff.changes(&before), before != after);
            prop_assert!(!diff.changes(&after));
            let mut attributes = before.clone();
            attributes.insert("another source's".to_owned(), other.into());
            diff.apply_to(&mut attributes);
            prop_assert_eq!(attributes.remove("another source's"), Some(other.into()));
            prop_assert_eq!(attributes, after);
        }
    }

    #[test]
    fn an_empty_text_a_zero_and_false_are_set_and_only_nothing_is_removed() {
        let (name, key) = (HostAttribute::OsName, HostAttribute::OsName.as_str());
        for value in [Attribute::from(""), Attribute::from(0), Attribute::Bool(false)] {
            let mut attributes = Attributes::new();
            AttributeDiff::default().with(name, Some(value.clone())).apply_to(&mut attributes);
            assert_eq!(attributes.get(key), Some(&value));
            AttributeDiff::default().with(name, None).apply_to(&mut attributes);
            assert_eq!(attributes.get(key), None);
        }
    }

    #[test]
    fn a_reference_reads_without_the_unit() {
        assert_eq!(Attribute::with_unit(2_500_u64.into(), AttributeUnit::MHz).bare(), "2500");
        assert_eq!(Attribute::with_unit(Number::float(2.5).unwrap(), AttributeUnit::GHz).bare(), "2.5");
        assert_eq!((Attribute::from("a b").bare(), Attribute::Bool(true).bare()), ("a b".into(), "true".into()));
    }
}
