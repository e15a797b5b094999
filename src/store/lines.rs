//! Lines of text, kept until they are too old or too many: a line is there after the agent is killed or the power goes.
//!
//! ```text
//! append ──► 00000007.jsonl ── full ──► 00000007.jsonl.gz      the oldest file goes when all are too large, or it is too old
//! newest first ◄── 00000007.jsonl ◄── 00000006.jsonl.gz ◄── ...
//! ```
//! A user reads the files with `zcat -f *.jsonl* | jq`. What stands behind the last end of a line was never
//! acknowledged, and is cut off.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

const PLAIN: &str = "jsonl";
const PACKED: &str = "jsonl.gz";
/// While it is made.
const UNFINISHED: &str = "jsonl.gz.new";
/// A file of so many bytes is full, or of an eighth of what all may have, if that is less.
const FULL: u64 = 1 << 20;
/// The clock may have been set back meanwhile.
const SLACK: Duration = Duration::from_secs(86_400);
/// No file of ours is as long unpacked.
const LONGEST: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimits {
    /// Of all files together.
    pub bytes: u64,
    /// Of the newest line of a file.
    pub age: Duration,
}

/// Concurrency: one owner appends, each append waits for the disk; any thread reads.
#[derive(Debug)]
pub struct LineLog {
    dir: PathBuf,
    limits: LineLimits,
    last: Option<CurrentLineFile>,
}

#[derive(Debug)]
struct CurrentLineFile {
    number: u64,
    file: File,
    /// Up to here it is acknowledged.
    length: u64,
    full_at: u64,
    began: SystemTime,
}

impl LineLog {
    /// Nothing is touched before something is appended.
    pub fn new(dir: &Path, limits: LineLimits) -> LineLog {
        LineLog { dir: dir.to_owned(), limits, last: None }
    }

    /// Lines without their ends, which must have none inside. Durable when it returns.
    ///
    /// Errors: the disk does not take them, and nothing of them is there.
    pub fn append(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        // If the directory was removed, what comes then is written to a new one.
        let mut last = match self.last.take().filter(|last| last.is_at(&self.dir)) {
            Some(last) => last,
            None => self.open()?,
        };
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.iter().chain(b"\n")).copied().collect();
        let written = last.file.write_all_at(&bytes, last.length).and_then(|()| last.file.sync_data());
        if let Err(error) = written {
            // Opened again it would be cut there as well.
            let _ = last.file.set_len(last.length);
            self.last = Some(last);
            return Err(error);
        }
        last.length += bytes.len() as u64;
        let is_full = last.length >= last.full_at;
        self.last = Some(last);
        if is_full {
            self.next_file();
        }
        Ok(())
    }

    /// The newest file goes when its newest line is too old, and nothing older than an eighth of the age goes on in it.
    pub fn tidy(&mut self) {
        let now = SystemTime::now();
        let is_old = |last: &CurrentLineFile| now.duration_since(last.began).is_ok_and(|age| age > self.limits.age / 8);
        if self.last.as_ref().is_some_and(|last| last.length > 0 && is_old(last)) {
            self.next_file();
        }
        self.prune(now);
    }

    /// With the next file. Where none can be made, with this one: what is in it is durable.
    fn next_file(&mut self) {
        let Some(last) = &mut self.last else { return };
        let number = last.number;
        match begin(&self.dir, number + 1, &self.limits) {
            Ok(next) => {
                self.last = Some(next);
                if let Err(error) = pack(&self.dir, number) {
                    tracing::warn!(error = error.to_string(), number, "failed to compress a full segment");
                }
            }
            Err(error) => {
                last.full_at = last.length + full(&self.limits);
                tracing::warn!(
                    error = error.to_string(),
                    number,
                    "failed to start a new segment; continuing in the full one"
                );
            }
        }
        self.prune(SystemTime::now());
    }

    /// The newest file, without what was not acknowledged.
    fn open(&mut self) -> io::Result<CurrentLineFile> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.prune(SystemTime::now());
        let mut all = files(&self.dir)?;
        for packed in all.iter().filter(|file| file.is_packed) {
            // Killed before it was removed.
            let _ = fs::remove_file(self.dir.join(format!("{:08}.{PLAIN}", packed.number)));
        }
        let Some(newest) = all.pop() else { return begin(&self.dir, 1, &self.limits) };
        if newest.is_packed {
            return begin(&self.dir, newest.number + 1, &self.limits);
        }
        let file = OpenOptions::new().read(true).write(true).open(&newest.path)?;
        let bytes = fs::read(&newest.path)?;
        let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) as u64;
        file.set_len(length)?;
        Ok(CurrentLineFile { number: newest.number, file, length, full_at: full(&self.limits), began: newest.modified })
    }

    /// The newest file stays while it is not too old.
    fn prune(&self, now: SystemTime) {
        let Ok(all) = files(&self.dir) else { return };
        let mut bytes: u64 = all.iter().map(|file| file.bytes).sum();
        for (at, file) in all.iter().enumerate() {
            let is_old = now.duration_since(file.modified).is_ok_and(|age| age > self.limits.age);
            let is_much = bytes > self.limits.bytes && at + 1 < all.len();
            if (is_old || is_much) && fs::remove_file(&file.path).is_ok() {
                bytes -= file.bytes;
            }
        }
    }
}

