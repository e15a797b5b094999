//! Restarts by reason: the reason is known of managed tasks; of observed ones only how the attempt before had ended.

use super::{TaskView, WorkloadTaskView};
use crate::collectors::capability::KERNEL_ENDS;
use crate::model::alloc::AllocSource;
use crate::model::host::NodeInfo;
use crate::model::observed::RestartCause;
use crate::model::task::RestartReason;

/// A word for each count: those of managed tasks, then those that only observed tasks have.
pub const REASONS: [&str; 6] = [
    RestartReason::Policy.as_str(),
    RestartReason::Oom.as_str(),
    RestartReason::StartFailure.as_str(),
    RestartReason::Requested.as_str(),
    RestartCause::Failure.as_str(),
    RestartCause::Other.as_str(),
];

/// In the order of [`REASONS`]. `None`: it is unknown.
pub type Restarts = [Option<u64>; 6];

/// The runtime itself reports how a task ended. Where it does not, ends by OOM or with an error are not 0, but unseen.
pub fn reports_outcome(source: AllocSource) -> bool {
    matches!(source, AllocSource::Docker | AllocSource::Podman)
}

/// The runtime reports it, or the kernel.
pub fn knows_outcome(source: AllocSource, info: &NodeInfo) -> bool {
    reports_outcome(source) || info.can(KERNEL_ENDS)
}

fn own([policy, oom, start_failure, requested]: [u64; 4]) -> Restarts {
    [Some(policy), Some(oom), Some(start_failure), Some(requested), None, None]
}

fn of_observed([oom, failure, other]: [u64; 3], ends_known: bool) -> Restarts {
    let known = |n: u64| Some(n).filter(|n| ends_known || *n > 0);
    [None, known(oom), None, None, known(failure), Some(other)]
}

impl TaskView {
    /// `ends_known`: how tasks of its source end is known.
    pub fn restarts(&self, ends_known: bool) -> Restarts {
        match (&self.managed, &self.observed) {
            (Some(task), _) => own(task.status.restarts),
            (None, Some(task)) => of_observed(task.restarts, ends_known),
            (None, None) => [None; 6],
        }
    }
}

impl WorkloadTaskView {
    /// `ends_known`: how its observed tasks end is known. Of one with managed and observed tasks, all together.
    pub fn restarts(&self, ends_known: bool) -> Restarts {
        let observed = self.ended.restart_causes;
        if self.observed {
            return of_observed(observed, ends_known);
        }
        let mut all = own(self.ended.restarts);
        for (sum, more) in all.iter_mut().zip(of_observed(observed, false)) {
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
    fn unknown_restarts_are_absent_and_not_zero() {
        let view = |observed, restarts, causes| {
            let ended = Arc::new(TaskTotals { restarts, restart_causes: causes, ..TaskTotals::default() });
            let (workload, task, source) = ("w".into(), "t".into(), None);
            WorkloadTaskView { workload, task, source, usage: Usage::default(), ended, observed }
        };
        let none = view(true, [0; 4], [0; 3]);
        assert_eq!(none.restarts(true), [None, Some(0), None, None, Some(0), Some(0)]);
        assert_eq!(none.restarts(false), [None, None, None, None, None, Some(0)]);
        let failed = view(true, [0; 4], [0, 2, 1]);
        assert_eq!(failed.restarts(false), [None, None, None, None, Some(2), Some(1)]);
        let managed = view(false, [1, 2, 0, 4], [0; 3]);
        assert_eq!(managed.restarts(true), [Some(1), Some(2), Some(0), Some(4), None, None]);
        let both = view(false, [1, 2, 0, 4], [5, 6, 0]);
        assert_eq!(both.restarts(true), [Some(1), Some(7), Some(0), Some(4), Some(6), None]);
    }
}
