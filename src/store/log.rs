//! The log: every acknowledged batch in one file, each with its checksum. It begins with a copy of all records, so that
//! it says everything by itself; when what follows the copy has grown beyond it, a new file takes its place by a
//! rename.
//!
//! ```text
//! frame    magic 4 | length 4 | crc32 of the payload 4 | payload
//! payload  schema 4 | seq 8 | part 4 | parts 4 | writes: ( key length 4, key, value length 4 or NONE, value )*
//! file     copy: frames (seq s, part 0..n of n) | change s+1 | change s+2 | ...      (a change has parts = 0)
//! ```
//! Numbers are little-endian. A commit is one `write` and one `fdatasync`. A frame that is not whole counts for
//! nothing; reading goes on at the next magic, which no JSON can hold (0xFF is not UTF-8).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// All records of the store: keys and values.
pub(super) type StateRecords = BTreeMap<String, Vec<u8>>;
type Writes = Vec<(String, Option<Vec<u8>>)>;

const MAGIC: [u8; 4] = [0xA1, 0x05, 0xFF, 0x1E];
const HEADER: usize = 12;
/// The length of a value that is a removal.
const NONE: u32 = u32::MAX;
/// What follows the copy may always grow to this, however small the copy is.
const TAIL_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogFrame {
    pub schema: u32,
    pub seq: u64,
    part: u32,
    parts: u32,
    pub writes: Writes,
}

pub(super) fn change(schema: u32, seq: u64, writes: &[(String, Option<Vec<u8>>)]) -> io::Result<Vec<u8>> {
    let writes = writes.iter().map(|(key, value)| (key.as_str(), value.as_deref()));
    frame([&schema.to_le_bytes()[..], &seq.to_le_bytes(), &[0; 8]], writes)
}

fn frame<'a>(head: [&[u8]; 3], writes: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>) -> io::Result<Vec<u8>> {
    let mut bytes = [MAGIC.as_slice(), &[0; 8]].concat();
    head.iter().for_each(|part| bytes.extend_from_slice(part));
    for (key, value) in writes {
        bytes.extend_from_slice(&length(key.len())?.to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        let size = value.map_or(Ok(NONE), |value| length(value.len()))?;
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
    let size = length(bytes.len() - HEADER)?;
    let crc = crc32fast::hash(&bytes[HEADER..]);
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

fn length(bytes: usize) -> io::Result<u32> {
    let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "a record of 4 GiB or more");
    u32::try_from(bytes).ok().filter(|size| *size != NONE).ok_or_else(too_large)
}

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    pub frames: Vec<LogFrame>,
    /// Bytes between good frames that are none.
    pub damaged: Vec<Range<usize>>,
    /// Where the last good frame ends. What follows was never acknowledged, or is damaged.
    pub end: usize,
    /// Of the copy at its beginning.
    pub copy_bytes: usize,
}

/// Pure: no bytes panic.
pub(super) fn parse(bytes: &[u8]) -> LogContents {
    let mut found = LogContents::default();
    let mut at = 0;
    while at < bytes.len() {
        if let Some((frame, size)) = parse_frame(&bytes[at..]) {
            if at > found.end {
                found.damaged.push(found.end..at);
            }
            at += size;
            found.end = at;
            if frame.parts > 0 {
                found.copy_bytes = at;
            }
            found.frames.push(frame);
        } else {
            let next = bytes[at + 1..].windows(MAGIC.len()).position(|window| window == MAGIC);
            at = next.map_or(bytes.len(), |next| at + 1 + next);
        }
    }
    found
}

fn parse_frame(bytes: &[u8]) -> Option<(LogFrame, usize)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (size, rest) = number(rest)?;
    let (crc, rest) = number(rest)?;
    let size = usize::try_from(size).ok()?;
    let payload = rest.get(..size)?;
    if crc32fast::hash(payload) != crc {
        return None;
    }
    let (schema, rest) = number(payload)?;
    let (seq, rest) = rest.split_first_chunk::<8>()?;
    let (part, rest) = number(rest)?;
    let (parts, mut rest) = number(rest)?;
    let mut writes = Vec::new();
    while !rest.is_empty() {
        let (key, after) = sized(rest)?;
        let (value, after) = match number(after)? {
            (NONE, after) => (None, after),
            _ => sized(after).map(|(value, after)| (Some(value.to_vec()), after))?,
        };
        writes.push((String::from_utf8(key.to_vec()).ok()?, value));
        rest = after;
    }
    Some((LogFrame { schema, seq: u64::from_le_bytes(*seq), part, parts, writes }, HEADER + size))
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u32::from_le_bytes(*number), rest))
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(size).ok()?)
}

