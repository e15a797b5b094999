//! What a driver is to the runner: what it is asked, and what it answers.

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
use crate::collectors::{Sampling, TaskReader};
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
use crate::runner::kept::datadir::{Place, TaskDirs};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Of a driver that has none of its own.
pub const KILL_SIGNAL: &str = "SIGINT";

/// What drivers are built from.
pub struct DriverContext {
    pub sampling: Arc<Sampling>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    /// Of all drivers whose tasks run under supervisors.
    pub supervisors: Arc<SupervisorPool>,
    /// The soft limit on descriptors that tasks get: what the agent had before it raised its own.
    pub descriptors: Option<u64>,
    /// Why this agent can make no cgroups; `None`: it can.
    pub no_cgroups: Option<String>,
    pub settings: DriverSettings,
}

/// What is set of drivers, by driver and key: each value was checked by its driver.
pub type DriverSettings = BTreeMap<(&'static str, &'static str), String>;

/// A driver that there is.
pub struct DriverEntry {
    pub name: &'static str,
    /// What can be set of it, in the stanza of the configuration that is called like it.
    pub settings: &'static [DriverSetting],
    /// What of a task's `config` is wrong on every host, before there is a driver to ask.
    pub check: fn(&Task) -> Result<(), DriverError>,
    pub build: fn(&DriverContext) -> Arc<dyn Driver>,
}

/// One thing that can be set of a driver.
pub struct DriverSetting {
    pub key: &'static str,
    pub env: &'static str,
    pub about: &'static str,
    /// Errors: the value cannot be, in a sentence without its name.
    pub check: fn(&str) -> Result<(), String>,
}

/// A field of a task that will have no effect where it is to run: its path in the task, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unenforced {
    pub field: &'static str,
    pub why: String,
}

/// What is wrong in one place of a task's `config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The place in `config`: `args[1]`.
    pub field: String,
    pub message: String,
    /// What to write instead.
    pub advice: Option<String>,
    /// Its name is wrong rather than its value.
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
    /// The task's `config` is not what this driver takes: all that is wrong in it, at least one.
    #[error("{}", joined(.0))]
    Config(Vec<ConfigProblem>),
    /// What the task asks for cannot be limited on this host. `field` is the place in the task.
    #[error("{field}: {message}")]
    Limit { field: &'static str, message: String },
    /// It could not be started. `recoverable`: trying again may help, so the restart policy decides.
    #[error("{message}")]
    Start { message: String, recoverable: bool },
    #[error("{message}")]
    Failed { message: String },
    /// The agent lacks descriptors, memory or processes to tell: it is asked again, for as long as that is so.
    #[error("{message}")]
    Wanting { message: String },
    /// Nothing of it is removed before it has ended.
    #[error("it is still running")]
    StillRunning,
}

fn joined(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What of [`TaskDirs`] a task is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenDirs {
    pub shared: PathBuf,
    pub local: PathBuf,
    pub secrets: PathBuf,
}

impl SeenDirs {
    /// Of a task that sees the file system of the host.
    pub fn on_host(dirs: &TaskDirs) -> SeenDirs {
        SeenDirs { shared: dirs.shared.clone(), local: dirs.local.clone(), secrets: dirs.secrets.clone() }
    }
}

/// Device nodes and mounts of the devices that were reserved for a task. A task with a file system of its own sees them only if its driver
/// puts them there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenDevices {
    pub nodes: Vec<DeviceNode>,
    pub mounts: Vec<DeviceMount>,
}

