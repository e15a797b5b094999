//! The data of an ended alloc as a sealed tar archive: `alloc/data` and each task's `local`, with owners, modes, times,
//! links, holes and the extended attributes of users. FIFOs and sockets are left out.
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
use crate::host::foreign_walk::{ForeignWalk, WalkBounds};
use crate::runner::artifacts::{
    ArchiveSeal, DEEPEST, MOST_EXTENTS, SEAL, SEAL_BYTES, SEAL_CHANGED, SEAL_ENTRIES, SEAL_ERROR, SEAL_SHA256, SPARSE,
    XATTR, hexadecimal,
};

/// More entries are no directory of an alloc.
const MOST_ENTRIES: usize = 1_000_000;
/// Memory of the names that wait.
const MOST_NAME_BYTES: usize = 64 << 20;
/// Files with several names whose links are kept; further ones are sent once for each name.
const MOST_LINKED: usize = 1 << 16;
/// Memory of their paths.
const MOST_LINKED_BYTES: usize = 16 << 20;
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

/// Whether an alloc has data to migrate: a replacement takes the directories away.
pub fn has_data(tree: &ForeignTree) -> io::Result<bool> {
    Ok(!tops(tree)?.is_empty())
}

/// `alloc/data` and `TASK/local`, as far as they exist.
fn tops(tree: &ForeignTree) -> io::Result<Vec<FoundFile>> {
    let all = tree.find("/")?;
    let mut found = Vec::new();
    for name in tree.names(&all, |_| Ok(()))? {
        // Of the agent's own.
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let inner = if name == "alloc" { "data" } else { "local" };
        match tree.exactly(vec![name, inner.into()]) {
            Ok(top) => found.push(top),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            // No directory of a task: a link.
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Writes the data of an alloc without the first `offset` bytes of the archive, which the peer has already; the seal is
/// that of all. What cannot be read ends the archive with the reason instead of a seal, and so does a change: a file
/// that disappeared, a directory that was moved, or the reason that `unchanged` gives.
///
/// Errors: of the writer.
pub fn write_migration(
    tree: &ForeignTree,
    unchanged: &dyn Fn() -> Result<(), String>,
    offset: u64,
    into: &mut dyn Write,
) -> io::Result<()> {
    let mut archive = MigrationArchiveWriter {
        into: ChecksumWriter { into, skip: offset, sum: Context::new(&SHA256) },
        seal: ArchiveSeal::default(),
        linked: HashMap::new(),
        linked_bytes: 0,
        buffer: vec![0; PIECE],
        in_entry: false,
    };
    match archive.roots(tree).and_then(|()| unchanged().map_err(changed)) {
        Ok(()) => archive.finish(),
        Err(error) if archive.in_entry => Err(error),
        Err(error) => archive.failed(&error),
    }
}

/// The kind of an error that a later attempt may not have.
const CHANGED: io::ErrorKind = io::ErrorKind::ResourceBusy;

fn changed(why: String) -> io::Error {
    io::Error::new(CHANGED, why)
}

/// Sums up what is written.
struct ChecksumWriter<'a> {
    into: &'a mut dyn Write,
    /// Bytes that are summed up and not written.
    skip: u64,
    sum: Context,
}

impl ChecksumWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        self.into.write_all(&bytes[skipped..])
    }
}

struct MigrationArchiveWriter<'a> {
    into: ChecksumWriter<'a>,
    seal: ArchiveSeal,
    /// By inode, of files with several names: the first of them.
    linked: HashMap<(u64, u64), Vec<u8>>,
    linked_bytes: usize,
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

