//! `dynamic "NAME" { for_each = ..., content { ... } }`: a block NAME for each element.

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body};

use super::{HclLowering, label_of};
use crate::jobspec::diagnostic::{Span, quote};
use crate::jobspec::evaluate::scope::EvaluationScope;
use crate::jobspec::evaluate::value::HclValue;
use crate::jobspec::tree::{Entry, Form, Label, Literal, ValueNode};

impl HclLowering<'_, '_> {
    /// Each block is paid for: with the last step or byte no more is expanded.
    pub(super) fn dynamic(&self, block: &Block, scope: &EvaluationScope<'_>) -> Vec<Entry> {
        let place = block.ident.span().or(block.span()).unwrap_or(0..0);
        let wrong = |message: &str| {
            let advice = "dynamic \"NAME\" { for_each = [...], content { ... } }".to_owned();
            self.problems.error(&place, "", message, Some(advice));
            Vec::new()
        };
        let (Some(name), Some(for_each)) = (block.labels.first(), block.body.get_attribute("for_each")) else {
            return wrong("a dynamic block has a name and `for_each`");
        };
        let Some(content) = block.body.get_blocks("content").next() else {
            return wrong("a dynamic block has a `content`");
        };
        let known = ["for_each", "iterator", "labels"];
        if let Some(other) = block.body.attributes().find(|attribute| !known.contains(&attribute.key.as_str())) {
            return wrong(&format!("a dynamic block has no {}", quote(other.key.as_str())));
        }
        let iterator = match block.body.get_attribute("iterator").map(|attribute| &attribute.value) {
            Some(Expression::Variable(name)) => name.as_str(),
            Some(_) => return wrong("`iterator` is a word without quotes"),
            None => name.as_str(),
        };
        let elements = match scope.evaluate(&for_each.value) {
            Ok(value) => value,
            Err(fault) => {
                self.fault(fault);
                return Vec::new();
            }
        };
        let Some(elements) = elements.pairs() else { return wrong("`for_each` is a list, a set or an object") };
        let label = label_of(name, &place);
        let written = block.span().map_or(0, |span| span.len());
        let mut blocks = Vec::new();
        for (key, value) in elements {
            let each = HclValue::Object([("key".to_owned(), key), ("value".to_owned(), value)].into());
            let scope = scope.inner([(iterator.to_owned(), each)]);
            if let Err(fault) = scope.pay_block(&place, written) {
                self.fault(fault);
                break;
            }
            let labels = match labels(&block.body, &label.span, &scope) {
                Ok(Some(labels)) => labels,
                Ok(None) => return wrong("`labels` is a list of strings"),
                Err(fault) => {
                    self.fault(fault);
                    return blocks;
                }
            };
            let inner = self.body(&content.body, Some(&scope));
            let value = ValueNode { span: content.span().unwrap_or(place.clone()), value: Literal::Object(inner) };
            blocks.extend(self.entry(&label.text, label.span.clone(), Form::Block, labels, value));
        }
        blocks
    }
}

/// `None`: they are no list of strings.
fn labels(body: &Body, span: &Span, scope: &EvaluationScope<'_>) -> Result<Option<Vec<Label>>, super::EvaluationFault> {
    let Some(attribute) = body.get_attribute("labels") else { return Ok(Some(Vec::new())) };
    let value = scope.evaluate(&attribute.value)?;
    let Some(list) = value.elements() else { return Ok(None) };
    let label = |value: &HclValue| Some(Label { text: value.to_text()?, span: span.clone() });
    Ok(list.iter().map(label).collect())
}
