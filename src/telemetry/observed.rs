//! Counts of observed allocs.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::registered::{counters, gauges};
use crate::model::alloc::AllocSource;
use crate::model::metric::{MetricDesc, families};
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static OBSERVED_ALLOCS: MetricDesc = MetricDesc::gauge(
    "allostat_observed_allocs",
    Unit::None,
    "Observed allocs that have not ended, by source.",
    &["source"],
)
.from_source("cgroup tree")
.absent_when("observation is off (observe.enabled)")
.otlp("allostat.observed.allocs", "{alloc}");

pub static OBSERVED_LEFT_OUT: MetricDesc = MetricDesc::gauge(
    "allostat_observed_left_out",
    Unit::None,
    "Observed cgroups not exposed (limit), or with parents that are not (parents); exclusions are not counted.",
    &["reason"],
)
.from_source("cgroup tree")
.absent_when("observation is off (observe.enabled)")
.otlp("allostat.observed.left_out", "{cgroup}");

pub static OBSERVED_ENDS: MetricDesc = MetricDesc::counter(
    "allostat_observed_ends_total",
    Unit::None,
    "Ended observed tasks by last sample: final (after their last process), or sampled (earlier).",
    &["reading"],
)
.from_source("cgroup tree")
.absent_when("observation is off (observe.enabled)")
.otlp("allostat.observed.ends", "{task}");

pub static OBSERVED_ENDS_MISSED: MetricDesc = MetricDesc::counter(
    "allostat_observed_ends_missed_total",
    Unit::None,
    "Removed observed cgroups without a record, by reason (lost, unseen, limit, name).",
    &["reason"],
)
.from_source("kernel tracepoints, else the cgroup tree")
.absent_when("observation is off (observe.enabled)")
.otlp("allostat.observed.ends.missed", "{cgroup}");

pub static OBSERVED_TEXTS_CHANGED: MetricDesc = MetricDesc::counter(
    "allostat_observed_texts_changed_total",
    Unit::None,
    "Names and labels of observed allocs that were shortened (length), cleaned (characters) or omitted (budget).",
    &["reason"],
)
.from_source("paths of cgroups, runtimes, environments")
.absent_when("observation is off (observe.enabled)")
.otlp("allostat.observed.texts.changed", "{text}");
}

words! {
    /// Why an end is not recorded.
    pub enum EndMissed {
        /// The kernel had no room to report it.
        Lost = "lost",
        /// It was made and removed between two scans, where the kernel reports no ends.
        Unseen = "unseen",
        /// As many are shown, or wait for their name, as may be.
        Limit = "limit",
        /// Its path is longer than the kernel reports.
        Unnamed = "name",
    }
}

/// Its series are absent before the first scan.
pub struct ObservedMetrics {
    registry: Registry,
    counts: OnceLock<ObservedFamilies>,
}

struct ObservedFamilies {
    allocs: IntGaugeVec,
    left_out: IntGaugeVec,
    ends: IntCounterVec,
    missed: IntCounterVec,
    texts: IntCounterVec,
}

impl ObservedMetrics {
    pub(super) fn new(registry: &Registry) -> ObservedMetrics {
        ObservedMetrics { registry: registry.clone(), counts: OnceLock::new() }
    }

    /// What is there, by who runs it; how much of it is not shown since there is too much, and for its names.
    pub fn there_are(&self, by_source: &BTreeMap<AllocSource, u64>, over_limit: u64, without_parents: u64) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let ObservedFamilies { allocs, left_out, .. } = self.counts();
        for source in AllocSource::ALL.into_iter().filter(|source| *source != AllocSource::Managed) {
            let n = by_source.get(&source).copied().unwrap_or(0);
            allocs.with_label_values(&[source.as_str()]).set(number(n));
        }
        for (reason, n) in [("limit", over_limit), ("parents", without_parents)] {
            left_out.with_label_values(&[reason]).set(number(n));
        }
    }

    /// `is_final`: its last reading came after its last process had gone.
    pub fn ended(&self, is_final: bool) {
        let reading = if is_final { "final" } else { "sampled" };
        self.counts().ends.with_label_values(&[reading]).inc();
    }

    pub fn missed(&self, why: EndMissed, cgroups: u64) {
        self.counts().missed.with_label_values(&[why.as_str()]).inc_by(cgroups);
    }

    /// What of names and labels was changed since.
    pub fn texts(&self, length: u64, characters: u64, budget: u64) {
        let texts = &self.counts().texts;
        for (reason, n) in [("length", length), ("characters", characters), ("budget", budget)] {
            texts.with_label_values(&[reason]).inc_by(n);
        }
    }

    fn counts(&self) -> &ObservedFamilies {
        self.counts.get_or_init(|| {
            let ends = counters(&self.registry, &OBSERVED_ENDS);
            ["final", "sampled"].iter().for_each(|reading| ends.with_label_values(&[*reading]).inc_by(0));
            let missed = counters(&self.registry, &OBSERVED_ENDS_MISSED);
            EndMissed::ALL.iter().for_each(|why| missed.with_label_values(&[why.as_str()]).inc_by(0));
            let (allocs, left_out) =
                (gauges(&self.registry, &OBSERVED_ALLOCS), gauges(&self.registry, &OBSERVED_LEFT_OUT));
            let texts = counters(&self.registry, &OBSERVED_TEXTS_CHANGED);
            ["length", "characters", "budget"].iter().for_each(|reason| texts.with_label_values(&[*reason]).inc_by(0));
            ObservedFamilies { allocs, left_out, ends, missed, texts }
        })
    }
}
