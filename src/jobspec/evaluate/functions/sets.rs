//! Sets: lists without an element twice.

use super::super::Value;
use super::collections::distinct;
use super::{ANY, Function, Outcome, list, pure};

pub(super) static FUNCTIONS: &[Function] = &[
    pure("setintersection", (1, ANY), |a| {
        combine(a, |kept, other| kept.into_iter().filter(|value| other.contains(value)).collect())
    }),
    pure("setproduct", (1, ANY), product),
    pure("setsubtract", (2, 2), |a| {
        combine(a, |kept, other| kept.into_iter().filter(|value| !other.contains(value)).collect())
    }),
    pure("setunion", (1, ANY), |a| combine(a, |kept, other| [&kept[..], other].concat())),
];

fn combine(arguments: &[Value], with: fn(Vec<Value>, &[Value]) -> Vec<Value>) -> Outcome {
    let mut kept = list(arguments, 0)?.to_vec();
    for at in 1..arguments.len() {
        kept = with(kept, list(arguments, at)?);
    }
    Ok(Value::List(distinct(&kept)))
}

fn product(arguments: &[Value]) -> Outcome {
    const MOST: usize = 10_000;
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for at in 0..arguments.len() {
        let column = list(arguments, at)?;
        if rows.len().saturating_mul(column.len()) > MOST {
            return Err(format!("it would have more than {MOST} elements"));
        }
        let longer = |row: &Vec<Value>| {
            column.iter().map(|value| [&row[..], std::slice::from_ref(value)].concat()).collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(longer).collect();
    }
    Ok(Value::List(rows.into_iter().map(Value::List).collect()))
}
