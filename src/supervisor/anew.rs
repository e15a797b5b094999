//! A record that somebody removed, or its directory, while its supervisor lives: the supervisor alone has it then, and when it
//! leaves, what is in it is gone. So it puts a copy where everybody looks, before it leaves.
//!
//! The copy gets its name when it is whole: an empty record would say that nothing was ever started. It is locked like the
//! record that it is of, so nobody believes its supervisor to be gone before it is.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, linkat, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;

use super::moment;
use super::record::{FILE, Record};

/// What a copy is called until it is whole. One that could not be finished stays: an empty directory says that nothing was started.
pub const UNFINISHED: &str = "record.anew";
/// What may be made again of a run directory: `run/<alloc id>/<task>/<attempt>`, not the data directory above it, without which
/// there is nobody to read it.
const MADE_AGAIN: usize = 4;

/// Durable when it returns. Where `run_dir` still has the record, nothing happens.
///
/// Errors: a sentence; what somebody put in the record's place, or a link on the way to it, is left as it is.
pub fn put_back(record: &Record, run_dir: &Path) -> Result<(), String> {
    if record.is_in(run_dir).unwrap_or(false) {
        return Ok(());
    }
    let failed =
        |e: io::Error| format!("the record was removed from {}, and cannot be put back: {e}", run_dir.display());
    copy(record, run_dir).map_err(failed)
}

fn copy(record: &Record, run_dir: &Path) -> io::Result<()> {
    let directory = make(run_dir)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&directory, UNFINISHED, flags, Mode::RUSR | Mode::WUSR).inspect_err(|_| {
        // Only if it is empty: as such it would say that nothing was started.
        let _ = std::fs::remove_dir(run_dir);
    })?;
    // Kept open, and with it the lock, until this process is gone.
    let copy = std::mem::ManuallyDrop::new(Record::inherited(file));
    copy.try_lock()?;
    record.copy_to(&copy)?;
    moment("copied");
    // Unlike a rename, it takes no place that somebody else has by now.
    linkat(&directory, UNFINISHED, &directory, FILE, AtFlags::empty())?;
    moment("named");
    // Two names do no harm.
    let _ = unlinkat(&directory, UNFINISHED, AtFlags::empty());
    Ok(fsync(&directory)?)
}

/// The run directory, through no link.
fn make(run_dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = run_dir.ancestors().nth(MADE_AGAIN).ok_or(Errno::INVAL)?;
    let mut directory = open(top, flags, Mode::empty())?;
    for name in run_dir.strip_prefix(top).unwrap_or(run_dir) {
        match mkdirat(&directory, name, Mode::RWXU) {
            Ok(()) => fsync(&directory)?,
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(directory)
}
