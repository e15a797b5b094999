//! Whose points are: one resource for each task, alloc, device, the host and the agent.
//!
//! Prometheus keeps of a resource what becomes `job` (namespace and name) and `instance` (instance id) and drops the rest: so
//! each has an instance id that no other has.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::names::{DEVICE_ID, HARDWARE_TYPE, PARENT};
use crate::board::devices::DeviceView;
use crate::exporters::walk::{RowSubject, is_named_pod, written};
use crate::model::alloc::{AllocIdentity, AllocSource, TaskIdentity};
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, TaskName};
use crate::model::pod;
use crate::snapshot::{AllocView, TaskView};

const SERVICE: &str = "service.name";
const INSTANCE: &str = "service.instance.id";

/// Who this host is, and what somebody wants to stand on everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostIdentity {
    /// `/etc/machine-id`.
    pub host_id: Option<String>,
    /// Of host and agent, before what `attributes` say of it.
    pub service_name: Option<String>,
    /// Besides what is known: `deployment.environment.name` and its like.
    pub attributes: Vec<(String, String)>,
}

impl HostIdentity {
    pub(super) fn host(&self, node: &NodeInfo) -> Resource {
        let own = [(SERVICE, self.service()), (INSTANCE, &self.part(node, "host")), ("os.type", "linux")];
        self.resource(node, own.map(owned).into())
    }

    pub(super) fn agent(&self, node: &NodeInfo) -> Resource {
        let version = ("service.version", env!("CARGO_PKG_VERSION"));
        let own = [(SERVICE, self.service()), (INSTANCE, &self.part(node, "agent")), version];
        self.resource(node, own.map(owned).into())
    }

    pub(super) fn alloc(&self, node: &NodeInfo, alloc: &AllocView) -> Resource {
        let id = alloc.identity.id.as_str();
        let mut own = service(&alloc.identity, id.to_owned());
        own.push(owned(("allostat.alloc.id", id)));
        own.extend(info("allostat.alloc", &RowSubject::alloc(alloc, node)));
        own.extend(of_pod(&alloc.identity, node));
        self.resource(node, own)
    }

    pub(super) fn task(
        &self,
        node: &NodeInfo,
        alloc: &AllocView,
        (known, task): (&TaskIdentity, &TaskView),
    ) -> Resource {
        let (id, name) = (alloc.identity.id.as_str(), known.name.as_str());
        let mut own = service(&alloc.identity, format!("{id}/{name}"));
        own.extend([("allostat.alloc.id", id), ("allostat.task.name", name)].map(owned));
        own.push(owned(("allostat.alloc.name", &alloc.identity.name)));
        own.extend(info("allostat.task", &RowSubject::task(alloc, (known, task), node)));
        let cgroup = task.observed.as_deref().and_then(|observed| observed.cgroup.as_ref());
        own.extend(of_container(&alloc.identity, known, cgroup.map_or("", |cgroup| cgroup.as_str()), node));
        self.resource(node, own)
    }

