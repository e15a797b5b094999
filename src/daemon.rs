//! The one place that knows every room: checks, binds, builds, restores, serves, drains.
//!
//! ```text
//! configuration checked ─► TCP bound ─► data directory locked ─► socket bound ─► serving: alive, not ready
//!   ─► store, journal ─► what ran before is restored ─► sampler ─► door open: everything is answered
//! SIGTERM, SIGINT, SIGQUIT ─► no new connections ─► begun answers finished ─► state written; tasks run on
//! ```

mod adopted;
mod bind;
mod device_bridge;
mod error;
mod memory;
mod node;
mod observed;
mod once;
mod placement;
mod resource_needs;
mod signals;
mod standalone;
mod steps;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use error::DaemonError;
pub use observed::until_named;
pub use once::one_pass;
pub use placement::{has_scope_of_user, scope_name};
pub use standalone::StandaloneSampler;

use self::device_bridge::DeviceStock;
use self::placement::CgroupPlacement;
use self::resource_needs::Needs;
use self::signals::SignalHandlers;
use self::steps::{StartSteps, Step};
use crate::api::{self, ApiContext, ServerState};
use crate::board::Board;
use crate::board::devices::{DeviceSource, DevicesView};
use crate::board::facts::Facts;
use crate::collectors::{self, CgroupEndTracer, FdBudget, SamplingContext, capability};
use crate::config::{self, Config};
use crate::devices::keeper::ReservationKeeper;
use crate::devices::{self, DeviceChange};
use crate::exporters;
use crate::exporters::prometheus::Bodies;
use crate::fingerprint;
use crate::host::clock::{Clock, SystemClock};
use crate::host::hierarchy::Layout;
use crate::host::machine;
use crate::host::process;
use crate::host::roots::Roots;
use crate::model::event::EventKind;
use crate::model::host::{NodeIdentity, NodeInfo};
use crate::observe::{Observer, RecordLocation};
use crate::runner::datadir::{DataDir, DirectoryHistory};
use crate::runner::drivers::{self, DriverContext, SupervisorPool};
use crate::runner::journal::Journal;
use crate::runner::{self, DiskWatcher, Handle, HostCgroups, HostNetworks, HostPorts};
use crate::snapshot::sampler::{self, Sampler};
use crate::snapshot::{SharedScrapers, Snapshots};
use crate::store::{SledStore, Store, StoreError};
use crate::telemetry::Metrics;

/// This very binary, even if its file was replaced meanwhile.
const OURSELVES: &str = "/proc/self/exe";
/// How long answers that have begun may take when the agent ends.
const DRAIN: Duration = Duration::from_secs(3);
/// How long plugins of devices may take for it.
const PLUGINS_END: Duration = Duration::from_secs(1);
/// How long the first look at everything may take before answers begin without it.
const FIRST_TICK: Duration = Duration::from_secs(30);
/// How long the last of it may take when everything else has ended.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// A running agent.
pub struct Daemon {
    /// Where TCP listens.
    pub tcp: Option<SocketAddr>,
    /// TLS is spoken there.
    pub speaks_tls: bool,
    pub socket: PathBuf,
    pub info: Arc<NodeInfo>,
    handle: Handle,
    devices: Arc<devices::DeviceManager>,
    sampler: Sampler,
    observer: Option<Arc<Observer>>,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    chores: Vec<JoinHandle<()>>,
    /// Each follows a plugin of devices.
    plugins: Vec<JoinHandle<()>>,
    fingerprints: fingerprint::Fingerprinting,
    parent: Option<node::AllocsCgroup>,
    /// `None`: no thread was left for it.
    _disk: Option<DiskWatcher>,
    _socket_file: bind::SocketFile,
}

impl Daemon {
    /// What is known of devices at this moment.
    pub fn devices(&self) -> Arc<DevicesView> {
        self.devices.view()
    }

