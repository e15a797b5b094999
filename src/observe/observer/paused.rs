//! Tasks that are there and do not run: paused by the kernel's freezer, or waiting for the restart by their runtime.

use std::collections::BTreeSet;

use super::ObserverThread;
use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;
use crate::observe::docker::DOCKER;
use crate::observe::identity::AllocCgroupRule;
use crate::observe::observed_allocs::WaitingTask;
use crate::observe::runtime_queries::WaitingContainer;

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

    /// Queries which containers wait as the agent starts. They have no cgroup that could be found.
    pub(super) fn query_waiting(&mut self) {
        let config = &self.parts.config;
        if config.shows_source(AllocSource::Docker) && config.docker_socket.exists() {
            self.runtime_queries.query_waiting(&DOCKER);
        }
    }
    pub(super) fn show_waiting(&mut self, all: Vec<WaitingContainer>) {
        let now = self.parts.clock.now();
        for WaitingContainer { id, source, naming, last } in all {
            let config = &self.parts.config;
            if !config.shows(source, &naming) || !self.has_room(None) {
                continue;
            }
            let labels = config.chosen(&naming.labels);
            let (naming, rule) = config.ruled(source, AllocCgroupRule::Task, naming);
            let waiting = WaitingTask { container: id, source, naming, rule, labels, last };
            self.touched.extend(self.allocs.show_waiting(waiting, now));
        }
    }

    pub(super) fn query_restarts(&self) {
        let now = self.parts.clock.now();
        if self.allocs.may_wait(now) {
            self.runtime_queries.query_restarts(now);
        }
    }
    /// `waiting`: the containers that waited for their restart at this time or later.
    pub(super) fn set_waits(&mut self, requested_at: Timestamp, waiting: &BTreeSet<String>) {
        self.touched.extend(self.allocs.set_waits(requested_at, |id| waiting.contains(id)));
    }
}
