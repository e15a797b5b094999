//! The observed allocs, running and ended, and what is published of them on the board. Reads nothing itself.
//!
//! ```text
//! begin ──► a task of its alloc gets a reader ──► end: last reading added to base and totals ──► the last task ends
//!             └── same name again: continues from the base                                         the alloc
//! ```
//! An alloc is identified by its name: a container that is restarted, or created again with the same name, is the same
//! alloc, and its counters continue.

mod waiting;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use self::waiting::WaitingTask;
use super::exits::{ExitFacts, exit};
use super::identity::{AllocCgroupRule, TaskNaming};
use super::journal::TaskHistory;
use super::texts::{ChangedTextCounts, MOST_TASKS, sanitize};
use crate::board::PublishedAlloc;
use crate::collectors::TaskReader;
use crate::model::alloc::{AllocIdentity, AllocSource, Measured, TaskIdentity};
use crate::model::id::{AllocId, CgroupPath, GroupName, JobId, TaskName};
use crate::model::observed::{ObservedAlloc, ObservedTask, RestartCause, SelectedLabel};
use crate::model::task::Exit;
use crate::model::text::{digest, label_value};
use crate::model::totals::{TaskTotals, Totals, observed_key};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

/// How long, and for how many tasks, the history of forgotten tasks is kept: restarts take minutes at most.
const RETAINED_FOR: Nanos = Nanos(3_600_000_000_000);
const MAX_RETAINED: usize = 1_000;

/// The observed allocs. Concurrency: single owner.
#[derive(Debug, Default)]
pub struct ObservedAllocs {
    allocs: BTreeMap<AllocId, TrackedAlloc>,
    /// Running tasks by cgroup path.
    by_path: HashMap<String, (AllocId, usize)>,
    /// History from an earlier agent, until the task begins again.
    earlier: HashMap<(AllocId, TaskName), TaskHistory>,
    /// History of forgotten tasks and when they ended, until they begin again.
    forgotten: HashMap<(AllocId, TaskName), (Timestamp, TaskHistory)>,
    /// Total length of the paths of running tasks.
    path_bytes: usize,
    /// Changes to texts since the counts were taken.
    pub(super) texts: ChangedTextCounts,
    /// Recomputed after a change.
    by_source: OnceCell<BTreeMap<AllocSource, u64>>,
}

/// One observed alloc.
#[derive(Debug)]
struct TrackedAlloc {
    identity: Arc<AllocIdentity>,
    native: String,
    /// Index of the rule that set the workload.
    rule: Option<usize>,
    labels: Vec<SelectedLabel>,
    tasks: Vec<TrackedTask>,
    /// The alloc's own cgroup, if it is not its task's.
    alloc_reader: Option<(String, Arc<TaskReader>)>,
    alloc_base: Arc<Usage>,
    ended_at: Option<Timestamp>,
}

/// One task of an observed alloc.
#[derive(Debug, Default)]
struct TrackedTask {
    shown: Arc<ObservedTask>,
    /// While its cgroup exists.
    reader: Option<Arc<TaskReader>>,
    attempts: u32,
    /// ID of its last container, if its runtime knows it by one.
    container: Option<String>,
    /// It ended, and its runtime has not confirmed since then that it does not wait for a restart.
    is_unconfirmed: bool,
}

/// A cgroup that becomes a task.
#[derive(Debug)]
pub struct NewTask {
    pub path: String,
    pub source: AllocSource,
    pub alloc_cgroup: AllocCgroupRule,
    pub naming: TaskNaming,
    /// The container's ID, if its runtime knows it by one.
    pub container: Option<String>,
    /// Index of the rule that set the workload.
    pub rule: Option<usize>,
    pub labels: Vec<SelectedLabel>,
    pub reader: Arc<TaskReader>,
    /// Reader of the alloc's own cgroup with its path, if it is another one.
    pub alloc_reader: Option<(String, Arc<TaskReader>)>,
    /// `None`: it existed before the agent started.
    pub since: Option<Timestamp>,
}

/// A change of the totals, applied when the alloc is published.
#[derive(Debug, Clone)]
pub enum TotalsChange {
    /// Totals from an earlier agent.
    Earlier(JobId, TaskName, Arc<TaskTotals>),
    /// A task counts from now on.
    Started(JobId, TaskName, Timestamp),
    /// A task was started again.
    Restarted(JobId, TaskName, RestartCause),
    Ended(JobId, TaskName, Box<Exit>),
    /// It is no task any more, but has not ended.
    Covered(JobId, TaskName, Arc<Usage>),
}

impl TotalsChange {
    pub fn apply(&self, totals: &mut Totals) {
        match self {
            TotalsChange::Earlier(workload, task, earlier) => totals.add(workload, task, earlier),
            TotalsChange::Started(workload, task, at) => totals.submitted(workload, task, *at),
            TotalsChange::Restarted(workload, task, after) => {
                totals.task_mut(workload, task).add_restart_cause(*after);
            }
            TotalsChange::Ended(workload, task, exit) => totals.task_mut(workload, task).add_exit(exit),
            TotalsChange::Covered(workload, task, usage) => totals.task_mut(workload, task).add_usage(usage),
        }
    }
    pub fn key(&self) -> (JobId, TaskName) {
        match self {
            TotalsChange::Earlier(workload, task, _)
            | TotalsChange::Started(workload, task, _)
            | TotalsChange::Restarted(workload, task, _)
            | TotalsChange::Ended(workload, task, _)
            | TotalsChange::Covered(workload, task, _) => (workload.clone(), task.clone()),
        }
    }
}

