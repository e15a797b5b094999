//! What the commands read of the API's JSON. Unknown fields are let pass: a newer agent may say more.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::human;
use crate::model::alloc::AllocSource;
use crate::model::attributes::Attributes;
use crate::model::capability::Capability;
use crate::model::event::Event;
use crate::model::job::{Lifecycle, LifecycleHook};
use crate::model::last_output::LastOutput;
use crate::model::network::{AllocPort, DriverNetwork};
use crate::model::placement::NotPlaced;
use crate::model::task::{ExitStatus, Failure, Outcome, ServiceResult, known_failure, known_result};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

#[derive(Debug, Clone, Deserialize)]
pub struct AllocList {
    pub allocs: Vec<AllocRow>,
    #[serde(default)]
    pub supervisors: Supervisors,
}

/// Supervisors of the agent's user on its host that it does not watch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Supervisors {
    pub another_agent: u64,
    #[serde(rename = "nobody")]
    pub no_agent: u64,
}

/// One alloc, in the list or alone.
#[derive(Debug, Clone, Deserialize)]
pub struct AllocRow {
    pub id: String,
    /// Who runs it. Empty: an agent that runs all itself, and does not say so.
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub job: String,
    /// Of a child: the periodic or parameterized job that launched it.
    #[serde(default)]
    pub parent: String,
    /// Nomad's `job.group[index]`.
    pub name: String,
    /// `pending`, `running`, `complete`, `failed`.
    #[serde(default)]
    pub status: String,
    /// Why it is that.
    #[serde(default)]
    pub description: String,
    /// `run`, `stop`.
    #[serde(default)]
    pub desired: String,
    /// Absent: it was there before the agent, and its runtime does not report it.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    pub tasks: BTreeMap<String, AllocTaskRow>,
    /// Tasks that were abandoned, and may still run.
    #[serde(default)]
    pub may_run: Vec<String>,
    /// Why it waits for its place.
    #[serde(default)]
    pub not_placed: Vec<NotPlaced>,
    /// The alloc that it replaces, and the one that replaced it.
    #[serde(default)]
    pub previous_alloc: Option<String>,
    #[serde(default)]
    pub next_alloc: Option<String>,
    /// How often a failed alloc was replaced in its place before it.
    #[serde(default)]
    pub reschedules: u64,
    /// It failed, and is replaced then.
    #[serde(default)]
    pub reschedule_at: Option<Timestamp>,
    /// Alone only: `cgroup`, `process`, `none`.
    #[serde(default)]
    pub measured: Option<String>,
    #[serde(default)]
    pub cgroup: Option<String>,
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub ports: Vec<AllocPort>,
    #[serde(default)]
    pub network: Option<NetworkRow>,
    /// Whether it came up: `pending`, `healthy`, `unhealthy`, `unchecked`. Absent: it has ended, or its agent does not
    /// know.
    #[serde(default)]
    pub health: Option<String>,
    #[serde(default)]
    pub health_reason: Option<String>,
    /// Alone only.
    #[serde(default)]
    pub checks: Vec<CheckRow>,
}

/// A health check.
#[derive(Debug, Clone, Deserialize)]
pub struct CheckRow {
    pub service: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(default)]
    pub active: bool,
    #[serde(default)]
    pub last_run: Option<Timestamp>,
    #[serde(default)]
    pub failures: u64,
    #[serde(default)]
    pub restarts: u64,
    #[serde(default)]
    pub output: Option<String>,
}

/// The network namespace of an alloc.
#[derive(Debug, Clone, Deserialize)]
pub struct NetworkRow {
    pub mode: String,
    #[serde(default)]
    pub interface: Option<String>,
    #[serde(default)]
    pub addresses: Vec<String>,
}

impl AllocRow {
    pub fn short(&self) -> &str {
        short(&self.id)
    }
    /// Its job, the job that launched it, its workload, or its own name (`web.app[0]`).
    pub fn is_called(&self, name: &str) -> bool {
        self.job == name || self.name == name || (!self.parent.is_empty() && self.parent == name)
    }
    /// The agent runs it.
    pub fn is_managed(&self) -> bool {
        matches!(self.source.as_str(), "" | "managed")
    }
    pub fn is_of(&self, source: AllocSource) -> bool {
        if source == AllocSource::Managed { self.is_managed() } else { self.source == source.as_str() }
    }
    /// One of its tasks has failed for good.
    pub fn has_failed(&self) -> bool {
        self.status == "failed" || self.tasks.values().any(|t| t.failed)
    }
    pub fn is_over(&self) -> bool {
        self.tasks.values().all(|t| t.state == "dead")
    }
    /// It runs, or a new alloc is to run in its place.
    pub fn is_unfinished(&self) -> bool {
        !self.is_over() || self.reschedule_at.is_some()
    }
    /// `reschedule in 12 s (attempt 3)`
    pub fn rescheduling(&self, now: Timestamp) -> Option<String> {
        let left = human::duration(self.reschedule_at?.since(now));
        Some(format!("reschedule in {left} (attempt {})", self.reschedules.saturating_add(1)))
    }
    /// Everything that runs beside its work runs; what comes after it cannot yet.
    pub fn has_started(&self) -> bool {
        let after = |t: &AllocTaskRow| t.lifecycle.is_some_and(|l| l.hook == LifecycleHook::Poststop);
        self.tasks.values().all(|t| after(t) || t.state == "running" || t.state == "dead")
    }
    /// It came up in time; without a rule of health, all its tasks run.
    pub fn is_healthy(&self) -> bool {
        match self.health.as_deref() {
            Some("healthy") => true,
            None | Some("unchecked") => self.has_started(),
            Some(_) => false,
        }
    }
    pub fn is_unhealthy(&self) -> bool {
        self.health.as_deref() == Some("unhealthy")
    }
    pub fn restarts(&self) -> u64 {
        self.tasks.values().map(|t| t.restarts).sum()
    }
}

