//! How long the final series of an ended alloc stay. Pure: time and acknowledgements come in.
//!
//! ```text
//!            at least `least`             until every known scraper has them        `most`
//! ended ─────────────────────────────┬──────────────────────────────────────────────┤
//!   the budget may end it earlier    │ acknowledged by all: retired                 │ retired in any case;
//!   at any moment, oldest first      │                                              │ "unread" is counted
//! ```
//! Live series are not retained: they end with the alloc.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::model::id::AllocId;
use crate::telemetry::metrics::DropReason;

/// How long, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionConfig {
    /// Final series stay so long, even if every scraper has them. Default 5 min.
    pub least: Duration,
    /// And no longer than that, even if a scraper lacks them. Default 10 min.
    pub most: Duration,
    /// All final series of ended allocs together, in bytes of exposition. Default 64 MiB.
    pub budget_bytes: u64,
}

impl Default for RetentionConfig {
    fn default() -> RetentionConfig {
        RetentionConfig { least: Duration::from_secs(300), most: Duration::from_secs(600), budget_bytes: 64 << 20 }
    }
}

/// Size of the series of an ended alloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeriesSize {
    pub series: u64,
    pub bytes: u64,
}

/// One ended alloc whose final series are retained.
#[derive(Debug)]
struct RetentionEntry {
    /// When the agent saw the end, and how old it was then.
    seen: Instant,
    age_when_seen: Duration,
    /// The first snapshot that shows the end.
    version: u64,
    series_size: SeriesSize,
    /// In order of `ended` calls: the oldest goes first.
    order: u64,
}

/// Final series of one alloc that are removed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRetirement {
    pub id: AllocId,
    /// Why a scraper lacks them, and their number. `None`: no known scraper lacks them.
    pub lost: Option<(DropReason, u64)>,
}

/// The ended allocs whose final series are retained. Concurrency: single owner.
#[derive(Debug)]
pub struct Retention {
    config: RetentionConfig,
    ended: HashMap<AllocId, RetentionEntry>,
    bytes: u64,
    next_order: u64,
}

impl Retention {
    pub fn new(config: RetentionConfig) -> Retention {
        Retention { config, ended: HashMap::new(), bytes: 0, next_order: 0 }
    }

    /// An alloc has ended: `version` is the first snapshot that shows it. `age`: how long ago that was.
    pub fn ended(&mut self, id: &AllocId, now: Instant, age: Duration, version: u64, series_size: SeriesSize) {
        self.forget(id);
        let order = self.next_order;
        self.next_order += 1;
        self.bytes = self.bytes.saturating_add(series_size.bytes);
        self.ended.insert(id.clone(), RetentionEntry { seen: now, age_when_seen: age, version, series_size, order });
    }

    /// The alloc was removed from the board, or runs again.
    pub fn forget(&mut self, id: &AllocId) {
        if let Some(ended) = self.ended.remove(id) {
            self.bytes = self.bytes.saturating_sub(ended.series_size.bytes);
        }
    }

    /// Which allocs retire now. `acknowledged`: the newest snapshot that every known scraper has; `None`: there is no
    /// scraper.
    pub fn retire(&mut self, now: Instant, acknowledged: Option<u64>) -> Vec<SeriesRetirement> {
        let mut retired = Vec::new();
        let RetentionConfig { least, most, .. } = self.config;
        self.ended.retain(|id, ended| {
            let age = now.saturating_duration_since(ended.seen).saturating_add(ended.age_when_seen);
            let delivered = acknowledged.is_none_or(|version| version >= ended.version);
            if age < least || (age < most && !delivered) {
                return true;
            }
            let lost = (!delivered).then_some((DropReason::Unread, ended.series_size.series));
            self.bytes = self.bytes.saturating_sub(ended.series_size.bytes);
            retired.push(SeriesRetirement { id: id.clone(), lost });
            false
        });
        retired.extend(self.enforce_budget(acknowledged));
        retired
    }

    fn enforce_budget(&mut self, acknowledged: Option<u64>) -> Vec<SeriesRetirement> {
        if self.bytes <= self.config.budget_bytes {
            return Vec::new();
        }
        let mut oldest: Vec<(u64, AllocId)> = self.ended.iter().map(|(id, e)| (e.order, id.clone())).collect();
        oldest.sort_unstable_by_key(|(order, _)| *order);
        let mut retired = Vec::new();
        for (_, id) in oldest {
            if self.bytes <= self.config.budget_bytes {
                break;
            }
            let Some(ended) = self.ended.remove(&id) else { continue };
            self.bytes = self.bytes.saturating_sub(ended.series_size.bytes);
            // Without a scraper they count as lost, too: a later one might have received them.
            let delivered = acknowledged.is_some_and(|version| version >= ended.version);
            let lost = (!delivered).then_some((DropReason::Budget, ended.series_size.series));
            retired.push(SeriesRetirement { id, lost });
        }
        retired
    }

