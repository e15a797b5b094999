//! The rotated files of one stream, as one.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The largest piece of one answer.
pub(super) const MAX_PIECE_BYTES: u64 = 1 << 20;
/// So much at a time is looked through, from the end on, for where the last lines begin.
pub(super) const SCAN_BYTES: u64 = 64 << 10;

/// A place in the log, for good: the number of a file, and how far in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition {
    pub file: u64,
    pub bytes: u64,
}

impl LogPosition {
    /// `3.1024`
    pub fn parse(text: &str) -> Option<LogPosition> {
        let (file, bytes) = text.split_once('.')?;
        Some(LogPosition { file: file.parse().ok()?, bytes: bytes.parse().ok()? })
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.bytes)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogFile {
    pub index: u64,
    pub path: PathBuf,
    pub size: u64,
}

/// The rotated files, oldest first. None yet: an empty list.
pub(super) fn files(dir: &Path, prefix: &str) -> io::Result<Vec<LogFile>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let index = name.to_str().and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse::<u64>().ok());
        // The directory is the task's to write: only plain files of it are logs.
        if let Some(index) = index
            && let Ok(meta) = entry.path().symlink_metadata()
            && meta.is_file()
        {
            found.push(LogFile { index, path: entry.path(), size: meta.len() });
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Of what is gone by now: where the oldest that is kept begins.
pub(super) fn offset_of(files: &[LogFile], place: LogPosition) -> u64 {
    let before: u64 = files.iter().filter(|file| file.index < place.file).map(|file| file.size).sum();
    let within = files.iter().find(|file| file.index == place.file).map_or(0, |file| place.bytes.min(file.size));
    before + within
}

pub(super) fn place_of(files: &[LogFile], offset: u64) -> LogPosition {
    let (mut place, mut left) = (LogPosition::default(), offset);
    for file in files {
        place = LogPosition { file: file.index, bytes: left.min(file.size) };
        if left < file.size {
            break;
        }
        left -= file.size;
    }
    place
}

pub(super) fn read_range(files: &[LogFile], start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file_start = 0;
    for LogFile { path, size, .. } in files {
        let file_end = file_start + size;
        let (from, to) = (start.max(file_start), end.min(file_end));
        if from < to {
            let mut file = File::from(rustix::fs::open(
                path,
                rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK,
                rustix::fs::Mode::empty(),
            )?);
            file.seek(SeekFrom::Start(from - file_start))?;
            file.take(to - from).read_to_end(&mut bytes)?;
        }
        file_start = file_end;
    }
    Ok(bytes)
}

/// Where the last `lines` lines begin. A line that is not ended yet counts as one.
pub(super) fn tail_start(files: &[LogFile], size: u64, lines: u64) -> io::Result<u64> {
    if lines == 0 {
        return Ok(size);
    }
    let (mut end, mut left) = (size, lines);
    while end > 0 {
        let start = end.saturating_sub(SCAN_BYTES);
        let bytes = read_range(files, start, end)?;
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let begins = start + at as u64 + 1;
            // What ends the last line begins none.
            left -= u64::from(begins < size);
            if left == 0 {
                return Ok(begins);
            }
        }
        end = start;
    }
    Ok(0)
}
