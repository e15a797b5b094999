//! Decides whether and when a failed alloc is replaced by a new one. Pure.
//!
//! The tracker passes from an alloc to its replacement and is persisted with it. So a restart of the agent does not
//! reset a crash loop. It is bounded. Without a limit, the newest few replacements determine the next delay; with a
//! limit, those within the interval are counted.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::id::AllocId;
use crate::model::reschedule::{DelayFunction, ReschedulePolicy};
use crate::model::units::{Nanos, Steady, Timestamp};

/// Maximum number of replacements in the history of a tracker. More within one interval are only counted.
const MAX_HISTORY: usize = 100;
/// The same for a policy without a limit: Nomad's value.
const MAX_HISTORY_UNLIMITED: usize = 6;

/// The replacements before an alloc, for the same group and index. At most [`KEPT`] of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescheduleTracker {
    /// Number of replacements since the job was submitted.
    #[serde(default)]
    count: u64,
    /// Oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    history: VecDeque<Replacement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<DroppedReplacements>,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The alloc that failed.
    pub replaced: AllocId,
    pub at: Steady,
    /// The same as wall-clock time.
    pub time: Timestamp,
    /// The delay before it.
    pub delay: Nanos,
}

/// Replacements beyond the limit of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct DroppedReplacements {
    count: u64,
    newest: Steady,
}

/// Whether a failed alloc is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduling {
    /// Replaced after this delay. `attempt` counts from 1.
    After { delay: Nanos, attempt: u64 },
    /// The policy's number of replacements within the interval is reached.
    Exhausted { attempts: u64 },
    /// The policy allows none.
    Never,
}

impl RescheduleTracker {
    /// Number of replacements so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What follows for an alloc that failed at that moment.
    pub fn next(&self, policy: Option<&ReschedulePolicy>, failed_at: Steady) -> Rescheduling {
        let Some(policy) = policy.filter(|policy| policy.is_enabled()) else { return Rescheduling::Never };
        let delay = self.next_delay(policy, failed_at);
        if !policy.unlimited {
            let interval = Nanos::from_duration(policy.interval);
            // The first replacement is granted whatever the interval is.
            let fits = self.count == 0 || self.within(interval, failed_at) < policy.attempts && delay < interval;
            if !fits {
                return Rescheduling::Exhausted { attempts: policy.attempts };
            }
        }
        Rescheduling::After { delay, attempt: self.count.saturating_add(1) }
    }

    /// The tracker of the replacement.
    pub fn after(&self, replacement: Replacement, policy: &ReschedulePolicy) -> RescheduleTracker {
        let mut next = RescheduleTracker { count: self.count.saturating_add(1), ..self.clone() };
        let (now, interval) = (replacement.at, Nanos::from_duration(policy.interval));
        next.history.push_back(replacement);
        if policy.unlimited {
            next.dropped = None;
            next.history.drain(..next.history.len().saturating_sub(MAX_HISTORY_UNLIMITED));
            return next;
        }
        next.history.retain(|one| now.since(one.at) <= interval);
        next.dropped = next.dropped.filter(|dropped| now.since(dropped.newest) <= interval);
        while next.history.len() > MAX_HISTORY
            && let Some(oldest) = next.history.pop_front()
        {
            let count = next.dropped.map_or(0, |dropped| dropped.count).saturating_add(1);
            next.dropped = Some(DroppedReplacements { count, newest: oldest.at });
        }
        next
    }

    /// Number of replacements within the interval before a moment; never an underestimate.
    fn within(&self, interval: Nanos, at: Steady) -> u64 {
        let recent = self.history.iter().filter(|one| at.since(one.at) < interval).count();
        let dropped = self.dropped.filter(|dropped| at.since(dropped.newest) < interval);
        u64::try_from(recent).unwrap_or(u64::MAX).saturating_add(dropped.map_or(0, |dropped| dropped.count))
    }

