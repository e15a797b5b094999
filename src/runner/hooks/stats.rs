//! Reading the alloc as a whole. A task's reader comes and goes with its attempt, in one step with its state.

use super::{Failure, Hook, OfAlloc, Outcome, Phase};
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
    fn run<'a>(&'a self, _: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            // Opens nothing yet.
            subject.alloc.iter().for_each(|alloc| alloc.measure());
            Ok(Outcome::Again)
        })
    }
}
