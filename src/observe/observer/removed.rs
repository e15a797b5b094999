//! End records of the kernel: final values of observed tasks, and lives that were never observed.

use std::sync::Arc;
use std::time::Instant;

use super::{ANSWER, LATE_ANSWER, LIMIT, SETTLED, Unnamed, Work};
use crate::collectors::{EndedCgroup, TaskReader};
use crate::host::hierarchy::Version;
use crate::model::units::{Nanos, Timestamp};
use crate::observe::ends::{BriefLife, Removed, Wait};
use crate::observe::identity::EndBy;
use crate::observe::is_named_by_path;
use crate::observe::naming::About;
use crate::observe::table::ExitFacts;
use crate::observe::tree::LifeOwner;
use crate::telemetry::observed::EndMissed;

/// Maximum number of lives under one path that wait for its name.
const MOST_QUEUED: usize = 200;

impl Work {
    /// Processes the records since the last call.
    pub(super) fn process_end_records(&mut self, now: Instant) {
        let Some(source) = &mut self.parts.ends else { return };
        let (ended, lost) = (source.take(), source.lost());
        self.parts.metrics.others.missed(EndMissed::Lost, lost);
        for ended in ended {
            self.removed(ended, now);
        }
        let (tree, layout) = (self.scanner.tree(), &self.parts.sampling.layout);
        // On v1 a cgroup is removed hierarchy by hierarchy, with arbitrary delays in between, and the tree reflects one
        // hierarchy only.
        let stands = |path: &str| tree.has(path) || layout.hierarchies().iter().any(|h| h.directory(path).is_dir());
        let wait = Wait { now, settled: SETTLED, most: ANSWER };
        let settled = self.ends.settled(wait, stands);
        for (path, life) in settled {
            self.lived(&path, life, now);
        }
    }

