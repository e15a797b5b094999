//! Resource attributes of containers and pods, as the conventions name them. What is neither has none of them.
//!
//! Source: semantic conventions 1.44, "Container" and "Kubernetes" resources.

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::attribute::{owned, strings};
use super::names::is_container;
use crate::exporters::walk::is_named_pod;
use crate::model::alloc::{AllocIdentity, AllocSource, TaskIdentity};
use crate::model::host::NodeInfo;
use crate::model::pod;
use crate::snapshot::{AllocView, TaskView};

/// Of an alloc: its pod, and the labels that the configuration selects.
pub(super) fn of_alloc(alloc: &AllocView, node: &NodeInfo) -> Vec<(String, String)> {
    let mut all = of_pod(&alloc.identity, node);
    all.extend(labels(alloc));
    all
}

/// Of a task, with the attributes of its pod.
pub(super) fn of_task(
    alloc: &AllocView,
    (known, task): (&TaskIdentity, &TaskView),
    node: &NodeInfo,
) -> (Vec<(String, String)>, Vec<KeyValue>) {
    if !is_container(alloc.identity.source, known.driver.as_deref()) {
        return (Vec::new(), Vec::new());
    }
    let managed = task.managed.as_ref().and_then(|managed| managed.status.cgroup.as_ref());
    let observed = task.observed.as_deref().and_then(|observed| observed.cgroup.as_ref());
    let cgroup = managed.or(observed).map_or("", |cgroup| cgroup.as_str());
    let image = known.image.clone().or_else(|| configured_image(alloc, known)).unwrap_or_default();
    let mut all = of_container(&alloc.identity, known, cgroup, node);
    all.extend(labels(alloc));
    let (texts, lists) = of_image(&image);
    all.extend(texts);
    (all, lists)
}

/// Attributes of the conventions. A pod without a name yet has only its UID and its node.
fn of_pod(alloc: &AllocIdentity, node: &NodeInfo) -> Vec<(String, String)> {
    if alloc.source != AllocSource::Kubernetes {
        return Vec::new();
    }
    let uid = alloc.cgroup.as_ref().and_then(|cgroup| pod::uid_in_path(cgroup.as_str())).unwrap_or_default();
    let mut all = vec![owned(("k8s.node.name", &node.hostname)), owned(("k8s.pod.uid", &uid))];
    if is_named_pod(alloc) {
        all.push(owned(("k8s.namespace.name", &alloc.namespace)));
        all.push(owned(("k8s.pod.name", &alloc.name)));
        let controllers = pod::controllers(&alloc.name).into_iter();
        all.extend(controllers.map(|(kind, name)| (format!("k8s.{kind}.name"), name.to_owned())));
    }
    all
}

/// `cgroup`: its own, whose path has its ID.
fn of_container(alloc: &AllocIdentity, task: &TaskIdentity, cgroup: &str, node: &NodeInfo) -> Vec<(String, String)> {
    let id = cgroup.split(|c: char| !c.is_ascii_hexdigit()).find(|part| part.len() == 64);
    let name = match alloc.source {
        // The name that the driver gives it.
        AllocSource::Managed => format!("{}-{}", task.name, alloc.id),
        AllocSource::Kubernetes => task.name.to_string(),
        // Unknown: Nomad's API has it.
        AllocSource::Nomad => String::new(),
        _ => alloc.name.clone(),
    };
    // Until the runtime has answered, its ID stands for its name.
    let name = if alloc.workload.is_some() { name.as_str() } else { "" };
    let mut all = of_pod(alloc, node);
    if alloc.source == AllocSource::Kubernetes {
        all.push(owned(("k8s.container.name", name)));
    }
    let runtime = task.driver.as_deref().or((alloc.source == AllocSource::Lxc).then_some("lxc"));
    let known = [
        ("container.id", id.unwrap_or_default()),
        ("container.name", name),
        ("container.runtime.name", runtime.unwrap_or_default()),
    ];
    all.extend(known.map(owned));
    all
}

/// Of a pod they are annotations.
fn labels(alloc: &AllocView) -> impl Iterator<Item = (String, String)> + '_ {
    let prefix = match alloc.identity.source {
        AllocSource::Kubernetes => "k8s.pod.annotation",
        _ => "container.label",
    };
    let selected = alloc.observed.iter().flat_map(|observed| &observed.labels);
    selected.map(move |label| (format!("{prefix}.{}", label.key), label.value.clone()))
}

/// Of a managed container: what its job says, unless a variable decides.
fn configured_image(alloc: &AllocView, known: &TaskIdentity) -> Option<String> {
    let status = alloc.status.as_ref()?;
    let group = status.job.group(status.group.as_str())?;
    let image = group.task(known.name.as_str())?.config.get("image")?.as_str()?;
    (!image.contains("${")).then(|| status.job.sensitive.hide(image).into_owned())
}

/// An image reference in parts: `registry:5000/team/web:1.2@sha256:...`. A bare digest is the ID of an image.
///
/// Source: the reference grammar of the distribution project, `[domain/]path[:tag][@digest]`.
fn of_image(reference: &str) -> (Vec<(String, String)>, Vec<KeyValue>) {
    if reference.is_empty() {
        return Default::default();
    }
    if reference.starts_with("sha256:") {
        return (vec![owned(("container.image.id", reference))], Vec::new());
    }
    let (tagged, digest) = reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    // The colon of a port stands before a slash.
    let (name, tag) = match tagged.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (tagged, None),
    };
    let mut lists = Vec::new();
    lists.extend(tag.filter(|tag| !tag.is_empty()).map(|tag| strings("container.image.tags", &[tag])));
    lists.extend(digest.map(|digest| strings("container.image.repo_digests", &[&format!("{name}@{digest}")])));
    (vec![owned(("container.image.name", name))], lists)
}

