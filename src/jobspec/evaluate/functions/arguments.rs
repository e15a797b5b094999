//! What a function is, and how it takes its arguments.

use crate::jobspec::evaluate::basis::ExternalInputs;
use crate::jobspec::evaluate::value::HclValue;

/// What a function returns. Errors: what is wrong with the arguments, in words.
pub(super) type HclFunctionResult = Result<HclValue, String>;

/// A function: its name, how many arguments it takes at least and at most, and what it does.
pub(super) struct HclFunction {
    pub(super) name: &'static str,
    pub(super) arguments: (usize, usize),
    pub(super) call: HclFunctionBody,
}

pub(super) enum HclFunctionBody {
    Pure(fn(&[HclValue]) -> HclFunctionResult),
    External(fn(&[HclValue], &dyn ExternalInputs) -> HclFunctionResult),
}

pub(super) const ANY: usize = usize::MAX;

pub(super) const fn pure(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[HclValue]) -> HclFunctionResult,
) -> HclFunction {
    HclFunction { name, arguments, call: HclFunctionBody::Pure(call) }
}

pub(super) fn text(arguments: &[HclValue], at: usize) -> Result<String, String> {
    let value = arguments.get(at).unwrap_or(&HclValue::Null);
    value.to_text().ok_or_else(|| format!("argument {} is a string, not {}", at + 1, value.kind()))
}

pub(super) fn float(arguments: &[HclValue], at: usize) -> Result<f64, String> {
    let value = arguments.get(at).unwrap_or(&HclValue::Null);
    value.to_float().ok_or_else(|| format!("argument {} is a number, not {}", at + 1, value.kind()))
}

pub(super) fn whole(arguments: &[HclValue], at: usize) -> Result<i64, String> {
    let value = arguments.get(at).unwrap_or(&HclValue::Null);
    match value.to_number() {
        Some(HclValue::Int(n)) => i64::try_from(n).map_err(|_| format!("argument {} is too large", at + 1)),
        _ => Err(format!("argument {} is a whole number, not {}", at + 1, value.kind())),
    }
}

pub(super) fn list(arguments: &[HclValue], at: usize) -> Result<&[HclValue], String> {
    let value = arguments.get(at).unwrap_or(&HclValue::Null);
    value.elements().ok_or_else(|| format!("argument {} is a list, not {}", at + 1, value.kind()))
}

/// A list whose elements have indices: no set.
pub(super) fn indexed(arguments: &[HclValue], at: usize) -> Result<&[HclValue], String> {
    match arguments.get(at) {
        Some(HclValue::Set(_)) => Err(format!("argument {} is a list, not a set: convert(SET, list(string))", at + 1)),
        _ => list(arguments, at),
    }
}

pub(super) fn texts(arguments: &[HclValue], at: usize) -> Result<Vec<String>, String> {
    let elements = list(arguments, at)?.iter().map(HclValue::to_text);
    elements.collect::<Option<_>>().ok_or_else(|| format!("argument {} is a list of strings", at + 1))
}

pub(super) fn number(n: f64) -> HclFunctionResult {
    HclValue::number(n).ok_or_else(|| "the result is no number".to_owned())
}

/// A text of so many bytes would have to be built: refused before it is.
pub(super) fn bounded(bytes: usize) -> Result<(), String> {
    const MOST: usize = 4 << 20;
    if bytes > MOST { Err(format!("the result would have more than {} MiB", MOST >> 20)) } else { Ok(()) }
}
