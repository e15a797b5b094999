//! `sled` 0.34 on disk.
//!
//! ```text
//! <dir>/db        the log of pages: everything that is acknowledged must be here
//! <dir>/conf      written once, when the database is made
//! <dir>/blobs/    pages too large for a segment, one file each
//! <dir>/snap.*    only speeds up the next opening; sled syncs it itself
//! ```
//! sled's `flush` waits for the page cache to be handed to the device (`sync_file_range`), but never asks the device to
//! keep it, and never has a grown file's size or a new blob recorded. So each commit ends with our own `fdatasync` of
//! `db` (which covers its size) and, where sled has put a page into a file of its own, of that file and of `blobs`.
//!
//! An error sticks to an open sled database: after a full disk it refuses everything, for ever. So a commit that failed
//! closes the database, and the next one opens it again: what was acknowledged is still there, what was not may be.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Batch, Store, StoreError};

/// Pages kept in memory: records are small and read only at start.
const CACHE_BYTES: u64 = 512 * 1024;
/// How often sled's own thread looks for space to reclaim. Durability does not depend on it.
const TIDY_EVERY_MS: u64 = 10_000;

/// Concurrency: any thread; commits follow one another.
pub struct SledStore {
    dir: PathBuf,
    state: Mutex<State>,
}

enum State {
    Open(Open),
    /// The last commit failed, and why.
    Failed,
}

struct Open {
    db: sled::Db,
    /// Our own descriptor of `db`, for `fdatasync`.
    file: File,
    /// Blob files that the device has.
    blobs: BTreeSet<OsString>,
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl SledStore {
    /// Opens or makes the database in `dir`.
    ///
    /// Errors: another process has it open; no permission; the files are damaged: each says what to do.
    pub fn open(dir: &Path) -> Result<SledStore, StoreError> {
        let open = open(dir)?;
        Ok(SledStore { dir: dir.to_owned(), state: Mutex::new(State::Open(open)) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the database, opened again first if the last commit failed.
    fn with<T>(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut Open) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let State::Failed = state {
            *state = State::Open(open(&self.dir)?);
        }
        match state {
            State::Open(open) => work(open),
            State::Failed => Err(write_error("the database is closed")),
        }
    }
}

impl Store for SledStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = |open: &mut Open| open.db.get(key).map(|v| v.map(|v| v.to_vec())).map_err(|e| read_error(&e));
        self.with(&mut self.lock(), read)
    }

    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(&mut self.lock(), |open| {
            open.db
                .scan_prefix(prefix)
                .map(|entry| {
                    let (key, value) = entry.map_err(|e| read_error(&e))?;
                    // Every key was written from a `String`; one that is no text is shown as best it can be.
                    Ok((String::from_utf8_lossy(&key).into_owned(), value.to_vec()))
                })
                .collect()
        })
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        // A panic inside sled leaves it in a state that nobody knows: it is closed like after an error.
        let work = AssertUnwindSafe(|| self.with(&mut state, |open| open.commit(&self.dir, batch)));
        let result = catch_unwind(work).unwrap_or_else(|_| Err(write_error("it panicked")));
        if result.is_err() {
            *state = State::Failed;
        }
        result
    }

    fn size_bytes(&self) -> Option<u64> {
        match &*self.lock() {
            State::Open(open) => open.db.size_on_disk().ok(),
            State::Failed => None,
        }
    }
}

impl Open {
    fn commit(&mut self, dir: &Path, batch: &Batch) -> Result<(), StoreError> {
        let mut writes = sled::Batch::default();
        for (key, value) in &batch.writes {
            match value {
                Some(value) => writes.insert(key.as_bytes(), value.as_slice()),
                None => writes.remove(key.as_bytes()),
            }
        }
        self.db.apply_batch(writes).map_err(write_error)?;
        self.db.flush().map_err(write_error)?;
        self.sync_blobs(dir).map_err(write_error)?;
        self.file.sync_data().map_err(write_error)
    }

