//! Launch of an attempt: wait for a healthy driver, run prestart hooks, persist the handle, call the driver.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::requests::{TaskRequest, next_request};
use crate::jobspec::interpolate::PreparedTask;
use crate::model::device::{DeviceReservation, ReservedDevices};
use crate::model::event::EventKind;
use crate::model::network::TaskNetwork;
use crate::model::task::TaskHandle;
use crate::runner::alloc::Alloc;
use crate::runner::context::AbortOnDrop;
use crate::runner::drivers::call::{self, DriverCallError, RunningAttempt};
use crate::runner::drivers::{Driver, DriverError, EventSink, Fingerprint, GivenDevices, StartRequest};
use crate::runner::hooks::{FailedHook, HookError, HookPhase, OfTask, hook_times};
use crate::runner::networks::{HOSTS, RESOLV_CONF};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::durations::StartPhase;

/// Why a launch failed.
#[derive(Debug)]
pub struct LaunchFailure {
    /// The event that reports it. `None`: it was cancelled, which is no failure.
    pub kind: Option<EventKind>,
    pub message: String,
    /// A retry may help: the restart policy decides.
    pub recoverable: bool,
    /// The request that cancelled it.
    pub cancelled_by: Option<TaskRequest>,
    /// It may have started: its handle is kept, and no second attempt is started beside it.
    pub may_run: bool,
}

impl LaunchFailure {
    fn internal(message: String) -> LaunchFailure {
        let kind = Some(EventKind::DriverFailure);
        LaunchFailure { kind, message, recoverable: false, cancelled_by: None, may_run: false }
    }
    fn driver(error: DriverError) -> LaunchFailure {
        let message = error.to_string();
        let (kind, recoverable) = match error {
            DriverError::Config(_) | DriverError::Limit { .. } => (EventKind::FailedValidation, false),
            DriverError::Start { recoverable, .. } => (EventKind::DriverFailure, recoverable),
            DriverError::Failed { .. } | DriverError::Wanting { .. } | DriverError::StillRunning => {
                (EventKind::DriverFailure, true)
            }
        };
        LaunchFailure { kind: Some(kind), message, recoverable, cancelled_by: None, may_run: false }
    }
    fn unknown(error: &DriverCallError) -> LaunchFailure {
        let message = format!("{error}; whether it runs is unknown, so it is not started twice");
        let kind = Some(EventKind::DriverFailure);
        LaunchFailure { kind, message, recoverable: false, cancelled_by: None, may_run: true }
    }
    pub fn cancelled(cancelled_by: Option<TaskRequest>) -> LaunchFailure {
        let message = "cancelled before its start".to_owned();
        LaunchFailure { kind: None, message, recoverable: true, cancelled_by, may_run: false }
    }
    pub fn panicked(error: &tokio::task::JoinError) -> LaunchFailure {
        LaunchFailure::internal(format!("an internal error: {error}"))
    }
}

pub type LaunchResult = Result<LaunchProgress, LaunchFailure>;

/// A launch ends with its owner; a launched process is recovered by the next agent.
pub type Launching = AbortOnDrop<LaunchResult>;

/// Progress of a launch.
pub enum LaunchProgress {
    /// The handle is recorded: only the driver's part is missing, [`start`].
    Ready(Box<PreparedLaunch>),
    Runs(RunningAttempt, StartTook),
    /// Its driver had died, and recovered it.
    Found(RunningAttempt),
    /// Its driver had died and cannot recover it; the reason.
    Lost(String),
}

pub struct PreparedLaunch {
    driver: Arc<dyn Driver>,
    request: StartRequest,
    handle: TaskHandle,
    alloc: Arc<Alloc>,
    took: StartTook,
}

/// Duration of each phase of a start.
#[derive(Debug, Clone, Default)]
pub struct StartTook {
    hooks: Vec<(&'static str, Duration)>,
    /// In the order of `StartPhase::ALL`.
    phases: [Duration; StartPhase::ALL.len()],
}

impl StartTook {
    /// Details of the `Started` event.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        const KEYS: [&str; StartPhase::ALL.len()] = ["prestart_ns", "setup_ns", "driver_ns"];
        let phases = KEYS.into_iter().zip(self.phases).map(|(key, took)| (key, took.as_nanos().to_string()));
        [("hooks", hook_times(&self.hooks))].into_iter().chain(phases).collect()
    }
}

