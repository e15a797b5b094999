//! From a task's record to a running attempt: directories, cgroup, environment, durable handle, driver.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::alloc::Alloc;
use super::datadir::Owner;
use super::drivers::call::{self, CallError, Running};
use super::drivers::{Driver, DriverError, StartRequest, TaskDirs};
use super::task::{Told, persist, told};
use crate::host::process::{Account, UserError};
use crate::jobspec::interpolate::{self, Prepared};
use crate::model::env::{Env, TaskContext, node_attributes};
use crate::model::event::EventKind;
use crate::model::id::CgroupPath;
use crate::model::job::Task;
use crate::model::task::TaskHandle;

/// Why an attempt did not come to run.
#[derive(Debug)]
pub(super) struct LaunchFailure {
    pub kind: EventKind,
    pub message: String,
    /// Trying again may help, so the restart policy decides.
    pub recoverable: bool,
    /// It was called off.
    pub stopped: Option<Told>,
    /// Something of it may have come to life: its handle is kept, and no second one is started beside it.
    pub may_run: bool,
}

impl LaunchFailure {
    fn setup(message: String) -> LaunchFailure {
        LaunchFailure { kind: EventKind::SetupFailure, message, recoverable: true, stopped: None, may_run: false }
    }
    fn driver(error: DriverError) -> LaunchFailure {
        let message = error.to_string();
        let (kind, recoverable) = match error {
            DriverError::Config { .. } => (EventKind::FailedValidation, false),
            DriverError::Start { recoverable, .. } => (EventKind::DriverFailure, recoverable),
            DriverError::Failed { .. } | DriverError::StillRunning => (EventKind::DriverFailure, true),
        };
        LaunchFailure { kind, message, recoverable, stopped: None, may_run: false }
    }
    fn unknown(error: &CallError) -> LaunchFailure {
        let message = format!("{error}; whether it runs is not known, and it is not started twice");
        let kind = EventKind::DriverFailure;
        LaunchFailure { kind, message, recoverable: false, stopped: None, may_run: true }
    }
    pub fn called_off(told: Option<Told>) -> LaunchFailure {
        LaunchFailure { stopped: told, ..LaunchFailure::setup("stopped before it was started".to_owned()) }
    }
    pub fn panicked(error: &tokio::task::JoinError) -> LaunchFailure {
        let message = format!("an internal error: {error}");
        LaunchFailure { kind: EventKind::DriverFailure, message, recoverable: false, stopped: None, may_run: false }
    }
}

/// How far a launch has come.
pub(super) enum Launched {
    /// On record: nothing is missing but its driver's part, [`start`].
    Ready(Box<Ready>),
    Runs(Running),
    /// Its driver had died and found it again.
    Found(Running),
    /// Its driver had died and cannot find it any more; why.
    Lost(String),
}

pub(super) struct Ready {
    driver: Arc<dyn Driver>,
    request: StartRequest,
    handle: TaskHandle,
    alloc: Arc<Alloc>,
    /// How long it took to come here.
    setup: Duration,
}

/// Errors: the first step that failed; nothing runs then.
pub(super) async fn launch(alloc: Arc<Alloc>, at: usize) -> Result<Launched, LaunchFailure> {
    let began = Instant::now();
    let task = alloc.task(at);
    let attempt = alloc.status(at).attempt;
    let Some(driver) = alloc.ctx.drivers.get(task.driver.as_str()).cloned() else {
        let message = format!("this agent has no driver {:?}", task.driver);
        return Err(LaunchFailure {
            kind: EventKind::FailedValidation,
            message,
            recoverable: false,
            stopped: None,
            may_run: false,
        });
    };
    let on_host = {
        let alloc = Arc::clone(&alloc);
        move || {
            let task = alloc.task(at);
            let account = account(task)?;
            // Who owns what the task writes: its user, where we may give files away.
            let may_give = rustix::process::geteuid().is_root();
            let owner = account.as_ref().filter(|_| may_give).map(|a| Owner { uid: a.uid, gid: a.gid });
            let dirs = alloc.ctx.data_dir.build(&alloc.id, &task.name, attempt, owner);
            let setup = LaunchFailure::setup;
            let dirs = dirs.map_err(|e| setup(format!("cannot make its directories: {e}")))?;
            let cgroup = alloc.make_cgroup().map_err(|e| setup(format!("cannot make its cgroup: {e}")))?;
            Ok((dirs, cgroup, account))
        }
    };
    let made = alloc.ctx.blocking(on_host).await.map_err(LaunchFailure::setup)?;
    let (dirs, alloc_cgroup, account) = made?;
    let Prepared { task, env } = prepare(&alloc, task, &dirs, alloc_cgroup.as_ref(), account.as_ref())?;
    let request = StartRequest { alloc_id: alloc.id.clone(), attempt, task, env, dirs, alloc_cgroup };
    let handle = driver.prepare(&request).map_err(LaunchFailure::driver)?;

    // Durable before anything runs, so that nothing is started twice.
    alloc.edit(at, |edit| edit.set_handle(Some(handle.clone())));
    let mut order = alloc.order(at);
    let durable = persist(&alloc, at, |error, first| {
        if first {
            alloc.edit(at, |edit| {
                let message = "waiting: the state database cannot be written, and nothing is started unrecorded";
                edit.event(EventKind::SetupFailure, message, &[("error", error.to_string())]);
            });
            // Refused like the one before, most likely: then it is shown all the same.
            alloc.save_aside(at);
        }
        tracing::error!(alloc_id = %alloc.id, %error, "a task cannot be started: its handle is not saved");
    });
    tokio::select! {
        biased;
        told = told(&mut order, false) => {
            alloc.edit(at, |edit| edit.set_handle(None));
            return Err(LaunchFailure::called_off(Some(told)));
        }
        () = durable => {}
    }
    Ok(Launched::Ready(Box::new(Ready { driver, request, handle, setup: began.elapsed(), alloc })))
}

