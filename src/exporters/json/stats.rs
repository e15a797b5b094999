//! `/v1/allocs/{id}/stats` and `/v1/stats`: what allocs use.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::devices::{self, DeviceOfAlloc, UseOfDevice};
use super::{by, by_name, number};
use crate::board::devices::AllocDevices;
use crate::model::alloc::TaskIdentity;
use crate::model::answer::Detail;
use crate::model::id::{AllocId, DeviceId, TaskName};
use crate::model::task::TaskState;
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};
use crate::snapshot::{Aggregation, AllocView, Snapshot, TaskView};

/// Of all allocs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatsAnswer {
    pub allocs: Vec<AllocStats>,
}

/// What one alloc uses.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocStats {
    pub id: AllocId,
    /// Number of the tick. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Timestamp>,
    /// The alloc has ended: these values do not change any more.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub aggregation: Aggregation,
    pub measured_tasks: usize,
    pub total_tasks: usize,
    pub usage: Usage,
    /// Fields of `usage` that have no value; `/v1/catalogue` has the conditions. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Vec<&'static str>>,
    /// By name.
    pub tasks: BTreeMap<TaskName, TaskUse>,
    /// Devices that its tasks hold or use, by ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<BTreeMap<DeviceId, DeviceOfAlloc>>,
    /// An upper bound of what its tasks needed together. It is no peak: each may have had its own at another time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_of_task_peaks_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// What one task uses: all attempts together.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskUse {
    /// No attempt runs.
    #[serde(rename = "final")]
    pub is_final: bool,
    pub usage: Usage,
    /// Fields of `usage` that have no value. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Vec<&'static str>>,
    /// Time in each state. Only of managed tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_in_state_ns: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// The attempt that runs or ran last, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// Usage of the running attempt alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub this_attempt: Option<Usage>,
    /// What it uses of each device, by the ID of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<BTreeMap<DeviceId, UseOfDevice>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
}

/// What one alloc uses. `now`: for ages.
pub fn stats(snapshot: &Snapshot, alloc: &AllocView, detail: Detail, now: Timestamp) -> AllocStats {
    let devices = snapshot.devices.of_alloc(&alloc.identity.id);
    AllocStats {
        id: alloc.identity.id.clone(),
        epoch: Some(snapshot.epoch),
        taken_at: Some(snapshot.taken_at),
        is_final: alloc.ended,
        aggregation: alloc.aggregation,
        measured_tasks: alloc.tasks.iter().filter(|t| *t.usage != Usage::default()).count(),
        total_tasks: alloc.tasks.len(),
        usage: (*alloc.usage).clone(),
        absent: Some(absent(&alloc.usage, alloc.ended)),
        tasks: by_name(alloc.tasks(), |known, task| task_stats(snapshot, known, task, &devices, now)),
        devices: devices::of_alloc(&devices, detail),
        sum_of_task_peaks_bytes: sum_of_peaks(alloc),
        sampled_at: alloc.sampled_at,
        age_ms: age_ms(alloc.sampled_at, now),
    }
}

/// `/v1/stats`, as [`StatsAnswer`] has it. Each alloc is made as it is written: all of thousands at once is memory that
/// a heap does not give back.
pub fn stats_of_all(snapshot: &Snapshot, detail: Detail, now: Timestamp) -> impl Serialize {
    BTreeMap::from([(
        "allocs",
        AllocStatsSeq(&snapshot.allocs, move |alloc: &AllocView| stats(snapshot, alloc, detail, now)),
    )])
}

struct AllocStatsSeq<'a, F>(&'a [Arc<AllocView>], F);

impl<F: Fn(&AllocView) -> AllocStats> Serialize for AllocStatsSeq<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|alloc| (self.1)(alloc)))
    }
}

fn task_stats(
    snapshot: &Snapshot,
    known: &TaskIdentity,
    task: &TaskView,
    devices: &AllocDevices<'_>,
    now: Timestamp,
) -> TaskUse {
    let running = task.attempt.is_some();
    let managed = task.managed.as_ref();
    let dwells = managed.map(|managed| TaskState::ALL.map(|state| managed.time_in(state, snapshot.steady_at).0));
    TaskUse {
        is_final: !running,
        usage: (*task.usage).clone(),
        absent: Some(absent(&task.usage, !running)),
        time_in_state_ns: dwells.map(|dwells| by(TaskState::ALL.map(TaskState::as_str), dwells)),
        state: managed.map(|managed| managed.status.state),
        attempt: managed.and_then(|managed| managed.status.last_attempt()).map(number),
        this_attempt: task.attempt.as_deref().cloned(),
        devices: devices::of_task(devices, &known.name),
        sampled_at: task.sampled_at,
        age_ms: age_ms(task.sampled_at, now),
    }
}

/// An upper bound of what the tasks needed together, and no peak: they need not have had theirs at the same time.
/// Absent where one task has none.
fn sum_of_peaks(alloc: &AllocView) -> Option<u64> {
    alloc.tasks.iter().try_fold(0_u64, |sum, t| Some(sum.saturating_add(t.usage.memory_peak_bytes()?)))
}

fn age_ms(at: Option<Timestamp>, now: Timestamp) -> Option<u64> {
    at.map(|at| now.since(at).0 / 1_000_000)
}

/// The fields that have no value. What is used now is not missed after the end.
fn absent(usage: &Usage, ended: bool) -> Vec<&'static str> {
    let expected = Field::ALL.into_iter().filter(|field| !(ended && field.nature().goes_with_the_end()));
    expected.filter(|field| usage.get(*field).is_none()).map(Field::name).collect()
}
