//! Compares the known lives with the cgroup tree, and checks what may become a task.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::{CgroupMeasures, MeasuredTask, ObserverThread};
use crate::collectors::TaskReader;
use crate::model::id::CgroupPath;
use crate::observe::identity::{AllocCgroupRule, RecognisedTask};
use crate::observe::lives::{CheckOutcome, HiddenReason, LifeEvent, LifeExits, Lives, MeasuredLife, State};
use crate::observe::tree::TaskCgroup;

/// Cgroups without processes to check per second; the others follow in the next seconds.
const CHECKS_PER_SECOND: usize = 1_000;

impl ObserverThread {
    /// Updates the known tasks after a change anywhere. With thousands of cgroups something changes all the time, so an
    /// unchanged task costs one lookup only.
    pub(super) fn follow(&mut self) {
        let now = self.parts.clock.instant();
        let (mut open, mut placed) = (Vec::new(), 0);
        self.scanner.tree().each_task(|path, cgroup| {
            let lives = self.lives.get(path);
            placed += usize::from(lives.is_some_and(Lives::is_placed));
            if lives.is_none_or(|lives| lives.is_open(now, || self.has_room_at(path))) {
                open.push((path.to_owned(), recognised(cgroup)));
            }
        });
        if placed < self.lives.placed() {
            self.drop_removed();
        }
        for (path, found) in open {
            self.check(&path, found, now);
        }
    }

    /// As [`ObserverThread::follow`], for changes at these paths. Whether an ancestor is a task depends on its
    /// descendants, and whether cgroups inside a unit are tasks depends on the unit; in these cases all tasks are
    /// updated.
    pub(super) fn follow_only(&mut self, touched: &BTreeSet<Arc<str>>) {
        let now = self.parts.clock.instant();
        let above = touched.iter().flat_map(|path| CgroupPath::above(path));
        let paths: BTreeSet<&str> = touched.iter().map(|path| &**path).chain(above).collect();
        let (mut open, mut removed, mut needs_full_follow) = (Vec::new(), Vec::new(), false);
        for path in paths {
            let is_above = !touched.contains(path);
            let lives = self.lives.get(path);
            match self.scanner.tree().task_at(path) {
                Some(_) if lives.is_some_and(|lives| !lives.is_open(now, || self.has_room_at(path))) => {}
                Some(task) => {
                    needs_full_follow |= is_above && matches!(task, TaskCgroup::Recognised(_));
                    open.push((path.to_owned(), recognised(task)));
                }
                None if lives.is_some_and(Lives::is_placed) => {
                    needs_full_follow |=
                        is_above && self.scanner.tree().identify(path).is_some_and(|(at, _)| at == path);
                    removed.push(path.to_owned());
                }
                None => {}
            }
        }
        if needs_full_follow {
            return self.follow();
        }
        for path in removed {
            self.happens(&path, LifeEvent::NoTask);
        }
        for (path, found) in open {
            self.check(&path, found, now);
        }
    }

    /// Whether a cgroup that is not shown has room now. The share of its user may be full. Sweeps check all of them.
    pub(super) fn has_room_for_more(&self) -> bool {
        self.has_room(None) && self.lives.over_limit().take(CHECKS_PER_SECOND).any(|path| self.has_room_at(path))
    }

    fn has_room_at(&self, path: &str) -> bool {
        self.has_room(self.scanner.tree().chooser(path))
    }

    /// Removes tasks whose cgroups were removed.
    fn drop_removed(&mut self) {
        let mut there = HashSet::new();
        self.scanner.tree().each_task(|path, _| _ = there.insert(path.to_owned()));
        let placed = self.lives.iter().filter(|(_, lives)| lives.is_placed()).map(|(path, _)| Arc::clone(path));
        let removed: Vec<Arc<str>> = placed.filter(|path| !there.contains(&**path)).collect();
        removed.iter().for_each(|path| self.happens(path, LifeEvent::NoTask));
    }

    /// Finds tasks whose cgroup was removed or replaced without a report.
    pub(super) fn find_removed(&mut self) {
        self.parents.renew();
        let is_dead = |lives: &Lives<CgroupMeasures>| {
            let State::Shown(life) = lives.state() else { return false };
            life.task.reader.is_removed()
        };
        let dead = self.lives.iter().filter(|(_, lives)| is_dead(lives)).map(|(path, _)| Arc::clone(path));
        let dead: Vec<Arc<str>> = dead.collect();
        dead.iter().for_each(|path| self.happens(path, LifeEvent::Vanished));
        if !dead.is_empty() {
            self.follow();
        }
    }

