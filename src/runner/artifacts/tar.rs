//! Archives of tar, read as a stream: names and links of whatever length are bounded before they are read.
//!
//! Source: pax(1), GNU tar's manual, "Basic Tar Format".

use std::io::{self, Read};

use ::tar::Header;

use super::meter::Meter;
use super::tree::{EntryPath, EntryRights, Tree, hostile};

const BLOCK: usize = 512;
/// Of a long name, or of the extended header of an entry.
const LARGEST_EXTENSION: u64 = 256 << 10;

/// What stands before an entry and is meant for it.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Errors: `InvalidData`: it is broken, or an entry leads out of the tree.
pub(super) fn unpack(from: &mut dyn Read, tree: &Tree<'_>, meter: &Meter<'_>) -> io::Result<()> {
    let mut extension = Extension::default();
    let mut is_first = true;
    while let Some(header) = header(from, is_first)? {
        is_first = false;
        meter.goes_on()?;
        let kind = header.entry_type();
        let size = header.entry_size().map_err(|e| hostile(format!("a header of the archive is broken: {e}")))?;
        let size = if is_extension(&header) { size } else { extension.size.unwrap_or(size) };
        let mut data = from.take(size);
        if is_extension(&header) {
            if size > LARGEST_EXTENSION {
                return Err(hostile(format!("a name or an extended header has {size} bytes")));
            }
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes)?;
            if (bytes.len() as u64) < size {
                return Err(broken_off());
            }
            let text = |mut bytes: Vec<u8>| {
                bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
                bytes
            };
            if kind.is_gnu_longname() {
                extension.path = Some(text(bytes));
            } else if kind.is_gnu_longlink() {
                extension.link = Some(text(bytes));
            } else if kind.is_pax_local_extensions() {
                extended(&bytes, &mut extension)?;
            }
        } else {
            entry(&header, std::mem::take(&mut extension), &mut data, tree)?;
        }
        // What was not read of it, and what fills its last block.
        let left = data.limit();
        let filler = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        skip(from, left.saturating_add(filler))?;
    }
    // To the end, where its checksum is.
    let mut rest = [0; 16 << 10];
    while from.read(&mut rest)? > 0 {
        meter.goes_on()?;
    }
    Ok(())
}

fn is_extension(header: &Header) -> bool {
    let kind = header.entry_type();
    kind.is_gnu_longname()
        || kind.is_gnu_longlink()
        || kind.is_pax_local_extensions()
        || kind.is_pax_global_extensions()
}

/// `None`: the archive ends here.
fn header(from: &mut dyn Read, is_first: bool) -> io::Result<Option<Header>> {
    let mut block = [0; BLOCK];
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest)? {
            0 => break,
            length => filled += length,
        }
    }
    match filled {
        0 if is_first => return Err(hostile("it is empty, and no archive of tar")),
        0 => return Ok(None),
        BLOCK => {}
        _ if is_first => return Err(hostile("it is no archive of tar")),
        _ => return Err(broken_off()),
    }
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let header = Header::from_byte_slice(&block).clone();
    let sum = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
    let summed: u32 = block.iter().enumerate().map(sum).sum();
    if header.cksum().ok() != Some(summed) {
        let what = if is_first { "it is no archive of tar" } else { "a header of the archive is broken" };
        return Err(hostile(what));
    }
    Ok(Some(header))
}

fn entry(header: &Header, extension: Extension, data: &mut dyn Read, tree: &Tree<'_>) -> io::Result<()> {
    let kind = header.entry_type();
    let name = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let path = EntryPath::parse(&name).map_err(hostile)?;
    let link = extension.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
    let mode = header.mode().unwrap_or(0o644);
    let what = match () {
        () if kind.is_dir() || (kind.is_file() && name.ends_with(b"/")) => return tree.directory(&path, mode),
        () if kind.is_file() || kind.is_contiguous() => {
            let mtime = header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
            return tree.file(&path, EntryRights { mode, mtime }, data);
        }
        () if kind.is_symlink() => return tree.symlink(&path, &link.unwrap_or_default()),
        () if kind.is_hard_link() => {
            let target = EntryPath::parse(&link.unwrap_or_default()).map_err(hostile)?;
            return tree.hard_link(&path, &target);
        }
        // The name of the volume.
        () if kind.as_byte() == b'V' => return Ok(()),
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_character_special() || kind.is_block_special() => "a device node",
        () if kind.is_gnu_sparse() => "a sparse file, which is not supported",
        () => "of an unknown type",
    };
    Err(hostile(format!("{:?} is {what}", String::from_utf8_lossy(&name).chars().take(200).collect::<String>())))
}

/// `LENGTH KEY=VALUE\n`, one after another.
fn extended(mut bytes: &[u8], into: &mut Extension) -> io::Result<()> {
    let broken = || hostile("an extended header of the archive is broken");
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
        let length = bytes.get(..space).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
        let length = length.filter(|length| *length > space + 1 && *length <= bytes.len()).ok_or_else(broken)?;
        let (record, rest) = bytes.split_at(length);
        let record = record.get(space + 1..).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(broken)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
        let (key, value) = (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
        match key {
            b"path" => into.path = Some(value.to_vec()),
            b"linkpath" => into.link = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                into.size = Some(size.ok_or_else(broken)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(hostile("it has sparse files, which are not supported"));
            }
            _ => {}
        }
        bytes = rest;
    }
    Ok(())
}

fn skip(from: &mut dyn Read, mut bytes: u64) -> io::Result<()> {
    let mut piece = [0; 16 << 10];
    while bytes > 0 {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).min(piece.len());
        match from.read(piece.get_mut(..wanted).unwrap_or_default())? {
            0 => return Err(broken_off()),
            length => bytes -= length as u64,
        }
    }
    Ok(())
}

fn broken_off() -> io::Error {
    hostile("the archive breaks off")
}
