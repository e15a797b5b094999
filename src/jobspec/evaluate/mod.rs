//! HCL2 expressions: variables, locals, operators, conditionals, `for`, splats, templates and functions, within a budget of steps and
//! bytes.
//!
//! ```text
//! Expression ── evaluate (Scope) ──> Value          value      kinds and how they turn into each other
//!                                                   operators  arithmetic, comparison, logic
//! functions  one table, a file for each subject      templates  "${...}" and %{ directives }
//! ```
//! What only a task's start knows passes through as text: `${NOMAD_...}`, `${attr...}`, `${node...}`, `${meta...}`, `${env...}`,
//! `${device...}`. Nothing here reads a file: [`Outside`] does, with the rights of whoever calls it.

mod functions;
mod operators;
pub mod recorded;
mod templates;
mod value;
pub mod variables;

use std::cell::Cell;
use std::collections::BTreeMap;

use hcl_edit::Span as _;
use hcl_edit::expr::{Expression, ForExpr, FuncCall, ObjectKey, Traversal, TraversalOperator};

pub use functions::names as function_names;
pub(super) use templates::path;
pub use value::Value;

use super::diagnostic::Span;

/// Each evaluated expression and each element of a loop is a step.
const MOST_STEPS: u64 = 200_000;
/// Of all values that are made.
const MOST_BYTES: usize = 16 << 20;
/// Expressions within expressions.
const DEEPEST: usize = 100;

/// Why an expression has no value, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub span: Span,
    pub message: String,
    pub suggestion: Option<String>,
}

pub type Evaluated<T = Value> = Result<T, Fault>;

impl Fault {
    fn new(span: Span, message: impl Into<String>) -> Fault {
        Fault { span, message: message.into(), suggestion: None }
    }
    #[must_use]
    fn advise(self, suggestion: impl Into<String>) -> Fault {
        Fault { suggestion: Some(suggestion.into()), ..self }
    }
}

/// What an evaluation takes from outside of the file: files, the time, chance.
pub trait Outside {
    /// Errors: why it cannot be read, in words.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
    /// Errors: why that cannot be known.
    fn exists(&self, path: &str) -> Result<bool, String>;
    /// The files below `directory` whose relative paths fit a pattern, in order.
    fn list(&self, directory: &str, pattern: &str) -> Result<Vec<String>, String>;
    /// Now, as RFC 3339. Errors: why it is not known.
    fn timestamp(&self) -> Result<String, String>;
    /// A random UUID. Errors: why there is none.
    fn uuid(&self) -> Result<String, String>;
}

/// For a file that is judged by itself.
pub struct Nothing;

impl Outside for Nothing {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path}: only the command that submits a job reads files"))
    }
    fn exists(&self, path: &str) -> Result<bool, String> {
        self.read(path).map(|_| false)
    }
    fn list(&self, directory: &str, _: &str) -> Result<Vec<String>, String> {
        self.read(directory).map(|_| Vec::new())
    }
    fn timestamp(&self) -> Result<String, String> {
        Err("there is no clock here".to_owned())
    }
    fn uuid(&self) -> Result<String, String> {
        Err("there is no chance here".to_owned())
    }
}

/// What is left of steps and bytes.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    depth: Cell<usize>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { steps: Cell::new(MOST_STEPS), bytes: Cell::new(MOST_BYTES), depth: Cell::new(0) }
    }
}

impl Budget {
    fn step(&self, span: &Span) -> Evaluated<()> {
        let left = self.steps.get().checked_sub(1);
        let left = left.ok_or_else(|| Fault::new(span.clone(), format!("it takes more than {MOST_STEPS} steps")))?;
        self.steps.set(left);
        Ok(())
    }
    fn bytes(&self, span: &Span, bytes: usize) -> Evaluated<()> {
        let left = self.bytes.get().checked_sub(bytes);
        let left =
            left.ok_or_else(|| Fault::new(span.clone(), format!("values take more than {} MiB", MOST_BYTES >> 20)))?;
        self.bytes.set(left);
        Ok(())
    }
}

/// What names mean where an expression stands.
pub struct Scope<'a> {
    names: BTreeMap<String, Value>,
    /// That of the loop or block around it.
    outer: Option<&'a Scope<'a>>,
    outside: &'a dyn Outside,
    budget: &'a Budget,
}

