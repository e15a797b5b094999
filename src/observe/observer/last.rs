//! Readings between ticks: of what has changed, of what goes, and of what is not shown yet.

use std::sync::Arc;
use std::time::Instant;

use super::Work;
use crate::collectors::TaskReader;

impl Work {
    /// Of a cgroup that nobody will look at again: nobody has at the last ticks, maybe.
    pub(super) fn look_last(&self, reader: Option<&Arc<TaskReader>>) {
        let (now, at) = (self.parts.clock.instant(), self.parts.clock.now());
        // Gone: what was read last holds.
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
            // Gone: what was read stands.
            let _ = unnamed.reader.look(now, at, true);
        }
    }

    /// Reads what has changed, perhaps for the last time.
    pub(super) fn read(&self, path: &str) {
        let (now, at) = (self.parts.clock.instant(), self.parts.clock.now());
        let reader = self.unnamed.get(path).map(|unnamed| &unnamed.reader).or_else(|| self.allocs.reader(path));
        if let Some(reader) = reader {
            // Gone: what was read before stands.
            let _ = reader.look(now, at, true);
        }
    }
}
