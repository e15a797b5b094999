//! The files of a queue: segments with numbers, in a directory of their own.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const EXTENSION: &str = "segment";

/// What a queue does with its disk. Concurrency: one owner; every call blocks on the disk.
pub trait QueueFiles: Send {
    fn list(&mut self) -> io::Result<Vec<u64>>;
    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>>;
    fn read_at(&mut self, segment: u64, offset: u64, length: usize) -> io::Result<Vec<u8>>;
    /// It is there, and empty, even if the power goes.
    fn create(&mut self, segment: u64) -> io::Result<()>;
    fn write_at(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// What was written to it is there even if the power goes.
    fn sync(&mut self, segment: u64) -> io::Result<()>;
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()>;
    fn remove(&mut self, segment: u64) -> io::Result<()>;
}

/// `None`: we call none so, for no queue comes so far.
fn number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(EXTENSION)?.strip_suffix('.')?, 16).ok()?;
    (called(number) == name && number < u64::MAX / 2).then_some(number)
}

fn called(segment: u64) -> String {
    format!("{segment:016x}.{EXTENSION}")
}

/// Real ones.
#[derive(Debug)]
pub struct SegmentFiles {
    dir: PathBuf,
    open: HashMap<u64, File>,
}

impl SegmentFiles {
    /// Makes the directory when something is to be written.
    pub fn new(dir: &Path) -> SegmentFiles {
        SegmentFiles { dir: dir.to_owned(), open: HashMap::new() }
    }
    fn path(&self, segment: u64) -> PathBuf {
        self.dir.join(called(segment))
    }
    fn file(&mut self, segment: u64) -> io::Result<&File> {
        use std::collections::hash_map::Entry;
        let path = self.path(segment);
        Ok(match self.open.entry(segment) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(OpenOptions::new().read(true).write(true).open(path)?),
        })
    }
    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl QueueFiles for SegmentFiles {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            // Whatever else is called so is not ours: a link may lead anywhere, and a pipe is never read to its end.
            if entry.file_type()?.is_file() {
                found.extend(entry.file_name().to_str().and_then(number));
            }
        }
        found.sort_unstable();
        Ok(found)
    }
    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(segment))
    }
    fn read_at(&mut self, segment: u64, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file(segment)?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
    fn create(&mut self, segment: u64) -> io::Result<()> {
        if !self.dir.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
            File::open(self.dir.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        }
        let path = self.path(segment);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        self.sync_dir()?;
        self.open.insert(segment, file);
        Ok(())
    }
    fn write_at(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(segment)?.write_all_at(bytes, offset)
    }
    fn sync(&mut self, segment: u64) -> io::Result<()> {
        self.file(segment)?.sync_data()
    }
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.file(segment)?.set_len(length)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.remove(&segment);
        match fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PushOutcome, Queue, QueueLimits};
    use super::*;
    use crate::model::units::Timestamp;

    #[test]
    fn foreign_files_with_segment_names_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, queue_dir) = (dir.path().join("elsewhere"), dir.path().join("otlp"));
        fs::write(&elsewhere, "of another program").unwrap();
        fs::create_dir_all(queue_dir.join("0000000000000002.segment")).unwrap();
        for link in ["0000000000000001.segment", "00000000000000aa.segment"] {
            std::os::unix::fs::symlink(&elsewhere, queue_dir.join(link)).unwrap();
        }
        let strange = ["1.segment", "+5.segment", "ffffffffffffffff.segment", "notes"].map(|name| queue_dir.join(name));
        for path in &strange {
            fs::write(path, "of another program").unwrap();
        }
        let limits = QueueLimits { bytes: 1 << 20, age: std::time::Duration::from_secs(60), memory_bytes: 1 << 20 };
        let mut queue = Queue::open(Box::new(SegmentFiles::new(&queue_dir)), limits);
        assert!(queue.refused.is_none() && queue.corrupt_records + queue.truncated_bytes == 0);
        let accepted = [1, 2, 3].map(|at| queue.push(Timestamp(at), 1, vec![1]));
        assert_eq!(accepted.last(), Some(&PushOutcome::Durable), "a number that is taken is passed over");
        assert_eq!((queue.in_memory(), queue.ledger().queued), (0, 3));
        for path in strange.iter().chain([&elsewhere]) {
            assert_eq!(fs::read_to_string(path).unwrap(), "of another program", "{}", path.display());
        }
    }
}
