//! A plugin's configuration in MessagePack: the owner's values, completed with the defaults of the plugin's schema.
//! Pure.
//!
//! Source: `hcl_spec.proto` and `helper/pluginutils/hclutils` of Nomad; the MessagePack specification. A plugin may
//! rely on every default: Nomad's NVIDIA plugin does not start without one.

use serde_json::{Map, Value};

use crate::devices::protocol::messages::{Spec, SpecKind};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("unknown setting {0:?}: the plugin's schema does not have it")]
    Unknown(String),
    #[error("missing setting {0:?}: the plugin's schema requires it")]
    Missing(String),
    #[error("setting {0:?} must be a block")]
    NoBlock(String),
    #[error("cannot parse the default {0:?} of the plugin's schema")]
    Default(String),
}

/// Encodes the configuration. `given`: the owner's values by name.
///
/// Errors: a setting that the schema does not allow, by name.
pub(super) fn settings(schema: Option<&Spec>, given: &Map<String, Value>) -> Result<Vec<u8>, SettingsError> {
    let mut known = Vec::new();
    let value = schema.map_or(Ok(Value::Null), |spec| value(spec, "", given, &mut known))?;
    refuse_unknown(given, &known)?;
    let value = if value.is_object() { value } else { Value::Object(Map::new()) };
    let mut packed = Vec::new();
    pack(&value, &mut packed);
    Ok(packed)
}

fn refuse_unknown(given: &Map<String, Value>, known: &[String]) -> Result<(), SettingsError> {
    match given.keys().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(SettingsError::Unknown(name.clone())),
    }
}

/// `name`: default name for specs without one. `known`: collects the names that the owner may set.
fn value(spec: &Spec, name: &str, given: &Map<String, Value>, known: &mut Vec<String>) -> Result<Value, SettingsError> {
    let of = |own: &str| if own.is_empty() { name.to_owned() } else { own.to_owned() };
    let mut taken = |own: &str, required: bool, absent: Value| {
        let name = of(own);
        known.push(name.clone());
        match given.get(&name) {
            Some(value) => Ok(value.clone()),
            None if required => Err(SettingsError::Missing(name)),
            None => Ok(absent),
        }
    };
    match &spec.kind {
        None => Ok(Value::Null),
        Some(SpecKind::Object(object)) => {
            let fields =
                object.attributes.iter().map(|(name, spec)| Ok((name.clone(), value(spec, name, given, known)?)));
            fields.collect::<Result<_, _>>().map(Value::Object)
        }
        Some(SpecKind::Array(array)) => {
            let values = array.values.iter().map(|spec| value(spec, name, given, known));
            values.collect::<Result<_, _>>().map(Value::Array)
        }
        Some(SpecKind::Attr(attr)) => taken(&attr.name, attr.required, Value::Null),
        Some(SpecKind::Block(block)) => {
            let body = taken(&block.name, block.required, Value::Null)?;
            block.nested.as_ref().map_or(Ok(Value::Null), |nested| inside(nested, &of(&block.name), body))
        }
        Some(SpecKind::BlockList(named) | SpecKind::BlockSet(named)) => {
            taken(&named.name, false, Value::Array(Vec::new()))
        }
        Some(SpecKind::BlockMap(named) | SpecKind::BlockAttrs(named)) => taken(&named.name, false, Value::Null),
        Some(SpecKind::Default(default)) => {
            let mut of =
                |spec: &Option<Box<Spec>>| spec.as_ref().map_or(Ok(Value::Null), |s| value(s, name, given, known));
            let primary = of(&default.primary)?;
            if primary.is_null() { of(&default.default) } else { Ok(primary) }
        }
        Some(SpecKind::Literal(literal)) => {
            serde_json::from_str(&literal.value).map_err(|_| SettingsError::Default(literal.value.clone()))
        }
    }
}

/// The content of a block, set or not.
fn inside(spec: &Spec, name: &str, body: Value) -> Result<Value, SettingsError> {
    match body {
        Value::Null => Ok(Value::Null),
        Value::Object(body) => {
            let mut known = Vec::new();
            let value = value(spec, name, &body, &mut known)?;
            refuse_unknown(&body, &known).map(|()| value)
        }
        _ => Err(SettingsError::NoBlock(name.to_owned())),
    }
}

fn pack(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(bool) => out.push(if *bool { 0xc3 } else { 0xc2 }),
        Value::Number(number) => pack_number(number, out),
        Value::String(text) => pack_text(text, out),
        Value::Array(values) => {
            pack_length(0xdd, values.len(), out);
            values.iter().for_each(|value| pack(value, out));
        }
        Value::Object(fields) => {
            pack_length(0xdf, fields.len(), out);
            for (name, value) in fields {
                pack_text(name, out);
                pack(value, out);
            }
        }
    }
}

