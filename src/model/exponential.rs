//! How observations are spread over buckets whose bounds grow by one factor: Prometheus's native histograms, OTLP's
//! exponential ones.
//!
//! ```text
//! schema 3: bounds are powers of 2^(1/8), so that a bucket is 9% wide
//!   ..., (0.917, 1], (1, 1.091], (1.091, 1.189], ...
//!           0           1              2             its number: it holds what is at most 2^(number / 8)
//! ```
//! Source: Prometheus, "Native Histograms" (schemas, zero bucket); OpenTelemetry data model, "ExponentialHistogram".

use std::collections::BTreeMap;

/// The finest that is begun with.
const FINEST: i32 = 3;
/// With more buckets than these, each two of them become one.
const MOST: usize = 160;

/// Shape: at most 160 buckets; only those that hold something are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exponential {
    schema: i32,
    zeros: u64,
    buckets: BTreeMap<i32, u64>,
}

impl Default for Exponential {
    fn default() -> Exponential {
        Exponential { schema: FINEST, zeros: 0, buckets: BTreeMap::new() }
    }
}

impl Exponential {
    /// What is not above this counts as 0. Units: those of what is observed.
    pub const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

    pub fn observe(&mut self, value: f64) {
        if value <= Exponential::ZERO_THRESHOLD {
            self.zeros += 1;
            return;
        }
        *self.buckets.entry(number(value, self.schema)).or_default() += 1;
        while self.buckets.len() > MOST {
            self.coarsen();
        }
    }

    /// Twice as wide: what was numbers 2n - 1 and 2n is n.
    fn coarsen(&mut self) {
        self.schema -= 1;
        let mut wider: BTreeMap<i32, u64> = BTreeMap::new();
        for (number, count) in std::mem::take(&mut self.buckets) {
            *wider.entry((number + 1) >> 1).or_default() += count;
        }
        self.buckets = wider;
    }

    pub fn schema(&self) -> i32 {
        self.schema
    }
    pub fn zeros(&self) -> u64 {
        self.zeros
    }
    /// At most 160 buckets, with those that are empty: as wide as that takes.
    pub fn dense(&self) -> DenseBuckets {
        let mut all = self.clone();
        let stretch = |all: &Exponential| {
            let (first, last) = (*all.buckets.first_key_value()?.0, *all.buckets.last_key_value()?.0);
            usize::try_from(last - first).ok().map(|more| (first, more + 1))
        };
        while stretch(&all).is_some_and(|(_, length)| length > MOST) {
            all.coarsen();
        }
        let (first, length) = stretch(&all).unwrap_or((1, 0));
        let counts = (first..).take(length).map(|number| all.buckets.get(&number).copied().unwrap_or(0)).collect();
        DenseBuckets { scale: all.schema, zeros: all.zeros, offset: first - 1, counts }
    }
    /// In order of their numbers.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.buckets.iter().map(|(number, count)| (*number, *count))
    }
}

/// All buckets of a stretch, the empty ones as well: OTLP's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseBuckets {
    pub scale: i32,
    pub zeros: u64,
    /// Which the first one is: bucket `i` holds what is above `2^(i / 2^scale)` and at most `2^((i + 1) / 2^scale)`.
    pub offset: i32,
    pub counts: Vec<u64>,
}

impl DenseBuckets {
    /// Observations.
    pub fn count(&self) -> u64 {
        self.zeros + self.counts.iter().sum::<u64>()
    }

    /// What came since `before`, in the wider of both scales. `None`: these are not the same observations and more.
    pub fn since(&self, before: &DenseBuckets) -> Option<DenseBuckets> {
        let before = before.at_scale(self.scale)?;
        let mut more = self.clone();
        more.zeros = more.zeros.checked_sub(before.zeros)?;
        for (at, count) in (before.offset..).zip(&before.counts).filter(|(_, count)| **count > 0) {
            let own = more.counts.get_mut(usize::try_from(at - self.offset).ok()?)?;
            *own = own.checked_sub(*count)?;
        }
        Some(more)
    }