impl CurrentLineFile {
    fn is_at(&self, dir: &Path) -> bool {
        let there = fs::metadata(dir.join(format!("{:08}.{PLAIN}", self.number)));
        there.and_then(|there| Ok(there.ino() == self.file.metadata()?.ino())).unwrap_or(false)
    }
}

fn full(limits: &LineLimits) -> u64 {
    FULL.min(limits.bytes / 8)
}

/// The first number from this one on that is not taken.
fn begin(dir: &Path, from: u64, limits: &LineLimits) -> io::Result<CurrentLineFile> {
    const MOST_TAKEN: u64 = 100;
    let mut number = from;
    let file = loop {
        let path = dir.join(format!("{number:08}.{PLAIN}"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < from + MOST_TAKEN => number += 1,
            file => break file?,
        }
    };
    File::open(dir)?.sync_all()?;
    Ok(CurrentLineFile { number, file, length: 0, full_at: full(limits), began: SystemTime::now() })
}

/// Each line, the newest first, until `each` has enough. Files whose lines are all older than `since` are not opened.
///
/// Errors: the directory cannot be read. A file that cannot be read is reported in the log, and passed over.
pub fn newest_first(
    dir: &Path,
    since: Option<SystemTime>,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    for file in files(dir)?.into_iter().rev() {
        if since.is_some_and(|since| file.modified.checked_add(SLACK).is_some_and(|modified| modified < since)) {
            continue;
        }
        let bytes = match read(&file) {
            Ok(bytes) => bytes,
            // The oldest may be removed during a read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::warn!(path = %file.path.display(), error = error.to_string(), "failed to read a segment");
                continue;
            }
        };
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = bytes[..whole].rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for line in lines {
            if each(line).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The oldest line. `None`: there is none.
///
/// Errors: the directory cannot be read. A file that cannot be is passed over.
pub fn oldest(dir: &Path) -> io::Result<Option<Vec<u8>>> {
    for file in files(dir)? {
        let first = open_unpacked(&file).and_then(|file| {
            let mut line = Vec::new();
            BufReader::new(file.take(LONGEST)).read_until(b'\n', &mut line).map(|_| line)
        });
        match first {
            Ok(line) if line.ends_with(b"\n") => return Ok(Some(line[..line.len() - 1].to_vec())),
            // It has no whole line yet; or it is removed during the read.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

fn open_unpacked(file: &LineFile) -> io::Result<Box<dyn Read>> {
    let opened = File::open(&file.path)?;
    Ok(if file.is_packed { Box::new(GzDecoder::new(opened)) } else { Box::new(opened) })
}

struct LineFile {
    number: u64,
    path: PathBuf,
    is_packed: bool,
    bytes: u64,
    modified: SystemTime,
}

/// The oldest first; of one that is there twice the packed one. None: there is no directory.
fn files(dir: &Path) -> io::Result<Vec<LineFile>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let (Ok(number), true) = (number.parse(), kind == PLAIN || kind == PACKED) else { continue };
        let (mut path, mut is_packed) = (entry.path(), kind == PACKED);
        let mut meta = entry.metadata();
        if !is_packed && meta.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // It was packed since it was listed.
            (path, is_packed) = (path.with_extension(PACKED), true);
            meta = fs::symlink_metadata(&path);
        }
        // Whatever else is called so is not ours: a link may lead anywhere, and a pipe is never read to its end.
        let Some(meta) = meta.ok().filter(fs::Metadata::is_file) else { continue };
        found.push(LineFile { number, path, is_packed, bytes: meta.len(), modified: meta.modified()? });
    }
    found.sort_by_key(|file| (file.number, !file.is_packed));
    found.dedup_by_key(|file| file.number);
    Ok(found)
}

fn read(file: &LineFile) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let packed = file.path.with_extension(PACKED);
    let unpack =
        |path: &Path, into: &mut Vec<u8>| GzDecoder::new(File::open(path)?).take(LONGEST).read_to_end(into).map(drop);
    if file.is_packed {
        unpack(&file.path, &mut bytes)?;
    } else {
        match fs::read(&file.path) {
            // It was packed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => unpack(&packed, &mut bytes)?,
            plain => bytes = plain?,
        }
    }
    Ok(bytes)
}

fn pack(dir: &Path, number: u64) -> io::Result<()> {
    let named = |kind: &str| dir.join(format!("{number:08}.{kind}"));
    let (plain, unfinished) = (named(PLAIN), named(UNFINISHED));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    let packed = fs::read(&plain).and_then(|bytes| encoder.write_all(&bytes)).and_then(|()| encoder.finish());
    match packed.and_then(|file| file.sync_all()) {
        Ok(()) => fs::rename(&unfinished, named(PACKED)).and_then(|()| fs::remove_file(&plain)),
        Err(error) => {
            let _ = fs::remove_file(&unfinished);
            Err(error)
        }
    }
}

/// Promise (Devices): A history line is whole or absent; the oldest expire by age and size; what a disk refuses waits,
/// and is counted
#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LineLimits = LineLimits { bytes: 1 << 20, age: Duration::from_secs(3_600) };

    fn lines(dir: &Path) -> Vec<String> {
        let mut all = Vec::new();
        newest_first(dir, None, |line| {
            all.push(String::from_utf8(line.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }
    fn numbered(from: usize, to: usize) -> Vec<Vec<u8>> {
        (from..to).map(|n| format!("{n:05} {}", "x".repeat(100)).into_bytes()).collect()
    }
    fn names(dir: &Path) -> Vec<String> {
        let mut all: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn oldest_line_is_found_in_a_packed_file_and_a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(oldest(&dir.path().join("absent")).unwrap(), None);
        let mut log = LineLog::new(dir.path(), LIMITS);
        log.append(&numbered(0, 1)).unwrap();
        assert_eq!(oldest(dir.path()).unwrap().unwrap(), numbered(0, 1)[0]);
        (0..30).for_each(|n| log.append(&numbered(n * 100 + 1, n * 100 + 101)).unwrap());
        assert!(names(dir.path())[0].ends_with(PACKED), "{:?}", names(dir.path()));
        assert!(oldest(dir.path()).unwrap().unwrap().starts_with(b"00"));
        let torn = tempfile::tempdir().unwrap();
        fs::write(torn.path().join("00000001.jsonl"), "no end").unwrap();
        assert_eq!(oldest(torn.path()).unwrap(), None);
    }

    #[test]
    fn line_log_is_read_newest_first_over_compressed_files_and_owners() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("history");
        assert_eq!(lines(&dir), Vec::<String>::new(), "there is nothing yet");
        for n in 0..40 {
            // A new owner for each.
            LineLog::new(&dir, LIMITS).append(&numbered(n * 100, n * 100 + 100)).unwrap();
        }
        let all = lines(&dir);
        assert_eq!(all.len(), 4_000);
        assert!(all[0].starts_with("03999 ") && all.is_sorted_by(|a, b| a > b));
        let names = names(&dir);
        assert_eq!(names.iter().filter(|name| name.ends_with(".jsonl")).count(), 1, "{names:?}");
        assert!(names.iter().filter(|name| name.ends_with(".jsonl.gz")).count() > 2, "{names:?}");
        let (mut first, mut seen) = (Vec::new(), 0);
        newest_first(&dir, None, |line| {
            seen += 1;
            first = line.to_vec();
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!((seen, first.starts_with(b"03999 ")), (1, true), "who has enough reads no more");
    }

    #[test]
    fn the_oldest_files_go_by_size_and_each_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let limits = LineLimits { bytes: 64 << 10, ..LIMITS };
        let mut log = LineLog::new(dir.path(), limits);
        // What does not compress, so that files have a size.
        let mut state = 1_u64;
        let mut noise = || {
            let digit = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format!("{:016x}", state ^ (state >> 29))
            };
            (0..64).map(digit).collect::<String>().into_bytes()
        };
        for _ in 0..400 {
            log.append(&[noise()]).unwrap();
        }
        let bytes: u64 = files(dir.path()).unwrap().iter().map(|file| file.bytes).sum();
        assert!(bytes <= limits.bytes + limits.bytes / 8, "{bytes}");
        let retained = lines(dir.path()).len();
        assert!(retained > 50 && retained < 200, "{retained}");
        log.prune(SystemTime::now() + Duration::from_secs(7_200));
        assert_eq!(names(dir.path()), Vec::<String>::new(), "all of it is too old");
        // What comes then is in a file that is there.
        log.append(&numbered(7, 8)).unwrap();
        assert_eq!(lines(dir.path()).len(), 1);
        fs::remove_dir_all(dir.path()).unwrap();
        log.append(&numbered(8, 9)).unwrap();
        assert!(lines(dir.path())[0].starts_with("00008"), "the removed one has a new one in its place");
        // A file whose first line is old takes no more lines.
        log.last.as_mut().unwrap().began = SystemTime::now() - Duration::from_secs(1_000);
        log.tidy();
        log.append(&numbered(9, 10)).unwrap();
        assert_eq!((lines(dir.path()).len(), names(dir.path()).len()), (2, 2));
    }

    #[test]
    fn line_log_continues_in_the_full_file_if_no_next_one_can_be_created() {
        let dir = tempfile::tempdir().unwrap();
        let limits = LineLimits { bytes: 64 << 10, ..LIMITS };
        let mut log = LineLog::new(dir.path(), limits);
        log.append(&numbered(0, 1)).unwrap();
        // Others have taken all the next numbers, as a full disk has.
        for number in 2..=110 {
            fs::create_dir(dir.path().join(format!("{number:08}.jsonl"))).unwrap();
        }
        for n in 1..300 {
            log.append(&numbered(n, n + 1)).unwrap();
        }
        assert_eq!(lines(dir.path()).len(), 300);
        fs::remove_dir(dir.path().join("00000003.jsonl")).unwrap();
        log.next_file();
        log.append(&numbered(300, 301)).unwrap();
        assert_eq!((log.last.as_ref().unwrap().number, lines(dir.path()).len()), (3, 301), "and passes over those");
    }

    #[test]
    fn line_log_skips_unfinished_writes_of_a_killed_owner() {
        let dir = tempfile::tempdir().unwrap();
        LineLog::new(dir.path(), LIMITS).append(&numbered(0, 3)).unwrap();
        let newest = dir.path().join("00000001.jsonl");
        let whole = fs::read(&newest).unwrap();
        // A line that was not written to its end.
        fs::write(&newest, [whole.as_slice(), b"00003 half"].concat()).unwrap();
        assert_eq!(lines(dir.path()).len(), 3);
        LineLog::new(dir.path(), LIMITS).append(&numbered(3, 4)).unwrap();
        assert_eq!(
            lines(dir.path()).iter().map(|line| &line[..5]).collect::<Vec<_>>(),
            ["00003", "00002", "00001", "00000"]
        );
        // Killed between the packed one and the end of the other; and while it was packed.
        pack(dir.path(), 1).unwrap();
        fs::write(&newest, &whole).unwrap();
        fs::write(dir.path().join("00000001.jsonl.gz.new"), b"half").unwrap();
        assert_eq!(lines(dir.path()).len(), 4);
        LineLog::new(dir.path(), LIMITS).append(&numbered(4, 5)).unwrap();
        assert_eq!(lines(dir.path()).len(), 5);
        assert!(!newest.exists(), "it is there once");
        // Garbage costs itself alone.
        fs::write(dir.path().join("00000001.jsonl.gz"), b"no gzip").unwrap();
        fs::create_dir(dir.path().join("00000009.jsonl")).unwrap();
        assert_eq!(lines(dir.path()).len(), 1);
    }

    #[test]
    fn line_refused_by_the_disk_is_absent_and_can_be_appended_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LineLog::new(dir.path(), LIMITS);
        log.append(&numbered(0, 1)).unwrap();
        let last = log.last.as_mut().unwrap();
        let writable = std::mem::replace(&mut last.file, File::open(dir.path().join("00000001.jsonl")).unwrap());
        log.append(&numbered(1, 2)).unwrap_err();
        log.last.as_mut().unwrap().file = writable;
        assert_eq!(lines(dir.path()).len(), 1);
        log.append(&numbered(1, 3)).unwrap();
        assert_eq!(lines(dir.path()).len(), 3);
    }
}
