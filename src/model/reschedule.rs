//! How a failed alloc is replaced by a new one: Nomad's `reschedule`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::words;

words! {
    /// How the delay grows from one replacement to the next.
    pub enum DelayFunction {
        Constant = "constant",
        Exponential = "exponential",
        Fibonacci = "fibonacci",
    }
}

/// When and how often a failed alloc is replaced by a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReschedulePolicy {
    /// Replacements within `interval`; without meaning where they are unlimited.
    pub attempts: u64,
    pub interval: Duration,
    /// From the failure to the first replacement.
    pub delay: Duration,
    pub function: DelayFunction,
    /// The longest delay. Zero: none.
    pub max_delay: Duration,
    pub unlimited: bool,
}

impl ReschedulePolicy {
    /// Nomad's default of services: without limit, from 30 s to one hour.
    pub const OF_SERVICES: ReschedulePolicy = ReschedulePolicy {
        attempts: 0,
        interval: Duration::ZERO,
        delay: Duration::from_secs(30),
        function: DelayFunction::Exponential,
        max_delay: Duration::from_secs(3600),
        unlimited: true,
    };
    /// Nomad's default of batch jobs: once in 24 h, after 5 s.
    pub const OF_BATCH_JOBS: ReschedulePolicy = ReschedulePolicy {
        attempts: 1,
        interval: Duration::from_secs(24 * 3600),
        delay: Duration::from_secs(5),
        function: DelayFunction::Constant,
        max_delay: Duration::ZERO,
        unlimited: false,
    };

    pub fn is_enabled(&self) -> bool {
        self.unlimited || self.attempts > 0
    }
}
