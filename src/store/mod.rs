//! What must survive the agent: small records under text keys. The trait blocks; who must not block asks
//! `runner::journal`, which commits for many at once.
//!
//! [`queue`] is a second thing that survives: batches for a collector, in files of their own. [`keyed`] is a third: the
//! last values that a collector got, where it gets differences. [`lines`] is a fourth: what has ended, for longer than
//! its series.
//!
//! [`Dedup`] stands above any of them: what is there already is not written again.
//!
//! Keys (schema 2), values JSON:
//! ```text
//! meta/version                      the schema's number
//! job/<job id>/<version>            a job as submitted; gone with its last alloc
//! alloc/<alloc id>                  job, group, index, created, desired, what its cgroup said last
//! task/<alloc id>/<task>            handle, status with base, exits and counts, restart tracker
//! tombstone/<alloc id>              collected, its directories may still be there
//! totals/workload/<job>             what collected allocs handed over
//! totals/node                       what workloads handed over
//! quarantine/<key>                  a record that could not be read
//! quarantine/damaged-<n>            what was wrong with files that were set aside
//! ```

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod damage;
#[cfg(debug_assertions)]
pub mod deadly;
mod dedup;
mod failing;
pub mod keyed;
pub mod lines;
mod log;
mod memory;
mod mirror;
pub mod queue;
mod sled;
mod upgrade;

use std::path::PathBuf;

pub use dedup::{CommitCounts, Dedup, EnteredBatch, Entrance};
pub use failing::{FailingStore, StoreFaults};
pub use memory::MemoryStore;
pub use sled::SledStore;
pub use upgrade::{SCHEMA, VERSION_KEY};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the state database in {path}: {message}")]
    Open { path: PathBuf, message: String },
    /// Written by a newer agent: reading it by guess could start things twice.
    #[error(
        "the state database in {path} has schema {found}, this agent supports {known}: start the newer agent that \
         wrote it"
    )]
    Newer { path: PathBuf, found: String, known: u32 },
    #[error("cannot write to the state database: {message}")]
    Write { message: String },
    #[error("cannot read the state database: {message}")]
    Read { message: String },
}

/// What is written together: all of it is durable, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// `None` removes the key.
    pub writes: Vec<(String, Option<Vec<u8>>)>,
}

impl Batch {
    pub fn put(&mut self, key: impl Into<String>, value: Vec<u8>) {
        self.writes.push((key.into(), Some(value)));
    }
    pub fn remove(&mut self, key: impl Into<String>) {
        self.writes.push((key.into(), None));
    }
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// Concurrency: any thread; a commit blocks until the disk has it.
pub trait Store: Send + Sync {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// All records whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
    /// Durable when it returns: it survives the power going.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;
    /// Work left behind by commits that no caller waits for, and a check whether the files are still in their place.
    /// The committer calls it after it has answered those that waited, and each second.
    ///
    /// Errors: the next agent would not find what was committed.
    fn tidy(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// Bytes on disk; `None` where there is no disk.
    fn size_bytes(&self) -> Option<u64>;
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(key)
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        (**self).scan(prefix)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        (**self).commit(batch)
    }
    fn tidy(&self) -> Result<(), StoreError> {
        (**self).tidy()
    }
    fn size_bytes(&self) -> Option<u64> {
        (**self).size_bytes()
    }
}
