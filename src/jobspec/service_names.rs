//! Where services stand in a job, and the names that they and their checks get.

use std::collections::BTreeSet;

use super::fields::NamedBody;
use crate::model::job::TaskGroup;

/// Where services stand.
#[derive(Clone, Copy)]
pub(super) struct ServiceLocation<'a> {
    /// `None`: in the group itself.
    pub task: Option<&'a str>,
    /// Of the group.
    pub tasks: &'a [NamedBody<'a>],
}

/// Names that services have by default, and what of a name Nomad replaces when a job is submitted.
pub(super) fn canonicalize(job: &str, group: &mut TaskGroup) {
    let group_name = group.name.as_str().to_owned();
    let mut seen = BTreeSet::new();
    for service in &mut group.services {
        let task = service.task.as_ref().map_or("group", |task| task.as_str());
        let base = format!("{job}-{group_name}-{task}");
        if service.name.is_empty() {
            service.name.clone_from(&base);
        }
        for (reference, value) in [("JOB", job), ("TASKGROUP", &group_name), ("TASK", task), ("BASE", &base)] {
            service.name = service.name.replace(&format!("${{{reference}}}"), value);
        }
        for check in &mut service.checks {
            if check.name == default_check("") {
                check.name = default_check(&service.name);
            }
            // Each is series of its own.
            let name = check.name.clone();
            let mut number = 1;
            while !seen.insert((service.name.clone(), check.name.clone())) {
                number += 1;
                check.name = format!("{name} {number}");
            }
        }
    }
}

pub(super) fn default_check(service: &str) -> String {
    format!("service: \"{service}\" check")
}