impl<'a> Scope<'a> {
    pub fn new(outside: &'a dyn Outside, budget: &'a Budget) -> Scope<'a> {
        Scope { names: BTreeMap::new(), outer: None, outside, budget }
    }

    /// `var`, `local`, or the variable of a loop.
    pub fn set(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned(), value);
    }

    /// Within a loop or a block of its own.
    pub fn inner(&'a self, names: impl IntoIterator<Item = (String, Value)>) -> Scope<'a> {
        Scope { names: names.into_iter().collect(), outer: Some(self), outside: self.outside, budget: self.budget }
    }

    fn get(&self, name: &str) -> Option<&Value> {
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
            return Err(Fault::new(span, format!("expressions are nested more than {DEEPEST} deep")));
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
            Expression::Null(_) => Ok(Value::Null),
            Expression::Bool(b) => Ok(Value::Bool(*b.value())),
            Expression::Number(n) => {
                let n = n.value();
                let whole = n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from));
                let number = whole.map(Value::Int).or_else(|| n.as_f64().and_then(Value::number));
                number.ok_or_else(|| Fault::new(span.clone(), "the number is too large"))
            }
            Expression::String(text) => Ok(Value::Text(text.value().clone())),
            Expression::StringTemplate(template) => self.template(template, span),
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template, span),
            Expression::Array(list) => list.iter().map(|e| self.evaluate(e)).collect::<Evaluated<_>>().map(Value::List),
            Expression::Object(object) => {
                let entries =
                    object.iter().map(|(key, value)| Ok((self.key(key, span)?, self.evaluate(value.expr())?)));
                entries.collect::<Evaluated<_>>().map(Value::Object)
            }
            Expression::Parenthesis(inner) => self.evaluate(inner.inner()),
            Expression::Variable(name) => {
                let value = self.get(name.as_str()).cloned();
                value.ok_or_else(|| self.unknown(name.as_str(), span))
            }
            Expression::Traversal(traversal) => self.traversal(traversal, span),
            Expression::Conditional(conditional) => {
                let condition = self.bool(&conditional.cond_expr, "a condition")?;
                self.evaluate(if condition { &conditional.true_expr } else { &conditional.false_expr })
            }
            Expression::UnaryOp(operation) => {
                operators::unary(*operation.operator.value(), self.evaluate(&operation.expr)?, span)
            }
            Expression::BinaryOp(operation) => operators::binary(self, operation, span),
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
                    Fault::new(span_of(expression, span), format!("a key is a string, not {}", value.kind()))
                })
            }
        }
    }

    fn bool(&self, expression: &Expression, what: &str) -> Evaluated<bool> {
        let value = self.evaluate(expression)?;
        let wrong = || {
            Fault::new(span_of(expression, &(0..0)), format!("{what} is true or false, and this is {}", value.kind()))
        };
        value.to_bool().ok_or_else(wrong)
    }

    fn unknown(&self, written: &str, span: &Span) -> Fault {
        let base = written.split(['.', '[']).next().unwrap_or_default();
        match base {
            "var" | "local" => Fault::new(span.clone(), format!("`{written}` is not known here")),
            base if templates::is_of_the_start(base) => {
                let fault = Fault::new(span.clone(), format!("`{written}` stands without quotes"));
                fault.advise("a reference is written inside a text: \"${...}\"")
            }
            _ => {
                let fault = Fault::new(span.clone(), format!("`{written}` stands without quotes"));
                fault.advise(format!("write it in quotes: \"{written}\""))
            }
        }
    }

    fn traversal(&self, traversal: &Traversal, span: &Span) -> Evaluated {
        let value = match &traversal.expr {
            Expression::Variable(name) if !self.has(name.as_str()) => {
                let written = path(&Expression::Traversal(Box::new(traversal.clone())));
                return Err(self.unknown(written.as_deref().unwrap_or(name.as_str()), span));
            }
            expression => self.evaluate(expression)?,
        };
        let operators: Vec<&TraversalOperator> = traversal.operators.iter().map(|operator| operator.value()).collect();
        self.follow(value, &operators, span)
    }

    fn follow(&self, value: Value, operators: &[&TraversalOperator], span: &Span) -> Evaluated {
        let Some((first, rest)) = operators.split_first() else { return Ok(value) };
        self.budget.step(span)?;
        let next = match first {
            TraversalOperator::GetAttr(name) => member(value, name.as_str(), span)?,
            TraversalOperator::Index(index) => match (value, self.evaluate(index)?) {
                (Value::Object(mut object), key) => {
                    let key = key.to_text().unwrap_or_default();
                    object.remove(&key).ok_or_else(|| no_key(&key, object.keys(), span))?
                }
                (list, index) => element(list, &index, span)?,
            },
            TraversalOperator::LegacyIndex(index) => element(value, &Value::Int(i128::from(*index.value())), span)?,
            TraversalOperator::FullSplat(_) => return self.splat(value, rest, span),
            TraversalOperator::AttrSplat(_) => {
                let is_attribute = |operator: &&&TraversalOperator| matches!(operator, TraversalOperator::GetAttr(_));
                let (inside, after) = rest.split_at(rest.iter().take_while(is_attribute).count());
                let values = self.splat(value, inside, span)?;
                return self.follow(values, after, span);
            }
        };
        self.follow(next, rest, span)
    }

    /// `list[*].name`: of each element; of null nothing, and of what is no list itself.
    fn splat(&self, value: Value, operators: &[&TraversalOperator], span: &Span) -> Evaluated {
        let elements = match value {
            Value::List(list) => list,
            Value::Null => Vec::new(),
            other => vec![other],
        };
        let values = elements.into_iter().map(|element| self.follow(element, operators, span));
        values.collect::<Evaluated<_>>().map(Value::List)
    }

    fn for_each(&self, each: &ForExpr, span: &Span) -> Evaluated {
        let collection = self.evaluate(&each.intro.collection_expr)?;
        let (key_name, value_name) = (&each.intro.key_var, each.intro.value_var.as_str());
        let key_name = key_name.as_ref().map(|name| name.as_str());
        let mut object: BTreeMap<String, Value> = BTreeMap::new();
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
                Fault::new(span_of(key_expression, span), format!("a key is a string, not {}", key.kind()))
            })?;
            if each.grouping {
                match object.entry(key).or_insert_with(|| Value::List(Vec::new())) {
                    Value::List(group) => group.push(value),
                    _ => return Err(Fault::new(span.clone(), "a group is a list")),
                }
            } else if object.insert(key.clone(), value).is_some() {
                let fault = Fault::new(span_of(key_expression, span), format!("the key `{key}` is there twice"));
                return Err(fault.advise("put `...` behind the value: values with the same key become a list"));
            }
        }
        Ok(if each.key_expr.is_some() { Value::Object(object) } else { Value::List(list) })
    }

    fn loop_scope(&self, key_name: Option<&str>, value_name: &str, key: Value, value: Value) -> Scope<'_> {
        let key = key_name.map(|name| (name.to_owned(), key));
        self.inner(key.into_iter().chain([(value_name.to_owned(), value)]))
    }

    fn call(&self, call: &FuncCall, span: &Span) -> Evaluated {
        let name = call.name.name.as_str();
        if !call.name.namespace.is_empty() {
            return Err(Fault::new(span.clone(), "functions of providers do not exist here"));
        }
        // These evaluate what they are given themselves: what fails in it is no failure.
        match name {
            "try" => return functions::attempt(self, call, span),
            "can" => return Ok(Value::Bool(call.args.iter().all(|argument| self.evaluate(argument).is_ok()))),
            _ => {}
        }
        let mut arguments = Vec::with_capacity(call.args.len());
        for (at, argument) in call.args.iter().enumerate() {
            let value = self.evaluate(argument)?;
            match value {
                Value::List(list) if call.args.expand_final() && at + 1 == call.args.len() => arguments.extend(list),
                value => arguments.push(value),
            }
        }
        functions::call(name, &arguments, self.outside, span)
    }
}

