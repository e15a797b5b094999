//! Orphans: what runs of an earlier agent and has no record, because the state database or records of it were removed.
//! They are found in `run/` and by their supervisors, whose run directory names the alloc.
//!
//! | an alloc with remains on the host | action |
//! |---|---|
//! | has a record | none: its owner recovers it |
//! | has a tombstone | none: it is being removed |
//! | had a record that was unreadable and quarantined | none: what runs is reported and left to the operator |
//! | has no record | its tasks are killed: signal, kill timeout, SIGKILL; then cgroups and records are removed |
//!
//! Nothing waits for this. If the agent dies meanwhile, the next one finds the rest: the run directory is removed last.
//! What the tasks wrote (`alloc/<id>`) stays for the operator.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::found::{Fate, Orphan};
use super::{Handle, Manager};
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::job::Task;
use crate::runner::context::{Parts, RunnerContext};
use crate::runner::decide::ownership::{Ownership, RecordedAllocs};
use crate::runner::drivers::call::{self, DriverCallError, RunningAttempt};
use crate::runner::drivers::{Driver, DriverError, EventSink, UnrecordedAttempt};
use crate::runner::persistence::datadir::{AttemptDirs, make_run_dir};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::chain;
use crate::telemetry::metrics::FoundAs;

/// Maximum number of orphans that are examined or killed at the same time.
const AT_ONCE: usize = 64;
/// Maximum pause between tries to kill one.
const LATE_PAUSE: Duration = Duration::from_secs(60);

impl Handle {
    /// The orphans of this start, at most 100 of them.
    pub fn orphans(&self) -> Vec<Orphan> {
        self.0.found.orphans()
    }
}

/// What is left, and its driver.
type Remains = (Arc<dyn Driver>, UnrecordedAttempt);

/// Kills the orphans, until they are gone or the agent stops.
struct OrphanReaper {
    manager: Arc<Manager>,
    places: Semaphore,
}

impl Manager {
    /// `in_run`: the allocs that were in `run/` before this agent started anything.
    pub async fn reap_orphans(self: Arc<Self>, recorded: RecordedAllocs, in_run: Vec<AllocId>) {
        let manager = Arc::clone(&self);
        let listed = self.ctx.blocking.block(move || manager.list_orphans(&recorded, in_run)).await;
        let allocs = listed.unwrap_or_else(|error| {
            tracing::error!(error, "failed to search for orphans");
            BTreeMap::new()
        });
        let reaper = Arc::new(OrphanReaper { manager: self, places: Semaphore::new(AT_ONCE) });
        let mut reaping = JoinSet::new();
        for (id, (ownership, places)) in allocs {
            reaping.spawn(Arc::clone(&reaper).reap_alloc(id, ownership, places));
        }
        while reaping.join_next().ends_with(Ends::Agent).await.is_some() {}
    }

