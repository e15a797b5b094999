//! Runs nothing: follows its `config`, with Nomad's names, on tokio's clock. For tests of everything above drivers, and
//! to try out how allostat handles a driver that misbehaves.
//!
//! A pretended task outlives the agent as a note in the run directory: the next agent recovers it with the rest of its
//! run time. Signals are not in the note.

mod config;
#[macro_use]
mod faults;
mod script;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub use self::config::Config;
use self::faults::endless_text;
pub use self::faults::{Call, Fault};
pub use self::script::{FingerprintStep, Script};
use super::{
    Attempt, AttemptEnd, BoxFuture, Driver, DriverContext, DriverEntry, DriverError, DriverSetting, EventSink,
    Fingerprints, RecoveryOutcome, StartRequest, UnrecordedAttempt, call,
};
use crate::collectors::{SamplingContext, TaskReader};
use crate::host::clock::Clock;
use crate::model::id::{BootId, CgroupPath};
use crate::model::job::{JobKind, Task};
use crate::model::signal;
use crate::model::task::{ExitStatus, LostOutput, TaskHandle};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};
use crate::runner::persistence::datadir::AttemptDirs;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;

pub static ENTRY: DriverEntry = DriverEntry {
    name: MockDriver::NAME,
    settings: &[DriverSetting {
        key: FINGERPRINT,
        env: "ALLOSTAT_MOCK_FINGERPRINT",
        about: "Health that mock reports, each state for a time: \"undetected 3s, healthy 1m, unhealthy\". Default: \
                healthy.",
        check: |text| Script::parse(text).map(drop),
    }],
    check: |task| Config::of(task).map(drop),
    build: |context| Arc::new(MockDriver::new(context)),
};

const FINGERPRINT: &str = "fingerprint";
const NOTE: &str = "mock.json";
/// Interval between samples.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// A driver that panics in `wait` does so after this time.
const DIES_AFTER: Duration = Duration::from_secs(1);

pub struct MockDriver {
    clock: Arc<dyn Clock>,
    boot_id: BootId,
    sampling: Arc<SamplingContext>,
    script: Script,
    died: Died,
}

/// The calls that have panicked once, by run directory.
type Died = Arc<Mutex<BTreeSet<(PathBuf, Call)>>>;

/// Contents of the run directory of a running task.
#[derive(Serialize, Deserialize)]
struct MockNote {
    started_at: Timestamp,
    config: Map<String, Value>,
}

