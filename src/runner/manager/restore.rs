//! After a start: what was running is found again, what ended meanwhile is processed, what never started starts.
//!
//! [`plan`] is pure: from what is recorded of a task to what is to be done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::ledger::{self, Ledger};
use super::orphans::{self, Named};
use super::owner::{Created, Destroyed, Ended};
use super::{Handle, Manager, lock};
use crate::model::event::Event;
use crate::model::id::{AllocId, JobId};
use crate::model::job::Job;
use crate::model::task::{ExitStatus, TaskHandle, TaskState};
use crate::runner::alloc::{Alloc, Restored};
use crate::runner::drivers::Place;
use crate::runner::ground::{Context, Parts};
use crate::runner::hooks::{More, OrderError};
use crate::runner::kept::marks::Marks;
use crate::runner::kept::record::{self, AllocRecord, JobRecord, NodeRecord, TaskRecord, WorkloadRecord};
use crate::runner::kept::steady::{Line, LineRecord};
use crate::runner::shown::board::Board;
use crate::runner::shown::events::Log;
use crate::runner::task::launch::found;
use crate::runner::task::{Entry, Search, late, note_found};
use crate::store::{Batch, Store, StoreError};
use crate::telemetry::metrics::Restored as FoundAs;

/// How long a start waits for what it looks for; from then on that is found while everything else goes on.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// So many tasks are named that are still looked for.
const NAMED: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an internal error")]
    Hooks(#[from] OrderError),
    /// Written by a newer agent: reading it by guess could start things twice.
    #[error("the state database has schema {found}, this agent knows {known}: start the newer agent that wrote it")]
    Schema { found: String, known: u32 },
}

/// What to do about a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Dead: it is shown, nothing more.
    Ended,
    /// Nothing of it runs: its owner goes on as recorded, from the start or in backoff.
    GoOn,
    /// It was prepared: the driver knows whether it runs, has ended or never started.
    Recover(TaskHandle),
    /// Whether it runs cannot be known any more, for this reason: it must not be started a second time.
    Lost(String),
}

/// Of a task that has no record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// It had one, which could not be read, now or at an earlier start.
    unreadable: bool,
    /// What its newest attempt left in its run directory. Errors: that cannot be told, or is not this task's.
    left: Option<Result<TaskHandle, String>>,
}

pub fn plan(record: Option<&TaskRecord>, trace: &Trace) -> Plan {
    match record {
        // Its counters are lost with its record, and it is not.
        None => match (&trace.left, trace.unreadable) {
            (Some(Ok(handle)), true | false) => Plan::Recover(handle.clone()),
            (Some(Err(why)), true | false) => Plan::Lost(why.clone()),
            (None, true) => Plan::Lost("its record cannot be read".to_owned()),
            (None, false) => Plan::GoOn,
        },
        Some(TaskRecord { status, handle, .. }) => match (status.state, handle) {
            (TaskState::Dead, Some(_) | None) => Plan::Ended,
            (
                TaskState::Pending | TaskState::Starting | TaskState::Running | TaskState::Backoff | TaskState::Killing,
                Some(handle),
            ) => Plan::Recover(handle.clone()),
            (
                TaskState::Pending | TaskState::Starting | TaskState::Running | TaskState::Backoff | TaskState::Killing,
                None,
            ) => Plan::GoOn,
        },
    }
}

/// Everything that was on disk and could be read.
#[derive(Default)]
struct Loaded {
    jobs: BTreeMap<(JobId, u64), Arc<Job>>,
    allocs: BTreeMap<AllocId, AllocRecord>,
    tasks: BTreeMap<String, TaskRecord>,
    /// Keys of records that could not be read or that belong to nothing.
    bad: BTreeSet<String>,
    ledger: Ledger,
    line: Option<LineRecord>,
    tombstones: Vec<AllocId>,
}

/// An alloc and its job, put together from their records.
struct Known {
    job: Arc<Job>,
    restored: Restored,
    /// In the order of the tasks: what is known of those without a record.
    traces: Vec<Trace>,
}

impl Handle {
    /// Reads the state, finds every task again and begins to run. When it returns all allocs are on the board, and of those whose
    /// drivers answer soon what became of them; the rest stands there as it is recorded (`AllocStatus::sought`).
    ///
    /// Errors: the database cannot be read. One bad record is set aside and blocks nothing.
    pub async fn start(parts: Parts) -> Result<Handle, RestoreError> {
        Handle::start_with(parts, More::default()).await
    }