    /// Builds everything, each step in its time. Errors: nothing is left behind but the directories of the data
    /// directory, without a job in them; where a step is late, what it waits for.
    pub async fn start(config: Config) -> Result<Daemon, DaemonError> {
        let (steps, now) = StartSteps::begin();
        let (watched_rx, mut excluded) = tokio::sync::oneshot::channel::<()>();
        let runtime = tokio::runtime::Handle::current();
        // On a thread of its own: a step may block, and deadlines and signals must not wait for it.
        let building = tokio::task::spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    built = Daemon::build(config, steps) => Some(built),
                    _ = &mut excluded => None,
                }
            })
        });
        let built = tokio::select! {
            built = building => built.map_err(|e| DaemonError::Setup(std::io::Error::other(e)))?,
            late = steps::late(now) => Some(Err(late)),
        };
        // Until here: who drops this call calls it off.
        drop(watched_rx);
        built.unwrap_or_else(|| Err(DaemonError::Setup(std::io::ErrorKind::Interrupted.into())))
    }

    async fn build(config: Config, steps: StartSteps) -> Result<Daemon, DaemonError> {
        let needs = Needs::check()?;
        config::check_paths(&config)?;
        let metrics = Arc::new(Metrics::new());
        let gate = api::Gate::open(&config.api, &metrics)?;
        let speaks_tls = gate.speaks_tls();
        let tcp = bind::tcp(config.api.listen).await?;
        let tcp_address = tcp.as_ref().map(|l| l.local_addr()).transpose().map_err(DaemonError::Setup)?;
        steps.at(Step::DataDir);
        let data_dir = Arc::new(DataDir::open(&config.data_dir)?);
        needs.log(&data_dir);
        steps.at(Step::Sockets);
        let socket = config.socket();
        let (unix, socket_file) = bind::unix(&socket, config.api.socket_group.as_deref())?;

        let roots = Roots::default().with_root(&config.observe.root);
        let api = api::Config { socket: Some(socket.clone()), roots: roots.clone(), ..config.api.clone() };
        let door = ServerState::new(api, gate);
        let (stop, stopped) = watch::channel(false);
        let mut servers = vec![tokio::spawn(api::serve_unix(unix, Arc::clone(&door), stopped.clone()))];
        if let Some(tcp) = tcp {
            servers.push(tokio::spawn(api::serve_tcp(tcp, Arc::clone(&door), stopped)));
        }

        steps.at(Step::Host);
        // Meanwhile: reading it takes as long as looking at this host, and neither needs the other.
        let state = data_dir.state();
        let store = tokio::task::spawn_blocking(move || SledStore::open(&state));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        metrics.begins(clock.now());
        resource_needs::warn_of_unprotected_links(&roots);
        let mark = data_dir.root().join(placement::MARK);
        let setup = HostSetup::prepare(&roots, &config, mark, data_dir.before(), data_dir.limit_capability()).await?;
        // Before the runner: what it starts may refer to what the host is.
        let fingerprints = fingerprint::Fingerprinting::start(fingerprint::Parts {
            fingerprinters: config.fingerprint.chosen(),
            request: fingerprint::FingerprintRequest { roots, data_dir: data_dir.root().to_owned() },
            facts: Arc::clone(&setup.facts),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
        })
        .await;
        steps.at(Step::Database);
        close_allocs(&data_dir).await?;
        let journal = start_journal(store, &metrics).await?;
        steps.at(Step::Restore);
        let handle = start_runner(&config, data_dir.clone(), journal, needs, &setup, &clock, &metrics).await?;
        steps.at(Step::Sampler);
        let HostSetup { sampling, info, parent, home, ends, stock, .. } = setup;

        let roots = sampling.roots.clone();
        let memory_limit = memory::limit_of(&roots, &sampling.layout, config.memory_limit_mib);
        let devices = follow_devices(&config, &data_dir, &handle, &clock, &roots);
        stock.open(&devices);
        let keep = RecordLocation { path: data_dir.observed(), boot_id: info.boot_id.clone() };
        let rest = observed::ObservedFrom { sampling: &sampling, ends, keep };
        let observer = observed::observe(&config, &handle, &home, rest, &clock, &metrics);
        let scrapers = Arc::new(SharedScrapers::default());
        let sampler = Sampler::start(sampler::Parts {
            config: config.telemetry,
            board: Arc::clone(handle.board()),
            devices: Some(Arc::clone(&devices) as Arc<dyn DeviceSource>),
            sampling,
            collectors: collectors::host(vec![("data", data_dir.root().to_owned())]),
            info: Arc::clone(&info),
            metrics: Arc::clone(&metrics),
            scrapers: Arc::clone(&scrapers),
            clock: Arc::clone(&clock),
        })
        .map_err(DaemonError::Setup)?;
        let disk = DiskWatcher::start(&handle, &data_dir, &clock);
        let bodies = Arc::new(Bodies::new(Arc::clone(&metrics), Arc::new(config.selection.clone())));
        let (tick, snapshots) = (config.telemetry.tick, sampler.snapshots.clone());
        let visited = Arc::clone(&bodies);
        snapshots.set_read_predictor(Box::new(move || visited.is_visited_within(tick)));
        let parts = exporters::Parts {
            bodies: Arc::clone(&bodies),
            snapshots,
            events: Arc::clone(handle.events()),
            tick,
            metrics: Arc::clone(&metrics),
            otlp: config.otlp.clone(),
            history: exporters::history::History::new(&config.history, data_dir.root()),
            recent: exporters::recent::RecentHistory::new(config.recent),
            data_dir: data_dir.root().to_owned(),
        };
        let mut chores = vec![
            tokio::spawn(observed::hand_over_retired(handle.clone(), observer.clone(), sampler.snapshots.clone())),
            tokio::spawn(give_back_heap(Arc::clone(handle.board()), sampler.snapshots.clone())),
            tokio::spawn(handle.clone().watch_supervisors()),
        ];
        let shedders = memory::Shedders::new(observer.clone(), &bodies, &metrics);
        chores.extend(memory_limit.map(|limit| tokio::spawn(memory::keep_below(limit, roots, shedders))));
        let plugins = devices.follow().into_iter().map(tokio::spawn).collect();
        chores.extend(exporters::ALL.iter().filter_map(|exporter| (exporter.run)(&parts)));
        if process::can_adopt_children() {
            chores.push(tokio::spawn(adopted::reap()));
        }
        chores.extend(home.scope.map(|scope| tokio::spawn(scope.keep())));
        // Before the first tick there is only an empty snapshot, and a client would take it for the truth.
        let mut first = sampler.snapshots.clone();
        if tokio::time::timeout(FIRST_TICK, first.wait_for(|snapshot| snapshot.epoch > 0)).await.is_err() {
            tracing::error!("first sample is slow; nothing is measured until it ends");
        }
        door.open(Arc::new(ApiContext {
            snapshots: sampler.snapshots.clone(),
            bodies,
            history: parts.history.clone(),
            recent: parts.recent.clone(),
            runner: handle.clone(),
            data_dir,
            clock,
            heartbeat: Arc::clone(&sampler.heartbeat),
            scrapers,
            metrics,
            followers: api::Followers::of(config.api.max_connections),
            exec: api::ExecSessions::new(config.api.disable_remote_exec),
            answered: Arc::default(),
            fingerprinters: fingerprints.states(),
            cpu_window: exporters::dropin::nomad::CpuWindow::default(),
        }));
        Ok(Daemon {
            tcp: tcp_address,
            speaks_tls,
            socket,
            info,
            handle,
            devices,
            sampler,
            observer,
            stop,
            servers,
            chores,
            plugins,
            fingerprints,
            parent: parent.ok(),
            _disk: disk,
            _socket_file: socket_file,
        })
    }

    /// Lets go: tasks run on, to be found again by the next agent.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // Answers that go on end with it; what happens from now on is reported by the next agent.
        self.handle.events().close();
        for server in self.servers {
            // A server only ends; how it ended changes nothing any more.
            let _ = tokio::time::timeout(DRAIN, server).await;
        }
        self.devices.stop();
        let plugins = async {
            for plugin in self.plugins {
                let _ = plugin.await;
            }
        };
        // One that hangs dies with us, and leaves behind what it would have cleared away.
        let _ = tokio::time::timeout(PLUGINS_END, plugins).await;
        self.chores.iter().for_each(JoinHandle::abort);
        drop(self.fingerprints);
        self.observer.iter().for_each(|observer| observer.stop());
        drop(self.sampler);
        let handle = self.handle;
        // Blocks until the state is on disk.
        if tokio::task::spawn_blocking(move || handle.shutdown()).await.is_err() {
            tracing::error!("the runner did not shut down cleanly");
        }
        if let Some(parent) = self.parent {
            parent.leave();
        }
    }
}

