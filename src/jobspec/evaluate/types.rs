//! Types as `variable` blocks and `convert()` name them, and values that are turned into one.

use std::collections::BTreeMap;

use hcl_edit::expr::Expression;

use super::basis::{Evaluated, EvaluationFault, span_of};
use super::value::HclValue;

/// What `type` says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VariableType {
    Any,
    Text,
    Number,
    Bool,
    List(Box<VariableType>),
    Set(Box<VariableType>),
    Map(Box<VariableType>),
    Object(BTreeMap<String, VariableType>),
    Tuple(Vec<VariableType>),
}

impl VariableType {
    /// Its values are given as HCL expressions.
    pub(super) fn is_collection(&self) -> bool {
        match self {
            VariableType::Text | VariableType::Any | VariableType::Number | VariableType::Bool => false,
            VariableType::List(_)
            | VariableType::Set(_)
            | VariableType::Map(_)
            | VariableType::Object(_)
            | VariableType::Tuple(_) => true,
        }
    }
}

pub(super) fn type_of(expression: &Expression) -> Evaluated<VariableType> {
    let wrong = || {
        let fault = EvaluationFault::new(span_of(expression, &(0..0)), "there is no such type");
        fault.advise("string, number, bool, any, list(...), set(...), map(...), object({...}) or tuple([...])")
    };
    match expression {
        Expression::Variable(name) => match name.as_str() {
            "any" => Ok(VariableType::Any),
            "string" => Ok(VariableType::Text),
            "number" => Ok(VariableType::Number),
            "bool" => Ok(VariableType::Bool),
            "list" | "set" | "map" => {
                let fault = EvaluationFault::new(
                    span_of(expression, &(0..0)),
                    format!("`{name}` takes the type of its elements"),
                );
                Err(fault.advise(format!("write {name}(string)")))
            }
            _ => Err(wrong()),
        },
        Expression::FuncCall(call) => {
            let argument = call.args.get(0).ok_or_else(wrong)?;
            match (call.name.name.as_str(), argument) {
                ("list", inner) => Ok(VariableType::List(Box::new(type_of(inner)?))),
                ("set", inner) => Ok(VariableType::Set(Box::new(type_of(inner)?))),
                ("map", inner) => Ok(VariableType::Map(Box::new(type_of(inner)?))),
                ("tuple", Expression::Array(kinds)) => {
                    kinds.iter().map(type_of).collect::<Evaluated<_>>().map(VariableType::Tuple)
                }
                ("object", Expression::Object(fields)) => {
                    let fields = fields.iter().map(|(key, value)| {
                        let key = key.as_ident().map(|ident| ident.as_str().to_owned()).ok_or_else(wrong)?;
                        Ok((key, type_of(value.expr())?))
                    });
                    fields.collect::<Evaluated<_>>().map(VariableType::Object)
                }
                ("optional", _) => {
                    let fault =
                        EvaluationFault::new(span_of(expression, &(0..0)), "Nomad has no `optional` attributes");
                    Err(fault.advise("write the type of the attribute, and give it a value each time"))
                }
                _ => Err(wrong()),
            }
        }
        Expression::String(name) => {
            Err(EvaluationFault::new(span_of(expression, &(0..0)), "a type stands without quotes")
                .advise(format!("write type = {}", name.value())))
        }
        _ => Err(wrong()),
    }
}

/// Errors: what it is instead. The value itself is not shown.
pub(super) fn converted(value: HclValue, kind: &VariableType) -> Result<HclValue, String> {
    let is = value.kind();
    let wrong = |expected: &str| format!("it is {expected}, not {is}");
    match (kind, value) {
        (_, HclValue::Null) => Ok(HclValue::Null),
        (VariableType::Any, value) => Ok(value),
        (VariableType::Text, value) => value.to_text().map(HclValue::Text).ok_or_else(|| wrong("a string")),
        (VariableType::Number, value) => value.to_number().ok_or_else(|| wrong("a number")),
        (VariableType::Bool, value) => value.to_bool().map(HclValue::Bool).ok_or_else(|| wrong("true or false")),
        (VariableType::List(inner), HclValue::List(list) | HclValue::Set(list)) => {
            list.into_iter().map(|value| converted(value, inner)).collect::<Result<_, _>>().map(HclValue::List)
        }
        (VariableType::Set(inner), HclValue::List(list) | HclValue::Set(list)) => {
            list.into_iter().map(|value| converted(value, inner)).collect::<Result<_, _>>().map(HclValue::set)
        }
        (VariableType::Map(inner), HclValue::Object(object)) => {
            let entries = object.into_iter().map(|(key, value)| Ok((key, converted(value, inner)?)));
            entries.collect::<Result<_, String>>().map(HclValue::Object)
        }
        (VariableType::Tuple(kinds), HclValue::List(list)) if kinds.len() == list.len() => list
            .into_iter()
            .zip(kinds)
            .map(|(value, kind)| converted(value, kind))
            .collect::<Result<_, _>>()
            .map(HclValue::List),
        (VariableType::Object(fields), HclValue::Object(mut object)) => {
            let entries = fields.iter().map(|(key, kind)| match object.remove(key) {
                Some(value) => Ok((key.clone(), converted(value, kind)?)),
                None => Err(format!("it has no `{key}`")),
            });
            entries.collect::<Result<_, String>>().map(HclValue::Object)
        }
        (VariableType::List(_), _) => Err(wrong("a list")),
        (VariableType::Set(_), _) => Err(wrong("a set")),
        (VariableType::Map(_) | VariableType::Object(_), _) => Err(wrong("an object")),
        (VariableType::Tuple(kinds), _) => Err(wrong(&format!("a list of {}", kinds.len()))),
    }
}
