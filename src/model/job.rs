//! What a job file asks for, checked and with every default filled in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::artifact::TaskArtifact;
use super::constraint::{NodeAffinity, NodeConstraint};
use super::demand::DeviceRequest;
use super::id::{GroupName, JobId, TaskName};
use super::launching::JobLaunching;
use super::network::{GroupNetwork, PortRequest};
use super::reschedule::ReschedulePolicy;
use super::sensitive::SensitiveValues;
use super::service::{HealthRule, Service};
use super::template::TaskTemplate;
use super::update::UpdatePolicy;
use super::volume::{GroupStorage, VolumeMount};
use super::words;

/// A job: what `allostat run FILE` submits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    /// Defaults to the id.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: JobKind,
    /// Kept as it was given: one host has no namespaces. Default `default`.
    pub namespace: String,
    pub region: String,
    pub datacenters: Vec<String>,
    #[serde(default = "Job::any_pool", skip_serializing_if = "Job::is_any_pool")]
    pub node_pool: String,
    pub meta: BTreeMap<String, String>,
    #[serde(flatten)]
    pub placing: PlacementRules,
    #[serde(flatten)]
    pub launching: JobLaunching,
    pub groups: Vec<TaskGroup>,
    /// What of it is shown nowhere.
    #[serde(default, skip_serializing_if = "SensitiveValues::is_empty")]
    pub sensitive: SensitiveValues,
}

/// What a job, a group or a task asks of its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRules {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<NodeConstraint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinities: Vec<NodeAffinity>,
}

words! {
    pub enum JobKind {
        /// Runs until stopped: an exit with 0 is restarted by policy.
        Service = "service",
        /// Runs until done: an exit with 0 is success.
        Batch = "batch",
        /// A service with one alloc on each node.
        System = "system",
        /// A batch job with one alloc on each node.
        Sysbatch = "sysbatch",
    }
}

