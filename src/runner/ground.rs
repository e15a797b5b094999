//! What all owners of allocs and tasks stand on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::cgroups::AllocCgroups;
use super::cores::CoreKeeper;
use super::decide::limits::Fill;
use super::decide::placement::PlacementNode;
use super::devices::DeviceKeeper;
use super::drivers::{Driver, DriverInfo};
use super::events::Log;
use super::kept::datadir::DataDir;
use super::kept::journal::Journal;
use super::kept::outputs::OutputBudget;
use super::kept::samples::SampleFile;
use super::kept::steady::Line;
use super::networks::AllocNetworks;
use super::places::BlockingPool;
use super::ports::{PortKeeper, PortsInUse};
use super::settings::Config;
use crate::board::Board;
use crate::board::facts::Facts;
use crate::host::clock::Clock;
use crate::model::constraint::NodeValues;
use crate::model::env::Env;
use crate::model::host::NodeInfo;
use crate::telemetry::Metrics;
use crate::telemetry::lock;

/// Asks how full the data directory's file system is; may block. `None`: it does not say.
pub type AskFill = Arc<dyn Fn() -> Option<Fill> + Send + Sync>;

/// Of the file system that the data directory is on.
pub fn fill_of(data_dir: &Arc<DataDir>) -> AskFill {
    let data_dir = Arc::clone(data_dir);
    Arc::new(move || data_dir.fill().ok())
}

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
    /// `None`: nobody knows of any devices here.
    pub devices: Option<Arc<dyn DeviceKeeper>>,
    /// Which ports other programs have.
    pub ports_in_use: Arc<dyn PortsInUse>,
    pub networks: Arc<dyn AllocNetworks>,
    pub metrics: Arc<Metrics>,
    /// What `${node...}` in a job file says.
    pub node: NodeInfo,
    /// What `${attr...}` in a job file says; drivers tell it of themselves here.
    pub facts: Arc<Facts>,
    /// What every task has of the agent's own environment.
    pub inherited: Env,
}

/// The same, and what the runner itself has made of it.
pub struct Context {
    pub config: Config,
    pub data_dir: Arc<DataDir>,
    pub fill: AskFill,
    pub journal: Journal,
    pub drivers: Drivers,
    /// What each of them last said of itself.
    pub driver_infos: BTreeMap<&'static str, watch::Sender<DriverInfo>>,
    pub clock: Arc<dyn Clock>,
    pub cgroups: Option<Arc<dyn AllocCgroups>>,
    pub cores: CoreKeeper,
    pub devices: Option<Arc<dyn DeviceKeeper>>,
    pub ports: Arc<PortKeeper>,
    pub networks: Arc<dyn AllocNetworks>,
    /// For CNI plugins, which share files of addresses and rules and are slow: no other hook waits behind them.
    pub plugins: BlockingPool,
    /// Limits the number of concurrent health checks.
    pub checks: Semaphore,
    pub metrics: Arc<Metrics>,
    pub node: NodeInfo,
    pub facts: Arc<Facts>,
    pub inherited: Env,
    pub board: Arc<Board>,
    pub events: Arc<Log>,
    pub line: Line,
    pub samples: Arc<SampleFile>,
    /// What the last outputs of all tasks may take.
    pub outputs: Arc<OutputBudget>,
    /// For file systems and cgroups, which block for microseconds or for a while.
    pub blocking: BlockingPool,
    /// For the removal of directory trees, which is slow: nothing else waits behind it.
    pub removals: BlockingPool,
    /// For downloads, which take as long as their servers do.
    pub artifacts: BlockingPool,
    /// The health of an alloc was decided, or one has ended: updates of jobs continue.
    pub judged: Notify,
    /// What nobody waits for: records on their way, and the late end of attempts that were given up.
    aside: Mutex<JoinSet<()>>,
}

const BLOCKING_AT_ONCE: usize = 4;
/// Each has descriptors, and a server that hangs keeps one for its timeout.
const CHECKS_AT_ONCE: usize = 256;
const ARTIFACTS_AT_ONCE: usize = 16;

impl Context {
    pub fn new(parts: Parts, line: Line, board: Arc<Board>, events: Arc<Log>) -> Context {
        let Parts {
            config,
            data_dir,
            fill,
            journal,
            drivers,
            clock,
            cgroups,
            devices,
            ports_in_use,
            networks,
            metrics,
            node,
            facts,
            inherited,
        } = parts;
        let ports = Arc::new(PortKeeper::new(config.network.clone(), ports_in_use));
        let now = clock.now();
        let infos = drivers.keys().map(|name| (*name, watch::Sender::new(DriverInfo::unknown(now))));
        let driver_infos = infos.collect();
        let samples = Arc::new(SampleFile::open(&data_dir.samples()));
        Context {
            config,
            data_dir,
            fill,
            journal,
            drivers,
            driver_infos,
            clock,
            cores: CoreKeeper::new(cgroups.as_ref().map(|cgroups| cgroups.cores()).unwrap_or_default()),
            cgroups,
            devices,
            ports,
            networks,
            plugins: BlockingPool::new(BLOCKING_AT_ONCE),
            checks: Semaphore::new(CHECKS_AT_ONCE),
            metrics,
            node,
            facts,
            inherited,
            board,
            events,
            line,
            samples,
            outputs: Arc::default(),
            blocking: BlockingPool::new(BLOCKING_AT_ONCE),
            removals: BlockingPool::new(BLOCKING_AT_ONCE),
            artifacts: BlockingPool::new(ARTIFACTS_AT_ONCE),
            judged: Notify::new(),
            aside: Mutex::default(),
        }
    }

    /// Whether tasks of a driver are processes that belong in cgroups.
    pub fn has_processes(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.has_processes())
    }

    /// This node as placement sees it at this moment.
    pub fn placement_node(&self) -> PlacementNode {
        PlacementNode {
            identity: self.node.identity.clone(),
            values: NodeValues::new(&self.node, &self.facts.now()),
            cores: self.cores.all().to_vec(),
        }
    }

    /// Does what nobody waits for, until [`Context::let_go`] at the latest.
    pub fn see_to(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut aside = lock(&self.aside);
        while aside.try_join_next().is_some() {}
        aside.spawn(work);
    }
    pub fn detach(&self) {
        lock(&self.aside).abort_all();
    }
}

/// A task of the runtime that goes with who waits for it.
pub struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
