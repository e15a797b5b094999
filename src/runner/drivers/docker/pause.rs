//! The pause container of an alloc whose group has its own network namespace. An engine can join a container only to
//! the network of another container, never to a namespace by its path. So a pause container of this agent enters the
//! alloc's namespace, and the containers of its tasks join that one.
//!
//! ```text
//! first task of the alloc ── image imported ── pause container created, started ── in the namespace? ── its ID
//! each further start      ── found; restarted if its engine stopped it ───────────── in the namespace? ── its ID
//! end of the alloc        ── removed; if the agent or the engine was down: by a sweep
//! ```
//! The namespace belongs to the agent and outlives engine and container: connections by CNI plugins stay, and tasks of
//! other drivers in the same group are unaffected.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::engine::{Container, EngineError, EngineImage, EngineInfo, label};
use super::images;
use super::pause_image::{NAMESPACE, PROGRAM, REPOSITORY, TAG, archive, layer};
use super::place::ParentCgroup;
use super::shared::{DockerContext, failed};
use crate::host::netns;
use crate::model::id::{AllocId, TaskName};
use crate::runner::drivers::{DriverError, StartRequest};
use crate::telemetry::chain;

/// Its cgroup beside those of tasks, whose names cannot begin like this.
const CGROUP: &str = ".network";
/// Timeout to enter the namespace, which it does with its first instructions.
const ENTER_PATIENCE: Duration = Duration::from_secs(10);
const ENTER_PAUSE: Duration = Duration::from_millis(2);
/// Other tasks of the alloc may create or remove it at the same time.
const HOLD_PATIENCE: Duration = Duration::from_secs(60);
const HOLD_PAUSE: Duration = Duration::from_millis(50);

fn name_of(alloc: &AllocId) -> String {
    format!("allostat-network-{alloc}")
}

fn start_error(message: String, recoverable: bool) -> DriverError {
    DriverError::Start { message, recoverable }
}

/// State of a pause container that was started.
enum PauseStart {
    /// Its ID.
    Yes(String),
    /// It runs in another namespace.
    Elsewhere,
    /// It does not exist.
    Missing,
}

/// Makes sure that the pause container of the alloc runs in its namespace. Returns its ID.
pub async fn hold(
    shared: &Arc<DockerContext>,
    request: &StartRequest,
    namespace: &Path,
    info: &EngineInfo,
) -> Result<String, DriverError> {
    let name = name_of(&request.alloc_id);
    let until = Instant::now() + HOLD_PATIENCE;
    loop {
        let id = match shared.engine.inspect(&name).await {
            Ok(found) => found.id,
            Err(error) if error.is_not_found() => create(shared, request, namespace, info).await?,
            Err(error) => {
                return Err(shared.record_error(error).of_start("find the pause container of its network"));
            }
        };
        let entered = match shared.engine.start(&id).await {
            Ok(()) => entered(shared, &id, namespace).await?,
            // It is being created or removed.
            Err(error) if error.is_not_found() || error.is_conflict() => PauseStart::Missing,
            Err(error) => return Err(shared.record_error(error).of_start("start the pause container of its network")),
        };
        match entered {
            PauseStart::Yes(id) => return Ok(id),
            PauseStart::Elsewhere => {
                let removed = shared.engine.remove(&id, true).await;
                removed
                    .map_err(|e| shared.record_error(e).of_start("remove the pause container of an earlier network"))?;
            }
            PauseStart::Missing => {}
        }
        if Instant::now() > until {
            let namespace = namespace.display();
            return Err(start_error(
                format!("its pause container does not stay in the network namespace {namespace}"),
                true,
            ));
        }
        tokio::time::sleep(HOLD_PAUSE).await;
    }
}

