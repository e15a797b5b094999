//! Numbers.

use super::arguments::{ANY, HclFunction, HclFunctionResult, float, number, pure, text, whole};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("abs", (1, 1), |a| number(float(a, 0)?.abs())),
    pure("ceil", (1, 1), |a| number(float(a, 0)?.ceil())),
    pure("floor", (1, 1), |a| number(float(a, 0)?.floor())),
    pure("log", (2, 2), |a| number(float(a, 0)?.ln() / float(a, 1)?.ln())),
    pure("max", (1, ANY), |a| extreme(a, f64::max)),
    pure("min", (1, ANY), |a| extreme(a, f64::min)),
    pure("parseint", (2, 2), parseint),
    pure("pow", (2, 2), |a| number(float(a, 0)?.powf(float(a, 1)?))),
    pure("signum", (1, 1), |a| {
        let n = float(a, 0)?;
        number(if n == 0.0 { 0.0 } else { n.signum() })
    }),
];

fn extreme(arguments: &[HclValue], choose: fn(f64, f64) -> f64) -> HclFunctionResult {
    let mut numbers = (0..arguments.len()).map(|at| float(arguments, at));
    let first = numbers.next().unwrap_or(Err("it takes a number".to_owned()))?;
    number(numbers.try_fold(first, |best, next| next.map(|next| choose(best, next)))?)
}

fn parseint(arguments: &[HclValue]) -> HclFunctionResult {
    let base = u32::try_from(whole(arguments, 1)?).ok().filter(|base| (2..=36).contains(base));
    let base = base.ok_or("a base is from 2 to 36")?;
    let digits = text(arguments, 0)?;
    i128::from_str_radix(&digits, base).map(HclValue::Int).map_err(|_| format!("that is no number of base {base}"))
}
