//! The alloc's own cgroup, in which its tasks have theirs.

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfAlloc;
use crate::runner::drivers::BoxFuture;

pub struct CgroupHook;

impl Hook<OfAlloc> for CgroupHook {
    fn name(&self) -> &'static str {
        "cgroup"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun, HookPhase::Postrun]
    }
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            // Found with its tasks, and read already: there is nothing to make.
            let there = phase == HookPhase::Prerun && subject.reader.is_some();
            let path = subject.cgroup.clone().filter(|_| !there);
            let (Some(path), Some(cgroups)) = (path, subject.ctx.cgroups.clone()) else {
                return Ok(HookOutcome::Again);
            };
            let work = move || match phase {
                HookPhase::Postrun => cgroups.remove(&path).map_err(|e| format!("cannot remove its cgroup: {e}")),
                _ => cgroups.create(&path).map_err(|e| format!("cannot make its cgroup: {e}")),
            };
            let done = subject.ctx.blocking.block(work).await.and_then(|done| done);
            done.map(|()| HookOutcome::Again).map_err(HookError::setup)
        })
    }
}
