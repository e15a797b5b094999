//! `variable` and `locals` blocks of a job file, and the values that its user gives.

use std::collections::BTreeMap;

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body, Structure};

use super::basis::{Evaluated, EvaluationFault, span_of};
use super::constants::{constant, place, read};
use super::inputs::GivenVariables;
use super::scope::EvaluationScope;
use super::secrets::ReadValues;
use super::types::{VariableType, converted, type_of};
use super::value::HclValue;
use super::{declarations, locals, references, secrets};
use crate::jobspec::diagnostic::Span;
use crate::model::nearest::nearest;
use crate::model::sensitive::SensitiveValues;

/// Sets `var` and `local`. All that is wrong is reported; what cannot be known is absent. Returns what no message may
/// show.
pub fn declare(
    body: &Body,
    given: &GivenVariables,
    scope: &mut EvaluationScope<'_>,
    report: &mut dyn FnMut(EvaluationFault),
) -> SensitiveValues {
    let (sensitive, mut all_read) = secrets::values(body, given, scope, report);
    let blocks = |name: &'static str| {
        body.iter().filter_map(Structure::as_block).filter(move |block| block.ident.as_str() == name)
    };
    let mut variables = BTreeMap::new();
    let mut declared = Vec::new();
    for block in blocks("variable") {
        let name = match declarations::name_of(block) {
            Ok(name) => name,
            Err(fault) => {
                report(fault);
                continue;
            }
        };
        if declared.contains(&name) {
            report(declared_twice(place(block), &name));
            continue;
        }
        match variable(block, &name, (given, &mut all_read), scope) {
            Ok(value) => _ = variables.insert(name.clone(), value),
            Err(fault) => report(fault),
        }
        declared.push(name);
    }
    for block in blocks("variables").chain(blocks("locals")) {
        declarations::attributes_alone(block, report);
    }
    // Short for variables with a default alone.
    for attribute in blocks("variables").flat_map(|block| block.body.attributes()) {
        let name = attribute.key.as_str().to_owned();
        if declared.contains(&name) {
            let span = attribute.key.span().unwrap_or(0..0);
            report(declared_twice(span, &name));
            continue;
        }
        let given = given.0.iter().rfind(|(given, _)| *given == name);
        let constant = || constant(&attribute.value, scope);
        match given.map_or_else(constant, |(_, value)| Ok(HclValue::Text(value.text.clone()))) {
            Ok(value) => _ = variables.insert(name.clone(), value),
            Err(fault) => report(fault),
        }
        declared.push(name);
    }
    for (name, value) in given.0.iter().filter(|(name, value)| !value.may_be_unused && !declared.contains(name)) {
        let fault = EvaluationFault::new(
            0..0,
            format!("{} gives a variable `{name}`, which the file does not declare", value.from),
        );
        let close = nearest(name, declared.iter().map(String::as_str));
        report(match close {
            Some(close) => fault.advise(format!("did you mean {close}?")),
            None => fault.advise(format!("declare it: variable \"{name}\" {{ type = string }}")),
        });
    }
    for name in declared.iter().filter(|name| !variables.contains_key(*name)) {
        scope.set_without_value("var", name);
    }
    scope.set("var", HclValue::Object(variables));
    for block in blocks("variable") {
        validations(block, scope, report);
    }
    locals::set(blocks("locals").flat_map(|block| block.body.attributes()), scope, report);
    sensitive
}

