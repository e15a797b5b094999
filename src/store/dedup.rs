//! Above any store: what is there already is not written again.
//!
//! ```text
//! enter(batch) ─► every record is durable just so, and no write waits to change it: Duplicate, no system call at all
//!              └► EnteredBatch ─► commit(all that wait): the last write of each key, less what is there ─► one commit
//! ```
//! Of each key only a hash is kept, and only of what is durable: it is set after the commit that wrote the value. A
//! commit that failed may have written or not, so nothing is known of its keys until one succeeds.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};

use super::{Batch, Store, StoreError};
use crate::telemetry::lock;

/// Distinguishes one value from the next of the same key. SipHash under a secret key, with a checksum and the length
/// beside it: a changed value is taken for the same once in 2^64 writes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValueFingerprint {
    hash: u64,
    crc: u32,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DurableValue {
    Absent,
    Is(ValueFingerprint),
    Unknown,
}

#[derive(Debug)]
struct Entry {
    durable: DurableValue,
    /// Writes that have entered and are not committed yet.
    pending: u32,
}

#[derive(Debug)]
struct DurableIndex {
    keys: HashMap<String, Entry>,
    /// What a key without an entry is: absent, or unknown where the store could not be read.
    default_value: DurableValue,
}

/// Concurrency: any thread; commits follow one another, `enter` never waits for one.
pub struct Dedup {
    store: Arc<dyn Store>,
    known: Mutex<DurableIndex>,
    committing: Mutex<()>,
    hasher: RandomState,
}

impl std::fmt::Debug for Dedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dedup").finish_non_exhaustive()
    }
}

/// A batch on its way. One that is dropped uncommitted costs its keys nothing but their deduplication.
#[derive(Debug)]
pub struct EnteredBatch(Vec<(String, Option<Vec<u8>>, DurableValue)>);

#[derive(Debug)]
pub enum Entrance {
    /// All of it is durable already: so many records.
    Duplicate(u64),
    Write(EnteredBatch),
}

/// What a commit did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitCounts {
    /// Records written. 0: the store was not asked.
    pub written: u64,
    /// Records that were there already.
    pub deduped: u64,
}

impl Dedup {
    /// Reads what is there, so that the first identical write after a restart is free too. A store that cannot be read
    /// only means that nothing is known.
    pub fn new(store: Arc<dyn Store>) -> Dedup {
        let hasher = RandomState::new();
        let (keys, rest) = match store.scan("") {
            Ok(records) => {
                let entry = |value: &[u8]| Entry { durable: DurableValue::Is(print(&hasher, value)), pending: 0 };
                (records.into_iter().map(|(key, value)| (key, entry(&value))).collect(), DurableValue::Absent)
            }
            Err(_) => (HashMap::new(), DurableValue::Unknown),
        };
        Dedup {
            store,
            known: Mutex::new(DurableIndex { keys, default_value: rest }),
            committing: Mutex::default(),
            hasher,
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn enter(&self, batch: Batch) -> Entrance {
        let expected = |value: &Option<Vec<u8>>| {
            value.as_ref().map_or(DurableValue::Absent, |v| DurableValue::Is(print(&self.hasher, v)))
        };
        let writes: Vec<_> = batch.writes.into_iter().map(|(key, value)| (expected(&value), key, value)).collect();
        let mut known = lock(&self.known);
        let DurableIndex { keys, default_value: rest } = &mut *known;
        let there = |(expected, key, _): &(DurableValue, String, _)| {
            keys.get(key).map_or(*rest == *expected, |entry| entry.pending == 0 && entry.durable == *expected)
        };
        if writes.iter().all(there) {
            return Entrance::Duplicate(count(writes.len()));
        }
        let enter = |(expected, key, value): (DurableValue, String, Option<Vec<u8>>)| {
            let entry = keys.entry(key.clone()).or_insert(Entry { durable: *rest, pending: 0 });
            entry.pending = entry.pending.saturating_add(1);
            (key, value, expected)
        };
        Entrance::Write(EnteredBatch(writes.into_iter().map(enter).collect()))
    }

    /// One commit of the store for all of them, in their order; none if everything is there by now.
    ///
    /// Errors: the store's. Then none of them is acknowledged, and the next write of each of their keys is written.
    pub fn commit(&self, entered: Vec<EnteredBatch>) -> Result<CommitCounts, StoreError> {
        let _alone = lock(&self.committing);
        let mut committed = CommitCounts::default();
        let mut batch = Batch::default();
        // The place of each key in the batch: the last write of a key is the one that counts.
        let mut last: HashMap<String, (Option<Vec<u8>>, DurableValue, u32)> = HashMap::new();
        let mut order = Vec::new();
        for (key, value, expected) in entered.into_iter().flat_map(|entered| entered.0) {
            match last.get_mut(&key) {
                Some(slot) => *slot = (value, expected, slot.2 + 1),
                None => {
                    order.push(key.clone());
                    last.insert(key, (value, expected, 1));
                }
            }
        }
        {
            let known = lock(&self.known);
            for key in &order {
                let Some((value, expected, _)) = last.get_mut(key) else { continue };
                let durable = known.keys.get(key).map_or(known.default_value, |entry| entry.durable);
                if durable == *expected {
                    committed.deduped += 1;
                } else {
                    committed.written += 1;
                    batch.writes.push((key.clone(), value.take()));
                }
            }
        }
        let settled = CommitGuard { dedup: self, keys: &last, written: &batch, ok: false };
        if batch.is_empty() {
            settled.well();
            return Ok(committed);
        }
        self.store.commit(&batch)?;
        settled.well();
        Ok(committed)
    }
}

/// Says what is durable once a commit is over, whichever way it ended: a panic of the store is a failed commit.
struct CommitGuard<'a> {
    dedup: &'a Dedup,
    keys: &'a HashMap<String, (Option<Vec<u8>>, DurableValue, u32)>,
    written: &'a Batch,
    ok: bool,
}

impl CommitGuard<'_> {
    fn well(mut self) {
        self.ok = true;
    }
}

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        let mut known = lock(&self.dedup.known);
        for (key, _) in &self.written.writes {
            if let (Some(entry), Some((_, expected, _))) = (known.keys.get_mut(key), self.keys.get(key)) {
                entry.durable = if self.ok { *expected } else { DurableValue::Unknown };
            }
        }
        let rest = known.default_value;
        for (key, (_, _, writes)) in self.keys {
            if let Some(entry) = known.keys.get_mut(key) {
                entry.pending = entry.pending.saturating_sub(*writes);
                // What is gone is forgotten.
                if entry.pending == 0 && entry.durable == rest && rest == DurableValue::Absent {
                    known.keys.remove(key);
                }
            }
        }
    }
}

fn print(hasher: &RandomState, value: &[u8]) -> ValueFingerprint {
    let mut hash = hasher.build_hasher();
    hash.write(value);
    ValueFingerprint { hash: hash.finish(), crc: crc32fast::hash(value), bytes: value.len() }
}

fn count(records: usize) -> u64 {
    u64::try_from(records).unwrap_or(u64::MAX)
}
