//! The data of an ended alloc as a sealed tar archive: `alloc/data` and each task's `local`, with owners, modes, times, links, holes
//! and the extended attributes of users. FIFOs and sockets are left out.
//!
//! Source: pax(1); GNU tar's manual, "PAX Format, Version 1.0".

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use ::tar::{EntryType, Header};
use ring::digest::{Context, SHA256};
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;

use crate::host::foreign_tree::{FileFacts, ForeignTree, FoundFile};
use crate::runner::artifacts::{
    ArchiveSeal, MOST_EXTENTS, SEAL, SEAL_BYTES, SEAL_ENTRIES, SEAL_ERROR, SEAL_SHA256, SPARSE, XATTR, hexadecimal,
};

/// More entries are no directory of an alloc.
const MOST_ENTRIES: u64 = 1_000_000;
/// Files with several names whose links are kept; further ones are sent once for each name.
const MOST_LINKED: usize = 1 << 16;
/// Extended attributes of one file. Source: `XATTR_SIZE_MAX`, `XATTR_LIST_MAX`.
const XATTR_MOST: usize = 64 << 10;
const XATTRS_MOST: usize = 128 << 10;
const BLOCK: u64 = 512;
/// The end of an archive, and more than what fills a block.
const ZEROS: [u8; 1024] = [0; 1024];
/// Length limits of names in the header of an entry, and where the target of a link begins.
const NAME: usize = 100;
const LINK: usize = 157;
const PIECE: usize = 256 << 10;

/// Writes the data of an alloc. What cannot be read ends the archive with the reason instead of a seal.
///
/// Errors: of the writer; a file that cannot be read to its end.
pub fn write_migration(tree: &ForeignTree, into: &mut dyn Write) -> io::Result<()> {
    let mut archive = Archive {
        into: Summed { into, sum: Context::new(&SHA256) },
        seal: ArchiveSeal::default(),
        linked: HashMap::new(),
        buffer: vec![0; PIECE],
        in_entry: false,
    };
    match archive.roots(tree) {
        Ok(()) => archive.finish(),
        Err(error) if archive.in_entry => Err(error),
        Err(error) => archive.failed(&error),
    }
}

/// Sums up what is written.
struct Summed<'a> {
    into: &'a mut dyn Write,
    sum: Context,
}

impl Summed<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.into.write_all(bytes)
    }
}

struct Archive<'a> {
    into: Summed<'a>,
    seal: ArchiveSeal,
    /// By inode, of files with several names: the first of them.
    linked: HashMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
    /// Between the header of an entry and its end.
    in_entry: bool,
}

/// What goes before the header of an entry.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        // Its own length is part of it.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        for part in [b" ".as_slice(), key, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }
}

fn filler(bytes: u64) -> usize {
    usize::try_from(bytes.next_multiple_of(BLOCK) - bytes).unwrap_or_default()
}

