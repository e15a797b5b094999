//! Reads that may block for ever. Reading the memory of a process waits for whatever backs it: a process can map its
//! environment with userfaultfd(2) or FUSE and block the read, which then only SIGKILL ends. A runtime's directory can
//! be on a file system that hangs.
//!
//! ```text
//! one thread per read ── within the deadline ──► the result
//!                      └─ later: the thread is abandoned, and its source is skipped
//!                         a user's processes: for a minute; a directory: until the thread ends
//! ```

use std::collections::BTreeMap;
use std::io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A page fault from a swap device takes milliseconds.
const DEADLINE: Duration = Duration::from_millis(500);
/// A busy disk takes longer.
const DIRECTORY_DEADLINE: Duration = Duration::from_secs(2);
/// After a timeout, the processes of the same user are skipped for this long.
const PAUSE: Duration = Duration::from_secs(60);
/// Limit of abandoned threads over all users, and over all directories; at the limit none of the kind is read.
const MOST_LEFT: usize = 8;

/// What answers a read, or lets it wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum BlockingSource {
    /// The processes of a user.
    User(u32),
    Directory(PathBuf),
}

impl std::fmt::Display for BlockingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockingSource::User(uid) => write!(f, "processes of user {uid}"),
            BlockingSource::Directory(path) => write!(f, "files in {}", path.display()),
        }
    }
}

/// Concurrency: the lock is never held during a read.
static LATE: Mutex<BTreeMap<BlockingSource, AbandonedReads>> = Mutex::new(BTreeMap::new());

/// Reads of one source that were abandoned.
#[derive(Debug)]
struct AbandonedReads {
    /// Abandoned threads that are still blocked.
    left: usize,
    until: Instant,
}

fn late() -> MutexGuard<'static, BTreeMap<BlockingSource, AbandonedReads>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `process`: its directory below `proc`. Errors: those of `work`; `TimedOut`: it took too long, or the user's
/// processes are being skipped.
pub(super) fn of_process<T: Send + 'static>(
    process: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(BlockingSource::User(user(process)?), DEADLINE, work)
}

/// Errors: those of `work`; `TimedOut`: it took too long, or an earlier read in this directory has no answer yet.
pub(super) fn in_directory<T: Send + 'static>(
    directory: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(BlockingSource::Directory(directory.to_owned()), DIRECTORY_DEADLINE, work)
}

/// The real uid. A process that is non-dumpable (`PR_SET_DUMPABLE`) or runs a setuid program keeps it.
fn user(process: &Path) -> io::Result<u32> {
    let status = super::read(&process.join("status"), 64 << 10).unwrap_or_default();
    let real = status.split(|b| *b == b'\n').find_map(|line| {
        std::str::from_utf8(line.strip_prefix(b"Uid:")?).ok()?.split_ascii_whitespace().next()?.parse().ok()
    });
    real.map_or_else(|| Ok(rustix::fs::stat(process)?.st_uid), Ok)
}

fn within<T: Send + 'static>(
    source: BlockingSource,
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, format!("{source} do not answer"));
    {
        let now = Instant::now();
        let mut late = late();
        late.retain(|_, late| late.left > 0 || late.until > now);
        let alike = late.iter().filter(|(other, _)| discriminant(*other) == discriminant(&source));
        let left: usize = alike.map(|(_, late)| late.left).sum();
        if late.contains_key(&source) || left >= MOST_LEFT {
            return Err(timed_out());
        }
    }
    let (sender, answer) = sync_channel(1);
    let of = source.clone();
    let answers = move || {
        let result = work();
        let mut late = late();
        // The receiver is gone: this thread was abandoned.
        if sender.send(result).is_err()
            && let Some(late) = late.get_mut(&of)
        {
            late.left = late.left.saturating_sub(1);
        }
    };
    std::thread::Builder::new().name("untrusted-read".into()).spawn(answers)?;
    match answer.recv_timeout(deadline) {
        Ok(result) => return result,
        Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the reading thread panicked")),
        Err(RecvTimeoutError::Timeout) => {}
    }
    {
        let mut late = late();
        // The result may have arrived meanwhile: the lock decides.
        if let Ok(result) = answer.try_recv() {
            return result;
        }
        let pause = if matches!(source, BlockingSource::User(_)) { PAUSE } else { Duration::ZERO };
        let late = late.entry(source.clone()).or_insert(AbandonedReads { left: 0, until: Instant::now() });
        (late.left, late.until) = (late.left + 1, Instant::now() + pause);
        drop(answer);
    }
    match &source {
        BlockingSource::User(user) => tracing::warn!(
            user,
            "reading the memory of a process timed out; processes of its user are skipped for a minute"
        ),
        BlockingSource::Directory(path) => tracing::warn!(
            directory = %path.display(),
            "reading a file of a runtime timed out; its directory is skipped until the read returns"
        ),
    }
    Err(timed_out())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Uids that no user of this machine has.
    const USER: u32 = 4_000_000_000;
    const PATIENT: Duration = Duration::from_secs(60);

    fn left_of(source: &BlockingSource) -> usize {
        late().get(source).map_or(0, |late| late.left)
    }

    fn wait_until_none_is_left(source: &BlockingSource) {
        let until = Instant::now() + PATIENT;
        while left_of(source) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(left_of(source), 0);
    }

    /// A read that hangs until the sender is dropped.
    fn hang(source: &BlockingSource) -> std::sync::mpsc::Sender<()> {
        let (answers, waits) = channel::<()>();
        let hangs = within(source.clone(), Duration::from_millis(10), move || Ok(waits.recv().is_ok()));
        assert_eq!(hangs.unwrap_err().kind(), io::ErrorKind::TimedOut);
        answers
    }

    #[test]
    fn a_read_without_an_answer_costs_its_user_alone_and_its_thread_ends_with_it() {
        let (user, other) = (BlockingSource::User(USER), BlockingSource::User(USER + 1));
        let answers = hang(&user);
        let again = within(user.clone(), DEADLINE, || -> io::Result<()> { panic!("this user is skipped") });
        assert_eq!((again.unwrap_err().kind(), left_of(&user)), (io::ErrorKind::TimedOut, 1));
        assert_eq!(within(other, PATIENT, || Ok(7)).unwrap(), 7, "others are read");
        drop(answers);
        wait_until_none_is_left(&user);
        assert!(within(user, DEADLINE, || Ok(7)).is_err(), "for a minute");
    }

    #[test]
    fn directory_is_skipped_until_its_read_returns() {
        let [directory, other] = ["/hangs", "/answers"].map(|path| BlockingSource::Directory(path.into()));
        let answers = hang(&directory);
        let again = within(directory.clone(), PATIENT, || -> io::Result<()> { panic!("this directory is skipped") });
        assert_eq!(again.unwrap_err().to_string(), "files in /hangs do not answer");
        assert_eq!(within(other, PATIENT, || Ok(7)).unwrap(), 7);
        drop(answers);
        wait_until_none_is_left(&directory);
        assert_eq!(within(directory, PATIENT, || Ok(8)).unwrap(), 8, "at once");
    }

    #[test]
    fn the_user_of_a_process_is_its_real_one() {
        let process = Path::new("/proc/self");
        assert_eq!(user(process).unwrap(), rustix::process::getuid().as_raw());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("status"), "Name:\tx\nUid:\t1000\t0\t0\t0\n").unwrap();
        assert_eq!(user(dir.path()).unwrap(), 1000);
    }
}
