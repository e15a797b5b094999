//! Lists and objects.

use std::collections::BTreeMap;

use super::arguments::{ANY, HclFunction, HclFunctionResult, float, indexed, list, number, pure, text, texts, whole};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("chunklist", (2, 2), chunklist),
    pure("coalesce", (1, ANY), |a| coalesce(a, |value| *value != HclValue::Null && *value != HclValue::from(""))),
    pure("coalescelist", (1, ANY), |a| coalesce(a, |value| matches!(value, HclValue::List(list) if !list.is_empty()))),
    pure("compact", (1, 1), |a| {
        let retained = list(a, 0)?.iter().filter(|value| **value != HclValue::Null && **value != HclValue::from(""));
        Ok(HclValue::List(retained.cloned().collect()))
    }),
    pure("concat", (1, ANY), concat),
    pure("contains", (2, 2), has),
    pure("distinct", (1, 1), |a| Ok(HclValue::List(distinct(list(a, 0)?)))),
    pure("element", (2, 2), element),
    pure("flatten", (1, 1), |a| {
        let mut flat = Vec::new();
        flatten(list(a, 0)?, &mut flat);
        Ok(HclValue::List(flat))
    }),
    pure("index", (2, 2), |a| {
        let expected = a.get(1).unwrap_or(&HclValue::Null);
        let at = indexed(a, 0)?.iter().position(|value| value == expected).ok_or("the list does not have it")?;
        Ok(HclValue::Int(i128::try_from(at).unwrap_or_default()))
    }),
    pure("keys", (1, 1), |a| Ok(HclValue::List(object(a, 0)?.keys().map(|key| key.as_str().into()).collect()))),
    pure("length", (1, 1), length),
    pure("lookup", (2, 3), |a| {
        let found = object(a, 0)?.get(&text(a, 1)?).or(a.get(2));
        found.cloned().ok_or_else(|| "the object does not have it, and there is no default".to_owned())
    }),
    pure("merge", (0, ANY), merge),
    pure("range", (1, 3), range),
    // Nomad's is that of strings.
    pure("reverse", (1, 1), |a| match a.first() {
        Some(HclValue::List(list)) => Ok(HclValue::List(list.iter().rev().cloned().collect())),
        _ => Ok(HclValue::Text(text(a, 0)?.chars().rev().collect())),
    }),
    pure("slice", (3, 3), slice),
    pure("sort", (1, 1), |a| {
        let mut sorted = texts(a, 0)?;
        sorted.sort_unstable();
        Ok(HclValue::List(sorted.into_iter().map(HclValue::Text).collect()))
    }),
    pure("values", (1, 1), |a| Ok(HclValue::List(object(a, 0)?.values().cloned().collect()))),
    pure("zipmap", (2, 2), |a| {
        let (keys, values) = (texts(a, 0)?, indexed(a, 1)?);
        if keys.len() != values.len() {
            return Err("its lists have different lengths".to_owned());
        }
        Ok(HclValue::Object(keys.into_iter().zip(values.iter().cloned()).collect()))
    }),
];

fn object(arguments: &[HclValue], at: usize) -> Result<&BTreeMap<String, HclValue>, String> {
    match arguments.get(at) {
        Some(HclValue::Object(object)) => Ok(object),
        other => Err(format!("argument {} is an object, not {}", at + 1, other.unwrap_or(&HclValue::Null).kind())),
    }
}

fn distinct(list: &[HclValue]) -> Vec<HclValue> {
    let mut retained: Vec<HclValue> = Vec::new();
    for value in list {
        if !retained.contains(value) {
            retained.push(value.clone());
        }
    }
    retained
}

fn chunklist(arguments: &[HclValue]) -> HclFunctionResult {
    let size = usize::try_from(whole(arguments, 1)?).map_err(|_| "a size is not negative")?;
    let all = list(arguments, 0)?;
    let chunks: Vec<HclValue> = match size {
        0 => vec![HclValue::List(all.to_vec())],
        size => all.chunks(size).map(|chunk| HclValue::List(chunk.to_vec())).collect(),
    };
    Ok(HclValue::List(chunks))
}

