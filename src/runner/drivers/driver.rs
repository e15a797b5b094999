//! The interface between the runner and its drivers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::fingerprint::Fingerprint;
use super::pool::SupervisorPool;
use super::sink::EventSink;
use crate::collectors::{SamplingContext, TaskReader};
use crate::host::clock::Clock;
use crate::host::pty::WindowSize;
use crate::model::device::{DeviceMount, DeviceNode};
use crate::model::id::{AllocId, BootId, CgroupPath};
use crate::model::job::Task;
use crate::model::network::{AllocPort, TaskNetwork};
use crate::model::task::{ExitStatus, LostOutput, TaskHandle};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::model::volume::TaskVolume;
use crate::runner::persistence::datadir::{AttemptDirs, TaskDirs};
use crate::telemetry::metrics::Metrics;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// For drivers without a default of their own.
pub const KILL_SIGNAL: &str = "SIGINT";

/// Everything that drivers are built from.
pub struct DriverContext {
    pub sampling: Arc<SamplingContext>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    /// Shared by all drivers whose tasks run under supervisors.
    pub supervisors: Arc<SupervisorPool>,
    /// The soft limit on descriptors for tasks: what the agent had before it raised its own.
    pub descriptors: Option<u64>,
    /// Why this agent cannot create cgroups. `None`: it can.
    pub no_cgroups: Option<String>,
    pub settings: DriverSettings,
    pub metrics: Arc<Metrics>,
}

/// Settings of drivers, by driver and key. Each value was checked by its driver.
pub type DriverSettings = BTreeMap<(&'static str, &'static str), String>;

/// A driver.
pub struct DriverEntry {
    pub name: &'static str,
    /// Its settings, in the stanza with its name.
    pub settings: &'static [DriverSetting],
    /// Checks a task's `config` for errors that are independent of the host.
    pub check: fn(&Task) -> Result<(), DriverError>,
    pub build: fn(&DriverContext) -> Arc<dyn Driver>,
}

/// One setting of a driver.
pub struct DriverSetting {
    pub key: &'static str,
    pub env: &'static str,
    pub about: &'static str,
    /// Errors: why the value is invalid, as a sentence without the setting's name.
    pub check: fn(&str) -> Result<(), String>,
}

/// A field of a task without effect on this host: its path in the task, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnenforcedField {
    pub field: &'static str,
    pub why: String,
}

