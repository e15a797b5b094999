//! The paths that a data directory has had. Tasks belong to the directory itself, not to its path: moved, with or
//! without a link in its old place, it keeps its tasks. A copy is another directory and owns no running task.
//!
//! ```text
//! <data>/known-as   device and inode of the directory, and the paths at which agents found it      0600
//! ```
//! Handles and supervisor orders contain absolute paths: a path below any of these is in this directory.

use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "known-as";
/// Maximum number of paths. Handles are rewritten at each start, so the oldest paths are in no handle any more.
const MAX_PATHS: usize = 32;

/// What is known of a directory that was just locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryHistory {
    /// No agent was here before.
    Fresh,
    /// An earlier agent recorded no path.
    Unknown,
    /// The same directory, perhaps at another path.
    Same,
    /// Recorded in another directory: this is a copy or a restored backup.
    Copied,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryMark {
    device: u64,
    inode: u64,
    /// Newest last.
    names: Vec<PathBuf>,
}

#[derive(Debug)]
pub struct KnownPaths {
    pub before: DirectoryHistory,
    /// Includes the current path.
    pub names: Vec<PathBuf>,
}

impl KnownPaths {
    /// For a locked directory. `used`: an agent was here before. Records the current path; a failure is logged and
    /// matters only after a later move.
    pub fn find(root: &Path, used: bool) -> io::Result<KnownPaths> {
        let (device, inode) = identity(root)?;
        let recorded = read(&root.join(FILE));
        let (before, mut names) = match &recorded {
            Some(mark) if (mark.device, mark.inode) == (device, inode) => (DirectoryHistory::Same, mark.names.clone()),
            Some(mark) => {
                let from = mark.names.last().map(|name| name.display().to_string()).unwrap_or_default();
                tracing::warn!(
                    path = %root.display(),
                    from,
                    "the data directory is a copy: tasks of the original are not managed"
                );
                (DirectoryHistory::Copied, Vec::new())
            }
            None if used => (DirectoryHistory::Unknown, Vec::new()),
            None => (DirectoryHistory::Fresh, Vec::new()),
        };
        if names.last().is_none_or(|last| last != root) {
            if let Some(last) = names.last() {
                tracing::info!(
                    from = %last.display(),
                    to = %root.display(),
                    "the data directory was moved; recovering its tasks"
                );
            }
            names.retain(|name| name != root);
            names.push(root.to_owned());
        }
        names.drain(..names.len().saturating_sub(MAX_PATHS));
        let mark = DirectoryMark { device, inode, names: names.clone() };
        if recorded.as_ref() != Some(&mark)
            && let Err(error) = write(root, &mark)
        {
            tracing::warn!(
                %error,
                path = %root.display(),
                "failed to record the path of the data directory: if it is moved now, it loses its tasks"
            );
        }
        Ok(KnownPaths { before, names })
    }

    /// The current path of a recorded path. `None`: that is not in this directory.
    pub fn now(&self, root: &Path, recorded: &Path) -> Option<PathBuf> {
        let inside = |name: &Path| recorded.strip_prefix(name).ok().map(|inside| root.join(inside));
        self.names.iter().rev().find_map(|name| inside(name)).or_else(|| {
            // By a link, or by another mount path.
            let own = identity(root).ok()?;
            let above = recorded.ancestors().find(|above| identity(above).is_ok_and(|other| other == own))?;
            inside(above)
        })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// An unreadable file counts as missing.
fn read(path: &Path) -> Option<DirectoryMark> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot read the earlier paths of the data directory");
            return None;
        }
    };
    let mark = serde_json::from_slice(&text);
    mark.inspect_err(
        |error| tracing::warn!(%error, path = %path.display(), "cannot read the earlier paths of the data directory"),
    )
    .ok()
}

/// Atomic.
fn write(root: &Path, mark: &DirectoryMark) -> io::Result<()> {
    let new = root.join(format!("{FILE}.new"));
    // A file left by an agent that died here.
    let _ = std::fs::remove_file(&new);
    let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    serde_json::to_writer(&file, mark)?;
    file.sync_all()?;
    std::fs::rename(new, root.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_moved_is_the_same_and_a_copy_is_not() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (first, second, copy) = (top.join("d"), top.join("big"), top.join("copy"));
        std::fs::create_dir(&first).unwrap();
        assert_eq!(KnownPaths::find(&first, false).unwrap().before, DirectoryHistory::Fresh);
        assert_eq!(KnownPaths::find(&first, true).unwrap().before, DirectoryHistory::Same);
        std::fs::rename(&first, &second).unwrap();
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(second.join(FILE), copy.join(FILE)).unwrap();
        let moved = KnownPaths::find(&second, true).unwrap();
        assert_eq!(
            (moved.before, moved.names.as_slice()),
            (DirectoryHistory::Same, [first.clone(), second.clone()].as_slice())
        );
        assert_eq!(moved.now(&second, &first.join("run/a/t/0")), Some(second.join("run/a/t/0")));
        assert_eq!(moved.now(&second, &second.join("run/a/t/0")), Some(second.join("run/a/t/0")));
        assert_eq!(moved.now(&second, &top.join("elsewhere/run/a/t/0")), None);
        for _ in 0..2 {
            let copied = KnownPaths::find(&copy, true).unwrap();
            assert_eq!(copied.names, std::slice::from_ref(&copy));
            assert_eq!(copied.now(&copy, &first.join("run/a/t/0")), None, "also after it has recorded its path");
        }
    }

    #[test]
    fn link_in_its_old_place_leads_to_it_without_a_record() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (old, new) = (top.join("d"), top.join("big"));
        std::fs::create_dir(&new).unwrap();
        std::os::unix::fs::symlink(&new, &old).unwrap();
        let found = KnownPaths::find(&new, true).unwrap();
        assert_eq!(found.before, DirectoryHistory::Unknown);
        assert_eq!(found.now(&new, &old.join("run/a/t/0")), Some(new.join("run/a/t/0")));
    }

    #[test]
    fn unreadable_file_is_written_again() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join(FILE), "{").unwrap();
        assert_eq!(KnownPaths::find(top.path(), true).unwrap().before, DirectoryHistory::Unknown);
        assert_eq!(KnownPaths::find(top.path(), true).unwrap().before, DirectoryHistory::Same);
    }
}
