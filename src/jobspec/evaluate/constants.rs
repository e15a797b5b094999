//! What stands for itself in a `variable` block, and where the block stands.

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::Block;

use super::basis::{Evaluated, Fault};
use super::references;
use super::scope::Scope;
use crate::jobspec::diagnostic::Span;

pub(super) fn place(block: &Block) -> Span {
    block.ident.span().or(block.span()).unwrap_or(0..0)
}

/// A default stands for itself: it refers to nothing and calls nothing.
pub(super) fn constant(expression: &Expression, scope: &Scope<'_>) -> Evaluated {
    let found = references::of(expression, &(0..0));
    let Some(first) = found.into_iter().next() else { return scope.evaluate(expression) };
    Err(if first.is_call {
        let fault = Fault::new(first.span, format!("a default calls no function: {}()", first.base));
        fault.advise("write the value itself, or make it one of `locals`")
    } else {
        let fault = Fault::new(first.span, format!("a default refers to nothing: `{}`", first.base));
        fault.advise("write a text in quotes, with `$${` for the two characters, or make it one of `locals`")
    })
}