/// The first eight characters, which are enough for ours; those of others are names.
pub fn short(id: &str) -> &str {
    id.get(..8).filter(|_| !id.contains(':')).unwrap_or(id)
}

#[derive(Debug, Clone, Deserialize)]
pub struct AllocTaskRow {
    /// Empty: not known.
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub failed: bool,
    /// Why it is not started again.
    #[serde(default, deserialize_with = "known_failure")]
    pub failure: Option<Failure>,
    #[serde(default)]
    pub restarts: u64,
    /// Absent: none has begun.
    #[serde(default)]
    pub attempt: Option<u64>,
    /// Absent: since before the agent began to look.
    #[serde(default)]
    pub state_since: Option<Timestamp>,
    #[serde(default)]
    pub next_start_at: Option<Timestamp>,
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    #[serde(default)]
    pub last_exit: Option<ExitRow>,
    /// Alone only: the newest last.
    #[serde(default)]
    pub exits: Vec<ExitWithUsage>,
    /// Absent: a main task.
    #[serde(default)]
    pub lifecycle: Option<Lifecycle>,
    /// Alone only.
    #[serde(default)]
    pub driver: Option<String>,
    /// Alone only: where its runtime made it reachable.
    #[serde(default)]
    pub network: Option<DriverNetwork>,
    /// Alone only: those that it holds.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Alone only, and only for clients that may act.
    #[serde(default)]
    pub cgroup: Option<String>,
    #[serde(default)]
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ExitRow {
    pub outcome: Outcome,
    pub status: ExitStatus,
    pub finished_at: Timestamp,
    #[serde(default)]
    pub oom_kills: Option<u64>,
    #[serde(default, deserialize_with = "known_result")]
    pub result: Option<ServiceResult>,
    /// Alone only, and only for clients that may read logs.
    #[serde(default)]
    pub last_output: Option<LastOutput>,
}

/// One attempt, or one life of an observed workload.
#[derive(Debug, Clone, Deserialize)]
pub struct ExitWithUsage {
    #[serde(flatten)]
    pub exit: ExitRow,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Of this one alone.
    pub usage: Usage,
}

#[derive(Debug, Clone, Deserialize)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub next: u64,
    #[serde(default)]
    pub missed: u64,
}

/// `/v1/history`
#[derive(Debug, Clone, Deserialize)]
pub struct HistoryPage {
    /// Each an [`EndedRow`]: other agents than this one have written some.
    pub ended: Vec<serde_json::Value>,
    #[serde(default)]
    pub has_more: bool,
}

/// An alloc as it was at its end.
#[derive(Debug, Clone, Deserialize)]
pub struct EndedRow {
    pub ended_at: Timestamp,
    pub alloc: AllocRow,
    pub stats: StatsReply,
}

/// `/v1/allocs/{id}/stats`
#[derive(Debug, Clone, Deserialize)]
pub struct StatsReply {
    pub id: String,
    /// The alloc has ended: what is shown stays.
    #[serde(rename = "final")]
    pub ended: bool,
    pub aggregation: String,
    pub usage: Usage,
    #[serde(default)]
    pub age_ms: Option<u64>,
    pub tasks: BTreeMap<String, TaskStats>,
    /// By id.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceRow>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct TaskStats {
    pub usage: Usage,
    /// Of one of ours alone.
    #[serde(default)]
    pub time_in_state_ns: BTreeMap<String, u64>,
    /// By the id of the device.
    #[serde(default)]
    pub devices: BTreeMap<String, TaskOnDevice>,
}

/// What a task uses of a device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TaskOnDevice {
    /// In a list of them.
    pub alloc_id: String,
    pub task: String,
    pub reserved: bool,
    /// What was used at the end stays, what is used now is gone.
    #[serde(rename = "final")]
    pub ended: bool,
    pub memory_used_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub sm_utilization_ratio: Option<f64>,
    pub processes: Option<u64>,
    pub energy_joules_total: Option<f64>,
}

