//! An alloc: one running instance of a task group.

use std::borrow::Cow;
use std::sync::Arc;

use super::id::{AllocId, CgroupPath, GroupName, JobId, TaskName};
use super::job::{Job, TaskGroup};
use super::network::{AllocNetwork, AllocPort};
use super::placement::{NotPlaced, PlacementReason};
use super::task::{Failure, TaskState, TaskStatus};
use super::units::Timestamp;
use super::words;

words! {
    /// Nomad's client status, derived from the states of the tasks.
    pub enum AllocState {
        Pending = "pending",
        Running = "running",
        Complete = "complete",
        Failed = "failed",
    }
}

impl AllocState {
    /// Pure, first match wins: a setup that failed; some task dead and failed, some running, some not dead yet, all
    /// dead. The description for people is beside it.
    pub fn derive(forced: Option<ForcedOutcome>, tasks: &[Arc<TaskStatus>]) -> (AllocState, &'static str) {
        let dead = |t: &&Arc<TaskStatus>| t.state == TaskState::Dead;
        if forced == Some(ForcedOutcome::SetupFailed) {
            (AllocState::Failed, "it could not be set up")
        } else if tasks.iter().any(|t| t.state == TaskState::Dead && t.failed) {
            (AllocState::Failed, "failed tasks")
        } else if tasks.iter().any(|t| matches!(t.state, TaskState::Running | TaskState::Killing)) {
            (AllocState::Running, "tasks are running")
        } else if tasks.iter().filter(dead).count() < tasks.len() {
            (AllocState::Pending, "no tasks are running yet")
        } else if forced == Some(ForcedOutcome::Expired) {
            (AllocState::Complete, "its max_run_duration is over")
        } else {
            (AllocState::Complete, "all tasks have completed")
        }
    }
}

words! {
    /// What became of an alloc otherwise than by its tasks.
    pub enum ForcedOutcome {
        /// A hook failed before any task could start.
        SetupFailed = "setup_failed",
        /// Its `max_run_duration` is over.
        Expired = "expired",
    }
}

words! {
    /// The desired state of an alloc.
    pub enum Desired {
        Run = "run",
        Stop = "stop",
    }
}

words! {
    /// How an alloc is measured: the label `measured` of `allostat_alloc_info`.
    pub enum Measured {
        /// By cgroups of its own.
        Cgroup = "cgroup",
        /// By the sum of its processes, because the agent could not create a cgroup.
        Process = "process",
        /// Not at all (the mock driver has no processes).
        None = "none",
    }
}

words! {
    /// Which runtime runs the alloc: the label `source` of `allostat_alloc_info`.
    pub enum AllocSource {
        /// This agent.
        Managed = "managed",
        Systemd = "systemd",
        Docker = "docker",
        Podman = "podman",
        /// containerd without Kubernetes.
        Containerd = "containerd",
        Kubernetes = "kubernetes",
        Nomad = "nomad",
        Slurm = "slurm",
        Lxc = "lxc",
        Libvirt = "libvirt",
        /// No runtime: a process group without a cgroup of its own.
        Process = "process",
        /// An unknown runtime: only the cgroups of the alloc are known.
        Cgroup = "cgroup",
    }
}

impl AllocSource {
    /// Errors: it is none of them, in a sentence.
    pub fn named(text: &str) -> Result<AllocSource, String> {
        let all = || AllocSource::ALL.map(AllocSource::as_str).join(", ");
        AllocSource::parse(text).ok_or_else(|| format!("{text:?} is none of the sources: {}", all()))
    }
}

/// The identity of a managed or observed alloc. Replaced as a whole when something in it changes, which is rare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocIdentity {
    pub id: AllocId,
    pub source: AllocSource,
    /// Its job. `None`, or an empty text: unknown.
    pub workload: Option<JobId>,
    pub namespace: String,
    pub group: Option<GroupName>,
    /// What people call it: Nomad's `job.group[index]`.
    pub name: String,
    pub created_at: Option<Timestamp>,
    pub measured: Measured,
    /// The alloc's own parent cgroup.
    pub cgroup: Option<CgroupPath>,
    pub tasks: Vec<TaskIdentity>,
}

