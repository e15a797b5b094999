//! Archives of tar, read as a stream: names and links of whatever length are bounded before they are read.
//!
//! Source: pax(1), GNU tar's manual, "Basic Tar Format".

use std::io::{self, Read};

use ::tar::Header;

use super::meter::UnpackMeter;
use super::sealed::{self, ArchiveSeal, SEAL, SparseFile, TarSource, UnsealedArchive};
use super::tree::{ArchiveTree, EntryPath, EntryRights, hostile, truncated};

const BLOCK: usize = 512;
/// Of a long name, or of the extended header of an entry.
const LARGEST_EXTENSION: u64 = 256 << 10;

/// What stands before an entry and is meant for it.
#[derive(Default)]
struct TarExtension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    /// Seconds and nanoseconds since 1970.
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: Option<SparseFile>,
}

/// Errors: `InvalidData`: it is broken, or an entry leads out of the tree.
pub(super) fn unpack(from: &mut dyn Read, tree: &ArchiveTree<'_>, meter: &UnpackMeter<'_>) -> io::Result<()> {
    unpack_from(&mut UnsealedArchive(from), tree, meter).map(drop)
}

/// Unpacks all that an archive keeps of a tree: owners, modes, times, extended attributes, holes; returns its seal,
/// once what was unpacked fits it.
///
/// Errors: as [`unpack`]; `UnexpectedEof`: it breaks off; it does not fit its seal.
pub fn unpack_sealed(
    from: &mut dyn TarSource,
    tree: &ArchiveTree<'_>,
    meter: &UnpackMeter<'_>,
) -> io::Result<ArchiveSeal> {
    unpack_from(from, tree, meter)?.ok_or_else(truncated)
}

fn unpack_from(
    from: &mut dyn TarSource,
    tree: &ArchiveTree<'_>,
    meter: &UnpackMeter<'_>,
) -> io::Result<Option<ArchiveSeal>> {
    let keeps = from.is_sealed();
    let mut extension = TarExtension::default();
    let mut directories = OpenDirectories { tree, open: Vec::new() };
    let (mut seal, mut counted) = (None, ArchiveSeal::default());
    let mut is_first = true;
    while let Some(header) = header(from, is_first)? {
        is_first = false;
        meter.check_cancelled()?;
        if seal.is_some() {
            return Err(hostile("something follows the seal of the archive"));
        }
        let kind = header.entry_type();
        let size = header.entry_size().map_err(|e| hostile(format!("a header of the archive is broken: {e}")))?;
        let size = if is_extension(&header) { size } else { extension.size.unwrap_or(size) };
        let is_seal = keeps && kind.is_file() && *header.path_bytes() == *SEAL.as_bytes();
        let digest = if is_seal { from.digest() } else { None };
        let mut data = Read::take(&mut *from, size);
        if is_seal || is_extension(&header) {
            if size > LARGEST_EXTENSION {
                return Err(hostile(format!("a name or an extended header has {size} bytes")));
            }
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes)?;
            if (bytes.len() as u64) < size {
                return Err(truncated());
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
                extended(&bytes, &mut extension, keeps)?;
            } else if let Some(digest) = digest {
                seal = ArchiveSeal::parse(&bytes, digest)?;
            }
        } else {
            let mut unpacking = TarUnpacker { tree, meter, keeps, directories: &mut directories };
            counted.entries += 1;
            counted.bytes += unpacking.entry(&header, std::mem::take(&mut extension), &mut data)?;
        }
        // What was not read of it, and what fills its last block.
        let left = data.limit();
        let filler = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        skip(from, left.saturating_add(filler))?;
    }
    directories.finish(None)?;
    // To the end, where its checksum is.
    let (mut rest, mut after) = ([0; 16 << 10], 0);
    loop {
        let length = from.read(&mut rest)?;
        after += length;
        if length == 0 {
            break;
        }
        if keeps && after > MOST_AFTER_END {
            return Err(hostile("the archive does not end at its end mark"));
        }
        meter.check_cancelled()?;
    }
    seal.map(|seal| seal.check(counted)).transpose()
}

/// What may follow the end of a sealed archive: its blocks of zeros.
const MOST_AFTER_END: usize = 64 << 10;

/// Directories that more may be put into: the innermost is the last. Each gets its mode and time once an entry is
/// elsewhere.
struct OpenDirectories<'t, 'a> {
    tree: &'t ArchiveTree<'a>,
    open: Vec<(EntryPath, EntryRights)>,
}

impl OpenDirectories<'_, '_> {
    /// `next`: where the next entry is; `None`: there is none.
    fn finish(&mut self, next: Option<&EntryPath>) -> io::Result<()> {
        while let Some((path, rights)) =
            self.open.pop_if(|(path, _)| next.is_none_or(|next| !next.0.starts_with(&path.0)))
        {
            self.tree.finish(&path, &rights)?;
        }
        Ok(())
    }
    fn begin(&mut self, path: EntryPath, rights: EntryRights) -> io::Result<()> {
        self.tree.begin(&path, &rights)?;
        self.open.push((path, rights));
        Ok(())
    }
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
        _ => return Err(truncated()),
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

struct TarUnpacker<'u, 't, 'a> {
    tree: &'t ArchiveTree<'a>,
    meter: &'t UnpackMeter<'a>,
    /// Owners, exact modes and times as well.
    keeps: bool,
    directories: &'u mut OpenDirectories<'t, 'a>,
}

