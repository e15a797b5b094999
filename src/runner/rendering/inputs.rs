//! What templates read, and the wait for a change of it.
//!
//! Directories are watched by inotify, from the root of what is read down to the file: whichever of them appears or is
//! replaced is seen. What cannot be watched is read again every [`POLL`]; the rest every [`RECHECK`], because some file
//! systems report nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedSemaphorePermit;

use crate::host::beneath;
use crate::host::inotify::DirWatch;
use crate::runner::wait_ends::{Ends, EndsWith};

/// How often inputs are read that inotify does not cover.
const POLL: Duration = Duration::from_secs(2);
/// How often inputs are read that it covers.
const RECHECK: Duration = Duration::from_secs(30);
/// Changes that follow each other within this time are one.
pub const SETTLE: Duration = Duration::from_millis(50);
/// Passes in a row because new directories were watched: a tree whose directories change all the time is read again
/// later.
pub const MOST_COVERS: usize = 8;
/// Of one task.
const MOST_DIRECTORIES: usize = 256;
const MOST_INPUTS: usize = 1024;
/// Read at once.
const MOST_EVENTS: usize = 4096;
const DEEPEST: usize = 16;

/// A file, or all files below a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateInput {
    root: PathBuf,
    components: Vec<String>,
    below: InputDepth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InputDepth {
    Nothing,
    Direct,
    All,
}

impl TemplateInput {
    pub fn file(root: PathBuf, components: Vec<String>) -> TemplateInput {
        TemplateInput { root, components, below: InputDepth::Nothing }
    }
    pub fn below(root: PathBuf, components: Vec<String>, is_flat: bool) -> TemplateInput {
        TemplateInput { root, components, below: if is_flat { InputDepth::Direct } else { InputDepth::All } }
    }
}

/// More than can be watched are not kept: one above the limit says so.
pub fn note(inputs: &mut BTreeSet<TemplateInput>, input: TemplateInput) {
    if inputs.len() <= MOST_INPUTS {
        inputs.insert(input);
    }
}

/// Names in a watched directory.
#[derive(Debug, Clone)]
enum WatchedNames {
    All,
    These(BTreeSet<String>),
}

/// Waits for changes of the inputs of one task.
pub struct InputWatch {
    /// `None`: too many tasks have an instance, or the kernel refuses one.
    watch: Option<AsyncFd<DirWatch>>,
    _permit: Option<OwnedSemaphorePermit>,
    watched: BTreeMap<i32, WatchedNames>,
    /// Everything that is read is watched.
    is_complete: bool,
}

impl InputWatch {
    /// Within the runtime. Without a permit it polls.
    pub fn new(permit: Option<OwnedSemaphorePermit>) -> InputWatch {
        // Its replacement is unsafe, because other types may close their descriptor early; this one cannot.
        #[allow(deprecated)]
        let register = |watch| AsyncFd::with_interest(watch, Interest::READABLE);
        let watch = permit.as_ref().map(|_| DirWatch::new().and_then(register));
        let watch = watch.and_then(|watch| {
            watch
                .inspect_err(
                    |error| tracing::debug!(%error, "no inotify instance for templates; their inputs are polled"),
                )
                .ok()
        });
        InputWatch { watch, _permit: permit, watched: BTreeMap::new(), is_complete: false }
    }

    /// Watches exactly these from now on; blocks. Returns whether a directory is new: what changed in it before is not
    /// reported, so the caller reads once more.
    pub fn cover(&mut self, inputs: &BTreeSet<TemplateInput>) -> bool {
        let Some(watch) = &self.watch else { return false };
        let mut now: BTreeMap<i32, WatchedNames> = BTreeMap::new();
        self.is_complete = inputs.len() <= MOST_INPUTS
            && inputs.iter().all(|input| watch_one(watch.get_ref(), input, &mut now).is_some());
        let is_new = now.keys().any(|known| !self.watched.contains_key(known));
        for removed in self.watched.keys().filter(|known| !now.contains_key(known)) {
            watch.get_ref().forget(*removed);
        }
        self.watched = now;
        is_new
    }

    /// Returns after a change, or when everything is due to be read again.
    pub async fn changed(&self) {
        let limit = if self.is_complete { RECHECK } else { POLL };
        let _ = tokio::time::timeout(limit, self.reported()).await;
    }

