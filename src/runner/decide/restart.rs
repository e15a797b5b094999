//! Decides whether and when an ended task restarts. Pure.
//!
//! A window of `interval` begins with the first end in it; each end counts. With more than `attempts` in one window the
//! task fails, or (mode `delay`) waits until the window is over. Time and randomness are inputs. The tracker is
//! persisted, so a restart of the agent does not reset a crash loop.

use serde::{Deserialize, Serialize};

use crate::model::job::{RestartMode, RestartPolicy};
use crate::model::task::{Failure, Outcome, RestartReason};
use crate::model::units::{Nanos, Steady};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// An attempt that ran.
    Exit(Outcome),
    /// The driver could not start it. `recoverable`: a retry may help.
    StartFailure { recoverable: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Restart { delay: Nanos, reason: RestartReason },
    Finish { failed: bool, why: FinishReason },
}

/// Why a task is not restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// Its end was requested.
    Killed,
    /// A batch task completed.
    Done,
    /// `attempts = 0`.
    NeverRestarts,
    Unrecoverable,
    /// The restarts of this interval are exhausted.
    Exhausted,
    /// Its alloc ends, whatever the policy says.
    AllocEnds,
}

impl FinishReason {
    pub fn text(self) -> &'static str {
        match self {
            FinishReason::Killed => "it was requested to stop",
            FinishReason::Done => "it completed successfully",
            FinishReason::NeverRestarts => "the policy allows no restarts",
            FinishReason::Unrecoverable => "trying again cannot help",
            FinishReason::AllocEnds => "its alloc ends",
            FinishReason::Exhausted => "it exceeded the allowed attempts and the mode is \"fail\"",
        }
    }
}

impl Decision {
    /// The failure reason, if the task fails.
    pub fn failure(self) -> Option<Failure> {
        match self {
            Decision::Finish { failed: true, why: FinishReason::Exhausted } => Some(Failure::RestartsUsedUp),
            Decision::Finish { failed: true, why: FinishReason::NeverRestarts } => Some(Failure::NoRestarts),
            Decision::Finish { failed: true, why: FinishReason::Unrecoverable } => Some(Failure::Unrecoverable),
            Decision::Finish {
                failed: true,
                why: FinishReason::Killed | FinishReason::Done | FinishReason::AllocEnds,
            }
            | Decision::Finish { failed: false, .. }
            | Decision::Restart { .. } => None,
        }
    }
}

/// Number of ends in the current window. Persisted with the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartTracker {
    window_start: Option<Steady>,
    count: u32,
    /// State of the random generator for jitter.
    random: u64,
}

impl RestartTracker {
    /// Seeded by the task's identity: allocs of a crashing job do not restart in step, and tests are repeatable.
    pub fn seeded(seed: &str) -> RestartTracker {
        // FNV-1a: stable across versions, unlike the hasher of the standard library.
        let random =
            seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        RestartTracker { window_start: None, count: 0, random }
    }

    /// Its whole alloc was restarted: earlier crashes do not count.
    pub fn reset(&mut self) {
        (self.window_start, self.count) = (None, 0);
    }

    /// `on_success`: a success is followed by a restart as well. A window continues while the agent is down. If `now`
    /// is before its start (the wall clock went back over a reboot), a new window begins.
    pub fn decide(
        &mut self,
        policy: &RestartPolicy,
        on_success: bool,
        ending: AttemptOutcome,
        now: Steady,
    ) -> Decision {
        let clean = ending == AttemptOutcome::Exit(Outcome::Success);
        if ending == AttemptOutcome::Exit(Outcome::Killed) {
            return Decision::Finish { failed: false, why: FinishReason::Killed };
        }
        let done = clean && !on_success;
        if done {
            return Decision::Finish { failed: false, why: FinishReason::Done };
        }
        if policy.attempts == 0 {
            return Decision::Finish { failed: !clean, why: FinishReason::NeverRestarts };
        }
        let interval = Nanos::from_duration(policy.interval);
        let window_start = match self.window_start {
            Some(start) if start <= now && now <= start.plus(interval) => start,
            Some(_) | None => {
                self.count = 0;
                now
            }
        };
        self.window_start = Some(window_start);
        self.count = self.count.saturating_add(1);
        let reason = match ending {
            AttemptOutcome::StartFailure { recoverable: false } => {
                return Decision::Finish { failed: true, why: FinishReason::Unrecoverable };
            }
            AttemptOutcome::StartFailure { recoverable: true } => RestartReason::StartFailure,
            AttemptOutcome::Exit(Outcome::Oom) => RestartReason::Oom,
            AttemptOutcome::Exit(
                Outcome::Success | Outcome::Error | Outcome::Signal | Outcome::Killed | Outcome::Unknown,
            ) => RestartReason::Policy,
        };
        if self.count > policy.attempts {
            return match policy.mode {
                RestartMode::Fail => Decision::Finish { failed: true, why: FinishReason::Exhausted },
                RestartMode::Delay => Decision::Restart { delay: window_start.plus(interval).since(now), reason },
            };
        }
        Decision::Restart { delay: self.spread(Nanos::from_duration(policy.delay)), reason }
    }

