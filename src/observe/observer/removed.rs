//! End records of the kernel: final values of observed tasks, and lives that were never observed.

use std::sync::Arc;

use super::ObserverThread;
use crate::collectors::{EndedCgroup, TaskReader};
use crate::host::hierarchy::CgroupVersion;
use crate::model::id::CgroupPath;
use crate::observe::lives::{LifeEvent, Lives, RemovalRecord};
use crate::observe::tree::PathVerdict;
use crate::telemetry::observed::EndMissed;

impl ObserverThread {
    /// Processes the records since the last call.
    pub(super) fn process_end_records(&mut self) {
        let Some(source) = &mut self.parts.ends else { return };
        let (ended, lost) = (source.take(), source.lost());
        self.parts.metrics.observed.missed(EndMissed::Lost, lost);
        for ended in ended {
            self.process_end_record(ended);
        }
        let now = self.parts.clock.instant();
        for path in self.lives.due(now) {
            if self.lives.get(&path).is_some_and(|lives| lives.is_gathered(now)) {
                self.happens(&path, LifeEvent::Gathered { is_followed: false });
            }
        }
    }

    fn process_end_record(&mut self, ended: EndedCgroup) {
        let path = if ended.path.is_empty() { self.path_of(&ended) } else { Some(ended.path.clone()) };
        let Some(path) = path else {
            self.parts.metrics.observed.missed(EndMissed::Unnamed, 1);
            return;
        };
        let managed = self.parts.managed_parent.as_str().trim_end_matches('/');
        if path.strip_prefix(managed).is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            return;
        }
        self.scanner.find_bundle(&path);
        let measured = self.reader_of(&path);
        // Below a container or unit, a cgroup is part of the task; below a plain cgroup it is a task of its own.
        let (task, found) = match self.scanner.tree().owner_of(&path) {
            // Other tasks live inside of that unit: what is beside them is plain.
            PathVerdict::Task(task, _) if task != path && self.is_covered(&task) => (path.clone(), None),
            PathVerdict::Task(task, found) if task == path || measured.is_none() => (task, Some(*found)),
            PathVerdict::None if measured.is_none_or(|reader| reader.is_of(&ended) == Some(false)) => return,
            PathVerdict::Task(..) | PathVerdict::Plain | PathVerdict::None => (path.clone(), None),
        };
        let found = Box::new(self.or_plain(found, &task));
        if task == path {
            for above in CgroupPath::above(&path) {
                self.happens(above, LifeEvent::RemovedBelow);
            }
        }
        let below = (task != path).then_some(path);
        let (hierarchy, notes, is_whole) = (ended.hierarchy, ended.notes, self.is_whole(&ended));
        let record = RemovalRecord { hierarchy, notes, is_whole, raw: ended };
        self.happens(&task, LifeEvent::Record { below, record, found });
    }

    /// A cgroup that exists and is no task, because other tasks live inside of it.
    fn is_covered(&self, path: &str) -> bool {
        let tree = self.scanner.tree();
        self.reader_of(path).is_none() && tree.has(path) && tree.task_at(path).is_none()
    }

    /// Of the life that is measured at this path.
    pub(super) fn reader_of(&self, path: &str) -> Option<&Arc<TaskReader>> {
        self.lives.get(path).and_then(Lives::measured).map(|life| &life.task.reader)
    }

    /// The path of the task that a record without a path belongs to.
    fn path_of(&self, ended: &EndedCgroup) -> Option<String> {
        let is_it = |path: &str| self.reader_of(path).is_some_and(|reader| reader.is_of(ended) == Some(true));
        self.lives.iter().map(|(path, _)| path).find(|path| is_it(path)).map(ToString::to_string)
    }

    /// The record has the complete CPU time.
    fn is_whole(&self, ended: &EndedCgroup) -> bool {
        let layout = &self.parts.sampling.layout;
        let v1 = layout.controller("cpuacct").filter(|hierarchy| hierarchy.version == CgroupVersion::V1);
        match (layout.hierarchies().get(ended.hierarchy), v1) {
            (Some(hierarchy), Some(v1)) => std::ptr::eq(hierarchy, v1),
            (Some(hierarchy), None) => hierarchy.version == CgroupVersion::V2 && ended.is_whole,
            (None, _) => false,
        }
    }
}
