//! Templates: text with `${...}` and `%{ if }`, `%{ for }` in it.

use hcl_edit::Span as _;
use hcl_edit::expr::{Expression, Traversal, TraversalOperator};
use hcl_edit::template::{Directive, Element, Strip, Template};

use super::{Evaluated, Fault, Scope, Value, not_to_loop_over, span_of};
use crate::jobspec::diagnostic::Span;

/// What a task's start resolves.
pub(super) fn is_of_the_start(base: &str) -> bool {
    matches!(base, "attr" | "node" | "meta" | "env" | "device" | "unique") || base.starts_with("NOMAD_")
}

/// `a.b.c` and `a["b"]` as they are written in a reference; `None` for what else HCL can do.
pub(in crate::jobspec) fn path(expression: &Expression) -> Option<String> {
    let Expression::Traversal(traversal) = expression else {
        return expression.as_variable().map(|name| name.as_str().to_owned());
    };
    let Traversal { expr: Expression::Variable(base), operators, .. } = &**traversal else { return None };
    let mut path = base.as_str().to_owned();
    for operator in operators {
        match operator.value() {
            TraversalOperator::GetAttr(name) => {
                path.push('.');
                path.push_str(name.as_str());
            }
            TraversalOperator::Index(Expression::String(key)) if !key.value().contains(['"', '\\', '$', '%']) => {
                path.push_str("[\"");
                path.push_str(key.value());
                path.push_str("\"]");
            }
            _ => return None,
        }
    }
    Some(path)
}

impl Scope<'_> {
    /// One `${...}` alone keeps its kind; everything else is a string.
    pub(super) fn template(&self, template: &Template, span: &Span) -> Evaluated {
        let mut elements = template.iter();
        if let (Some(Element::Interpolation(only)), None) = (elements.next(), elements.next()) {
            return match self.reference(&only.expr) {
                Some(reference) => Ok(Value::Text(reference)),
                None => self.evaluate(&only.expr),
            };
        }
        let mut text = String::new();
        self.write(template, (false, false), span, &mut text)?;
        Ok(Value::Text(text))
    }

    /// `${NOMAD_TASK_NAME}` and its like, as it stands.
    fn reference(&self, expression: &Expression) -> Option<String> {
        let path = path(expression)?;
        let base = path.split(['.', '[']).next().unwrap_or_default();
        (!self.has(base) && is_of_the_start(base)).then(|| format!("${{{path}}}"))
    }

    /// `strips`: whether what is around it takes the white space at its start and at its end away.
    fn write(&self, template: &Template, strips: (bool, bool), span: &Span, text: &mut String) -> Evaluated<()> {
        let elements: Vec<&Element> = template.iter().collect();
        for (at, element) in elements.iter().enumerate() {
            let here = element.span().unwrap_or_else(|| span.clone());
            self.budget.step(&here)?;
            let begun = text.len();
            match element {
                Element::Literal(literal) => {
                    let before = at.checked_sub(1).and_then(|before| elements.get(before));
                    let strips_start = before.map_or(strips.0, |element| markers(element).1);
                    let strips_end = elements.get(at + 1).map_or(strips.1, |element| markers(element).0);
                    let literal = literal.value().as_str();
                    let literal = if strips_start { literal.trim_start() } else { literal };
                    text.push_str(if strips_end { literal.trim_end() } else { literal });
                }
                Element::Interpolation(interpolation) => match self.reference(&interpolation.expr) {
                    Some(reference) => text.push_str(&reference),
                    None => {
                        let value = self.evaluate(&interpolation.expr)?;
                        let wrong = || Fault::new(here.clone(), format!("{} cannot stand in a string", value.kind()));
                        text.push_str(&value.to_text().ok_or_else(wrong)?);
                    }
                },
                Element::Directive(directive) => self.directive(directive, &here, text)?,
            }
            self.budget.bytes(&here, text.len().saturating_sub(begun))?;
        }
        Ok(())
    }

    fn directive(&self, directive: &Directive, span: &Span, text: &mut String) -> Evaluated<()> {
        match directive {
            Directive::If(directive) => {
                let (first, other, last) = (&directive.if_expr, &directive.else_expr, directive.endif_expr.strip);
                let then_last = other.as_ref().map_or(last, |other| other.strip);
                if self.bool(&first.cond_expr, "a condition")? {
                    return self.write(&first.template, (at_end(first.strip), at_start(then_last)), span, text);
                }
                let Some(other) = other else { return Ok(()) };
                self.write(&other.template, (at_end(other.strip), at_start(last)), span, text)
            }
            Directive::For(directive) => {
                let each = &directive.for_expr;
                let collection = self.evaluate(&each.collection_expr)?;
                let wrong = || not_to_loop_over(&each.collection_expr, &span_of(&each.collection_expr, span));
                for (key, value) in collection.pairs().ok_or_else(wrong)? {
                    self.budget.step(span)?;
                    let key_name = each.key_var.as_ref().map(|name| name.as_str());
                    let scope = self.loop_scope(key_name, each.value_var.as_str(), key, value);
                    let strips = (at_end(each.strip), at_start(directive.endfor_expr.strip));
                    scope.write(&each.template, strips, span, text)?;
                }
                Ok(())
            }
        }
    }
}

/// Whether an element takes the white space before and after itself away (`~`).
fn markers(element: &Element) -> (bool, bool) {
    let (first, last) = match element {
        Element::Literal(_) => return (false, false),
        Element::Interpolation(interpolation) => (interpolation.strip, interpolation.strip),
        Element::Directive(directive) => match &**directive {
            Directive::If(directive) => (directive.if_expr.strip, directive.endif_expr.strip),
            Directive::For(directive) => (directive.for_expr.strip, directive.endfor_expr.strip),
        },
    };
    (at_start(first), at_end(last))
}

fn at_start(strip: Strip) -> bool {
    matches!(strip, Strip::Start | Strip::Both)
}

fn at_end(strip: Strip) -> bool {
    matches!(strip, Strip::End | Strip::Both)
}