impl TrackedTask {
    fn of(earlier: TaskHistory) -> TrackedTask {
        let attempts = earlier.attempts;
        TrackedTask { shown: Arc::new(earlier.shown()), attempts, ..TrackedTask::default() }
    }
}

impl ObservedAllocs {
    /// History to continue from when the task begins.
    pub fn remember(&mut self, alloc: AllocId, task: TaskName, earlier: TaskHistory) {
        self.earlier.insert((alloc, task), earlier);
    }
    /// The same of a task that exists and is not shown, for as long as that of a task that was forgotten.
    pub fn set_aside(&mut self, alloc: AllocId, task: TaskName, earlier: TaskHistory, now: Timestamp) {
        let key = (alloc, task);
        self.earlier.remove(&key);
        self.forgotten.insert(key, (now, earlier));
    }
    /// Drops the history of tasks that have not begun by now.
    pub fn forget_earlier(&mut self, now: Timestamp) {
        self.earlier.clear();
        self.forgotten.retain(|_, (ended_at, _)| now.since(*ended_at) <= RETAINED_FOR);
        if let Some(too_many) = self.forgotten.len().checked_sub(MAX_RETAINED).filter(|n| *n > 0) {
            let mut all: Vec<_> = self.forgotten.iter().map(|(key, (ended_at, _))| (*ended_at, key.clone())).collect();
            all.sort_unstable();
            all[..too_many].iter().for_each(|(_, key)| drop(self.forgotten.remove(key)));
        }
    }
    /// History of the task before its current cgroup.
    pub fn earlier(&self, path: &str) -> Option<(TaskName, TaskHistory)> {
        let (id, at) = self.by_path.get(path)?;
        let held = self.allocs.get(id)?;
        let (task, known) = (held.tasks.get(*at)?, held.identity.tasks.get(*at)?);
        Some((known.name.clone(), TaskHistory::of(&task.shown, task.attempts)))
    }

    /// The ID of an alloc, before collisions are resolved.
    pub fn id_of(source: AllocSource, native: &str) -> String {
        // The usual abbreviation.
        let prefix = if source == AllocSource::Kubernetes { "k8s" } else { source.as_str() };
        label_value(&format!("{prefix}:{native}")).into_owned()
    }

    pub fn is_known(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }
    /// Cgroup paths of running tasks.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }
    pub fn running(&self) -> usize {
        self.by_path.len()
    }
    /// Total length of these paths.
    pub fn path_bytes(&self) -> usize {
        self.path_bytes
    }
    pub fn reader(&self, path: &str) -> Option<&Arc<TaskReader>> {
        let (id, at) = self.by_path.get(path)?;
        self.allocs.get(id)?.tasks.get(*at)?.reader.as_ref()
    }
    pub fn id(&self, path: &str) -> Option<&AllocId> {
        self.by_path.get(path).map(|(id, _)| id)
    }
    /// The workload of the task's alloc.
    pub fn workload(&self, path: &str) -> Option<JobId> {
        self.allocs.get(self.id(path)?)?.identity.workload.clone()
    }
    /// Reader of the own cgroup of the task's alloc, if it is another one.
    pub fn alloc_reader(&self, path: &str) -> Option<&Arc<TaskReader>> {
        let (id, _) = self.by_path.get(path)?;
        self.allocs.get(id)?.alloc_reader.as_ref().map(|(_, reader)| reader)
    }
    /// Number of running allocs by source.
    pub fn by_source(&self) -> &BTreeMap<AllocSource, u64> {
        self.by_source.get_or_init(|| {
            let mut counts = BTreeMap::new();
            for held in self.allocs.values().filter(|held| held.ended_at.is_none()) {
                *counts.entry(held.identity.source).or_default() += 1;
            }
            counts
        })
    }

