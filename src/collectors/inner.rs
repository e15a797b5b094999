//! Whom the OOM killer chose below a task's own cgroup: on v1 the kernel counts each in the very cgroup where it was, and in none above. v2 hands
//! them up. Source: `memory.oom_control` (4.13).

use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

use rustix::fs::AtFlags;

use super::home::Home;
use crate::host::hierarchy::{Hierarchy, Layout};
use crate::kernel::cgroup::oom_control;
use crate::model::id::CgroupPath;

pub(super) const HOME: Home = Home::V1("memory");
/// So many are looked at; who makes more has no whole sum.
const MOST: usize = 1_000;

/// More are looked at with the processes alone, and not whenever memory moves.
const FEW: usize = 16;

/// What is known of cgroups below one, those that are gone included.
#[derive(Debug, Clone, Default)]
pub(super) struct InnerKills {
    /// By inode.
    there: Vec<(u64, u64)>,
    gone: u64,
}

impl InnerKills {
    pub(super) fn total(&self) -> u64 {
        self.there.iter().fold(self.gone, |sum, (_, kills)| sum.saturating_add(*kills))
    }
    pub(super) fn are_few(&self) -> bool {
        self.there.len() <= FEW
    }
    /// One was removed, and had counted so many. What is told of it once more counts nothing.
    pub(super) fn ended(&mut self, inode: u64, kills: u64) {
        self.there.retain(|(known, _)| *known != inode);
        self.gone = self.gone.saturating_add(kills);
    }
    fn look(&mut self, there: Vec<(u64, u64)>) {
        let is_gone = |(inode, _): &&(u64, u64)| !there.iter().any(|(now, _)| now == inode);
        let gone = self.there.iter().filter(is_gone).fold(0, |sum: u64, (_, kills)| sum.saturating_add(*kills));
        self.gone = self.gone.saturating_add(gone);
        self.there = there;
    }
}

/// Looks at what is below a task's cgroup, where something is or was.
pub(super) fn look(layout: &Layout, path: &CgroupPath, known: &mut Option<Box<InnerKills>>) {
    let Some(home) = HOME.find(layout) else { return };
    // The kernel counts a cgroup's directories in its links.
    let links =
        rustix::fs::statat(home.root(), &*path.relative(), AtFlags::SYMLINK_NOFOLLOW).map_or(2, |stat| stat.st_nlink);
    if links <= 2 && known.is_none() {
        return;
    }
    known.get_or_insert_default().look(below(home, path));
}

fn below(home: &Hierarchy, path: &CgroupPath) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut open = vec![home.directory(path.as_str())];
    while let Some(directory) = open.pop() {
        // It may come and go as the task pleases.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if found.len() == MOST {
                return found;
            }
            if let Some(kills) = kills(&entry.path()) {
                found.push((entry.ino(), kills));
            }
            open.push(entry.path());
        }
    }
    found
}

fn kills(directory: &Path) -> Option<u64> {
    oom_control::oom_kills(&fs::read(directory.join("memory.oom_control")).ok()?).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_counts_on_and_one_that_was_made_anew_counts_beside_it() {
        let mut kills = InnerKills::default();
        kills.look(vec![(1, 0), (2, 1)]);
        kills.look(vec![(1, 2), (2, 1)]);
        assert_eq!(kills.total(), 3);
        kills.ended(2, 2);
        assert_eq!(kills.total(), 4, "one more than was seen");
        kills.look(vec![(3, 1)]);
        assert_eq!(kills.total(), 5);
    }
}
