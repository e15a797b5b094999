//! Kubernetes: a pod is an alloc, each of its containers a task.
//!
//! ```text
//! …/kubepods-burstable-pod<uid, _ for ->.slice/cri-containerd-<id>.scope   systemd driver; also crio-<id>, docker-<id>
//! …/kubepods/burstable/pod<uid>/<id>                                       cgroupfs driver; also crio-<id>
//! …/containerd.service/kubepods-burstable-pod<uid>.slice:cri-containerd:<id>
//!                                  kubelet with the systemd driver, runtime with cgroupfs; also crio:<id>, docker:<id>
//! ```
//! In the last form the containers of a pod have no cgroup in common. runc makes them below the unit of containerd or
//! CRI-O, crun and youki at the root.
//! Names come from the container's bundle (containerd, CRI-O), from Docker's files, or from the names of kubelet log
//! files. The API server is not used.
//!
//! The exit of a container comes from the record that its runtime keeps until the kubelet removes the container. A
//! restarted container has another ID, so a record is about one life.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ObservedSource;
use super::containerd::annotations;
use super::docker::exit_of_state;
use super::exits::facts_of;
use super::identity::{
    AllocCgroupRule, CgroupParts, CgroupVerdict, ExitRule, RecognisedTask, TaskNaming, is_container_id, short_id,
};
use super::runtime_json;
use super::runtime_queries::{ExitReply, QueryTarget, Runtime};
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::model::pod;
use crate::model::units::Timestamp;

pub static KUBERNETES: ObservedSource = ObservedSource {
    word: AllocSource::Kubernetes,
    recognise,
    runtime: Some(|paths| Box::new(KubernetesRuntime(paths.roots.clone()))),
};

/// Prefixes of container IDs, and the runtime of each.
const RUNTIMES: [(&str, &str); 3] = [("cri-containerd-", "containerd"), ("crio-", "cri-o"), ("docker-", "docker")];

/// The driver of kubelet and runtime differ: the runtime takes the name that the kubelet made for systemd as a path.
fn recognise_mismatch(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let (slice, rest) = at.name().split_once(':')?;
    let (prefix, id) = rest.split_once(':')?;
    let uid = pod::uid_of_cgroup(slice, at.above())?;
    let (_, runtime) = RUNTIMES.into_iter().find(|(known, _)| known.strip_suffix('-') == Some(prefix))?;
    is_container_id(id).then(|| task(&uid, id, Some(runtime), AllocCgroupRule::None).into())
}

fn task(uid: &str, id: &str, runtime: Option<&str>, alloc_cgroup: AllocCgroupRule) -> RecognisedTask {
    let naming =
        TaskNaming { task: short_id(id).to_owned(), driver: runtime.map(str::to_owned), ..TaskNaming::of(uid) };
    let (source, container) = (AllocSource::Kubernetes, Some(id.to_owned()));
    RecognisedTask {
        source,
        container,
        alloc_cgroup,
        is_closed: true,
        ends_by: ExitRule::FirstProcess,
        naming,
        user: None,
    }
}

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    if let Some(verdict) = recognise_mismatch(at) {
        return Some(verdict);
    }
    if pod::uid_of_cgroup(at.name(), at.above()).is_some() {
        return Some(CgroupVerdict::Group);
    }
    let uid = pod::uid_of_cgroup(at.parent(), at.above().skip(1))?;
    let name = at.name();
    if name.starts_with("crio-conmon-") {
        return Some(CgroupVerdict::Helper);
    }
    let bare = name.strip_suffix(".scope").unwrap_or(name);
    let known = RUNTIMES.into_iter().find_map(|(prefix, runtime)| Some((bare.strip_prefix(prefix)?, Some(runtime))));
    let (id, driver) = known.unwrap_or((bare, None));
    is_container_id(id).then(|| task(&uid, id, driver, AllocCgroupRule::Parent).into())
}

/// Directories with a `status` file per container: of containerd's CRI, and of that of k3s and RKE2.
const OF_CONTAINERD: [&str; 2] = [
    "/var/lib/containerd/io.containerd.grpc.v1.cri/containers",
    "/var/lib/rancher/k3s/agent/containerd/io.containerd.grpc.v1.cri/containers",
];
const OF_CRIO: &str = "/var/lib/containers/storage/overlay-containers";
const OF_DOCKER: &str = "/var/lib/docker/containers";

/// Names of pods, without the API server.
struct KubernetesRuntime(Roots);

/// Names of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodNames {
    namespace: String,
    pod: String,
    container: String,
}

