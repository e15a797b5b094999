//! The observer thread: finds cgroups, asks for their names, publishes them on the board, and removes them when their
//! final series were delivered.
//!
//! ```text
//!              fresh ──► has processes? ──► read ──► named? ──► shown ──► cgroup removed ──► exit known? ──► ended
//!  found ──┐   20 ms     waits for one              2 s at most                           2 s at most
//!          └── excluded, or over the limit: set aside, counted
//! ```
//! If the kernel reports ends (`removed`), final values and exit come from there, and short lives are shown with their
//! whole usage. Observed cgroups are never written to.

mod asking;
mod follow;
mod groups;
mod last;
mod parents;
mod removed;
mod shares;
mod sums;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::parents::Parents;
use self::shares::Shares;
use super::ends::{BriefLife, EndedLives};
use super::identity::{Naming, OwnCgroup, Recognised};
use super::kept::{BegunTask, Keep, Kept, KeptTask};
use super::lives::Lives;
use super::nameless::Nameless;
use super::naming::{About, EndedLife, Inquiries, RuntimePlaces, SourceReply};
use super::processes::Processes;
use super::questions::END_IS_AWAITED;
use super::scanner::{ScanChanges, Scanner};
use super::table::{ExitFacts, NewTask, ObservedAllocs, TotalsChange};
use super::{Config, is_named_by_path, texts};
use crate::board::Board;
use crate::collectors::{EndedCgroup, KernelEnds, Sampling, TaskReader};
use crate::host::clock::Clock;
use crate::host::inotify::Bell;
use crate::model::alloc::AllocSource;
use crate::model::id::{AllocId, CgroupPath, JobId, TaskName};
use crate::model::units::Timestamp;
use crate::telemetry::{Metrics, lock};

/// A runtime creates a container's cgroups in sequence; after this time all of them exist.
const SETTLED: Duration = Duration::from_millis(20);
/// How long a task may wait for its name before it is shown, and an end for its exit status.
const ANSWER: Duration = END_IS_AWAITED;
/// An ended life waits longer for its name, because without the name it would be another alloc than the lives before
/// and after it.
const LATE_ANSWER: Duration = Duration::from_secs(10);
/// Read interval of unnamed tasks.
const UNNAMED: Duration = Duration::from_millis(50);
/// Check interval of cgroups without processes in hierarchies that do not report the first process.
const BEAT: Duration = Duration::from_secs(1);
/// Interval of the scan for unreported changes.
const SWEEP: Duration = Duration::from_secs(10);
/// Interval for persisting the usage of running tasks.
const USAGE_KEPT_EACH: Duration = Duration::from_secs(300);

/// Dependencies of an observer.
pub struct Parts {
    pub config: Config,
    pub sampling: Arc<Sampling>,
    /// Source of end records. `None`: the last reading is final.
    pub ends: Option<KernelEnds>,
    pub board: Arc<Board>,
    /// The parent cgroup of managed tasks.
    pub ours: CgroupPath,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Where totals are persisted. `None`: they end with this agent.
    pub keep: Option<Keep>,
}

/// A running observer thread. Dropping it stops the thread.
pub struct Observer {
    stop: Arc<AtomicBool>,
    bell: Bell,
    delivered: Arc<Mutex<Vec<AllocId>>>,
    waiting: Arc<AtomicUsize>,
    is_short: Arc<AtomicBool>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Observer {
    /// Starts the thread. Existing workloads are on the board soon after: see [`Observer::is_settled`]. Errors: no
    /// thread or file descriptor available.
    pub fn start(parts: Parts) -> std::io::Result<Observer> {
        let inquiries = Inquiries::new(RuntimePlaces::new(parts.sampling.roots.clone(), &parts.config), &parts.config)?;
        let bell = inquiries.bell();
        let (stop, delivered) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<AllocId>>>::default());
        let waiting = Arc::new(AtomicUsize::new(usize::MAX));
        let mut work = Work::new(parts, inquiries, Arc::clone(&delivered), Arc::clone(&waiting));
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
        Ok(Observer { stop, bell, delivered, waiting, is_short, thread: Mutex::new(Some(thread)) })
    }

