//! What sources are asked, and what they answer.

use std::time::Instant;

use super::{Work, source};
use crate::observe::identity::{Naming, Recognised};
use crate::observe::naming::{About, Inquiry};

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
        match naming {
            Some(_) => self.nameless.forget(path),
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
}