impl Runtime for KubernetesRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        let (known, id) = (&target.found.naming, target.found.container.as_deref()?);
        let file = |directory: &str, components: &[&str]| self.file(directory, components);
        let crio = |id| file("/run/containers/storage/overlay-containers", &[id, "userdata", "config.json"]);
        let docker = |id| file(OF_DOCKER, &[id, "config.v2.json"]);
        let reported = annotations(&self.0, "k8s.io", id)
            .or_else(|| Some(runtime_json::string_fields(&crio(id)?["annotations"])))
            .or_else(|| Some(runtime_json::string_fields(&docker(id)?["Config"]["Labels"])))
            .unwrap_or_default();
        let image = image_of(&reported);
        let names = of_annotations(&reported).or_else(|| self.of_logs(id)).or_else(|| self.of_pod_logs(known))?;
        let name = names.pod.clone();
        Some(TaskNaming {
            native: format!("{}/{name}", names.namespace),
            workload: Some(format!("{}/{}", names.namespace, pod::owner(&name))),
            name,
            task: names.container,
            namespace: names.namespace,
            image,
            labels: reported.into_iter().collect(),
            ..known.clone()
        })
    }

    fn exit(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> ExitReply {
        let Some(id) = target.found.container.as_deref() else { return ExitReply::Nothing };
        if let Some(status) = OF_CONTAINERD.into_iter().find_map(|of| self.file(of, &[id, "status"])) {
            return of_containerd(&status);
        }
        if let Some(state) = self.file(OF_CRIO, &[id, "userdata", "state.json"]) {
            return of_crio(&state);
        }
        let docker = self.file(OF_DOCKER, &[id, "config.v2.json"]);
        docker.map_or(ExitReply::Nothing, |docker| exit_of_state(&docker["State"], ended_at))
    }
}

/// Times are nanoseconds since 1970; 0 until it has ended. Source: the `status` files of containerd's CRI.
fn of_containerd(status: &Value) -> ExitReply {
    match (status["FinishedAt"].as_u64(), code(&status["ExitCode"])) {
        (Some(0), _) => ExitReply::NotYet,
        (Some(at), Some(code)) => ExitReply::Exit(facts_of(code, status["Reason"] == "OOMKilled", Some(Timestamp(at)))),
        (Some(_) | None, _) => ExitReply::Nothing,
    }
}

/// There is no exit code until it has ended. Source: the `state.json` files of CRI-O.
fn of_crio(state: &Value) -> ExitReply {
    let finished_at = state["finished"].as_str().and_then(runtime_json::moment);
    match code(&state["exitCode"]) {
        Some(code) => ExitReply::Exit(facts_of(code, state["oomKilled"] == true, finished_at)),
        None if state["exitCode"].is_null() => ExitReply::NotYet,
        None => ExitReply::Nothing,
    }
}

fn code(annotations: &Value) -> Option<u8> {
    u8::try_from(annotations.as_u64()?).ok()
}

impl KubernetesRuntime {
    fn file(&self, directory: &str, components: &[&str]) -> Option<Value> {
        runtime_json::read_file(&self.0.file(directory), components)
    }
    /// The kubelet links each container's log as `<pod>_<namespace>_<container>-<id>.log`.
    fn of_logs(&self, id: &str) -> Option<PodNames> {
        let entries = std::fs::read_dir(self.0.file("/var/log/containers")).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let bare = names.into_iter().find_map(|name| Some(name.strip_suffix(&format!("-{id}.log"))?.to_owned()))?;
        let mut parts = bare.splitn(3, '_').map(str::to_owned);
        Some(PodNames { pod: parts.next()?, namespace: parts.next()?, container: parts.next()? })
    }
    /// The kubelet keeps a pod's logs in `<namespace>_<pod>_<uid>`. This does not identify the container.
    fn of_pod_logs(&self, known: &TaskNaming) -> Option<PodNames> {
        let entries = std::fs::read_dir(self.0.file("/var/log/pods")).ok()?.flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let bare =
            names.into_iter().find_map(|name| Some(name.strip_suffix(&format!("_{}", known.native))?.to_owned()))?;
        let (namespace, pod) = bare.split_once('_')?;
        Some(PodNames { namespace: namespace.to_owned(), pod: pod.to_owned(), container: known.task.clone() })
    }
}

/// Names from annotations of containerd's CRI, CRI-O or Docker's CRI. The sandbox container is called `POD`, as in
/// cAdvisor.
fn of_annotations(annotations: &BTreeMap<String, String>) -> Option<PodNames> {
    let get = |names: &[&str]| names.iter().find_map(|name| annotations.get(*name)).filter(|v| !v.is_empty()).cloned();
    let kind =
        get(&["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType", "io.kubernetes.docker.type"]);
    let container = match kind.as_deref() {
        Some("sandbox" | "podsandbox") => "POD".to_owned(),
        _ => get(&["io.kubernetes.cri.container-name", "io.kubernetes.container.name"])?,
    };
    Some(PodNames {
        namespace: get(&["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"])?,
        pod: get(&["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"])?,
        container,
    })
}

