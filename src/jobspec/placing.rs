//! `constraint` and `affinity` of jobs, groups and tasks: what is asked of the node. What they have in common with
//! those of devices stands here as well.

use std::iter::once;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned};
use super::tree::{Literal, StanzaBody};
use super::{limits, words};
use crate::model::constraint::{Comparison, NodeAffinity, NodeConstraint};
use crate::model::demand::Affinity;
use crate::model::job::{JobKind, PlacementRules};
use crate::model::nearest::nearest;
use crate::model::operator::Operator;

/// Words that name operator and value in one.
const SHORT: [(&str, Operator); 6] = [
    ("version", Operator::Version),
    ("semver", Operator::Semver),
    ("regexp", Operator::Regexp),
    ("set_contains", Operator::SetContains),
    ("set_contains_all", Operator::SetContains),
    ("set_contains_any", Operator::SetContainsAny),
];

/// What an operator may be of a constraint alone.
const DISTINCT_HOSTS: &str = "distinct_hosts";
const DISTINCT_PROPERTY: &str = "distinct_property";

/// What a value has to be for an operator.
pub(super) fn comparable(operator: Operator) -> &'static str {
    match operator {
        Operator::Version | Operator::Semver => "write a version: 1.2, or >= 1.2, < 2",
        Operator::Regexp => "write `\\\\` before a character that stands for itself",
        _ => "write a number of at most 64 bits, or a text without a unit",
    }
}

impl Builder<'_> {
    /// Of a job, a group or a task.
    pub(super) fn placing(&self, fields: &Fields<'_>, kind: JobKind) -> PlacementRules {
        let constraints = fields.stanzas("constraint").into_iter();
        let affinities = fields.stanzas("affinity");
        if let (JobKind::System, Some((key, _))) = (kind, affinities.first()) {
            let message = "a job of type `system` takes no `affinity`: it has one alloc on each node";
            fields.error(key, "affinity", message, None);
        }
        PlacementRules {
            constraints: constraints.filter_map(|(key, body)| self.node_constraint(key, body, fields)).collect(),
            affinities: affinities
                .into_iter()
                .filter_map(|(key, body)| self.node_affinity(key, body, fields))
                .collect(),
        }
    }

    fn node_constraint(&self, key: &Span, body: &StanzaBody, outer: &Fields<'_>) -> Option<NodeConstraint> {
        let fields = self.open(body, &words::NODE_CONSTRAINT, outer.path_of("constraint"));
        let operator = fields.entry("operator").and_then(|entry| entry.value.text());
        // Nomad's rule: they are about allocs, and a task is a part of one.
        let distinct = [DISTINCT_HOSTS, DISTINCT_PROPERTY];
        let is_distinct = |word: &&str| fields.entry(word).is_some() || operator == Some(*word);
        if let (Some(word), "task") = (distinct.into_iter().find(is_distinct), outer.stanza_name()) {
            let message = format!("{} is a constraint of a job or a group, not of a task", quote(word));
            fields.error(key, word, message, Some("write the `constraint` in the group".to_owned()));
            return None;
        }
        let hosts = fields.bool(DISTINCT_HOSTS);
        if hosts.as_ref().is_some_and(|at| at.value) || operator == Some(DISTINCT_HOSTS) {
            return Some(NodeConstraint::DistinctHosts);
        }
        if hosts.is_some() && fields.entry("attribute").is_none() {
            let message = "`distinct_hosts = false` constrains nothing";
            fields.error(key, DISTINCT_HOSTS, message, Some("leave the `constraint` out".to_owned()));
            return None;
        }
        let property = fields.template(DISTINCT_PROPERTY);
        if property.is_some() || operator == Some(DISTINCT_PROPERTY) {
            let property = property.or_else(|| target(key, &fields));
            let limit = fields.entry("value").map(|_| fields.integer("value", 1..=limits::COUNT).map(|at| at.value));
            return Some(NodeConstraint::DistinctProperty {
                property: property?.value,
                limit: limit.unwrap_or(Some(1))?,
            });
        }
        self.comparison(key, &fields).map(NodeConstraint::Holds)
    }

    fn node_affinity(&self, key: &Span, body: &StanzaBody, outer: &Fields<'_>) -> Option<NodeAffinity> {
        let fields = self.open(body, &words::ANY_AFFINITY, outer.path_of("affinity"));
        let weight = weight(&fields);
        self.comparison(key, &fields).map(|comparison| NodeAffinity { comparison, weight })
    }

    fn comparison(&self, key: &Span, fields: &Fields<'_>) -> Option<Comparison> {
        if let Some((text, word)) = distinct_suggestion(fields) {
            let message = format!("there is no operator {}", quote(&text.value));
            fields.error(&text.span, "operator", message, Some(format!("did you mean `{word}`?")));
            return None;
        }
        let attribute = target(key, fields);
        let (operator, value) = operator_and_value(key, fields)?;
        let attribute = attribute?;
        if let Err(error) = operator.check(&value.value) {
            let message =
                format!("{} cannot be compared by {}: {error}", quote(&value.value), quote(operator.as_str()));
            fields.error(&value.span, "value", message, Some(comparable(operator).to_owned()));
            return None;
        }
        Some(Comparison { attribute: attribute.value, operator, value: value.value })
    }
}

