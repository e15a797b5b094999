//! Slurm: a job is an alloc, each step (`batch`, `extern`, `0`) a task with all its ranks.
//!
//! ```text
//! /slurm/uid_<uid>/job_<job>/step_<step>/task_<rank>                       v1; slurm_<node> with several daemons
//! /system.slice/slurmstepd.scope/job_<job>/step_<step>/user/task_<rank>    v2; also <node>_slurmstepd.scope
//! /system.slice/slurmstepd.scope/s<SLUID>/step_<step>/user/task_<rank>     26.05 and later
//! ```
//! A SLUID is `s` and 13 digits of Crockford's base 32; the environment of a step contains the job of a SLUID.
//!
//! Job names, users and accounts come from the environment that Slurm sets for its steps. The workload of a job is its
//! account.

use super::ObservedSource;
use super::identity::{AllocCgroupRule, CgroupParts, CgroupVerdict, ExitRule, RecognisedTask, TaskNaming, is_number};
use super::process_environment;
use super::runtime_queries::{QueryTarget, Runtime};
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;

pub static SLURM: ObservedSource = ObservedSource {
    word: AllocSource::Slurm,
    recognise,
    runtime: Some(|paths| Box::new(SlurmRuntime(paths.roots.clone()))),
};

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let root = at.above().position(is_root)?;
    // Components from the Slurm root down.
    let mut below: Vec<&str> = at.above().take(root).collect();
    below.reverse();
    below.push(at.name());
    let uid = below.first().and_then(|name| name.strip_prefix("uid_")).filter(|uid| is_number(uid));
    let numbered = |name: &str| name.strip_prefix("job_").filter(|job| is_number(job)).map(str::to_owned);
    let job = |name: &&str| numbered(name).or_else(|| is_sluid(name).then(|| (*name).to_owned()));
    let (job, step) = match below.get(usize::from(uid.is_some())..)? {
        [] => return Some(CgroupVerdict::Group),
        [name] => return job(name).map(|_| CgroupVerdict::Group),
        [name, step] => (job(name)?, step.strip_prefix("step_")?),
        _ => return None,
    };
    let naming = TaskNaming { task: step.to_owned(), user: uid.map(str::to_owned), ..TaskNaming::of(&job) };
    let source = AllocSource::Slurm;
    let ends_by = if step == "extern" { ExitRule::Ignored } else { ExitRule::Ranks("task_") };
    Some(
        RecognisedTask {
            source,
            container: None,
            alloc_cgroup: AllocCgroupRule::Parent,
            is_closed: true,
            ends_by,
            naming,
            user: None,
        }
        .into(),
    )
}

fn is_root(name: &str) -> bool {
    name == "slurm" || name.starts_with("slurm_") || name.ends_with("slurmstepd.scope")
}

fn is_sluid(name: &str) -> bool {
    const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    name.strip_prefix('s').is_some_and(|digits| digits.len() == 13 && digits.chars().all(|c| DIGITS.contains(c)))
}

/// The path does not contain the job ID, so the task is not shown before a process reports it.
pub fn is_named_late(found: &RecognisedTask) -> bool {
    found.source == AllocSource::Slurm && is_sluid(&found.naming.native)
}

/// Names from the environment of a Slurm step.
struct SlurmRuntime(Roots);

impl Runtime for SlurmRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        const JOB: [&str; 6] = [
            "SLURM_JOB_NAME",
            "SLURM_JOB_USER",
            "SLURM_JOB_ACCOUNT",
            "SLURM_JOB_PARTITION",
            "SLURM_JOB_ID",
            "SLURM_JOB_SLUID",
        ];
        let known = &target.found.naming;
        let mut variables = process_environment::read(&self.0, &target.directories, &JOB);
        let is_late = is_named_late(&target.found);
        if is_late && !variables.contains_key("SLURM_JOB_ID") {
            // Processes of `extern` do not have the variables; those of other steps do.
            let jobs: Vec<_> = target.directories.iter().filter_map(|at| Some(at.parent()?.to_owned())).collect();
            variables = process_environment::read(&self.0, &jobs, &JOB);
        }
        let (job, sluid) = (variables.remove("SLURM_JOB_ID")?, variables.remove("SLURM_JOB_SLUID"));
        // The environment was inherited from another job's step.
        let is_of_another = if is_late { sluid.is_some_and(|it| it != known.native) } else { job != known.native };
        if is_of_another || !is_number(&job) {
            return None;
        }
        Some(TaskNaming {
            native: job.clone(),
            name: variables.remove("SLURM_JOB_NAME").unwrap_or(job),
            user: variables.remove("SLURM_JOB_USER").or_else(|| known.user.clone()),
            workload: variables.remove("SLURM_JOB_ACCOUNT"),
            namespace: variables.remove("SLURM_JOB_PARTITION").unwrap_or_default(),
            ..known.clone()
        })
    }
}