    /// Of an instance of a divided device too, whose parent is the whole.
    pub(super) fn device(&self, node: &NodeInfo, view: &DeviceView) -> Resource {
        let id = view.device.id.as_str();
        let known = |name: &str| view.info.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value);
        let (kind, index) = (view.kind.kind.as_str(), known("index"));
        let name = if index.is_empty() { String::new() } else { format!("{kind}{index}") };
        let parent = view.device.facts.parent.as_ref().map_or("", |parent| parent.as_str());
        let mut own = vec![
            owned((SERVICE, self.service())),
            owned((INSTANCE, &self.part(node, id))),
            owned((DEVICE_ID, id)),
            owned((HARDWARE_TYPE, kind)),
            owned(("hw.name", &name)),
            owned((PARENT, parent)),
        ];
        let more = view.info.iter().filter(|(label, _)| *label != "device_type");
        own.extend(more.map(|(label, value)| (of_hardware(label), value.clone())));
        self.resource(node, own)
    }

    /// Of one that nobody knows any more: what its ids say.
    pub(super) fn forgotten(&self, node: &NodeInfo, alloc: &AllocId, task: Option<&TaskName>) -> Resource {
        let id = alloc.as_str();
        let instance = task.map_or_else(|| id.to_owned(), |task| format!("{id}/{task}"));
        let mut own = [(INSTANCE, instance.as_str()), ("allostat.alloc.id", id)].map(owned).to_vec();
        own.extend(task.map(|task| owned(("allostat.task.name", task.as_str()))));
        self.resource(node, own)
    }

    fn service(&self) -> &str {
        let told = self.attributes.iter().find(|(key, _)| key == SERVICE).map(|(_, value)| value);
        self.service_name.as_ref().or(told).filter(|name| !name.is_empty()).map_or("allostat", |name| name)
    }

    fn part(&self, node: &NodeInfo, part: &str) -> String {
        format!("{}/{part}", self.host_id.as_deref().unwrap_or(&node.hostname))
    }

    /// What somebody set comes first: what we know ourselves is not overwritten, but for the name of the host.
    fn resource(&self, node: &NodeInfo, own: Vec<(String, String)>) -> Resource {
        let host =
            self.host_id.iter().map(|id| ("host.id", id.as_str())).chain([("host.name", node.hostname.as_str())]);
        let mut all = own;
        let wanted = self.attributes.iter().cloned().chain(host.map(owned));
        for (key, value) in wanted {
            if !all.iter().any(|(known, _)| *known == key) {
                all.push((key, value));
            }
        }
        let attributes = all.iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| key_value(k, v)).collect();
        Resource { attributes, ..Resource::default() }
    }
}

/// What identifies it among all resources.
pub(super) fn instance(resource: &Resource) -> &str {
    let id = resource.attributes.iter().find(|attribute| attribute.key == INSTANCE);
    match id.and_then(|id| id.value.as_ref()?.value.as_ref()) {
        Some(any_value::Value::StringValue(id)) => id,
        _ => "",
    }
}

/// Of an observed one without a workload its own name is that of the service. The workload of a pod begins with its
/// namespace, which has an attribute of its own: Prometheus makes `namespace/name` of the two.
fn service(known: &AllocIdentity, instance: String) -> Vec<(String, String)> {
    let workload = known.workload.as_ref().map(|workload| workload.as_str()).filter(|workload| !workload.is_empty());
    let name = workload.unwrap_or(&known.name);
    let within = || name.strip_prefix(known.namespace.as_str())?.strip_prefix('/').filter(|name| !name.is_empty());
    let name = if is_named_pod(known) { within().unwrap_or(name) } else { name };
    let namespace = ("service.namespace", known.namespace.as_str());
    [(SERVICE, name), namespace, (INSTANCE, instance.as_str())].map(owned).into()
}

/// Labels that the conventions have attributes for.
const CONVENTIONAL: [&str; 5] = ["alloc_ns", "namespace", "pod", "container", "node"];