fn pack_text(text: &str, out: &mut Vec<u8>) {
    pack_length(0xdb, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Always four bytes; shorter forms only save space.
fn pack_length(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn pack_number(number: &serde_json::Number, out: &mut Vec<u8>) {
    if let Some(n) = number.as_u64() {
        out.push(0xcf);
        out.extend_from_slice(&n.to_be_bytes());
    } else if let Some(n) = number.as_i64() {
        out.push(0xd3);
        out.extend_from_slice(&n.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.as_f64().unwrap_or_default().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::protocol::messages::{SpecAttr, SpecBlock, SpecDefault, SpecLiteral, SpecObject};

    fn spec(kind: SpecKind) -> Spec {
        Spec { kind: Some(kind) }
    }
    fn attr(name: &str, required: bool) -> Spec {
        spec(SpecKind::Attr(SpecAttr { name: name.into(), of: "string".into(), required }))
    }
    fn default(name: &str, literal: &str) -> Spec {
        let literal = spec(SpecKind::Literal(SpecLiteral { value: literal.into() }));
        let both = SpecDefault { primary: Some(Box::new(attr(name, false))), default: Some(Box::new(literal)) };
        spec(SpecKind::Default(both))
    }
    fn object<const N: usize>(fields: [(&str, Spec); N]) -> Spec {
        let attributes = fields.into_iter().map(|(name, spec)| (name.to_owned(), spec)).collect();
        spec(SpecKind::Object(SpecObject { attributes }))
    }
    fn given(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }
    fn made(schema: &Spec, text: &str) -> Result<Value, SettingsError> {
        let (given, mut known) = (given(text), Vec::new());
        let value = value(schema, "", &given, &mut known)?;
        refuse_unknown(&given, &known).map(|()| value)
    }

    #[test]
    fn defaults_are_filled_in_as_nomad_does() {
        let nested = SpecBlock {
            name: "mps".into(),
            required: false,
            nested: Some(Box::new(object([("user", attr("user", false))]))),
        };
        let schema = object([
            ("enabled", default("enabled", "true")),
            ("ignored", default("ignored", "[]")),
            ("period", default("period", "\"1m\"")),
            ("free", attr("", false)),
            ("mps", spec(SpecKind::Block(nested))),
        ]);
        let expected = serde_json::json!({"enabled": true, "ignored": [], "period": "1m", "free": null, "mps": null});
        assert_eq!(made(&schema, "{}"), Ok(expected));
        let expected =
            serde_json::json!({"enabled": false, "ignored": [], "period": "5s", "free": 1, "mps": {"user": "u"}});
        let text = r#"{"enabled": false, "period": "5s", "free": 1, "mps": {"user": "u"}}"#;
        assert_eq!(made(&schema, text), Ok(expected));
        assert_eq!(made(&schema, r#"{"mps": {"x": 1}}"#), Err(SettingsError::Unknown("x".into())));
        assert_eq!(made(&schema, r#"{"mps": 1}"#), Err(SettingsError::NoBlock("mps".into())));
    }

    #[test]
    fn plugin_settings_outside_the_schema_are_refused_by_name() {
        let schema = object([("a", attr("a", true))]);
        assert_eq!(made(&schema, "{}"), Err(SettingsError::Missing("a".into())));
        assert_eq!(made(&schema, r#"{"a": 1, "b": 2}"#), Err(SettingsError::Unknown("b".into())));
        assert_eq!(made(&object([("a", default("a", "what"))]), "{}"), Err(SettingsError::Default("what".into())));
        assert_eq!(settings(None, &given(r#"{"a": 1}"#)), Err(SettingsError::Unknown("a".into())));
    }

    #[test]
    fn plugin_settings_are_encoded_as_msgpack() {
        assert_eq!(settings(None, &Map::new()).unwrap(), [0xdf, 0, 0, 0, 0]);
        let packed = |text: &str| {
            let mut out = Vec::new();
            pack(&serde_json::from_str(text).unwrap(), &mut out);
            out
        };
        assert_eq!(packed("[null, true, false]"), [0xdd, 0, 0, 0, 3, 0xc0, 0xc3, 0xc2]);
        assert_eq!(packed(r#"{"a": "b"}"#), [0xdf, 0, 0, 0, 1, 0xdb, 0, 0, 0, 1, b'a', 0xdb, 0, 0, 0, 1, b'b']);
        assert_eq!(packed("258"), [0xcf, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(packed("-1"), [0xd3, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(packed("0.5"), [0xcb, 0x3f, 0xe0, 0, 0, 0, 0, 0, 0]);
    }
}