impl Archive<'_> {
    fn roots(&mut self, tree: &ForeignTree) -> io::Result<()> {
        let all = tree.find("/")?;
        let (entries, _) = tree.list(&all, usize::try_from(MOST_ENTRIES).unwrap_or(usize::MAX))?;
        for entry in entries.iter().filter(|entry| entry.facts.kind == FileType::Directory) {
            let inner = if entry.name == "alloc" { "data" } else { "local" };
            // Of the agent's own.
            if !entry.name.as_bytes().starts_with(b".") {
                self.below(tree, vec![entry.name.clone(), inner.into()])?;
            }
        }
        Ok(())
    }

    fn below(&mut self, tree: &ForeignTree, top: Vec<OsString>) -> io::Result<()> {
        let mut waiting = vec![top];
        while let Some(names) = waiting.pop() {
            let shown = names.join(OsStr::new("/"));
            let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", shown.display()));
            let found = match tree.exactly(names) {
                // Gone meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(named)?,
            };
            if self.seal.entries >= MOST_ENTRIES {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than a million entries"));
            }
            self.entry(&found, shown.as_bytes()).map_err(named)?;
            if found.facts.kind == FileType::Directory {
                let most = usize::try_from(MOST_ENTRIES).unwrap_or(usize::MAX);
                let (below, omitted) = tree.list(&found, most).map_err(named)?;
                if omitted > 0 {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than a million entries"));
                }
                let child = |name: OsString| found.names.iter().cloned().chain([name]).collect::<Vec<_>>();
                waiting.extend(below.into_iter().rev().map(|entry| child(entry.name)));
            }
        }
        Ok(())
    }

    fn entry(&mut self, found: &FoundFile, path: &[u8]) -> io::Result<()> {
        let mut records = Records::default();
        if std::str::from_utf8(path).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its name is no UTF-8"));
        }
        match found.facts.kind {
            FileType::Directory => {
                xattrs(&mut records, &found.open_directory()?)?;
                self.header(EntryType::Directory, (path, b""), &found.facts, (0, records))
            }
            FileType::Symlink => {
                let target = found.target()?;
                self.header(EntryType::Symlink, (path, target.as_bytes()), &found.facts, (0, records))
            }
            FileType::RegularFile => self.file(&found.open()?, path, &found.facts),
            FileType::Fifo | FileType::Socket => Ok(()),
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it is a device"))
            }
        }
    }

    fn file(&mut self, file: &File, path: &[u8], facts: &FileFacts) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if stat.st_nlink > 1 {
            let id = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&id).cloned() {
                return self.header(EntryType::Link, (path, &first), facts, (0, Records::default()));
            }
            if self.linked.len() < MOST_LINKED {
                self.linked.insert(id, path.to_vec());
            }
        }
        let mut records = Records::default();
        xattrs(&mut records, file)?;
        let extents = extents(file, size)?;
        let stored: u64 = extents.iter().map(|(_, length)| length).sum();
        let mut map = Vec::new();
        if stored < size {
            sparse(&mut records, path, size);
            map = map_of(&extents);
        }
        self.header(EntryType::Regular, (path, b""), facts, (map.len() as u64 + stored, records))?;
        self.in_entry = true;
        self.into.put(&map)?;
        for (offset, length) in extents {
            self.content(file, offset, length)?;
        }
        self.into.put(&ZEROS[..filler(map.len() as u64 + stored)])?;
        self.in_entry = false;
        self.seal.bytes += size;
        Ok(())
    }

    /// So many bytes, whatever becomes of the file: what shrank meanwhile is filled with zeros.
    fn content(&mut self, file: &File, mut offset: u64, mut left: u64) -> io::Result<()> {
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = self.buffer.get_mut(..most).unwrap_or_default();
            let read = match file.read_at(piece, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let piece = if read == 0 {
                piece.fill(0);
                piece
            } else {
                piece.get_mut(..read).unwrap_or_default()
            };
            self.into.put(piece)?;
            (offset, left) = (offset + piece.len() as u64, left - piece.len() as u64);
        }
        Ok(())
    }

    fn header(
        &mut self,
        kind: EntryType,
        (path, link): (&[u8], &[u8]),
        facts: &FileFacts,
        (size, mut records): (u64, Records),
    ) -> io::Result<()> {
        let nanos = facts.modified_nanos.unwrap_or(0);
        let time = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        records.add(b"mtime", time.as_bytes());
        if path.len() > NAME {
            records.add(b"path", path);
        }
        if link.len() > NAME {
            records.add(b"linkpath", link);
        }
        self.in_entry = true;
        self.extension((EntryType::XHeader, "PaxHeader"), &records)?;
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(facts.mode);
        header.set_uid(facts.uid.into());
        header.set_gid(facts.gid.into());
        header.set_mtime(nanos / 1_000_000_000);
        header.set_size(size);
        put_text(&mut header, 0, path);
        put_text(&mut header, LINK, link);
        header.set_cksum();
        self.into.put(header.as_bytes())?;
        self.in_entry = false;
        self.seal.entries += 1;
        Ok(())
    }

    fn extension(&mut self, (kind, name): (EntryType, &str), Records(records): &Records) -> io::Result<()> {
        self.into.put(extension_header(kind, name, records.len()).as_bytes())?;
        self.into.put(records)?;
        self.into.put(&ZEROS[..filler(records.len() as u64)])
    }

    /// The digest is of all before the records, the header of the seal included.
    fn finish(mut self) -> io::Result<()> {
        let records = |digest: &str| {
            let mut records = Records::default();
            records.add(SEAL_ENTRIES.as_bytes(), self.seal.entries.to_string().as_bytes());
            records.add(SEAL_BYTES.as_bytes(), self.seal.bytes.to_string().as_bytes());
            records.add(SEAL_SHA256.as_bytes(), digest.as_bytes());
            records
        };
        // The length of a digest does not depend on it.
        let length = records(&hexadecimal(&[0; 32])).0.len();
        let header = extension_header(EntryType::Regular, SEAL, length);
        self.into.put(header.as_bytes())?;
        let Records(records) = records(&hexadecimal(self.into.sum.clone().finish().as_ref()));
        self.into.put(&records)?;
        self.into.put(&ZEROS[..filler(records.len() as u64)])?;
        self.end()
    }

    fn failed(mut self, error: &io::Error) -> io::Result<()> {
        let mut records = Records::default();
        records.add(SEAL_ERROR.as_bytes(), error.to_string().as_bytes());
        self.extension((EntryType::Regular, SEAL), &records)?;
        self.end()
    }

    fn end(mut self) -> io::Result<()> {
        self.into.put(&ZEROS)?;
        self.into.into.flush()
    }
}

