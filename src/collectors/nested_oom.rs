//! OOM kills in cgroups below a task's own cgroup. On v1 the kernel counts each kill only in the cgroup where it
//! happened; v2 propagates the count to the ancestors. Source: `memory.oom_control` (4.13).

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::hierarchy::FileHierarchy;
use super::scratch::{self, Scratch};
use crate::host::hierarchy::Layout;
use crate::kernel::cgroup::oom_control;
use crate::model::id::CgroupPath;

pub(super) const HOME: FileHierarchy = FileHierarchy::V1("memory");
/// Maximum of cgroups per task. Beyond that the sum is incomplete.
const MOST: usize = 1_000;
/// Removed cgroups whose last count is remembered: the tracepoint and the walk may both report one within a few ticks.
const REMEMBERED: usize = 256;
/// Above this number the cgroups are read only when processes are listed, not at each memory change.
const FEW: usize = 16;

/// Kill counts of the cgroups below one, including removed ones.
#[derive(Debug, Clone, Default)]
pub(super) struct NestedOomKills {
    /// Inode and count of each existing cgroup.
    there: Vec<(u64, u64)>,
    /// Recently removed cgroups. Their counts are part of `removed_kills`; a second report of the same cgroup adds
    /// nothing.
    went: VecDeque<(u64, u64)>,
    removed_kills: u64,
}

impl NestedOomKills {
    pub(super) fn total(&self) -> u64 {
        self.there.iter().fold(self.removed_kills, |sum, (_, kills)| sum.saturating_add(*kills))
    }
    pub(super) fn are_few(&self) -> bool {
        self.there.len() <= FEW
    }
    /// A cgroup was removed with this count. A repeated report counts once.
    pub(super) fn ended(&mut self, inode: u64, kills: u64) {
        self.there.retain(|(known, _)| *known != inode);
        if kills == 0 {
            return;
        }
        let known = self.went.iter_mut().find(|(known, _)| *known == inode);
        let before = match known {
            Some((_, known)) => std::mem::replace(known, kills.max(*known)),
            None => {
                self.went.push_back((inode, kills));
                0
            }
        };
        self.removed_kills = self.removed_kills.saturating_add(kills.saturating_sub(before));
        if self.went.len() > REMEMBERED {
            self.went.pop_front();
        }
    }
    /// `all`: the list is complete, so cgroups that are missing from it were removed.
    fn update(&mut self, there: Vec<(u64, u64)>, all: bool) {
        let before = std::mem::replace(&mut self.there, there);
        for (inode, kills) in before {
            if self.there.iter().any(|(now, _)| *now == inode) {
                continue;
            }
            if all {
                self.ended(inode, kills);
            } else {
                self.there.push((inode, kills));
            }
        }
    }
}

/// Reads the kill counts below a task's cgroup.
pub(super) fn read_below(
    layout: &Layout,
    path: &CgroupPath,
    scratch: &mut Scratch,
    known: &mut Option<Box<NestedOomKills>>,
) {
    let Some(hierarchy) = HOME.find(layout) else { return };
    let mut there = Vec::new();
    let is_known = walk(hierarchy.root(), &path.relative(), scratch, &mut there).is_ok();
    if !there.is_empty() || known.is_some() {
        let all = is_known && there.len() < MOST;
        known.get_or_insert_default().update(there, all);
    }
}

/// Errors: the list is incomplete.
fn walk(root: BorrowedFd<'_>, path: &Path, scratch: &mut Scratch, found: &mut Vec<(u64, u64)>) -> Result<(), Errno> {
    for (child, inode) in if_exists(scratch::below(root, path))?.unwrap_or_default() {
        if found.len() == MOST {
            return Ok(());
        }
        let file = if_exists(scratch::open(root, child.join("memory.oom_control"), OFlags::empty()))?;
        let bytes = file.map(|file| if_exists(scratch.read(file))).transpose()?.flatten();
        found.extend(bytes.and_then(|bytes| Some((inode, oom_control::oom_kills(bytes).0?))));
        walk(root, &child, scratch, found)?;
    }
    Ok(())
}

/// A task may create and remove such cgroups at any time.
fn if_exists<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_cgroup_retains_its_oom_count_and_a_recreated_one_adds_to_it() {
        let mut kills = NestedOomKills::default();
        kills.update(vec![(1, 0), (2, 1)], true);
        kills.update(vec![(1, 2), (2, 1)], true);
        assert_eq!(kills.total(), 3);
        kills.ended(2, 2);
        assert_eq!(kills.total(), 4, "one more than was seen");
        kills.update(vec![(3, 1)], true);
        assert_eq!(kills.total(), 5);
    }

    #[test]
    fn end_seen_by_sample_and_kernel_counts_once_in_either_order() {
        let mut kills = NestedOomKills::default();
        kills.update(vec![(1, 1)], true);
        kills.update(vec![], true);
        kills.ended(1, 1);
        assert_eq!(kills.total(), 1);
        kills.ended(1, 2);
        kills.ended(1, 1);
        assert_eq!(kills.total(), 2, "one more before it went");
        kills.update(vec![(4, 3)], true);
        kills.update(vec![], false);
        kills.update(vec![(4, 3)], true);
        assert_eq!(kills.total(), 5);
    }
}
