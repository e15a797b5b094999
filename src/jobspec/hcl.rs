//! HCL into the tree. In job files expressions are evaluated; in other files what would have to be computed is refused.

mod dynamic;

use std::cell::Cell;
use std::collections::BTreeMap;

use hcl_edit::Span as _;
use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{self, BlockLabel, Structure};
use hcl_edit::template::{Element, Interpolation, Strip, Template};

use super::diagnostic::{Problems, Span, quote};
use super::evaluate::basis::{Budget, EvaluationFault, ExternalInputs};
use super::evaluate::inputs::GivenVariables;
use super::evaluate::scope::{EvaluationScope, path};
use super::evaluate::value::HclValue;
use super::evaluate::variables;
use super::template::as_template;
use super::tree::{Entry, Form, Label, Literal, StanzaBody, ValueNode, escape, number, text_value};
use super::unclosed::UnclosedDelimiter;
use super::{syntax, unclosed};

/// How often a file is read again because of keys given twice.
const MAX_ROUNDS: usize = 50;

/// What expressions are evaluated with.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub given: &'a GivenVariables,
    pub outside: &'a dyn ExternalInputs,
}

/// `None` if the syntax is broken: reported. `inputs`: of a job file.
pub(super) fn read(problems: &Problems<'_>, inputs: Option<Inputs<'_>>) -> Option<StanzaBody> {
    let mut text = problems.source().text().to_owned();
    // A byte order mark, kept as blanks: every place stays where it is.
    if text.starts_with('\u{feff}') {
        text.replace_range(..3, "   ");
    }
    // Where keys stand that were given twice, and how many other names were tried for each.
    let mut repeated = BTreeMap::new();
    for round in 0.. {
        match hcl_edit::parser::parse_body(&text) {
            Ok(body) => {
                return Some(HclLowering { problems, repeated, has_ended: Cell::new(false) }.file(&body, inputs));
            }
            Err(error) => {
                // The parser stops at a key given twice. Such a key is reported here and renamed, at the same length,
                // so that the rest of the file is read as well.
                let offset = error.location().offset();
                let again = round < MAX_ROUNDS && error.message().contains("redefined");
                if again && rename(&mut text, offset, &mut repeated, problems) {
                    continue;
                }
                broken(&text, offset, error.message(), problems);
                break;
            }
        }
    }
    None
}

/// Reports where the syntax is broken: where something was begun that has no end, if that is why.
fn broken(text: &str, offset: usize, message: &str, problems: &Problems<'_>) {
    if let Some(span) = unclosed::find(text, offset, true) {
        let advice = Some("end it with `\"` on its line".to_owned());
        return problems.error(&span, "", "HCL syntax: this text has no end quote", advice);
    }
    if let Some((span, why)) = syntax::foreign(text, offset, message) {
        let begin = text.get(span.start..span.start + 1).unwrap_or("$");
        let advice = Some(format!("for the two characters themselves write `{begin}{begin}{{`"));
        return problems.error(&span, "", format!("HCL syntax: {why}"), advice);
    }
    let at_the_end = text.get(offset..).is_none_or(|rest| rest.trim().is_empty());
    match unclosed::find_open(text, offset) {
        Some(UnclosedDelimiter::Heredoc(span, word)) if message.contains("heredoc") || at_the_end => {
            let advice = Some(format!("it ends at a line with {word} alone"));
            problems.error(&span, "", "HCL syntax: this heredoc has no end", advice);
        }
        Some(UnclosedDelimiter::Bracket(span, '[')) if message.contains("`]`") => {
            problems.error(&span, "", "HCL syntax: this list is not closed", Some("end it with `]`".to_owned()));
        }
        Some(UnclosedDelimiter::Bracket(span, '{')) if at_the_end => {
            problems.error(&span, "", "HCL syntax: this brace is not closed", Some("end it with `}`".to_owned()));
        }
        _ => {
            let message = format!("HCL syntax: {message}");
            problems.error(&(offset..offset + 1), "", message, syntax::advice(text, offset));
        }
    }
}