/// An error in a task's `config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Path in `config`: `args[1]`.
    pub field: String,
    pub message: String,
    /// What would be right.
    pub advice: Option<String>,
    /// The error is in the name of the field, not in its value.
    pub of_name: bool,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum DriverError {
    /// Invalid `config`, with all errors: at least one.
    #[error("{}", joined(.0))]
    Config(Vec<ConfigProblem>),
    /// A limit of the task cannot be enforced on this host. `field` is the path in the task.
    #[error("{field}: {message}")]
    Limit { field: &'static str, message: String },
    /// It could not be started. `recoverable`: a retry may help, so the restart policy decides.
    #[error("{message}")]
    Start { message: String, recoverable: bool },
    #[error("{message}")]
    Failed { message: String },
    /// The agent lacks descriptors, memory or processes to find out: the call is repeated as long as that lasts.
    #[error("{message}")]
    Wanting { message: String },
    /// Nothing is removed before the attempt has ended.
    #[error("it is still running")]
    StillRunning,
}

fn joined(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The directories of [`TaskDirs`] that a task knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenDirs {
    pub shared: PathBuf,
    pub local: PathBuf,
    pub secrets: PathBuf,
}

impl SeenDirs {
    /// For a task that sees the file system of the host.
    pub fn on_host(dirs: &TaskDirs) -> SeenDirs {
        SeenDirs { shared: dirs.shared.clone(), local: dirs.local.clone(), secrets: dirs.secrets.clone() }
    }
}

/// Device nodes and mounts of the devices reserved for a task. A task with its own file system sees them only if its
/// driver adds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenDevices {
    pub nodes: Vec<DeviceNode>,
    pub mounts: Vec<DeviceMount>,
}

#[derive(Debug, Clone)]
pub struct StartRequest {
    pub alloc_id: AllocId,
    pub attempt: u32,
    /// With `config` and `env` interpolated.
    pub task: Task,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    pub dirs: TaskDirs,
    /// The alloc's cgroup, which exists; the driver creates the task's below it. `None`: no cgroups here.
    pub alloc_cgroup: Option<CgroupPath>,
    /// The reserved devices. Their variables are in `env` already.
    pub devices: GivenDevices,
    /// Character devices that it must not open: those of devices of others. Empty for a task without devices.
    pub denied_nodes: Vec<String>,
    /// Host volumes, in mount order. Empty for a driver without [mounts](Driver::mounts_volumes).
    pub volumes: Vec<TaskVolume>,
    /// The ports of its alloc that this task has, in the order of the job file.
    pub ports: Vec<AllocPort>,
    /// File of the alloc's own network namespace. `None`: the host's.
    pub network_namespace: Option<PathBuf>,
    /// For drivers whose tasks have their own root or host name.
    pub network: TaskNetwork,
    /// Receives messages of the driver about the task, from its start to its end.
    pub events: EventSink,
}

impl StartRequest {
    /// A first attempt with one directory for everything, to try a driver without an agent.
    pub fn alone(task: Task, dir: &Path) -> StartRequest {
        let own = dir.join("task");
        StartRequest {
            alloc_id: AllocId::from("00000000-0000-4000-8000-000000000000"),
            attempt: 0,
            env: BTreeMap::new(),
            dirs: TaskDirs {
                shared: dir.to_owned(),
                local: own.clone(),
                secrets: own.clone(),
                tmp: own.clone(),
                task: own,
                logs: dir.join("logs"),
                run: dir.join("run").join(task.name.as_str()).join("0"),
            },
            task,
            alloc_cgroup: None,
            devices: GivenDevices::default(),
            denied_nodes: Vec::new(),
            volumes: Vec::new(),
            ports: Vec::new(),
            network_namespace: None,
            network: TaskNetwork::default(),
            events: EventSink::default(),
        }
    }

    /// The handle of an attempt that was not started yet.
    pub fn handle(&self, driver: &str, boot_id: &BootId, cgroup: Option<CgroupPath>) -> TaskHandle {
        TaskHandle {
            driver: driver.to_owned(),
            attempt: self.attempt,
            boot_id: boot_id.clone(),
            run_dir: self.dirs.run.clone(),
            cgroup,
            supervisor: None,
            main: None,
            started_at: None,
            driver_state: None,
            network: None,
        }
    }
}

/// The facts of the end of an attempt.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    pub status: ExitStatus,
    /// For a failed start: a retry may help, so the restart policy decides.
    pub recoverable: bool,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// The last reading, of this attempt alone, read after the last process was gone.
    pub usage: Usage,
    /// Values of the last sample that could not be read, and why: for the log and the counter.
    pub problems: Vec<String>,
    /// Output that could not be written.
    pub lost_output: LostOutput,
    /// The runtime reports an OOM kill of the main process that no signal shows.
    pub oom_killed: bool,
}

/// Called through [`call`](super::call), which sets the deadlines. A result that is not awaited any more is dropped;
/// work that was begun may continue or not. Blocking work belongs on a thread for that.
pub trait Driver: Send + Sync {
    fn name(&self) -> &'static str;
    /// Checks `config` without access to the host: strict, unknown fields are refused.
    fn check(&self, task: &Task) -> Result<(), DriverError>;
    /// Fields of a checked task that this host will not enforce, for warnings.
    fn unenforced(&self, _task: &Task) -> Vec<UnenforcedField> {
        Vec::new()
    }
    /// Whether its tasks are processes of this host that belong in cgroups: not those of `mock`.
    fn has_processes(&self) -> bool {
        true
    }
    /// Whether its tasks join the namespace of [`StartRequest::network_namespace`]. If not, their group cannot request
    /// one.
    fn joins_namespaces(&self) -> bool {
        false
    }
    /// Releases what it holds for the network of an ended alloc. Idempotent.
    fn leave_network<'a>(&'a self, _alloc: &'a AllocId) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Whether it mounts host volumes into the root of its tasks.
    fn mounts_volumes(&self) -> bool {
        false
    }
    /// Whether its tasks have the file system of an image: then the agent's environment and the host's accounts do not
    /// apply to them.
    fn has_image(&self) -> bool {
        false
    }
    /// Additional time for a start, in addition to that of every start: an image may have to be pulled.
    fn start_takes(&self, _task: &Task) -> Duration {
        Duration::ZERO
    }
    /// The kill signal of a task whose job names none.
    fn kill_signal(&self) -> &'static str {
        KILL_SIGNAL
    }
    /// Its fingerprints: the first one, then one for each change. When they end, this is called again.
    fn fingerprint(&self) -> Box<dyn Fingerprints>;
    /// Its directories as the task sees them, for its environment. With a file system of its own, they differ from the
    /// paths on the host.
    fn seen(&self, dirs: &TaskDirs) -> SeenDirs {
        SeenDirs::on_host(dirs)
    }
    /// Whether its tasks have their own root directory: then their users need no access to the data directory.
    fn has_own_root(&self) -> bool {
        false
    }
    /// The user of a task whose job names none. `None`: the agent's.
    fn default_user(&self) -> Option<&'static str> {
        None
    }
    /// The handle to persist *before* [`Driver::start`]: enough to find a half-started attempt. A cgroup or state that
    /// is known only after the start is in the attempt's handle.
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError>;
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>>;
    /// Recovers an attempt after a restart of the agent. `events`: as for its start.
    fn recover(&self, handle: TaskHandle, events: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>>;
    /// What an attempt without a record left in its run directory. `None`: it belongs to another driver. Changes
    /// nothing. Blocks as long as a disk does.
    ///
    /// Errors: it cannot be read, or something runs without a proof that it is this attempt.
    fn left(&self, _place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
        Ok(None)
    }
    /// The run directories below `top`, removed ones included, with live processes of an earlier agent.
    /// Blocks.
    fn alive_below(&self, _top: &Path) -> std::io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

/// The end of a program that ran in a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecEnd {
    /// Exit code, or 128 plus the number of the signal. `None`: it timed out.
    pub code: Option<u8>,
    /// The begin of its output, both streams.
    pub output: String,
}

