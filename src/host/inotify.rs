//! Directory and file events from the kernel, and a wake-up descriptor for the thread that waits for them. Source:
//! inotify(7), eventfd(2).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::model::raw_name;

/// Watches directories by inotify. Concurrency: one reader; any thread may add watches.
#[derive(Debug)]
pub struct DirWatch(OwnedFd);

/// An event. `watch`: the descriptor that adding the watch returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirEvent {
    /// A directory was created in, or moved into, the watched one.
    Made { watch: i32, name: String },
    /// A directory was removed from, or moved out of, the watched one.
    Removed { watch: i32, name: String },
    /// The content of a watched file changed.
    Changed { watch: i32 },
    /// The watched file or directory is gone, and the watch with it.
    Dropped { watch: i32 },
    /// The kernel's queue overflowed: events were lost.
    Overflow,
}

impl DirWatch {
    /// Errors: the limit of inotify instances is reached, or the kernel lacks inotify.
    pub fn new() -> io::Result<DirWatch> {
        Ok(DirWatch(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }
    /// Watches a directory for subdirectories that are created and removed.
    pub fn directory(&self, path: &Path) -> io::Result<i32> {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let flags = flags | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        Ok(inotify::add_watch(&self.0, path, flags)?)
    }
    /// Watches an open directory for names whose content changes: files that were written and closed, and files and
    /// directories that come and go. Returns the same descriptor if it is watched already.
    pub fn entries(&self, directory: BorrowedFd<'_>) -> io::Result<i32> {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let flags =
            flags | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        // The open directory itself, whatever has its path now.
        Ok(inotify::add_watch(&self.0, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags)?)
    }
    /// Watches the content of a file.
    pub fn file(&self, path: &Path) -> io::Result<i32> {
        Ok(inotify::add_watch(&self.0, path, WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW)?)
    }
    pub fn forget(&self, watch: i32) {
        // Fails if the watch is gone already.
        let _ = inotify::remove_watch(&self.0, watch);
    }
    /// Passes the watch and the name of each pending event to `each`, and stops after about `most` events. Returns
    /// whether it has passed all. Does not wait. Without a name: the directory itself has gone, or events were lost
    /// (watch -1). A created file is left out: it is written yet.
    pub fn read_names(&self, most: usize, mut each: impl FnMut(i32, &str)) -> io::Result<bool> {
        self.read_events(most, |watch, what, name| {
            if !what.contains(ReadFlags::CREATE) || what.contains(ReadFlags::ISDIR) {
                each(watch, name);
            }
        })
    }
    /// Passes all pending events to `each`. Does not wait.
    pub fn read(&self, mut each: impl FnMut(DirEvent)) -> io::Result<()> {
        self.read_events(usize::MAX, |watch, what, name| {
            let is_directory = what.contains(ReadFlags::ISDIR);
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                each(DirEvent::Overflow);
            } else if what.contains(ReadFlags::IGNORED) {
                each(DirEvent::Dropped { watch });
            } else if is_directory && what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                each(DirEvent::Made { watch, name: name.to_owned() });
            } else if is_directory && what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                each(DirEvent::Removed { watch, name: name.to_owned() });
            } else if what.contains(ReadFlags::MODIFY) {
                each(DirEvent::Changed { watch });
            }
        })?;
        Ok(())
    }
    fn read_events(&self, most: usize, mut each: impl FnMut(i32, ReadFlags, &str)) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut passed = 0;
        loop {
            // What is in the buffer is gone from the kernel.
            if passed >= most && reader.is_buffer_empty() {
                return Ok(false);
            }
            passed += 1;
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // Events of a directory entry carry its name.
            let name = raw_name::text(event.file_name().map_or(b"", |name| name.to_bytes()));
            each(event.wd(), event.events(), &name);
        }
    }
}

/// Readable when an event is pending.
impl AsFd for DirWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for DirWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Wakes a waiting thread. Concurrency: any thread may ring; several rings before the wait count as one.
#[derive(Debug, Clone)]
pub struct WakeSignal(Arc<OwnedFd>);

