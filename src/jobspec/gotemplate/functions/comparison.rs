//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`: only values of one kind compare, as in Go.

use std::cmp::Ordering;

use super::arguments::{ANY, TemplateFunction, argument, boolean, pure};
use crate::jobspec::gotemplate::fault::FunctionFault;
use crate::jobspec::gotemplate::value::TemplateValue;

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("eq", (2, ANY), |a| {
        for other in a.iter().skip(1) {
            if equal(argument(a, 0), other)? {
                return boolean(true);
            }
        }
        boolean(false)
    }),
    pure("ne", (2, 2), |a| boolean(!equal(argument(a, 0), argument(a, 1))?)),
    pure("lt", (2, 2), |a| boolean(order(a)? == Some(Ordering::Less))),
    pure("le", (2, 2), |a| boolean(matches!(order(a)?, Some(Ordering::Less | Ordering::Equal)))),
    // Go defines them as the opposite, which shows with NaN.
    pure("gt", (2, 2), |a| boolean(!matches!(order(a)?, Some(Ordering::Less | Ordering::Equal)))),
    pure("ge", (2, 2), |a| boolean(order(a)? != Some(Ordering::Less))),
];

fn equal(one: &TemplateValue, other: &TemplateValue) -> Result<bool, FunctionFault> {
    use TemplateValue::{Bool, Float, Int, Nil, Text, Uint};
    match (one, other) {
        (Nil, other) => Ok(*other == Nil),
        (_, Nil) => Ok(false),
        (Bool(a), Bool(b)) => Ok(a == b),
        (Int(a), Int(b)) => Ok(a == b),
        (Uint(a), Uint(b)) => Ok(a == b),
        (Int(a), Uint(b)) | (Uint(b), Int(a)) => Ok(u64::try_from(*a) == Ok(*b)),
        (Float(a), Float(b)) => Ok(a == b),
        (Text(a), Text(b)) => Ok(a == b),
        (one, other) => Err(incompatible(one, other)),
    }
}

/// `None`: one is not a number.
fn order(arguments: &[TemplateValue]) -> Result<Option<Ordering>, FunctionFault> {
    use TemplateValue::{Float, Int, Text, Uint};
    match (argument(arguments, 0), argument(arguments, 1)) {
        (Int(a), Int(b)) => Ok(Some(a.cmp(b))),
        (Uint(a), Uint(b)) => Ok(Some(a.cmp(b))),
        (Int(a), Uint(b)) => Ok(Some(i128::from(*a).cmp(&i128::from(*b)))),
        (Uint(a), Int(b)) => Ok(Some(i128::from(*a).cmp(&i128::from(*b)))),
        (Float(a), Float(b)) => Ok(a.partial_cmp(b)),
        (Text(a), Text(b)) => Ok(Some(a.cmp(b))),
        (one, other) => Err(incompatible(one, other)),
    }
}

fn incompatible(one: &TemplateValue, other: &TemplateValue) -> FunctionFault {
    match one.type_name() == other.type_name() {
        true => format!("values of type {} do not compare", one.type_name()).into(),
        false => format!("{} and {} do not compare: convert one", one.type_name(), other.type_name()).into(),
    }
}