/// Returns when the task's driver is healthy. Until then each change of its health is reported once.
async fn healthy_driver(alloc: &Arc<Alloc>, at: usize) {
    let name = alloc.task(at).driver.as_str();
    // Unknown driver: a hook reports it.
    let Some(info) = alloc.ctx.driver_infos.get(name) else { return };
    let (mut info, mut reported) = (info.subscribe(), None);
    loop {
        let report =
            Some(info.borrow_and_update()).filter(|info| !info.is_healthy()).map(|info| info.fingerprint.clone());
        let Some(report) = report else { return };
        if let Some(Fingerprint { health, description, .. }) = report.filter(|report| reported != Some(report.health)) {
            reported = Some(health);
            let health = health.as_str();
            let details = [("driver", name.to_owned()), ("health", health.to_owned())];
            let message = format!("waiting for its driver {name}, which is {health}: {description}");
            alloc.edit(at, |edit| edit.event(EventKind::Driver, message, &details));
            alloc.save_aside(at);
        }
        // The sender lives as long as the agent, so there is no error.
        let _ = info.changed().ends_with(Ends::Caller).await;
    }
}

/// Errors: the first step that failed; then nothing runs.
pub async fn launch(alloc: Arc<Alloc>, at: usize) -> LaunchResult {
    let mut action = alloc.action(at);
    tokio::select! {
        biased;
        request = next_request(&mut action, false) => return Err(LaunchFailure::cancelled(Some(request))),
        () = healthy_driver(&alloc, at) => {}
    }
    tokio::select! {
        biased;
        request = next_request(&mut action, false) => return Err(LaunchFailure::cancelled(Some(request))),
        () = alloc.renew_ports(at) => {}
    }
    let began = Instant::now();
    let mut subject = alloc.subject_of(at);
    let ran = tokio::select! {
        biased;
        request = next_request(&mut action, false) => Err(LaunchFailure::cancelled(Some(request))),
        failed = alloc.hooks.task.run(HookPhase::Prestart, &mut subject) => Ok(failed),
    };
    alloc.keep_done(at, &subject);
    let failed = ran?;
    if let Some(FailedHook { failure: HookError { kind, message, recoverable }, .. }) = failed.into_iter().next() {
        return Err(LaunchFailure { kind: Some(kind), message, recoverable, cancelled_by: None, may_run: false });
    }
    let prestart = began.elapsed();
    let (network_namespace, network) = network_of(&subject);
    let (Some(dirs), Some(PreparedTask { task, env })) = (subject.dirs, subject.prepared) else {
        return Err(LaunchFailure::internal("the prestart hooks created no directories or no environment".to_owned()));
    };
    let Some(driver) = alloc.ctx.drivers.get(task.driver.as_str()).cloned() else {
        return Err(LaunchFailure::internal(format!("this agent has no driver {:?}", task.driver)));
    };
    let (attempt, alloc_cgroup) = (subject.attempt, subject.alloc_cgroup);
    let events = sink(&alloc, at, attempt);
    let ReservedDevices { ids: devices, with, denied_nodes } = subject.devices;
    let DeviceReservation { nodes, mounts, env: _ } = with;
    let given = GivenDevices { nodes, mounts };
    let alloc_id = subject.alloc_id;
    let ports = subject.ports.into_iter().filter(|port| port.is_of(&task.name)).collect();
    let request = StartRequest {
        alloc_id,
        attempt,
        task,
        env,
        dirs,
        alloc_cgroup,
        devices: given,
        denied_nodes,
        volumes: subject.volumes,
        ports,
        network_namespace,
        network,
        events,
    };
    let handle = driver.prepare(&request).map_err(LaunchFailure::driver)?;

    let stderr_from = alloc.stderr_end(at).await;
    // Durable before anything runs, so that nothing is started twice.
    alloc.edit(at, |edit| {
        edit.prepared(handle.clone(), devices);
        edit.stderr_from(stderr_from);
    });
    let durable = alloc.persist(at, |error, first| {
        if first {
            alloc.edit(at, |edit| {
                let message = "waiting: the state database cannot be written, and nothing is started unrecorded";
                edit.event(EventKind::SetupFailure, message, &[("error", error.to_string())]);
            });
            // This write will most likely fail as well; then the change is shown without it.
            alloc.save_aside(at);
        }
        tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the handle of a task; not starting it");
    });
    tokio::select! {
        biased;
        request = next_request(&mut action, false) => {
            alloc.edit(at, |edit| edit.set_handle(None));
            return Err(LaunchFailure::cancelled(Some(request)));
        }
        () = durable => {}
    }
    let phases = [prestart, began.elapsed().saturating_sub(prestart), Duration::ZERO];
    let took = StartTook { hooks: subject.took, phases };
    Ok(LaunchProgress::Ready(Box::new(PreparedLaunch { driver, request, handle, alloc, took })))
}

