//! The clocks: one for people (may jump), one for intervals (never does), one for what outlives the agent (only a boot sets it).

use std::time::{Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::model::units::{Nanos, Timestamp};

pub trait Clock: Send + Sync {
    /// The wall clock. It may jump.
    fn now(&self) -> Timestamp;
    /// The monotonic clock.
    fn instant(&self) -> Instant;
    /// Since the host's boot, suspends included (`CLOCK_BOOTTIME`): nobody sets it, and every process of a boot sees the same.
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