/// What everything else stands on: the hierarchies, and what can be measured.
struct HostSetup {
    sampling: Arc<SamplingContext>,
    info: Arc<NodeInfo>,
    /// Errors: why it cannot be made.
    parent: Result<node::AllocsCgroup, String>,
    home: CgroupPlacement,
    /// The kernel's reports of ends of observed tasks: taken by the observer.
    ends: Option<CgroupEndTracer>,
    facts: Arc<Facts>,
    stock: Arc<DeviceStock>,
}

impl HostSetup {
    async fn prepare(
        roots: &Roots,
        config: &Config,
        mark: PathBuf,
        before: DirectoryHistory,
        limit: crate::model::capability::Capability,
    ) -> Result<HostSetup, DaemonError> {
        let (roots, config) = (roots.clone(), config.clone());
        let inspected = tokio::task::spawn_blocking(move || HostSetup::inspect(roots, &config, mark, before, limit));
        inspected.await.map_err(|e| DaemonError::Setup(std::io::Error::other(e)))?
    }

    /// May block for seconds.
    fn inspect(
        roots: Roots,
        config: &Config,
        mark: PathBuf,
        before: DirectoryHistory,
        limit: crate::model::capability::Capability,
    ) -> Result<HostSetup, DaemonError> {
        let layout = Layout::detect(&roots)?;
        for problem in layout.problems() {
            tracing::warn!(problem, "cgroup hierarchy ignored");
        }
        let home = CgroupPlacement::find(&roots, &layout, config, before);
        let layout = layout.narrow(&home.parent);
        let runs = !config.drivers.enabled.is_empty();
        let make = || node::AllocsCgroup::make(&layout, &home.parent, mark, runs);
        let made = home.refused.clone().map_or_else(make, Err);
        let refused = made.as_ref().err().map(String::as_str);
        let (node::KernelParts { pass, ends }, may) = node::may(config, &roots, &layout, &home.parent);
        let mut info = node::info(&roots, &layout, &home.parent, may, refused)?;
        info.identity = NodeIdentity { node_id: machine::node_id(&roots), ..config.node.clone() };
        for missing in info.capabilities.iter().filter(|c| !c.available) {
            if missing.unknown {
                tracing::info!(feature = %missing.feature, reason = missing.reason, "capability unknown");
            } else {
                tracing::info!(feature = %missing.feature, reason = missing.reason, "not measured here");
            }
        }
        info.capabilities.push(limit);
        let (windows, budget) = (info.can(capability::WINDOW_PEAK), FdBudget::from_limit());
        let sampling = SamplingContext::with_window_peaks(roots, layout, budget, windows);
        pass.into_iter().for_each(|pass| sampling.set_kernel_pass(pass));
        let info = Arc::new(info);
        Ok(HostSetup { sampling, info, parent: made, home, ends, facts: Arc::default(), stock: Arc::default() })
    }
}