#[cfg(test)]
pub(super) mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value;

    use super::*;
    use crate::model::id::{AllocId, CgroupPath, JobId, TaskName};

    #[test]
    fn containers_and_pods_have_the_names_of_the_conventions() {
        let id = "0123456789abcdef".repeat(4);
        let of = |source, workload: Option<&str>, path: &str| {
            let path = path.replace("<id>", &id);
            let alloc =
                AllocIdentity::of_cgroup(AllocId::from("a"), CgroupPath::new(path.clone()), [TaskName::from("app")]);
            let namespace = workload.map_or("", |_| "shop").to_owned();
            let workload = workload.map(JobId::from);
            let alloc = AllocIdentity { source, workload, name: "web-1".into(), namespace, ..alloc };
            let task = TaskIdentity { driver: Some("docker".into()), ..alloc.tasks[0].clone() };
            let all = of_container(&alloc, &task, &path, &node()).into_iter().filter(|(_, value)| !value.is_empty());
            all.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let container = |name: &str| format!("container.id={id} container.name={name} container.runtime.name=docker");
        assert_eq!(of(AllocSource::Docker, Some("web"), "/docker/<id>"), container("web-1"));
        assert_eq!(of(AllocSource::Podman, Some("web"), "/machine.slice/libpod-<id>.scope"), container("web-1"));
        let named = "k8s.node.name=h k8s.namespace.name=shop k8s.pod.name=web-1 k8s.container.name=app";
        let pod = format!("{named} {}", container("app"));
        assert_eq!(of(AllocSource::Kubernetes, Some("web"), "/kubepods/pod1/<id>"), pod);
        assert_eq!(of(AllocSource::Managed, Some("web"), "/allostat/docker-<id>.scope"), container("app-a"));
        let unnamed = of(AllocSource::Kubernetes, None, "/kubepods/pod1/<id>");
        let unnamed = unnamed.strip_prefix("k8s.node.name=h ").unwrap();
        assert_eq!(unnamed, container("").replace("container.name= ", ""), "its runtime has not named it");
    }

    #[test]
    fn pod_has_its_uid_its_node_and_the_controllers_that_its_name_proves() {
        let all = |name: &str| {
            let all = of_pod(&pod_named(name, "shop/web"), &node());
            all.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let of = |name: &str| {
            format!(
                "k8s.node.name=h k8s.pod.uid=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9 k8s.namespace.name=shop \
                 k8s.pod.name={name}"
            )
        };
        let deployed = " k8s.deployment.name=web k8s.replicaset.name=web-7d4b9c6f5";
        assert_eq!(all("web-7d4b9c6f5-x2x7z"), of("web-7d4b9c6f5-x2x7z") + deployed);
        let scheduled = " k8s.cronjob.name=backup k8s.job.name=backup-28912345";
        assert_eq!(all("backup-28912345-x7x8z"), of("backup-28912345-x7x8z") + scheduled);
        assert_eq!(all("db-0"), of("db-0"), "a stateful set, or a name given by hand");
    }

    fn node() -> NodeInfo {
        NodeInfo {
            hostname: "h".into(),
            kernel: String::new(),
            boot_id: crate::model::id::BootId("b".into()),
            booted_at: None,
            cpus: 1,
            memory_bytes: None,
            cgroup_mode: "v2".into(),
            capabilities: Vec::new(),
            identity: crate::model::host::NodeIdentity::default(),
        }
    }

    pub fn pod_named(name: &str, workload: &str) -> AllocIdentity {
        const CGROUP: &str = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let (source, workload) = (AllocSource::Kubernetes, Some(JobId::from(workload)));
        let alloc = AllocIdentity::of_cgroup(AllocId::from("k8s:a"), CgroupPath::from(CGROUP), []);
        AllocIdentity { source, workload, name: name.into(), namespace: "shop".into(), ..alloc }
    }

    #[test]
    fn image_reference_is_name_tags_and_digest() {
        let shown = |reference: &str| {
            let (texts, lists) = of_image(reference);
            let mut all: Vec<String> = texts.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            all.extend(lists.into_iter().map(|list| match list.value.and_then(|value| value.value) {
                Some(any_value::Value::ArrayValue(of)) => format!("{}={}", list.key, of.values.len()),
                other => panic!("{other:?}"),
            }));
            all.join(" ").replace("container.image.", "")
        };
        assert_eq!(shown(""), "");
        assert_eq!(shown("bb:1"), "name=bb tags=1");
        assert_eq!(shown("bb"), "name=bb");
        assert_eq!(shown("host:5000/team/web"), "name=host:5000/team/web");
        assert_eq!(shown("host:5000/team/web:1.2"), "name=host:5000/team/web tags=1");
        assert_eq!(shown("web:1@sha256:00"), "name=web tags=1 repo_digests=1");
        assert_eq!(shown("web@sha256:00"), "name=web repo_digests=1");
        assert_eq!(shown("sha256:00"), "id=sha256:00");
        assert_eq!(shown("web:"), "name=web");
    }
}