impl AllocIdentity {
    /// Of one with nothing known but its cgroups.
    pub fn of_cgroup(id: AllocId, cgroup: CgroupPath, tasks: impl IntoIterator<Item = TaskName>) -> AllocIdentity {
        let task = |name| TaskIdentity { name, driver: None, user: None, image: None };
        let tasks = tasks.into_iter().map(task).collect();
        AllocIdentity { cgroup: Some(cgroup), tasks, ..AllocIdentity::unnamed(id) }
    }
    /// Before anything else is known of it.
    pub fn unnamed(id: AllocId) -> AllocIdentity {
        AllocIdentity {
            id,
            source: AllocSource::Cgroup,
            workload: None,
            namespace: String::new(),
            group: None,
            name: String::new(),
            created_at: None,
            measured: Measured::Cgroup,
            cgroup: None,
            tasks: Vec::new(),
        }
    }
}

/// Which task of its alloc it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskIdentity {
    pub name: TaskName,
    pub driver: Option<String>,
    pub user: Option<String>,
    /// What its container was made of, as its runtime calls that.
    pub image: Option<String>,
}

/// The lifecycle of a managed alloc, as its owner publishes it: plain values, replaced as a whole at each change. An
/// observed alloc has none.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocStatus {
    pub job: Arc<Job>,
    pub group: GroupName,
    /// 0 .. count-1.
    pub index: u32,
    /// When the last task died; absent while one lives.
    pub finished_at: Option<Timestamp>,
    pub desired: Desired,
    pub state: AllocState,
    pub forced: Option<ForcedOutcome>,
    /// In the order of [`AllocIdentity::tasks`].
    pub tasks: Vec<Arc<TaskStatus>>,
    /// Tasks in recovery after a start of the agent: shown as they are recorded. Until all are recovered, the usage of
    /// the alloc as a whole is unknown.
    pub recovering: Vec<TaskName>,
    /// Abandoned tasks: they are dead, and processes of them may still run.
    pub may_run: Vec<TaskName>,
    /// What was reserved for it.
    pub ports: Vec<AllocPort>,
    /// Its own network namespace.
    pub network: Option<AllocNetwork>,
    /// Why it waits for its place; empty: it has it, or was not asked yet.
    pub not_placed: Vec<NotPlaced>,
    pub lineage: Lineage,
    /// Grows with each published change.
    pub generation: u64,
}

/// The allocs before and after one in its place, and when it is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The one that it replaces.
    pub previous: Option<AllocId>,
    /// The one that replaced it, after it failed.
    pub next: Option<AllocId>,
    /// How often a failed alloc was replaced in its place before it.
    pub reschedules: u64,
    /// It failed, and is replaced then.
    pub reschedule_at: Option<Timestamp>,
}

