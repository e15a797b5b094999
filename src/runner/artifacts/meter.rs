//! Bounds on what an archive may write: bytes, entries, the room that stays free, and the request to end it.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::cancelled::Cancellation;
use super::order::ArtifactError;
use super::progress::FetchProgress;
use crate::runner::settings::ArtifactConfig;
use crate::telemetry::artifacts::ArtifactOutcome;

/// The file system is asked again after so many bytes, and after so many entries.
const RECHECK_BYTES: u64 = 32 << 20;
const RECHECK_ENTRIES: u64 = 256;
/// Inodes that stay free.
const FREE_INODES: u64 = 1_000;
/// What is read and written at once.
const PIECE: usize = 256 << 10;

/// A bound that was reached, inside of an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LimitError(String);

/// A limit, and the setting that it comes from.
#[derive(Debug, Clone, Copy)]
pub struct SetLimit {
    pub limit: u64,
    pub setting: &'static str,
}

/// The bounds of one archive. 0 bytes or entries: no limit.
#[derive(Debug, Clone, Copy)]
pub struct MeterBounds {
    pub bytes: SetLimit,
    pub entries: SetLimit,
    /// Bytes that stay free.
    pub reserve: SetLimit,
}

impl MeterBounds {
    /// Of a repository: all its files and directories, git's own included.
    pub fn of_repository(config: &ArtifactConfig) -> MeterBounds {
        let entries = SetLimit { limit: config.git_file_count_limit, setting: "artifact.git_file_count_limit" };
        MeterBounds { entries, ..MeterBounds::of_artifact(config) }
    }
    pub fn of_artifact(config: &ArtifactConfig) -> MeterBounds {
        let set = |limit, setting| SetLimit { limit, setting };
        MeterBounds {
            bytes: set(config.decompression_size_limit, "artifact.decompression_size_limit_mib"),
            entries: set(config.decompression_file_count_limit, "artifact.decompression_file_count_limit"),
            reserve: set(config.free_space_reserve, "artifact.free_space_reserve_mib"),
        }
    }
}

/// Of one artifact or migration.
pub struct UnpackMeter<'a> {
    bounds: MeterBounds,
    /// Inodes that were free at the beginning. `None`: the file system counts none.
    inodes: Option<u64>,
    cancelled: Arc<Cancellation>,
    directory: BorrowedFd<'a>,
    unpacked: Cell<u64>,
    entries: Cell<u64>,
    since_check: Cell<u64>,
    progress: Option<Arc<FetchProgress>>,
}

impl<'a> UnpackMeter<'a> {
    pub fn new(bounds: MeterBounds, cancelled: Arc<Cancellation>, directory: BorrowedFd<'a>) -> UnpackMeter<'a> {
        let found = rustix::fs::fstatvfs(directory).ok().filter(|found| found.f_files > 0);
        UnpackMeter {
            bounds,
            inodes: found.map(|found| found.f_favail),
            cancelled,
            directory,
            unpacked: Cell::new(0),
            entries: Cell::new(0),
            // The first piece asks.
            since_check: Cell::new(RECHECK_BYTES),
            progress: None,
        }
    }

    /// Reports what is unpacked to the task's hook as well.
    pub(super) fn reporting_to(mut self, progress: &Arc<FetchProgress>) -> UnpackMeter<'a> {
        self.progress = Some(Arc::clone(progress));
        self
    }

    /// With the same bounds, for another look at what was counted already.
    pub(super) fn recount(&self) -> UnpackMeter<'a> {
        UnpackMeter::new(self.bounds, Arc::clone(&self.cancelled), self.directory)
    }

    /// Bytes are about to be written.
    pub fn writes(&self, bytes: u64) -> io::Result<()> {
        self.check_cancelled()?;
        let since = self.since_check.get().saturating_add(bytes);
        if since < RECHECK_BYTES {
            self.since_check.set(since);
            return Ok(());
        }
        self.since_check.set(0);
        self.has_room(bytes.max(RECHECK_BYTES))
    }

    /// Whether so many more bytes leave free what stays free.
    pub fn has_room(&self, bytes: u64) -> io::Result<()> {
        let found = rustix::fs::fstatvfs(self.directory)?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let SetLimit { limit, setting } = self.bounds.reserve;
        if free < limit.saturating_add(bytes) {
            return Err(reached(format!(
                "the file system of the data directory has {} left, and {} stay free ({setting})",
                mib(free),
                mib(limit)
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
        self.check_cancelled()?;
        self.unpacked.set(self.unpacked.get().saturating_add(bytes));
        if let Some(progress) = &self.progress {
            progress.unpacks(bytes);
        }
        let SetLimit { limit, setting } = self.bounds.bytes;
        if limit > 0 && self.unpacked.get() > limit {
            return Err(reached(format!("it unpacks to more than {} ({setting})", mib(limit))));
        }
        Ok(())
    }

    /// An entry of an archive.
    pub fn enters(&self) -> io::Result<()> {
        self.counts()?;
        if self.entries.get().is_multiple_of(RECHECK_ENTRIES) { self.has_room(0) } else { Ok(()) }
    }

    /// An entry that is there already.
    pub(super) fn counts(&self) -> io::Result<()> {
        self.check_cancelled()?;
        self.entries.set(self.entries.get() + 1);
        let SetLimit { limit, setting } = self.bounds.entries;
        if limit > 0 && self.entries.get() > limit {
            return Err(reached(format!("it has more than {limit} entries ({setting})")));
        }
        Ok(())
    }

    /// While another program makes the entries: so many inodes are no longer free. Other processes take some as well,
    /// so that a tenth is allowed beyond the limit, and ten thousand.
    pub fn grows(&self) -> io::Result<()> {
        self.has_room(0)?;
        let SetLimit { limit, setting } = self.bounds.entries;
        let found = rustix::fs::fstatvfs(self.directory)?;
        let taken = self.inodes.map_or(0, |before| before.saturating_sub(found.f_favail));
        if limit > 0 && taken > limit.saturating_add(limit / 10).saturating_add(10_000) {
            return Err(reached(format!("it has more than {limit} entries ({setting})")));
        }
        Ok(())
    }

    pub fn check_cancelled(&self) -> io::Result<()> {
        // Of no kind that a reader tries again.
        if self.cancelled.is() { Err(io::Error::other(CancelledError)) } else { Ok(()) }
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
struct CancelledError;

fn reached(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, LimitError(message))
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// What an error means: a bound, the request to end it, a full disk, or else `usual`.
pub fn fault(error: &io::Error, usual: ArtifactOutcome, what: &str) -> ArtifactError {
    let inner = error.get_ref();
    let outcome = match error.kind() {
        _ if inner.is_some_and(|inner| inner.is::<LimitError>()) => ArtifactOutcome::Limit,
        _ if inner.is_some_and(|inner| inner.is::<CancelledError>()) => ArtifactOutcome::Cancelled,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ArtifactOutcome::Limit,
        _ => usual,
    };
    ArtifactError::new(outcome, format!("{what}: {error}"))
}

/// Counts what comes out of a decompressor.
pub struct MeteredReader<'m, 'a, R> {
    pub from: R,
    pub meter: &'m UnpackMeter<'a>,
}

impl<R: Read> Read for MeteredReader<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        self.meter.unpacks(length as u64)?;
        Ok(length)
    }
}