impl MigrationArchiveWriter<'_> {
    fn roots(&mut self, tree: &ForeignTree) -> io::Result<()> {
        let tops = tops(tree)?;
        for top in &tops {
            self.below(tree, top)?;
        }
        // A replacement on this host moves them away, and garbage collection removes them.
        for top in &tops {
            let is_there = tree.exactly(top.names.clone()).and_then(|now| now.is_same_as(top));
            if !is_there.is_ok_and(|is_it| is_it) {
                return Err(changed(format!("{}: it was moved or removed", shown(top).display())));
            }
        }
        Ok(())
    }

    fn below(&mut self, tree: &ForeignTree, top: &FoundFile) -> io::Result<()> {
        let sent = usize::try_from(self.seal.entries).unwrap_or(MOST_ENTRIES);
        let left = MOST_ENTRIES.saturating_sub(sent);
        let bounds = WalkBounds { entries: left, name_bytes: MOST_NAME_BYTES, depth: DEEPEST };
        let mut walk = ForeignWalk::below(top.names.clone(), bounds);
        while let Some(names) = walk.next_path() {
            let shown = names.join(OsStr::new("/"));
            let named = |e: io::Error| {
                // It was listed, or was found before: it disappeared, or is another file now.
                let is_change = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
                let kind = if is_change { CHANGED } else { e.kind() };
                io::Error::new(kind, format!("{}: {e}", shown.display()))
            };
            let found = tree.exactly(names).map_err(named)?;
            self.entry(&found, shown.as_bytes()).map_err(named)?;
            if found.facts.kind == FileType::Directory {
                walk.enter(tree, &found).map_err(named)?;
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
            if self.linked.len() < MOST_LINKED && self.linked_bytes + path.len() <= MOST_LINKED_BYTES {
                self.linked_bytes += path.len();
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
        let mut unread = None;
        for (offset, length) in extents {
            unread = unread.or(self.content(file, offset, length)?);
        }
        self.into.put(&ZEROS[..filler(map.len() as u64 + stored)])?;
        self.in_entry = false;
        self.seal.bytes += size;
        unread.map_or(Ok(()), Err)
    }

    /// So many bytes, whatever becomes of the file: what shrank meanwhile is filled with zeros. Returns why a part
    /// cannot be read: that is filled too, so that the archive can end with the reason.
    ///
    /// Errors: of the writer.
    fn content(&mut self, file: &File, mut offset: u64, mut left: u64) -> io::Result<Option<io::Error>> {
        let mut unread = None;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = self.buffer.get_mut(..most).unwrap_or_default();
            let read = match &unread {
                None => file.read_at(piece, offset),
                Some(_) => Ok(0),
            };
            let piece = match read {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(length @ 1..) => piece.get_mut(..length).unwrap_or_default(),
                ended => {
                    unread = unread.or(ended.err());
                    piece.fill(0);
                    piece
                }
            };
            self.into.put(piece)?;
            (offset, left) = (offset + piece.len() as u64, left - piece.len() as u64);
        }
        Ok(unread)
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
        let key = if error.kind() == CHANGED { SEAL_CHANGED } else { SEAL_ERROR };
        records.add(key.as_bytes(), error.to_string().as_bytes());
        self.extension((EntryType::Regular, SEAL), &records)?;
        self.end()
    }

    fn end(mut self) -> io::Result<()> {
        self.into.put(&ZEROS)?;
        self.into.into.flush()
    }
}

fn shown(found: &FoundFile) -> OsString {
    found.names.join(OsStr::new("/"))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn file_with_an_unreadable_part_is_filled_and_the_archive_ends_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 3000]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tree = ForeignTree::open(dir.path(), |_| false).unwrap();
        let facts = tree.find("file").unwrap().facts;
        let mut written = Vec::new();
        let mut archive = MigrationArchiveWriter {
            into: ChecksumWriter { into: &mut written, skip: 0, sum: Context::new(&SHA256) },
            seal: ArchiveSeal::default(),
            linked: HashMap::new(),
            linked_bytes: 0,
            buffer: vec![0; PIECE],
            in_entry: false,
        };
        // Each read of it fails.
        let file = File::options().write(true).open(&path).unwrap();
        let error = archive.file(&file, b"web/local/file", &facts).unwrap_err();
        assert!(!archive.in_entry, "the connection needs no end: {error}");
        archive.failed(&error).unwrap();
        let mut archive = ::tar::Archive::new(written.as_slice());
        let read = |entry: io::Result<::tar::Entry<'_, _>>| {
            let (mut entry, mut content) = (entry.unwrap(), Vec::new());
            io::Read::read_to_end(&mut entry, &mut content).unwrap();
            content
        };
        let contents: Vec<_> = archive.entries().unwrap().map(read).collect();
        assert_eq!((contents.len(), &contents[0]), (2, &vec![0; 3000]));
        let seal = String::from_utf8(contents[1].clone()).unwrap();
        assert!(seal.contains("ALLOSTAT.error=Bad file descriptor"), "{seal}");
    }
}
