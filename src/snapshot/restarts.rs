//! Restarts by why: of our own tasks we know it; of those that others run only how they had ended.

use super::{TaskView, WorkloadView};
use crate::collectors::capability::KERNEL_ENDS;
use crate::model::alloc::AllocSource;
use crate::model::host::NodeInfo;
use crate::model::observed::BegunAfter;
use crate::model::task::RestartReason;

/// A word for each count: those of our own tasks, then those that others' tasks alone have.
pub const REASONS: [&str; 6] = [
    RestartReason::Policy.as_str(),
    RestartReason::Oom.as_str(),
    RestartReason::StartFailure.as_str(),
    RestartReason::Requested.as_str(),
    BegunAfter::Failure.as_str(),
    BegunAfter::Other.as_str(),
];

/// In the order of [`REASONS`]. `None`: nobody can tell of it.
pub type Restarts = [Option<u64>; 6];

/// The runtime itself says how what it ran ended. Where nobody does, an end by OOM or with an error has not happened no times, but unseen.
pub fn says_how_it_ended(source: AllocSource) -> bool {
    matches!(source, AllocSource::Docker | AllocSource::Podman)
}

/// The runtime does, or the kernel.
pub fn is_told_how_it_ended(source: AllocSource, info: &NodeInfo) -> bool {
    says_how_it_ended(source) || info.can(KERNEL_ENDS)
}

fn own([policy, oom, start_failure, requested]: [u64; 4]) -> Restarts {
    [Some(policy), Some(oom), Some(start_failure), Some(requested), None, None]
}

fn of_others([oom, failure, other]: [u64; 3], are_told: bool) -> Restarts {
    let told = |n: u64| Some(n).filter(|n| are_told || *n > 0);
    [None, told(oom), None, None, told(failure), Some(other)]
}

impl TaskView {
    /// `are_told`: ends of its source are.
    pub fn restarts(&self, are_told: bool) -> Restarts {
        match (&self.managed, &self.observed) {
            (Some(task), _) => own(task.status.restarts),
            (None, Some(task)) => of_others(task.restarts, are_told),
            (None, None) => [None; 6],
        }
    }
}

impl WorkloadView {
    /// `are_told`: ends of what others run of it are. Of one that both run, all together.
    pub fn restarts(&self, are_told: bool) -> Restarts {
        let others = self.ended.begun_after;
        if self.observed {
            return of_others(others, are_told);
        }
        let mut all = own(self.ended.restarts);
        for (sum, more) in all.iter_mut().zip(of_others(others, false)) {
            *sum = sum.map(|sum| sum.saturating_add(more.unwrap_or(0))).or(more.filter(|more| *more > 0));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::totals::TaskTotals;
    use crate::model::usage::Usage;

    #[test]
    fn what_nobody_can_tell_of_is_absent_and_not_zero() {
        let view = |observed, restarts, begun_after| {
            let ended = Arc::new(TaskTotals { restarts, begun_after, ..TaskTotals::default() });
            let (workload, task, source) = ("w".into(), "t".into(), None);
            WorkloadView { workload, task, source, usage: Usage::default(), ended, observed }
        };
        let none = view(true, [0; 4], [0; 3]);
        assert_eq!(none.restarts(true), [None, Some(0), None, None, Some(0), Some(0)]);
        assert_eq!(none.restarts(false), [None, None, None, None, None, Some(0)]);
        let failed = view(true, [0; 4], [0, 2, 1]);
        assert_eq!(failed.restarts(false), [None, None, None, None, Some(2), Some(1)]);
        let ours = view(false, [1, 2, 0, 4], [0; 3]);
        assert_eq!(ours.restarts(true), [Some(1), Some(2), Some(0), Some(4), None, None]);
        let both = view(false, [1, 2, 0, 4], [5, 6, 0]);
        assert_eq!(both.restarts(true), [Some(1), Some(7), Some(0), Some(4), Some(6), None]);
    }
}
