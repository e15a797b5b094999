//! Sets: sorted, and without an element twice. A list that is given becomes one.

use super::arguments::{ANY, HclFunction, HclFunctionResult, list, pure};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("setintersection", (1, ANY), |a| {
        combine(a, |retained, other| retained.into_iter().filter(|value| other.contains(value)).collect())
    }),
    pure("setproduct", (1, ANY), product),
    pure("setunion", (1, ANY), |a| combine(a, |retained, other| [&retained[..], other].concat())),
];

fn combine(arguments: &[HclValue], with: fn(Vec<HclValue>, &[HclValue]) -> Vec<HclValue>) -> HclFunctionResult {
    let mut retained = list(arguments, 0)?.to_vec();
    for at in 1..arguments.len() {
        retained = with(retained, list(arguments, at)?);
    }
    Ok(HclValue::set(retained))
}

/// A set where all of its arguments are sets, else a list.
fn product(arguments: &[HclValue]) -> HclFunctionResult {
    const MOST: usize = 10_000;
    let mut rows: Vec<Vec<HclValue>> = vec![Vec::new()];
    for at in 0..arguments.len() {
        let column = list(arguments, at)?;
        if rows.len().saturating_mul(column.len()) > MOST {
            return Err(format!("it would have more than {MOST} elements"));
        }
        let longer = |row: &Vec<HclValue>| {
            column.iter().map(|value| [&row[..], std::slice::from_ref(value)].concat()).collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(longer).collect();
    }
    let rows = rows.into_iter().map(HclValue::List).collect();
    let all_sets = arguments.iter().all(|argument| matches!(argument, HclValue::Set(_)));
    Ok(if all_sets { HclValue::set(rows) } else { HclValue::List(rows) })
}
