//! A job file on its way to the runner: what is wrong with it, each problem with its place, and what it would run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ApiContext;
use super::error::{ApiError, Code};
use super::target::encode;
use crate::host::process;
use crate::jobspec::cron::CronSchedule;
use crate::jobspec::diff::ObjectDiff;
use crate::jobspec::evaluate::recorded::{RecordedInputs, ReplayedInputs, WithInputs};
use crate::jobspec::{self, Diagnostic, Diagnostics, GivenVariables, Inputs, ParsedJob, Severity};
use crate::model::id::{AllocId, GroupName, TaskName};
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::migration::MigrationSource;
use crate::model::network::PortRequest;
use crate::model::placement::{NotPlaced, PlacementReason};
use crate::model::sensitive::SensitiveValues;
use crate::model::units::{Nanos, Timestamp};
use crate::runner::datadir::DataDir;
use crate::runner::drivers::{self, DriverInfo, Fingerprint, Health};
use crate::runner::{AwaitedPort, Drivers, Handle, RunnerError, UnknownHostNetwork, UnplacedAllocs};

/// A job file as it came in: its name decides how errors cite it.
#[derive(Debug, Clone)]
pub struct JobText {
    pub file: String,
    /// As it came: whether it is text at all is a question with a place in the file.
    pub text: Vec<u8>,
    pub variables: GivenVariables,
    /// What the command read for it.
    pub recorded: RecordedInputs,
}

impl JobText {
    /// Where to send it, and the body: the file itself where it needs nothing else.
    pub fn request(&self, plan: bool) -> (String, Vec<u8>) {
        let plan = if plan { "plan=1&" } else { "" };
        let file = encode(&self.file);
        if self.variables == GivenVariables::default() && self.recorded.is_empty() {
            return (format!("/v1/jobs?{plan}file={file}"), self.text.clone());
        }
        let whole = WithInputs {
            source: String::from_utf8_lossy(&self.text).into_owned(),
            variables: self.variables.clone(),
            recorded: self.recorded.clone(),
        };
        (format!("/v1/jobs?{plan}form=inputs&file={file}"), serde_json::to_vec(&whole).unwrap_or_default())
    }
}

/// What became of a job file, or would become of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Submitted {
    pub job: String,
    /// `service`, `batch`, `system` or `sysbatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// New allocs; empty in a plan.
    pub allocs: Vec<String>,
    /// What runs (or would run): `group`, `count`, tasks.
    pub groups: Vec<PlannedGroup>,
    /// Live allocs of the job that are stopped and replaced.
    pub replaces: Vec<String>,
    /// Live allocs of this very job: nothing happens.
    #[serde(default)]
    pub unchanged: Vec<String>,
    /// A plan only: the agent has no live alloc of this job and has not registered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_new: Option<bool>,
    /// A plan only: what differs from the job that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<ObjectDiff>,
    /// A plan only: what happens to the allocs of each group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<GroupEffect>,
    /// Allocs that wait, or would wait, for their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_placed: Vec<UnplacedGroup>,
    /// It launches others, and has no allocs of its own: when it does so first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches: Option<PlannedLaunches>,
    /// What of the file is ignored, each with its place.
    pub warnings: Vec<Diagnostic>,
}

/// What happens to the allocs of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct GroupEffect {
    pub group: String,
    /// New ones, in places that no live alloc has.
    pub starts: u32,
    /// Live ones that are stopped, each with a new one in its place.
    pub replaces: u32,
    /// Live ones that are stopped: the group is smaller, or gone.
    pub stops: u32,
    /// Live ones of this very job.
    pub stays: u32,
    /// So many are replaced at a time; absent: all at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
}

/// What a periodic or parameterized job waits for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlannedLaunches {
    /// Of a periodic job; absent: it has none, or is not launched by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    pub parameterized: bool,
}

