//! The scrapers of the agent, and what each has received: final series wait for that.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::model::text::log_text;
use crate::telemetry::lock;

/// A client that sends `X-Prometheus-Scrape-Timeout-Seconds` is a scraper; these three distinguish scrapers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScraperKey {
    /// Without the port, which changes with each connection; `unix` for the socket.
    pub address: String,
    pub user_agent: String,
    pub accept: String,
}

/// The known scrapers, and which snapshot each has received. Pure: time comes in.
#[derive(Debug, Default)]
pub struct Scrapers {
    known: HashMap<ScraperKey, Scraper>,
}

/// One known scraper.
#[derive(Debug)]
struct Scraper {
    seen: Instant,
    /// The newest snapshot whose complete, unfiltered body it received; 0: none yet.
    acknowledged: u64,
    /// When it last did.
    received: Option<Instant>,
}

impl Scraper {
    /// It received a body not long ago: a real scraper, which no invented name may displace.
    fn is_proven(&self, now: Instant) -> bool {
        self.received.is_some_and(|at| now.saturating_duration_since(at) < Scrapers::RECENT)
    }
}

impl Scrapers {
    /// Silent for so long: forgotten, nothing waits for it any more.
    pub const SILENCE: Duration = Duration::from_secs(600);
    /// So many are waited for; of one address so many: more than a pair of Prometheus servers behind one address needs.
    /// A scraper beyond that takes the place of one that was never seen to receive a body, or not lately. If there is
    /// none, it is served, but nothing waits for it.
    pub const KNOWN: usize = 64;
    pub const KNOWN_OF_ONE_ADDRESS: usize = 16;
    /// A scraper that received a whole body so lately keeps its place.
    pub const RECENT: Duration = Duration::from_secs(180);

    pub fn seen(&mut self, key: &ScraperKey, now: Instant) {
        self.forget_silent(now);
        if let Some(scraper) = self.known.get_mut(key) {
            scraper.seen = now;
        } else if self.make_room(key, now) {
            self.known.insert(key.clone(), Scraper { seen: now, acknowledged: 0, received: None });
        }
    }

    /// Whether there is a place for a newcomer; the unproven that was seen longest ago may lose its place.
    fn make_room(&mut self, newcomer: &ScraperKey, now: Instant) -> bool {
        let of_its_address = self.known.keys().filter(|k| k.address == newcomer.address).count();
        let crowded = of_its_address >= Self::KNOWN_OF_ONE_ADDRESS;
        if !crowded && self.known.len() < Self::KNOWN {
            return true;
        }
        let unproven = self.known.iter().filter(|(_, s)| !s.is_proven(now));
        let in_question = unproven.filter(|(k, _)| !crowded || k.address == newcomer.address);
        let Some(oldest) = in_question.min_by_key(|(_, s)| s.seen).map(|(k, _)| k.clone()) else { return false };
        self.known.remove(&oldest).is_some()
    }

    /// It has a whole body made of snapshot `version`. A late answer never takes a newer one back. Returns whether it
    /// is the first body of this scraper.
    pub fn acknowledge(&mut self, key: &ScraperKey, version: u64, now: Instant) -> bool {
        let Some(scraper) = self.known.get_mut(key) else { return false };
        scraper.acknowledged = scraper.acknowledged.max(version);
        scraper.received.replace(now).is_none()
    }

    /// The newest version that every known scraper has, or a newer one; `None`: there is no scraper.
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
        self.known.retain(|key, scraper| {
            let is_silent = now.saturating_duration_since(scraper.seen) >= Self::SILENCE;
            if is_silent && scraper.received.is_some() {
                let seconds = Self::SILENCE.as_secs();
                tracing::warn!(address = key.address, seconds, "no scrape by a known scraper; it is forgotten");
            }
            !is_silent
        });
    }
}

/// The known scrapers, shared by the server and the sampler. Concurrency: any thread, a short lock.
#[derive(Debug, Default)]
pub struct SharedScrapers(Mutex<Scrapers>);

impl SharedScrapers {
    /// A scraper requested `/metrics`, filtered or not.
    pub fn seen(&self, key: &ScraperKey) {
        lock(&self.0).seen(key, Instant::now());
    }
    /// A complete, unfiltered body of this snapshot was written to it whole.
    pub fn ack(&self, key: &ScraperKey, version: u64) {
        let is_first = lock(&self.0).acknowledge(key, version, Instant::now());
        if is_first {
            let (user_agent, accept) = (log_text(&key.user_agent), log_text(&key.accept));
            tracing::info!(address = key.address, user_agent, accept, "first scrape by a scraper");
        }
    }
    pub fn acknowledged_by_all(&self, now: Instant) -> Option<u64> {
        lock(&self.0).acknowledged_by_all(now)
    }
}

