//! How values become fields: what is absent is no field.

use serde_json::{Map, Value as Json, json};

use crate::model::measure::{HasFields, Measure};
use crate::model::metric::Value;

pub(super) fn set(object: &mut Json, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        object[key] = json!(value);
    }
}

/// The values of measures under the names that they have in the exposition, without whose they are: `{"power_watts": 71.3,
/// "utilization_ratio": {"general": 0.5}}`.
pub(super) fn measured<'m, S: HasFields>(measures: impl Iterator<Item = &'m Measure<S>>, of: &S) -> Map<String, Json> {
    let mut all = Map::new();
    for measure in measures {
        for cell in measure.cells {
            let Some(value) = (cell.get)(of) else { continue };
            let path = std::iter::once(measure.stem).chain(cell.labels.iter().map(|(_, label)| *label));
            put(&mut all, &path.collect::<Vec<_>>(), number(value));
        }
    }
    all
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
        let told = Json::Object(measured(measures::DEVICE.iter(), &usage)).to_string();
        assert_eq!(
            told,
            r#"{"ecc_errors_total":{"corrected":{"volatile":0},"uncorrected":{"aggregate":3}},"energy_joules_total":123456789.012,"power_watts":71.3,"utilization_ratio":{"encoder":0.0,"general":0.5}}"#
        );
        assert!(measured(measures::DEVICE.iter(), &DeviceUsage::default()).is_empty());
    }

    #[test]
    fn whole_seconds_stay_whole_and_no_digit_is_lost_on_the_way() {
        let text = |n| number(Value::Nanos(n)).to_string();
        assert_eq!((text(0), text(7_000_000_000)), ("0".into(), "7".into()));
        assert_eq!((text(1), text(90_071_992_547_409_920)), ("1e-9".into(), "90071992.54740992".into()));
    }
}
