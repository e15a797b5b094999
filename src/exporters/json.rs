//! A snapshot as JSON: what the API answers. Absent values are absent fields; their names stand in `absent`, and the
//! catalogue says when and why a value is absent. Each answer is a type: its fields, their documentation and its schema
//! in `/v1/openapi.json` stand at one place.

pub mod allocs;
pub mod devices;
mod fields;
mod host;
pub mod node;
pub mod nomad;
pub mod stats;
pub mod tasks;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::alloc::TaskIdentity;
use crate::model::event::Event;
use crate::model::id::TaskName;
use crate::snapshot::TaskView;
use crate::snapshot::restarts::{self, Restarts};

/// An event, its time in words as well: a number of nanoseconds is larger than what JavaScript keeps exactly.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EventAnswer {
    #[serde(flatten)]
    pub event: Event,
    /// `time` as RFC 3339, in UTC.
    pub timestamp: String,
    /// `time` as text, for clients whose numbers are floats.
    pub timestamp_ns: String,
}

pub fn event(event: &Event) -> EventAnswer {
    EventAnswer { event: event.clone(), timestamp: event.time.rfc3339(), timestamp_ns: event.time.0.to_string() }
}

/// Attempts are numbered from 1 wherever people read them.
fn number(attempt: u32) -> u64 {
    u64::from(attempt) + 1
}

fn restarts(counts: &Restarts) -> BTreeMap<&'static str, u64> {
    restarts::REASONS.into_iter().zip(counts).filter_map(|(reason, n)| Some((reason, (*n)?))).collect()
}

fn by_name<'a, T>(
    tasks: impl Iterator<Item = (&'a TaskIdentity, &'a TaskView)>,
    row: impl Fn(&TaskIdentity, &TaskView) -> T,
) -> BTreeMap<TaskName, T> {
    tasks.map(|(known, task)| (known.name.clone(), row(known, task))).collect()
}

fn by<const N: usize>(names: [&'static str; N], values: [u64; N]) -> BTreeMap<&'static str, u64> {
    names.into_iter().zip(values).collect()
}

#[cfg(test)]
mod tests;
