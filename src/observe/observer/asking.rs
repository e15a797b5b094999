//! What sources are asked, and what they answer.

use std::time::{Duration, Instant};

use super::{Ending, Work, source};
use crate::observe::identity::{Naming, Recognised};
use crate::observe::naming::{About, Inquiry};

/// Docker waits up to a minute before it starts a container again.
const CALLED: Duration = Duration::from_secs(120);
const MOST_CALLED: usize = 10_000;

impl Work {
    pub(super) fn ask(&mut self, path: &str, found: &Recognised, about: About) -> bool {
        let Some(source) = source(found.source) else { return false };
        let directories = self.scanner.directories(path);
        self.inquiries.ask(source, Inquiry { path: path.to_owned(), found: found.clone(), directories, about })
    }

    pub(super) fn ask_again(&mut self, now: Instant) {
        let is_there = |path: &str| self.known.contains_key(path) || self.unnamed.contains_key(path);
        for path in self.nameless.due(now, is_there) {
            if let Some(found) = self.known.get(&path).cloned() {
                self.ask(&path, &found, About::Name);
            }
        }
    }

    pub(super) fn named(&mut self, path: &str, naming: Option<Naming>, now: Instant) {
        match &naming {
            Some(naming) => {
                self.nameless.forget(path);
                if self.called.len() < MOST_CALLED || self.called.contains_key(path) {
                    self.called.insert(path.to_owned(), (naming.clone(), now));
                }
            }
            None => self.nameless.add(path, now),
        }
        if self.unnamed.contains_key(path) {
            self.admit(path, naming);
        } else if let Some(naming) = naming {
            let labels = self.parts.config.chosen(&naming.labels);
            self.kept.renamed(path, self.parts.config.without_secrets(&naming));
            self.touched.extend(self.allocs.rename(path, &naming, labels));
        }
    }

    /// What the life before it had as its name: a path with a runtime's id in it is of one container.
    pub(super) fn called_before(&self, path: &str) -> Option<Naming> {
        self.called.get(path).map(|(naming, _)| naming.clone())
    }

    /// One that is over waits for nobody if it was told before what it is called, and how the life before it ended.
    pub(super) fn admit_by_the_name_before(&mut self, path: &str) {
        let is_told = |ending: &Ending| ending.told.as_ref().is_some_and(|(facts, _)| facts.is_some());
        if self.called.contains_key(path) && self.ending.get(path).is_none_or(is_told) {
            self.admit(path, None);
        }
    }

    pub(super) fn forget_names(&mut self, now: Instant) {
        let (known, unnamed) = (&self.known, &self.unnamed);
        self.called.retain(|path, (_, at)| {
            if known.contains_key(path) || unnamed.contains_key(path) {
                *at = now;
            }
            now.saturating_duration_since(*at) < CALLED
        });
    }
}
