//! What a pipeline yields. Values are cheap to clone: a loop over a large list copies no list.

use std::collections::BTreeMap;
use std::rc::Rc;

/// Lists and maps within each other: printing and dropping recurse.
const DEEPEST_VALUE: usize = 100;

/// A value of a template. Numbers keep their kind, as Go's comparisons require it.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplateValue {
    Nil,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<ValueList>),
    Map(Rc<ValueMap>),
    /// A key of the key tree: fields `Path`, `Key`, `Value`.
    Pair(Rc<TemplateKeyPair>),
    /// The numbers of `loop`, which are not stored.
    Count(i64, i64),
    /// The variables of `scratch`: methods `Key`, `Get`, `Set`, `SetX`, `MapSet`, `MapSetX`, `MapValues`.
    Scratch,
}

/// A key of the local key tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateKeyPair {
    /// From the root of the tree.
    pub path: String,
    /// Relative to the prefix of `ls` or `tree`.
    pub key: String,
    pub value: String,
}

/// The elements of a list; knows its size, so that sharing cannot hide it.
#[derive(Debug, PartialEq)]
pub struct ValueList {
    items: Vec<TemplateValue>,
    bytes: usize,
    depth: usize,
}

/// The entries of a map, sorted.
#[derive(Debug, PartialEq)]
pub struct ValueMap {
    entries: BTreeMap<String, TemplateValue>,
    bytes: usize,
    depth: usize,
    /// Go's `map[string]string`: `index` of a missing key yields "".
    pub(super) is_of_texts: bool,
}

impl ValueList {
    pub fn items(&self) -> &[TemplateValue] {
        &self.items
    }
}

impl ValueMap {
    pub fn entries(&self) -> &BTreeMap<String, TemplateValue> {
        &self.entries
    }
}

impl From<&str> for TemplateValue {
    fn from(text: &str) -> TemplateValue {
        TemplateValue::Text(text.into())
    }
}

impl From<String> for TemplateValue {
    fn from(text: String) -> TemplateValue {
        TemplateValue::Text(text.into())
    }
}

impl TemplateValue {
    /// Errors: it would nest too deep.
    pub fn list(items: Vec<TemplateValue>) -> Result<TemplateValue, String> {
        let (bytes, depth) = measure(items.iter(), 0)?;
        Ok(TemplateValue::List(Rc::new(ValueList { items, bytes, depth })))
    }

    /// Errors: it would nest too deep.
    pub fn map(entries: BTreeMap<String, TemplateValue>) -> Result<TemplateValue, String> {
        let (bytes, depth) = measure(entries.values(), entries.keys().map(|key| key.len() + 32).sum())?;
        Ok(TemplateValue::Map(Rc::new(ValueMap { entries, bytes, depth, is_of_texts: false })))
    }

    /// Errors: it would nest too deep.
    pub(super) fn map_of_texts(entries: BTreeMap<String, TemplateValue>) -> Result<TemplateValue, String> {
        let (bytes, depth) = measure(entries.values(), entries.keys().map(|key| key.len() + 32).sum())?;
        Ok(TemplateValue::Map(Rc::new(ValueMap { entries, bytes, depth, is_of_texts: true })))
    }

    pub fn texts<T: Into<TemplateValue>>(texts: impl IntoIterator<Item = T>) -> Result<TemplateValue, String> {
        TemplateValue::list(texts.into_iter().map(Into::into).collect())
    }

    /// Errors: it would nest too deep.
    pub fn from_json(json: serde_json::Value) -> Result<TemplateValue, String> {
        Ok(match json {
            serde_json::Value::Null => TemplateValue::Nil,
            serde_json::Value::Bool(b) => TemplateValue::Bool(b),
            // Go decodes every number of JSON as float64.
            serde_json::Value::Number(number) => TemplateValue::Float(number.as_f64().unwrap_or(f64::MAX)),
            serde_json::Value::String(text) => text.into(),
            serde_json::Value::Array(items) => {
                TemplateValue::list(items.into_iter().map(TemplateValue::from_json).collect::<Result<_, _>>()?)?
            }
            serde_json::Value::Object(entries) => {
                let entries = entries.into_iter().map(|(key, value)| Ok((key, TemplateValue::from_json(value)?)));
                TemplateValue::map(entries.collect::<Result<_, String>>()?)?
            }
        })
    }

    /// Bytes that it takes if nothing is shared, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            TemplateValue::Text(text) => text.len(),
            TemplateValue::List(list) => list.bytes,
            TemplateValue::Map(map) => map.bytes,
            TemplateValue::Pair(pair) => pair.path.len() + pair.key.len() + pair.value.len(),
            _ => 0,
        }
    }

    fn depth(&self) -> usize {
        match self {
            TemplateValue::List(list) => list.depth,
            TemplateValue::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// The type in the words of a message.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            TemplateValue::Nil => "<nil>",
            TemplateValue::Bool(_) => "bool",
            TemplateValue::Int(_) => "int",
            TemplateValue::Uint(_) => "uint64",
            TemplateValue::Float(_) => "float64",
            TemplateValue::Text(_) => "string",
            TemplateValue::List(_) => "list",
            TemplateValue::Map(_) => "map",
            TemplateValue::Pair(_) => "key pair",
            TemplateValue::Count(..) => "loop",
            TemplateValue::Scratch => "scratch",
        }
    }

    /// The type as Go's `printf` shows it.
    pub(super) fn go_type(&self) -> &'static str {
        match self {
            TemplateValue::List(_) => "[]interface {}",
            TemplateValue::Map(map) if map.is_of_texts => "map[string]string",
            TemplateValue::Map(_) => "map[string]interface {}",
            TemplateValue::Pair(_) => "*dependency.KeyPair",
            TemplateValue::Count(..) => "<-chan int64",
            TemplateValue::Scratch => "*template.Scratch",
            other => other.type_name(),
        }
    }

    /// Go's rule of `if`, `with`, `and`, `or`, `not`.
    pub(super) fn is_true(&self) -> bool {
        match self {
            TemplateValue::Nil => false,
            TemplateValue::Bool(b) => *b,
            TemplateValue::Int(n) => *n != 0,
            TemplateValue::Uint(n) => *n != 0,
            TemplateValue::Float(n) => *n != 0.0,
            TemplateValue::Text(text) => !text.is_empty(),
            TemplateValue::List(list) => !list.items.is_empty(),
            TemplateValue::Map(map) => !map.entries.is_empty(),
            TemplateValue::Pair(_) | TemplateValue::Count(..) | TemplateValue::Scratch => true,
        }
    }

    /// Of a string in bytes; `None`: it has none.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            TemplateValue::Text(text) => Some(text.len()),
            TemplateValue::List(list) => Some(list.items.len()),
            TemplateValue::Map(map) => Some(map.entries.len()),
            _ => None,
        }
    }
}

fn measure<'v>(values: impl Iterator<Item = &'v TemplateValue>, keys: usize) -> Result<(usize, usize), String> {
    let (mut bytes, mut depth) = (keys.saturating_add(32), 0);
    for value in values {
        bytes = bytes.saturating_add(value.bytes()).saturating_add(32);
        depth = depth.max(value.depth());
    }
    if depth >= DEEPEST_VALUE {
        return Err(format!("lists and maps nest deeper than {DEEPEST_VALUE}"));
    }
    Ok((bytes, depth + 1))
}
