//! The environment of a task, and what its job file's `${...}` come to.

use std::borrow::Cow;

use super::{Failure, Hook, OfTask, Outcome, Phase};
use crate::host::process::Account;
use crate::jobspec::interpolate;
use crate::model::env::{Env, TaskContext, node_attributes};
use crate::model::event::EventKind;
use crate::runner::drivers::BoxFuture;

pub struct Environment;

impl Hook<OfTask> for Environment {
    fn name(&self) -> &'static str {
        "env"
    }
    fn after(&self) -> &'static [&'static str] {
        &["task_dir"]
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prestart]
    }
    fn run<'a>(&'a self, _: Phase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            let alloc = &subject.alloc;
            let Some(dirs) = &subject.dirs else { return Err(Failure::setup("its directories are not there yet")) };
            let inherited = subject
                .account
                .as_ref()
                .map_or(Cow::Borrowed(&alloc.ctx.inherited), |a| Cow::Owned(login(a, &alloc.ctx.inherited)));
            let alloc_cgroup = alloc.own_cgroup();
            let context = TaskContext {
                job: &alloc.job,
                group: alloc.group(),
                task: alloc.task(subject.at),
                alloc_id: &alloc.id,
                alloc_name: &alloc.name(),
                index: alloc.index(),
                alloc_dir: &dirs.shared,
                local_dir: &dirs.local,
                secrets_dir: &dirs.secrets,
                alloc_cgroup: alloc_cgroup.as_ref(),
                inherited: &inherited,
                attributes: &node_attributes(&alloc.ctx.node, &alloc.job),
            };
            let prepared = interpolate::prepare(&context).map_err(|unresolved| Failure {
                kind: EventKind::FailedValidation,
                message: unresolved.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                recoverable: false,
            })?;
            subject.prepared = Some(prepared);
            Ok(Outcome::Again)
        })
    }
}

/// What a login would set; the job's `env` wins over it.
fn login(account: &Account, inherited: &Env) -> Env {
    /// Of users other than root, who have no business with `sbin`.
    const USER_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
    let mut env = inherited.clone();
    let of_account =
        [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name), ("SHELL", &account.shell)];
    env.extend(of_account.map(|(name, value)| (name.to_owned(), value.clone())));
    if account.uid != rustix::process::geteuid().as_raw() {
        env.insert("PATH".to_owned(), USER_PATH.to_owned());
    }
    env
}
