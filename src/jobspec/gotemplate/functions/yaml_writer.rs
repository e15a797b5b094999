//! YAML as Go's yaml.v2 writes it: sorted keys, lists at the indentation of their key.

use super::arguments::bounded;
use super::yaml;
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::floats;
use crate::jobspec::gotemplate::value::TemplateValue;

/// Without the line end. Errors: a value without a form in YAML.
pub(super) fn written(value: &TemplateValue) -> Result<String, FunctionFault> {
    let mut out = String::new();
    block(&mut out, value, 0)?;
    // The line end may belong to a text.
    if !ends_a_line(value) {
        out.pop();
    }
    Ok(out)
}

fn ends_a_line(value: &TemplateValue) -> bool {
    match value {
        TemplateValue::Text(text) => text.ends_with('\n') && is_literal(text),
        TemplateValue::List(list) => list.items().last().is_some_and(ends_a_line),
        TemplateValue::Map(map) => map.entries().values().last().is_some_and(ends_a_line),
        _ => false,
    }
}

/// Whether it is written in lines behind `|`.
fn is_literal(text: &str) -> bool {
    let ends = text.len() - text.trim_end_matches('\n').len();
    text.contains('\n')
        && ends < 2
        && ends < text.len()
        && !text.ends_with(' ')
        && !text.contains(" \n")
        && !has_special(text)
}

fn has_special(text: &str) -> bool {
    text.chars().any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}'))
}

/// What is below a key or a dash, from the start of a line on.
fn block(out: &mut String, value: &TemplateValue, indentation: usize) -> Result<(), FunctionFault> {
    match value {
        TemplateValue::List(list) if !list.items().is_empty() => {
            for item in list.items() {
                indent(out, indentation);
                out.push_str("- ");
                inline(out, item, indentation + 2)?;
            }
        }
        TemplateValue::Map(map) if !map.entries().is_empty() => {
            for (key, item) in map.entries() {
                indent(out, indentation);
                scalar(out, key, indentation + 2, true);
                out.push(':');
                below(out, item, indentation)?;
            }
        }
        other => inline(out, other, indentation)?,
    }
    Ok(())
}

/// Behind the colon of a key.
fn below(out: &mut String, value: &TemplateValue, indentation: usize) -> Result<(), FunctionFault> {
    match value {
        TemplateValue::List(list) if !list.items().is_empty() => {
            out.push('\n');
            block(out, value, indentation)
        }
        TemplateValue::Map(map) if !map.entries().is_empty() => {
            out.push('\n');
            block(out, value, indentation + 2)
        }
        other => {
            out.push(' ');
            inline(out, other, indentation + 2)
        }
    }
}

/// From inside of a line on; a list or map continues it.
fn inline(out: &mut String, value: &TemplateValue, indentation: usize) -> Result<(), FunctionFault> {
    bounded(out.len())?;
    match value {
        TemplateValue::Nil => out.push_str("null"),
        TemplateValue::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        TemplateValue::Int(n) => out.push_str(&n.to_string()),
        TemplateValue::Uint(n) => out.push_str(&n.to_string()),
        TemplateValue::Float(n) => out.push_str(&match n {
            n if n.is_nan() => ".nan".to_owned(),
            n if n.is_infinite() => if *n > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
            n => floats::shortest(*n),
        }),
        TemplateValue::Text(text) => scalar(out, text, indentation, false),
        TemplateValue::List(list) if list.items().is_empty() => out.push_str("[]"),
        TemplateValue::Map(map) if map.entries().is_empty() => out.push_str("{}"),
        TemplateValue::List(_) | TemplateValue::Map(_) => {
            let mut inner = String::new();
            block(&mut inner, value, indentation)?;
            out.push_str(inner.trim_start_matches(' '));
            return Ok(());
        }
        TemplateValue::Pair(_) | TemplateValue::Count(..) | TemplateValue::Scratch => {
            return Err(format!("{} has no form in YAML", value.type_name()).into());
        }
    }
    out.push('\n');
    Ok(())
}

fn indent(out: &mut String, indentation: usize) {
    out.extend(std::iter::repeat_n(' ', indentation));
}

/// A string: plain where that reads back as the same string.
fn scalar(out: &mut String, text: &str, indentation: usize, is_key: bool) {
    if has_special(text) || (text.contains('\n') && (is_key || !is_literal(text))) {
        double_quoted(out, text);
    } else if text.contains('\n') {
        literal(out, text, indentation);
    } else if !matches!(yaml::resolved(text), TemplateValue::Text(_)) {
        double_quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

fn is_plain(text: &str) -> bool {
    let first = text.chars().next();
    let begins = match first {
        None => false,
        Some('-' | '?' | ':') => text.chars().nth(1).is_some_and(|c| c != ' '),
        Some(c) => !"#,[]{}&*!|>'\"%@` ".contains(c),
    };
    let is_marker = text.starts_with("---") || text.starts_with("...");
    begins && !is_marker && !text.ends_with([' ', ':']) && !text.contains(": ") && !text.contains(" #")
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x100 && c.is_control() => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            '\u{feff}' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Lines behind `|`; `|-` if the last one has no end.
fn literal(out: &mut String, text: &str, indentation: usize) {
    out.push('|');
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    if !text.ends_with('\n') {
        out.push('-');
    }
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, indentation.max(2));
            out.push_str(line);
        }
    }
}
