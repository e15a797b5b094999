//! Shared by all attempts of one driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::work::ProgramConfig;
use crate::collectors::{SamplingContext, TaskReader};
use crate::host::clock::Clock;
use crate::host::process;
use crate::model::id::{BootId, ProcessId};
use crate::model::job::Task;
use crate::model::task::TaskHandle;
use crate::runner::drivers::pool::SupervisorPool;
use crate::runner::drivers::{DriverContext, DriverError, Fingerprint, SeenDirs, StartRequest, UnenforcedField};
use crate::supervisor::orders::Orders;

/// A supervisor without a report for this long will never report: a file system hangs, or the host swaps.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// The part of one driver, in addition to what all of this kind do.
pub trait ProcessDriver: Send + Sync {
    fn name(&self) -> &'static str;
    /// As [`Driver::joins_namespaces`](super::Driver::joins_namespaces).
    fn joins_namespaces(&self) -> bool {
        false
    }
    /// The user of a task whose job names none. `None`: the agent's.
    fn default_user(&self) -> Option<&'static str> {
        None
    }
    /// The directories as a task in its own root sees them. `None`: as on the host.
    fn seen(&self) -> Option<SeenDirs> {
        None
    }
    /// Whether these are orders of this driver.
    fn is_of(&self, orders: &Orders) -> bool;
    /// The common fields of a task's `config`. Pure. Errors: everything invalid in it, own fields included.
    fn work(&self, task: &Task) -> Result<ProgramConfig, DriverError>;
    /// Own fields of a checked task without effect.
    fn unenforced(&self, _task: &Task) -> Vec<UnenforcedField> {
        Vec::new()
    }
    /// Its fingerprint on this host, as long as supervisors can be watched.
    fn fingerprint(&self, shared: &SupervisionContext) -> Fingerprint;
    /// Adds this driver's part to orders that would start a process like the agent's own. Blocks as long as a disk
    /// does.
    fn complete(&self, _request: &StartRequest, _orders: &mut Orders) -> Result<(), DriverError> {
        Ok(())
    }
}

/// Shared by the attempts of one driver.
pub struct SupervisionContext {
    pub kind: Box<dyn ProcessDriver>,
    pub pool: Arc<SupervisorPool>,
    pub sampling: Arc<SamplingContext>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    /// The soft limit on descriptors that tasks get.
    pub descriptors: Option<u64>,
    /// Why tasks here have no cgroup of their own.
    pub no_cgroups: Option<String>,
}

impl SupervisionContext {
    pub fn new(context: &DriverContext, kind: Box<dyn ProcessDriver>) -> SupervisionContext {
        SupervisionContext {
            kind,
            pool: Arc::clone(&context.supervisors),
            sampling: Arc::clone(&context.sampling),
            clock: Arc::clone(&context.clock),
            boot_id: context.boot_id.clone(),
            descriptors: context.descriptors,
            no_cgroups: context.no_cgroups.clone(),
        }
    }

    pub fn reader(&self, handle: &TaskHandle, supervisor: ProcessId, found: bool) -> Arc<TaskReader> {
        Arc::new(match &handle.cgroup {
            Some(cgroup) if found => TaskReader::for_cgroup(&self.sampling, cgroup.clone()).preexisting(),
            Some(cgroup) => TaskReader::for_cgroup(&self.sampling, cgroup.clone()),
            None => TaskReader::for_processes(&self.sampling, supervisor),
        })
    }
}

pub fn failed(message: impl Into<String>) -> DriverError {
    DriverError::Failed { message: message.into() }
}

/// An error of an operation, or a lack of resources that says nothing about the task.
pub fn cannot(what: impl std::fmt::Display, error: &io::Error) -> DriverError {
    let message = format!("{what}: {error}");
    if process::is_resource_shortage(error) { DriverError::Wanting { message } } else { failed(message) }
}

/// A descriptor registered with the runtime for readability. Concurrency: within the runtime.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // Its replacement is unsafe, because other types may close their descriptor early; an `OwnedFd` cannot.
    #[allow(deprecated)]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Runs blocking work on a thread for that.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, DriverError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| failed(format!("an internal error: {e}")))
}

/// Checks that descriptors are available: without them, failed reads would say nothing about the task.
pub fn room() -> Result<(), DriverError> {
    const NEEDED: usize = 6;
    let taken: std::io::Result<Vec<_>> = (0..NEEDED).map(|_| std::fs::File::open("/dev/null")).collect();
    taken.map(drop).map_err(|e| cannot("no descriptors are left", &e))
}
