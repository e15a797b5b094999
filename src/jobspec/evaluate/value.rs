//! What an expression yields, and how kinds turn into each other where HCL lets them.

use std::collections::BTreeMap;

/// Objects are in the order of their keys, as HCL has them.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    /// Always finite, and no whole number.
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl Value {
    /// A number; whole ones stay exact. `None`: it is not finite.
    pub fn number(n: f64) -> Option<Value> {
        // Whole numbers up to 2^53 are exact in both.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        #[allow(clippy::cast_possible_truncation)]
        match n {
            n if !n.is_finite() => None,
            n if n.fract() == 0.0 && n.abs() <= EXACT => Some(Value::Int(n as i128)),
            n => Some(Value::Float(n)),
        }
    }

    /// What it is, as it may stand in a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }

    /// As a string: numbers and booleans turn into one.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Int(n) => Some(n.to_string()),
            Value::Float(n) => Some(n.to_string()),
            Value::Null | Value::List(_) | Value::Object(_) => None,
        }
    }

    /// As a number: a string that is one turns into it.
    pub fn to_number(&self) -> Option<Value> {
        match self {
            Value::Int(_) | Value::Float(_) => Some(self.clone()),
            Value::Text(text) => match text.parse::<i128>() {
                Ok(whole) => Some(Value::Int(whole)),
                Err(_) => text.parse::<f64>().ok().and_then(Value::number),
            },
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => None,
        }
    }

    pub fn to_float(&self) -> Option<f64> {
        match self.to_number()? {
            // Beyond 2^53 it is rounded, as HCL's own functions do.
            #[allow(clippy::cast_precision_loss)]
            Value::Int(n) => Some(n as f64),
            Value::Float(n) => Some(n),
            _ => None,
        }
    }

    pub fn to_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            Value::Text(text) if text == "true" => Some(true),
            Value::Text(text) if text == "false" => Some(false),
            _ => None,
        }
    }

    /// The keys (of a list: from 0) and values of a collection; `None`: it is none.
    pub fn pairs(self) -> Option<Vec<(Value, Value)>> {
        match self {
            Value::List(list) => Some((0..).map(Value::Int).zip(list).collect()),
            Value::Object(object) => Some(object.into_iter().map(|(key, value)| (Value::Text(key), value)).collect()),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => None,
        }
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        let inside: usize = match self {
            Value::Text(text) => text.len(),
            Value::List(list) => list.iter().map(Value::size).sum(),
            Value::Object(object) => object.iter().map(|(key, value)| key.len() + value.size()).sum(),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        };
        inside + 32
    }

    /// `None`: a number that JSON does not have.
    pub fn to_json(&self) -> Option<serde_json::Value> {
        Some(match self {
            Value::Null => serde_json::Value::Null,
            Value::Bool(b) => (*b).into(),
            Value::Int(n) => match i64::try_from(*n) {
                Ok(n) => n.into(),
                Err(_) => serde_json::Number::from_f64(self.to_float()?)?.into(),
            },
            Value::Float(n) => serde_json::Number::from_f64(*n)?.into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(list) => list.iter().map(Value::to_json).collect::<Option<Vec<_>>>()?.into(),
            Value::Object(object) => {
                let entries = object.iter().map(|(key, value)| Some((key.clone(), value.to_json()?)));
                entries.collect::<Option<serde_json::Map<_, _>>>()?.into()
            }
        })
    }

    pub fn from_json(json: serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(b),
            serde_json::Value::Number(n) => match (n.as_i128(), n.as_f64().and_then(Value::number)) {
                (Some(whole), _) => Value::Int(whole),
                (None, number) => number.unwrap_or(Value::Null),
            },
            serde_json::Value::String(text) => Value::Text(text),
            serde_json::Value::Array(list) => Value::List(list.into_iter().map(Value::from_json).collect()),
            serde_json::Value::Object(object) => {
                Value::Object(object.into_iter().map(|(key, value)| (key, Value::from_json(value))).collect())
            }
        }
    }
}
