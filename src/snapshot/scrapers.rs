//! Who scrapes us, and what each has received: final series wait for that.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who asks with `X-Prometheus-Scrape-Timeout-Seconds` is a scraper; these three tell one from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScraperKey {
    /// Without the port, which changes with each connection; `unix` for the socket.
    pub address: String,
    pub user_agent: String,
    pub accept: String,
}

/// Pure: time comes in.
#[derive(Debug, Default)]
pub struct ScraperTable {
    known: HashMap<ScraperKey, Scraper>,
}

#[derive(Debug)]
struct Scraper {
    seen: Instant,
    /// The newest snapshot of which it received a complete, unfiltered body; 0: none yet.
    acknowledged: u64,
}

impl ScraperTable {
    /// Silent for so long: forgotten, nothing waits for it any more.
    pub const SILENCE: Duration = Duration::from_secs(600);
    /// Whoever comes beyond that is served, but nothing waits for him.
    pub const KNOWN: usize = 64;

    pub fn seen(&mut self, key: &ScraperKey, now: Instant) {
        self.forget_silent(now);
        if let Some(scraper) = self.known.get_mut(key) {
            scraper.seen = now;
        } else if self.known.len() < Self::KNOWN {
            self.known.insert(key.clone(), Scraper { seen: now, acknowledged: 0 });
        }
    }

    /// It has a whole body made of snapshot `version`. A late answer never takes a newer one back.
    pub fn acknowledge(&mut self, key: &ScraperKey, version: u64) {
        if let Some(scraper) = self.known.get_mut(key) {
            scraper.acknowledged = scraper.acknowledged.max(version);
        }
    }

    /// The newest version that every known scraper has, or a newer one; `None`: nobody scrapes.
    pub fn acknowledged_by_all(&mut self, now: Instant) -> Option<u64> {
        self.forget_silent(now);
        self.known.values().map(|s| s.acknowledged).min()
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn forget_silent(&mut self, now: Instant) {
        self.known.retain(|_, s| now.saturating_duration_since(s.seen) < Self::SILENCE);
    }
}

/// The table, shared. Concurrency: any thread, a short lock.
#[derive(Debug, Default)]
pub struct Scrapers(Mutex<ScraperTable>);

impl Scrapers {
    /// A scraper asks for `/metrics`, filtered or not.
    pub fn seen(&self, key: &ScraperKey) {
        self.lock().seen(key, Instant::now());
    }
    /// A complete, unfiltered body of this snapshot was written to it whole.
    pub fn ack(&self, key: &ScraperKey, version: u64) {
        self.lock().acknowledge(key, version);
    }
    pub fn acknowledged_by_all(&self, now: Instant) -> Option<u64> {
        self.lock().acknowledged_by_all(now)
    }
    fn lock(&self) -> MutexGuard<'_, ScraperTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ScraperKey {
        ScraperKey { address: "10.0.0.1".into(), user_agent: name.into(), accept: "*/*".into() }
    }

    #[test]
    fn everything_waits_for_the_slowest_known_scraper() {
        let now = Instant::now();
        let mut table = ScraperTable::default();
        assert_eq!(table.acknowledged_by_all(now), None, "nobody scrapes, so nothing is waited for");
        table.seen(&key("a"), now);
        table.seen(&key("b"), now);
        table.acknowledge(&key("a"), 9);
        assert_eq!(table.acknowledged_by_all(now), Some(0));
        table.acknowledge(&key("b"), 7);
        assert_eq!(table.acknowledged_by_all(now), Some(7));
    }

    #[test]
    fn a_late_acknowledgement_takes_nothing_back() {
        let now = Instant::now();
        let mut table = ScraperTable::default();
        table.seen(&key("a"), now);
        table.acknowledge(&key("a"), 9);
        table.acknowledge(&key("a"), 3);
        assert_eq!(table.acknowledged_by_all(now), Some(9));
    }

    #[test]
    fn a_silent_scraper_is_forgotten_after_ten_minutes_and_not_before() {
        let now = Instant::now();
        let mut table = ScraperTable::default();
        table.seen(&key("a"), now);
        assert_eq!(table.acknowledged_by_all(now + ScraperTable::SILENCE - Duration::from_millis(1)), Some(0));
        assert_eq!(table.acknowledged_by_all(now + ScraperTable::SILENCE), None);
    }

    #[test]
    fn who_is_not_known_acknowledges_nothing() {
        let mut table = ScraperTable::default();
        table.acknowledge(&key("curl"), 5);
        assert!(table.is_empty());
    }

    #[test]
    fn address_agent_and_accept_tell_scrapers_apart() {
        let now = Instant::now();
        let mut table = ScraperTable::default();
        let other = |change: fn(&mut ScraperKey)| {
            let mut k = key("a");
            change(&mut k);
            k
        };
        table.seen(&key("a"), now);
        table.seen(&other(|k| k.address = "10.0.0.2".into()), now);
        table.seen(&other(|k| k.user_agent = "b".into()), now);
        table.seen(&other(|k| k.accept = "text/plain".into()), now);
        table.seen(&key("a"), now);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn a_flood_of_names_cannot_fill_the_memory() {
        let now = Instant::now();
        let mut table = ScraperTable::default();
        for n in 0..1_000 {
            table.seen(&key(&n.to_string()), now);
        }
        assert_eq!(table.len(), ScraperTable::KNOWN);
    }
}