fn rename(text: &mut String, offset: usize, repeated: &mut BTreeMap<usize, u32>, problems: &Problems<'_>) -> bool {
    let Some(rest) = text.get(offset..) else { return false };
    let start = offset + usize::from(rest.starts_with('"'));
    let is_key = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let length = text.get(start..).map_or(0, |rest| rest.find(|c| !is_key(c)).unwrap_or(rest.len()));
    let span = start..start + length;
    if length == 0 {
        return false;
    }
    if !repeated.contains_key(&start) {
        let key = problems.source().slice(&span);
        problems.error(&span, "", format!("{} is given twice", quote(key)), Some("keep one of them".to_owned()));
    }
    // The file's own short names may be taken, so one key may need several rounds.
    let tries = repeated.entry(start).or_default();
    let mut n = *tries;
    *tries += 1;
    let mut name = vec![b'Z'; length];
    for byte in name.iter_mut().rev() {
        let letter = u8::try_from(n % 26).unwrap_or(0);
        *byte = b'Z' - letter;
        n /= 26;
    }
    if n > 0 {
        return false;
    }
    text.replace_range(span, &String::from_utf8_lossy(&name));
    true
}

struct HclLowering<'p, 's> {
    problems: &'p Problems<'s>,
    /// Where keys stand that were given twice: left out.
    repeated: BTreeMap<usize, u32>,
    /// That steps or bytes are used up was reported: all that follows from it is not.
    has_ended: Cell<bool>,
}

impl HclLowering<'_, '_> {
    fn file(&self, body: &structure::Body, inputs: Option<Inputs<'_>>) -> StanzaBody {
        let Some(Inputs { given, outside }) = inputs else { return self.body(body, None) };
        let budget = Budget::default();
        let mut scope = EvaluationScope::new(outside, &budget);
        let sensitive = variables::declare(body, given, &mut scope, &mut |fault| self.fault(fault));
        self.problems.keep_secret(sensitive);
        let mut lowered = self.body(body, Some(&scope));
        lowered
            .entries
            .retain(|entry| entry.form != Form::Block || !matches!(&*entry.key, "variable" | "variables" | "locals"));
        drop(scope);
        // What is left of it is no job: nothing follows from what is missing.
        if self.has_ended.get() {
            lowered.entries.clear();
        }
        for EvaluationFault { span, message, suggestion, .. } in budget.into_warnings() {
            self.problems.warn(&span, "", message, suggestion);
        }
        lowered
    }

    fn fault(&self, EvaluationFault { span, message, suggestion, is_end }: EvaluationFault) {
        if !(is_end && self.has_ended.replace(true)) {
            self.problems.error(&span, "", message, suggestion);
        }
    }

    fn body(&self, body: &structure::Body, scope: Option<&EvaluationScope<'_>>) -> StanzaBody {
        let entries = body.iter().flat_map(|structure| match (structure, scope) {
            (Structure::Attribute(attribute), _) => {
                let value = self.node(&attribute.value, scope);
                let key_span = attribute.key.span().unwrap_or(value.span.clone());
                self.entry(attribute.key.as_str(), key_span, Form::Attribute, Vec::new(), value).into_iter().collect()
            }
            // Read already.
            (Structure::Block(block), Some(_))
                if matches!(block.ident.as_str(), "variable" | "variables" | "locals") =>
            {
                Vec::new()
            }
            (Structure::Block(block), _) => {
                let key_span = block.ident.span().or(block.span()).unwrap_or(0..0);
                if let Some(scope) = scope {
                    if let Err(fault) = scope.pay_block(&key_span, 0) {
                        self.fault(fault);
                        return Vec::new();
                    }
                    if block.ident.as_str() == "dynamic" {
                        return self.dynamic(block, scope);
                    }
                }
                let labels = block.labels.iter().map(|label| label_of(label, &key_span)).collect();
                let inner = self.body(&block.body, scope);
                let value = ValueNode { span: block.span().unwrap_or(key_span.clone()), value: Literal::Object(inner) };
                self.entry(block.ident.as_str(), key_span, Form::Block, labels, value).into_iter().collect()
            }
        });
        StanzaBody { entries: entries.collect(), span: body.span().unwrap_or(0..0) }
    }

