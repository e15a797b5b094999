//! A store whose agent dies at a write: for tests alone, compiled with debug assertions only, so that no release knows
//! of it.
//!
//! `ALLOSTAT_TEST_DIE=before:7`: SIGKILL to this process when its seventh commit is about to be written; `after:7`:
//! when it is durable, and no caller has its answer. What was to be written goes to standard error first, a line for
//! each record:
//! ```text
//! dies before commit 7
//! dies with task/5c…/main {"status":{"state":"running",…
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use super::{Batch, Store, StoreError};

const VARIABLE: &str = "ALLOSTAT_TEST_DIE";

struct DeadlyStore {
    inner: Arc<dyn Store>,
    side: String,
    at: u64,
    commits: AtomicU64,
}

/// `store`, or the one that kills, where the environment asks for it.
pub fn from_environment(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let Ok(requested) = std::env::var(VARIABLE) else { return store };
    let (side, at) = requested.split_once(':').expect("a test must name side and number");
    assert!(matches!(side, "before" | "after"), "a test must set before or after");
    let at = at.parse().expect("a test must name the number of a commit");
    Arc::new(DeadlyStore { inner: store, side: side.to_owned(), at, commits: AtomicU64::new(0) })
}

impl DeadlyStore {
    fn die(&self, batch: &Batch) {
        let mut last_words = format!("dies {} commit {}\n", self.side, self.at);
        for (key, value) in &batch.writes {
            let value = value.as_ref().map_or("removed".into(), |value| String::from_utf8_lossy(value));
            last_words.push_str(&format!("dies with {key} {value}\n"));
        }
        let _ = std::io::stderr().write_all(last_words.as_bytes());
        // It cannot be refused: it is our own process.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

impl Store for DeadlyStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.scan(prefix)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let now = self.commits.fetch_add(1, Ordering::SeqCst) + 1 == self.at;
        if now && self.side == "before" {
            self.die(batch);
        }
        let done = self.inner.commit(batch);
        if now {
            self.die(batch);
        }
        done
    }
    fn tidy(&self) -> Result<(), StoreError> {
        self.inner.tidy()
    }
    fn size_bytes(&self) -> Option<u64> {
        self.inner.size_bytes()
    }
}
