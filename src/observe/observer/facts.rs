//! What a step may read of the host, the configuration and the observed allocs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{CgroupMeasures, MeasuredTask, ObserverThread};
use crate::collectors::{EndedCgroup, TaskReader};
use crate::model::units::{Nanos, Timestamp};
use crate::observe::identity::{RecognisedTask, TaskNaming};
use crate::observe::lives::{HiddenReason, PathFacts, RecordedLife};
use crate::observe::{is_named_by_path, slurm, texts};

const MOST_NAMES: usize = 10_000;

/// The facts about one path.
pub(super) struct ObserverFacts<'a> {
    pub(super) work: &'a ObserverThread,
    pub(super) path: &'a str,
}

impl PathFacts<CgroupMeasures> for ObserverFacts<'_> {
    fn now(&self) -> Instant {
        self.work.parts.clock.instant()
    }
    fn number(&self) -> u64 {
        let number = self.work.numbers.get() + 1;
        self.work.numbers.set(number);
        number
    }
    fn inode(&self) -> Option<u64> {
        self.work.scanner.inode(self.path)
    }
    fn is_scanned(&self) -> bool {
        self.work.scanner.tree().has(self.path)
    }
    fn exists(&self) -> bool {
        let mut hierarchies = self.work.parts.sampling.layout.hierarchies().iter();
        self.is_scanned() || hierarchies.any(|h| h.directory(self.path).is_dir())
    }
    fn is_of(&self, task: &Arc<MeasuredTask>, raw: &EndedCgroup) -> bool {
        task.reader.is_of(raw) != Some(false)
    }
    fn cgroup(&self, task: &Arc<MeasuredTask>) -> Box<[(usize, u64)]> {
        task.reader.inodes()
    }
    fn is_of_cgroup(&self, cgroup: &Box<[(usize, u64)]>, raw: &EndedCgroup) -> bool {
        cgroup.iter().all(|(hierarchy, inode)| *hierarchy != raw.hierarchy || *inode == raw.inode)
    }
    fn admits(&self, found: &RecognisedTask, naming: &TaskNaming) -> Result<(), HiddenReason> {
        let (config, allocs) = (&self.work.parts.config, &self.work.allocs);
        let most = config.max_allocs;
        if !config.shows(found.source, naming) {
            return Err(HiddenReason::Excluded);
        }
        let has_room = allocs.running() < most && texts::has_room(allocs.path_bytes(), most);
        if has_room { Ok(()) } else { Err(HiddenReason::Limit) }
    }
    fn keeps(&self, found: &RecognisedTask, naming: &TaskNaming) -> bool {
        let config = &self.work.parts.config;
        // Its ID stays, although the name was unknown then.
        let is_shown_as =
            |id: &str| config.shows_source(naming.source.unwrap_or(found.source)) && config.shows_as(id, naming);
        config.shows(found.source, naming) || self.work.allocs.id(self.path).is_some_and(|id| is_shown_as(id.as_str()))
    }
    fn measure(&self, life: &RecordedLife<CgroupMeasures>) -> Result<Arc<MeasuredTask>, HiddenReason> {
        let work = self.work;
        work.accepts(&life.found)?;
        let reader = Arc::new(TaskReader::reported(&work.parts.sampling));
        let at = work.parts.clock.now();
        life.records.iter().for_each(|record| reader.end(&record.raw, at));
        life.records_below.iter().for_each(|raw| reader.end_below(raw, at));
        let since = life.notes.first_start().map(|at| work.wall(at));
        Ok(Arc::new(MeasuredTask { reader, alloc_reader: None, since, is_counted: false }))
    }
    fn has_room_for_name(&self) -> bool {
        self.work.lives.names() < MOST_NAMES
    }
    fn is_named(&self, found: &RecognisedTask) -> bool {
        is_named_by_path(found)
    }
    fn is_named_late(&self, found: &RecognisedTask) -> bool {
        slurm::is_named_late(found)
    }
}

impl ObserverThread {
    /// Whether one more task fits, in a subtree that is delegated to this user.
    pub(super) fn has_room(&self, user: Option<u32>) -> bool {
        let most = self.parts.config.max_allocs;
        !self.is_short.load(Ordering::Relaxed)
            && self.allocs.running() + self.lives.waiting() < most
            && texts::has_room(self.allocs.path_bytes(), most)
            && !self.shares.is_full(user)
    }
    /// Whether it is to be measured, by its path: a pattern may yet exclude it once its name is known.
    pub(super) fn accepts(&self, found: &RecognisedTask) -> Result<(), HiddenReason> {
        let (config, is_named) = (&self.parts.config, is_named_by_path(found));
        if !config.shows_source(found.source) || (is_named && !config.shows(found.source, &found.naming)) {
            return Err(HiddenReason::Excluded);
        }
        let has_room = self.has_room(found.user) || (!is_named && config.chooses());
        if has_room { Ok(()) } else { Err(HiddenReason::Limit) }
    }

    /// The recognised task, or a plain cgroup.
    pub(super) fn or_plain(&self, found: Option<RecognisedTask>, path: &str) -> RecognisedTask {
        found.unwrap_or_else(|| RecognisedTask {
            user: self.scanner.tree().chooser(path),
            ..RecognisedTask::plain(path)
        })
    }

    /// Converts nanoseconds since boot.
    pub(super) fn wall(&self, at: u64) -> Timestamp {
        let ago = self.parts.clock.since_boot().saturating_sub(Nanos(at));
        Timestamp(self.parts.clock.now().0.saturating_sub(ago.0))
    }
}
