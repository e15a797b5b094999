//! How long tasks take to start and to die: histograms by workload, whose buckets remember the alloc that was seen
//! last.
//!
//! They begin with the agent's process, as the histograms of the registry do: `rate()` takes that for the reset that it
//! is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::panics::lock;
use crate::model::exponential::Exponential;
use crate::model::id::{AllocId, JobId};
use crate::model::metric::{Exemplar, Value};
use crate::model::units::{Nanos, Timestamp};
use crate::model::words;

/// Upper bounds of the buckets of starts and their phases: 5 ms to 5 min.
pub const STARTS: [f64; BOUNDS] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];
/// Of kills: around the kill timeouts that people set.
pub const KILLS: [f64; BOUNDS] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];
const BOUNDS: usize = 9;

words! {
    /// A part of a start.
    pub enum StartPhase {
        /// The task's hooks: directories, environment ...
        Prestart = "prestart",
        /// The durable record of what is about to run.
        Setup = "setup",
        /// The driver: until the main process runs.
        Driver = "driver",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    pub bounds: &'static [f64],
    /// Not cumulative; the last is of what lies above all bounds.
    pub buckets: Box<[HistogramBucket]>,
    pub sum: Nanos,
    /// The same observations, in seconds.
    pub exponential: Arc<Exponential>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramBucket {
    pub count: u64,
    pub latest: Option<Box<Exemplar>>,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Histogram {
        let buckets = std::iter::repeat_n(HistogramBucket::default(), bounds.len() + 1).collect();
        Histogram { bounds, buckets, sum: Nanos::ZERO, exponential: Arc::default() }
    }
    /// `subject`: where it is an alloc's.
    pub(super) fn observe(&mut self, took: Duration, subject: Option<(&AllocId, Timestamp)>) {
        let seconds = took.as_secs_f64();
        let bucket = &mut self.buckets[self.bounds.partition_point(|bound| *bound < seconds)];
        let took = Nanos::from_duration(took);
        bucket.count += 1;
        if let Some((alloc_id, at)) = subject {
            let seen = Exemplar { alloc_id: alloc_id.clone(), event_id: None, value: Value::Nanos(took.0), at };
            let mut latest = bucket.latest.take().map(|l| *l);
            seen.replace(&mut latest);
            bucket.latest = latest.map(Box::new);
        }
        Arc::make_mut(&mut self.exponential).observe(seconds);
        self.sum = self.sum.saturating_add(took);
    }
}

/// Of one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    pub starts: Histogram,
    pub kills: Histogram,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { starts: Histogram::new(&STARTS), kills: Histogram::new(&KILLS) }
    }
}

/// Concurrency: any thread; a short lock at each start and each end of a task that was killed.
#[derive(Debug, Default)]
pub struct ByWorkload(Mutex<BTreeMap<JobId, Arc<Durations>>>);

impl ByWorkload {
    /// It was submitted or restored: its series are there from now on, at 0.
    pub fn known(&self, workload: &JobId) {
        lock(&self.0).entry(workload.clone()).or_default();
    }
    /// Its totals went into the node's: its series go too.
    pub fn retired(&self, workload: &JobId) {
        lock(&self.0).remove(workload);
    }
    fn change(&self, workload: &JobId, change: impl FnOnce(&mut Durations)) {
        change(Arc::make_mut(lock(&self.0).entry(workload.clone()).or_default()));
    }
    /// An attempt runs.
    pub fn started(&self, workload: &JobId, alloc_id: &AllocId, took: Duration, at: Timestamp) {
        self.change(workload, |of| of.starts.observe(took, Some((alloc_id, at))));
    }
    /// From a kill being asked for to the process tree gone.
    pub fn killed(&self, workload: &JobId, alloc_id: &AllocId, took: Duration, at: Timestamp) {
        self.change(workload, |of| of.kills.observe(took, Some((alloc_id, at))));
    }
    /// As they stand, in order of name.
    pub fn all(&self) -> Vec<(JobId, Arc<Durations>)> {
        lock(&self.0).iter().map(|(workload, of)| (workload.clone(), Arc::clone(of))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_falls_into_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::new(&KILLS);
        for millis in [10, 11, 299_000, 300_000, 300_001] {
            histogram.observe(Duration::from_millis(millis), Some((&"a".into(), Timestamp(1))));
        }
        assert_eq!(histogram.buckets.iter().map(|b| b.count).collect::<Vec<_>>(), [1, 1, 0, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(histogram.sum, Nanos(899_022 * 1_000_000));
        assert_eq!(histogram.exponential.buckets().map(|(_, n)| n).sum::<u64>(), 5);
    }

    #[test]
    fn a_bucket_shows_the_latest_alloc_and_no_earlier_one_after_it() {
        let by = ByWorkload::default();
        let job = JobId::from("j");
        for (alloc, at) in [("a", 5), ("b", 7), ("c", 6)] {
            by.killed(&job, &alloc.into(), Duration::from_millis(700), Timestamp(at));
        }
        let (_, of) = by.all().pop().unwrap();
        let latest = of.kills.buckets[3].latest.as_ref().unwrap();
        assert_eq!((latest.alloc_id.as_str(), latest.at, latest.value), ("b", Timestamp(7), Value::Nanos(700_000_000)));
        assert_eq!(of.kills.buckets[3].count, 3);
        assert!(of.kills.buckets[2].latest.is_none());
    }

    #[test]
    fn workload_durations_start_at_zero_and_are_removed_on_retirement() {
        let by = ByWorkload::default();
        by.known(&"j".into());
        assert_eq!(*by.all()[0].1, Durations::default());
        by.retired(&"j".into());
        assert!(by.all().is_empty());
    }
}