    fn entry(&self, key: &str, key_span: Span, form: Form, labels: Vec<Label>, value: ValueNode) -> Option<Entry> {
        let given_twice =
            self.repeated.contains_key(&key_span.start) || self.repeated.contains_key(&(key_span.start + 1));
        (!given_twice).then(|| Entry { key: key.to_owned(), key_span, form, labels, value })
    }

    fn node(&self, expression: &Expression, scope: Option<&EvaluationScope<'_>>) -> ValueNode {
        let span = expression.span().unwrap_or(0..0);
        if let Some(Err(fault)) = scope.map(|scope| scope.pay_value(&span)) {
            self.fault(fault);
            return ValueNode { span, value: Literal::Broken };
        }
        if self.spans_lines(expression, &span) {
            let advice = Some("for a text of several lines use a heredoc: <<EOF".to_owned());
            self.problems.error(&span, "", "a text in quotes ends on its line", advice);
            return ValueNode { span, value: Literal::Broken };
        }
        let value = match expression {
            Expression::StringTemplate(template) if is_computed(template, scope) => {
                self.computed(expression, template, &span, scope)
            }
            Expression::HeredocTemplate(heredoc) if is_computed(&heredoc.template, scope) => {
                self.computed(expression, &heredoc.template, &span, scope)
            }
            Expression::Null(_) => Literal::Null,
            Expression::Bool(b) => Literal::Bool(*b.value()),
            Expression::Number(n) => {
                let text = self.problems.source().slice(&span);
                let text = if text.is_empty() { n.value().to_string() } else { text.to_owned() };
                number(self.problems, &span, &text)
            }
            Expression::String(s) => text_value(self.problems, &span, literal(s.value(), scope)),
            Expression::StringTemplate(template) => self.template(&span, template, scope),
            Expression::HeredocTemplate(heredoc) => self.template(&span, &heredoc.template, scope),
            Expression::Array(list) => Literal::List(list.iter().map(|e| self.node(e, scope)).collect()),
            Expression::Object(object) => {
                let entries = object.iter().filter_map(|(key, value)| {
                    let value = self.node(value.expr(), scope);
                    self.object_entry(key, &value, scope)
                });
                Literal::Object(StanzaBody { entries: entries.collect(), span: span.clone() })
            }
            Expression::Parenthesis(inner) => return self.node(inner.inner(), scope),
            _ if scope.is_some() => self.evaluated(expression, &span, scope),
            other => {
                let (message, suggestion) = refusal(other, self.problems.source().slice(&span));
                self.problems.error(&span, "", message, suggestion);
                Literal::Broken
            }
        };
        ValueNode { span, value }
    }

    /// A text with parts that are known now. References that only a task's start knows stay in it.
    fn computed(
        &self,
        whole: &Expression,
        template: &Template,
        span: &Span,
        scope: Option<&EvaluationScope<'_>>,
    ) -> Literal {
        let is_piece = |element: &Element| match element {
            Element::Literal(_) => true,
            Element::Interpolation(interpolation) => interpolation.strip == Strip::None,
            Element::Directive(_) => false,
        };
        let Some(known) = scope.filter(|_| template.iter().count() > 1 && template.iter().all(is_piece)) else {
            return self.evaluated(whole, span, scope);
        };
        let mut text = String::new();
        for element in template.iter() {
            let at = element.span().unwrap_or(span.clone());
            match element {
                Element::Literal(piece) => text.push_str(&literal(piece.value(), scope)),
                Element::Interpolation(interpolation) => match known.unknown(&interpolation.expr) {
                    Some(_) if text.ends_with('$') => {
                        self.dollar(&at);
                        return Literal::Broken;
                    }
                    Some(reference) => text.push_str(&format!("${{{reference}}}")),
                    None => match known.text_of(&interpolation.expr) {
                        Ok(value) => text.push_str(&as_template(&value)),
                        Err(fault) => {
                            self.fault(fault);
                            return Literal::Broken;
                        }
                    },
                },
                Element::Directive(_) => return Literal::Broken,
            }
        }
        text_value(self.problems, span, text)
    }

