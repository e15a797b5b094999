//! Reads that may block for ever. Reading the memory of a process waits for whatever backs it: a process can map its
//! environment with userfaultfd(2) or FUSE and block the read, which then only SIGKILL ends.
//!
//! ```text
//! one thread per read ── within 500 ms ──► the result
//!                      └─ later: the thread is abandoned, and the user's processes are skipped for a minute
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A page fault from a swap device takes milliseconds.
const DEADLINE: Duration = Duration::from_millis(500);
/// After a timeout, the processes of the same user are skipped for this long.
const PAUSE: Duration = Duration::from_secs(60);
/// Limit of abandoned threads over all users; at the limit no process is read.
const MOST_LEFT: usize = 8;

/// By uid. Concurrency: the lock is never held during a read.
static LATE: Mutex<BTreeMap<u32, Late>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Late {
    /// Abandoned threads that are still blocked.
    left: usize,
    until: Instant,
}

fn late() -> MutexGuard<'static, BTreeMap<u32, Late>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `process`: its directory below `proc`. Errors: those of `work`; `TimedOut`: it took too long, or the user's
/// processes are being skipped.
pub(super) fn within_deadline<T: Send + 'static>(
    process: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    of_user(user(process)?, DEADLINE, work)
}

/// The real uid. A process that is non-dumpable (`PR_SET_DUMPABLE`) or runs a setuid program keeps it.
fn user(process: &Path) -> io::Result<u32> {
    let status = super::read(&process.join("status"), 64 << 10).unwrap_or_default();
    let real = status.split(|b| *b == b'\n').find_map(|line| {
        std::str::from_utf8(line.strip_prefix(b"Uid:")?).ok()?.split_ascii_whitespace().next()?.parse().ok()
    });
    real.map_or_else(|| Ok(rustix::fs::stat(process)?.st_uid), Ok)
}

fn of_user<T: Send + 'static>(
    user: u32,
    deadline: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let is_late = || io::Error::new(io::ErrorKind::TimedOut, format!("processes of user {user} do not answer"));
    {
        let now = Instant::now();
        let mut late = late();
        late.retain(|_, late| late.left > 0 || late.until > now);
        if late.contains_key(&user) || late.values().map(|late| late.left).sum::<usize>() >= MOST_LEFT {
            return Err(is_late());
        }
    }
    let (sender, answer) = sync_channel(1);
    let answers = move || {
        let result = work();
        let mut late = late();
        // The receiver is gone: this thread was abandoned.
        if sender.send(result).is_err()
            && let Some(late) = late.get_mut(&user)
        {
            late.left = late.left.saturating_sub(1);
        }
    };
    std::thread::Builder::new().name("ask-process".into()).spawn(answers)?;
    if let Ok(result) = answer.recv_timeout(deadline) {
        return result;
    }
    {
        let mut late = late();
        // The result may have arrived meanwhile: the lock decides.
        if let Ok(result) = answer.try_recv() {
            return result;
        }
        let late = late.entry(user).or_insert(Late { left: 0, until: Instant::now() });
        (late.left, late.until) = (late.left + 1, Instant::now() + PAUSE);
        drop(answer);
    }
    tracing::warn!(user, "reading the memory of a process timed out; processes of its user are skipped for a minute");
    Err(is_late())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Uids that no user of this machine has.
    const USER: u32 = 4_000_000_000;

    fn left_of(user: u32) -> Option<usize> {
        late().get(&user).map(|late| late.left)
    }

    #[test]
    fn a_read_without_an_answer_costs_its_user_alone_and_its_thread_ends_with_it() {
        let (answers, waits) = channel::<()>();
        let hangs = of_user(USER, Duration::from_millis(10), move || Ok(waits.recv().is_ok()));
        assert_eq!(hangs.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let again = of_user(USER, DEADLINE, || -> io::Result<()> { panic!("nobody of that user is asked") });
        assert_eq!((again.unwrap_err().kind(), left_of(USER)), (io::ErrorKind::TimedOut, Some(1)));
        let patient = Duration::from_secs(60);
        assert_eq!(of_user(USER + 1, patient, || Ok(7)).unwrap(), 7, "others are");
        drop(answers);
        let until = Instant::now() + patient;
        while left_of(USER) != Some(0) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(left_of(USER), Some(0));
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
