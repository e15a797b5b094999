//! Statistics without a fixed shape, as devices report them: values in nested objects.
//!
//! Unset, 0, `false` and `""` are four different things, here and in JSON: what is unset is left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::attribute::{Number, UnitName};

/// What a value is: never two of them at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatReading {
    /// A number, or one of how many: 3 GiB of 16.
    Ratio {
        numerator: Number,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        denominator: Option<Number>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<UnitName>,
    },
    Text(String),
    Bool(bool),
}

/// One value; it may be described although it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatValue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<StatReading>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Values by name, and objects by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatObject {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, StatValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nested: BTreeMap<String, StatObject>,
}

impl StatReading {
    pub fn number(value: impl Into<Number>, unit: Option<UnitName>) -> StatReading {
        StatReading::Ratio { numerator: value.into(), denominator: None, unit }
    }
    /// The share, for a reading that has a denominator other than zero.
    pub fn share(&self) -> Option<f64> {
        match self {
            StatReading::Ratio { numerator, denominator: Some(denominator), .. } if denominator.as_f64() != 0.0 => {
                Some(numerator.as_f64() / denominator.as_f64())
            }
            StatReading::Ratio { .. } | StatReading::Text(_) | StatReading::Bool(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(reading: Option<StatReading>) -> String {
        serde_json::to_string(&StatValue { value: reading, description: None }).unwrap()
    }

    #[test]
    fn unset_zero_false_and_empty_differ_in_json_and_come_back() {
        let readings = [
            (None, "{}"),
            (Some(StatReading::number(0u64, None)), r#"{"value":{"ratio":{"numerator":0}}}"#),
            (Some(StatReading::Bool(false)), r#"{"value":{"bool":false}}"#),
            (Some(StatReading::Text(String::new())), r#"{"value":{"text":""}}"#),
        ];
        for (reading, text) in readings {
            assert_eq!(json(reading.clone()), text);
            assert_eq!(serde_json::from_str::<StatValue>(text).unwrap().value, reading);
        }
    }

    #[test]
    fn a_present_zero_denominator_is_not_an_absent_one() {
        let of = |denominator: Option<u64>| StatReading::Ratio {
            numerator: Number::from(3u64),
            denominator: denominator.map(Number::from),
            unit: Some(UnitName::from("MiB".to_owned())),
        };
        assert_eq!(json(Some(of(Some(0)))), r#"{"value":{"ratio":{"numerator":3,"denominator":0,"unit":"MiB"}}}"#);
        assert_eq!(json(Some(of(None))), r#"{"value":{"ratio":{"numerator":3,"unit":"MiB"}}}"#);
        assert_eq!((of(None).share(), of(Some(0)).share(), of(Some(12)).share()), (None, None, Some(0.25)));
    }

    #[test]
    fn stat_objects_nest_and_an_empty_one_serializes_to_nothing() {
        let text = r#"{"attributes":{"t":{"value":{"ratio":{"numerator":41.5,"unit":"C"}},"description":"d"}},"nested":{"n":{"attributes":{"e":{}}}}}"#;
        let object: StatObject = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&object).unwrap(), text);
        assert_eq!(serde_json::to_string(&StatObject::default()).unwrap(), "{}");
    }

    #[test]
    fn two_kinds_at_once_and_unknown_fields_are_refused() {
        for text in [r#"{"value":{"bool":true,"text":"x"}}"#, r#"{"valu":{"bool":true}}"#, r#"{"value":{"ratio":{}}}"#]
        {
            assert!(serde_json::from_str::<StatValue>(text).is_err(), "{text}");
        }
    }
}
