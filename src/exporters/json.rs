//! A snapshot as JSON: what the API answers. Absent values are absent fields; their names stand in `absent`, and the
//! catalogue says when and why a value is absent.

pub mod devices;
mod fields;
mod host;
pub mod nomad;
pub mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use self::fields::set;
use crate::board::devices::AllocDevices;
use crate::collectors::capability::KERNEL_ENDS;
use crate::model::alloc::{AllocState, TaskIdentity};
use crate::model::answer::{Detail, WITHHELD};
use crate::model::event::Event;
use crate::model::network::AllocNetwork;
use crate::model::observed::SelectedLabel;
use crate::model::placement::NotPlaced;
use crate::model::task::{Exit, Outcome, RestartReason, TaskState};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};
use crate::snapshot::itself::{KEPT_FILES, KEPT_FILES_LIMIT, WANTED_FILES};
use crate::snapshot::restarts::{self, Restarts, says_how_it_ended};
use crate::snapshot::{AllocView, ManagedTask, Snapshot, TaskView};

/// An event, its time in words as well: a number of nanoseconds is larger than what JavaScript keeps exactly.
pub fn event(event: &Event) -> Value {
    let mut shown = json!(event);
    shown["timestamp"] = json!(event.time.rfc3339());
    shown["timestamp_ns"] = json!(event.time.0.to_string());
    shown
}

/// `{"allocs":[...]}`.
pub fn allocs(snapshot: &Snapshot, detail: Detail) -> Value {
    json!({ "allocs": snapshot.allocs.iter().map(|a| row(a, detail)).collect::<Vec<_>>() })
}

fn row(alloc: &AllocView, detail: Detail) -> Value {
    let identity = &alloc.identity;
    let mut row = json!({
        "id": identity.id,
        "name": identity.name,
        "tasks": by_name(alloc.tasks(), |known, task| task_row(alloc, known, task, detail)),
    });
    let job = alloc.status.as_ref().map(|status| &status.job);
    set(&mut row, "job", job.map(|job| &job.id).or(identity.workload.as_ref()));
    set(&mut row, "parent", job.and_then(|job| job.parent()));
    set(&mut row, "group", identity.group.as_ref());
    set(&mut row, "created_at", identity.created_at);
    row["source"] = json!(identity.source);
    if let Some(observed) = &alloc.observed {
        row["status"] = json!(observed.state());
        set(&mut row, "finished_at", observed.ended_at);
        set(&mut row, "labels", Some(&*observed.labels).filter(|labels| !labels.is_empty()).map(labelled));
    }
    if let Some(status) = &alloc.status {
        row["status"] = json!(status.state);
        row["description"] = json!(status.description());
        row["desired"] = json!(status.desired);
        set(&mut row, "finished_at", status.finished_at);
        set(&mut row, "may_run", Some(&status.may_run).filter(|tasks| !tasks.is_empty()));
        let waits = status.not_placed.iter().map(|one| not_placed(one, detail)).collect::<Vec<_>>();
        set(&mut row, "not_placed", Some(waits).filter(|reasons| !reasons.is_empty()));
        let lineage = &status.lineage;
        set(&mut row, "previous_alloc", lineage.previous.as_ref());
        set(&mut row, "next_alloc", lineage.next.as_ref());
        set(&mut row, "reschedules", Some(lineage.reschedules).filter(|count| *count > 0));
        set(&mut row, "reschedule_at", lineage.reschedule_at);
    }
    row
}

/// A reason may cite metadata of the node.
fn not_placed(one: &NotPlaced, detail: Detail) -> Value {
    let message = if detail == Detail::Full { one.message.as_str() } else { WITHHELD };
    json!({ "reason": one.reason, "message": message })
}

/// Attempts are numbered from 1 wherever people read them.
fn number(attempt: u32) -> u64 {
    u64::from(attempt) + 1
}

fn labelled(labels: &[SelectedLabel]) -> Value {
    labels.iter().map(|label| (label.name.clone(), json!(label.value))).collect::<Map<_, _>>().into()
}