    fn dollar(&self, at: &Span) {
        let advice = Some("put another character between them".to_owned());
        self.problems.error(at, "", "a `$` directly before a `${...}` is not supported", advice);
    }

    /// HCL takes a line end in quotes only inside of `${...}`.
    fn spans_lines(&self, expression: &Expression, span: &Span) -> bool {
        match expression {
            Expression::String(_) => self.problems.source().slice(span).contains('\n'),
            Expression::StringTemplate(template) => template.iter().any(|element| match element {
                Element::Literal(literal) => {
                    literal.span().is_some_and(|span| self.problems.source().slice(&span).contains('\n'))
                }
                Element::Interpolation(_) | Element::Directive(_) => false,
            }),
            _ => false,
        }
    }

    fn evaluated(&self, expression: &Expression, span: &Span, scope: Option<&EvaluationScope<'_>>) -> Literal {
        let evaluated = scope.map(|scope| {
            let value = scope.evaluate(expression)?;
            scope.pay_values(span, value.count()).map(|()| value)
        });
        match evaluated {
            Some(Ok(value)) => self.literal(span, value),
            Some(Err(fault)) => {
                self.fault(fault);
                Literal::Broken
            }
            None => Literal::Broken,
        }
    }

    /// All of it stands where the expression does.
    fn literal(&self, span: &Span, value: HclValue) -> Literal {
        let node = |value: HclValue| ValueNode { span: span.clone(), value: self.literal(span, value) };
        match value {
            HclValue::Null => Literal::Null,
            HclValue::Bool(b) => Literal::Bool(b),
            HclValue::Int(n) => Literal::Int(n),
            HclValue::Float(n) => Literal::Float(n),
            HclValue::Text(text) => text_value(self.problems, span, as_template(&text)),
            HclValue::List(list) | HclValue::Set(list) => Literal::List(list.into_iter().map(node).collect()),
            HclValue::Object(object) => {
                let entries = object.into_iter().map(|(key, value)| Entry {
                    key,
                    key_span: span.clone(),
                    form: Form::Attribute,
                    labels: Vec::new(),
                    value: node(value),
                });
                Literal::Object(StanzaBody { entries: entries.collect(), span: span.clone() })
            }
        }
    }

    fn object_entry(&self, key: &ObjectKey, value: &ValueNode, scope: Option<&EvaluationScope<'_>>) -> Option<Entry> {
        let (text, span) = match key {
            ObjectKey::Ident(ident) => (ident.to_string(), ident.span()),
            ObjectKey::Expression(Expression::String(s)) => (s.value().clone(), s.span()),
            ObjectKey::Expression(other) if scope.is_some() => {
                let key = match scope?.evaluate(other) {
                    Ok(key) => key.to_text(),
                    Err(fault) => {
                        self.fault(fault);
                        return None;
                    }
                };
                let span = other.span();
                if key.is_none() {
                    let place = span.unwrap_or(value.span.clone());
                    self.problems.error(&place, "", "a key must be a string", None);
                    return None;
                }
                (key?, span)
            }
            ObjectKey::Expression(other) => {
                let span = other.span().unwrap_or(value.span.clone());
                self.problems.error(&span, "", "a key must be a word or a text in quotes", None);
                return None;
            }
        };
        self.entry(&text, span.unwrap_or(value.span.clone()), Form::Attribute, Vec::new(), value.clone())
    }

    fn template(&self, span: &Span, template: &Template, scope: Option<&EvaluationScope<'_>>) -> Literal {
        let mut text = String::new();
        for element in template.iter() {
            let at = element.span().unwrap_or(span.clone());
            match element {
                Element::Literal(piece) => text.push_str(&literal(piece.value(), scope)),
                Element::Interpolation(interpolation) => match self.reference(&at, interpolation, scope.is_some()) {
                    Some(_) if text.ends_with('$') => {
                        self.dollar(&at);
                        return Literal::Broken;
                    }
                    Some(reference) => {
                        text.push_str("${");
                        text.push_str(&reference);
                        text.push('}');
                    }
                    None => return Literal::Broken,
                },
                Element::Directive(_) => {
                    let advice = Some("for the two characters themselves write `%%{`".to_owned());
                    self.problems.error(&at, "", "template directives (`%{`) are not supported", advice);
                    return Literal::Broken;
                }
            }
        }
        text_value(self.problems, span, text)
    }