    /// The same, with hooks beside the runner's own.
    pub(in crate::runner) async fn start_with(parts: Parts, more: More) -> Result<Handle, RestoreError> {
        let began = parts.clock.instant();
        let store = Arc::clone(parts.journal.store());
        let mut loaded = load(store.as_ref())?;
        let mut version = Batch::default();
        record::put(&mut version, record::VERSION_KEY.to_owned(), &record::SCHEMA);
        let line = Line::new(Arc::clone(&parts.clock), parts.node.boot_id.clone(), loaded.line.take());
        record::put(&mut version, record::LINE_KEY.to_owned(), &line.record());
        parts.journal.commit(version).await?;
        loaded.tasks.values_mut().filter_map(|task| task.handle.as_mut()).for_each(|handle| {
            if let Some(now) = parts.data_dir.now(&handle.run_dir) {
                handle.run_dir = now;
            }
        });
        // Before anything of this agent is in there.
        let in_run = parts.data_dir.in_run().unwrap_or_else(|error| {
            tracing::error!(%error, "what ran before and is in no record is not looked for");
            Vec::new()
        });
        let mut allocs = assemble(&mut loaded);
        set_aside(&parts, store.as_ref(), &loaded.bad).await?;
        let set_aside = store.scan(QUARANTINE)?;
        let quarantined = set_aside.iter().map(|(key, value)| told(key, value)).collect();
        let set_aside: BTreeSet<&str> = set_aside.iter().filter_map(|(key, _)| key.strip_prefix(QUARANTINE)).collect();
        allocs.iter_mut().for_each(|known| known.look_for_traces(&parts, &set_aside));
        let on_record = allocs.iter().map(|known| known.restored.record.id.clone());
        let named = Named::new(on_record, &loaded.tombstones, set_aside.iter().copied());

        let events =
            allocs.iter().flat_map(|k| k.restored.tasks.iter().flatten()).flat_map(|t| t.status.events.iter().cloned());
        let marks = Arc::new(Marks::open(&parts.data_dir.shown()));
        let events = Arc::new(Log::restored(events.collect(), Arc::clone(&marks)));
        loaded.ledger.last_serial = loaded.allocs.values().map(|a| a.serial).max().unwrap_or(0);
        let board = Arc::new(Board::new(loaded.ledger.totals(), marks));
        let ctx = Arc::new(Context::new(parts, line, more, board, events)?);
        let manager = Arc::new(Manager {
            ctx,
            allocs: Mutex::default(),
            ledger: tokio::sync::Mutex::new(loaded.ledger),
            collectable: Mutex::default(),
            tidy: Notify::new(),
            closed: AtomicBool::new(false),
            tidier: Mutex::default(),
            tally: Mutex::new(Tally { began, took: Duration::ZERO, found: [0; FoundAs::ALL.len()] }),
            quarantined,
            orphans: Mutex::default(),
            watchers: Mutex::default(),
        });
        let sought = resume(&manager, allocs);
        until_shown(sought).await;
        manager.tell_tally();
        for (workload, _) in manager.ctx.board.view().totals.workloads.keys() {
            manager.ctx.metrics.durations.known(workload);
        }
        manager.ctx.see_to(Arc::clone(&manager).see_to_orphans(named, in_run));
        let tidier = Arc::clone(&manager).keep_tidy(loaded.tombstones.into_iter().map(Destroyed::found).collect());
        *lock(&manager.tidier) = Some(tokio::spawn(tidier).abort_handle());
        Ok(Handle(manager))
    }
}

/// All records, read or found unreadable.
fn load(store: &dyn Store) -> Result<Loaded, RestoreError> {
    if let Some(found) = store.get(record::VERSION_KEY)?
        && !serde_json::from_slice::<u32>(&found).is_ok_and(|version| version == record::SCHEMA)
    {
        let found = String::from_utf8_lossy(&found).into_owned();
        return Err(RestoreError::Schema { found, known: record::SCHEMA });
    }
    let mut loaded = Loaded::default();
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
    loaded.line = read_all::<LineRecord>(store, record::LINE_KEY, bad)?.pop().map(|(_, record)| record);
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
                tracing::error!(key, %error, "a record of the state database cannot be read; it is set aside");
                bad.insert(key);
            }
        }
    }
    Ok(good)
}

/// A task's record with events of kinds that only a newer agent knows: they are told by nobody, and cost nothing else.
fn without_unknown_events<T: DeserializeOwned>(record: &[u8]) -> Option<T> {
    let mut record: serde_json::Value = serde_json::from_slice(record).ok()?;
    let events = record.pointer_mut("/status/events")?.as_array_mut()?;
    events.retain(|event| Event::deserialize(event).is_ok());
    serde_json::from_value(record).ok()
}

