//! A driver whose processes are entries of a table that outlives the agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::collectors::TaskReader;
use crate::host::clock::Clock;
use crate::model::id::{BootId, CgroupPath, ProcessId, TaskName};
use crate::model::job::Task;
use crate::model::task::{ExitStatus, LostOutput, TaskHandle};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};
use crate::runner::drivers::{
    Attempt, AttemptEnd, BoxFuture, ConfigProblem, Driver, DriverError, EventSink, Fingerprint, Fingerprints, Health,
    KILL_SIGNAL, RecoveryOutcome, SeenDirs, StartRequest, UnrecordedAttempt,
};
use crate::runner::persistence::datadir::{AttemptDirs, TaskDirs};

/// A wall clock that follows tokio's paused time.
pub(super) struct TokioClock;

static EPOCH: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();

impl TokioClock {
    pub fn new() -> TokioClock {
        EPOCH.get_or_init(std::time::Instant::now);
        TokioClock
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        const BASE: u64 = 1_700_000_000_000_000_000;
        let (instant, epoch) = (self.instant(), *EPOCH.get().unwrap());
        // The paused clock of this test may have started before another test set the epoch.
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap();
        match instant.checked_duration_since(epoch) {
            Some(since) => Timestamp(BASE + nanos(since)),
            None => Timestamp(BASE - nanos(epoch - instant)),
        }
    }
    fn instant(&self) -> std::time::Instant {
        tokio::time::Instant::now().into_std()
    }
    fn since_boot(&self) -> Nanos {
        const UP: u64 = 1_000_000_000_000_000;
        Nanos(self.now().0 + UP - 1_700_000_000_000_000_000)
    }
}

/// The same clock, with a wall clock that tests set, of a host that may reboot.
#[derive(Default)]
pub(super) struct SetClock {
    ahead: Mutex<i64>,
    booted: Mutex<Option<Nanos>>,
}

impl SetClock {
    pub fn jump(&self, seconds: i64) {
        *self.ahead.lock().unwrap() += seconds * 1_000_000_000;
    }
    /// The current time. The boot ID is independent.
    pub fn boot(&self) {
        *self.booted.lock().unwrap() = Some(TokioClock::new().since_boot());
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(TokioClock::new().now().0.checked_add_signed(*self.ahead.lock().unwrap()).unwrap())
    }
    fn instant(&self) -> std::time::Instant {
        TokioClock.instant()
    }
    fn since_boot(&self) -> Nanos {
        TokioClock::new().since_boot().saturating_sub(self.booted.lock().unwrap().unwrap_or(Nanos::ZERO))
    }
}

/// Every process that was ever started, by its run directory.
#[derive(Default)]
pub(super) struct FakeWorld {
    pub processes: Mutex<BTreeMap<PathBuf, Arc<FakeProcess>>>,
    /// The error that the driver returns from `recover`.
    pub recover_error: Mutex<Option<String>>,
    /// No descriptors are left for recovery.
    pub out_of_descriptors: std::sync::atomic::AtomicBool,
    /// The error that it returns from `left`.
    pub left_error: Mutex<Option<String>>,
    /// Tasks that the driver does not find as long as they are listed here.
    pub hidden: watch::Sender<Vec<&'static str>>,
    /// Whether its allocs have cgroups.
    pub has_processes: Mutex<bool>,
    /// Known only after a start: its cgroup and driver state.
    pub learns: Mutex<Option<(CgroupPath, serde_json::Value)>>,
    /// The handles that it was asked to recover.
    pub recovering: Mutex<Vec<TaskHandle>>,
    /// The directories as its tasks see them, if not those of the host.
    pub root: Mutex<Option<PathBuf>>,
    /// The kill signal of its tasks, if not the default.
    pub kill_signal: Mutex<Option<&'static str>>,
    /// The reader of the next process.
    pub reader: Mutex<Option<Arc<TaskReader>>>,
}

pub(super) struct FakeProcess {
    pub handle: TaskHandle,
    pub env: BTreeMap<String, String>,
    task: Task,
    end: watch::Sender<Option<AttemptEnd>>,
    pub signals: Mutex<Vec<String>>,
    pub destroyed: Mutex<u32>,
    reader: Option<Arc<TaskReader>>,
}

impl FakeWorld {
    /// Number of processes that were ever started: [`FakeDriver::start`] refuses a second start of one attempt.
    pub fn started(&self) -> usize {
        self.processes.lock().unwrap().len()
    }
    pub fn living(&self) -> usize {
        self.processes.lock().unwrap().values().filter(|p| p.end.borrow().is_none()).count()
    }
    pub fn last(&self) -> Arc<FakeProcess> {
        let processes = self.processes.lock().unwrap();
        Arc::clone(processes.values().max_by_key(|p| p.handle.started_at).unwrap())
    }
    /// The newest attempt of a task.
    pub fn of(&self, task: &TaskName) -> Arc<FakeProcess> {
        let processes = self.processes.lock().unwrap();
        Arc::clone(processes.values().filter(|p| p.task.name == *task).max_by_key(|p| p.handle.started_at).unwrap())
    }
    pub fn undestroyed(&self) -> usize {
        self.processes.lock().unwrap().values().filter(|p| *p.destroyed.lock().unwrap() == 0).count()
    }
}

