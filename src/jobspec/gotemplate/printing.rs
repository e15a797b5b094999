//! Values as Go's `Sprint` writes them.

use super::floats;
use super::value::TemplateValue;

/// What an action writes. Errors: it has no form.
pub(super) fn action(value: &TemplateValue) -> Result<String, String> {
    match value {
        TemplateValue::Nil => Ok("<no value>".to_owned()),
        TemplateValue::Count(..) => Err("the numbers of loop have no form; use range".to_owned()),
        value => Ok(plain(value)),
    }
}

/// Go's `%v`.
pub(super) fn plain(value: &TemplateValue) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

fn write(out: &mut String, value: &TemplateValue) {
    match value {
        TemplateValue::Nil => out.push_str("<nil>"),
        TemplateValue::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        TemplateValue::Int(n) => out.push_str(&n.to_string()),
        TemplateValue::Uint(n) => out.push_str(&n.to_string()),
        TemplateValue::Float(n) => out.push_str(&floats::shortest(*n)),
        TemplateValue::Text(text) => out.push_str(text),
        TemplateValue::List(list) => {
            out.push('[');
            for (at, item) in list.items().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                write(out, item);
            }
            out.push(']');
        }
        TemplateValue::Map(map) => {
            out.push_str("map[");
            for (at, (key, value)) in map.entries().iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write(out, value);
            }
            out.push(']');
        }
        // Consul-template's own form of a key.
        TemplateValue::Pair(pair) => out.push_str(&format!("{{{} {} {}}}", pair.path, pair.key, pair.value)),
        TemplateValue::Count(from, to) => out.push_str(&format!("loop({from}, {to})")),
        TemplateValue::Scratch => out.push_str("scratch"),
    }
}

/// Go's `Sprint`: blanks between two operands where neither is a string.
pub(super) fn sprint(values: &[TemplateValue]) -> String {
    let mut out = String::new();
    let mut was_text = true;
    for (at, value) in values.iter().enumerate() {
        let is_text = matches!(value, TemplateValue::Text(_));
        if at > 0 && !is_text && !was_text {
            out.push(' ');
        }
        write(&mut out, value);
        was_text = is_text;
    }
    out
}

/// Go's `Sprintln`.
pub(super) fn sprintln(values: &[TemplateValue]) -> String {
    let mut out = values.iter().map(plain).collect::<Vec<_>>().join(" ");
    out.push('\n');
    out
}