/// A slip in one of the operators that need no attribute, and what was meant.
fn distinct_suggestion(fields: &Fields<'_>) -> Option<(Spanned<String>, &'static str)> {
    let text = fields.entry("operator")?.value.text()?;
    if fields.stanza_name() != words::NODE_CONSTRAINT.name || Operator::named(text).is_some() {
        return None;
    }
    let known = Operator::ALL.into_iter().map(Operator::as_str).chain([DISTINCT_HOSTS, DISTINCT_PROPERTY]);
    let word = nearest(text, known).filter(|word| word.starts_with("distinct_"))?;
    Some((fields.text("operator")?, word))
}

/// The attribute of a node, as it is written: a reference, or a text that stands for itself.
fn target(key: &Span, fields: &Fields<'_>) -> Option<Spanned<String>> {
    if fields.entry("attribute").is_none() {
        let stanza = fields.path().rsplit('.').next().unwrap_or_default();
        let advice = Some("add attribute = \"${attr.kernel.name}\"".to_owned());
        fields.error(key, "attribute", format!("the {} has no `attribute`", quote(stanza)), advice);
    }
    let at = fields.template("attribute")?;
    if !at.value.starts_with("${") {
        let message = format!("{} is no reference: the text itself is compared", quote(&at.value));
        let name = at.value.trim_matches(['$', '{', '}']);
        let advice = Some(format!("write \"${{attr.{}}}\" for the node's value", name.trim_start_matches("attr.")));
        fields.problems().warn(&at.span, &fields.path_of("attribute"), message, advice);
    }
    Some(at)
}

/// Of an affinity.
pub(super) fn weight(fields: &Fields<'_>) -> i8 {
    let weight = fields.signed("weight", -100..=100).map(|at| (i8::try_from(at.value).unwrap_or(0), at.span));
    if let Some((0, span)) = &weight {
        let advice = Some("leave the `affinity` out".to_owned());
        fields.error(span, "weight", "a `weight` of 0 changes nothing", advice);
    }
    weight.map_or(Affinity::WEIGHT, |(weight, _)| weight)
}

/// Written as `operator` and `value`, or in one word. `None`: reported. `key`: where the stanza begins, for what is
/// missing in it.
pub(super) fn operator_and_value(key: &Span, fields: &Fields<'_>) -> Option<(Operator, Spanned<String>)> {
    let mut short = SHORT.iter().filter(|(word, _)| fields.entry(word).is_some());
    let Some((word, operator)) = short.next() else {
        let operator = operator(fields);
        // What is wrong with it is reported, whatever the operator is.
        let value = template_of(fields, "value");
        return value_for(operator?, value, key, fields);
    };
    if let Some((other, _)) = short.next() {
        let at = fields.entry(other).map_or(key, |entry| &entry.key_span);
        let message = format!("{} and {} are two operators", quote(word), quote(other));
        fields.error(at, other, message, Some("write a stanza for each".to_owned()));
        return None;
    }
    Some((*operator, template_of(fields, word)?))
}

/// A text as it is written: `${...}` in it is resolved when it is compared.
fn template_of(fields: &Fields<'_>, key: &str) -> Option<Spanned<String>> {
    fields.entry(key).filter(|entry| !matches!(entry.value.value, Literal::Broken))?;
    fields.template(key)
}

fn value_for(
    operator: Operator,
    value: Option<Spanned<String>>,
    key: &Span,
    fields: &Fields<'_>,
) -> Option<(Operator, Spanned<String>)> {
    let value = value.filter(|at| !at.value.is_empty() || operator == Operator::Regexp);
    match (operator.takes_value(), value) {
        (true, Some(value)) => Some((operator, value)),
        (false, None) => Some((operator, Spanned { value: String::new(), span: key.clone() })),
        (false, Some(value)) => {
            let message = format!("the operator {} takes no `value`", quote(operator.as_str()));
            let advice = "compare with operator = \"=\", or test without a `value` that it is set".to_owned();
            fields.error(&value.span, "value", message, Some(advice));
            None
        }
        (true, None) => {
            let is_wrong = |text: Option<&str>| text.is_none_or(|text| !text.is_empty());
            // One that is there and wrong is reported already.
            if !fields.entry("value").is_some_and(|entry| is_wrong(entry.value.text())) {
                let message = format!("the operator {} needs a `value`", quote(operator.as_str()));
                fields.error(key, "value", message, Some("add value = \"...\"".to_owned()));
            }
            None
        }
    }
}

/// `None`: reported.
fn operator(fields: &Fields<'_>) -> Option<Operator> {
    if fields.entry("operator").is_none() {
        return Some(Operator::Equal);
    }
    let text = fields.text("operator")?;
    if text.value.is_empty() {
        return Some(Operator::Equal);
    }
    let operator = Operator::named(&text.value);
    if operator.is_none() {
        let known = || Operator::ALL.into_iter().map(Operator::as_str);
        let near = nearest(&text.value, known()).map(|word| format!("did you mean `{word}`?"));
        let all = once("known are:").chain(known()).collect::<Vec<_>>().join(" ");
        let message = format!("there is no operator {}", quote(&text.value));
        fields.error(&text.span, "operator", message, near.or(Some(all)));
    }
    operator
}