    /// Adds jitter: from `delay` to 1.25 times as much.
    fn spread(&mut self, delay: Nanos) -> Nanos {
        let more = delay.0 / 4;
        let extra = if more == 0 { 0 } else { self.next_random() % more.saturating_add(1) };
        delay.saturating_add(Nanos(extra))
    }

    /// SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const ERROR: AttemptOutcome = AttemptOutcome::Exit(Outcome::Error);

    fn policy(attempts: u32, mode: RestartMode) -> RestartPolicy {
        RestartPolicy { attempts, interval: Duration::from_secs(60), delay: Duration::from_secs(4), mode }
    }
    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(1_000_000 + secs))
    }
    fn delay_of(decision: Decision) -> Nanos {
        match decision {
            Decision::Restart { delay, .. } => delay,
            Decision::Finish { .. } => panic!("{decision:?}"),
        }
    }

    #[test]
    fn mode_fail_allows_its_attempts_and_fails_at_the_next() {
        let mut tracker = RestartTracker::seeded("a");
        for secs in 0..2 {
            let decision = tracker.decide(&policy(2, RestartMode::Fail), true, ERROR, at(secs));
            assert!(matches!(decision, Decision::Restart { reason: RestartReason::Policy, .. }), "{decision:?}");
        }
        let decision = tracker.decide(&policy(2, RestartMode::Fail), true, ERROR, at(3));
        assert_eq!(decision, Decision::Finish { failed: true, why: FinishReason::Exhausted });
    }

    #[test]
    fn restart_mode_delay_waits_for_the_end_of_the_window() {
        let mut tracker = RestartTracker::seeded("a");
        let policy = policy(1, RestartMode::Delay);
        tracker.decide(&policy, true, ERROR, at(0));
        let decision = tracker.decide(&policy, true, ERROR, at(10));
        assert_eq!(delay_of(decision), Nanos::from_secs(50));
        // A new window begins after the old one, with all its attempts.
        let decision = tracker.decide(&policy, true, ERROR, at(61));
        assert!(delay_of(decision) <= Nanos::from_secs(5));
    }

    #[test]
    fn a_batch_task_is_done_with_success_and_a_service_is_not() {
        let success = AttemptOutcome::Exit(Outcome::Success);
        let policy = policy(2, RestartMode::Fail);
        let decision = RestartTracker::seeded("a").decide(&policy, false, success, at(0));
        assert_eq!(decision, Decision::Finish { failed: false, why: FinishReason::Done });
        let decision = RestartTracker::seeded("a").decide(&policy, true, success, at(0));
        assert!(matches!(decision, Decision::Restart { .. }), "{decision:?}");
    }

    #[test]
    fn oom_counts_as_an_error_with_reason_oom() {
        let mut tracker = RestartTracker::seeded("a");
        let oom = AttemptOutcome::Exit(Outcome::Oom);
        let decision = tracker.decide(&policy(1, RestartMode::Fail), true, oom, at(0));
        assert!(matches!(decision, Decision::Restart { reason: RestartReason::Oom, .. }), "{decision:?}");
        let decision = tracker.decide(&policy(1, RestartMode::Fail), true, ERROR, at(1));
        assert_eq!(decision, Decision::Finish { failed: true, why: FinishReason::Exhausted });
    }

    #[test]
    fn with_no_attempts_a_clean_end_is_no_failure_and_an_error_is() {
        for (ending, failed) in [(AttemptOutcome::Exit(Outcome::Success), false), (ERROR, true)] {
            let decision = RestartTracker::seeded("a").decide(&policy(0, RestartMode::Fail), true, ending, at(0));
            assert_eq!(decision, Decision::Finish { failed, why: FinishReason::NeverRestarts });
        }
    }

    #[test]
    fn a_killed_task_never_starts_again_and_has_not_failed() {
        let killed = AttemptOutcome::Exit(Outcome::Killed);
        let decision = RestartTracker::seeded("a").decide(&policy(9, RestartMode::Delay), true, killed, at(0));
        assert_eq!(decision, Decision::Finish { failed: false, why: FinishReason::Killed });
    }

    #[test]
    fn a_start_failure_is_tried_again_only_where_that_can_help() {
        let policy = policy(2, RestartMode::Fail);
        let recoverable = AttemptOutcome::StartFailure { recoverable: true };
        let decision = RestartTracker::seeded("a").decide(&policy, false, recoverable, at(0));
        assert!(matches!(decision, Decision::Restart { reason: RestartReason::StartFailure, .. }), "{decision:?}");
        let hopeless = AttemptOutcome::StartFailure { recoverable: false };
        let decision = RestartTracker::seeded("a").decide(&policy, false, hopeless, at(0));
        assert_eq!(decision, Decision::Finish { failed: true, why: FinishReason::Unrecoverable });
    }

    /// The tracker continues from its persisted state. Allocs do not restart in step. Each delay is from 1 to 1.25
    /// times the policy's.
    ///
    /// Promise (Task groups and lifecycle order): P-B6.1, P-B6.2 The tracker continues where it was, allocs do not
    /// restart in step, delays keep their bounds
    #[test]
    fn persisted_restart_tracker_continues_from_its_state() {
        let policy = policy(2, RestartMode::Fail);
        let mut tracker = RestartTracker::seeded("a");
        tracker.decide(&policy, true, ERROR, at(0));
        let mut restored: RestartTracker = serde_json::from_str(&serde_json::to_string(&tracker).unwrap()).unwrap();
        for secs in 1..4 {
            let expected = tracker.decide(&policy, true, ERROR, at(secs));
            assert_eq!(restored.decide(&policy, true, ERROR, at(secs)), expected);
        }
    }

    #[test]
    fn two_allocs_do_not_start_again_in_step() {
        let decide =
            |seed: &str| RestartTracker::seeded(seed).decide(&policy(2, RestartMode::Fail), true, ERROR, at(0));
        assert_ne!(decide("one"), decide("two"));
        assert_eq!(decide("one"), decide("one"));
    }

    proptest! {
        /// Compared in fractions: integer division would accept any delay.
        #[test]
        fn every_delay_is_from_once_to_one_and_a_quarter_times_the_policys(
            seed in ".*", delay_ns in 0..u64::MAX / 2, failures in 1..20_u64,
        ) {
            let policy = RestartPolicy {
                attempts: u32::MAX, interval: Duration::from_secs(60), delay: Duration::from_nanos(delay_ns),
                mode: RestartMode::Fail,
            };
            let mut tracker = RestartTracker::seeded(&seed);
            for secs in 0..failures {
                let got = u128::from(delay_of(tracker.decide(&policy, true, ERROR, at(secs))).0);
                prop_assert!(got >= u128::from(delay_ns));
                prop_assert!(got * 4 <= u128::from(delay_ns) * 5, "{got} of {delay_ns}");
            }
        }

        #[test]
        fn no_window_ever_grants_more_than_its_attempts(
            attempts in 0..6_u32, gaps in proptest::collection::vec(0..40_u64, 1..60),
        ) {
            let policy = policy(attempts, RestartMode::Fail);
            let mut tracker = RestartTracker::seeded("a");
            let (mut now, mut window, mut granted) = (0, 0, 0);
            for gap in gaps {
                now += gap;
                if now > window + 60 || granted == 0 {
                    (window, granted) = (now, 0);
                }
                match tracker.decide(&policy, true, ERROR, at(now)) {
                    Decision::Restart { .. } => granted += 1,
                    Decision::Finish { .. } => break,
                }
                prop_assert!(granted <= attempts);
            }
        }

        #[test]
        fn no_input_panics(
            attempts: u32, interval: u64, delay: u64, start: u64, now: u64, count: u32, random: u64, delays: bool,
        ) {
            let mode = if delays { RestartMode::Delay } else { RestartMode::Fail };
            let policy = RestartPolicy {
                attempts, interval: Duration::from_secs(interval), delay: Duration::from_secs(delay), mode,
            };
            let mut tracker = RestartTracker { window_start: Some(Steady(start)), count, random };
            tracker.decide(&policy, true, ERROR, Steady(now));
        }
    }
}
