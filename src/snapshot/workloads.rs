//! Workload totals: ended attempts plus the running ones, kept up to date without adding everything up again.

use std::collections::HashMap;
use std::sync::Arc;

use super::{AgentTotals, WorkloadTaskView};
use crate::model::alloc::AllocSource;
use crate::model::id::{JobId, TaskName};
use crate::model::totals::{TaskTotals, Totals, add_each, observed_key, split_observed};
use crate::model::usage::Usage;

type Key = (JobId, TaskName, WorkloadOrigin);

/// Whether the tasks of a slot are managed or observed. The two count apart, though they may have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WorkloadOrigin {
    Managed,
    /// `None`: an earlier agent did not record the source of its totals.
    Observed(Option<AllocSource>),
}

impl WorkloadOrigin {
    fn source(self) -> Option<AllocSource> {
        match self {
            WorkloadOrigin::Managed => Some(AllocSource::Managed),
            WorkloadOrigin::Observed(source) => source,
        }
    }
}

/// One slot per workload and task, in order of appearance. A slot is added up again only if something under it changed.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    index: HashMap<Key, usize>,
    slots: Vec<WorkloadSlot>,
    totals: Arc<Totals>,
    observed: Arc<Totals>,
    views: Vec<Arc<WorkloadTaskView>>,
    /// Of allocs whose usage is unknown.
    unknown: Vec<usize>,
}

#[derive(Debug)]
struct WorkloadSlot {
    key: Key,
    /// `None`: not on the board's list (any more).
    totals: Option<Arc<TaskTotals>>,
    /// Allocs that have this task.
    users: usize,
    dirty: bool,
    view: Option<Arc<WorkloadTaskView>>,
}

impl Workloads {
    pub(super) fn slot(&mut self, workload: &JobId, task: &TaskName, by: WorkloadOrigin) -> usize {
        let key = (workload.clone(), task.clone(), by);
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        let slot = self.slots.len();
        self.index.insert(key.clone(), slot);
        self.slots.push(WorkloadSlot { key, totals: None, users: 0, dirty: true, view: None });
        slot
    }
    pub(super) fn joined(&mut self, slots: &[usize]) {
        for slot in slots {
            self.slots[*slot].users += 1;
            self.slots[*slot].dirty = true;
        }
    }
    pub(super) fn left(&mut self, slots: &[usize]) {
        for slot in slots {
            self.slots[*slot].users -= 1;
            self.slots[*slot].dirty = true;
        }
    }
    pub(super) fn moved(&mut self, slots: &[usize]) {
        slots.iter().for_each(|s| self.slots[*s].dirty = true);
    }

