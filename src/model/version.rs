//! Versions as drivers and firmware have them, and what is asked of one: `>= 535.104, < 600`.
//!
//! A version is numbers with dots between them, perhaps after a `v`; what is not written is 0. Words behind a version (`-rc1`) have
//! an order that every maker sees differently: such a version is none here.

use std::cmp::Ordering;

/// Compared number by number.
#[derive(Debug, Clone)]
pub struct DottedVersion(Vec<u64>);

/// Each of its terms must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionRange(Vec<(Term, DottedVersion)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `~> 1.2.3`: at least that, and less than 1.3.
    About,
}

/// The longer ones first: `>=` begins with `>`.
const TERMS: [(&str, Term); 7] = [
    (">=", Term::GreaterOrEqual),
    ("<=", Term::LessOrEqual),
    ("!=", Term::NotEqual),
    ("~>", Term::About),
    (">", Term::Greater),
    ("<", Term::Less),
    ("=", Term::Equal),
];

impl DottedVersion {
    /// `None`: it is none.
    pub fn parse(text: &str) -> Option<DottedVersion> {
        let text = text.trim();
        let numbers = text.strip_prefix('v').unwrap_or(text).split('.');
        let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
        numbers.map(number).collect::<Option<Vec<u64>>>().map(DottedVersion)
    }
    fn number(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }
    /// The first that `~>` does not take any more: of `1.2.3` it is `1.3`, of `1.2` it is `2`.
    fn next(&self) -> DottedVersion {
        let mut numbers = self.0.clone();
        if numbers.len() > 1 {
            numbers.pop();
        }
        if let Some(last) = numbers.last_mut() {
            *last = last.saturating_add(1);
        }
        DottedVersion(numbers)
    }
}

impl PartialEq for DottedVersion {
    fn eq(&self, other: &DottedVersion) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DottedVersion {}

impl PartialOrd for DottedVersion {
    fn partial_cmp(&self, other: &DottedVersion) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DottedVersion {
    fn cmp(&self, other: &DottedVersion) -> Ordering {
        let numbers = 0..self.0.len().max(other.0.len());
        numbers.map(|at| self.number(at).cmp(&other.number(at))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl VersionRange {
    /// `>= 1.2, < 2`; without a sign it is `=`. `None`: it is none.
    pub fn parse(text: &str) -> Option<VersionRange> {
        text.split(',').map(term).collect::<Option<Vec<_>>>().map(VersionRange)
    }
    pub fn holds(&self, version: &DottedVersion) -> bool {
        self.0.iter().all(|(term, bound)| match term {
            Term::Equal => version == bound,
            Term::NotEqual => version != bound,
            Term::Less => version < bound,
            Term::LessOrEqual => version <= bound,
            Term::Greater => version > bound,
            Term::GreaterOrEqual => version >= bound,
            Term::About => version >= bound && *version < bound.next(),
        })
    }
}

fn term(text: &str) -> Option<(Term, DottedVersion)> {
    let text = text.trim();
    let signed = TERMS.iter().find_map(|(sign, term)| Some((*term, text.strip_prefix(sign)?)));
    let (term, version) = signed.unwrap_or((Term::Equal, text));
    Some((term, DottedVersion::parse(version)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_held_against_each_term() {
        for (range, version, holds) in [
            (">= 535.104", "535.104.05", true),
            (">= 535.104.06", "535.104.05", false),
            (">= 1.2, < 2", "1.10", true),
            (">= 1.2, < 2", "2.0.0", false),
            ("1.2", "v1.2.0", true),
            ("= 1.2", "1.2.1", false),
            ("!= 1.2", "1.2.1", true),
            ("<= 1.2", "1.2", true),
            ("> 1.2", "1.2", false),
            ("~> 1.2.3", "1.2.9", true),
            ("~> 1.2.3", "1.3", false),
            ("~> 1.2", "1.9", true),
            ("~> 1.2", "2", false),
            ("~> 3", "3.7", true),
            ("~> 3", "4", false),
        ] {
            let (range, version) = (VersionRange::parse(range).unwrap(), DottedVersion::parse(version).unwrap());
            assert_eq!(range.holds(&version), holds, "{range:?} {version:?}");
        }
    }

    #[test]
    fn what_is_no_version_is_told_apart() {
        for text in ["", "1.", ".1", "1.2-rc1", "+1", "x", "1.99999999999999999999", ">= "] {
            assert!(DottedVersion::parse(text).is_none() && VersionRange::parse(text).is_none(), "{text}");
        }
        for text in [">= 1,", "=> 1", "~ 1", ">= 1 < 2"] {
            assert!(VersionRange::parse(text).is_none(), "{text}");
        }
    }
}
