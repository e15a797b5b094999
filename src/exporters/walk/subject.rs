//! Whose a row is: the labels that identify it, what else it is, and its times.

use std::borrow::Cow;

use crate::model::alloc::{AllocIdentity, AllocSource, Measured, TaskIdentity};
use crate::model::host::NodeInfo;
use crate::model::text::label_path;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, ParentView, TaskView, WorkloadTaskView};

/// Label names and values, in the order in which they are shown. An empty value is the same as no label.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSubject<'a> {
    /// On each of its series.
    pub labels: Labels<'a>,
    /// On its info family alone, behind the labels.
    pub info: Labels<'a>,
    /// When it was read last; `None`: with the snapshot.
    pub read_at: Option<Timestamp>,
    /// Since when its counters count.
    pub since: Option<Timestamp>,
}

/// A label's value as every format writes it. Names were cut and cleaned as they came; the path of a cgroup is kept to
/// the letter, and is cut and cleaned here.
pub fn written<'a>(label: &str, value: &'a str) -> Cow<'a, str> {
    if label == CGROUP { label_path(value) } else { Cow::Borrowed(value) }
}

const CGROUP: &str = "cgroup";

impl<'a> RowSubject<'a> {
    pub fn alloc(view: &'a AllocView, host: &'a NodeInfo) -> RowSubject<'a> {
        let known = &view.identity;
        let of_pod = pod_labels(known, host);
        let chosen = view.observed.iter().flat_map(|alloc| &alloc.labels);
        let info = vec![
            ("task_group", known.group.as_ref().map_or("", |group| group.as_str())),
            ("alloc_ns", known.namespace.as_str()),
            ("name", known.name.as_str()),
            ("source", known.source.as_str()),
            (CGROUP, known.cgroup.as_ref().map_or("", |c| c.as_str())),
            ("measured", known.measured.as_str()),
            ("aggregation", view.aggregation.as_str()),
            ("slice", slice(known)),
        ];
        let chosen = chosen.map(|label| (label.name.as_str(), label.value.as_str()));
        RowSubject {
            labels: vec![("alloc_id", known.id.as_str()), ("workload", workload(known))],
            info: info.into_iter().chain(of_pod).chain(chosen).collect(),
            read_at: view.sampled_at,
            since: known.created_at,
        }
    }

    /// Of this alloc.
    pub fn task(
        alloc: &'a AllocView,
        (known, task): (&'a TaskIdentity, &'a TaskView),
        host: &'a NodeInfo,
    ) -> RowSubject<'a> {
        let of = &alloc.identity;
        let info = vec![
            ("driver", known.driver.as_deref().unwrap_or("")),
            ("user", known.user.as_deref().unwrap_or("")),
            ("image", known.image.as_deref().unwrap_or("")),
            // Only where cgroups measure does their version say anything.
            ("cgroup_version", if of.measured == Measured::Cgroup { host.cgroup_mode.as_str() } else { "" }),
        ];
        let container = ("container", if is_named_pod(of) { known.name.as_str() } else { "" });
        RowSubject {
            labels: vec![("alloc_id", of.id.as_str()), ("task", known.name.as_str()), ("workload", workload(of))],
            info: info.into_iter().chain(pod_labels(of, host)).chain([container]).collect(),
            read_at: task.sampled_at,
            since: of.created_at,
        }
    }

    pub fn workload(view: &'a WorkloadTaskView) -> RowSubject<'a> {
        RowSubject {
            labels: vec![
                ("task", view.task.as_str()),
                ("workload", view.workload.as_str()),
                ("source", view.source.map_or("", AllocSource::as_str)),
            ],
            since: view.ended.created,
            ..RowSubject::default()
        }
    }

    pub fn parent(view: &'a ParentView) -> RowSubject<'a> {
        RowSubject {
            labels: vec![(CGROUP, view.path.as_str())],
            read_at: Some(view.sampled_at),
            ..RowSubject::default()
        }
    }

    pub fn job(workload: &'a str) -> RowSubject<'a> {
        RowSubject { labels: vec![("workload", workload)], ..RowSubject::default() }
    }
}

/// The name of the workload. Of a container or pod without one (its runtime does not answer) the name of the alloc,
/// which is then its ID.
fn workload(of: &AllocIdentity) -> &str {
    use AllocSource::{Containerd, Docker, Kubernetes, Podman};
    let named = of.workload.as_ref().map(|workload| workload.as_str()).filter(|workload| !workload.is_empty());
    let is_container = matches!(of.source, Docker | Podman | Containerd | Kubernetes);
    named.unwrap_or(if is_container { &of.name } else { "" })
}

/// A pod that a runtime or the kubelet has named: until then its UID is all that is known.
pub fn is_named_pod(of: &AllocIdentity) -> bool {
    of.source == AllocSource::Kubernetes && !of.namespace.is_empty()
}

/// The labels that Kubernetes' own metrics have. Empty for what is no pod. The kubelet registers its node by the host
/// name unless it is configured with another one.
fn pod_labels<'a>(of: &'a AllocIdentity, host: &'a NodeInfo) -> [(&'a str, &'a str); 3] {
    let (namespace, pod, node) = match is_named_pod(of) {
        true => (of.namespace.as_str(), of.name.as_str(), host.hostname.as_str()),
        false => ("", "", ""),
    };
    [("namespace", namespace), ("pod", pod), ("node", node)]
}

/// The slice that a unit of systemd is in.
fn slice(of: &AllocIdentity) -> &str {
    let path = of.cgroup.as_ref().filter(|_| of.source == AllocSource::Systemd).map_or("", |cgroup| cgroup.as_str());
    path.rsplit('/').find(|name| name.ends_with(".slice")).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{AllocId, CgroupPath};

    #[test]
    fn slice_is_the_nearest_one_above_a_unit_and_of_units_alone() {
        let of = |source, path: &str| {
            let cgroup = Some(CgroupPath::from(path));
            slice(&AllocIdentity { source, cgroup, ..AllocIdentity::unnamed(AllocId::from("a")) }).to_owned()
        };
        assert_eq!(of(AllocSource::Systemd, "/system.slice/nginx.service"), "system.slice");
        assert_eq!(
            of(AllocSource::Systemd, "/user.slice/user-1.slice/user@1.service/app.slice/a.service"),
            "app.slice"
        );
        assert_eq!(of(AllocSource::Systemd, "/init.scope"), "");
        assert_eq!(of(AllocSource::Docker, "/system.slice/docker-0f.scope"), "");
    }

    #[test]
    fn container_without_a_name_has_its_id_as_workload() {
        let (source, name) = (AllocSource::Docker, "3f2a9c0b1d4e".to_owned());
        let unnamed = AllocIdentity { source, name, ..AllocIdentity::unnamed(AllocId::from("a")) };
        assert_eq!(workload(&unnamed), "3f2a9c0b1d4e");
        assert_eq!(workload(&AllocIdentity { workload: Some("".into()), ..unnamed.clone() }), "3f2a9c0b1d4e");
        assert_eq!(workload(&AllocIdentity { workload: Some("web".into()), ..unnamed.clone() }), "web");
        assert_eq!(workload(&AllocIdentity { source: AllocSource::Slurm, ..unnamed }), "", "its account is unknown");
    }
}
