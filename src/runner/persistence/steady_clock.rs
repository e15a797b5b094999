//! The runner's timeline: measures elapsed time independently of changes of the wall clock.
//!
//! Within one boot it follows the boot clock, across restarts of the agent. From one boot to the next it follows the
//! wall clock, for lack of another. A record has the position of this boot's begin, and the offset of the wall clock
//! from the timeline; the next boot's begin is derived from that. Without such a record the timeline begins with the
//! wall-clock time, which is what earlier agents wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Serialize};

use crate::host::clock::Clock;
use crate::model::id::BootId;
use crate::model::units::{Nanos, Steady, Timestamp};

/// A smaller change of the wall clock is a slew, or a delay between two reads.
const SET: Nanos = Nanos(1_000_000_000);

/// What the next agent needs to continue the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SteadyClockRecord {
    pub boot_id: BootId,
    /// Position of that boot's begin on the timeline.
    pub booted_at: Steady,
    /// Offset of the wall clock from the timeline, in nanoseconds.
    pub ahead_ns: i64,
}

pub struct SteadyClock {
    clock: Arc<dyn Clock>,
    boot_id: BootId,
    booted_at: Steady,
    /// The recorded offset of the wall clock.
    recorded_offset: AtomicI64,
}

impl SteadyClock {
    /// Continues from the record.
    pub fn new(clock: Arc<dyn Clock>, boot_id: BootId, record: Option<SteadyClockRecord>) -> SteadyClock {
        let wall_at_boot = clock.now().0.saturating_sub(clock.since_boot().0);
        let booted_at = match record {
            Some(record) if record.boot_id == boot_id => record.booted_at,
            Some(record) => Steady(wall_at_boot.saturating_add_signed(record.ahead_ns.saturating_neg())),
            None => Steady(wall_at_boot),
        };
        let line = SteadyClock { clock, boot_id, booted_at, recorded_offset: AtomicI64::new(0) };
        line.note(&line.record());
        line
    }

    pub fn now(&self) -> Steady {
        self.booted_at.plus(self.clock.since_boot())
    }

    /// The position of a wall-clock time, if the wall clock was not set since then.
    pub fn of_wall(&self, at: Timestamp) -> Steady {
        Steady(at.0.saturating_add_signed(self.ahead_ns().saturating_neg()))
    }

    pub fn record(&self) -> SteadyClockRecord {
        SteadyClockRecord { boot_id: self.boot_id.clone(), booted_at: self.booted_at, ahead_ns: self.ahead_ns() }
    }
    /// The record to write if the wall clock was set since the last one.
    pub fn unrecorded(&self) -> Option<SteadyClockRecord> {
        let record = self.record();
        (record.ahead_ns.abs_diff(self.recorded_offset.load(Ordering::SeqCst)) > SET.0).then_some(record)
    }
    /// The record was written.
    pub fn note(&self, record: &SteadyClockRecord) {
        self.recorded_offset.store(record.ahead_ns, Ordering::SeqCst);
    }

    fn ahead_ns(&self) -> i64 {
        let (wall, line) = (i128::from(self.clock.now().0), i128::from(self.now().0));
        i64::try_from(wall - line).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    const DAY: i64 = 24 * 3_600_000_000_000;

    /// A wall clock and a boot clock for tests.
    #[derive(Default)]
    struct Clocks(Mutex<(u64, u64)>);

    impl Clock for Clocks {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.lock().unwrap().0)
        }
        fn instant(&self) -> Instant {
            Instant::now()
        }
        fn since_boot(&self) -> Nanos {
            Nanos(self.0.lock().unwrap().1)
        }
    }

    impl Clocks {
        fn pass(&self, nanos: u64) {
            let mut clocks = self.0.lock().unwrap();
            (clocks.0, clocks.1) = (clocks.0 + nanos, clocks.1 + nanos);
        }
        fn set(&self, by: i64) {
            let mut clocks = self.0.lock().unwrap();
            clocks.0 = clocks.0.checked_add_signed(by).unwrap();
        }
        fn boot(&self) {
            self.0.lock().unwrap().1 = 0;
        }
    }

    fn clocks() -> Arc<Clocks> {
        Arc::new(Clocks(Mutex::new((1_700_000_000_000_000_000, 5 * HOUR))))
    }
    fn line(clocks: &Arc<Clocks>, boot: &str, record: Option<SteadyClockRecord>) -> SteadyClock {
        SteadyClock::new(Arc::clone(clocks) as _, BootId(boot.to_owned()), record)
    }

    #[test]
    fn timeline_starts_with_the_wall_clock_and_ignores_its_changes_across_restarts() {
        for day in [DAY, -DAY] {
            let clocks = clocks();
            let first = line(&clocks, "a", None);
            let began = first.now();
            assert_eq!(began.0, clocks.now().0, "what earlier agents wrote lies on it");
            clocks.pass(HOUR);
            clocks.set(day);
            assert_eq!(first.now().since(began), Nanos(HOUR));
            let next = line(&clocks, "a", Some(first.record()));
            clocks.pass(HOUR);
            assert_eq!(next.now().since(began), Nanos(2 * HOUR));
            assert_eq!(next.of_wall(clocks.now()), next.now());
        }
    }

    #[test]
    fn steady_clock_over_a_boot_advances_by_the_wall_clock() {
        for day in [DAY, -DAY] {
            let clocks = clocks();
            let first = line(&clocks, "a", None);
            let began = first.now();
            assert_eq!(first.unrecorded(), None);
            clocks.set(day);
            let known = first.unrecorded().expect("it was set");
            assert!(first.unrecorded().is_some(), "until it is recorded");
            first.note(&known);
            clocks.pass(HOUR);
            assert_eq!(first.unrecorded(), None, "an hour is no news");
            clocks.boot();
            clocks.pass(HOUR);
            let next = line(&clocks, "b", Some(known));
            assert_eq!(next.now().since(began), Nanos(2 * HOUR), "also after it was set");
            assert_eq!(next.record().boot_id, BootId("b".to_owned()));
        }
    }

    #[test]
    fn no_reading_of_the_clocks_panics() {
        for wall in [0, 1, u64::MAX] {
            for boot in [0, 1, u64::MAX] {
                let clocks = Arc::new(Clocks(Mutex::new((wall, boot))));
                for ahead_ns in [i64::MIN, 0, i64::MAX] {
                    let record =
                        SteadyClockRecord { boot_id: BootId("a".to_owned()), booted_at: Steady(boot), ahead_ns };
                    for id in ["a", "b"] {
                        let line = line(&clocks, id, Some(record.clone()));
                        let _ = (line.now(), line.of_wall(Timestamp(wall)), line.record(), line.unrecorded());
                    }
                }
            }
        }
    }
}
