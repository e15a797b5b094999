//! Compares the known tasks with the cgroup tree.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::time::Instant;

use super::{LIMIT, SETTLED, Work};
use crate::model::id::CgroupPath;
use crate::observe::tree::TaskOf;

/// Cgroups without processes to check per second; the others follow in the next seconds.
const LOOKED_AT: usize = 1_000;

impl Work {
    /// Updates the known tasks after a change anywhere. With thousands of cgroups something changes all the time, so an
    /// unchanged task costs one lookup only.
    pub(super) fn follow(&mut self) {
        let now = self.parts.clock.instant();
        let (mut open, mut remembered) = (Vec::new(), 0);
        self.scanner.tree().each_task(|path, whose| {
            remembered += self.remembers(path);
            if !self.is_settled(path, now) {
                let found = match whose {
                    TaskOf::Recognised(found) => Some(found.clone()),
                    TaskOf::Plain => None,
                };
                open.push((path.to_owned(), found));
            }
        });
        let unnamed = self.unnamed.values().filter(|unnamed| !unnamed.is_gone).count();
        let places = [self.known.len(), unnamed, self.aside.len(), self.empty.len(), self.leaving.len()];
        if remembered < places.iter().sum() {
            self.drop_removed();
        }
        self.fresh.retain(|_, until| *until > now);
        self.woken.clear();
        for (path, found) in open {
            self.found(path, found, now);
        }
    }

    /// As [`Work::follow`], for changes at these paths. Whether an ancestor is a task depends on its descendants, and
    /// whether cgroups inside a unit are tasks depends on the unit; in these cases all tasks are updated.
    pub(super) fn follow_only(&mut self, touched: &BTreeSet<String>) {
        let now = self.parts.clock.instant();
        let above = touched.iter().flat_map(|path| CgroupPath::above(path));
        let paths: BTreeSet<&str> = touched.iter().map(String::as_str).chain(above).collect();
        let (mut open, mut gone, mut is_of_units) = (Vec::new(), Vec::new(), false);
        for path in paths {
            let is_above = !touched.contains(path);
            match self.scanner.tree().task_at(path) {
                Some(_) if self.is_settled(path, now) => {}
                Some(TaskOf::Recognised(found)) => {
                    is_of_units |= is_above;
                    open.push((path.to_owned(), Some(found.clone())));
                }
                Some(TaskOf::Plain) => open.push((path.to_owned(), None)),
                None if self.remembers(path) > 0 => {
                    is_of_units |= is_above && self.scanner.tree().identify(path).is_some_and(|(at, _)| at == path);
                    gone.push(path.to_owned());
                }
                None => {}
            }
        }
        if is_of_units {
            return self.follow();
        }
        for path in gone {
            self.gone(&path);
            self.aside.remove(&path);
            self.empty.remove(&path);
            self.leaving.remove(&path);
        }
        self.fresh.retain(|_, until| *until > now);
        self.woken.clear();
        for (path, found) in open {
            self.found(path, found, now);
        }
    }

    /// Number of tables that contain this task.
    fn remembers(&self, path: &str) -> usize {
        let is_unnamed = self.unnamed.get(path).is_some_and(|unnamed| !unnamed.is_gone);
        let (is_aside, is_empty) = (self.aside.contains_key(path), self.empty.contains_key(path));
        let places = [self.known.contains_key(path), is_unnamed, is_aside, is_empty, self.leaving.contains_key(path)];
        places.into_iter().map(usize::from).sum()
    }

    /// Removes tasks whose cgroups are gone.
    fn drop_removed(&mut self) {
        let mut there = HashSet::new();
        self.scanner.tree().each_task(|path, _| _ = there.insert(path.to_owned()));
        let unnamed = self.unnamed.iter().filter(|(_, unnamed)| !unnamed.is_gone).map(|(path, _)| path);
        let gone = self.known.keys().chain(unnamed).filter(|path| !there.contains(*path));
        gone.cloned().collect::<Vec<String>>().iter().for_each(|path| self.gone(path));
        self.aside.retain(|path, _| there.contains(path));
        self.empty.retain(|path, _| there.contains(path));
        self.leaving.retain(|path, _| there.contains(path));
    }

    /// Finds tasks whose cgroup was removed or replaced without a report.
    pub(super) fn find_removed(&mut self) {
        self.parents.renew();
        let is_dead = |path: &&String| self.allocs.reader(path).is_some_and(|reader| reader.is_gone());
        let dead: Vec<String> = self.known.keys().filter(is_dead).cloned().collect();
        dead.iter().for_each(|path| self.gone(path));
        if !dead.is_empty() {
            self.follow();
        }
    }

    /// Nothing to do for it now.
    fn is_settled(&self, path: &str, now: Instant) -> bool {
        if self.known.contains_key(path) || self.unnamed.contains_key(path) {
            return true;
        }
        if let Some(why) = self.aside.get(path) {
            return *why != LIMIT || !self.has_room(self.scanner.tree().chooser(path));
        }
        match self.fresh.get(path) {
            Some(until) => *until > now,
            None => self.empty.contains_key(path) && !self.woken.contains(path),
        }
    }

    /// Checks which empty cgroups have or had a process, in hierarchies that do not report the first process. Each is
    /// checked in one hierarchy per round.
    pub(super) fn check_empty(&mut self) {
        let (last, turn) = &self.looked;
        let after = (Bound::Excluded(last.as_str()), Bound::Unbounded);
        let looked: Vec<&String> = self.empty.range::<str, _>(after).map(|(path, _)| path).take(LOOKED_AT).collect();
        let is_woken = |path: &&&String| {
            let is_own = self.lives.made_at(path).is_some() && !self.ends.was_above(path);
            self.scanner.has_woken(*turn, path, is_own)
        };
        let woken: Vec<String> = looked.iter().filter(is_woken).map(|path| (*path).clone()).collect();
        self.looked = match looked.last().filter(|_| looked.len() == LOOKED_AT) {
            Some(last) => ((*last).clone(), *turn),
            None => (String::new(), turn.wrapping_add(1)),
        };
        self.woken.extend(woken);
    }

    /// Whether an empty plain cgroup has a process by now, or processes came and went since its creation. A second check confirms that the
    /// usage is not that of a removed child cgroup whose record is still to come.
    pub(super) fn ran_unseen(&mut self, path: &str, is_made: bool, now: Instant) -> bool {
        // If it existed before the agent, its usage may be that of other tasks below it.
        let has_run = is_made && !self.ends.was_above(path) && self.scanner.has_run(path);
        let before = self.empty.insert(path.to_owned(), has_run);
        if before.is_none() {
            self.scanner.listen(path);
            // It entered between the check and the watch: the kernel does not report it any more.
            if self.scanner.has_processes(path) == Some(true) {
                self.empty.remove(path);
                return true;
            }
        }
        if has_run && before != Some(true) {
            self.fresh.insert(path.to_owned(), now + SETTLED);
        }
        has_run && before == Some(true)
    }
}