/// The network namespace to join, and the files for a task with its own root.
fn network_of(subject: &OfTask) -> (Option<PathBuf>, TaskNetwork) {
    let requested = subject.group().network.clone().unwrap_or_default();
    let own = subject.network.as_ref();
    let files = subject.ctx.data_dir.network(&subject.alloc_id);
    let network = TaskNetwork {
        mode: requested.mode,
        hostname: own.map(|own| own.hostname.clone()),
        hosts: own.map(|_| files.join(HOSTS)),
        resolv_conf: requested.dns.as_ref().map(|_| files.join(RESOLV_CONF)),
        dns: requested.dns,
    };
    (own.map(|own| own.namespace.clone()), network)
}

/// The driver's part. A driver that dies during it may have started the task: it is asked afterwards.
pub async fn start(ready: PreparedLaunch) -> LaunchResult {
    let PreparedLaunch { driver, request, handle, alloc, mut took } = ready;
    let began = Instant::now();
    let events = request.events.clone();
    match call::start(driver.as_ref(), request, handle.clone()).await {
        Ok(running) => {
            let at = alloc.ctx.clock.now();
            took.phases[StartPhase::Driver.index()] = began.elapsed();
            alloc.ctx.metrics.task_started(alloc.job.workload(), &alloc.id, took.phases, at);
            Ok(LaunchProgress::Runs(running, took))
        }
        Err(DriverCallError::Refused(error)) => Err(LaunchFailure::driver(error)),
        Err(died @ DriverCallError::Died(_)) => match call::recover(driver.as_ref(), handle, events).await {
            Ok(Some(running)) => {
                took.phases[StartPhase::Driver.index()] = began.elapsed();
                Ok(LaunchProgress::Runs(running, took))
            }
            Ok(None) => Err(LaunchFailure::driver(DriverError::Failed { message: died.to_string() })),
            Err(error) => Err(LaunchFailure::unknown(&error)),
        },
        Err(error @ (DriverCallError::Late(_) | DriverCallError::Nonsense(_))) => Err(LaunchFailure::unknown(&error)),
    }
}

/// Asks a driver that died while it waited for the state of the attempt.
pub async fn find(alloc: Arc<Alloc>, at: usize, handle: TaskHandle) -> LaunchResult {
    Ok(match found(&alloc, at, handle).await {
        Ok(Some(running)) => LaunchProgress::Found(running),
        Ok(None) => LaunchProgress::Lost("its driver reports that it was never started".to_owned()),
        Err(why) => LaunchProgress::Lost(why),
    })
}

/// Turns messages of the driver about an attempt into events of its task.
fn sink(alloc: &Arc<Alloc>, at: usize, attempt: u32) -> EventSink {
    // Weak: the alloc holds the attempt, which holds this sink.
    let alloc = Arc::downgrade(alloc);
    EventSink::new(move |text| {
        if let Some(alloc) = alloc.upgrade() {
            alloc.driver_message(at, attempt, call::tame(text));
        }
    })
}

/// Recovers an attempt from its driver. `None`: it was never started. Errors: why it cannot be recovered.
pub async fn found(alloc: &Arc<Alloc>, at: usize, handle: TaskHandle) -> Result<Option<RunningAttempt>, String> {
    // The handle determines what is done to an attempt and what is removed after it. A handle that names a directory of
    // another task is refused, even from a valid record.
    let own = alloc.ctx.data_dir.run_task(&alloc.id, &alloc.task(at).name).join(handle.attempt.to_string());
    if handle.run_dir != own {
        return Err(format!("its record names {} as its directory, which is not its own", handle.run_dir.display()));
    }
    let Some(driver) = alloc.ctx.drivers.get(handle.driver.as_str()).cloned() else {
        return Err(format!("this agent has no driver {:?}", handle.driver));
    };
    let events = sink(alloc, at, handle.attempt);
    call::recover(driver.as_ref(), handle, events).await.map_err(|e| e.to_string())
}
