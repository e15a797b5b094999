//! What an alloc has on the disk: the directory that its tasks share, and the records of their attempts. It is made with the
//! first task's (`task_dir`): a step more before each start would be felt by the shortest tasks.

use std::sync::Arc;
use std::time::Duration;

use super::{DEADLINE, Failure, Hook, OfAlloc, Outcome, Phase};
use crate::runner::alloc::Alloc;
use crate::runner::drivers::BoxFuture;
use crate::supervisor::describe;

/// A deep tree on a slow disk takes its time.
const REMOVED_WITHIN: Duration = Duration::from_secs(3600);

pub struct AllocDir;

impl Hook<OfAlloc> for AllocDir {
    fn name(&self) -> &'static str {
        "alloc_dir"
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Postrun, Phase::Destroy]
    }
    fn deadline(&self, phase: Phase) -> Duration {
        if phase == Phase::Destroy { REMOVED_WITHIN } else { DEADLINE }
    }
    fn run<'a>(&'a self, phase: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<Outcome, Failure>> {
        Box::pin(async move {
            let (data_dir, id) = (Arc::clone(&subject.ctx.data_dir), subject.id.clone());
            let alloc = subject.alloc.clone();
            let work = move || match (phase, alloc) {
                (Phase::Destroy, _) => data_dir.remove(&id).map_err(|e| describe(&e)),
                (_, alloc) => {
                    alloc.iter().for_each(|alloc| remove_records(alloc));
                    Ok(())
                }
            };
            let done = match phase {
                Phase::Destroy => subject.ctx.removing(work).await,
                _ => subject.ctx.blocking(work).await,
            };
            let done = done.and_then(|done| done);
            done.map(|()| Outcome::Again).map_err(Failure::setup)
        })
    }
}

/// A handle that was kept names what may still be there, and its record is in its directory.
fn remove_records(alloc: &Alloc) {
    for (_, task) in alloc.group().tasks.iter().enumerate().filter(|(at, _)| alloc.handle(*at).is_none()) {
        alloc.ctx.data_dir.remove_records(&alloc.id, &task.name);
    }
    // Refused where a task's is still in it.
    let _ = std::fs::remove_dir(alloc.ctx.data_dir.run(&alloc.id));
}
