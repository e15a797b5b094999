//! Reading the alloc as a whole. A task's reader comes and goes with its attempt, in one step with its state.

use std::sync::Arc;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfAlloc;
use crate::runner::drivers::BoxFuture;

pub struct StatsHook;

impl Hook<OfAlloc> for StatsHook {
    fn name(&self) -> &'static str {
        "stats"
    }
    fn after(&self) -> &'static [&'static str] {
        &["cgroup"]
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun]
    }
    fn run<'a>(&'a self, _: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if let (Some(path), Some(cgroups), None) = (&subject.cgroup, &subject.ctx.cgroups, &subject.reader) {
                // Opens nothing yet.
                subject.reader = Some(Arc::new(cgroups.reader(path)));
            }
            Ok(HookOutcome::Again)
        })
    }
}