    /// Adds a task. Returns its alloc and the changes of totals.
    pub fn begin(&mut self, new_task: NewTask) -> (AllocId, Vec<TotalsChange>) {
        self.by_source.take();
        let NewTask { path, source, alloc_cgroup, naming, container, rule, labels, reader, alloc_reader, since } =
            new_task;
        // The ID uses the untruncated name, with a digest.
        let preferred_id = ObservedAllocs::id_of(naming.source.unwrap_or(source), &naming.native);
        let naming = sanitize(naming, &mut self.texts);
        let cgroup = match alloc_cgroup {
            AllocCgroupRule::Task => Some(CgroupPath::from(path.as_str())),
            AllocCgroupRule::Parent => path.rsplit_once('/').map(|(above, _)| CgroupPath::from(above)),
            AllocCgroupRule::None | AllocCgroupRule::Nowhere => None,
        };
        let its_own = cgroup.as_ref().filter(|_| alloc_cgroup == AllocCgroupRule::Parent);
        let id = self.free_id(AllocId::new(preferred_id), &naming, &path, its_own);
        let held = self.allocs.entry(id.clone()).or_insert_with(|| TrackedAlloc::new(&id));
        held.ended_at = None;
        if held.tasks.iter().all(|task| task.reader.is_none()) {
            // From an earlier life.
            held.rule = None;
        }
        let task = TaskName::from(naming.task.as_str());
        let at = match held.identity.tasks.iter().position(|known| known.name == task) {
            Some(at) => at,
            None => {
                let key = (id.clone(), task.clone());
                let forgotten = self.forgotten.remove(&key).map(|(_, earlier)| earlier);
                let earlier = self.earlier.remove(&key).or(forgotten);
                held.tasks.push(earlier.map(TrackedTask::of).unwrap_or_default());
                Arc::make_mut(&mut held.identity).tasks.push(TaskIdentity {
                    name: task.clone(),
                    driver: None,
                    user: None,
                    image: None,
                });
                held.tasks.len() - 1
            }
        };
        held.native.clone_from(&naming.native);
        held.labels = labels;
        let naming = TaskNaming { created_at: naming.created_at.or(since), ..naming };
        held.apply_names(at, naming.source.unwrap_or(source), &naming, rule);
        let (measured, at_path) = match alloc_cgroup {
            AllocCgroupRule::Nowhere => (Measured::Process, None),
            AllocCgroupRule::Task | AllocCgroupRule::Parent | AllocCgroupRule::None => {
                (Measured::Cgroup, Some(CgroupPath::from(path.as_str())))
            }
        };
        if held.identity.measured != measured {
            Arc::make_mut(&mut held.identity).measured = measured;
        }
        if held.identity.cgroup != cgroup {
            Arc::make_mut(&mut held.identity).cgroup = cgroup;
        }
        if let Some(alloc_reader) = alloc_reader {
            held.change_alloc_reader(Some(alloc_reader));
        }
        let place = &mut held.tasks[at];
        let shown = Arc::make_mut(&mut place.shown);
        (shown.since, shown.cgroup) = (since, at_path);
        let after = shown.begins();
        (place.reader, place.container, place.is_unconfirmed) = (Some(reader), container, false);
        let workload = held.totals_key();
        self.leaves(&path);
        self.path_bytes += path.len();
        self.by_path.insert(path, (id.clone(), at));
        let Some(workload) = workload else { return (id, Vec::new()) };
        let change = since.map(|since| TotalsChange::Started(workload.clone(), task.clone(), since));
        let again = after.map(|after| TotalsChange::Restarted(workload, task, after));
        (id, change.into_iter().chain(again).collect())
    }

    /// Updates the names. Returns the alloc if anything changed. Its ID stays.
    pub fn rename(
        &mut self,
        path: &str,
        naming: &TaskNaming,
        rule: Option<usize>,
        labels: Vec<SelectedLabel>,
    ) -> Option<AllocId> {
        self.by_source.take();
        let (id, at) = self.by_path.get(path)?;
        let held = self.allocs.get_mut(id)?;
        let source = naming.source.unwrap_or(held.identity.source);
        let before = (Arc::clone(&held.identity), held.labels.clone());
        // A task keeps the name under which it is counted.
        let naming = sanitize(naming.clone(), &mut self.texts);
        let naming = TaskNaming { task: held.identity.tasks[*at].name.to_string(), ..naming };
        held.native.clone_from(&naming.native);
        held.labels = labels;
        held.apply_names(*at, source, &naming, rule);
        (before != (Arc::clone(&held.identity), held.labels.clone())).then(|| id.clone())
    }

    /// The cgroup was removed: the last reading is final. Returns the alloc and the change of totals.
    pub fn end(
        &mut self,
        path: &str,
        facts: Option<ExitFacts>,
        now: Timestamp,
    ) -> Option<(AllocId, Option<TotalsChange>)> {
        self.by_source.take();
        let (id, at) = self.leaves(path)?;
        let held = self.allocs.get_mut(&id)?;
        let task = &mut held.tasks[at];
        let last = task.reader.take().and_then(|reader| reader.close());
        let usage = last.map_or_else(Arc::default, |last| last.usage);
        let began = task.shown.since.or(held.identity.created_at);
        let will_restart = facts.as_ref().is_some_and(|facts| facts.will_restart);
        // A busy daemon replies late, or not at all.
        let is_over = will_restart || facts.as_ref().is_some_and(|facts| facts.on_request);
        task.is_unconfirmed = held.identity.source == AllocSource::Docker && !is_over;
        let exit = exit(facts, task.attempts, began, now, usage);
        task.attempts += 1;
        let shown = Arc::make_mut(&mut task.shown);
        shown.base = Arc::new(exit.usage.on_top_of(&shown.base).without_live());
        (shown.runs, shown.is_paused, shown.will_restart) = (false, false, will_restart);
        shown.since = Some(exit.finished_at);
        shown.add_exit(exit.clone());
        if held.tasks.iter().all(|task| task.reader.is_none()) {
            held.ended_at = Some(exit.finished_at);
            held.change_alloc_reader(None);
        }
        let name = held.identity.tasks[at].name.clone();
        let workload = held.totals_key();
        Some((id, workload.map(|workload| TotalsChange::Ended(workload, name, Box::new(exit)))))
    }

