//! The environment of a task, and what its job file's `${...}` come to.

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::host::process::Account;
use crate::jobspec::interpolate;
use crate::model::env::{Env, TaskContext, node_attributes};
use crate::model::event::EventKind;
use crate::model::trace;
use crate::runner::drivers::{BoxFuture, Driver, SeenDirs};

/// Source: OpenTelemetry, "Environment Variables as Context Propagation Carriers".
const TRACEPARENT: &str = "TRACEPARENT";

pub struct EnvironmentHook;

impl Hook<OfTask> for EnvironmentHook {
    fn name(&self) -> &'static str {
        "env"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate", "task_dir", "devices", "template"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let Some(dirs) = &subject.dirs else { return Err(HookError::setup("its directories are not there yet")) };
            // Without one, `validate` has refused it.
            let Some(driver) = subject.ctx.drivers.get(subject.task().driver.as_str()) else {
                return Err(HookError::setup("its driver is not there"));
            };
            let (seen, inherited) = (driver.seen(dirs), inherited(subject, driver.as_ref()));
            let prepared = context_of(subject, &seen, &inherited, interpolate::prepare);
            let mut prepared = prepared.map_err(|unresolved| HookError {
                kind: EventKind::FailedValidation,
                message: unresolved.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                recoverable: false,
            })?;
            let task = subject.task();
            if task.traceparent && !task.env.contains_key(TRACEPARENT) {
                let id = trace::traceparent(&subject.alloc_id, &task.name, subject.attempt);
                prepared.env.insert(TRACEPARENT.to_owned(), id);
            }
            subject.prepared = Some(prepared);
            Ok(HookOutcome::Again)
        })
    }
}

/// What the task inherits of the agent's environment, or of its user's account; nothing of either in an image.
pub(super) fn inherited(subject: &OfTask, driver: &dyn Driver) -> Env {
    if driver.has_image() {
        return Env::new();
    }
    let of_agent = &subject.ctx.inherited;
    subject.account.as_ref().map_or_else(|| of_agent.clone(), |account| login(account, of_agent))
}

/// Calls `with` what the environment of the task is made of.
pub(super) fn context_of<T>(
    subject: &OfTask,
    seen: &SeenDirs,
    inherited: &Env,
    with: impl FnOnce(&TaskContext<'_>) -> T,
) -> T {
    let ctx = &subject.ctx;
    let mut task = subject.task().clone();
    task.resources.core_ids.clone_from(&subject.cores);
    let mut added = subject.devices.with.env.clone();
    added.extend(subject.template_env.clone());
    with(&TaskContext {
        job: &subject.job,
        group: subject.group(),
        task: &task,
        alloc_id: &subject.alloc_id,
        alloc_name: &subject.alloc_name,
        index: subject.index,
        alloc_dir: &seen.shared,
        local_dir: &seen.local,
        secrets_dir: &seen.secrets,
        alloc_cgroup: subject.alloc_cgroup.as_ref(),
        inherited,
        added: &added,
        ports: &subject.ports,
        network: subject.network.as_ref(),
        driver_networks: &subject.driver_networks,
        attributes: &node_attributes(&ctx.node, &ctx.facts.now(), &subject.job),
    })
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
