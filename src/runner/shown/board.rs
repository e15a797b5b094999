//! What runners publish: the only way up. A short lock; everything on it is shared and immutable.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::collectors::TaskReader;
use crate::model::alloc::AllocStatus;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, JobId, TaskName};
use crate::model::metric::{Exemplar, Value};
use crate::model::task::{Exit, ExitStatus, Outcome, RestartReason, padded};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;
use crate::runner::kept::marks::Marks;

/// An alloc as it stands on the board.
#[derive(Debug, Clone)]
pub struct Published {
    pub status: Arc<AllocStatus>,
    /// In the order of `status.tasks`: the reader of the attempt that runs; `None` between attempts and after the end.
    /// At the moment when a reader goes, the attempt's usage is in `TaskStatus::base` and in [`Totals`] already.
    pub readers: Vec<Option<Arc<TaskReader>>>,
    /// In the order of `status.tasks`: up to when its present state is shown.
    pub until: Vec<Arc<Until>>,
    /// The alloc's own parent cgroup, while it exists.
    pub alloc_reader: Option<Arc<TaskReader>>,
    /// What the alloc's cgroup said last, once it was removed; counters of earlier cgroups of this alloc before that.
    pub alloc_base: Arc<Usage>,
}

/// Up to when a task's state is shown. Its owner has left it by then, and is writing that down: were the dwell shown to go on
/// meanwhile, it would be shorter after a crash than it was before.
///
/// Who shows a dwell takes its moment first and asks then; who leaves a state says so first and takes its moment then.
#[derive(Debug)]
pub struct Until(AtomicU64);

impl Default for Until {
    fn default() -> Until {
        Until(AtomicU64::new(u64::MAX))
    }
}

impl Until {
    pub fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
    pub fn at_most(&self, at: Timestamp) {
        self.0.fetch_min(at.0, Ordering::SeqCst);
    }
}

/// What a workload's task (all its allocs together) used and went through.
///
/// `usage`, `exits`, `exit_codes`, `exit_signals` and `run_ns` are of *ended* attempts: `snapshot` adds the running ones.
/// `restarts` and `events` are counted when they happen, in running allocs too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskTotals {
    /// When the first alloc with this task was submitted; `None`: an agent that did not note it handed something over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    pub usage: Usage,
    /// In the order of `Outcome::ALL`.
    pub exits: [u64; 6],
    /// By exit code of an error, by number of a signal.
    pub exit_codes: BTreeMap<u8, u64>,
    pub exit_signals: BTreeMap<u8, u64>,
    /// In the order of `RestartReason::ALL`.
    #[serde(deserialize_with = "padded")]
    pub restarts: [u64; 4],
    /// By event label.
    pub events: BTreeMap<String, u64>,
    /// Seconds that tasks ran, by outcome.
    pub run_ns: [u64; 6],
    pub kill_escalations: u64,
    pub given_up: u64,
    /// Of this agent's process alone: whoever collects them has those of earlier ones.
    #[serde(skip)]
    pub latest: Option<Box<Latest>>,
}

/// Whose the latest of what [`TaskTotals`] counts was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latest {
    /// In the order of `Outcome::ALL`.
    pub exits: [Option<Exemplar>; 6],
    pub exit_codes: BTreeMap<u8, Option<Exemplar>>,
    pub exit_signals: BTreeMap<u8, Option<Exemplar>>,
    pub oom_kill: Option<Exemplar>,
    pub escalation: Option<Exemplar>,
    pub given_up: Option<Exemplar>,
}

/// What workloads handed over 24 h after their last alloc; never falls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTotals {
    pub totals: TaskTotals,
    /// Allocs taken on in the agent's whole life, live ones included.
    pub allocs: u64,
}

