//! Runs every device plugin for the life of the agent and keeps the state of its devices.
//!
//! | plugin | state | next |
//! |---|---|---|
//! | reports | the last report, as a whole | |
//! | sends an invalid report | the report before | continues |
//! | ends or panics | its devices are gone; their values expire | started again, with backoff |
//! | finds no driver or library | none, or "not running" if the hardware exists | started again each [`Config::retry`] |
//!
//! Concurrency: each plugin runs on its own thread, and another thread processes its reports; both end with it. A
//! plugin that finds nothing to work with has no thread.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use super::owners::{ProcessOwner, ProcessOwners};
use super::plugin::{DevicePlugin, PluginError, PluginFault, PluginReport, PluginReports, StopSignal, log_unsupported};
use super::state::{DeviceChange, DeviceState};
use super::use_journal::UseJournal;
use crate::board::devices::{DeviceSource, DevicesView};
use crate::board::{Board, BoardView};
use crate::host::clock::Clock;
use crate::host::process;
use crate::host::roots::Roots;
use crate::model::device::{DeviceGroup, DeviceHolder, DeviceProcess};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;
use crate::model::words;
use crate::telemetry::{lock, panics};

/// First and maximum pause before a failed plugin is started again; doubled each time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Queue length of reports.
const AHEAD: usize = 256;

words! {
    /// Whether processes on devices are attributed to tasks.
    pub enum Attribution {
        /// Only if the agent sees all processes of the host: elsewhere a PID may belong to another process.
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Retry interval for a missing library or driver.
    pub retry: Duration,
    pub attribution: Attribution,
}

impl Default for Config {
    fn default() -> Config {
        Config { retry: Duration::from_secs(300), attribution: Attribution::Auto }
    }
}

/// Receives each change of a device.
pub type OnDeviceChange = Box<dyn Fn(&DeviceChange) + Send + Sync>;

/// Dependencies of a manager.
pub struct Parts {
    pub config: Config,
    pub tick: Duration,
    pub plugins: Vec<Arc<dyn DevicePlugin>>,
    pub board: Arc<Board>,
    pub clock: Arc<dyn Clock>,
    pub roots: Roots,
    /// The file for the usage of tasks, read by the next agent. `None`: not persisted.
    pub journal: Option<PathBuf>,
    pub on_change: OnDeviceChange,
}

/// Runs the device plugins and follows their reports. Concurrency: any thread.
pub struct DeviceManager {
    parts: Parts,
    state: Mutex<DeviceState>,
    /// `None`: processes cannot be attributed here.
    owners: Option<Mutex<ProcessOwners>>,
    ends: Arc<StopSignal>,
    journal: UseJournal,
}

impl Drop for DeviceManager {
    fn drop(&mut self) {
        self.ends.end();
    }
}

impl DeviceManager {
    pub fn new(parts: Parts) -> Arc<DeviceManager> {
        let (retained, found) = UseJournal::open(parts.journal.clone());
        let names = parts.plugins.iter().map(|plugin| plugin.name().to_owned());
        let state = DeviceState::new(names, parts.tick, found);
        let attributes = match parts.config.attribution {
            Attribution::Auto => process::sees_all(&parts.roots),
            Attribution::Always => true,
            Attribution::Never => false,
        };
        if !attributes && parts.config.attribution == Attribution::Auto {
            tracing::debug!("device processes are not attributed to tasks: not all host processes are visible");
        }
        let owners = attributes.then(|| Mutex::new(ProcessOwners::new(parts.roots.clone())));
        Arc::new(DeviceManager { state: Mutex::new(state), owners, ends: Arc::default(), journal: retained, parts })
    }

    fn state(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }

    /// The groups of running plugins, with the plugin for reservations.
    pub fn groups(&self) -> Vec<(Arc<dyn DevicePlugin>, DeviceGroup)> {
        let state = self.state();
        state.groups().map(|(at, group)| (Arc::clone(&self.parts.plugins[at]), group)).collect()
    }

    /// Whether each plugin has reported or failed.
    pub fn is_complete(&self) -> bool {
        self.state().is_complete()
    }

    /// The usage of devices by a task so far.
    pub fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        self.state().used(holder)
    }

    /// Asks the plugins to stop. The futures of [`DeviceManager::follow`] end with them.
    pub fn stop(&self) {
        self.ends.end();
    }

    /// One future per plugin; each ends with [`DeviceManager::stop`].
    pub fn follow(self: &Arc<DeviceManager>) -> Vec<impl Future<Output = ()> + Send + 'static> {
        (0..self.parts.plugins.len()).map(|at| follow(Arc::clone(self), at)).collect()
    }

    fn take(&self, plugin: usize, report: PluginReport) {
        let changes = match report {
            PluginReport::Groups(groups) => self.state().list(plugin, groups),
            PluginReport::Reading(reading) => {
                let owners =
                    reading.processes.as_ref().and_then(|all| self.owners(&reading.device, all, ProcessOwners::of));
                let (now, mut state) = (self.parts.clock.instant(), self.state());
                // A reading may arrive before the board was read, and must be counted for the current holder.
                state.follow(&self.parts.board.view());
                state.read(plugin, *reading, owners.as_deref(), now).map(|change| change.into_iter().collect())
            }
            PluginReport::Processes(device, processes) => {
                let owners = self.owners(&device, &processes, ProcessOwners::between_readings);
                let mut state = self.state();
                state.follow(&self.parts.board.view());
                state.sample_processes(plugin, &device, &processes, owners.as_deref()).map(|()| Vec::new())
            }
            PluginReport::Stuck(device, is_stuck) => {
                self.state().stuck(&device, is_stuck);
                Ok(Vec::new())
            }
            PluginReport::Unsupported(device, calls) => {
                log_unsupported(self.parts.plugins[plugin].name(), &device, &calls);
                Ok(Vec::new())
            }
            PluginReport::Fault(error) => Err(error),
        };
        match changes {
            Ok(changes) => changes.iter().for_each(|change| (self.parts.on_change)(change)),
            Err(error) => {
                let (name, reason) = (self.parts.plugins[plugin].name(), error.fault.as_str());
                tracing::warn!(plugin = name, reason, %error, "device plugin report rejected");
                self.state().fault(plugin, &error);
            }
        }
    }

    /// Reads `/proc`, so it must not run under the state lock.
    fn owners(
        &self,
        device: &DeviceId,
        on: &[DeviceProcess],
        check: fn(&mut ProcessOwners, &DeviceId, &[u32], &BoardView) -> Vec<ProcessOwner>,
    ) -> Option<Vec<ProcessOwner>> {
        let pids: Vec<u32> = on.iter().map(|process| process.pid).collect();
        let owners = self.owners.as_ref()?;
        Some(check(&mut lock(owners), device, &pids, &self.parts.board.view()))
    }

    fn down(&self, plugin: usize, error: &PluginError) {
        let changes = self.state().down(plugin, error);
        changes.iter().for_each(|change| (self.parts.on_change)(change));
    }
}