/// Promise (Input validation): Invented scrapers displace no real one, and no address holds all places
#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ScraperKey {
        ScraperKey { address: "10.0.0.1".into(), user_agent: name.into(), accept: "*/*".into() }
    }

    #[test]
    fn acknowledged_version_is_that_of_the_slowest_scraper() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        assert_eq!(scrapers.acknowledged_by_all(now), None, "without scrapers nothing is waited for");
        scrapers.seen(&key("a"), now);
        scrapers.seen(&key("b"), now);
        scrapers.acknowledge(&key("a"), 9, now);
        assert_eq!(scrapers.acknowledged_by_all(now), Some(0));
        scrapers.acknowledge(&key("b"), 7, now);
        assert_eq!(scrapers.acknowledged_by_all(now), Some(7));
    }

    #[test]
    fn a_late_acknowledgement_takes_nothing_back() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        scrapers.seen(&key("a"), now);
        scrapers.acknowledge(&key("a"), 9, now);
        scrapers.acknowledge(&key("a"), 3, now);
        assert_eq!(scrapers.acknowledged_by_all(now), Some(9));
    }

    #[test]
    fn a_silent_scraper_is_forgotten_after_ten_minutes_and_not_before() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        scrapers.seen(&key("a"), now);
        assert_eq!(scrapers.acknowledged_by_all(now + Scrapers::SILENCE - Duration::from_millis(1)), Some(0));
        assert_eq!(scrapers.acknowledged_by_all(now + Scrapers::SILENCE), None);
    }

    #[test]
    fn unknown_scraper_acknowledges_nothing() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        scrapers.acknowledge(&key("curl"), 5, now);
        assert!(scrapers.is_empty());
    }

    #[test]
    fn scrapers_differ_by_address_agent_and_accept() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        let other = |change: fn(&mut ScraperKey)| {
            let mut k = key("a");
            change(&mut k);
            k
        };
        scrapers.seen(&key("a"), now);
        scrapers.seen(&other(|k| k.address = "10.0.0.2".into()), now);
        scrapers.seen(&other(|k| k.user_agent = "b".into()), now);
        scrapers.seen(&other(|k| k.accept = "text/plain".into()), now);
        scrapers.seen(&key("a"), now);
        assert_eq!(scrapers.len(), 4);
    }

    #[test]
    fn a_flood_of_names_cannot_fill_the_memory() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        for n in 0..1_000 {
            scrapers.seen(&key(&n.to_string()), now);
        }
        assert_eq!(scrapers.len(), Scrapers::KNOWN_OF_ONE_ADDRESS);
        for n in 0..1_000 {
            scrapers.seen(&ScraperKey { address: n.to_string(), ..key("x") }, now);
        }
        assert_eq!(scrapers.len(), Scrapers::KNOWN);
    }

    #[test]
    fn invented_names_crowd_out_neither_a_scraper_that_reads_nor_one_that_comes_later() {
        let at = |s| Instant::now() + Duration::from_secs(s);
        let mut scrapers = Scrapers::default();
        scrapers.seen(&key("prometheus"), at(0));
        scrapers.acknowledge(&key("prometheus"), 5, at(0));
        for n in 0..200 {
            scrapers.seen(&ScraperKey { address: n.to_string(), ..key("x") }, at(1));
            scrapers.seen(&key(&n.to_string()), at(1));
        }
        scrapers.acknowledge(&key("prometheus"), 6, at(15));
        scrapers.seen(&key("late"), at(16));
        scrapers.acknowledge(&key("late"), 6, at(16));
        for n in 0..200 {
            scrapers.seen(&key(&format!("more {n}")), at(17));
        }
        for (name, version) in [("prometheus", 6), ("late", 6)] {
            assert_eq!(scrapers.known.get(&key(name)).map(|s| s.acknowledged), Some(version), "{name}");
        }
    }

    #[test]
    fn names_that_read_too_are_bounded_to_one_address() {
        let now = Instant::now();
        let mut scrapers = Scrapers::default();
        for n in 0..200 {
            scrapers.seen(&key(&n.to_string()), now);
            scrapers.acknowledge(&key(&n.to_string()), 1, now);
        }
        let elsewhere = ScraperKey { address: "10.0.0.9".into(), ..key("prometheus") };
        scrapers.seen(&elsewhere, now);
        assert!(scrapers.known.contains_key(&elsewhere));
        // Proven once, silent since: the next of that address takes the place.
        let later = now + Scrapers::RECENT;
        scrapers.seen(&key("new"), later);
        assert!(scrapers.known.contains_key(&key("new")));
        assert_eq!(scrapers.len(), Scrapers::KNOWN_OF_ONE_ADDRESS + 1);
    }
}