    /// Checks which empty cgroups have or had a process, in hierarchies that do not report the first process. Each is
    /// checked in one hierarchy per round.
    pub(super) fn check_empty(&mut self) {
        let (last, turn) = &self.check_round;
        let checked: Vec<Arc<str>> = self.lives.empty_after(last).take(CHECKS_PER_SECOND).map(Arc::clone).collect();
        let is_woken =
            |path: &&Arc<str>| self.scanner.has_woken(*turn, path, self.lives.get(path).is_some_and(Lives::is_own));
        let woken: Vec<Arc<str>> = checked.iter().filter(is_woken).map(Arc::clone).collect();
        self.check_round = match checked.last().filter(|_| checked.len() == CHECKS_PER_SECOND) {
            Some(last) => (last.to_string(), *turn),
            None => (String::new(), turn.wrapping_add(1)),
        };
        woken.iter().for_each(|path| self.happens(path, LifeEvent::Occupied));
    }

    /// Whether an empty cgroup may have a process now.
    pub(super) fn may_be_occupied(&self, path: &str, lives: &Lives<CgroupMeasures>) -> bool {
        match lives.state() {
            State::Empty { .. } => true,
            State::Aside(HiddenReason::Stopped) => self.scanner.is_populated(path) == Some(true),
            State::Absent | State::Aside(_) | State::Naming { .. } | State::Shown(_) | State::Covered { .. } => false,
        }
    }

    /// The processes of a task may have ended, while its runtime keeps the cgroup.
    pub(super) fn check_emptied(&mut self, path: &str) {
        let is_one = |lives| may_be_emptied(lives) && self.scanner.reports_process(path) == Some(false);
        if self.lives.get(path).is_some_and(is_one) {
            self.happens(path, LifeEvent::Emptied);
        }
    }
    /// The same of all tasks, for those whose cgroups report no change. Those whose turn did not come at the last sweep
    /// are first, so that runtimes that hang do not keep the queries about others from being answered.
    pub(super) fn check_all_emptied(&mut self) {
        let emptied = self.lives.iter().filter(|(_, lives)| is_emptied(lives)).map(|(path, _)| Arc::clone(path));
        let emptied = beginning_after(emptied.collect(), &self.last_answered);
        emptied.iter().for_each(|path| self.happens(path, LifeEvent::Emptied));
    }

    /// Checks a cgroup that the tree calls a task.
    fn check(&mut self, path: &str, found: Option<RecognisedTask>, now: Instant) {
        for above in CgroupPath::above(path) {
            if self.lives.get(above).is_none_or(|lives| !lives.is_known_above()) {
                self.happens(above, LifeEvent::Above(self.scanner.inode(above)));
            }
        }
        if self.was_recreated(path) == Some(true) {
            self.happens(path, LifeEvent::Gathered { is_followed: true });
        }
        let verdict = self.verdict(path, found, now);
        self.happens(path, LifeEvent::Checked(verdict));
    }

    /// Whether a cgroup stands again in a hierarchy that reported the removal. `None`: none did.
    fn was_recreated(&self, path: &str) -> Option<bool> {
        let is_gathered = self.lives.get(path)?.gathers()?;
        let mut hierarchies = self.parts.sampling.layout.hierarchies().iter().enumerate();
        Some(hierarchies.any(|(index, at)| is_gathered(index) && at.directory(path).is_dir()))
    }