fn extension_header(kind: EntryType, name: &str, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    put_text(&mut header, 0, name.as_bytes());
    header.set_cksum();
    header
}

/// As much of it as fits: the whole is in a record.
fn put_text(header: &mut Header, at: usize, text: &[u8]) {
    let text = text.get(..NAME).unwrap_or(text);
    if let Some(field) = header.as_mut_bytes().get_mut(at..at + text.len()) {
        field.copy_from_slice(text);
    }
}

fn sparse(records: &mut Records, path: &[u8], size: u64) {
    let size = size.to_string();
    for (key, value) in
        [("major", "1".as_bytes()), ("minor", "0".as_bytes()), ("name", path), ("realsize", size.as_bytes())]
    {
        records.add(&[SPARSE, key.as_bytes()].concat(), value);
    }
}

fn map_of(extents: &[(u64, u64)]) -> Vec<u8> {
    let mut map = format!("{}\n", extents.len()).into_bytes();
    for (offset, length) in extents {
        map.extend_from_slice(format!("{offset}\n{length}\n").as_bytes());
    }
    map.resize(map.len() + filler(map.len() as u64), 0);
    map
}

/// Offsets and lengths of what is no hole.
fn extents(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // The file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            begin => begin?,
        };
        let end = match rustix::fs::seek(file, SeekFrom::Hole(begin)) {
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
            end => end?.min(size),
        };
        if begin >= size {
            break;
        }
        // Of a file with very many extents the rest is sent as it is.
        let is_last = found.len() as u64 + 1 == MOST_EXTENTS;
        let end = if is_last { size } else { end };
        found.push((begin, end.saturating_sub(begin)));
        at = end.max(begin + 1);
    }
    Ok(found)
}

/// Those of users. Errors: they are too large for an archive.
fn xattrs(records: &mut Records, file: &impl AsFd) -> io::Result<()> {
    let mut names = vec![0; XATTR_MOST];
    let length = match rustix::fs::flistxattr(file, &mut names) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        listed => listed?,
    };
    let names = names.get(..length).unwrap_or_default();
    let mut value = vec![0; XATTR_MOST];
    for name in names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let length = match rustix::fs::fgetxattr(file, name, &mut value) {
            // Removed meanwhile.
            Err(Errno::NODATA) => continue,
            got => got?,
        };
        let mut key = XATTR.to_vec();
        for byte in name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                byte => key.push(*byte),
            }
        }
        records.add(&key, value.get(..length).unwrap_or_default());
        if records.0.len() > XATTRS_MOST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "its extended attributes have more than 128 KiB"));
        }
    }
    Ok(())
}
