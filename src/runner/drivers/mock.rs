//! Runs nothing: does what its `config` says, in Nomad's words, on tokio's clock. For tests of everything above drivers.
//!
//! | field | |
//! |---|---|
//! | `run_for` | how long it runs; absent: until it is killed |
//! | `exit_code`, `exit_signal` | how it ends then; default 0 |
//! | `start_error`, `start_error_recoverable` | it cannot be started, and whether trying again may help |
//! | `start_block_for` | how long starting takes |
//! | `kill_after` | how long it goes on after a kill signal; default: ends at once, killed by it |
//! | `ignore_signals` | only force ends it |

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::fields::{Fields, error};
use super::{Attempt, AttemptEnd, BoxFuture, Driver, DriverContext, DriverError, Recovered, StartRequest};
use crate::collectors::TaskReader;
use crate::host::clock::Clock;
use crate::model::id::BootId;
use crate::model::job::Task;
use crate::model::signal;
use crate::model::task::{ExitStatus, TaskHandle};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

pub struct Mock {
    clock: Arc<dyn Clock>,
    boot_id: BootId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    run_for: Option<Duration>,
    exit: ExitStatus,
    start_error: Option<String>,
    start_error_recoverable: bool,
    start_block_for: Duration,
    kill_after: Duration,
    ignore_signals: bool,
}

impl Config {
    fn of(task: &Task) -> Result<Config, DriverError> {
        let mut fields = Fields::new(&task.config);
        let exit_code = fields.number("exit_code")?;
        let exit_signal = fields.number("exit_signal")?;
        let small = |name, n: u64| u8::try_from(n).map_err(|_| error(name, format!("must be 0 to 255, not {n}")));
        let exit = match (exit_code, exit_signal) {
            (Some(_), Some(_)) => return Err(error("exit_signal", "excludes `exit_code`".to_owned())),
            (None, Some(number)) => ExitStatus::Signal(small("exit_signal", number)?),
            (code, None) => ExitStatus::Code(small("exit_code", code.unwrap_or(0))?),
        };
        let config = Config {
            run_for: fields.duration("run_for")?,
            exit,
            start_error: fields.text("start_error")?,
            start_error_recoverable: fields.flag("start_error_recoverable")?,
            start_block_for: fields.duration("start_block_for")?.unwrap_or_default(),
            kill_after: fields.duration("kill_after")?.unwrap_or_default(),
            ignore_signals: fields.flag("ignore_signals")?,
        };
        fields.done()?;
        Ok(config)
    }
}

impl Mock {
    pub const NAME: &'static str = "mock";

    pub fn new(context: &DriverContext) -> Mock {
        Mock { clock: Arc::clone(&context.clock), boot_id: context.boot_id.clone() }
    }
}