impl TarUnpacker<'_, '_, '_> {
    /// How many bytes the file has; 0: no file.
    fn entry(&mut self, header: &Header, mut extension: TarExtension, data: &mut dyn Read) -> io::Result<u64> {
        let (tree, kind) = (self.tree, header.entry_type());
        let sparse = extension.sparse.take();
        let own_name = sparse.as_ref().map(|sparse| sparse.name.clone()).filter(|name| !name.is_empty());
        let name = own_name.or(extension.path.take()).unwrap_or_else(|| header.path_bytes().into_owned());
        let path = EntryPath::parse(&name).map_err(hostile)?;
        let link = extension.link.take().or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let link = link.unwrap_or_default();
        self.directories.finish(Some(&path))?;
        let what = match () {
            () if kind.is_dir() || (kind.is_file() && name.ends_with(b"/")) => {
                let rights = self.rights(header, extension, 0o755);
                return if self.keeps {
                    self.directories.begin(path, rights)
                } else {
                    tree.directory(&path, rights.mode)
                }
                .map(|()| 0);
            }
            () if kind.is_file() || kind.is_contiguous() => {
                let rights = self.rights(header, extension, 0o644);
                let mut bytes = 0;
                tree.file_by(&path, &rights, &mut |file| {
                    bytes = match &sparse {
                        None => self.meter.copy(data, file)?,
                        Some(sparse) => sparse.unpack(data, file, self.meter)?,
                    };
                    Ok(())
                })?;
                return Ok(bytes);
            }
            () if kind.is_symlink() => {
                let rights = if self.keeps { self.rights(header, extension, 0o777) } else { EntryRights::default() };
                return tree.symlink(&path, &link, &rights).map(|()| 0);
            }
            () if kind.is_hard_link() => {
                let target = EntryPath::parse(&link).map_err(hostile)?;
                return tree.hard_link(&path, &target).map(|()| 0);
            }
            // The name of the volume.
            () if kind.as_byte() == b'V' => return Ok(0),
            () if kind.is_fifo() => "a FIFO",
            () if kind.is_character_special() || kind.is_block_special() => "a device node",
            () if kind.is_gnu_sparse() => "a sparse file, which is not supported",
            () => "of an unknown type",
        };
        Err(hostile(format!("{:?} is {what}", String::from_utf8_lossy(&name).chars().take(200).collect::<String>())))
    }

    fn rights(&self, header: &Header, extension: TarExtension, usual: u32) -> EntryRights {
        let mode = header.mode().unwrap_or(usual);
        let seconds = header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
        let rights = EntryRights::of_file(mode, seconds);
        if !self.keeps {
            return rights;
        }
        let id = |id: io::Result<u64>| u32::try_from(id.ok()?).ok().filter(|id| *id != u32::MAX);
        let owner = id(header.uid()).zip(id(header.gid())).filter(|_| rustix::process::geteuid().is_root());
        EntryRights { mtime: extension.mtime.or(rights.mtime), owner, xattrs: extension.xattrs, ..rights }
    }
}

/// Of the extended header of an entry.
///
/// `keeps`: what a sealed archive has besides is read too.
fn extended(bytes: &[u8], into: &mut TarExtension, keeps: bool) -> io::Result<()> {
    for record in sealed::records(bytes) {
        let (key, value) = record?;
        match key {
            b"path" => into.path = Some(value.to_vec()),
            b"linkpath" => into.link = Some(value.to_vec()),
            b"size" => into.size = Some(sealed::number(value)?),
            b"mtime" if keeps => into.mtime = Some(sealed::time(value)?),
            _ if keeps && key.starts_with(sealed::SPARSE) => {
                into.sparse.get_or_insert_default().set(key, value)?;
            }
            _ if key.starts_with(sealed::SPARSE) => {
                return Err(hostile("it has sparse files, which are not supported"));
            }
            _ if keeps => {
                into.xattrs.extend(sealed::xattr(key, value)?);
                // Of several headers before one entry.
                let bytes: usize = into.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
                if bytes as u64 > LARGEST_EXTENSION {
                    return Err(hostile(format!("the extended attributes of an entry have {bytes} bytes")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn skip(from: &mut dyn Read, mut bytes: u64) -> io::Result<()> {
    let mut piece = [0; 16 << 10];
    while bytes > 0 {
        let requested = usize::try_from(bytes).unwrap_or(usize::MAX).min(piece.len());
        match from.read(piece.get_mut(..requested).unwrap_or_default())? {
            0 => return Err(truncated()),
            length => bytes -= length as u64,
        }
    }
    Ok(())
}
