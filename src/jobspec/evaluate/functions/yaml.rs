//! YAML: read as templates read it, written as HCL writes it: strings in quotes, lists at the indentation of their key.

use super::arguments::{HclFunction, HclFunctionResult, bounded, pure, text};
use crate::jobspec::evaluate::value::HclValue;
use crate::jobspec::gotemplate::{TemplateValue, parsed_yaml};

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("yamldecode", (1, 1), |a| value(&parsed_yaml(&text(a, 0)?)?)),
    pure("yamlencode", (1, 1), |a| {
        let mut out = String::new();
        block(&mut out, a.first().unwrap_or(&HclValue::Null), 0)?;
        Ok(HclValue::Text(out))
    }),
];

fn value(yaml: &TemplateValue) -> HclFunctionResult {
    Ok(match yaml {
        TemplateValue::Nil => HclValue::Null,
        TemplateValue::Bool(b) => HclValue::Bool(*b),
        TemplateValue::Int(n) => HclValue::Int((*n).into()),
        TemplateValue::Uint(n) => HclValue::Int((*n).into()),
        TemplateValue::Float(n) => HclValue::number(*n).ok_or("it has a number that is not finite")?,
        TemplateValue::Text(text) => HclValue::from(&**text),
        TemplateValue::List(list) => HclValue::List(list.items().iter().map(value).collect::<Result<_, _>>()?),
        TemplateValue::Map(map) => {
            let entries = map.entries().iter().map(|(key, item)| Ok((key.to_string(), value(item)?)));
            HclValue::Object(entries.collect::<Result<_, String>>()?)
        }
        TemplateValue::Pair(_) | TemplateValue::Count(..) | TemplateValue::Scratch => {
            return Err("that is no value of YAML".to_owned());
        }
    })
}

/// From the start of a line, or behind a dash, on; with its line end.
fn block(out: &mut String, value: &HclValue, indentation: usize) -> Result<(), String> {
    bounded(out.len())?;
    let next = |out: &mut String, at: usize| {
        if at > 0 {
            out.extend(std::iter::repeat_n(' ', indentation));
        }
    };
    match value {
        HclValue::List(list) | HclValue::Set(list) if !list.is_empty() => {
            for (at, item) in list.iter().enumerate() {
                next(out, at);
                out.push_str("- ");
                block(out, item, indentation + 2)?;
            }
        }
        HclValue::Object(object) if !object.is_empty() => {
            for (at, (key, item)) in object.iter().enumerate() {
                next(out, at);
                quoted(out, key);
                out.push(':');
                match item {
                    HclValue::List(list) | HclValue::Set(list) if !list.is_empty() => {
                        out.push('\n');
                        out.extend(std::iter::repeat_n(' ', indentation));
                        block(out, item, indentation)?;
                    }
                    HclValue::Object(object) if !object.is_empty() => {
                        out.push('\n');
                        out.extend(std::iter::repeat_n(' ', indentation + 2));
                        block(out, item, indentation + 2)?;
                    }
                    item => {
                        out.push(' ');
                        block(out, item, indentation + 2)?;
                    }
                }
            }
        }
        HclValue::List(_) | HclValue::Set(_) => out.push_str("[]\n"),
        HclValue::Object(_) => out.push_str("{}\n"),
        HclValue::Text(text) if is_literal(text) => literal(out, text, indentation.max(2)),
        HclValue::Text(text) => {
            quoted(out, text);
            out.push('\n');
        }
        HclValue::Null => out.push_str("null\n"),
        HclValue::Bool(_) | HclValue::Int(_) | HclValue::Float(_) => {
            out.push_str(&value.to_text().unwrap_or_default());
            out.push('\n');
        }
    }
    Ok(())
}

/// Lines behind `|` read back as the same text.
fn is_literal(text: &str) -> bool {
    let begins = text.starts_with([' ', '\n', '\t']);
    let ends = text.len() - text.trim_end_matches('\n').len();
    let is_plain =
        text.chars().all(|c| c == '\n' || (!c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')));
    text.contains('\n') && !begins && ends < 2 && is_plain && !text.contains(" \n") && !text.ends_with(' ')
}

fn literal(out: &mut String, text: &str, indentation: usize) {
    out.push('|');
    if !text.ends_with('\n') {
        out.push('-');
    }
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indentation));
            out.push_str(line);
        }
    }
    out.push('\n');
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