/// What can be seen from outside.
fn observed_row(task: &TaskView, detail: Detail) -> Value {
    let mut row = json!({});
    let Some(task) = &task.observed else { return row };
    row["state"] = json!(task.state());
    row["restarts"] = json!(task.restarts_total());
    set(&mut row, "state_since", task.since);
    set(&mut row, "last_exit", task.exits.back().map(|exit| exit_row(exit, detail)));
    row
}

/// Of one that others run nothing is said of what nobody sees from outside.
fn task_row(alloc: &AllocView, known: &TaskIdentity, task: &TaskView, detail: Detail) -> Value {
    let Some(ManagedTask { status: task, .. }) = &task.managed else { return observed_row(task, detail) };
    let mut row = json!({
        "state": task.state,
        "failed": task.failed,
        "restarts": task.restarts_total(),
        "state_since": task.state_since,
    });
    set(&mut row, "failure", task.failure);
    set(&mut row, "attempt", task.begun().map(number));
    set(&mut row, "started_at", task.started_at);
    set(&mut row, "finished_at", task.finished_at);
    let group = alloc.status.as_ref().and_then(|status| status.task_group());
    // Nothing is said of main tasks.
    set(&mut row, "lifecycle", group.and_then(|group| group.task(known.name.as_str())?.lifecycle));
    set(&mut row, "next_start_at", task.next_start_at);
    set(&mut row, "last_exit", task.last_exit().map(|e| exit_row(e, detail)));
    row
}

fn exit_row(exit: &Exit, detail: Detail) -> Value {
    let mut row = json!({
        "attempt": number(exit.attempt),
        "outcome": exit.outcome,
        "status": detail.status(&exit.status),
        "finished_at": exit.finished_at,
    });
    set(&mut row, "started_at", exit.started_at);
    set(&mut row, "oom_kills", exit.oom_kills);
    row
}

/// One alloc: the row of the list and all that is published of it.
pub fn alloc(alloc: &AllocView, detail: Detail) -> Value {
    let identity = &alloc.identity;
    let mut all = row(alloc, detail);
    all["tasks"] = by_name(alloc.tasks(), |known, task| task_detail(alloc, known, task, detail));
    all["namespace"] = json!(identity.namespace);
    all["measured"] = json!(identity.measured);
    all["aggregation"] = json!(alloc.aggregation);
    all["exposed"] = json!(!alloc.retired);
    if let Some(status) = &alloc.status {
        all["index"] = json!(status.index);
        all["type"] = json!(status.job.kind);
        all["generation"] = json!(status.generation);
        set(&mut all, "network", status.network.as_ref().map(|network| network_row(network, detail)));
        set(&mut all, "ports", Some(&status.ports).filter(|ports| !ports.is_empty()));
    }
    if detail == Detail::Full {
        set(&mut all, "cgroup", identity.cgroup.as_ref());
        set(&mut all, "definition", alloc.status.as_ref().map(|status| &status.job));
    }
    all
}

fn network_row(network: &AllocNetwork, detail: Detail) -> Value {
    let mut row = json!({ "mode": network.mode, "hostname": network.hostname, "addresses": network.addresses });
    set(&mut row, "interface", network.interface.as_ref());
    set(&mut row, "namespace", Some(&network.namespace).filter(|_| detail == Detail::Full));
    row
}

