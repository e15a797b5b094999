//! Templates: `"text ${expression} %{ if ... }"`.

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::template::{Directive, Element, Strip, Template};

use super::{EvaluationScope, is_of_the_start, not_to_loop_over, path};
use crate::jobspec::diagnostic::Span;
use crate::jobspec::evaluate::basis::{Evaluated, span_of};
use crate::jobspec::evaluate::members::no_text;
use crate::jobspec::evaluate::value::HclValue;

impl EvaluationScope<'_> {
    /// One `${...}` alone keeps its kind; everything else is a string.
    pub(super) fn template(&self, template: &Template, span: &Span) -> Evaluated {
        let mut elements = template.iter();
        if let (Some(Element::Interpolation(only)), None) = (elements.next(), elements.next()) {
            return match self.reference(&only.expr) {
                Some(reference) => Ok(HclValue::Text(reference)),
                None => self.evaluate(&only.expr),
            };
        }
        let mut text = String::new();
        self.write(template, (false, false), span, &mut text)?;
        Ok(HclValue::Text(text))
    }

    /// What a reference names, if nothing is known of it here. Not `var` and `local`: their names are all known.
    pub fn unknown(&self, expression: &Expression) -> Option<String> {
        let path = path(expression)?;
        let base = path.split(['.', '[']).next().unwrap_or_default();
        (!self.has(base) && !matches!(base, "var" | "local")).then_some(path)
    }

    /// An expression inside of a text. Errors: it has no value, or one that is no text.
    pub fn text_of(&self, expression: &Expression) -> Evaluated<String> {
        let value = self.evaluate(expression)?;
        let span = span_of(expression, &(0..0));
        value.to_text().ok_or_else(|| no_text(&value, &span))
    }

    /// `${NOMAD_TASK_NAME}` and its like, as it stands.
    pub(super) fn reference(&self, expression: &Expression) -> Option<String> {
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
            let started = text.len();
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
                        let wrong = || no_text(&value, &here);
                        text.push_str(&value.to_text().ok_or_else(wrong)?);
                    }
                },
                Element::Directive(directive) => self.directive(directive, &here, text)?,
            }
            self.budget.bytes(&here, text.len().saturating_sub(started))?;
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
