//! What the owners of allocs and tasks share: configuration, clock, journal, drivers, keepers of resources.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::blocking_pool::BlockingPool;
use super::cgroups::AllocCgroups;
use super::cores::CoreKeeper;
use super::decide::limits::Fill;
use super::decide::placement::PlacementNode;
use super::devices::DeviceKeeper;
use super::drivers::{Driver, DriverInfo};
use super::networks::AllocNetworks;
use super::persistence::datadir::DataDir;
use super::persistence::journal::Journal;
use super::persistence::outputs::OutputBudget;
use super::persistence::samples::SampleFile;
use super::persistence::steady_clock::SteadyClock;
use super::ports::{PortKeeper, PortsInUse};
use super::rendering::{KeyTree, RenderShared};
use super::settings::Config;
use crate::board::Board;
use crate::board::events::EventLog;
use crate::board::facts::Facts;
use crate::host::clock::Clock;
use crate::model::constraint::NodeValues;
use crate::model::env::Env;
use crate::model::host::NodeInfo;
use crate::telemetry::Metrics;
use crate::telemetry::lock;

/// Reads the usage of the data directory's file system; may block. `None`: it is unknown.
pub type ReadFill = Arc<dyn Fn() -> Option<Fill> + Send + Sync>;

/// Usage of the file system of the data directory.
pub fn fill_of(data_dir: &Arc<DataDir>) -> ReadFill {
    let data_dir = Arc::clone(data_dir);
    Arc::new(move || data_dir.fill().ok())
}

pub type Drivers = BTreeMap<&'static str, Arc<dyn Driver>>;

/// Everything the runner is built from.
pub struct Parts {
    pub config: Config,
    pub data_dir: Arc<DataDir>,
    pub fill: ReadFill,
    pub journal: Journal,
    pub drivers: Drivers,
    pub clock: Arc<dyn Clock>,
    /// `None`: this host cannot create cgroups.
    pub cgroups: Option<Arc<dyn AllocCgroups>>,
    /// `None`: no device plugins.
    pub devices: Option<Arc<dyn DeviceKeeper>>,
    /// Ports in use by other programs.
    pub ports_in_use: Arc<dyn PortsInUse>,
    pub networks: Arc<dyn AllocNetworks>,
    pub metrics: Arc<Metrics>,
    /// Values of `${node...}` in job files.
    pub node: NodeInfo,
    /// Values of `${attr...}` in job files; drivers publish theirs here.
    pub facts: Arc<Facts>,
    /// The part of the agent's environment that every task inherits.
    pub inherited: Env,
}

/// The parts, and what the runner built from them.
pub struct RunnerContext {
    pub config: Config,
    pub data_dir: Arc<DataDir>,
    pub fill: ReadFill,
    pub journal: Journal,
    pub drivers: Drivers,
    /// The last fingerprint of each driver.
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
    pub events: Arc<EventLog>,
    pub line: SteadyClock,
    pub samples: Arc<SampleFile>,
    /// Memory for the last outputs of all tasks.
    pub outputs: Arc<OutputBudget>,
    /// For file systems and cgroups, which block for microseconds or for a while.
    pub blocking: BlockingPool,
    /// For the removal of directory trees, which is slow: nothing else waits behind it.
    pub removals: BlockingPool,
    /// For downloads, which take as long as their servers do.
    pub artifacts: BlockingPool,
    /// For templates, which may be slow: no other hook waits behind them.
    pub renderings: BlockingPool,
    pub rendering: RenderShared,
    /// For transfers from other agents: a slow peer keeps no download of an artifact waiting.
    pub migrations: BlockingPool,
    /// The health of an alloc was decided, or one has ended: updates of jobs continue.
    pub judged: Notify,
    /// Background work: queued records, and the kills of abandoned tasks.
    aside: Mutex<JoinSet<()>>,
}

const BLOCKING_AT_ONCE: usize = 4;
/// Each check has descriptors, and a server that hangs keeps one until the timeout.
const CHECKS_AT_ONCE: usize = 256;
const ARTIFACTS_AT_ONCE: usize = 16;
const RENDERINGS_AT_ONCE: usize = 4;
const MIGRATIONS_AT_ONCE: usize = 4;

impl RunnerContext {
    pub fn new(parts: Parts, line: SteadyClock, board: Arc<Board>, events: Arc<EventLog>) -> RunnerContext {
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
        let ports = Arc::new(PortKeeper::new(config.network.clone(), ports_in_use, metrics.ports.clone()));
        let now = clock.now();
        let infos = drivers.keys().map(|name| (*name, watch::Sender::new(DriverInfo::unknown(now))));
        let driver_infos = infos.collect();
        let samples = Arc::new(SampleFile::open(&data_dir.samples()));
        RunnerContext {
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
            migrations: BlockingPool::new(MIGRATIONS_AT_ONCE),
            renderings: BlockingPool::new(RENDERINGS_AT_ONCE),
            rendering: RenderShared::default(),
            judged: Notify::new(),
            aside: Mutex::default(),
        }
    }

    /// Whether tasks of a driver are processes that belong in cgroups.
    pub fn has_processes(&self, driver: &str) -> bool {
        self.drivers.get(driver).is_some_and(|driver| driver.has_processes())
    }

    /// This node as placement sees it now.
    pub fn placement_node(&self) -> PlacementNode {
        PlacementNode {
            identity: self.node.identity.clone(),
            values: NodeValues::new(&self.node, &self.facts.now()),
            cores: self.cores.all().to_vec(),
        }
    }

    /// `None`: the settings name none.
    pub fn key_tree(&self) -> Option<KeyTree> {
        self.config.template.key_dir.clone().map(KeyTree)
    }

    /// Runs work in the background, until [`RunnerContext::detach`] at the latest.
    pub fn see_to(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut aside = lock(&self.aside);
        while aside.try_join_next().is_some() {}
        aside.spawn(work);
    }
    pub fn detach(&self) {
        lock(&self.aside).abort_all();
    }
}

/// A task of the runtime that is aborted when its handle is dropped.
pub struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
