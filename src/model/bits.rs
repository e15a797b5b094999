//! A set of small numbers with one bit each, in as many words as the highest number needs.

/// `WORDS`: [`words`] of how many numbers there are, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits<const WORDS: usize>([u64; WORDS]);

/// Words for this many numbers.
pub const fn words(numbers: usize) -> usize {
    numbers.div_ceil(64)
}

impl<const WORDS: usize> Bits<WORDS> {
    pub const NONE: Bits<WORDS> = Bits([0; WORDS]);

    pub const fn has(&self, number: usize) -> bool {
        self.0[number / 64] & (1 << (number % 64)) != 0
    }
    #[must_use]
    pub const fn with(mut self, number: usize) -> Bits<WORDS> {
        self.0[number / 64] |= 1 << (number % 64);
        self
    }
    #[must_use]
    pub const fn without(mut self, number: usize) -> Bits<WORDS> {
        self.0[number / 64] &= !(1 << (number % 64));
        self
    }
    /// What is in one or both.
    #[must_use]
    pub const fn or(mut self, other: Bits<WORDS>) -> Bits<WORDS> {
        let mut at = 0;
        while at < WORDS {
            self.0[at] |= other.0[at];
            at += 1;
        }
        self
    }
    /// What is in both.
    #[must_use]
    pub const fn and(mut self, other: Bits<WORDS>) -> Bits<WORDS> {
        let mut at = 0;
        while at < WORDS {
            self.0[at] &= other.0[at];
            at += 1;
        }
        self
    }
    /// What the other one lacks.
    #[must_use]
    pub const fn minus(mut self, other: Bits<WORDS>) -> Bits<WORDS> {
        let mut at = 0;
        while at < WORDS {
            self.0[at] &= !other.0[at];
            at += 1;
        }
        self
    }
    pub const fn is_empty(&self) -> bool {
        let mut at = 0;
        while at < WORDS {
            if self.0[at] != 0 {
                return false;
            }
            at += 1;
        }
        true
    }
    /// In rising order.
    pub fn each(self) -> impl Iterator<Item = usize> {
        let (mut left, mut at) = (self.0, 0);
        std::iter::from_fn(move || {
            while at < WORDS {
                let bits = left[at];
                if bits != 0 {
                    left[at] = bits & (bits - 1);
                    return Some(at * 64 + bits.trailing_zeros() as usize);
                }
                at += 1;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    type Three = Bits<{ words(130) }>;

    fn of(numbers: &BTreeSet<usize>) -> Three {
        numbers.iter().fold(Three::NONE, |bits, number| bits.with(*number))
    }

    #[test]
    fn words_are_as_many_as_the_numbers_need() {
        assert_eq!([0, 1, 64, 65, 128, 129].map(words), [0, 1, 1, 2, 2, 3]);
        assert_eq!(size_of::<Bits<1>>(), 8);
    }

    proptest! {
        #[test]
        fn bits_are_a_set_over_all_words(
            a in prop::collection::btree_set(0..130_usize, 0..130),
            b in prop::collection::btree_set(0..130_usize, 0..130),
            n in 0..130_usize,
        ) {
            let (x, y) = (of(&a), of(&b));
            let numbers = |bits: Three| bits.each().collect::<Vec<_>>();
            prop_assert_eq!(numbers(x), a.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(x.or(y)), a.union(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(x.and(y)), a.intersection(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(x.minus(y)), a.difference(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!((x.has(n), x.is_empty()), (a.contains(&n), a.is_empty()));
            prop_assert!(x.with(n).has(n) && !x.without(n).has(n));
            prop_assert_eq!(x.with(n).without(n), x.without(n));
        }
    }
}
