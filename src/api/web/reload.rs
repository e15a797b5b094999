//! What is read from files, and again when one of them has changed: at the next knock, not by a timer.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::host::access;
use crate::jobspec;
use crate::telemetry::access::AccessFile;
use crate::telemetry::{Metrics, chain, lock};

/// A file that changed so recently may change again without new times: they move in steps of some milliseconds.
const SETTLES_IN: Duration = Duration::from_millis(200);

/// Which content a path had.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// `None`: there was none that could be looked at.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// The files of one reading, each as it was before it was read.
#[derive(Debug, Default)]
pub(super) struct FileStamps(Vec<(PathBuf, Option<Stamp>)>);

impl FileStamps {
    /// At most 256 KiB and one byte. Errors: as [`access::open_own`]'s: no other user decides who gets in.
    pub(super) fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.push((path.to_owned(), stamp(path)));
        jobspec::bytes_of(access::open_own(path)?)
    }
    /// The same of tokens and keys. Errors: as [`access::open_secret`]'s.
    pub(super) fn read_secret(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.push((path.to_owned(), stamp(path)));
        jobspec::bytes_of(access::open_secret(path)?)
    }
    fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, seen)| stamp(path) != *seen)
    }
    /// Each has been as it is for a while.
    fn are_settled(&self, now: SystemTime) -> bool {
        let is_settled = |stamp: &Stamp| {
            let (seconds, nanos) = stamp.changed;
            let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
            let age = now.duration_since(SystemTime::UNIX_EPOCH + since);
            // One of the future: a clock was set back.
            age.is_ok_and(|age| age > SETTLES_IN)
        };
        self.0.iter().filter_map(|(_, stamp)| stamp.as_ref()).all(is_settled)
    }
}

/// `E`: why it cannot be read, in full.
type LoadFn<T, E> = Box<dyn Fn(&mut FileStamps, Option<&T>) -> Result<T, E> + Send + Sync>;

/// Concurrency: any thread; looking is a stat(2) of each file.
pub(super) struct WatchedFiles<T, E> {
    read: LoadFn<T, E>,
    /// What holds while the files cannot be read; `None`: what held before.
    without: Option<Arc<T>>,
    held: Mutex<LoadedValue<T>>,
    file: AccessFile,
    metrics: Arc<Metrics>,
}

struct LoadedValue<T> {
    value: Arc<T>,
    files: FileStamps,
    is_settled: bool,
}

impl<T, E: std::error::Error + 'static> WatchedFiles<T, E> {
    /// `read` is given what it read before. Errors: those of the first reading.
    pub(super) fn begin(
        file: AccessFile,
        metrics: Arc<Metrics>,
        read: impl Fn(&mut FileStamps, Option<&T>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<WatchedFiles<T, E>, E> {
        let mut files = FileStamps::default();
        let now = SystemTime::now();
        let value = Arc::new(read(&mut files, None)?);
        let is_settled = files.are_settled(now);
        metrics.access.read(file, true);
        let held = Mutex::new(LoadedValue { value, files, is_settled });
        Ok(WatchedFiles { read: Box::new(read), without: None, held, file, metrics })
    }

    /// What cannot be read any more opens nothing: a file that was taken away is meant.
    pub(super) fn fallback_to(self, nothing: T) -> WatchedFiles<T, E> {
        WatchedFiles { without: Some(Arc::new(nothing)), ..self }
    }

    /// As the files say now. What cannot be read is logged once for each change. What held before goes on, unless
    /// another value is set for that: a typing error opens nothing and locks no client out.
    pub(super) fn current(&self) -> Arc<T> {
        let mut held = lock(&self.held);
        let changed = held.files.have_changed();
        if !changed && held.is_settled {
            return Arc::clone(&held.value);
        }
        let mut files = FileStamps::default();
        let now = SystemTime::now();
        let read = (self.read)(&mut files, Some(&held.value));
        held.is_settled = files.are_settled(now);
        held.files = files;
        self.metrics.access.read(self.file, read.is_ok());
        match read {
            Ok(value) => {
                held.value = Arc::new(value);
                if changed {
                    tracing::info!(file = self.file.as_str(), "access settings reloaded");
                }
            }
            Err(error) => {
                let (file, error) = (self.file.as_str(), chain(&error));
                match &self.without {
                    Some(_) if changed => {
                        tracing::error!(file, error, "failed to reload access settings; all requests are refused")
                    }
                    None if changed => {
                        tracing::error!(
                            file,
                            error,
                            "failed to reload access settings; the previous ones stay in effect"
                        );
                    }
                    Some(_) | None => {}
                }
                if let Some(without) = &self.without {
                    held.value = Arc::clone(without);
                }
            }
        }
        Arc::clone(&held.value)
    }
}