/// The driver's part. One that dies of it may have begun the task: it is asked again for what became of that.
pub(super) async fn start(ready: Ready) -> Result<Launched, LaunchFailure> {
    let Ready { driver, request, handle, alloc, setup } = ready;
    let began = Instant::now();
    match call::start(driver.as_ref(), request, handle.clone()).await {
        Ok(running) => {
            let at = alloc.ctx.clock.now();
            alloc.ctx.metrics.durations.started(&alloc.job.id, &alloc.id, [setup, began.elapsed()], at);
            Ok(Launched::Runs(running))
        }
        Err(CallError::Refused(error)) => Err(LaunchFailure::driver(error)),
        Err(died @ CallError::Died(_)) => match call::recover(driver.as_ref(), handle).await {
            Ok(Some(running)) => Ok(Launched::Runs(running)),
            Ok(None) => Err(LaunchFailure::driver(DriverError::Failed { message: died.to_string() })),
            Err(error) => Err(LaunchFailure::unknown(&error)),
        },
        Err(error @ (CallError::Late(_) | CallError::Nonsense(_))) => Err(LaunchFailure::unknown(&error)),
    }
}

/// Asks a driver that died while it waited what became of the attempt.
pub(super) async fn find(alloc: Arc<Alloc>, handle: TaskHandle) -> Result<Launched, LaunchFailure> {
    let Some(driver) = alloc.ctx.drivers.get(handle.driver.as_str()) else {
        return Ok(Launched::Lost("its driver is gone".to_owned()));
    };
    Ok(match call::recover(driver.as_ref(), handle).await {
        Ok(Some(running)) => Launched::Found(running),
        Ok(None) => Launched::Lost("its driver says that it was never started".to_owned()),
        Err(error) => Launched::Lost(error.to_string()),
    })
}

/// The user that the job file names. One that an ordinary user's agent does not find is the driver's to refuse.
fn account(task: &Task) -> Result<Option<Account>, LaunchFailure> {
    match task.user.as_deref().map(crate::host::process::account) {
        Some(Err(error)) if rustix::process::geteuid().is_root() => {
            // Trying again makes no user.
            let recoverable = matches!(error, UserError::Lookup { .. });
            Err(LaunchFailure { recoverable, ..LaunchFailure::setup(error.to_string()) })
        }
        Some(found) => Ok(found.ok()),
        None => Ok(None),
    }
}

/// What a login would set; the job's `env` wins over it.
fn login(account: &Account, inherited: &Env) -> Env {
    /// Of users other than root, who have no business with `sbin`.
    const USER_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
    let mut env = inherited.clone();
    let of_account =
        [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name), ("SHELL", &account.shell)];
    env.extend(of_account.map(|(name, value)| (name.to_owned(), value.clone())));
    if account.uid != rustix::process::geteuid().as_raw() {
        env.insert("PATH".to_owned(), USER_PATH.to_owned());
    }
    env
}

fn prepare(
    alloc: &Alloc,
    task: &Task,
    dirs: &TaskDirs,
    cgroup: Option<&CgroupPath>,
    account: Option<&Account>,
) -> Result<Prepared, LaunchFailure> {
    let attributes = node_attributes(&alloc.ctx.node, &alloc.job);
    let inherited = account.map_or(Cow::Borrowed(&alloc.ctx.inherited), |a| Cow::Owned(login(a, &alloc.ctx.inherited)));
    let context = TaskContext {
        job: &alloc.job,
        group: alloc.group(),
        task,
        alloc_id: &alloc.id,
        alloc_name: &alloc.name(),
        index: alloc.index(),
        alloc_dir: &dirs.shared,
        local_dir: &dirs.local,
        secrets_dir: &dirs.secrets,
        alloc_cgroup: cgroup,
        inherited: &inherited,
        attributes: &attributes,
    };
    interpolate::prepare(&context).map_err(|unresolved| {
        let message = unresolved.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        LaunchFailure { kind: EventKind::FailedValidation, message, recoverable: false, stopped: None, may_run: false }
    })
}
