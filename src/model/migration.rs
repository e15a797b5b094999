//! The data of an alloc of another agent, which a new alloc takes over.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::Steady;
use super::words;

words! {
    /// What follows when the data cannot be fetched.
    pub enum MigrationFailure {
        /// The alloc fails; its reschedule policy decides about the next attempt.
        Fail = "fail",
        /// The tasks start with empty directories.
        StartEmpty = "start_empty",
    }
}

/// Length limit of each part of [`MigrationSource`].
const LONGEST: usize = 128;

/// An alloc of another agent: `PEER/ALLOC`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationSource {
    /// The name of the agent in the settings of this one.
    pub peer: String,
    /// The ID there, an unambiguous prefix of it, or the name of a job with one alloc.
    pub alloc: String,
    pub on_failure: MigrationFailure,
    /// When the migration was requested: its deadline counts from then, also in the allocs that replace the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Steady>,
}

impl MigrationSource {
    /// Errors: not of this form, in a sentence.
    pub fn parse(text: &str, on_failure: MigrationFailure) -> Result<MigrationSource, String> {
        let (peer, alloc) = text.split_once('/').ok_or_else(|| {
            format!("{text:?} is no source of a migration: write PEER/ALLOC, with a peer of migrate.peers")
        })?;
        peer_name(peer)?;
        if !is_name(alloc) {
            return Err(format!("{alloc:?} is no alloc ID: letters, digits and _ - . are allowed"));
        }
        Ok(MigrationSource { peer: peer.to_owned(), alloc: alloc.to_owned(), on_failure, submitted: None })
    }
}

impl fmt::Display for MigrationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.peer, self.alloc)
    }
}

/// Errors: not the name of a peer, in a sentence.
pub fn peer_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        Ok(())
    } else {
        Err(format!("{name:?} is no name of a peer: letters, digits and _ - . are allowed"))
    }
}

/// Safe in a URL path and in a file name.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(fits) && !matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migration_source_is_peer_and_alloc_and_nothing_else() {
        let source = MigrationSource::parse("host-2/5f0dc4f8", MigrationFailure::Fail).unwrap();
        assert_eq!((source.peer.as_str(), source.alloc.as_str()), ("host-2", "5f0dc4f8"));
        assert_eq!(source.to_string(), "host-2/5f0dc4f8");
        for odd in ["", "host-2", "/x", "host-2/", "a/b/c", "a/../b", "a/..", "./x", "a/b?c", "a b/c", "a/%2e", "é/x"]
        {
            assert!(MigrationSource::parse(odd, MigrationFailure::Fail).is_err(), "{odd}");
        }
        assert!(MigrationSource::parse(&format!("a/{}", "x".repeat(LONGEST + 1)), MigrationFailure::Fail).is_err());
    }
}