/// What else it is, as its info family has it.
fn info(prefix: &str, subject: &RowSubject<'_>) -> Vec<(String, String)> {
    let told = subject.info.iter().filter(|(label, _)| !CONVENTIONAL.contains(label));
    told.map(|(label, value)| (format!("{prefix}.{label}"), written(label, value).into_owned())).collect()
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

/// The same of a container, in a pod or not. `cgroup`: its own, whose path has its id.
fn of_container(alloc: &AllocIdentity, task: &TaskIdentity, cgroup: &str, node: &NodeInfo) -> Vec<(String, String)> {
    let name = match alloc.source {
        AllocSource::Docker | AllocSource::Podman | AllocSource::Containerd => alloc.name.as_str(),
        AllocSource::Kubernetes => task.name.as_str(),
        _ => return Vec::new(),
    };
    let id = cgroup.split(|c: char| !c.is_ascii_hexdigit()).find(|part| part.len() == 64);
    // Until its runtime has told a name, its id stands for that.
    let name = if alloc.workload.is_some() { name } else { "" };
    let mut all = of_pod(alloc, node);
    if alloc.source == AllocSource::Kubernetes {
        all.push(owned(("k8s.container.name", name)));
    }
    let known = [
        ("container.id", id.unwrap_or_default()),
        ("container.name", name),
        ("container.runtime.name", task.driver.as_deref().unwrap_or_default()),
        ("container.image.name", task.image.as_deref().unwrap_or_default()),
    ];
    all.extend(known.map(owned));
    all
}

/// What a label of the info of devices is called, where the conventions have it.
fn of_hardware(label: &str) -> String {
    match label {
        "vendor" | "model" | "driver_version" => format!("hw.{label}"),
        "vbios_version" => "hw.firmware_version".to_owned(),
        _ => format!("allostat.device.{label}"),
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

pub(super) fn key_value(key: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.to_owned());
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{CgroupPath, JobId};

    #[test]
    fn containers_and_pods_have_the_names_of_the_conventions_and_what_is_none_has_none() {
        let id = "0123456789abcdef".repeat(4);
        let of = |source, workload: Option<&str>, path: &str| {
            let path = path.replace("<id>", &id);
            let alloc =
                AllocIdentity::of_cgroup(AllocId::from("a"), CgroupPath::new(path.clone()), [TaskName::from("app")]);
            let namespace = workload.map_or("", |_| "shop").to_owned();
            let workload = workload.map(JobId::from);
            let alloc = AllocIdentity { source, workload, name: "web-1".into(), namespace, ..alloc };
            let task =
                TaskIdentity { driver: Some("docker".into()), image: Some("web:1".into()), ..alloc.tasks[0].clone() };
            let all = of_container(&alloc, &task, &path, &node()).into_iter().filter(|(_, value)| !value.is_empty());
            all.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let container = |name: &str| {
            format!("container.id={id} container.name={name} container.runtime.name=docker container.image.name=web:1")
        };
        assert_eq!(of(AllocSource::Docker, Some("web"), "/docker/<id>"), container("web-1"));
        assert_eq!(of(AllocSource::Podman, Some("web"), "/machine.slice/libpod-<id>.scope"), container("web-1"));
        let named = "k8s.node.name=h k8s.namespace.name=shop k8s.pod.name=web-1 k8s.container.name=app";
        let pod = format!("{named} {}", container("app"));
        assert_eq!(of(AllocSource::Kubernetes, Some("web"), "/kubepods/pod1/<id>"), pod);
        assert_eq!(of(AllocSource::Systemd, Some("web"), "/system.slice/web.service"), "");
        let unnamed = of(AllocSource::Kubernetes, None, "/kubepods/pod1/<id>");
        let unnamed = unnamed.strip_prefix("k8s.node.name=h ").unwrap();
        assert_eq!(unnamed, container("").replace("container.name= ", ""), "its runtime has not named it");
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

    fn pod_named(name: &str, workload: &str) -> AllocIdentity {
        const CGROUP: &str = "/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let (source, workload) = (AllocSource::Kubernetes, Some(JobId::from(workload)));
        let alloc = AllocIdentity::of_cgroup(AllocId::from("k8s:a"), CgroupPath::from(CGROUP), []);
        AllocIdentity { source, workload, name: name.into(), namespace: "shop".into(), ..alloc }
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

    #[test]
    fn service_of_a_pod_does_not_repeat_its_namespace() {
        let name = |alloc: &AllocIdentity| service(alloc, String::new())[0].1.clone();
        assert_eq!(name(&pod_named("web-0", "shop/web")), "web", "Prometheus makes the job shop/web of it");
        assert_eq!(name(&pod_named("web-0", "shopping/web")), "shopping/web");
        assert_eq!(name(&pod_named("web-0", "ci")), "ci", "a rule of the configuration named it");
        let managed = AllocIdentity { source: AllocSource::Managed, ..pod_named("web-0", "shop/web") };
        assert_eq!(name(&managed), "shop/web");
    }

    #[test]
    fn the_service_of_host_and_agent_is_what_is_set_first_by_itself_then_as_an_attribute() {
        let named = |service_name: Option<&str>, attribute: Option<&str>| {
            let attributes = attribute.map(|name| (SERVICE.to_owned(), name.to_owned())).into_iter().collect();
            let identity = HostIdentity { host_id: None, service_name: service_name.map(str::to_owned), attributes };
            identity.service().to_owned()
        };
        assert_eq!(named(None, None), "allostat");
        assert_eq!(named(None, Some("edge")), "edge");
        assert_eq!(named(Some("node"), Some("edge")), "node");
    }
}