fn task_detail(alloc: &AllocView, known: &TaskIdentity, task: &TaskView, detail: Detail) -> Value {
    let mut all = task_row(alloc, known, task, detail);
    set(&mut all, "driver", known.driver.as_ref());
    set(&mut all, "image", known.image.as_ref());
    set(&mut all, "user", known.user.as_ref().filter(|_| detail == Detail::Full));
    all["restarts_by_reason"] = restarts(&task.restarts(says_how_it_ended(alloc.identity.source)));
    if let Some(task) = &task.observed {
        all["exits_by_outcome"] = by(Outcome::ALL.map(Outcome::as_str), task.exit_counts);
        all["exits"] = task.exits.iter().map(|e| exit_with_usage(e, detail)).collect();
        if detail == Detail::Full {
            set(&mut all, "cgroup", task.cgroup.as_ref());
        }
    }
    let Some(ManagedTask { status: task, .. }) = &task.managed else { return all };
    all["exits_by_outcome"] = by(Outcome::ALL.map(Outcome::as_str), task.exit_counts);
    all["exits"] = task.exits.iter().map(|e| exit_with_usage(e, detail)).collect();
    all["events"] = task.events.iter().map(|e| event(&detail.event(e))).collect();
    all["event_counts"] = json!(task.event_counts);
    if let Some(exit) = task.last_exit() {
        set_last_output(&mut all["last_exit"], exit, detail);
    }
    set(&mut all, "devices", Some(&task.devices).filter(|devices| !devices.is_empty()));
    set(&mut all, "network", task.network.as_ref());
    if detail == Detail::Full {
        set(&mut all, "main", task.main);
        set(&mut all, "cgroup", task.cgroup.as_ref());
    }
    all
}

fn exit_with_usage(exit: &Exit, detail: Detail) -> Value {
    let mut all = exit_row(exit, detail);
    all["usage"] = json!(exit.usage);
    set_last_output(&mut all, exit, detail);
    all
}

/// A task writes what it likes: as logs, it is not for everybody.
fn set_last_output(row: &mut Value, exit: &Exit, detail: Detail) {
    set(row, "last_output", exit.last_output.as_ref().filter(|_| detail == Detail::Full));
}

/// What one alloc uses. `now`: for ages.
pub fn stats(snapshot: &Snapshot, alloc: &AllocView, detail: Detail, now: Timestamp) -> Value {
    let devices = snapshot.devices.of_alloc(&alloc.identity.id);
    let measured = alloc.tasks.iter().filter(|t| *t.usage != Usage::default()).count();
    let mut all = json!({
        "id": alloc.identity.id,
        "epoch": snapshot.epoch,
        "taken_at": snapshot.taken_at,
        "final": alloc.ended,
        "aggregation": alloc.aggregation,
        "measured_tasks": measured,
        "total_tasks": alloc.tasks.len(),
        "usage": *alloc.usage,
        "absent": absent(&alloc.usage, alloc.ended),
        "tasks": by_name(alloc.tasks(), |known, task| task_stats(snapshot, known, task, &devices, now)),
    });
    set(&mut all, "devices", devices::of_alloc(&devices, detail));
    set(&mut all, "sum_of_task_peaks_bytes", sum_of_peaks(alloc));
    sampled(&mut all, alloc.sampled_at, now);
    all
}

/// What every alloc uses: `{"allocs":[...]}`. Each is made as it is written: all of thousands at once is memory that a heap does not give
/// back.
pub fn stats_of_all(snapshot: &Snapshot, detail: Detail, now: Timestamp) -> impl Serialize {
    BTreeMap::from([("allocs", Each(&snapshot.allocs, move |alloc: &AllocView| stats(snapshot, alloc, detail, now)))])
}

struct Each<'a, F>(&'a [Arc<AllocView>], F);

impl<F: Fn(&AllocView) -> Value> Serialize for Each<'_, F> {
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
) -> Value {
    let running = task.attempt.is_some();
    let mut all = json!({
        "final": !running,
        "usage": *task.usage,
        "absent": absent(&task.usage, !running),
    });
    if let Some(managed) = &task.managed {
        let dwells = TaskState::ALL.map(|s| managed.time_in(s, snapshot.steady_at).0);
        all["time_in_state_ns"] = by(TaskState::ALL.map(TaskState::as_str), dwells);
        all["state"] = json!(managed.status.state);
        set(&mut all, "attempt", managed.status.begun().map(number));
    }
    set(&mut all, "this_attempt", task.attempt.as_deref());
    set(&mut all, "devices", devices::of_task(devices, &known.name));
    sampled(&mut all, task.sampled_at, now);
    all
}

