//! Bounds on what an artifact may write: bytes, entries, the room that stays free, and the request to end it.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::cancelled::Cancelled;
use super::order::ArtifactError;
use crate::runner::settings::ArtifactConfig;
use crate::telemetry::artifacts::ArtifactOutcome;

/// The file system is asked again after so many bytes, and after so many entries.
const ASK_AFTER_BYTES: u64 = 32 << 20;
const ASK_AFTER_ENTRIES: u64 = 256;
/// Inodes that stay free.
const FREE_INODES: u64 = 1_000;
/// What is read and written at once.
const PIECE: usize = 256 << 10;

/// A bound that was reached, inside of an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reached(String);

/// Of one artifact.
pub(super) struct Meter<'a> {
    bytes_limit: u64,
    entries_limit: u64,
    git_limit: u64,
    /// Inodes that were free at the beginning. `None`: the file system counts none.
    inodes: Option<u64>,
    reserve: u64,
    cancelled: Arc<Cancelled>,
    directory: BorrowedFd<'a>,
    unpacked: Cell<u64>,
    entries: Cell<u64>,
    since_asked: Cell<u64>,
}

impl<'a> Meter<'a> {
    pub fn new(config: &ArtifactConfig, cancelled: Arc<Cancelled>, directory: BorrowedFd<'a>) -> Meter<'a> {
        let or_none = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        let found = rustix::fs::fstatvfs(directory).ok().filter(|found| found.f_files > 0);
        Meter {
            bytes_limit: or_none(config.decompression_size_limit),
            entries_limit: or_none(config.decompression_file_count_limit),
            git_limit: or_none(config.git_file_count_limit),
            inodes: found.map(|found| found.f_favail),
            reserve: config.free_space_reserve,
            cancelled,
            directory,
            unpacked: Cell::new(0),
            entries: Cell::new(0),
            // The first piece asks.
            since_asked: Cell::new(ASK_AFTER_BYTES),
        }
    }

    /// Bytes are about to be written.
    pub fn writes(&self, bytes: u64) -> io::Result<()> {
        self.goes_on()?;
        let since = self.since_asked.get().saturating_add(bytes);
        if since < ASK_AFTER_BYTES {
            self.since_asked.set(since);
            return Ok(());
        }
        self.since_asked.set(0);
        self.has_room(bytes.max(ASK_AFTER_BYTES))
    }

    /// Whether so many more bytes leave free what stays free.
    pub fn has_room(&self, bytes: u64) -> io::Result<()> {
        let found = rustix::fs::fstatvfs(self.directory)?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < self.reserve.saturating_add(bytes) {
            return Err(reached(format!(
                "the file system of the data directory has {} left, and {} stay free (artifact.free_space_reserve_mib)",
                mib(free),
                mib(self.reserve)
            )));
        }
        // Some file systems count none.
        if found.f_files > 0 && found.f_favail < FREE_INODES {
            return Err(reached("the file system of the data directory has no inodes left".to_owned()));
        }
        Ok(())
    }

    /// Bytes came out of an archive.
    pub fn unpacks(&self, bytes: u64) -> io::Result<()> {
        self.goes_on()?;
        self.unpacked.set(self.unpacked.get().saturating_add(bytes));
        if self.unpacked.get() > self.bytes_limit {
            let limit = mib(self.bytes_limit);
            return Err(reached(format!("it unpacks to more than {limit} (artifact.decompression_size_limit_mib)")));
        }
        Ok(())
    }

    /// An entry of an archive.
    pub fn enters(&self) -> io::Result<()> {
        self.goes_on()?;
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() > self.entries_limit {
            let limit = self.entries_limit;
            return Err(reached(format!("it has more than {limit} entries (artifact.decompression_file_count_limit)")));
        }
        if self.entries.get().is_multiple_of(ASK_AFTER_ENTRIES) { self.has_room(0) } else { Ok(()) }
    }

    /// Files and directories of a repository, as git makes them: what is gone of the free inodes. Others take some as well, so that a
    /// tenth is allowed beyond the limit, and ten thousand.
    pub fn git_goes_on(&self) -> io::Result<()> {
        self.has_room(0)?;
        let found = rustix::fs::fstatvfs(self.directory)?;
        let taken = self.inodes.map_or(0, |before| before.saturating_sub(found.f_favail));
        if taken > self.git_limit.saturating_add(self.git_limit / 10).saturating_add(10_000) {
            self.too_many()
        } else {
            Ok(())
        }
    }

    /// A file or directory of a repository.
    pub fn finds(&self) -> io::Result<()> {
        self.goes_on()?;
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() > self.git_limit { self.too_many() } else { Ok(()) }
    }

    fn too_many(&self) -> io::Result<()> {
        Err(reached(format!("it has more than {} files (artifact.git_file_count_limit)", self.git_limit)))
    }

    pub fn goes_on(&self) -> io::Result<()> {
        // Of no kind that a reader tries again.
        if self.cancelled.is() { Err(io::Error::other(Stopped)) } else { Ok(()) }
    }

    /// Copies all of it. Gives how many bytes there were.
    pub fn copy(&self, from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
        let (mut piece, mut copied) = (vec![0; PIECE], 0);
        loop {
            let length = match from.read(&mut piece) {
                Ok(0) => return Ok(copied),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            self.writes(length as u64)?;
            to.write_all(piece.get(..length).unwrap_or_default())?;
            copied += length as u64;
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
struct Stopped;

fn reached(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, Reached(message))
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// What an error means: a bound, the request to end it, a full disk, or else `usual`.
pub(super) fn fault(error: &io::Error, usual: ArtifactOutcome, what: &str) -> ArtifactError {
    let inner = error.get_ref();
    let outcome = match error.kind() {
        _ if inner.is_some_and(|inner| inner.is::<Reached>()) => ArtifactOutcome::Limit,
        _ if inner.is_some_and(|inner| inner.is::<Stopped>()) => ArtifactOutcome::Cancelled,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ArtifactOutcome::Limit,
        _ => usual,
    };
    ArtifactError::new(outcome, format!("{what}: {error}"))
}

/// Counts what comes out of a decompressor.
pub(super) struct Unpacked<'m, 'a, R> {
    pub from: R,
    pub meter: &'m Meter<'a>,
}

impl<R: Read> Read for Unpacked<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        self.meter.unpacks(length as u64)?;
        Ok(length)
    }
}