    fn removed(&mut self, ended: EndedCgroup, now: Instant) {
        let path = if ended.path.is_empty() { self.path_of(&ended) } else { Some(ended.path.clone()) };
        let Some(path) = path else {
            self.parts.metrics.others.missed(EndMissed::Unnamed, 1);
            return;
        };
        let ours = self.parts.ours.as_str().trim_end_matches('/');
        if path.strip_prefix(ours).is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            return;
        }
        // Below a container or unit, a cgroup is part of the task; below a plain cgroup it is a task of its own.
        let whose = self.scanner.tree().whose(&path);
        let part_of = match &whose {
            LifeOwner::Task(task, found) if *task != path && self.reader_of(&path).is_none() => {
                Some((task.clone(), found.ends_by))
            }
            LifeOwner::Task(..) | LifeOwner::Plain | LifeOwner::None => None,
        };
        match part_of.filter(|(task, _)| self.reader_of(task).is_some()) {
            Some((task, ends_by)) => {
                if let Some(reader) = self.reader_of(&task) {
                    reader.end_below(&ended, self.parts.clock.now());
                }
                self.ends.note_below(&task, ends_by, &path, &ended.notes);
            }
            None if self.is_of_shown(&path, &ended) => self.apply_record(&path, &ended, now),
            None => {
                if self.ends.is_another(&path, ended.home)
                    && let Some(life) = self.ends.finish(&path)
                {
                    self.lived(&path, life, now);
                }
                let (home, notes, is_whole) = (ended.home, ended.notes, self.is_whole(&ended));
                let wait = Wait { now, settled: SETTLED, most: ANSWER };
                self.ends.gather(Removed { path: &path, whose, home, notes: &notes, is_whole }, ended, wait);
            }
        }
    }

    /// The record belongs to the observed task at this path, not to a later cgroup with the same path.
    fn is_of_shown(&self, path: &str, ended: &EndedCgroup) -> bool {
        let is_recorded = self.ends.noted(path).is_some_and(|notes| notes.has(ended.home));
        !is_recorded && self.reader_of(path).is_some_and(|reader| reader.is_of(ended) != Some(false))
    }

    fn apply_record(&mut self, path: &str, ended: &EndedCgroup, now: Instant) {
        if let Some(reader) = self.reader_of(path) {
            reader.end(ended, self.parts.clock.now());
        }
        self.ends.note(path, ended.home, &ended.notes, self.is_whole(ended), now);
    }

    fn reader_of(&self, path: &str) -> Option<&Arc<TaskReader>> {
        self.unnamed.get(path).map(|unnamed| &unnamed.reader).or_else(|| self.allocs.reader(path))
    }

    /// The path of the task that a record without a path belongs to.
    fn path_of(&self, ended: &EndedCgroup) -> Option<String> {
        let is_it = |path: &&str| self.reader_of(path).is_some_and(|reader| reader.is_of(ended) == Some(true));
        let paths = self.allocs.paths().chain(self.unnamed.keys().map(String::as_str));
        paths.into_iter().find(is_it).map(str::to_owned)
    }

    /// The record has the complete CPU time.
    fn is_whole(&self, ended: &EndedCgroup) -> bool {
        let layout = &self.parts.sampling.layout;
        let v1 = layout.controller("cpuacct").filter(|home| home.version == Version::V1);
        match (layout.hierarchies().get(ended.home), v1) {
            (Some(home), Some(v1)) => std::ptr::eq(home, v1),
            (Some(home), None) => home.version == Version::V2 && ended.is_whole,
            (None, _) => false,
        }
    }

    /// A life that was never observed has ended.
    pub(super) fn lived(&mut self, path: &str, life: BriefLife<EndedCgroup>, now: Instant) {
        if self.known.contains_key(path) || self.unnamed.contains_key(path) {
            if !self.ends.is_after(path, &life, |ended| ended.home) {
                self.apply_late_records(path, &life, now);
                return;
            }
            // The observed task has ended too, even if its removal has not been seen yet.
            self.gone(path);
        }
        if self.unnamed.contains_key(path) {
            self.queue(path, life);
            return;
        }
        if self.ending.contains_key(path) {
            // Another life at the path has ended before the runtime reported the exit of the first one. The kernel's
            // record of the exit is used.
            self.ended(path, None);
        }
        let BriefLife { found, notes, records, records_below, .. } = life;
        let is_closed = found.as_ref().is_some_and(|found| found.is_closed);
        let has_run = if found.is_some() { notes.has_run() } else { notes.has_run_itself() };
        if !has_run || records.is_empty() || (!is_closed && self.ends.was_above(path)) {
            return;
        }
        let found = self.or_plain(found, path);
        let is_named = is_named_by_path(&found);
        if !self.is_wanted(&found, is_named) {
            return;
        }
        if !self.has_room(found.user) && (is_named || !self.parts.config.chooses()) {
            self.parts.metrics.others.missed(EndMissed::Limit, 1);
            return;
        }
        let reader = Arc::new(TaskReader::reported(&self.parts.sampling));
        records.iter().for_each(|ended| reader.end(ended, self.parts.clock.now()));
        records_below.iter().for_each(|ended| reader.end_below(ended, self.parts.clock.now()));
        let since = notes.first_start().map(|at| self.wall(at));
        self.ends.begin(path, notes);
        let unnamed = Unnamed { found, reader, own_reader: None, since, until: now + LATE_ANSWER, is_gone: true };
        let is_called = self.called_before(path).is_some();
        let is_asked = !is_called && self.ask(path, &unnamed.found, About::Name);
        self.shares.begins(unnamed.found.user);
        self.unnamed.insert(path.to_owned(), unnamed);
        if !is_asked {
            self.admit(path, None);
        }
    }

    /// The task was found in the meantime, when part of it still existed.
    fn apply_late_records(&mut self, path: &str, life: &BriefLife<EndedCgroup>, now: Instant) {
        if let Some(reader) = self.reader_of(path) {
            life.records_below.iter().for_each(|ended| reader.end_below(ended, self.parts.clock.now()));
        }
        for ended in &life.records {
            if self.is_of_shown(path, ended) {
                self.apply_record(path, ended, now);
            }
        }
    }

    /// Queues a life until the preceding one has its name; without the name it would be another alloc.
    fn queue(&mut self, path: &str, life: BriefLife<EndedCgroup>) {
        let queue = self.queued.entry(path.to_owned()).or_default();
        if queue.len() < MOST_QUEUED {
            queue.push_back(life);
        } else {
            self.parts.metrics.others.missed(EndMissed::Limit, 1);
        }
    }

    /// Whether the cgroup at this path is being removed: already gone from some hierarchy. A new cgroup at the path
    /// ends the one before.
    pub(super) fn is_leaving(&mut self, path: &str, now: Instant) -> bool {
        let layout = &self.parts.sampling.layout;
        let stands = |home: usize| layout.hierarchies().get(home).is_some_and(|h| h.directory(path).is_dir());
        let Some(stands_again) = self.ends.records_of(path).map(|mut records| records.any(|ended| stands(ended.home)))
        else {
            return false;
        };
        if stands_again && let Some(life) = self.ends.finish(path) {
            self.lived(path, life, now);
        }
        !stands_again || self.reader_of(path).is_some()
    }

    /// The kernel's facts about an ended task, and whether they cover its whole life.
    pub(super) fn kernel_exit(&mut self, path: &str) -> (Option<ExitFacts>, bool) {
        let Some(notes) = self.ends.over(path, self.parts.clock.instant()) else { return (None, false) };
        let by = match self.scanner.tree().whose(path) {
            LifeOwner::Task(task, found) if task == path => found.ends_by,
            LifeOwner::Task(..) | LifeOwner::Plain | LifeOwner::None => EndBy::LastProcess,
        };
        (notes.facts(by, |at| self.wall(at)), notes.is_whole)
    }

    /// End of its last process, from the kernel.
    pub(super) fn kernel_ended_at(&self, path: &str) -> Option<Timestamp> {
        Some(self.wall(self.ends.noted(path)?.last_at()?))
    }

    /// Another cgroup begins at the path of one whose exit is awaited: saves the facts collected so far.
    pub(super) fn save_kernel_exit(&mut self, path: &str) {
        if self.ending.get(path).is_some_and(|ending| ending.kernel_exit.is_none()) {
            let recorded = self.kernel_exit(path);
            if let Some(ending) = self.ending.get_mut(path) {
                ending.kernel_exit = Some(recorded);
            }
        }
    }

    /// Converts nanoseconds since boot.
    fn wall(&self, at: u64) -> Timestamp {
        let ago = self.parts.clock.since_boot().saturating_sub(Nanos(at));
        Timestamp(self.parts.clock.now().0.saturating_sub(ago.0))
    }

    /// Without end records: counts cgroups that were created and removed between two checks.
    pub(super) fn note_unseen(&mut self, removed: &[String]) {
        if self.parts.ends.is_some() {
            return;
        }
        let unseen = removed.iter().filter(|path| !self.scanner.tree().has(path) && self.fresh.remove(*path).is_some());
        let unseen = unseen.count() as u64;
        self.parts.metrics.others.missed(EndMissed::Unseen, unseen);
    }

    /// A task turned out to be excluded, or over the limit, once its name was known.
    pub(super) fn set_aside(&mut self, path: &str, why: &'static str, is_gone: bool) {
        if !is_gone {
            self.aside.insert(path.to_owned(), why);
            return;
        }
        let _ = self.ends.over(path, self.parts.clock.instant());
        if why == LIMIT {
            self.parts.metrics.others.missed(EndMissed::Limit, 1);
        }
    }
}
