//! The typed getters: each yields `None` for what is not there, and for what it had to refuse (then it is reported).

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{At, Fields, join};
use crate::jobspec::diagnostic::{Span, quote};
use crate::jobspec::nearest::nearest;
use crate::jobspec::quantity::{self, QuantityError};
use crate::jobspec::tree::{self, Form, Literal, Node};

impl<'a> Fields<'a> {
    /// The value, unless it was reported already. `null` is refused: what is not meant is left out.
    pub fn value(&self, key: &str) -> Option<&'a Node> {
        let entry = self.entry(key)?;
        match (&entry.value.value, entry.form) {
            (Literal::Broken, _) | (_, Form::Block) => None,
            (Literal::Null, _) => {
                self.error(&entry.value.span, key, format!("{} is null", quote(key)), Some("leave it out".to_owned()));
                None
            }
            _ => Some(&entry.value),
        }
    }
    pub(super) fn wrong_type(&self, key: &str, node: &Node, wanted: &str, suggestion: Option<String>) {
        self.error(&node.span, key, format!("{} takes {wanted}, not {}", quote(key), node.describe()), suggestion);
    }

    /// A text, still a template.
    pub fn template(&self, key: &str) -> Option<At<String>> {
        let node = self.value(key)?;
        match &node.value {
            Literal::Text(text) => Some(At { value: text.clone(), span: node.span.clone() }),
            _ => {
                let source = self.problems.source().slice(&node.span);
                let scalar = matches!(node.value, Literal::Int(_) | Literal::Float(_) | Literal::Bool(_));
                self.wrong_type(key, node, "a text", scalar.then(|| format!("write it in quotes: \"{source}\"")));
                None
            }
        }
    }
    /// A text in which nothing is interpolated.
    pub fn text(&self, key: &str) -> Option<At<String>> {
        let At { value, span } = self.template(key)?;
        let text = self.plain(&value, &span, key)?;
        Some(At { value: text, span })
    }
    fn plain(&self, template: &str, span: &Span, key: &str) -> Option<String> {
        let text = tree::plain(template);
        if text.is_none() {
            let advice = Some("for the two characters themselves write `$${`".to_owned());
            self.error(span, key, format!("{} takes no `${{...}}`", quote(key)), advice);
        }
        text
    }
    pub fn bool(&self, key: &str) -> Option<At<bool>> {
        let node = self.value(key)?;
        match &node.value {
            Literal::Bool(value) => Some(At { value: *value, span: node.span.clone() }),
            other => {
                let advice = match other {
                    Literal::Text(text) if text == "true" || text == "false" => {
                        Some("write it without quotes".to_owned())
                    }
                    _ => None,
                };
                self.wrong_type(key, node, "true or false", advice);
                None
            }
        }
    }
    /// A whole number within `range`.
    pub fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<At<u64>> {
        let At { value, span } = self.whole(key, i128::from(*range.start())..=i128::from(*range.end()))?;
        Some(At { value: u64::try_from(value).ok()?, span })
    }
    /// The same, of numbers that may be below 0.
    pub fn signed(&self, key: &str, range: RangeInclusive<i64>) -> Option<At<i64>> {
        let At { value, span } = self.whole(key, i128::from(*range.start())..=i128::from(*range.end()))?;
        Some(At { value: i64::try_from(value).ok()?, span })
    }
    fn whole(&self, key: &str, range: RangeInclusive<i128>) -> Option<At<i128>> {
        let node = self.value(key)?;
        match &node.value {
            Literal::Int(whole) if range.contains(whole) => Some(At { value: *whole, span: node.span.clone() }),
            Literal::Int(whole) => {
                let (least, most) = (range.start(), range.end());
                let message = if whole < least {
                    format!("{} must be at least {least}", quote(key))
                } else {
                    format!("{} must be at most {most}", quote(key))
                };
                self.error(&node.span, key, message, None);
                None
            }
            other => {
                let advice = match other {
                    Literal::Text(text) if text.parse::<i64>().is_ok() => Some("write it without quotes".to_owned()),
                    _ => None,
                };
                self.wrong_type(key, node, "a whole number", advice);
                None
            }
        }
    }
    /// A text in which nothing is interpolated, or what one writes without quotes.
    pub fn scalar(&self, key: &str) -> Option<At<String>> {
        let node = self.value(key)?;
        let value = match &node.value {
            Literal::Int(n) => n.to_string(),
            Literal::Float(f) => f.to_string(),
            Literal::Bool(b) => b.to_string(),
            _ => return self.text(key),
        };
        Some(At { value, span: node.span.clone() })
    }
    /// A duration in Go's notation: `"5s"`, `"1h30m"`.
    pub fn duration(&self, key: &str) -> Option<At<Duration>> {
        self.duration_as(key, quantity::parse_duration, "write it like \"30s\" or \"1h30m\"")
    }
    /// The same, and whole days, which no job file has: `"30d"`.
    pub fn days(&self, key: &str) -> Option<At<Duration>> {
        self.duration_as(key, quantity::parse_days, "write it like \"30s\", \"1h30m\" or \"30d\"")
    }
    fn duration_as(
        &self,
        key: &str,
        parse: fn(&str) -> Result<Duration, QuantityError>,
        advice_else: &str,
    ) -> Option<At<Duration>> {
        let node = self.value(key)?;
        let Literal::Text(text) = &node.value else {
            let advice = match &node.value {
                Literal::Int(n) if *n >= 0 => format!("write it with its unit, in quotes: \"{n}s\""),
                _ => advice_else.to_owned(),
            };
            self.wrong_type(key, node, "a duration", Some(advice));
            return None;
        };
        match parse(text) {
            Ok(value) => Some(At { value, span: node.span.clone() }),
            Err(error) => {
                let advice = match text.parse::<u64>() {
                    Ok(n) => format!("write it with its unit: \"{n}s\""),
                    Err(_) => advice_else.to_owned(),
                };
                let message = format!("{} is no duration for {}: {error}", quote(text), quote(key));
                self.error(&node.span, key, message, Some(advice));
                None
            }
        }
    }
    /// A number of bytes: a whole number, or a text with a unit (`"10MiB"`).
    pub fn size(&self, key: &str) -> Option<At<u64>> {
        let node = self.value(key)?;
        let Literal::Text(text) = &node.value else { return self.integer(key, 0..=u64::MAX) };
        match quantity::parse_size(text) {
            Ok(value) => Some(At { value, span: node.span.clone() }),
            Err(error) => {
                let message = format!("{} is no size for {}: {error}", quote(text), quote(key));
                self.error(&node.span, key, message, Some("write it like \"10MiB\" or \"4096\"".to_owned()));
                None
            }
        }
    }
    /// A list of texts in which nothing is interpolated.
    pub fn texts(&self, key: &str) -> Option<At<Vec<At<String>>>> {
        let node = self.value(key)?;
        let Literal::List(list) = &node.value else {
            self.wrong_type(key, node, "a list of texts", None);
            return None;
        };
        let mut texts = Vec::with_capacity(list.len());
        for (i, item) in list.iter().enumerate() {
            let key = format!("{key}[{i}]");
            match &item.value {
                Literal::Text(text) => {
                    let value = self.plain(text, &item.span, &key)?;
                    texts.push(At { value, span: item.span.clone() });
                }
                Literal::Broken => return None,
                _ => {
                    self.wrong_type(&key, item, "a text", None);
                    return None;
                }
            }
        }
        Some(At { value: texts, span: node.span.clone() })
    }
    /// One of a closed list of words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<At<T>> {
        let text = self.text(key)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text.value) {
            return Some(At { value: *value, span: text.span });
        }
        let known: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        let message = format!("{} cannot be {}: it is {}", quote(key), quote(&text.value), known.join(" or "));
        let near = nearest(&text.value, choices.iter().map(|(word, _)| *word));
        self.error(&text.span, key, message, near.map(|word| format!("did you mean `{word}`?")));
        None
    }
    /// A map with free keys to scalars; numbers and booleans become texts as HCL prints them. Still templates.
    pub fn map(&self, key: &str) -> Option<Vec<(At<String>, At<String>)>> {
        let entry = self.entry(key)?;
        let body = self.object(entry)?;
        let path = self.path_of(key);
        let mut pairs: Vec<(At<String>, At<String>)> = Vec::with_capacity(body.entries.len());
        let mut keys = HashSet::new();
        for inner in &body.entries {
            let path = join(&path, &inner.key);
            let text = match &inner.value.value {
                Literal::Text(text) => text.clone(),
                Literal::Int(n) => n.to_string(),
                Literal::Float(f) => f.to_string(),
                Literal::Bool(b) => b.to_string(),
                Literal::Broken => continue,
                Literal::Null | Literal::List(_) | Literal::Object(_) => {
                    let message = format!("{} takes a text, not {}", quote(&inner.key), inner.value.describe());
                    self.problems.error(&inner.value.span, &path, message, None);
                    continue;
                }
            };
            if !keys.insert(inner.key.as_str()) {
                let message = format!("{} is given twice", quote(&inner.key));
                self.problems.error(&inner.key_span, &path, message, Some("keep one of them".to_owned()));
                continue;
            }
            let at = At { value: inner.key.clone(), span: inner.key_span.clone() };
            pairs.push((at, At { value: text, span: inner.value.span.clone() }));
        }
        Some(pairs)
    }
}
