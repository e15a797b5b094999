//! Decides which launches of a periodic job are due. Pure. Times are seconds of the Unix epoch.

/// What is due for a periodic job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodicStep {
    /// Nothing is due before then; `None`: never again.
    Wait(Option<u64>),
    /// One child, however many due times have passed.
    Launch(DueLaunch),
    /// No child, because one runs that must not be overlapped.
    Skip(DueLaunch),
}

/// A launch that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueLaunch {
    /// The launch time in the name of its child; everything up to it is decided then.
    pub at: u64,
    /// More than one due time has passed since the last decision: the earlier ones are missed.
    pub missed: bool,
}

/// `decided`: each due time up to then was launched, skipped or missed. It never decreases, so a wall clock that is set
/// back launches nothing twice. `next` returns the first due time after a moment.
pub fn periodic(decided: u64, now: u64, overlaps: bool, next: impl Fn(u64) -> Option<u64>) -> PeriodicStep {
    let Some(due) = next(decided) else { return PeriodicStep::Wait(None) };
    if due > now {
        return PeriodicStep::Wait(Some(due));
    }
    // As Nomad after a leader election: one launch, named after the current time.
    let missed = next(due).is_some_and(|later| later <= now);
    let launch = DueLaunch { at: if missed { now } else { due }, missed };
    if overlaps { PeriodicStep::Skip(launch) } else { PeriodicStep::Launch(launch) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn every(step: u64) -> impl Fn(u64) -> Option<u64> {
        move |after| Some((after / step + 1) * step)
    }
    fn launch(at: u64, missed: bool) -> PeriodicStep {
        PeriodicStep::Launch(DueLaunch { at, missed })
    }

    #[test]
    fn periodic_launch_happens_once_when_due_and_is_named_by_its_time() {
        assert_eq!(periodic(60, 119, false, every(60)), PeriodicStep::Wait(Some(120)));
        assert_eq!(periodic(60, 120, false, every(60)), launch(120, false));
        assert_eq!(periodic(60, 150, false, every(60)), launch(120, false), "it is late, and none was missed");
        assert_eq!(periodic(120, 150, false, every(60)), PeriodicStep::Wait(Some(180)));
        assert_eq!(periodic(60, 100, false, |_| None), PeriodicStep::Wait(None));
    }

    #[test]
    fn periodic_launch_after_many_missed_times_happens_once() {
        assert_eq!(periodic(60, 999, false, every(60)), launch(999, true));
        assert_eq!(periodic(999, 999, false, every(60)), PeriodicStep::Wait(Some(1_020)));
        assert_eq!(periodic(10, 12, false, every(1)), launch(12, true));
    }

    #[test]
    fn periodic_launch_with_prohibited_overlap_is_skipped_while_a_child_runs() {
        let skip = |at, missed| PeriodicStep::Skip(DueLaunch { at, missed });
        assert_eq!(periodic(60, 120, true, every(60)), skip(120, false));
        assert_eq!(periodic(60, 999, true, every(60)), skip(999, true));
        assert_eq!(periodic(60, 100, true, every(60)), PeriodicStep::Wait(Some(120)));
    }

    proptest! {
        /// The clock advances, stands still, and is set forward and back; agents die between a decision and its record.
        #[test]
        fn no_due_time_is_launched_twice_whatever_the_clock_does(
            step in 1..90_u64,
            steps in proptest::collection::vec((-5_000..5_000_i64, any::<bool>(), any::<bool>()), 1..120),
        ) {
            let (mut decided, mut now) = (1_000_000_u64, 1_000_000_u64);
            let mut launched = BTreeSet::new();
            for (by, overlaps, dies) in steps {
                now = now.saturating_add_signed(by);
                let before = decided;
                match periodic(decided, now, overlaps, every(step)) {
                    PeriodicStep::Wait(next) => prop_assert!(next.is_some_and(|next| next > now)),
                    // Decision and child are one record: an agent that dies before it is written has launched nothing.
                    PeriodicStep::Launch(_) | PeriodicStep::Skip(_) if dies => {}
                    PeriodicStep::Launch(due) => {
                        prop_assert!(due.at <= now && due.at > decided);
                        prop_assert!(launched.insert(due.at), "{} twice", due.at);
                        // No two launches cover the same due time.
                        let covered = every(step)(before).is_some_and(|first| first <= due.at);
                        prop_assert!(covered);
                        decided = due.at;
                    }
                    PeriodicStep::Skip(due) => {
                        prop_assert!(overlaps && due.at > decided);
                        decided = due.at;
                    }
                }
                prop_assert!(decided >= before);
            }
        }

        /// If the clock only advances, every due time is decided by the first evaluation after it.
        #[test]
        fn every_due_periodic_time_is_decided_by_the_next_evaluation(
            step in 1..90_u64,
            gaps in proptest::collection::vec(0..300_u64, 1..60),
        ) {
            let (mut decided, mut now) = (0, 0);
            for gap in gaps {
                now += gap;
                loop {
                    match periodic(decided, now, false, every(step)) {
                        PeriodicStep::Wait(next) => break prop_assert!(next.is_some_and(|next| next > now)),
                        PeriodicStep::Launch(due) | PeriodicStep::Skip(due) => decided = due.at,
                    }
                }
                prop_assert!(every(step)(decided).is_some_and(|next| next > now));
            }
        }
    }
}