/// `/v1/devices`
#[derive(Debug, Clone, Deserialize)]
pub struct DeviceReport {
    pub devices: Vec<DeviceRow>,
    pub plugins: Vec<PluginRow>,
}

/// A device, in the list or of an alloc.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DeviceRow {
    /// In the list.
    pub id: String,
    pub name: String,
    /// The device that it is an instance of.
    pub parent: Option<String>,
    pub up: bool,
    pub stuck: bool,
    pub healthy: bool,
    /// Why it is not.
    pub why: Option<String>,
    pub values: DeviceValues,
    /// What a plugin reports under names of its own.
    pub stats: serde_json::Value,
    /// In the list.
    pub tasks: Vec<TaskOnDevice>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DeviceValues {
    pub memory_used_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    /// By engine.
    pub utilization_ratio: BTreeMap<String, f64>,
    /// By sensor.
    pub temperature_celsius: BTreeMap<String, u64>,
    pub power_watts: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct PluginRow {
    pub name: String,
    pub up: bool,
    /// Why it does not run.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct HostVolumeReport {
    pub name: String,
    pub read_only: bool,
    /// Alone on the socket.
    #[serde(default)]
    pub path: Option<String>,
}

/// `/v1/node`
#[derive(Debug, Clone, Deserialize)]
pub struct NodeReport {
    pub hostname: String,
    pub kernel: String,
    #[serde(default)]
    pub booted_at: Option<Timestamp>,
    pub cpus: u64,
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    pub cgroup_mode: String,
    #[serde(default)]
    pub datacenter: Option<String>,
    #[serde(default)]
    pub class: Option<String>,
    #[serde(default)]
    pub pool: Option<String>,
    /// Alone on the socket.
    #[serde(default)]
    pub meta: BTreeMap<String, String>,
    #[serde(default)]
    pub host_volumes: Vec<HostVolumeReport>,
    pub capabilities: Vec<Capability>,
    /// Of an older agent nothing is known of it.
    #[serde(default)]
    pub usage: HostUsage,
    #[serde(default)]
    pub agent: AgentCost,
    /// Not before the first tick.
    #[serde(default, rename = "kept_files")]
    pub open_files: Option<OpenFileCounts>,
    pub taken_at: Timestamp,
    pub allocs: BTreeMap<String, u64>,
    pub tasks: BTreeMap<String, u64>,
    #[serde(default)]
    pub drivers: Vec<DriverReport>,
    #[serde(default)]
    pub attributes: Attributes,
    #[serde(default)]
    pub fingerprinters: Vec<FingerprinterReport>,
    /// By runner, in the order in which they set up.
    #[serde(default)]
    pub hooks: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub quarantined: Vec<String>,
    #[serde(default)]
    pub orphans: Vec<OrphanReport>,
    #[serde(default)]
    pub strays: Vec<StrayReport>,
}

/// What the host uses now.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct HostUsage {
    /// By window: `1m`, `5m`, `15m`.
    pub load_average: BTreeMap<String, f64>,
    pub cpu_busy_cores: Option<f64>,
    pub memory_used_bytes: Option<u64>,
    pub swap_used_bytes: Option<u64>,
    /// File systems of the agent's directories.
    pub directories: BTreeMap<String, DirectorySpace>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DirectorySpace {
    pub size_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
}

/// What the agent itself uses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AgentCost {
    pub version: String,
    pub cpu_cores: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub started_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct FingerprinterReport {
    pub name: String,
    /// `pending`, `current`, `degraded`.
    pub state: String,
    /// Why it is degraded.
    #[serde(default)]
    pub message: String,
}

/// A supervisor that this agent does not watch.
#[derive(Debug, Clone, Deserialize)]
pub struct StrayReport {
    pub pid: u32,
    /// Values: `another_agent`, `nobody`.
    pub watched_by: String,
    #[serde(default)]
    pub alloc_id: Option<String>,
    #[serde(default)]
    pub task: Option<String>,
}

/// A task that ran and is in no record of the state.
#[derive(Debug, Clone, Deserialize)]
pub struct OrphanReport {
    pub alloc_id: String,
    pub task: String,
    #[serde(default)]
    pub pid: Option<u32>,
    /// `ending`, `killed`, `may_run`.
    pub fate: String,
    #[serde(default)]
    pub why: Option<String>,
}

/// Kernel files that stay open between two readings.
#[derive(Debug, Clone, Deserialize)]
pub struct OpenFileCounts {
    #[serde(rename = "kept")]
    pub open: u64,
    #[serde(rename = "wanted")]
    pub needed: u64,
    pub limit: u64,
}

#[derive(Debug, Clone, Deserialize, serde::Serialize)]
pub struct DriverReport {
    pub name: String,
    pub healthy: bool,
    /// Empty for an agent that reports no more than `healthy`.
    #[serde(default)]
    pub health: String,
    pub message: String,
}