impl AllocStatus {
    /// Whether it waits to be placed for this reason.
    pub fn waits_for(&self, reason: PlacementReason) -> bool {
        self.state == AllocState::Pending && self.not_placed.iter().any(|one| one.reason == reason)
    }
    /// A few words on why its state is what it is.
    pub fn description(&self) -> Cow<'static, str> {
        if !self.recovering.is_empty() {
            return "tasks are in recovery after a restart of the agent".into();
        }
        match AllocState::derive(self.forced, &self.tasks) {
            (AllocState::Pending, _) if !self.not_placed.is_empty() => {
                let mut words: Vec<_> = self.not_placed.iter().map(|one| one.reason.as_str()).collect();
                words.dedup();
                format!("not placed: {}", words.join(", ")).into()
            }
            (AllocState::Complete, _) if self.desired == Desired::Stop && self.forced.is_none() => {
                "it was requested to stop, and its tasks have ended".into()
            }
            (AllocState::Failed, why) => {
                let failure = self.failure().filter(|_| self.forced.is_none());
                let why = failure.map_or_else(|| why.to_owned(), |failure| format!("{why}: {}", failure.text()));
                match &self.lineage {
                    Lineage { next: Some(next), .. } => format!("{why}; rescheduled as {}", next.short()).into(),
                    Lineage { reschedule_at: Some(_), reschedules, .. } => {
                        format!("{why}; to be rescheduled (attempt {})", reschedules.saturating_add(1)).into()
                    }
                    _ => why.into(),
                }
            }
            (_, why) => why.into(),
        }
    }
    /// Why its tasks failed, where that is known: of several reasons the one that says the most.
    pub fn failure(&self) -> Option<Failure> {
        self.tasks.iter().filter(|t| t.failed).filter_map(|t| t.failure).min()
    }
    /// It failed and nothing takes its place.
    pub fn has_failed_for_good(&self) -> bool {
        let replaced = self.lineage.next.is_some() || self.lineage.reschedule_at.is_some();
        self.state == AllocState::Failed && self.desired == Desired::Run && !replaced
    }
    pub fn workload(&self) -> &JobId {
        self.job.workload()
    }
    /// What its job file says of it.
    pub fn task_group(&self) -> Option<&TaskGroup> {
        self.job.group(self.group.as_str())
    }
    pub fn is_terminal(&self) -> bool {
        self.tasks.iter().all(|t| t.state == TaskState::Dead)
    }
}

/// Promise (Hooks of allocs and tasks): P-B1 The state of an alloc is a function of its tasks' states and of what was
/// forced on it
#[cfg(test)]
mod tests {
    use super::*;

    /// Every state that a task can be in.
    fn tasks() -> Vec<Arc<TaskStatus>> {
        let task = |state, failed| {
            let known = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(0));
            Arc::new(TaskStatus { state, failed, ..known })
        };
        TaskState::ALL.iter().map(|state| task(*state, false)).chain([task(TaskState::Dead, true)]).collect()
    }

    /// All allocs of up to four tasks, each forced and not.
    #[test]
    fn the_state_of_any_alloc_is_the_first_that_matches() {
        let mut allocs: Vec<Vec<Arc<TaskStatus>>> = vec![Vec::new()];
        let mut seen = 0;
        for _ in 0..4 {
            let more = |alloc: &Vec<Arc<TaskStatus>>| {
                let alloc = alloc.clone();
                tasks().into_iter().map(move |task| alloc.iter().cloned().chain([task]).collect())
            };
            allocs = allocs.iter().flat_map(more).collect();
            for alloc in &allocs {
                let any = |state| alloc.iter().any(|t| t.state == state);
                let over = alloc.iter().all(|t| t.state == TaskState::Dead);
                for forced in [None, Some(ForcedOutcome::Expired), Some(ForcedOutcome::SetupFailed)] {
                    let (state, why) = AllocState::derive(forced, alloc);
                    let failed = alloc.iter().any(|t| t.failed) || forced == Some(ForcedOutcome::SetupFailed);
                    assert_eq!(state == AllocState::Failed, failed, "{forced:?} {alloc:?}");
                    // Ended is ended: the last of its tasks decides, and nothing comes after.
                    assert_eq!(state == AllocState::Complete, over && !failed, "{forced:?} {alloc:?}");
                    let lives = any(TaskState::Running) || any(TaskState::Killing);
                    assert_eq!(state == AllocState::Running, lives && !failed, "{forced:?} {alloc:?}");
                    assert_eq!(
                        why.contains("max_run_duration"),
                        forced == Some(ForcedOutcome::Expired) && over && !failed
                    );
                    assert_eq!(why.contains("set up"), forced == Some(ForcedOutcome::SetupFailed));
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 3 * (7 + 49 + 343 + 2401));
    }
}
