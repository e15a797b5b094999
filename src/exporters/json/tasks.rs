//! `/v1/tasks`: every task in one short row, cheap enough to be asked for again and again.
//!
//! ```text
//! {"epoch": 7, "since": 0, "taken_at": .., "ticked_at": .., "host": {..}, "devices": 2,
//!  "fields": ["cpu_usage_ns", ..],
//!  "tasks": [{"alloc_id": "docker:web-1", "task": "web", "state": "running", .., "usage": [1500000000, null, ..]}, ..]}
//! ```
//! `usage` has one value for each of `fields`, `null` where there is none. Written straight from the snapshot: a tree
//! of values in between would cost more than the rows themselves.
//!
//! A client that has an answer already receives what changed since: `since` is the `taken_at` of that answer. A row
//! that was in it is
//!
//! ```text
//! 7                                   row 7 of that answer, as it was
//! [7, 1764241000000000000, 0, 1600000000, 5, null]   the same, but for sampled_at, and fields 0 and 5
//! ```
//! A row that is new, or whose changes are not numbers alone, is sent whole.
//!
//! A client without an answer gets rates at once from `before=1`: each row, and the host, then has an earlier reading
//! beside it.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use crate::collectors::RateBaseline;
use crate::model::alloc::{AllocSource, Measured, TaskIdentity};
use crate::model::answer::Detail;
use crate::model::id::{AllocId, GroupName, JobId, TaskName};
use crate::model::metric::{Sample, Samples, Value};
use crate::model::task::{Exit, ExitStatus, Outcome, ShownState};
use crate::model::units::Timestamp;
use crate::model::usage::{Field, Usage};
use crate::snapshot::{AllocView, Snapshot, TaskView};

/// Fields of each task in the list, in this order.
pub const LISTED_FIELDS: [Field; 25] = [
    Field::cpu_usage_ns,
    Field::cpu_quota_us,
    Field::cpu_period_us,
    Field::cpu_cfs_periods,
    Field::cpu_cfs_throttled_periods,
    Field::memory_usage_bytes,
    Field::memory_working_set_bytes,
    Field::memory_rss_bytes,
    Field::memory_swap_bytes,
    Field::memory_limit_bytes,
    Field::memory_peak_bytes,
    Field::memory_sampled_peak_bytes,
    Field::max_rss_bytes,
    Field::oom_kills,
    Field::io_read_bytes,
    Field::io_written_bytes,
    Field::pids_current,
    Field::processes,
    Field::pressure_cpu_some_ns,
    Field::pressure_memory_some_ns,
    Field::pressure_io_some_ns,
    Field::cpu_throttled_ns,
    Field::page_faults_major,
    Field::network_receive_bytes,
    Field::network_transmit_bytes,
];

/// Everything, as JSON text.
pub fn all(snapshot: &Snapshot, detail: Detail) -> Vec<u8> {
    answer(snapshot, None, detail, false)
}

/// The same with the reading before beside each.
pub fn all_with_before(snapshot: &Snapshot, detail: Detail) -> Vec<u8> {
    answer(snapshot, None, detail, true)
}

/// The same for a client that has received `before`.
pub fn changes(snapshot: &Snapshot, before: &Snapshot, detail: Detail) -> Vec<u8> {
    answer(snapshot, Some(before), detail, false)
}

fn answer(snapshot: &Snapshot, before: Option<&Snapshot>, detail: Detail, with_before: bool) -> Vec<u8> {
    let tick_before = snapshot.before.as_ref().filter(|_| with_before);
    let all = TasksAnswer {
        epoch: snapshot.epoch,
        since: before.map_or(Timestamp(0), |before| before.taken_at),
        taken_at: snapshot.taken_at,
        ticked_at: snapshot.ticked_at,
        host: host(snapshot, &snapshot.host),
        before: tick_before.map(|tick| HostBefore { ticked_at: tick.at, host: host(snapshot, &tick.host) }),
        devices: snapshot.devices.devices.len(),
        fields: LISTED_FIELDS.map(Field::name),
        tasks: TaskRows { snapshot, before, detail, with_before },
    };
    serde_json::to_vec(&all).expect("rows hold only plain values, so they must serialize")
}

/// Every task in one short row.
#[derive(Serialize, JsonSchema)]
pub struct TasksAnswer<'a> {
    epoch: u64,
    /// The `since` of the request. 0: every row is complete.
    since: Timestamp,
    taken_at: Timestamp,
    /// When the tick of the host's values began. A task that starts or ends between two ticks makes a newer answer of
    /// the same tick.
    ticked_at: Timestamp,
    host: HostRow<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<HostBefore<'a>>,
    /// How many there are.
    devices: usize,
    /// What `usage` of each row has.
    #[schemars(with = "Vec<String>")]
    fields: [&'static str; LISTED_FIELDS.len()],
    /// A row; or what changed of a row of the answer before, see `since`.
    #[schemars(schema_with = "rows")]
    tasks: TaskRows<'a>,
}

