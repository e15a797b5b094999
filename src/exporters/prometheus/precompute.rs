//! Scrapers that come regularly: their bodies are encoded in advance. Pure: time comes in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::model::answer::{Encoding, Format};
use crate::snapshot::ScraperKey;

/// What a scraper takes.
pub(super) type AcceptedForm = (Format, Encoding);

#[derive(Debug, Default)]
pub(super) struct Visits {
    known: HashMap<ScraperKey, Visitor>,
}

#[derive(Debug)]
struct Visitor {
    last: Instant,
    interval: Option<Duration>,
    /// The last two intervals were alike.
    regular: bool,
    accepted: AcceptedForm,
}

impl Visits {
    const KNOWN: usize = 64;
    /// Intervals that differ by less than a tenth are alike.
    const ALIKE: u32 = 10;

    pub(super) fn record_visit(&mut self, key: &ScraperKey, requested: AcceptedForm, now: Instant) {
        if let Some(visitor) = self.known.get_mut(key) {
            let interval = now.saturating_duration_since(visitor.last);
            let alike = |before: Duration| before.abs_diff(interval) <= before / Self::ALIKE;
            visitor.regular = visitor.interval.is_some_and(alike);
            visitor.interval = Some(interval);
            visitor.last = now;
            visitor.accepted = requested;
            return;
        }
        if self.known.len() >= Self::KNOWN {
            // The one that was silent longest makes room.
            let oldest = self.known.iter().min_by_key(|(_, v)| v.last).map(|(k, _)| k.clone());
            if let Some(oldest) = oldest {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(key.clone(), Visitor { last: now, interval: None, regular: false, accepted: requested });
    }

    /// What will be asked for before the snapshot after this one, `within` from now.
    pub(super) fn expected(&self, now: Instant, within: Duration) -> Vec<AcceptedForm> {
        let mut accepted = Vec::new();
        for visitor in self.known.values().filter(|v| v.regular) {
            let Some(next) = visitor.interval.map(|i| visitor.last + i) else { continue };
            // A little early or late is still regular; one that did not come is not waited for.
            let slack = visitor.interval.map_or(Duration::ZERO, |i| i / Self::ALIKE);
            let soon = next <= now + within + slack.min(within);
            let missed = next + slack.max(within) < now;
            if soon && !missed && !accepted.contains(&visitor.accepted) {
                accepted.push(visitor.accepted);
            }
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);
    const ACCEPTED: AcceptedForm = (Format::OpenMetrics, Encoding::Gzip);

    fn key() -> ScraperKey {
        ScraperKey { address: "a".into(), user_agent: "Prometheus/2.42".into(), accept: "*/*".into() }
    }

    fn regular(start: Instant) -> Visits {
        let mut visits = Visits::default();
        for visit in 0..4 {
            visits.record_visit(&key(), ACCEPTED, start + Duration::from_secs(15 * visit));
        }
        visits
    }

    #[test]
    fn a_regular_scraper_is_expected_in_the_tick_before_it_comes_and_not_earlier() {
        let start = Instant::now();
        let visits = regular(start);
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert!(visits.expected(at(50.0), TICK).is_empty());
        assert_eq!(visits.expected(at(59.2), TICK), vec![ACCEPTED]);
        assert_eq!(visits.expected(at(60.1), TICK), vec![ACCEPTED], "a little late");
        assert!(visits.expected(at(70.0), TICK).is_empty(), "it did not come");
    }

    #[test]
    fn scraper_that_came_once_or_at_odd_times_is_not_expected() {
        let start = Instant::now();
        let mut visits = Visits::default();
        for second in [0, 3, 50, 51, 200] {
            visits.record_visit(&key(), ACCEPTED, start + Duration::from_secs(second));
            assert!(visits.expected(start + Duration::from_secs(second), TICK * 600).is_empty(), "{second}");
        }
    }

    #[test]
    fn two_scrapers_of_one_kind_need_one_body() {
        let start = Instant::now();
        let mut visits = regular(start);
        let other = ScraperKey { address: "b".into(), ..key() };
        for visit in 0..4 {
            visits.record_visit(&other, ACCEPTED, start + Duration::from_secs(15 * visit));
        }
        assert_eq!(visits.expected(start + Duration::from_millis(59_500), TICK), vec![ACCEPTED]);
    }
}
