//! What a job, group or task asks of the node on which it runs: constraints, which must hold, and affinities, which
//! need not.
//!
//! ```text
//! constraint { attribute = "${attr.kernel.name}"  value = "linux" } ── holds(NodeValues) ──> met, or the node's value
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::attribute::Attribute;
use super::attributes::Attributes;
use super::host::NodeInfo;
use super::operator::Operator;

/// What a node is, by the name in a reference: `attr.kernel.name`, `node.class`, `meta.rack`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeValues(BTreeMap<String, Attribute>);

impl NodeValues {
    pub fn new(node: &NodeInfo, known: &Attributes) -> NodeValues {
        // Nomad's node attributes are texts: a number has no unit.
        let plain = |value: &Attribute| match value {
            Attribute::Bool(value) => Attribute::Bool(*value),
            other => Attribute::Text(other.bare()),
        };
        let of_host = known.iter().map(|(name, value)| (format!("attr.{name}"), plain(value)));
        let of_meta = node.identity.meta.iter().map(|(key, value)| (format!("meta.{key}"), value.as_str().into()));
        let of_node = node.values().into_iter().map(|(name, value)| (name.to_owned(), Attribute::Text(value)));
        NodeValues(of_host.chain(of_meta).chain(of_node).collect())
    }

    /// A text, or what the node has for a reference that is all of it. `None`: it has nothing.
    pub fn text_of(&self, target: &str) -> Option<String> {
        self.resolve(target).map(|value| value.bare())
    }

    /// What a target stands for: a reference the node's value, absent where it has none; any other text itself.
    fn resolve(&self, target: &str) -> Option<Attribute> {
        match target.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => self.0.get(name.trim()).cloned(),
            None => Some(target.into()),
        }
    }
}

/// `${attr.kernel.name}` `=` `linux`: both sides may be references or texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    pub attribute: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
}

impl Comparison {
    /// As Nomad's feasibility checker: texts are equal or not; `<` and its like compare numbers where both are, else
    /// texts.
    pub fn holds(&self, node: &NodeValues) -> bool {
        let there = node.resolve(&self.attribute);
        let Some(requested) = node.resolve(&self.value) else {
            // The value is absent: it differs from what is there, and nothing else can be said of it.
            return self.operator == Operator::NotEqual && there.is_some()
                || !self.operator.takes_value() && self.operator.holds(there.as_ref(), "", compare);
        };
        self.operator.holds(there.as_ref(), &requested.bare(), compare)
    }

    /// `${attr.cpu.arch} is amd64`, `this node has no ${meta.rack}`: of each side that is a reference.
    pub fn found(&self, node: &NodeValues) -> String {
        let is_reference = |side: &&str| side.starts_with("${");
        let sides = [self.attribute.as_str(), self.value.as_str()].into_iter().filter(is_reference);
        let found = sides.map(|side| match node.resolve(side) {
            Some(value) => format!("{side} is {}", value.bare()),
            None => format!("this node has no {side}"),
        });
        found.collect::<Vec<_>>().join(", ")
    }
}

fn compare(there: &Attribute, requested: &str) -> Option<Ordering> {
    // Nomad's drivers say 1, ours true.
    if let Attribute::Bool(value) = there
        && matches!(requested, "1" | "0")
    {
        return Some(value.cmp(&(requested == "1")));
    }
    let there = there.bare();
    if there == requested {
        return Some(Ordering::Equal);
    }
    let whole = there.parse::<i64>().ok().zip(requested.parse::<i64>().ok()).map(|(one, two)| one.cmp(&two));
    let number =
        || there.parse::<f64>().ok().zip(requested.parse::<f64>().ok()).and_then(|(one, two)| one.partial_cmp(&two));
    let order = whole.or_else(number).unwrap_or_else(|| there.as_str().cmp(requested));
    // `1.0` and `1` are different texts.
    Some(if order.is_eq() { there.as_str().cmp(requested) } else { order })
}

impl fmt::Display for Comparison {
    /// `${attr.kernel.name} = linux`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attribute, self.operator.as_str())?;
        if self.operator.takes_value() { write!(f, " {}", self.value) } else { Ok(()) }
    }
}

/// What must hold for an alloc to be placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeConstraint {
    Holds(Comparison),
    /// No two allocs on one node.
    DistinctHosts,
    /// At most `limit` allocs on nodes with the same value.
    DistinctProperty {
        property: String,
        limit: u64,
    },
}

/// A comparison that need not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAffinity {
    #[serde(flatten)]
    pub comparison: Comparison,
    /// -100 to 100, without 0.
    pub weight: i8,
}

impl NodeConstraint {
    /// Whether an alloc with so many before it, of those that the constraint is about, can be here.
    pub fn holds(&self, node: &NodeValues, before: u64) -> bool {
        match self {
            NodeConstraint::Holds(comparison) => comparison.holds(node),
            NodeConstraint::DistinctHosts => before == 0,
            NodeConstraint::DistinctProperty { property, limit } => node.resolve(property).is_some() && before < *limit,
        }
    }
}

impl fmt::Display for NodeConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeConstraint::Holds(comparison) => comparison.fmt(f),
            NodeConstraint::DistinctHosts => f.write_str("distinct_hosts"),
            NodeConstraint::DistinctProperty { property, limit: 1 } => write!(f, "distinct_property {property}"),
            NodeConstraint::DistinctProperty { property, limit } => write!(f, "distinct_property {property} {limit}"),
        }
    }
}

