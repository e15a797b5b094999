//! How values become fields: what is absent is no field.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::model::measure::{HasFields, Measure};
use crate::model::metric::Value;

/// Measures whose values stand in one object: the schema of the object follows from them.
pub trait MeasureTable {
    /// Of the schema.
    const NAME: &'static str;
    /// The name of each value: that of its measure, then the labels of its series.
    fn paths() -> Vec<Vec<&'static str>>;
}

impl<S: HasFields> Measure<S> {
    /// See [`MeasureTable::paths`].
    pub(super) fn paths(&self) -> impl Iterator<Item = Vec<&'static str>> {
        let path = |labels: &[(&'static str, &'static str)]| {
            std::iter::once(self.stem).chain(labels.iter().map(|(_, label)| *label)).collect()
        };
        self.cells.iter().map(move |cell| path(cell.labels))
    }
}

/// The values of measures under the names that they have in the exposition, without whose they are:
/// `{"power_watts": 71.3, "utilization_ratio": {"general": 0.5}}`.
#[derive(Debug)]
pub struct MeasuredValues<T>(Map<String, Json>, PhantomData<T>);

impl<T> Serialize for MeasuredValues<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T: MeasureTable> JsonSchema for MeasuredValues<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut all = Map::new();
        for path in T::paths() {
            put(&mut all, &path, json!(null));
        }
        let mut schema = json_schema!({ "type": "object" });
        schema.insert("properties".to_owned(), properties(&all).into());
        schema
    }
}

/// A number for each end of a path, an object for each step before it.
fn properties(of: &Map<String, Json>) -> Map<String, Json> {
    let property = |(name, below): (&String, &Json)| {
        let schema = match below.as_object() {
            Some(below) => json!({ "type": "object", "properties": properties(below) }),
            None => json!({ "type": "number" }),
        };
        (name.clone(), schema)
    };
    of.iter().map(property).collect()
}

pub(super) fn measured<'m, S: HasFields, T>(
    measures: impl Iterator<Item = &'m Measure<S>>,
    of: &S,
) -> MeasuredValues<T> {
    let mut all = Map::new();
    for measure in measures {
        for (cell, path) in measure.cells.iter().zip(measure.paths()) {
            let Some(value) = (cell.get)(of) else { continue };
            put(&mut all, &path, number(value));
        }
    }
    MeasuredValues(all, PhantomData)
}

fn put(into: &mut Map<String, Json>, path: &[&str], value: Json) {
    match path {
        [] => {}
        [name] => drop(into.insert((*name).to_owned(), value)),
        [name, rest @ ..] => {
            let below = into.entry(*name).or_insert_with(|| json!({}));
            if let Some(below) = below.as_object_mut() {
                put(below, rest, value);
            }
        }
    }
}

/// In base units; as many digits of a fraction as a reader's float can hold.
fn number(value: Value) -> Json {
    match value {
        Value::Int(n) => json!(n),
        Value::Float(f) => json!(f),
        Value::Nanos(n) => match n % 1_000_000_000 {
            0 => json!(n / 1_000_000_000),
            // By its digits: divided, it would be rounded twice.
            rest => json!(format!("{}.{rest:09}", n / 1_000_000_000).parse::<f64>().ok()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::devices::DeviceTable;
    use super::*;
    use crate::devices::measures;
    use crate::model::device::DeviceUsage;

    #[test]
    fn values_are_called_as_in_the_exposition_and_what_was_not_read_is_no_field() {
        let usage = DeviceUsage {
            utilization: [Some(0.5), None, Some(0.0), None],
            power_milliwatts: Some(71_300),
            energy_millijoules: Some(123_456_789_012),
            ecc_errors: [[Some(0), None], [None, Some(3)]],
            ..DeviceUsage::default()
        };
        let all = |of: &DeviceUsage| -> MeasuredValues<DeviceTable> { measured(measures::DEVICE.iter(), of) };
        let answer = serde_json::to_string(&all(&usage)).unwrap();
        assert_eq!(
            answer,
            r#"{"ecc_errors_total":{"corrected":{"volatile":0},"uncorrected":{"aggregate":3}},"energy_joules_total":123456789.012,"power_watts":71.3,"utilization_ratio":{"encoder":0.0,"general":0.5}}"#
        );
        assert!(all(&DeviceUsage::default()).0.is_empty());
    }

    #[test]
    fn whole_seconds_serialize_as_integers_and_no_digit_is_lost() {
        let text = |n| number(Value::Nanos(n)).to_string();
        assert_eq!((text(0), text(7_000_000_000)), ("0".into(), "7".into()));
        assert_eq!((text(1), text(90_071_992_547_409_920)), ("1e-9".into(), "90071992.54740992".into()));
    }
}
