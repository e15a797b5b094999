//! Root files of a hierarchy that concern every cgroup below, read at most once a second for all readers.
//!
//! For the root's `blkio.throttle.*_recursive` the kernel visits all cgroups. Read for each of 5,000 cgroups it would
//! cost more than all other files together.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::scratch::{self, Scratch};
use crate::telemetry::lock;

/// Maximum age of the cached content.
const FRESH: Duration = Duration::from_secs(1);

/// Cached content of root files. Concurrency: any thread; one reads, the others wait for the result.
#[derive(Debug, Default)]
pub(super) struct RootFiles(Mutex<Vec<RootFile>>);

/// The last read of one root file.
#[derive(Debug)]
struct RootFile {
    /// Index of the hierarchy in the layout.
    hierarchy: usize,
    name: &'static str,
    read_at: Instant,
    content: Result<Arc<[u8]>, Errno>,
}

impl RootFiles {
    /// Content of the file, at most one second older than `now`. Errors: those of opening and reading.
    pub(super) fn read(
        &self,
        (hierarchy, root): (usize, BorrowedFd<'_>),
        name: &'static str,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Result<Arc<[u8]>, Errno> {
        let mut known = lock(&self.0);
        let is_it = |file: &RootFile| file.hierarchy == hierarchy && file.name == name;
        let is_fresh = |file: &&RootFile| is_it(file) && now.saturating_duration_since(file.read_at) < FRESH;
        if let Some(file) = known.iter().find(is_fresh) {
            return file.content.clone();
        }
        let content = scratch::open(root, name, OFlags::empty()).and_then(|fd| scratch.read(fd).map(Arc::from));
        known.retain(|file| !is_it(file));
        known.push(RootFile { hierarchy, name, read_at: now, content: content.clone() });
        content
    }
}

/// Promise (Absent values and sums): A file in the root of a hierarchy is read once for all readers
#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn root_file_is_read_once_a_second_for_all_readers() {
        let root = tempfile::tempdir().unwrap();
        let (home, file) = (std::fs::File::open(&root).unwrap(), root.path().join("disks"));
        let (files, now) = (RootFiles::default(), Instant::now());
        let read = |hierarchy, after| {
            let content = scratch::with(|s| files.read((hierarchy, home.as_fd()), "disks", s, now + after));
            content.map(|text| String::from_utf8_lossy(&text).into_owned())
        };
        assert_eq!(read(0, Duration::ZERO), Err(Errno::NOENT));
        std::fs::write(&file, "8:0\n").unwrap();
        assert_eq!(read(0, FRESH / 2), Err(Errno::NOENT), "what was said holds for a second");
        assert_eq!(read(1, FRESH / 2).as_deref(), Ok("8:0\n"), "another hierarchy");
        assert_eq!(read(0, FRESH).as_deref(), Ok("8:0\n"));
        std::fs::write(&file, "8:0\n8:16\n").unwrap();
        assert_eq!(read(0, FRESH * 3 / 2).as_deref(), Ok("8:0\n"));
        assert_eq!(read(0, FRESH * 2).as_deref(), Ok("8:0\n8:16\n"));
    }
}
