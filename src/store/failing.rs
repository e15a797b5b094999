//! A store that errs on demand: for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Batch, Store, StoreError};

/// What the test turns, while another component owns the store.
#[derive(Debug, Default)]
pub struct StoreFaults {
    failing: AtomicBool,
    /// A failing commit is written all the same: an error says nothing about what the disk has.
    written: AtomicBool,
    /// This many commits succeed before they begin to fail; 0 counts nothing.
    after: AtomicU64,
    commits: AtomicU64,
}

impl StoreFaults {
    pub fn fail_writes(&self, fail: bool) {
        self.failing.store(fail, Ordering::SeqCst);
    }
    /// Lets `commits` more commits through, then fails all of them.
    pub fn fail_after(&self, commits: u64) {
        self.after.store(self.commits() + commits, Ordering::SeqCst);
        self.failing.store(true, Ordering::SeqCst);
    }
    /// Whether commits that fail are written all the same.
    pub fn write_and_fail(&self, written: bool) {
        self.written.store(written, Ordering::SeqCst);
    }
    /// How many commits succeeded.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub struct FailingStore<S> {
    inner: S,
    faults: Arc<StoreFaults>,
}

impl<S: Store> FailingStore<S> {
    pub fn new(inner: S) -> (FailingStore<S>, Arc<StoreFaults>) {
        let faults = Arc::new(StoreFaults::default());
        (FailingStore { inner, faults: Arc::clone(&faults) }, faults)
    }
}

impl<S: Store> Store for FailingStore<S> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.inner.scan(prefix)
    }
    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.faults.failing.load(Ordering::SeqCst)
            && self.faults.commits() >= self.faults.after.load(Ordering::SeqCst)
        {
            if self.faults.written.load(Ordering::SeqCst) {
                self.inner.commit(batch)?;
            }
            return Err(StoreError::Write { message: "no space left on device (requested by a test)".to_owned() });
        }
        self.inner.commit(batch)?;
        self.faults.commits.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn tidy(&self) -> Result<(), StoreError> {
        self.inner.tidy()
    }
    fn size_bytes(&self) -> Option<u64> {
        self.inner.size_bytes()
    }
}
