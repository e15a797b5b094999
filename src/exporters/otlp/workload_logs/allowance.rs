//! How much may be read in a while: a token bucket.

use std::time::{Duration, Instant};

/// A burst may have so many seconds of the rate.
const BURST: u64 = 4;

#[derive(Debug, Clone)]
pub(super) struct Allowance {
    /// Bytes a second.
    rate: u64,
    /// Negative after a charge that was larger.
    left: i128,
    at: Instant,
}

impl Allowance {
    pub fn new(rate: u64, now: Instant) -> Allowance {
        Allowance { rate, left: i128::from(rate.saturating_mul(BURST)), at: now }
    }

    pub fn refill(&mut self, now: Instant) {
        let nanos = now.saturating_duration_since(self.at).min(Duration::from_secs(BURST)).as_nanos();
        let more = u128::from(self.rate) * nanos / 1_000_000_000;
        if more > 0 {
            self.at = now;
            let most = i128::from(self.rate.saturating_mul(BURST));
            self.left = (self.left + i128::try_from(more).unwrap_or(most)).min(most);
        }
    }

    pub fn has_some(&self) -> bool {
        self.left > 0
    }

    pub fn charge(&mut self, bytes: u64) {
        self.left -= i128::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_is_a_burst_and_then_the_rate_and_never_more() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut allowance = Allowance::new(1_000, begin);
        let mut spend = |now: Instant| {
            allowance.refill(now);
            let mut spent = 0;
            while allowance.has_some() {
                allowance.charge(10);
                spent += 10;
            }
            spent
        };
        assert_eq!(spend(begin), 4_000);
        assert_eq!(spend(at(500)), 500);
        assert_eq!(spend(at(1_500)), 1_000);
        assert_eq!(spend(at(100_000)), 4_000, "what was not used is not kept for ever");
    }

    #[test]
    fn large_charge_is_paid_off_before_anything_else() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(1_000, begin);
        allowance.charge(6_000);
        allowance.refill(begin + Duration::from_secs(1));
        assert!(!allowance.has_some());
        allowance.refill(begin + Duration::from_millis(2_500));
        assert!(allowance.has_some());
    }
}
