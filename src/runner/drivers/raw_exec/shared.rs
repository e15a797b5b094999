//! What all attempts of this driver share.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::collectors::{Sampling, TaskReader};
use crate::host::clock::Clock;
use crate::host::process;
use crate::model::id::{BootId, ProcessId};
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverContext, DriverError};
use crate::runner::places::Places;
use crate::supervisor::Spawner;

pub const NAME: &str = "raw_exec";
/// A supervisor that has said nothing for so long never will: a file system that hangs, a host that swaps.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// Kills and removals at once, of each.
const AT_ONCE: usize = 4;

pub struct Shared {
    pub sampling: Arc<Sampling>,
    pub clock: Arc<dyn Clock>,
    pub boot_id: BootId,
    pub spawner: Spawner,
    /// The soft limit on descriptors that tasks get.
    pub descriptors: Option<u64>,
    /// Why tasks here have no cgroup of their own.
    pub no_cgroups: Option<String>,
    /// Kills by force and removals block, for microseconds or for a while: few at once, so that they make no crowd of threads, and
    /// neither keeps the other waiting.
    pub kills: Places,
    pub removals: Places,
    /// A descriptor for each supervisor that is watched: what is left of the limit when everything else has its own.
    pub watches: Arc<Semaphore>,
    /// Told when the last of them is taken.
    pub full: Notify,
}

impl Shared {
    pub fn new(context: &DriverContext) -> Shared {
        Shared {
            sampling: Arc::clone(&context.sampling),
            clock: Arc::clone(&context.clock),
            boot_id: context.boot_id.clone(),
            spawner: Spawner::new(context.supervisor.clone(), context.supervisors.clone()),
            descriptors: context.descriptors,
            no_cgroups: context.no_cgroups.clone(),
            kills: Places::new(AT_ONCE),
            removals: Places::new(AT_ONCE),
            watches: Arc::new(Semaphore::new(context.watches)),
            full: Notify::new(),
        }
    }

    /// A place for one supervisor more. `None`: no descriptor is left for it.
    pub fn watch(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.watches).try_acquire_owned().ok();
        if self.watches.available_permits() == 0 {
            self.full.notify_one();
        }
        place
    }

    pub fn reader(&self, handle: &TaskHandle, supervisor: ProcessId, found: bool) -> Arc<TaskReader> {
        Arc::new(match &handle.cgroup {
            Some(cgroup) if found => TaskReader::for_cgroup(&self.sampling, cgroup.clone()).found(),
            Some(cgroup) => TaskReader::for_cgroup(&self.sampling, cgroup.clone()),
            None => TaskReader::for_processes(&self.sampling, supervisor),
        })
    }
}

pub fn failed(message: impl Into<String>) -> DriverError {
    DriverError::Failed { message: message.into() }
}

/// What could not be done, and whether that says anything of the task.
pub fn cannot(what: impl std::fmt::Display, error: &io::Error) -> DriverError {
    let message = format!("{what}: {error}");
    if process::is_want(error) { DriverError::Wanting { message } } else { failed(message) }
}

/// A descriptor to be told about when it becomes readable. Concurrency: within the runtime.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // Its replacement is unsafe, because other types may close their descriptor early; an `OwnedFd` cannot.
    #[allow(deprecated)]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Work that blocks, on a thread for that.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, DriverError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| failed(format!("an internal error: {e}")))
}

/// What is told by failing to read files, or ended by reading who is there, needs descriptors that are really there.
pub fn room() -> Result<(), DriverError> {
    const NEEDED: usize = 6;
    let taken: std::io::Result<Vec<_>> = (0..NEEDED).map(|_| std::fs::File::open("/dev/null")).collect();
    taken.map(drop).map_err(|e| cannot("no descriptors are left to look", &e))
}
