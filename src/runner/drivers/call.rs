//! Calls of the runner to drivers. Each call returns a result, is cancelled when its future is dropped, and has a
//! deadline. A panic ends only that call. Implausible values are refused.
//!
//! | call | deadline | when it is exceeded |
//! |---|---|---|
//! | start | `Config::start_budget`, kept by the task's owner | abandoned; a late start is killed |
//! | recover | [`RECOVER`]; retried if the driver panics | lost: failed, and not started a second time |
//! | recover, without descriptors, memory or processes | as long as that lasts | retried: the state stays unknown |
//! | wait | as long as it runs; during a kill, the kill budget | abandoned |
//! | signal | [`SIGNAL`] | the kill timeout continues; on an error: SIGKILL at once |
//! | kill | [`KILL`], repeated within `Config::kill_budget` | abandoned |
//! | exec | the timeout of its program and [`EXEC_MORE`] | the health check fails |
//! | attach | [`ATTACH`], until its command runs | the command does not run |
//! | destroy, leave_network | [`DESTROY`] | logged; the rest is removed at the next start |
//! | fingerprint: the first one | [`REPORT`] | unhealthy; retried |
//! | fingerprint: each later one | as long as nothing changes | none: the last one holds |
//!
//! Samples are no call: the driver reports them to a [`TaskReader`], and no caller waits for them.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{
    Attempt, AttemptEnd, BoxFuture, ConfigProblem, Driver, DriverError, EventSink, ExecEnd, ExecRequest, ExecSession,
    Fingerprint, Fingerprints, RecoveryOutcome, StartRequest,
};
use crate::collectors::TaskReader;
use crate::host::clock::Clock;
use crate::model::id::AllocId;
use crate::model::task::{ExitStatus, TaskHandle};
use crate::model::units::{Nanos, Timestamp};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::panics::{self, Panic};

/// Longer than drivers retry by themselves.
pub const RECOVER: Duration = Duration::from_secs(60);
pub const SIGNAL: Duration = Duration::from_secs(5);
pub const KILL: Duration = Duration::from_secs(5);
/// In addition to the timeout of the program.
pub const EXEC_MORE: Duration = Duration::from_secs(5);
pub const ATTACH: Duration = Duration::from_secs(30);
pub const DESTROY: Duration = Duration::from_secs(10);
pub const REPORT: Duration = Duration::from_secs(10);
/// How many times a driver may panic while it recovers one attempt.
const DEATHS: u8 = 5;
/// Pause before a retry; doubled each time.
const DEATH_PAUSE: Duration = Duration::from_millis(100);

