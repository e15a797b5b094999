//! Words of a job that mean less on one node than in a cluster: one warning for all that a file has.

use super::build::Builder;
use super::diagnostic::quote;
use super::tree::{Entry, StanzaBody, join};

const WORDS: [&str; 6] = ["datacenters", "region", "namespace", "node_pool", "priority", "all_at_once"];

impl Builder<'_> {
    /// A single one has its own warning, which says what it does here.
    pub(super) fn warn_of_cluster_words(&mut self, job: &StanzaBody, path: &str) {
        let found: Vec<&Entry> = job.entries.iter().filter(|entry| WORDS.contains(&entry.key.as_str())).collect();
        let mut names: Vec<String> = found.iter().map(|entry| quote(&entry.key)).collect();
        names.dedup();
        let (Some(first), Some(last), true) = (found.first(), names.pop(), !names.is_empty()) else { return };
        self.seen.extend(WORDS);
        let message = format!("{} and {last} do less on one node than in a cluster", names.join(", "));
        let advice = "\"Accepted with one warning\" in docs/job-files.md describes each of them".to_owned();
        self.problems.warn(&first.key_span, &join(path, &first.key), message, Some(advice));
    }
}
