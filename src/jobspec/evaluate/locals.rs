//! `locals`: each is evaluated once, after those that it refers to, in whatever order they are written.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use hcl_edit::Span as _;
use hcl_edit::structure::Attribute;

use super::basis::{EvaluationFault, span_of};
use super::references;
use super::scope::EvaluationScope;
use super::value::HclValue;

/// Sets `local`. All that is wrong is reported; what cannot be known is absent.
pub(super) fn set<'b>(
    attributes: impl Iterator<Item = &'b Attribute>,
    scope: &mut EvaluationScope<'_>,
    report: &mut dyn FnMut(EvaluationFault),
) {
    scope.set("local", HclValue::Object(BTreeMap::new()));
    let mut waiting = LocalsGraph::of(attributes);
    while let Some(at) = waiting.next() {
        let attribute = waiting.attributes[at];
        match scope.evaluate(&attribute.value) {
            Ok(value) => scope.set_local(attribute.key.as_str(), value),
            Err(fault) => {
                scope.set_without_value("local", attribute.key.as_str());
                report(fault);
            }
        }
        waiting.is_done(at);
    }
    for attribute in waiting.left() {
        scope.set_without_value("local", attribute.key.as_str());
        let span = attribute.key.span().unwrap_or(0..0);
        let fault = EvaluationFault::new(span, format!("the local `{}` depends on itself", attribute.key.as_str()));
        report(fault.advise("locals may refer to each other, but not in a circle"));
    }
}

/// Kahn's algorithm: linear in locals and references.
struct LocalsGraph<'b> {
    attributes: Vec<&'b Attribute>,
    /// To how many others it still refers.
    needs: Vec<usize>,
    /// Which refer to it.
    needed_by: Vec<Vec<usize>>,
    ready: VecDeque<usize>,
    /// They refer to a local whose name is computed: after all that do not.
    late: VecDeque<usize>,
    is_late: Vec<bool>,
}

impl<'b> LocalsGraph<'b> {
    fn of(all: impl Iterator<Item = &'b Attribute>) -> LocalsGraph<'b> {
        let (mut places, mut attributes) = (BTreeMap::new(), Vec::new());
        for attribute in all {
            // As in Nomad, of two with one name the last one counts.
            match places.entry(attribute.key.as_str()) {
                Entry::Occupied(place) => attributes[*place.get()] = attribute,
                Entry::Vacant(place) => {
                    place.insert(attributes.len());
                    attributes.push(attribute);
                }
            }
        }
        let count = attributes.len();
        let mut waiting = LocalsGraph {
            needs: vec![0; count],
            needed_by: vec![Vec::new(); count],
            ready: VecDeque::new(),
            late: VecDeque::new(),
            is_late: vec![false; count],
            attributes,
        };
        for at in 0..count {
            let value = &waiting.attributes[at].value;
            for reference in references::of(value, &span_of(value, &(0..0))).into_iter().filter(|r| r.base == "local") {
                match reference.attribute.as_deref() {
                    Some(name) => {
                        if let Some(&other) = places.get(name) {
                            waiting.needs[at] += 1;
                            waiting.needed_by[other].push(at);
                        }
                    }
                    None => waiting.is_late[at] = !reference.is_call,
                }
            }
            waiting.offer(at);
        }
        waiting
    }

    fn offer(&mut self, at: usize) {
        if self.needs[at] == 0 {
            if self.is_late[at] { self.late.push_back(at) } else { self.ready.push_back(at) }
        }
    }

    fn next(&mut self) -> Option<usize> {
        self.ready.pop_front().or_else(|| self.late.pop_front())
    }

    fn is_done(&mut self, at: usize) {
        for next in std::mem::take(&mut self.needed_by[at]) {
            self.needs[next] -= 1;
            self.offer(next);
        }
    }

    /// Those that wait for each other.
    fn left(&self) -> impl Iterator<Item = &&'b Attribute> {
        self.attributes.iter().zip(&self.needs).filter(|(_, needs)| **needs > 0).map(|(attribute, _)| attribute)
    }
}
