//! containerd without Kubernetes: containers of `ctr` and `nerdctl`, and CRI containers outside of pods.
//!
//! ```text
//! …/cri-containerd-<id>.scope, …/nerdctl-<id>.scope      systemd cgroup driver
//! /<namespace>/<id>                                      cgroupfs driver; the ID is any name that a user chose
//! ```
//! A path with a namespace other than `default` could be any cgroup. It is a container if the bundle
//! `<namespace>/<id>` in containerd's own directory names that cgroup.
//!
//! The name that `nerdctl` gave a container is in the bundle too. With the systemd driver the path does not contain the
//! namespace, so all namespaces are searched. Names are unique in a namespace only, so every namespace except `default`
//! is a prefix of the name: `build/redis`.
//!
//! A stopped task and its empty cgroup stay until a client deletes it (`ctr task delete`, `nerdctl rm`). Until then its
//! shim reports the exit; after that only the kernel has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::ObservedSource;
use super::exits::facts_of;
use super::identity::{CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming, is_container_id, is_number};
use super::runtime_json;
use super::runtime_queries::{EndAnswer, QueryTarget, Runtime};
use crate::host::roots::Roots;
use crate::host::shim::{self, ShimState};
use crate::host::untrusted::{self, RuntimeDirectory, component};
use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;

pub static CONTAINERD: ObservedSource = ObservedSource {
    word: AllocSource::Containerd,
    recognise,
    runtime: Some(|paths| Box::new(ContainerdRuntime(paths.roots.clone()))),
};

/// Bundle directories per namespace: containerd's, and those of k3s and RKE2.
const BUNDLES: [&str; 2] =
    ["/run/containerd/io.containerd.runtime.v2.task", "/run/k3s/containerd/io.containerd.runtime.v2.task"];

/// Directories with the sockets of shims, which are named by a hash.
const SOCKETS: [&str; 2] = ["/run/containerd/s", "/run/k3s/containerd/s"];
/// More than an address of a shim has.
const LONGEST_ADDRESS: usize = 256;

/// The containerd namespace of Docker.
const OF_DOCKER: &str = "moby";
/// The namespace without which names are shown.
const DEFAULT: &str = "default";

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let name = at.name();
    if at.depth() == 2 && (at.parent() == DEFAULT || at.has_bundle()) {
        let found = RecognisedTask::container(AllocSource::Containerd, name);
        return Some(RecognisedTask { naming: in_namespace(at.parent(), found.naming), ..found }.into());
    }
    let scope = name.strip_suffix(".scope")?;
    let id = ["cri-containerd-", "nerdctl-"].into_iter().find_map(|prefix| scope.strip_prefix(prefix))?;
    is_container_id(id).then(|| RecognisedTask::container(AllocSource::Containerd, id).into())
}

/// Names from the bundles of containerd's shims, and exits from the shims.
struct ContainerdRuntime(Roots);

impl Runtime for ContainerdRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        let id = target.found.container.as_deref()?;
        named(&self.0, &target.path, id, &target.found.naming.name)
    }

    /// Of a task in a cgroup that still exists. The shim of a deleted one is gone.
    fn exit(&mut self, target: &QueryTarget, _: Option<Timestamp>) -> EndAnswer {
        let Some(id) = target.found.container.as_deref() else { return EndAnswer::Nothing };
        let shim = bundle_at(&self.0, &target.path, id).and_then(|bundle| bundle.shim(&self.0, id));
        let state = shim.and_then(|(socket, version)| {
            let refused = |error| tracing::debug!(source = "containerd", %error, socket = %socket.display(), "cannot query containerd shim");
            shim::state(&socket, version, id).map_err(refused).ok()
        });
        match state {
            // It may be about to report the end.
            Some(ShimState::Alive) => EndAnswer::NotYet,
            Some(ShimState::Stopped { code, exited_at }) => EndAnswer::Exit(facts_of(code, false, exited_at)),
            None => EndAnswer::Nothing,
        }
    }
}

/// Namespace and ID of a container that has this path with the cgroupfs driver.
fn namespace_and_id(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/').filter(|(_, id)| !id.contains('/'))
}

/// Whether a bundle of a namespace other than `default` names this cgroup, as `/<namespace>/<id>`.
pub fn has_bundle(roots: &Roots, path: &str) -> bool {
    let Some((namespace, id)) = namespace_and_id(path) else { return false };
    let is_of_docker = namespace == OF_DOCKER && is_container_id(id);
    // Slices are systemd's, and have too many cgroups to search a bundle for each.
    if namespace == DEFAULT || is_of_docker || namespace.ends_with(".slice") || component(namespace).is_none() {
        return false;
    }
    let is_known = |bundles: &str| roots.file(bundles).join(namespace).is_dir();
    BUNDLES.into_iter().any(is_known)
        && bundles(roots, Some(namespace), id).any(|bundle| bundle.cgroup.as_deref() == Some(path))
}

