//! Slurm: a job is an alloc, a step of it (`batch`, `extern`, `0`) a task, whatever ranks it has.
//!
//! ```text
//! /slurm/uid_<uid>/job_<job>/step_<step>/task_<rank>                                   v1; slurm_<node> with several daemons
//! /system.slice/slurmstepd.scope/job_<job>/step_<step>/user/task_<rank>                v2; <node>_slurmstepd.scope too
//! ```
//! Names of jobs, their users and accounts are told by the environment that Slurm gives to its steps. A job's workload is its account.

use super::ObservedSource;
use super::facts;
use super::identity::{CgroupParts, CgroupVerdict, EndBy, Naming, OwnCgroup, Recognised, is_number};
use super::naming::{Inquiry, Runtime};
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;

pub static SLURM: ObservedSource = ObservedSource {
    word: AllocSource::Slurm,
    recognise,
    runtime: Some(|places| Box::new(Environment(places.roots.clone()))),
};

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let root = at.above().position(is_root)?;
    // From the root down to it.
    let mut below: Vec<&str> = at.above().take(root).collect();
    below.reverse();
    below.push(at.name());
    let uid = below.first().and_then(|name| name.strip_prefix("uid_")).filter(|uid| is_number(uid));
    let numbered = |name: &&str| name.strip_prefix("job_").filter(|job| is_number(job)).map(str::to_owned);
    let (job, step) = match below.get(usize::from(uid.is_some())..)? {
        [] => return Some(CgroupVerdict::Group),
        [job] => return numbered(job).map(|_| CgroupVerdict::Group),
        [job, step] => (numbered(job)?, step.strip_prefix("step_")?),
        _ => return None,
    };
    let naming = Naming { task: step.to_owned(), user: uid.map(str::to_owned), ..Naming::of(&job) };
    let source = AllocSource::Slurm;
    let ends_by = if step == "extern" { EndBy::Nobody } else { EndBy::Ranks("task_") };
    Some(Recognised { source, container: None, own: OwnCgroup::Parent, is_closed: true, ends_by, naming }.into())
}

fn is_root(name: &str) -> bool {
    name == "slurm" || name.starts_with("slurm_") || name.ends_with("slurmstepd.scope")
}

struct Environment(Roots);

impl Runtime for Environment {
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming> {
        const JOB: [&str; 5] =
            ["SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION", "SLURM_JOB_ID"];
        let mut said = facts::environment(&self.0, &inquiry.directories, &JOB);
        let known = &inquiry.found.naming;
        // Handed on by another job's step.
        if said.remove("SLURM_JOB_ID")? != known.native {
            return None;
        }
        Some(Naming {
            name: said.remove("SLURM_JOB_NAME").unwrap_or_else(|| known.name.clone()),
            user: said.remove("SLURM_JOB_USER").or_else(|| known.user.clone()),
            workload: said.remove("SLURM_JOB_ACCOUNT"),
            namespace: said.remove("SLURM_JOB_PARTITION").unwrap_or_default(),
            ..known.clone()
        })
    }
}