#[derive(Debug, Clone)]
pub struct StartRequest {
    pub alloc_id: AllocId,
    pub attempt: u32,
    /// `config` and `env` interpolated.
    pub task: Task,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    pub dirs: TaskDirs,
    /// The alloc's cgroup, which exists; the driver makes the task's below it. `None`: no cgroups here.
    pub alloc_cgroup: Option<CgroupPath>,
    /// What was reserved for it. Its variables are in `env` already.
    pub devices: GivenDevices,
    /// Character devices that it is not to open: those of devices that are not its own. Of a task that asks for none, none.
    pub denied_nodes: Vec<String>,
    /// Host volumes, in the order in which they are mounted. Of a driver that [mounts](Driver::mounts_volumes) none, none.
    pub volumes: Vec<TaskVolume>,
    /// The ports of its alloc that this task has, in the order of the job file.
    pub ports: Vec<AllocPort>,
    /// The alloc's own network namespace, a file to join it by; `None`: the host's.
    pub network_namespace: Option<PathBuf>,
    /// For drivers whose tasks have a root or a host name of their own.
    pub network: TaskNetwork,
    /// Where the driver says what it does for the task, from its start to its end.
    pub events: EventSink,
}

impl StartRequest {
    /// A first attempt that has one directory for everything: for who tries a driver without an agent.
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

    /// The handle of an attempt that nothing was done for yet.
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

/// How an attempt ended: facts.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    pub status: ExitStatus,
    /// Of one that was not started: trying again may help, so the restart policy decides.
    pub recoverable: bool,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
    /// The last reading, of this attempt alone, read after the last process was gone.
    pub usage: Usage,
    /// What of the last reading could not be had, and why: for the log and the counter.
    pub problems: Vec<String>,
    /// Of its output, what could not be written.
    pub lost_output: LostOutput,
    /// Its runtime says that the main process died of the kernel's OOM killer, where no signal shows it.
    pub oom_killed: bool,
}

/// The runner asks through [`call`](super::call), which sets the deadlines: an answer that is not awaited any more is dropped, and what was
/// begun may go on or not. What blocks belongs on a thread for that.
pub trait Driver: Send + Sync {
    fn name(&self) -> &'static str;
    /// Checks `config` without touching the host: strict, unknown fields are refused.
    fn check(&self, task: &Task) -> Result<(), DriverError>;
    /// What of a checked task this host will not enforce: who submits it is warned.
    fn unenforced(&self, _task: &Task) -> Vec<Unenforced> {
        Vec::new()
    }
    /// Whether its tasks are processes of this host that belong in cgroups: `mock`'s are not.
    fn has_processes(&self) -> bool {
        true
    }
    /// Whether its tasks join the namespace of [`StartRequest::network_namespace`]; else their group cannot ask for one.
    fn joins_namespaces(&self) -> bool {
        false
    }
    /// Removes what it holds for the network of an alloc that has ended. Repeating it does no harm.
    fn leave_network<'a>(&'a self, _alloc: &'a AllocId) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Whether it mounts host volumes into the root of its tasks.
    fn mounts_volumes(&self) -> bool {
        false
    }
    /// Whether its tasks have the file system of an image: then neither the agent's environment nor the host's accounts
    /// are theirs.
    fn has_image(&self) -> bool {
        false
    }
    /// How long a start may take beyond the time that every start has: an image may have to be fetched.
    fn start_takes(&self, _task: &Task) -> Duration {
        Duration::ZERO
    }
    /// What tells a task to end whose job names no signal.
    fn kill_signal(&self) -> &'static str {
        KILL_SIGNAL
    }
    /// What it says of itself: how it is, then each change. Where that ends, it is asked again.
    fn fingerprint(&self) -> Box<dyn Fingerprints>;
    /// Its directories as the task itself sees them, for its environment: of a driver that gives it a file system of its own they are
    /// not where the host has them.
    fn seen(&self, dirs: &TaskDirs) -> SeenDirs {
        SeenDirs::on_host(dirs)
    }
    /// Whether its tasks have a root directory of their own: then no user of theirs needs a way to the data directory.
    fn has_own_root(&self) -> bool {
        false
    }
    /// The user of a task whose job names none; `None`: the agent's.
    fn default_user(&self) -> Option<&'static str> {
        None
    }
    /// The handle to persist *before* [`Driver::start`]: enough to find a half-started attempt. What is known with the start alone, a
    /// cgroup or state of its own, is in the attempt's.
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError>;
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>>;
    /// Finds an attempt again after a restart of the agent. `events`: as those of its start.
    fn recover(&self, handle: TaskHandle, events: EventSink) -> BoxFuture<'_, Result<Recovered, DriverError>>;
    /// What an attempt left in its run directory, where no record of the agent names it any more; `None`: it is none of this
    /// driver's. Touches nothing. Blocks for as long as a disk does.
    ///
    /// Errors: what is there cannot be read, or something runs and nothing proves that it is this attempt.
    fn left(&self, _place: &Place) -> Result<Option<Left>, DriverError> {
        Ok(None)
    }
    /// The run directories below `top`, be they removed or not, of which something from before this agent is alive. Blocks.
    fn alive_below(&self, _top: &Path) -> std::io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

