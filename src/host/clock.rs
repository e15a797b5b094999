//! The clocks: one for people (may jump), one for intervals (never does).

use std::time::{Instant, SystemTime};

use crate::model::units::Timestamp;

pub trait Clock: Send + Sync {
    /// The wall clock. It may jump.
    fn now(&self) -> Timestamp;
    /// The monotonic clock.
    fn instant(&self) -> Instant;
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
}
