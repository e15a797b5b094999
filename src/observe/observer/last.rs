//! Readings between ticks: of changed, ending and unnamed tasks.

use std::sync::Arc;
use std::time::Instant;

use super::Work;
use crate::collectors::TaskReader;

impl Work {
    /// Reads a cgroup for the last time; it may not have been read at the last ticks.
    pub(super) fn look_last(&self, reader: Option<&Arc<TaskReader>>) {
        let (now, at) = (self.parts.clock.instant(), self.parts.clock.now());
        // If it is gone, the last reading stays.
        let _ = reader.map(|reader| reader.look(now, at, true));
    }

    pub(super) fn deadlines(&mut self, now: Instant) {
        let is_over = |(path, until): (&String, Instant)| (until <= now).then(|| path.clone());
        let late: Vec<String> = self.unnamed.iter().filter_map(|(path, u)| is_over((path, u.until))).collect();
        late.iter().for_each(|path| self.admit(path, None));
        let late: Vec<String> = self.ending.iter().filter_map(|(path, ending)| is_over((path, ending.until))).collect();
        late.iter().for_each(|path| self.ended(path, None));
        let at = self.parts.clock.now();
        for unnamed in self.unnamed.values().filter(|unnamed| !unnamed.is_gone) {
            // If it is gone, the last reading stays.
            let _ = unnamed.reader.look(now, at, true);
        }
    }

    /// Reads a changed task, perhaps for the last time.
    pub(super) fn read(&self, path: &str) {
        let (now, at) = (self.parts.clock.instant(), self.parts.clock.now());
        let reader = self.unnamed.get(path).map(|unnamed| &unnamed.reader).or_else(|| self.allocs.reader(path));
        if let Some(reader) = reader {
            // If it is gone, the last reading stays.
            let _ = reader.look(now, at, true);
        }
    }
}