fn variable(
    block: &Block,
    name: &str,
    (given, all_read): (&GivenVariables, &mut ReadValues),
    scope: &EvaluationScope<'_>,
) -> Evaluated {
    declarations::keys(block)?;
    if let Some(attribute) = block.body.get_attribute("description")
        && constant(&attribute.value, scope)?.to_text().is_none()
    {
        return Err(EvaluationFault::new(span_of(&attribute.value, &place(block)), "`description` is a text"));
    }
    if let Some(attribute) = block.body.get_attribute("sensitive")
        && constant(&attribute.value, scope)?.to_bool().is_none()
    {
        return Err(EvaluationFault::new(span_of(&attribute.value, &place(block)), "`sensitive` is true or false"));
    }
    let is_sensitive = secrets::is_sensitive(block, scope);
    let kind = match block.body.get_attribute("type") {
        Some(attribute) => type_of(&attribute.value)?,
        None => VariableType::Any,
    };
    let default = block.body.get_attribute("default").map(|default| {
        let value = constant(&default.value, scope);
        // The fault and its line may show the value.
        let shown = |fault| match is_sensitive {
            true => EvaluationFault::new(place(block), format!("the default of `{name}` is no constant"))
                .advise("write the value itself"),
            false => fault,
        };
        (default, value.map_err(shown))
    });
    let Some((_, value)) = given.0.iter().rfind(|(given, _)| given == name) else {
        let Some((default, value)) = default else {
            let fault = EvaluationFault::new(place(block), format!("the variable `{name}` has no value"));
            return Err(fault.advise(format!("give it one: --var {name}=VALUE, NOMAD_VAR_{name}, or a default")));
        };
        let value = value?;
        let at = if is_sensitive { place(block) } else { span_of(&default.value, &place(block)) };
        let wrong = |why| EvaluationFault::new(at, format!("the default of `{name}`: {why}"));
        return converted(value, &kind).map_err(wrong);
    };
    // As in Nomad, a wrong default is an error though it is not used.
    default.map_or(Ok(HclValue::Null), |(_, value)| value)?;
    let wrong = |why: String| EvaluationFault::new(place(block), format!("`{name}` of {}: {why}", value.from));
    let hidden = |why| if is_sensitive { "it must be a value of its type".to_owned() } else { why };
    let value = all_read.remove(name).unwrap_or_else(|| read(value, &kind, scope));
    converted(value.map_err(hidden).map_err(wrong)?, &kind).map_err(wrong)
}

fn validations(block: &Block, scope: &EvaluationScope<'_>, report: &mut dyn FnMut(EvaluationFault)) {
    let checks = block.body.blocks().filter(|inner| inner.ident.as_str() == "validation");
    for check in checks {
        if let Err(fault) = declarations::validation_keys(check) {
            report(fault);
            continue;
        }
        let Some(condition) = check.body.get_attribute("condition") else {
            report(EvaluationFault::new(place(check), "a validation has a `condition`"));
            continue;
        };
        let name = block.labels.first().map_or("", |label| label.as_str());
        if let Err(fault) = validation(check, &condition.value, name, scope) {
            report(fault);
            continue;
        }
        match scope.evaluate(&condition.value).map(|value| value.to_bool()) {
            Ok(Some(true)) => {}
            Ok(_) => {
                let message = check.body.get_attribute("error_message").map(|message| scope.evaluate(&message.value));
                let message = message.and_then(Result::ok).and_then(|message| message.to_text());
                let text = message.unwrap_or_else(|| "its condition does not hold".to_owned());
                report(EvaluationFault::new(place(block), format!("the variable `{name}` is refused: {text}")));
            }
            // A variable without a value was reported.
            Err(_) if has_no_value(block, scope) => {}
            Err(fault) => report(fault),
        }
    }
}

/// Nomad's rules: its condition is one of this variable alone, and its message a sentence.
fn validation(check: &Block, condition: &Expression, name: &str, scope: &EvaluationScope<'_>) -> Evaluated<()> {
    let refers = format!("the condition refers to var.{name}, and to nothing else");
    let mut is_of_it = false;
    for reference in references::of(condition, &place(check)).into_iter().filter(|reference| !reference.is_call) {
        if reference.base != "var" || reference.attribute.as_deref() != Some(name) {
            return Err(EvaluationFault::new(reference.span, refers));
        }
        is_of_it = true;
    }
    if !is_of_it {
        return Err(EvaluationFault::new(span_of(condition, &place(check)), refers));
    }
    let Some(message) = check.body.get_attribute("error_message") else {
        let fault = EvaluationFault::new(place(check), "a validation has an `error_message`");
        return Err(fault.advise("add error_message = \"The value must be ... .\""));
    };
    let text = scope.evaluate(&message.value)?.to_text().unwrap_or_default();
    let begins = text.chars().next().is_some_and(|c| !c.is_alphabetic() || c.is_uppercase());
    if !begins || !text.ends_with(['.', '?', '!']) {
        let fault =
            EvaluationFault::new(span_of(&message.value, &place(check)), "an `error_message` is a whole sentence");
        return Err(fault.advise("begin it with a capital letter, and end it with a full stop"));
    }
    Ok(())
}

fn declared_twice(span: Span, name: &str) -> EvaluationFault {
    EvaluationFault::new(span, format!("the variable `{name}` is declared twice")).advise("keep one of them")
}

fn has_no_value(block: &Block, scope: &EvaluationScope<'_>) -> bool {
    let name = block.labels.first().map_or("", |label| label.as_str());
    !matches!(scope.get("var"), Some(HclValue::Object(variables)) if variables.contains_key(name))
}