impl MockNote {
    fn read(run_dir: &Path) -> io::Result<Option<MockNote>> {
        match std::fs::read(run_dir.join(NOTE)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    fn write(&self, run_dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(run_dir)?;
        std::fs::write(run_dir.join(NOTE), serde_json::to_vec(self)?)
    }
}

impl MockDriver {
    pub const NAME: &'static str = "mock";

    pub fn new(context: &DriverContext) -> MockDriver {
        let script = context.settings.get(&(Self::NAME, FINGERPRINT)).and_then(|text| Script::parse(text).ok());
        MockDriver {
            clock: Arc::clone(&context.clock),
            boot_id: context.boot_id.clone(),
            sampling: Arc::clone(&context.sampling),
            script: script.unwrap_or_default(),
            died: Arc::default(),
        }
    }

    /// Its section of the documentation.
    pub fn page() -> String {
        let table = |head: &str, rows: &mut dyn Iterator<Item = (&str, &str)>| {
            let marked = |names: &str| names.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let rows: String = rows.map(|(names, about)| format!("| {} | {about} |\n", marked(names))).collect();
            format!("| {head} | |\n|---|---|\n{rows}")
        };
        let fields = table("field of `config`", &mut Config::FIELDS.iter().copied());
        let calls = table("call", &mut Call::ALL.iter().map(|c| (c.word(), c.about())));
        let sayings = table("state", &mut FingerprintStep::ALL.iter().map(|s| (s.word(), s.about())));
        let faults = table("fault", &mut Fault::ALL.iter().map(|f| (f.word(), f.about())));
        format!(
            "## `mock`\n\n`mock` runs no process. It simulates a task as its `config` specifies, to test what an agent \
             does then.\nWith `faults = {{ start = \"hang\", kill = \"lie\" }}` the driver misbehaves in these calls. \
             The events of the task\nhave the result.\n\n{fields}\n{calls}\n{faults}\n\
             A setting of the agent makes the driver report states of health, each for a time:\n\
             `mock {{ fingerprint = \"undetected 3s, healthy 1m, unhealthy\" }}`.\n\n{}",
            sayings.trim_end()
        )
    }

    fn attempt(
        &self,
        config: Config,
        handle: TaskHandle,
        started_at: Timestamp,
        ending: Option<MockEnd>,
    ) -> MockAttempt {
        let ending = Arc::new(watch::Sender::new(ending));
        let measured = config.cpu_percent.is_some() || !config.memory_samples.is_empty();
        let reader = measured.then(|| Arc::new(TaskReader::reported(&self.sampling)));
        let reporter = reader.as_ref().map(|reader| {
            let script = (config.clone(), Arc::clone(&self.clock), started_at);
            let reporting = report_usage(Arc::clone(reader), script, ending.subscribe());
            Reporter(tokio::spawn(call::in_background(Call::Stats.word(), handle.clone(), reporting)).abort_handle())
        });
        MockAttempt {
            clock: Arc::clone(&self.clock),
            died: Arc::clone(&self.died),
            handle: TaskHandle { started_at: Some(started_at), ..handle },
            started_at,
            config,
            ending,
            end_reported: AtomicBool::new(false),
            reader,
            _reporter: reporter,
        }
    }

    fn ends_at(&self, config: &Config, started_at: Timestamp) -> Option<MockEnd> {
        let run_for = config.run_for?;
        let finished_at = started_at.plus(Nanos::from_duration(run_for));
        let left = finished_at.since(self.clock.now()).as_duration();
        Some(MockEnd { at: Instant::now() + left, finished_at, status: config.exit.clone() })
    }

    fn found(&self, handle: TaskHandle) -> Result<RecoveryOutcome, DriverError> {
        let note = MockNote::read(&handle.run_dir).map_err(|e| failed(format!("its note cannot be read: {e}")))?;
        let Some(MockNote { started_at, config }) = note else {
            let Some(started_at) = handle.started_at else { return Ok(RecoveryOutcome::NeverStarted) };
            let now = self.clock.now();
            let status = ExitStatus::Unknown("it ended with its agent".to_owned());
            let ending = MockEnd { at: Instant::now(), finished_at: now, status };
            let config = Config::of(&pretended(Map::new()))?;
            return Ok(RecoveryOutcome::Attempt(Arc::new(self.attempt(config, handle, started_at, Some(ending)))));
        };
        let config = Config::of(&pretended(config))?;
        let handle = match config.faults.of(Call::Recover) {
            Some(Fault::Lie) => return Ok(RecoveryOutcome::NeverStarted),
            Some(Fault::Garbage) => foreign_handle(handle),
            Some(_) | None => handle,
        };
        let ending = self.ends_at(&config, started_at);
        Ok(RecoveryOutcome::Attempt(Arc::new(self.attempt(config, handle, started_at, ending))))
    }

    async fn start_attempt(&self, request: StartRequest, handle: TaskHandle) -> Result<Arc<dyn Attempt>, DriverError> {
        let config = Config::of(&request.task)?;
        let fault = config.faults.of(Call::Start);
        config.events.iter().for_each(|text| request.events.report(text));
        tokio::time::sleep(config.start_block_for).await;
        if let Some(message) = config.start_error {
            return Err(DriverError::Start { message, recoverable: config.start_error_recoverable });
        }
        match fault {
            Some(Fault::Hang) => std::future::pending().ends_with(Ends::Deadline).await,
            Some(Fault::Refuse) => return Err(failed("configured to refuse".to_owned())),
            Some(_) | None => {}
        }
        let started_at = self.clock.now();
        // A hundred bytes into the page cache.
        let note = MockNote { started_at, config: request.task.config }.write(&handle.run_dir);
        note.map_err(|e| failed(format!("its note cannot be written: {e}")))?;
        die(fault, Call::Start, &handle.run_dir, &self.died);
        let (handle, ending) = match fault {
            Some(Fault::Lie) => {
                let status = ExitStatus::NotStarted("its driver reported a start without starting it".to_owned());
                (handle, Some(MockEnd { at: Instant::now(), finished_at: started_at, status }))
            }
            Some(Fault::Garbage) => (foreign_handle(handle), None),
            Some(_) | None => (handle, self.ends_at(&config, started_at)),
        };
        Ok(Arc::new(self.attempt(config, handle, started_at, ending)))
    }
}

fn failed(message: String) -> DriverError {
    DriverError::Failed { message }
}

fn pretended(config: Map<String, Value>) -> Task {
    Task::new("pretended", MockDriver::NAME, config, JobKind::Batch)
}

/// The handle of no task: a missing directory, and an attempt number that no attempt has. Never an existing one: a
/// caller that accepts it may remove it.
fn foreign_handle(handle: TaskHandle) -> TaskHandle {
    let nowhere = handle.run_dir.join("of/no-task");
    TaskHandle { attempt: u32::MAX, cgroup: Some(CgroupPath::from("/of/no-task")), run_dir: nowhere, ..handle }
}

#[allow(clippy::panic)] // The configured fault.
fn die(fault: Option<Fault>, call: Call, run_dir: &Path, died: &Died) {
    let dies = match fault {
        Some(Fault::Die) => true,
        Some(Fault::DieOnce) => lock(died).insert((run_dir.to_owned(), call)),
        Some(Fault::Hang | Fault::Refuse | Fault::Lie | Fault::Garbage | Fault::Repeat) | None => false,
    };
    assert!(!dies, "the mock driver is configured to panic in `{}`", call.word());
}

impl Driver for MockDriver {
    fn name(&self) -> &'static str {
        Self::NAME
    }
    fn check(&self, task: &Task) -> Result<(), DriverError> {
        Config::of(task).map(drop)
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn has_processes(&self) -> bool {
        false
    }
    fn fingerprint(&self) -> Box<dyn Fingerprints> {
        self.script.resume()
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        Config::of(&request.task)?;
        Ok(request.handle(Self::NAME, &self.boot_id, None))
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        Box::pin(self.start_attempt(request, handle))
    }
    fn recover(&self, handle: TaskHandle, events: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>> {
        Box::pin(async move {
            let note = MockNote::read(&handle.run_dir).ok().flatten();
            let fault = match note {
                Some(note) => Config::of(&pretended(note.config))?.faults.of(Call::Recover),
                None => None,
            };
            match fault {
                Some(Fault::Hang) => std::future::pending().ends_with(Ends::Deadline).await,
                Some(Fault::Refuse) => return Err(failed("configured to refuse".to_owned())),
                Some(_) | None => die(fault, Call::Recover, &handle.run_dir, &self.died),
            }
            let found = self.found(handle);
            if found.is_ok() {
                events.report("note found after a restart");
            }
            found
        })
    }
    fn left(&self, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
        let note = MockNote::read(&place.run_dir).map_err(|e| failed(format!("its note cannot be read: {e}")))?;
        let Some(MockNote { started_at, config }) = note else { return Ok(None) };
        let run_for = Config::of(&pretended(config))?.run_for;
        let lives = run_for.is_none_or(|t| started_at.plus(Nanos::from_duration(t)) > self.clock.now());
        let handle = TaskHandle {
            driver: Self::NAME.to_owned(),
            attempt: place.attempt,
            boot_id: self.boot_id.clone(),
            run_dir: place.run_dir.clone(),
            cgroup: None,
            supervisor: None,
            main: None,
            started_at: Some(started_at),
            driver_state: None,
            network: None,
        };
        Ok(Some(UnrecordedAttempt { handle, lives }))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct MockEnd {
    at: Instant,
    finished_at: Timestamp,
    status: ExitStatus,
}

struct MockAttempt {
    clock: Arc<dyn Clock>,
    died: Died,
    handle: TaskHandle,
    started_at: Timestamp,
    config: Config,
    /// When and how it ends. `None`: not decided.
    ending: Arc<watch::Sender<Option<MockEnd>>>,
    /// Its end was reported.
    end_reported: AtomicBool,
    reader: Option<Arc<TaskReader>>,
    _reporter: Option<Reporter>,
}

/// Aborted with its attempt.
struct Reporter(AbortHandle);

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reports the pretended usage, until the end.
async fn report_usage(
    reader: Arc<TaskReader>,
    (config, clock, started_at): (Config, Arc<dyn Clock>, Timestamp),
    mut ending: watch::Receiver<Option<MockEnd>>,
) {
    let fault = config.faults.of(Call::Stats);
    let last = config.memory_samples.last().copied();
    for n in 0_u64.. {
        let now = clock.now();
        let ran = now.since(started_at).0;
        let sample = usize::try_from(n).ok().and_then(|n| config.memory_samples.get(n).copied());
        let mut usage = Usage::default();
        usage.set(Field::memory_usage_bytes, sample.or(last));
        usage.set(Field::cpu_usage_ns, config.cpu_percent.map(|percent| ran.saturating_mul(percent) / 100));
        match fault {
            Some(Fault::Refuse) => return,
            Some(Fault::Hang) if n > 0 => return,
            Some(Fault::Die | Fault::DieOnce) if n > 0 => {
                die(Some(Fault::Die), Call::Stats, Path::new(""), &Died::default())
            }
            Some(Fault::Lie) => usage.set(Field::cpu_usage_ns, usage.cpu_usage_ns().map(|_| 1_000_000_000 / (n + 1))),
            Some(Fault::Garbage) => {
                let fields =
                    [Field::cpu_usage_ns, Field::memory_usage_bytes, Field::memory_peak_bytes, Field::oom_kills];
                fields.into_iter().for_each(|field| usage.set(field, Some(u64::MAX)));
            }
            Some(Fault::Repeat) => reader.report(usage.clone(), now),
            Some(Fault::Hang | Fault::Die | Fault::DieOnce) | None => {}
        }
        reader.report(usage, now);
        let over = async {
            loop {
                let end = ending.borrow_and_update().as_ref().map(|e| e.at);
                match end {
                    Some(at) => {
                        tokio::select! { () = tokio::time::sleep_until(at) => return, _ = ending.changed() => {} }
                    }
                    None => drop(ending.changed().ends_with(Ends::Subject).await),
                }
            }
        };
        if tokio::time::timeout(REPORT_INTERVAL, over).await.is_ok() {
            return;
        }
    }
}

impl MockAttempt {
    /// The earliest end applies.
    fn end_by(&self, at: Instant, status: ExitStatus) {
        let in_future = Nanos::from_duration(at.saturating_duration_since(Instant::now()));
        let finished_at = self.clock.now().plus(in_future);
        self.ending.send_if_modified(|ending| {
            let sooner = ending.as_ref().is_none_or(|e| at < e.at);
            if sooner {
                *ending = Some(MockEnd { at, finished_at, status });
            }
            sooner
        });
    }
    fn is_over(&self) -> bool {
        self.ending.borrow().as_ref().is_some_and(|e| e.at <= Instant::now())
    }
    fn fault(&self, call: Call) -> Option<Fault> {
        self.config.faults.of(call)
    }

    /// The configured result, without the action. `None`: do the action.
    async fn instead(&self, call: Call) -> Option<Result<(), DriverError>> {
        match self.fault(call) {
            Some(Fault::Hang) => std::future::pending().ends_with(Ends::Deadline).await,
            Some(Fault::Refuse) => Some(Err(failed("configured to refuse".to_owned()))),
            Some(Fault::Lie) => Some(Ok(())),
            Some(Fault::Garbage) => Some(Err(failed(endless_text()))),
            fault @ (Some(Fault::Die | Fault::DieOnce | Fault::Repeat) | None) => {
                die(fault, call, &self.handle.run_dir, &self.died);
                None
            }
        }
    }

    async fn real_end(&self) -> MockEnd {
        let mut ending = self.ending.subscribe();
        loop {
            let now = ending.borrow_and_update().clone();
            match now {
                Some(end) => tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(end.at) => return end,
                    _ = ending.changed() => {}
                },
                // The sender is in the attempt and outlives this wait.
                None => drop(ending.changed().ends_with(Ends::Caller).await),
            }
        }
    }

    async fn wait_for_end(&self) -> AttemptEnd {
        let at_once = |status| MockEnd { at: Instant::now(), finished_at: self.clock.now(), status };
        let fault = self.fault(Call::Wait);
        let end = match fault {
            Some(Fault::Hang) => std::future::pending().ends_with(Ends::Caller).await,
            Some(Fault::Refuse) => at_once(ExitStatus::Unknown("its driver was configured to refuse".to_owned())),
            Some(Fault::Lie) => at_once(ExitStatus::Code(0)),
            Some(Fault::Repeat) if self.end_reported.load(Ordering::SeqCst) => at_once(ExitStatus::Code(7)),
            Some(Fault::Die | Fault::DieOnce) => {
                tokio::select! {
                    biased;
                    end = self.real_end() => end,
                    () = tokio::time::sleep(DIES_AFTER) => {
                        die(fault, Call::Wait, &self.handle.run_dir, &self.died);
                        self.real_end().await
                    }
                }
            }
            Some(Fault::Garbage | Fault::Repeat) | None => self.real_end().await,
        };
        let mut end = AttemptEnd {
            status: end.status,
            recoverable: true,
            started_at: Some(self.started_at),
            finished_at: end.finished_at,
            usage: self.reader.as_ref().and_then(|r| r.latest()).map(|r| Usage::clone(&r.usage)).unwrap_or_default(),
            problems: Vec::new(),
            lost_output: LostOutput::default(),
            oom_killed: false,
        };
        self.end_reported.store(true, Ordering::SeqCst);
        if fault == Some(Fault::Garbage) {
            end.status = ExitStatus::Unknown(endless_text());
            (end.started_at, end.finished_at) = (Some(Timestamp(u64::MAX)), Timestamp(u64::MAX));
            end.usage = Usage::from([(Field::cpu_usage_ns, u64::MAX), (Field::oom_kills, u64::MAX)]);
            end.problems = vec![endless_text(); 1_000];
        }
        end
    }

    fn send(&self, name: &str) -> Result<(), DriverError> {
        let number = signal::number(name).ok_or_else(|| failed(format!("there is no signal {name:?}")))?;
        if self.is_over() {
            return Err(failed("its main process is not running".to_owned()));
        }
        let kills = matches!(signal::name(number), Some("SIGINT" | "SIGTERM" | "SIGQUIT" | "SIGKILL"));
        if kills && !(self.config.ignore_signals && number != 9) {
            self.end_by(Instant::now() + self.config.kill_after, ExitStatus::Signal(number));
        }
        Ok(())
    }
}

impl Attempt for MockAttempt {
    fn handle(&self) -> TaskHandle {
        self.handle.clone()
    }
    fn reader(&self) -> Option<Arc<TaskReader>> {
        self.reader.clone()
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        Box::pin(self.wait_for_end())
    }
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        let name = name.to_owned();
        Box::pin(async move {
            if let Some(answer) = self.instead(Call::Signal).await {
                return answer;
            }
            let sent = self.send(&name);
            if self.fault(Call::Signal) == Some(Fault::Repeat) { self.send(&name) } else { sent }
        })
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move {
            if let Some(answer) = self.instead(Call::Kill).await {
                return answer;
            }
            self.end_by(Instant::now(), ExitStatus::Signal(9));
            Ok(())
        })
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move {
            if let Some(answer) = self.instead(Call::Destroy).await {
                return answer;
            }
            if !self.is_over() {
                return Err(DriverError::StillRunning);
            }
            // The note alone: the directory may belong to another task.
            match std::fs::remove_file(self.handle.run_dir.join(NOTE)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    Err(failed(format!("its note cannot be removed: {e}")))
                }
                _ => {
                    let _ = std::fs::remove_dir(&self.handle.run_dir);
                    Ok(())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::FdBudget;
    use crate::host::clock::SystemClock;
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;
    use crate::runner::drivers::testing;

    fn mock() -> MockDriver {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        MockDriver {
            clock: Arc::new(SystemClock),
            boot_id: BootId("b".into()),
            sampling: SamplingContext::new(roots, layout, FdBudget::from_limit()),
            script: Script::default(),
            died: Arc::default(),
        }
    }
    async fn start_in(dir: &Path, config: &str) -> Result<Arc<dyn Attempt>, DriverError> {
        let request = StartRequest::alone(testing::task("mock", config), dir);
        let driver = mock();
        let handle = driver.prepare(&request)?;
        driver.start(request, handle).await
    }
    /// Its directory is removed at once: only recovery needs it.
    async fn start(config: &str) -> Result<Arc<dyn Attempt>, DriverError> {
        let dir = tempfile::tempdir().unwrap();
        start_in(dir.path(), config).await
    }

    #[tokio::test(start_paused = true)]
    async fn task_runs_and_ends_as_configured() {
        let (before, really) = (Instant::now(), std::time::Instant::now());
        let attempt = start(r#"{"run_for": "90s", "exit_code": 3, "start_block_for": "10s"}"#).await.unwrap();
        assert_eq!(before.elapsed(), Duration::from_secs(10));
        let end = attempt.wait().await;
        // Timers have millisecond resolution, and real time passes meanwhile.
        assert!(
            before.elapsed().abs_diff(Duration::from_secs(100)) <= Duration::from_millis(2) + really.elapsed(),
            "{:?}",
            before.elapsed()
        );
        assert_eq!(end.status, ExitStatus::Code(3));
        assert_eq!(end.finished_at.since(end.started_at.unwrap()), Nanos::from_secs(90));
        assert_eq!(attempt.wait().await.status, ExitStatus::Code(3), "asked again, it says the same");
        assert!(attempt.signal("SIGINT").await.is_err());
        attempt.destroy().await.unwrap();
        attempt.destroy().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_it_after_its_grace_and_force_ends_it_at_once() {
        let attempt = start(r#"{"kill_after": "5s"}"#).await.unwrap();
        let before = Instant::now();
        attempt.signal("SIGHUP").await.unwrap();
        attempt.signal("SIGTERM").await.unwrap();
        assert!(attempt.destroy().await.is_err(), "it still runs");
        let mut waiting = waiting_for(&attempt);
        assert_eq!((&mut waiting).await.unwrap().status, ExitStatus::Signal(15));
        assert_eq!(before.elapsed(), Duration::from_secs(5));

        let stubborn = start(r#"{"ignore_signals": true}"#).await.unwrap();
        let waiting = waiting_for(&stubborn);
        stubborn.signal("SIGTERM").await.unwrap();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished());
        stubborn.kill().await.unwrap();
        assert_eq!(waiting.await.unwrap().status, ExitStatus::Signal(9));
    }

    fn waiting_for(attempt: &Arc<dyn Attempt>) -> tokio::task::JoinHandle<AttemptEnd> {
        let attempt = Arc::clone(attempt);
        tokio::spawn(async move { attempt.wait().await })
    }

    #[tokio::test(start_paused = true)]
    async fn mock_start_error_reports_whether_it_is_recoverable() {
        for recoverable in [true, false] {
            let config = format!(r#"{{"start_error": "no", "start_error_recoverable": {recoverable}}}"#);
            let Err(DriverError::Start { message, recoverable: reported }) = start(&config).await else {
                panic!("it started");
            };
            assert_eq!((message.as_str(), reported), ("no", recoverable));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let check = |config: &str| mock().check(&testing::task("mock", config)).map_err(|e| e.to_string());
        assert!(check(r#"{"runfor": "1s"}"#).unwrap_err().contains("did you mean `run_for`?"));
        assert!(check(r#"{"exit_code": 1, "exit_signal": 9}"#).unwrap_err().contains("excludes"));
        assert!(check(r#"{"exit_code": 256}"#).is_err());
        assert!(check(r#"{"run_for": "soon"}"#).is_err());
        check("{}").unwrap();
    }

    #[test]
    fn an_unknown_call_or_fault_is_refused_at_its_place_with_the_nearest() {
        let check = |config: &str| mock().check(&testing::task("mock", config)).map_err(|e| e.to_string());
        let error = check(r#"{"faults": {"strat": "hang"}}"#).unwrap_err();
        assert_eq!(error, "faults.strat: there is no call \"strat\"; did you mean `start`?");
        let error = check(r#"{"faults": {"start": "hnag"}}"#).unwrap_err();
        assert_eq!(error, "faults.start: there is no fault \"hnag\"; did you mean `hang`?");
        assert!(check(r#"{"faults": {"start": 1}}"#).unwrap_err().starts_with("faults.start: must be a string"));
        assert!(check(r#"{"faults": "hang"}"#).is_err());
        assert!(check(r#"{"memory_samples": [1, "2"]}"#).unwrap_err().starts_with("memory_samples[1]"));
        for call in Call::ALL {
            for fault in Fault::ALL {
                check(&format!(r#"{{"faults": {{"{}": "{}"}}}}"#, call.word(), fault.word())).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn mock_attempt_is_recovered_with_its_remaining_time() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = start_in(dir.path(), r#"{"run_for": "300ms", "exit_code": 3}"#).await.unwrap();
        let handle = attempt.handle();
        drop(attempt);
        let Ok(RecoveryOutcome::Attempt(found)) = mock().recover(handle.clone(), EventSink::default()).await else {
            panic!("not found")
        };
        assert!(matches!(found.destroy().await, Err(DriverError::StillRunning)));
        let end = found.wait().await;
        assert_eq!(end.status, ExitStatus::Code(3));
        assert_eq!(end.finished_at.since(end.started_at.unwrap()), Nanos(300_000_000), "not from when it was found");
        found.destroy().await.unwrap();
        let Ok(RecoveryOutcome::Attempt(ended)) = mock().recover(handle.clone(), EventSink::default()).await else {
            panic!("it was started")
        };
        assert!(matches!(ended.wait().await.status, ExitStatus::Unknown(_)));
        let never = mock().recover(TaskHandle { started_at: None, ..handle }, EventSink::default()).await;
        assert!(matches!(never, Ok(RecoveryOutcome::NeverStarted)));
    }

    #[tokio::test]
    async fn its_readings_follow_the_script() {
        let attempt = start(r#"{"memory_samples": [5, 7], "cpu_percent": 50}"#).await.unwrap();
        let reader = attempt.reader().unwrap();
        let reported = |bytes| {
            let reader = Arc::clone(&reader);
            async move {
                while reader.latest().is_none_or(|r| r.usage.memory_usage_bytes() != Some(bytes)) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                reader.latest().unwrap().usage.cpu_usage_ns().unwrap()
            }
        };
        let first = reported(5).await;
        let second = tokio::time::timeout(Duration::from_secs(300), reported(7)).await.unwrap();
        assert!(second - first >= 500_000_000, "half a core for a second or more: {first} {second}");
        assert!(start("{}").await.unwrap().reader().is_none(), "absent is not 0");
    }
}
