//! What the archive of a migration has beyond any other: extended attributes, holes in files, and a seal at its end.
//!
//! The seal is a file at the end, with the records of an extended header. Other programs unpack it like any other:
//! ```text
//! ALLOSTAT.entries=12   entries before it
//! ALLOSTAT.bytes=4096   the sizes of all files
//! ALLOSTAT.sha256=...   of the archive up to the header block of the seal, including that
//! ALLOSTAT.error=...    instead of these: why the sender could not read the rest
//! ALLOSTAT.changed=...  instead of these: what changed while the sender read; another attempt may succeed
//! ```
//! Source: pax(1); GNU tar's manual, "PAX Format, Version 1.0"; star(5) for `SCHILY.xattr`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use ring::digest::{Context, SHA256};

use super::meter::UnpackMeter;
use super::tree::{hostile, truncated};

pub const SPARSE: &[u8] = b"GNU.sparse.";
pub const XATTR: &[u8] = b"SCHILY.xattr.";
/// The only attributes that a user may set. `security.*` and `trusted.*` would grant rights.
const USER_XATTR: &[u8] = b"user.";
const BLOCK: usize = 512;
/// Extents of one file.
pub const MOST_EXTENTS: u64 = 1 << 16;

/// Where an archive comes from.
pub trait TarSource: Read {
    /// It ends with a seal, and keeps all of a tree.
    fn is_sealed(&self) -> bool;
    /// SHA-256 of all that was read, in hexadecimal. Absent when: it has no seal.
    fn digest(&self) -> Option<String>;
}

/// An archive of any program.
pub struct UnsealedArchive<'a>(pub &'a mut dyn Read);

impl Read for UnsealedArchive<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl TarSource for UnsealedArchive<'_> {
    fn is_sealed(&self) -> bool {
        false
    }
    fn digest(&self) -> Option<String> {
        None
    }
}

/// The archive of a migration.
pub struct SealedArchive<R> {
    from: R,
    sum: Context,
}

impl<R: Read> SealedArchive<R> {
    pub fn new(from: R) -> SealedArchive<R> {
        SealedArchive { from, sum: Context::new(&SHA256) }
    }
}

impl<R: Read> Read for SealedArchive<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        self.sum.update(into.get(..length).unwrap_or_default());
        Ok(length)
    }
}

