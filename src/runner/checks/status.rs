//! Pure: what a check is after a run, and whether its task is to be restarted for it.
//!
//! ```text
//! pending ── success_before_passing in a row ──► passing (a warning: warning)
//!    any  ── failures_before_critical in a row ──► critical
//! ```
//! Source: Consul, agent/checks, StatusHandler; Nomad, client/serviceregistration/checks.

use std::time::Duration;

use crate::model::service::{CheckStatus, ServiceCheck};

/// What one run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunVerdict {
    Pass,
    Warn,
    Fail,
}

/// Of one check, since its task started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckTracker {
    status: CheckStatus,
    good: u32,
    bad: u32,
    /// Runs in a row after which it was unhealthy, in the sense of its `check_restart`.
    unhealthy: u32,
}

/// What follows from a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckEffect {
    pub is_new_status: bool,
    /// Its task is to be restarted; nothing counts before it has started again.
    pub restarts: bool,
}

impl CheckTracker {
    pub fn new(check: &ServiceCheck) -> CheckTracker {
        CheckTracker { status: check.initial_status, good: 0, bad: 0, unhealthy: 0 }
    }
    pub fn status(&self) -> CheckStatus {
        self.status
    }

    /// `age`: how long its task runs, or since the check restarted it.
    pub fn take(&mut self, check: &ServiceCheck, verdict: RunVerdict, age: Duration) -> CheckEffect {
        let before = self.status;
        match verdict {
            RunVerdict::Pass | RunVerdict::Warn => {
                (self.good, self.bad) = (self.good.saturating_add(1), 0);
                if self.good >= check.success_before_passing {
                    let is_pass = verdict == RunVerdict::Pass;
                    self.status = if is_pass { CheckStatus::Passing } else { CheckStatus::Warning };
                }
            }
            RunVerdict::Fail => {
                (self.bad, self.good) = (self.bad.saturating_add(1), 0);
                if self.bad >= check.failures_before_critical {
                    self.status = CheckStatus::Critical;
                } else if check.failures_before_warning > 0 && self.bad >= check.failures_before_warning {
                    self.status = CheckStatus::Warning;
                }
            }
        }
        CheckEffect { is_new_status: self.status != before, restarts: self.restarts(check, age) }
    }

    fn restarts(&mut self, check: &ServiceCheck, age: Duration) -> bool {
        let Some(rule) = check.restart else { return false };
        let is_unhealthy = match self.status {
            CheckStatus::Critical => true,
            CheckStatus::Warning => !rule.ignore_warnings,
            CheckStatus::Pending | CheckStatus::Passing => false,
        };
        if !is_unhealthy || age < rule.grace {
            self.unhealthy = 0;
            return false;
        }
        self.unhealthy = self.unhealthy.saturating_add(1);
        if self.unhealthy < rule.limit {
            return false;
        }
        self.unhealthy = 0;
        true
    }
}

/// Promise (Input validation): A check's status follows from its runs in a row, as Consul's
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::service::{CheckProbe, CheckRestart, OnUpdate};

    fn check() -> ServiceCheck {
        ServiceCheck {
            name: "c".into(),
            probe: CheckProbe::Tcp,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            initial_status: CheckStatus::Pending,
            success_before_passing: 0,
            failures_before_critical: 0,
            failures_before_warning: 0,
            on_update: OnUpdate::RequireHealthy,
            port: None,
            address_mode: None,
            task: None,
            restart: None,
        }
    }
    fn statuses(check: &ServiceCheck, verdicts: &[RunVerdict]) -> Vec<CheckStatus> {
        let mut tracker = CheckTracker::new(check);
        let take = |verdict: &RunVerdict| {
            tracker.take(check, *verdict, Duration::from_secs(60));
            tracker.status()
        };
        verdicts.iter().map(take).collect()
    }

    use CheckStatus::{Critical, Passing, Pending, Warning};
    use RunVerdict::{Fail, Pass, Warn};

    #[test]
    fn without_thresholds_each_run_is_the_status() {
        assert_eq!(statuses(&check(), &[Pass, Fail, Warn, Pass]), [Passing, Critical, Warning, Passing]);
    }

    #[test]
    fn status_changes_after_so_many_runs_in_a_row() {
        let slow = ServiceCheck { success_before_passing: 2, failures_before_critical: 3, ..check() };
        assert_eq!(
            statuses(&slow, &[Pass, Pass, Fail, Fail, Pass, Fail, Fail, Fail, Pass, Pass]),
            [Pending, Passing, Passing, Passing, Passing, Passing, Passing, Critical, Critical, Passing]
        );
        let warned = ServiceCheck { failures_before_warning: 1, failures_before_critical: 2, ..check() };
        assert_eq!(statuses(&warned, &[Pass, Fail, Fail]), [Passing, Warning, Critical]);
    }

    #[test]
    fn initial_status_stands_until_the_first_run() {
        let check = ServiceCheck { initial_status: Critical, ..check() };
        assert_eq!(CheckTracker::new(&check).status(), Critical);
    }

    #[test]
    fn restart_comes_at_the_limit_and_not_within_the_grace() {
        let rule = CheckRestart { limit: 2, grace: Duration::from_secs(10), ignore_warnings: false };
        let check = ServiceCheck { restart: Some(rule), ..check() };
        let mut tracker = CheckTracker::new(&check);
        let mut at = |verdict, secs| tracker.take(&check, verdict, Duration::from_secs(secs)).restarts;
        assert!(!at(Fail, 8) && !at(Fail, 9), "within the grace");
        assert!(!at(Fail, 10) && at(Warn, 11), "a warning counts");
        assert!(!at(Fail, 12) && !at(Pass, 13) && !at(Fail, 14), "a pass begins the count again");
        let rule = CheckRestart { limit: 1, grace: Duration::ZERO, ignore_warnings: true };
        let check = ServiceCheck { restart: Some(rule), ..check };
        let mut tracker = CheckTracker::new(&check);
        assert!(!tracker.take(&check, Warn, Duration::ZERO).restarts);
        assert!(tracker.take(&check, Fail, Duration::ZERO).restarts);
    }

    proptest! {
        /// Whatever the thresholds: it is passing only after a pass, critical only after a failure.
        #[test]
        fn status_follows_from_the_last_runs(
            runs in prop::collection::vec(prop_oneof![Just(Pass), Just(Warn), Just(Fail)], 1..40),
            rows in prop::array::uniform3(0u32..5),
        ) {
            let [good, bad, warned] = rows;
            let check = ServiceCheck {
                success_before_passing: good, failures_before_critical: bad, failures_before_warning: warned, ..check()
            };
            let all = statuses(&check, &runs);
            for (at, status) in all.iter().enumerate() {
                let before = if at == 0 { Pending } else { all[at - 1] };
                if *status != before {
                    match status {
                        Passing => prop_assert_eq!(runs[at], Pass),
                        Critical => prop_assert_eq!(runs[at], Fail),
                        Warning => prop_assert!(runs[at] != Pass),
                        Pending => prop_assert!(false, "it never goes back"),
                    }
                }
            }
        }
    }
}
