//! A map of a few entries by name: pairs in a row, in the order of their names. A `BTreeMap` takes room for eleven
//! entries where there are two, and a thousand tasks have several of them each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Serialized as a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallMap<V>(Vec<(Box<str>, V)>);

impl<V> SmallMap<V> {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by_key(&name, |(known, _)| known)
    }

    pub fn get(&self, name: &str) -> Option<&V> {
        self.place(name).ok().map(|at| &self.0[at].1)
    }
    pub fn contains(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn insert(&mut self, name: impl Into<Box<str>>, value: V) {
        let name = name.into();
        match self.place(&name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name, value));
            }
        }
    }
}

impl<V> Default for SmallMap<V> {
    fn default() -> SmallMap<V> {
        SmallMap(Vec::new())
    }
}

impl<V> Index<&str> for SmallMap<V> {
    type Output = V;

    fn index(&self, name: &str) -> &V {
        self.get(name).expect("what is indexed must be there")
    }
}

impl<N: Into<Box<str>>, V> FromIterator<(N, V)> for SmallMap<V> {
    /// Of several under one name the last one counts.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> SmallMap<V> {
        let mut few = SmallMap::default();
        entries.into_iter().for_each(|(name, value)| few.insert(name, value));
        few
    }
}

impl<V: JsonSchema> JsonSchema for SmallMap<V> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        <BTreeMap<String, V>>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <BTreeMap<String, V>>::json_schema(generator)
    }
}

impl<V: Serialize> Serialize for SmallMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for SmallMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SmallMap<V>, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = SmallMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SmallMap<V>, A::Error> {
        let mut few = SmallMap::default();
        while let Some((name, value)) = map.next_entry::<Box<str>, V>()? {
            few.insert(name, value);
        }
        Ok(few)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn few_holds_and_serializes_like_a_map(entries: Vec<(String, u8)>, requested: String) {
            let few: SmallMap<u8> = entries.iter().cloned().collect();
            let map: BTreeMap<String, u8> = entries.iter().cloned().collect();
            prop_assert!(few.iter().eq(map.iter().map(|(name, value)| (name.as_str(), value))));
            prop_assert!(entries.iter().all(|(name, _)| few.contains(name) && few[name] == map[name]));
            prop_assert_eq!(few.get(&requested), map.get(&requested));
            let text = serde_json::to_string(&few).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&map).unwrap());
            prop_assert_eq!(serde_json::from_str::<SmallMap<u8>>(&text).unwrap(), few);
        }
    }
}