impl TaskTotals {
    /// An attempt has ended. One that could not be started used what it used, and is no exit: its event and its restart
    /// count it.
    pub fn add_exit(&mut self, exit: &Exit) {
        self.usage.add_counters(&exit.usage);
        if exit.status.never_ran() {
            return;
        }
        let outcome = exit.outcome.index();
        self.exits[outcome] = self.exits[outcome].saturating_add(1);
        match (&exit.status, exit.outcome) {
            (ExitStatus::Code(code), Outcome::Error) => *self.exit_codes.entry(*code).or_default() += 1,
            (ExitStatus::Signal(signal), Outcome::Signal) => *self.exit_signals.entry(*signal).or_default() += 1,
            // The other outcomes say all there is to say.
            (ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::NotStarted(_) | ExitStatus::Unknown(_), _) => {}
        }
        if let Some(started_at) = exit.started_at {
            let ran = exit.finished_at.since(started_at).0;
            self.run_ns[outcome] = self.run_ns[outcome].saturating_add(ran);
        }
    }
    /// Whose the exit was that was just added.
    pub fn note_exit(&mut self, exit: &Exit, whose: &Exemplar) {
        let latest = self.latest.get_or_insert_default();
        if let Some(kills) = exit.oom_kills.filter(|kills| *kills > 0) {
            Exemplar { value: Value::Int(kills), ..whose.clone() }.replace(&mut latest.oom_kill);
        }
        if exit.status.never_ran() {
            return;
        }
        whose.clone().replace(&mut latest.exits[exit.outcome.index()]);
        let number = match (&exit.status, exit.outcome) {
            (ExitStatus::Code(code), Outcome::Error) => latest.exit_codes.entry(*code).or_default(),
            (ExitStatus::Signal(signal), Outcome::Signal) => latest.exit_signals.entry(*signal).or_default(),
            (ExitStatus::Code(_) | ExitStatus::Signal(_) | ExitStatus::NotStarted(_) | ExitStatus::Unknown(_), _) => {
                return;
            }
        };
        whose.clone().replace(number);
    }
    pub fn add_escalation(&mut self, whose: Exemplar) {
        self.kill_escalations = self.kill_escalations.saturating_add(1);
        whose.replace(&mut self.latest.get_or_insert_default().escalation);
    }
    pub fn add_given_up(&mut self, whose: Exemplar) {
        self.given_up = self.given_up.saturating_add(1);
        whose.replace(&mut self.latest.get_or_insert_default().given_up);
    }
    pub fn add_restart(&mut self, reason: RestartReason) {
        self.restarts[reason.index()] = self.restarts[reason.index()].saturating_add(1);
    }
    pub fn add_event(&mut self, kind: EventKind) {
        *self.events.entry(kind.label().to_owned()).or_default() += 1;
    }
    /// All of another's on top of ours. Of two beginnings the earlier one; where one is not known, neither is that of both.
    pub fn merge(&mut self, other: &TaskTotals) {
        self.created = self.created.zip(other.created).map(|(ours, theirs)| ours.min(theirs));
        self.usage.add_counters(&other.usage);
        for (mine, theirs) in self.exits.iter_mut().zip(other.exits) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in self.restarts.iter_mut().zip(other.restarts) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in self.run_ns.iter_mut().zip(other.run_ns) {
            *mine = mine.saturating_add(theirs);
        }
        for (code, n) in &other.exit_codes {
            *self.exit_codes.entry(*code).or_default() += n;
        }
        for (signal, n) in &other.exit_signals {
            *self.exit_signals.entry(*signal).or_default() += n;
        }
        for (label, n) in &other.events {
            *self.events.entry(label.clone()).or_default() += n;
        }
        self.kill_escalations = self.kill_escalations.saturating_add(other.kill_escalations);
        self.given_up = self.given_up.saturating_add(other.given_up);
    }
}

#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Each task of each job that was ever submitted and has not retired: there from the submission on, at 0.
    pub workloads: BTreeMap<(JobId, TaskName), Arc<TaskTotals>>,
    /// Seconds that ended allocs ran, by outcome (Outcome::ALL of the alloc's worst task), per workload.
    pub alloc_run: BTreeMap<JobId, [Nanos; 6]>,
    pub node: Arc<NodeTotals>,
}

/// One consistent look at the board: an attempt is either live or in the totals, never both, never neither.
impl Totals {
    pub fn task_mut(&mut self, job: &JobId, task: &TaskName) -> &mut TaskTotals {
        Arc::make_mut(self.workloads.entry((job.clone(), task.clone())).or_default())
    }
    /// The task of a new alloc: at 0, if it is the first one.
    pub fn submitted(&mut self, job: &JobId, task: &TaskName, at: Timestamp) {
        let new = || Arc::new(TaskTotals { created: Some(at), ..TaskTotals::default() });
        self.workloads.entry((job.clone(), task.clone())).or_insert_with(new);
    }
    /// On top of what is there of this task.
    pub fn add(&mut self, job: &JobId, task: &TaskName, more: &TaskTotals) {
        match self.workloads.entry((job.clone(), task.clone())) {
            Entry::Vacant(entry) => drop(entry.insert(Arc::new(more.clone()))),
            Entry::Occupied(mut entry) => Arc::make_mut(entry.get_mut()).merge(more),
        }
    }
    pub fn add_alloc_run(&mut self, job: &JobId, outcome: Outcome, ran: Nanos) {
        let run = &mut self.alloc_run.entry(job.clone()).or_default()[outcome.index()];
        *run = run.saturating_add(ran);
    }
}

