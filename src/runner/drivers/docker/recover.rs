//! Recovers a container after a restart of the agent, by its ID or by its name and labels.
//!
//! | response of the engine | result |
//! |---|---|
//! | none | the request is repeated as long as that lasts |
//! | no container, and the handle has no start | never started |
//! | no container | was removed: ended, outcome unknown |
//! | another container with its name | the same |
//! | created and never started | is removed: never started |
//! | running | runs |
//! | exited | has ended; the rest of its log is written first |

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::attempt::{ContainerAttempt, ContainerEnd, end_of, write_logs};
use super::engine::{Container, label};
use super::pause;
use super::place::ParentCgroup;
use super::settings::NAME;
use super::shared::{ContainerRecord, DockerContext, failed};
use crate::model::id::AllocId;
use crate::model::network::DriverNetwork;
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverError, EventSink, RecoveryOutcome, UnrecordedAttempt};
use crate::runner::persistence::datadir::AttemptDirs;

pub async fn recover(
    shared: &Arc<DockerContext>,
    handle: TaskHandle,
    events: &EventSink,
) -> Result<RecoveryOutcome, DriverError> {
    let before = handle.network.clone();
    let mut record = ContainerRecord::of(&handle)?;
    shared.seen(&handle.run_dir);
    let found = match shared.engine.inspect(record.reference()).await {
        Ok(container) => is_own(&container, &handle).then_some(container),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(shared.record_error(error).of_search()),
    };
    let Some(container) = found else {
        if handle.started_at.is_none() && record.id.is_none() {
            // Only its cgroup may exist.
            remove_cgroup(shared, &handle).await?;
            return Ok(RecoveryOutcome::NeverStarted);
        }
        let end = end_of(shared, &handle, ContainerEnd::Removed, None).await;
        return Ok(RecoveryOutcome::Attempt(Arc::new(ContainerAttempt::ended(
            Arc::clone(shared),
            handle,
            record,
            end,
        ))));
    };
    if container.is_new() && handle.started_at.is_none() {
        shared.engine.remove(&container.id, true).await.map_err(|e| shared.record_error(e).of_search())?;
        remove_cgroup(shared, &handle).await?;
        return Ok(RecoveryOutcome::NeverStarted);
    }
    record.learn(&container);
    if container.state.running {
        let attempt = ContainerAttempt::running(Arc::clone(shared), handle, record, &container, true);
        // The engine's current state counts, not the record.
        if attempt.network() != before.as_ref() {
            let shown = |network: Option<&DriverNetwork>| network.map_or("none".to_owned(), ToString::to_string);
            let (now, before) = (shown(attempt.network()), shown(before.as_ref()));
            events.report(&format!("its address has changed from {before} to {now}"));
        }
        return Ok(RecoveryOutcome::Attempt(Arc::new(attempt)));
    }
    let (_report, reported) = watch::channel(true);
    let (lost_output, problem) = write_logs(shared, &handle, &record, reported).await;
    let mut end = end_of(shared, &handle, ContainerEnd::Container(Box::new(container)), None).await;
    end.lost_output = lost_output;
    end.problems.extend(problem);
    let mut handle = handle;
    handle.started_at = end.started_at;
    record.put(&mut handle);
    Ok(RecoveryOutcome::Attempt(Arc::new(ContainerAttempt::ended(Arc::clone(shared), handle, record, end))))
}

/// By its labels: its name may belong to another container by now. If the data directory was moved, the last parts of
/// the path are still the same.
fn is_own(container: &Container, handle: &TaskHandle) -> bool {
    const PARTS: usize = 3;
    let last =
        |path: &std::path::Path| path.iter().rev().take(PARTS).map(std::ffi::OsStr::to_owned).collect::<Vec<_>>();
    container.label(label::RUN_DIR).is_some_and(|run_dir| last(run_dir.as_ref()) == last(&handle.run_dir))
}

async fn remove_cgroup(shared: &Arc<DockerContext>, handle: &TaskHandle) -> Result<(), DriverError> {
    let Some(path) = handle.cgroup.clone().filter(|_| shared.no_cgroups.is_none()) else { return Ok(()) };
    let of = Arc::clone(shared);
    let removed = shared.places.block(move || of.parents.remove(&of.sampling.layout, &ParentCgroup::of(&path))).await;
    removed.map_err(failed)?.map_err(failed)
}