/// Promise (Input validation): Each operator of a constraint holds as Nomad's does, and no text panics
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node() -> NodeValues {
        let text = |text: &str| Attribute::Text(text.to_owned());
        let values = [
            ("attr.kernel.name", text("linux")),
            ("attr.kernel.version", text("6.1.0-18-amd64")),
            ("attr.cpu.numcores", text("8")),
            ("attr.load", text("2.5")),
            ("attr.driver.docker", Attribute::Bool(true)),
            ("attr.os.signals", text("SIGHUP, SIGINT,SIGTERM")),
            ("meta.rack", text("r1")),
            ("meta.other_rack", text("r1")),
            ("meta.release", text("1.4.2")),
            ("node.class", text("")),
        ];
        NodeValues(values.map(|(name, value)| (name.to_owned(), value)).into())
    }
    fn holds(attribute: &str, operator: &str, value: &str) -> bool {
        let operator = Operator::named(operator).unwrap_or_else(|| panic!("{operator}"));
        Comparison { attribute: attribute.to_owned(), operator, value: value.to_owned() }.holds(&node())
    }

    #[test]
    fn every_operator_holds_as_nomads_does() {
        for (attribute, operator, value, expected) in [
            ("${attr.kernel.name}", "=", "linux", true),
            ("${attr.kernel.name}", "==", "linux", true),
            ("${attr.kernel.name}", "is", "windows", false),
            ("${attr.kernel.name}", "!=", "windows", true),
            ("${attr.kernel.name}", "not", "linux", false),
            ("${ meta.rack }", "=", "r1", true),
            ("${meta.rack}", "=", "${meta.other_rack}", true),
            ("${meta.rack}", "=", "${meta.none}", false),
            ("${meta.rack}", "!=", "${meta.none}", true),
            ("${meta.none}", "=", "${meta.none}", false),
            ("${meta.none}", "!=", "${meta.none}", false),
            ("${meta.none}", "=", "x", false),
            ("${meta.none}", "!=", "x", true),
            ("${meta.none}", "<", "x", false),
            ("${meta.none}", "regexp", ".*", false),
            ("${meta.none}", "version", ">= 0", false),
            ("${meta.none}", "set_contains", "x", false),
            ("${meta.none}", "is_set", "", false),
            ("${meta.none}", "is_not_set", "", true),
            ("${meta.rack}", "is_set", "", true),
            ("${meta.rack}", "is_not_set", "", false),
            ("${node.class}", "is_set", "", true),
            // A text that is no reference stands for itself.
            ("kernel.name", "=", "linux", false),
            ("linux", "=", "${attr.kernel.name}", true),
            ("${unknown.kind}", "is_set", "", false),
            ("${attr.cpu.numcores}", ">", "16", false),
            ("${attr.cpu.numcores}", "<", "16", true),
            ("${attr.cpu.numcores}", ">=", "8", true),
            ("${attr.cpu.numcores}", "<=", "8", true),
            ("${attr.cpu.numcores}", ">", "7.5", true),
            ("${attr.load}", "<", "10", true),
            ("${attr.cpu.numcores}", "=", "8.0", false),
            // Words have the order of their letters.
            ("${meta.rack}", "<", "r2", true),
            ("${attr.driver.docker}", "=", "1", true),
            ("${attr.driver.docker}", "=", "true", true),
            ("${attr.driver.docker}", "=", "0", false),
            ("${attr.driver.docker}", "!=", "1", false),
            ("${meta.release}", "version", ">= 1.4, < 2", true),
            ("${meta.release}", "version", "< 1.4", false),
            ("${attr.kernel.version}", "version", ">= 4", false),
            ("${attr.kernel.version}", "semver", ">= 4", true),
            ("${attr.kernel.version}", "regexp", "^6\\.", true),
            ("${attr.kernel.version}", "regexp", "^5", false),
            ("${attr.os.signals}", "set_contains", "SIGTERM,SIGINT", true),
            ("${attr.os.signals}", "set_contains_all", "SIGTERM,SIGKILL", false),
            ("${attr.os.signals}", "set_contains_any", "SIGTERM,SIGKILL", true),
            ("${attr.os.signals}", "set_contains_any", "SIGKILL", false),
        ] {
            assert_eq!(holds(attribute, operator, value), expected, "{attribute} {operator} {value}");
        }
    }

    #[test]
    fn distinct_hosts_and_properties_count_the_allocs_before() {
        let at_most = |limit| NodeConstraint::DistinctProperty { property: "${meta.rack}".to_owned(), limit };
        let absent = NodeConstraint::DistinctProperty { property: "${meta.none}".to_owned(), limit: 9 };
        for (constraint, before, expected) in [
            (NodeConstraint::DistinctHosts, 0, true),
            (NodeConstraint::DistinctHosts, 1, false),
            (at_most(1), 0, true),
            (at_most(1), 1, false),
            (at_most(2), 1, true),
            (at_most(2), 2, false),
            (absent, 0, false),
        ] {
            assert_eq!(constraint.holds(&node(), before), expected, "{constraint} {before}");
        }
    }

    proptest! {
        #[test]
        fn no_comparison_panics(attribute in ".{0,20}", value in ".{0,20}", at in 0..Operator::ALL.len()) {
            let operator = Operator::ALL[at];
            let reference = format!("${{{attribute}}}");
            for attribute in [attribute, reference, "${attr.cpu.numcores}".to_owned()] {
                let comparison = Comparison { attribute, operator, value: value.clone() };
                let _ = (comparison.holds(&node()), comparison.found(&node()), operator.check(&value));
            }
        }

        /// Of two values that are there exactly one of less, equal and greater holds.
        #[test]
        fn two_texts_have_one_order(one in "[0-9a-c.]{1,4}", two in "[0-9a-c.]{1,4}") {
            let holding = ["<", "=", ">"].into_iter().filter(|operator| holds(&one, operator, &two)).count();
            prop_assert_eq!(holding, 1);
        }
    }
}