/// An upper bound of what the tasks needed together, and no peak: they need not have had theirs at the same time. Absent
/// where one task has none.
fn sum_of_peaks(alloc: &AllocView) -> Option<u64> {
    alloc.tasks.iter().try_fold(0_u64, |sum, t| Some(sum.saturating_add(t.usage.memory_peak_bytes()?)))
}

fn sampled(all: &mut Value, at: Option<Timestamp>, now: Timestamp) {
    set(all, "sampled_at", at);
    set(all, "age_ms", at.map(|at| now.since(at).0 / 1_000_000));
}

/// The fields that have no value. What is used now is not missed after the end.
fn absent(usage: &Usage, ended: bool) -> Vec<&'static str> {
    let expected = Field::ALL.into_iter().filter(|field| !(ended && field.nature().goes_with_the_end()));
    expected.filter(|field| usage.get(*field).is_none()).map(Field::name).collect()
}

/// This host: what it is, what can be measured, what runs and ran on it.
pub fn node(snapshot: &Snapshot) -> Value {
    let mut all = json!(*snapshot.info);
    let files = [&KEPT_FILES, &WANTED_FILES, &KEPT_FILES_LIMIT].map(|desc| snapshot.agent.int(desc));
    if let [Some(kept), Some(wanted), Some(limit)] = files {
        all["kept_files"] = json!({ "kept": kept, "wanted": wanted, "limit": limit });
    }
    all["usage"] = host::usage(snapshot);
    all["agent"] = host::agent(snapshot);
    all["epoch"] = json!(snapshot.epoch);
    all["taken_at"] = json!(snapshot.taken_at);
    all["allocs"] = by(AllocState::ALL.map(AllocState::as_str), snapshot.counts.allocs);
    all["tasks"] = by(TaskState::ALL.map(TaskState::as_str), snapshot.counts.tasks);
    all["allocated"] = json!({
        "memory_bytes": snapshot.counts.allocated_memory_bytes,
        "cpu_cores": snapshot.counts.allocated_cpu_cores,
    });
    let node = &snapshot.node;
    all["totals"] = json!({
        "allocs": node.allocs,
        "task_exits": by(Outcome::ALL.map(Outcome::as_str), node.exits),
        "task_restarts": by(RestartReason::ALL.map(RestartReason::as_str), node.restarts),
    });
    set(&mut all["totals"], "task_oom_kills", node.oom_kills);
    set(&mut all["totals"], "cpu_usage_ns", node.cpu_usage_ns.map(Nanos));
    all["workloads"] = workloads(snapshot);
    all
}

/// Live and ended together, per workload and task.
pub fn workloads(snapshot: &Snapshot) -> Value {
    let each = snapshot.workloads.iter().map(|w| {
        json!({
            "workload": w.workload,
            "task": w.task,
            "usage": w.usage,
            "exits": by(Outcome::ALL.map(Outcome::as_str), w.ended.exits),
            "restarts": restarts(&w.restarts(snapshot.info.can(KERNEL_ENDS))),
        })
    });
    each.collect()
}

fn restarts(counts: &Restarts) -> Value {
    let told =
        restarts::REASONS.into_iter().zip(counts).filter_map(|(reason, n)| Some((reason.to_owned(), json!((*n)?))));
    told.collect::<Map<_, _>>().into()
}

fn by_name<'a>(
    tasks: impl Iterator<Item = (&'a TaskIdentity, &'a TaskView)>,
    row: impl Fn(&TaskIdentity, &TaskView) -> Value,
) -> Value {
    tasks.map(|(known, task)| (known.name.to_string(), row(known, task))).collect::<Map<_, _>>().into()
}

fn by<const N: usize>(names: [&'static str; N], values: [u64; N]) -> Value {
    names.into_iter().zip(values).map(|(name, n)| (name.to_owned(), json!(n))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests;