    /// Other tasks began inside its cgroup, so it is no task any more and its own usage cannot be separated. Otherwise
    /// as [`ObservedAllocs::end`].
    pub fn cover(&mut self, path: &str, now: Timestamp) -> Option<(AllocId, Option<TotalsChange>)> {
        self.by_source.take();
        let (id, at) = self.leaves(path)?;
        let held = self.allocs.get_mut(&id)?;
        let task = &mut held.tasks[at];
        let last = task.reader.take().and_then(|reader| reader.close());
        let usage = last.map_or_else(Arc::default, |last| last.usage);
        let shown = Arc::make_mut(&mut task.shown);
        shown.base = Arc::new(usage.on_top_of(&shown.base).without_live());
        (shown.runs, shown.is_paused, shown.since) = (false, false, Some(now));
        if held.tasks.iter().all(|task| task.reader.is_none()) {
            held.ended_at = Some(now);
            held.change_alloc_reader(None);
        }
        let name = held.identity.tasks[at].name.clone();
        let workload = held.totals_key();
        Some((id, workload.map(|workload| TotalsChange::Covered(workload, name, usage))))
    }

    /// Records whether the task is paused. Returns its alloc if that changed.
    pub fn set_paused(&mut self, path: &str, is_paused: bool) -> Option<AllocId> {
        let (id, at) = self.by_path.get(path)?;
        let task = self.allocs.get_mut(id)?.tasks.get_mut(*at)?;
        if task.shown.is_paused == is_paused {
            return None;
        }
        Arc::make_mut(&mut task.shown).is_paused = is_paused;
        Some(id.clone())
    }

    fn leaves(&mut self, path: &str) -> Option<(AllocId, usize)> {
        let place = self.by_path.remove(path)?;
        self.path_bytes = self.path_bytes.saturating_sub(path.len());
        Some(place)
    }

    /// Removes ended allocs whose series were delivered. Returns them.
    pub fn forget(&mut self, ids: &[AllocId]) -> Vec<AllocId> {
        let over = |id: &&AllocId| self.allocs.get(*id).is_some_and(|held| held.ended_at.is_some());
        let removed: Vec<AllocId> = ids.iter().filter(over).cloned().collect();
        for id in &removed {
            let Some(held) = self.allocs.remove(id) else { continue };
            for (known, task) in held.identity.tasks.iter().zip(&held.tasks) {
                let earlier = TaskHistory::of(&task.shown, task.attempts);
                let ended_at = held.ended_at.unwrap_or_default();
                self.forgotten.insert((id.clone(), known.name.clone()), (ended_at, earlier));
            }
        }
        removed
    }

    /// Keys of workloads with a running or shown task.
    pub fn keys(&self) -> impl Iterator<Item = (JobId, TaskName)> + '_ {
        self.allocs.values().flat_map(|held| {
            let workload = held.totals_key();
            let tasks = held.identity.tasks.iter();
            tasks.filter_map(move |task| Some((workload.clone()?, task.name.clone())))
        })
    }

    /// What to publish on the board.
    pub fn published(&self, id: &AllocId) -> Option<PublishedAlloc> {
        let held = self.allocs.get(id)?;
        let readers: Vec<_> = held.tasks.iter().map(|task| task.reader.clone()).collect();
        // An alloc with a single cgroup uses its task's reader.
        let (alloc_reader, alloc_base) = match (&held.alloc_reader, held.identity.cgroup.is_some(), &*held.tasks) {
            (Some((_, reader)), _, _) => (Some(Arc::clone(reader)), Arc::clone(&held.alloc_base)),
            (None, true, [only]) if *held.alloc_base == Usage::default() => {
                (only.reader.clone(), Arc::clone(&only.shown.base))
            }
            (None, _, _) => (None, Arc::clone(&held.alloc_base)),
        };
        let observed = ObservedAlloc {
            native: held.native.clone(),
            ended_at: held.ended_at,
            labels: held.labels.clone(),
            tasks: held.tasks.iter().map(|task| Arc::clone(&task.shown)).collect(),
        };
        Some(PublishedAlloc {
            identity: Arc::clone(&held.identity),
            status: None,
            observed: Some(Arc::new(observed)),
            readers,
            until: Vec::new(),
            alloc_reader,
            alloc_base,
        })
    }

    /// The alloc's ID, with a suffix if another running cgroup already has that name: for a task of the same name, or
    /// as an alloc's own cgroup.
    fn free_id(
        &self,
        preferred_id: AllocId,
        naming: &TaskNaming,
        path: &str,
        alloc_cgroup: Option<&CgroupPath>,
    ) -> AllocId {
        let is_taken = |held: &TrackedAlloc| {
            let mut tasks = held.identity.tasks.iter().zip(&held.tasks);
            let same_name = tasks.find(|(known, _)| known.name.as_str() == naming.task);
            let is_full = same_name.is_none() && held.tasks.len() >= MOST_TASKS;
            let runs = same_name.is_some_and(|(_, task)| task.reader.is_some());
            let is_another = held.native != naming.native
                || (alloc_cgroup.is_some() && held.identity.cgroup.as_ref() != alloc_cgroup);
            runs || is_full || (is_another && held.ended_at.is_none())
        };
        match self.allocs.get(&preferred_id) {
            Some(held) if is_taken(held) => AllocId::new(format!("{preferred_id}~{:016x}", digest(path))),
            Some(_) | None => preferred_id,
        }
    }
}

