//! containerd without Kubernetes: containers of `ctr` and `nerdctl`, and CRI containers outside of pods.
//!
//! ```text
//! …/cri-containerd-<id>.scope, …/nerdctl-<id>.scope      systemd cgroup driver
//! /default/<id>                                          cgroupfs driver, in containerd's default namespace
//! ```
//! The name that `nerdctl` gave a container is in the bundle that its shim keeps on disk. With the systemd driver the
//! path does not contain the containerd namespace, so all namespaces are searched.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::ObservedSource;
use super::facts;
use super::identity::{CgroupParts, CgroupVerdict, Naming, Recognised, is_container_id};
use super::naming::{Inquiry, Runtime};
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;

pub static CONTAINERD: ObservedSource = ObservedSource {
    word: AllocSource::Containerd,
    recognise,
    runtime: Some(|places| Box::new(Bundles(places.roots.clone()))),
};

/// Bundle directories per namespace: containerd's, and those of k3s and RKE2.
const BUNDLES: [&str; 2] =
    ["/run/containerd/io.containerd.runtime.v2.task", "/run/k3s/containerd/io.containerd.runtime.v2.task"];

/// The containerd namespace of Docker.
const OF_DOCKER: &str = "moby";

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let name = at.name();
    if at.depth() == 2 && at.parent() == "default" {
        return Some(Recognised::container(AllocSource::Containerd, name).into());
    }
    let scope = name.strip_suffix(".scope")?;
    let id = ["cri-containerd-", "nerdctl-"].into_iter().find_map(|prefix| scope.strip_prefix(prefix))?;
    is_container_id(id).then(|| Recognised::container(AllocSource::Containerd, id).into())
}

struct Bundles(Roots);

impl Runtime for Bundles {
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming> {
        let id = inquiry.found.container.as_deref()?;
        let namespace = inquiry.path.starts_with("/default/").then_some("default");
        named(&self.0, namespace, id, &inquiry.found.naming.name)
    }
}

/// The container's name from its bundle, else `otherwise`. `None`: there is no bundle.
pub fn named(roots: &Roots, namespace: Option<&str>, id: &str, otherwise: &str) -> Option<Naming> {
    let said = annotations(roots, namespace, id)?;
    let name = said.get("nerdctl/name").filter(|name| !name.is_empty());
    let name = name.map_or(otherwise, String::as_str).to_owned();
    let image = said.get("io.kubernetes.cri.image-name").filter(|image| !image.is_empty()).cloned();
    // An ID is used once: without a name the image says what runs.
    let is_named = name != otherwise;
    let workload = image.as_deref().filter(|_| !is_named).and_then(image_name).unwrap_or(&name).to_owned();
    let known = Naming { driver: Some("containerd".to_owned()), image, ..Naming::of(&name) };
    Some(Naming { workload: Some(workload), labels: said.into_iter().collect(), ..known })
}

/// `redis` of `registry.example:5000/library/redis:7@sha256:...`.
fn image_name(image: &str) -> Option<&str> {
    let last = image.split('@').next()?.rsplit('/').next()?;
    last.split(':').next().filter(|name| !name.is_empty())
}

/// Annotations in the bundle of a container. `namespace`: the containerd namespace; `None`: any except Docker's.
pub fn annotations(roots: &Roots, namespace: Option<&str>, id: &str) -> Option<BTreeMap<String, String>> {
    let of_namespaces = |bundles: &str| -> Vec<PathBuf> {
        let bundles = roots.file(bundles);
        let others = || facts::directories(&bundles).into_iter().filter(|of| !of.ends_with(OF_DOCKER)).collect();
        namespace.map_or_else(others, |namespace| vec![bundles.join(namespace)])
    };
    let specs =
        BUNDLES.into_iter().flat_map(of_namespaces).filter_map(|bundles| facts::json(&bundles, &[id, "config.json"]));
    specs.map(|spec| facts::texts(&spec["annotations"])).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_without_a_name_has_its_image_or_its_id_as_workload() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let workload = |annotations: serde_json::Value| {
            let bundle = roots.file(BUNDLES[0]).join("default/0f");
            std::fs::create_dir_all(&bundle).unwrap();
            let spec = serde_json::json!({ "annotations": annotations });
            std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
            let naming = named(&roots, Some("default"), "0f", "0f").unwrap();
            (naming.workload.unwrap(), naming.image)
        };
        assert_eq!(workload(serde_json::json!({})), ("0f".to_owned(), None));
        const IMAGE: &str = "registry.example:5000/library/redis:7@sha256:00";
        let of_cri = serde_json::json!({ "io.kubernetes.cri.image-name": IMAGE });
        assert_eq!(workload(of_cri), ("redis".to_owned(), Some(IMAGE.to_owned())));
        let named = serde_json::json!({ "io.kubernetes.cri.image-name": IMAGE, "nerdctl/name": "cache" });
        assert_eq!(workload(named).0, "cache");
    }

    #[test]
    fn name_of_an_image_has_no_registry_no_tag_and_no_digest() {
        for (image, name) in [("redis", Some("redis")), ("a/b/c:1", Some("c")), ("h:5000/x", Some("x")), ("", None)] {
            assert_eq!(image_name(image), name, "{image}");
        }
    }
}
