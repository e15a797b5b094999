//! The observer thread: finds cgroups, queries their names, publishes them on the board, and removes them when their
//! final series were delivered.
//!
//! ```text
//!              fresh ──► has processes? ──► read ──► named? ──► shown ──► cgroup removed ──► exit known? ──► ended
//!  found ──┐   20 ms     waits for one              2 s at most                           12 s at most
//!          └── excluded, or over the limit: set aside, counted
//! ```
//! `lives` decides each of these steps. A source is queried about an end for 10 s at most.
//! If the kernel reports ends (`removed`), final values and exit come from there, and short lives are shown with their
//! whole usage. Observed cgroups are never written to.

mod acting;
mod facts;
mod follow;
mod groups;
mod last;
mod pace;
mod parents;
mod paused;
mod removed;
mod shares;
mod sums;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::pace::TurnPace;
use self::parents::ParentTable;
use self::shares::UserQuotas;
use super::Config;
use super::exits::EndReport;
use super::identity::{AllocCgroupRule, TaskNaming};
use super::journal::{ObservedJournal, RecordLocation};
use super::lives::{AllLives, LifeEvent, LifeTypes, Lives};
use super::observed_allocs::{ObservedAllocs, TotalsChange};
use super::processes::ProcessGroups;
use super::runtime_queries::{RuntimePaths, RuntimeQueries, SourceReply};
use super::scanner::{CgroupScanner, ScanChanges};
use crate::board::Board;
use crate::collectors::{CgroupEndTracer, EndedCgroup, SamplingContext, TaskReader};
use crate::host::clock::Clock;
use crate::host::inotify::WakeSignal;
use crate::model::id::{AllocId, CgroupPath, JobId, TaskName};
use crate::model::units::Timestamp;
use crate::telemetry::{Metrics, lock};

/// Read interval of unnamed tasks.
const UNNAMED: Duration = Duration::from_millis(50);
/// Check interval of cgroups without processes in hierarchies that do not report the first process.
const BEAT: Duration = Duration::from_secs(1);
/// Interval of the scan for unreported changes.
const SWEEP: Duration = Duration::from_secs(10);
/// Interval for persisting the usage of running tasks.
const PERSIST_USAGE_EVERY: Duration = Duration::from_secs(300);

/// Dependencies of an observer.
pub struct Parts {
    pub config: Config,
    pub sampling: Arc<SamplingContext>,
    /// Source of end records. `None`: the last reading is final.
    pub ends: Option<CgroupEndTracer>,
    pub board: Arc<Board>,
    /// The parent cgroup of managed tasks.
    pub managed_parent: CgroupPath,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Where totals are persisted. `None`: they end with this agent.
    pub keep: Option<RecordLocation>,
}

/// A running observer thread. Dropping it stops the thread.
pub struct Observer {
    stop: Arc<AtomicBool>,
    wake: WakeSignal,
    delivered: Arc<Mutex<Vec<AllocId>>>,
    waiting: Arc<AtomicUsize>,
    is_short: Arc<AtomicBool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Observer {
    /// Starts the thread. Existing workloads are on the board soon after: see [`Observer::is_settled`]. Errors: no
    /// thread or file descriptor available.
    pub fn start(parts: Parts) -> std::io::Result<Observer> {
        let runtime_queries =
            RuntimeQueries::new(RuntimePaths::new(parts.sampling.roots.clone(), &parts.config), &parts.config)?;
        let wake_signal = runtime_queries.wake_signal();
        let (stop, delivered) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<AllocId>>>::default());
        let waiting = Arc::new(AtomicUsize::new(usize::MAX));
        let mut work = ObserverThread::new(parts, runtime_queries, Arc::clone(&delivered), Arc::clone(&waiting));
        let is_short = Arc::clone(&work.is_short);
        let stopped = Arc::clone(&stop);
        let begin = move || {
            work.begin();
            while !stopped.load(Ordering::Relaxed) {
                work.turn();
            }
            work.keep_usage();
        };
        let thread = std::thread::Builder::new().name("observer".into()).spawn(begin)?;
        Ok(Observer { stop, wake: wake_signal, delivered, waiting, is_short, thread: Mutex::new(Some(thread)) })
    }