/// Jobs, allocs and tasks put together, in the order of their creation. What belongs to nothing is set aside too.
fn assemble(loaded: &mut Loaded) -> Vec<Known> {
    let mut whole = Vec::new();
    let mut orphans: BTreeSet<String> = loaded.tasks.keys().cloned().collect();
    let mut by_age: Vec<_> = loaded.allocs.values().cloned().collect();
    by_age.sort_by_key(|a| a.serial);
    for alloc in by_age {
        let key = record::alloc_key(&alloc.id);
        let job = loaded.jobs.get(&(alloc.job.clone(), alloc.version)).cloned();
        let Some((job, group)) = job.and_then(|j| j.group(alloc.group.as_str()).cloned().map(|g| (j, g))) else {
            tracing::error!(alloc_id = %alloc.id, job = %alloc.job, "an alloc without its job is set aside");
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
        let traces = tasks.iter().map(|_| Trace::default()).collect();
        whole.push(Known { job, restored: Restored { record: alloc, tasks }, traces });
    }
    for key in orphans {
        tracing::error!(key, "a task without its alloc is set aside: if it runs, this agent does not know it");
        loaded.bad.insert(key);
    }
    whole
}

impl Known {
    /// A task without a record was submitted and never begun, or has lost it: its run directory tells.
    fn look_for_traces(&mut self, parts: &Parts, set_aside: &BTreeSet<&str>) {
        let Restored { record: alloc, tasks } = &self.restored;
        let Some(group) = self.job.group(alloc.group.as_str()) else { return };
        let each = group.tasks.iter().zip(tasks).zip(&mut self.traces);
        for ((task, _), trace) in each.filter(|((_, record), _)| record.is_none()) {
            trace.unreadable = set_aside.contains(record::task_key(&alloc.id, &task.name).as_str());
            let Some(driver) = parts.drivers.get(task.driver.as_str()) else { continue };
            let left = |place: &Place| {
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

/// One line for people: the record's key, or what the store says of files that it set aside.
fn told(key: &str, value: &[u8]) -> String {
    let key = key.strip_prefix(QUARANTINE).unwrap_or(key);
    if key.starts_with("damaged-") { format!("{key}: {}", String::from_utf8_lossy(value)) } else { key.to_owned() }
}

/// Moves records below `quarantine/`: for people to look at, out of everybody's way.
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

/// What is looked for: a task of an alloc.
type Sought = (Arc<Alloc>, usize);

/// Every alloc is known and owned when this returns, and on the board as it is recorded. The owner of each task first looks for it,
/// and begins with what it finds, so nobody waits for another one's driver. What is looked for comes back.
fn resume(manager: &Arc<Manager>, known: Vec<Known>) -> Vec<Sought> {
    let mut all = Vec::new();
    let mut sought = Vec::new();
    for Known { job, restored, traces } in known {
        let plans: Vec<Plan> =
            restored.tasks.iter().zip(&traces).map(|(record, trace)| plan(record.as_ref(), trace)).collect();
        let Some(alloc) = Alloc::new(Arc::clone(&manager.ctx), job, restored).map(Arc::new) else { continue };
        let (mut entries, mut lost) = (Vec::new(), Vec::new());
        for (at, plan) in plans.into_iter().enumerate() {
            let entry = match plan {
                Plan::Ended | Plan::GoOn => {
                    clear_leftovers(&alloc, at);
                    Entry::Recorded
                }
                Plan::Lost(why) => Entry::Lost(why),
                Plan::Recover(handle) => {
                    if alloc.handle(at).is_none() {
                        alloc.edit(at, |edit| edit.begin_from(&handle));
                    }
                    alloc.seek(at);
                    alloc.keep_sample(at, handle.attempt);
                    sought.push((Arc::clone(&alloc), at));
                    entries.push(Box::pin(find(Arc::clone(manager), Arc::clone(&alloc), at, handle)) as Search);
                    continue;
                }
            };
            lost.extend(matches!(entry, Entry::Lost(_)).then_some(at));
            // The dead are nothing to find.
            if alloc.status(at).state != TaskState::Dead {
                manager.tell_found(&entry);
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
        match Ended::found(Arc::clone(&alloc)) {
            Ok(ended) => manager.own(&alloc, ended.clear()),
            Err(alive) => {
                alloc.receive();
                // What is lost is next recorded as that: until then no record may say that it can be started.
                let recorded = |at: &usize| alloc.is_changed(*at) && !lost.contains(at);
                (0..entries.len()).filter(recorded).for_each(|at| alloc.save_aside(at));
                manager.enter(Created::found(alive, entries));
            }
        }
    }
    sought
}

/// Looks for a task, and puts what it finds into its cell, to be seen when it is recorded.
async fn find(manager: Arc<Manager>, alloc: Arc<Alloc>, at: usize, handle: TaskHandle) -> Entry {
    let entry = recover(&alloc, at, handle).await;
    manager.tell_found(&entry);
    let recorded = match &entry {
        Entry::Found(attempt, end) => {
            note_found(&alloc, at, attempt, end.as_deref());
            end.is_none()
        }
        Entry::Recorded => {
            alloc.edit(at, |edit| edit.found());
            true
        }
        Entry::Lost(_) => false,
    };
    // Of the others their owner is about to record the end.
    if recorded && alloc.is_changed(at) {
        alloc.save_aside(at);
    }
    entry
}

/// What a start has found so far.
#[derive(Debug)]
pub struct Tally {
    began: Instant,
    /// Until the last of what is on record was found.
    took: Duration,
    /// Tasks, in the order of [`FoundAs::ALL`].
    found: [u64; FoundAs::ALL.len()],
}

impl Tally {
    fn of(&mut self, found_as: FoundAs) -> &mut u64 {
        let place = FoundAs::ALL.iter().position(|o| *o == found_as).expect("ALL must list every outcome");
        &mut self.found[place]
    }
    fn count(&mut self, found_as: FoundAs) {
        *self.of(found_as) += 1;
    }
}

impl Manager {
    fn tell_found(&self, entry: &Entry) {
        let found_as = match entry {
            Entry::Recorded => FoundAs::Restarted,
            Entry::Found(_, None) => FoundAs::Reattached,
            Entry::Found(_, Some(end)) if matches!(end.status, ExitStatus::Unknown(_)) => FoundAs::Lost,
            Entry::Found(_, Some(_)) => FoundAs::Ended,
            Entry::Lost(_) => FoundAs::Failed,
        };
        lock(&self.tally).count(found_as);
        self.tell_tally();
    }
    fn tell_tally(&self) {
        let mut tally = lock(&self.tally);
        tally.took = self.ctx.clock.instant().saturating_duration_since(tally.began);
        self.ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }
    /// What became of a task that is in no record; `before`: what was said of it so far.
    pub fn tell_orphan(&self, before: Option<FoundAs>, found_as: Option<FoundAs>) {
        let mut tally = lock(&self.tally);
        if let Some(before) = before {
            *tally.of(before) -= 1;
        }
        found_as.into_iter().for_each(|found_as| tally.count(found_as));
        self.ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }
}

/// What is found soon is on the board when the first snapshot is taken, ends that came while no agent was there too: until then
/// what such an attempt used is in nobody's count. A driver or a disk that hangs is not waited for.
async fn until_shown(mut sought: Vec<Sought>) {
    let all = async {
        loop {
            sought.retain(|(alloc, at)| alloc.is_sought(*at));
            if sought.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let names: Vec<_> = sought.iter().map(|(alloc, at)| format!("{}/{}", alloc.id, alloc.task(*at).name)).collect();
        let (tasks, first) = (names.len(), names[..names.len().min(NAMED)].join(" "));
        tracing::warn!(tasks, first, "some tasks are still looked for; everything else goes on");
    }
}

async fn recover(alloc: &Alloc, at: usize, handle: TaskHandle) -> Entry {
    match found(alloc, at, handle).await {
        Ok(Some(attempt)) => {
            // Polled once: an attempt that has ended says so at once. If its driver died of that, its owner asks again.
            let end = tokio::select! { biased; end = attempt.wait(alloc.ctx.clock.as_ref()) => end.ok(), () = std::future::ready(()) => None };
            Entry::Found(attempt, end)
        }
        Ok(None) => Entry::Recorded,
        Err(why) => Entry::Lost(why),
    }
}

/// The agent may have died between making an exit durable and removing what the attempt left.
fn clear_leftovers(alloc: &Alloc, at: usize) {
    let status = alloc.status(at);
    // A task that was given up is dead, and its handle names what may still be there.
    if alloc.handle(at).is_some() {
        return;
    }
    if let (Some(path), Some(cgroups)) = (&status.cgroup, &alloc.ctx.cgroups)
        && let Err(error) = cgroups.remove(path)
    {
        tracing::warn!(alloc_id = %alloc.id, cgroup = %path, error, "the cgroup of an ended attempt cannot be removed");
    }
    alloc.ctx.data_dir.remove_records(&alloc.id, &status.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::BootId;
    use crate::model::task::TaskStatus;
    use crate::model::units::{Steady, Timestamp};
    use crate::runner::decide::coordinator::Cause;
    use crate::runner::decide::restart::Tracker;
    use crate::runner::kept::record::{Kill, Restart};

    fn record(state: TaskState, handle: Option<TaskHandle>) -> TaskRecord {
        let status = TaskStatus::new("t".into(), "raw_exec".into(), None, Timestamp(1));
        TaskRecord {
            status: TaskStatus { state, ..status },
            handle,
            tracker: Tracker::seeded("t"),
            more: record::MoreTotals::default(),
            kill: None,
            restart: None,
            backoff: None,
            restarts_for: None,
            hooks: BTreeMap::new(),
        }
    }

    fn handle(attempt: u32) -> TaskHandle {
        TaskHandle {
            driver: "raw_exec".to_owned(),
            attempt,
            boot_id: BootId("boot".to_owned()),
            run_dir: format!("run/t/{attempt}").into(),
            cgroup: None,
            supervisor: None,
            main: None,
            started_at: None,
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Ended,
        GoOn,
        Recover,
    }
    use Kind::{Ended as End, GoOn, Recover};

    /// By the state on record: without and with a handle. Whatever was prepared and is not known to have ended is asked for at its
    /// driver, and what has ended is left alone, even if something of it may still be there.
    const TABLE: [(TaskState, Kind, Kind); TaskState::ALL.len()] = [
        (TaskState::Pending, GoOn, Recover),
        (TaskState::Starting, GoOn, Recover),
        (TaskState::Running, GoOn, Recover),
        (TaskState::Backoff, GoOn, Recover),
        (TaskState::Killing, GoOn, Recover),
        (TaskState::Dead, End, End),
    ];

    fn of(kind: Kind, handle: Option<&TaskHandle>) -> Plan {
        match (kind, handle) {
            (End, _) => Plan::Ended,
            (GoOn, _) => Plan::GoOn,
            (Recover, handle) => Plan::Recover(handle.expect("the table asks for one").clone()),
        }
    }

    #[test]
    fn what_is_done_about_a_task_is_a_table_of_what_is_recorded_of_it() {
        assert_eq!(TABLE.map(|(state, ..)| state), TaskState::ALL, "each state has its line");
        let trace = |unreadable, left| Trace { unreadable, left };
        assert_eq!(plan(None, &trace(false, None)), Plan::GoOn, "it was submitted, and nothing was ever written of it");
        let lost = |why: &str| Plan::Lost(why.to_owned());
        let unreadable = lost("its record cannot be read");
        assert_eq!(plan(None, &trace(true, None)), unreadable, "it has run: it is not started a second time");
        for unreadable in [false, true] {
            let left = |left| plan(None, &trace(unreadable, Some(left)));
            assert_eq!(left(Ok(handle(3))), Plan::Recover(handle(3)), "its directory names it");
            assert_eq!(left(Err("torn".to_owned())), lost("torn"), "it may run");
        }
        let whatever = [trace(false, None), trace(true, Some(Ok(handle(7))))];
        let kill = Kill { cause: Cause::Stopped, asked_at: Steady(2), told: true, signalled_at: Some(Steady(3)) };
        let restart = |whole| Restart { whole, asked_at: Steady(2), signalled_at: None };
        let asked = [(None, None), (Some(kill), None), (None, Some(restart(false))), (None, Some(restart(true)))];
        for (state, without, with) in TABLE {
            for (kill, restart) in asked {
                let plan_of = |handle: Option<TaskHandle>| {
                    let record = TaskRecord { kill, restart, ..record(state, handle) };
                    // A record that is there was read, whatever is said of others.
                    let [alone, beside] = whatever.each_ref().map(|trace| plan(Some(&record), trace));
                    assert_eq!(alone, beside, "{record:?}");
                    alone
                };
                assert_eq!(plan_of(None), of(without, None), "{state:?} {kill:?} {restart:?}");
                for attempt in 0..2 {
                    let handle = handle(attempt);
                    assert_eq!(
                        plan_of(Some(handle.clone())),
                        of(with, Some(&handle)),
                        "{state:?} {kill:?} {restart:?}"
                    );
                }
            }
        }
    }
}