/// Returns its ID, whichever task of the alloc created it.
async fn create(
    shared: &Arc<DockerContext>,
    request: &StartRequest,
    namespace: &Path,
    info: &EngineInfo,
) -> Result<String, DriverError> {
    let image = own_image(shared).await?;
    let parent = parent_of(shared, request, info);
    if let Some(parent) = parent.clone() {
        let of = Arc::clone(shared);
        let made = shared.places.block(move || of.parents.make_missing(&of.sampling.layout, &parent)).await;
        made.map_err(failed)?.map_err(|e| start_error(chain(&e), e.is_transient()))?;
    }
    let body = json!({
        "Image": image,
        "Entrypoint": [PROGRAM],
        "Hostname": request.network.hostname,
        "Labels": { label::NETWORK_OF: request.alloc_id.as_str(), label::NETWORK_NAMESPACE: namespace },
        "HostConfig": {
            // Its own network until the program has entered the alloc's, which needs that one capability.
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "CapAdd": ["SYS_ADMIN"],
            "ReadonlyRootfs": true,
            "Mounts": [{ "Type": "bind", "Source": namespace, "Target": NAMESPACE, "ReadOnly": true }],
            "CgroupParent": parent.as_ref().and_then(ParentCgroup::as_parent).unwrap_or_default(),
            "RestartPolicy": { "Name": "no" },
            "LogConfig": { "Type": "none" },
        },
    });
    let name = name_of(&request.alloc_id);
    match shared.engine.create(&name, &body).await {
        Ok((id, _)) => Ok(id),
        // Another task of the alloc was faster.
        Err(error) if error.is_conflict() => Ok(name),
        Err(error) => Err(shared.record_error(error).of_start("create the pause container of its network")),
    }
}

