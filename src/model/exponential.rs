//! How observations are spread over buckets whose bounds grow by one factor: Prometheus's native histograms, OTLP's exponential ones.
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
    /// In order of their numbers.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.buckets.iter().map(|(number, count)| (*number, *count))
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
        #[test]
        fn nothing_is_lost(values in prop::collection::vec(prop::num::f64::POSITIVE | prop::num::f64::ZERO, 0..400)) {
            let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
            let all = of(&finite);
            let count = all.zeros() + all.buckets().map(|(_, n)| n).sum::<u64>();
            prop_assert_eq!(count, finite.len() as u64);
            prop_assert!(all.buckets().count() <= MOST);
        }
    }
}
