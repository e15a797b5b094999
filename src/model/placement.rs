//! Why an alloc is not placed: it waits, and nothing of it runs.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::words;

words! {
    /// Why an alloc is not placed.
    pub enum PlacementReason {
        Constraint = "constraint",
        /// The node is in none of the datacenters of the job.
        Datacenter = "datacenter",
        NodePool = "node_pool",
        DistinctHosts = "distinct_hosts",
        DistinctProperty = "distinct_property",
        /// Too few cores are free.
        Cores = "cores",
        /// Another alloc or another program uses a port that it needs.
        Port = "port",
        /// A host volume that it mounts is not declared on this node, or is read-only.
        HostVolume = "host_volume",
        /// Its reservations could not be persisted.
        StateDb = "state_db",
    }
}

/// One reason, in a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotPlaced {
    pub reason: PlacementReason,
    pub message: String,
}

impl NotPlaced {
    pub fn new(reason: PlacementReason, message: impl Into<String>) -> NotPlaced {
        NotPlaced { reason, message: message.into() }
    }
}

impl fmt::Display for NotPlaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// All reasons in one line.
pub fn joined(reasons: &[NotPlaced]) -> String {
    reasons.iter().map(|one| one.message.as_str()).collect::<Vec<_>>().join("; ")
}

/// `0-3,7`, as the kernel writes a list of cores; in order and without repetition.
pub fn core_list(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for core in sorted {
        match ranges.last_mut() {
            Some(last) if last.end().checked_add(1) == Some(core) => *last = *last.start()..=core,
            Some(_) | None => ranges.push(core..=core),
        }
    }
    let text = |range: &RangeInclusive<u32>| match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{}-{}", range.start(), range.end()),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_list_reads_as_the_kernels() {
        for (cores, text) in [(&[][..], ""), (&[3], "3"), (&[2, 0, 1, 5, 5], "0-2,5"), (&[0, 2, 4], "0,2,4")] {
            assert_eq!(core_list(cores), text);
        }
    }
}