#[derive(Debug, Clone, Default)]
pub struct BoardView {
    /// Grows with each change.
    pub version: u64,
    /// In order of creation.
    pub allocs: Vec<Arc<Published>>,
    pub totals: Arc<Totals>,
}

/// Concurrency: any thread. Runners publish, `snapshot` looks; the lock is held for some microseconds at most.
#[derive(Debug, Default)]
pub struct Board {
    inner: Mutex<Inner>,
    changed: Condvar,
    marks: Arc<Marks>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    allocs: Vec<Arc<Published>>,
    places: HashMap<AllocId, usize>,
    totals: Arc<Totals>,
    /// The last view that was asked for, until something changes.
    view: Option<Arc<BoardView>>,
}

impl Board {
    pub fn new(totals: Totals, marks: Arc<Marks>) -> Board {
        let inner = Mutex::new(Inner { totals: Arc::new(totals), ..Inner::default() });
        Board { inner, changed: Condvar::new(), marks }
    }

    /// Whatever is shown from now on counts up to this moment: told before it is shown.
    pub fn mark(&self, upto: Timestamp) {
        self.marks.mark_time(upto);
    }
    /// The latest moment that was ever counted up to, by agents before this one too.
    pub fn marked(&self) -> Timestamp {
        self.marks.time()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything as it stands at this moment. Costs one reference count per alloc after a change, nothing otherwise.
    pub fn view(&self) -> Arc<BoardView> {
        let mut inner = self.lock();
        if let Some(view) = &inner.view {
            return Arc::clone(view);
        }
        let view = Arc::new(BoardView {
            version: inner.version,
            allocs: inner.allocs.clone(),
            totals: Arc::clone(&inner.totals),
        });
        inner.view = Some(Arc::clone(&view));
        view
    }

    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Blocks until the version is not `seen` any more, for `timeout` at most; tells the version.
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let deadline = Instant::now() + timeout;
        let mut inner = self.lock();
        while inner.version == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.version
    }

    pub fn get(&self, id: &AllocId) -> Option<Arc<Published>> {
        let inner = self.lock();
        inner.places.get(id).and_then(|place| inner.allocs.get(*place)).cloned()
    }

    /// Shows these allocs, new ones at the end, and changes the totals with them: nobody sees one without the other.
    pub fn publish(&self, allocs: impl IntoIterator<Item = Published>, change: impl FnOnce(&mut Totals)) {
        self.change(|inner| {
            for alloc in allocs {
                let alloc = Arc::new(alloc);
                match inner.places.get(&alloc.status.id) {
                    Some(&place) => inner.allocs[place] = alloc,
                    None => {
                        inner.places.insert(alloc.status.id.clone(), inner.allocs.len());
                        inner.allocs.push(alloc);
                    }
                }
            }
            change(Arc::make_mut(&mut inner.totals));
        });
    }

