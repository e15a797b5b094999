//! Derives how an alloc ended from how its tasks ended. Pure.

use super::cell::TaskCell;
use crate::model::task::{Outcome, TaskState};
use crate::model::units::Steady;
use crate::model::usage::Usage;
use crate::runner::decide::coordinator::Cause;
use crate::runner::persistence::record::{AllocRecord, FinishRecord};
use crate::runner::persistence::steady_clock::SteadyClock;

/// The end of a restored alloc, derived from its tasks' records: the agent may have died between two writes. A recorded
/// end that is too early would be the base of a cgroup that still counts; a missing one would never come.
pub fn finished_of(
    record: &AllocRecord,
    cells: &[TaskCell],
    began: Steady,
    line: &SteadyClock,
) -> Option<Box<FinishRecord>> {
    if cells.iter().any(|c| c.record.status.state != TaskState::Dead) {
        return None;
    }
    record.finished.clone().or_else(|| {
        let at = cells.iter().map(|c| c.record.status.finished_at.unwrap_or(c.record.status.state_since)).max()?;
        let mut base = Usage::default();
        // Without a cgroup of its own, the counters of its tasks are all there is.
        if record.cgroup.is_some() {
            cells.iter().for_each(|cell| base.add_counters(&cell.record.status.base));
            record.earlier.iter().for_each(|earlier| base.not_below(&earlier.base));
        }
        let outcome = worst(cells);
        let ended = line.of_wall(at);
        let ran = ended.since(record.earlier.as_ref().map_or(began, |e| e.restarted_at));
        Some(Box::new(FinishRecord { at, ended: Some(ended), outcome, ran, base }))
    })
}

/// The worst outcome of the tasks that ended by themselves.
pub fn worst(cells: &[TaskCell]) -> Outcome {
    let its_own = |cell: &&TaskCell| match cell.record.kill.map(|kill| kill.cause) {
        None | Some(Cause::Stopped | Cause::Expired | Cause::SetupFailed) => true,
        Some(Cause::LeaderDead(_) | Cause::SiblingFailed(_) | Cause::MainsDead | Cause::NothingRan) => false,
    };
    cells.iter().filter(its_own).map(TaskCell::end).max_by_key(|o| severity(*o)).unwrap_or(Outcome::Success)
}

/// Rank of an outcome for the alloc's.
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