impl TrackedAlloc {
    fn new(id: &AllocId) -> TrackedAlloc {
        TrackedAlloc {
            identity: Arc::new(AllocIdentity::unnamed(id.clone())),
            native: String::new(),
            rule: None,
            labels: Vec::new(),
            tasks: Vec::new(),
            alloc_reader: None,
            alloc_base: Arc::default(),
            ended_at: None,
        }
    }

    /// Under which its totals are kept.
    fn totals_key(&self) -> Option<JobId> {
        self.identity.workload.as_ref().map(|workload| observed_key(self.identity.source, workload))
    }

    /// Applies the names to the alloc and one of its tasks. The workload is that of the first rule that any task
    /// matches.
    fn apply_names(&mut self, at: usize, source: AllocSource, naming: &TaskNaming, rule: Option<usize>) {
        let before = Arc::clone(&self.identity);
        let task = TaskIdentity {
            name: TaskName::from(naming.task.as_str()),
            driver: naming.driver.clone(),
            user: naming.user.clone(),
            image: naming.image.clone(),
        };
        let mut tasks = before.tasks.clone();
        tasks[at] = task;
        // A task known by its path only does not override what other tasks provided.
        let is_named = naming.workload.is_some() || !naming.namespace.is_empty() || naming.name != naming.native;
        let created_at = naming.created_at.or(before.created_at);
        let mut called = AllocIdentity { source, created_at, tasks, ..AllocIdentity::clone(&before) };
        if is_named || before.name.is_empty() {
            if self.rule.is_none_or(|known| rule.is_some_and(|rule| rule <= known)) {
                called.workload = naming.workload.as_deref().map(JobId::from);
                self.rule = rule;
            }
            called.namespace.clone_from(&naming.namespace);
            called.group = naming.group.as_deref().map(GroupName::from);
            called.name.clone_from(&naming.name);
        }
        if called != *before {
            self.identity = Arc::new(called);
        }
    }