    /// As in Nomad: a delay above the maximum starts again at the minimum if the alloc ran longer than the maximum.
    fn next_delay(&self, policy: &ReschedulePolicy, failed_at: Steady) -> Nanos {
        let (first, longest) = (Nanos::from_duration(policy.delay), Nanos::from_duration(policy.max_delay));
        let mut latest = self.history.iter().rev();
        let Some(last) = latest.next() else { return first };
        let delay = match (policy.function, latest.next()) {
            (DelayFunction::Constant, _) | (DelayFunction::Fibonacci, None) => return first,
            (DelayFunction::Exponential, _) => last.delay.saturating_add(last.delay),
            // The delay was reset.
            (DelayFunction::Fibonacci, Some(before)) if before.delay == longest && last.delay == first => first,
            (DelayFunction::Fibonacci, Some(before)) => last.delay.saturating_add(before.delay),
        };
        if longest == Nanos::ZERO || delay <= longest {
            return delay;
        }
        if failed_at.since(last.at) > longest { first } else { longest }
    }
}

/// Promise (Input validation): Reschedule delays, attempts and resets are Nomad's; the history is bounded
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::model::job::JobKind;

    fn policy(attempts: u64, interval: u64, delay: u64, function: DelayFunction, max_delay: u64) -> ReschedulePolicy {
        let secs = Duration::from_secs;
        ReschedulePolicy {
            attempts,
            interval: secs(interval),
            delay: secs(delay),
            function,
            max_delay: secs(max_delay),
            unlimited: attempts == 0,
        }
    }
    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(secs))
    }
    fn replacement(at: Steady, delay: Nanos) -> Replacement {
        Replacement { replaced: AllocId::from("a"), at, time: Timestamp(at.0), delay }
    }

    /// The delays, in seconds, for allocs that fail after the given seconds each; stops when the policy is exhausted.
    fn delays(policy: &ReschedulePolicy, lasted: &[u64]) -> Vec<u64> {
        let (mut tracker, mut now, mut all) = (RescheduleTracker::default(), at(1_000), Vec::new());
        for secs in lasted {
            now = now.plus(Nanos::from_secs(*secs));
            let Rescheduling::After { delay, attempt } = tracker.next(Some(policy), now) else { break };
            all.push(delay.0 / 1_000_000_000);
            assert_eq!(attempt, all.len() as u64);
            now = now.plus(delay);
            tracker = tracker.after(replacement(now, delay), policy);
        }
        all
    }

    #[test]
    fn reschedule_delays_equal_those_documented_by_nomad() {
        use DelayFunction::{Constant, Exponential, Fibonacci};
        for (function, longest, expected) in [
            (Constant, 0, [5, 5, 5, 5, 5, 5, 5]),
            (Exponential, 60, [5, 10, 20, 40, 60, 60, 60]),
            (Fibonacci, 60, [5, 5, 10, 15, 25, 40, 60]),
            (Exponential, 0, [5, 10, 20, 40, 80, 160, 320]),
        ] {
            let policy = policy(0, 0, 5, function, longest);
            assert_eq!(delays(&policy, &[1; 7]), expected, "{function:?} {longest}");
        }
    }

    #[test]
    fn a_delay_at_its_longest_begins_again_after_an_alloc_that_lasted() {
        use DelayFunction::{Exponential, Fibonacci};
        let lasted = [1, 1, 1, 1, 1, 61, 1, 1];
        assert_eq!(delays(&policy(0, 0, 5, Exponential, 30), &lasted), [5, 10, 20, 30, 30, 5, 10, 20]);
        assert_eq!(delays(&policy(0, 0, 5, Exponential, 30), &[1, 1, 1, 1, 1, 30, 1]), [5, 10, 20, 30, 30, 30, 30]);
        assert_eq!(
            delays(&policy(0, 0, 10, Fibonacci, 30), &[1, 1, 1, 1, 61, 1, 1, 1]),
            [10, 10, 20, 30, 10, 10, 20, 30]
        );
        // A long run before the maximum is reached changes nothing.
        assert_eq!(delays(&policy(0, 0, 5, Exponential, 60), &[1, 500, 1]), [5, 10, 20]);
    }

    #[test]
    fn attempts_are_counted_within_the_interval() {
        let policy = policy(2, 100, 5, DelayFunction::Constant, 0);
        assert_eq!(delays(&policy, &[1, 1, 1]), [5, 5]);
        // The first two are outside the interval.
        assert_eq!(delays(&policy, &[1, 1, 100, 1, 1]), [5, 5, 5, 5]);
        let tracker = RescheduleTracker::default().after(replacement(at(10), Nanos::from_secs(5)), &policy);
        let tracker = tracker.after(replacement(at(20), Nanos::from_secs(5)), &policy);
        assert_eq!(tracker.next(Some(&policy), at(60)), Rescheduling::Exhausted { attempts: 2 });
    }

    #[test]
    fn defaults_are_nomads_by_the_kind_of_job() {
        let service = JobKind::Service.reschedule_policy().unwrap();
        assert_eq!(delays(&service, &[1; 9]), [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        let batch = JobKind::Batch.reschedule_policy().unwrap();
        assert_eq!(delays(&batch, &[1, 1]), [5]);
        assert_eq!(delays(&batch, &[1, 24 * 3600]), [5, 5]);
        for kind in [JobKind::System, JobKind::Sysbatch] {
            assert_eq!(kind.reschedule_policy(), None);
        }
        let never = ReschedulePolicy { attempts: 0, ..batch };
        for none in [None, Some(&never)] {
            assert_eq!(RescheduleTracker::default().next(none, at(1)), Rescheduling::Never);
        }
    }

    #[test]
    fn restored_reschedule_tracker_continues_with_its_history() {
        let policy = policy(0, 0, 5, DelayFunction::Fibonacci, 60);
        let mut tracker = RescheduleTracker::default();
        for n in 0..20 {
            let restored: RescheduleTracker = serde_json::from_str(&serde_json::to_string(&tracker).unwrap()).unwrap();
            assert_eq!(restored, tracker);
            let Rescheduling::After { delay, .. } = restored.next(Some(&policy), at(n * 100)) else { panic!() };
            tracker = restored.after(replacement(at(n * 100).plus(delay), delay), &policy);
        }
        assert_eq!((tracker.count(), tracker.history.len()), (20, MAX_HISTORY_UNLIMITED));
    }

    fn function() -> impl Strategy<Value = DelayFunction> {
        prop::sample::select(DelayFunction::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn no_interval_has_more_replacements_than_attempts_and_the_history_is_bounded(
            attempts in 1..300_u64, interval in 1..5_000_u64, delay in 1..60_u64, function in function(),
            longest in 0..500_u64,
            lasted in prop::collection::vec(0..40_u64, 1..600),
        ) {
            let policy = policy(attempts, interval, delay, function, longest);
            let (mut tracker, mut now, mut granted) = (RescheduleTracker::default(), at(0), Vec::new());
            for secs in lasted {
                now = now.plus(Nanos::from_secs(secs));
                if let Rescheduling::After { delay, .. } = tracker.next(Some(&policy), now) {
                    let recent = granted.iter().filter(|one: &&Steady| now.since(**one) < Nanos::from_secs(interval));
                    prop_assert!((recent.count() as u64) < attempts, "one more than it allows");
                    now = now.plus(delay);
                    granted.push(now);
                    tracker = tracker.after(replacement(now, delay), &policy);
                }
                prop_assert!(tracker.history.len() <= MAX_HISTORY);
            }
            prop_assert_eq!(tracker.count(), granted.len() as u64);
        }

        #[test]
        fn no_delay_is_shorter_than_the_first_or_longer_than_the_longest(
            delay in 1..100_u64, more in 0..1_000_u64, function in function(),
            lasted in prop::collection::vec(0..2_000_u64, 1..40),
        ) {
            let policy = policy(0, 0, delay, function, delay + more);
            for got in delays(&policy, &lasted) {
                prop_assert!((delay..=delay + more).contains(&got), "{got} of {delay}..={}", delay + more);
            }
        }

        #[test]
        fn no_input_panics(
            attempts: u64, interval: u64, delay: u64, max_delay: u64, unlimited: bool, function in function(),
            failed_at: u64, history in prop::collection::vec((any::<u64>(), any::<u64>()), 0..8), count: u64,
            dropped: Option<(u64, u64)>,
        ) {
            let of = Duration::from_nanos;
            let policy = ReschedulePolicy {
                attempts, interval: of(interval), delay: of(delay), function, max_delay: of(max_delay), unlimited,
            };
            let history = history.into_iter().map(|(at, delay)| replacement(Steady(at), Nanos(delay))).collect();
            let dropped = dropped.map(|(count, newest)| DroppedReplacements { count, newest: Steady(newest) });
            let tracker = RescheduleTracker { count, history, dropped };
            let _ = tracker.next(Some(&policy), Steady(failed_at));
            let _ = tracker.after(replacement(Steady(failed_at), Nanos(delay)), &policy).next(Some(&policy), Steady(0));
        }
    }
}
