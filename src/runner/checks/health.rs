//! Pure: whether a new alloc is healthy. Decided once, as Nomad does: it stays so when a check fails later.
//!
//! ```text
//! all tasks run, all checks pass ── for min_healthy_time without a break ──► healthy
//! a task has failed, or healthy_deadline after its creation ──► unhealthy
//! ```

use crate::model::job::{Lifecycle, LifecycleHook};
use crate::model::service::{CheckStatus, HealthBasis, HealthRule, OnUpdate};
use crate::model::task::TaskState;
use crate::model::units::{Nanos, Steady};

/// A task of it, at this moment.
#[derive(Debug, Clone, Copy)]
pub struct TaskFacts {
    pub lifecycle: Option<Lifecycle>,
    pub state: TaskState,
    pub failed: bool,
    /// Of its attempt: another one begins the count again.
    pub attempt: u32,
}

/// What decides.
#[derive(Debug, Clone)]
pub struct HealthFacts {
    pub tasks: Vec<TaskFacts>,
    pub checks: Vec<(OnUpdate, CheckStatus)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthVerdict {
    /// Look again then, if nothing changes before.
    Pending(Option<Steady>, NotYet),
    Healthy,
    Unhealthy(UnhealthyReason),
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    Tasks,
    Checks { passing: usize, of: usize },
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnhealthyReason {
    TaskFailed,
    Deadline,
}

impl HealthFacts {
    fn tasks_run(&self) -> bool {
        self.tasks.iter().all(|task| match task.lifecycle {
            None => task.state == TaskState::Running,
            Some(Lifecycle { hook: LifecycleHook::Poststop, .. }) => true,
            Some(Lifecycle { sidecar: true, .. }) => task.state == TaskState::Running,
            Some(Lifecycle { sidecar: false, .. }) => task.state == TaskState::Dead,
        })
    }
    fn good_checks(&self) -> usize {
        let is_good = |(on_update, status): &&(OnUpdate, CheckStatus)| match on_update {
            OnUpdate::RequireHealthy => *status == CheckStatus::Passing,
            OnUpdate::IgnoreWarnings => matches!(status, CheckStatus::Passing | CheckStatus::Warning),
            OnUpdate::Ignore => true,
        };
        self.checks.iter().filter(is_good).count()
    }
}

/// Of one alloc.
#[derive(Debug, Clone, Default)]
pub struct HealthTracker {
    /// Since when all is well, and which attempts that is of.
    good_since: Option<(Steady, u64)>,
}

impl HealthTracker {
    /// `deadline`: when it is too late.
    pub fn judge(&mut self, rule: &HealthRule, facts: &HealthFacts, deadline: Steady, now: Steady) -> HealthVerdict {
        if facts.tasks.iter().any(|task| task.failed) {
            return HealthVerdict::Unhealthy(UnhealthyReason::TaskFailed);
        }
        let attempts = facts.tasks.iter().map(|task| u64::from(task.attempt)).sum();
        let (passing, of) = (facts.good_checks(), facts.checks.len());
        let missing = if !facts.tasks_run() {
            NotYet::Tasks
        } else if rule.basis == HealthBasis::Checks && passing < of {
            NotYet::Checks { passing, of }
        } else {
            NotYet::Time
        };
        let mut again = deadline;
        if missing == NotYet::Time {
            let since = match self.good_since {
                Some((since, known)) if known == attempts => since,
                Some(_) | None => now,
            };
            self.good_since = Some((since, attempts));
            let healthy_at = since.plus(Nanos::from_duration(rule.min_healthy_time));
            if healthy_at <= now {
                return HealthVerdict::Healthy;
            }
            again = again.min(healthy_at);
        } else {
            self.good_since = None;
        }
        if deadline <= now {
            HealthVerdict::Unhealthy(UnhealthyReason::Deadline)
        } else {
            HealthVerdict::Pending(Some(again), missing)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(1_000 + secs))
    }
    fn rule() -> HealthRule {
        HealthRule { min_healthy_time: Duration::from_secs(10), ..HealthRule::default() }
    }
    fn running() -> TaskFacts {
        TaskFacts { lifecycle: None, state: TaskState::Running, failed: false, attempt: 0 }
    }
    fn facts(status: CheckStatus) -> HealthFacts {
        HealthFacts { tasks: vec![running()], checks: vec![(OnUpdate::RequireHealthy, status)] }
    }
    use CheckStatus::{Critical, Passing, Warning};

    #[test]
    fn healthy_after_min_healthy_time_without_a_break() {
        let mut tracker = HealthTracker::default();
        let mut check = |facts: &HealthFacts, secs| tracker.judge(&rule(), facts, at(300), at(secs));
        assert_eq!(
            check(&facts(Critical), 0),
            HealthVerdict::Pending(Some(at(300)), NotYet::Checks { passing: 0, of: 1 })
        );
        assert_eq!(check(&facts(Passing), 5), HealthVerdict::Pending(Some(at(15)), NotYet::Time));
        assert!(matches!(check(&facts(Critical), 14), HealthVerdict::Pending(..)), "a break");
        assert_eq!(check(&facts(Passing), 20), HealthVerdict::Pending(Some(at(30)), NotYet::Time));
        let again = HealthFacts { tasks: vec![TaskFacts { attempt: 1, ..running() }], ..facts(Passing) };
        assert_eq!(check(&again, 25), HealthVerdict::Pending(Some(at(35)), NotYet::Time), "another attempt");
        assert_eq!(check(&again, 35), HealthVerdict::Healthy);
    }

    #[test]
    fn unhealthy_with_a_failed_task_or_at_the_deadline() {
        let mut tracker = HealthTracker::default();
        assert_eq!(
            tracker.judge(&rule(), &facts(Critical), at(300), at(300)),
            HealthVerdict::Unhealthy(UnhealthyReason::Deadline)
        );
        let failed = HealthFacts { tasks: vec![TaskFacts { failed: true, ..running() }], ..facts(Passing) };
        assert_eq!(
            tracker.judge(&rule(), &failed, at(300), at(1)),
            HealthVerdict::Unhealthy(UnhealthyReason::TaskFailed)
        );
    }

    #[test]
    fn checks_count_by_their_on_update_and_not_for_task_states() {
        let of = |on_update, status| HealthFacts { checks: vec![(on_update, status)], ..facts(Passing) };
        let is_good = |basis, facts: &HealthFacts| {
            let rule = HealthRule { basis, ..rule() };
            matches!(
                HealthTracker::default().judge(&rule, facts, at(300), at(0)),
                HealthVerdict::Pending(_, NotYet::Time)
            )
        };
        for (on_update, status, expected) in [
            (OnUpdate::RequireHealthy, Warning, false),
            (OnUpdate::IgnoreWarnings, Warning, true),
            (OnUpdate::IgnoreWarnings, Critical, false),
            (OnUpdate::Ignore, Critical, true),
        ] {
            assert_eq!(is_good(HealthBasis::Checks, &of(on_update, status)), expected, "{on_update:?} {status:?}");
            assert!(is_good(HealthBasis::TaskStates, &of(on_update, status)));
        }
    }

    #[test]
    fn tasks_of_a_lifecycle_are_where_they_belong() {
        let of = |hook, sidecar, state| {
            let lifecycle = Some(Lifecycle { hook, sidecar });
            HealthFacts { tasks: vec![running(), TaskFacts { lifecycle, state, ..running() }], checks: Vec::new() }
                .tasks_run()
        };
        assert!(of(LifecycleHook::Prestart, false, TaskState::Dead));
        assert!(!of(LifecycleHook::Prestart, true, TaskState::Dead));
        assert!(of(LifecycleHook::Poststop, false, TaskState::Pending));
        assert!(!of(LifecycleHook::Poststart, false, TaskState::Pending));
    }
}
