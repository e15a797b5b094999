//! Functions of sprig that configuration files use. Consul-template has them with the prefix `sprig_` only.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::arguments::{
    ANY, TemplateFunction, TemplateFunctionResult, Tools, argument, boolean, bounded, list, map, matches, pure, text,
    whole,
};
use super::{encoding, json, strings};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;
use crate::jobspec::gotemplate::{printing, quoting};

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("sprig_default", (1, 2), |a| {
        Ok(a.iter().rev().find(|value| value.is_true()).unwrap_or(argument(a, 0)).clone())
    }),
    pure("sprig_coalesce", (0, ANY), |a| Ok(a.iter().find(|v| v.is_true()).cloned().unwrap_or(TemplateValue::Nil))),
    pure("sprig_empty", (1, 1), |a| boolean(!argument(a, 0).is_true())),
    pure("sprig_ternary", (3, 3), |a| match argument(a, 2) {
        TemplateValue::Bool(b) => Ok(argument(a, usize::from(!b)).clone()),
        other => Err(format!("argument 3 must be bool, not {}", other.type_name()).into()),
    }),
    pure("sprig_fail", (1, 1), |a| Err(text(a, 0)?.to_string().into())),
    pure("sprig_quote", (0, ANY), |a| Ok(quoted(a, quoting::quote).into())),
    pure("sprig_squote", (0, ANY), |a| Ok(quoted(a, |shown| format!("'{shown}'")).into())),
    pure("sprig_toString", (1, 1), |a| Ok(printing::plain(argument(a, 0)).into())),
    pure("sprig_upper", (1, 1), |a| Ok(text(a, 0)?.to_uppercase().into())),
    pure("sprig_lower", (1, 1), |a| Ok(text(a, 0)?.to_lowercase().into())),
    pure("sprig_title", (1, 1), |a| Ok(strings::title(&text(a, 0)?).into())),
    pure("sprig_trim", (1, 1), |a| Ok(text(a, 0)?.trim().into())),
    pure("sprig_trimAll", (2, 2), |a| {
        let set: Vec<char> = text(a, 0)?.chars().collect();
        Ok(text(a, 1)?.trim_matches(&set[..]).into())
    }),
    pure("sprig_trimPrefix", (2, 2), |a| {
        let (prefix, whole) = (text(a, 0)?, text(a, 1)?);
        Ok(whole.strip_prefix(&*prefix).unwrap_or(&whole).into())
    }),
    pure("sprig_trimSuffix", (2, 2), |a| {
        let (suffix, whole) = (text(a, 0)?, text(a, 1)?);
        Ok(whole.strip_suffix(&*suffix).unwrap_or(&whole).into())
    }),
    pure("sprig_indent", (2, 2), |a| Ok(indented(whole(a, 0)?, &text(a, 1)?)?.into())),
    pure("sprig_nindent", (2, 2), |a| Ok(format!("\n{}", indented(whole(a, 0)?, &text(a, 1)?)?).into())),
    pure("sprig_nospace", (1, 1), |a| Ok(text(a, 0)?.split_whitespace().collect::<String>().into())),
    pure("sprig_repeat", (2, 2), |a| {
        let (count, whole) = (usize::try_from(whole(a, 0)?).map_err(|_| "a negative number of times")?, text(a, 1)?);
        bounded(whole.len().saturating_mul(count))?;
        Ok(whole.repeat(count).into())
    }),
    pure("sprig_trunc", (2, 2), |a| Ok(truncated(whole(a, 0)?, &text(a, 1)?)?.into())),
    pure("sprig_replace", (3, 3), |a| Ok(strings::replaced(&text(a, 2)?, &text(a, 0)?, &text(a, 1)?)?.into())),
    pure("sprig_contains", (2, 2), |a| boolean(text(a, 1)?.contains(&*text(a, 0)?))),
    pure("sprig_hasPrefix", (2, 2), |a| boolean(text(a, 1)?.starts_with(&*text(a, 0)?))),
    pure("sprig_hasSuffix", (2, 2), |a| boolean(text(a, 1)?.ends_with(&*text(a, 0)?))),
    matches("sprig_regexMatch", (2, 2), |a, tools| boolean(tools.pattern(&text(a, 0)?)?.is_match(&text(a, 1)?))),
    matches("sprig_regexFind", (2, 2), regex_find),
    pure("sprig_join", (2, 2), |a| {
        let parts: Vec<String> = match argument(a, 1) {
            TemplateValue::List(list) => {
                list.items().iter().filter(|v| **v != TemplateValue::Nil).map(printing::plain).collect()
            }
            TemplateValue::Nil => Vec::new(),
            other => vec![printing::plain(other)],
        };
        Ok(strings::joined(&text(a, 0)?, &parts)?.into())
    }),
    pure("sprig_splitList", (2, 2), |a| Ok(TemplateValue::texts(strings::parts(&text(a, 1)?, &text(a, 0)?)?)?)),
    pure("sprig_b64enc", (1, 1), |a| Ok(STANDARD.encode(&*text(a, 0)?).into())),
    pure("sprig_b64dec", (1, 1), |a| encoding::decoded(&STANDARD, &text(a, 0)?)),
    pure("sprig_sha256sum", (1, 1), |a| Ok(encoding::sha256(&text(a, 0)?).into())),
    pure("sprig_toJson", (1, 1), |a| Ok(json::written(argument(a, 0), false, true)?.into())),
    pure("sprig_toPrettyJson", (1, 1), |a| Ok(json::written(argument(a, 0), true, true)?.into())),
    pure("sprig_toRawJson", (1, 1), |a| Ok(json::written(argument(a, 0), false, false)?.into())),
    pure("sprig_fromJson", (1, 1), |a| json::parsed(&text(a, 0)?)),
    pure("sprig_list", (0, ANY), |a| Ok(TemplateValue::list(a.to_vec())?)),
    pure("sprig_dict", (0, ANY), |a| {
        let pairs =
            a.chunks(2).map(|pair| (printing::plain(argument(pair, 0)), pair.get(1).cloned().unwrap_or("".into())));
        Ok(TemplateValue::map(pairs.collect())?)
    }),
    pure("sprig_get", (2, 2), |a| Ok(map(a, 0)?.entries().get(&*text(a, 1)?).cloned().unwrap_or("".into()))),
    pure("sprig_hasKey", (2, 2), |a| boolean(map(a, 0)?.entries().contains_key(&*text(a, 1)?))),
    pure("sprig_keys", (1, ANY), |a| {
        let mut keys = Vec::new();
        for at in 0..a.len() {
            keys.extend(map(a, at)?.entries().keys().map(|key| TemplateValue::from(key.as_str())));
        }
        Ok(TemplateValue::list(keys)?)
    }),
    pure("sprig_values", (1, 1), |a| Ok(TemplateValue::list(map(a, 0)?.entries().values().cloned().collect())?)),
    pure("sprig_pick", (1, ANY), |a| chosen(a, true)),
    pure("sprig_omit", (1, ANY), |a| chosen(a, false)),
    pure("sprig_first", (1, 1), |a| Ok(list(a, 0)?.first().cloned().unwrap_or(TemplateValue::Nil))),
    pure("sprig_last", (1, 1), |a| Ok(list(a, 0)?.last().cloned().unwrap_or(TemplateValue::Nil))),
    pure("sprig_rest", (1, 1), |a| Ok(TemplateValue::list(list(a, 0)?.iter().skip(1).cloned().collect())?)),
    pure("sprig_initial", (1, 1), |a| {
        let items = list(a, 0)?;
        Ok(TemplateValue::list(items.iter().take(items.len().saturating_sub(1)).cloned().collect())?)
    }),
    pure("sprig_append", (2, 2), |a| Ok(TemplateValue::list([list(a, 0)?, &[argument(a, 1).clone()]].concat())?)),
    pure("sprig_prepend", (2, 2), |a| Ok(TemplateValue::list([&[argument(a, 1).clone()], list(a, 0)?].concat())?)),
    pure("sprig_concat", (0, ANY), |a| {
        let mut items = Vec::new();
        for at in 0..a.len() {
            items.extend_from_slice(list(a, at)?);
        }
        Ok(TemplateValue::list(items)?)
    }),
    pure("sprig_reverse", (1, 1), |a| Ok(TemplateValue::list(list(a, 0)?.iter().rev().cloned().collect())?)),
    pure("sprig_has", (2, 2), |a| boolean(list(a, 1)?.contains(argument(a, 0)))),
    pure("sprig_sortAlpha", (1, 1), |a| {
        let mut sorted: Vec<String> = list(a, 0)?.iter().map(printing::plain).collect();
        sorted.sort_unstable();
        Ok(TemplateValue::texts(sorted)?)
    }),
    pure("sprig_until", (1, 1), |a| {
        let to = to_int(argument(a, 0));
        // Downwards for a negative number.
        let count = usize::try_from(to.unsigned_abs()).unwrap_or(usize::MAX);
        bounded(count.saturating_mul(64))?;
        let numbers = (0..to.abs()).map(|n| TemplateValue::Int(if to < 0 { -n } else { n }));
        Ok(TemplateValue::list(numbers.collect())?)
    }),
    pure("sprig_add", (0, ANY), |a| folded(a, 0, i64::wrapping_add)),
    pure("sprig_add1", (1, 1), |a| Ok(TemplateValue::Int(to_int(argument(a, 0)).wrapping_add(1)))),
    pure("sprig_sub", (2, 2), |a| Ok(TemplateValue::Int(to_int(argument(a, 0)).wrapping_sub(to_int(argument(a, 1)))))),
    pure("sprig_mul", (1, ANY), |a| folded(a, 1, i64::wrapping_mul)),
    pure("sprig_div", (2, 2), |a| divided(a, i64::wrapping_div)),
    pure("sprig_mod", (2, 2), |a| divided(a, i64::wrapping_rem)),
    pure("sprig_max", (1, ANY), |a| folded(a, i64::MIN, i64::max)),
    pure("sprig_min", (1, ANY), |a| folded(a, i64::MAX, i64::min)),
    pure("sprig_int", (1, 1), |a| Ok(TemplateValue::Int(to_int(argument(a, 0))))),
    pure("sprig_int64", (1, 1), |a| Ok(TemplateValue::Int(to_int(argument(a, 0))))),
    pure("sprig_atoi", (1, 1), |a| Ok(TemplateValue::Int(text(a, 0)?.parse().unwrap_or(0)))),
];

