//! Podman: a container is an alloc with one task; conmon, which stands beside each, is none.
//!
//! ```text
//! …/libpod-<id>.scope      driven by systemd; the container's processes may be in a cgroup below
//! …/libpod-<id>            driven by itself
//! ```
//! Its socket, where one is served, tells what Docker's tells; else its files tell names and exit codes of root's containers.

use super::ObservedSource;
use super::docker::Engine;
use super::facts;
use super::identity::{CgroupParts, CgroupVerdict, Naming, Recognised, is_container_id};
use super::naming::{Inquiry, Runtime, RuntimePlaces};
use super::table::ExitFacts;
use crate::model::alloc::AllocSource;
use crate::model::task::ExitStatus;

pub static PODMAN: ObservedSource = ObservedSource { word: AllocSource::Podman, recognise, runtime: Some(runtime) };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let name = at.name();
    if name.starts_with("libpod-conmon-") || name.starts_with("crio-conmon-") {
        return Some(CgroupVerdict::Helper);
    }
    let rest = name.strip_prefix("libpod-")?;
    let id = rest.strip_suffix(".scope").unwrap_or(rest);
    is_container_id(id).then(|| Recognised::container(AllocSource::Podman, id).into())
}

fn runtime(places: &RuntimePlaces) -> Box<dyn Runtime> {
    let engine = Engine::new(places.file("/run/podman/podman.sock"), None, "podman");
    Box::new(Libpod { engine, places: places.clone() })
}

struct Libpod {
    engine: Engine,
    places: RuntimePlaces,
}

impl Runtime for Libpod {
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming> {
        self.engine.name(inquiry).or_else(|| {
            let id = inquiry.found.container.as_deref()?;
            let stores = ["overlay", "vfs", "btrfs", "zfs"].into_iter();
            let file = |store: &str| format!("/var/lib/containers/storage/{store}-containers/containers.json");
            let name = stores.filter_map(|store| facts::json(&self.places.file(&file(store)))).find_map(|all| {
                let of = all.as_array()?.iter().find(|container| container["id"] == id)?;
                Some(of["names"][0].as_str()?.to_owned())
            })?;
            Some(Naming { workload: Some(name.clone()), driver: Some("podman".to_owned()), ..Naming::of(&name) })
        })
    }

    fn exit(&mut self, inquiry: &Inquiry) -> Option<ExitFacts> {
        let id = inquiry.found.container.as_deref()?;
        let code = std::fs::read_to_string(self.places.file(&format!("/run/libpod/exits/{id}")));
        let code = code.ok().and_then(|code| code.trim().parse().ok());
        let written = code.map(|code| ExitFacts { status: ExitStatus::Code(code), oom: false, finished_at: None });
        written.or_else(|| self.engine.exit(inquiry))
    }
}
