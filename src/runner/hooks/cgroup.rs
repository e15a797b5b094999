//! The alloc's own cgroup, in which its tasks have theirs.

use std::sync::Arc;

use super::{Failure, Hook, OfAlloc, Outcome, Phase};
use crate::runner::alloc::Alloc;
use crate::runner::drivers::BoxFuture;

pub struct Cgroup;

impl Hook<OfAlloc> for Cgroup {
    fn name(&self) -> &'static str {
        "cgroup"
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prerun, Phase::Postrun]
    }
    fn run<'a>(&'a self, phase: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            // Found with its tasks, and read already: there is nothing to make.
            let there = |alloc: &&Arc<Alloc>| phase == Phase::Prerun && alloc.is_read();
            let path = subject.alloc.as_ref().filter(|alloc| !there(alloc)).and_then(|alloc| alloc.own_cgroup());
            let (Some(path), Some(cgroups)) = (path, subject.ctx.cgroups.clone()) else { return Ok(Outcome::Again) };
            let work = move || match phase {
                Phase::Postrun => cgroups.remove(&path).map_err(|e| format!("cannot remove its cgroup: {e}")),
                _ => cgroups.create(&path).map_err(|e| format!("cannot make its cgroup: {e}")),
            };
            let done = subject.ctx.blocking(work).await.and_then(|done| done);
            done.map(|()| Outcome::Again).map_err(Failure::setup)
        })
    }
}