impl LogContents {
    /// The number of the last commit that is in it.
    pub fn last(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.seq)
    }
    /// The newest schema that wrote into it.
    pub fn schema(&self) -> Option<u32> {
        self.frames.iter().map(|frame| frame.schema).max()
    }
    /// Nothing is missing between its beginning and its last good frame.
    pub fn is_whole(&self) -> bool {
        let Some(first) = self.frames.first() else { return false };
        let mut expected = Some((first.seq, 0));
        for frame in &self.frames {
            if expected != Some((frame.seq, frame.part)) {
                return false;
            }
            let more = frame.part + 1 < frame.parts;
            expected =
                if more { Some((frame.seq, frame.part + 1)) } else { frame.seq.checked_add(1).map(|seq| (seq, 0)) };
        }
        first.parts > 0 && self.damaged.is_empty()
    }
    /// Applies everything, or every commit after one, to `records`.
    pub fn replay(&self, records: &mut StateRecords, after: Option<u64>) {
        let frames = self.frames.iter().filter(|frame| after.is_none_or(|seq| frame.seq > seq));
        for (key, value) in frames.flat_map(|frame| &frame.writes) {
            match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
        }
    }
    /// How many commits after one, up to the last one, cannot be read; after none: records of the copy too.
    pub fn missing_after(&self, after: Option<u64>) -> u64 {
        let Some(first) = self.frames.first() else { return 0 };
        let base = after.unwrap_or(first.seq.saturating_sub(u64::from(first.parts == 0)));
        let counted = |frame: &&LogFrame| frame.parts == 0 && frame.seq > base;
        let good = self.frames.iter().filter(counted).count() as u64;
        let lost = self.last().saturating_sub(base).saturating_sub(good);
        let copied = self.frames.iter().filter(|frame| frame.parts > 0).count() as u64;
        let of_copy = if after.is_none() { u64::from(first.parts).saturating_sub(copied) } else { 0 };
        lost.saturating_add(of_copy)
    }
}

/// The file, open for appending. Concurrency: one owner; every call blocks on the disk.
#[derive(Debug)]
pub(super) struct StateLog {
    dir: PathBuf,
    file: File,
    len: u64,
    copy_bytes: u64,
    /// Shortening it failed: it is not tried again before it has grown to this.
    not_before: u64,
    /// The disk refused to say whether it has the last write: the file must be written again before anything is
    /// appended.
    doubtful: bool,
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("log")
}

impl StateLog {
    /// Goes on at the end of what was found.
    pub fn resume(dir: &Path, found: &LogContents) -> io::Result<StateLog> {
        let file = OpenOptions::new().read(true).write(true).open(path(dir))?;
        let len = u64::try_from(found.end).map_err(io::Error::other)?;
        if file.metadata()?.len() != len {
            file.set_len(len)?;
        }
        // A commit that was written and not synced when the agent was killed is taken as good from here on.
        file.sync_all()?;
        let copy_bytes = u64::try_from(found.copy_bytes).map_err(io::Error::other)?;
        Ok(StateLog { dir: dir.to_owned(), file, len, copy_bytes, doubtful: false, not_before: 0 })
    }

    /// A new file of exactly these records, in the place of whatever was there.
    pub fn write(dir: &Path, schema: u32, seq: u64, records: &StateRecords) -> io::Result<StateLog> {
        let fresh = dir.join("log.new");
        let written = StateLog::write_to(&fresh, dir, schema, seq, records);
        if written.is_err() {
            // It may be what fills the disk.
            let _ = std::fs::remove_file(&fresh);
        }
        written
    }

    fn write_to(fresh: &Path, dir: &Path, schema: u32, seq: u64, records: &StateRecords) -> io::Result<StateLog> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(fresh)?;
        let parts = length(records.len())?.max(1);
        let mut out = io::BufWriter::new(&file);
        let mut len = 0_usize;
        let mut each = records.iter();
        for part in 0..parts {
            let place = [part.to_le_bytes(), parts.to_le_bytes()].concat();
            let record = each.next().map(|(key, value)| (key.as_str(), Some(value.as_slice())));
            let bytes = frame([&schema.to_le_bytes(), &seq.to_le_bytes(), &place], record.into_iter())?;
            out.write_all(&bytes)?;
            len += bytes.len();
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        std::fs::rename(fresh, path(dir))?;
        File::open(dir)?.sync_all()?;
        let len = u64::try_from(len).map_err(io::Error::other)?;
        Ok(StateLog { dir: dir.to_owned(), file, len, copy_bytes: len, doubtful: false, not_before: 0 })
    }

    /// Durable when it returns. After an error none of it is in the file.
    pub fn append(&mut self, schema: u32, seq: u64, frame: &[u8]) -> io::Result<()> {
        if self.doubtful {
            *self = self.rewritten(schema, seq)?;
        }
        if let Err(error) = self.file.write_all_at(frame, self.len) {
            // What was written of it is no whole frame. Were even cutting it off impossible, it would count for
            // nothing.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        if let Err(error) = self.file.sync_data() {
            self.doubtful = true;
            return Err(error);
        }
        self.len += u64::try_from(frame.len()).map_err(io::Error::other)?;
        Ok(())
    }

    /// What follows the copy has outgrown it.
    pub fn is_long(&self) -> bool {
        self.len >= self.not_before && self.len - self.copy_bytes > self.copy_bytes.max(TAIL_BYTES)
    }

    pub fn stays_long(&mut self) {
        self.not_before = self.len + TAIL_BYTES;
    }

    /// The same records up to commit `seq` in a new file.
    pub fn rewritten(&self, schema: u32, seq: u64) -> io::Result<StateLog> {
        StateLog::write(&self.dir, schema, seq, &self.records()?)
    }

    /// All records, from the file.
    pub fn records(&self) -> io::Result<StateRecords> {
        let mut bytes = vec![0; usize::try_from(self.len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, 0)?;
        let found = parse(&bytes);
        if !found.is_whole() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the log was changed by another process"));
        }
        let mut records = StateRecords::new();
        found.replay(&mut records, None);
        Ok(records)
    }

    /// Whether it still has its name, which is what the next agent will look for. Two system calls that wait for no
    /// disk.
    pub fn is_in_place(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::metadata(path(&self.dir)) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }
}
