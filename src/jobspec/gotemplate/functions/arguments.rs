//! What a function is, and how it takes its arguments.

use std::cell::RefCell;
use std::rc::Rc;

use regex::{Regex, RegexBuilder};

use crate::jobspec::gotemplate::external::TemplateSources;
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::{TemplateValue, ValueMap};
use crate::model::go_regex::from_go;

/// What a function returns. Errors: what is wrong with the arguments or the data.
pub(super) type TemplateFunctionResult = Result<TemplateValue, FunctionFault>;

/// A function: its name, how many arguments it takes at least and at most, its price, and what it does.
pub(super) struct TemplateFunction {
    pub(super) name: &'static str,
    pub(super) arguments: (usize, usize),
    pub(super) steps: u64,
    pub(super) call: TemplateFunctionBody,
}

pub(super) enum TemplateFunctionBody {
    Pure(fn(&[TemplateValue]) -> TemplateFunctionResult),
    Sourced(fn(&[TemplateValue], &Tools<'_>) -> TemplateFunctionResult),
}

pub(super) const ANY: usize = usize::MAX;
/// A compiled pattern costs as much as many steps.
const STEPS_OF_A_PATTERN: u64 = 200;
/// Of what one call makes.
const MOST: usize = 16 << 20;
const MOST_PATTERNS: usize = 16;

pub(super) const fn pure(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[TemplateValue]) -> TemplateFunctionResult,
) -> TemplateFunction {
    TemplateFunction { name, arguments, steps: 1, call: TemplateFunctionBody::Pure(call) }
}

pub(super) const fn sourced(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[TemplateValue], &Tools<'_>) -> TemplateFunctionResult,
) -> TemplateFunction {
    TemplateFunction { name, arguments, steps: 10, call: TemplateFunctionBody::Sourced(call) }
}

pub(super) const fn matches(
    name: &'static str,
    arguments: (usize, usize),
    call: fn(&[TemplateValue], &Tools<'_>) -> TemplateFunctionResult,
) -> TemplateFunction {
    TemplateFunction { name, arguments, steps: STEPS_OF_A_PATTERN, call: TemplateFunctionBody::Sourced(call) }
}

/// What functions use beside their arguments.
pub(in crate::jobspec::gotemplate) struct Tools<'s> {
    pub(super) sources: &'s dyn TemplateSources,
    /// The last ones used, as they are written and compiled.
    patterns: RefCell<Vec<(String, Regex)>>,
}

impl<'s> Tools<'s> {
    pub(in crate::jobspec::gotemplate) fn new(sources: &'s dyn TemplateSources) -> Tools<'s> {
        Tools { sources, patterns: RefCell::default() }
    }
    pub(super) fn pattern(&self, pattern: &str) -> Result<Regex, FunctionFault> {
        if let Some((_, known)) = self.patterns.borrow().iter().find(|(written, _)| written == pattern) {
            return Ok(known.clone());
        }
        let compiled = RegexBuilder::new(&from_go(pattern)).size_limit(1 << 20).dfa_size_limit(1 << 20).build();
        let compiled = compiled.map_err(|error| format!("{pattern:?} is no regular expression: {error}"))?;
        let mut patterns = self.patterns.borrow_mut();
        if patterns.len() >= MOST_PATTERNS {
            patterns.remove(0);
        }
        patterns.push((pattern.to_owned(), compiled.clone()));
        Ok(compiled)
    }
}

pub(super) fn argument(arguments: &[TemplateValue], at: usize) -> &TemplateValue {
    arguments.get(at).unwrap_or(&TemplateValue::Nil)
}

pub(super) fn wrong_kind<T>(at: usize, expected: &str, value: &TemplateValue) -> Result<T, FunctionFault> {
    Err(format!("argument {} must be {expected}, not {}", at + 1, value.type_name()).into())
}

pub(super) fn text(arguments: &[TemplateValue], at: usize) -> Result<Rc<str>, FunctionFault> {
    match argument(arguments, at) {
        TemplateValue::Text(text) => Ok(Rc::clone(text)),
        other => wrong_kind(at, "string", other),
    }
}

pub(super) fn whole(arguments: &[TemplateValue], at: usize) -> Result<i64, FunctionFault> {
    match argument(arguments, at) {
        TemplateValue::Int(n) => Ok(*n),
        TemplateValue::Uint(n) => Ok(i64::try_from(*n).map_err(|_| format!("argument {} is too large", at + 1))?),
        other => wrong_kind(at, "int", other),
    }
}

pub(super) fn list(arguments: &[TemplateValue], at: usize) -> Result<&[TemplateValue], FunctionFault> {
    match argument(arguments, at) {
        TemplateValue::List(list) => Ok(list.items()),
        other => wrong_kind(at, "a list", other),
    }
}

pub(super) fn map(arguments: &[TemplateValue], at: usize) -> Result<&ValueMap, FunctionFault> {
    match argument(arguments, at) {
        TemplateValue::Map(map) => Ok(map),
        other => wrong_kind(at, "a map", other),
    }
}

pub(super) fn texts(arguments: &[TemplateValue], at: usize) -> Result<Vec<Rc<str>>, FunctionFault> {
    let items = list(arguments, at)?.iter().map(|item| match item {
        TemplateValue::Text(text) => Ok(Rc::clone(text)),
        other => wrong_kind(at, "a list of strings", other),
    });
    items.collect()
}

/// A value of so many bytes would have to be built: refused before it is.
pub(super) fn bounded(bytes: usize) -> Result<(), FunctionFault> {
    match bytes > MOST {
        true => Err(format!("the result would have more than {} MiB", MOST >> 20).into()),
        false => Ok(()),
    }
}

pub(super) fn boolean(b: bool) -> TemplateFunctionResult {
    Ok(TemplateValue::Bool(b))
}
