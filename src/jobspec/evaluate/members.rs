//! Members of objects and elements of lists: only the one that is meant is copied.

use std::borrow::Cow;

use hcl_edit::expr::{Expression, TraversalOperator};

use super::basis::{Evaluated, EvaluationFault};
use super::value::HclValue;
use crate::jobspec::diagnostic::Span;
use crate::model::nearest::nearest;

/// Errors: there is none of that name; then with those that there are.
pub(super) fn member<'v>(value: Cow<'v, HclValue>, name: &str, span: &Span) -> Evaluated<Cow<'v, HclValue>> {
    match value {
        Cow::Borrowed(HclValue::Object(object)) => {
            object.get(name).map(Cow::Borrowed).ok_or_else(|| no_key(name, object.keys(), span))
        }
        Cow::Owned(HclValue::Object(mut object)) => {
            object.remove(name).map(Cow::Owned).ok_or_else(|| no_key(name, object.keys(), span))
        }
        other => Err(EvaluationFault::new(
            span.clone(),
            format!("this must be an object to have `{name}`, not {}", other.kind()),
        )),
    }
}

/// The `b` of `a.b` and `a["b"]`.
pub(super) fn attribute_of(operator: &TraversalOperator) -> Option<&str> {
    match operator {
        TraversalOperator::GetAttr(name) => Some(name.as_str()),
        TraversalOperator::Index(Expression::String(name)) => Some(name.value()),
        _ => None,
    }
}

/// Of `var.NAME` or `local.NAME`. `all`: the names of those that have a value.
pub(super) fn without_value<'k>(
    (kind, name): (&str, &str),
    is_declared: bool,
    all: impl Iterator<Item = &'k String>,
    span: &Span,
) -> EvaluationFault {
    let word = if kind == "var" { "variable" } else { "local" };
    if is_declared {
        let fault = EvaluationFault::new(span.clone(), format!("the {word} `{name}` has no value"));
        return fault.advise("correct its declaration, or give it a value");
    }
    let fault = EvaluationFault::new(span.clone(), format!("{word} `{name}` is not declared"));
    fault.advise(match nearest(name, all.map(String::as_str)) {
        Some(close) => format!("did you mean {kind}.{close}?"),
        None if kind == "var" => format!("declare it: variable \"{name}\" {{ default = ... }}"),
        None => format!("declare it: locals {{ {name} = ... }}"),
    })
}

pub(super) fn unknown(name: &str, span: &Span) -> EvaluationFault {
    EvaluationFault::new(span.clone(), format!("`{name}` is not known here")).advise("write a text in quotes")
}

pub(super) fn no_provider(span: &Span) -> EvaluationFault {
    let fault = EvaluationFault::new(span.clone(), "functions of providers do not exist here");
    fault.advise("write a name without `::`")
}

pub(super) fn no_text(value: &HclValue, span: &Span) -> EvaluationFault {
    let fault = EvaluationFault::new(span.clone(), format!("{} cannot stand in a string", value.kind()));
    fault.advise("make a string of it first: join(), format() or jsonencode()")
}

fn no_key<'k>(key: &str, keys: impl Iterator<Item = &'k String>, span: &Span) -> EvaluationFault {
    let fault = EvaluationFault::new(span.clone(), format!("there is no `{key}`"));
    let keys: Vec<&str> = keys.map(String::as_str).take(20).collect();
    let known =
        if keys.is_empty() { "the object is empty".to_owned() } else { format!("there is: {}", keys.join(", ")) };
    fault.advise(known)
}

/// Errors: it is no list, or shorter.
pub(super) fn element<'v>(value: Cow<'v, HclValue>, index: &HclValue, span: &Span) -> Evaluated<Cow<'v, HclValue>> {
    let at = match index.to_number() {
        Some(HclValue::Int(n)) => usize::try_from(n).ok(),
        _ => None,
    };
    let of = |count: usize| {
        let fault = EvaluationFault::new(span.clone(), format!("the list has {count} elements, and not this one"));
        fault.advise(match count {
            0 => "the list is empty".to_owned(),
            _ => format!("an index is a whole number from 0 to {}", count - 1),
        })
    };
    match value {
        Cow::Borrowed(HclValue::List(list)) => {
            at.and_then(|at| list.get(at)).map(Cow::Borrowed).ok_or_else(|| of(list.len()))
        }
        Cow::Owned(HclValue::List(mut list)) => match at.filter(|at| *at < list.len()) {
            Some(at) => Ok(Cow::Owned(list.swap_remove(at))),
            None => Err(of(list.len())),
        },
        Cow::Borrowed(HclValue::Set(_)) | Cow::Owned(HclValue::Set(_)) => {
            let fault = EvaluationFault::new(span.clone(), "the elements of a set have no index");
            Err(fault.advise("make a list of it first: convert(SET, list(string))[0], which is sorted"))
        }
        other => Err(EvaluationFault::new(
            span.clone(),
            format!("this must be a list to have elements, not {}", other.kind()),
        )),
    }
}
