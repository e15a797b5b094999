//! Which lives a cgroup has: when it was made, and whether what is a task again was there all the time. Pure: who looks tells what it found.
//!
//! A cgroup counts what is below it as well, and goes on counting while it is no task because somebody else's tasks are inside of it.
//! What was counted meanwhile is theirs: when it is a task, again or for the first time, its counters begin anew.

use std::collections::HashMap;

use crate::model::id::CgroupPath;
use crate::model::units::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Seen being made, and nothing was ever below: when.
    made: HashMap<String, Timestamp>,
    /// Of those that are tasks: who they are, by their inodes.
    tasks: HashMap<String, u64>,
    /// Were tasks, and are still there.
    covered: HashMap<String, u64>,
    /// Tasks are or were below these.
    above: HashMap<String, Option<u64>>,
}

impl Lives {
    /// The kernel has just told of it.
    pub(super) fn made(&mut self, path: &str, at: Timestamp) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.made.remove(above);
        }
        self.made.entry(path.to_owned()).or_insert(at);
    }
    pub(super) fn removed(&mut self, path: &str) {
        self.made.remove(path);
        self.above.remove(path);
    }
    /// A task is there: what those above it count is not theirs.
    pub(super) fn is_there(&mut self, path: &str, inode: impl Fn(&str) -> Option<u64>) {
        for above in CgroupPath::above(path) {
            if !self.above.contains_key(above) {
                self.above.insert(above.to_owned(), inode(above));
            }
        }
    }
    /// `None`: it was there before anybody looked, or has had cgroups below it, whose numbers are in its own.
    pub(super) fn made_at(&self, path: &str) -> Option<Timestamp> {
        self.made.get(path).copied()
    }

    /// It is a task from now on. Gives whether what its counters say by now is not its own: it was said of others, or before, of itself.
    pub(super) fn begins(&mut self, path: &str, inode: Option<u64>) -> bool {
        let was_covered = self.covered.remove(path) == inode;
        let again = inode.is_some() && (was_covered || self.above.get(path) == Some(&inode));
        if let Some(inode) = inode {
            self.tasks.insert(path.to_owned(), inode);
        }
        // Found late, below one that counted it until then.
        let is_covered = || CgroupPath::above(path).any(|above| self.covered.contains_key(above));
        again || (self.made_at(path).is_none() && is_covered())
    }
    /// It is none any more. `inode`: of what is there now. Gives whether it is still there.
    pub(super) fn ends(&mut self, path: &str, inode: Option<u64>) -> bool {
        let is_there = self.tasks.remove(path).is_some_and(|was| Some(was) == inode);
        match inode.filter(|_| is_there) {
            Some(inode) => drop(self.covered.insert(path.to_owned(), inode)),
            None => drop(self.covered.remove(path)),
        }
        is_there
    }

    /// Forgets what is there no more, or is another one by now.
    pub(super) fn forget(&mut self, inode: impl Fn(&str) -> Option<u64>) {
        self.covered.retain(|path, was| inode(path) == Some(*was));
        self.above.retain(|path, was| was.is_some() && inode(path) == *was);
        self.made.retain(|path, _| inode(path).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_there_all_the_time_counts_anew_and_one_that_was_made_anew_does_not() {
        let mut lives = Lives::default();
        assert!(!lives.begins("/a", Some(1)));
        assert!(lives.ends("/a", Some(1)), "something is inside of it");
        assert!(lives.begins("/a", Some(1)));
        assert!(!lives.ends("/a", None), "it was removed");
        assert!(!lives.begins("/a", Some(2)));
        assert!(!lives.ends("/a", Some(3)), "it was made anew before anybody looked");
        assert!(!lives.begins("/a", Some(3)));
    }

    #[test]
    fn one_below_counts_from_where_the_one_above_stopped_unless_it_was_seen_being_made() {
        let mut lives = Lives::default();
        lives.begins("/a", Some(1));
        lives.ends("/a", Some(1));
        lives.made("/a/seen", Timestamp(5));
        assert!(!lives.begins("/a/seen", Some(2)));
        assert!(lives.begins("/a/b/late", Some(3)));
        assert!(!lives.begins("/b/late", Some(4)));
        lives.forget(|_| None);
        assert!(!lives.begins("/a/c", Some(5)), "the one above is gone");
    }

    #[test]
    fn one_that_was_above_tasks_before_it_is_one_itself_counts_from_there() {
        let mut lives = Lives::default();
        let inode = |path: &str| Some(path.len() as u64);
        lives.is_there("/unit/a/b", inode);
        assert!(lives.begins("/unit", Some(5)) && lives.begins("/unit/a", Some(7)));
        assert!(!lives.begins("/unit/a", Some(8)), "it was made anew");
        assert!(!lives.begins("/unit/a/b", Some(9)));
        lives.removed("/unit");
        assert!(!lives.begins("/unit", Some(5)), "the number is given again");
    }

    #[test]
    fn what_was_seen_being_made_is_young_until_something_is_below_it() {
        let mut lives = Lives::default();
        lives.made("/a", Timestamp(5));
        assert_eq!(lives.made_at("/a"), Some(Timestamp(5)));
        lives.made("/a/b", Timestamp(6));
        assert_eq!((lives.made_at("/a"), lives.made_at("/a/b")), (None, Some(Timestamp(6))));
        lives.removed("/a/b");
        assert_eq!(lives.made_at("/a/b"), None);
    }
}
