//! What `/v1/tasks` answers, as it is read. Unknown fields are let pass, and fields of values that we have no name for.
//!
//! An answer of what changed since the one before ([`crate::exporters::json::tasks`] has its shape) becomes a whole one
//! here.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::cli::answer;
use crate::cli::api_types::{DeviceReport, ExitRow};
use crate::cli::exit::CliError;
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};

#[derive(Debug, Clone, Default, Deserialize)]
pub struct TaskTable<R = TaskReply> {
    #[serde(default)]
    pub epoch: u64,
    /// Of the answer that it goes on from; 0: of none. Absent: an older agent, whose answers are always whole.
    #[serde(default)]
    since: Option<Timestamp>,
    #[serde(default)]
    pub taken_at: Timestamp,
    /// Of the tick: an answer between two ticks has the host's values of the one before. Absent: an older agent.
    #[serde(default)]
    pub(super) ticked_at: Option<Timestamp>,
    #[serde(default)]
    pub host: HostReply,
    /// The tick before, where that was requested.
    #[serde(default)]
    pub(super) before: Option<HostBeforeReply>,
    /// How many there are on this host.
    #[serde(default)]
    pub devices: u64,
    #[serde(default)]
    pub fields: Vec<String>,
    #[serde(default = "Vec::new")]
    pub tasks: Vec<R>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct HostBeforeReply {
    pub ticked_at: Timestamp,
    pub host: HostReply,
}

/// An earlier reading of a task, of its counters alone.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TaskBeforeReply {
    pub at: Timestamp,
    usage: Vec<Option<u64>>,
}

/// A row, as it is sent.
#[derive(Debug, Clone)]
enum RowUpdate {
    Whole(Box<TaskReply>),
    /// Row so many of the answer before.
    Same(usize),
    Numbers {
        row: usize,
        at: Option<Timestamp>,
        values: Vec<(usize, Option<u64>)>,
    },
}

/// Counters and gauges of the host. Absent: not reported.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HostReply {
    pub hostname: String,
    pub cpus: u64,
    pub cpu_busy_ns: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    pub swap_used_bytes: Option<u64>,
    pub network_receive_bytes: Option<u64>,
    pub network_transmit_bytes: Option<u64>,
    pub pressure_cpu_some_ns: Option<u64>,
    pub pressure_memory_some_ns: Option<u64>,
    pub pressure_io_some_ns: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct TaskReply {
    pub alloc_id: String,
    pub source: String,
    #[serde(default)]
    pub job: String,
    pub task: String,
    /// How many its alloc has.
    #[serde(default)]
    pub of: usize,
    /// `cgroup`, `process`, `none`.
    #[serde(default)]
    pub measured: String,
    /// Empty: not known.
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub state_since: Option<Timestamp>,
    /// Absent: another runtime runs it, and does not report them.
    #[serde(default)]
    pub restarts: Option<u64>,
    #[serde(default)]
    pub last_exit: Option<ExitRow>,
    #[serde(default)]
    pub sampled_at: Option<Timestamp>,
    usage: Vec<Option<u64>>,
    #[serde(default)]
    pub(super) before: Option<TaskBeforeReply>,
}

/// The first request to an agent: with an earlier reading of each row, for rates. An older agent refuses it.
pub const WITH_BEFORE: &str = "/v1/tasks?before=1";

impl TaskTable {
    /// Out of an answer, and the one that it goes on from. Errors: it is none, or goes on from another.
    pub fn read(body: &[u8], before: Option<&TaskTable>) -> Result<TaskTable, CliError> {
        let odd = |what: &dyn fmt::Display| {
            CliError::failed(format!("/v1/tasks answered what this version does not understand: {what}"))
                .hint("is the agent of another version?")
        };
        let updates: TaskTable<RowUpdate> = answer::read(body).map_err(|error| odd(&error))?;
        let before = before.filter(|before| updates.since == Some(before.taken_at));
        let rows = before.map_or(&[][..], |before| &before.tasks);
        let tasks = updates.tasks.into_iter().map(|row| row.over(rows)).collect::<Option<_>>();
        let tasks = tasks.ok_or_else(|| odd(&"a row that it never sent"))?;
        let TaskTable { epoch, since, taken_at, ticked_at, host, before, devices, fields, .. } = updates;
        Ok(TaskTable { epoch, since, taken_at, ticked_at, host, before, devices, fields, tasks })
    }