impl<R: Read> TarSource for SealedArchive<R> {
    fn is_sealed(&self) -> bool {
        true
    }
    fn digest(&self) -> Option<String> {
        Some(hexadecimal(self.sum.clone().finish().as_ref()))
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What an archive has, by its own account or counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveSeal {
    pub entries: u64,
    pub bytes: u64,
}

/// Its name.
pub const SEAL: &str = ".allostat-seal";
pub const SEAL_ENTRIES: &str = "ALLOSTAT.entries";
pub const SEAL_BYTES: &str = "ALLOSTAT.bytes";
pub const SEAL_SHA256: &str = "ALLOSTAT.sha256";
pub const SEAL_ERROR: &str = "ALLOSTAT.error";
pub const SEAL_CHANGED: &str = "ALLOSTAT.changed";

impl ArchiveSeal {
    /// `None`: it is not complete.
    ///
    /// Errors: its digest is not that of what was read; the sender failed; `UnexpectedEof`: the data changed meanwhile.
    pub(super) fn parse(bytes: &[u8], digest: String) -> io::Result<Option<ArchiveSeal>> {
        let (mut entries, mut size, mut expected) = (None, None, None);
        for record in records(bytes) {
            match record? {
                (key, value) if key == SEAL_ENTRIES.as_bytes() => entries = Some(number(value)?),
                (key, value) if key == SEAL_BYTES.as_bytes() => size = Some(number(value)?),
                (key, value) if key == SEAL_SHA256.as_bytes() => expected = Some(value.to_vec()),
                (key, value) if key == SEAL_ERROR.as_bytes() => {
                    return Err(io::Error::other(format!("the peer could not read it: {}", reason(value))));
                }
                (key, value) if key == SEAL_CHANGED.as_bytes() => {
                    let message = format!("it changed while the peer read it: {}", reason(value));
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
                _ => {}
            }
        }
        let (Some(entries), Some(bytes), Some(expected)) = (entries, size, expected) else { return Ok(None) };
        if expected != digest.as_bytes() {
            return Err(hostile("the SHA-256 of what was received is not that of the seal"));
        }
        Ok(Some(ArchiveSeal { entries, bytes }))
    }
    /// Errors: it is not what was counted.
    pub(super) fn check(self, counted: ArchiveSeal) -> io::Result<ArchiveSeal> {
        if self == counted {
            return Ok(self);
        }
        let ArchiveSeal { entries, bytes } = counted;
        Err(hostile(format!(
            "received {entries} entries with {bytes} bytes; the seal has {} with {}",
            self.entries, self.bytes
        )))
    }
}

/// The sender's own words.
fn reason(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).take(300).collect()
}

/// A file whose extents alone are in the archive.
#[derive(Default)]
pub struct SparseFile {
    pub name: Vec<u8>,
    version: (Option<u64>, Option<u64>),
    size: Option<u64>,
}

impl SparseFile {
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key.strip_prefix(SPARSE).unwrap_or_default() {
            b"name" => self.name = value.to_vec(),
            b"major" => self.version.0 = Some(number(value)?),
            b"minor" => self.version.1 = Some(number(value)?),
            b"realsize" => self.size = Some(number(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns its size, holes included.
    pub(super) fn unpack(&self, mut data: &mut dyn Read, file: &mut File, meter: &UnpackMeter<'_>) -> io::Result<u64> {
        let (Some(size), (Some(1), Some(0))) = (self.size, self.version) else {
            return Err(hostile("it has a sparse file of another version than 1.0"));
        };
        let map = read_map(data, size)?;
        let stored: u64 = map.iter().map(|(_, length)| length).sum();
        // Holes take no room, but a limit on the size is one of sizes.
        meter.unpacks(size - stored)?;
        for (offset, length) in map {
            file.seek(SeekFrom::Start(offset))?;
            if meter.copy(&mut Read::take(&mut data, length), file)? < length {
                return Err(truncated());
            }
        }
        file.set_len(size)?;
        Ok(size)
    }
}

/// Offsets and lengths, in order.
///
/// Errors: they overlap or are not within the file.
fn read_map(data: &mut dyn Read, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let odd = || hostile("the map of a sparse file is broken");
    let mut numbers = SparseMapReader { data, block: [0; BLOCK], at: BLOCK };
    let count = numbers.next()?;
    if count > MOST_EXTENTS {
        return Err(hostile(format!("a sparse file has more than {MOST_EXTENTS} extents")));
    }
    let (mut map, mut end) = (Vec::new(), 0_u64);
    for _ in 0..count {
        let (offset, length) = (numbers.next()?, numbers.next()?);
        if offset < end {
            return Err(odd());
        }
        end = offset.checked_add(length).filter(|end| *end <= size).ok_or_else(odd)?;
        if length > 0 {
            map.push((offset, length));
        }
    }
    Ok(map)
}

/// Decimal numbers, each with its end of line, in whole blocks.
struct SparseMapReader<'a> {
    data: &'a mut dyn Read,
    block: [u8; BLOCK],
    at: usize,
}

impl SparseMapReader<'_> {
    fn next(&mut self) -> io::Result<u64> {
        let mut value: Option<u64> = None;
        loop {
            if self.at == BLOCK {
                self.data.read_exact(&mut self.block).map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof => truncated(),
                    _ => e,
                })?;
                self.at = 0;
            }
            let byte = self.block.get(self.at).copied().unwrap_or_default();
            self.at += 1;
            let digit = match byte {
                b'\n' => return value.ok_or_else(|| hostile("the map of a sparse file is broken")),
                b'0'..=b'9' => u64::from(byte - b'0'),
                _ => return Err(hostile("the map of a sparse file is broken")),
            };
            let more = value.unwrap_or(0).checked_mul(10).and_then(|value| value.checked_add(digit));
            value = Some(more.ok_or_else(|| hostile("the map of a sparse file is broken"))?);
        }
    }
}

/// `LENGTH KEY=VALUE\n`, one after another.
pub(super) fn records(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let parsed = record(bytes);
        bytes = parsed.as_ref().map(|(_, _, rest)| *rest).unwrap_or_default();
        Some(parsed.map(|(key, value, _)| (key, value)))
    })
}

