//! The directories of a task and of its attempt, its logs' among them. One that is there stays, and is closed where it
//! is open wider than it should be; one that was removed underneath comes back with the next start.

use std::sync::Arc;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfTask;
use crate::model::volume::DiskSize;
use crate::runner::drivers::BoxFuture;
use crate::runner::persistence::datadir::FileOwner;

pub struct TaskDir;

impl Hook<OfTask> for TaskDir {
    fn name(&self) -> &'static str {
        "task_dir"
    }
    fn after(&self) -> &'static [&'static str] {
        &["validate"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prestart]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfTask) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            // Who owns what the task writes: its user, where we may give files away.
            let may_give = rustix::process::geteuid().is_root();
            let account = subject.account.clone().filter(|_| may_give);
            let owner = account.as_ref().map(|a| FileOwner { uid: a.uid, gid: a.gid });
            let (data_dir, id) = (Arc::clone(&subject.ctx.data_dir), subject.alloc_id.clone());
            let (task, attempt) = (subject.task().name.clone(), subject.attempt);
            let driver = subject.ctx.drivers.get(subject.task().driver.as_str());
            let has_own_root = driver.is_some_and(|driver| driver.has_own_root());
            let in_memory = subject.ctx.config.secrets_in_memory;
            let group = subject.group();
            // A default would stop jobs that run elsewhere. Data that moves between allocs would have to change its
            // project. Both are only measured.
            let limit = group.storage.disk_mib.filter(|_| !group.ephemeral_disk.moves()).map(DiskSize::bytes);
            let build = move || {
                if let Some(closed) = account.filter(|_| !has_own_root).and_then(|account| data_dir.closed_to(&account))
                {
                    // Trying again opens nothing.
                    return Err(HookError { recoverable: false, ..HookError::setup(closed) });
                }
                let limited = limit.map_or(Ok(()), |bytes| data_dir.build_limited(&id, bytes));
                let built = limited.and_then(|()| data_dir.build(&id, &task, attempt, owner));
                let built = built.map_err(|e| HookError::setup(format!("cannot make its directories: {e}")))?;
                if in_memory {
                    let mounted = data_dir.mount_secrets(&id, &task, owner);
                    mounted.map_err(|e| HookError::setup(format!("cannot mount a tmpfs for its secrets: {e}")))?;
                }
                Ok(built)
            };
            subject.dirs = Some(subject.ctx.blocking.block(build).await.map_err(HookError::setup)??);
            Ok(HookOutcome::Again)
        })
    }
}
