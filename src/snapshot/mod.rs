//! Floor 4: one immutable picture of everything, per tick and per lifecycle change; exporters, API and page are pure
//! views.
//!
//! ```text
//! Board ──view──┐
//! TaskReaders ──┤ sampler (a thread: ticks, changes) ─ publisher ─ assemble (pure) ──► watch::Receiver<Arc<Snapshot>>
//! Collectors ───┘            until a client reads ─────────┘           │
//!                                                     aggregate, workloads, retention
//! ```

pub mod agent;
pub mod aggregate;
pub mod assemble;
pub mod failed;
pub mod overflow;
pub mod parents;
pub mod pass;
pub mod publisher;
pub mod restarts;
pub mod retention;
pub mod sampler;
pub mod scrapers;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::board::devices::DevicesView;
use crate::board::disk::DiskUses;
use crate::board::services::AllocServices;
use crate::collectors::RateBaseline;
use crate::model::alloc::{AllocIdentity, AllocSource, AllocState, AllocStatus, TaskIdentity};
use crate::model::disk_io::DiskIo;
use crate::model::host::NodeInfo;
use crate::model::id::{CgroupPath, JobId, TaskName};
use crate::model::metric::Samples;
use crate::model::observed::{ObservedAlloc, ObservedTask};
use crate::model::placement::PlacementReason;
use crate::model::task::{ShownState, TaskState, TaskStatus};
use crate::model::totals::{TaskTotals, Totals};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::model::words;

pub use publisher::Snapshots;
pub use retention::RetentionConfig;
pub use sampler::{Heartbeat, Parts, Sampler};
pub use scrapers::{ScraperKey, SharedScrapers};

/// How the agent samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Between two readings. Default 1 s.
    pub tick: Duration,
    pub retention: RetentionConfig,
    /// New allocs of one workload an hour that get series of their own; 0: all. Default 5,000.
    pub churn_limit: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { tick: Duration::from_secs(1), retention: RetentionConfig::default(), churn_limit: 5_000 }
    }
}

/// The truth of one moment. Shared; never changed.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Sampling ticks so far; 0 before the first. A lifecycle change publishes a new snapshot with the same epoch. A
    /// tick without a client publishes none.
    pub epoch: u64,
    /// Grows by one with each published snapshot.
    pub version: u64,
    /// By the wall clock, which may jump.
    pub taken_at: Timestamp,
    /// When the tick began that is `epoch`: the host was read then, and a task that was not read again slept until
    /// then.
    pub ticked_at: Timestamp,
    /// The latest `taken_at` so far: it never falls, so no dwell counted up to it does.
    pub steady_at: Timestamp,
    /// In order of creation; those whose series have retired are still here until collected.
    pub allocs: Vec<Arc<AllocView>>,
    /// Of each workload that made allocs faster than `churn_limit` one, with what those above it used.
    pub overflow: Vec<Arc<AllocView>>,
    /// Live + ended, per workload and task.
    pub workloads: Vec<Arc<WorkloadTaskView>>,
    /// What ended allocs ran, and what retired workloads handed over.
    pub ended_totals: Arc<Totals>,
    pub node: AgentTotals,
    pub counts: CurrentCounts,
    pub failed: Arc<failed::FailuresByWorkload>,
    pub devices: Arc<DevicesView>,
    /// Of managed allocs that run, in the order of their IDs.
    pub services: Arc<[Arc<AllocServices>]>,
    /// Cgroups above those of tasks that are configured or have a limit of their own. In order of their paths.
    pub parents: Arc<[ParentView]>,
    /// Disk usage of allocs.
    pub disk: Arc<DiskUses>,
    /// Values of the host collectors, grouped by family.
    pub host: Arc<Samples>,
    /// The agent about itself: its process, its collectors.
    pub agent: Arc<Samples>,
    /// The tick before the one of `epoch`.
    pub before: Option<Arc<PreviousTick>>,
    pub info: Arc<NodeInfo>,
}

/// Values of the tick before: the baseline for rates of the host and of the agent.
#[derive(Debug)]
pub struct PreviousTick {
    /// When it began.
    pub at: Timestamp,
    pub host: Arc<Samples>,
    /// CPU time that the agent itself had used.
    pub own_cpu_ns: Option<u64>,
}

/// One item per task of an alloc. Most allocs have one task, so one item is stored inline.
pub type PerTask<T> = SmallVec<[T; 1]>;

/// One alloc in a snapshot, managed or observed: identity, status, tasks and usage.
#[derive(Debug, Clone)]
pub struct AllocView {
    pub identity: Arc<AllocIdentity>,
    /// `None`: it is observed.
    pub status: Option<Arc<AllocStatus>>,
    /// `None`: it is managed, or only its cgroups are known.
    pub observed: Option<Arc<ObservedAlloc>>,
    /// In the order of the identity's tasks.
    pub tasks: PerTask<Arc<TaskView>>,
    /// Of the alloc's own cgroup, and of the sum where only tasks have it (`Nature::TaskCounter`, `Nature::TaskLive`)
    /// or `aggregation` is `Sum`.
    pub usage: Arc<Usage>,
    pub aggregation: Aggregation,
    /// When the values were read last. Where nothing moves that is up to 10 s ago.
    pub sampled_at: Option<Timestamp>,
    /// All tasks dead: live series are withdrawn.
    pub ended: bool,
    /// Its series were delivered and have retired, or it is above its workload's churn limit and has none: the API
    /// knows it, `/metrics` does not.
    pub retired: bool,
}

