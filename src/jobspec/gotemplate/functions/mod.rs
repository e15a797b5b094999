//! The functions of Go's templates, of consul-template and, as `sprig_NAME`, of sprig: a table per subject.

mod absent;
mod arguments;
mod builtin;
mod clock;
mod collections;
mod comparison;
mod encoding;
mod json;
mod math;
mod sockaddr;
mod sources;
mod sprig;
mod strings;
mod toml;
mod yaml;
mod yaml_writer;

use std::ops::Range;

pub(super) use self::arguments::Tools;
use self::arguments::{ANY, TemplateFunction, TemplateFunctionBody};
pub(in crate::jobspec::gotemplate) use self::sources::reads;
pub(in crate::jobspec) use self::yaml::parsed as parsed_yaml;
use super::fault::UnlocatedFault;
use super::meter::{Checked, TemplateMeter};
use super::value::TemplateValue;
use crate::model::nearest::nearest;

static ALL: &[&[TemplateFunction]] = &[
    builtin::FUNCTIONS,
    comparison::FUNCTIONS,
    strings::FUNCTIONS,
    collections::FUNCTIONS,
    encoding::FUNCTIONS,
    math::FUNCTIONS,
    sources::FUNCTIONS,
    clock::FUNCTIONS,
    sockaddr::FUNCTIONS,
    sprig::FUNCTIONS,
];

/// Those that the interpreter itself executes.
const OWN: [&str; 4] = ["and", "or", "executeTemplate", "scratch"];

/// All that can be called, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = ALL.iter().flat_map(|of| of.iter().map(|function| function.name)).collect();
    names.extend(OWN);
    names.sort_unstable();
    names
}

fn find(name: &str) -> Option<&'static TemplateFunction> {
    ALL.iter().flat_map(|of| of.iter()).find(|function| function.name == name)
}

/// Errors: there is no such function here, and what to use instead.
pub(super) fn check(name: &str, span: &Range<usize>) -> Checked {
    if OWN.contains(&name) || find(name).is_some() {
        return Ok(());
    }
    if let Some(refused) = absent::refused(name) {
        let wrong = UnlocatedFault::new(span.clone(), refused.message).advise(refused.advice);
        return Err(UnlocatedFault { never_renders: refused.never_renders, ..wrong });
    }
    let wrong = UnlocatedFault::new(span.clone(), format!("there is no function {name}"));
    let prefixed = format!("sprig_{name}");
    if find(&prefixed).is_some() {
        return Err(wrong.advise(format!("functions of sprig have a prefix: {prefixed}")));
    }
    Err(match nearest(name, names()) {
        Some(close) => wrong.advise(format!("did you mean {close}?")),
        None => wrong,
    })
}

/// A call with these texts alone, before it is rendered. Errors: no start can render it.
pub(super) fn check_texts(name: &str, texts: &[&str], span: &Range<usize>) -> Checked {
    let Some(function) = (name == sockaddr::NAME).then(|| find(name)).flatten() else { return Ok(()) };
    let pipeline = || {
        let checked = sockaddr::check(&texts.join(" "));
        checked
            .map_err(|(message, advice)| UnlocatedFault::new(span.clone(), format!("{name}: {message}")).advise(advice))
    };
    let checked = counted(function, texts.len(), span).and_then(|()| pipeline());
    checked.map_err(|wrong| UnlocatedFault { never_renders: true, ..wrong })
}

/// Errors: it does not take so many arguments.
fn counted(function: &TemplateFunction, count: usize, span: &Range<usize>) -> Checked {
    let (least, most) = function.arguments;
    if (least..=most).contains(&count) {
        return Ok(());
    }
    let takes = match (least, most) {
        (1, ANY) => "at least 1 argument".to_owned(),
        (least, ANY) => format!("at least {least} arguments"),
        (1, 1) => "1 argument".to_owned(),
        (least, most) if least == most => format!("{least} arguments"),
        (least, most) => format!("{least} to {most} arguments"),
    };
    Err(UnlocatedFault::new(span.clone(), format!("{} takes {takes}, not {count}", function.name)))
}

pub(super) fn call(
    name: &str,
    arguments: &[TemplateValue],
    tools: &Tools<'_>,
    meter: &TemplateMeter,
    span: &Range<usize>,
) -> Checked<TemplateValue> {
    let Some(function) = find(name) else {
        return Err(UnlocatedFault::new(span.clone(), format!("{name} takes no arguments")));
    };
    counted(function, arguments.len(), span)?;
    // What only reads one element costs a step, whatever the size of the rest.
    let is_light = matches!(name, "index" | "len" | "not");
    let taken = arguments.iter().fold(0usize, |sum, argument| sum.saturating_add(argument.bytes()));
    if !is_light {
        meter.bytes(span, taken)?;
    }
    meter.steps(span, function.steps)?;
    let outcome = match function.call {
        TemplateFunctionBody::Pure(call) => call(arguments),
        TemplateFunctionBody::Sourced(call) => call(arguments, tools),
    };
    let value = outcome.map_err(|refusal| refusal.at(span.clone(), name))?;
    if !is_light {
        meter.bytes(span, value.bytes())?;
    }
    Ok(value)
}
