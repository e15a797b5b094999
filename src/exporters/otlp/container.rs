//! Resource attributes of containers and pods, as the conventions name them. What is neither has none of them.
//!
//! Source: semantic conventions 1.44, "Container" and "Kubernetes" resources.

use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::attribute::{owned, strings};
use super::names::is_container;
use crate::model::alloc::{AllocIdentity, AllocSource, TaskIdentity};
use crate::snapshot::{AllocView, TaskView};

/// Of an alloc: its pod, and the labels that the configuration selects.
pub(super) fn of_alloc(alloc: &AllocView) -> Vec<(String, String)> {
    let mut all = of_pod(&alloc.identity);
    all.extend(labels(alloc));
    all
}

/// Of a task, with the attributes of its pod.
pub(super) fn of_task(
    alloc: &AllocView,
    known: &TaskIdentity,
    task: &TaskView,
) -> (Vec<(String, String)>, Vec<KeyValue>) {
    if !is_container(alloc.identity.source, known.driver.as_deref()) {
        return (Vec::new(), Vec::new());
    }
    let managed = task.managed.as_ref().and_then(|managed| managed.status.cgroup.as_ref());
    let observed = task.observed.as_deref().and_then(|observed| observed.cgroup.as_ref());
    let cgroup = managed.or(observed).map_or("", |cgroup| cgroup.as_str());
    let image = known.image.clone().or_else(|| configured_image(alloc, known)).unwrap_or_default();
    let mut all = of_container(&alloc.identity, known, cgroup);
    all.extend(labels(alloc));
    let (texts, lists) = of_image(&image);
    all.extend(texts);
    (all, lists)
}

/// Nothing of a pod whose name is unknown.
fn of_pod(alloc: &AllocIdentity) -> Vec<(String, String)> {
    match alloc.source {
        AllocSource::Kubernetes if alloc.workload.is_some() => {
            [("k8s.namespace.name", alloc.namespace.as_str()), ("k8s.pod.name", &alloc.name)].map(owned).into()
        }
        _ => Vec::new(),
    }
}

/// `cgroup`: its own, whose path has its ID.
fn of_container(alloc: &AllocIdentity, task: &TaskIdentity, cgroup: &str) -> Vec<(String, String)> {
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
    let mut all = of_pod(alloc);
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
    (!image.contains("${")).then(|| image.to_owned())
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
mod tests {
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
            let workload = workload.map(JobId::from);
            let alloc = AllocIdentity { source, workload, name: "web-1".into(), namespace: "shop".into(), ..alloc };
            let task = TaskIdentity { driver: Some("docker".into()), ..alloc.tasks[0].clone() };
            let all = of_container(&alloc, &task, &path).into_iter().filter(|(_, value)| !value.is_empty());
            all.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let container = |name: &str| format!("container.id={id} container.name={name} container.runtime.name=docker");
        assert_eq!(of(AllocSource::Docker, Some("web"), "/docker/<id>"), container("web-1"));
        assert_eq!(of(AllocSource::Podman, Some("web"), "/machine.slice/libpod-<id>.scope"), container("web-1"));
        assert_eq!(of(AllocSource::Managed, Some("web"), "/allostat/docker-<id>.scope"), container("app-a"));
        let pod = format!("k8s.namespace.name=shop k8s.pod.name=web-1 k8s.container.name=app {}", container("app"));
        assert_eq!(of(AllocSource::Kubernetes, Some("web"), "/kubepods/pod1/<id>"), pod);
        let unnamed = of(AllocSource::Kubernetes, None, "/kubepods/pod1/<id>");
        assert_eq!(unnamed, container("").replace("container.name= ", ""), "its name is not known yet");
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