type Record<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn record(bytes: &[u8]) -> io::Result<Record<'_>> {
    let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(odd_header)?;
    let length = bytes.get(..space).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
    let length = length.filter(|length| *length > space + 1 && *length <= bytes.len()).ok_or_else(odd_header)?;
    let (record, rest) = bytes.split_at(length);
    let record = record.get(space + 1..).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(odd_header)?;
    let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(odd_header)?;
    Ok((record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default(), rest))
}

fn odd_header() -> io::Error {
    hostile("an extended header of the archive is broken")
}

pub(super) fn number(value: &[u8]) -> io::Result<u64> {
    std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok()).ok_or_else(odd_header)
}

/// `1700000000.123456789`
pub(super) fn time(value: &[u8]) -> io::Result<(i64, u32)> {
    let text = std::str::from_utf8(value).map_err(|_| odd_header())?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    match (seconds.parse(), digits.parse()) {
        (Ok(seconds), Ok(nanos)) => Ok((seconds, nanos)),
        _ => Err(odd_header()),
    }
}

/// `None`: none that is kept. Errors: not percent-encoded.
pub(super) fn xattr(key: &[u8], value: &[u8]) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let Some(encoded) = key.strip_prefix(XATTR).filter(|name| name.starts_with(USER_XATTR)) else { return Ok(None) };
    let mut name = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'%', [b'2', b'5', after @ ..]) => {
                name.push(b'%');
                rest = after;
            }
            (b'%', [b'3', b'D', after @ ..]) => {
                name.push(b'=');
                rest = after;
            }
            (0, _) => return Err(odd_header()),
            (byte, _) => name.push(*byte),
        }
    }
    Ok(Some((name, value.to_vec())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map_of(text: &str, size: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(text.len().next_multiple_of(BLOCK), 0);
        read_map(&mut bytes.as_slice(), size)
    }

    #[test]
    fn sparse_map_outside_of_its_file_or_unsorted_is_refused() {
        assert_eq!(map_of("2\n0\n4\n8\n0\n", 8).unwrap(), [(0, 4)]);
        assert_eq!(map_of("0\n", 1 << 40).unwrap(), []);
        let odd =
            ["2\n4\n4\n0\n2\n", "1\n0\n9\n", "1\n18446744073709551615\n2\n", "1\n-1\n2\n", "1\n\n2\n", "99999999\n"];
        for text in odd {
            assert_eq!(map_of(text, 8).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
        assert_eq!(map_of("", 8).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn only_user_attributes_are_extracted_with_decoded_names() {
        let of = |key: &str| xattr(key.as_bytes(), b"v").unwrap().map(|(name, _)| String::from_utf8(name).unwrap());
        assert_eq!(of("SCHILY.xattr.user.a%3Db%25").as_deref(), Some("user.a=b%"));
        for other in ["SCHILY.xattr.security.capability", "SCHILY.xattr.trusted.x", "user.a", "comment"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn extended_headers_of_any_bytes_are_read_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            for (key, value) in records(&bytes).map_while(Result::ok) {
                let _ = (number(value), time(value), xattr(key, value));
            }
        }
        #[test]
        fn sparse_maps_of_any_text_lie_within_their_file(text in "[0-9\n]{0,60}", size in 0_u64..1000) {
            if let Ok(map) = map_of(&text, size) {
                prop_assert!(map.iter().all(|(offset, length)| offset + length <= size));
            }
        }
    }
}
