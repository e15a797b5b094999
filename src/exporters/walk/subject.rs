//! Whose a row is: what tells it from others, what else it is, and its times.

use std::borrow::Cow;

use crate::model::alloc::{AllocIdentity, Measured, TaskIdentity};
use crate::model::text::label_path;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, ParentView, TaskView, WorkloadView};

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

/// A label's value as every format writes it. Names were cut and cleaned as they came; the path of a cgroup is kept to the letter, and is
/// cut and cleaned here.
pub fn written<'a>(label: &str, value: &'a str) -> Cow<'a, str> {
    if label == CGROUP { label_path(value) } else { Cow::Borrowed(value) }
}

const CGROUP: &str = "cgroup";

impl<'a> RowSubject<'a> {
    pub fn alloc(view: &'a AllocView) -> RowSubject<'a> {
        let known = &view.identity;
        let chosen = view.observed.iter().flat_map(|alloc| &alloc.labels);
        let info = vec![
            ("task_group", known.group.as_ref().map_or("", |group| group.as_str())),
            ("alloc_ns", known.namespace.as_str()),
            ("name", known.name.as_str()),
            ("source", known.source.as_str()),
            (CGROUP, known.cgroup.as_ref().map_or("", |c| c.as_str())),
            ("measured", known.measured.as_str()),
            ("aggregation", view.aggregation.as_str()),
        ];
        let chosen = chosen.map(|label| (label.name.as_str(), label.value.as_str()));
        RowSubject {
            labels: vec![("alloc_id", known.id.as_str()), ("workload", workload(known))],
            info: info.into_iter().chain(chosen).collect(),
            read_at: view.sampled_at,
            since: known.created_at,
        }
    }

    /// Of this alloc. `cgroup_mode`: of the host.
    pub fn task(
        alloc: &'a AllocView,
        (known, task): (&'a TaskIdentity, &'a TaskView),
        cgroup_mode: &'a str,
    ) -> RowSubject<'a> {
        let of = &alloc.identity;
        RowSubject {
            labels: vec![("alloc_id", of.id.as_str()), ("task", known.name.as_str()), ("workload", workload(of))],
            info: vec![
                ("driver", known.driver.as_deref().unwrap_or("")),
                ("user", known.user.as_deref().unwrap_or("")),
                ("image", known.image.as_deref().unwrap_or("")),
                // Only where cgroups measure does their version say anything.
                ("cgroup_version", if of.measured == Measured::Cgroup { cgroup_mode } else { "" }),
            ],
            read_at: task.sampled_at,
            since: of.created_at,
        }
    }

    pub fn workload(view: &'a WorkloadView) -> RowSubject<'a> {
        RowSubject {
            labels: vec![("task", view.task.as_str()), ("workload", view.workload.as_str())],
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

fn workload(of: &AllocIdentity) -> &str {
    of.workload.as_ref().map_or("", |workload| workload.as_str())
}
