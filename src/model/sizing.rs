//! How much memory and CPU a task should get, from what it used. Pure: the rule of `allostat report`.
//!
//! A peak is the kernel's highest charge, page cache included, so it is an upper bound of what the task needs. At its
//! limit it is a lower bound: what the task would have used is unknown. The rule distinguishes them by OOM kills and
//! memory pressure.

use serde::{Deserialize, Serialize};

use super::words;

/// Added to the highest peak, in percent.
pub const HEADROOM_PERCENT: u64 = 20;
/// Added to a limit at which the task was OOM killed.
pub const OOM_PERCENT: u64 = 50;
/// Added to a limit that held the task back.
pub const PRESSURE_PERCENT: u64 = 25;
/// From this share of its limit on a peak is at its limit.
const AT_LIMIT_PERCENT: u64 = 98;
/// An OOM kill further below the limit was not caused by the limit.
const NEAR_LIMIT_PERCENT: u64 = 90;
/// Share of its time that a task stalled on memory, from which on its limit holds it back.
pub const MEMORY_STALL_RATIO: f64 = 0.01;
/// Share of its CPU periods that were throttled, from which on its quota holds it back.
pub const THROTTLED_RATIO: f64 = 0.05;
/// A change by less is none.
const LEAST_CHANGE_PERCENT: u64 = 10;
/// Nomad's least memory of a task.
const LEAST_BYTES: u64 = 10 << 20;

words! {
    /// Why that much memory is suggested.
    pub enum SizingReason {
        /// The highest peak and headroom.
        Peak = "peak",
        /// It was OOM killed at its limit.
        OomKilled = "oom_killed",
        /// It reached its limit and stalled on memory.
        Pressure = "pressure",
        /// It reached its limit without OOM kill or stall: page cache fills memory up to the limit.
        PageCache = "page_cache",
        /// It was OOM killed far below its limit: a parent cgroup or the host had no memory.
        OomElsewhere = "oom_elsewhere",
        /// No peak is known.
        Unmeasured = "unmeasured",
    }
}

/// What is known of the memory of a task, over all its runs. Absent is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemoryFacts {
    pub peak_bytes: Option<u64>,
    /// `memory` of its job: what it is sure to get.
    pub request_bytes: Option<u64>,
    /// What is enforced.
    pub limit_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
    /// Share of its time that some of its processes stalled on memory.
    pub stall_ratio: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MemoryAdvice {
    /// Null if no peak is known.
    pub bytes: Option<u64>,
    pub reason: SizingReason,
    /// It concerns `memory_max`, which is above `memory`.
    pub is_of_max: bool,
}

/// What `memory` should be.
pub fn memory(facts: &MemoryFacts) -> MemoryAdvice {
    let MemoryFacts { peak_bytes, request_bytes, limit_bytes, oom_kills, stall_ratio } = *facts;
    // No process runs without memory: it was charged to another cgroup, or ended before it was charged.
    let peak_bytes = peak_bytes.filter(|peak| *peak > 0);
    let advice = |bytes: u64, reason, is_of_max| MemoryAdvice { bytes: Some(bytes), reason, is_of_max };
    let was_killed = oom_kills.is_some_and(|kills| kills > 0);
    let stalls = stall_ratio.is_some_and(|ratio| ratio >= MEMORY_STALL_RATIO);
    // Another limit than the request: `memory_max`.
    let has_max = limit_bytes.zip(request_bytes).is_some_and(|(limit, request)| limit > request);
    let at = |percent: u64| limit_bytes.zip(peak_bytes).is_some_and(|(limit, peak)| peak >= share(limit, percent));
    match (limit_bytes, peak_bytes) {
        (Some(limit), None) if was_killed => {
            advice(round_up(more(limit, OOM_PERCENT)), SizingReason::OomKilled, has_max)
        }
        (_, None) => MemoryAdvice { bytes: None, reason: SizingReason::Unmeasured, is_of_max: false },
        (Some(limit), Some(_)) if was_killed && at(NEAR_LIMIT_PERCENT) => {
            advice(round_up(more(limit, OOM_PERCENT)), SizingReason::OomKilled, has_max)
        }
        (Some(limit), Some(_)) if at(AT_LIMIT_PERCENT) && stalls => {
            advice(round_up(more(limit, PRESSURE_PERCENT)), SizingReason::Pressure, has_max)
        }
        (Some(limit), Some(_)) if at(AT_LIMIT_PERCENT) => {
            advice(request_bytes.unwrap_or(limit), SizingReason::PageCache, false)
        }
        (_, Some(peak)) => {
            let enough = round_up(more(peak, HEADROOM_PERCENT)).max(LEAST_BYTES);
            let enough = limit_bytes.filter(|_| has_max).map_or(enough, |max| enough.min(max));
            match request_bytes {
                // The host or a parent had no memory: less for this task does not help it.
                Some(request) if was_killed => advice(enough.max(request), SizingReason::OomElsewhere, false),
                Some(request) if is_near(enough, request) => advice(request, SizingReason::Peak, false),
                Some(_) => advice(enough, SizingReason::Peak, false),
                None if was_killed => advice(round_up(more(peak, OOM_PERCENT)), SizingReason::OomKilled, false),
                None => advice(enough, SizingReason::Peak, false),
            }
        }
    }
}

/// The CPU quota, in cores, that a task should have: more where its quota throttled it. `None`: nothing is suggested.
pub fn cpu_quota(limit_cores: Option<f64>, throttled_ratio: Option<f64>) -> Option<f64> {
    let (limit, throttled) = limit_cores.zip(throttled_ratio)?;
    let factor = match throttled {
        ratio if ratio >= 0.25 => 1.5,
        ratio if ratio >= THROTTLED_RATIO => 1.25,
        _ => return None,
    };
    Some((limit * factor * 10.0).ceil() / 10.0)
}

