//! What `/v1/tasks` answers, as it is read. Unknown fields are let pass, and fields of values that we have no name for.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::cli::exit::CliError;
use crate::cli::shape::{DeviceReport, ExitRow};
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TaskTable {
    pub epoch: u64,
    pub taken_at: Timestamp,
    /// Of the tick: what is told between two ticks has the host's values of the one before. Absent: an older agent.
    pub(super) ticked_at: Option<Timestamp>,
    pub host: HostReply,
    /// How many there are on this host.
    pub devices: u64,
    pub fields: Vec<String>,
    pub tasks: Vec<TaskReply>,
}

/// Counters and gauges of the host. Absent: nobody tells.
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
    /// Empty: nobody knows.
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub state_since: Option<Timestamp>,
    /// Absent: others run it, and nobody tells.
    #[serde(default)]
    pub restarts: Option<u64>,
    #[serde(default)]
    pub last_exit: Option<ExitRow>,
    #[serde(default)]
    pub sampled_at: Option<Timestamp>,
    usage: Vec<Option<u64>>,
}

impl TaskTable {
    /// Out of an answer. Errors: it is none.
    pub fn read(body: &[u8]) -> Result<TaskTable, CliError> {
        serde_json::from_slice(body).map_err(|error| {
            CliError::failed(format!("/v1/tasks answered what this version does not understand: {error}"))
                .hint("is the agent of another version?")
        })
    }

    /// When the host was read, and who is not read anew was seen to sleep.
    pub fn ticked_at(&self) -> Timestamp {
        self.ticked_at.unwrap_or(self.taken_at)
    }
    /// The fields as ours, in their order.
    pub fn known_fields(&self) -> Vec<Option<Field>> {
        let known = |name: &String| Field::ALL.into_iter().find(|field| field.name() == name);
        self.fields.iter().map(known).collect()
    }
}

impl TaskReply {
    /// `fields`: of the table that it stands in.
    pub fn usage(&self, fields: &[Option<Field>]) -> Usage {
        let mut usage = Usage::default();
        for (field, value) in fields.iter().zip(&self.usage) {
            if let Some(field) = field {
                usage.set(*field, *value);
            }
        }
        usage
    }
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
