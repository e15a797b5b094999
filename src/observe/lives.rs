//! Lives of a cgroup: when it was created, and whether a task that appears again existed all the time. Pure: the caller
//! passes what it found.
//!
//! The counters of a cgroup include those of its descendants, and continue while it is no task because other tasks live
//! below it. That usage belongs to the other tasks. When the cgroup becomes a task, again or for the first time, it
//! counts from its current values.

use std::collections::HashMap;

use crate::model::id::CgroupPath;
use crate::model::units::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Creation times of cgroups that were seen being created and never had children.
    made: HashMap<String, Timestamp>,
    /// Inodes of current tasks.
    tasks: HashMap<String, u64>,
    /// Former tasks whose cgroups still exist.
    covered: HashMap<String, u64>,
    /// Cgroups that are or were ancestors of tasks.
    above: HashMap<String, Option<u64>>,
}

impl Lives {
    /// The kernel reported its creation.
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
    /// A task exists: the counters of its ancestors include its usage.
    pub(super) fn is_there(&mut self, path: &str, inode: impl Fn(&str) -> Option<u64>) {
        for above in CgroupPath::above(path) {
            if !self.above.contains_key(above) {
                self.above.insert(above.to_owned(), inode(above));
            }
        }
    }
    /// `None`: it existed before the agent, or had child cgroups, whose usage is part of its own.
    pub(super) fn made_at(&self, path: &str) -> Option<Timestamp> {
        self.made.get(path).copied()
    }

    /// It becomes a task. Returns whether its counters include usage of other tasks or of an earlier life.
    pub(super) fn begins(&mut self, path: &str, inode: Option<u64>) -> bool {
        let was_covered = self.covered.remove(path) == inode;
        let again = inode.is_some() && (was_covered || self.above.get(path) == Some(&inode));
        if let Some(inode) = inode {
            self.tasks.insert(path.to_owned(), inode);
        }
        // It was found late, below a cgroup that counted its usage until then.
        let is_covered = || CgroupPath::above(path).any(|above| self.covered.contains_key(above));
        again || (self.made_at(path).is_none() && is_covered())
    }
    /// It is no task any more. `inode`: of the cgroup at its path now. Returns whether it still exists.
    pub(super) fn ends(&mut self, path: &str, inode: Option<u64>) -> bool {
        let is_there = self.tasks.remove(path).is_some_and(|was| Some(was) == inode);
        match inode.filter(|_| is_there) {
            Some(inode) => drop(self.covered.insert(path.to_owned(), inode)),
            None => drop(self.covered.remove(path)),
        }
        is_there
    }

    /// Forgets cgroups that are gone or were replaced.
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
        assert!(!lives.ends("/a", Some(3)), "it was created again before it was seen");
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
        assert!(!lives.begins("/unit/a", Some(8)), "it was created again");
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
