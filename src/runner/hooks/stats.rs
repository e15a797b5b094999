//! Reading the alloc as a whole. A task's reader comes and goes with its attempt, in one step with its state.

use std::sync::Arc;

use super::frame::{Hook, HookError, HookOutcome, Phase};
use super::subject::OfAlloc;
use crate::runner::drivers::BoxFuture;

pub struct Stats;

impl Hook<OfAlloc> for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }
    fn after(&self) -> &'static [&'static str] {
        &["cgroup"]
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prerun]
    }
    fn run<'a>(&'a self, _: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            if let (Some(path), Some(cgroups), None) = (&subject.cgroup, &subject.ctx.cgroups, &subject.reader) {
                // Opens nothing yet.
                subject.reader = Some(Arc::new(cgroups.reader(path)));
            }
            Ok(HookOutcome::Again)
        })
    }
}
