//! Resources shared by all drivers with supervisors: the spawner, and limits for concurrent work.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::runner::blocking_pool::BlockingPool;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::supervisor::Spawner;

/// Maximum number of concurrent kills, and of removals.
const AT_ONCE: usize = 4;
/// Maximum number of concurrent programs in tasks.
const MAX_EXECS: usize = 16;
/// A recovery needs three descriptors for a moment, and a thread: maximum number at the same time.
const MAX_RECOVERIES: usize = 8;

pub struct SupervisorPool {
    pub(super) spawner: Spawner,
    /// Kills and removals block for microseconds or longer. Each has its own limit, so that they need few threads and
    /// do not delay each other.
    pub(super) kills: BlockingPool,
    pub(super) removals: BlockingPool,
    /// Programs in tasks: each blocks as long as it runs.
    pub(super) execs: BlockingPool,
    /// Path of this binary.
    pub(super) program: PathBuf,
    /// A start blocks for some milliseconds: more at the same time would only create threads.
    pub(super) starts: Arc<Semaphore>,
    pub(super) recoveries: Arc<Semaphore>,
    /// A descriptor for each watched supervisor: the rest of the limit after all other uses.
    watches: Arc<Semaphore>,
    /// Changes when the last of them is taken.
    full: watch::Sender<()>,
}

impl SupervisorPool {
    /// `program`: the binary that is executed as spawner; `/proc/self/exe` is this one, even if its file was replaced.
    /// `cgroup`: the directory of the cgroup in which supervisors start; `None`: the agent's own. `watches`: maximum
    /// number of watched supervisors, with one descriptor each.
    pub fn new(program: PathBuf, cgroup: Option<PathBuf>, watches: usize) -> Arc<SupervisorPool> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(SupervisorPool {
            spawner: Spawner::new(program.clone(), cgroup),
            program,
            execs: BlockingPool::new(MAX_EXECS),
            kills: BlockingPool::new(AT_ONCE),
            removals: BlockingPool::new(AT_ONCE),
            starts: Arc::new(Semaphore::new(cores * 2 + 2)),
            recoveries: Arc::new(Semaphore::new(MAX_RECOVERIES)),
            watches: Arc::new(Semaphore::new(watches)),
            full: watch::Sender::new(()),
        })
    }

    /// A permit for one more supervisor. `None`: no descriptor is left.
    pub(super) fn watch(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.watches).try_acquire_owned().ok();
        if self.watches.available_permits() == 0 {
            self.full.send_replace(());
        }
        place
    }

    pub(super) fn is_full(&self) -> bool {
        self.watches.available_permits() == 0
    }

    /// Changes when the last permit is taken; it may be free again by then.
    pub(super) fn when_full(&self) -> watch::Receiver<()> {
        self.full.subscribe()
    }

    /// Returns when a permit is free, without taking it.
    pub(super) async fn free(&self) {
        drop(self.watches.acquire().ends_with(Ends::Agent).await);
    }
}
