//! Readings between ticks: of changed, ending and unnamed tasks.

use std::sync::Arc;

use super::ObserverThread;
use crate::collectors::TaskReader;

impl ObserverThread {
    /// Reads a cgroup, perhaps for the last time; it may not have been read at the last ticks.
    pub(super) fn read_last(&self, reader: Option<&Arc<TaskReader>>) {
        let (now, at) = (self.parts.clock.instant(), self.parts.clock.now());
        // If it was removed, the last reading stays.
        let _ = reader.map(|reader| reader.read_change(now, at, true));
    }

    /// Reads the tasks that wait for their names.
    pub(super) fn read_unnamed(&self) {
        for life in self.lives.naming().filter_map(|lives| lives.measured()) {
            self.read_last(Some(&life.task.reader));
        }
    }
}
