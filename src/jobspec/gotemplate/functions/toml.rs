//! TOML as Go's encoder writes it: keys in order, values before tables, each table indented below its parent.

use super::arguments::{TemplateFunctionResult, bounded};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::{TemplateValue, ValueMap};
use crate::jobspec::gotemplate::{floats, quoting};

/// Errors: it is no map, or a value has no form in TOML.
pub(super) fn written(value: &TemplateValue) -> TemplateFunctionResult {
    let TemplateValue::Map(map) = value else {
        return Err(format!("TOML is written of a map, not of {}", value.type_name()).into());
    };
    let mut out = String::new();
    table(&mut out, map, &[])?;
    Ok(out.into())
}

/// The entries of the table with this path.
fn table(out: &mut String, map: &ValueMap, path: &[String]) -> Result<(), FunctionFault> {
    let pad = "  ".repeat(path.len());
    let (tables, plain): (Vec<_>, Vec<_>) = map.entries().iter().partition(|(_, value)| is_table(value));
    // What is null is left out.
    for (key, value) in plain.into_iter().filter(|(_, value)| **value != TemplateValue::Nil) {
        bounded(out.len())?;
        out.push_str(&format!("{pad}{} = ", name(key)));
        single(out, value)?;
        out.push('\n');
    }
    for (key, value) in tables {
        bounded(out.len())?;
        let path = [path, &[name(key)]].concat();
        match value {
            TemplateValue::Map(inner) => {
                if path.len() == 1 && !out.is_empty() {
                    out.push('\n');
                }
                out.push_str(&format!("{pad}[{}]\n", path.join(".")));
                table(out, inner, &path)?;
            }
            TemplateValue::List(list) => {
                for item in list.items() {
                    let TemplateValue::Map(inner) = item else { continue };
                    if !out.is_empty() {
                        out.push('\n');
                    }
                    out.push_str(&format!("{pad}[[{}]]\n", path.join(".")));
                    table(out, inner, &path)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A map, or a list of maps alone.
fn is_table(value: &TemplateValue) -> bool {
    match value {
        TemplateValue::Map(_) => true,
        TemplateValue::List(list) => {
            !list.items().is_empty() && list.items().iter().all(|item| matches!(item, TemplateValue::Map(_)))
        }
        _ => false,
    }
}

/// A value on its line.
fn single(out: &mut String, value: &TemplateValue) -> Result<(), FunctionFault> {
    bounded(out.len())?;
    match value {
        TemplateValue::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        TemplateValue::Int(n) => out.push_str(&n.to_string()),
        TemplateValue::Uint(n) => out.push_str(&n.to_string()),
        TemplateValue::Float(n) => {
            let shown = floats::json(*n).ok_or("a number in it has no form in TOML")?;
            out.push_str(&shown);
            if !shown.contains(['.', 'e']) {
                out.push_str(".0");
            }
        }
        TemplateValue::Text(text) => out.push_str(&quoted(text)),
        TemplateValue::List(list) => {
            out.push('[');
            for (at, item) in list.items().iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                single(out, item)?;
            }
            out.push(']');
        }
        TemplateValue::Map(map) => {
            out.push('{');
            for (at, (key, item)) in map.entries().iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                out.push_str(&format!("{} = ", name(key)));
                single(out, item)?;
            }
            out.push('}');
        }
        TemplateValue::Nil | TemplateValue::Pair(_) | TemplateValue::Count(..) | TemplateValue::Scratch => {
            return Err(format!("{} has no form in TOML", value.type_name()).into());
        }
    }
    Ok(())
}

/// A bare key, or one in quotes.
fn name(key: &str) -> String {
    if !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-') {
        return key.to_owned();
    }
    quoted(key)
}

/// As in JSON; TOML takes no DEL as it stands.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    quoting::json(&mut quoted, text, false);
    quoted.replace('\u{7f}', "\\u007f")
}