fn quoted(arguments: &[TemplateValue], quote: impl Fn(&str) -> String) -> String {
    let shown = arguments.iter().filter(|value| **value != TemplateValue::Nil);
    shown.map(|value| quote(&printing::plain(value))).collect::<Vec<_>>().join(" ")
}

/// Blanks before every line, empty ones as well: sprig differs from consul-template here.
fn indented(spaces: i64, whole: &str) -> Result<String, FunctionFault> {
    let spaces = usize::try_from(spaces).map_err(|_| "a number of blanks is not negative")?;
    let lines = whole.bytes().filter(|byte| *byte == b'\n').count() + 1;
    bounded(whole.len().saturating_add(lines.saturating_mul(spaces)))?;
    let pad = " ".repeat(spaces);
    Ok(format!("{pad}{}", whole.replace('\n', &format!("\n{pad}"))))
}

/// The first so many bytes, or the last for a negative number.
fn truncated(count: i64, whole: &str) -> Result<String, FunctionFault> {
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(whole.len());
    let part = if count < 0 { whole.get(whole.len() - most..) } else { whole.get(..most) };
    Ok(part.ok_or("it cuts a character of more than one byte")?.to_owned())
}

fn regex_find(arguments: &[TemplateValue], tools: &Tools<'_>) -> TemplateFunctionResult {
    let (pattern, whole) = (tools.pattern(&text(arguments, 0)?)?, text(arguments, 1)?);
    Ok(pattern.find(&whole).map_or("", |found| found.as_str()).into())
}