/// What came of a program that was run beside a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecEnd {
    /// 128 and the number of a signal that ended it. `None`: it took longer than it may.
    pub code: Option<u8>,
    /// What it printed first, both streams.
    pub output: String,
}

/// A command that a user runs in a task: `allostat exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// A path, or a name that is searched in the task's `PATH`; its arguments. At least one.
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

/// It runs. Dropped, everything that it started is killed.
pub struct ExecSession {
    /// Dropped: the end of its standard input. Of a terminal it is that of its keyboard, and has no end.
    pub input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Standard output; with a terminal all that it shows.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Standard error; `None`: it has a terminal.
    pub errors: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Of its terminal: the newest counts.
    pub size: watch::Sender<WindowSize>,
    /// Its exit code, 128 and the number of a signal that ended it. Errors: how it ended is not known.
    pub end: BoxFuture<'static, Result<u8, DriverError>>,
    /// What ends it when it is dropped.
    pub hold: Box<dyn Send>,
}

impl fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSession").finish_non_exhaustive()
    }
}

/// The reports of one driver, in order.
pub trait Fingerprints: Send {
    /// The first one soon, then one with each change; `None`: there will be no more. A dropped call loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>>;
}

/// What is left of an attempt that no record names.
#[derive(Debug, Clone)]
pub struct Left {
    /// Enough for [`Driver::recover`].
    pub handle: TaskHandle,
    /// Something of it runs.
    pub lives: bool,
}

pub enum Recovered {
    /// It runs, or has ended meanwhile: [`Attempt::wait`] tells.
    Attempt(Arc<dyn Attempt>),
    /// It was prepared but nothing was ever started: starting is safe.
    NeverStarted,
}

/// One attempt, running or ended.
pub trait Attempt: Send + Sync {
    /// At once: nothing is asked for it.
    fn handle(&self) -> TaskHandle;
    /// Absent where nothing can be read. At once.
    fn reader(&self) -> Option<Arc<TaskReader>>;
    /// Returns when the whole process tree is gone and the last reading is safe. May be awaited again and again.
    fn wait(&self) -> BoxFuture<'_, AttemptEnd>;
    /// Sends a signal to the main process: `SIGINT`, `SIGHUP` ...
    fn signal(&self, name: &str) -> BoxFuture<'_, Result<(), DriverError>>;
    /// Ends every process of the task by force; `wait` tells when it is done. Repeating it does no harm.
    fn kill(&self) -> BoxFuture<'_, Result<(), DriverError>>;
    /// Runs a program beside it: as its user, in its cgroup and its namespaces, with its environment. Ends the program when `timeout` is
    /// over.
    fn exec(&self, _command: &[String], _timeout: Duration) -> BoxFuture<'_, Result<ExecEnd, DriverError>> {
        let message = "its driver runs no scripts in a task".to_owned();
        Box::pin(async { Err(DriverError::Failed { message }) })
    }
    /// Runs a command beside it for a user, as [`Attempt::exec`] does; returns when it runs.
    ///
    /// Errors: nothing of it runs.
    fn attach(&self, _request: ExecRequest) -> BoxFuture<'_, Result<ExecSession, DriverError>> {
        let message = "its driver runs no commands in a task".to_owned();
        Box::pin(async { Err(DriverError::Failed { message }) })
    }
    /// After the exit is durable: removes the cgroup and the run directory. Repeating it does no harm.
    ///
    /// Errors: `StillRunning`, then nothing was removed.
    fn destroy(&self) -> BoxFuture<'_, Result<(), DriverError>>;
}