/// A whole row; the number of a row that did not change; that number, the time of the sample, and pairs of field and
/// value.
fn rows(generator: &mut SchemaGenerator) -> Schema {
    let whole = generator.subschema_for::<TaskRow<'_>>();
    let changes = json_schema!({ "type": "array", "items": { "type": ["integer", "null"] } });
    json_schema!({ "type": "array", "items": { "anyOf": [whole, { "type": "integer" }, changes] } })
}

/// The tick before.
#[derive(Serialize, JsonSchema)]
struct HostBefore<'a> {
    ticked_at: Timestamp,
    host: HostRow<'a>,
}

struct TaskRows<'a> {
    snapshot: &'a Snapshot,
    before: Option<&'a Snapshot>,
    detail: Detail,
    with_before: bool,
}

impl Serialize for TaskRows<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let allocs = &self.snapshot.allocs;
        let before = PreviousAllocs::of(self.before.map_or(&[][..], |before| &before.allocs), allocs);
        let mut rows = to.serialize_seq(None)?;
        for (place, alloc) in allocs.iter().enumerate() {
            let before = before.find(place, alloc);
            for (place, (known, task)) in alloc.tasks().enumerate() {
                match before.and_then(|before| before.change(place, &alloc.tasks[place])) {
                    None => {
                        let mut row = row(alloc, known, task, self.detail);
                        row.before =
                            task.before.as_ref().filter(|_| self.with_before).and_then(|b| TaskBefore::of(task, b));
                        rows.serialize_element(&row)?;
                    }
                    Some(change) => rows.serialize_element(&change)?,
                }
            }
        }
        rows.end()
    }
}

/// The allocs of the answer before, beside those of this one.
struct PreviousAllocs<'a> {
    /// In their order.
    allocs: Vec<AnsweredAlloc<'a>>,
    /// So many are in both at the same place: nearly always all, and new ones come last.
    same: usize,
    /// The others, by id.
    moved: HashMap<&'a AllocId, AnsweredAlloc<'a>>,
}

/// An alloc of the answer before, and the number of its first row there.
#[derive(Clone, Copy)]
struct AnsweredAlloc<'a> {
    first: usize,
    view: &'a AllocView,
}

impl<'a> PreviousAllocs<'a> {
    fn of(before: &'a [Arc<AllocView>], now: &[Arc<AllocView>]) -> PreviousAllocs<'a> {
        let same = before.iter().zip(now).take_while(|(a, b)| a.identity.id == b.identity.id).count();
        let rows = before.iter().scan(0, |row, view| {
            let first = *row;
            *row += view.tasks().count();
            Some(AnsweredAlloc { first, view })
        });
        let allocs: Vec<_> = rows.collect();
        let moved = allocs[same..].iter().map(|alloc| (&alloc.view.identity.id, *alloc)).collect();
        PreviousAllocs { allocs, same, moved }
    }

    /// `place`: of the alloc among those of now. `None`: it is new, or has another name or other tasks than before.
    fn find(&self, place: usize, alloc: &AllocView) -> Option<AnsweredAlloc<'a>> {
        let found = if place < self.same { self.allocs.get(place) } else { self.moved.get(&alloc.identity.id) };
        found.copied().filter(|found| Arc::ptr_eq(&found.view.identity, &alloc.identity))
    }
}

impl<'a> AnsweredAlloc<'a> {
    /// Of its task at this place. `None`: more than numbers changed.
    fn change(self, place: usize, now: &'a Arc<TaskView>) -> Option<RowChange<'a>> {
        let (row, before) = (self.first + place, self.view.tasks.get(place)?);
        if Arc::ptr_eq(before, now) {
            return Some(RowChange::Same(row));
        }
        let status = |task: &TaskView| task.managed.as_ref().map(|managed| Arc::as_ptr(&managed.status));
        let observed = |task: &TaskView| task.observed.as_ref().map(Arc::as_ptr);
        let same_words = status(before) == status(now) && observed(before) == observed(now);
        same_words.then(|| RowChange::Numbers { row, at: now.sampled_at, before: &before.usage, now: &now.usage })
    }
}

/// Changes of a row of the answer before.
enum RowChange<'a> {
    Same(usize),
    Numbers { row: usize, at: Option<Timestamp>, before: &'a Usage, now: &'a Usage },
}

impl Serialize for RowChange<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (row, at, before, now) = match self {
            RowChange::Same(row) => return row.serialize(to),
            RowChange::Numbers { row, at, before, now } => (row, at, before, now),
        };
        let mut changes = to.serialize_seq(None)?;
        changes.serialize_element(row)?;
        changes.serialize_element(at)?;
        for (place, field) in LISTED_FIELDS.iter().enumerate() {
            let value = now.get(*field);
            if value != before.get(*field) {
                changes.serialize_element(&place)?;
                changes.serialize_element(&value)?;
            }
        }
        changes.end()
    }
}

#[derive(Serialize, JsonSchema)]
struct TaskRow<'a> {
    alloc_id: &'a AllocId,
    source: AllocSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a GroupName>,
    task: &'a TaskName,
    /// How many its alloc has.
    of: usize,
    measured: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<ShownState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restarts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit: Option<LastExit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled_at: Option<Timestamp>,
    /// A value of each of `fields`.
    #[schemars(with = "Vec<Option<u64>>")]
    usage: ListedUsage<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<TaskBefore>,
}

