//! The start of the agent: recovers running tasks, processes those that ended meanwhile, and starts the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::allocs::Allocs;
use super::fingerprints;
use super::found::RecoveryFindings;
use super::known_updates::Updates;
use super::ledger::{self, Ledger};
use super::orphans;
use super::owner::UnownedAlloc;
use super::registry::ParentJobs;
use super::{Handle, Manager};
use crate::board::Board;
use crate::board::events::EventLog;
use crate::board::progress::Marks;
use crate::model::event::Event;
use crate::model::id::{AllocId, JobId};
use crate::model::job::Job;
use crate::model::task::{ExitStatus, TaskHandle, TaskState};
use crate::runner::alloc::{Alloc, DestroyedAlloc, EndedAlloc, RestoredRecords};
use crate::runner::context::{Parts, RunnerContext};
use crate::runner::decide::ownership::RecordedAllocs;
use crate::runner::decide::plan::{TaskRecovery, TaskRemains, plan};
use crate::runner::hooks::{ExtraHooks, Hooks, OrderError};
use crate::runner::persistence::datadir::AttemptDirs;
use crate::runner::persistence::record::{
    self, AllocRecord, JobRecord, NodeRecord, ParentRecord, TaskRecord, WorkloadRecord,
};
use crate::runner::persistence::steady_clock::{SteadyClock, SteadyClockRecord};
use crate::runner::persistence::update::{UPDATES, UpdateRecord};
use crate::runner::task::launch::found;
use crate::runner::task::{Beginning, Search, late, note_found};
use crate::store::{Batch, Store, StoreError};
use crate::telemetry::lock;
use crate::telemetry::metrics::FoundAs;

/// How long a start waits for the recovery of tasks; after that it continues in the background.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of tasks in recovery that are named in the log.
const NAMED: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an internal error")]
    Hooks(#[from] OrderError),
    /// Written by a newer agent: a guess could start tasks twice.
    #[error("the state database has schema {found}, this agent supports {known}: start the newer agent that wrote it")]
    Schema { found: String, known: u32 },
}

/// All records on disk that could be read.
#[derive(Default)]
struct LoadedRecords {
    jobs: BTreeMap<(JobId, u64), Arc<Job>>,
    allocs: BTreeMap<AllocId, AllocRecord>,
    tasks: BTreeMap<String, TaskRecord>,
    /// Keys of records that could not be read or that belong to nothing.
    bad: BTreeSet<String>,
    ledger: Ledger,
    line: Option<SteadyClockRecord>,
    tombstones: Vec<AllocId>,
    parents: Vec<ParentRecord>,
    updates: Vec<UpdateRecord>,
}

/// An alloc with its job and its tasks' records.
struct StoredAlloc {
    job: Arc<Job>,
    restored: RestoredRecords,
    /// In task order: what is left of tasks without a record.
    traces: Vec<TaskRemains>,
}

impl Handle {
    /// Reads the state, recovers every task and starts to run. When it returns, all allocs are shown. Tasks whose
    /// drivers responded in time are recovered; the others are shown as recorded (`AllocStatus::recovering`).
    ///
    /// Errors: the database cannot be read. An unreadable record is quarantined and blocks nothing.
    pub async fn start(parts: Parts) -> Result<Handle, RestoreError> {
        Handle::start_with(parts, ExtraHooks::default()).await
    }