    async fn reported(&self) {
        let Some(watch) = &self.watch else { return std::future::pending().ends_with(Ends::Deadline).await };
        loop {
            let Ok(mut ready) = watch.readable().ends_with(Ends::Deadline).await else {
                return std::future::pending().ends_with(Ends::Deadline).await;
            };
            let mut is_relevant = false;
            let read = ready.get_inner().read_names(MOST_EVENTS, |of, name| {
                is_relevant |= match self.watched.get(&of) {
                    Some(WatchedNames::All) => !name.starts_with('.'),
                    Some(WatchedNames::These(names)) => name.is_empty() || names.contains(name),
                    // Forgotten; or events were lost.
                    None => of < 0,
                };
            });
            // Otherwise more are there to read.
            if !matches!(read, Ok(false)) {
                ready.clear_ready();
            }
            if is_relevant || read.is_err() {
                return;
            }
            // A neighbour that changes all the time costs little.
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// `None`: not all of it can be watched.
fn watch_one(watch: &DirWatch, input: &TemplateInput, now: &mut BTreeMap<i32, WatchedNames>) -> Option<()> {
    let at: Vec<&str> = input.components.iter().map(String::as_str).collect();
    for depth in 0..at.len() {
        match add(watch, input, &at[..depth], Some(at[depth]), now)? {
            true => {}
            // What is above is watched for its name.
            false => return Some(()),
        }
    }
    if input.below == InputDepth::Nothing || !add(watch, input, &at, None, now)? {
        return Some(());
    }
    let mut ahead: Vec<Vec<String>> = vec![input.components.clone()];
    while let Some(path) = ahead.pop().filter(|_| input.below == InputDepth::All) {
        let at: Vec<&str> = path.iter().map(String::as_str).collect();
        let Ok(directory) = beneath::existing(&input.root, &at) else { continue };
        for (name, _) in beneath::names(&directory, MOST_INPUTS).ok()?.into_iter().filter(|(_, is_dir)| *is_dir) {
            let deeper: Vec<&str> = at.iter().copied().chain([name.as_str()]).collect();
            if name.starts_with('.') || deeper.len() > DEEPEST || !add(watch, input, &deeper, None, now)? {
                continue;
            }
            ahead.push(deeper.into_iter().map(str::to_owned).collect());
        }
    }
    Some(())
}

/// Watches one directory for a name, or for all. Returns whether it exists; `None`: it cannot be watched.
fn add(
    watch: &DirWatch,
    input: &TemplateInput,
    at: &[&str],
    name: Option<&str>,
    now: &mut BTreeMap<i32, WatchedNames>,
) -> Option<bool> {
    let directory = match beneath::existing(&input.root, at) {
        Ok(directory) => directory,
        // Nothing above it is watched.
        Err(_) if at.is_empty() => return None,
        Err(_) => return Some(false),
    };
    if now.len() >= MOST_DIRECTORIES {
        return None;
    }
    let known =
        now.entry(watch.entries(directory.as_fd()).ok()?).or_insert_with(|| WatchedNames::These(BTreeSet::new()));
    match (known, name) {
        (WatchedNames::These(names), Some(name)) => {
            names.insert(name.to_owned());
        }
        (known, None) => *known = WatchedNames::All,
        (WatchedNames::All, Some(_)) => {}
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn file(root: &std::path::Path, path: &str) -> TemplateInput {
        TemplateInput::file(root.to_owned(), path.split('/').map(str::to_owned).collect())
    }

    fn watching() -> InputWatch {
        InputWatch::new(Arc::new(Semaphore::new(1)).try_acquire_owned().ok())
    }

    #[tokio::test(start_paused = true)]
    async fn inputs_without_an_inotify_instance_are_polled() {
        let shared = Arc::new(Semaphore::new(0));
        let mut watch = InputWatch::new(shared.try_acquire_owned().ok());
        assert!(!watch.cover(&[file(std::path::Path::new("/"), "etc/hostname")].into()) && !watch.is_complete);
        let began = tokio::time::Instant::now();
        watch.changed().await;
        assert_eq!(began.elapsed().as_secs(), POLL.as_secs(), "of a clock that stands still otherwise");
    }

    async fn seen(watch: &InputWatch) -> bool {
        tokio::time::timeout(Duration::from_millis(1), watch.reported()).await.is_ok()
    }

    #[tokio::test]
    async fn a_change_of_an_input_is_reported_and_of_its_neighbour_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let mut watch = watching();
        let inputs = [file(dir.path(), "a/b"), file(dir.path(), "none/x")].into();
        assert!(watch.cover(&inputs) && watch.is_complete);
        assert!(!watch.cover(&inputs), "nothing is new");
        std::fs::write(dir.path().join("a/other"), "x").unwrap();
        assert!(!seen(&watch).await);
        std::fs::write(dir.path().join("a/b"), "x").unwrap();
        watch.reported().await;
        // A directory on the way appears: then it is watched too.
        std::fs::create_dir(dir.path().join("none")).unwrap();
        watch.reported().await;
        assert!(watch.cover(&inputs));
        std::fs::write(dir.path().join("none/x"), "x").unwrap();
        watch.reported().await;
    }

    #[tokio::test]
    async fn a_change_is_found_behind_more_events_than_are_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = watching();
        watch.cover(&[file(dir.path(), "b")].into());
        for _ in 0..MOST_EVENTS {
            std::fs::write(dir.path().join("other"), "x").unwrap();
            std::fs::remove_file(dir.path().join("other")).unwrap();
        }
        std::fs::write(dir.path().join("b"), "x").unwrap();
        assert!(!seen(&watch).await);
        watch.reported().await;
    }

    #[tokio::test]
    async fn files_below_a_directory_are_watched_as_deep_as_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let below = |is_flat| [TemplateInput::below(dir.path().to_owned(), vec!["a".to_owned()], is_flat)].into();
        let mut watch = watching();
        watch.cover(&below(true));
        std::fs::write(dir.path().join("a/b/deep"), "x").unwrap();
        assert!(!seen(&watch).await);
        watch.cover(&below(false));
        std::fs::write(dir.path().join("a/.draft"), "x").unwrap();
        assert!(!seen(&watch).await);
        std::fs::write(dir.path().join("a/b/deep"), "y").unwrap();
        watch.reported().await;
        // Replaced as a whole.
        std::fs::rename(dir.path().join("a"), dir.path().join("old")).unwrap();
        watch.reported().await;
    }

    #[tokio::test]
    async fn more_directories_than_allowed_are_polled() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..=MOST_DIRECTORIES {
            std::fs::create_dir_all(dir.path().join(format!("a/{at}"))).unwrap();
        }
        let mut watch = watching();
        watch.cover(&[TemplateInput::below(dir.path().to_owned(), vec!["a".to_owned()], false)].into());
        assert!(!watch.is_complete && watch.watched.len() == MOST_DIRECTORIES);
    }
}
