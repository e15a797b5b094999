//! Lists, maps and keys.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::arguments::{TemplateFunction, TemplateFunctionResult, argument, boolean, list, map, pure, wrong_kind};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::{TemplateKeyPair, TemplateValue};

/// Entries of a map of a template.
type DictEntries = BTreeMap<String, TemplateValue>;

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("in", (2, 2), |a| boolean(has(argument(a, 0), argument(a, 1)))),
    pure("contains", (2, 2), |a| boolean(has(argument(a, 1), argument(a, 0)))),
    pure("containsAll", (2, 2), |a| some(a, true, true)),
    pure("containsAny", (2, 2), |a| some(a, false, false)),
    pure("containsNone", (2, 2), |a| some(a, true, false)),
    pure("containsNotAll", (2, 2), |a| some(a, false, true)),
    pure("loop", (1, 2), |a| {
        let (from, to) = match a.len() {
            1 => (0, bound(a, 0)?),
            _ => (bound(a, 0)?, bound(a, 1)?),
        };
        Ok(TemplateValue::Count(from, to))
    }),
    pure("byKey", (1, 1), by_key),
    pure("explode", (1, 1), |a| {
        let mut nested = NestedTree::default();
        for pair in pairs(a)? {
            nested.insert(&pair.key, pair.value.as_str().into())?;
        }
        nested.into_value()
    }),
    pure("explodeMap", (1, 1), |a| {
        let mut nested = NestedTree::default();
        for (key, value) in map(a, 0)?.entries() {
            nested.insert(key, value.clone())?;
        }
        nested.into_value()
    }),
    pure("mergeMap", (2, 2), |a| merged(a, false)),
    pure("mergeMapWithOverride", (2, 2), |a| merged(a, true)),
];

/// Whether a list has a value of the same kind, or a string has a part.
fn has(whole: &TemplateValue, part: &TemplateValue) -> bool {
    match (whole, part) {
        (TemplateValue::Text(whole), TemplateValue::Text(part)) => whole.contains(&**part),
        (TemplateValue::List(list), TemplateValue::Text(_) | TemplateValue::Int(_) | TemplateValue::Float(_)) => {
            list.items().iter().any(|item| item == part)
        }
        _ => false,
    }
}

/// Whether all or some of the first list are in the second or not: ends at the first that is (not), else `at_the_end`.
fn some(arguments: &[TemplateValue], at_the_end: bool, ends_at_missing: bool) -> TemplateFunctionResult {
    let (parts, whole) = (list(arguments, 0)?, argument(arguments, 1));
    // Both lists are charged once; their product could be much more.
    if parts.len().saturating_mul(whole.length().unwrap_or(0)) > 10_000_000 {
        return Err("the lists are too long to compare".into());
    }
    let ends = parts.iter().any(|part| has(whole, part) != ends_at_missing);
    boolean(if ends { !at_the_end } else { at_the_end })
}

fn bound(arguments: &[TemplateValue], at: usize) -> Result<i64, FunctionFault> {
    match argument(arguments, at) {
        TemplateValue::Int(n) => Ok(*n),
        TemplateValue::Uint(n) => i64::try_from(*n).map_err(|_| format!("{n} is too large").into()),
        TemplateValue::Text(text) if text.is_empty() => Ok(0),
        TemplateValue::Text(text) => text.parse().map_err(|_| format!("{text:?} is no whole number").into()),
        other => wrong_kind(at, "int or a string of digits", other),
    }
}

fn pairs(arguments: &[TemplateValue]) -> Result<Vec<Rc<TemplateKeyPair>>, FunctionFault> {
    let pairs = list(arguments, 0)?.iter().map(|item| match item {
        TemplateValue::Pair(pair) => Ok(Rc::clone(pair)),
        other => wrong_kind(0, "the keys of ls or tree", other),
    });
    pairs.collect()
}

fn by_key(arguments: &[TemplateValue]) -> TemplateFunctionResult {
    let mut groups: BTreeMap<String, DictEntries> = BTreeMap::new();
    for pair in pairs(arguments)? {
        if let Some((top, rest)) = pair.key.split_once('/').filter(|(_, rest)| !rest.is_empty()) {
            let inner = TemplateKeyPair { key: rest.to_owned(), ..(*pair).clone() };
            groups.entry(top.to_owned()).or_default().insert(rest.to_owned(), TemplateValue::Pair(Rc::new(inner)));
        }
    }
    let groups = groups.into_iter().map(|(top, group)| Ok((top, TemplateValue::map(group)?)));
    Ok(TemplateValue::map(groups.collect::<Result<_, String>>()?)?)
}

/// A tree that is built key by key.
#[derive(Default)]
struct NestedTree(BTreeMap<String, NestedValue>);

enum NestedValue {
    Leaf(TemplateValue),
    Inner(NestedTree),
}

/// Directories within each other.
const DEEPEST_KEY: usize = 64;

impl NestedTree {
    fn insert(&mut self, key: &str, value: TemplateValue) -> Result<(), FunctionFault> {
        if key.matches('/').count() > DEEPEST_KEY {
            return Err(format!("a key has more than {DEEPEST_KEY} parts").into());
        }
        let mut here = self;
        let mut rest = key;
        while let Some((top, below)) = rest.split_once('/') {
            let next = here.0.entry(top.to_owned()).or_insert_with(|| NestedValue::Inner(NestedTree::default()));
            here = match next {
                NestedValue::Inner(inner) => inner,
                NestedValue::Leaf(_) => return Err(format!("{key:?}: {top:?} already has a value").into()),
            };
            rest = below;
        }
        if !rest.is_empty() {
            here.0.insert(rest.to_owned(), NestedValue::Leaf(value));
        }
        Ok(())
    }
    fn into_value(self) -> TemplateFunctionResult {
        let entries = self.0.into_iter().map(|(key, branch)| match branch {
            NestedValue::Leaf(value) => Ok((key, value)),
            NestedValue::Inner(inner) => Ok((key, inner.into_value()?)),
        });
        Ok(TemplateValue::map(entries.collect::<Result<_, FunctionFault>>()?)?)
    }
}

fn merged(arguments: &[TemplateValue], overrides: bool) -> TemplateFunctionResult {
    Ok(TemplateValue::map(merge(map(arguments, 0)?.entries(), map(arguments, 1)?.entries(), overrides)?)?)
}

/// The first map with what it lacks of the second; maps in both are merged as well. An empty value is lacking.
fn merge(first: &DictEntries, second: &DictEntries, overrides: bool) -> Result<DictEntries, FunctionFault> {
    let mut merged = first.clone();
    for (key, value) in second {
        let joined = match (first.get(key), value) {
            (Some(TemplateValue::Map(a)), TemplateValue::Map(b)) => {
                TemplateValue::map(merge(a.entries(), b.entries(), overrides)?)?
            }
            (Some(there), value) if there.is_true() && !(overrides && value.is_true()) => there.clone(),
            (_, value) => value.clone(),
        };
        merged.insert(key.clone(), joined);
    }
    Ok(merged)
}