    /// The same, with additional hooks.
    pub(in crate::runner) async fn start_with(parts: Parts, more: ExtraHooks) -> Result<Handle, RestoreError> {
        let began = parts.clock.instant();
        let store = Arc::clone(parts.journal.store());
        let mut loaded = load(store.as_ref())?;
        let mut version = Batch::default();
        record::put(&mut version, record::VERSION_KEY.to_owned(), &record::SCHEMA);
        let line = SteadyClock::new(Arc::clone(&parts.clock), parts.node.boot_id.clone(), loaded.line.take());
        record::put(&mut version, record::LINE_KEY.to_owned(), &line.record());
        parts.journal.commit(version).await?;
        loaded.tasks.values_mut().filter_map(|task| task.handle.as_mut()).for_each(|handle| {
            if let Some(now) = parts.data_dir.now(&handle.run_dir) {
                handle.run_dir = now;
            }
        });
        // Before this agent writes anything there.
        let in_run = parts.data_dir.in_run().unwrap_or_else(|error| {
            tracing::error!(%error, "failed to list run directories; orphans are not searched for");
            Vec::new()
        });
        let mut allocs = assemble(&mut loaded);
        set_aside(&parts, store.as_ref(), &loaded.bad).await?;
        let set_aside = store.scan(QUARANTINE)?;
        let quarantined = set_aside.iter().map(|(key, value)| describe(key, value)).collect();
        let set_aside: BTreeSet<&str> = set_aside.iter().filter_map(|(key, _)| key.strip_prefix(QUARANTINE)).collect();
        allocs.iter_mut().for_each(|known| known.find_traces(&parts, &set_aside));
        let on_record = allocs.iter().map(|known| known.restored.record.id.clone());
        let recorded = RecordedAllocs::new(on_record, &loaded.tombstones, set_aside.iter().copied());

        let events =
            allocs.iter().flat_map(|k| k.restored.tasks.iter().flatten()).flat_map(|t| t.status.events.iter().cloned());
        let marks = Arc::new(Marks::open(&parts.data_dir.shown()));
        let events = Arc::new(EventLog::restored(events.collect(), Arc::clone(&marks)));
        loaded.ledger.last_serial = loaded.allocs.values().map(|a| a.serial).max().unwrap_or(0);
        let board = Arc::new(Board::new(loaded.ledger.totals(), marks));
        let hooks = Arc::new(Hooks::new(&parts.metrics, more)?);
        tracing::debug!(alloc = hooks.alloc.order().join(" "), task = hooks.task.order().join(" "), "order of hooks");
        let manager = Arc::new(Manager {
            ctx: Arc::new(RunnerContext::new(parts, line, board, events)),
            hooks,
            allocs: Allocs::default(),
            ledger: tokio::sync::Mutex::new(loaded.ledger),
            tidy: Notify::new(),
            closed: AtomicBool::new(false),
            parents: ParentJobs::default(),
            updates: Updates::default(),
            tidier: Mutex::default(),
            found: RecoveryFindings::new(began, quarantined),
        });
        fingerprints::follow_all(&manager.ctx);
        let recovering = resume(&manager, allocs);
        manager.found_parents(std::mem::take(&mut loaded.parents)).await;
        manager.found_updates(std::mem::take(&mut loaded.updates));
        until_shown(recovering).await;
        manager.found.publish(&manager.ctx);
        for (workload, _) in manager.ctx.board.view().totals.workloads.keys() {
            manager.ctx.metrics.durations.known(workload);
        }
        manager.ctx.see_to(Arc::clone(&manager).reap_orphans(recorded, in_run));
        manager.ctx.see_to(Arc::clone(&manager).launch_on_schedule());
        manager.ctx.see_to(Arc::clone(&manager).follow_updates());
        let tidier =
            Arc::clone(&manager).collect_garbage(loaded.tombstones.into_iter().map(DestroyedAlloc::found).collect());
        *lock(&manager.tidier) = Some(tokio::spawn(tidier).abort_handle());
        Ok(Handle(manager))
    }
}