fn share(bytes: u64, percent: u64) -> u64 {
    bytes / 100 * percent + bytes % 100 * percent / 100
}

fn more(bytes: u64, percent: u64) -> u64 {
    bytes.saturating_add(share(bytes, percent))
}

fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) < share(other, LEAST_CHANGE_PERCENT)
}

/// To a MiB, and above 128 MiB to 16.
fn round_up(bytes: u64) -> u64 {
    let step: u64 = if bytes <= 128 << 20 { 1 << 20 } else { 16 << 20 };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Promise (Devices): Suggested memory follows peak, OOM kills and stalls by the documented rule
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn facts(peak: u64, request: u64) -> MemoryFacts {
        MemoryFacts {
            peak_bytes: Some(peak * MIB),
            request_bytes: Some(request * MIB),
            limit_bytes: Some(request * MIB),
            oom_kills: Some(0),
            stall_ratio: Some(0.0),
        }
    }
    fn shown_as(facts: &MemoryFacts) -> (Option<u64>, &'static str, bool) {
        let advice = memory(facts);
        (advice.bytes.map(|bytes| bytes / MIB), advice.reason.as_str(), advice.is_of_max)
    }

    #[test]
    fn memory_follows_the_peak_with_headroom_in_round_numbers() {
        assert_eq!(shown_as(&facts(50, 300)), (Some(60), "peak", false));
        assert_eq!(shown_as(&facts(1_000, 4_096)), (Some(1_200), "peak", false));
        assert_eq!(shown_as(&facts(1_001, 4_096)), (Some(1_216), "peak", false));
        assert_eq!(shown_as(&facts(1, 300)), (Some(10), "peak", false), "Nomad's least");
        assert_eq!(shown_as(&facts(83, 100)), (Some(100), "peak", false), "a change of 0 % is none");
        assert_eq!(shown_as(&facts(90, 100)), (Some(100), "peak", false), "nor is one below 10 %");
        assert_eq!(shown_as(&facts(95, 100)), (Some(114), "peak", false));
    }

    #[test]
    fn oom_kills_and_stalls_at_the_limit_raise_it_and_page_cache_does_not() {
        let full = facts(64, 64);
        assert_eq!(shown_as(&full), (Some(64), "page_cache", false));
        assert_eq!(shown_as(&MemoryFacts { stall_ratio: Some(0.02), ..full }), (Some(80), "pressure", false));
        assert_eq!(shown_as(&MemoryFacts { oom_kills: Some(1), ..full }), (Some(96), "oom_killed", false));
        assert_eq!(
            shown_as(&MemoryFacts { oom_kills: Some(1), peak_bytes: None, ..full }),
            (Some(96), "oom_killed", false)
        );
        let elsewhere = MemoryFacts { oom_kills: Some(1), ..facts(10, 64) };
        assert_eq!(
            shown_as(&elsewhere),
            (Some(64), "oom_elsewhere", false),
            "not its own limit: it is not made smaller"
        );
    }

    #[test]
    fn memory_max_is_raised_where_it_is_the_limit_and_bounds_what_is_suggested() {
        let of = |peak: u64, kills: u64| MemoryFacts {
            limit_bytes: Some(256 * MIB),
            oom_kills: Some(kills),
            ..facts(peak, 64)
        };
        assert_eq!(shown_as(&of(256, 2)), (Some(384), "oom_killed", true));
        assert_eq!(shown_as(&of(240, 0)), (Some(256), "peak", false), "its limit is enough");
        assert_eq!(shown_as(&of(100, 0)), (Some(120), "peak", false));
    }

    #[test]
    fn sizing_of_unmeasured_facts_has_no_number() {
        assert_eq!(shown_as(&MemoryFacts::default()), (None, "unmeasured", false));
        assert_eq!(shown_as(&facts(0, 1_024)), (None, "unmeasured", false), "no process runs without memory");
        let unlimited = MemoryFacts { peak_bytes: Some(50 * MIB), ..MemoryFacts::default() };
        assert_eq!(shown_as(&unlimited), (Some(60), "peak", false), "an unknown number of kills is no kill");
        assert_eq!(cpu_quota(None, Some(0.9)), None);
        assert_eq!(cpu_quota(Some(1.0), None), None);
    }

    #[test]
    fn a_throttled_task_gets_a_larger_quota() {
        assert_eq!(cpu_quota(Some(1.0), Some(0.04)), None);
        assert_eq!(cpu_quota(Some(1.0), Some(0.05)), Some(1.3));
        assert_eq!(cpu_quota(Some(2.0), Some(0.5)), Some(3.0));
    }

    proptest! {
        #[test]
        fn any_facts_give_advice_and_without_a_limit_never_less_than_the_peak(
            peak in prop::option::of(0..1_u64 << 60), request in prop::option::of(0..1_u64 << 60),
            limit in prop::option::of(any::<u64>()), oom_kills in prop::option::of(0_u64..3),
            stall in prop::option::of(0.0..1.0_f64),
        ) {
            let of = |limit| memory(&MemoryFacts {
                peak_bytes: peak, request_bytes: request, limit_bytes: limit, oom_kills, stall_ratio: stall,
            });
            prop_assert_eq!(of(limit).bytes.is_none(), of(limit).reason == SizingReason::Unmeasured);
            prop_assert!(of(None).bytes >= peak);
        }
    }
}
