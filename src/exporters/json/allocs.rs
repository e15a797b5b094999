//! `/v1/allocs` and `/v1/allocs/{id}`: what an alloc is and does. What it uses is in [`stats`](super::stats).

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{EventAnswer, by, by_name, event, number, restarts};
use crate::board::services::AllocHealth;
use crate::model::alloc::{AllocSource, AllocState, AllocStatus, Desired, Measured, TaskIdentity};
use crate::model::answer::{Detail, WITHHELD};
use crate::model::id::{AllocId, CgroupPath, DeviceId, GroupName, JobId, ProcessId, TaskName};
use crate::model::job::{Job, JobKind, Lifecycle};
use crate::model::last_output::LastOutput;
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork, NetworkMode};
use crate::model::placement::NotPlaced;
use crate::model::sensitive::HIDDEN;
use crate::model::service::CheckStatus;
use crate::model::small_map::SmallMap;
use crate::model::task::{Exit, ExitStatus, Failure, Outcome, ServiceResult, ShownState};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::snapshot::restarts::reports_outcome;
use crate::snapshot::{Aggregation, AllocView, ManagedTaskLifecycle, Snapshot, TaskView};

/// All allocs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocsAnswer {
    pub allocs: Vec<AllocInList>,
    /// Supervisors on this host by the agent that watches them. Absent until they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisors: Option<BTreeMap<&'static str, u64>>,
}

/// One alloc of the list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocInList {
    #[serde(flatten)]
    pub alloc: AllocSummary,
    /// By name.
    pub tasks: BTreeMap<TaskName, TaskSummary>,
}

/// What the list and the answer about one alloc have in common.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocSummary {
    pub id: AllocId,
    /// `job.group[index]` of a managed alloc; the name that its runtime uses of an observed one.
    pub name: String,
    pub source: AllocSource,
    /// The job of a managed alloc, the workload of an observed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The periodic or parameterized job that launched its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AllocState>,
    /// Why it has this status, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The desired state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<Desired>,
    /// When the last task ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Labels of an observed alloc, as far as `observe.labels` exposes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Tasks that the agent abandoned: they are dead, and processes of them may still run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_run: Option<Vec<TaskName>>,
    /// Why the alloc is not placed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_placed: Option<Vec<NotPlaced>>,
    /// The alloc that this one replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_alloc: Option<AllocId>,
    /// The alloc that replaced this one after it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_alloc: Option<AllocId>,
    /// How often a failed alloc was replaced before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedules: Option<u64>,
    /// It failed, and is replaced at this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedule_at: Option<Timestamp>,
    /// Whether the alloc came up. Absent after its end, and of observed allocs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<AllocHealth>,
}

/// A task in the list.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct TaskSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ShownState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Timestamp>,
    /// It failed, and is not restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// Why it is not restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u64>,
    /// The attempt that runs or ran last, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Absent of main tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// When the next attempt starts, during a backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_start_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<ExitAnswer>,
}

/// How one attempt ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExitAnswer {
    /// Counted from 1.
    pub attempt: u64,
    pub outcome: Outcome,
    pub status: ExitStatus,
    /// Absent if the main process never started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// OOM kills in the cgroup of the task during this attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Of a service of systemd, where systemd reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ServiceResult>,
    /// The last lines of stderr. Only for clients that may read logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_output: Option<LastOutput>,
}

/// One attempt that ended, with what it used.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExitWithReading {
    #[serde(flatten)]
    pub exit: ExitAnswer,
    pub usage: Usage,
}

/// One alloc with all that is known of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AllocAnswer {
    #[serde(flatten)]
    pub alloc: AllocSummary,
    /// By name.
    pub tasks: BTreeMap<TaskName, TaskAnswer>,
    pub namespace: String,
    pub measured: Measured,
    pub aggregation: Aggregation,
    /// Its series are exposed. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed: Option<bool>,
    /// The index in its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The type of its job.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<JobKind>,
    /// Grows with each change of its state. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<AllocPort>>,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupPath>,
    /// The job as the agent runs it: docs/job-files.md describes its fields. Only for clients that may act.
    #[schemars(with = "serde_json::Map<String, Value>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Value>,
    /// Why it is unhealthy, or not healthy yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<CheckAnswer>>,
}

/// The network namespace of an alloc.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NetworkAnswer {
    pub mode: NetworkMode,
    pub hostname: String,
    /// Addresses of the interface inside.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<std::net::IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The file to join it by. Only for clients that may act.
    #[schemars(with = "String")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<std::path::PathBuf>,
}

/// One task with all that is known of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskAnswer {
    #[serde(flatten)]
    pub task: TaskSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The image of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Restarts by reason.
    pub restarts_by_reason: BTreeMap<&'static str, u64>,
    /// Exits by outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits_by_outcome: Option<BTreeMap<&'static str, u64>>,
    /// The newest 10 attempts that ended, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exits: Option<Vec<ExitWithReading>>,
    /// The newest 10 events, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventAnswer>>,
    /// Events by kind. Absent in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_counts: Option<SmallMap<u64>>,
    /// Devices that its attempt holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<DeviceId>>,
    /// Where its runtime made it reachable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<DriverNetwork>,
    /// The main process. Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<ProcessId>,
    /// Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupPath>,
}

