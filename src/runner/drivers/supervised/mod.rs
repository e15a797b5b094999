//! Shared by the drivers whose tasks are processes of this host, each under its own supervisor. Such a driver consists
//! of its name, its `config`, its fingerprint, and its additions to the orders of the supervisor.
//!
//! The agent's part is short: it creates cgroup, record and orders, spawns the supervisor, and waits for its pidfd.
//! Whatever happens to the agent, the record has the end of the attempt.

mod attach;
mod attempt;
mod begin;
mod health;
mod leftovers;
mod limits;
mod recover;
mod shared;
mod ulimit;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use self::attempt::SupervisedAttempt;
use self::shared::{START_PATIENCE, blocking, failed};
use super::{
    Attempt, BoxFuture, Driver, DriverContext, DriverError, EventSink, Fingerprints, RecoveryOutcome, SeenDirs,
    StartRequest, UnenforcedField, UnrecordedAttempt,
};
use crate::model::job::Task;
use crate::model::task::TaskHandle;
use crate::runner::persistence::datadir::{AttemptDirs, TaskDirs};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::supervisor;

pub use self::attempt::end_session;
pub use self::shared::{ProcessDriver, SupervisionContext};
pub use self::work::ProgramConfig;

/// A record that is still damaged after this time is not just being written.
const TORN: Duration = Duration::from_millis(500);
/// Inspection that has not begun after this time has no thread or no permit: others hang.
const THREAD_PATIENCE: Duration = Duration::from_secs(20);

pub struct SupervisedDriver {
    shared: Arc<SupervisionContext>,
}

impl SupervisedDriver {
    pub fn new(context: &DriverContext, kind: impl ProcessDriver + 'static) -> SupervisedDriver {
        SupervisedDriver { shared: Arc::new(SupervisionContext::new(context, Box::new(kind))) }
    }

