//! What an alloc has on the disk: the directory that its tasks share, and the records of their attempts. It is made
//! with the first task's (`task_dir`): a step more before each start would be felt by the shortest tasks.

use std::sync::Arc;
use std::time::Duration;

use super::frame::{DEADLINE, Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfAlloc;
use crate::runner::drivers::BoxFuture;
use crate::telemetry::chain;

/// A deep tree on a slow disk takes its time.
const REMOVED_WITHIN: Duration = Duration::from_secs(3600);

pub struct AllocDir;

impl Hook<OfAlloc> for AllocDir {
    fn name(&self) -> &'static str {
        "alloc_dir"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Postrun, HookPhase::Destroy]
    }
    fn deadline(&self, phase: HookPhase) -> Duration {
        if phase == HookPhase::Destroy { REMOVED_WITHIN } else { DEADLINE }
    }
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            let (ctx, id, ended) = (Arc::clone(&subject.ctx), subject.id.clone(), subject.ended.clone());
            let done = if phase == HookPhase::Destroy {
                subject.ctx.removals.block(move || ctx.data_dir.remove(&id).map_err(|e| chain(&e))).await
            } else {
                let remove = move || {
                    ended.iter().for_each(|task| ctx.data_dir.remove_records(&id, task));
                    // Refused where a task's is still in it.
                    let _ = std::fs::remove_dir(ctx.data_dir.run(&id));
                    let unmounted = ctx.data_dir.unmount_secrets(&id);
                    unmounted.map_err(|e| format!("cannot unmount the secrets of its tasks: {e}"))
                };
                subject.ctx.blocking.block(remove).await
            };
            done.and_then(|done| done).map(|()| HookOutcome::Again).map_err(HookError::setup)
        })
    }
}