/// Names of a container of this namespace: another namespace may have a container of the same name.
fn in_namespace(namespace: &str, naming: TaskNaming) -> TaskNaming {
    if namespace == DEFAULT {
        return naming;
    }
    // A number before the name is the user to whom a workload belongs. No namespace contains a colon.
    let prefix = if is_number(namespace) { format!("ns:{namespace}") } else { namespace.to_owned() };
    let within = |name: String| format!("{prefix}/{name}");
    let (native, workload) = (within(naming.native), naming.workload.map(within));
    TaskNaming { native, workload, namespace: namespace.to_owned(), ..naming }
}

/// The bundle of the container with this cgroup.
fn bundle_at(roots: &Roots, path: &str, id: &str) -> Option<ShimBundle> {
    let namespace = namespace_and_id(path).filter(|(_, name)| *name == id).map(|(namespace, _)| namespace);
    let find = |namespace: Option<&str>| bundles(roots, namespace, id).find(|bundle| bundle.may_be_at(path));
    let of_path = namespace.filter(|of| *of != OF_DOCKER || !is_container_id(id)).and_then(|of| find(Some(of)));
    // Below a parent that a user chose, the path has no namespace.
    let any = || if namespace == Some(DEFAULT) { None } else { find(None) };
    of_path.or_else(any)
}

/// The name of the container with this cgroup from its bundle, which falls back to `otherwise`. `None`: no bundle of
/// this ID names this cgroup.
pub fn named(roots: &Roots, path: &str, id: &str, otherwise: &str) -> Option<TaskNaming> {
    let ShimBundle { namespace, annotations: reported, .. } = bundle_at(roots, path, id)?;
    let name = reported.get("nerdctl/name").filter(|name| !name.is_empty());
    let name = name.map_or(otherwise, String::as_str).to_owned();
    let image = reported.get("io.kubernetes.cri.image-name").filter(|image| !image.is_empty()).cloned();
    // An ID is used once: without a name the image says what runs.
    let is_named = name != otherwise;
    let workload = image.as_deref().filter(|_| !is_named).and_then(image_name).unwrap_or(&name).to_owned();
    let known = TaskNaming { driver: Some("containerd".to_owned()), image, ..TaskNaming::of(&name) };
    let known = TaskNaming { workload: Some(workload), labels: reported.into_iter().collect(), ..known };
    Some(in_namespace(&namespace, known))
}

/// `redis` of `registry.example:5000/library/redis:7@sha256:...`.
fn image_name(image: &str) -> Option<&str> {
    let last = image.split('@').next()?.rsplit('/').next()?;
    last.split(':').next().filter(|name| !name.is_empty())
}

/// Annotations in the bundle of a container of this namespace.
pub fn annotations(roots: &Roots, namespace: &str, id: &str) -> Option<BTreeMap<String, String>> {
    bundles(roots, Some(namespace), id).map(|bundle| bundle.annotations).next()
}

/// What the shim of a container keeps on disk.
struct ShimBundle {
    /// Of its namespace.
    directory: PathBuf,
    namespace: String,
    annotations: BTreeMap<String, String>,
    /// Where the runtime is to make its cgroup.
    cgroup: Option<String>,
}

impl ShimBundle {
    /// The socket of its shim, and the version of the shim's API.
    fn shim(&self, roots: &Roots, id: &str) -> Option<(PathBuf, u8)> {
        let of_newer =
            runtime_json::read_file(&self.directory, &[id, "bootstrap.json"]).filter(|of| of["protocol"] == "ttrpc");
        let (address, version) = match of_newer {
            Some(of) => (of["address"].as_str()?.to_owned(), u8::try_from(of["version"].as_u64()?).ok()?),
            None => {
                let directory = RuntimeDirectory::open(&self.directory).ok()?;
                let address = directory.read(&[id, "address"], LONGEST_ADDRESS).ok()?;
                (String::from_utf8(address).ok()?, 2)
            }
        };
        let path = address.trim_end().strip_prefix("unix://")?;
        let socket = |directory: &str| {
            let name = path.strip_prefix(directory)?.strip_prefix('/').filter(|name| is_container_id(name))?;
            Some(roots.file(directory).join(name))
        };
        SOCKETS.into_iter().find_map(socket).zip(Some(version).filter(|version| (2..=3).contains(version)))
    }
    /// Whether the cgroup at this path can be the container's. A bundle without a cgroup excludes none.
    fn may_be_at(&self, path: &str) -> bool {
        let Some(cgroup) = &self.cgroup else { return true };
        let scope = match cgroup.split(':').collect::<Vec<_>>()[..] {
            // Of no slice it is in the runtime's own.
            ["", prefix, name] => Some(format!("/{prefix}-{name}.scope")),
            [slice, prefix, name] => Some(format!("/{slice}/{prefix}-{name}.scope")),
            _ => None,
        };
        // A runtime may be in a cgroup of its own and make the others below it.
        let below = format!("/{}", cgroup.trim_start_matches('/'));
        path.ends_with(&below) || scope.is_some_and(|scope| path.ends_with(&scope))
    }
}

