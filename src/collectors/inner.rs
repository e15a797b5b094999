//! Whom the OOM killer chose below a task's own cgroup: on v1 the kernel counts each in the very cgroup where it was, and in none above. v2 hands
//! them up. Source: `memory.oom_control` (4.13).

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::home::Home;
use crate::host::hierarchy::Layout;
use crate::kernel::cgroup::oom_control;
use crate::model::id::CgroupPath;

pub(super) const HOME: Home = Home::V1("memory");
/// So many are looked at; who makes more has no whole sum.
const MOST: usize = 1_000;
/// Of so many that went it is known what they had counted: they are told of within some ticks.
const REMEMBERED: usize = 256;

/// More are looked at with the processes alone, and not whenever memory moves.
const FEW: usize = 16;

/// What is known of cgroups below one, those that are gone included.
#[derive(Debug, Clone, Default)]
pub(super) struct InnerKills {
    /// By inode.
    there: Vec<(u64, u64)>,
    /// Those that went last, whose numbers are in `gone`: a look and the kernel both tell of them.
    went: VecDeque<(u64, u64)>,
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
        self.gone = self.gone.saturating_add(kills.saturating_sub(before));
        if self.went.len() > REMEMBERED {
            self.went.pop_front();
        }
    }
    /// `all`: what is not among these has gone.
    fn look(&mut self, there: Vec<(u64, u64)>, all: bool) {
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

/// Looks at what is below a task's cgroup, where something is or was.
pub(super) fn look(layout: &Layout, path: &CgroupPath, known: &mut Option<Box<InnerKills>>) {
    let Some(home) = HOME.find(layout) else { return };
    // The kernel counts a cgroup's directories in its links.
    let links =
        rustix::fs::statat(home.root(), &*path.relative(), AtFlags::SYMLINK_NOFOLLOW).map_or(2, |stat| stat.st_nlink);
    if links <= 2 && known.is_none() {
        return;
    }
    let mut there = Vec::new();
    let all = below(&home.directory(path.as_str()), &mut there).is_ok() && there.len() < MOST;
    known.get_or_insert_default().look(there, all);
}

/// Errors: it is not known what is there.
fn below(directory: &Path, found: &mut Vec<(u64, u64)>) -> io::Result<()> {
    for entry in or_gone(fs::read_dir(directory))?.into_iter().flatten() {
        let Some(entry) = or_gone(entry)?.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) else {
            continue;
        };
        if found.len() == MOST {
            return Ok(());
        }
        let bytes = or_gone(fs::read(entry.path().join("memory.oom_control")))?;
        found.extend(bytes.and_then(|bytes| Some((entry.ino(), oom_control::oom_kills(&bytes).0?))));
        below(&entry.path(), found)?;
    }
    Ok(())
}

/// It may come and go as the task pleases.
fn or_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NODEV)) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_counts_on_and_one_that_was_made_anew_counts_beside_it() {
        let mut kills = InnerKills::default();
        kills.look(vec![(1, 0), (2, 1)], true);
        kills.look(vec![(1, 2), (2, 1)], true);
        assert_eq!(kills.total(), 3);
        kills.ended(2, 2);
        assert_eq!(kills.total(), 4, "one more than was seen");
        kills.look(vec![(3, 1)], true);
        assert_eq!(kills.total(), 5);
    }

    #[test]
    fn what_a_look_and_the_kernel_both_tell_counts_once_in_either_order_and_a_look_that_failed_forgets_nothing() {
        let mut kills = InnerKills::default();
        kills.look(vec![(1, 1)], true);
        kills.look(vec![], true);
        kills.ended(1, 1);
        assert_eq!(kills.total(), 1);
        kills.ended(1, 2);
        kills.ended(1, 1);
        assert_eq!(kills.total(), 2, "one more before it went");
        kills.look(vec![(4, 3)], true);
        kills.look(vec![], false);
        kills.look(vec![(4, 3)], true);
        assert_eq!(kills.total(), 5);
    }
}
