//! What an expression refers to and calls: in the `default` and the `condition` of a variable Nomad allows little of
//! it.

use hcl_edit::expr::{Expression, ObjectKey, Traversal, TraversalOperator};
use hcl_edit::template::{Directive, Element, Template};

use super::basis::span_of;
use crate::jobspec::diagnostic::Span;

/// A name that an expression takes from outside of itself.
pub(super) struct NameReference {
    pub(super) span: Span,
    pub(super) base: String,
    /// The `b` of `a.b` and `a["b"]`.
    pub(super) attribute: Option<String>,
    /// It is a function that is called.
    pub(super) is_call: bool,
}

/// All of them, in order. Loop variables are the expression's own.
pub(super) fn of(expression: &Expression, around: &Span) -> Vec<NameReference> {
    let mut walk = ReferenceWalk { around: around.clone(), bound: Vec::new(), found: Vec::new() };
    walk.expression(expression);
    walk.found
}

struct ReferenceWalk {
    around: Span,
    bound: Vec<String>,
    found: Vec<NameReference>,
}

impl ReferenceWalk {
    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Null(_) | Expression::Bool(_) | Expression::Number(_) | Expression::String(_) => {}
            Expression::StringTemplate(template) => self.template(template),
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template),
            Expression::Array(list) => list.iter().for_each(|element| self.expression(element)),
            Expression::Object(object) => {
                for (key, value) in object.iter() {
                    if let ObjectKey::Expression(key) = key {
                        self.expression(key);
                    }
                    self.expression(value.expr());
                }
            }
            Expression::Parenthesis(inner) => self.expression(inner.inner()),
            Expression::Variable(name) => self.name(expression, name.as_str(), None),
            Expression::Traversal(traversal) => self.traversal(expression, traversal),
            Expression::Conditional(conditional) => {
                [&conditional.cond_expr, &conditional.true_expr, &conditional.false_expr]
                    .into_iter()
                    .for_each(|side| self.expression(side));
            }
            Expression::UnaryOp(operation) => self.expression(&operation.expr),
            Expression::BinaryOp(operation) => {
                self.expression(&operation.lhs_expr);
                self.expression(&operation.rhs_expr);
            }
            Expression::FuncCall(call) => {
                let (span, base) = (span_of(expression, &self.around), call.name.name.as_str().to_owned());
                self.found.push(NameReference { span, base, attribute: None, is_call: true });
                call.args.iter().for_each(|argument| self.expression(argument));
            }
            Expression::ForExpr(each) => {
                self.expression(&each.intro.collection_expr);
                let names = each.intro.key_var.iter().chain([&each.intro.value_var]);
                let names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
                self.within(names, |walk| {
                    let inner = each.key_expr.iter().chain([&each.value_expr]);
                    inner.chain(each.cond.iter().map(|cond| &cond.expr)).for_each(|inner| walk.expression(inner));
                });
            }
        }
    }

    fn within(&mut self, names: Vec<String>, walk: impl FnOnce(&mut ReferenceWalk)) {
        let before = self.bound.len();
        self.bound.extend(names);
        walk(self);
        self.bound.truncate(before);
    }

    fn name(&mut self, expression: &Expression, base: &str, attribute: Option<String>) {
        if !self.bound.iter().any(|bound| bound == base) {
            let span = span_of(expression, &self.around);
            self.found.push(NameReference { span, base: base.to_owned(), attribute, is_call: false });
        }
    }

    fn traversal(&mut self, whole: &Expression, traversal: &Traversal) {
        match &traversal.expr {
            Expression::Variable(base) => {
                let attribute = traversal.operators.first().and_then(|operator| match operator.value() {
                    TraversalOperator::GetAttr(name) => Some(name.as_str().to_owned()),
                    TraversalOperator::Index(Expression::String(key)) => Some(key.value().clone()),
                    _ => None,
                });
                self.name(whole, base.as_str(), attribute);
            }
            inner => self.expression(inner),
        }
        for operator in &traversal.operators {
            if let TraversalOperator::Index(index) = operator.value() {
                self.expression(index);
            }
        }
    }

    fn template(&mut self, template: &Template) {
        for element in template.iter() {
            match element {
                Element::Literal(_) => {}
                Element::Interpolation(interpolation) => self.expression(&interpolation.expr),
                Element::Directive(directive) => match &**directive {
                    Directive::If(directive) => {
                        self.expression(&directive.if_expr.cond_expr);
                        self.template(&directive.if_expr.template);
                        if let Some(other) = &directive.else_expr {
                            self.template(&other.template);
                        }
                    }
                    Directive::For(directive) => {
                        let each = &directive.for_expr;
                        self.expression(&each.collection_expr);
                        let names = each.key_var.iter().chain([&each.value_var]);
                        let names: Vec<String> = names.map(|name| name.as_str().to_owned()).collect();
                        self.within(names, |walk| walk.template(&each.template));
                    }
                },
            }
        }
    }
}