    async fn start_attempt(&self, request: StartRequest, handle: TaskHandle) -> Result<Arc<dyn Attempt>, DriverError> {
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&self.shared.pool.starts)
            .acquire_owned()
            .ends_with(Ends::Permit)
            .await
            .map_err(|e| failed(e.to_string()))?;
        let started = blocking(move || {
            let _permit = permit;
            begin::begin(&shared, &request, handle)
        })
        .await??;
        Ok(Arc::new(started.started(&self.shared).await?))
    }

    /// Inspects an attempt once, on a thread.
    async fn inspect(&self, handle: TaskHandle) -> Result<recover::SupervisorState, DriverError> {
        const WAITS: u8 = 0;
        const STARTED: u8 = 1;
        const CALLED_OFF: u8 = 2;
        let turn = Arc::new(AtomicU8::new(WAITS));
        let take = |turn: &AtomicU8, to| turn.compare_exchange(WAITS, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let (shared, places, own) =
            (Arc::clone(&self.shared), Arc::clone(&self.shared.pool.recoveries), Arc::clone(&turn));
        let no_thread = || DriverError::Wanting { message: "no thread is left to inspect it".to_owned() };
        let inspection = async move {
            let place = places.acquire_owned().ends_with(Ends::Permit).await.map_err(|e| failed(e.to_string()))?;
            blocking(move || {
                let _place = place;
                if take(&own, STARTED) { recover::inspect(&shared, handle) } else { Err(no_thread()) }
            })
            .await?
        };
        tokio::pin!(inspection);
        match tokio::time::timeout(THREAD_PATIENCE, &mut inspection).await {
            Ok(found) => found,
            Err(_) if take(&turn, CALLED_OFF) => Err(no_thread()),
            Err(_) => inspection.ends_with(Ends::Deadline).await,
        }
    }

    async fn recover_attempt(&self, handle: TaskHandle) -> Result<RecoveryOutcome, DriverError> {
        let started = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(2);
        let why = loop {
            let mut patience = START_PATIENCE;
            // Errors may be transient (a disk): a live task is not lost for one of them.
            let why = match self.inspect(handle.clone()).await {
                Ok(recover::SupervisorState::NeverStarted) => return Ok(RecoveryOutcome::NeverStarted),
                Ok(recover::SupervisorState::Ended(attempt)) => {
                    return Ok(RecoveryOutcome::Attempt(Arc::from(attempt as Box<dyn Attempt>)));
                }
                Ok(recover::SupervisorState::Alive(running)) => {
                    match SupervisedAttempt::running(Arc::clone(&self.shared), *running) {
                        Ok(attempt) => return Ok(RecoveryOutcome::Attempt(Arc::new(attempt))),
                        Err(wanting @ DriverError::Wanting { .. }) => return Err(wanting),
                        Err(error) => error.to_string(),
                    }
                }
                Ok(recover::SupervisorState::NotSureYet) => {
                    let record = handle.run_dir.join(crate::supervisor::record::FILE);
                    format!("an unknown process holds the lock of {}", record.display())
                }
                Ok(recover::SupervisorState::AnothersTask(place)) => {
                    let place = place.display();
                    return Err(failed(format!(
                        "its record is a copy of the one in {place}, which belongs to another agent"
                    )));
                }
                Ok(recover::SupervisorState::Damaged(why)) => {
                    patience = TORN;
                    why
                }
                // No result: the caller retries.
                Err(wanting @ DriverError::Wanting { .. }) => return Err(wanting),
                Err(error) => error.to_string(),
            };
            if started.elapsed() >= patience {
                break why;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        };
        let shared = Arc::clone(&self.shared);
        let lost = blocking(move || recover::abandon(&shared, handle, why)).await??;
        Ok(RecoveryOutcome::Attempt(Arc::new(lost)))
    }
}

impl Driver for SupervisedDriver {
    fn name(&self) -> &'static str {
        self.shared.kind.name()
    }
    fn check(&self, task: &Task) -> Result<(), DriverError> {
        let work = self.shared.kind.work(task)?;
        match &self.shared.no_cgroups {
            // Reported as a warning: `unenforced`.
            Some(_) => Ok(()),
            None => work.limits.lacks_controller(task, &self.shared.sampling.layout),
        }
    }
    fn fingerprint(&self) -> Box<dyn Fingerprints> {
        health::SupervisedFingerprints::begin(&self.shared)
    }
    fn joins_namespaces(&self) -> bool {
        self.shared.kind.joins_namespaces()
    }
    fn default_user(&self) -> Option<&'static str> {
        self.shared.kind.default_user()
    }
    fn has_own_root(&self) -> bool {
        self.shared.kind.seen().is_some()
    }
    /// Without a root of its own, volumes would be visible for everything on the host.
    fn mounts_volumes(&self) -> bool {
        self.has_own_root()
    }
    fn seen(&self, dirs: &TaskDirs) -> SeenDirs {
        self.shared.kind.seen().unwrap_or_else(|| SeenDirs::on_host(dirs))
    }
    fn unenforced(&self, task: &Task) -> Vec<UnenforcedField> {
        let mut all = self.shared.kind.unenforced(task);
        let (Some(why), Ok(work)) = (&self.shared.no_cgroups, self.shared.kind.work(task)) else { return all };
        let limits = work.limits.limits_needing_cgroup(task).into_iter();
        all.extend(limits.map(|field| UnenforcedField { field, why: format!("this agent has no cgroups: {why}") }));
        all
    }
    fn prepare(&self, request: &StartRequest) -> Result<TaskHandle, DriverError> {
        self.shared.kind.work(&request.task)?;
        let cgroup = request.alloc_cgroup.as_ref().map(|alloc| alloc.child(request.task.name.as_str()));
        Ok(request.handle(self.shared.kind.name(), &self.shared.boot_id, cgroup))
    }
    fn start(&self, request: StartRequest, handle: TaskHandle) -> BoxFuture<'_, Result<Arc<dyn Attempt>, DriverError>> {
        Box::pin(self.start_attempt(request, handle))
    }
    fn recover(&self, handle: TaskHandle, _: EventSink) -> BoxFuture<'_, Result<RecoveryOutcome, DriverError>> {
        Box::pin(self.recover_attempt(handle))
    }
    fn left(&self, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
        leftovers::left(&self.shared, place)
    }
    fn alive_below(&self, top: &Path) -> io::Result<Vec<PathBuf>> {
        supervisor::all_below(top)
    }
}
