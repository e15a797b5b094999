//! The start of a container: its image, cgroup, creation and start. If a step fails, the earlier ones are undone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use super::attempt::ContainerAttempt;
use super::config::Config;
use super::create::{self, Parts};
use super::engine::{Container, EngineError, EngineInfo, label};
use super::etc;
use super::place::ParentCgroup;
use super::shared::{ContainerRecord, DockerContext, failed};
use super::{mounts, pause};
use crate::host::untrusted;
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverError, StartRequest};
use crate::runner::persistence::datadir::make_run_dir;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::chain;

/// Maximum size of a seccomp profile.
const LARGEST_PROFILE: usize = 1 << 20;

fn start_error(message: impl Into<String>, recoverable: bool) -> DriverError {
    DriverError::Start { message: message.into(), recoverable }
}

/// The cgroup parent of the container. `None`: the engine chooses.
pub fn parent_of(shared: &DockerContext, request: &StartRequest, info: Option<&EngineInfo>) -> Option<ParentCgroup> {
    let alloc = request.alloc_cgroup.as_ref().filter(|_| shared.no_cgroups.is_none())?;
    Some(match info.is_some_and(EngineInfo::has_systemd) {
        true => ParentCgroup::slice(&request.alloc_id, &request.task.name),
        false => ParentCgroup::below(alloc, &request.task.name),
    })
}

pub async fn start(
    shared: &Arc<DockerContext>,
    request: StartRequest,
    mut handle: TaskHandle,
) -> Result<ContainerAttempt, DriverError> {
    let mut config = Config::of(&request.task)?;
    let mut record = ContainerRecord::of(&handle)?;
    let info = shared.query_info().await.map_err(|e| shared.record_error(e).of_start("query the Docker engine"))?;
    let parent = handle.cgroup.as_ref().map(ParentCgroup::of);
    if parent != parent_of(shared, &request, Some(&info)) {
        let message = format!("the Docker engine places containers by {:?} now", info.cgroup_driver);
        return Err(start_error(message, true));
    }
    let image = shared.images.ensure(&shared.engine, &shared.settings, (&config, &request.dirs.local), &request.events);
    let image = image.ends_with(Ends::Deadline).await.inspect_err(|_| shared.suspect.notify_one())?;
    if image.is_pulled {
        record.pulled = Some((image.image.id.clone(), super::images::ImageReference::parse(&config.image).whole()));
    }
    if let Some((id, name)) = &record.pulled {
        shared.images.hold(id, name, &request.dirs.run, true);
    }
    // The job's own `network_mode` takes precedence over the group's network, as in Nomad.
    let namespace = request.network_namespace.as_deref().filter(|_| config.network.mode.is_none());
    let joined = match namespace {
        Some(namespace) => pause::hold(shared, &request, namespace, &info).await.map(|id| config.network.join(&id)),
        None => Ok(()),
    };
    if let Err(error) = joined {
        clean(shared, &record, parent, &request.dirs.run).await;
        return Err(error);
    }
    let made =
        make(shared, (&request, &config), (&handle, &mut record), (&info, &image.image.id, parent.as_ref())).await;
    let started = match made {
        Ok(()) => run(shared, &mut record).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(container) => {
            record.put(&mut handle);
            handle.boot_id = shared.boot_id.clone();
            let attempt = ContainerAttempt::running(Arc::clone(shared), handle, record, &container, false);
            if let Some(network) = attempt.network() {
                request.events.report(&format!("its address is {network}"));
            }
            Ok(attempt)
        }
        Err(error) => {
            clean(shared, &record, parent, &request.dirs.run).await;
            Err(error)
        }
    }
}

/// The container, not yet started.
async fn make(
    shared: &Arc<DockerContext>,
    (request, config): (&StartRequest, &Config),
    (handle, record): (&TaskHandle, &mut ContainerRecord),
    (info, image, parent): (&EngineInfo, &str, Option<&ParentCgroup>),
) -> Result<(), DriverError> {
    let blocking = {
        let (shared, request, config, parent) = (Arc::clone(shared), request.clone(), config.clone(), parent.cloned());
        move || prepare_host(&shared, &request, &config, parent.as_ref())
    };
    let (mounted, security_opt) = shared.places.block(blocking).await.map_err(failed)??;
    let runtimes: Vec<String> = info.runtimes.keys().cloned().collect();
    let named = parent.and_then(ParentCgroup::as_parent);
    let body = create::body(Parts {
        request,
        config,
        settings: &shared.settings,
        image,
        runtimes: &runtimes,
        mounted,
        cgroup_parent: named.as_deref(),
        security_opt,
    })?;
    let created = match shared.engine.create(&record.name, &body).await {
        Err(error) if error.is_conflict() => {
            give_way(shared, handle, record, &error).await?;
            shared.engine.create(&record.name, &body).await
        }
        created => created,
    };
    let (id, warnings) = created.map_err(|e| shared.record_error(e).of_start("create the container"))?;
    for warning in warnings.iter().take(5) {
        request.events.report(&format!("the Docker engine warns: {warning}"));
    }
    record.id = Some(id);
    Ok(())
}