    /// Takes the totals over. Returns the new place of each slot if some were removed; `None`: a removed slot.
    pub(super) fn take_totals(&mut self, totals: &Arc<Totals>, observed: &Arc<Totals>) -> Option<Vec<Option<usize>>> {
        if Arc::ptr_eq(totals, &self.totals) && Arc::ptr_eq(observed, &self.observed) {
            return None;
        }
        self.totals = Arc::clone(totals);
        self.observed = Arc::clone(observed);
        for (workload, task) in totals.workloads.keys() {
            self.slot(workload, task, WorkloadOrigin::Managed);
        }
        for (key, task) in observed.workloads.keys() {
            let (source, workload) = split_observed(key);
            self.slot(&workload, task, WorkloadOrigin::Observed(source));
        }
        let mut retired = false;
        for slot in &mut self.slots {
            let (workload, task, by) = slot.key.clone();
            let now = match by {
                WorkloadOrigin::Managed => totals.workloads.get(&(workload, task)),
                WorkloadOrigin::Observed(Some(source)) => {
                    observed.workloads.get(&(observed_key(source, &workload), task))
                }
                WorkloadOrigin::Observed(None) => observed.workloads.get(&(workload, task)),
            };
            let same = match (now, &slot.totals) {
                (Some(now), Some(before)) => Arc::ptr_eq(now, before),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !same {
                slot.totals = now.cloned();
                slot.dirty = true;
            }
            retired |= slot.totals.is_none() && slot.users == 0;
        }
        retired.then(|| self.compact())
    }

    fn compact(&mut self) -> Vec<Option<usize>> {
        let mut moved = Vec::with_capacity(self.slots.len());
        let mut retained = Vec::with_capacity(self.slots.len());
        for mut slot in self.slots.drain(..) {
            if slot.totals.is_none() && slot.users == 0 {
                moved.push(None);
            } else {
                moved.push(Some(retained.len()));
                slot.dirty = true;
                retained.push(slot);
            }
        }
        self.index = retained.iter().enumerate().map(|(place, slot)| (slot.key.clone(), place)).collect();
        self.slots = retained;
        self.views.clear();
        moved
    }

    /// The views, added up again where needed. `live`: the running attempts with their slots; `unknown`: slots of
    /// allocs whose usage is unknown (yet). A sum without a part would fall, and grow by all of it again later.
    pub(super) fn views<'a>(
        &mut self,
        live: impl Iterator<Item = (usize, &'a Usage)>,
        unknown: impl Iterator<Item = usize>,
    ) -> Vec<Arc<WorkloadTaskView>> {
        self.unknown = unknown.collect();
        if !self.slots.iter().any(|s| s.dirty) {
            return self.together();
        }
        let mut sums: Vec<Option<Usage>> = self
            .slots
            .iter()
            .map(|s| s.dirty.then(|| s.totals.as_ref().map_or_else(Usage::default, |t| t.usage.counters())))
            .collect();
        for (slot, usage) in live {
            if let Some(sum) = &mut sums[slot] {
                sum.add_counters(usage);
            }
        }
        for slot in &self.unknown {
            if let Some(sum) = &mut sums[*slot] {
                *sum = Usage::default();
            }
        }
        self.views.clear();
        for (slot, sum) in self.slots.iter_mut().zip(sums) {
            let view = match (sum, &slot.view) {
                (None, Some(view)) if !slot.dirty => Arc::clone(view),
                (sum, before) => {
                    let mut usage = sum.or_else(|| before.as_ref().map(|b| b.usage.clone())).unwrap_or_default();
                    if let Some(before) = before {
                        usage.not_below(&before.usage);
                    }
                    let (workload, task, by) = slot.key.clone();
                    let ended = slot.totals.clone().unwrap_or_default();
                    let (source, observed) = (by.source(), by != WorkloadOrigin::Managed);
                    Arc::new(WorkloadTaskView { workload, task, source, usage, ended, observed })
                }
            };
            slot.dirty = false;
            slot.view = Some(Arc::clone(&view));
            self.views.push(view);
        }
        self.together()
    }

    /// An observed workload is never shown under the name of a managed job: two series would have the same labels.
    fn together(&self) -> Vec<Arc<WorkloadTaskView>> {
        let is_clear = |view: &Arc<WorkloadTaskView>| !view.observed || !self.totals.has(&view.workload);
        let (mut shown, alike): (Vec<_>, Vec<_>) = self.views.iter().cloned().partition(is_clear);
        for view in alike {
            let workload = self.totals.name_without_conflict(&view.workload);
            let is_it = |other: &&mut Arc<WorkloadTaskView>| {
                other.workload == workload && other.task == view.task && other.source == view.source
            };
            // Another observed workload may have this name as well.
            match shown.iter_mut().find(is_it).map(Arc::make_mut) {
                Some(other) => {
                    other.usage.add_counters(&view.usage);
                    Arc::make_mut(&mut other.ended).merge(&view.ended);
                }
                None => shown.push(Arc::new(WorkloadTaskView { workload, ..WorkloadTaskView::clone(&view) })),
            }
        }
        shown
    }

    /// The sums of the whole node: retired workloads and all that are there.
    pub(super) fn node(&self) -> AgentTotals {
        let retired = &self.totals.node;
        let known = self.unknown.is_empty().then_some(0);
        let mut node =
            AgentTotals { allocs: retired.allocs, oom_kills: known, cpu_usage_ns: known, ..AgentTotals::default() };
        add(&mut node, &retired.totals, &retired.totals.usage);
        for view in self.views.iter().filter(|view| !view.observed) {
            add(&mut node, &view.ended, &view.usage);
        }
        node
    }
}

fn add(node: &mut AgentTotals, totals: &TaskTotals, usage: &Usage) {
    add_each(&mut node.exits, &totals.exits);
    add_each(&mut node.restarts, &totals.restarts);
    for (sum, part) in [(&mut node.oom_kills, usage.oom_kills()), (&mut node.cpu_usage_ns, usage.cpu_usage_ns())] {
        // A part that was never measured adds nothing to the sum of what was.
        *sum = sum.map(|sum| sum.saturating_add(part.unwrap_or(0)));
    }
}

/// What this agent ever ran never falls, whatever order totals and workloads change in.
pub(super) fn never_fall(node: &mut AgentTotals, earlier: &AgentTotals) {
    let counts = node.exits.iter_mut().chain(&mut node.restarts);
    counts.zip(earlier.exits.iter().chain(&earlier.restarts)).for_each(|(now, before)| *now = *before.max(now));
    for (now, before) in [(&mut node.oom_kills, earlier.oom_kills), (&mut node.cpu_usage_ns, earlier.cpu_usage_ns)] {
        *now = now.map(|now| now.max(before.unwrap_or(0)));
    }
    node.allocs = node.allocs.max(earlier.allocs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Timestamp;
    use crate::model::usage::Field;

    /// A process in any container may claim to be of a job of that name.
    ///
    /// Promise (Observed workloads): A managed job has nothing in its totals of an observed workload of that name
    #[test]
    fn observed_workload_adds_nothing_to_managed_job_of_same_name() {
        let used = |ns| TaskTotals { usage: Usage::from([(Field::cpu_usage_ns, ns)]), ..TaskTotals::default() };
        let (mut managed, mut observed_totals) = (Totals::default(), Totals::default());
        observed_totals.add(&"docker:svc".into(), &"t".into(), &used(7));
        observed_totals.add(&"docker:svc~observed".into(), &"t".into(), &used(9));
        let mut workloads = Workloads::default();
        let mut shown = |managed: &Totals| -> Vec<(String, Option<u64>)> {
            let _ = workloads.take_totals(&Arc::new(managed.clone()), &Arc::new(observed_totals.clone()));
            let views = workloads.views(std::iter::empty(), std::iter::empty());
            let mut all: Vec<_> =
                views.iter().map(|view| (view.workload.to_string(), view.usage.cpu_usage_ns())).collect();
            all.sort_unstable();
            all
        };
        let of = |name: &str, ns| (name.to_owned(), ns);
        assert_eq!(shown(&managed), [of("svc", Some(7)), of("svc~observed", Some(9))]);
        // Another task of it: the whole name is taken.
        managed.submitted(&"svc".into(), &"other".into(), Timestamp(1));
        assert_eq!(shown(&managed), [of("svc", None), of("svc~observed", Some(16))]);
        managed.add(&"svc".into(), &"t".into(), &used(1));
        assert_eq!(shown(&managed), [of("svc", None), of("svc", Some(1)), of("svc~observed", Some(16))]);
    }

    /// Promise (Observed workloads): Observed workloads of two runtimes with one name have their own totals
    #[test]
    fn workloads_of_two_sources_with_one_name_have_their_own_totals() {
        let used = |ns| TaskTotals { usage: Usage::from([(Field::cpu_usage_ns, ns)]), ..TaskTotals::default() };
        let mut observed_totals = Totals::default();
        for (key, ns) in [("docker:web", 1), ("podman:web", 2), ("web", 4)] {
            observed_totals.add(&key.into(), &"t".into(), &used(ns));
        }
        let mut workloads = Workloads::default();
        let _ = workloads.take_totals(&Arc::default(), &Arc::new(observed_totals));
        // A task of one of them runs.
        let live = workloads.slot(&"web".into(), &"t".into(), WorkloadOrigin::Observed(Some(AllocSource::Podman)));
        let usage = Usage::from([(Field::cpu_usage_ns, 8)]);
        let views = workloads.views([(live, &usage)].into_iter(), std::iter::empty());
        let mut shown: Vec<_> = views.iter().map(|view| (view.source, view.usage.cpu_usage_ns())).collect();
        shown.sort_unstable();
        let expected = [(None, Some(4)), (Some(AllocSource::Docker), Some(1)), (Some(AllocSource::Podman), Some(10))];
        assert_eq!(shown, expected, "an earlier agent recorded no source of the first one");
        assert!(views.iter().all(|view| view.workload.as_str() == "web" && view.observed));
    }
}
