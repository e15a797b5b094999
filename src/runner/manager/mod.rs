//! The set of allocs: submits jobs, stops, signals and removes allocs. Requests come through [`Handle`] only.

mod admit;
mod allocs;
mod data_source;
mod exec;
mod fingerprints;
mod found;
mod gc;
mod known_updates;
mod launches;
mod layout;
mod ledger;
mod orphans;
mod owner;
mod parents;
mod placing;
mod ports;
mod registry;
mod replace;
mod requests;
mod restore;
mod updates;
mod watchers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::allocs::Allocs;
pub use self::data_source::DataRefusal;
pub use self::exec::ExecNote;
use self::found::RecoveryFindings;
pub use self::found::{Fate, Orphan, Stray, Watchers};
pub use self::gc::{GcResult, GcScope};
use self::known_updates::Updates;
pub use self::launches::LaunchedChild;
use self::ledger::Ledger;
use self::owner::UnownedAlloc;
pub use self::parents::{LaunchingJob, StoppedJob};
pub use self::placing::UnplacedAllocs;
pub use self::ports::AwaitedPort;
use self::registry::ParentJobs;
pub use self::requests::RestartTarget;
#[cfg(test)]
pub use self::restore::PATIENCE;
pub use self::restore::RestoreError;
use super::alloc::Alloc;
use super::context::{Drivers, RunnerContext};
use super::drivers::DriverError;
use super::hooks::Hooks;
use crate::board::Board;
use crate::board::events::EventLog;
use crate::jobspec::gotemplate::GoTemplate;
use crate::jobspec::templates;
use crate::model::alloc::Desired;
use crate::model::env::Env;
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::job::{Job, Task};
use crate::model::launching::DispatchRefusal;
use crate::model::migration::MigrationSource;
use crate::model::task::TaskState;
use crate::model::template::TaskTemplate;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::{Batch, StoreError};
use crate::telemetry::lock;

/// How long owners of ended allocs may clean up when the agent stops.
const CLEANUP: std::time::Duration = std::time::Duration::from_secs(2);