/// Allocs of one group that are not placed, for the same reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnplacedGroup {
    pub group: String,
    pub count: u32,
    pub reasons: Vec<NotPlaced>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlannedGroup {
    pub name: String,
    pub count: u32,
    /// How well this node suits its affinities, from -1 to 1; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<f64>,
    pub tasks: Vec<PlannedTask>,
    /// Those that each of its allocs gets, its tasks' own too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortRequest>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PlannedTask {
    pub name: String,
    pub driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
}

/// Takes a job on.
///
/// Errors: a broken file (`invalid_job`, each problem with its place). An unchanged job that runs changes nothing.
pub(super) async fn submit(
    context: &ApiContext,
    job: &JobText,
    migrate_from: Option<MigrationSource>,
) -> Result<Submitted, ApiError> {
    let parsed = understand(context, job)?;
    let mut submitted = describe(context, &parsed).await;
    let sensitive = parsed.job.sensitive.clone();
    let reply = match migrate_from {
        None => context.runner.submit(parsed.job).await,
        Some(source) => context.runner.submit_migrating(parsed.job, source).await,
    };
    let reply = match reply {
        Err(RunnerError::Unchanged { ids, .. }) => {
            submitted.unchanged = strings(&ids);
            submitted.not_placed.clear();
            return Ok(submitted);
        }
        reply => reply.map_err(|error| without(error, &sensitive))?,
    };
    submitted.allocs = strings(&reply.allocs);
    submitted.replaces = strings(&reply.replaced);
    Ok(submitted)
}

/// An error that may cite the job.
pub(super) fn without(error: impl Into<ApiError>, values: &SensitiveValues) -> ApiError {
    let error = error.into();
    ApiError { message: values.hide(&error.message).into_owned(), ..error }
}

/// Errors: every problem of the file, those that only drivers know included, each with its place.
pub(super) fn understand(context: &ApiContext, job: &JobText) -> Result<ParsedJob, ApiError> {
    let text = jobspec::text_of(&job.file, job.text.clone()).map_err(|errors| invalid(&errors))?;
    let drivers = context.runner.drivers();
    let known: Vec<&str> = drivers.keys().copied().collect();
    let check = |task: &Task| drivers.get(task.driver.as_str()).map_or(Ok(()), |driver| driver.check(task));
    let outside = ReplayedInputs { recorded: &job.recorded };
    let inputs = Inputs { given: &job.variables, outside: &outside };
    let parsed = jobspec::parse_with(&job.file, &text, inputs, |parsed| {
        let mut problems = drivers::problems(parsed, (&known, "this agent has"), check);
        problems.extend(parsed.too_long(context.runner.inherited()));
        problems.extend(unknown_networks(parsed, &context.runner));
        problems
    });
    parsed.map_err(|errors| invalid(&errors))
}

pub(super) async fn describe(context: &ApiContext, parsed: &ParsedJob) -> Submitted {
    let job = &parsed.job;
    let tasks = |group: &TaskGroup| {
        let row = |task: &Task| PlannedTask {
            name: task.name.to_string(),
            driver: task.driver.clone(),
            memory_bytes: task.resources.memory().0,
            cpu_shares: task.resources.cpu_shares,
        };
        group.tasks.iter().map(row).collect()
    };
    let group = |group: &TaskGroup| PlannedGroup {
        name: group.name.to_string(),
        count: group.count,
        affinity: context.runner.affinity(job, group),
        tasks: tasks(group),
        ports: group.port_requests().map(|(_, port)| port.clone()).collect(),
    };
    let waits = |UnplacedAllocs { group, count, reasons }| UnplacedGroup { group: group.to_string(), count, reasons };
    let mut warnings = parsed.warnings.clone();
    warnings.extend(unenforced(parsed, context.runner.drivers()));
    warnings.extend(waiting(parsed, &context.runner.driver_infos()));
    warnings.extend(not_joined(parsed, context.runner.drivers()));
    let awaited = context.runner.awaited_ports(job).await;
    warnings.extend(at_their_places(parsed, &awaited));
    warnings.extend(closed_to_users(parsed, &context.data_dir).await);
    warnings.sort_by_key(|warning| (warning.line, warning.column));
    let warnings = warnings.into_iter().map(|warning| warning.without(&job.sensitive)).collect();
    Submitted {
        job: job.id.to_string(),
        kind: job.kind.as_str().to_owned(),
        groups: job.groups.iter().map(group).collect(),
        not_placed: context.runner.not_placed(job).into_iter().map(waits).chain(waiting_for_ports(&awaited)).collect(),
        launches: launches(context, job),
        warnings,
        ..Submitted::default()
    }
}

