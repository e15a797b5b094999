//! Rows under the names of another exporter: the labels follow that exporter, and the values are those of all walks.

use std::borrow::Cow;
use std::sync::Arc;

use super::subject::RowSubject;
use crate::model::measure::HasFields;
use crate::model::metric::Value;
use crate::model::units::{Timestamp, Unit};
use crate::model::usage::{Field, Usage};

/// Shape: the labels in their order; an empty value is no label.
#[derive(Debug, Clone)]
pub struct PeerRow {
    pub labels: Vec<(Cow<'static, str>, String)>,
    pub reading: PeerReading,
}

/// The values of one row. Absent: not known.
#[derive(Debug, Clone, Default)]
pub struct PeerReading {
    pub usage: Arc<Usage>,
    /// Of the agent's latest look at it.
    pub seen_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    /// CPU time over a window, in cores: all, of the user, of the kernel.
    pub cores: [Option<f64>; 3],
    /// What a core can do, in MHz.
    pub core_mhz: Option<f64>,
    /// What its job asks for: MHz, bytes, bytes at most.
    pub requested_cpu_mhz: Option<u64>,
    pub requested_memory_bytes: Option<u64>,
    pub requested_memory_max_bytes: Option<u64>,
    /// Of cgroup v1: what is left to it where memory is short.
    pub memory_soft_limit_bytes: Option<u64>,
    /// Its processes are there.
    pub runs: bool,
    /// How often it was started, was started again, ended by OOM, and ended for good, well and badly.
    pub starts: Option<u64>,
    pub restarts: Option<u64>,
    pub oom_attempts: Option<u64>,
    pub completed: Option<u64>,
    pub failed: Option<u64>,
}

impl HasFields for PeerReading {
    type Field = ();
}

impl PeerReading {
    /// A field in the unit that its name says.
    pub fn of(&self, field: Field) -> Option<Value> {
        let value = self.usage.get(field)?;
        Some(if field.unit() == Unit::Seconds { Value::Nanos(value) } else { Value::Int(value) })
    }
    /// A field as a plain number: of time the nanoseconds.
    pub fn plain(&self, field: Field) -> Option<Value> {
        self.usage.get(field).map(Value::Int)
    }
}

impl PeerRow {
    pub fn subject(&self) -> RowSubject<'_> {
        RowSubject {
            labels: self.labels.iter().map(|(name, value)| (&**name, value.as_str())).collect(),
            since: self.reading.started_at,
            ..RowSubject::default()
        }
    }
}
