//! containerd without Kubernetes: containers of `ctr` and `nerdctl`, and CRI containers outside of pods.
//!
//! ```text
//! …/cri-containerd-<id>.scope, …/nerdctl-<id>.scope      systemd cgroup driver
//! /<namespace>/<id>                                      cgroupfs driver; the ID is any name that a user chose
//! …/<id>                                                 the same below a parent that a user chose, with nerdctl's IDs
//! ```
//! A path of the cgroupfs driver could be any cgroup. It is a container if the bundle `<namespace>/<id>` in
//! containerd's own directory names that cgroup; in the namespace `default` also if the agent cannot read bundles.
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
use super::identity::{
    CgroupBundle, CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming, is_container_id, is_number,
};
use super::runtime_json;
use super::runtime_queries::{ExitReply, QueryTarget, Runtime};
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
    let namespace = match at.bundle() {
        CgroupBundle::Of(namespace) => Some(namespace),
        CgroupBundle::Missing => None,
        CgroupBundle::Unknown => Some(DEFAULT).filter(|default| at.depth() == 2 && at.parent() == *default),
    };
    if let Some(namespace) = namespace {
        let found = RecognisedTask::container(AllocSource::Containerd, name);
        return Some(RecognisedTask { naming: in_namespace(namespace, found.naming), ..found }.into());
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

    /// Of a task in a cgroup that still exists. The shim of a deleted one has exited.
    fn exit(&mut self, target: &QueryTarget, _: Option<Timestamp>) -> ExitReply {
        let Some(id) = target.found.container.as_deref() else { return ExitReply::Nothing };
        let shim = bundle_at(&self.0, &target.path, id).and_then(|bundle| bundle.shim(&self.0, id));
        let state = shim.and_then(|(socket, version)| {
            let refused = |error| {
                let socket = socket.display();
                tracing::debug!(source = "containerd", %error, %socket, "cannot query containerd shim");
            };
            shim::state(&socket, version, id).map_err(refused).ok()
        });
        match state {
            // It may be about to report the end.
            Some(ShimState::Alive) => ExitReply::NotYet,
            Some(ShimState::Stopped { code, exited_at }) => ExitReply::Exit(facts_of(code, false, exited_at)),
            None => ExitReply::Nothing,
        }
    }
}

/// Namespace and ID of a container that has this path with the cgroupfs driver.
fn namespace_and_id(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/').filter(|(_, id)| !id.contains('/'))
}

/// The bundle that names this cgroup: of the container `/<namespace>/<id>`, or of one below a parent that a user chose.
pub fn bundle_of(roots: &Roots, path: &str) -> CgroupBundle<String> {
    let is_of_docker = |namespace: &str, id: &str| namespace == OF_DOCKER && is_container_id(id);
    // Slices are systemd's, and have too many cgroups to search a bundle for each.
    let is_one = |(namespace, id): &(&str, &str)| {
        !is_of_docker(namespace, id) && !namespace.ends_with(".slice") && component(namespace).is_some()
    };
    let is_known =
        |(namespace, _): &(&str, &str)| BUNDLES.into_iter().any(|bundles| roots.file(bundles).join(namespace).is_dir());
    let in_namespace = namespace_and_id(path).filter(is_one);
    let of_path = in_namespace.filter(is_known).and_then(|(namespace, id)| {
        bundles(roots, Some(namespace), id).find(|bundle| match namespace {
            DEFAULT => bundle.may_be_at(path),
            _ => bundle.cgroup.as_deref() == Some(path),
        })
    });
    let below_parent =
        || bundles(roots, None, id_below_parent(path)?).find(|bundle| bundle.cgroup.as_deref() == Some(path));
    match of_path.or_else(below_parent) {
        Some(bundle) => CgroupBundle::Of(bundle.namespace),
        None if in_namespace.is_some_and(|(namespace, _)| namespace == DEFAULT) && are_readable(roots) => {
            CgroupBundle::Missing
        }
        None => CgroupBundle::Unknown,
    }
}

/// Whether an absent bundle is seen to be absent.
fn are_readable(roots: &Roots) -> bool {
    BUNDLES.into_iter().any(|bundles| std::fs::read_dir(roots.file(bundles)).is_ok())
}

/// The ID of a container below a parent that a user chose: in no place of a runtime.
fn id_below_parent(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let id = parts.last().copied().filter(|name| is_container_id(name))?;
    let is_placed = super::ALL.iter().any(|source| (source.recognise)(&CgroupParts::new(&parts)).is_some());
    (!is_placed).then_some(id)
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
    let find = |namespace: Option<&str>| {
        let (named, mut unnamed): (Vec<_>, Vec<_>) = bundles(roots, namespace, id)
            .filter(|bundle| bundle.may_be_at(path))
            .partition(|bundle| bundle.cgroup.is_some());
        // One without a cgroup may be that of another container of this ID, if there are several.
        named.into_iter().next().or_else(|| unnamed.pop().filter(|_| unnamed.is_empty()))
    };
    let of_path = namespace.filter(|of| *of != OF_DOCKER || !is_container_id(id)).and_then(|of| find(Some(of)));
    // Below a parent that a user chose, the path has no namespace.
    let any = || if namespace == Some(DEFAULT) { None } else { find(None) };
    of_path.or_else(any)
}

