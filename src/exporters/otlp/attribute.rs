//! Attributes: a key with a typed value.

use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value};

use any_value::Value;

pub(super) fn key_value(key: &str, text: &str) -> KeyValue {
    attribute(key.to_owned(), Value::StringValue(text.to_owned()))
}

pub(super) fn int(key: &str, n: u64) -> KeyValue {
    attribute(key.to_owned(), Value::IntValue(i64::try_from(n).unwrap_or(i64::MAX)))
}

pub(super) fn strings(key: &str, all: &[&str]) -> KeyValue {
    let text = |text: &&str| AnyValue { value: Some(Value::StringValue((*text).to_owned())) };
    attribute(key.to_owned(), Value::ArrayValue(ArrayValue { values: all.iter().map(text).collect() }))
}

/// A map of attributes.
pub(super) fn map(key: &str, values: Vec<KeyValue>) -> KeyValue {
    attribute(key.to_owned(), Value::KvlistValue(KeyValueList { values }))
}

pub(super) fn attribute(key: String, value: Value) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(super) fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}