    /// Takes allocs off the board. Their totals stay, unless `change` says otherwise.
    pub fn remove(&self, ids: &[AllocId], change: impl FnOnce(&mut Totals)) {
        self.change(|inner| {
            let gone: HashSet<&AllocId> = ids.iter().collect();
            inner.allocs.retain(|a| !gone.contains(&a.status.id));
            inner.places = inner.allocs.iter().enumerate().map(|(i, a)| (a.status.id.clone(), i)).collect();
            change(Arc::make_mut(&mut inner.totals));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        // Dropped first, so that totals which only the cached view shared need no copy.
        inner.view = None;
        change(&mut inner);
        inner.version += 1;
        drop(inner);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::{AllocState, Desired, Measured};
    use crate::model::id::GroupName;
    use crate::model::job::{Job, JobKind};
    use crate::model::usage::Field;

    fn published(id: &str, generation: u64) -> Published {
        let job = Arc::new(Job {
            id: "j".into(),
            name: "j".to_owned(),
            kind: JobKind::Batch,
            namespace: String::new(),
            region: String::new(),
            datacenters: Vec::new(),
            meta: BTreeMap::new(),
            groups: Vec::new(),
        });
        let status = AllocStatus {
            id: id.into(),
            job,
            group: GroupName::from("g"),
            index: 0,
            name: String::new(),
            created_at: Timestamp(0),
            finished_at: None,
            desired: Desired::Run,
            state: AllocState::Pending,
            forced: None,
            measured: Measured::None,
            cgroup: None,
            tasks: Vec::new(),
            sought: Vec::new(),
            may_run: Vec::new(),
            generation,
        };
        Published {
            status: Arc::new(status),
            readers: Vec::new(),
            until: Vec::new(),
            alloc_reader: None,
            alloc_base: Arc::default(),
        }
    }

    #[test]
    fn a_view_is_shared_until_something_changes_and_never_changes_itself() {
        let board = Board::default();
        board.publish([published("a", 1), published("b", 1)], |_| {});
        let before = board.view();
        assert!(Arc::ptr_eq(&before, &board.view()));
        board.publish([published("a", 2)], |t| t.task_mut(&"j".into(), &"t".into()).add_restart(RestartReason::Oom));
        let after = board.view();
        assert_eq!(before.allocs[0].status.generation, 1);
        assert!(before.totals.workloads.is_empty());
        assert_eq!(after.allocs.iter().map(|a| a.status.generation).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(after.totals.workloads[&("j".into(), "t".into())].restarts, [0, 1, 0, 0]);
        assert!(after.version > before.version);
    }

    #[test]
    fn removed_allocs_are_gone_and_the_order_of_the_others_stays() {
        let board = Board::default();
        board.publish(["a", "b", "c"].map(|id| published(id, 1)), |_| {});
        board.remove(&["a".into()], |_| {});
        board.publish([published("c", 2)], |_| {});
        let ids: Vec<_> = board.view().allocs.iter().map(|a| (a.status.id.to_string(), a.status.generation)).collect();
        assert_eq!(ids, [("b".to_owned(), 1), ("c".to_owned(), 2)]);
        assert!(board.get(&"a".into()).is_none());
    }

    #[test]
    fn waiting_ends_with_a_change_or_with_the_timeout() {
        let board = Arc::new(Board::default());
        let seen = board.version();
        assert_eq!(board.wait_change(seen, Duration::from_millis(1)), seen);
        let waiter = std::thread::spawn({
            let board = Arc::clone(&board);
            move || board.wait_change(seen, Duration::from_secs(60))
        });
        board.publish([published("a", 1)], |_| {});
        assert!(waiter.join().unwrap() > seen);
    }

    #[test]
    fn merging_totals_adds_every_field() {
        let exit = Exit {
            attempt: 0,
            outcome: Outcome::Error,
            status: ExitStatus::Code(3),
            started_at: Some(Timestamp(10)),
            finished_at: Timestamp(15),
            oom_kills: Some(0),
            usage: Arc::new(Usage::from([(Field::cpu_usage_ns, 7), (Field::memory_peak_bytes, 9)])),
        };
        let mut one = TaskTotals { created: Some(Timestamp(7)), ..TaskTotals::default() };
        one.add_exit(&exit);
        one.add_restart(RestartReason::Policy);
        one.add_event(EventKind::Started);
        one.add_exit(&Exit { outcome: Outcome::Signal, status: ExitStatus::Signal(6), ..exit.clone() });
        let mut both = one.clone();
        both.merge(&TaskTotals { created: Some(Timestamp(5)), ..one.clone() });
        assert_eq!(both.created, Some(Timestamp(5)), "the earlier one");
        assert_eq!(both.usage, Usage::from([(Field::cpu_usage_ns, 28)]), "a peak is never summed");
        assert_eq!(both.exits, [0, 2, 2, 0, 0, 0]);
        assert_eq!(both.exit_codes, BTreeMap::from([(3, 2)]));
        assert_eq!(both.exit_signals, BTreeMap::from([(6, 2)]));
        assert_eq!(both.restarts, [2, 0, 0, 0]);
        assert_eq!(both.run_ns, [0, 10, 10, 0, 0, 0]);
        assert_eq!(both.events, BTreeMap::from([("started".to_owned(), 2)]));
    }
}