/// The name of the container with this cgroup from its bundle, which falls back to `otherwise`. `None`: no bundle of
/// this ID names this cgroup.
pub fn named(roots: &Roots, path: &str, id: &str, otherwise: &str) -> Option<TaskNaming> {
    let ShimBundle { namespace, annotations: reported, .. } = bundle_at(roots, path, id)?;
    let name = reported.get("nerdctl/name").filter(|name| is_nerdctl_name(name));
    let name = name.map_or(otherwise, String::as_str).to_owned();
    let image = reported.get("io.kubernetes.cri.image-name").filter(|image| !image.is_empty()).cloned();
    // An ID is used once: without a name the image identifies what runs.
    let is_named = name != otherwise;
    let workload = image.as_deref().filter(|_| !is_named).and_then(image_name).unwrap_or(&name).to_owned();
    let known = TaskNaming { driver: Some("containerd".to_owned()), image, ..TaskNaming::of(&name) };
    let known = TaskNaming { workload: Some(workload), labels: reported.into_iter().collect(), ..known };
    Some(in_namespace(&namespace, known))
}

/// Whether `nerdctl` could have given this name. With `ctr` a user chooses any annotation, and the name must not be
/// that of a container in another namespace. Source: the names of nerdctl are those of Docker:
/// `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
fn is_nerdctl_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
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
        for (annotation, name) in [
            ("web_1.a-b", "web_1.a-b"),
            ("9", "9"),
            ("build/redis", "0f"),
            ("1000/redis", "0f"),
            ("ns:1000", "0f"),
            ("-web", "0f"),
            (".web", "0f"),
            ("web 1", "0f"),
            ("w\u{e9}b", "0f"),
            ("web\n", "0f"),
            ("", "0f"),
        ] {
            assert_eq!(workload(serde_json::json!({ "nerdctl/name": annotation })).0, name, "{annotation:?}");
        }
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
            match bundle_of(&roots, path) {
                CgroupBundle::Of(of) => of == namespace,
                CgroupBundle::Missing | CgroupBundle::Unknown => false,
            }
        };
        assert!(has("build", "redis", "/build/redis", "/build/redis"));
        assert!(has("build", ID, &format!("/build/{ID}"), &format!("/build/{ID}")));
        assert!(has("moby", "redis", "/moby/redis", "/moby/redis"), "Docker has IDs only");
        let below_parent = format!("/jobs/of/{ID}");
        assert!(has("build", ID, &below_parent, &below_parent));
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
            ("moby", ID, &below_parent, &below_parent),
            ("build", ID, &format!("/jobs/{ID}"), &below_parent),
            ("build", ID, &format!("/docker/{ID}"), &format!("/docker/{ID}")),
        ] {
            assert!(!has(namespace, id, cgroup, path), "{namespace}/{id} at {cgroup}: {path}");
        }
        // Neither a link nor a way out of the directory.
        let (dir, roots) = host("build", "redis", "/build/link");
        let bundles = roots.file(BUNDLES[0]);
        std::os::unix::fs::symlink(bundles.join("build/redis"), bundles.join("build/link")).unwrap();
        assert_eq!(bundle_of(&roots, "/build/link"), CgroupBundle::Unknown);
        std::fs::write(dir.path().join("config.json"), r#"{"linux": {"cgroupsPath": "/../.."}}"#).unwrap();
        assert_eq!(bundle_of(&roots, "/../.."), CgroupBundle::Unknown);
    }

    #[test]
    fn cgroup_of_the_namespace_default_needs_a_bundle_where_the_agent_can_read_them() {
        let source = |roots: &Roots, path: &str| {
            let (bundle, parts) = (bundle_of(roots, path), path.split('/').skip(1).collect::<Vec<_>>());
            match recognise(&CgroupParts::new(&parts).with_bundle(bundle.as_deref())) {
                Some(CgroupVerdict::Task(found)) => Some(found.naming.native),
                None => None,
                Some(other) => panic!("{path}: {other:?}"),
            }
        };
        let (_dir, roots) = host("default", "redis", "/default/redis");
        assert_eq!(source(&roots, "/default/redis").as_deref(), Some("redis"));
        assert_eq!(source(&roots, "/default/web"), None);
        let (_dir, roots) = host("default", "redis", "/build/redis");
        assert_eq!(source(&roots, "/default/redis"), None, "the bundle names another cgroup");
        let (_dir, roots) = host("build", "redis", "/build/redis");
        assert_eq!(source(&roots, "/default/redis"), None);
        // Without a directory of bundles, or with one that only root can list.
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(source(&Roots::below(nowhere.path()), "/default/redis").as_deref(), Some("redis"));
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
    fn bundle_without_a_cgroup_is_used_only_if_no_other_one_may_be_meant() {
        let (_dir, roots) = host("shop", ID, &format!("/jobs/{ID}"));
        let add = |namespace: &str, spec: serde_json::Value| {
            let bundle = roots.file(BUNDLES[0]).join(namespace).join(ID);
            std::fs::create_dir_all(&bundle).unwrap();
            std::fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        };
        let namespace = |path: &str| bundle_at(&roots, path, ID).map(|bundle| bundle.namespace);
        add("a", serde_json::json!({}));
        assert_eq!(namespace(&format!("/jobs/{ID}")).as_deref(), Some("shop"), "the one that names it");
        assert_eq!(namespace(&format!("/elsewhere/{ID}")).as_deref(), Some("a"), "the only one that may be meant");
        add("z", serde_json::json!({ "linux": {} }));
        assert_eq!(namespace(&format!("/elsewhere/{ID}")), None);
        assert_eq!(namespace(&format!("/jobs/{ID}")).as_deref(), Some("shop"));
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