/// When a job that launches others does so next.
fn launches(context: &ApiContext, job: &Job) -> Option<PlannedLaunches> {
    let next = job.clock().and_then(|clock| {
        let now = context.clock.now().0 / 1_000_000_000;
        CronSchedule::parse(&clock.crons, &clock.time_zone).ok()?.next_after(now)
    });
    let next_at = next.map(|second| Timestamp(0).plus(Nanos::from_secs(second)));
    job.is_parent().then(|| PlannedLaunches { next_at, parameterized: job.launching.parameterized.is_some() })
}

/// A warning for each task of another user that will find a directory closed.
async fn closed_to_users(parsed: &ParsedJob, data_dir: &Arc<DataDir>) -> Vec<Diagnostic> {
    let tasks = parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
    let named: Vec<(String, String)> = tasks
        .filter_map(|(group, task)| {
            let path = parsed.task_path(group.name.as_str(), task.name.as_str(), "user");
            Some((path, task.user.clone()?))
        })
        .collect();
    if named.is_empty() || !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let data_dir = Arc::clone(data_dir);
    let found = tokio::task::spawn_blocking(move || {
        named
            .into_iter()
            .flat_map(|(path, user)| closed_to(&data_dir, &user).into_iter().map(move |why| (path.clone(), why)))
            .collect::<Vec<_>>()
    });
    let found = found.await.unwrap_or_default();
    found.into_iter().map(|(path, why)| parsed.diagnose(Severity::Warning, &path, why)).collect()
}

/// What a task of this user finds closed, in sentences. A user that does not exist is reported when the task starts.
fn closed_to(data_dir: &DataDir, user: &str) -> Vec<String> {
    let Some(account) = process::account(user).ok().filter(|account| account.uid != 0) else { return Vec::new() };
    let shared = (!data_dir.keeps_acls()).then(|| {
        format!(
            "NOMAD_ALLOC_DIR will be closed to user {}: the file system of {} keeps no ACLs",
            account.name,
            data_dir.root().display()
        )
    });
    data_dir.closed_to(&account).into_iter().chain(shared).collect()
}

fn invalid(errors: &Diagnostics) -> ApiError {
    let field = errors.0.first().map(|d| d.field.clone()).filter(|f| !f.is_empty());
    let count = errors.0.len();
    let message = format!("the job file is refused: {count} {}", if count == 1 { "problem" } else { "problems" });
    let mut error = ApiError::new(Code::InvalidJob, message);
    error.field = field;
    error.problems =
        errors.0.iter().map(|d| serde_json::to_value(d).expect("a diagnostic holds plain values")).collect();
    error
}

