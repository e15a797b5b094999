//! Arithmetic: `subtract 1 3` is 2, as the piped value comes last. Kinds mix as in consul-template.

use super::arguments::{TemplateFunction, TemplateFunctionResult, argument, pure, text};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("add", (2, 2), |a| calculate(a, i64::wrapping_add, u64::wrapping_add, |x, y| x + y)),
    pure("subtract", (2, 2), |a| calculate(a, i64::wrapping_sub, u64::wrapping_sub, |x, y| x - y)),
    pure("multiply", (2, 2), |a| calculate(a, i64::wrapping_mul, u64::wrapping_mul, |x, y| x * y)),
    pure("divide", (2, 2), |a| {
        divisor(a)?;
        calculate(a, i64::wrapping_div, |x, y| x / y, |x, y| x / y)
    }),
    pure("modulo", (2, 2), |a| {
        divisor(a)?;
        if a.iter().any(|value| matches!(value, TemplateValue::Float(_))) {
            return Err("it takes whole numbers".into());
        }
        calculate(a, i64::wrapping_rem, |x, y| x % y, |x, y| x % y)
    }),
    pure("minimum", (2, 2), |a| calculate(a, i64::min, u64::min, f64::min)),
    pure("maximum", (2, 2), |a| calculate(a, i64::max, u64::max, f64::max)),
    pure("parseBool", (1, 1), |a| match &*text(a, 0)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(TemplateValue::Bool(true)),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(TemplateValue::Bool(false)),
        other => Err(format!("{other:?} is no boolean").into()),
    }),
    pure("parseFloat", (1, 1), |a| match &*text(a, 0)? {
        "" => Ok(TemplateValue::Float(0.0)),
        other => other.parse().map(TemplateValue::Float).map_err(|_| format!("{other:?} is no number").into()),
    }),
    pure("parseInt", (1, 1), |a| match &*text(a, 0)? {
        "" => Ok(TemplateValue::Int(0)),
        other => other.parse().map(TemplateValue::Int).map_err(|_| format!("{other:?} is no whole number").into()),
    }),
    pure("parseUint", (1, 1), |a| match &*text(a, 0)? {
        "" => Ok(TemplateValue::Uint(0)),
        other if other.starts_with('+') => Err(format!("{other:?} has a sign").into()),
        other => other.parse().map(TemplateValue::Uint).map_err(|_| format!("{other:?} is no whole number").into()),
    }),
];

fn divisor(arguments: &[TemplateValue]) -> Result<(), FunctionFault> {
    match argument(arguments, 0) {
        TemplateValue::Int(0) | TemplateValue::Uint(0) => Err("division by zero".into()),
        _ => Ok(()),
    }
}

/// The second argument with the first: floats if one is, unsigned only if both are.
fn calculate(
    arguments: &[TemplateValue],
    signed: fn(i64, i64) -> i64,
    unsigned: fn(u64, u64) -> u64,
    float: fn(f64, f64) -> f64,
) -> TemplateFunctionResult {
    use TemplateValue::{Float, Int, Uint};
    let (second, first) = (argument(arguments, 0), argument(arguments, 1));
    Ok(match (first, second) {
        (Uint(x), Uint(y)) => Uint(unsigned(*x, *y)),
        (Float(_), Int(_) | Uint(_) | Float(_)) | (Int(_) | Uint(_), Float(_)) => {
            Float(float(as_float(first), as_float(second)))
        }
        (Int(_) | Uint(_), Int(_) | Uint(_)) => Int(signed(as_signed(first), as_signed(second))),
        (Int(_) | Uint(_) | Float(_), other) | (other, _) => {
            return Err(format!("it takes numbers, not {}", other.type_name()).into());
        }
    })
}

// Beyond 2^53 it is rounded, as Go does.
#[allow(clippy::cast_precision_loss)]
pub(super) fn as_float(value: &TemplateValue) -> f64 {
    match value {
        TemplateValue::Int(n) => *n as f64,
        TemplateValue::Uint(n) => *n as f64,
        TemplateValue::Float(n) => *n,
        _ => 0.0,
    }
}

/// Wraps as Go's conversion.
fn as_signed(value: &TemplateValue) -> i64 {
    match value {
        TemplateValue::Int(n) => *n,
        TemplateValue::Uint(n) => n.cast_signed(),
        _ => 0,
    }
}
