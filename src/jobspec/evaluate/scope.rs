//! Names and expressions, and the templates in them.

mod template;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::{Expression, ForExpr, FuncCall, ObjectKey, Traversal, TraversalOperator};

use super::basis::{Budget, DEEPEST, Evaluated, EvaluationFault, ExternalInputs, span_of};
use super::members::{attribute_of, element, member, no_provider, unknown, without_value};
use super::types::{converted, type_of};
use super::value::HclValue;
use super::{functions, operators};
use crate::jobspec::diagnostic::Span;

/// Attributes, indices and splats of one reference.
const LONGEST_REFERENCE: usize = 200;
/// What an expanded block and each value in one take, about: in the tree, in the job that is made of it, and in the
/// list of places.
const BLOCK_BYTES: usize = 2 << 10;
const VALUE_BYTES: usize = 256;

/// What names mean where an expression stands.
pub struct EvaluationScope<'a> {
    names: BTreeMap<String, HclValue>,
    /// `var.a` and `local.b` that are declared and have no value: why was reported.
    without_value: BTreeSet<String>,
    /// That of the loop or block around it.
    outer: Option<&'a EvaluationScope<'a>>,
    outside: &'a dyn ExternalInputs,
    budget: &'a Budget,
}

impl<'a> EvaluationScope<'a> {
    pub fn new(outside: &'a dyn ExternalInputs, budget: &'a Budget) -> EvaluationScope<'a> {
        EvaluationScope { names: BTreeMap::new(), without_value: BTreeSet::new(), outer: None, outside, budget }
    }

    /// `var`, `local`, or the variable of a loop.
    pub fn set(&mut self, name: &str, value: HclValue) {
        self.names.insert(name.to_owned(), value);
    }

    /// `kind`: `var` or `local`. It is declared, and why it has no value was reported.
    pub(super) fn set_without_value(&mut self, kind: &str, name: &str) {
        self.without_value.insert(format!("{kind}.{name}"));
    }

    /// A local that is known from now on.
    pub(super) fn set_local(&mut self, name: &str, value: HclValue) {
        if let Some(HclValue::Object(locals)) = self.names.get_mut("local") {
            locals.insert(name.to_owned(), value);
        }
    }

    /// Charges the budget for an expanded block; a block outside of `dynamic` is free. `written`: the bytes of its
    /// source text, because each expansion has its own copy.
    ///
    /// Errors: steps or bytes are used up, perhaps before.
    pub fn pay_block(&self, span: &Span, written: usize) -> Evaluated<()> {
        self.budget.still_lasts(span)?;
        self.pay(span, BLOCK_BYTES.saturating_add(written))
    }

    /// Pays for a value as it is written in such a block.
    pub fn pay_value(&self, span: &Span) -> Evaluated<()> {
        self.pay(span, VALUE_BYTES)
    }
    fn pay(&self, span: &Span, bytes: usize) -> Evaluated<()> {
        if self.outer.is_none() {
            return Ok(());
        }
        self.budget.step(span)?;
        self.budget.bytes(span, bytes)
    }
    /// Pays for so many values of the job that an expression gave, wherever it stands.
    pub fn pay_values(&self, span: &Span, count: usize) -> Evaluated<()> {
        self.budget.bytes(span, VALUE_BYTES.saturating_mul(count))
    }

    /// Within a loop or a block of its own.
    pub fn inner(&'a self, names: impl IntoIterator<Item = (String, HclValue)>) -> EvaluationScope<'a> {
        EvaluationScope {
            names: names.into_iter().collect(),
            outer: Some(self),
            ..EvaluationScope::new(self.outside, self.budget)
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&HclValue> {
        self.names.get(name).or_else(|| self.outer?.get(name))
    }

    /// Whether something is known under the name here: else it is a reference that a task's start resolves.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Errors: the first that has no value; steps or bytes are used up.
    pub fn evaluate(&self, expression: &Expression) -> Evaluated {
        let span = span_of(expression, &(0..0));
        let depth = self.budget.depth.get() + 1;
        if depth > DEEPEST {
            return Err(EvaluationFault::too_deep(span));
        }
        self.budget.depth.set(depth);
        let value = self.budget.step(&span).and_then(|()| self.value(expression, &span));
        self.budget.depth.set(depth - 1);
        let value = value?;
        self.budget.bytes(&span, value.size())?;
        Ok(value)
    }

    fn value(&self, expression: &Expression, span: &Span) -> Evaluated {
        match expression {
            Expression::Null(_) => Ok(HclValue::Null),
            Expression::Bool(b) => Ok(HclValue::Bool(*b.value())),
            Expression::Number(n) => {
                let n = n.value();
                let whole = n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
                let number = whole.map(HclValue::Int).or_else(|| n.as_f64().and_then(HclValue::number));
                number.ok_or_else(|| EvaluationFault::too_large(span))
            }
            Expression::String(text) => Ok(HclValue::Text(text.value().clone())),
            Expression::StringTemplate(template) => self.template(template, span),
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template, span),
            Expression::Array(list) => {
                list.iter().map(|e| self.evaluate(e)).collect::<Evaluated<_>>().map(HclValue::List)
            }
            Expression::Object(object) => {
                let entries =
                    object.iter().map(|(key, value)| Ok((self.key(key, span)?, self.evaluate(value.expr())?)));
                entries.collect::<Evaluated<_>>().map(HclValue::Object)
            }
            Expression::Parenthesis(inner) => self.evaluate(inner.inner()),
            Expression::Variable(name) => match self.get(name.as_str()) {
                Some(value) => Ok(value.clone()),
                None => self.bare(expression, name.as_str(), span),
            },
            Expression::Traversal(traversal) => self.traversal(traversal, span),
            Expression::Conditional(conditional) => {
                let condition = self.bool(&conditional.cond_expr, "a condition")?;
                let (taken, other) = match condition {
                    true => (&conditional.true_expr, &conditional.false_expr),
                    false => (&conditional.false_expr, &conditional.true_expr),
                };
                let value = self.evaluate(taken)?;
                // As in HCL, the other side has a value of the same kind, or none at all.
                match self.evaluate(other) {
                    Ok(other) => unified(value, &other).map_err(|(value, other)| {
                        let message = format!("the sides of a condition are {value} and {other}");
                        EvaluationFault::new(span.clone(), message).advise("give both sides values of the same kind")
                    }),
                    Err(_) => Ok(value),
                }
            }
            Expression::UnaryOp(operation) => {
                operators::unary(*operation.operator.value(), self.evaluate(&operation.expr)?, span)
            }
            Expression::BinaryOp(operation) => {
                let left = self.evaluate(&operation.lhs_expr)?;
                // As in HCL, both sides are evaluated.
                let right = self.evaluate(&operation.rhs_expr)?;
                operators::binary(*operation.operator.value(), left, right, span)
            }
            Expression::ForExpr(each) => self.for_each(each, span),
            Expression::FuncCall(call) => self.call(call, span),
        }
    }

    /// Of an object: a word stands for itself, anything else is evaluated.
    fn key(&self, key: &ObjectKey, span: &Span) -> Evaluated<String> {
        match key {
            ObjectKey::Ident(ident) => Ok(ident.as_str().to_owned()),
            ObjectKey::Expression(expression) => {
                let value = self.evaluate(expression)?;
                value.to_text().ok_or_else(|| {
                    EvaluationFault::new(span_of(expression, span), format!("a key is a string, not {}", value.kind()))
                })
            }
        }
    }

    fn bool(&self, expression: &Expression, what: &str) -> Evaluated<bool> {
        let value = self.evaluate(expression)?;
        let wrong = || {
            EvaluationFault::new(
                span_of(expression, &(0..0)),
                format!("{what} is true or false, and this is {}", value.kind()),
            )
        };
        value.to_bool().ok_or_else(wrong)
    }

    /// `attr.kernel.name` without quotes is the text `${attr.kernel.name}`, as Nomad has it.
    fn bare(&self, expression: &Expression, name: &str, span: &Span) -> Evaluated {
        if let Some(reference) = self.reference(expression) {
            return Ok(HclValue::Text(reference));
        }
        let written = path(expression);
        match (name, written) {
            ("var" | "local", written) => {
                let written = written.as_deref().unwrap_or(name);
                Err(unknown(written, span))
            }
            (_, Some(written)) => {
                let warning = EvaluationFault::new(span.clone(), format!("`{written}` stands without quotes"));
                let advice = format!("as in Nomad it is the text ${{{written}}}; write it in quotes: \"{written}\"");
                self.budget.warn(warning.advise(advice));
                Ok(HclValue::Text(format!("${{{written}}}")))
            }
            // With indices: text, as in Nomad.
            (_, None) => match indexed(expression) {
                Some(written) => Ok(HclValue::Text(format!("${{{written}}}"))),
                None => Err(unknown(name, span)),
            },
        }
    }

    fn traversal(&self, traversal: &Traversal, span: &Span) -> Evaluated {
        let value = match &traversal.expr {
            Expression::Variable(name) => match self.get(name.as_str()) {
                // Of all variables or locals only the one that is meant is copied.
                Some(value) => Cow::Borrowed(value),
                None => return self.bare(&Expression::Traversal(Box::new(traversal.clone())), name.as_str(), span),
            },
            expression => Cow::Owned(self.evaluate(expression)?),
        };
        if traversal.operators.len() > LONGEST_REFERENCE {
            return Err(EvaluationFault::new(
                span.clone(),
                format!("a reference has at most {LONGEST_REFERENCE} parts"),
            ));
        }
        if let (Expression::Variable(kind), Some(first)) = (&traversal.expr, traversal.operators.first()) {
            self.declared(kind.as_str(), &value, first.value(), span)?;
        }
        let operators: Vec<&TraversalOperator> = traversal.operators.iter().map(|operator| operator.value()).collect();
        self.follow(value, &operators, span).map(Cow::into_owned)
    }

    /// Errors: `var.a` or `local.a` that is not declared, or that has no value.
    fn declared(&self, kind: &str, all: &HclValue, first: &TraversalOperator, span: &Span) -> Evaluated<()> {
        match (attribute_of(first), all) {
            (Some(name), HclValue::Object(all)) if matches!(kind, "var" | "local") && !all.contains_key(name) => {
                let is_declared = self.is_without_value(&format!("{kind}.{name}"));
                Err(without_value((kind, name), is_declared, all.keys(), span))
            }
            _ => Ok(()),
        }
    }

    fn is_without_value(&self, name: &str) -> bool {
        self.without_value.contains(name) || self.outer.is_some_and(|outer| outer.is_without_value(name))
    }

    fn follow<'v>(
        &self,
        mut value: Cow<'v, HclValue>,
        mut operators: &[&TraversalOperator],
        span: &Span,
    ) -> Evaluated<Cow<'v, HclValue>> {
        while let Some((first, rest)) = operators.split_first() {
            self.budget.step(span)?;
            operators = rest;
            value = match first {
                TraversalOperator::GetAttr(name) => member(value, name.as_str(), span)?,
                TraversalOperator::Index(index) => {
                    let index = self.evaluate(index)?;
                    match *value {
                        HclValue::Object(_) => member(value, &index.to_text().unwrap_or_default(), span)?,
                        _ => element(value, &index, span)?,
                    }
                }
                TraversalOperator::LegacyIndex(index) => {
                    element(value, &HclValue::Int(i128::from(*index.value())), span)?
                }
                TraversalOperator::FullSplat(_) => return self.splat(value, rest, span).map(Cow::Owned),
                TraversalOperator::AttrSplat(_) => {
                    let is_attribute =
                        |operator: &&&TraversalOperator| matches!(operator, TraversalOperator::GetAttr(_));
                    let (inside, after) = rest.split_at(rest.iter().take_while(is_attribute).count());
                    operators = after;
                    Cow::Owned(self.splat(value, inside, span)?)
                }
            };
        }
        Ok(value)
    }

    /// `list[*].name`: of each element; of null nothing, and of what is no list itself.
    fn splat(&self, value: Cow<'_, HclValue>, operators: &[&TraversalOperator], span: &Span) -> Evaluated {
        let elements: Vec<Cow<'_, HclValue>> = match value {
            Cow::Borrowed(HclValue::List(list) | HclValue::Set(list)) => list.iter().map(Cow::Borrowed).collect(),
            Cow::Owned(HclValue::List(list) | HclValue::Set(list)) => list.into_iter().map(Cow::Owned).collect(),
            Cow::Borrowed(HclValue::Null) | Cow::Owned(HclValue::Null) => Vec::new(),
            other => vec![other],
        };
        let values = elements.into_iter().map(|element| self.follow(element, operators, span).map(Cow::into_owned));
        values.collect::<Evaluated<_>>().map(HclValue::List)
    }

    fn for_each(&self, each: &ForExpr, span: &Span) -> Evaluated {
        let collection = self.evaluate(&each.intro.collection_expr)?;
        let (key_name, value_name) = (&each.intro.key_var, each.intro.value_var.as_str());
        let key_name = key_name.as_ref().map(|name| name.as_str());
        let mut object: BTreeMap<String, HclValue> = BTreeMap::new();
        let mut list = Vec::new();
        for (key, value) in collection.pairs().ok_or_else(|| not_to_loop_over(&each.intro.collection_expr, span))? {
            self.budget.step(span)?;
            let scope = self.loop_scope(key_name, value_name, key, value);
            if let Some(condition) = &each.cond
                && !scope.bool(&condition.expr, "the condition of `for`")?
            {
                continue;
            }
            let value = scope.evaluate(&each.value_expr)?;
            let Some(key_expression) = &each.key_expr else {
                list.push(value);
                continue;
            };
            let key = scope.evaluate(key_expression)?;
            let key = key.to_text().ok_or_else(|| {
                EvaluationFault::new(span_of(key_expression, span), format!("a key is a string, not {}", key.kind()))
            })?;
            if each.grouping {
                match object.entry(key).or_insert_with(|| HclValue::List(Vec::new())) {
                    HclValue::List(group) => group.push(value),
                    _ => return Err(EvaluationFault::new(span.clone(), "a group is a list")),
                }
            } else if object.insert(key.clone(), value).is_some() {
                let fault =
                    EvaluationFault::new(span_of(key_expression, span), format!("the key `{key}` is there twice"));
                return Err(fault.advise("put `...` behind the value: values with the same key become a list"));
            }
        }
        Ok(if each.key_expr.is_some() { HclValue::Object(object) } else { HclValue::List(list) })
    }

    fn loop_scope(
        &self,
        key_name: Option<&str>,
        value_name: &str,
        key: HclValue,
        value: HclValue,
    ) -> EvaluationScope<'_> {
        let key = key_name.map(|name| (name.to_owned(), key));
        self.inner(key.into_iter().chain([(value_name.to_owned(), value)]))
    }

    fn call(&self, call: &FuncCall, span: &Span) -> Evaluated {
        let name = call.name.name.as_str();
        if !call.name.namespace.is_empty() {
            return Err(no_provider(span));
        }
        // These evaluate what they are given themselves: what fails in it is no failure.
        match name {
            "try" => return self.attempt(call, span),
            "convert" => return self.convert(call, span),
            "can" => return Ok(HclValue::Bool(call.args.iter().all(|argument| self.evaluate(argument).is_ok()))),
            _ => {}
        }
        let mut arguments = Vec::with_capacity(call.args.len());
        for (at, argument) in call.args.iter().enumerate() {
            let value = self.evaluate(argument)?;
            match value {
                HclValue::List(list) | HclValue::Set(list) if call.args.expand_final() && at + 1 == call.args.len() => {
                    arguments.extend(list);
                }
                value => arguments.push(value),
            }
        }
        functions::call(name, &arguments, self.outside, span)
    }

    /// `try(a, b, ...)`: the first that has a value.
    fn attempt(&self, call: &FuncCall, span: &Span) -> Evaluated {
        let mut last = EvaluationFault::new(span.clone(), "try() takes at least 1 argument");
        for argument in call.args.iter() {
            match self.evaluate(argument) {
                Ok(value) => return Ok(value),
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// `convert(value, type)`: its second argument is no expression.
    fn convert(&self, call: &FuncCall, span: &Span) -> Evaluated {
        let (Some(value), Some(kind), 2) = (call.args.get(0), call.args.get(1), call.args.len()) else {
            return Err(EvaluationFault::new(span.clone(), "convert() takes a value and a type"));
        };
        let wrong = |why| EvaluationFault::new(span.clone(), format!("convert(): {why}"));
        converted(self.evaluate(value)?, &type_of(kind)?).map_err(wrong)
    }
}

/// The value as the kind that it and the other one turn into. Errors: the kinds of both, where there is none.
fn unified(value: HclValue, other: &HclValue) -> Result<HclValue, (&'static str, &'static str)> {
    use HclValue::{Bool, Float, Int, List, Null, Object, Set, Text};
    match (&value, other) {
        (Null, _)
        | (_, Null)
        | (Text(_), Text(_) | Bool(_) | Int(_) | Float(_))
        | (Bool(_), Bool(_))
        | (Int(_) | Float(_), Int(_) | Float(_))
        | (List(_), List(_))
        | (Set(_), List(_) | Set(_))
        | (Object(_), Object(_)) => Ok(value),
        (Bool(_) | Int(_) | Float(_), Text(_)) => value.to_text().map(Text).ok_or_else(|| (value.kind(), other.kind())),
        (List(list), Set(_)) => Ok(HclValue::set(list.clone())),
        _ => Err((value.kind(), other.kind())),
    }
}

fn not_to_loop_over(collection: &Expression, span: &Span) -> EvaluationFault {
    EvaluationFault::new(span_of(collection, span), "`for` takes a list, a set or an object")
}

/// What a task's start resolves.
fn is_of_the_start(base: &str) -> bool {
    matches!(base, "attr" | "node" | "meta" | "env" | "device" | "unique") || base.starts_with("NOMAD_")
}

/// `a[0].b` and `a.0.b` as they are written.
fn indexed(expression: &Expression) -> Option<String> {
    let Expression::Traversal(traversal) = expression else { return None };
    let Expression::Variable(base) = &traversal.expr else { return None };
    let mut written = base.as_str().to_owned();
    for operator in &traversal.operators {
        written.push_str(&match operator.value() {
            TraversalOperator::GetAttr(name) => format!(".{}", name.as_str()),
            TraversalOperator::LegacyIndex(index) => format!(".{}", index.value()),
            TraversalOperator::Index(Expression::Number(index)) => format!("[{}]", index.value()),
            _ => return None,
        });
    }
    Some(written)
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