    /// Whether all running workloads have been found and named.
    pub fn is_settled(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether to skip new workloads because memory is short. Skipped ones are added later if they still run.
    pub fn take_no_more(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// The final series of these allocs were delivered; observed ones among them are removed.
    pub fn delivered(&self, ids: impl IntoIterator<Item = AllocId>) {
        let mut delivered = lock(&self.delivered);
        delivered.extend(ids);
        if !delivered.is_empty() {
            self.bell.ring();
        }
    }
}

impl Observer {
    /// Stops the thread. Persisted state is on disk when this returns.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
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

/// An ended task whose runtime is asked for its exit status.
struct Ending {
    /// Number of the life.
    number: u64,
    until: Instant,
    /// The kernel's facts, saved when another cgroup has the path: later records belong to that one.
    kernel_exit: Option<(Option<ExitFacts>, bool)>,
}

/// A task that is measured and not shown yet.
struct Unnamed {
    found: Recognised,
    reader: Arc<TaskReader>,
    own_reader: Option<(String, Arc<TaskReader>)>,
    since: Option<Timestamp>,
    until: Instant,
    /// The cgroup is already gone.
    is_gone: bool,
}

struct Work {
    parts: Parts,
    scanner: Scanner,
    inquiries: Inquiries,
    bell: Bell,
    allocs: ObservedAllocs,
    delivered: Arc<Mutex<Vec<AllocId>>>,
    /// Number of tasks that are measured and not shown yet.
    waiting: Arc<AtomicUsize>,
    /// Memory is short: nothing is added.
    is_short: Arc<AtomicBool>,
    /// Just created.
    fresh: HashMap<String, Instant>,
    /// Plain cgroups without processes, and whether the last check saw CPU usage.
    empty: BTreeMap<String, bool>,
    /// Those among them that have or had a process.
    woken: HashSet<String>,
    /// Where the last round of checks stopped, and the number of rounds.
    looked: (String, usize),
    shares: Shares,
    unnamed: HashMap<String, Unnamed>,
    /// Lives that ended before the preceding life at the same path had its name, in order.
    queued: HashMap<String, VecDeque<BriefLife<EndedCgroup>>>,
    /// Names of containers and when they last existed. A restarted container may end before its source reports the name
    /// again.
    called: HashMap<String, (Naming, Instant)>,
    /// Tasks whose source had no name.
    nameless: Nameless,
    lives: Lives,
    /// Records of ended lives.
    ends: EndedLives<EndedCgroup>,
    /// `None`: processes without a cgroup are not observed.
    processes: Option<Processes>,
    /// Removed; their exit status is being asked for.
    ending: HashMap<String, Ending>,
    /// Number of exit requests so far.
    asked: u64,
    /// Removed from at least one hierarchy.
    leaving: HashMap<String, Instant>,
    /// Not shown, with the reason.
    aside: BTreeMap<String, &'static str>,
    /// What each shown task was recognised as.
    known: HashMap<String, Recognised>,
    /// Their parent cgroups.
    parents: Parents,
    touched: BTreeSet<AllocId>,
    changes: Vec<TotalsChange>,
    kept: Kept,
    /// Persisted tasks that still exist.
    found: HashMap<String, KeptTask>,
    /// Last time that a workload had a task.
    seen: HashMap<(JobId, TaskName), Instant>,
    next_beat: Instant,
    next_sweep: Instant,
    next_usage: Instant,
    has_begun: bool,
}

/// Reasons why a cgroup is not shown.
const LIMIT: &str = "limit";
const UNWANTED: &str = "unwanted";
/// Excluded by what is known so far; its source may still report more.
const UNDECIDED: &str = "undecided";

impl Work {
    fn new(parts: Parts, inquiries: Inquiries, delivered: Arc<Mutex<Vec<AllocId>>>, waiting: Arc<AtomicUsize>) -> Work {
        let now = parts.clock.instant();
        let mut all_parents = Parents::new(&parts.sampling, &parts.config);
        // The managed tasks, which are all below it.
        all_parents.begin(&format!("{}/", parts.ours.as_str()), OwnCgroup::Task);
        let shares = Shares::new(parts.config.max_allocs);
        let processes = parts.config.processes.then(|| Processes::new(&parts.sampling, &parts.clock));
        Work {
            scanner: Scanner::new(&parts.sampling, parts.ours.as_str()),
            parts,
            bell: inquiries.bell(),
            inquiries,
            allocs: ObservedAllocs::default(),
            delivered,
            waiting,
            is_short: Arc::default(),
            fresh: HashMap::new(),
            empty: BTreeMap::new(),
            woken: HashSet::new(),
            looked: (String::new(), 0),
            shares,
            unnamed: HashMap::new(),
            queued: HashMap::new(),
            called: HashMap::new(),
            nameless: Nameless::default(),
            lives: Lives::default(),
            ends: EndedLives::default(),
            processes,
            ending: HashMap::new(),
            asked: 0,
            leaving: HashMap::new(),
            aside: BTreeMap::new(),
            known: HashMap::new(),
            parents: all_parents,
            touched: BTreeSet::new(),
            changes: Vec::new(),
            kept: Kept::default(),
            found: HashMap::new(),
            seen: HashMap::new(),
            next_beat: now + BEAT,
            next_sweep: now + SWEEP,
            next_usage: now + USAGE_KEPT_EACH,
            has_begun: false,
        }
    }

    fn begin(&mut self) {
        self.scanner.scan();
        self.go_on();
        self.follow();
        self.sample_processes();
        self.has_begun = true;
        self.show();
        self.waiting.store(self.unnamed.len(), Ordering::Relaxed);
        self.count();
    }

    fn turn(&mut self) {
        self.wait();
        let ScanChanges { removed, made, changed } = self.scanner.news();
        let now = self.parts.clock.instant();
        // Final usage must be applied before the removal.
        self.process_end_records(now);
        for path in &removed {
            self.lives.removed(path);
            self.leaving.insert(path.clone(), now);
        }
        for path in made {
            // Another cgroup was created at the path, so the first one is gone.
            if self.leaving.remove(&path).is_some() {
                self.gone(&path);
            }
            self.lives.made(&path, self.parts.clock.now());
            if !self.scanner.tree().has(&path) {
                // Already removed again; its successor is created later.
                self.lives.removed(&path);
            }
            self.fresh.insert(path, now + SETTLED);
        }
        self.note_unseen(&removed);
        for path in changed {
            self.read(&path);
            if self.empty.contains_key(&path) {
                self.woken.insert(path);
            }
        }
        for reply in self.inquiries.replies() {
            match reply {
                SourceReply::Name(path, naming, changed) => {
                    self.allocs.texts.add(changed);
                    self.named(&path, naming.map(|naming| *naming), now);
                }
                SourceReply::Exit(path, number, facts) => {
                    // A late answer belongs to an earlier life.
                    if self.ending.get(&path).is_some_and(|ending| ending.number == number) {
                        self.ended(&path, facts);
                    }
                }
            }
        }
        let is_time = |at: Instant| at <= now;
        let mut touched: BTreeSet<String> = removed.into_iter().collect();
        touched.extend(self.fresh.iter().filter(|(_, at)| is_time(**at)).map(|(path, _)| path.clone()));
        let mut is_all = false;
        if is_time(self.next_beat) {
            self.next_beat = now + BEAT;
            self.sample_processes();
            self.ask_again(now);
            self.count();
            self.kept.commit();
            self.check_empty();
            is_all |= self.has_room(None) && self.aside.values().any(|why| *why == LIMIT);
        }
        if is_time(self.next_sweep) {
            self.next_sweep = now + SWEEP;
            self.scanner.sweep();
            is_all = true;
            self.find_removed();
            self.lives.forget(|path| self.scanner.inode(path));
            self.forget_names(now);
            self.ends.forget(now, |path| self.unnamed.contains_key(path) || self.allocs.is_known(path));
            self.forget_totals(now);
            self.allocs.forget_earlier(self.parts.clock.now());
            for (path, _) in self.found.drain() {
                self.kept.drop_task(&path);
            }
        }
        if is_time(self.next_usage) {
            self.next_usage = now + USAGE_KEPT_EACH;
            self.keep_usage();
        }
        touched.extend(self.woken.iter().cloned());
        if is_all {
            self.follow();
        } else if !touched.is_empty() {
            self.follow_only(&touched);
        }
        self.deadlines(now);
        self.show();
        self.waiting.store(self.unnamed.len(), Ordering::Relaxed);
    }

    fn wait(&self) {
        let now = self.parts.clock.instant();
        let until = self.fresh.values().copied().chain(self.ending.values().map(|ending| ending.until));
        let until = until.chain(self.unnamed.values().map(|unnamed| unnamed.until));
        let unnamed = (!self.unnamed.is_empty()).then_some(now + UNNAMED);
        let until =
            until.chain(unnamed).chain(self.ends.next()).chain([self.next_beat, self.next_sweep]).min().unwrap_or(now);
        let left = until.saturating_duration_since(now).max(Duration::from_millis(1));
        let watched = self.scanner.watch().map(AsFd::as_fd).into_iter();
        self.bell.wait(watched.chain(self.parts.ends.as_ref().map(AsFd::as_fd)), left);
    }

    fn found(&mut self, path: String, found: Option<Recognised>, now: Instant) {
        self.lives.is_there(&path, |path| self.scanner.inode(path));
        let plain = found.is_none();
        let found = self.or_plain(found, &path);
        let is_named = is_named_by_path(&found);
        if !self.is_wanted(&found, is_named) {
            self.aside.insert(path, UNWANTED);
            return;
        }
        // What remains of a cgroup that is being removed is not a new one.
        let is_leaving = self.leaving.get(&path).is_some_and(|at| now.saturating_duration_since(*at) < SWEEP);
        if is_leaving || self.is_leaving(&path, now) {
            return;
        }
        let made = self.lives.made_at(&path);
        if plain && self.scanner.has_processes(&path) != Some(true) && !self.ran_unseen(&path, made.is_some(), now) {
            return;
        }
        // A pattern may exclude it once its name is known.
        if !self.has_room(found.user) && (is_named || !self.parts.config.chooses()) {
            self.aside.insert(path, LIMIT);
            return;
        }
        let sampling = &self.parts.sampling;
        let mut reader = TaskReader::for_cgroup(sampling, CgroupPath::from(path.as_str())).read_only();
        if self.lives.begins(&path, self.scanner.inode(&path)) {
            reader = reader.counting_from_now();
        }
        let reader = Arc::new(reader);
        if reader.look(now, self.parts.clock.now(), true).is_err() {
            // Already gone, or in none of the sampled hierarchies.
            return;
        }
        let was_empty = self.empty.remove(&path).is_some();
        self.aside.remove(&path);
        let own = match found.own {
            OwnCgroup::Parent => path.rsplit_once('/').map(|(above, _)| above.to_owned()),
            OwnCgroup::Task | OwnCgroup::None | OwnCgroup::Nowhere => None,
        };
        let own_reader = own.map(|own| {
            // The alloc's cgroup may have limits that its tasks do not have.
            let reader = TaskReader::for_limited_alloc_cgroup(sampling, CgroupPath::from(own.as_str()));
            (own, Arc::new(reader))
        });
        self.scanner.settle(&path, plain);
        // The start time of a cgroup that existed unseen or was set aside is unknown.
        let since = if was_empty { Some(self.parts.clock.now()) } else { made }.filter(|_| self.has_begun);
        let known = self.found.remove(&path);
        let since = since.or(known.as_ref().and_then(|known| known.since));
        let unnamed = Unnamed { found, reader, own_reader, since, until: now + ANSWER, is_gone: false };
        self.nameless.forget(&path);
        let is_asked = self.ask(&path, &unnamed.found, About::Name);
        if !is_asked && !is_named {
            self.nameless.add(&path, now);
        }
        self.save_kernel_exit(&path);
        self.shares.begins(unnamed.found.user);
        self.unnamed.insert(path.clone(), unnamed);
        // Without it the total of its workload would drop until its name is known again. A name from the path is known
        // already.
        if known.is_some() || !is_asked {
            self.admit(&path, known.map(|known| known.naming).filter(|_| !is_named));
        }
    }

    /// Shows the task with the best known name, and after it the queued lives.
    fn admit(&mut self, path: &str, naming: Option<Naming>) {
        self.admit_one(path, naming);
        let now = self.parts.clock.instant();
        for life in self.queued.remove(path).into_iter().flatten() {
            self.lived(path, life, now);
        }
    }

    fn admit_one(&mut self, path: &str, naming: Option<Naming>) {
        if self.unnamed.contains_key(path) && self.ending.contains_key(path) {
            // The life before it.
            self.ended(path, None);
        }
        let Some(Unnamed { mut found, reader, own_reader, since, is_gone, .. }) = self.unnamed.remove(path) else {
            return;
        };
        let is_complete = self.is_complete(path, &found);
        let naming = naming.or_else(|| self.called_before(path)).unwrap_or_else(|| found.naming.clone());
        let config = &self.parts.config;
        let is_wanted = config.wants(found.source, &naming);
        let is_full =
            self.allocs.running() >= config.max_allocs || !texts::has_room(self.allocs.path_bytes(), config.max_allocs);
        if !is_wanted || is_full {
            self.shares.ends(found.user);
            let why = if is_complete { UNWANTED } else { UNDECIDED };
            self.set_aside(path, if is_wanted { LIMIT } else { why }, is_gone);
            return;
        }
        if naming.source == Some(AllocSource::Nomad) {
            // Tasks of Nomad allocs in Docker containers: nothing shows that they share an alloc's cgroup.
            found.own = OwnCgroup::None;
        }
        let (source, own) = (found.source, found.own);
        let (labels, to_keep) = (config.chosen(&naming.labels), naming.clone());
        let (naming, rule) = config.ruled(source, own, naming);
        let begun = NewTask { path: path.to_owned(), source, own, naming, rule, labels, reader, own_reader, since };
        let (id, change) = self.allocs.begin(begun);
        if let (Some(inode), Some((task, earlier))) = (self.scanner.inode(path), self.allocs.earlier(path)) {
            let (alloc, task, workload) = (&id, &task, self.allocs.workload(path));
            self.kept.begins(BegunTask { alloc, task, workload, source, path, inode, since }, to_keep, earlier);
        }
        self.changes.extend(change);
        self.touched.insert(id);
        self.parents.begin(path, found.own);
        self.known.insert(path.to_owned(), found);
        if is_gone {
            self.gone(path);
            // Another cgroup may have the path by now.
            self.fresh.insert(path.to_owned(), self.parts.clock.instant() + SETTLED);
        }
    }

    /// The cgroup was removed.
    fn gone(&mut self, path: &str) {
        if let Some(unnamed) = self.unnamed.get_mut(path) {
            if !std::mem::replace(&mut unnamed.is_gone, true) {
                unnamed.until = self.parts.clock.instant() + LATE_ANSWER;
                self.admit_by_the_name_before(path);
            }
            return;
        }
        let Some(found) = self.known.remove(path) else { return };
        self.shares.ends(found.user);
        self.parents.end(path, found.own);
        if self.lives.ends(path, self.scanner.inode(path)) {
            self.kept.ends(path);
            // The cgroup still exists.
            self.look_last(self.allocs.reader(path));
            self.look_last(self.allocs.own_reader(path));
            if let Some((id, change)) = self.allocs.cover(path, self.parts.clock.now()) {
                self.touched.insert(id);
                self.changes.extend(change);
            }
            return;
        }
        self.asked += 1;
        let over = EndedLife { number: self.asked, ended_at: self.kernel_ended_at(path) };
        if found.container.is_some() && self.ask(path, &found, About::Exit(over)) {
            let until = self.parts.clock.instant() + ANSWER;
            self.ending.insert(path.to_owned(), Ending { number: over.number, until, kernel_exit: None });
        } else {
            self.ended(path, None);
        }
    }

    fn ended(&mut self, path: &str, facts: Option<ExitFacts>) {
        let ending = self.ending.remove(path);
        // The cgroup of a pod exists until its last container ends.
        self.look_last(self.allocs.own_reader(path));
        let (recorded, is_whole) = ending.and_then(|e| e.kernel_exit).unwrap_or_else(|| self.kernel_exit(path));
        // The runtime's answer wins, but it may learn of an OOM kill later than of the exit.
        let victim = recorded.as_ref().is_some_and(|exit| exit.oom);
        let facts = facts.map(|said| ExitFacts { oom: said.oom || victim, ..said }).or(recorded);
        if let Some(reader) = self.allocs.reader(path) {
            // The last reading is later than the end of the last process.
            let is_final = is_whole || reader.latest().is_some_and(|last| last.usage.processes() == Some(0));
            self.parts.metrics.others.ended(is_final);
        }
        self.kept.ends(path);
        if let Some((id, change)) = self.allocs.end(path, facts, self.parts.clock.now()) {
            self.touched.insert(id);
            self.changes.extend(change);
        }
    }

    /// Publishes the changes on the board.
    fn show(&mut self) {
        let delivered = std::mem::take(&mut *lock(&self.delivered));
        let gone = self.allocs.forget(&delivered);
        if let Some(parents) = self.parents.news() {
            self.parts.board.set_parents(parents);
        }
        if self.touched.is_empty() && self.changes.is_empty() && gone.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut self.touched);
        let shown: Vec<_> = touched.iter().filter_map(|id| self.allocs.published(id)).collect();
        let changes = std::mem::take(&mut self.changes);
        let now = self.parts.clock.instant();
        self.seen.extend(changes.iter().map(|change| (change.key(), now)));
        self.parts.board.observe(shown, &gone, |totals| {
            changes.iter().for_each(|change| change.apply(totals));
            let keys: BTreeSet<_> = changes.iter().map(TotalsChange::key).collect();
            for key in keys {
                let of = totals.workloads.get(&key).map(Arc::clone);
                of.into_iter().for_each(|of| self.kept.totals(key.clone(), of));
            }
        });
        self.count();
    }
}
