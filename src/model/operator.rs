//! The operators of constraints and affinities, of nodes and of devices.

use std::cmp::Ordering;

use super::attribute::Attribute;
use super::go_regex::from_go;
use super::version::{DottedVersion, VersionRange};
use super::words;

words! {
    pub enum Operator {
        Equal = "=",
        /// Also of what is absent.
        NotEqual = "!=",
        Less = "<",
        LessOrEqual = "<=",
        Greater = ">",
        GreaterOrEqual = ">=",
        /// A pre-release matches a range that names a pre-release of the same version only.
        Version = "version",
        /// As `version`, with pre-releases in the order of Semantic Versioning.
        Semver = "semver",
        Regexp = "regexp",
        /// Of a text with commas: all of these are in it.
        SetContains = "set_contains",
        SetContainsAny = "set_contains_any",
        IsSet = "is_set",
        IsNotSet = "is_not_set",
    }
}

/// Nomad's other words for the same.
const SYNONYMS: [(&str, Operator); 4] = [
    ("==", Operator::Equal),
    ("is", Operator::Equal),
    ("not", Operator::NotEqual),
    ("set_contains_all", Operator::SetContains),
];

/// Why a value cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("it is no version")]
    Version,
    #[error("it is no regular expression: {0}")]
    Regexp(String),
}

impl Operator {
    /// By its own word or a synonym.
    pub fn named(text: &str) -> Option<Operator> {
        let synonym = || SYNONYMS.iter().find(|(word, _)| *word == text).map(|(_, operator)| *operator);
        Operator::parse(text).or_else(synonym)
    }

    pub fn takes_value(self) -> bool {
        !matches!(self, Operator::IsSet | Operator::IsNotSet)
    }

    /// Errors: the value is no version range or no regular expression.
    pub fn check(self, value: &str) -> Result<(), BadPattern> {
        match self {
            Operator::Version => VersionRange::parse(value).map(|_| ()).ok_or(BadPattern::Version),
            Operator::Semver => VersionRange::parse_semver(value).map(|_| ()).ok_or(BadPattern::Version),
            Operator::Regexp => {
                regex::Regex::new(&from_go(value)).map(|_| ()).map_err(|e| BadPattern::Regexp(flat(&e)))
            }
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual
            | Operator::SetContains
            | Operator::SetContainsAny
            | Operator::IsSet
            | Operator::IsNotSet => Ok(()),
        }
    }

    /// Pure. `there`: the attribute, absent where it has no value. `compare`: the order of the two, `None` where they
    /// have none: then no comparison holds. Of an absent attribute `!=` and `is_not_set` hold alone.
    pub fn holds(
        self,
        there: Option<&Attribute>,
        requested: &str,
        compare: fn(&Attribute, &str) -> Option<Ordering>,
    ) -> bool {
        let Some(there) = there else { return matches!(self, Operator::NotEqual | Operator::IsNotSet) };
        let compared = |holds: fn(Ordering) -> bool| compare(there, requested).is_some_and(holds);
        let text = || there.to_string();
        match self {
            Operator::Equal => compared(Ordering::is_eq),
            Operator::NotEqual => compared(Ordering::is_ne),
            Operator::Less => compared(Ordering::is_lt),
            Operator::LessOrEqual => compared(Ordering::is_le),
            Operator::Greater => compared(Ordering::is_gt),
            Operator::GreaterOrEqual => compared(Ordering::is_ge),
            Operator::Version => in_range(&text(), requested).unwrap_or(false),
            Operator::Semver => in_semver_range(&text(), requested).unwrap_or(false),
            Operator::Regexp => regex::Regex::new(&from_go(requested)).is_ok_and(|regex| regex.is_match(&text())),
            Operator::SetContains => items(requested).all(|word| items(&text()).any(|there| there == word)),
            Operator::SetContainsAny => items(requested).any(|word| items(&text()).any(|there| there == word)),
            Operator::IsSet => true,
            Operator::IsNotSet => false,
        }
    }
}

fn in_range(there: &str, requested: &str) -> Option<bool> {
    Some(VersionRange::parse(requested)?.holds(&DottedVersion::parse(there)?))
}

fn in_semver_range(there: &str, requested: &str) -> Option<bool> {
    Some(VersionRange::parse_semver(requested)?.holds_semver(&DottedVersion::parse(there)?))
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// An error of several lines in one.
fn flat(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().map_or_else(String::new, |line| line.trim_start_matches("error: ").to_owned())
}