impl JobKind {
    /// It runs until it is stopped.
    pub fn is_service(self) -> bool {
        matches!(self, JobKind::Service | JobKind::System)
    }
    /// It has one alloc on each node.
    pub fn is_on_each_node(self) -> bool {
        matches!(self, JobKind::System | JobKind::Sysbatch)
    }
    /// How its failed allocs are replaced by default. `None`: they are not, whatever the job file says.
    pub fn reschedule_policy(self) -> Option<ReschedulePolicy> {
        match self {
            JobKind::Service => Some(ReschedulePolicy::OF_SERVICES),
            JobKind::Batch => Some(ReschedulePolicy::OF_BATCH_JOBS),
            JobKind::System | JobKind::Sysbatch => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskGroup {
    pub name: GroupName,
    /// How many allocs of this group run. Default 1.
    pub count: u32,
    pub meta: BTreeMap<String, String>,
    /// Applies to each task that has no `restart` of its own.
    pub restart: RestartPolicy,
    /// How long the stop of an alloc waits before its first task is asked to end. Default 0.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub shutdown_delay: Duration,
    /// How long after its creation an alloc is ended, as complete; batch jobs only. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run_duration: Option<Duration>,
    #[serde(flatten)]
    pub placing: PlacementRules,
    pub tasks: Vec<Task>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<GroupNetwork>,
    #[serde(flatten)]
    pub storage: GroupStorage,
    /// Those of the group, then those of its tasks. Agents before this one kept the stanzas as they stood, under
    /// `services`.
    #[serde(default, rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// When an alloc of it is healthy; `None`: that is not asked (batch jobs, `max_parallel = 0`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthRule>,
    /// How the allocs of a changed job are replaced. `None`: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdatePolicy>,
    /// How its failed allocs are replaced. `None`: as allocs of that kind of job are
    /// ([`TaskGroup::reschedule_policy`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule: Option<ReschedulePolicy>,
    #[serde(default, skip_serializing_if = "EphemeralDisk::is_default")]
    pub ephemeral_disk: EphemeralDisk,
}

/// What an alloc's shared data and its tasks' `local` outlive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EphemeralDisk {
    /// A replacement on the same host gets what is in them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// So does one on another host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub migrate: bool,
}

impl EphemeralDisk {
    fn is_default(&self) -> bool {
        *self == EphemeralDisk::default()
    }
    /// Whether a replacement on this host gets what is in them: `migrate` implies `sticky`.
    pub fn moves(&self) -> bool {
        self.sticky || self.migrate
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub name: TaskName,
    /// `raw_exec` or `mock`.
    pub driver: String,
    /// The driver's own settings, checked by the driver (`drivers::Driver::parse_config`) when the job is submitted.
    /// Shape: a JSON object, in the words of the job file; its texts are templates, as in `env`.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// Templates: interpolated by `jobspec::interpolate::prepare` when the task starts.
    pub env: BTreeMap<String, String>,
    pub meta: BTreeMap<String, String>,
    pub user: Option<String>,
    #[serde(flatten)]
    pub placing: PlacementRules,
    pub resources: Resources,
    pub restart: RestartPolicy,
    pub logs: LogConfig,
    /// How long after the kill signal the task is killed by force. Default 5 s.
    pub kill_timeout: Duration,
    /// A signal's name; `None`: its driver's own.
    pub kill_signal: Option<String>,
    /// `None`: a main task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// With its end the other tasks of the alloc are ended too. Of main tasks, and at most one of a group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leader: bool,
    /// How long between the request to end it and its kill signal. Default 0.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub shutdown_delay: Duration,
    /// Each attempt gets its place in the trace of its alloc.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traceparent: bool,
    /// Fetched before the first start, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<TaskArtifact>,
    /// Rendered before each start, in this order, and again when something changes that they read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TaskTemplate>,
    /// Where the payload of its job's dispatch is written, below its `local` directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_payload: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// When a task that is not a main task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Lifecycle {
    pub hook: LifecycleHook,
    /// It runs on beside the main tasks, and is ended after them. Not with `poststop`.
    pub sidecar: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LifecycleHook {
    /// Before the main tasks, which wait for its success (a sidecar: for its start).
    Prestart,
    /// When every main task has started.
    Poststart,
    /// When everything else has ended.
    Poststop,
}

/// Shares and limits. Absent is absent: no limit is set and no limit series exists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Nomad's `cpu` in MHz, used as shares (v1 `cpu.shares`) or weight (v2 `cpu.weight`).
    pub cpu_shares: Option<u64>,
    /// Nomad's `memory` in MiB, here in bytes: enforced.
    pub memory_bytes: Option<u64>,
    /// Nomad's `memory_max` in MiB, here in bytes: then this is enforced and `memory` is the reservation.
    pub memory_max_bytes: Option<u64>,
    /// `memory_max = -1`: `memory` is a reservation, and nothing is enforced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_unlimited: bool,
    /// So many cores of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Which cores it has: known when it is placed, never part of a job.
    #[serde(skip)]
    pub core_ids: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRequest>,
    /// Deprecated in Nomad: ports that only this task has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<GroupNetwork>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// Restarts allowed within `interval`.
    pub attempts: u32,
    pub interval: Duration,
    pub delay: Duration,
    pub mode: RestartMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMode {
    /// Attempts used up: the task fails.
    Fail,
    /// Attempts used up: wait until the interval is over, then go on.
    Delay,
}

impl RestartPolicy {
    /// Nomad's defaults: services 2 in 30 min, batch jobs 3 in 24 h, 15 s apart, then fail.
    pub fn default_for(kind: JobKind) -> RestartPolicy {
        let (attempts, interval) = match kind {
            JobKind::Service | JobKind::System => (2, Duration::from_secs(30 * 60)),
            JobKind::Batch | JobKind::Sysbatch => (3, Duration::from_secs(24 * 3600)),
        };
        RestartPolicy { attempts, interval, delay: Duration::from_secs(15), mode: RestartMode::Fail }
    }
}

/// Rotation of stdout and stderr, each on its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogConfig {
    pub max_files: u32,
    /// Size of one file, in bytes. Job files say MiB.
    pub max_file_bytes: u64,
    pub disabled: bool,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig { max_files: 10, max_file_bytes: 10 << 20, disabled: false }
    }
}

impl Job {
    /// Nomad's name for the pool that has every node.
    pub const ANY_POOL: &str = "all";

    fn any_pool() -> String {
        Job::ANY_POOL.to_owned()
    }
    fn is_any_pool(pool: &str) -> bool {
        pool == Job::ANY_POOL
    }
    /// Its allocs would be the same: jobs that differ in how they are updated run the same.
    pub fn runs_as(&self, other: &Job) -> bool {
        let without = |job: &Job| {
            let mut job = job.clone();
            job.groups.iter_mut().for_each(|group| group.update = None);
            job
        };
        self == other || without(self) == without(other)
    }
    /// One of its groups is replaced some allocs at a time.
    pub fn is_rolling(&self) -> bool {
        self.groups.iter().any(|group| group.update.is_some())
    }
    pub fn group(&self, name: &str) -> Option<&TaskGroup> {
        self.groups.iter().find(|g| g.name.as_str() == name)
    }
}

impl Resources {
    /// What is enforced of its memory, and what is only reserved.
    pub fn memory(&self) -> (Option<u64>, Option<u64>) {
        match (self.memory_max_bytes, self.memory_unlimited) {
            (Some(max), _) => (Some(max), self.memory_bytes),
            (None, true) => (None, self.memory_bytes),
            (None, false) => (self.memory_bytes, None),
        }
    }
}

impl Task {
    pub const KILL_TIMEOUT: Duration = Duration::from_secs(5);

    /// A main task with nothing else in the job file.
    pub fn new(name: &str, driver: &str, config: serde_json::Map<String, serde_json::Value>, kind: JobKind) -> Task {
        Task {
            name: name.into(),
            driver: driver.to_owned(),
            config,
            env: BTreeMap::new(),
            meta: BTreeMap::new(),
            user: None,
            placing: PlacementRules::default(),
            resources: Resources::default(),
            restart: RestartPolicy::default_for(kind),
            logs: LogConfig::default(),
            kill_timeout: Self::KILL_TIMEOUT,
            kill_signal: None,
            lifecycle: None,
            leader: false,
            shutdown_delay: Duration::ZERO,
            traceparent: false,
            artifacts: Vec::new(),
            templates: Vec::new(),
            dispatch_payload: None,
            volume_mounts: Vec::new(),
        }
    }

    /// The policy for its exits. A poststop task comes to an end: no task needs it any more, and the successors of its
    /// alloc wait for it. So it waits for no further interval.
    pub fn restart_policy(&self) -> RestartPolicy {
        let is_last = self.lifecycle.is_some_and(|l| l.hook == LifecycleHook::Poststop);
        let mode = if is_last { RestartMode::Fail } else { self.restart.mode };
        RestartPolicy { mode, ..self.restart.clone() }
    }

    /// Whether an exit with success is followed by a restart. Nomad's rule: main tasks by the kind of their job, the
    /// others as long as the alloc runs only if they are sidecars.
    pub fn restarts_on_success(&self, kind: JobKind) -> bool {
        match self.lifecycle {
            None => kind.is_service(),
            Some(lifecycle) => lifecycle.sidecar,
        }
    }
}

impl TaskGroup {
    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|t| t.name.as_str() == name)
    }

    /// How its failed allocs are replaced. `None`: not at all.
    pub fn reschedule_policy(&self, kind: JobKind) -> Option<ReschedulePolicy> {
        let of_kind = kind.reschedule_policy()?;
        Some(self.reschedule.unwrap_or(of_kind)).filter(ReschedulePolicy::is_enabled)
    }

    /// Every port that an alloc of it needs, in the order of the job file: the group's, then those of a task alone.
    pub fn port_requests(&self) -> impl Iterator<Item = (Option<&TaskName>, &PortRequest)> {
        fn of(network: Option<&GroupNetwork>) -> impl Iterator<Item = &PortRequest> {
            network.into_iter().flat_map(|network| &network.ports)
        }
        let of_tasks = self
            .tasks
            .iter()
            .flat_map(|task| of(task.resources.network.as_ref()).map(move |port| (Some(&task.name), port)));
        of(self.network.as_ref()).map(|port| (None, port)).chain(of_tasks)
    }
}