impl TaskView {
    /// `None`: it is unknown.
    pub fn state(&self) -> Option<ShownState> {
        let managed = self.managed.as_ref().map(|task| task.status.state.into());
        managed.or_else(|| self.observed.as_ref().map(|task| task.state()))
    }
}

impl AllocView {
    /// `None`: it is unknown.
    pub fn state(&self) -> Option<AllocState> {
        let managed = self.status.as_ref().map(|status| status.state);
        managed.or_else(|| self.observed.as_ref().map(|alloc| alloc.state()))
    }
    /// Each task's identity with its view.
    pub fn tasks(&self) -> impl Iterator<Item = (&TaskIdentity, &TaskView)> {
        self.identity.tasks.iter().zip(self.tasks.iter().map(|task| &**task))
    }
}

/// One task of an alloc in a snapshot: lifecycle and usage. Its name is in the identity of the alloc.
#[derive(Debug, Clone)]
pub struct TaskView {
    /// `None`: it is observed.
    pub managed: Option<ManagedTaskLifecycle>,
    /// `None`: it is managed, or only its cgroup is known.
    pub observed: Option<Arc<ObservedTask>>,
    /// All attempts together: `base` plus what the running one used.
    pub usage: Arc<Usage>,
    /// Of the running attempt alone; absent between attempts and after the end.
    pub attempt: Option<Arc<Usage>>,
    pub sampled_at: Option<Timestamp>,
    /// Of the running attempt too: the reading that rates are taken against.
    pub before: Option<RateBaseline>,
    /// Of the running attempt: when its main process started.
    pub started_at: Option<Timestamp>,
    /// Of the running attempt: its I/O by block device, where that is known.
    pub disks: Option<Arc<[DiskIo]>>,
}

/// A cgroup above those of tasks.
#[derive(Debug, Clone)]
pub struct ParentView {
    pub path: CgroupPath,
    pub usage: Arc<Usage>,
    pub sampled_at: Timestamp,
}

/// Status of a managed task, with the time it has spent in each state.
#[derive(Debug, Clone)]
pub struct ManagedTaskLifecycle {
    pub status: Arc<TaskStatus>,
    /// Finished dwells, in the order of `TaskState::ALL`; never below what an earlier snapshot showed.
    pub finished_dwells: [Nanos; 6],
    /// Up to when the present dwell is shown: it ends here while its end is being recorded.
    pub until: Timestamp,
}

impl ManagedTaskLifecycle {
    /// Time in a state, the present dwell included.
    pub fn time_in(&self, state: TaskState, steady_at: Timestamp) -> Nanos {
        let finished = self.finished_dwells[state.index()];
        if self.status.state == state {
            finished.saturating_add(steady_at.min(self.until).since(self.status.state_since))
        } else {
            finished
        }
    }
}

words! {
    /// Source of an alloc's usage: its own cgroup or the sum of its tasks. `alloc_info{aggregation=...}`.
    pub enum Aggregation {
        Cgroup = "cgroup",
        Sum = "sum",
    }
}

/// Totals of one task of a workload, over all its allocs and attempts.
#[derive(Debug, Clone)]
pub struct WorkloadTaskView {
    pub workload: JobId,
    pub task: TaskName,
    /// The runtime that owns it. `None`: it ended under an earlier agent, which did not record the source.
    pub source: Option<AllocSource>,
    /// Counters: ended attempts plus the running ones. Nothing while one that may run is in recovery.
    pub usage: Usage,
    /// Exits, restarts and events, which need no reading. Its `usage` lacks the running attempts.
    pub ended: Arc<TaskTotals>,
    /// Another runtime owns it: its events are unknown, and the totals of the agent exclude it.
    pub observed: bool,
}

/// Totals of all managed tasks over the lifetime of the agent's data directory. They never fall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentTotals {
    /// In the order of `Outcome::ALL`.
    pub exits: [u64; 6],
    /// In the order of `RestartReason::ALL`.
    pub restarts: [u64; 4],
    /// `None`, like the CPU time: a part of it is not known (yet).
    pub oom_kills: Option<u64>,
    pub cpu_usage_ns: Option<u64>,
    pub allocs: u64,
}

/// Numbers of managed allocs and tasks that exist now, and the memory and CPU that they are allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CurrentCounts {
    /// In the order of `AllocState::ALL`.
    pub allocs: [u64; 4],
    /// In the order of `TaskState::ALL`.
    pub tasks: [u64; 6],
    /// Allocs that wait to be placed, in the order of `PlacementReason::ALL`; each counts for all of its reasons.
    pub waiting: [u64; PlacementReason::ALL.len()],
    /// Memory limits of the tasks of allocs that have not ended.
    pub allocated_memory_bytes: u64,
    /// CPU quotas of running tasks, in cores; tasks without a quota count nothing.
    pub allocated_cpu_cores: f64,
}

impl Snapshot {
    /// Before anything is known: epoch 0.
    pub fn empty(info: Arc<NodeInfo>, now: Timestamp) -> Snapshot {
        Snapshot {
            epoch: 0,
            version: 0,
            taken_at: now,
            ticked_at: now,
            steady_at: now,
            allocs: Vec::new(),
            overflow: Vec::new(),
            workloads: Vec::new(),
            ended_totals: Arc::default(),
            node: AgentTotals::default(),
            counts: CurrentCounts::default(),
            failed: Arc::default(),
            devices: Arc::default(),
            services: Arc::default(),
            parents: Arc::default(),
            disk: Arc::default(),
            host: Arc::default(),
            agent: Arc::default(),
            before: None,
            info,
        }
    }

    pub fn alloc(&self, id: &str) -> Option<&Arc<AllocView>> {
        self.allocs.iter().find(|a| a.identity.id.as_str() == id)
    }
}
