//! Versions as kernels, drivers and firmware have them, and what is asked of one: `>= 535.104, < 600`.
//!
//! A version is numbers with dots between them, perhaps after a `v`; what is not written is 0. A pre-release follows
//! (`6.1.0-18-amd64`, `1.2-rc1`), build metadata after a `+` is ignored.

use std::cmp::Ordering;

/// Compared number by number; of equal numbers a pre-release is less.
#[derive(Debug, Clone)]
pub struct DottedVersion {
    numbers: Vec<u64>,
    pre_release: Option<String>,
}

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
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = match text.split_once('+') {
            Some((_, metadata)) if !is_identifiers(metadata) => return None,
            Some((version, _)) => version,
            None => text,
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let numbers: Vec<u64> = numbers.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let pre_release = match rest {
            "" => None,
            rest => Some(rest.strip_prefix('-').unwrap_or(rest)).filter(|pre| is_identifiers(pre)).map(str::to_owned),
        };
        (rest.is_empty() || pre_release.is_some()).then_some(DottedVersion { numbers, pre_release })
    }
    fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or(0)
    }
    fn by_numbers(&self, other: &DottedVersion) -> Ordering {
        let numbers = 0..self.numbers.len().max(other.numbers.len());
        numbers.map(|at| self.number(at).cmp(&other.number(at))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }
    /// Whether `~>` takes it, of one that is not less: all numbers but the last of the bound are the same.
    fn is_about(&self, bound: &DottedVersion) -> bool {
        (0..bound.numbers.len().saturating_sub(1)).all(|at| self.number(at) == bound.number(at))
    }
}

/// Letters, digits, `-` and `~`, with dots between.
fn is_identifiers(text: &str) -> bool {
    let is_one = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-~".contains(&b));
    text.split('.').all(is_one)
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
        self.by_numbers(other).then_with(|| match (&self.pre_release, &other.pre_release) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(two)) => identifiers(one).cmp(identifiers(two)),
        })
    }
}

/// In the order of Semantic Versioning: numbers before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(u64),
    Word(&'a str),
}

fn identifiers(pre_release: &str) -> impl Iterator<Item = Identifier<'_>> {
    pre_release.split('.').map(|part| part.parse().map_or(Identifier::Word(part), Identifier::Number))
}

impl VersionRange {
    /// `>= 1.2, < 2`; without a sign it is `=`. `None`: it is none.
    pub fn parse(text: &str) -> Option<VersionRange> {
        text.split(',').map(term).collect::<Option<Vec<_>>>().map(VersionRange)
    }
    /// The same, of Semantic Versioning, which has no `~>`.
    pub fn parse_semver(text: &str) -> Option<VersionRange> {
        VersionRange::parse(text).filter(|range| range.0.iter().all(|(term, _)| *term != Term::About))
    }

    /// As Nomad's `version`: an order between a release and a pre-release holds only where the bound names a
    /// pre-release of the same numbers.
    pub fn holds(&self, version: &DottedVersion) -> bool {
        let comparable = |bound: &DottedVersion| match (&version.pre_release, &bound.pre_release) {
            (Some(_), Some(_)) => version.by_numbers(bound).is_eq(),
            (Some(_), None) => false,
            (None, Some(_) | None) => true,
        };
        let of_pre_release = |bound: &DottedVersion| bound.pre_release.is_some() && version.pre_release.is_none();
        self.0.iter().all(|(term, bound)| match term {
            Term::Equal | Term::NotEqual => term.holds(version, bound),
            Term::About => comparable(bound) && !of_pre_release(bound) && term.holds(version, bound),
            _ => comparable(bound) && term.holds(version, bound),
        })
    }

    /// As Nomad's `semver`: pre-releases have their order.
    pub fn holds_semver(&self, version: &DottedVersion) -> bool {
        self.0.iter().all(|(term, bound)| term.holds(version, bound))
    }
}

impl Term {
    fn holds(self, version: &DottedVersion, bound: &DottedVersion) -> bool {
        match self {
            Term::Equal => version == bound,
            Term::NotEqual => version != bound,
            Term::Less => version < bound,
            Term::LessOrEqual => version <= bound,
            Term::Greater => version > bound,
            Term::GreaterOrEqual => version >= bound,
            Term::About => version >= bound && version.is_about(bound),
        }
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
    use proptest::prelude::*;

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
            ("~> 3", "2.9", false),
            // A pre-release is no release.
            (">= 4.0", "6.1.0-18-amd64", false),
            (">= 6.1.0-1", "6.1.0-18-amd64", true),
            ("< 6.1.0-1", "6.1.0", false),
            (">= 6.1.0-1", "6.1.0", true),
            ("= 1.2.0-rc1", "1.2.0-rc1", true),
            ("!= 1.2.0", "1.2.0-rc1", true),
            ("~> 1.2-rc1", "1.3", false),
            (">= 1.2", "1.2.0+build", true),
        ] {
            let (range, version) = (VersionRange::parse(range).unwrap(), DottedVersion::parse(version).unwrap());
            assert_eq!(range.holds(&version), holds, "{range:?} {version:?}");
        }
    }

    #[test]
    fn semver_orders_pre_releases() {
        for (range, version, holds) in [
            (">= 4.0", "6.1.0-18-amd64", true),
            ("> 1.0.0-alpha", "1.0.0-alpha.1", true),
            ("> 1.0.0-alpha.1", "1.0.0-beta", true),
            ("> 1.0.0-2", "1.0.0-11", true),
            ("> 1.0.0-11", "1.0.0-a", true),
            ("> 1.0.0-rc1", "1.0.0", true),
            (">= 1.0.0", "1.0.0-rc1", false),
        ] {
            let (range, version) = (VersionRange::parse_semver(range).unwrap(), DottedVersion::parse(version).unwrap());
            assert_eq!(range.holds_semver(&version), holds, "{range:?} {version:?}");
        }
        assert_eq!(VersionRange::parse_semver("~> 1.2"), None);
    }

    #[test]
    fn text_without_a_version_is_rejected() {
        for text in ["", "1.", ".1", "1.2-", "1.2-a..b", "1.2+", "+1", "x", "1.99999999999999999999", ">= "] {
            assert!(DottedVersion::parse(text).is_none() && VersionRange::parse(text).is_none(), "{text}");
        }
        for text in [">= 1,", "=> 1", "~ 1", ">= 1 < 2"] {
            assert!(VersionRange::parse(text).is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_each_version_equals_itself(text in ".{0,24}", near in "v?[0-9.a-c+~-]{0,12}") {
            for text in [text, near] {
                let _ = VersionRange::parse(&text);
                if let Some(version) = DottedVersion::parse(&text) {
                    prop_assert!(version == version.clone());
                }
            }
        }
    }
}
