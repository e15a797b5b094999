//! What stands for itself in a `variable` block, and where the block stands.

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Block;

use super::basis::{Evaluated, EvaluationFault};
use super::inputs::GivenValue;
use super::references;
use super::scope::EvaluationScope;
use super::types::VariableType;
use super::value::HclValue;
use crate::jobspec::diagnostic::{MAX_FILE_BYTES, Span};

pub(super) fn place(block: &Block) -> Span {
    block.ident.span().or(block.span()).unwrap_or(0..0)
}

/// A default stands for itself: it refers to nothing and calls nothing.
pub(super) fn constant(expression: &Expression, scope: &EvaluationScope<'_>) -> Evaluated {
    let found = references::of(expression, &(0..0));
    let Some(first) = found.into_iter().next() else { return scope.evaluate(expression) };
    Err(if first.is_call {
        let fault = EvaluationFault::new(first.span, format!("a default calls no function: {}()", first.base));
        fault.advise("write the value itself, or make it one of `locals`")
    } else {
        let fault = EvaluationFault::new(first.span, format!("a default refers to nothing: `{}`", first.base));
        fault.advise("write a text in quotes, with `$${` for the two characters, or make it one of `locals`")
    })
}

/// A given value: a collection is an expression, any other text stands for itself.
///
/// Errors: why it is no expression. The value itself is not shown: it may be sensitive.
pub(super) fn read(given: &GivenValue, kind: &VariableType, scope: &EvaluationScope<'_>) -> Result<HclValue, String> {
    if !kind.is_collection() {
        return Ok(HclValue::Text(given.text.clone()));
    }
    // As a file: the parser takes quadratic time for very large objects.
    if given.text.len() > MAX_FILE_BYTES {
        return Err(format!("it is longer than {} KiB", MAX_FILE_BYTES >> 10));
    }
    let expression: Expression = given.text.parse().map_err(|_| "it is no HCL expression".to_owned())?;
    scope.evaluate(&expression).map_err(|fault| fault.message)
}