fn not_to_loop_over(collection: &Expression, span: &Span) -> Fault {
    Fault::new(span_of(collection, span), "`for` takes a list or an object")
}

fn member(value: Value, name: &str, span: &Span) -> Evaluated {
    match value {
        Value::Object(mut object) => object.remove(name).ok_or_else(|| no_key(name, object.keys(), span)),
        other => Err(Fault::new(span.clone(), format!("{} has no `{name}`", other.kind()))),
    }
}

fn no_key<'k>(key: &str, keys: impl Iterator<Item = &'k String>, span: &Span) -> Fault {
    let fault = Fault::new(span.clone(), format!("there is no `{key}`"));
    let keys: Vec<&str> = keys.map(String::as_str).take(20).collect();
    if keys.is_empty() { fault } else { fault.advise(format!("there is: {}", keys.join(", "))) }
}

fn element(value: Value, index: &Value, span: &Span) -> Evaluated {
    let Value::List(mut list) = value else {
        return Err(Fault::new(span.clone(), format!("{} has no elements", value.kind())));
    };
    let at = match index.to_number() {
        Some(Value::Int(n)) => usize::try_from(n).ok().filter(|at| *at < list.len()),
        _ => None,
    };
    let missing = || Fault::new(span.clone(), format!("the list has {} elements, and not this one", list.len()));
    let at = at.ok_or_else(missing)?;
    Ok(list.swap_remove(at))
}

/// Where an expression stands; what the parser gives no place has that of what is around it.
fn span_of(expression: &Expression, around: &Span) -> Span {
    expression.span().unwrap_or_else(|| around.clone())
}

#[cfg(test)]
mod tests;
