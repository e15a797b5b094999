//! What an expression yields, and how kinds turn into each other where HCL lets them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Objects are in the order of their keys, as HCL has them.
#[derive(Debug, Clone, PartialEq)]
pub enum HclValue {
    Null,
    Bool(bool),
    Int(i128),
    /// Always finite, and no whole number.
    Float(f64),
    Text(String),
    List(Vec<HclValue>),
    /// In its order and without an element twice: made by [`HclValue::set`] alone.
    Set(Vec<HclValue>),
    Object(BTreeMap<String, HclValue>),
}

impl From<&str> for HclValue {
    fn from(text: &str) -> HclValue {
        HclValue::Text(text.to_owned())
    }
}

impl HclValue {
    /// A number; whole ones stay exact. `None`: it is not finite.
    pub fn number(n: f64) -> Option<HclValue> {
        // Whole numbers up to 2^53 are exact in both.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        #[allow(clippy::cast_possible_truncation)]
        match n {
            n if !n.is_finite() => None,
            n if n.fract() == 0.0 && n.abs() <= EXACT => Some(HclValue::Int(n as i128)),
            n => Some(HclValue::Float(n)),
        }
    }

    /// A set in the order of cty: false before true, numbers by size, strings by their bytes, null last. Beside a
    /// string all numbers and booleans are strings.
    pub fn set(mut elements: Vec<HclValue>) -> HclValue {
        if elements.iter().any(|element| matches!(element, HclValue::Text(_))) {
            for element in &mut elements {
                *element = element.to_text().map_or_else(|| element.clone(), HclValue::Text);
            }
        }
        elements.sort_by(HclValue::order);
        elements.dedup();
        HclValue::Set(elements)
    }

    /// Of a list or a set.
    pub fn elements(&self) -> Option<&[HclValue]> {
        match self {
            HclValue::List(list) | HclValue::Set(list) => Some(list),
            HclValue::Null
            | HclValue::Bool(_)
            | HclValue::Int(_)
            | HclValue::Float(_)
            | HclValue::Text(_)
            | HclValue::Object(_) => None,
        }
    }