/// An earlier reading, of the counters alone: the rest has no rate.
#[derive(Serialize, JsonSchema)]
struct TaskBefore {
    at: Timestamp,
    #[schemars(with = "Vec<Option<u64>>")]
    usage: [Option<u64>; LISTED_FIELDS.len()],
}

impl TaskBefore {
    /// `before`: of the running attempt, which lies on top of the attempts that ended.
    fn of(task: &TaskView, before: &RateBaseline) -> Option<TaskBefore> {
        let attempt = task.attempt.as_ref()?;
        let value = |field: Field| {
            let grown = attempt.get(field)?.checked_sub(before.usage.get(field)?)?;
            task.usage.get(field)?.checked_sub(grown)
        };
        let usage = LISTED_FIELDS.map(|field| if field.nature().counts() { value(field) } else { None });
        Some(TaskBefore { at: before.at, usage })
    }
}

#[derive(Serialize, JsonSchema)]
struct LastExit {
    outcome: Outcome,
    status: ExitStatus,
    finished_at: Timestamp,
}

struct ListedUsage<'a>(&'a Usage);

impl Serialize for ListedUsage<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(LISTED_FIELDS.iter().map(|field| self.0.get(*field)))
    }
}

fn row<'a>(alloc: &'a AllocView, known: &'a TaskIdentity, task: &'a TaskView, detail: Detail) -> TaskRow<'a> {
    let managed = task.managed.as_ref().map(|managed| &*managed.status);
    let observed = task.observed.as_deref();
    let exit: Option<&Arc<Exit>> =
        managed.and_then(|task| task.last_exit()).or_else(|| observed.and_then(|task| task.exits.back()));
    TaskRow {
        alloc_id: &alloc.identity.id,
        source: alloc.identity.source,
        job: alloc.identity.workload.as_ref(),
        group: alloc.identity.group.as_ref(),
        task: &known.name,
        of: alloc.tasks.len(),
        measured: alloc.identity.measured,
        state: task.state(),
        state_since: managed.map(|task| task.state_since).or_else(|| observed.and_then(|task| task.state_since())),
        restarts: managed.map(|task| task.restarts_total()).or_else(|| observed.map(|task| task.restarts_total())),
        last_exit: exit.map(|exit| LastExit {
            outcome: exit.outcome,
            status: detail.status(&exit.status),
            finished_at: exit.finished_at,
        }),
        sampled_at: task.sampled_at,
        usage: ListedUsage(&task.usage),
        before: None,
    }
}

/// What all tasks of the host share. A field that the kernel does not report is absent.
#[derive(Default, Serialize, JsonSchema)]
pub struct HostRow<'a> {
    pub hostname: &'a str,
    pub cpus: u64,
    /// CPU time of the host, all CPUs together, without idle, iowait and steal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_busy_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    /// Sum over the exposed network interfaces, without the loopback interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_receive_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_transmit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure_cpu_some_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure_memory_some_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure_io_some_ns: Option<u64>,
}

pub fn host<'a>(snapshot: &'a Snapshot, samples: &Samples) -> HostRow<'a> {
    let mut host = HostRow { hostname: &snapshot.info.hostname, cpus: snapshot.info.cpus, ..HostRow::default() };
    for Sample { desc, labels, value } in &samples.0 {
        let value = match value {
            Value::Int(n) | Value::Nanos(n) => *n,
            Value::Float(_) => continue,
        };
        let label = |at: usize| labels.get(at).map_or("", |label| &**label);
        let into = match (desc.name, label(0), label(1)) {
            ("allostat_host_cpu_seconds_total", "idle" | "iowait" | "steal", _) => continue,
            ("allostat_host_network_receive_bytes_total" | "allostat_host_network_transmit_bytes_total", "lo", _) => {
                continue;
            }
            ("allostat_host_cpu_seconds_total", ..) => &mut host.cpu_busy_ns,
            ("allostat_host_memory_total_bytes", ..) => &mut host.memory_total_bytes,
            ("allostat_host_memory_available_bytes", ..) => &mut host.memory_available_bytes,
            ("allostat_host_swap_used_bytes", ..) => &mut host.swap_used_bytes,
            ("allostat_host_network_receive_bytes_total", ..) => &mut host.network_receive_bytes,
            ("allostat_host_network_transmit_bytes_total", ..) => &mut host.network_transmit_bytes,
            ("allostat_host_pressure_stall_seconds_total", "cpu", "some") => &mut host.pressure_cpu_some_ns,
            ("allostat_host_pressure_stall_seconds_total", "memory", "some") => &mut host.pressure_memory_some_ns,
            ("allostat_host_pressure_stall_seconds_total", "io", "some") => &mut host.pressure_io_some_ns,
            _ => continue,
        };
        *into = Some(into.unwrap_or(0).saturating_add(value));
    }
    host
}