impl DeviceSource for DeviceManager {
    fn view(&self) -> Arc<DevicesView> {
        let board = self.parts.board.view();
        let mut turn = self.journal.turn();
        let mut state = self.state();
        let (view, retained) = (state.view(&board, self.parts.clock.instant()), state.recorded_uses());
        drop(state);
        self.journal.keep(&mut turn, retained);
        Arc::new(view)
    }
}

async fn follow(manager: Arc<DeviceManager>, at: usize) {
    let name = manager.parts.plugins[at].name().to_owned();
    let mut pause = PAUSES.0;
    let mut logged = None;
    loop {
        let began = tokio::time::Instant::now();
        let mut error = run_once(&manager, at).await;
        if manager.ends.has_ended() {
            return;
        }
        if error.fault == PluginFault::Stopped {
            // The plugin stops like this if the thread that processes its reports died.
            error = PluginError::new(PluginFault::Failed, "internal error: the report thread died");
        }
        // Each reason is logged once: a host without a driver has it permanently.
        if logged != Some(error.fault) {
            logged = Some(error.fault);
            let reason = error.fault.as_str();
            match error.fault {
                PluginFault::Missing => {
                    tracing::info!(plugin = name, %error, "device plugin found no driver or library")
                }
                _ => tracing::warn!(plugin = name, reason, %error, "device plugin ended; restarting"),
            }
        }
        manager.down(at, &error);
        if began.elapsed() > PAUSES.1 {
            (pause, logged) = (PAUSES.0, None);
        }
        let wait = if error.is_missing() { manager.parts.config.retry } else { pause.mul_f64(jitter(&manager)) };
        if tokio::time::timeout(wait, manager.ends.ended()).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Between 1 and 1.25, so that plugins that failed together do not restart together.
fn jitter(manager: &DeviceManager) -> f64 {
    let nanos = u32::try_from(manager.parts.clock.now().0 % 1_000_000).unwrap_or(0);
    1.0 + f64::from(nanos) / 4_000_000.0
}

/// Runs the plugin until it ends, and returns why.
async fn run_once(manager: &Arc<DeviceManager>, at: usize) -> PluginError {
    let (done, finished) = oneshot::channel();
    let (to, reports) = sync_channel(AHEAD);
    let mut out = PluginReports::new(to, Arc::clone(&manager.ends), manager.parts.tick);
    out.samples_processes = manager.owners.is_some();
    let plugin = Arc::clone(&manager.parts.plugins[at]);
    let roots = manager.parts.roots.clone();
    let (taker, short) = (Arc::clone(manager), plugin.name().chars().take(10).collect::<String>());
    let taking = thread(&format!("dev-{short}"), move || take_all(&taker, at, &reports));
    let running = taking.and_then(|()| {
        thread(&short, move || {
            let ended = panics::catch(|| plugin.run(&out));
            drop(out);
            let internal = |why: Box<panics::Panic>| {
                PluginError::new(PluginFault::Failed, format!("internal error: {}", why.message))
            };
            let ended = known(ended.unwrap_or_else(internal), plugin.as_ref(), &roots);
            // The receiver is gone if the agent stops.
            let _ = done.send(ended);
        })
    });
    match running {
        Ok(()) => finished.await.unwrap_or_else(|_| PluginError::new(PluginFault::Failed, "its thread ended")),
        Err(error) => PluginError::new(PluginFault::Failed, format!("cannot create a thread: {error}")),
    }
}

/// Distinguishes missing software on a host with the hardware from a host without. Reads `/sys`.
fn known(error: PluginError, plugin: &dyn DevicePlugin, roots: &Roots) -> PluginError {
    let hardware = (error.fault == PluginFault::Missing).then(|| plugin.idle_hardware(roots)).flatten();
    match hardware {
        Some(hardware) => PluginError::new(PluginFault::NoDriver, format!("{hardware}: {}", error.message)),
        None => error,
    }
}

fn take_all(manager: &DeviceManager, at: usize, reports: &Receiver<PluginReport>) {
    while let Ok(report) = reports.recv() {
        manager.take(at, report);
    }
}

/// Not joined: it may hang in a driver for ever.
fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(256 << 10).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::devices::plugin::DevicePlugin;
    use crate::host::clock::SystemClock;
    use crate::model::device::{Device, DeviceKind, DeviceReservation};
    use crate::model::id::DeviceId;

    type Act = fn(&PluginReports) -> PluginError;

    /// Does the next thing of its list at each run, and repeats the last one.
    struct ScriptedRuns(Vec<Act>, AtomicUsize);

    impl DevicePlugin for ScriptedRuns {
        fn name(&self) -> &str {
            "scripted"
        }
        fn run(&self, reports: &PluginReports) -> PluginError {
            let at = self.1.fetch_add(1, Ordering::Relaxed);
            self.0[at.min(self.0.len() - 1)](reports)
        }
        fn reserve(&self, _: &[DeviceId]) -> Result<DeviceReservation, PluginError> {
            Ok(DeviceReservation::default())
        }
    }

    fn group(id: &str) -> Vec<DeviceGroup> {
        let kind = DeviceKind { vendor: "v".into(), kind: "gpu".into(), name: "g".into() };
        let device = Device::of(id.into());
        vec![DeviceGroup { kind, attributes: Default::default(), devices: vec![device] }]
    }

    fn well(reports: &PluginReports) -> PluginError {
        reports.groups(group("0"));
        while reports.wait(Duration::from_secs(1)) {}
        PluginError::stopped()
    }

    fn manager(acts: Vec<Act>) -> Arc<DeviceManager> {
        DeviceManager::new(Parts {
            config: Config::default(),
            tick: Duration::from_secs(1),
            plugins: vec![Arc::new(ScriptedRuns(acts, AtomicUsize::new(0)))],
            board: Arc::default(),
            clock: Arc::new(SystemClock),
            roots: Roots::default(),
            journal: None,
            on_change: Box::new(|_| {}),
        })
    }

    /// Pauses end at once; threads run in real time.
    async fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..20_000 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain for {what}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_ends_in_any_way_is_run_again_and_each_fault_is_counted() {
        let acts: Vec<Act> = vec![
            |_| panic!("it was asked to"),
            |_| PluginError::new(PluginFault::Died, "gone"),
            |reports| {
                reports.groups(group(""));
                reports.groups(group("0"));
                PluginError::new(PluginFault::Timeout, "late")
            },
            // As if the report thread had died: the plugin stops without a request.
            |_| PluginError::stopped(),
            |_| PluginError::new(PluginFault::Missing, "nothing to work with"),
            well,
        ];
        let manager = manager(acts);
        let following: Vec<_> = manager.follow().into_iter().map(tokio::spawn).collect();
        // It was up for a moment in the third run too.
        let is_last = |view: &DevicesView| view.plugins[0].faults.get("failed") == Some(&2);
        let is_up = |view: &DevicesView| view.devices.iter().any(|view| view.up);
        until("its device", || Some(manager.view()).is_some_and(|view| is_last(&view) && is_up(&view))).await;
        let view = manager.view();
        assert_eq!(view.plugins[0].down, None);
        let counted = [("died", 1), ("failed", 2), ("invalid", 1), ("timeout", 1)];
        assert_eq!(view.plugins[0].faults, counted.into(), "what is missing is no fault");
        assert_eq!(manager.groups().len(), 1);
        manager.stop();
        until("its end", || following.iter().all(tokio::task::JoinHandle::is_finished)).await;
    }
}