    /// The last values of the former cgroup stay in the base.
    fn change_alloc_reader(&mut self, alloc_reader: Option<(String, Arc<TaskReader>)>) {
        let is_same = match (&self.alloc_reader, &alloc_reader) {
            (Some((before, _)), Some((now, _))) => before == now,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same {
            return;
        }
        if let Some(last) =
            std::mem::replace(&mut self.alloc_reader, alloc_reader).and_then(|(_, reader)| reader.close())
        {
            self.alloc_base = Arc::new(last.usage.on_top_of(&self.alloc_base).without_live());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::{FdBudget, SamplingContext};
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;
    use crate::model::alloc::AllocState;
    use crate::model::task::{ExitStatus, Outcome, ShownState};
    use crate::model::usage::Field;

    fn reader(cpu: u64, peak: u64) -> Arc<TaskReader> {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        let reader = Arc::new(TaskReader::reported(&SamplingContext::new(roots, layout, FdBudget::of(10))));
        let used = [(Field::cpu_usage_ns, cpu), (Field::memory_peak_bytes, peak), (Field::memory_usage_bytes, 1)];
        reader.report(Usage::from(used), Timestamp(5));
        reader
    }

    fn task(path: &str, native: &str, name: &str, reader: Arc<TaskReader>) -> NewTask {
        let naming = TaskNaming { task: name.to_owned(), workload: Some("shop".to_owned()), ..TaskNaming::of(native) };
        NewTask {
            path: path.to_owned(),
            source: AllocSource::Docker,
            alloc_cgroup: AllocCgroupRule::Task,
            naming,
            container: path.strip_prefix("/docker/").map(str::to_owned),
            rule: None,
            labels: Vec::new(),
            reader,
            alloc_reader: None,
            since: Some(Timestamp(7)),
        }
    }

    fn base(allocs: &ObservedAllocs, id: &AllocId) -> (Option<u64>, Option<u64>, Option<u64>) {
        let shown = allocs.published(id).unwrap();
        let base = &shown.observed.unwrap().tasks[0].base;
        (base.cpu_usage_ns(), base.memory_peak_bytes(), base.memory_usage_bytes())
    }

    #[test]
    fn the_same_name_again_counts_on_top_of_what_was_and_its_workload_has_each_end() {
        let (mut allocs, mut totals) = (ObservedAllocs::default(), Totals::default());
        for n in 0..40 {
            let (id, change) = allocs.begin(task(&format!("/docker/{n}"), "web", "web", reader(10, 100 + n)));
            assert_eq!((id.as_str(), allocs.running()), ("docker:web", 1));
            change.iter().for_each(|change| change.apply(&mut totals));
            let facts = ExitFacts {
                status: ExitStatus::Code(3),
                oom: n == 0,
                on_request: false,
                will_restart: false,
                result: None,
                finished_at: None,
            };
            let (_, ended) = allocs.end(&format!("/docker/{n}"), Some(facts), Timestamp(9)).unwrap();
            ended.unwrap().apply(&mut totals);
        }
        let id = AllocId::from("docker:web");
        assert_eq!(
            base(&allocs, &id),
            (Some(400), Some(139), None),
            "counters add, the highest peak stays, what was used is gone"
        );
        let of = &totals.workloads[&("docker:shop".into(), "web".into())];
        assert_eq!(
            (of.usage.cpu_usage_ns(), of.exits[Outcome::Error.index()], of.exits[Outcome::Oom.index()]),
            (Some(400), 39, 1)
        );
        assert_eq!(of.exit_codes[&3], 39);
        assert_eq!(of.restart_causes, [1, 38, 0], "the first time is none");
        let shown = allocs.published(&id).unwrap().observed.unwrap();
        assert_eq!((shown.ended_at, shown.tasks[0].exits.len()), (Some(Timestamp(9)), 10));
        assert_eq!(allocs.forget(&[id.clone(), "docker:other".into()]), [id]);
    }

    #[test]
    fn observed_task_waits_for_its_restart_until_it_begins_or_the_wait_expires() {
        let (mut allocs, id) = (ObservedAllocs::default(), AllocId::from("docker:web"));
        let shown = |allocs: &ObservedAllocs| {
            let observed = allocs.published(&id).unwrap().observed.unwrap();
            (observed.state(), observed.tasks[0].state())
        };
        let ends = |allocs: &mut ObservedAllocs, at: u64| {
            allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
            assert_eq!(shown(allocs), (AllocState::Running, ShownState::Running));
            let facts = ExitFacts {
                status: ExitStatus::Code(3),
                oom: false,
                on_request: false,
                will_restart: true,
                result: None,
                finished_at: Some(Timestamp(at)),
            };
            allocs.end("/docker/1", Some(facts), Timestamp(at)).unwrap();
            assert_eq!(shown(allocs), (AllocState::Pending, ShownState::Backoff));
        };
        ends(&mut allocs, 10);
        ends(&mut allocs, 20);
        assert!(allocs.may_wait(Timestamp(21)));
        assert!(allocs.set_waits(Timestamp(30), |id| id == "1").is_empty(), "it still waits");
        assert!(allocs.set_waits(Timestamp(15), |_| false).is_empty(), "that was its life before");
        assert_eq!(allocs.set_waits(Timestamp(30), |_| false), std::slice::from_ref(&id));
        assert_eq!(shown(&allocs), (AllocState::Failed, ShownState::Dead));
        assert!(!allocs.may_wait(Timestamp(31)) && allocs.set_waits(Timestamp(30), |_| true).is_empty());
    }

    #[test]
    fn wait_for_a_restart_that_the_daemon_reports_late_is_shown_then() {
        let (mut allocs, id) = (ObservedAllocs::default(), AllocId::from("docker:web"));
        let second = |n: u64| Timestamp(n * 1_000_000_000);
        let state = |allocs: &ObservedAllocs| allocs.published(&id).unwrap().observed.unwrap().tasks[0].state();
        let live = |allocs: &mut ObservedAllocs, facts| {
            allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
            assert!(!allocs.may_wait(second(10)), "it runs");
            allocs.end("/docker/1", facts, second(10)).unwrap();
            assert_eq!(state(allocs), ShownState::Dead);
        };
        live(&mut allocs, None);
        assert!(allocs.may_wait(second(11)) && !allocs.may_wait(second(10 + 120)));
        assert!(allocs.set_waits(second(11), |_| false).is_empty() && allocs.may_wait(second(12)), "too early to say");
        assert_eq!(allocs.set_waits(second(13), |_| true), std::slice::from_ref(&id));
        assert_eq!(state(&allocs), ShownState::Backoff);
        live(&mut allocs, None);
        assert!(allocs.set_waits(second(40), |_| false).is_empty() && !allocs.may_wait(second(41)), "it is over");
        let (status, on_request) = (ExitStatus::Code(3), true);
        let (oom, will_restart, result, finished_at) = (false, false, None, None);
        live(&mut allocs, Some(ExitFacts { status, oom, on_request, will_restart, result, finished_at }));
        assert!(!allocs.may_wait(second(11)), "a stop is final");
    }

    /// Promise (Observed workloads): A container that waits for its restart when the agent starts is in `backoff`, and
    /// no end of it is counted
    #[test]
    fn container_that_waits_when_the_agent_starts_is_in_backoff_until_it_begins() {
        let (mut allocs, id) = (ObservedAllocs::default(), AllocId::from("docker:web"));
        let waiting = |container: &str| WaitingTask {
            container: container.to_owned(),
            source: AllocSource::Docker,
            naming: TaskNaming { workload: Some("shop".to_owned()), ..TaskNaming::of("web") },
            rule: None,
            labels: Vec::new(),
            last: ExitFacts {
                status: ExitStatus::Code(3),
                oom: false,
                on_request: false,
                will_restart: true,
                result: None,
                finished_at: Some(Timestamp(5)),
            },
        };
        let shown = |allocs: &ObservedAllocs| allocs.published(&id).unwrap().observed.unwrap();
        let state = |allocs: &ObservedAllocs| (shown(allocs).state(), shown(allocs).tasks[0].state());
        assert_eq!(allocs.show_waiting(waiting("1"), Timestamp(9)).as_ref(), Some(&id));
        assert_eq!(state(&allocs), (AllocState::Pending, ShownState::Backoff));
        assert_eq!((shown(&allocs).finished_at(), shown(&allocs).tasks[0].since), (None, Some(Timestamp(5))));
        assert_eq!((allocs.running(), allocs.may_wait(Timestamp(10))), (0, true));
        assert_eq!(allocs.show_waiting(waiting("2"), Timestamp(9)), None, "the first one has the name");
        assert!(allocs.set_waits(Timestamp(10), |id| id == "1").is_empty());

        let (started, _) = allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
        assert_eq!((&started, state(&allocs)), (&id, (AllocState::Running, ShownState::Running)));
        let task_now = Arc::clone(&shown(&allocs).tasks[0]);
        assert_eq!((task_now.restarts_total(), task_now.exits.len()), (1, 0), "that end was not seen");
        assert_eq!(allocs.show_waiting(waiting("1"), Timestamp(11)), None, "a late reply");

        let mut allocs = ObservedAllocs::default();
        allocs.show_waiting(waiting("1"), Timestamp(9)).unwrap();
        assert_eq!(allocs.set_waits(Timestamp(10), |_| false), std::slice::from_ref(&id));
        assert_eq!(state(&allocs).1, ShownState::Dead);
        assert_eq!(allocs.forget(std::slice::from_ref(&id)), std::slice::from_ref(&id));
    }

    #[test]
    fn a_pause_changes_the_state_of_a_task_that_runs_and_ends_with_it() {
        let (mut allocs, id) = (ObservedAllocs::default(), AllocId::from("docker:web"));
        let state = |allocs: &ObservedAllocs| allocs.published(&id).unwrap().observed.unwrap().tasks[0].state();
        allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
        assert_eq!(allocs.set_paused("/docker/1", true), Some(id.clone()));
        assert_eq!((allocs.set_paused("/docker/1", true), state(&allocs)), (None, ShownState::Paused));
        assert_eq!(allocs.set_paused("/docker/2", true), None);
        allocs.end("/docker/1", None, Timestamp(9)).unwrap();
        assert_eq!(state(&allocs), ShownState::Dead);
        allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
        allocs.set_paused("/docker/1", true);
        allocs.cover("/docker/1", Timestamp(9)).unwrap();
        assert_eq!(state(&allocs), ShownState::Dead);
    }

    /// The restart delay grows each time, and the final series may be delivered in between.
    ///
    /// Promise (Observed workloads): A workload that returns within an hour after its last series was delivered
    /// continues from its values
    #[test]
    fn workload_that_returns_within_an_hour_continues_and_later_starts_at_zero() {
        let (mut allocs, id) = (ObservedAllocs::default(), AllocId::from("docker:web"));
        let minute = |n: u64| Timestamp(n * 60_000_000_000);
        let live = |allocs: &mut ObservedAllocs, n: u64| {
            allocs.begin(task("/docker/1", "web", "web", reader(10, 100)));
            let facts = ExitFacts {
                status: ExitStatus::Code(3),
                oom: false,
                on_request: false,
                will_restart: false,
                result: None,
                finished_at: Some(minute(n)),
            };
            allocs.end("/docker/1", Some(facts), minute(n)).unwrap();
            let restarts = allocs.published(&id).unwrap().observed.unwrap().tasks[0].restarts;
            assert_eq!(allocs.forget(std::slice::from_ref(&id)).len(), 1);
            restarts
        };
        assert_eq!(live(&mut allocs, 1), [0; 3]);
        allocs.forget_earlier(minute(60));
        assert_eq!(live(&mut allocs, 62), [0, 1, 0]);
        allocs.forget_earlier(minute(123));
        assert_eq!(live(&mut allocs, 124), [0; 3]);
        for n in 0..1_500 {
            allocs.begin(task("/docker/2", &format!("job-{n}"), "job", reader(1, 1)));
            allocs.end("/docker/2", None, minute(125).plus(Nanos(n))).unwrap();
            allocs.forget(&[AllocId::new(format!("docker:job-{n}"))]);
        }
        allocs.forget_earlier(minute(126));
        assert_eq!(allocs.forgotten.len(), MAX_RETAINED);
        assert!(allocs.forgotten.keys().all(|(id, _)| id.as_str() != "docker:job-0"), "the oldest ones go");
    }

    #[test]
    fn two_running_tasks_of_one_name_are_distinguished() {
        let mut allocs = ObservedAllocs::default();
        let (first, _) = allocs.begin(task("/a/1", "web", "web", reader(1, 1)));
        let (second, _) = allocs.begin(task("/b/1", "web", "web", reader(2, 2)));
        assert!(first != second && second.as_str().starts_with("docker:web~"), "{first} {second}");
        assert_eq!(allocs.by_source()[&AllocSource::Docker], 2);
        assert!(allocs.forget(&[first, second]).is_empty(), "what runs is not forgotten");
    }

    /// A process may claim to be of any job.
    #[test]
    fn a_step_in_the_directory_of_another_job_is_none_of_a_job_that_runs() {
        let mut allocs = ObservedAllocs::default();
        let step = |path: &str, step: &str| NewTask {
            alloc_cgroup: AllocCgroupRule::Parent,
            ..task(path, "42", step, reader(1, 1))
        };
        let ids = [("/job_42/step_0", "0"), ("/job_42/step_1", "1"), ("/s7Q2MMXBYH4E00/step_2", "2")];
        let ids = ids.map(|(path, name)| allocs.begin(step(path, name)).0);
        assert_eq!((ids[0].as_str(), &ids[1]), ("docker:42", &ids[0]));
        assert!(ids[2].as_str().starts_with("docker:42~"), "{ids:?}");
    }

    #[test]
    fn an_alloc_of_several_tasks_ends_with_the_last_of_them() {
        let mut allocs = ObservedAllocs::default();
        let (id, _) = allocs.begin(task("/pod/1", "shop/web", "app", reader(1, 1)));
        let (same, _) = allocs.begin(task("/pod/2", "shop/web", "sidecar", reader(2, 2)));
        assert_eq!(id, same);
        allocs.end("/pod/1", None, Timestamp(9));
        let shown = |allocs: &ObservedAllocs| allocs.published(&id).unwrap();
        assert_eq!(shown(&allocs).observed.unwrap().ended_at, None);
        assert_eq!(shown(&allocs).readers.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        allocs.end("/pod/2", None, Timestamp(11));
        assert_eq!(shown(&allocs).observed.unwrap().ended_at, Some(Timestamp(11)));
        assert!(allocs.end("/pod/2", None, Timestamp(12)).is_none(), "once");
    }

    #[test]
    fn observed_alloc_takes_missing_identity_from_another_task() {
        let mut allocs = ObservedAllocs::default();
        let known = TaskNaming {
            name: "train".to_owned(),
            task: "batch".to_owned(),
            workload: Some("physics".to_owned()),
            namespace: "gpu".to_owned(),
            ..TaskNaming::of("42")
        };
        let new_task = |path: &str, naming: TaskNaming| NewTask { naming, ..task(path, "42", "", reader(1, 1)) };
        allocs.begin(new_task("/job/batch", known));
        let (id, _) =
            allocs.begin(new_task("/job/extern", TaskNaming { task: "extern".to_owned(), ..TaskNaming::of("42") }));
        let identity = allocs.published(&id).unwrap().identity;
        assert_eq!(
            (identity.name.as_str(), identity.workload.as_ref().map(JobId::as_str), identity.namespace.as_str()),
            ("train", Some("physics"), "gpu")
        );
    }

    #[test]
    fn a_name_that_comes_late_changes_what_it_is_called_and_not_its_id() {
        let mut allocs = ObservedAllocs::default();
        let (id, _) = allocs.begin(task("/a", "0123", "0123", reader(1, 1)));
        let named = TaskNaming { workload: Some("late".to_owned()), ..TaskNaming::of("web") };
        assert_eq!(allocs.rename("/a", &named, None, Vec::new()), Some(id.clone()));
        assert_eq!(allocs.rename("/a", &named, None, Vec::new()), None, "the same again is no news");
        let shown = allocs.published(&id).unwrap();
        assert_eq!((shown.identity.name.as_str(), shown.identity.tasks[0].name.as_str()), ("web", "0123"));
        assert_eq!(shown.observed.unwrap().native, "web", "commands take its name");
    }

    /// Labels and images belong to containers, the workload to their pod.
    ///
    /// Promise (Observed workloads): A pod has the workload of the first rule that one of its containers matches
    #[test]
    fn pod_workload_is_that_of_the_first_rule_matched_by_any_container_in_any_order() {
        let by = |rule: Option<usize>, workload: &str, path: &str| {
            let naming =
                TaskNaming { workload: Some(workload.to_owned()), task: path.to_owned(), ..TaskNaming::of("shop/web") };
            NewTask { naming, rule, ..task(path, "shop/web", path, reader(1, 1)) }
        };
        let tasks = [(None, "shop/web", "/pod/none"), (Some(0), "first", "/pod/0"), (Some(1), "second", "/pod/1")];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut allocs = ObservedAllocs::default();
            let ids = order.map(|n| tasks[n]).map(|(rule, name, path)| allocs.begin(by(rule, name, path)).0);
            let workload = |allocs: &ObservedAllocs| allocs.published(&ids[0]).unwrap().identity.workload.clone();
            assert_eq!(workload(&allocs), Some("first".into()), "{order:?}");
            // Another life, which no rule matches.
            tasks.iter().for_each(|(_, _, path)| drop(allocs.end(path, None, Timestamp(9))));
            allocs.begin(by(None, "shop/web", "/pod/none"));
            assert_eq!(workload(&allocs), Some("shop/web".into()), "{order:?}");
        }
    }

    #[test]
    fn ids_are_bounded_printable_and_each_its_own() {
        let id = |native: &str| ObservedAllocs::id_of(AllocSource::Cgroup, native);
        assert_eq!(ObservedAllocs::id_of(AllocSource::Kubernetes, "shop/web"), "k8s:shop/web");
        let long = "ä".repeat(4_000);
        let all = ["/a", "/a?", "/a\n", "/a\t", "/a\u{efff}", "/a\\xff", &long, &format!("{long}x")].map(id);
        assert!(
            all.iter().all(|id| id.len() <= crate::model::text::LONGEST_LABEL_VALUE && !id.contains(char::is_control)),
            "{all:?}"
        );
        assert_eq!((&*all[1], &*all[5]), ("cgroup:/a?", "cgroup:/a\\xff"), "what can be shown is");
        assert!(all[4].starts_with("cgroup:/a\\xff~"), "{all:?}");
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len(), "{all:?}");
    }
}
