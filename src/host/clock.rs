//! The clocks: wall clock (may jump), monotonic clock (for intervals), boot clock (for times that outlive the agent).

use std::time::{Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::model::units::{Nanos, Timestamp};

/// The clocks that the agent reads; tests replace them.
pub trait Clock: Send + Sync {
    /// The wall clock. It may jump.
    fn now(&self) -> Timestamp;
    /// The monotonic clock.
    fn instant(&self) -> Instant;
    /// Time since boot, including suspend (`CLOCK_BOOTTIME`). It cannot be set and is the same for every process.
    fn since_boot(&self) -> Nanos;
}

#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_system(SystemTime::now())
    }
    fn instant(&self) -> Instant {
        Instant::now()
    }
    fn since_boot(&self) -> Nanos {
        let time = clock_gettime(ClockId::Boottime);
        let part = |n: i64| u64::try_from(n).unwrap_or(0);
        Nanos::from_secs(part(time.tv_sec)).saturating_add(Nanos(part(time.tv_nsec)))
    }
}