/// A command that a user runs in a task: `allostat exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// A path, or a name to search in the task's `PATH`; then arguments. At least one.
    pub command: Vec<String>,
    /// `None`: three pipes.
    pub terminal: Option<TerminalRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRequest {
    pub size: WindowSize,
    /// `TERM` of the user.
    pub kind: Option<String>,
}

/// A running command. When it is dropped, all its processes are killed.
pub struct ExecSession {
    /// Dropping it closes standard input. For a terminal it is the keyboard, which has no end.
    pub input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output, or all output of the terminal.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error. `None`: it has a terminal.
    pub errors: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Size of its terminal: the newest value applies.
    pub size: watch::Sender<WindowSize>,
    /// Exit code, or 128 plus the number of the signal. Errors: how it ended is unknown.
    pub end: BoxFuture<'static, Result<u8, DriverError>>,
    /// Ends the command when it is dropped.
    pub hold: Box<dyn Send>,
}

impl fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSession").finish_non_exhaustive()
    }
}

/// The fingerprints of one driver, in order.
pub trait Fingerprints: Send {
    /// The first one soon, then one for each change. `None`: there will be no more. Cancel safe.
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>>;
}

/// What is left of an attempt without a record.
#[derive(Debug, Clone)]
pub struct UnrecordedAttempt {
    /// Enough for [`Driver::recover`].
    pub handle: TaskHandle,
    /// Some of its processes run.
    pub lives: bool,
}

pub enum RecoveryOutcome {
    /// It runs or has ended meanwhile: see [`Attempt::wait`].
    Attempt(Arc<dyn Attempt>),
    /// It was prepared but never started: a start is safe.
    NeverStarted,
}

/// One attempt, running or ended.
pub trait Attempt: Send + Sync {
    /// Returns at once, without I/O.
    fn handle(&self) -> TaskHandle;
    /// Absent if nothing can be read. Returns at once.
    fn reader(&self) -> Option<Arc<TaskReader>>;
    /// Returns when all processes are gone and the last sample was read. May be awaited repeatedly.
    fn wait(&self) -> BoxFuture<'_, AttemptEnd>;
    /// Sends a signal to the main process: `SIGINT`, `SIGHUP` ...
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>>;
    /// Kills every process of the task; `wait` returns when that is done. Idempotent.
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>>;
    /// Runs a program in the task: as its user, in its cgroup and namespaces, with its environment. Ends the program at
    /// `timeout`.
    fn exec(&self, _command: &[String], _timeout: Duration) -> BoxFuture<'_, Result<ExecEnd, DriverError>> {
        let message = "its driver runs no scripts in a task".to_owned();
        Box::pin(async { Err(DriverError::Failed { message }) })
    }
    /// Runs a command in the task for a user, as [`Attempt::exec`] does; returns when it runs.
    ///
    /// Errors: the command does not run.
    fn attach(&self, _request: ExecRequest) -> BoxFuture<'_, Result<ExecSession, DriverError>> {
        let message = "its driver runs no commands in a task".to_owned();
        Box::pin(async { Err(DriverError::Failed { message }) })
    }
    /// After the exit is durable: removes the cgroup and the run directory. Idempotent.
    ///
    /// Errors: `StillRunning`, then nothing was removed.
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>>;
}
