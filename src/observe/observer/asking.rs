//! Questions to sources, their answers, and whether the answers change what is shown.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Ending, UNDECIDED, UNWANTED, Work};
use crate::observe::identity::{Naming, Recognised};
use crate::observe::naming::{About, Inquiry};
use crate::observe::{is_named_by_path, slurm, source, texts};

/// Docker waits up to a minute before it restarts a container.
const CALLED: Duration = Duration::from_secs(120);
const MOST_CALLED: usize = 10_000;

impl Work {
    /// Whether one more task fits, in a subtree that is delegated to this user.
    pub(super) fn has_room(&self, user: Option<u32>) -> bool {
        let most = self.parts.config.max_allocs;
        !self.is_short.load(Ordering::Relaxed)
            && self.allocs.running() + self.unnamed.len() < most
            && texts::has_room(self.allocs.path_bytes(), most)
            && !self.shares.is_full(user)
    }
    /// The recognised task, or a plain cgroup.
    pub(super) fn or_plain(&self, found: Option<Recognised>, path: &str) -> Recognised {
        found.unwrap_or_else(|| Recognised { user: self.scanner.tree().chooser(path), ..Recognised::plain(path) })
    }

    pub(super) fn ask(&mut self, path: &str, found: &Recognised, about: About) -> bool {
        let Some(source) = source(found.source).filter(|_| !is_named_by_path(found)) else { return false };
        let directories = self.scanner.directories(path);
        self.inquiries.ask(source, Inquiry { path: path.to_owned(), found: found.clone(), directories, about })
    }

    pub(super) fn ask_again(&mut self, now: Instant) {
        let is_there = |path: &str| {
            self.known.contains_key(path) || self.unnamed.contains_key(path) || self.aside.get(path) == Some(&UNDECIDED)
        };
        for path in self.nameless.due(now, is_there) {
            // A task that waits for its name was asked about when it was found.
            let waits = |found: &Recognised| self.unnamed.contains_key(&path) && !slurm::is_named_late(found);
            let found = self.recognised(&path).filter(|found| !waits(found));
            if found.is_some_and(|found| !self.ask(&path, &found, About::Name)) {
                self.nameless.was_not_asked(&path, now);
            }
        }
    }

    fn recognised(&self, path: &str) -> Option<Recognised> {
        self.known.get(path).cloned().or_else(|| Some(self.scanner.tree().identify(path)?.1))
    }

    /// `is_named`: the path contains the name.
    pub(super) fn is_wanted(&self, found: &Recognised, is_named: bool) -> bool {
        let config = &self.parts.config;
        config.wants_of(found.source) && (!is_named || config.wants(found.source, &found.naming))
    }

    /// Whether no further information will come.
    pub(super) fn is_complete(&self, path: &str, found: &Recognised) -> bool {
        self.called.contains_key(path) || is_named_by_path(found)
    }

    pub(super) fn named(&mut self, path: &str, naming: Option<Naming>, now: Instant) {
        let user = self.scanner.tree().chooser(path);
        let naming = naming.map(|naming| user.into_iter().fold(naming, Naming::of_user));
        match &naming {
            Some(naming) => {
                self.nameless.forget(path);
                if self.called.len() < MOST_CALLED || self.called.contains_key(path) {
                    self.called.insert(path.to_owned(), (naming.clone(), now));
                }
            }
            None => self.nameless.add(path, now),
        }
        if naming.is_none() && self.unnamed.get(path).is_some_and(|unnamed| slurm::is_named_late(&unnamed.found)) {
            return;
        }
        if self.unnamed.contains_key(path) {
            self.admit(path, naming);
        } else if let Some(naming) = naming {
            self.named_late(path, naming, now);
        }
    }

    /// The name arrived after the task was shown or set aside.
    fn named_late(&mut self, path: &str, naming: Naming, now: Instant) {
        if self.aside.get(path) == Some(&UNDECIDED) {
            // Checked again as if it were new.
            self.aside.remove(path);
            self.fresh.insert(path.to_owned(), now);
            return;
        }
        let Some(Recognised { source, own, .. }) = self.recognised(path) else { return };
        let config = &self.parts.config;
        // Its ID stays, although the name was unknown then.
        let is_wanted_as = |id| config.wants_of(naming.source.unwrap_or(source)) && config.wants_as(id, &naming);
        if !config.wants(source, &naming) && !self.allocs.id(path).is_some_and(|id| is_wanted_as(id.as_str())) {
            // It still runs, but is excluded now; this is not its end.
            self.gone(path);
            self.aside.insert(path.to_owned(), UNWANTED);
            return;
        }
        let (labels, to_keep) = (config.chosen(&naming.labels), naming.clone());
        let (naming, rule) = config.ruled(source, own, naming);
        self.touched.extend(self.allocs.rename(path, &naming, rule, labels));
        self.kept.renamed(path, self.allocs.workload(path), to_keep);
    }

    /// The name of the preceding life: a path with a runtime's ID belongs to one container.
    pub(super) fn called_before(&self, path: &str) -> Option<Naming> {
        self.called.get(path).map(|(naming, _)| naming.clone())
    }

    /// An ended life need not wait if its name and the exit of the preceding life are known.
    pub(super) fn admit_by_the_name_before(&mut self, path: &str) {
        let has_exit = |ending: &Ending| ending.kernel_exit.as_ref().is_some_and(|(facts, _)| facts.is_some());
        if self.called.contains_key(path) && self.ending.get(path).is_none_or(has_exit) {
            self.admit(path, None);
        }
    }

    pub(super) fn forget_names(&mut self, now: Instant) {
        let (known, unnamed, aside) = (&self.known, &self.unnamed, &self.aside);
        self.called.retain(|path, (_, at)| {
            // Excluded tasks end too, and their runtime may not know them any more then.
            if known.contains_key(path) || unnamed.contains_key(path) || aside.contains_key(path) {
                *at = now;
            }
            now.saturating_duration_since(*at) < CALLED
        });
    }
}
