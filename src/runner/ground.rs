//! What every owner of an alloc or a task shares.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::drivers::Driver;
use super::hooks::{Hooks, More, OrderError, in_line};
use super::kept::datadir::DataDir;
use super::kept::journal::Journal;
use super::kept::samples::Samples;
use super::kept::steady::Line;
use super::manager::gc::{Fill, GcConfig};
use super::shown::board::Board;
use super::shown::events::Log;
use crate::collectors::TaskReader;
use crate::host::clock::Clock;
use crate::model::env::Env;
use crate::model::host::NodeInfo;
use crate::model::id::CgroupPath;
use crate::model::usage::Usage;
use crate::telemetry::Metrics;

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The cgroup in which all allocs of this agent have theirs.
    pub cgroup_parent: CgroupPath,
    pub gc: GcConfig,
    /// How long after the end of its last alloc a workload's totals go into the node's.
    pub retire_after: Duration,
    /// How long a task may live on after it was killed by force before it is given up.
    pub kill_budget: Duration,
    /// How long a driver may take to start a task before that is given up: it may have to fetch much first.
    pub start_budget: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cgroup_parent: CgroupPath::from("/allostat"),
            gc: GcConfig::default(),
            retire_after: Duration::from_secs(24 * 3600),
            kill_budget: Duration::from_secs(30),
            start_budget: Duration::from_secs(300),
        }
    }
}

/// The cgroups of allocs: parents of their tasks'. Repeating a call does no harm.
pub trait AllocCgroups: Send + Sync {
    /// Makes it, and its parents, in every hierarchy.
    fn create(&self, path: &CgroupPath) -> Result<(), String>;
    fn exists(&self, path: &CgroupPath) -> bool;
    fn reader(&self, path: &CgroupPath) -> TaskReader;
    /// What the cgroup of a task has counted, read once. Nothing, where it is gone.
    fn counted(&self, task: &CgroupPath) -> Usage;
    /// Removes it (not its parents), where it has no processes and no children.
    fn remove(&self, path: &CgroupPath) -> Result<(), String>;
}

/// Asks how full the data directory's file system is; may block. `None`: it does not say.
pub type AskFill = Arc<dyn Fn() -> Option<Fill> + Send + Sync>;

pub type Drivers = BTreeMap<&'static str, Arc<dyn Driver>>;

/// Everything the runner is built from.
pub struct Parts {
    pub config: Config,
    pub data_dir: Arc<DataDir>,
    pub fill: AskFill,
    pub journal: Journal,
    pub drivers: Drivers,
    pub clock: Arc<dyn Clock>,
    /// `None`: no cgroups can be made here.
    pub cgroups: Option<Arc<dyn AllocCgroups>>,
    pub metrics: Arc<Metrics>,
    /// What `${attr...}` and `${node...}` in a job file say.
    pub node: NodeInfo,
    /// What every task has of the agent's own environment.
    pub inherited: Env,
}

pub(super) struct Context {
    pub parts: Parts,
    pub board: Arc<Board>,
    pub events: Arc<Log>,
    pub line: Line,
    pub hooks: Hooks,
    pub samples: Arc<Samples>,
    blocking: Semaphore,
    /// Of their own, because a deep tree takes its time, and nobody is to wait behind it.
    removals: Semaphore,
    /// What nobody waits for: records on their way, and the late end of attempts that were given up.
    aside: Mutex<JoinSet<()>>,
}

/// File systems and cgroups block, for microseconds or for a while: few at once, so that they make no crowd of threads.
const BLOCKING_AT_ONCE: usize = 4;

impl Context {
    /// Errors: the hooks cannot be brought into an order.
    pub fn new(
        parts: Parts,
        line: Line,
        more: More,
        board: Arc<Board>,
        events: Arc<Log>,
    ) -> Result<Context, OrderError> {
        let hooks = Hooks::new(&parts.metrics, more)?;
        tracing::debug!(alloc = hooks.alloc.order().join(" "), task = hooks.task.order().join(" "), "order of hooks");
        let [blocking, removals] = [(); 2].map(|()| Semaphore::new(BLOCKING_AT_ONCE));
        let samples = Arc::new(Samples::open(&parts.data_dir.samples()));
        Ok(Context { parts, board, events, line, hooks, samples, blocking, removals, aside: Mutex::default() })
    }

    /// Does what nobody waits for, until [`Context::let_go`] at the latest.
    pub fn see_to(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        while aside.try_join_next().is_some() {}
        aside.spawn(work);
    }
    pub fn let_go(&self) {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Does what may block where that disturbs nobody. Errors: it panicked, or the runtime is shutting down.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        in_place(&self.blocking, work).await
    }

    /// The same, for removing whole trees.
    pub async fn removing<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        in_place(&self.removals, work).await
    }
}

async fn in_place<T: Send + 'static>(
    places: &Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    // Ends: whoever has a place leaves it, at its hook's deadline at the latest, or its caller gives up.
    let _place = in_line(places.acquire()).await.map_err(|e| e.to_string())?;
    tokio::task::spawn_blocking(work).await.map_err(|e| format!("an internal error: {e}"))
}

impl std::ops::Deref for Context {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.parts
    }
}
