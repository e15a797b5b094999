//! Strings, as consul-template has them: the string comes last, so that it can be piped.

use std::collections::BTreeMap;

use super::arguments::{
    TemplateFunction, TemplateFunctionResult, Tools, boolean, bounded, matches, pure, text, texts, whole,
};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("join", (2, 2), |a| Ok(joined(&text(a, 0)?, &texts(a, 1)?)?.into())),
    pure("split", (2, 2), |a| {
        let (separator, whole) = (text(a, 0)?, text(a, 1)?);
        split(whole.trim(), &separator)
    }),
    pure("splitToMap", (3, 3), split_to_map),
    pure("trim", (2, 2), |a| {
        let set: Vec<char> = text(a, 0)?.chars().collect();
        Ok(text(a, 1)?.trim_matches(&set[..]).into())
    }),
    pure("trimPrefix", (2, 2), |a| {
        let (prefix, whole) = (text(a, 0)?, text(a, 1)?);
        Ok(whole.strip_prefix(&*prefix).unwrap_or(&whole).into())
    }),
    pure("trimSuffix", (2, 2), |a| {
        let (suffix, whole) = (text(a, 0)?, text(a, 1)?);
        Ok(whole.strip_suffix(&*suffix).unwrap_or(&whole).into())
    }),
    pure("trimSpace", (1, 1), |a| Ok(text(a, 0)?.trim().into())),
    pure("toLower", (1, 1), |a| Ok(text(a, 0)?.to_lowercase().into())),
    pure("toUpper", (1, 1), |a| Ok(text(a, 0)?.to_uppercase().into())),
    pure("toTitle", (1, 1), |a| Ok(title(&text(a, 0)?).into())),
    pure("replaceAll", (3, 3), |a| Ok(replaced(&text(a, 2)?, &text(a, 0)?, &text(a, 1)?)?.into())),
    matches("regexMatch", (2, 2), |a, tools| boolean(tools.pattern(&text(a, 0)?)?.is_match(&text(a, 1)?))),
    matches("regexReplaceAll", (3, 3), regex_replaced),
    pure("indent", (2, 2), |a| Ok(indented(whole(a, 0)?, &text(a, 1)?)?.into())),
];

pub(super) fn joined<T: AsRef<str>>(separator: &str, parts: &[T]) -> Result<String, FunctionFault> {
    let bytes: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    bounded(bytes.saturating_add(separator.len().saturating_mul(parts.len())))?;
    Ok(parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(separator))
}

/// Go's `strings.Split`: an empty separator splits characters. A blank text has no parts.
fn split(whole: &str, separator: &str) -> TemplateFunctionResult {
    match whole.is_empty() {
        true => Ok(TemplateValue::list(Vec::new())?),
        false => Ok(TemplateValue::texts(parts(whole, separator)?)?),
    }
}

/// Each part takes more than its bytes: bounded by their number.
pub(super) fn parts<'t>(whole: &'t str, separator: &str) -> Result<Vec<&'t str>, FunctionFault> {
    let count = match separator {
        "" => whole.chars().count(),
        separator => whole.matches(separator).count() + 1,
    };
    bounded(count.saturating_mul(64))?;
    if separator.is_empty() {
        let ends = whole.char_indices().map(|(at, c)| whole.get(at..at + c.len_utf8()).unwrap_or(""));
        return Ok(ends.collect());
    }
    Ok(whole.split(separator).collect())
}

fn split_to_map(arguments: &[TemplateValue]) -> TemplateFunctionResult {
    let (between, within, whole) = (text(arguments, 0)?, text(arguments, 1)?, text(arguments, 2)?);
    let whole = whole.trim();
    let mut entries = BTreeMap::new();
    if !whole.is_empty() {
        for part in parts(whole, &between)? {
            if let Some((key, value)) = part.split_once(&*within) {
                entries.insert(key.to_owned(), value.into());
            }
        }
    }
    Ok(TemplateValue::map_of_texts(entries)?)
}

/// The first letter of each word is a capital; others stay.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    for c in text.chars() {
        match is_inside {
            true => out.push(c),
            false => out.extend(c.to_uppercase()),
        }
        is_inside = c.is_alphanumeric() || c == '_' || (c == '\'' && is_inside);
    }
    out
}

pub(super) fn replaced(whole: &str, from: &str, to: &str) -> Result<String, FunctionFault> {
    let count = match from {
        "" => whole.chars().count() + 1,
        from => whole.matches(from).count(),
    };
    bounded(whole.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(whole.replace(from, to))
}

fn regex_replaced(arguments: &[TemplateValue], tools: &Tools<'_>) -> TemplateFunctionResult {
    let (pattern, replacement, whole) =
        (tools.pattern(&text(arguments, 0)?)?, text(arguments, 1)?, text(arguments, 2)?);
    let (mut out, mut last) = (String::new(), 0);
    for found in pattern.captures_iter(&whole) {
        let Some(all) = found.get(0) else { continue };
        out.push_str(whole.get(last..all.start()).unwrap_or(""));
        // Each `$` stands for at most the whole match.
        let references = replacement.bytes().filter(|byte| *byte == b'$').count();
        let longest = replacement.len().saturating_add(references.saturating_mul(all.len()));
        bounded(out.len().saturating_add(longest))?;
        found.expand(&replacement, &mut out);
        last = all.end();
    }
    out.push_str(whole.get(last..).unwrap_or(""));
    Ok(out.into())
}

/// Blanks before each line that has something.
pub(super) fn indented(spaces: i64, text: &str) -> Result<String, FunctionFault> {
    let spaces = usize::try_from(spaces).map_err(|_| "a number of blanks is not negative")?;
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    bounded(text.len().saturating_add(lines.saturating_mul(spaces)))?;
    let mut out = String::with_capacity(text.len() + lines * spaces);
    for line in text.split_inclusive('\n') {
        if line != "\n" {
            out.extend(std::iter::repeat_n(' ', spaces));
        }
        out.push_str(line);
    }
    Ok(out)
}
