//! JSON as Go's encoder writes it.

use std::collections::BTreeMap;

use super::arguments::{TemplateFunctionResult, bounded};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;
use crate::jobspec::gotemplate::{floats, quoting};
use crate::model::bounded_json::{self, MOST_VALUES};

/// An empty text is an empty map, as consul-template has it.
pub(super) fn parsed(text: &str) -> TemplateFunctionResult {
    if text.is_empty() {
        return Ok(TemplateValue::map(BTreeMap::new())?);
    }
    let json =
        bounded_json::parse_up_to(text.as_bytes(), MOST_VALUES).map_err(|error| format!("that is no JSON: {error}"))?;
    Ok(TemplateValue::from_json(json)?)
}

/// Errors: a value without a form in JSON.
pub(super) fn written(value: &TemplateValue, is_pretty: bool, escapes_html: bool) -> Result<String, FunctionFault> {
    let mut writer = JsonWriter { out: String::new(), is_pretty, escapes_html };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct JsonWriter {
    out: String,
    is_pretty: bool,
    escapes_html: bool,
}

impl JsonWriter {
    fn value(&mut self, value: &TemplateValue, depth: usize) -> Result<(), FunctionFault> {
        bounded(self.out.len())?;
        match value {
            TemplateValue::Nil => self.out.push_str("null"),
            TemplateValue::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            TemplateValue::Int(n) => self.out.push_str(&n.to_string()),
            TemplateValue::Uint(n) => self.out.push_str(&n.to_string()),
            TemplateValue::Float(n) => {
                self.out.push_str(&floats::json(*n).ok_or("a number in it has no form in JSON")?);
            }
            TemplateValue::Text(text) => quoting::json(&mut self.out, text, self.escapes_html),
            TemplateValue::List(list) => {
                self.out.push('[');
                for (at, item) in list.items().iter().enumerate() {
                    self.separate(at, depth + 1);
                    self.value(item, depth + 1)?;
                }
                self.close(list.items().is_empty(), depth, ']');
            }
            TemplateValue::Map(map) => {
                self.out.push('{');
                for (at, (key, item)) in map.entries().iter().enumerate() {
                    self.separate(at, depth + 1);
                    self.key(key);
                    self.value(item, depth + 1)?;
                }
                self.close(map.entries().is_empty(), depth, '}');
            }
            TemplateValue::Pair(pair) => {
                self.out.push('{');
                let fields = [("Path", &pair.path), ("Key", &pair.key), ("Value", &pair.value)];
                for (at, (name, value)) in fields.into_iter().enumerate() {
                    self.separate(at, depth + 1);
                    self.key(name);
                    quoting::json(&mut self.out, value, self.escapes_html);
                }
                self.close(false, depth, '}');
            }
            TemplateValue::Count(..) | TemplateValue::Scratch => {
                return Err(format!("{} has no form in JSON", value.type_name()).into());
            }
        }
        Ok(())
    }
    fn key(&mut self, key: &str) {
        quoting::json(&mut self.out, key, self.escapes_html);
        self.out.push_str(if self.is_pretty { ": " } else { ":" });
    }
    fn separate(&mut self, at: usize, depth: usize) {
        if at > 0 {
            self.out.push(',');
        }
        self.line(depth);
    }
    fn close(&mut self, is_empty: bool, depth: usize, end: char) {
        if !is_empty {
            self.line(depth);
        }
        self.out.push(end);
    }
    fn line(&mut self, depth: usize) {
        if self.is_pretty {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n("  ", depth));
        }
    }
}