/// Pause before a retry by a driver without resources for it; doubled each time, up to the second value.
const RESOURCE_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Texts of a driver are cut after this number of characters.
const LONGEST_TEXT: usize = 4096;
/// A driver's state in a handle is written with each change of its task.
const LONGEST_STATE: usize = 16 << 10;
/// Maximum number of attributes of a driver, and maximum length of their names in bytes.
const ATTRIBUTES: (usize, usize) = (64, 128);
/// Clocks are set back, so an end may seem to be in the future, but not beyond this.
const CLOCK_SLACK: Nanos = Nanos(24 * 3600 * 1_000_000_000);

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DriverCallError {
    #[error(transparent)]
    Refused(#[from] DriverError),
    #[error("no response from its driver within {0:?}")]
    Late(Duration),
    #[error("its driver panicked: {0}")]
    Died(String),
    #[error("invalid response of its driver: {0}")]
    Nonsense(&'static str),
}

/// An attempt, as the runner uses it.
#[derive(Clone)]
pub struct RunningAttempt(Arc<dyn Attempt>);

/// Starts an attempt. It has no deadline of its own: dropping it cancels it.
///
/// Errors: refused, then nothing runs. After any other error the task may run, and [`recover`] can find out.
pub async fn start(
    driver: &dyn Driver,
    request: StartRequest,
    handle: TaskHandle,
) -> Result<RunningAttempt, DriverCallError> {
    let requested = handle.clone();
    let started = caught(panic_report("start", || requested.clone()), || driver.start(request, handle))
        .ends_with(Ends::Deadline)
        .await?;
    RunningAttempt::of(started.map_err(tame_error)?, &requested)
}

/// Recovers an attempt. `None`: it was never started. A driver that panics is called again a few times: the panic does
/// not mean that the task is lost. A driver without resources for it is called until it has them.
pub async fn recover(
    driver: &dyn Driver,
    handle: TaskHandle,
    events: EventSink,
) -> Result<Option<RunningAttempt>, DriverCallError> {
    let (mut pause, most) = RESOURCE_PAUSES;
    loop {
        match recover_in_time(driver, handle.clone(), &events).await {
            Err(DriverCallError::Refused(DriverError::Wanting { message })) => {
                tracing::debug!(run_dir = %handle.run_dir.display(), message, "retrying the recovery of a task");
            }
            answer => return answer,
        }
        // Until resources are available. The task is shown as in recovery.
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(most);
    }
}

async fn recover_in_time(
    driver: &dyn Driver,
    handle: TaskHandle,
    events: &EventSink,
) -> Result<Option<RunningAttempt>, DriverCallError> {
    let tries = async {
        let mut pause = DEATH_PAUSE;
        for _ in 1..DEATHS {
            match recover_once(driver, handle.clone(), events).await {
                Err(DriverCallError::Died(_)) => tokio::time::sleep(pause).await,
                answer => return answer,
            }
            pause *= 2;
        }
        recover_once(driver, handle, events).await
    };
    tokio::time::timeout(RECOVER, tries).await.unwrap_or(Err(DriverCallError::Late(RECOVER)))
}

async fn recover_once(
    driver: &dyn Driver,
    handle: TaskHandle,
    events: &EventSink,
) -> Result<Option<RunningAttempt>, DriverCallError> {
    let requested = handle.clone();
    match caught(panic_report("recover", || requested.clone()), || driver.recover(handle, events.clone()))
        .ends_with(Ends::Deadline)
        .await?
        .map_err(tame_error)?
    {
        RecoveryOutcome::Attempt(attempt) => RunningAttempt::of(attempt, &requested).map(Some),
        RecoveryOutcome::NeverStarted if requested.started_at.is_some() => {
            Err(DriverCallError::Nonsense("it reports a started task as never started"))
        }
        RecoveryOutcome::NeverStarted => Ok(None),
    }
}

impl RunningAttempt {
    /// Errors: it is another attempt than the requested one.
    fn of(attempt: Arc<dyn Attempt>, requested: &TaskHandle) -> Result<RunningAttempt, DriverCallError> {
        let known = attempt.handle();
        // A cgroup may be known only now; a recorded one never changes.
        let cgroup = known.cgroup.as_ref().filter(|_| requested.cgroup.is_some());
        if (&known.driver, known.attempt, &known.run_dir, cgroup)
            != (&requested.driver, requested.attempt, &requested.run_dir, requested.cgroup.as_ref())
        {
            return Err(DriverCallError::Nonsense("it returned another attempt"));
        }
        if known.cgroup.as_ref().is_some_and(|path| path.as_str() == "/") {
            return Err(DriverCallError::Nonsense("it claims the root cgroup of this host"));
        }
        if known.driver_state.as_ref().is_some_and(|state| state.to_string().len() > LONGEST_STATE) {
            return Err(DriverCallError::Nonsense("its state is too large for a handle"));
        }
        Ok(RunningAttempt(attempt))
    }

    pub fn handle(&self) -> TaskHandle {
        self.0.handle()
    }
    pub fn reader(&self) -> Option<Arc<TaskReader>> {
        self.0.reader()
    }

    /// Errors: `Died` only; the attempt may still run.
    pub fn wait(&self, clock: &dyn Clock) -> impl Future<Output = Result<Box<AttemptEnd>, DriverCallError>> {
        let mut end = caught(panic_report("wait", || self.handle()), || self.0.wait());
        std::future::poll_fn(move |cx| {
            // Polling does not move it: it is boxed.
            std::pin::Pin::new(&mut end).poll(cx).map_ok(|end| Box::new(tame_end(end, clock.now())))
        })
    }
    pub async fn signal(&self, name: &str) -> Result<(), DriverCallError> {
        within(SIGNAL, "signal", || self.handle(), || self.0.signal(name)).await?.map_err(tame_error)
    }
    pub async fn kill(&self) -> Result<(), DriverCallError> {
        within(KILL, "kill", || self.handle(), || self.0.kill()).await?.map_err(tame_error)
    }
    /// Runs a program in the task, at most for `timeout`; its driver gets a moment more to end it.
    pub async fn exec(&self, command: &[String], timeout: Duration) -> Result<ExecEnd, DriverCallError> {
        let limit = timeout.saturating_add(EXEC_MORE);
        let end = within(limit, "exec", || self.handle(), || self.0.exec(command, timeout)).await?;
        end.map(|end| ExecEnd { output: tame(end.output), ..end }).map_err(tame_error)
    }
    /// Returns when the command runs.
    pub async fn attach(&self, request: ExecRequest) -> Result<ExecSession, DriverCallError> {
        within(ATTACH, "attach", || self.handle(), || self.0.attach(request)).await?.map_err(tame_error)
    }
    pub async fn destroy(&self) -> Result<(), DriverCallError> {
        within(DESTROY, "destroy", || self.handle(), || self.0.destroy()).await?.map_err(tame_error)
    }
}

async fn within<'a, T: 'a>(
    limit: Duration,
    name: &'static str,
    handle: impl Fn() -> TaskHandle,
    call: impl FnOnce() -> BoxFuture<'a, T>,
) -> Result<T, DriverCallError> {
    tokio::time::timeout(limit, caught(panic_report(name, handle), call))
        .await
        .unwrap_or(Err(DriverCallError::Late(limit)))
}

/// Releases what a driver holds for the network of an ended alloc.
pub async fn leave_network(driver: &dyn Driver, alloc: &AllocId) -> Result<(), DriverCallError> {
    let report = |panic: &Panic| {
        tracing::error!(
            alloc_id = %alloc,
            driver = driver.name(),
            call = "leave_network",
            at = panic.at,
            error = ?panic.message,
            "a driver panicked"
        );
    };
    let left = tokio::time::timeout(DESTROY, caught(report, || driver.leave_network(alloc))).await;
    left.unwrap_or(Err(DriverCallError::Late(DESTROY)))?.map_err(tame_error)
}

/// Background work of a driver. A panic ends only that work, and is logged as for a call.
pub async fn in_background(name: &'static str, handle: TaskHandle, work: impl Future<Output = ()> + Send) {
    // A panic was logged.
    let _ = caught(panic_report(name, || handle.clone()), || Box::pin(work)).ends_with(Ends::Caller).await;
}

/// Errors: it panicked, which `report` logs. No `async fn`: futures that live as long as a task stay small.
fn caught<'a, T: 'a>(
    report: impl Fn(&Panic),
    call: impl FnOnce() -> BoxFuture<'a, T>,
) -> impl Future<Output = Result<T, DriverCallError>> {
    let mut call = panics::catch(call);
    std::future::poll_fn(move |cx| {
        let panic = match &mut call {
            Ok(call) => match panics::catch(|| call.as_mut().poll(cx)) {
                Ok(answer) => return answer.map(Ok),
                Err(panic) => panic,
            },
            Err(panic) => panic.clone(),
        };
        report(&panic);
        Poll::Ready(Err(DriverCallError::Died(tame(panic.message))))
    })
}

/// Logs a panic in a call for a task. Alloc and task are in the path of its run directory:
/// `<run>/<alloc id>/<task>/<attempt>`.
fn panic_report(call: &'static str, handle: impl Fn() -> TaskHandle) -> impl Fn(&Panic) {
    move |panic| {
        // A driver may panic in its name as well.
        let (driver, run_dir) =
            panics::catch(&handle).map(|handle| (handle.driver, handle.run_dir)).unwrap_or_default();
        let mut names = run_dir.iter().rev().skip(1).map(|name| name.to_string_lossy());
        let (task, alloc_id) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        tracing::error!(%alloc_id, %task, driver, call, at = panic.at, error = ?panic.message, "a driver panicked");
    }
}

/// The fingerprints of a driver, checked for plausibility.
pub struct CheckedFingerprints {
    driver: String,
    reports: Box<dyn Fingerprints>,
}

impl CheckedFingerprints {
    /// Starts them, and returns the first one.
    pub async fn of(driver: &dyn Driver) -> Result<(CheckedFingerprints, Fingerprint), DriverCallError> {
        let started = panics::catch(|| (driver.name().to_owned(), driver.fingerprint()));
        let (driver, reports) = started.map_err(|panic| {
            report_fingerprint_panic(driver.name(), &panic);
            DriverCallError::Died(tame(panic.message))
        })?;
        let mut reports = CheckedFingerprints { driver, reports };
        let first = tokio::time::timeout(REPORT, reports.next()).await.unwrap_or(Err(DriverCallError::Late(REPORT)))?;
        Ok((reports, first))
    }

    /// Errors: there are no more.
    pub async fn next(&mut self) -> Result<Fingerprint, DriverCallError> {
        let CheckedFingerprints { driver, reports } = self;
        let report =
            caught(|panic| report_fingerprint_panic(driver, panic), || reports.next()).ends_with(Ends::Caller).await?;
        report.map(tame_report).ok_or(DriverCallError::Nonsense("the end of its fingerprints"))
    }
}

fn report_fingerprint_panic(driver: &str, panic: &Panic) {
    tracing::error!(driver, call = "fingerprint", at = panic.at, error = ?panic.message, "a driver panicked");
}

/// Texts go into records, events and logs: removes control characters and limits the length.
pub fn tame(text: String) -> String {
    let odd = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.len() <= LONGEST_TEXT && !text.contains(odd) {
        return text;
    }
    text.chars().take(LONGEST_TEXT).map(|c| if odd(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn tame_problem(problem: ConfigProblem) -> ConfigProblem {
    let ConfigProblem { field, message, advice, of_name } = problem;
    ConfigProblem { field: tame(field), message: tame(message), advice: advice.map(tame), of_name }
}

fn tame_error(error: DriverError) -> DriverCallError {
    DriverCallError::Refused(match error {
        DriverError::Config(all) => DriverError::Config(all.into_iter().map(tame_problem).collect()),
        DriverError::Limit { field, message } => DriverError::Limit { field, message: tame(message) },
        DriverError::Start { message, recoverable } => DriverError::Start { message: tame(message), recoverable },
        DriverError::Failed { message } => DriverError::Failed { message: tame(message) },
        DriverError::Wanting { message } => DriverError::Wanting { message: tame(message) },
        DriverError::StillRunning => DriverError::StillRunning,
    })
}

/// Drops invalid attribute names, and attributes beyond the limits.
fn tame_report(report: Fingerprint) -> Fingerprint {
    let (most, longest) = ATTRIBUTES;
    let named = |name: &str| {
        (1..=longest).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
    };
    let attributes = report.attributes.into_iter().filter(|(name, _)| named(name)).take(most);
    let attributes = attributes.map(|(name, value)| (name, tame(value))).collect();
    Fingerprint { description: tame(report.description), attributes, ..report }
}

/// Limits times and amounts: implausible values would stay in the counters forever.
fn tame_end(mut end: AttemptEnd, now: Timestamp) -> AttemptEnd {
    end.usage.drop_impossible();
    let latest = now.plus(CLOCK_SLACK);
    let possible = |at: Timestamp| if at > latest { now } else { at };
    let started_at = end.started_at.map(possible);
    let finished_at = possible(end.finished_at).max(started_at.unwrap_or(Timestamp(0)));
    let status = match end.status {
        ExitStatus::NotStarted(why) => ExitStatus::NotStarted(tame(why)),
        ExitStatus::Unknown(why) => ExitStatus::Unknown(tame(why)),
        known @ (ExitStatus::Code(_) | ExitStatus::Signal(_)) => known,
    };
    let problems = end.problems.into_iter().take(100).map(tame).collect();
    AttemptEnd { status, started_at, finished_at, problems, ..end }
}
