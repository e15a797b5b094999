//! The records once more, in `sled` 0.34: what is read while the agent runs, and what is believed where the log is
//! damaged.
//!
//! sled alone would not do. Its `flush` never asks the device to keep anything; a full disk makes it refuse everything
//! for ever; one flipped bit in its file loses every later record without a word; other damage is a panic. So it is
//! never waited for, each call is caught, and each batch carries its number: at the next start it is made equal to the
//! log.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::log::StateRecords;

/// Pages kept in memory: records are small and read only at start.
const CACHE_BYTES: u64 = 512 * 1024;
/// How often sled's own thread writes what it holds.
const TIDY_EVERY_MS: u64 = 10_000;
/// The number of the last batch. No key of ours begins with a zero byte.
const SEQ: &[u8] = b"\0seq";

#[derive(Debug)]
pub(super) struct Mirror(sled::Db);

#[derive(Debug)]
pub(super) enum MirrorFault {
    /// Another process has it open.
    Busy,
    /// The machine refuses: permissions, space.
    Refused(io::Error),
    Damaged(String),
}

impl From<sled::Error> for MirrorFault {
    fn from(error: sled::Error) -> MirrorFault {
        match error {
            sled::Error::Io(e) if e.to_string().contains("could not acquire lock") => MirrorFault::Busy,
            sled::Error::Io(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                MirrorFault::Refused(e)
            }
            other => MirrorFault::Damaged(other.to_string()),
        }
    }
}

/// sled panics where it finds its own invariants broken.
fn caught<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, MirrorFault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Ok(result?),
        Err(_) => Err(MirrorFault::Damaged("it panicked".to_owned())),
    }
}

impl Mirror {
    pub fn open(dir: &Path) -> Result<Mirror, MirrorFault> {
        let config = sled::Config::new()
            .path(dir)
            .mode(sled::Mode::LowSpace)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(TIDY_EVERY_MS));
        caught(|| config.open()).map(Mirror)
    }

    /// Everything, and the number of the last batch that is in it; 0: written by an agent without a log, or empty.
    pub fn contents(&self) -> Result<(StateRecords, u64), MirrorFault> {
        let records = self.scan("")?.into_iter().collect();
        let seq = caught(|| self.0.get(SEQ))?;
        let seq = seq.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_le_bytes);
        Ok((records, seq))
    }

    /// Ends it. Its files may be gone: whatever it makes of that is its own.
    pub fn close(self) {
        let _ = caught(|| {
            drop(self);
            Ok(())
        });
    }

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, MirrorFault> {
        caught(|| self.0.get(key)).map(|value| value.map(|value| value.to_vec()))
    }

    pub fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, MirrorFault> {
        caught(|| {
            let entries = self.0.scan_prefix(prefix).filter(|entry| entry.as_ref().map_or(true, |(key, _)| key != SEQ));
            // Every key was written from a `String`; one that is no text is shown as best it can be.
            entries.map(|entry| entry.map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v.to_vec()))).collect()
        })
    }

    pub fn apply<'a>(
        &self,
        writes: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
        seq: u64,
    ) -> Result<(), MirrorFault> {
        let mut batch = sled::Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(key.as_bytes(), value),
                None => batch.remove(key.as_bytes()),
            }
        }
        batch.insert(SEQ, &seq.to_le_bytes());
        caught(|| self.0.apply_batch(batch))
    }

    pub fn size_bytes(&self) -> Option<u64> {
        caught(|| self.0.size_on_disk()).ok()
    }
}
