//! Go's own functions, but for comparisons.

use super::arguments::{ANY, TemplateFunction, TemplateFunctionResult, argument, boolean, pure, text};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;
use crate::jobspec::gotemplate::{printing, quoting, verbs};

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("not", (1, 1), |a| boolean(!argument(a, 0).is_true())),
    pure("len", (1, 1), |a| {
        let value = argument(a, 0);
        let length = value.length().ok_or_else(|| format!("{} has no length", value.type_name()))?;
        Ok(TemplateValue::Int(i64::try_from(length).unwrap_or(i64::MAX)))
    }),
    pure("index", (1, ANY), index),
    pure("slice", (1, 4), slice),
    pure("print", (0, ANY), |a| Ok(printing::sprint(a).into())),
    pure("println", (0, ANY), |a| Ok(printing::sprintln(a).into())),
    pure("printf", (1, ANY), |a| Ok(verbs::sprintf(&text(a, 0)?, a.get(1..).unwrap_or_default())?.into())),
    pure("html", (0, ANY), |a| Ok(quoting::html(&joined(a)).into())),
    pure("js", (0, ANY), |a| Ok(quoting::javascript(&joined(a)).into())),
    pure("urlquery", (0, ANY), |a| Ok(quoting::url(&joined(a)).into())),
];

/// As `print`, but what is missing is shown as by an action.
fn joined(arguments: &[TemplateValue]) -> String {
    let shown = arguments.iter().map(|value| match value {
        TemplateValue::Nil => "<no value>".into(),
        value => value.clone(),
    });
    printing::sprint(&shown.collect::<Vec<_>>())
}

fn index(arguments: &[TemplateValue]) -> TemplateFunctionResult {
    let mut value = argument(arguments, 0).clone();
    if value == TemplateValue::Nil {
        return Err("nil has no index".into());
    }
    for key in arguments.iter().skip(1) {
        value = match &value {
            TemplateValue::List(list) => {
                let items = list.items();
                items.get(place(key, items.len(), false)?).cloned().unwrap_or(TemplateValue::Nil)
            }
            TemplateValue::Text(text) => {
                let at = place(key, text.len(), false)?;
                TemplateValue::Uint(text.as_bytes().get(at).copied().unwrap_or(0).into())
            }
            TemplateValue::Map(map) => match key {
                TemplateValue::Text(key) => match map.entries().get(&**key) {
                    Some(found) => found.clone(),
                    None if map.is_of_texts => "".into(),
                    None => TemplateValue::Nil,
                },
                key => return Err(format!("a key of a map is a string, not {}", key.type_name()).into()),
            },
            TemplateValue::Nil => return Err("nil has no index".into()),
            other => return Err(format!("{} has no index", other.type_name()).into()),
        };
    }
    Ok(value)
}

/// An index of so many elements. `may_end`: the end itself is one.
fn place(key: &TemplateValue, length: usize, may_end: bool) -> Result<usize, FunctionFault> {
    let at = match key {
        TemplateValue::Int(n) => usize::try_from(*n).ok(),
        TemplateValue::Uint(n) => usize::try_from(*n).ok(),
        other => return Err(format!("an index is an int, not {}", other.type_name()).into()),
    };
    let at = at.filter(|at| *at < length || (may_end && *at == length));
    at.ok_or_else(|| format!("index {} is out of range: there are {length}", printing::plain(key)).into())
}

fn slice(arguments: &[TemplateValue]) -> TemplateFunctionResult {
    let value = argument(arguments, 0);
    let length = match value {
        TemplateValue::Text(_) if arguments.len() > 3 => return Err("a string takes at most 2 indexes".into()),
        TemplateValue::Text(text) => text.len(),
        TemplateValue::List(list) => list.items().len(),
        other => return Err(format!("{} has no parts", other.type_name()).into()),
    };
    let at = |which: usize, default: usize| match arguments.get(which) {
        Some(key) => place(key, length, true),
        None => Ok(default),
    };
    let (from, to) = (at(1, 0)?, at(2, length)?);
    at(3, length)?;
    if from > to {
        return Err(format!("the slice begins at {from} and ends at {to}").into());
    }
    match value {
        TemplateValue::Text(text) => match text.get(from..to) {
            Some(part) => Ok(part.into()),
            None => Err("the slice cuts a character of more than one byte".into()),
        },
        TemplateValue::List(list) => Ok(TemplateValue::list(list.items().get(from..to).unwrap_or_default().to_vec())?),
        _ => Ok(TemplateValue::Nil),
    }
}