/// Why a request was refused. It had no effect.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunnerError {
    #[error("task {task:?}: there is no driver {driver:?}; this agent has {}", known.join(", "))]
    UnknownDriver { task: TaskName, driver: String, known: Vec<String> },
    #[error(
        "task {task:?}: line {line}, column {column} of the template for {destination:?} calls {function}, and this \
         agent has no key tree: set template.key_dir"
    )]
    NoKeyTree { task: TaskName, destination: String, function: String, line: usize, column: usize },
    #[error("task {task:?}: {field}: {message}")]
    DriverConfig { task: TaskName, field: String, message: String },
    #[error("{what} {name:?} {problem}")]
    Name { what: &'static str, name: String, problem: &'static str },
    #[error(
        "job {job:?} runs already, unchanged, as {}; stop it first or change it",
        ids.iter().map(AllocId::short).collect::<Vec<_>>().join(", ")
    )]
    Unchanged { job: JobId, ids: Vec<AllocId> },
    #[error("job {job:?} {problem}")]
    JobKind { job: JobId, problem: &'static str },
    #[error("no job {job:?}{}", near.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    UnknownJob { job: String, near: Option<String> },
    #[error("job {job:?} is neither periodic nor parameterized")]
    NotLaunching { job: JobId },
    #[error("job {job:?} is not dispatched: {refusal}")]
    Dispatch { job: JobId, refusal: DispatchRefusal },
    #[error("cannot migrate from {source_name}: {problem}")]
    Migration { source_name: String, problem: String },
    #[error("there is no alloc {0}")]
    UnknownAlloc(AllocId),
    #[error(
        "alloc {alloc} has no task {task:?}; it has {}",
        known.iter().map(TaskName::as_str).collect::<Vec<_>>().join(", ")
    )]
    UnknownTask { alloc: AllocId, task: String, known: Vec<TaskName> },
    #[error("task {task:?} is not running ({})", state.as_str())]
    NotRunning { task: TaskName, state: TaskState },
    /// It is unknown whether it runs.
    #[error("task {task:?} is still being recovered after a restart of the agent: it is unknown whether it runs")]
    InRecovery { task: TaskName },
    #[error("no task of alloc {0} is running")]
    NothingRunning(AllocId),
    #[error("there is no signal {name:?}{}", near.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    UnknownSignal { name: String, near: Option<&'static str> },
    /// It is not started any more.
    #[error("alloc {} {why}: it is not restarted; submit its job instead", alloc.short())]
    Final { alloc: AllocId, why: &'static str },
    #[error("task {task:?} was abandoned and may still run: it is not started a second time")]
    MayStillRun { task: TaskName },
    #[error("task {task:?} cannot be signalled: {message}")]
    Signal { task: TaskName, message: String },
    #[error("cannot run the command in task {task:?}: {message}")]
    Exec { task: TaskName, message: String },
    /// The disk is full or gone: a job without a record would be orphaned by the next restart.
    #[error("the state database refuses writes, so no job is accepted; free space on the disk of the data directory")]
    StateDb(#[source] StoreError),
    #[error("the agent is shutting down")]
    ShuttingDown,
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitReply {
    /// The new allocs, in the order of groups and indices.
    pub allocs: Vec<AllocId>,
    /// Allocs of the job's earlier version: their stop was requested; the new ones start when they have ended.
    pub replaced: Vec<AllocId>,
}

/// Whether `stop` returns at once or when everything has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    No,
    UntilEnded,
}

/// Concurrency: cheap to clone; every method may be called from any task.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Manager>);

pub(super) struct Manager {
    pub ctx: Arc<RunnerContext>,
    pub hooks: Arc<Hooks>,
    pub allocs: Allocs,
    /// Serializes submissions and collections: each reads all allocs and then changes the set.
    pub ledger: tokio::sync::Mutex<Ledger>,
    pub tidy: Notify,
    pub closed: AtomicBool,
    /// Periodic and parameterized jobs.
    pub parents: ParentJobs,
    updates: Updates,
    pub tidier: Mutex<Option<AbortHandle>>,
    pub found: RecoveryFindings,
}

impl Handle {
    pub fn board(&self) -> &Arc<Board> {
        &self.0.ctx.board
    }
    pub fn events(&self) -> &Arc<EventLog> {
        &self.0.ctx.events
    }
    pub fn drivers(&self) -> &Drivers {
        &self.0.ctx.drivers
    }

    /// What tasks inherit of the agent's environment.
    pub fn inherited(&self) -> &Env {
        &self.0.ctx.inherited
    }

    /// Records that could not be read and were quarantined, at this start or an earlier one: for users.
    pub fn quarantined(&self) -> &[String] {
        &self.0.found.quarantined
    }

    /// The hooks of allocs and of tasks, in the order of their setup.
    pub fn hooks(&self) -> [(&'static str, Vec<&'static str>); 2] {
        let hooks = &self.0.hooks;
        [("alloc", hooks.alloc.order()), ("task", hooks.task.order())]
    }

    /// What [`Handle::submit`] would refuse of the job itself; has no effect.
    pub fn check(&self, job: &Job) -> Result<(), RunnerError> {
        self.0.check(job)
    }

    /// Takes a job on. No live alloc of it: new allocs. Live ones and an unchanged job: refused. A changed one: they
    /// are stopped and replaced, with an `update` some at a time. The new allocs are durable and on the board when it
    /// returns.
    ///
    /// Errors: the job is refused as a whole; nothing was made.
    pub async fn submit(&self, job: Job) -> Result<SubmitReply, RunnerError> {
        self.0.submit(job, None).await
    }
    /// The same, with the data of an alloc of another agent.
    pub async fn submit_migrating(&self, job: Job, source: MigrationSource) -> Result<SubmitReply, RunnerError> {
        self.0.submit(job, Some(source)).await
    }

    /// Whether [`Handle::submit_migrating`] would refuse the migration.
    pub fn check_migration(&self, job: &Job, source: &MigrationSource) -> Result<(), RunnerError> {
        self.0.check_migration(job, source, &self.0.allocs.live(|alloc| alloc.job.id == job.id))
    }

    /// Requests that all tasks of an alloc end; a failed alloc is not rescheduled any more. Idempotent. The stop always
    /// takes effect. Returns why it is not recorded: an agent that dies before the end would forget it.
    pub async fn stop(&self, id: &AllocId, wait: Wait) -> Result<Option<StoreError>, RunnerError> {
        let alloc = self.0.alloc(id)?;
        Ok(self.0.stop(&[alloc], wait).await)
    }

    /// Stops every live alloc; returns their IDs.
    pub async fn stop_all(&self, wait: Wait) -> Vec<AllocId> {
        let mut live = self.0.allocs.live(|_| true);
        live.extend(self.0.allocs.all().into_iter().filter(|alloc| alloc.awaits_replacement()));
        self.0.stop(&live, wait).await;
        live.iter().map(|a| a.id.clone()).collect()
    }

    /// The exporters have delivered the final series of these ended allocs: they may be removed. Idempotent.
    pub fn collectable(&self, ids: impl IntoIterator<Item = AllocId>) {
        if self.0.allocs.delivered(ids) {
            self.0.collect_if_many();
        }
    }

    /// Detaches: every task keeps running and is recovered by the next agent. Blocks until queued records are written.
    pub fn shutdown(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        if let Some(tidier) = lock(&self.0.tidier).take() {
            tidier.abort();
        }
        self.wait_for_cleanup();
        self.0.allocs.detach();
        self.0.ctx.detach();
        self.0.ctx.journal.close();
    }

    /// Owners whose tasks are dead only clean up cgroups and directories, which would otherwise stay until the next
    /// start. Gives them a moment for it.
    fn wait_for_cleanup(&self) {
        let until = std::time::Instant::now() + CLEANUP;
        while self.0.allocs.cleans_up() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// Errors: the first function that reads a key. What a template of a `source` calls is not known before it is rendered.
fn needs_no_keys(task: &Task, template: &TaskTemplate) -> Result<(), RunnerError> {
    let parsed = template.data.as_ref().and_then(|data| GoTemplate::parse(data, &templates::options(template)).ok());
    let Some((function, line, column)) = parsed.as_ref().and_then(|parsed| parsed.key_function()) else {
        return Ok(());
    };
    let (task, function) = (task.name.clone(), function.to_owned());
    Err(RunnerError::NoKeyTree { task, destination: template.destination.clone(), function, line, column })
}

impl Manager {
    /// Held while all allocs are read and the set is changed.
    pub async fn ledger(&self) -> tokio::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().ends_with(Ends::Permit).await
    }

    pub fn alloc(&self, id: &AllocId) -> Result<Arc<Alloc>, RunnerError> {
        self.allocs.get(id).ok_or_else(|| RunnerError::UnknownAlloc(id.clone()))
    }

    fn check(&self, job: &Job) -> Result<(), RunnerError> {
        for group in &job.groups {
            for task in &group.tasks {
                check_name("task", task.name.as_str())?;
                let Some(driver) = self.ctx.drivers.get(task.driver.as_str()) else {
                    return Err(RunnerError::UnknownDriver {
                        task: task.name.clone(),
                        driver: task.driver.clone(),
                        known: self.ctx.drivers.keys().map(|name| (*name).to_owned()).collect(),
                    });
                };
                driver.check(task).map_err(|error| {
                    use DriverError::{Config, Failed, Limit, Start, StillRunning, Wanting};
                    let (field, message) = match error {
                        Config(problems) => {
                            let field = problems.first().map(|problem| problem.field.clone()).unwrap_or_default();
                            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
                            let all = all.join("; ");
                            let message = all.strip_prefix(&format!("{field}: ")).unwrap_or(&all).to_owned();
                            (field, message)
                        }
                        Limit { field, message } => (field.to_owned(), message),
                        other @ (Start { .. } | Failed { .. } | Wanting { .. } | StillRunning) => {
                            ("config".to_owned(), other.to_string())
                        }
                    };
                    RunnerError::DriverConfig { task: task.name.clone(), field, message }
                })?;
                if self.ctx.config.template.key_dir.is_none() {
                    task.templates.iter().try_for_each(|template| needs_no_keys(task, template))?;
                }
            }
        }
        Ok(())
    }

    async fn submit(
        self: &Arc<Self>,
        job: Job,
        migrate_from: Option<MigrationSource>,
    ) -> Result<SubmitReply, RunnerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        self.check(&job)?;
        let mut ledger = self.ledger().await;
        let live = self.allocs.live(|a| a.job.id == job.id);
        self.check_kind(&job, &live)?;
        migrate_from.iter().try_for_each(|source| self.check_migration(&job, source, &live))?;
        if job.is_parent() {
            return self.register(&ledger, job).await;
        }
        self.admit(&mut ledger, (job, migrate_from), Batch::default()).await
    }

    /// Adds an alloc that is shown already, and spawns its owner.
    pub fn enter(self: &Arc<Self>, created: UnownedAlloc) {
        let alloc = Arc::clone(created.alloc());
        let predecessors = alloc.waits_for().iter().filter_map(|id| self.allocs.get(id)).map(|a| a.ended()).collect();
        let manager = Arc::clone(self);
        self.allocs.own(&alloc, async move {
            let ended = created.run(predecessors).until_ended().await;
            manager.allocs.undelivered(&ended.alloc().id);
            let alloc = Arc::clone(ended.alloc());
            ended.clear().await;
            manager.ctx.judged.notify_one();
            manager.collect_if_many();
            manager.replace_when_due(&alloc).await;
        });
    }

    /// A stop is built before it is queued: if an alloc ended in between, the stop would overwrite the record of the
    /// end. The caller holds the ledger, so that none of the allocs is collected meanwhile.
    async fn write_ends_again(&self, allocs: &[Arc<Alloc>]) {
        let mut batch = Batch::default();
        for alloc in allocs.iter().filter(|a| a.finished_at().is_some()) {
            alloc.put(&mut batch);
        }
        if !batch.is_empty()
            && let Err(error) = self.ctx.journal.commit(batch).await
        {
            for alloc in allocs.iter().filter(|a| a.finished_at().is_some()) {
                tracing::error!(
                    alloc_id = %alloc.id, %error,
                    "failed to persist the end of an alloc; the next start derives it from its tasks"
                );
            }
        }
    }

    async fn stop(&self, allocs: &[Arc<Alloc>], wait: Wait) -> Option<StoreError> {
        self.cancel_updates(allocs).await;
        let unsaved = self.cancel_replacements(allocs).await;
        let live: Vec<_> = allocs.iter().filter(|a| !a.is_terminal()).collect();
        let mut batch = Batch::default();
        for alloc in &live {
            if alloc.desired() == Desired::Run {
                alloc.request_stop();
            }
            // Includes allocs with an earlier request, whose write may have failed; a repeated write costs little.
            alloc.put(&mut batch);
        }
        let saved = if batch.is_empty() { Ok(()) } else { self.ctx.journal.commit(batch).await };
        if let Err(error) = &saved {
            // A stop must work with a full disk too: it may free space.
            for alloc in &live {
                tracing::error!(
                    alloc_id = %alloc.id, %error,
                    "failed to persist a stop; a restart of the agent before the end would forget it"
                );
            }
        }
        if live.iter().any(|a| a.finished_at().is_some()) {
            // Collections wait meanwhile: what they remove must not be written again.
            let _ledger = self.ledger().await;
            let known: Vec<_> = live.iter().filter(|a| self.allocs.get(&a.id).is_some()).copied().cloned().collect();
            self.write_ends_again(&known).await;
        }
        live.iter().for_each(|a| a.apply_stop());
        if wait == Wait::UntilEnded {
            for alloc in allocs {
                // An error: it has been collected.
                let _ = alloc.ended().wait_for(|ended| *ended).ends_with(Ends::Sender).await;
            }
        }
        saved.err().or(unsaved)
    }
}

/// Task names become names of directories and cgroups.
fn check_name(what: &'static str, name: &str) -> Result<(), RunnerError> {
    let problem = match name {
        "" => "is empty",
        "." | ".." => "is no name for a directory",
        // `<alloc id>/alloc` is shared by its tasks.
        "alloc" => "is the name of the directory that the tasks share; choose another",
        _ if name.len() > 128 => "is longer than 128 bytes",
        _ if name.contains(['/', '\0', '\n']) => "contains a character that no directory may have",
        // Files of the kernel are next to child cgroups.
        _ if name.contains('.') && KERNEL_FILES.iter().any(|p| name.starts_with(p)) => "is the name of a kernel file",
        _ => return Ok(()),
    };
    Err(RunnerError::Name { what, name: name.to_owned(), problem })
}

const KERNEL_FILES: [&str; 12] = [
    "cgroup.", "cpu.", "cpuacct.", "cpuset.", "memory.", "devices.", "freezer.", "blkio.", "pids.", "io.", "hugetlb.",
    "rdma.",
];