/// A health check.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckAnswer {
    pub service: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: CheckStatus,
    pub status_since: Timestamp,
    /// It runs.
    pub active: bool,
    pub runs: u64,
    pub failures: u64,
    /// Restarts of tasks that it caused.
    pub restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<Nanos>,
    /// What it printed. Only for clients that may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// `/v1/allocs`.
pub fn allocs(snapshot: &Snapshot, detail: Detail) -> AllocsAnswer {
    let row = |alloc: &std::sync::Arc<AllocView>| AllocInList {
        alloc: summary(alloc, detail),
        tasks: by_name(alloc.tasks(), |known, task| task_summary(alloc, known, task, detail)),
    };
    AllocsAnswer { allocs: snapshot.allocs.iter().map(row).collect(), supervisors: None }
}

fn summary(alloc: &AllocView, detail: Detail) -> AllocSummary {
    let identity = &alloc.identity;
    let status = alloc.status.as_deref();
    let observed = alloc.observed.as_deref();
    let job = status.map(|status| &status.job);
    let lineage = status.map(|status| &status.lineage);
    let not_placed =
        status.map(|status| status.not_placed.iter().map(|one| placement_reason(one, detail)).collect::<Vec<_>>());
    let labels = observed.filter(|observed| !observed.labels.is_empty());
    AllocSummary {
        id: identity.id.clone(),
        name: identity.name.clone(),
        source: identity.source,
        job: job.map(|job| &job.id).or(identity.workload.as_ref()).cloned(),
        parent: job.and_then(|job| job.parent()).cloned(),
        group: identity.group.clone(),
        created_at: identity.created_at,
        status: status.map(|status| status.state).or(observed.map(|observed| observed.state())),
        description: status.map(|status| status.description().into_owned()),
        desired: status.map(|status| status.desired),
        finished_at: status
            .and_then(|status| status.finished_at)
            .or(observed.and_then(|observed| observed.finished_at())),
        labels: labels
            .map(|observed| observed.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect()),
        may_run: status.map(|status| status.may_run.clone()).filter(|tasks| !tasks.is_empty()),
        not_placed: not_placed.filter(|reasons| !reasons.is_empty()),
        previous_alloc: lineage.and_then(|lineage| lineage.previous.clone()),
        next_alloc: lineage.and_then(|lineage| lineage.next.clone()),
        reschedules: lineage.map(|lineage| lineage.reschedules).filter(|count| *count > 0),
        reschedule_at: lineage.and_then(|lineage| lineage.reschedule_at),
        health: None,
    }
}

/// A reason may cite metadata of the node.
fn placement_reason(one: &NotPlaced, detail: Detail) -> NotPlaced {
    let message = if detail == Detail::Full { one.message.as_str() } else { WITHHELD };
    NotPlaced::new(one.reason, message)
}

/// What can be seen from outside.
fn observed_summary(task: &TaskView, detail: Detail) -> TaskSummary {
    let started_at = task.started_at;
    let Some(task) = &task.observed else { return TaskSummary::default() };
    TaskSummary {
        state: Some(task.state()),
        restarts: Some(task.restarts_total()),
        state_since: task.state_since(),
        started_at,
        last_exit: task.exits.back().map(|exit| exit_answer(exit, detail)),
        ..TaskSummary::default()
    }
}

/// Of an observed task nothing is reported that only its runtime knows.
fn task_summary(alloc: &AllocView, known: &TaskIdentity, task: &TaskView, detail: Detail) -> TaskSummary {
    let Some(ManagedTaskLifecycle { status: task, .. }) = &task.managed else { return observed_summary(task, detail) };
    let group = alloc.status.as_ref().and_then(|status| status.task_group());
    TaskSummary {
        state: Some(task.state.into()),
        state_since: Some(task.state_since),
        failed: Some(task.failed),
        failure: task.failure,
        restarts: Some(task.restarts_total()),
        attempt: task.last_attempt().map(number),
        started_at: task.started_at,
        finished_at: task.finished_at,
        // Main tasks have none.
        lifecycle: group.and_then(|group| group.task(known.name.as_str())?.lifecycle),
        next_start_at: task.next_start_at,
        last_exit: task.last_exit().map(|exit| exit_answer(exit, detail)),
    }
}

fn exit_answer(exit: &Exit, detail: Detail) -> ExitAnswer {
    ExitAnswer {
        attempt: number(exit.attempt),
        outcome: exit.outcome,
        status: detail.status(&exit.status),
        started_at: exit.started_at,
        finished_at: exit.finished_at,
        oom_kills: exit.oom_kills,
        result: exit.result,
        last_output: None,
    }
}