    /// `None`: it is not as fine.
    fn at_scale(&self, scale: i32) -> Option<DenseBuckets> {
        let shift = u32::try_from(self.scale - scale).ok()?;
        let mut wider = DenseBuckets { scale, offset: self.offset >> shift, counts: Vec::new(), ..*self };
        for (at, count) in (self.offset..).zip(&self.counts) {
            let place = usize::try_from((at >> shift) - wider.offset).ok()?;
            wider.counts.resize(wider.counts.len().max(place + 1), 0);
            wider.counts[place] += count;
        }
        Some(wider)
    }
}

/// The bucket that holds it. What is computed is off by one at most, next to a bound.
#[allow(clippy::cast_possible_truncation, reason = "an f64 has exponents of some thousand")]
fn number(value: f64, schema: i32) -> i32 {
    let per_doubling = 2_f64.powi(schema);
    let upper = |number: i32| (f64::from(number) / per_doubling).exp2();
    let near = (value.log2() * per_doubling).ceil() as i32;
    (near - 1..=near + 1).find(|number| value <= upper(*number)).unwrap_or(near + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[f64]) -> Exponential {
        let mut all = Exponential::default();
        values.iter().for_each(|value| all.observe(*value));
        all
    }

    #[test]
    fn a_bucket_holds_its_upper_bound_and_not_its_lower() {
        assert_eq!(of(&[1.0, 0.95]).buckets().collect::<Vec<_>>(), [(0, 2)]);
        assert_eq!(of(&[1.01, 2.0, 4.0, 4.001]).buckets().collect::<Vec<_>>(), [(1, 1), (8, 1), (16, 1), (17, 1)]);
        assert_eq!(of(&[0.5, 0.25]).buckets().collect::<Vec<_>>(), [(-16, 1), (-8, 1)]);
        assert_eq!((of(&[0.0, 1.0]).zeros(), of(&[0.0]).buckets().count()), (1, 0));
    }

    #[test]
    fn with_too_many_buckets_each_two_become_one() {
        let mut all = Exponential::default();
        for exponent in 0..200 {
            all.observe((f64::from(exponent) / 8.0).exp2());
        }
        assert_eq!((all.schema(), all.buckets().map(|(_, n)| n).sum::<u64>()), (2, 200));
        assert_eq!(all.buckets().collect::<Vec<_>>()[..3], [(0, 1), (1, 2), (2, 2)]);
    }

    proptest! {
        #[test]
        fn each_observation_lies_within_its_bucket(nanos in 1_u64..100_000_000_000_000) {
            #[allow(clippy::cast_precision_loss)]
            let value = nanos as f64 / 1e9;
            let (number, count) = of(&[value]).buckets().next().unwrap();
            let upper = |number: i32| (f64::from(number) / 8.0).exp2();
            prop_assert!(count == 1 && value <= upper(number) && value > upper(number - 1), "{} in {}", value, number);
        }
        /// However fine the earlier ones were: what came since is what was observed since.
        #[test]
        fn exponential_histogram_delta_counts_observations_since_the_earlier_one(
            first in prop::collection::vec(1e-9_f64..1e6, 0..200),
            then in prop::collection::vec(1e-12_f64..1e12, 0..200),
        ) {
            let mut all = of(&first);
            let before = all.dense();
            prop_assert!(before.counts.len() <= MOST);
            then.iter().for_each(|value| all.observe(*value));
            let after = all.dense();
            let more = after.since(&before).unwrap();
            prop_assert_eq!(more.count(), then.len() as u64);
            for (at, count) in (more.offset..).zip(&more.counts) {
                let bound = |at: i32| (f64::from(at) / 2_f64.powi(more.scale)).exp2();
                let held = then.iter().filter(|v| **v > bound(at) && **v <= bound(at + 1)).count();
                prop_assert_eq!(held as u64, *count);
            }
            prop_assert_eq!(before.since(&after).is_none(), !then.is_empty());
        }
        #[test]
        fn exponential_histogram_counts_every_finite_value(
            values in prop::collection::vec(prop::num::f64::POSITIVE | prop::num::f64::ZERO, 0..400),
        ) {
            let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
            let all = of(&finite);
            let count = all.zeros() + all.buckets().map(|(_, n)| n).sum::<u64>();
            prop_assert_eq!(count, finite.len() as u64);
            prop_assert!(all.buckets().count() <= MOST);
        }
    }
}