type Host = (mounts::ContainerMounts, Vec<String>);

/// The part of a start that prepares files on this host. Blocks.
fn prepare_host(
    shared: &DockerContext,
    request: &StartRequest,
    config: &Config,
    parent: Option<&ParentCgroup>,
) -> Result<Host, DriverError> {
    make_run_dir(&request.dirs.run)
        .map_err(|e| start_error(format!("cannot make {}: {e}", request.dirs.run.display()), true))?;
    // The path to them is closed to other users of the host, but open to the user of the image.
    for dir in [&request.dirs.local, &request.dirs.secrets] {
        let opened = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777));
        opened.map_err(|e| start_error(format!("cannot open {} to the image's user: {e}", dir.display()), true))?;
    }
    let mut mounted = mounts::mounted(config, request, shared.settings.volumes_enabled)?;
    mounted.mounts.extend(etc::mounts(request, &config.network)?);
    let security_opt = config.security_opt.iter().map(|option| profile(option)).collect::<Result<_, _>>()?;
    if let Some(parent) = parent {
        let made = shared.parents.make(&shared.sampling.layout, parent);
        made.map_err(|e| start_error(chain(&e), e.is_transient() || parent.slice.is_some()))?;
    }
    Ok((mounted, security_opt))
}

/// Replaces the path of a seccomp profile by its text, as Docker's own client does.
fn profile(option: &str) -> Result<String, DriverError> {
    let Some(path) = option.strip_prefix("seccomp=").or(option.strip_prefix("seccomp:")) else {
        return Ok(option.to_owned());
    };
    if path == "unconfined" || path == "builtin" || path.trim_start().starts_with('{') {
        return Ok(option.to_owned());
    }
    let failed = |why: String| start_error(format!("cannot read the seccomp profile {path}: {why}"), false);
    let text = untrusted::read_to_string(Path::new(path), LARGEST_PROFILE).map_err(|e| failed(e.to_string()))?;
    let profile: serde_json::Value = serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?;
    Ok(format!("seccomp={profile}"))
}

/// A container has this name already: one of this agent that belongs to no known attempt is removed.
async fn give_way(
    shared: &DockerContext,
    handle: &TaskHandle,
    record: &ContainerRecord,
    conflict: &EngineError,
) -> Result<(), DriverError> {
    let found = match shared.engine.inspect(&record.name).await {
        Ok(found) => found,
        // It is gone meanwhile.
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(shared.record_error(error).of_start("inspect the container of that name")),
    };
    let of_task = |run_dir: &str| Path::new(run_dir).parent() == handle.run_dir.parent();
    if !found.label(label::RUN_DIR).is_some_and(of_task) {
        return Err(start_error(format!("cannot create the container: {conflict}"), false));
    }
    let removed = shared.engine.remove(&found.id, true).await;
    removed.map_err(|e| shared.record_error(e).of_start("remove the container of an earlier attempt"))
}

/// How often a container that was started is looked up again.
const LATE_ANSWERS: u32 = 5;

/// Starts it. Errors: it is not running, or its state is unknown.
async fn run(shared: &Arc<DockerContext>, record: &mut ContainerRecord) -> Result<Container, DriverError> {
    let id = record.reference().to_owned();
    shared.engine.start(&id).await.map_err(|e| shared.record_error(e).of_start("start the container"))?;
    let mut container = shared.engine.inspect(&id).await;
    // It runs: an engine that answers late under load is no failure of its start.
    for _ in 0..LATE_ANSWERS {
        if !matches!(container, Err(EngineError::Unreachable(_))) {
            break;
        }
        container = shared.engine.inspect(&id).await;
    }
    let container = container.map_err(|e| shared.record_error(e).of_start("inspect the container"))?;
    record.learn(&container);
    Ok(container)
}

impl ContainerRecord {
    /// What is known of a container after its creation.
    pub fn learn(&mut self, container: &Container) {
        self.id = Some(container.id.clone());
        self.stop_signal =
            container.config.stop_signal.clone().filter(|signal| signal.len() < 20 && !signal.is_empty());
    }
}

/// Undoes a failed start. Failures are logged: the error of the start matters more.
async fn clean(shared: &Arc<DockerContext>, record: &ContainerRecord, parent: Option<ParentCgroup>, run_dir: &Path) {
    shared.images.release(&shared.engine, &shared.settings, run_dir);
    if let Some(id) = &record.id
        && let Err(error) = shared.engine.remove(id, true).await
    {
        tracing::warn!(container = record.name, %error, "failed to remove the container of a failed start");
    }
    let Some(parent) = parent else { return };
    let (of, path) = (Arc::clone(shared), parent.path.clone());
    let removed = shared.places.block(move || of.parents.remove(&of.sampling.layout, &parent)).await;
    if let Err(error) = removed.and_then(|removed| removed) {
        tracing::warn!(cgroup = %path, error, "failed to remove the cgroup of a failed start");
    }
}
