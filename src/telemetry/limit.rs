//! Lines that repeat are limited: a fault that comes back each second for a thousand tasks must not bury the others.
//! Pure: time comes in.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// `burst` lines per key in each `window`; what is over is counted and told when the window is over.
#[derive(Debug)]
pub struct Limiter<K> {
    burst: u32,
    window: Duration,
    /// Bounded: a key is forgotten when its window is over.
    keys: HashMap<K, Window>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    passed: u32,
    suppressed: u64,
}

/// What was held back for one key.
#[derive(Debug, PartialEq, Eq)]
pub struct Suppressed<K> {
    pub key: K,
    pub lines: u64,
}

impl<K: Eq + Hash + Clone> Limiter<K> {
    /// Keys in use at the same time, at most; a new one beyond that is suppressed.
    const KEYS: usize = 1024;

    pub fn new(burst: u32, window: Duration) -> Limiter<K> {
        Limiter { burst, window, keys: HashMap::new() }
    }

    /// Whether the line may pass.
    pub fn pass(&mut self, key: &K, now: Instant) -> bool {
        if !self.keys.contains_key(key) {
            if self.keys.len() >= Self::KEYS {
                return false;
            }
            self.keys.insert(key.clone(), Window { since: now, passed: 0, suppressed: 0 });
        }
        let Some(window) = self.keys.get_mut(key) else { return false };
        // A window with something to tell stays until `drain` has told it.
        if window.suppressed == 0 && now.saturating_duration_since(window.since) >= self.window {
            *window = Window { since: now, passed: 0, suppressed: 0 };
        }
        if window.passed < self.burst {
            window.passed += 1;
            true
        } else {
            window.suppressed += 1;
            false
        }
    }

    /// Ends the windows that are over and says what they held back.
    pub fn drain(&mut self, now: Instant) -> Vec<Suppressed<K>> {
        let mut told = Vec::new();
        let length = self.window;
        self.keys.retain(|key, window| {
            let over = now.saturating_duration_since(window.since) >= length;
            if over && window.suppressed > 0 {
                told.push(Suppressed { key: key.clone(), lines: window.suppressed });
            }
            !over
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    #[test]
    fn a_burst_passes_and_the_rest_is_counted_and_told_once() {
        let start = Instant::now();
        let mut limiter = Limiter::new(3, WINDOW);
        let passed = (0..10).filter(|_| limiter.pass(&"a", start)).count();
        assert_eq!(passed, 3);
        assert!(limiter.drain(start + Duration::from_secs(9)).is_empty());
        assert_eq!(limiter.drain(start + WINDOW), vec![Suppressed { key: "a", lines: 7 }]);
        assert!(limiter.drain(start + WINDOW * 2).is_empty());
        assert!(limiter.pass(&"a", start + WINDOW));
    }

    #[test]
    fn keys_do_not_share_their_burst() {
        let now = Instant::now();
        let mut limiter = Limiter::new(1, WINDOW);
        assert!(limiter.pass(&"a", now));
        assert!(limiter.pass(&"b", now));
        assert!(!limiter.pass(&"a", now));
    }

    #[test]
    fn a_window_over_without_loss_begins_anew() {
        let now = Instant::now();
        let mut limiter = Limiter::new(1, WINDOW);
        assert!(limiter.pass(&"a", now));
        assert!(limiter.pass(&"a", now + WINDOW));
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let now = Instant::now();
        let mut limiter = Limiter::new(1, WINDOW);
        for key in 0..2_000 {
            limiter.pass(&key, now);
        }
        assert_eq!(limiter.keys.len(), Limiter::<i32>::KEYS);
    }
}
