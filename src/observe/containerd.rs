//! containerd without Kubernetes: `ctr`, `nerdctl`, and containers of its CRI outside of pods.
//!
//! ```text
//! …/cri-containerd-<id>.scope, …/nerdctl-<id>.scope      driven by systemd
//! /default/<id>                                          driven by itself, in its default namespace
//! ```
//! The bundle that its shim leaves on disk tells what `nerdctl` calls a container.

use std::collections::BTreeMap;

use super::ObservedSource;
use super::facts;
use super::identity::{CgroupParts, CgroupVerdict, Naming, Recognised, is_container_id};
use super::naming::{Inquiry, Runtime, RuntimePlaces};
use crate::model::alloc::AllocSource;

pub static CONTAINERD: ObservedSource =
    ObservedSource { word: AllocSource::Containerd, recognise, runtime: Some(runtime) };

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let name = at.name();
    if at.depth() == 2 && at.parent() == "default" {
        return Some(Recognised::container(AllocSource::Containerd, name).into());
    }
    let scope = name.strip_suffix(".scope")?;
    let id = ["cri-containerd-", "nerdctl-"].into_iter().find_map(|prefix| scope.strip_prefix(prefix))?;
    is_container_id(id).then(|| Recognised::container(AllocSource::Containerd, id).into())
}

fn runtime(places: &RuntimePlaces) -> Box<dyn Runtime> {
    Box::new(Bundles(places.clone()))
}

struct Bundles(RuntimePlaces);

impl Runtime for Bundles {
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming> {
        let id = inquiry.found.container.as_deref()?;
        let said = annotations(&self.0, &["default", "k8s.io"], id)?;
        let name = said.get("nerdctl/name").filter(|name| !name.is_empty());
        let name = name.map_or_else(|| inquiry.found.naming.name.clone(), Clone::clone);
        let known = Naming { driver: Some("containerd".to_owned()), ..Naming::of(&name) };
        Some(Naming { workload: Some(name), labels: said.into_iter().collect(), ..known })
    }
}

/// What a container's bundle says of it. `namespaces`: of containerd, in which it may be.
pub fn annotations(places: &RuntimePlaces, namespaces: &[&str], id: &str) -> Option<BTreeMap<String, String>> {
    namespaces.iter().find_map(|namespace| {
        let bundle = format!("/run/containerd/io.containerd.runtime.v2.task/{namespace}/{id}/config.json");
        Some(facts::texts(&facts::json(&places.file(&bundle))?["annotations"]))
    })
}
