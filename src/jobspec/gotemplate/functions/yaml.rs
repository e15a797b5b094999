//! A YAML document as values, by the rules of YAML 1.1 that Go's yaml.v2 follows.
//!
//! Anchors, aliases, tags and further documents are refused: an alias is a way to make much of little.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use crate::jobspec::gotemplate::value::TemplateValue;

const DEEPEST: usize = 64;

/// Errors: why it is none that is read, with its line.
pub(in crate::jobspec) fn parsed(text: &str) -> Result<TemplateValue, String> {
    let mut reader = YamlReader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        match reader.next()? {
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => return Ok(document.unwrap_or(TemplateValue::Nil)),
            // Go reads the first one only.
            Event::DocumentStart(_) if document.is_some() => return Ok(document.unwrap_or(TemplateValue::Nil)),
            Event::DocumentStart(_) => {
                let event = reader.next()?;
                document = Some(reader.node(event, 0)?);
            }
            _ => return Err("there is something outside of the document".to_owned()),
        }
    }
}

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<Event<'t>, String> {
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(format!("that is no YAML: line {}: {}", error.marker().line(), error.info())),
            None => Ok(Event::StreamEnd),
        }
    }

    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<TemplateValue, String> {
        if depth > DEEPEST {
            return Err(format!("the YAML nests deeper than {DEEPEST}"));
        }
        match event {
            Event::Alias(_) => Err("anchors and aliases of YAML are not supported: write it out".to_owned()),
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                Err("anchors and aliases of YAML are not supported: write it out".to_owned())
            }
            Event::Scalar(_, _, _, Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                Err("tags of YAML are not supported: write the value as its type is written, a text in quotes"
                    .to_owned())
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(resolved(&text)),
            Event::Scalar(text, ..) => Ok(text.as_ref().into()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => return TemplateValue::list(items),
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut entries = BTreeMap::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => return TemplateValue::map(entries),
                        Event::Scalar(text, _, 0, None) => text.into_owned(),
                        _ => return Err("a key of YAML is a simple value".to_owned()),
                    };
                    let event = self.next()?;
                    let value = self.node(event, depth + 1)?;
                    if entries.insert(key.clone(), value).is_some() {
                        return Err(format!("the key {key:?} is there twice"));
                    }
                }
            }
            _ => Err("the YAML ends too early".to_owned()),
        }
    }
}

/// What a text without quotes means.
pub(super) fn resolved(text: &str) -> TemplateValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return TemplateValue::Nil,
        "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return TemplateValue::Bool(true);
        }
        "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return TemplateValue::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return TemplateValue::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return TemplateValue::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return TemplateValue::Float(f64::NAN),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return text.into();
    }
    let digits = text.replace('_', "");
    let (is_negative, magnitude) = match digits.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let lower = magnitude.to_ascii_lowercase();
    let (radix, body) = match (lower.get(..2), lower.strip_prefix('0')) {
        (Some("0x"), _) => (16, lower.get(2..).unwrap_or("")),
        (Some("0b"), _) => (2, lower.get(2..).unwrap_or("")),
        (Some("0o"), _) => (8, lower.get(2..).unwrap_or("")),
        (_, Some(octal)) if !octal.is_empty() => (8, octal),
        _ => (10, lower.as_str()),
    };
    if !body.is_empty() && body.chars().all(|c| c.is_digit(radix)) {
        if let Ok(n) = i64::from_str_radix(&format!("{}{body}", if is_negative { "-" } else { "" }), radix) {
            return TemplateValue::Int(n);
        }
        if let Some(n) = u64::from_str_radix(body, radix).ok().filter(|_| !is_negative) {
            return TemplateValue::Uint(n);
        }
    }
    let is_float = digits.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    match digits.parse::<f64>() {
        Ok(n) if is_float => TemplateValue::Float(n),
        _ => text.into(),
    }
}
