//! Curves of one task: a point at each time, the oldest first. Pure.

use std::collections::VecDeque;

use crate::model::units::{Nanos, Timestamp};

/// So many points that `top` read itself are remembered: one a look.
const REMEMBERED: usize = 240;

/// `None`: there was no value at that time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curves {
    pub times: VecDeque<Timestamp>,
    pub cpu_cores: VecDeque<Option<f64>>,
    pub memory: VecDeque<Option<f64>>,
    pub io: VecDeque<Option<f64>>,
}

impl Curves {
    /// Adds a point: cores, bytes, bytes a second. The oldest one makes room for it.
    pub fn remember(&mut self, at: Timestamp, point: [Option<f64>; 3]) {
        if self.times.len() == REMEMBERED {
            self.times.pop_front();
            for curve in self.each() {
                curve.pop_front();
            }
        }
        self.push(at, point);
    }

    pub fn push(&mut self, at: Timestamp, point: [Option<f64>; 3]) {
        self.times.push_back(at);
        for (curve, value) in self.each().into_iter().zip(point) {
            curve.push_back(value);
        }
    }

    /// Between the first and the last point.
    pub fn span(&self) -> Nanos {
        let ends = self.times.front().zip(self.times.back());
        ends.map_or(Nanos(0), |(first, last)| last.since(*first))
    }

    fn each(&mut self) -> [&mut VecDeque<Option<f64>>; 3] {
        [&mut self.cpu_cores, &mut self.memory, &mut self.io]
    }
}

/// What a task reads and writes together. `None`: neither is known.
pub fn both(read: Option<f64>, written: Option<f64>) -> Option<f64> {
    match (read, written) {
        (Some(read), Some(written)) => Some(read + written),
        (read, written) => read.or(written),
    }
}

/// As many points as there are columns, at most: each is the highest of those that it stands for.
pub fn in_columns(values: &VecDeque<Option<f64>>, columns: usize) -> Vec<Option<f64>> {
    let points = values.len();
    if points <= columns {
        return values.iter().copied().collect();
    }
    let highest = |column: usize| {
        let (from, to) = (column * points / columns, (column + 1) * points / columns);
        values.range(from..to).flatten().copied().reduce(f64::max)
    };
    (0..columns).map(highest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_columns_retain_each_peak_and_the_newest_point() {
        let values: VecDeque<Option<f64>> = (0..10).map(|n| (n != 4 && n != 5).then(|| f64::from(n % 7))).collect();
        assert_eq!(in_columns(&values, 10), Vec::from(values.clone()));
        assert_eq!(in_columns(&values, 5), [Some(1.0), Some(3.0), None, Some(6.0), Some(2.0)]);
        assert_eq!(in_columns(&values, 3), [Some(2.0), Some(3.0), Some(6.0)]);
        assert_eq!(in_columns(&values, 0), []);
    }

    #[test]
    fn oldest_curve_point_is_dropped_and_all_curves_have_equal_length() {
        let mut curves = Curves::default();
        assert_eq!(curves.span(), Nanos(0));
        let most = u64::try_from(REMEMBERED).unwrap();
        for second in 0..most + 5 {
            curves.remember(Timestamp(second * 1_000_000_000), [Some(1.0), None, both(None, Some(2.0))]);
        }
        let lengths = [curves.times.len(), curves.cpu_cores.len(), curves.memory.len(), curves.io.len()];
        assert_eq!(lengths, [REMEMBERED; 4]);
        assert_eq!(curves.times[0], Timestamp(5_000_000_000));
        assert_eq!(curves.span(), Nanos((most - 1) * 1_000_000_000));
        assert_eq!((both(Some(1.0), Some(2.0)), both(None, None)), (Some(3.0), None));
    }
}