/// Reads all records; lists the unreadable ones.
fn load(store: &dyn Store) -> Result<LoadedRecords, RestoreError> {
    if let Some(found) = store.get(record::VERSION_KEY)?
        && !serde_json::from_slice::<u32>(&found).is_ok_and(|version| version == record::SCHEMA)
    {
        let found = String::from_utf8_lossy(&found).into_owned();
        return Err(RestoreError::Schema { found, known: record::SCHEMA });
    }
    let mut loaded = LoadedRecords::default();
    let bad = &mut loaded.bad;
    for (_, record) in read_all::<JobRecord>(store, "job/", bad)? {
        loaded.jobs.insert((record.job.id.clone(), record.version), Arc::new(record.job));
    }
    for (_, record) in read_all::<AllocRecord>(store, "alloc/", bad)? {
        loaded.allocs.insert(record.id.clone(), record);
    }
    loaded.tasks = read_all::<TaskRecord>(store, "task/", bad)?.into_iter().collect();
    for (key, record) in read_all::<WorkloadRecord>(store, record::WORKLOADS, bad)? {
        let job = key.strip_prefix(record::WORKLOADS).unwrap_or(&key);
        loaded.ledger.workloads.insert(JobId::from(job), record);
    }
    for (_, record) in read_all::<NodeRecord>(store, record::NODE_KEY, bad)? {
        loaded.ledger.node = record;
    }
    loaded.line = read_all::<SteadyClockRecord>(store, record::LINE_KEY, bad)?.pop().map(|(_, record)| record);
    let parents = read_all::<ParentRecord>(store, record::PARENTS, bad)?;
    loaded.parents = parents.into_iter().map(|(_, record)| record).collect();
    let updates = read_all::<UpdateRecord>(store, UPDATES, bad)?;
    loaded.updates = updates.into_iter().map(|(_, record)| record).collect();
    let prefix = record::tombstone_key(&AllocId::from(""));
    for (key, _) in store.scan(&prefix)? {
        loaded.tombstones.push(AllocId::from(key.strip_prefix(&prefix).unwrap_or(&key)));
    }
    Ok(loaded)
}

fn read_all<T: DeserializeOwned>(
    store: &dyn Store,
    prefix: &str,
    bad: &mut BTreeSet<String>,
) -> Result<Vec<(String, T)>, StoreError> {
    let mut good = Vec::new();
    for (key, value) in store.scan(prefix)? {
        match serde_json::from_slice(&value).or_else(|error| without_unknown_events(&value).ok_or(error)) {
            Ok(record) => good.push((key, record)),
            Err(error) => {
                tracing::error!(key, %error, "cannot read a record of the state database; quarantined");
                bad.insert(key);
            }
        }
    }
    Ok(good)
}

/// A task's record without events of kinds that only a newer agent knows: they are not shown; the rest of the record is
/// used.
fn without_unknown_events<T: DeserializeOwned>(record: &[u8]) -> Option<T> {
    let mut record: serde_json::Value = serde_json::from_slice(record).ok()?;
    let events = record.pointer_mut("/status/events")?.as_array_mut()?;
    events.retain(|event| Event::deserialize(event).is_ok());
    serde_json::from_value(record).ok()
}

/// Joins jobs, allocs and tasks, in the order of their creation. Records that belong to nothing are quarantined too.
fn assemble(loaded: &mut LoadedRecords) -> Vec<StoredAlloc> {
    let mut whole = Vec::new();
    let mut orphans: BTreeSet<String> = loaded.tasks.keys().cloned().collect();
    let mut by_age: Vec<_> = loaded.allocs.values().cloned().collect();
    by_age.sort_by_key(|a| a.serial);
    for alloc in by_age {
        let key = record::alloc_key(&alloc.id);
        let job = loaded.jobs.get(&(alloc.job.clone(), alloc.version)).cloned();
        let Some((job, group)) = job.and_then(|j| j.group(alloc.group.as_str()).cloned().map(|g| (j, g))) else {
            tracing::error!(alloc_id = %alloc.id, job = %alloc.job, "alloc without a job; its record is quarantined");
            loaded.bad.insert(key);
            loaded.allocs.remove(&alloc.id);
            continue;
        };
        let mut tasks = Vec::new();
        for task in &group.tasks {
            let key = record::task_key(&alloc.id, &task.name);
            orphans.remove(&key);
            tasks.push(loaded.tasks.remove(&key));
        }
        let traces = tasks.iter().map(|_| TaskRemains::default()).collect();
        whole.push(StoredAlloc { job, restored: RestoredRecords { record: alloc, tasks }, traces });
    }
    for key in orphans {
        tracing::error!(key, "task without an alloc; its record is quarantined, and if it runs it is not managed");
        loaded.bad.insert(key);
    }
    whole
}

