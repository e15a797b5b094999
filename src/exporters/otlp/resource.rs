//! Whose points are: one resource for each task, alloc, device, the host and the agent.
//!
//! Prometheus keeps of a resource what becomes `job` (namespace and name) and `instance` (instance id) and drops the
//! rest: so each has an instance id that no other has.

use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::attribute::{key_value, owned};
use super::container;
use super::names::{DEVICE_ID, HARDWARE_TYPE, PARENT};
use crate::board::devices::DeviceView;
use crate::exporters::walk::{RowSubject, is_named_pod, written};
use crate::model::alloc::{AllocIdentity, AllocSource, TaskIdentity};
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, TaskName};
use crate::snapshot::{AllocView, TaskView};

const SERVICE: &str = "service.name";
const NAMESPACE: &str = "service.namespace";
const INSTANCE: &str = "service.instance.id";

/// The identity of this host, and the attributes that the settings add to everything.
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

    /// Of everything at once. Stores make `job` and `instance` of it, so it has the name of the host that people know.
    pub(super) fn whole(&self, node: &NodeInfo) -> Resource {
        let instance = self.attribute(INSTANCE).unwrap_or(&node.hostname);
        let version = ("service.version", env!("CARGO_PKG_VERSION"));
        self.resource(node, [(SERVICE, self.service()), (INSTANCE, instance), version].map(owned).into())
    }

    /// The same as labels, for stores that keep nothing of a resource, with the attributes that the settings add.
    pub(super) fn labels(&self, node: &NodeInfo) -> Vec<(String, String)> {
        let name = self.service();
        let job = self.attribute(NAMESPACE).map_or_else(|| name.to_owned(), |of| format!("{of}/{name}"));
        let instance = self.attribute(INSTANCE).unwrap_or(&node.hostname);
        let more = self
            .attributes
            .iter()
            .filter(|(key, _)| ![SERVICE, NAMESPACE, INSTANCE, "job", "instance"].contains(&key.as_str()));
        [("job", job.as_str()), ("instance", instance)].map(owned).into_iter().chain(more.cloned()).collect()
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn alloc(&self, node: &NodeInfo, alloc: &AllocView) -> Resource {
        let id = alloc.identity.id.as_str();
        let mut own = service(&alloc.identity, id.to_owned());
        own.push(owned(("allostat.alloc.id", id)));
        own.extend(info("allostat.alloc", &RowSubject::alloc(alloc, node)));
        own.extend(container::of_alloc(alloc, node));
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
        let (texts, lists) = container::of_task(alloc, (known, task), node);
        own.extend(texts);
        let mut resource = self.resource(node, own);
        resource.attributes.retain(|attribute| !lists.iter().any(|list| list.key == attribute.key));
        resource.attributes.extend(lists);
        resource
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

    /// The resource that its metrics have. `view`: absent for an alloc that was forgotten meanwhile.
    pub(super) fn owner(
        &self,
        node: &NodeInfo,
        (alloc, task): (&AllocId, Option<&TaskName>),
        view: Option<&AllocView>,
    ) -> Resource {
        let Some(view) = view else { return self.forgotten(node, alloc, task) };
        match task.and_then(|name| view.tasks().find(|(known, _)| known.name == *name)) {
            Some(task) => self.task(node, view, task),
            None => self.alloc(node, view),
        }
    }

    /// Of an alloc that is not known any more: its IDs.
    fn forgotten(&self, node: &NodeInfo, alloc: &AllocId, task: Option<&TaskName>) -> Resource {
        let id = alloc.as_str();
        let instance = task.map_or_else(|| id.to_owned(), |task| format!("{id}/{task}"));
        let mut own = [(INSTANCE, instance.as_str()), ("allostat.alloc.id", id)].map(owned).to_vec();
        own.extend(task.map(|task| owned(("allostat.task.name", task.as_str()))));
        self.resource(node, own)
    }

    fn service(&self) -> &str {
        let set = self.service_name.as_deref().filter(|name| !name.is_empty());
        set.or_else(|| self.attribute(SERVICE)).unwrap_or("allostat")
    }

    fn part(&self, node: &NodeInfo, part: &str) -> String {
        format!("{}/{part}", self.host_id.as_deref().unwrap_or(&node.hostname))
    }

    /// Attributes from the settings come first. They do not overwrite what the agent knows itself, but for the host
    /// name.
    fn resource(&self, node: &NodeInfo, own: Vec<(String, String)>) -> Resource {
        let host =
            self.host_id.iter().map(|id| ("host.id", id.as_str())).chain([("host.name", node.hostname.as_str())]);
        let mut all = own;
        let requested = self.attributes.iter().cloned().chain(host.map(owned));
        for (key, value) in requested {
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

/// Of an observed one without a workload its own name is that of the service. The workload of a pod, and of a container
/// of containerd, begins with its namespace, which has an attribute of its own: Prometheus makes `namespace/name` of
/// the two.
fn service(known: &AllocIdentity, instance: String) -> Vec<(String, String)> {
    let workload = known.workload.as_ref().map(|workload| workload.as_str()).filter(|workload| !workload.is_empty());
    let name = workload.unwrap_or(&known.name);
    let within = || name.strip_prefix(known.namespace.as_str())?.strip_prefix('/').filter(|name| !name.is_empty());
    let is_prefixed = is_named_pod(known) || known.source == AllocSource::Containerd;
    let name = if is_prefixed { within().unwrap_or(name) } else { name };
    let namespace = (NAMESPACE, known.namespace.as_str());
    [(SERVICE, name), namespace, (INSTANCE, instance.as_str())].map(owned).into()
}

/// Labels that the conventions have attributes for.
const CONVENTIONAL: [&str; 5] = ["alloc_ns", "namespace", "pod", "container", "node"];

/// What else it is, as its info family has it.
fn info(prefix: &str, subject: &RowSubject<'_>) -> Vec<(String, String)> {
    let labels = subject.info.iter().filter(|(label, _)| !CONVENTIONAL.contains(label));
    // Labels of containers are attributes of their own.
    let labels = labels.filter(|(label, _)| !label.starts_with("label_"));
    labels.map(|(label, value)| (format!("{prefix}.{label}"), written(label, value).into_owned())).collect()
}

/// What a label of the info of devices is called, where the conventions have it.
fn of_hardware(label: &str) -> String {
    match label {
        "vendor" | "model" | "driver_version" => format!("hw.{label}"),
        "vbios_version" => "hw.firmware_version".to_owned(),
        _ => format!("allostat.device.{label}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::tests::pod_named;
    use super::*;

    #[test]
    fn service_of_a_pod_or_container_does_not_repeat_its_namespace() {
        let name = |alloc: &AllocIdentity| service(alloc, String::new())[0].1.clone();
        assert_eq!(name(&pod_named("web-0", "shop/web")), "web", "Prometheus makes the job shop/web of it");
        assert_eq!(name(&pod_named("web-0", "shopping/web")), "shopping/web");
        assert_eq!(name(&pod_named("web-0", "ci")), "ci", "a rule of the configuration named it");
        let container = AllocIdentity { source: AllocSource::Containerd, ..pod_named("redis", "shop/redis") };
        assert_eq!(name(&container), "redis");
        let managed = AllocIdentity { source: AllocSource::Managed, ..pod_named("web-0", "shop/web") };
        assert_eq!(name(&managed), "shop/web");
    }

    #[test]
    fn otlp_service_name_is_the_setting_then_the_attribute_then_the_default() {
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
