//! Lines that repeat are limited: a fault that comes back each second for a thousand tasks must not bury the others.
//! Pure: time comes in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// `burst` lines per key in each `window`; more are counted, and reported when the window is over.
#[derive(Debug)]
pub struct Limiter<K> {
    burst: u32,
    window: Duration,
    /// Bounded: a key is forgotten when its window is over.
    keys: HashMap<K, LimitWindow>,
}

#[derive(Debug)]
struct LimitWindow {
    since: Instant,
    passed: u32,
    suppressed: u64,
}

/// What was held back for one key.
#[derive(Debug, PartialEq, Eq)]
pub struct SuppressedLines<K> {
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
            self.keys.insert(key.clone(), LimitWindow { since: now, passed: 0, suppressed: 0 });
        }
        let Some(window) = self.keys.get_mut(key) else { return false };
        // A window with suppressed lines stays until `drain` has reported them.
        if window.suppressed == 0 && now.saturating_duration_since(window.since) >= self.window {
            *window = LimitWindow { since: now, passed: 0, suppressed: 0 };
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
    pub fn drain(&mut self, now: Instant) -> Vec<SuppressedLines<K>> {
        let mut ended = Vec::new();
        let length = self.window;
        self.keys.retain(|key, window| {
            let over = now.saturating_duration_since(window.since) >= length;
            if over && window.suppressed > 0 {
                ended.push(SuppressedLines { key: key.clone(), lines: window.suppressed });
            }
            !over
        });
        ended
    }
}

/// One line that comes again and again: it passes at once, again after a minute, and then ever more rarely.
#[derive(Debug)]
pub struct Repeats<K> {
    /// Bounded; what finds no place here passes.
    keys: HashMap<K, Repeat>,
    /// Counts to be logged.
    counts: Vec<SuppressedLines<K>>,
}

#[derive(Debug)]
struct Repeat {
    seen: Instant,
    passed: Instant,
    wait: Duration,
    suppressed: u64,
}

impl<K> Default for Repeats<K> {
    fn default() -> Repeats<K> {
        Repeats { keys: HashMap::new(), counts: Vec::new() }
    }
}

impl<K: Eq + Hash + Clone> Repeats<K> {
    const KEYS: usize = 4096;
    const FIRST_WAIT: Duration = Duration::from_secs(60);
    const LONGEST_WAIT: Duration = Duration::from_secs(3600);
    /// A line that did not come for so long is a new one.
    const FORGET: Duration = Duration::from_secs(600);

    /// Whether the line may pass.
    pub fn pass(&mut self, key: &K, now: Instant) -> bool {
        let is_full = self.keys.len() >= Self::KEYS;
        match self.keys.entry(key.clone()) {
            Entry::Vacant(entry) => {
                if !is_full {
                    entry.insert(Repeat { seen: now, passed: now, wait: Self::FIRST_WAIT, suppressed: 0 });
                }
                true
            }
            Entry::Occupied(mut entry) => {
                let repeat = entry.get_mut();
                repeat.seen = now;
                if now.saturating_duration_since(repeat.passed) < repeat.wait {
                    repeat.suppressed += 1;
                    return false;
                }
                (repeat.passed, repeat.wait) = (now, (repeat.wait * 2).min(Self::LONGEST_WAIT));
                let lines = std::mem::take(&mut repeat.suppressed);
                self.counts.push(SuppressedLines { key: key.clone(), lines });
                true
            }
        }
    }

    /// What was held back before the lines that have passed since, and of those that came no more.
    pub fn drain(&mut self, now: Instant) -> Vec<SuppressedLines<K>> {
        let mut counts = std::mem::take(&mut self.counts);
        self.keys.retain(|key, repeat| {
            let is_over = now.saturating_duration_since(repeat.seen) >= Self::FORGET;
            if is_over {
                counts.push(SuppressedLines { key: key.clone(), lines: repeat.suppressed });
            }
            !is_over
        });
        counts.retain(|held| held.lines > 0);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_each_second_passes_once_then_rarely_and_with_a_count() {
        let start = Instant::now();
        let mut repeats = Repeats::default();
        let (mut passed, mut suppressed) = (Vec::new(), 0);
        for second in 0..86_400 {
            let now = start + Duration::from_secs(second);
            if repeats.pass(&"a", now) {
                passed.push(second);
            }
            suppressed += repeats.drain(now).iter().map(|held| held.lines).sum::<u64>();
        }
        assert_eq!(passed[..5], [0, 60, 180, 420, 900]);
        assert!(passed.len() < 32, "{passed:?}");
        let end = start + Duration::from_secs(86_400) + Repeats::<&str>::FORGET;
        suppressed += repeats.drain(end).iter().map(|held| held.lines).sum::<u64>();
        assert_eq!(passed.len() as u64 + suppressed, 86_400, "each line was logged or counted");
        assert!(repeats.pass(&"a", end) && repeats.pass(&"b", end), "one that comes back later is a new one");
    }

    #[test]
    fn the_number_of_repeating_lines_is_bounded() {
        let mut repeats = Repeats::default();
        (0..9_000).for_each(|key| assert!(repeats.pass(&key, Instant::now())));
        assert_eq!(repeats.keys.len(), Repeats::<i32>::KEYS);
    }

    const WINDOW: Duration = Duration::from_secs(10);

    #[test]
    fn burst_passes_and_the_rest_is_counted_and_reported_once() {
        let start = Instant::now();
        let mut limiter = Limiter::new(3, WINDOW);
        let passed = (0..10).filter(|_| limiter.pass(&"a", start)).count();
        assert_eq!(passed, 3);
        assert!(limiter.drain(start + Duration::from_secs(9)).is_empty());
        assert_eq!(limiter.drain(start + WINDOW), vec![SuppressedLines { key: "a", lines: 7 }]);
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
    fn window_without_suppressed_lines_starts_again() {
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
