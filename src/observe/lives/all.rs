//! The lives at all paths, with the indexes that spare the driver a walk over thousands of paths at rest.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use super::state::{HiddenReason, LifeTypes, Lives, State};

/// The lives at all paths. Concurrency: single owner.
#[derive(Debug, Default)]
pub(in crate::observe) struct AllLives<M: LifeTypes> {
    by_path: HashMap<Arc<str>, Box<Lives<M>>>,
    /// By their next deadlines.
    due: BTreeSet<(Instant, Arc<str>)>,
    empty: BTreeSet<Arc<str>>,
    naming: BTreeSet<Arc<str>>,
    removed_unnamed: usize,
    placed: usize,
    over_limit: BTreeSet<Arc<str>>,
    names: usize,
}

impl<M: LifeTypes> AllLives<M> {
    pub(in crate::observe) fn get(&self, path: &str) -> Option<&Lives<M>> {
        self.by_path.get(path).map(|lives| &**lives)
    }
    pub(in crate::observe) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Lives<M>)> {
        self.by_path.iter().map(|(path, lives)| (path, &**lives))
    }

    /// Takes the lives of a path out, for a step; [`AllLives::put`] follows.
    pub(in crate::observe) fn take(&mut self, path: &str) -> (Arc<str>, Lives<M>) {
        let Some((path, lives)) = self.by_path.remove_entry(path) else { return (Arc::from(path), Lives::default()) };
        self.index(&path, &lives, false);
        (path, *lives)
    }
    pub(in crate::observe) fn put(&mut self, path: Arc<str>, lives: Lives<M>) {
        if !lives.is_blank() {
            self.index(&path, &lives, true);
            self.by_path.insert(path, Box::new(lives));
        }
    }
    fn index(&mut self, path: &Arc<str>, lives: &Lives<M>, is_added: bool) {
        fn change<I: Ord>(set: &mut BTreeSet<I>, item: Option<I>, is_added: bool) {
            let _ = item.is_some_and(|item| if is_added { set.insert(item) } else { set.remove(&item) });
        }
        let path_if = |is_one: bool| is_one.then(|| Arc::clone(path));
        let due = lives.next_deadline().map(|at| (at, Arc::clone(path)));
        change(&mut self.due, due, is_added);
        change(&mut self.empty, path_if(matches!(lives.state(), State::Empty { .. })), is_added);
        change(&mut self.naming, path_if(matches!(lives.state(), State::Naming { .. })), is_added);
        let is_over_limit = matches!(lives.state(), State::Aside(HiddenReason::Limit));
        change(&mut self.over_limit, path_if(is_over_limit), is_added);
        for (count, is_one) in [
            (&mut self.removed_unnamed, lives.removed_unnamed.is_some()),
            (&mut self.placed, lives.is_placed()),
            (&mut self.names, lives.name.is_some()),
        ] {
            *count = if is_added { *count + usize::from(is_one) } else { *count - usize::from(is_one) };
        }
    }

    /// The next deadline.
    pub(in crate::observe) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
    /// Paths with a deadline that is over.
    pub(in crate::observe) fn due(&self, now: Instant) -> Vec<Arc<str>> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, path)| Arc::clone(path)).collect()
    }
    /// Paths of empty cgroups after this one.
    pub(in crate::observe) fn empty_after(&self, path: &str) -> impl Iterator<Item = &Arc<str>> {
        self.empty.range::<str, _>((Bound::Excluded(path), Bound::Unbounded))
    }
    /// Lives that are measured, exist and wait for their names.
    pub(in crate::observe) fn naming(&self) -> impl Iterator<Item = &Lives<M>> {
        self.naming.iter().filter_map(|path| self.get(path))
    }
    /// Number of lives that are measured and wait for their names.
    pub(in crate::observe) fn waiting(&self) -> usize {
        self.naming.len() + self.removed_unnamed
    }
    /// Number of paths in a place that has to be cleared once the task has ended.
    pub(in crate::observe) fn placed(&self) -> usize {
        self.placed
    }
    /// Paths of cgroups that are not shown because too many are.
    pub(in crate::observe) fn over_limit(&self) -> impl Iterator<Item = &Arc<str>> {
        self.over_limit.iter()
    }
    pub(in crate::observe) fn names(&self) -> usize {
        self.names
    }
    /// Paths where a sweep may forget something.
    pub(in crate::observe) fn to_sweep(&self) -> Vec<Arc<str>> {
        self.by_path.iter().filter(|(_, lives)| lives.has_to_forget()).map(|(path, _)| Arc::clone(path)).collect()
    }
    /// Whether an ancestor exists that was a task.
    pub(in crate::observe) fn is_below_covered<'a>(&self, mut above: impl Iterator<Item = &'a str>) -> bool {
        above.any(|above| self.get(above).is_some_and(|lives| matches!(lives.state(), State::Covered { .. })))
    }
    /// Size of each table.
    #[cfg(test)]
    pub(in crate::observe) fn sizes(&self) -> [usize; 8] {
        let AllLives { by_path, due, empty, naming, removed_unnamed, placed, over_limit, names } = self;
        [by_path.len(), due.len(), empty.len(), naming.len(), *removed_unnamed, *placed, over_limit.len(), *names]
    }
}