fn strings(ids: &[AllocId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// A warning for each task that will wait for its driver.
fn waiting(parsed: &ParsedJob, drivers: &[(&'static str, DriverInfo)]) -> Vec<Diagnostic> {
    let tasks = parsed.job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
    let wait = |(group, task): (&TaskGroup, &Task)| {
        let (_, info) = drivers.iter().find(|(name, _)| *name == task.driver)?;
        let Fingerprint { health, description, .. } =
            info.fingerprint.as_ref().filter(|report| report.health != Health::Healthy)?;
        let path = parsed.task_path(group.name.as_str(), task.name.as_str(), "driver");
        let message = format!("it will wait for its driver, which is {}: {description}", health.as_str());
        Some(parsed.diagnose(Severity::Warning, &path, message))
    };
    tasks.filter_map(wait).collect()
}

/// Warns of each task that keeps its group from a network namespace.
fn not_joined(parsed: &ParsedJob, drivers: &Drivers) -> Vec<Diagnostic> {
    let isolated = |group: &&TaskGroup| group.network.as_ref().is_some_and(|network| network.mode.is_isolated());
    let tasks = parsed.job.groups.iter().filter(isolated);
    let tasks = tasks.flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
    let warn = |(group, task): (&TaskGroup, &Task)| {
        let joins = drivers.get(task.driver.as_str())?.joins_namespaces();
        let path = parsed.task_path(group.name.as_str(), task.name.as_str(), "driver");
        let message = format!("its group will fail: driver {} cannot join a network namespace", task.driver);
        (!joins).then(|| parsed.diagnose(Severity::Warning, &path, message))
    };
    tasks.filter_map(warn).collect()
}

/// Of each port at a network that this agent does not know.
fn unknown_networks(parsed: &ParsedJob, runner: &Handle) -> Vec<Diagnostic> {
    let problem = |(group, unknown): (GroupName, UnknownHostNetwork)| {
        let task = unknown.task.as_ref().map(TaskName::as_str);
        let path = parsed.port_path(group.as_str(), task, &unknown.label) + ".host_network";
        let mut found = parsed.diagnose(Severity::Error, &path, unknown.to_string());
        found.suggestion = Some("name it in the agent's setting network.host_networks".to_owned());
        found
    };
    runner.unknown_host_networks(&parsed.job).into_iter().map(problem).collect()
}

/// Warns of each static port that its allocs will wait for, at its place.
fn at_their_places(parsed: &ParsedJob, awaited: &[AwaitedPort]) -> Vec<Diagnostic> {
    let warn = |port: &AwaitedPort| {
        let task = port.task.as_ref().map(TaskName::as_str);
        let path = parsed.port_path(port.group.as_str(), task, &port.label) + ".static";
        parsed.diagnose(Severity::Warning, &path, format!("it will wait: {}", port.why))
    };
    awaited.iter().map(warn).collect()
}

/// The groups that wait for ports, each with all of them.
fn waiting_for_ports(awaited: &[AwaitedPort]) -> Vec<UnplacedGroup> {
    let mut groups: Vec<UnplacedGroup> = Vec::new();
    for port in awaited {
        let reason = NotPlaced::new(PlacementReason::Port, port.why.clone());
        match groups.iter_mut().find(|group| group.group == port.group.as_str()) {
            Some(group) => {
                group.count = group.count.max(port.count);
                group.reasons.push(reason);
            }
            None => {
                groups.push(UnplacedGroup { group: port.group.to_string(), count: port.count, reasons: vec![reason] })
            }
        }
    }
    groups
}

/// What the file says and this host will not do, by each task's driver.
fn unenforced(parsed: &ParsedJob, drivers: &Drivers) -> Vec<Diagnostic> {
    let mut all = Vec::new();
    for group in &parsed.job.groups {
        for task in &group.tasks {
            let Some(driver) = drivers.get(task.driver.as_str()) else { continue };
            if !task.volume_mounts.is_empty() && !driver.mounts_volumes() {
                let path = parsed.task_path(group.name.as_str(), task.name.as_str(), "volume_mount");
                let message = format!("the start will fail: driver {} does not support host volumes", task.driver);
                all.push(parsed.diagnose(Severity::Warning, &path, message));
            }
            for limit in driver.unenforced(task) {
                let path = parsed.task_path(group.name.as_str(), task.name.as_str(), limit.field);
                let word = limit.field.rsplit('.').next().unwrap_or(limit.field);
                let message = format!("`{word}` will not be enforced: {}", limit.why);
                all.push(parsed.diagnose(Severity::Warning, &path, message));
            }
        }
    }
    all
}