/// The containers of this agent, by their run directories. Blocks. Errors: the engine does not respond.
fn own_containers(shared: &Arc<DockerContext>) -> Result<Vec<(PathBuf, super::engine::ListedContainer)>, String> {
    let all = block_on_request(async { shared.engine.own_containers().await })?
        .map_err(|e| shared.record_error(e).to_string())?;
    Ok(all.into_iter().filter_map(|listed| Some((listed.run_dir()?, listed))).collect())
}

/// Runs a request from a thread that may block. Errors: there is no runtime for it.
fn block_on_request<T>(question: impl Future<Output = T>) -> Result<T, String> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => Ok(runtime.block_on(question)),
        Err(_) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            Ok(runtime.map_err(|e| e.to_string())?.block_on(question))
        }
    }
}

/// What is left of an attempt without a record.
pub fn left(shared: &Arc<DockerContext>, place: &AttemptDirs) -> Result<Option<UnrecordedAttempt>, DriverError> {
    if !shared.is_known() {
        return Ok(None);
    }
    let all = own_containers(shared).map_err(failed)?;
    let Some((run_dir, listed)) = all.into_iter().find(|(run_dir, _)| *run_dir == place.run_dir) else {
        return Ok(None);
    };
    let lives = listed.lives();
    let record = ContainerRecord { id: Some(listed.id), ..ContainerRecord::default() };
    let mut handle = TaskHandle {
        driver: NAME.to_owned(),
        attempt: place.attempt,
        boot_id: shared.boot_id.clone(),
        run_dir,
        cgroup: place.cgroup.clone(),
        supervisor: None,
        main: None,
        started_at: None,
        driver_state: None,
        network: None,
    };
    record.put(&mut handle);
    Ok(Some(UnrecordedAttempt { handle, lives }))
}

/// Removes containers that have ended and whose attempts were removed already, because the agent died in between. Those
/// of other agents are left alone.
pub async fn sweep(shared: &Arc<DockerContext>) {
    pause::sweep(shared).await;
    let all = match shared.engine.own_containers().await {
        Ok(all) => all,
        Err(error) => return drop(shared.record_error(error)),
    };
    for listed in all.into_iter().filter(|listed| !listed.lives() && listed.state != "created") {
        let Some(run_dir) = listed.run_dir().filter(|run_dir| shared.is_of_this_agent(run_dir) && !run_dir.exists())
        else {
            continue;
        };
        let parent =
            shared.engine.inspect(&listed.id).await.ok().and_then(|container| container.host_config.cgroup_parent);
        if let Err(error) = shared.engine.remove(&listed.id, false).await {
            tracing::warn!(container = listed.id, %error, "failed to remove a leftover container");
            continue;
        }
        tracing::info!(container = listed.id, run_dir = %run_dir.display(), "leftover container removed");
        let parent = parent.as_deref().and_then(ParentCgroup::of_parent).filter(|_| shared.no_cgroups.is_none());
        if let Some(parent) = parent.filter(|parent| is_named_after(parent, &run_dir)) {
            let (of, path) = (Arc::clone(shared), parent.path.clone());
            let has_ended = run_dir.ancestors().nth(2).is_some_and(|of_alloc| !of_alloc.exists());
            let remove = move || match has_ended {
                true => of.parents.remove_with_alloc(&of.sampling.layout, &parent),
                false => of.parents.remove(&of.sampling.layout, &parent),
            };
            if let Err(error) = shared.places.block(remove).await.and_then(|removed| removed) {
                tracing::warn!(cgroup = %path, error, "failed to remove the cgroup of a leftover container");
            }
        }
    }
}

/// Alloc IDs are unique: a cgroup with this one belongs to this task.
fn is_named_after(parent: &ParentCgroup, run_dir: &std::path::Path) -> bool {
    let alloc = run_dir.iter().rev().nth(2).and_then(|name| name.to_str()).filter(|name| !name.is_empty());
    let path = parent.path.as_str();
    alloc.is_some_and(|alloc| path.contains(alloc) || path.contains(&alloc.replace('-', "")))
}

pub fn alive_below(shared: &Arc<DockerContext>, top: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
    // The cgroup of a task is below its alloc's.
    let alloc = top.parent().and_then(|above| above.file_name()).and_then(|name| name.to_str());
    if alloc.and_then(AllocId::parse).is_none() {
        *crate::telemetry::lock(&shared.run_top) = Some(top.to_owned());
    }
    if !shared.is_known() {
        return Ok(Vec::new());
    }
    let all = own_containers(shared).map_err(std::io::Error::other)?;
    Ok(all.into_iter().map(|(run_dir, _)| run_dir).filter(|run_dir| run_dir.starts_with(top)).collect())
}
