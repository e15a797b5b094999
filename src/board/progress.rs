//! How far the agent has shown itself, in a file that survives its death: up to which moment snapshots counted, and the
//! highest number of an event that a reader may have seen.
//!
//! What is written stands in the page cache before it is shown, so SIGKILL cannot take it back. It is never synced:
//! when the power goes, nothing that was shown lives on either. The file has its full size from the start: a full disk
//! changes nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::units::Timestamp;

/// Two numbers, little endian.
const BYTES: usize = 16;

/// Concurrency: any thread.
#[derive(Debug, Default)]
pub struct Marks {
    /// `None`: kept in memory alone.
    file: Option<File>,
    time: AtomicU64,
    seq: AtomicU64,
}

impl Marks {
    /// Goes on from what the file says; without one, or where it cannot be used, from the start.
    pub fn open(path: &Path) -> Marks {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "failed to persist exposed counters; they may fall after a crash"
                );
                return Marks::default();
            }
        };
        let mut bytes = [0; BYTES];
        let mut halves = [0, 0];
        if file.read_exact_at(&mut bytes, 0).is_ok() {
            let (words, _) = bytes.as_chunks::<8>();
            halves = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        }
        let marks = Marks { file: Some(file), time: AtomicU64::new(halves[0]), seq: AtomicU64::new(halves[1]) };
        marks.write(0, halves[0]);
        marks.write(8, halves[1]);
        marks
    }

    /// The latest moment that a snapshot counted up to.
    pub fn time(&self) -> Timestamp {
        Timestamp(self.time.load(Ordering::SeqCst))
    }
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::SeqCst)
    }

    /// Called before it is shown, by one thread.
    pub fn mark_time(&self, time: Timestamp) {
        if self.time.fetch_max(time.0, Ordering::SeqCst) < time.0 {
            self.write(0, time.0);
        }
    }
    /// Called before it is shown, by one thread at a time.
    pub fn mark_seq(&self, seq: u64) {
        if self.seq.fetch_max(seq, Ordering::SeqCst) < seq {
            self.write(8, seq);
        }
    }

    fn write(&self, at: u64, value: u64) {
        // It has its size already, so this can only fail where the disk itself does: then more is lost than this.
        if let Some(file) = &self.file {
            let _ = file.write_all_at(&value.to_le_bytes(), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_reopen_and_never_fall() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shown");
        let marks = Marks::open(&path);
        assert_eq!((marks.time(), marks.seq()), (Timestamp(0), 0));
        marks.mark_time(Timestamp(7));
        marks.mark_time(Timestamp(5));
        marks.mark_seq(3);
        let again = Marks::open(&path);
        assert_eq!((again.time(), again.seq()), (Timestamp(7), 3));
    }

    #[test]
    fn a_damaged_or_unusable_file_blocks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("shown"), b"half").unwrap();
        assert_eq!(Marks::open(&dir.path().join("shown")).seq(), 0);
        let nowhere = Marks::open(&dir.path().join("none/shown"));
        nowhere.mark_seq(9);
        assert_eq!(nowhere.seq(), 9);
    }
}