    /// `is_job`: as in Nomad, what nothing is known of is text.
    fn reference(&self, at: &Span, interpolation: &Interpolation, is_job: bool) -> Option<String> {
        if interpolation.strip != Strip::None {
            let advice = Some("write the reference without `~`".to_owned());
            self.problems.error(at, "", "strip markers (`~`) are not supported", advice);
            return None;
        }
        let source = self.problems.source().slice(&interpolation.expr.span().unwrap_or(at.clone()));
        let found = path(&interpolation.expr);
        if is_job && !source.contains(['"', '\n']) && matches!(interpolation.expr, Expression::Traversal(_)) {
            return found.or_else(|| Some(source.to_owned()));
        }
        if found.is_none() || is_variable(&interpolation.expr) {
            let (message, suggestion) = match &interpolation.expr {
                // Indices and splats.
                traversal @ Expression::Traversal(_) if !is_variable(traversal) => {
                    (format!("{} refers to nothing that is known here", quote(source)), None)
                }
                other => refusal(other, source),
            };
            self.problems.error(at, "", message, suggestion);
            return None;
        }
        found
    }
}

fn label_of(label: &BlockLabel, around: &Span) -> Label {
    let span = match label {
        BlockLabel::Ident(ident) => ident.span(),
        BlockLabel::String(text) => text.span(),
    };
    Label { text: label.as_str().to_owned(), span: span.unwrap_or_else(|| around.clone()) }
}

/// What stands in quotes. In a job file Nomad takes `$${NOMAD_DC}` as it takes `${NOMAD_DC}`: both are the same text
/// once they are read.
fn literal(text: &str, scope: Option<&EvaluationScope<'_>>) -> String {
    if scope.is_some() { as_template(text) } else { escape(text) }
}

/// Something in it is known now; else it is left to a task's start as it stands.
fn is_computed(template: &Template, scope: Option<&EvaluationScope<'_>>) -> bool {
    let is_left = |element: &Element| match element {
        Element::Literal(_) => true,
        Element::Directive(_) => false,
        Element::Interpolation(interpolation) => {
            let base = path(&interpolation.expr);
            let base = base.as_deref().and_then(|path| path.split(['.', '[']).next());
            interpolation.strip == Strip::None && base.is_some_and(|base| scope.is_none_or(|scope| !scope.has(base)))
        }
    };
    scope.is_some() && !template.iter().all(is_left)
}

fn is_variable(expression: &Expression) -> bool {
    let Expression::Traversal(traversal) = expression else { return false };
    matches!(&traversal.expr, Expression::Variable(base) if matches!(base.as_str(), "var" | "local"))
}

/// Why an expression is not taken, and what to write.
fn refusal(expression: &Expression, source: &str) -> (String, Option<String>) {
    let literal = Some("write the value itself".to_owned());
    match expression {
        Expression::FuncCall(call) => {
            (format!("HCL functions are not supported: {}", quote(&format!("{}()", call.name.name.as_str()))), literal)
        }
        _ if is_variable(expression) => (format!("HCL variables are not supported: {}", quote(source)), literal),
        Expression::Variable(name) => (
            format!("{} stands without quotes", quote(name.as_str())),
            Some(format!("write it in quotes: \"{}\"", name.as_str())),
        ),
        Expression::Traversal(_) => (
            format!("{} stands without quotes", quote(source)),
            Some("a reference is written inside a text: \"${...}\"".to_owned()),
        ),
        Expression::Conditional(_) => ("HCL conditions (`a ? b : c`) are not supported".to_owned(), literal),
        Expression::ForExpr(_) => ("HCL `for` expressions are not supported".to_owned(), literal),
        _ => (format!("HCL expressions are not supported: {}", quote(source)), literal),
    }
}