    /// Total: of two kinds, and of two numbers of the same size, always the same one is the first.
    fn order(&self, other: &HclValue) -> Ordering {
        let rank = |value: &HclValue| match value {
            HclValue::Bool(_) => 0,
            HclValue::Int(_) | HclValue::Float(_) => 1,
            HclValue::Text(_) => 2,
            HclValue::List(_) | HclValue::Set(_) => 3,
            HclValue::Object(_) => 4,
            HclValue::Null => 5,
        };
        match (self, other) {
            (HclValue::Bool(a), HclValue::Bool(b)) => a.cmp(b),
            (HclValue::Text(a), HclValue::Text(b)) => a.cmp(b),
            // Large whole numbers that round to one float differ by themselves.
            (HclValue::Int(_) | HclValue::Float(_), HclValue::Int(_) | HclValue::Float(_)) => {
                let number = |value: &HclValue| value.to_float().unwrap_or(0.0);
                let whole = |value: &HclValue| if let HclValue::Int(n) = value { Some(*n) } else { None };
                number(self).total_cmp(&number(other)).then_with(|| whole(self).cmp(&whole(other)))
            }
            (HclValue::List(a) | HclValue::Set(a), HclValue::List(b) | HclValue::Set(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| a.order(b));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (HclValue::Object(a), HclValue::Object(b)) => {
                let pairs = a.iter().zip(b).map(|((key, a), (other, b))| key.cmp(other).then_with(|| a.order(b)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }

    /// What it is, as it may stand in a message.
    pub fn kind(&self) -> &'static str {
        match self {
            HclValue::Null => "null",
            HclValue::Bool(_) => "a boolean",
            HclValue::Int(_) | HclValue::Float(_) => "a number",
            HclValue::Text(_) => "a string",
            HclValue::List(_) => "a list",
            HclValue::Set(_) => "a set",
            HclValue::Object(_) => "an object",
        }
    }

    /// As a string: numbers and booleans turn into one.
    pub fn to_text(&self) -> Option<String> {
        match self {
            HclValue::Text(text) => Some(text.clone()),
            HclValue::Bool(b) => Some(b.to_string()),
            HclValue::Int(n) => Some(n.to_string()),
            HclValue::Float(n) => Some(n.to_string()),
            HclValue::Null | HclValue::List(_) | HclValue::Set(_) | HclValue::Object(_) => None,
        }
    }

    /// As a number: a string that is one turns into it.
    pub fn to_number(&self) -> Option<HclValue> {
        match self {
            HclValue::Int(_) | HclValue::Float(_) => Some(self.clone()),
            HclValue::Text(text) => match text.parse::<i128>() {
                Ok(whole) => Some(HclValue::Int(whole)),
                Err(_) => text.parse::<f64>().ok().and_then(HclValue::number),
            },
            HclValue::Null | HclValue::Bool(_) | HclValue::List(_) | HclValue::Set(_) | HclValue::Object(_) => None,
        }
    }

    pub fn to_float(&self) -> Option<f64> {
        match self.to_number()? {
            // Beyond 2^53 it is rounded, as HCL's own functions do.
            #[allow(clippy::cast_precision_loss)]
            HclValue::Int(n) => Some(n as f64),
            HclValue::Float(n) => Some(n),
            _ => None,
        }
    }

    pub fn to_bool(&self) -> Option<bool> {
        match self {
            HclValue::Bool(b) => Some(*b),
            HclValue::Text(text) if text == "true" => Some(true),
            HclValue::Text(text) if text == "false" => Some(false),
            _ => None,
        }
    }

    /// The keys (of a list: from 0, of a set: the values) and values of a collection; `None`: it is none.
    pub fn pairs(self) -> Option<Vec<(HclValue, HclValue)>> {
        match self {
            HclValue::List(list) => Some((0..).map(HclValue::Int).zip(list).collect()),
            HclValue::Set(set) => Some(set.into_iter().map(|value| (value.clone(), value)).collect()),
            HclValue::Object(object) => {
                Some(object.into_iter().map(|(key, value)| (HclValue::Text(key), value)).collect())
            }
            HclValue::Null | HclValue::Bool(_) | HclValue::Int(_) | HclValue::Float(_) | HclValue::Text(_) => None,
        }
    }

    /// Bytes that it takes, about.
    pub fn size(&self) -> usize {
        let inside: usize = match self {
            HclValue::Text(text) => text.len(),
            HclValue::List(list) | HclValue::Set(list) => list.iter().map(HclValue::size).sum(),
            HclValue::Object(object) => object.iter().map(|(key, value)| key.len() + value.size()).sum(),
            HclValue::Null | HclValue::Bool(_) | HclValue::Int(_) | HclValue::Float(_) => 0,
        };
        inside + 32
    }

    /// It and all values within.
    pub fn count(&self) -> usize {
        let inside: usize = match self {
            HclValue::List(list) | HclValue::Set(list) => list.iter().map(HclValue::count).sum(),
            HclValue::Object(object) => object.values().map(HclValue::count).sum(),
            HclValue::Null | HclValue::Bool(_) | HclValue::Int(_) | HclValue::Float(_) | HclValue::Text(_) => 0,
        };
        inside + 1
    }

    /// `None`: a number that JSON does not have.
    pub fn to_json(&self) -> Option<serde_json::Value> {
        Some(match self {
            HclValue::Null => serde_json::Value::Null,
            HclValue::Bool(b) => (*b).into(),
            HclValue::Int(n) => match i64::try_from(*n) {
                Ok(n) => n.into(),
                Err(_) => serde_json::Number::from_f64(self.to_float()?)?.into(),
            },
            HclValue::Float(n) => serde_json::Number::from_f64(*n)?.into(),
            HclValue::Text(text) => text.as_str().into(),
            HclValue::List(list) | HclValue::Set(list) => {
                list.iter().map(HclValue::to_json).collect::<Option<Vec<_>>>()?.into()
            }
            HclValue::Object(object) => {
                let entries = object.iter().map(|(key, value)| Some((key.clone(), value.to_json()?)));
                entries.collect::<Option<serde_json::Map<_, _>>>()?.into()
            }
        })
    }

    pub fn from_json(json: serde_json::Value) -> HclValue {
        match json {
            serde_json::Value::Null => HclValue::Null,
            serde_json::Value::Bool(b) => HclValue::Bool(b),
            serde_json::Value::Number(n) => match (n.as_i128(), n.as_f64().and_then(HclValue::number)) {
                (Some(whole), _) => HclValue::Int(whole),
                (None, number) => number.unwrap_or(HclValue::Null),
            },
            serde_json::Value::String(text) => HclValue::Text(text),
            serde_json::Value::Array(list) => HclValue::List(list.into_iter().map(HclValue::from_json).collect()),
            serde_json::Value::Object(object) => {
                HclValue::Object(object.into_iter().map(|(key, value)| (key, HclValue::from_json(value))).collect())
            }
        }
    }
}