    /// What to ask for next. An older agent refuses `since`; one that knows it says so in each answer.
    pub fn next(before: Option<&TaskTable>) -> String {
        match before.and_then(|before| before.since.and(Some(before.taken_at))) {
            None => "/v1/tasks".to_owned(),
            Some(taken_at) => format!("/v1/tasks?since={}", taken_at.0),
        }
    }

    /// When the host was read, and a task that was not read again was seen to sleep.
    pub fn ticked_at(&self) -> Timestamp {
        self.ticked_at.unwrap_or(self.taken_at)
    }
    /// There are rates in it already.
    pub fn has_before(&self) -> bool {
        self.before.is_some()
    }
    /// The fields as ours, in their order.
    pub fn known_fields(&self) -> Vec<Option<Field>> {
        let known = |name: &String| Field::ALL.into_iter().find(|field| field.name() == name);
        self.fields.iter().map(known).collect()
    }
}

impl RowUpdate {
    /// `None`: there is no such row.
    fn over(self, before: &[TaskReply]) -> Option<TaskReply> {
        match self {
            RowUpdate::Whole(row) => Some(*row),
            RowUpdate::Same(row) => before.get(row).cloned(),
            RowUpdate::Numbers { row, at, values } => {
                let mut task = TaskReply { before: None, ..before.get(row)?.clone() };
                task.sampled_at = at;
                for (place, value) in values {
                    *task.usage.get_mut(place)? = value;
                }
                Some(task)
            }
        }
    }
}

impl<'de> Deserialize<'de> for RowUpdate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RowUpdate, D::Error> {
        from.deserialize_any(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = RowUpdate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row, the number of one, or its number and what changed")
    }
    fn visit_u64<E: Error>(self, row: u64) -> Result<RowUpdate, E> {
        usize::try_from(row).map(RowUpdate::Same).map_err(E::custom)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RowUpdate, A::Error> {
        TaskReply::deserialize(MapAccessDeserializer::new(map)).map(|row| RowUpdate::Whole(Box::new(row)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RowUpdate, A::Error> {
        let none = |what| move || A::Error::custom(format!("a row has no {what}"));
        let row = seq.next_element()?.ok_or_else(none("number"))?;
        let at = seq.next_element()?.ok_or_else(none("sampled_at"))?;
        let mut values = Vec::new();
        while let Some(place) = seq.next_element()? {
            values.push((place, seq.next_element()?.ok_or_else(none("value behind a field's place"))?));
        }
        Ok(RowUpdate::Numbers { row, at, values })
    }
}

impl TaskReply {
    /// `fields`: of the table that it stands in.
    pub fn usage(&self, fields: &[Option<Field>]) -> Usage {
        usage_of(fields, &self.usage)
    }
}

impl TaskBeforeReply {
    pub(super) fn usage(&self, fields: &[Option<Field>]) -> Usage {
        usage_of(fields, &self.usage)
    }
}

fn usage_of(fields: &[Option<Field>], values: &[Option<u64>]) -> Usage {
    let mut usage = Usage::default();
    for (field, value) in fields.iter().zip(values) {
        if let Some(field) = field {
            usage.set(*field, *value);
        }
    }
    usage
}

/// What tasks use of devices: memory, and the highest share of one that is busy for it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OnDevices {
    pub memory_bytes: Option<u64>,
    pub busy_ratio: Option<f64>,
}

/// By alloc and task.
pub fn on_devices(report: &DeviceReport) -> BTreeMap<(String, String), OnDevices> {
    let mut all: BTreeMap<_, OnDevices> = BTreeMap::new();
    for task in report.devices.iter().flat_map(|device| &device.tasks).filter(|task| !task.ended) {
        let of = all.entry((task.alloc_id.clone(), task.task.clone())).or_default();
        of.memory_bytes = match (of.memory_bytes, task.memory_used_bytes) {
            (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
            (sum, more) => sum.or(more),
        };
        let busier = task.sm_utilization_ratio.filter(|busy| of.busy_ratio.is_none_or(|most| *busy > most));
        of.busy_ratio = busier.or(of.busy_ratio);
    }
    all
}