/// Errors: the database cannot be opened, or no thread was left for it.
async fn start_journal(
    store: JoinHandle<Result<SledStore, StoreError>>,
    metrics: &Arc<Metrics>,
) -> Result<Journal, DaemonError> {
    // Until the disk responds, or the deadline of this step.
    let store = store.await.map_err(|e| DaemonError::Setup(std::io::Error::other(e)))?;
    let store: Arc<dyn Store> = Arc::new(store?);
    #[cfg(debug_assertions)]
    let store = crate::store::deadly::from_environment(store);
    Journal::start(store, Arc::clone(metrics)).map_err(DaemonError::Setup)
}

async fn start_runner(
    config: &Config,
    data_dir: Arc<DataDir>,
    journal: Journal,
    needs: Needs,
    setup: &HostSetup,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Result<Handle, DaemonError> {
    let HostSetup { sampling, info, parent, home, facts, stock, .. } = setup;
    let no_cgroups = parent.as_ref().err().cloned();
    let context = DriverContext {
        sampling: Arc::clone(sampling),
        clock: Arc::clone(clock),
        boot_id: info.boot_id.clone(),
        supervisors: SupervisorPool::new(OURSELVES.into(), home.supervisors.clone(), needs.watches(&sampling.budget)),
        descriptors: process::original_descriptor_limit(),
        no_cgroups: no_cgroups.clone(),
        settings: config.drivers.settings.clone(),
        metrics: Arc::clone(metrics),
    };
    let enabled = |name: &str| config.drivers.enabled.iter().any(|e| e == name);
    let enabled = drivers::ALL.iter().filter(|driver| enabled(driver.name));
    let drivers = enabled.map(|driver| (driver.name, (driver.build)(&context)));
    let parts = runner::Parts {
        config: runner::Config::of(
            home.parent.clone(),
            config.gc,
            config.network.clone(),
            (config.artifact.clone(), config.migrate.clone(), config.template.clone()),
            resource_needs::secrets_in_memory(),
        ),
        fill: runner::fill_of(&data_dir),
        data_dir,
        journal,
        drivers: drivers.collect(),
        clock: Arc::clone(clock),
        cgroups: match no_cgroups {
            None => Some(Arc::new(HostCgroups::new(Arc::clone(sampling)))),
            Some(_) => None,
        },
        devices: Some(Arc::new(ReservationKeeper::new(Arc::clone(stock) as _))),
        ports_in_use: Arc::new(HostPorts::default()),
        networks: Arc::new(HostNetworks::new(config.network.clone())),
        metrics: Arc::clone(metrics),
        node: NodeInfo::clone(info),
        facts: Arc::clone(facts),
        inherited: inherited(),
    };
    Ok(Handle::start(parts).await?)
}

/// Their changes are logged, and reported as events.
fn follow_devices(
    config: &Config,
    data_dir: &DataDir,
    handle: &Handle,
    clock: &Arc<dyn Clock>,
    roots: &Roots,
) -> Arc<devices::DeviceManager> {
    // Not the runner: what reads a device may outlive everything, and must not keep its database open.
    let (events, now_is) = (Arc::clone(handle.events()), Arc::clone(clock));
    let report = move |change: &DeviceChange| {
        let (device, now) = (change.device.as_str(), change.now);
        match now {
            "up" => tracing::info!(device, kind = %change.kind, "device found"),
            _ => tracing::warn!(device, kind = %change.kind, now, message = change.message, "device changed"),
        }
        let mut details = vec![("device", device), ("now", now)];
        // In a plugin's own words, which may say more of this host than everybody is to know.
        details.extend(change.error.as_deref().map(|error| ("error", error)));
        events.record_host_event(now_is.now(), EventKind::Device, change.message.clone(), &details);
    };
    devices::DeviceManager::new(devices::manager::Parts {
        config: config.devices.follow.clone(),
        tick: config.telemetry.tick,
        plugins: devices::plugins(&config.devices, clock),
        board: Arc::clone(handle.board()),
        clock: Arc::clone(clock),
        roots: roots.clone(),
        journal: Some(data_dir.device_uses()),
        on_change: Box::new(report),
    })
}

/// Closes to others what an agent before this one left open to them, and says what it changed.
async fn close_allocs(data_dir: &Arc<DataDir>) -> Result<(), DaemonError> {
    let is_root = rustix::process::geteuid().is_root();
    if let Some(path) = data_dir.closed_to_strangers().filter(|_| is_root) {
        let path = path.display();
        tracing::info!(%path, "tasks with a `user` cannot reach the data directory: a parent directory is closed");
    }
    let data_dir = Arc::clone(data_dir);
    let closed = tokio::task::spawn_blocking(move || data_dir.close_allocs()).await;
    let closed = closed.map_err(|e| DaemonError::Setup(std::io::Error::other(e)))?;
    if let Some(example) = closed.example {
        let directories = closed.directories;
        tracing::warn!(directories, example, "task directories were open to other users; access removed");
    }
    for problem in closed.problems {
        tracing::warn!(problem, "task directory may be open to other users");
    }
    Ok(())
}

/// What tasks get of the agent's own environment: how to find programs, and how people here read. Nothing else: it may
/// hold secrets.
fn inherited() -> BTreeMap<String, String> {
    let accepts = |name: &str| matches!(name, "PATH" | "LANG" | "TZ") || name.starts_with("LC_");
    let text =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    text.filter(|(name, _)| accepts(name)).collect()
}

/// What starting and ending tasks used goes back to the kernel: each so many ticks while something changes, and once
/// more after the last change.
async fn give_back_heap(board: Arc<Board>, mut snapshots: Snapshots) {
    const TICKS: u64 = 10;
    let (mut given_back, mut earliest) = (0, 0);
    while snapshots.changed().await.is_ok() {
        let (epoch, changes) = (snapshots.borrow_and_update().epoch, board.version());
        if changes != given_back && epoch >= earliest {
            (given_back, earliest) = (changes, epoch + TICKS);
            if tokio::task::spawn_blocking(process::give_back_heap).await.is_err() {
                tracing::error!("failed to return free memory to the kernel");
            }
        }
    }
}

/// The agent as a process: until a signal ends it.
pub fn run(config: Config) -> Result<(), DaemonError> {
    process::keep_heap_small();
    // What is made without an explicit mode is closed to other users, under any parent process. Tasks get the usual
    // 022.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = SignalHandlers::listen()?;
        let data_dir = config.data_dir.clone();
        let daemon = tokio::select! {
            started = Daemon::start(config) => started?,
            signal = signals.end() => {
                tracing::info!(signal, "agent stopping before it was ready; tasks continue");
                return Ok(());
            }
        };
        let scheme = if daemon.speaks_tls { "https" } else { "http" };
        let tcp = daemon.tcp.map_or_else(|| "none".to_owned(), |a| format!("{scheme}://{a}"));
        tracing::info!(tcp, socket = %daemon.socket.display(), data_dir = %data_dir.display(), "agent started");
        let signal = signals.end().await;
        tracing::info!(signal, "agent stopping; tasks continue");
        daemon.stop().await;
        Ok(())
    });
    // What still blocks by then (a driver that looks for something, a disk) is left as if we were killed: the next
    // agent goes on.
    runtime.shutdown_timeout(LEFT_BEHIND);
    ended
}

/// Errors: also if there are fewer threads than an agent needs.
///
/// Two workers: what the agent does beside sampling is waiting.
pub fn runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    resource_needs::check_threads()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(DaemonError::Setup)
}
