//! Archives of ZIP. The central directory is read entry by entry, so that one of many million entries takes no memory.
//!
//! Source: PKWARE's APPNOTE.TXT 6.3.10, 4.3 and 4.5.3.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use super::meter::{MeteredReader, UnpackMeter};
use super::tree::{ArchiveTree, EntryPath, EntryRights, hostile};

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;
const END_LENGTH: usize = 22;
/// The last record, with the longest comment.
const LONGEST_END: u64 = 22 + 65_535;
const LONGEST_LINK: u64 = 4096;
/// What is absent here and stands in the extra field of ZIP64.
const IN_EXTRA: u64 = 0xffff_ffff;
const ENCRYPTED: u64 = 1;
const FILE_TYPE: u32 = 0o170_000;
const LINK: u32 = 0o120_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// A part of a file, from the front.
struct FileSection<'f> {
    file: &'f File,
    at: u64,
    end: u64,
}

impl Read for FileSection<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let requested = into.len().min(left);
        let length = self.file.read_at(into.get_mut(..requested).unwrap_or_default(), self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

/// A little-endian number in a record; 0 beyond its end.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let field = bytes.get(at..at + length).unwrap_or_default();
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn has_signature(bytes: &[u8], signature: u32) -> bool {
    number(bytes, 0, 4) == u64::from(signature)
}

fn broken() -> io::Error {
    hostile("it is no archive of ZIP, or breaks off")
}

/// Where the central directory is, and what its offsets count from.
struct Directory {
    begin: u64,
    end: u64,
    entries: u64,
    base: u64,
}

fn directory(file: &File) -> io::Result<Directory> {
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(LONGEST_END);
    let mut tail = Vec::new();
    FileSection { file, at: begin, end: length }.read_to_end(&mut tail)?;
    let is_end = |at: &usize| {
        tail.get(*at..).is_some_and(|record| {
            let comment = usize::try_from(number(record, 20, 2)).unwrap_or(usize::MAX);
            has_signature(record, END) && record.len() >= END_LENGTH + comment
        })
    };
    let at = (0..(tail.len() + 1).saturating_sub(END_LENGTH)).rev().find(is_end).ok_or_else(broken)?;
    let record = tail.get(at..).unwrap_or_default();
    let (mut entries, mut size, mut offset) = (number(record, 10, 2), number(record, 12, 4), number(record, 16, 4));
    let mut end = begin + at as u64;
    let mut locator = [0; 20];
    if (entries == 0xffff || size == IN_EXTRA || offset == IN_EXTRA)
        && end >= 20
        && file.read_exact_at(&mut locator, end - 20).is_ok()
        && has_signature(&locator, LOCATOR_64)
    {
        let mut record = [0; 56];
        let place = number(&locator, 8, 8);
        file.read_exact_at(&mut record, place).map_err(|_| broken())?;
        if !has_signature(&record, END_64) {
            return Err(broken());
        }
        (entries, size, offset) = (number(&record, 32, 8), number(&record, 40, 8), number(&record, 48, 8));
        end = place;
    }
    // A program stands before one that unpacks itself.
    let base = end.checked_sub(size).and_then(|begin| begin.checked_sub(offset)).ok_or_else(broken)?;
    Ok(Directory { begin: end - size, end, entries, base })
}

/// One entry of the central directory.
struct Entry {
    name: Vec<u8>,
    method: u64,
    checksum: u64,
    packed: u64,
    unpacked: u64,
    /// Of its local header.
    offset: u64,
    /// Type and permissions; 0: not given.
    mode: u32,
}

fn entry(from: &mut impl Read) -> io::Result<Entry> {
    let mut record = [0; 46];
    from.read_exact(&mut record).map_err(|_| broken())?;
    if !has_signature(&record, CENTRAL) {
        return Err(broken());
    }
    let length = |at| usize::try_from(number(&record, at, 2)).unwrap_or(0);
    let mut take = |length: usize| {
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).map_err(|_| broken())?;
        Ok::<_, io::Error>(bytes)
    };
    let (name, extra, _comment) = (take(length(28))?, take(length(30))?, take(length(32))?);
    if number(&record, 8, 2) & ENCRYPTED != 0 {
        return Err(hostile("it is encrypted"));
    }
    let mut sizes = [number(&record, 24, 4), number(&record, 20, 4), number(&record, 42, 4)];
    let mut extra = extra.as_slice();
    while extra.len() >= 4 {
        let length = usize::try_from(number(extra, 2, 2)).unwrap_or(0);
        let field = extra.get(4..4 + length).ok_or_else(broken)?;
        if number(extra, 0, 2) == 1 {
            let absent = sizes.iter_mut().filter(|size| **size == IN_EXTRA);
            for (at, size) in absent.enumerate() {
                *size = number(field.get(at * 8..at * 8 + 8).ok_or_else(broken)?, 0, 8);
            }
        }
        extra = extra.get(4 + length..).unwrap_or_default();
    }
    let [unpacked, packed, offset] = sizes;
    // The upper half of the attributes is Unix's, if the writer is; others leave it 0.
    let mode = u32::try_from(number(&record, 38, 4) >> 16).unwrap_or(0);
    let (method, checksum) = (number(&record, 10, 2), number(&record, 16, 4));
    Ok(Entry { name, method, checksum, packed, unpacked, offset, mode })
}