    /// Whether all running workloads have been found and named.
    pub fn is_settled(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether to skip new workloads because memory is short. Skipped ones are added later if they still run.
    pub fn set_memory_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// The final series of these allocs were delivered; observed ones among them are removed.
    pub fn delivered(&self, ids: impl IntoIterator<Item = AllocId>) {
        let mut delivered = lock(&self.delivered);
        delivered.extend(ids);
        if !delivered.is_empty() {
            self.wake.ring();
        }
    }
}

impl Observer {
    /// Stops the thread. Persisted state is on disk when this returns.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.ring();
        if let Some(thread) = lock(&self.thread).take() {
            // The thread panicked, which was logged.
            let _ = thread.join();
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tasks are measured in cgroups.
#[derive(Debug, Default)]
struct CgroupMeasures;

impl LifeTypes for CgroupMeasures {
    type Task = Arc<MeasuredTask>;
    /// Inodes by the index of the hierarchy.
    type Cgroup = Box<[(usize, u64)]>;
    type Record = EndedCgroup;
}

/// What is measured of a task.
#[derive(Debug)]
struct MeasuredTask {
    reader: Arc<TaskReader>,
    /// Of its alloc's own cgroup, with the path, if that is another one.
    alloc_reader: Option<(String, Arc<TaskReader>)>,
    since: Option<Timestamp>,
    /// Its cgroup has usage that is counted elsewhere.
    is_counted: bool,
}

/// State of the observer thread.
struct ObserverThread {
    parts: Parts,
    scanner: CgroupScanner,
    runtime_queries: RuntimeQueries,
    wake: WakeSignal,
    allocs: ObservedAllocs,
    delivered: Arc<Mutex<Vec<AllocId>>>,
    /// Number of tasks that are measured and not shown yet.
    waiting: Arc<AtomicUsize>,
    /// Memory is short: nothing is added.
    is_short: Arc<AtomicBool>,
    lives: AllLives<CgroupMeasures>,
    /// Number of lives that were numbered.
    numbers: Cell<u64>,
    /// Where the last round of checks of empty cgroups stopped, and the number of rounds.
    check_round: (String, usize),
    /// The emptied task that was answered last.
    last_answered: String,
    shares: UserQuotas,
    /// `None`: processes without a cgroup are not observed.
    processes: Option<ProcessGroups>,
    /// The parent cgroups of the shown tasks.
    parents: ParentTable,
    touched: BTreeSet<AllocId>,
    changes: Vec<TotalsChange>,
    journal: ObservedJournal,
    /// Last time that a workload had a task.
    seen: HashMap<(JobId, TaskName), Instant>,
    next_beat: Instant,
    next_sweep: Instant,
    next_usage: Instant,
    pace: TurnPace,
    has_started: bool,
}

impl ObserverThread {
    fn new(
        parts: Parts,
        runtime_queries: RuntimeQueries,
        delivered: Arc<Mutex<Vec<AllocId>>>,
        waiting: Arc<AtomicUsize>,
    ) -> ObserverThread {
        let now = parts.clock.instant();
        let mut all_parents = ParentTable::new(&parts.sampling, &parts.config);
        // The managed tasks, which are all below it.
        all_parents.begin(&format!("{}/", parts.managed_parent.as_str()), AllocCgroupRule::Task, None);
        let shares = UserQuotas::new(parts.config.max_allocs);
        let processes = parts.config.processes.then(|| ProcessGroups::new(&parts.sampling, &parts.clock));
        ObserverThread {
            scanner: CgroupScanner::new(&parts.sampling, parts.managed_parent.as_str()),
            parts,
            wake: runtime_queries.wake_signal(),
            runtime_queries,
            allocs: ObservedAllocs::default(),
            delivered,
            waiting,
            is_short: Arc::default(),
            lives: AllLives::default(),
            numbers: Cell::new(0),
            check_round: (String::new(), 0),
            last_answered: String::new(),
            shares,
            processes,
            parents: all_parents,
            touched: BTreeSet::new(),
            changes: Vec::new(),
            journal: ObservedJournal::default(),
            seen: HashMap::new(),
            next_beat: now + BEAT,
            next_sweep: now + SWEEP,
            next_usage: now + PERSIST_USAGE_EVERY,
            pace: TurnPace::new(now),
            has_started: false,
        }
    }

    fn begin(&mut self) {
        self.scanner.scan();
        self.resume();
        self.follow();
        // The totals that are published now include the tasks that do not begin again.
        self.lives.to_sweep().iter().for_each(|path| self.happens(path, LifeEvent::Sweep));
        self.sample_processes();
        self.query_waiting();
        self.has_started = true;
        self.show();
        self.waiting.store(self.lives.waiting(), Ordering::Relaxed);
        self.count();
    }

    fn turn(&mut self) {
        self.wait();
        if let Some(pause) = self.pace.pause(self.parts.clock.instant()) {
            self.wake.wait(std::iter::empty(), pause);
        }
        let ScanChanges { removed, made, changed } = self.scanner.take_changes();
        // Final usage must be applied before the removal.
        self.process_end_records();
        self.process_changes(&removed, &made, &changed);
        self.process_replies();
        let now = self.parts.clock.instant();
        let is_time = |at: Instant| at <= now;
        let mut is_all = false;
        if is_time(self.next_beat) {
            self.next_beat = now + BEAT;
            self.sample_processes();
            self.count();
            self.journal.commit();
            self.check_empty();
            is_all |= self.has_room_for_more();
        }
        if is_time(self.next_sweep) {
            self.next_sweep = now + SWEEP;
            is_all = true;
            self.sweep(now);
        }
        if is_time(self.next_usage) {
            self.next_usage = now + PERSIST_USAGE_EVERY;
            self.keep_usage();
        }
        self.process_deadlines(&removed, is_all, now);
        self.read_unnamed();
        self.show();
        self.waiting.store(self.lives.waiting(), Ordering::Relaxed);
    }

    fn wait(&self) {
        let now = self.parts.clock.instant();
        let unnamed = self.lives.naming().next().map(|_| now + UNNAMED);
        let until = self.lives.next_due().into_iter().chain(unnamed).chain([self.next_beat, self.next_sweep]);
        let left = until.min().unwrap_or(now).saturating_duration_since(now).max(Duration::from_millis(1));
        let watched = self.scanner.watch().map(AsFd::as_fd).into_iter();
        self.wake.wait(watched.chain(self.parts.ends.as_ref().map(AsFd::as_fd)), left);
    }

    fn process_changes(&mut self, removed: &[String], made: &[String], changed: &[String]) {
        for path in removed {
            self.happens(path, LifeEvent::Removed);
        }
        // It appeared in each hierarchy, in which it may be removed again; its successor is created later.
        let made: BTreeSet<&String> = made.iter().collect();
        for path in made {
            if let Some((above, _)) = path.rsplit_once('/')
                && self.lives.get(above).is_some_and(|lives| lives.made_at().is_some())
            {
                self.happens(above, LifeEvent::Grew);
            }
            let at = self.scanner.tree().has(path).then(|| self.parts.clock.now());
            self.happens(path, LifeEvent::Made(at));
        }
        self.process_changed_events(changed);
    }

    fn process_changed_events(&mut self, changed: &[String]) {
        // A process that moves between cgroups changes each of them thousands of times a second.
        let changed: BTreeSet<&String> = changed.iter().collect();
        for path in changed {
            // Perhaps for the last time.
            self.read_last(self.reader_of(path));
            self.read_freezer(path);
            self.check_emptied(path);
            if self.lives.get(path).is_some_and(|lives| self.may_be_occupied(path, lives)) {
                self.happens(path, LifeEvent::Occupied);
            }
        }
    }

    fn process_replies(&mut self) {
        for reply in self.runtime_queries.replies() {
            match reply {
                SourceReply::Name(path, naming, changed) => {
                    self.allocs.texts.add(changed);
                    let user = self.scanner.tree().chooser(&path);
                    let naming = naming.map(|naming| Box::new(user.into_iter().fold(*naming, TaskNaming::of_user)));
                    self.happens(&path, LifeEvent::Named(naming));
                }
                SourceReply::Exit(path, number, report) => {
                    if report != EndReport::Late && self.lives.get(&path).is_some_and(Lives::is_emptied) {
                        self.last_answered.clone_from(&path);
                    }
                    self.happens(&path, LifeEvent::Exited { number, report });
                }
                SourceReply::Renamed(ids) => self.renamed(&ids),
                SourceReply::Restarting(requested_at, ids) => self.set_waits(requested_at, &ids),
                SourceReply::Waiting(all) => self.show_waiting(all),
            }
        }
    }

    fn renamed(&mut self, ids: &[String]) {
        let is_one = |lives: &Lives<CgroupMeasures>| {
            let container = lives.measured().and_then(|life| life.found.container.as_ref());
            container.is_some_and(|id| ids.binary_search(id).is_ok())
        };
        let paths = self.lives.iter().filter(|(_, lives)| is_one(lives)).map(|(path, _)| Arc::clone(path));
        paths.collect::<Vec<_>>().iter().for_each(|path| self.happens(path, LifeEvent::Renamed));
    }

    fn sweep(&mut self, now: Instant) {
        self.runtime_queries.query_renames();
        self.query_restarts();
        self.read_freezers();
        self.check_all_emptied();
        let changed = self.scanner.sweep();
        self.find_removed();
        self.process_changed_events(&changed);
        self.lives.to_sweep().iter().for_each(|path| self.happens(path, LifeEvent::Sweep));
        self.forget_totals(now);
        self.allocs.forget_earlier(self.parts.clock.now());
    }

    fn process_deadlines(&mut self, removed: &[String], is_all: bool, now: Instant) {
        let due = self.lives.due(now);
        let is_check =
            |work: &ObserverThread, path: &str| work.lives.get(path).is_some_and(|lives| lives.is_due_for_check(now));
        let checks: Vec<&Arc<str>> = due.iter().filter(|path| is_check(self, path)).collect();
        if is_all {
            self.follow();
        } else {
            let touched = removed.iter().map(|path| Arc::from(path.as_str()));
            let touched: BTreeSet<Arc<str>> = touched.chain(checks.iter().map(|path| Arc::clone(path))).collect();
            self.follow_only(&touched);
        }
        for path in checks {
            if is_check(self, path) && self.scanner.tree().task_at(path).is_none() {
                self.happens(path, LifeEvent::NoTask);
            }
        }
        due.iter().for_each(|path| self.happens(path, LifeEvent::Due));
    }

    /// Publishes the changes on the board.
    fn show(&mut self) {
        let delivered = std::mem::take(&mut *lock(&self.delivered));
        let removed = self.allocs.forget(&delivered);
        if let Some(parents) = self.parents.take_changed() {
            self.parts.board.set_parents(parents);
        }
        if self.touched.is_empty() && self.changes.is_empty() && removed.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut self.touched);
        let shown: Vec<_> = touched.iter().filter_map(|id| self.allocs.published(id)).collect();
        let changes = std::mem::take(&mut self.changes);
        let now = self.parts.clock.instant();
        self.seen.extend(changes.iter().map(|change| (change.key(), now)));
        self.parts.board.observe(shown, &removed, |totals| {
            changes.iter().for_each(|change| change.apply(totals));
            let keys: BTreeSet<_> = changes.iter().map(TotalsChange::key).collect();
            for key in keys {
                let of = totals.workloads.get(&key).map(Arc::clone);
                of.into_iter().for_each(|of| self.journal.totals(key.clone(), of));
            }
        });
        self.count();
    }
}
