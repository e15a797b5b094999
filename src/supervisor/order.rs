//! In which order a task wrote to its two streams, and when: numbered files beside its logs, `<task>.order.0`, `.1` ...
//!
//! ```text
//! a record, 32 bytes, little endian: time (ns)   stream (0 stdout, 1 stderr)   number of its log file   bytes in that file
//! ```
//! It says how far the stream was written by that time. One is written when the stream changes, and otherwise at most
//! once a second: so that the order is exact, and times are to the second. What is lost of it costs order and times,
//! never output.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::rotate::{create, name, numbers, open_own};

/// Of one record.
pub const ORDER_RECORD: usize = 32;
/// Of one file; there are two at most.
const MOST_RECORDS: u64 = 8192;
const MAX_FILES: u64 = 2;
/// Between two records of one stream.
const EACH_NANOS: u64 = 1_000_000_000;

/// How far a stream was written by a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderRecord {
    pub nanos: u64,
    /// 0: stdout, 1: stderr.
    pub stream: usize,
    /// The number of the log file, and how far in it.
    pub place: (u64, u64),
}

impl OrderRecord {
    pub fn bytes(&self) -> [u8; ORDER_RECORD] {
        let mut bytes = [0; ORDER_RECORD];
        let all = [self.nanos, self.stream as u64, self.place.0, self.place.1];
        bytes.chunks_exact_mut(8).zip(all).for_each(|(place, value)| place.copy_from_slice(&value.to_le_bytes()));
        bytes
    }
    /// `None`: it is none.
    pub fn parse(bytes: &[u8; ORDER_RECORD]) -> Option<OrderRecord> {
        let mut values = bytes.chunks_exact(8).map(|value| u64::from_le_bytes(value.try_into().unwrap_or_default()));
        let mut next = || values.next().unwrap_or_default();
        let (nanos, stream, file, at) = (next(), next(), next(), next());
        let stream = usize::try_from(stream).ok().filter(|stream| *stream < 2)?;
        Some(OrderRecord { nanos, stream, place: (file, at) })
    }
}

/// Writes them.
#[derive(Debug)]
pub struct OrderWriter {
    /// `None`: it cannot be written. It is not tried again, as [`Rotator`](super::rotate::Rotator)'s.
    directory: Option<OwnedFd>,
    prefix: String,
    index: u64,
    file: Option<File>,
    records: u64,
    /// Not written yet.
    pending: Option<OrderRecord>,
    written_at: u64,
}

impl OrderWriter {
    /// Goes on in the newest file that is there.
    pub fn open(directory: &Path, task: &str) -> OrderWriter {
        let prefix = format!("{task}.order.");
        let mut writer = OrderWriter {
            directory: open_own(directory).ok(),
            prefix,
            index: 0,
            file: None,
            records: 0,
            pending: None,
            written_at: 0,
        };
        if let Some(directory) = &writer.directory {
            writer.index = numbers(directory, &writer.prefix).unwrap_or_default().into_iter().max().unwrap_or(0);
            writer.file = create(directory, &name(&writer.prefix, writer.index)).ok();
            let size = writer.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
            writer.records = size / ORDER_RECORD as u64;
            // Half a record, of a supervisor that was killed: the next begins behind it.
            let whole = writer.records * ORDER_RECORD as u64;
            if whole < size
                && let Some(file) = &writer.file
            {
                let _ = file.set_len(whole);
            }
        }
        writer
    }

    /// Removes records of what each stream was written after its place, as
    /// [`Rotator::cut_back`](super::rotate::Rotator::cut_back).
    pub fn cut_back(&mut self, places: [(u64, u64); 2]) {
        let Some(file) = &self.file else { return };
        let mut bytes = [0; ORDER_RECORD];
        while let Some(before) = self.records.checked_sub(1) {
            let known = file.read_exact_at(&mut bytes, before * ORDER_RECORD as u64).ok();
            let last = known.and_then(|()| OrderRecord::parse(&bytes));
            if last.is_some_and(|last| places.get(last.stream).is_none_or(|place| last.place <= *place)) {
                return;
            }
            if file.set_len(before * ORDER_RECORD as u64).is_err() {
                return;
            }
            self.records = before;
        }
    }

    /// The stream was written that far.
    pub fn wrote(&mut self, record: OrderRecord) {
        if let Some(before) = self.pending.take_if(|before| before.stream != record.stream) {
            self.write(&before);
        }
        if record.nanos.saturating_sub(self.written_at) >= EACH_NANOS || record.nanos < self.written_at {
            self.write(&record);
        } else {
            self.pending = Some(record);
        }
    }

    /// All that is known.
    pub fn flush(&mut self) {
        if let Some(last) = self.pending.take() {
            self.write(&last);
        }
    }

    fn write(&mut self, record: &OrderRecord) {
        self.pending = None;
        self.written_at = record.nanos;
        let Some(directory) = &self.directory else { return };
        if self.records >= MOST_RECORDS {
            if let Some(old) = (self.index + 1).checked_sub(MAX_FILES) {
                let _ = rustix::fs::unlinkat(directory, name(&self.prefix, old), rustix::fs::AtFlags::empty());
            }
            self.index += 1;
            self.file = create(directory, &name(&self.prefix, self.index)).ok();
            self.records = 0;
        }
        if let Some(file) = &mut self.file {
            if file.write_all(&record.bytes()).is_ok() {
                self.records += 1;
            } else {
                // A full disk: this one is not known, and no part of it stays.
                let _ = file.set_len(self.records * ORDER_RECORD as u64);
            }
        }
    }
}

impl Drop for OrderWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64, stream: usize, bytes: u64) -> OrderRecord {
        OrderRecord { nanos: millis * 1_000_000, stream, place: (0, bytes) }
    }
    fn read(dir: &Path) -> Vec<OrderRecord> {
        let mut all = Vec::new();
        for n in 0..10 {
            let bytes = std::fs::read(dir.join(format!("t.order.{n}"))).unwrap_or_default();
            all.extend(
                bytes.chunks_exact(ORDER_RECORD).map(|one| OrderRecord::parse(one.try_into().unwrap()).unwrap()),
            );
        }
        all
    }

    #[test]
    fn record_is_written_when_the_stream_changes_and_else_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let mut order = OrderWriter::open(dir.path(), "t");
        for record in [at(5000, 0, 1), at(5100, 0, 2), at(5200, 0, 3), at(5300, 1, 1), at(5400, 0, 4), at(6500, 0, 5)] {
            order.wrote(record);
        }
        order.flush();
        assert_eq!(read(dir.path()), [at(5000, 0, 1), at(5200, 0, 3), at(5300, 1, 1), at(6500, 0, 5)]);
        // The next supervisor goes on.
        let mut order = OrderWriter::open(dir.path(), "t");
        order.wrote(at(9000, 1, 9));
        assert_eq!(read(dir.path()).last(), Some(&at(9000, 1, 9)));
    }

    #[test]
    fn files_are_bounded_and_half_a_record_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.order.0"), [7; ORDER_RECORD + 5]).unwrap();
        let mut order = OrderWriter::open(dir.path(), "t");
        for n in 0..3 * MOST_RECORDS {
            order.wrote(at(n, usize::try_from(n % 2).unwrap(), n));
        }
        let sizes: Vec<u64> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().all(|size| *size <= MOST_RECORDS * ORDER_RECORD as u64 && size % 32 == 0), "{sizes:?}");
        assert!(OrderRecord::parse(&[7; ORDER_RECORD]).is_none());
    }
}