fn chosen(arguments: &[TemplateValue], keeps: bool) -> TemplateFunctionResult {
    let mut names = BTreeSet::new();
    for at in 1..arguments.len() {
        names.insert(text(arguments, at)?);
    }
    let entries = map(arguments, 0)?.entries().iter().filter(|(key, _)| names.contains(key.as_str()) == keeps);
    Ok(TemplateValue::map(entries.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>())?)
}

fn folded(arguments: &[TemplateValue], first: i64, fold: fn(i64, i64) -> i64) -> TemplateFunctionResult {
    Ok(TemplateValue::Int(arguments.iter().map(to_int).fold(first, fold)))
}

fn divided(arguments: &[TemplateValue], divide: fn(i64, i64) -> i64) -> TemplateFunctionResult {
    match to_int(argument(arguments, 1)) {
        0 => Err("division by zero".into()),
        by => Ok(TemplateValue::Int(divide(to_int(argument(arguments, 0)), by))),
    }
}

/// What is no number is 0, as sprig has it.
fn to_int(value: &TemplateValue) -> i64 {
    match value {
        TemplateValue::Int(n) => *n,
        TemplateValue::Uint(n) => i64::try_from(*n).unwrap_or(i64::MAX),
        // Saturates.
        #[allow(clippy::cast_possible_truncation)]
        TemplateValue::Float(n) => *n as i64,
        TemplateValue::Bool(b) => i64::from(*b),
        TemplateValue::Text(text) => text.parse().unwrap_or(0),
        _ => 0,
    }
}