/// Errors: `InvalidData`: it is broken, or an entry leads out of the tree.
pub(super) fn unpack(file: &File, tree: &ArchiveTree<'_>, meter: &UnpackMeter<'_>) -> io::Result<()> {
    let directory = directory(file)?;
    let mut entries = BufReader::new(FileSection { file, at: directory.begin, end: directory.end });
    for _ in 0..directory.entries {
        meter.check_cancelled()?;
        let entry = entry(&mut entries)?;
        let path = EntryPath::parse(&entry.name).map_err(hostile)?;
        let kind = entry.mode & FILE_TYPE;
        let shown = || String::from_utf8_lossy(&entry.name).chars().take(200).collect::<String>();
        if entry.name.ends_with(b"/") || kind == DIRECTORY {
            tree.directory(&path, if entry.mode == 0 { 0o755 } else { entry.mode })?;
            continue;
        }
        let mut data = ChecksumReader::of(file, &directory, &entry, meter)?;
        match kind {
            LINK => {
                let mut target = Vec::new();
                (&mut data).take(LONGEST_LINK + 1).read_to_end(&mut target)?;
                if target.len() as u64 > LONGEST_LINK {
                    return Err(hostile(format!("the link {:?} is too long", shown())));
                }
                tree.symlink(&path, &target, &EntryRights::default())?;
            }
            0 | REGULAR => {
                let mode = if entry.mode & 0o777 == 0 { 0o644 } else { entry.mode };
                tree.file(&path, &EntryRights::of_file(mode, None), &mut data)?;
            }
            _ => return Err(hostile(format!("{:?} is a device node or a FIFO", shown()))),
        }
        data.finish().map_err(|e| {
            if e.kind() == io::ErrorKind::InvalidData { hostile(format!("{:?}: {e}", shown())) } else { e }
        })?;
    }
    Ok(())
}

/// The data of an entry, which must have the length and the checksum that the directory gives.
struct ChecksumReader<'a> {
    from: Box<dyn Read + 'a>,
    left: u64,
    summed: crc32fast::Hasher,
    checksum: u64,
}

impl<'a> ChecksumReader<'a> {
    fn of(
        file: &'a File,
        directory: &Directory,
        entry: &Entry,
        meter: &'a UnpackMeter<'a>,
    ) -> io::Result<ChecksumReader<'a>> {
        let place = directory.base.checked_add(entry.offset).ok_or_else(broken)?;
        let mut local = [0; 30];
        file.read_exact_at(&mut local, place).map_err(|_| broken())?;
        if !has_signature(&local, LOCAL) {
            return Err(broken());
        }
        let begin = place + 30 + number(&local, 26, 2) + number(&local, 28, 2);
        let part = FileSection { file, at: begin, end: begin.checked_add(entry.packed).ok_or_else(broken)? };
        let part = BufReader::with_capacity(64 << 10, part);
        let from: Box<dyn Read + 'a> = match entry.method {
            0 => Box::new(part),
            8 => Box::new(flate2::bufread::DeflateDecoder::new(part)),
            12 => Box::new(bzip2::bufread::BzDecoder::new(part)),
            93 => Box::new(zstd::stream::read::Decoder::with_buffer(part)?),
            other => return Err(hostile(format!("it is compressed by method {other}, which is not supported"))),
        };
        let from = Box::new(MeteredReader { from, meter });
        Ok(ChecksumReader { from, left: entry.unpacked, summed: crc32fast::Hasher::new(), checksum: entry.checksum })
    }

    /// Errors: something is missing, is too much, or is not what was packed.
    fn finish(mut self) -> io::Result<()> {
        let more = self.from.read(&mut [0])?;
        if more > 0 || self.left > 0 {
            return Err(hostile("its length is not that of the archive's directory"));
        }
        if u64::from(self.summed.finalize()) == self.checksum { Ok(()) } else { Err(hostile("its checksum is wrong")) }
    }
}

impl Read for ChecksumReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let requested = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let into = into.get_mut(..requested).unwrap_or_default();
        if into.is_empty() {
            return Ok(0);
        }
        let length = self.from.read(into)?;
        self.left -= length as u64;
        self.summed.update(into.get(..length).unwrap_or_default());
        Ok(length)
    }
}
