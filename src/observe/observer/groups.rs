//! Processes without a cgroup of their own, if enabled.

use std::sync::Arc;

use super::ObserverThread;
use crate::collectors::TaskReader;
use crate::model::alloc::AllocSource;
use crate::model::id::CgroupPath;
use crate::model::units::Timestamp;
use crate::observe::identity::{AllocCgroupRule, TaskNaming};
use crate::observe::lives::Lives;
use crate::observe::observed_allocs::{NewTask, ObservedAllocs};
use crate::observe::processes::{ProcessGroupChange, ProcessGroupFilter};

impl ObserverThread {
    /// Samples the processes that are in no task's cgroup.
    pub(super) fn sample_processes(&mut self) {
        let Some(mut processes) = self.processes.take() else { return };
        let view = self.parts.board.view();
        let managed = view.allocs.iter().filter_map(|alloc| alloc.status.as_ref()).flat_map(|status| &status.tasks);
        let tasks = managed.filter_map(|task| Some(task.main?.pid)).collect();
        let room = self.parts.config.max_allocs.saturating_sub(self.allocs.running() + self.lives.waiting());
        let id = |native: &str| ObservedAllocs::id_of(AllocSource::Process, native);
        let accepts = |native: &str| self.parts.config.shows_as(&id(native), &TaskNaming::of(native));
        let filter = ProcessGroupFilter {
            is_in_a_task: &|path| self.is_in_a_task(path),
            agent: std::process::id(),
            tasks: &tasks,
            is_shown: &accepts,
            room: room + processes.running(),
        };
        for change in processes.sample(&filter) {
            match change {
                ProcessGroupChange::Started { key, naming, reader, since } => {
                    self.group_started(key, *naming, reader, since)
                }
                ProcessGroupChange::Ended { key } => self.end_task(&key, None, None),
            }
        }
        self.processes = Some(processes);
    }

    pub(super) fn is_in_a_task(&self, path: &str) -> bool {
        let is_one =
            |path: &str| path == self.parts.managed_parent.as_str() || self.lives.get(path).is_some_and(Lives::is_task);
        !path.is_empty() && (is_one(path) || CgroupPath::above(path).any(is_one))
    }

    pub(super) fn group_started(
        &mut self,
        path: String,
        naming: TaskNaming,
        reader: Arc<TaskReader>,
        since: Timestamp,
    ) {
        let (source, alloc_cgroup, labels, since) =
            (AllocSource::Process, AllocCgroupRule::Nowhere, Vec::new(), Some(since));
        let (naming, rule) = self.parts.config.ruled(source, alloc_cgroup, naming);
        let task = NewTask {
            path,
            source,
            alloc_cgroup,
            naming,
            container: None,
            rule,
            labels,
            reader,
            alloc_reader: None,
            since,
        };
        let (id, change) = self.allocs.begin(task);
        self.changes.extend(change);
        self.touched.insert(id);
    }
}
