//! Nomad: its allocs and tasks. A task in a Docker container is recognised by the container's labels.
//!
//! ```text
//! /nomad.slice/share.slice/<alloc>.<task>.scope     v2; reserve.slice with reserved cores
//! /nomad/<alloc>.<task>                             v1; below share or reserve in cpuset
//! ```
//! Job and group come from the environment that Nomad sets for its tasks; its API would need a token.

use super::ObservedSource;
use super::identity::{AllocCgroupRule, CgroupParts, CgroupVerdict, ExitRule, RecognisedTask, TaskNaming};
use super::process_environment;
use super::runtime_queries::{QueryTarget, Runtime};
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::model::id::AllocId;

pub static NOMAD: ObservedSource = ObservedSource {
    word: AllocSource::Nomad,
    recognise,
    runtime: Some(|paths| Box::new(NomadRuntime(paths.roots.clone()))),
};

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    if !at.above().any(|name| matches!(name, "nomad" | "nomad.slice")) {
        return None;
    }
    let name = at.name().strip_suffix(".scope").unwrap_or(at.name());
    let (alloc, task) = name.split_once('.')?;
    AllocId::parse(alloc)?;
    let naming = TaskNaming { task: task.to_owned(), ..TaskNaming::of(alloc) };
    let source = AllocSource::Nomad;
    let (alloc_cgroup, ends_by) = (AllocCgroupRule::None, ExitRule::FirstProcess);
    Some(RecognisedTask { source, container: None, alloc_cgroup, is_closed: true, ends_by, naming, user: None }.into())
}

/// Names from the environment of a Nomad task.
struct NomadRuntime(Roots);

impl Runtime for NomadRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        const JOB: [&str; 5] =
            ["NOMAD_JOB_ID", "NOMAD_GROUP_NAME", "NOMAD_ALLOC_NAME", "NOMAD_NAMESPACE", "NOMAD_ALLOC_ID"];
        let mut variables = process_environment::read(&self.0, &target.directories, &JOB);
        let known = &target.found.naming;
        // The environment was inherited from another alloc's task.
        if variables.remove("NOMAD_ALLOC_ID").is_some_and(|id| id != known.native) {
            return None;
        }
        Some(TaskNaming {
            workload: Some(variables.remove("NOMAD_JOB_ID")?),
            group: variables.remove("NOMAD_GROUP_NAME"),
            name: variables.remove("NOMAD_ALLOC_NAME").unwrap_or_else(|| known.name.clone()),
            namespace: variables.remove("NOMAD_NAMESPACE").unwrap_or_default(),
            ..known.clone()
        })
    }
}