fn coalesce(arguments: &[HclValue], is_it: fn(&HclValue) -> bool) -> HclFunctionResult {
    // The list of a final `...` is spread out before it comes here.
    arguments.iter().find(|value| is_it(value)).cloned().ok_or_else(|| "all of its arguments are empty".to_owned())
}

fn concat(arguments: &[HclValue]) -> HclFunctionResult {
    let mut all = Vec::new();
    for at in 0..arguments.len() {
        all.extend_from_slice(indexed(arguments, at)?);
    }
    Ok(HclValue::List(all))
}

/// Beyond the end it begins again.
fn element(arguments: &[HclValue]) -> HclFunctionResult {
    let all = indexed(arguments, 0)?;
    let length = i64::try_from(all.len()).ok().filter(|length| *length > 0).ok_or("the list is empty")?;
    let at = usize::try_from(whole(arguments, 1)?.rem_euclid(length)).unwrap_or(0);
    Ok(all.get(at).cloned().unwrap_or(HclValue::Null))
}

fn flatten(list: &[HclValue], into: &mut Vec<HclValue>) {
    for value in list {
        match value {
            HclValue::List(inner) | HclValue::Set(inner) => flatten(inner, into),
            other => into.push(other.clone()),
        }
    }
}

fn length(arguments: &[HclValue]) -> HclFunctionResult {
    let length = match arguments.first() {
        Some(HclValue::List(list) | HclValue::Set(list)) => list.len(),
        Some(HclValue::Object(object)) => object.len(),
        Some(HclValue::Text(text)) => text.chars().count(),
        other => return Err(format!("{} has no length", other.unwrap_or(&HclValue::Null).kind())),
    };
    Ok(HclValue::Int(i128::try_from(length).unwrap_or_default()))
}

fn merge(arguments: &[HclValue]) -> HclFunctionResult {
    let mut merged = BTreeMap::new();
    for at in (0..arguments.len()).filter(|at| arguments[*at] != HclValue::Null) {
        merged.extend(object(arguments, at)?.clone());
    }
    Ok(HclValue::Object(merged))
}

fn range(arguments: &[HclValue]) -> HclFunctionResult {
    const MOST: usize = 1024;
    let all: Vec<f64> = (0..arguments.len()).map(|at| float(arguments, at)).collect::<Result<_, _>>()?;
    let (start, limit) = if let [limit] = all[..] { (0.0, limit) } else { (all[0], all[1]) };
    let step = all.get(2).copied().unwrap_or(if limit < start { -1.0 } else { 1.0 });
    if step == 0.0 || (step > 0.0) != (limit > start) && limit != start {
        return Err("the step does not lead to the limit".to_owned());
    }
    let (mut numbers, mut n) = (Vec::new(), start);
    while if step > 0.0 { n < limit } else { n > limit } {
        if numbers.len() == MOST {
            return Err(format!("it would have more than {MOST} elements"));
        }
        numbers.push(number(n)?);
        n += step;
    }
    Ok(HclValue::List(numbers))
}

fn slice(arguments: &[HclValue]) -> HclFunctionResult {
    let at = |at: usize| usize::try_from(whole(arguments, at)?).map_err(|_| "an index is not negative".to_owned());
    let (start, end) = (at(1)?, at(2)?);
    let part = indexed(arguments, 0)?.get(start..end).ok_or("the list does not have these elements")?;
    Ok(HclValue::List(part.to_vec()))
}

/// Whether a list has a value.
fn has(arguments: &[HclValue]) -> HclFunctionResult {
    let expected = arguments.get(1).unwrap_or(&HclValue::Null);
    Ok(HclValue::Bool(list(arguments, 0)?.contains(expected)))
}