    /// A page of more than a segment is a file of its own, which sled does not sync.
    fn sync_blobs(&mut self, dir: &Path) -> io::Result<()> {
        let path = dir.join("blobs");
        let mut present = BTreeSet::new();
        for entry in std::fs::read_dir(&path)? {
            present.insert(entry?.file_name());
        }
        if present == self.blobs {
            return Ok(());
        }
        for name in present.difference(&self.blobs) {
            match File::open(path.join(name)) {
                Ok(file) => file.sync_data()?,
                // Collected meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        File::open(&path)?.sync_all()?;
        self.blobs = present;
        Ok(())
    }
}

fn open(dir: &Path) -> Result<Open, StoreError> {
    let failed = |message: String| StoreError::Open { path: dir.to_owned(), message };
    std::fs::create_dir_all(dir).map_err(|e| failed(format!("{e}; give the agent's user write access to it")))?;
    let config = sled::Config::new()
        .path(dir)
        .mode(sled::Mode::LowSpace)
        .cache_capacity(CACHE_BYTES)
        .flush_every_ms(Some(TIDY_EVERY_MS));
    // sled panics on some damage instead of returning an error.
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| config.open()));
    let db = match opened {
        Ok(Ok(db)) => db,
        Ok(Err(e)) => return Err(failed(advice(&e))),
        Err(_) => return Err(failed(DAMAGED.to_owned())),
    };
    let durable = || -> io::Result<File> {
        let file = File::open(dir.join("db"))?;
        file.sync_all()?;
        File::open(dir.join("conf"))?.sync_all()?;
        File::open(dir.join("blobs"))?.sync_all()?;
        File::open(dir)?.sync_all()?;
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            File::open(parent)?.sync_all()?;
        }
        Ok(file)
    };
    let file = durable().map_err(|e| failed(e.to_string()))?;
    Ok(Open { db, file, blobs: BTreeSet::new() })
}

const DAMAGED: &str = "its files are damaged. Move the directory away and start again: running tasks go on, but this \
                       agent will not know them";

fn advice(error: &sled::Error) -> String {
    match error {
        sled::Error::Io(e) if e.to_string().contains("could not acquire lock") => {
            "another process has it open: is a second agent running on this data directory?".to_owned()
        }
        sled::Error::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            format!("{e}; give the agent's user write access to it")
        }
        sled::Error::Corruption { .. } => DAMAGED.to_owned(),
        other => other.to_string(),
    }
}

fn write_error(error: impl ToString) -> StoreError {
    StoreError::Write { message: error.to_string() }
}

fn read_error(error: &sled::Error) -> StoreError {
    StoreError::Read { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opening_says_that_somebody_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let _first = SledStore::open(dir.path()).unwrap();
        let message = SledStore::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains("second agent"), "{message}");
        assert!(message.contains(&dir.path().display().to_string()), "{message}");
    }

    #[test]
    fn an_unusable_directory_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let message = SledStore::open(&file.join("state")).unwrap_err().to_string();
        assert!(message.contains("file/state"), "{message}");
    }

    #[test]
    fn a_value_larger_than_a_segment_survives_too() {
        let dir = tempfile::tempdir().unwrap();
        let value = vec![7_u8; 3 << 20];
        let store = SledStore::open(dir.path()).unwrap();
        let mut batch = Batch::default();
        batch.put("large", value.clone());
        store.commit(&batch).unwrap();
        drop(store);
        assert_eq!(SledStore::open(dir.path()).unwrap().get("large").unwrap(), Some(value));
    }

    #[test]
    fn rewriting_one_record_does_not_make_the_file_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let store = SledStore::open(dir.path()).unwrap();
        for round in 0..2_000_u32 {
            let mut batch = Batch::default();
            batch.put("task/a/b", vec![u8::try_from(round % 251).unwrap(); 3_500]);
            store.commit(&batch).unwrap();
        }
        let size = store.size_bytes().unwrap();
        assert!(size < 32 << 20, "{size} bytes for one record of 3,500");
    }
}