impl FakeProcess {
    fn option(&self, name: &str) -> Option<u64> {
        self.task.config.get(name).and_then(serde_json::Value::as_u64)
    }
    pub fn lives(&self) -> bool {
        self.end.borrow().is_none()
    }
    /// It ends now.
    pub fn end(&self, status: ExitStatus) {
        let end = self.ended(status);
        self.end.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(end);
            first
        });
    }
    /// Facts of its end: 1 s of CPU, a peak of 100 bytes, and more with each attempt.
    fn ended(&self, status: ExitStatus) -> AttemptEnd {
        let usage = Usage::from([
            (Field::cpu_usage_ns, 1_000_000_000),
            (Field::memory_peak_bytes, 100 + u64::from(self.handle.attempt)),
            (Field::oom_kills, self.option("oom_kills").unwrap_or(0)),
        ]);
        AttemptEnd {
            status,
            // 1: a retry cannot help.
            recoverable: self.option("not_started") != Some(1),
            started_at: self.handle.started_at,
            finished_at: TokioClock.now(),
            usage,
            problems: Vec::new(),
            lost_output: LostOutput { stdout_bytes: self.option("lost_bytes").unwrap_or(0), stderr_bytes: 0 },
            oom_killed: false,
        }
    }
}

/// A fingerprint that does not change.
pub(super) struct ConstantFingerprint(Option<Fingerprint>);

impl ConstantFingerprint {
    pub fn as_reported(fingerprint: Fingerprint) -> Box<dyn Fingerprints> {
        Box::new(ConstantFingerprint(Some(fingerprint)))
    }
}

impl Fingerprints for ConstantFingerprint {
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>> {
        match self.0.take() {
            report @ Some(_) => Box::pin(std::future::ready(report)),
            // The fingerprint does not change.
            None => Box::pin(std::future::pending()),
        }
    }
}

pub(super) struct FakeDriver(pub Arc<FakeWorld>);

impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn check(&self, task: &Task) -> Result<(), DriverError> {
        const KNOWN: [&str; 14] = [
            "lies",
            "not_started",
            "run_ms",
            "exit_code",
            "signal",
            "oom_kills",
            "lost_bytes",
            "start_error",
            "hopeless",
            "start_ms",
            "deaf",
            "unkillable",
            "kill_ms",
            "stop_ms",
        ];
        match task.config.keys().find(|k| !KNOWN.contains(&k.as_str())) {
            Some(unknown) => Err(DriverError::Config(vec![ConfigProblem {
                field: unknown.clone(),
                message: "is not known".to_owned(),
                advice: None,
                of_name: true,
            }])),
            None => Ok(()),
        }
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn has_processes(&self) -> bool {
        *self.0.has_processes.lock().unwrap()
    }
    fn seen(&self, dirs: &TaskDirs) -> SeenDirs {
        let host = SeenDirs { shared: dirs.shared.clone(), local: dirs.local.clone(), secrets: dirs.secrets.clone() };
        let root = self.0.root.lock().unwrap().clone();
        root.map_or(host, |root| SeenDirs {
            shared: root.join("alloc"),
            local: root.join("local"),
            secrets: root.join("secrets"),
        })
    }
    fn kill_signal(&self) -> &'static str {
        self.0.kill_signal.lock().unwrap().unwrap_or(KILL_SIGNAL)
    }
    fn fingerprint(&self) -> Box<dyn Fingerprints> {
        ConstantFingerprint::as_reported(Fingerprint::of(Health::Healthy, "pretends"))
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        Ok(request.handle("fake", &BootId("boot".to_owned()), None))
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        Box::pin(async move {
            let option = |name: &str| request.task.config.get(name).and_then(serde_json::Value::as_u64);
            if let Some(ms) = option("start_ms") {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            if let Some(times) = option("start_error")
                && u64::from(request.attempt) < times
            {
                let recoverable = option("hopeless").is_none();
                return Err(DriverError::Start { message: "no such program".to_owned(), recoverable });
            }
            let mut handle = handle;
            let mut processes = self.0.processes.lock().unwrap();
            assert!(!processes.contains_key(&handle.run_dir), "started twice: {}", handle.run_dir.display());
            handle.main = Some(ProcessId { pid: 1000 + u32::try_from(processes.len()).unwrap(), start_ticks: 1 });
            handle.started_at = Some(TokioClock.now());
            if let Some((cgroup, state)) = self.0.learns.lock().unwrap().clone() {
                (handle.cgroup, handle.driver_state) = (Some(cgroup), Some(state));
            }
            let process = Arc::new(FakeProcess {
                handle: handle.clone(),
                env: request.env,
                task: request.task.clone(),
                end: watch::Sender::new(None),
                signals: Mutex::default(),
                destroyed: Mutex::default(),
                reader: self.0.reader.lock().unwrap().take(),
            });
            processes.insert(handle.run_dir.clone(), Arc::clone(&process));
            if let Some(ms) = option("run_ms") {
                let process = Arc::clone(&process);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    process.end(match process.option("signal") {
                        None if process.option("not_started").is_some() => ExitStatus::NotStarted("no".to_owned()),
                        Some(signal) => ExitStatus::Signal(u8::try_from(signal).unwrap()),
                        None => ExitStatus::Code(u8::try_from(process.option("exit_code").unwrap_or(0)).unwrap()),
                    });
                });
            }
            Ok(Arc::new(FakeAttempt(process)) as Arc<dyn Attempt>)
        })
    }
    fn recover(&self, handle: TaskHandle, _: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>> {
        Box::pin(async move {
            self.0.recovering.lock().unwrap().push(handle.clone());
            if self.0.out_of_descriptors.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(DriverError::Wanting { message: "no descriptor is left".to_owned() });
            }
            if let Some(message) = self.0.recover_error.lock().unwrap().clone() {
                return Err(DriverError::Failed { message });
            }
            let found = self.0.processes.lock().unwrap().get(&handle.run_dir).cloned();
            let Some(process) = found else { return Ok(RecoveryOutcome::NeverStarted) };
            let hidden = |hidden: &Vec<&str>| hidden.contains(&process.task.name.as_str());
            self.0.hidden.subscribe().wait_for(|names| !hidden(names)).await.unwrap();
            Ok(RecoveryOutcome::Attempt(Arc::new(FakeAttempt(process))))
        })
    }
    fn left(&self, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
        if let Some(message) = self.0.left_error.lock().unwrap().clone() {
            return Err(DriverError::Failed { message });
        }
        let found = self.0.processes.lock().unwrap().get(&place.run_dir).cloned();
        let of = |process: Arc<FakeProcess>| UnrecordedAttempt {
            lives: process.end.borrow().is_none(),
            handle: process.handle.clone(),
        };
        Ok(found.map(of))
    }
    fn alive_below(&self, top: &Path) -> std::io::Result<Vec<PathBuf>> {
        let processes = self.0.processes.lock().unwrap();
        let living = processes.iter().filter(|(run_dir, p)| run_dir.starts_with(top) && p.end.borrow().is_none());
        Ok(living.map(|(run_dir, _)| run_dir.clone()).collect())
    }
}

struct FakeAttempt(Arc<FakeProcess>);

impl Attempt for FakeAttempt {
    fn handle(&self) -> TaskHandle {
        self.0.handle.clone()
    }
    fn reader(&self) -> Option<Arc<TaskReader>> {
        self.0.reader.clone()
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        let mut end = self.0.end.subscribe();
        let lies = self.0.option("lies").map(|code| ExitStatus::Code(u8::try_from(code).unwrap()));
        Box::pin(async move {
            if let Some(status) = lies {
                return self.0.ended(status);
            }
            let end = end.wait_for(Option::is_some).await.unwrap();
            end.clone().unwrap()
        })
    }
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        if !name.starts_with("SIG") {
            let error = DriverError::Failed { message: format!("there is no signal {name}") };
            return Box::pin(std::future::ready(Err(error)));
        }
        let name = name.to_owned();
        Box::pin(async move {
            self.0.signals.lock().unwrap().push(name.clone());
            match self.0.option("stop_ms") {
                _ if self.0.option("deaf").is_some() || name == "SIGHUP" => {}
                Some(ms) => {
                    let process = Arc::clone(&self.0);
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        let code = process.option("exit_code").unwrap_or(0);
                        process.end(ExitStatus::Code(u8::try_from(code).unwrap()));
                    });
                }
                None => self.0.end(ExitStatus::Code(0)),
            }
            Ok(())
        })
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async {
            self.0.signals.lock().unwrap().push("force".to_owned());
            if let Some(ms) = self.0.option("kill_ms") {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            if self.0.option("unkillable").is_none() {
                self.0.end(ExitStatus::Signal(9));
            }
            Ok(())
        })
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async {
            if self.0.end.borrow().is_none() {
                return Err(DriverError::StillRunning);
            }
            *self.0.destroyed.lock().unwrap() += 1;
            Ok(())
        })
    }
}