    /// Ended allocs whose series are still shown.
    pub fn waiting(&self) -> usize {
        self.ended.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SIZE: SeriesSize = SeriesSize { series: 60, bytes: 8_000 };

    fn config() -> RetentionConfig {
        RetentionConfig { least: SECOND * 300, most: SECOND * 600, budget_bytes: 100_000 }
    }

    fn id(n: u64) -> AllocId {
        AllocId::new(format!("alloc-{n}"))
    }

    /// When, in seconds after its end at version 10, the alloc retires, if scrapers stand at `acknowledged(second)`.
    fn retires_at(acknowledged: impl Fn(u64) -> Option<u64>) -> (u64, Option<(DropReason, u64)>) {
        let start = Instant::now();
        let mut retention = Retention::new(config());
        retention.ended(&id(1), start, Duration::ZERO, 10, SIZE);
        for second in 0..2_000 {
            let retired = retention.retire(start + SECOND * u32::try_from(second).unwrap(), acknowledged(second));
            if let Some(one) = retired.first() {
                assert_eq!(one.id, id(1));
                return (second, one.lost);
            }
        }
        panic!("never retired");
    }

    #[test]
    fn final_series_are_exposed_five_minutes_even_if_delivered_or_without_scrapers() {
        assert_eq!(retires_at(|_| None), (300, None));
        assert_eq!(retires_at(|_| Some(10)), (300, None));
    }

    #[test]
    fn they_wait_for_a_scraper_that_lacks_them_and_go_when_it_has_them() {
        assert_eq!(retires_at(|second| Some(if second < 450 { 9 } else { 10 })), (450, None));
        assert_eq!(retires_at(|second| Some(if second < 450 { 9 } else { 4_000 })), (450, None));
    }

    #[test]
    fn after_ten_minutes_they_go_and_the_loss_is_counted() {
        assert_eq!(retires_at(|_| Some(9)), (600, Some((DropReason::Unread, 60))));
    }

    #[test]
    fn a_scraper_that_is_forgotten_is_not_waited_for() {
        assert_eq!(retires_at(|second| if second < 400 { Some(0) } else { None }), (400, None));
    }

    #[test]
    fn over_the_budget_the_oldest_go_first_and_the_loss_is_counted() {
        let now = Instant::now();
        let mut retention = Retention::new(config());
        for n in 0..15 {
            retention.ended(&id(n), now, Duration::ZERO, 10 + n, SIZE);
        }
        let retired = retention.retire(now, Some(11));
        let ids: Vec<AllocId> = retired.iter().map(|r| r.id.clone()).collect();
        assert_eq!(ids, vec![id(0), id(1), id(2)], "15 x 8,000 bytes are 20,000 over: three go");
        assert_eq!(retired[1].lost, None, "version 11 has been delivered");
        assert_eq!(retired[2].lost, Some((DropReason::Budget, 60)));
        assert_eq!(retention.waiting(), 12);
        assert!(retention.retire(now, Some(11)).is_empty());
    }

    #[test]
    fn end_of_long_ago_is_not_shown_again() {
        let now = Instant::now();
        let mut retention = Retention::new(config());
        retention.ended(&id(1), now, SECOND * 86_400, 1, SIZE);
        retention.ended(&id(2), now, SECOND * 200, 1, SIZE);
        assert_eq!(retention.retire(now, None), vec![SeriesRetirement { id: id(1), lost: None }]);
        assert_eq!(retention.retire(now + SECOND * 99, None), vec![]);
        assert_eq!(retention.retire(now + SECOND * 100, None).len(), 1);
    }

    #[test]
    fn retention_forgets_removed_allocs_with_their_bytes() {
        let now = Instant::now();
        let mut retention = Retention::new(config());
        for n in 0..12 {
            retention.ended(&id(n), now, Duration::ZERO, 1, SIZE);
            retention.ended(&id(n), now, Duration::ZERO, 1, SIZE);
        }
        assert_eq!(retention.bytes, 96_000, "saying it twice counts once");
        for n in 0..12 {
            retention.forget(&id(n));
        }
        assert_eq!((retention.bytes, retention.waiting()), (0, 0));
        assert!(retention.retire(now + SECOND * 9_000, None).is_empty());
    }

    proptest! {
        /// Whatever the acknowledgements: never before `least`, never after `most`, and before `most` only if
        /// delivered.
        #[test]
        fn final_series_retire_within_their_retention_bounds(
            ends in prop::collection::vec((0_u64..1_000, 0_u64..50), 1..12),
            acks in prop::collection::vec(prop::option::of(0_u64..60), 2_000),
        ) {
            let start = Instant::now();
            let mut retention = Retention::new(config());
            let mut left: HashMap<AllocId, (u64, u64)> = HashMap::new();
            for second in 0..2_000_u64 {
                let now = start + SECOND * u32::try_from(second).unwrap();
                for (n, (at, version)) in ends.iter().enumerate().filter(|(_, (at, _))| *at == second) {
                    let id = id(u64::try_from(n).unwrap());
                    retention.ended(&id, now, Duration::ZERO, *version, SIZE);
                    left.insert(id, (*at, *version));
                }
                let ack = acks[usize::try_from(second).unwrap()];
                for retired in retention.retire(now, ack) {
                    let (at, version) = left.remove(&retired.id).expect("retires once");
                    let age = second - at;
                    let delivered = ack.is_none_or(|a| a >= version);
                    prop_assert!((300..=600).contains(&age));
                    prop_assert!(delivered || age == 600);
                    prop_assert_eq!(retired.lost.is_some(), !delivered);
                }
                prop_assert!(left.values().all(|(at, _)| second - at < 600));
            }
            prop_assert!(left.is_empty());
        }
    }
}
