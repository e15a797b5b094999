//! The typed getters: each yields `None` for what is not there, and for what it had to refuse (then it is reported).

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Fields, Spanned, join};
use crate::jobspec::diagnostic::{Span, quote};
use crate::jobspec::quantity::{self, QuantityError};
use crate::jobspec::template::as_written;
use crate::jobspec::tree::{self, Form, Literal, ValueNode};
use crate::model::nearest::nearest;

impl<'a> Fields<'a> {
    /// The value, unless it was reported already.
    pub fn value(&self, key: &str) -> Option<&'a ValueNode> {
        let entry = self.entry(key)?;
        match (&entry.value.value, entry.form) {
            (Literal::Broken, _) | (_, Form::Block) => None,
            _ => Some(&entry.value),
        }
    }
    pub(super) fn wrong_type(&self, key: &str, node: &ValueNode, expected: &str, suggestion: Option<String>) {
        self.error(&node.span, key, format!("{} takes {expected}, not {}", quote(key), node.describe()), suggestion);
    }

    /// A text, still a template. As in HCL, a number or a boolean is a text too.
    pub fn template(&self, key: &str) -> Option<Spanned<String>> {
        let node = self.value(key)?;
        match &node.value {
            Literal::Text(text) => Some(Spanned { value: text.clone(), span: node.span.clone() }),
            _ => {
                let text = as_text(&node.value);
                if text.is_none() {
                    self.wrong_type(key, node, "a text", None);
                }
                Some(Spanned { value: text?, span: node.span.clone() })
            }
        }
    }
    /// A text in which nothing is interpolated: a reference in a job file is part of it.
    pub fn text(&self, key: &str) -> Option<Spanned<String>> {
        let Spanned { value, span } = self.template(key)?;
        let text = self.plain(&value, &span, key)?;
        Some(Spanned { value: text, span })
    }
    fn plain(&self, template: &str, span: &Span, key: &str) -> Option<String> {
        let text = tree::plain(template);
        if text.is_none() && self.problems.keeps_references() {
            let message = format!("nothing is interpolated in {}: `${{...}}` is part of the text", quote(key));
            self.problems.warn(span, &self.path_of(key), message, None);
            return Some(as_written(template));
        }
        if text.is_none() {
            let advice = Some("for the two characters themselves write `$${`".to_owned());
            self.error(span, key, format!("{} takes no `${{...}}`", quote(key)), advice);
        }
        text
    }
    pub fn bool(&self, key: &str) -> Option<Spanned<bool>> {
        let node = self.value(key)?;
        match &node.value {
            Literal::Bool(value) => Some(Spanned { value: *value, span: node.span.clone() }),
            other => {
                // As HCL converts them.
                let value = match other {
                    Literal::Text(text) if matches!(text.as_str(), "true" | "1") => Some(true),
                    Literal::Text(text) if matches!(text.as_str(), "false" | "0") => Some(false),
                    _ => None,
                };
                if value.is_none() {
                    self.wrong_type(key, node, "true or false", None);
                }
                Some(Spanned { value: value?, span: node.span.clone() })
            }
        }
    }
    /// A whole number within `range`.
    pub fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<Spanned<u64>> {
        let Spanned { value, span } = self.whole(key, i128::from(*range.start())..=i128::from(*range.end()))?;
        Some(Spanned { value: u64::try_from(value).ok()?, span })
    }
    /// The same, of numbers that may be below 0.
    pub fn signed(&self, key: &str, range: RangeInclusive<i64>) -> Option<Spanned<i64>> {
        let Spanned { value, span } = self.whole(key, i128::from(*range.start())..=i128::from(*range.end()))?;
        Some(Spanned { value: i64::try_from(value).ok()?, span })
    }
    fn whole(&self, key: &str, range: RangeInclusive<i128>) -> Option<Spanned<i128>> {
        let node = self.value(key)?;
        match &whole_of(&node.value) {
            Some(whole) if range.contains(whole) => Some(Spanned { value: *whole, span: node.span.clone() }),
            Some(whole) => {
                let (least, most) = (range.start(), range.end());
                let message = if whole < least {
                    format!("{} must be at least {least}", quote(key))
                } else {
                    format!("{} must be at most {most}", quote(key))
                };
                self.error(&node.span, key, message, None);
                None
            }
            None => {
                let advice = self.mebibytes(key, node);
                self.wrong_type(key, node, "a whole number", advice);
                None
            }
        }
    }
    /// What to write for a text such as `256MB`, if the field counts MiB.
    fn mebibytes(&self, key: &str, node: &ValueNode) -> Option<String> {
        const IN_MIB: [&str; 4] = ["memory", "memory_max", "max_file_size", "size"];
        let text = node.text().filter(|_| self.problems.keeps_references() && IN_MIB.contains(&key))?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let unit = text.get(digits.len()..).unwrap_or("").trim().to_ascii_lowercase();
        let factor = match unit.as_str() {
            "m" | "mb" | "mib" => Some(1),
            "g" | "gb" | "gib" => Some(1024),
            _ => None,
        };
        let whole = digits.parse::<u64>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(factor));
        Some(match whole {
            Some(n) => format!("its unit is MiB: write {key} = {n}"),
            None => format!("its unit is MiB: write {key} = NUMBER"),
        })
    }
    /// A text in which nothing is interpolated, or what one writes without quotes.
    pub fn scalar(&self, key: &str) -> Option<Spanned<String>> {
        let node = self.value(key)?;
        match as_text(&node.value) {
            Some(value) => Some(Spanned { value, span: node.span.clone() }),
            None => self.text(key),
        }
    }
    /// A duration in Go's notation: `"5s"`, `"1h30m"`; a number is nanoseconds.
    pub fn duration(&self, key: &str) -> Option<Spanned<Duration>> {
        // As Nomad takes it.
        if let Some(node) = self.value(key)
            && let Literal::Int(n) = &node.value
            && let Ok(nanos) = u64::try_from(*n)
            && i64::try_from(nanos).is_ok()
        {
            if nanos > 0 {
                let message = format!("{} is {n} nanoseconds: a number without a unit counts them", quote(key));
                self.problems.warn(
                    &node.span,
                    &self.path_of(key),
                    message,
                    Some(format!("for seconds write \"{n}s\"")),
                );
            }
            return Some(Spanned { value: Duration::from_nanos(nanos), span: node.span.clone() });
        }
        self.duration_as(key, quantity::parse_duration, "write it like \"30s\" or \"1h30m\"")
    }
    /// The same, and whole days, which no job file has: `"30d"`.
    pub fn days(&self, key: &str) -> Option<Spanned<Duration>> {
        self.duration_as(key, quantity::parse_days, "write it like \"30s\", \"1h30m\" or \"30d\"")
    }
    fn duration_as(
        &self,
        key: &str,
        parse: fn(&str) -> Result<Duration, QuantityError>,
        advice_else: &str,
    ) -> Option<Spanned<Duration>> {
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
            Ok(value) => Some(Spanned { value, span: node.span.clone() }),
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
    pub fn size(&self, key: &str) -> Option<Spanned<u64>> {
        let node = self.value(key)?;
        let Literal::Text(text) = &node.value else { return self.integer(key, 0..=u64::MAX) };
        match quantity::parse_size(text) {
            Ok(value) => Some(Spanned { value, span: node.span.clone() }),
            Err(error) => {
                let message = format!("{} is no size for {}: {error}", quote(text), quote(key));
                self.error(&node.span, key, message, Some("write it like \"10MiB\" or \"4096\"".to_owned()));
                None
            }
        }
    }
    /// A list of texts in which nothing is interpolated.
    pub fn texts(&self, key: &str) -> Option<Spanned<Vec<Spanned<String>>>> {
        let Spanned { value, span } = self.templates(key)?;
        let plain = |(i, at): (usize, Spanned<String>)| {
            let value = self.plain(&at.value, &at.span, &format!("{key}[{i}]"))?;
            Some(Spanned { value, span: at.span })
        };
        let value = value.into_iter().enumerate().map(plain).collect::<Option<Vec<_>>>()?;
        Some(Spanned { value, span })
    }
    /// A list of texts, still templates.
    pub fn templates(&self, key: &str) -> Option<Spanned<Vec<Spanned<String>>>> {
        let node = self.value(key)?;
        let Literal::List(list) = &node.value else {
            self.wrong_type(key, node, "a list of texts", None);
            return None;
        };
        let mut texts = Vec::with_capacity(list.len());
        for (i, item) in list.iter().enumerate() {
            let key = format!("{key}[{i}]");
            match &item.value {
                Literal::Text(text) => texts.push(Spanned { value: text.clone(), span: item.span.clone() }),
                Literal::Broken => return None,
                other => {
                    let Some(value) = as_text(other) else {
                        self.wrong_type(&key, item, "a text", None);
                        return None;
                    };
                    texts.push(Spanned { value, span: item.span.clone() });
                }
            }
        }
        Some(Spanned { value: texts, span: node.span.clone() })
    }
    /// One of a closed list of words.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<Spanned<T>> {
        let text = self.text(key)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text.value) {
            return Some(Spanned { value: *value, span: text.span });
        }
        let known: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        let message = format!("{} cannot be {}: it is {}", quote(key), quote(&text.value), known.join(" or "));
        let near = nearest(&text.value, choices.iter().map(|(word, _)| *word));
        self.error(&text.span, key, message, near.map(|word| format!("did you mean `{word}`?")));
        None
    }
    /// A map with free keys to scalars; numbers and booleans become texts as HCL prints them. Still templates.
    pub fn map(&self, key: &str) -> Option<Vec<(Spanned<String>, Spanned<String>)>> {
        let entry = self.entry(key)?;
        let body = self.object(entry)?;
        let path = self.path_of(key);
        let mut pairs: Vec<(Spanned<String>, Spanned<String>)> = Vec::with_capacity(body.entries.len());
        let mut keys = HashSet::new();
        for inner in &body.entries {
            let path = join(&path, &inner.key);
            let text = match (&inner.value.value, as_text(&inner.value.value)) {
                (Literal::Text(text), _) => text.clone(),
                (Literal::Broken, _) => continue,
                (_, Some(text)) => text,
                (_, None) => {
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
            let at = Spanned { value: inner.key.clone(), span: inner.key_span.clone() };
            pairs.push((at, Spanned { value: text, span: inner.value.span.clone() }));
        }
        Some(pairs)
    }
}

/// What HCL makes of a number or a boolean where a text is needed.
fn as_text(value: &Literal) -> Option<String> {
    match value {
        Literal::Int(n) => Some(n.to_string()),
        Literal::Float(f) => Some(f.to_string()),
        Literal::Bool(b) => Some(b.to_string()),
        Literal::Null | Literal::Text(_) | Literal::List(_) | Literal::Object(_) | Literal::Broken => None,
    }
}

/// What HCL makes of a text where a number is needed; `2.0` is whole.
fn whole_of(value: &Literal) -> Option<i128> {
    #[allow(clippy::cast_possible_truncation, reason = "it is whole and small")]
    let whole = |f: f64| (f.fract() == 0.0 && f.abs() < 1e15).then_some(f as i128);
    match value {
        Literal::Int(n) => Some(*n),
        Literal::Float(f) => whole(*f),
        Literal::Text(text) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
        }
        Literal::Null
        | Literal::Bool(_)
        | Literal::Text(_)
        | Literal::List(_)
        | Literal::Object(_)
        | Literal::Broken => None,
    }
}
