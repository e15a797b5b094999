//! The runner with pretended processes, on paused time: each test waits for a state, never for a duration.

mod cancel;
mod clock;
mod coordinate;
mod crash;
mod data_source;
mod devices;
mod disk;
mod fake;
mod faults;
mod gc;
mod health;
mod hooks;
mod kill;
mod launches;
mod lifecycle;
mod locks;
mod migrate;
mod networks;
mod orphans;
mod places;
mod ports;
mod recovery;
mod reschedule;
mod restart;
mod restore;
mod retention;
mod seam;
mod shown;
mod signal;
mod stops;
mod submit;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::fake::{FakeDriver, FakeWorld, SetClock, TokioClock};
use super::persistence::datadir::DataDir;
use super::persistence::journal::Journal;
use super::{Config, Drivers, Handle, Parts};
use crate::board::PublishedAlloc;
use crate::model::alloc::{AllocState, AllocStatus};
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, BootId};
use crate::model::job::{Job, JobKind, RestartMode, RestartPolicy, Task, TaskGroup};
use crate::model::reschedule::{DelayFunction, ReschedulePolicy};
use crate::model::task::{TaskState, TaskStatus};
use crate::model::totals::TaskTotals;
use crate::store::{FailingStore, MemoryStore, Store, StoreFaults};
use crate::telemetry::Metrics;

/// One host: the state that outlives an agent.
struct TestHost {
    world: Arc<FakeWorld>,
    store: Arc<dyn Store>,
    faults: Arc<StoreFaults>,
    data_dir: Arc<DataDir>,
    config: Config,
    /// The next results of writes; the last one repeats.
    fill: Arc<std::sync::Mutex<std::collections::VecDeque<super::Fill>>>,
    clock: Arc<SetClock>,
    in_use: Arc<ports::FakePorts>,
    networks: Arc<networks::FakeNetworks>,
    _dir: tempfile::TempDir,
}

impl TestHost {
    fn new() -> TestHost {
        let dir = tempfile::tempdir().unwrap();
        let (store, faults) = FailingStore::new(MemoryStore::default());
        TestHost {
            world: Arc::default(),
            store: Arc::new(store),
            faults,
            data_dir: Arc::new(DataDir::open(dir.path()).unwrap()),
            config: Config::default(),
            fill: Arc::default(),
            clock: Arc::default(),
            in_use: Arc::default(),
            networks: Arc::default(),
            _dir: dir,
        }
    }

    async fn start(&self) -> Handle {
        Handle::start(self.parts()).await.unwrap()
    }

    fn parts(&self) -> Parts {
        let metrics = Arc::new(Metrics::new());
        let driver: Arc<dyn super::drivers::Driver> = Arc::new(FakeDriver(Arc::clone(&self.world)));
        Parts {
            config: self.config.clone(),
            data_dir: Arc::clone(&self.data_dir),
            fill: {
                let fill = Arc::clone(&self.fill);
                Arc::new(move || {
                    let mut fill = fill.lock().unwrap();
                    if fill.len() > 1 { fill.pop_front() } else { fill.front().copied() }
                })
            },
            journal: Journal::inline(Arc::clone(&self.store), Arc::clone(&metrics)),
            drivers: Drivers::from([("fake", driver), ("mock", faults::mock())]),
            clock: Arc::clone(&self.clock) as _,
            cgroups: None,
            devices: None,
            ports_in_use: Arc::clone(&self.in_use) as _,
            networks: Arc::clone(&self.networks) as _,
            metrics,
            node: node(),
            facts: Arc::default(),
            inherited: BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]),
        }
    }

    /// The agent dies between two steps; processes keep running.
    async fn restart(&self, agent: Handle) -> Handle {
        agent.shutdown();
        drop(agent);
        tokio::task::yield_now().await;
        self.start().await
    }
}

/// No failed alloc is replaced.
const NEVER: ReschedulePolicy = ReschedulePolicy {
    attempts: 0,
    interval: Duration::ZERO,
    delay: Duration::ZERO,
    function: DelayFunction::Constant,
    max_delay: Duration::ZERO,
    unlimited: false,
};

fn node() -> NodeInfo {
    NodeInfo {
        identity: crate::model::host::NodeIdentity::default(),
        hostname: "host".to_owned(),
        kernel: "6.1".to_owned(),
        boot_id: BootId("boot".to_owned()),
        booted_at: None,
        cpus: 2,
        memory_bytes: None,
        cgroup_mode: "none".to_owned(),
        capabilities: Vec::new(),
    }
}

