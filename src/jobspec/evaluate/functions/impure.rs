//! What differs from one evaluation to the next: it makes a job another one each time it is submitted.

use super::arguments::{HclFunction, HclFunctionBody};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[HclFunction] = &[HclFunction {
    name: "uuidv4",
    arguments: (0, 0),
    call: HclFunctionBody::External(|_, outside| outside.uuid().map(HclValue::Text)),
}];
