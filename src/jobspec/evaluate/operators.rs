//! Arithmetic, comparison and logic.

use hcl_edit::expr::{BinaryOp, BinaryOperator, UnaryOperator};

use super::{Evaluated, Fault, Scope, Value};
use crate::jobspec::diagnostic::Span;

pub(super) fn unary(operator: UnaryOperator, value: Value, span: &Span) -> Evaluated {
    let wrong = |wants: &str| Fault::new(span.clone(), format!("this takes {wants}, not {}", value.kind()));
    match operator {
        UnaryOperator::Not => value.to_bool().map(|b| Value::Bool(!b)).ok_or_else(|| wrong("true or false")),
        UnaryOperator::Neg => match value.to_number() {
            Some(Value::Int(n)) => n.checked_neg().map(Value::Int).ok_or_else(|| too_large(span)),
            Some(Value::Float(n)) => Ok(Value::Float(-n)),
            _ => Err(wrong("a number")),
        },
    }
}

pub(super) fn binary(scope: &Scope<'_>, operation: &BinaryOp, span: &Span) -> Evaluated {
    let operator = *operation.operator.value();
    let left = scope.evaluate(&operation.lhs_expr)?;
    // As in HCL, both sides are evaluated.
    let right = scope.evaluate(&operation.rhs_expr)?;
    match operator {
        BinaryOperator::Eq => Ok(Value::Bool(left == right)),
        BinaryOperator::NotEq => Ok(Value::Bool(left != right)),
        BinaryOperator::And | BinaryOperator::Or => {
            let (Some(a), Some(b)) = (left.to_bool(), right.to_bool()) else {
                let message = format!("this takes true or false, not {} and {}", left.kind(), right.kind());
                return Err(Fault::new(span.clone(), message));
            };
            Ok(Value::Bool(if operator == BinaryOperator::And { a && b } else { a || b }))
        }
        _ => match (left.to_number(), right.to_number()) {
            (Some(a), Some(b)) => numbers(operator, &a, &b, span),
            _ => {
                let fault =
                    Fault::new(span.clone(), format!("this takes numbers, not {} and {}", left.kind(), right.kind()));
                let are_texts = matches!((&left, operator), (Value::Text(_), BinaryOperator::Plus));
                Err(if are_texts { fault.advise("join strings in a template: \"${a}${b}\"") } else { fault })
            }
        },
    }
}

fn too_large(span: &Span) -> Fault {
    Fault::new(span.clone(), "the number gets too large")
}

fn numbers(operator: BinaryOperator, a: &Value, b: &Value, span: &Span) -> Evaluated {
    let (Some(left), Some(right)) = (a.to_float(), b.to_float()) else { return Err(too_large(span)) };
    // Whole numbers stay exact as long as they fit.
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        let exact = match operator {
            BinaryOperator::Plus => a.checked_add(*b),
            BinaryOperator::Minus => a.checked_sub(*b),
            BinaryOperator::Mul => a.checked_mul(*b),
            BinaryOperator::Mod if *b != 0 => a.checked_rem(*b),
            BinaryOperator::Div if *b != 0 && a % b == 0 => a.checked_div(*b),
            BinaryOperator::Less => return Ok(Value::Bool(a < b)),
            BinaryOperator::LessEq => return Ok(Value::Bool(a <= b)),
            BinaryOperator::Greater => return Ok(Value::Bool(a > b)),
            BinaryOperator::GreaterEq => return Ok(Value::Bool(a >= b)),
            _ => None,
        };
        if let Some(exact) = exact {
            return Ok(Value::Int(exact));
        }
    }
    let number = match operator {
        BinaryOperator::Plus => left + right,
        BinaryOperator::Minus => left - right,
        BinaryOperator::Mul => left * right,
        BinaryOperator::Div | BinaryOperator::Mod if right == 0.0 => {
            return Err(Fault::new(span.clone(), "this divides by zero"));
        }
        BinaryOperator::Div => left / right,
        BinaryOperator::Mod => left % right,
        BinaryOperator::Less => return Ok(Value::Bool(left < right)),
        BinaryOperator::LessEq => return Ok(Value::Bool(left <= right)),
        BinaryOperator::Greater => return Ok(Value::Bool(left > right)),
        BinaryOperator::GreaterEq => return Ok(Value::Bool(left >= right)),
        BinaryOperator::Eq | BinaryOperator::NotEq | BinaryOperator::And | BinaryOperator::Or => f64::NAN,
    };
    Value::number(number).ok_or_else(|| too_large(span))
}