    fn verdict(&self, path: &str, found: Option<RecognisedTask>, now: Instant) -> CheckOutcome<CgroupMeasures> {
        let found = self.or_plain(found, path);
        let accepted = self.accepts(&found);
        if accepted == Err(HiddenReason::Excluded) {
            return CheckOutcome::Excluded;
        }
        let none = Lives::default();
        let lives = self.lives.get(path).unwrap_or(&none);
        // What remains of a cgroup that is being removed is not a new one.
        if lives.is_leaving(now) || self.was_recreated(path).is_some() {
            return CheckOutcome::Unreadable;
        }
        // What an earlier agent showed counts as running while it exists.
        if found.is_plain() && !lives.is_recovered() && self.scanner.has_processes(path) != Some(true) {
            // If it existed before the agent, its usage may be that of other tasks below it.
            let has_run = lives.is_own() && self.scanner.has_run(path);
            if !has_run || !matches!(lives.state(), State::Empty { has_run: true }) {
                return CheckOutcome::Empty { has_run };
            }
        }
        // It has ended before the agent, whose runtime keeps the cgroup.
        let is_old = found.may_outlive_its_end() && lives.made_at().is_none() && !lives.is_recovered();
        if is_old && self.scanner.is_populated(path) == Some(false) {
            return CheckOutcome::Empty { has_run: false };
        }
        if accepted.is_err() {
            return CheckOutcome::NoRoom;
        }
        let inode = self.scanner.inode(path);
        let Some(task) = self.measure(path, &found, lives, inode) else { return CheckOutcome::Unreadable };
        CheckOutcome::Ready(Box::new(MeasuredLife { found, task: Arc::new(task), inode, notes: LifeExits::default() }))
    }

    fn measure(
        &self,
        path: &str,
        found: &RecognisedTask,
        lives: &Lives<CgroupMeasures>,
        inode: Option<u64>,
    ) -> Option<MeasuredTask> {
        let (sampling, clock) = (&self.parts.sampling, &self.parts.clock);
        let mut reader = TaskReader::for_cgroup(sampling, CgroupPath::from(path)).read_only();
        let is_again = inode.is_some_and(|inode| lives.includes_other_usage(inode));
        // It was found late, below a cgroup that counted its usage until then.
        let is_late = || lives.made_at().is_none() && self.lives.is_below_covered(CgroupPath::above(path));
        let is_counted = is_again || is_late();
        if is_counted {
            reader = reader.counting_from_now();
        }
        reader.read_change(clock.instant(), clock.now(), true).ok()?;
        let alloc_path = match found.alloc_cgroup {
            AllocCgroupRule::Parent => path.rsplit_once('/').map(|(above, _)| above.to_owned()),
            AllocCgroupRule::Task | AllocCgroupRule::None | AllocCgroupRule::Nowhere => None,
        };
        let alloc_reader = alloc_path.map(|alloc_path| {
            // The alloc's cgroup may have limits that its tasks do not have.
            let reader = TaskReader::for_limited_alloc_cgroup(sampling, CgroupPath::from(alloc_path.as_str()));
            (alloc_path, Arc::new(reader))
        });
        // The start time of a cgroup that existed unseen or was set aside is unknown.
        let was_empty = matches!(lives.state(), State::Empty { .. });
        let since = if was_empty { Some(clock.now()) } else { lives.made_at() }.filter(|_| self.has_started);
        let since = since.or(lives.recovered_since());
        Some(MeasuredTask { reader: Arc::new(reader), alloc_reader, since, is_counted })
    }
}

fn is_emptied(lives: &Lives<CgroupMeasures>) -> bool {
    let State::Shown(life) = lives.state() else { return false };
    // Also without `cgroup.events`.
    let processes = || life.task.reader.latest().and_then(|last| last.usage.processes());
    life.found.may_outlive_its_end() && processes() == Some(0)
}

/// In their order, the first after this one first.
fn beginning_after(mut paths: Vec<Arc<str>>, last: &str) -> Vec<Arc<str>> {
    paths.sort_unstable();
    let before = paths.partition_point(|path| **path <= *last);
    paths.rotate_left(before);
    paths
}

fn may_be_emptied(lives: &Lives<CgroupMeasures>) -> bool {
    matches!(lives.state(), State::Shown(life) if life.found.may_outlive_its_end())
}

fn recognised(cgroup: TaskCgroup<'_>) -> Option<RecognisedTask> {
    match cgroup {
        TaskCgroup::Recognised(found) => Some(found.clone()),
        TaskCgroup::Plain => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_emptied_task_is_queried_first_in_some_sweep() {
        let paths: Vec<Arc<str>> = (0..10).rev().map(|n| Arc::from(format!("/default/{n}"))).collect();
        let (mut last, mut answered) = (Arc::<str>::from(""), BTreeSet::new());
        for _ in 0..4 {
            // The time of a sweep is enough for three.
            let queried = beginning_after(paths.clone(), &last);
            assert_eq!(queried.len(), paths.len());
            answered.extend(queried[..3].iter().cloned());
            last = Arc::clone(&queried[2]);
        }
        assert_eq!(answered.len(), paths.len(), "{answered:?}");
    }
}