    /// The attempts without a record, by alloc. Blocks.
    fn list_orphans(
        &self,
        recorded: &RecordedAllocs,
        in_run: Vec<AllocId>,
    ) -> BTreeMap<AllocId, (Ownership, Vec<AttemptDirs>)> {
        let ctx = &self.ctx;
        let parent = ctx.cgroups.as_ref().map(|_| &ctx.config.cgroup_parent);
        let mut found: BTreeMap<AllocId, (Ownership, Vec<AttemptDirs>)> = BTreeMap::new();
        let foreign = |id: &AllocId| {
            // An alloc that was submitted since then is no orphan.
            let known = self.allocs.get(id).is_some();
            Some(recorded.ownership(id)).filter(|ownership| *ownership != Ownership::Recorded && !known)
        };
        for id in in_run {
            let Some(ownership) = foreign(&id) else { continue };
            match ctx.data_dir.attempts(&id) {
                Ok(places) => drop(found.insert(id, (ownership, places))),
                Err(error) => {
                    tracing::warn!(alloc_id = %id, %error, "failed to list the attempts of an alloc without a record")
                }
            }
        }
        for driver in ctx.drivers.values() {
            let supervised = driver.alive_below(&ctx.data_dir.run_top()).unwrap_or_else(|error| {
                tracing::warn!(%error, driver = driver.name(), "failed to search for supervisors without a record");
                Vec::new()
            });
            for place in supervised.iter().filter_map(|run_dir| ctx.data_dir.place_of(run_dir)) {
                let Some(ownership) = foreign(&place.alloc_id) else { continue };
                let (_, places) = found.entry(place.alloc_id.clone()).or_insert((ownership, Vec::new()));
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        found.values_mut().flat_map(|(_, places)| places).for_each(|place| set_cgroup(place, parent));
        found
    }
}

impl OrphanReaper {
    fn ctx(&self) -> &Arc<RunnerContext> {
        &self.manager.ctx
    }

    async fn reap_alloc(self: Arc<Self>, id: AllocId, ownership: Ownership, places: Vec<AttemptDirs>) {
        if ownership == Ownership::Unrecorded {
            // The directory may have been removed: it is created again, so that a later agent finds what is left.
            let (ctx, alloc_id) = (Arc::clone(self.ctx()), id.clone());
            let made = self.ctx().blocking.block(move || make_run_dir(&ctx.data_dir.run(&alloc_id))).await;
            if let Err(error) = made.and_then(|made| made.map_err(|e| e.to_string())) {
                tracing::warn!(
                    alloc_id = %id,
                    error,
                    "failed to create the run directory; a cgroup may stay if the agent dies now"
                );
            }
        }
        let mut ending = JoinSet::new();
        for place in places {
            let this = Arc::clone(&self);
            ending.spawn(async move {
                match ownership {
                    Ownership::Unrecorded => this.end(place).await,
                    Ownership::Quarantined | Ownership::Recorded => this.report(place).await,
                }
            });
        }
        while ending.join_next().ends_with(Ends::Agent).await.is_some() {}
        if ownership == Ownership::Unrecorded {
            let (ctx, alloc_id) = (Arc::clone(self.ctx()), id.clone());
            let cleared = self.ctx().blocking.block(move || clear(&ctx, &alloc_id)).await;
            if let Err(error) = cleared.and_then(|cleared| cleared) {
                tracing::warn!(alloc_id = %id, error, "failed to clean up after an alloc without a record");
            }
        }
    }

    /// Reports an attempt that is left to the operator, if it runs.
    async fn report(&self, place: AttemptDirs) {
        let (handle, why) = match self.left(&place).await {
            Ok(Some((_, UnrecordedAttempt { handle, lives: true }))) => {
                (Some(handle), "its record could not be read".to_owned())
            }
            Ok(Some((_, UnrecordedAttempt { lives: false, .. })) | None) => return,
            Err(why) => (None, why),
        };
        let pid = handle.and_then(|handle| Some(handle.main?.pid));
        self.log_left_running(&place, pid, &why);
        self.manager.found.count_orphan(self.ctx(), None, Some(FoundAs::Failed));
    }

    /// Kills an attempt until nothing of it is left.
    async fn end(&self, place: AttemptDirs) {
        let (mut pause, mut reported, mut counted, mut ran) = (call::KILL, String::new(), None, false);
        loop {
            let again = tokio::time::Instant::now() + pause;
            match self.try_to_end(&place, &mut ran).await {
                Ok(()) => break,
                Err(why) if why == reported => {}
                Err(why) => {
                    self.log_left_running(&place, None, &why);
                    if counted.is_none() {
                        counted = Some(FoundAs::Failed);
                        self.manager.found.count_orphan(self.ctx(), None, counted);
                    }
                    reported = why;
                }
            }
            tokio::time::sleep_until(again).await;
            pause = (pause * 2).min(LATE_PAUSE);
        }
        self.manager.found.count_orphan(self.ctx(), counted, ran.then_some(FoundAs::OrphanKilled));
        if ran {
            self.note(&place, None, Fate::Killed);
            let logs = self.ctx().data_dir.logs(&place.alloc_id);
            let (alloc_id, task, attempt) = (&place.alloc_id, &place.task, place.attempt);
            tracing::warn!(%alloc_id, %task, attempt, logs = %logs.display(), "orphan killed; its logs are kept");
        } else {
            // It was no orphan after all.
            self.manager.found.forget_orphan(&orphan(&place, None, Fate::Ending));
        }
    }

    /// One try. `ran`: a process of it lived, at this try or an earlier one. Errors: why it may still run.
    async fn try_to_end(&self, place: &AttemptDirs, ran: &mut bool) -> Result<(), String> {
        let _place = self.places.acquire().ends_with(Ends::Permit).await.map_err(|e| e.to_string())?;
        let Some((driver, UnrecordedAttempt { handle, lives })) = self.left(place).await? else { return Ok(()) };
        if lives {
            let pid = handle.main.map(|main| main.pid);
            if !*ran {
                self.note(place, pid, Fate::Ending);
                let logs = self.ctx().data_dir.logs(&place.alloc_id);
                let (alloc_id, task, attempt) = (&place.alloc_id, &place.task, place.attempt);
                tracing::warn!(
                    %alloc_id,
                    %task,
                    attempt,
                    pid,
                    logs = %logs.display(),
                    "orphan found: a task without a record runs; killing it"
                );
            }
            *ran = true;
        }
        if let Some(running) =
            call::recover(driver.as_ref(), handle, EventSink::default()).await.map_err(|e| e.to_string())?
        {
            self.end_attempt(&running, driver.kill_signal()).await?;
            match running.destroy().await {
                Ok(()) => {}
                Err(still @ DriverCallError::Refused(DriverError::StillRunning)) => return Err(still.to_string()),
                Err(error) => self.stays(place, &error.to_string()),
            }
        }
        let (ctx, of) = (Arc::clone(self.ctx()), place.clone());
        if let Err(error) = self.ctx().blocking.block(move || ctx.data_dir.remove_attempt(&of)).await? {
            self.stays(place, &chain(&error));
        }
        Ok(())
    }

    fn stays(&self, place: &AttemptDirs, error: &str) {
        let (alloc_id, task) = (&place.alloc_id, &place.task);
        tracing::warn!(
            %alloc_id,
            %task,
            error,
            "failed to remove what a task without a record left; the next start retries"
        );
    }

    /// The driver's kill signal, the default kill timeout, SIGKILL: the job's own are unknown.
    async fn end_attempt(&self, running: &RunningAttempt, kill_signal: &str) -> Result<(), String> {
        let clock = self.ctx().clock.as_ref();
        // Polled once: an attempt that has ended returns at once.
        let ended =
            tokio::select! { biased; end = running.wait(clock) => Some(end), () = std::future::ready(()) => None };
        let ended = match ended {
            Some(end) => Some(end),
            // The signal failed: SIGKILL at once.
            None if running.signal(kill_signal).await.is_err() => None,
            None => tokio::time::timeout(Task::KILL_TIMEOUT, running.wait(clock)).await.ok(),
        };
        if let Some(end) = ended {
            return end.map(drop).map_err(|e| e.to_string());
        }
        let killed = running.kill().await;
        match tokio::time::timeout(self.ctx().config.kill_budget, running.wait(clock)).await {
            Ok(end) => end.map(drop).map_err(|e| e.to_string()),
            Err(_) => {
                Err(killed.map_or_else(|e| e.to_string(), |()| "it was killed by force and still runs".to_owned()))
            }
        }
    }

    /// What is left of an attempt, and its driver. `None`: nothing.
    async fn left(&self, place: &AttemptDirs) -> Result<Option<Remains>, String> {
        let (ctx, place) = (Arc::clone(self.ctx()), place.clone());
        self.ctx().blocking.block(move || left(&ctx, &place)).await?
    }

    fn note(&self, place: &AttemptDirs, pid: Option<u32>, fate: Fate) {
        self.manager.found.note_orphan(orphan(place, pid, fate));
    }

    fn log_left_running(&self, place: &AttemptDirs, pid: Option<u32>, why: &str) {
        self.note(place, pid, Fate::MayRun(why.to_owned()));
        let (alloc_id, task, attempt) = (&place.alloc_id, &place.task, place.attempt);
        tracing::error!(%alloc_id, %task, attempt, pid, why, "orphan may still run: a task without a record");
    }
}

/// What a task without a record left, as its driver knows it, newest first. Blocks. Errors: it is unknown.
pub fn traces(parts: &Parts, driver: &dyn Driver, id: &AllocId, task: &TaskName) -> io::Result<Vec<AttemptDirs>> {
    let mut places = parts.data_dir.attempts(id)?;
    let supervised = driver.alive_below(&parts.data_dir.run_task(id, task))?;
    places.extend(supervised.iter().filter_map(|run_dir| parts.data_dir.place_of(run_dir)));
    places.retain(|place| place.task == *task);
    places.sort_by_key(|place| Reverse(place.attempt));
    let parent = parts.cgroups.as_ref().map(|_| &parts.config.cgroup_parent);
    places.iter_mut().for_each(|place| set_cgroup(place, parent));
    Ok(places)
}

/// Sets its cgroup, if tasks have cgroups here. `parent`: the parent of all of them.
fn set_cgroup(place: &mut AttemptDirs, parent: Option<&CgroupPath>) {
    place.cgroup = parent.map(|parent| parent.child(place.alloc_id.as_str()).child(place.task.as_str()));
}

fn orphan(place: &AttemptDirs, pid: Option<u32>, fate: Fate) -> Orphan {
    Orphan { alloc_id: place.alloc_id.clone(), task: place.task.clone(), attempt: place.attempt, pid, fate }
}

/// Finds the driver that knows it. Blocks. Errors: what is left is unknown.
fn left(ctx: &RunnerContext, place: &AttemptDirs) -> Result<Option<Remains>, String> {
    let mut error = None;
    for driver in ctx.drivers.values() {
        match driver.left(place) {
            Ok(Some(left)) => return Ok(Some((Arc::clone(driver), left))),
            Ok(None) => {}
            Err(e) => error = Some(e.to_string()),
        }
    }
    error.map_or(Ok(None), Err)
}

/// Its tasks have ended: removes what they shared, except what they wrote. Its directory in `run/` is removed last: as
/// long as it exists, the next agent continues. Blocks. Errors: why something stays.
fn clear(ctx: &RunnerContext, id: &AllocId) -> Result<(), String> {
    let path = ctx.config.cgroup_parent.child(id.as_str());
    if let Some(cgroups) = ctx.cgroups.as_ref().filter(|cgroups| cgroups.exists(&path)) {
        cgroups.remove(&path)?;
    }
    ctx.networks.forget(id);
    ctx.data_dir.remove_empty_run(id);
    Ok(())
}