/// `/v1/allocs/{id}`: the row of the list and all that is published of it.
pub fn alloc(alloc: &AllocView, detail: Detail) -> AllocAnswer {
    let identity = &alloc.identity;
    let status = alloc.status.as_deref();
    let is_full = detail == Detail::Full;
    let network = status.and_then(|status| status.network.as_ref());
    AllocAnswer {
        alloc: summary(alloc, detail),
        tasks: by_name(alloc.tasks(), |known, task| task_answer(alloc, known, task, detail)),
        namespace: identity.namespace.clone(),
        measured: identity.measured,
        aggregation: alloc.aggregation,
        exposed: Some(!alloc.retired),
        index: status.map(|status| status.index),
        kind: status.map(|status| status.job.kind),
        generation: status.map(|status| status.generation),
        network: network.map(|network| network_answer(network, status, detail)),
        ports: status.map(|status| status.ports.clone()).filter(|ports| !ports.is_empty()),
        cgroup: identity.cgroup.clone().filter(|_| is_full),
        definition: status.filter(|_| is_full).map(|status| definition(&status.job)),
        health_reason: None,
        checks: None,
    }
}

/// A job without the values of its sensitive variables.
fn definition(job: &Job) -> Value {
    let mut shown = json!(job);
    if let Some(fields) = shown.as_object_mut().filter(|_| !job.sensitive.is_empty()) {
        fields.remove("sensitive");
        return job.sensitive.hide_in_json(&shown);
    }
    shown
}

fn network_answer(network: &AllocNetwork, status: Option<&AllocStatus>, detail: Detail) -> NetworkAnswer {
    NetworkAnswer {
        mode: network.mode.clone(),
        hostname: status.map_or_else(|| network.hostname.clone(), |status| shown_hostname(network, status)),
        addresses: network.addresses.clone(),
        interface: network.interface.clone(),
        namespace: Some(network.namespace.clone()).filter(|_| detail == Detail::Full),
    }
}

/// Without sensitive values: whole if its job has one there, for characters that no host name has are replaced.
fn shown_hostname(network: &AllocNetwork, status: &AllocStatus) -> String {
    let hide = |text| status.job.sensitive.hide(text);
    let requested =
        status.job.group(status.group.as_str()).and_then(|group| group.network.as_ref()?.hostname.as_deref());
    match requested.map(hide) {
        Some(Cow::Owned(_)) => HIDDEN.to_owned(),
        _ => hide(&network.hostname).into_owned(),
    }
}

fn task_answer(alloc: &AllocView, known: &TaskIdentity, task: &TaskView, detail: Detail) -> TaskAnswer {
    let is_full = detail == Detail::Full;
    let exits = |exits: &std::collections::VecDeque<std::sync::Arc<Exit>>| {
        exits.iter().map(|exit| exit_with_reading(exit, detail)).collect::<Vec<_>>()
    };
    let mut all = TaskAnswer {
        task: task_summary(alloc, known, task, detail),
        driver: known.driver.clone(),
        image: known.image.clone(),
        user: known.user.clone().filter(|_| is_full),
        restarts_by_reason: restarts(&task.restarts(reports_outcome(alloc.identity.source))),
        exits_by_outcome: None,
        exits: None,
        events: None,
        event_counts: None,
        devices: None,
        network: None,
        main: None,
        cgroup: None,
    };
    if let Some(task) = &task.observed {
        all.exits_by_outcome = Some(by(Outcome::ALL.map(Outcome::as_str), task.exit_counts));
        all.exits = Some(exits(&task.exits));
        all.cgroup = task.cgroup.clone().filter(|_| is_full);
    }
    let Some(ManagedTaskLifecycle { status: task, .. }) = &task.managed else { return all };
    all.exits_by_outcome = Some(by(Outcome::ALL.map(Outcome::as_str), task.exit_counts));
    all.exits = Some(exits(&task.exits));
    all.events = Some(task.events.iter().map(|e| event(&detail.event(e))).collect());
    all.event_counts = Some(task.event_counts.clone());
    if let Some((shown, exit)) = all.task.last_exit.as_mut().zip(task.last_exit()) {
        shown.last_output = last_output(exit, detail);
    }
    all.devices = Some(task.devices.clone()).filter(|devices| !devices.is_empty());
    all.network = task.network.clone();
    all.main = task.main.filter(|_| is_full);
    all.cgroup = task.cgroup.clone().filter(|_| is_full);
    all
}

fn exit_with_reading(exit: &Exit, detail: Detail) -> ExitWithReading {
    let last_output = last_output(exit, detail);
    ExitWithReading { exit: ExitAnswer { last_output, ..exit_answer(exit, detail) }, usage: (*exit.usage).clone() }
}

/// A task writes what it likes: its output has the readers of logs.
fn last_output(exit: &Exit, detail: Detail) -> Option<LastOutput> {
    exit.last_output.clone().filter(|_| detail == Detail::Full)
}
