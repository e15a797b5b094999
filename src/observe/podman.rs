//! Podman: a container is an alloc with one task. The conmon process beside each is ignored.
//!
//! ```text
//! …/libpod-<id>.scope                    systemd cgroup driver; the processes may be in a child cgroup
//! …/libpod_parent/libpod-<id>            cgroupfs driver; one conmon cgroup for all
//! …/<unit>.service/libpod-payload-<id>   a unit with a split cgroup, as Quadlet creates; conmon is in `runtime`
//! ```
//! Podman's socket, if there is one, provides the same as Docker's. Otherwise Podman's files provide names and exit
//! codes of root's containers.

use std::time::SystemTime;

use super::ObservedSource;
use super::docker::{ContainerEngine, DockerApi};
use super::exits::ExitFacts;
use super::identity::{CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming, is_container_id};
use super::runtime_json;
use super::runtime_queries::{ExitReply, QueryTarget, QueryTopic, Runtime, RuntimePaths};
use crate::host::untrusted::RuntimeDirectory;
use crate::model::alloc::AllocSource;
use crate::model::task::ExitStatus;
use crate::model::units::{Nanos, Timestamp};

/// Podman writes the exit file first, and records the events of an end after that.
const EVENTS_WITHIN: Nanos = Nanos(1_500_000_000);

pub static PODMAN: ObservedSource = ObservedSource { word: AllocSource::Podman, recognise, runtime: Some(runtime) };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let (name, parent) = (at.name(), at.parent());
    let is_conmon = match name {
        "conmon" => at.above().any(|name| name == "libpod_parent"),
        "runtime" => parent.ends_with(".service"),
        _ => name.starts_with("libpod-conmon-") || name.starts_with("crio-conmon-"),
    };
    if is_conmon {
        return Some(CgroupVerdict::Helper);
    }
    let rest = name.strip_prefix("libpod-")?;
    if let Some(id) = rest.strip_prefix("payload-").filter(|id| is_container_id(id)) {
        let found = RecognisedTask::container(AllocSource::Podman, id);
        // Without the container's name the unit's name is the best one.
        let naming =
            TaskNaming { workload: Some(parent.to_owned()), driver: found.naming.driver, ..TaskNaming::of(parent) };
        return Some(RecognisedTask { naming, ..found }.into());
    }
    let id = rest.strip_suffix(".scope").unwrap_or(rest);
    is_container_id(id).then(|| RecognisedTask::container(AllocSource::Podman, id).into())
}

fn runtime(paths: &RuntimePaths) -> Box<dyn Runtime> {
    let engine = DockerApi::new(paths.roots.file("/run/podman/podman.sock"), None, ContainerEngine::Podman);
    Box::new(PodmanRuntime { engine, paths: paths.clone() })
}

/// Names and exits from Podman's API.
struct PodmanRuntime {
    engine: DockerApi,
    paths: RuntimePaths,
}

impl PodmanRuntime {
    /// The exit code from Podman's exit file.
    fn written(&self, id: &str) -> Option<u8> {
        let exits = RuntimeDirectory::open(&self.paths.roots.file("/run/libpod/exits")).ok()?;
        std::str::from_utf8(&exits.read(&[id], 64).ok()?).ok()?.trim().parse().ok()
    }
}

/// Podman may still record the events of this end.
fn is_recent(target: &QueryTarget) -> bool {
    let QueryTopic::Exit(life) = target.about else { return false };
    Timestamp::from_system(SystemTime::now()).since(life.removed_at) < EVENTS_WITHIN
}

impl Runtime for PodmanRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        self.engine.name(target).or_else(|| {
            let id = target.found.container.as_deref()?;
            let stores = ["overlay", "vfs", "btrfs", "zfs"].into_iter();
            // Containers with `--rm`, including those of Quadlet, are in a separate list.
            let lists = ["containers.json", "volatile-containers.json"];
            let storage = self.paths.roots.file("/var/lib/containers/storage");
            let files = stores.flat_map(|store| lists.map(|list| (format!("{store}-containers"), list)));
            let read = |(store, list): (String, &str)| runtime_json::read_file(&storage, &[&store, list]);
            let name = files.filter_map(read).find_map(|all| {
                let of = all.as_array()?.iter().find(|container| container["id"] == id)?;
                Some(of["names"][0].as_str()?.to_owned())
            })?;
            Some(TaskNaming {
                workload: Some(name.clone()),
                driver: Some("podman".to_owned()),
                ..TaskNaming::of(&name)
            })
        })
    }

    fn renamed(&mut self) -> Vec<String> {
        self.engine.renamed()
    }

    fn exit(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> ExitReply {
        match target.found.container.as_deref().and_then(|id| self.written(id)) {
            Some(code) => {
                let is_stopped = self.engine.is_stopped(target, ended_at);
                if is_stopped.is_none() && is_recent(target) {
                    return ExitReply::NotYet;
                }
                let on_request = is_stopped == Some(true);
                ExitReply::Exit(ExitFacts {
                    status: ExitStatus::Code(code),
                    oom: false,
                    on_request,
                    will_restart: false,
                    result: None,
                    finished_at: None,
                })
            }
            None => self.engine.exit(target, ended_at),
        }
    }
}
