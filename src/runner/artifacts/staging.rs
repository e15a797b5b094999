//! The directory in which an artifact is made: the agent's own, in the directory of the alloc, removed with its value.
//!
//! ```text
//! <alloc>/.artifacts-<task>/         the agent's alone                    0700, while git runs 0711
//! <alloc>/.artifacts-<task>/file     what came over the network           0600
//! <alloc>/.artifacts-<task>/tree/    what goes to the destination         the task's user's
//! ```

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::cancelled::Cancellation;
use crate::host::tree;
use crate::telemetry::lock;

pub(super) const FILE: &str = "file";
pub const TREE: &str = "tree";
const MODE: u32 = 0o700;
/// Git works as the task's user, below it.
const OPEN: u32 = 0o711;

/// Those in use. A download that was cancelled needs a moment to end: the next one for its task waits for it.
static IN_USE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static LEFT: Condvar = Condvar::new();
const POLL_EVERY: Duration = Duration::from_millis(50);

/// A path that no other process uses. Concurrency: one at a time of each.
struct Claim(PathBuf);

impl Claim {
    /// Errors: cancelled while another one uses it.
    fn of(path: PathBuf, cancelled: &Cancellation) -> io::Result<Claim> {
        let mut in_use = lock(&IN_USE);
        while in_use.contains(&path) {
            if cancelled.is() {
                return Err(io::Error::other("cancelled"));
            }
            // The download before it is cancelled as well.
            in_use = LEFT.wait_timeout(in_use, POLL_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        in_use.insert(path.clone());
        Ok(Claim(path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&IN_USE).remove(&self.0);
        LEFT.notify_all();
    }
}

pub struct Staging {
    directory: OwnedFd,
    // After the directory is removed.
    claim: Claim,
}

impl Staging {
    pub fn new(alloc_dir: &Path, task: &str, cancelled: &Cancellation) -> io::Result<Staging> {
        Staging::at(alloc_dir.join(format!(".artifacts-{task}")), MODE, cancelled)
    }
    /// Empty: what an agent that died left there is removed.
    pub fn at(path: PathBuf, mode: u32, cancelled: &Cancellation) -> io::Result<Staging> {
        let claim = Claim::of(path, cancelled)?;
        let path = claim.0.as_path();
        tree::remove(path).map_err(io::Error::other)?;
        std::fs::DirBuilder::new().mode(mode).create(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        // Whatever the umask.
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
        Ok(Staging { directory, claim })
    }
    /// Lets processes of other users pass through, and changes what is theirs.
    pub(super) fn open(&self) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.directory, Mode::from_raw_mode(OPEN))?)
    }
    /// No other process reaches it any more, but those that hold a directory of it open.
    pub(super) fn close(&self) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.directory, Mode::from_raw_mode(MODE))?)
    }
    pub fn path(&self) -> &Path {
        &self.claim.0
    }
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = tree::remove(&self.claim.0) {
            tracing::warn!(
                path = %self.claim.0.display(),
                %error,
                "failed to remove the staging directory of an artifact"
            );
        }
    }
}
