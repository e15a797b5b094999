//! Whose a row is: what tells it from others, what else it is, and its times.

use super::listener::Labels;
use crate::model::alloc::Measured;
use crate::model::units::Timestamp;
use crate::snapshot::{AllocView, TaskView, WorkloadView};

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

impl<'a> RowSubject<'a> {
    pub fn alloc(view: &'a AllocView) -> RowSubject<'a> {
        let status = &view.status;
        RowSubject {
            labels: vec![("alloc_id", status.id.as_str()), ("workload", status.workload().as_str())],
            info: vec![
                ("task_group", status.group.as_str()),
                ("alloc_ns", status.job.namespace.as_str()),
                ("name", status.name.as_str()),
                ("source", "managed"),
                ("cgroup", status.cgroup.as_ref().map_or("", |c| c.as_str())),
                ("measured", status.measured.as_str()),
                ("aggregation", view.aggregation.as_str()),
            ],
            read_at: view.sampled_at,
            since: Some(status.created_at),
        }
    }

    /// Of this alloc. `cgroup_mode`: of the host.
    pub fn task(alloc: &'a AllocView, task: &'a TaskView, cgroup_mode: &'a str) -> RowSubject<'a> {
        let of = &alloc.status;
        RowSubject {
            labels: vec![
                ("alloc_id", of.id.as_str()),
                ("task", task.status.name.as_str()),
                ("workload", of.workload().as_str()),
            ],
            info: vec![
                ("driver", task.status.driver.as_str()),
                ("user", task.status.user.as_deref().unwrap_or("")),
                // Only where cgroups measure does their version say anything.
                ("cgroup_version", if of.measured == Measured::Cgroup { cgroup_mode } else { "" }),
            ],
            read_at: task.sampled_at,
            since: Some(of.created_at),
        }
    }

    pub fn workload(view: &'a WorkloadView) -> RowSubject<'a> {
        RowSubject {
            labels: vec![("task", view.task.as_str()), ("workload", view.workload.as_str())],
            since: view.ended.created,
            ..RowSubject::default()
        }
    }

    pub fn job(workload: &'a str) -> RowSubject<'a> {
        RowSubject { labels: vec![("workload", workload)], ..RowSubject::default() }
    }
}
