//! Pure: how an alloc ended, from how its tasks did.

use super::cell::TaskCell;
use crate::model::task::{Outcome, TaskState};
use crate::model::units::Steady;
use crate::model::usage::Usage;
use crate::runner::decide::coordinator::Cause;
use crate::runner::kept::record::{AllocRecord, Finished};
use crate::runner::kept::steady::Line;

/// The end of a restored alloc, judged by its tasks' records: the agent may have died between a task's write and its
/// sibling's. Taken at its word, an early end would be the base of a cgroup that still counts; a missing one would never
/// come.
pub fn finished_of(record: &AllocRecord, cells: &[TaskCell], began: Steady, line: &Line) -> Option<Box<Finished>> {
    if cells.iter().any(|c| c.record.status.state != TaskState::Dead) {
        return None;
    }
    record.finished.clone().or_else(|| {
        let at = cells.iter().map(|c| c.record.status.finished_at.unwrap_or(c.record.status.state_since)).max()?;
        let mut base = Usage::default();
        // Without a cgroup of its own its tasks are all that is counted.
        if record.cgroup.is_some() {
            cells.iter().for_each(|cell| base.add_counters(&cell.record.status.base));
            record.earlier.iter().for_each(|earlier| base.not_below(&earlier.base));
        }
        let outcome = worst(cells);
        let ended = line.of_wall(at);
        let ran = ended.since(record.earlier.as_ref().map_or(began, |e| e.restarted_at));
        Some(Box::new(Finished { at, ended: Some(ended), outcome, ran, base }))
    })
}

/// The end of the task that tells most, of those that nobody else of the alloc ended.
pub fn worst(cells: &[TaskCell]) -> Outcome {
    let its_own = |cell: &&TaskCell| match cell.record.kill.map(|kill| kill.cause) {
        None | Some(Cause::Stopped | Cause::Expired | Cause::SetupFailed) => true,
        Some(Cause::LeaderDead(_) | Cause::SiblingFailed(_) | Cause::MainsDead | Cause::NothingRan) => false,
    };
    cells.iter().filter(its_own).map(TaskCell::end).max_by_key(|o| severity(*o)).unwrap_or(Outcome::Success)
}

/// Which task's end tells most of an alloc's.
fn severity(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Success => 0,
        Outcome::Killed => 1,
        Outcome::Unknown => 2,
        Outcome::Signal => 3,
        Outcome::Error => 4,
        Outcome::Oom => 5,
    }
}
