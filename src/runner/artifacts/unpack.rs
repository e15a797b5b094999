//! What becomes of a file that was downloaded, by the mode of its artifact: go-getter's rules.
//!
//! ```text
//!                   mode any                    mode file                      mode dir
//! archive           unpacked into destination   its only file is destination   unpacked into destination
//! compressed file   below its name              is destination                 refused
//! any other file    below its name              is destination                 refused
//! repository        into destination            into destination               into destination
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard};

use liblzma::stream::{CONCATENATED, Stream};

use super::meter::{MeteredReader, UnpackMeter, fault};
use super::order::{ArtifactError, ArtifactOrder};
use super::staging::{FILE, Staging};
use super::tree::{ArchiveTree, EntryPath, EntryRights, files, hostile};
use super::{tar, zip};
use crate::model::archive::{ArchiveCompression, ArchiveFormat};
use crate::model::artifact::ArtifactMode;
use crate::telemetry::artifacts::ArtifactOutcome;
use crate::telemetry::lock;

/// What a decompressor of xz may take. Source: xz(1): 9 MiB for its usual preset, 65 MiB for its highest.
const XZ_MEMORY: u64 = 72 << 20;
/// The window of zstd that is accepted, as a power of 2: 64 MiB. Source: zstd(1), its levels without `--ultra` take up
/// to 8 MiB.
const ZSTD_WINDOW: u32 = 26;
/// One decompressor with a window of that size at a time: sixteen downloads together fit the memory of the agent.
static LARGE_WINDOW: Mutex<()> = Mutex::new(());
/// Anything that was downloaded may be a program, and Nomad makes the task's command executable.
const FILE_MODE: u32 = 0o755;
/// The name of a file that is the destination itself.
const ONLY: &str = "artifact";

/// A file that came over the network.
pub(super) struct DownloadedFile {
    pub file: File,
    pub bytes: u64,
}

/// What is in the tree of the staging.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnpackedTree {
    /// The content of the destination, a directory.
    Directory,
    /// The destination is this file.
    File(Vec<String>),
}

pub(super) fn place(
    downloaded: DownloadedFile,
    order: &ArtifactOrder,
    (staging, tree): (&Staging, &ArchiveTree<'_>),
    meter: &UnpackMeter<'_>,
) -> Result<UnpackedTree, ArtifactError> {
    let refused = |message: &str| Err(ArtifactError::new(ArtifactOutcome::Archive, message));
    let mut file = downloaded.file;
    let failed = |e: io::Error| fault(&e, ArtifactOutcome::Archive, "cannot unpack it");
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let archive = order.source.archive;
    if order.source.subdirectory.is_some() && archive.is_none_or(ArchiveFormat::is_single_file) {
        return refused("its source names a subdirectory, and it is no archive");
    }
    let name = || {
        let name = order.source.name();
        name.ok_or_else(|| {
            ArtifactError::new(ArtifactOutcome::Archive, "its address names no file: use mode = \"file\"")
        })
    };
    let rights = EntryRights::of_file(FILE_MODE, None);
    let single = |name: String, from: &mut dyn Read| {
        let path = EntryPath(vec![name]);
        tree.file(&path, &rights, from).map(|()| path)
    };
    // As it came: a copy would write all of it once more.
    let whole_file = |name: String, file: &File| {
        let path = EntryPath(vec![name]);
        tree.adopt(&path, &rights, (staging.directory(), FILE, file)).map(|()| path)
    };
    match (archive, order.mode) {
        (None, ArtifactMode::Dir) => refused("mode is \"dir\", and its source is neither an archive nor a repository"),
        (Some(format), ArtifactMode::Dir) if format.is_single_file() => {
            refused("mode is \"dir\", and its source is one compressed file")
        }
        (None, ArtifactMode::Any) => whole_file(name()?, &file).map(|_| UnpackedTree::Directory).map_err(failed),
        (None, ArtifactMode::File) => {
            whole_file(ONLY.to_owned(), &file).map(|path| UnpackedTree::File(path.0)).map_err(failed)
        }
        (Some(format), mode) if format.is_single_file() => {
            let name = if mode == ArtifactMode::File { ONLY.to_owned() } else { name_without(&name()?, format) };
            let unpacked = decompressor(format.compression(), file)
                .and_then(|from| single(name, &mut MeteredReader { from, meter }));
            let path = unpacked.map_err(failed)?;
            Ok(if mode == ArtifactMode::File { UnpackedTree::File(path.0) } else { UnpackedTree::Directory })
        }
        (Some(format), mode) => {
            whole(format, file, tree, meter).map_err(failed)?;
            if mode != ArtifactMode::File {
                return Ok(UnpackedTree::Directory);
            }
            let files = files(tree.top(), 2).map_err(failed)?;
            match <[Vec<String>; 1]>::try_from(files) {
                Ok([only]) => Ok(UnpackedTree::File(only)),
                Err(_) => refused("mode is \"file\", and the archive has not exactly one file"),
            }
        }
    }
}

fn name_without(name: &str, format: ArchiveFormat) -> String {
    let end = format!(".{}", format.as_str());
    name.strip_suffix(&end).filter(|name| !name.is_empty()).unwrap_or(name).to_owned()
}

fn whole(format: ArchiveFormat, file: File, tree: &ArchiveTree<'_>, meter: &UnpackMeter<'_>) -> io::Result<()> {
    if format == ArchiveFormat::Zip {
        return zip::unpack(&file, tree, meter);
    }
    let from = decompressor(format.compression(), file)?;
    // Small reads of headers come from a buffer.
    let mut from = BufReader::with_capacity(128 << 10, MeteredReader { from, meter });
    tar::unpack(&mut from, tree, meter)
}

/// A decompressor that may take much memory, in its turn.
struct LargeWindow<R> {
    reader: R,
    _turn: MutexGuard<'static, ()>,
}

impl<R> LargeWindow<R> {
    /// Waits for its turn: the one before it reads a local file to its end.
    fn of(reader: R) -> LargeWindow<R> {
        LargeWindow { reader, _turn: lock(&LARGE_WINDOW) }
    }
}

impl<R: Read> Read for LargeWindow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

/// Members that follow one another are one file, as for the programs of each format.
fn decompressor(compression: ArchiveCompression, file: File) -> io::Result<Box<dyn Read>> {
    let packed = BufReader::with_capacity(128 << 10, file);
    Ok(match compression {
        ArchiveCompression::None => Box::new(packed),
        ArchiveCompression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        ArchiveCompression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
        ArchiveCompression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED).map_err(|e| hostile(e.to_string()))?;
            Box::new(LargeWindow::of(liblzma::bufread::XzDecoder::new_stream(packed, stream)))
        }
        ArchiveCompression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Box::new(LargeWindow::of(decoder))
        }
    })
}
