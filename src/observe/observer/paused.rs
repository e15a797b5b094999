//! Tasks that are there and do not run: paused by the kernel's freezer, or waiting for the restart by their runtime.

use std::collections::BTreeSet;

use super::ObserverThread;
use crate::model::units::Timestamp;
use crate::observe::docker;

impl ObserverThread {
    /// Records whether a shown task is paused now.
    pub(super) fn read_freezer(&mut self, path: &str) {
        if self.allocs.is_known(path) {
            let is_frozen = self.scanner.is_frozen(path);
            self.touched.extend(self.allocs.set_paused(path, is_frozen));
        }
    }
    /// The same of all tasks whose freezer reports no change.
    pub(super) fn read_freezers(&mut self) {
        let is_silent = |path: &&str| !self.scanner.reports_frozen(path);
        let paths: Vec<String> = self.allocs.paths().filter(is_silent).map(str::to_owned).collect();
        paths.iter().for_each(|path| self.read_freezer(path));
    }

    pub(super) fn query_restarts(&self) {
        let now = self.parts.clock.now();
        if self.allocs.may_wait(now) {
            self.inquiries.query_restarts(now);
        }
    }
    /// `waiting`: the containers that waited for their restart at this time or later.
    pub(super) fn set_waits(&mut self, requested_at: Timestamp, waiting: &BTreeSet<String>) {
        let waited = |path: &str| docker::container_at(path).is_some_and(|id| waiting.contains(id));
        self.touched.extend(self.allocs.set_waits(requested_at, waited));
    }
}
