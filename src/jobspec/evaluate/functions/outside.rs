//! What differs from one evaluation to the next: it makes a job another one each time it is submitted.

use super::arguments::{Call, Function};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[Function] = &[Function {
    name: "uuidv4",
    arguments: (0, 0),
    call: Call::Asks(|_, outside| outside.uuid().map(HclValue::Text)),
}];