/// The image of a container; newer runtimes set it for the sandbox too.
fn image_of(annotations: &BTreeMap<String, String>) -> Option<String> {
    const NAMES: [&str; 3] =
        ["io.kubernetes.cri.image-name", "io.kubernetes.cri.podsandbox.image-name", "io.kubernetes.cri-o.ImageName"];
    NAMES.into_iter().find_map(|name| annotations.get(name)).filter(|image| !image.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::task::ExitStatus;
    use crate::observe::runtime_queries::{LifeRef, QueryTopic};

    #[test]
    fn images_are_read_as_containerd_and_cri_o_write_them() {
        let annotations = |name: &str, image: &str| image_of(&[(name.to_owned(), image.to_owned())].into());
        for name in
            ["io.kubernetes.cri.image-name", "io.kubernetes.cri.podsandbox.image-name", "io.kubernetes.cri-o.ImageName"]
        {
            assert_eq!(annotations(name, "registry/web:1").as_deref(), Some("registry/web:1"), "{name}");
        }
        assert_eq!((annotations("image", "x"), annotations("io.kubernetes.cri.image-name", "")), (None, None));
    }

    /// Code, OOM kill, time of the end.
    fn exit(reply: &ExitReply) -> Option<(u64, bool, Option<u64>)> {
        match reply {
            ExitReply::Exit(facts) => {
                let ExitStatus::Code(code) = facts.status else { panic!("{facts:?}") };
                Some((code.into(), facts.oom, facts.finished_at.map(|at| at.0)))
            }
            ExitReply::NotYet | ExitReply::Unreachable | ExitReply::Nothing => None,
        }
    }

    #[test]
    fn exit_of_a_container_is_that_of_the_record_of_its_runtime() {
        const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        const AT: u64 = 1_795_950_000_000_000_001;
        let containerd = |finished: u64, code: i64, reason: &str| json!({"Version": "v1", "Pid": 0, "StartedAt": 1, "FinishedAt": finished, "ExitCode": code, "Reason": reason});
        let [of_containerd, of_k3s] = OF_CONTAINERD.map(|of| format!("{of}/{ID}/status"));
        let of_crio = format!("{OF_CRIO}/{ID}/userdata/state.json");
        let of_docker = format!("{OF_DOCKER}/{ID}/config.v2.json");
        let crio = json!({"status": "stopped", "finished": "2026-11-29T11:00:00.000000001Z", "exitCode": 3});
        let docker = json!({"State": {
            "Running": false, "ExitCode": 3, "OOMKilled": false, "StartedAt": "2026-11-29T10:00:00Z",
            "FinishedAt": "2026-11-29T11:00:00.000000001Z",
        }});
        for (file, record, expected) in [
            (&of_containerd, containerd(AT, 3, "Error"), Some((3, false, Some(AT)))),
            (&of_k3s, containerd(AT, 0, "Completed"), Some((0, false, Some(AT)))),
            (&of_containerd, containerd(AT, 137, "OOMKilled"), Some((137, true, Some(AT)))),
            // A child was killed, and the container went on.
            (&of_containerd, containerd(AT, 0, "OOMKilled"), Some((0, false, Some(AT)))),
            (&of_containerd, containerd(0, 0, ""), None),
            (&of_containerd, containerd(AT, -1, "Unknown"), None),
            (&of_containerd, json!([]), None),
            (&of_crio, crio.clone(), Some((3, false, Some(1_795_950_000_000_000_001)))),
            (&of_crio, json!({"status": "running", "finished": "0001-01-01T00:00:00Z"}), None),
            (&of_docker, docker, Some((3, false, Some(1_795_950_000_000_000_001)))),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots::below(dir.path());
            let path = roots.file(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, record.to_string()).unwrap();
            let target = QueryTarget {
                path: String::new(),
                found: task("uid", ID, None, AllocCgroupRule::Parent),
                directories: Vec::new(),
                about: QueryTopic::Exit(LifeRef { number: 1, ..LifeRef::default() }),
            };
            assert_eq!(exit(&KubernetesRuntime(roots).exit(&target, None)), expected, "{file}: {record}");
        }
    }

    #[test]
    fn names_are_read_as_containerd_and_cri_o_write_them() {
        let annotations =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let names = |container: &str| {
            Some(PodNames { namespace: "shop".into(), pod: "web-0".into(), container: container.into() })
        };
        let containerd = [
            ("io.kubernetes.cri.container-type", "container"),
            ("io.kubernetes.cri.container-name", "app"),
            ("io.kubernetes.cri.sandbox-name", "web-0"),
            ("io.kubernetes.cri.sandbox-namespace", "shop"),
        ];
        assert_eq!(of_annotations(&annotations(&containerd)), names("app"));
        let sandbox: Vec<_> =
            [("io.kubernetes.cri.container-type", "sandbox")].into_iter().chain(containerd[2..].to_vec()).collect();
        assert_eq!(of_annotations(&annotations(&sandbox)), names("POD"));
        let crio = [
            ("io.kubernetes.container.name", "app"),
            ("io.kubernetes.pod.name", "web-0"),
            ("io.kubernetes.pod.namespace", "shop"),
        ];
        assert_eq!(of_annotations(&annotations(&crio)), names("app"));
        assert_eq!(of_annotations(&annotations(&containerd[..2])), None, "half of it is nothing");
    }
}