impl WakeSignal {
    /// Errors: no free descriptor.
    pub fn new() -> io::Result<WakeSignal> {
        Ok(WakeSignal(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }
    pub fn ring(&self) {
        // Fails if it has rung already, which is enough.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
    /// Waits until the bell rings, a descriptor becomes readable, or `most` has passed. Resets the bell.
    pub fn wait<'a>(&self, watched: impl IntoIterator<Item = BorrowedFd<'a>>, most: Duration) {
        let most = Timespec { tv_sec: most.as_secs().try_into().unwrap_or(1), tv_nsec: most.subsec_nanos().into() };
        let watched = watched.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = [PollFd::new(&*self.0, PollFlags::IN)].into_iter().chain(watched).collect();
        // On EINTR, or if nothing has rung, the caller checks its state and waits again.
        let _ = poll(&mut fds, Some(&most));
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8][..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(watch: &DirWatch) -> Vec<DirEvent> {
        let mut all = Vec::new();
        watch.read(|notice| all.push(notice)).unwrap();
        all
    }

    #[test]
    fn directories_that_come_and_go_are_reported_and_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let watching = DirWatch::new().unwrap();
        let watch = watching.directory(dir.path()).unwrap();
        assert_eq!(notices(&watching), []);
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        std::fs::remove_dir(dir.path().join("a")).unwrap();
        let name = "a".to_owned();
        assert_eq!(
            notices(&watching),
            [DirEvent::Made { watch, name: name.clone() }, DirEvent::Removed { watch, name }]
        );
        watching.forget(watch);
        assert_eq!(notices(&watching), [DirEvent::Dropped { watch }]);
    }

    #[test]
    fn names_of_written_moved_and_removed_files_are_read_once_they_are_closed() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let watching = DirWatch::new().unwrap();
        let opened = std::fs::File::open(dir.path()).unwrap();
        let watch = watching.entries(opened.as_fd()).unwrap();
        assert_eq!(watching.entries(opened.as_fd()).unwrap(), watch, "the same directory");
        let read = || {
            let mut all = Vec::new();
            assert!(watching.read_names(100, |of, name| all.push((of, name.to_owned()))).unwrap());
            all
        };
        let of = |name: &str| (watch, name.to_owned());
        let mut file = std::fs::File::create(dir.path().join("a")).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(read(), [], "it is not closed yet");
        drop(file);
        assert_eq!(read(), [of("a")]);
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        std::fs::create_dir(dir.path().join("c")).unwrap();
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert_eq!(read(), [of("a"), of("b"), of("c"), of("b")]);
    }

    /// A process that changes files all the time does not occupy the reader for ever.
    #[test]
    fn a_flood_of_events_is_read_in_parts_and_none_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let watching = DirWatch::new().unwrap();
        watching.entries(std::fs::File::open(dir.path()).unwrap().as_fd()).unwrap();
        let files: Vec<String> = (0..2_000).map(|at| format!("file-{at}")).collect();
        files.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
        let (mut names, mut parts) = (Vec::new(), 1);
        while !watching.read_names(1, |_, name| names.push(name.to_owned())).unwrap() {
            parts += 1;
        }
        // A process that another thread starts may have a file open until it executes: its end comes later.
        let sorted = |mut names: Vec<String>| {
            names.sort_unstable();
            names
        };
        assert_eq!(names.len(), files.len());
        assert!(sorted(names) == sorted(files), "other names");
        assert!(parts > 2, "{parts}");
    }

    #[test]
    fn file_event_has_its_name_with_invalid_utf8_escaped() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let watching = DirWatch::new().unwrap();
        let text = watching.file(&file).unwrap();
        std::fs::write(&file, "y").unwrap();
        assert!(notices(&watching).contains(&DirEvent::Changed { watch: text }));
        let watch = watching.directory(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
        let name = raw_name::text(b"\xff").into_owned();
        assert_eq!(notices(&watching), [DirEvent::Made { watch, name }]);
    }

    #[test]
    fn waiting_thread_is_woken_by_the_bell_and_by_a_file_event_only() {
        let (wake, watching, dir) =
            (WakeSignal::new().unwrap(), DirWatch::new().unwrap(), tempfile::tempdir().unwrap());
        watching.directory(dir.path()).unwrap();
        let long = Duration::from_secs(600);
        wake.ring();
        wake.ring();
        wake.wait([watching.as_fd()], long);
        wake.wait([watching.as_fd()], Duration::from_millis(1));
        std::fs::create_dir(dir.path().join("a")).unwrap();
        wake.wait([watching.as_fd()], long);
        assert_eq!(notices(&watching).len(), 1);
    }
}