/// The ID of the agent's pause image, imported if the engine does not have it. Any user who can load or push an image
/// can give it that name, and the container gets a capability: so the image is verified by its content.
async fn own_image(shared: &Arc<DockerContext>) -> Result<String, DriverError> {
    let name = format!("{REPOSITORY}:{TAG}");
    let archive =
        archive().ok_or_else(|| start_error("allostat has no pause container for this processor".to_owned(), false))?;
    let layer = layer(&archive);
    let is_own = |image: &EngineImage| image.root_fs.layers.as_deref() == Some(std::slice::from_ref(&layer));
    let check = async || match shared.engine.image(&name).await {
        Ok(found) => Ok(Some(found).filter(is_own)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(shared.record_error(error).of_start("inspect the image of pause containers")),
    };
    if let Some(found) = check().await? {
        return Ok(found.id);
    }
    images::import(&shared.engine, REPOSITORY, TAG, archive).await?;
    let imported = check().await?;
    imported
        .map(|image| image.id)
        .ok_or_else(|| start_error(format!("another program gave {name} to another image"), true))
}

fn parent_of(shared: &DockerContext, request: &StartRequest, info: &EngineInfo) -> Option<ParentCgroup> {
    let alloc = request.alloc_cgroup.as_ref().filter(|_| shared.no_cgroups.is_none())?;
    let name = TaskName::from(CGROUP);
    Some(if info.has_systemd() {
        ParentCgroup::slice(&request.alloc_id, &name)
    } else {
        ParentCgroup::below(alloc, &name)
    })
}

/// Waits until its process is in the namespace. Errors: it has ended, and why.
async fn entered(shared: &Arc<DockerContext>, id: &str, namespace: &Path) -> Result<PauseStart, DriverError> {
    let until = Instant::now() + ENTER_PATIENCE;
    loop {
        let container = match shared.engine.inspect(id).await {
            Ok(container) => container,
            Err(error) if error.is_not_found() => return Ok(PauseStart::Missing),
            Err(error) => {
                return Err(shared.record_error(error).of_start("inspect the pause container of its network"));
            }
        };
        let pid = u32::try_from(container.state.pid).ok().filter(|pid| *pid > 0);
        match pid.filter(|_| container.state.running) {
            Some(pid) if is_in(&shared.sampling.roots.proc, pid, namespace) => {
                return Ok(PauseStart::Yes(container.id));
            }
            Some(_) if Instant::now() > until => return Ok(PauseStart::Elsewhere),
            Some(_) => tokio::time::sleep(ENTER_PAUSE).await,
            None => return Err(not_entered(&container, namespace)),
        }
    }
}

fn not_entered(container: &Container, namespace: &Path) -> DriverError {
    // The exit code of the program is the errno.
    let code = i32::try_from(container.state.exit_code).ok().filter(|code| (1..128).contains(code));
    let why = match code {
        Some(code) => io::Error::from_raw_os_error(code).to_string(),
        None => format!("it has ended with code {}", container.state.exit_code),
    };
    let message = format!("its pause container cannot enter the network namespace {}: {why}", namespace.display());
    start_error(message, true)
}

/// Whether two links to namespace files lead to the same one.
fn is_in(proc: &Path, pid: u32, namespace: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let own = identity(&proc.join(pid.to_string()).join("ns/net"));
    own.is_some() && own == identity(namespace)
}

/// Removes the pause container of an alloc. Idempotent.
pub async fn leave(shared: &Arc<DockerContext>, alloc: &AllocId) -> Result<(), DriverError> {
    if !shared.is_known() {
        return Ok(());
    }
    let found = match shared.engine.inspect(&name_of(alloc)).await {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(failed(shared.record_error(error).to_string())),
    };
    if found.label(label::NETWORK_OF) != Some(alloc.as_str()) {
        return Ok(());
    }
    remove(shared, &found).await.map_err(|e| failed(format!("cannot remove the pause container: {e}")))
}

async fn remove(shared: &Arc<DockerContext>, container: &Container) -> Result<(), String> {
    shared.engine.remove(&container.id, true).await.map_err(|e| shared.record_error(e).to_string())?;
    let parent = container.host_config.cgroup_parent.as_deref().and_then(ParentCgroup::of_parent);
    let alloc = container.label(label::NETWORK_OF).unwrap_or_default();
    // A container is removed only if it has the alloc's ID as a label.
    let is_own = |parent: &ParentCgroup| {
        let path = parent.path.as_str();
        AllocId::parse(alloc).is_some() && (path.contains(alloc) || path.contains(&alloc.replace('-', "")))
    };
    let Some(parent) = parent.filter(is_own).filter(|_| shared.no_cgroups.is_none()) else { return Ok(()) };
    let of = Arc::clone(shared);
    shared.places.block(move || of.parents.remove(&of.sampling.layout, &parent)).await?
}

/// Also by its name, which no job can choose.
fn is_pause(container: &Container) -> bool {
    let alloc = container.label(label::NETWORK_OF).and_then(AllocId::parse);
    alloc.is_some_and(|alloc| container.name.trim_start_matches('/') == name_of(&alloc))
}

/// Removes those whose namespace is gone: their alloc ended while the agent or the engine was down.
pub async fn sweep(shared: &Arc<DockerContext>) {
    let all = match shared.engine.labelled(label::NETWORK_NAMESPACE).await {
        Ok(all) => all,
        Err(error) => return drop(shared.record_error(error)),
    };
    for listed in all {
        let namespace = listed.labels.as_ref().and_then(|labels| labels.get(label::NETWORK_NAMESPACE));
        if namespace.is_none_or(|namespace| netns::exists(&PathBuf::from(namespace))) {
            continue;
        }
        let removed = match shared.engine.inspect(&listed.id).await {
            // An image or another program may have set this label.
            Ok(container) if !is_pause(&container) => continue,
            Ok(container) => remove(shared, &container).await,
            Err(EngineError::Refused { status: 404, .. }) => continue,
            Err(error) => Err(error.to_string()),
        };
        match removed {
            Ok(()) => tracing::info!(container = listed.id, "leftover pause container removed"),
            Err(error) => tracing::warn!(container = listed.id, error, "failed to remove a leftover pause container"),
        }
    }
}