impl StoredAlloc {
    /// A task without a record never started, or its record is lost: its run directory decides.
    fn find_traces(&mut self, parts: &Parts, set_aside: &BTreeSet<&str>) {
        let RestoredRecords { record: alloc, tasks } = &self.restored;
        let Some(group) = self.job.group(alloc.group.as_str()) else { return };
        let each = group.tasks.iter().zip(tasks).zip(&mut self.traces);
        for ((task, _), trace) in each.filter(|((_, record), _)| record.is_none()) {
            trace.unreadable = set_aside.contains(record::task_key(&alloc.id, &task.name).as_str());
            let Some(driver) = parts.drivers.get(task.driver.as_str()) else { continue };
            let left = |place: &AttemptDirs| {
                driver.left(place).map(|left| Some(left?.handle)).map_err(|e| e.to_string()).transpose()
            };
            trace.left = match orphans::traces(parts, driver.as_ref(), &alloc.id, &task.name) {
                Ok(places) => places.iter().find_map(left),
                Err(error) => Some(Err(error.to_string())),
            };
        }
    }
}

const QUARANTINE: &str = "quarantine/";

/// One line for users: the key of the record, or what the store reports of quarantined files.
fn describe(key: &str, value: &[u8]) -> String {
    let key = key.strip_prefix(QUARANTINE).unwrap_or(key);
    if key.starts_with("damaged-") { format!("{key}: {}", String::from_utf8_lossy(value)) } else { key.to_owned() }
}

/// Moves records below `quarantine/`, where users can inspect them.
async fn set_aside(parts: &Parts, store: &dyn Store, bad: &BTreeSet<String>) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    for key in bad {
        if let Some(value) = store.get(key)? {
            batch.put(format!("{QUARANTINE}{key}"), value);
            batch.remove(key.clone());
        }
    }
    if batch.is_empty() { Ok(()) } else { parts.journal.commit(batch).await }
}

/// A task in recovery, by its alloc.
type Recovering = (Arc<Alloc>, usize);

/// When this returns, every alloc has an owner and is shown as recorded. The owner of each task first recovers it from
/// its driver, so no task waits for the driver of another. Returns the tasks in recovery.
fn resume(manager: &Arc<Manager>, known: Vec<StoredAlloc>) -> Vec<Recovering> {
    let mut all = Vec::new();
    let mut recovering = Vec::new();
    for StoredAlloc { job, restored, traces } in known {
        let of = |(record, trace): (&Option<TaskRecord>, &TaskRemains)| {
            plan(record.as_ref().map(|record| (record.status.state, record.handle.as_ref())), trace)
        };
        let plans: Vec<TaskRecovery> = restored.tasks.iter().zip(&traces).map(of).collect();
        let Some(alloc) = manager.make(job, restored).map(Arc::new) else { continue };
        (0..plans.len()).for_each(|at| alloc.hold_devices(at));
        alloc.hold_ports();
        alloc.hold_cores();
        let (mut entries, mut lost) = (Vec::new(), Vec::new());
        for (at, plan) in plans.into_iter().enumerate() {
            let entry = match plan {
                TaskRecovery::Ended | TaskRecovery::GoOn => {
                    clear_leftovers(&alloc, at);
                    Beginning::Recorded
                }
                TaskRecovery::Lost(why) => Beginning::Lost(why),
                TaskRecovery::Recover(handle) => {
                    if alloc.handle(at).is_none() {
                        alloc.edit(at, |edit| edit.begin_from(&handle));
                    }
                    alloc.begin_recovery(at);
                    alloc.keep_sample(at, handle.attempt);
                    recovering.push((Arc::clone(&alloc), at));
                    entries.push(Box::pin(find(Arc::clone(manager), Arc::clone(&alloc), at, *handle)) as Search);
                    continue;
                }
            };
            lost.extend(matches!(entry, Beginning::Lost(_)).then_some(at));
            // Dead tasks need no recovery.
            if alloc.status(at).state != TaskState::Dead {
                count(manager, &entry);
            }
            entries.push(entry.known());
        }
        if !alloc.is_terminal() {
            alloc.find_cgroup();
        }
        all.push((alloc, entries, lost));
    }
    manager.ctx.board.publish([], |totals| all.iter().for_each(|(alloc, ..)| ledger::add_known(totals, alloc)));
    manager.ctx.samples.forget_the_rest();
    for (alloc, entries, lost) in all {
        alloc.appear();
        late::take_over(&alloc);
        match EndedAlloc::found(Arc::clone(&alloc)) {
            Ok(ended) => {
                let (keeper, failed) = (Arc::clone(manager), Arc::clone(&alloc));
                let over = async move {
                    ended.clear().await;
                    keeper.replace_when_due(&failed).await;
                };
                manager.allocs.own(&alloc, over);
            }
            Err(alive) => {
                alloc.receive();
                // A lost task is recorded as such first: until then no record may say that it can be started.
                let recorded = |at: &usize| alloc.is_changed(*at) && !lost.contains(at);
                (0..entries.len()).filter(recorded).for_each(|at| alloc.save_aside(at));
                manager.enter(UnownedAlloc::found(alive, entries));
            }
        }
    }
    recovering
}