impl Driver for Mock {
    fn name(&self) -> &'static str {
        Self::NAME
    }
    fn check(&self, task: &Task) -> Result<(), DriverError> {
        Config::of(task).map(drop)
    }
    fn has_processes(&self) -> bool {
        false
    }
    fn health(&self) -> (bool, String) {
        (true, "runs nothing: for tests".to_owned())
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        Config::of(&request.task)?;
        Ok(request.handle(Self::NAME, &self.boot_id, None))
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        Box::pin(async move {
            let config = Config::of(&request.task)?;
            tokio::time::sleep(config.start_block_for).await;
            if let Some(message) = config.start_error {
                return Err(DriverError::Start { message, recoverable: config.start_error_recoverable });
            }
            let started_at = self.clock.now();
            let ends =
                config.run_for.map(|run_for| Ending { at: Instant::now() + run_for, status: config.exit.clone() });
            let attempt = MockAttempt {
                handle: TaskHandle { started_at: Some(started_at), ..handle },
                started_at,
                started: Instant::now(),
                config,
                ending: watch::channel(ends).0,
                signals: Mutex::default(),
            };
            Ok(Arc::new(attempt) as Arc<dyn Attempt>)
        })
    }
    /// What it pretended to run went with the agent that pretended.
    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Result<Recovered, DriverError>> {
        Box::pin(async move {
            let Some(started_at) = handle.started_at else { return Ok(Recovered::NeverStarted) };
            let ends = Ending { at: Instant::now(), status: ExitStatus::Unknown("it went with its agent".to_owned()) };
            let config = Config {
                run_for: None,
                exit: ExitStatus::Code(0),
                start_error: None,
                start_error_recoverable: false,
                start_block_for: Duration::ZERO,
                kill_after: Duration::ZERO,
                ignore_signals: false,
            };
            let attempt = MockAttempt {
                handle,
                started_at,
                started: Instant::now(),
                config,
                ending: watch::channel(Some(ends)).0,
                signals: Mutex::default(),
            };
            Ok(Recovered::Attempt(Arc::new(attempt) as Arc<dyn Attempt>))
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Ending {
    at: Instant,
    status: ExitStatus,
}

struct MockAttempt {
    handle: TaskHandle,
    started_at: Timestamp,
    started: Instant,
    config: Config,
    /// When and how it will have ended; `None`: not decided.
    ending: watch::Sender<Option<Ending>>,
    signals: Mutex<Vec<u8>>,
}

impl MockAttempt {
    /// The earliest end holds.
    fn end_by(&self, at: Instant, status: ExitStatus) {
        self.ending.send_if_modified(|ending| {
            let sooner = ending.as_ref().is_none_or(|e| at < e.at);
            if sooner {
                *ending = Some(Ending { at, status });
            }
            sooner
        });
    }
    fn is_over(&self) -> bool {
        self.ending.borrow().as_ref().is_some_and(|e| e.at <= Instant::now())
    }
    fn send(&self, name: &str) -> Result<(), DriverError> {
        let failed = |message: String| DriverError::Failed { message };
        let number = signal::number(name).ok_or_else(|| failed(format!("there is no signal {name:?}")))?;
        if self.is_over() {
            return Err(failed("its main process is not running".to_owned()));
        }
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).push(number);
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
        None
    }
    fn wait(&self) -> BoxFuture<'_, AttemptEnd> {
        Box::pin(async move {
            let mut ending = self.ending.subscribe();
            let Ending { at, status } = loop {
                let now = ending.borrow_and_update().clone();
                match now {
                    Some(end) => tokio::select! {
                        biased;
                        () = tokio::time::sleep_until(end.at) => break end,
                        _ = ending.changed() => {}
                    },
                    // The sender is ours: it outlives this wait.
                    None => drop(ending.changed().await),
                }
            };
            let ran = Nanos::from_duration(at.saturating_duration_since(self.started));
            AttemptEnd {
                status,
                recoverable: true,
                started_at: Some(self.started_at),
                finished_at: self.started_at.plus(ran),
                usage: Usage::default(),
                problems: Vec::new(),
            }
        })
    }
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(std::future::ready(self.send(name)))
    }
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        self.end_by(Instant::now(), ExitStatus::Signal(9));
        Box::pin(std::future::ready(Ok(())))
    }
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(std::future::ready(if self.is_over() { Ok(()) } else { Err(DriverError::StillRunning) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock::SystemClock;
    use crate::runner::drivers::testing;

    fn mock() -> Mock {
        Mock { clock: Arc::new(SystemClock), boot_id: BootId("b".into()) }
    }
    async fn start(config: &str) -> Result<Arc<dyn Attempt>, DriverError> {
        let request = testing::request(testing::task("mock", config));
        let driver = mock();
        let handle = driver.prepare(&request)?;
        driver.start(request, handle).await
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_as_long_as_it_is_told_and_ends_as_it_is_told() {
        let before = Instant::now();
        let attempt = start(r#"{"run_for": "90s", "exit_code": 3, "start_block_for": "10s"}"#).await.unwrap();
        assert_eq!(before.elapsed(), Duration::from_secs(10));
        let end = attempt.wait().await;
        assert_eq!(before.elapsed(), Duration::from_secs(100));
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
    async fn a_start_error_says_whether_trying_again_may_help() {
        for recoverable in [true, false] {
            let config = format!(r#"{{"start_error": "no", "start_error_recoverable": {recoverable}}}"#);
            let Err(DriverError::Start { message, recoverable: said }) = start(&config).await else {
                panic!("it started");
            };
            assert_eq!((message.as_str(), said), ("no", recoverable));
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
}
