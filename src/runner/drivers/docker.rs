//! Runs containers in a Docker engine, over its API. The agent requests the image and the container, follows the log
//! and the end, and reads usage from its own cgroup above the container's.
//!
//! ```text
//! agent                                        engine
//! image: found, pulled or loaded ------------> stores it
//! own cgroup created; container created -----> container below that cgroup, labels name the attempt
//! started ------------------------------------> runs
//! log followed, written to rotated files <---- stores the log: a later agent reads what an earlier one missed
//! end observed <------------------------------ exit code, OOMKilled
//! last sample of the own cgroup; end durable
//! destroy: container, cgroup, run directory --> removed
//! ```
//! There is no process per task: the engine outlives the agent, with container, log and exit code, until they are
//! recorded. If the engine is down, no task is lost: requests are retried until it responds.

mod attach;
mod attempt;
mod auth;
mod begin;
mod config;
mod create;
mod credential_helper;
mod engine;
mod etc;
mod exec;
#[cfg(test)]
mod fake;
mod forms;
mod health;
mod images;
mod logs;
mod mounts;
mod network;
mod pause;
mod pause_image;
mod place;
mod recover;
mod settings;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::config::{Config, MountKind};
use self::network::NetworkChoice;
use self::settings::NAME;
use self::shared::{ContainerRecord, DockerContext, KILL_SIGNAL};
use super::{
    Attempt, BoxFuture, Driver, DriverContext, DriverEntry, DriverError, EventSink, Fingerprints, RecoveryOutcome,
    SeenDirs, StartRequest, UnenforcedField, UnrecordedAttempt,
};
use crate::model::id::AllocId;
use crate::model::job::Task;
use crate::model::task::TaskHandle;
use crate::runner::persistence::datadir::{AttemptDirs, TaskDirs};
use crate::supervisor::orders::LogOrders;
use crate::telemetry::lock;

pub static ENTRY: DriverEntry = DriverEntry {
    name: NAME,
    settings: settings::SETTINGS,
    check: |task| Config::of(task).map(drop),
    build: |context| Arc::new(DockerDriver::new(context)),
};

/// Maximum length of an engine's names. Source: moby, `RestrictedNamePattern`; limit of file systems.
const LONGEST_NAME: usize = 200;

pub struct DockerDriver {
    shared: Arc<DockerContext>,
}

impl DockerDriver {
    pub fn new(context: &DriverContext) -> DockerDriver {
        DockerDriver { shared: Arc::new(DockerContext::new(context)) }
    }
}

/// Nomad's name, `<task>-<alloc>`, with characters that an engine accepts.
fn container_name(request: &StartRequest) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    let task: String = request.task.name.as_str().chars().map(allowed).take(LONGEST_NAME).collect();
    let name = format!("{task}-{}", request.alloc_id);
    // The first character is a letter or a digit.
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) { name } else { format!("0{name}") }
}

impl Driver for DockerDriver {
    fn name(&self) -> &'static str {
        NAME
    }
    fn check(&self, task: &Task) -> Result<(), DriverError> {
        Config::of(task).map(drop)
    }
    /// What this agent's settings will refuse at the start.
    fn unenforced(&self, task: &Task) -> Vec<UnenforcedField> {
        let Ok(config) = Config::of(task) else { return Vec::new() };
        let settings = &self.shared.settings;
        let mut all = Vec::new();
        let mut emit = |field, why: &str| all.push(UnenforcedField { field, why: why.to_owned() });
        if config.privileged && !settings.allow_privileged {
            emit("config.privileged", "the start will fail: docker.allow_privileged of this agent is false");
        }
        if !settings.volumes_enabled {
            const WHY: &str = "the start will fail: docker.volumes_enabled of this agent is false";
            if config.volumes.iter().any(|volume| volume.source.starts_with('/')) || config.volume_driver.is_some() {
                emit("config.volumes", WHY);
            }
            let is_outside = |kind: &MountKind| match kind {
                MountKind::Bind { source, .. } => source.starts_with('/'),
                MountKind::Volume { .. } => true,
                MountKind::Tmpfs { .. } => false,
            };
            if config.mounts.iter().any(|mount| is_outside(&mount.kind)) {
                emit("config.mount", WHY);
            }
        }
        all
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn leave_network<'a>(&'a self, alloc: &'a AllocId) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(pause::leave(&self.shared, alloc))
    }
    fn has_image(&self) -> bool {
        true
    }
    fn mounts_volumes(&self) -> bool {
        true
    }
    fn start_takes(&self, task: &Task) -> Duration {
        Config::of(task).map(|config| config.pull_timeout).unwrap_or_default()
    }
    fn kill_signal(&self) -> &'static str {
        KILL_SIGNAL
    }
    fn fingerprint(&self) -> Box<dyn Fingerprints> {
        health::DockerFingerprints::begin(&self.shared)
    }
    fn seen(&self, _: &TaskDirs) -> SeenDirs {
        mounts::seen()
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        let config = Config::of(&request.task)?;
        self.shared.seen(&request.dirs.run);
        let parent = begin::parent_of(&self.shared, request, lock(&self.shared.info).as_ref());
        let mut handle = request.handle(NAME, &self.shared.boot_id, parent.map(|parent| parent.path));
        let logs = &request.task.logs;
        let record = ContainerRecord {
            name: container_name(request),
            tty: config.tty,
            logs: (!logs.disabled).then(|| LogOrders {
                directory: request.dirs.logs.clone(),
                task: request.task.name.as_str().to_owned(),
                max_files: logs.max_files,
                max_file_bytes: logs.max_file_bytes,
            }),
            default_signal: request.task.kill_signal.is_none(),
            network: NetworkChoice::of(&config, &request.ports),
            ..ContainerRecord::default()
        };
        record.put(&mut handle);
        Ok(handle)
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        Box::pin(async move {
            let attempt = begin::start(&self.shared, request, handle).await?;
            Ok(Arc::new(attempt) as Arc<dyn Attempt>)
        })
    }
    fn recover(&self, handle: TaskHandle, events: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>> {
        Box::pin(async move { recover::recover(&self.shared, handle, &events).await })
    }
    fn left(&self, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
        recover::left(&self.shared, place)
    }
    fn alive_below(&self, top: &Path) -> io::Result<Vec<PathBuf>> {
        recover::alive_below(&self.shared, top)
    }
}