/// Recovers a task and puts the result into its cell; it is shown when it is recorded.
async fn find(manager: Arc<Manager>, alloc: Arc<Alloc>, at: usize, handle: TaskHandle) -> Beginning {
    let entry = recover(&alloc, at, handle).await;
    count(&manager, &entry);
    let recorded = match &entry {
        Beginning::Found(attempt, end) => {
            note_found(&alloc, at, attempt, end.as_deref());
            end.is_none()
        }
        Beginning::Recorded => {
            alloc.edit(at, |edit| edit.found());
            true
        }
        Beginning::Lost(_) => false,
    };
    // The owners of the other tasks are about to record their end.
    if recorded && alloc.is_changed(at) {
        alloc.save_aside(at);
    }
    entry
}

/// Counts how a recorded task was recovered.
fn count(manager: &Manager, entry: &Beginning) {
    let found_as = match entry {
        Beginning::Recorded => FoundAs::Restarted,
        Beginning::Found(_, None) => FoundAs::Reattached,
        Beginning::Found(_, Some(end)) if matches!(end.status, ExitStatus::Unknown(_)) => FoundAs::Lost,
        Beginning::Found(_, Some(_)) => FoundAs::Ended,
        Beginning::Lost(_) => FoundAs::Failed,
    };
    manager.found.count(&manager.ctx, found_as);
}

/// Waits until recovered tasks are shown, so that the first snapshot has them, ends while no agent ran included. Until
/// then the usage of such an attempt is counted nowhere. A driver or disk that hangs is not waited for.
async fn until_shown(mut recovering: Vec<Recovering>) {
    let all = async {
        loop {
            recovering.retain(|(alloc, at)| alloc.is_recovering(*at));
            if recovering.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let names: Vec<_> =
            recovering.iter().map(|(alloc, at)| format!("{}/{}", alloc.id, alloc.task(*at).name)).collect();
        let (tasks, first) = (names.len(), names[..names.len().min(NAMED)].join(" "));
        tracing::warn!(tasks, first, "some tasks are still being recovered; everything else runs");
    }
}

async fn recover(alloc: &Arc<Alloc>, at: usize, handle: TaskHandle) -> Beginning {
    match found(alloc, at, handle).await {
        Ok(Some(attempt)) => {
            // Polled once: an attempt that has ended returns at once. If its driver died of that, its owner recovers it
            // again.
            let end = tokio::select! {
                biased;
                end = attempt.wait(alloc.ctx.clock.as_ref()) => end.ok(),
                () = std::future::ready(()) => None,
            };
            Beginning::Found(attempt, end)
        }
        Ok(None) => Beginning::Recorded,
        Err(why) => Beginning::Lost(why),
    }
}

/// The agent may have died between persisting an exit and removing what the attempt left.
fn clear_leftovers(alloc: &Alloc, at: usize) {
    let status = alloc.status(at);
    // An abandoned task is dead, and its handle names processes that may be left.
    if alloc.handle(at).is_some() {
        return;
    }
    if let (Some(path), Some(cgroups)) = (&status.cgroup, &alloc.ctx.cgroups)
        && let Err(error) = cgroups.remove(path)
    {
        tracing::warn!(alloc_id = %alloc.id, cgroup = %path, error, "failed to remove the cgroup of an ended attempt");
    }
    alloc.ctx.data_dir.remove_records(&alloc.id, &status.name);
}