fn job(id: &str, kind: JobKind, tasks: &[(&str, Value)]) -> Job {
    let restart = RestartPolicy {
        attempts: 2,
        interval: Duration::from_secs(600),
        delay: Duration::from_secs(10),
        mode: RestartMode::Fail,
    };
    let task = |(name, config): &(&str, Value)| Task {
        restart: restart.clone(),
        ..Task::new(name, "fake", config.as_object().unwrap().clone(), kind)
    };
    let group = TaskGroup {
        placing: crate::model::job::PlacementRules::default(),
        name: "g".into(),
        count: 1,
        meta: BTreeMap::new(),
        restart: restart.clone(),
        shutdown_delay: Duration::ZERO,
        max_run_duration: None,
        tasks: tasks.iter().map(task).collect(),
        network: None,
        storage: Default::default(),
        services: Vec::new(),
        health: None,
        update: None,
        // A failed alloc stays failed, unless a test sets a policy.
        reschedule: Some(NEVER),
        ephemeral_disk: crate::model::job::EphemeralDisk::default(),
    };
    Job {
        node_pool: crate::model::job::Job::ANY_POOL.to_owned(),
        placing: crate::model::job::PlacementRules::default(),
        launching: crate::model::launching::JobLaunching::default(),
        id: id.into(),
        name: id.to_owned(),
        kind,
        namespace: "default".to_owned(),
        region: "global".to_owned(),
        datacenters: vec!["dc1".to_owned()],
        meta: BTreeMap::new(),
        groups: vec![group],
        sensitive: Default::default(),
    }
}

/// A service of one task that runs until it is stopped.
fn service(id: &str) -> Job {
    job(id, JobKind::Service, &[("main", json!({}))])
}

/// A batch job of one task that ends after `ms` with `code`.
fn batch(id: &str, ms: u64, code: u8) -> Job {
    job(id, JobKind::Batch, &[("main", json!({ "run_ms": ms, "exit_code": code }))])
}

async fn submit(agent: &Handle, job: Job) -> AllocId {
    agent.submit(job).await.unwrap().allocs[0].clone()
}

fn published(agent: &Handle, id: &AllocId) -> Arc<PublishedAlloc> {
    agent.board().get(id).unwrap()
}
fn status_of(agent: &Handle, id: &AllocId) -> Arc<AllocStatus> {
    lifecycle(&published(agent, id))
}
/// The runner publishes managed allocs.
fn lifecycle(alloc: &PublishedAlloc) -> Arc<AllocStatus> {
    Arc::clone(alloc.status.as_ref().unwrap())
}
fn main_task(agent: &Handle, id: &AllocId) -> Arc<TaskStatus> {
    Arc::clone(&status_of(agent, id).tasks[0])
}
fn totals(agent: &Handle, job: &str) -> TaskTotals {
    // The latest exemplar exists only in this agent's process.
    TaskTotals { latest: None, ..totals_and_latest(agent, job) }
}
fn totals_and_latest(agent: &Handle, job: &str) -> TaskTotals {
    TaskTotals::clone(&agent.board().view().totals.workloads[&(job.into(), "main".into())])
}
fn events(status: &TaskStatus) -> Vec<&'static str> {
    status.events.iter().map(|e| e.kind.text()).collect()
}

/// Waits until a condition holds, on virtual time: steps of 1 ms in the first second, then steps that grow with the
/// elapsed time, so that ten minutes take some thousand checks. Fails after 2,000 virtual seconds that took two real
/// minutes: real threads may be involved, on a machine that others use.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    const SHORTEST: Duration = Duration::from_millis(1);
    const VIRTUAL: Duration = Duration::from_secs(2_000);
    const REAL: Duration = Duration::from_secs(120);
    let (started_at, virtually) = (std::time::Instant::now(), tokio::time::Instant::now());
    while !holds() {
        let passed = virtually.elapsed();
        let step = if passed < VIRTUAL {
            (passed / 512).max(SHORTEST)
        } else {
            assert!(started_at.elapsed() < REAL, "never: {what}");
            std::thread::sleep(SHORTEST);
            SHORTEST
        };
        tokio::time::sleep(step).await;
    }
}
async fn until_state(agent: &Handle, id: &AllocId, state: TaskState) {
    until(state.as_str(), || main_task(agent, id).state == state).await;
}
async fn until_over(agent: &Handle, id: &AllocId) -> AllocState {
    until("over", || status_of(agent, id).is_terminal()).await;
    status_of(agent, id).state
}