/// The bundles of this ID. `namespace`: the containerd namespace; `None`: any except Docker's.
fn bundles(roots: &Roots, namespace: Option<&str>, id: &str) -> impl Iterator<Item = ShimBundle> {
    let of_namespaces = |bundles: &str| -> Vec<PathBuf> {
        let bundles = roots.file(bundles);
        let all_namespaces =
            || untrusted::subdirectories(&bundles).into_iter().filter(|of| !of.ends_with(OF_DOCKER)).collect();
        let named =
            |namespace: &str| component(namespace).map(|namespace| bundles.join(namespace)).into_iter().collect();
        namespace.map_or_else(all_namespaces, named)
    };
    let found: Vec<PathBuf> = BUNDLES.into_iter().flat_map(of_namespaces).collect();
    found.into_iter().filter_map(move |directory| {
        let namespace = directory.file_name()?.to_str()?.to_owned();
        let spec = runtime_json::read_file(&directory, &[id, "config.json"])?;
        let cgroup = spec["linux"]["cgroupsPath"].as_str().map(str::to_owned);
        let annotations = runtime_json::string_fields(&spec["annotations"]);
        Some(ShimBundle { directory, namespace, annotations, cgroup })
    })
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
            let naming = named(&roots, "/default/0f", "0f", "0f").unwrap();
            (naming.workload.unwrap(), naming.image)
        };
        assert_eq!(workload(serde_json::json!({})), ("0f".to_owned(), None));
        const IMAGE: &str = "registry.example:5000/library/redis:7@sha256:00";
        let of_cri = serde_json::json!({ "io.kubernetes.cri.image-name": IMAGE });
        assert_eq!(workload(of_cri), ("redis".to_owned(), Some(IMAGE.to_owned())));
        let named = serde_json::json!({ "io.kubernetes.cri.image-name": IMAGE, "nerdctl/name": "cache" });
        assert_eq!(workload(named).0, "cache");
    }

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// A host with this bundle, which names this cgroup.
    fn host(namespace: &str, id: &str, cgroup: &str) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let bundle = roots.file(BUNDLES[0]).join(namespace).join(id);
        std::fs::create_dir_all(&bundle).unwrap();
        let spec = serde_json::json!({ "linux": { "cgroupsPath": cgroup } });
        std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        (dir, roots)
    }

    #[test]
    fn cgroup_is_a_container_only_if_the_bundle_of_its_namespace_names_it() {
        let has = |namespace: &str, id: &str, cgroup: &str, path: &str| {
            let (_dir, roots) = host(namespace, id, cgroup);
            has_bundle(&roots, path)
        };
        assert!(has("build", "redis", "/build/redis", "/build/redis"));
        assert!(has("build", ID, &format!("/build/{ID}"), &format!("/build/{ID}")));
        assert!(has("moby", "redis", "/moby/redis", "/moby/redis"), "Docker has IDs only");
        for (namespace, id, cgroup, path) in [
            ("build", "redis", "/build/redis", "/build/web"),
            ("build", "redis", "/build/redis", "/other/redis"),
            ("build", "redis", "/build/redis", "/build/redis/inner"),
            ("build", "redis", "/build/redis", "/above/build/redis"),
            ("build", "redis", "/build/redis", "/redis"),
            ("build", "redis", "/elsewhere/redis", "/build/redis"),
            ("build", "redis", "build/redis", "/build/redis"),
            ("system.slice", "redis", "/system.slice/redis", "/system.slice/redis"),
            ("moby", ID, &format!("/moby/{ID}"), &format!("/moby/{ID}")),
        ] {
            assert!(!has(namespace, id, cgroup, path), "{namespace}/{id} at {cgroup}: {path}");
        }
        // Neither a link nor a way out of the directory.
        let (dir, roots) = host("build", "redis", "/build/link");
        let bundles = roots.file(BUNDLES[0]);
        std::os::unix::fs::symlink(bundles.join("build/redis"), bundles.join("build/link")).unwrap();
        assert!(!has_bundle(&roots, "/build/link"));
        std::fs::write(dir.path().join("config.json"), r#"{"linux": {"cgroupsPath": "/../.."}}"#).unwrap();
        assert!(!has_bundle(&roots, "/../.."));
    }

    #[test]
    fn name_in_another_namespace_than_default_has_its_namespace() {
        let scope = format!("/system.slice/nerdctl-{ID}.scope");
        let name = |namespace: &str, id: &str, cgroup: &str, path: &str| {
            let (_dir, roots) = host(namespace, id, cgroup);
            named(&roots, path, id, id).map(|naming| (naming.native, naming.workload.unwrap(), naming.namespace))
        };
        let expected =
            |native: &str, namespace: &str| Some((native.to_owned(), native.to_owned(), namespace.to_owned()));
        assert_eq!(name("default", "redis", "/default/redis", "/default/redis"), expected("redis", ""));
        assert_eq!(name("build", "redis", "/build/redis", "/build/redis"), expected("build/redis", "build"));
        // Only a user's workload begins with a number.
        let of_number = Some(("ns:1000/redis".to_owned(), "ns:1000/redis".to_owned(), "1000".to_owned()));
        assert_eq!(name("1000", "redis", "/1000/redis", "/1000/redis"), of_number);
        let of_systemd = format!("system.slice:nerdctl:{ID}");
        assert_eq!(name("shop", ID, &of_systemd, &scope), expected(&format!("shop/{ID}"), "shop"));
        assert_eq!(
            name("shop", ID, &format!("/jobs/{ID}"), &format!("/jobs/{ID}")),
            expected(&format!("shop/{ID}"), "shop")
        );
        assert_eq!(name("shop", ID, &format!("/jobs/{ID}"), &scope), None, "the bundle of another cgroup");
        let of_other = format!("other.slice:nerdctl:{ID}");
        assert_eq!(name("shop", ID, &of_other, &scope), None, "the bundle of another slice");
        assert_eq!(name("build", "redis", "/default/redis", "/default/redis"), None, "the bundle of another namespace");
    }

    #[test]
    fn shim_is_queried_at_a_socket_of_containerds_own_directory_only() {
        let shim = |file: &str, text: &str| {
            let (_dir, roots) = host("build", "redis", "/build/redis");
            std::fs::write(roots.file(BUNDLES[0]).join("build/redis").join(file), text).unwrap();
            let bundle = bundle_at(&roots, "/build/redis", "redis").unwrap();
            let found = bundle.shim(&roots, "redis");
            found.map(|(socket, version)| (socket.strip_prefix(roots.file("/")).unwrap().to_owned(), version))
        };
        let newer = |protocol: &str, address: &str, version: u8| {
            let text = serde_json::json!({"version": version, "address": address, "protocol": protocol});
            shim("bootstrap.json", &text.to_string())
        };
        for (directory, socket) in SOCKETS.iter().zip(["run/containerd/s", "run/k3s/containerd/s"]) {
            let (address, socket) = (format!("unix://{directory}/{ID}"), PathBuf::from(format!("{socket}/{ID}")));
            assert_eq!(shim("address", &address), Some((socket.clone(), 2)));
            assert_eq!(shim("address", &format!("{address}\n")), Some((socket.clone(), 2)));
            assert_eq!(newer("ttrpc", &address, 3), Some((socket, 3)));
            assert_eq!((newer("grpc", &address, 3), newer("ttrpc", &address, 4)), (None, None));
        }
        for address in [
            "",
            "unix:///run/containerd/s/",
            "unix:///run/containerd/s/../s",
            "unix:///run/containerd/s/web",
            "unix://@/containerd-shim/web",
            "vsock://2:1024",
            &format!("unix:///run/other/{ID}"),
            &format!("unix:///run/containerd/s/{ID}/{ID}"),
            &"a".repeat(LONGEST_ADDRESS + 1),
        ] {
            assert_eq!((shim("address", address), newer("ttrpc", address, 3)), (None, None), "{address}");
        }
    }

    #[test]
    fn name_of_an_image_has_no_registry_no_tag_and_no_digest() {
        for (image, name) in [("redis", Some("redis")), ("a/b/c:1", Some("c")), ("h:5000/x", Some("x")), ("", None)] {
            assert_eq!(image_name(image), name, "{image}");
        }
    }
}
