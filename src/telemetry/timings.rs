//! How long the agent's own work takes: histograms by labels that are known before they are observed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::durations::Histogram;
use super::panics::lock;
use crate::model::metric::MetricDesc;

/// One family. Concurrency: any thread; a short lock at each observation.
#[derive(Debug)]
pub struct Timings {
    pub desc: &'static MetricDesc,
    /// Upper bounds of the buckets.
    pub bounds: &'static [f64],
    by_labels: Mutex<BTreeMap<Vec<String>, Histogram>>,
}

/// Label values, in the order of the descriptor, and what was observed with them.
pub type Timed = (Vec<String>, Histogram);

impl Timings {
    pub(super) fn new(desc: &'static MetricDesc, bounds: &'static [f64]) -> Timings {
        Timings { desc, bounds, by_labels: Mutex::default() }
    }
    /// Its series are there from now on, at 0.
    pub(super) fn known(&self, labels: &[&str]) {
        self.change(labels, |_| {});
    }
    pub(super) fn took(&self, labels: &[&str], took: Duration) {
        self.change(labels, |histogram| histogram.observe(took, None));
    }
    fn change(&self, labels: &[&str], change: impl FnOnce(&mut Histogram)) {
        debug_assert_eq!(labels.len(), self.desc.labels.len(), "{} must get one value for each label", self.desc.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        change(lock(&self.by_labels).entry(labels).or_insert_with(|| Histogram::new(self.bounds)));
    }
    /// As they stand, in order of their labels.
    pub fn all(&self) -> Vec<Timed> {
        lock(&self.by_labels).iter().map(|(labels, histogram)| (labels.clone(), histogram.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::HOOK_DURATION;
    use super::*;

    #[test]
    fn timings_with_known_labels_start_at_zero_and_count_observations() {
        let timings = Timings::new(&HOOK_DURATION, &[0.01, 1.0]);
        timings.known(&["task", "env", "prestart"]);
        timings.took(&["task", "logs", "prestart"], Duration::from_millis(20));
        let all = timings.all();
        let counts = |at: usize| all[at].1.buckets.iter().map(|bucket| bucket.count).collect::<Vec<_>>();
        assert_eq!((all[0].0[1].as_str(), counts(0)), ("env", vec![0, 0, 0]));
        assert_eq!((all[1].0[1].as_str(), counts(1)), ("logs", vec![0, 1, 0]));
        assert_eq!(all[1].1.exponential.buckets().map(|(_, n)| n).sum::<u64>(), 1);
    }
}
