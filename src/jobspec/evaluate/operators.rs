//! Arithmetic, comparison and logic.

use hcl_edit::expr::{BinaryOperator, UnaryOperator};

use super::basis::{Evaluated, EvaluationFault};
use super::value::HclValue;
use crate::jobspec::diagnostic::Span;

pub(super) fn unary(operator: UnaryOperator, value: HclValue, span: &Span) -> Evaluated {
    let wrong =
        |required: &str| EvaluationFault::new(span.clone(), format!("this takes {required}, not {}", value.kind()));
    match operator {
        UnaryOperator::Not => value.to_bool().map(|b| HclValue::Bool(!b)).ok_or_else(|| wrong("true or false")),
        UnaryOperator::Neg => match value.to_number() {
            Some(HclValue::Int(n)) => n.checked_neg().map(HclValue::Int).ok_or_else(|| too_large(span)),
            Some(HclValue::Float(n)) => Ok(HclValue::Float(-n)),
            _ => Err(wrong("a number")),
        },
    }
}

pub(super) fn binary(operator: BinaryOperator, left: HclValue, right: HclValue, span: &Span) -> Evaluated {
    match operator {
        BinaryOperator::Eq => Ok(HclValue::Bool(left == right)),
        BinaryOperator::NotEq => Ok(HclValue::Bool(left != right)),
        BinaryOperator::And | BinaryOperator::Or => {
            let (Some(a), Some(b)) = (left.to_bool(), right.to_bool()) else {
                let message = format!("this takes true or false, not {} and {}", left.kind(), right.kind());
                return Err(EvaluationFault::new(span.clone(), message));
            };
            Ok(HclValue::Bool(if operator == BinaryOperator::And { a && b } else { a || b }))
        }
        _ => match (left.to_number(), right.to_number()) {
            (Some(a), Some(b)) => numbers(operator, &a, &b, span),
            _ => {
                let fault = EvaluationFault::new(
                    span.clone(),
                    format!("this takes numbers, not {} and {}", left.kind(), right.kind()),
                );
                let are_texts = matches!((&left, operator), (HclValue::Text(_), BinaryOperator::Plus));
                Err(if are_texts { fault.advise("join strings in a template: \"${a}${b}\"") } else { fault })
            }
        },
    }
}

fn too_large(span: &Span) -> EvaluationFault {
    EvaluationFault::new(span.clone(), "the number gets too large").advise("make one of the two smaller")
}

fn numbers(operator: BinaryOperator, a: &HclValue, b: &HclValue, span: &Span) -> Evaluated {
    let (Some(left), Some(right)) = (a.to_float(), b.to_float()) else { return Err(too_large(span)) };
    // Whole numbers stay exact as long as they fit.
    if let (HclValue::Int(a), HclValue::Int(b)) = (a, b) {
        let exact = match operator {
            BinaryOperator::Plus => a.checked_add(*b),
            BinaryOperator::Minus => a.checked_sub(*b),
            BinaryOperator::Mul => a.checked_mul(*b),
            BinaryOperator::Mod if *b != 0 => a.checked_rem(*b),
            BinaryOperator::Div if *b != 0 && a % b == 0 => a.checked_div(*b),
            BinaryOperator::Less => return Ok(HclValue::Bool(a < b)),
            BinaryOperator::LessEq => return Ok(HclValue::Bool(a <= b)),
            BinaryOperator::Greater => return Ok(HclValue::Bool(a > b)),
            BinaryOperator::GreaterEq => return Ok(HclValue::Bool(a >= b)),
            _ => None,
        };
        if let Some(exact) = exact {
            return Ok(HclValue::Int(exact));
        }
    }
    let number = match operator {
        BinaryOperator::Plus => left + right,
        BinaryOperator::Minus => left - right,
        BinaryOperator::Mul => left * right,
        BinaryOperator::Div | BinaryOperator::Mod if right == 0.0 => {
            return Err(EvaluationFault::new(span.clone(), "this divides by zero")
                .advise("check for 0 first: x == 0 ? 0 : 1 / x"));
        }
        BinaryOperator::Div => left / right,
        BinaryOperator::Mod => left % right,
        BinaryOperator::Less => return Ok(HclValue::Bool(left < right)),
        BinaryOperator::LessEq => return Ok(HclValue::Bool(left <= right)),
        BinaryOperator::Greater => return Ok(HclValue::Bool(left > right)),
        BinaryOperator::GreaterEq => return Ok(HclValue::Bool(left >= right)),
        BinaryOperator::Eq | BinaryOperator::NotEq | BinaryOperator::And | BinaryOperator::Or => f64::NAN,
    };
    HclValue::number(number).ok_or_else(|| too_large(span))
}
