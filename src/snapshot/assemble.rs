//! Builds each snapshot from the board, what the readers say and the snapshot before. It reads nothing itself: the time and the
//! [`Readings`] come in, and those are asked for one alloc after the other, right before its part is built.
//!
//! What did not change is the same `Arc` as before: a thousand unchanged allocs cost a pointer comparison each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failed::{self, Failed};
use super::retention::{Retention, RetentionConfig, Retired};
use super::workloads::{self, Workloads};
use super::{Aggregation, AllocView, Counts, Snapshot, TaskView, aggregate, itself};
use crate::collectors::{Reading, TaskReader};
use crate::model::alloc::{AllocState, AllocStatus};
use crate::model::id::AllocId;
use crate::model::metric::Samples;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;
use crate::runner::board::{BoardView, Published};

/// What the readers say: all that touches the host in here, and all of it before anything is built. [`super::pass::Pass`] is the
/// real one.
pub trait Readings {
    /// One answer for each place. `None`: nobody was asked, or each says what it said when it was told last.
    fn read(&mut self, asked: &[Option<Asked<'_>>]) -> Vec<Option<Said>>;
}

/// An alloc that is to be read.
#[derive(Debug)]
pub struct Asked<'a> {
    pub alloc: &'a Published,
    /// Other attempts run than were shown last.
    pub anew: bool,
    /// It is built again whatever its readers say: without an answer there would be nothing to build it of.
    pub wanted: bool,
}

/// What the readers of one alloc say in this pass.
#[derive(Debug)]
pub struct Said {
    /// In the order of its tasks. Of the running attempt; `None`: nothing runs, or nothing was read yet.
    pub tasks: Vec<Option<Reading>>,
    /// Of its own cgroup.
    pub alloc: Option<Reading>,
}

/// What a tick brings beside the readings.
#[derive(Debug, Default)]
pub struct Tick {
    pub host: Samples,
    pub agent: Samples,
    /// Of each host collector that shows something: when the oldest of it was read.
    pub oldest: Vec<(&'static str, Timestamp)>,
    /// See [`super::Scrapers::acknowledged_by_all`].
    pub acknowledged: Option<u64>,
}

/// The moment by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now: Instant,
    pub at: Timestamp,
}

pub struct Assembler {
    entries: Vec<Entry>,
    workloads: Workloads,
    retention: Retention,
    keep: Duration,
    last: Arc<Snapshot>,
    /// The board's version of which the failed allocs are.
    looked: Option<u64>,
}

/// What is remembered of an alloc between two snapshots.
struct Entry {
    published: Arc<Published>,
    /// The readings that `view` was made of.
    raw_tasks: Vec<Option<Arc<Usage>>>,
    raw_alloc: Option<Arc<Usage>>,
    /// When the oldest of these was read; `None`: nothing of it runs.
    oldest: Option<Timestamp>,
    view: Arc<AllocView>,
    /// Of its tasks, in order.
    slots: Vec<usize>,
    memory_bytes: u64,
}

impl Assembler {
    pub fn new(empty: Snapshot, retention: RetentionConfig) -> Assembler {
        Assembler {
            entries: Vec::new(),
            workloads: Workloads::default(),
            keep: retention.most,
            retention: Retention::new(retention),
            last: Arc::new(empty),
            looked: None,
        }
    }

    /// A sampling pass: every reader is asked.
    pub fn tick(
        &mut self,
        board: &BoardView,
        readings: &mut dyn Readings,
        mut tick: Tick,
        moment: Moment,
    ) -> (Arc<Snapshot>, Vec<Retired>) {
        self.follow(board, readings, true, moment);
        itself::ages(&mut tick.agent, self.entries.iter().filter_map(|e| e.oldest).min(), tick.oldest.iter().copied());
        let retired = self.retention.retire(moment.now, tick.acknowledged);
        self.withdraw(&retired);
        let (host, agent) = (Arc::new(tick.host), Arc::new(tick.agent));
        let epoch = self.last.epoch + 1;
        (self.publish(board, moment, epoch, host, agent), retired)
    }

    /// A lifecycle change: only the allocs that changed are looked at, and of them only what has begun or ended is read.
    pub fn change(&mut self, board: &BoardView, latest: &mut dyn Readings, moment: Moment) -> Arc<Snapshot> {
        self.follow(board, latest, false, moment);
        let (host, agent) = (Arc::clone(&self.last.host), Arc::clone(&self.last.agent));
        self.publish(board, moment, self.last.epoch, host, agent)
    }

    fn publish(
        &mut self,
        board: &BoardView,
        moment: Moment,
        epoch: u64,
        host: Arc<Samples>,
        agent: Arc<Samples>,
    ) -> Arc<Snapshot> {
        if let Some(places) = self.workloads.take_totals(&board.totals) {
            for slot in self.entries.iter_mut().flat_map(|e| e.slots.iter_mut()) {
                *slot = places[*slot].expect("a slot with users must stay");
            }
        }
        let live = self.entries.iter().flat_map(|e| {
            e.slots.iter().zip(&e.raw_tasks).filter_map(|(slot, raw)| raw.as_deref().map(|usage| (*slot, usage)))
        });
        let workloads = self.workloads.views(live, self.entries.iter().flat_map(Entry::unknown));
        let mut node = self.workloads.node();
        workloads::never_fall(&mut node, &self.last.node);
        let snapshot = Arc::new(Snapshot {
            epoch,
            version: self.last.version + 1,
            taken_at: moment.at,
            steady_at: self.last.steady_at.max(moment.at),
            allocs: self.entries.iter().map(|e| Arc::clone(&e.view)).collect(),
            workloads,
            ended: Arc::clone(&board.totals),
            node,
            counts: self.counts(),
            failed: self.failed(board),
            host,
            agent,
            info: Arc::clone(&self.last.info),
        });
        self.last = Arc::clone(&snapshot);
        snapshot
    }

    /// Brings `entries` in line with the board: reads first, and builds then.
    fn follow(&mut self, board: &BoardView, readings: &mut dyn Readings, everything: bool, moment: Moment) {
        let places = places(&self.entries, &board.allocs);
        let shown = board.allocs.iter().zip(&places).map(|(alloc, place)| (alloc, place.map(|at| &self.entries[at])));
        let asked: Vec<_> = shown.map(|(alloc, entry)| Asked::of(alloc, entry, everything)).collect();
        let said = readings.read(&asked);

        let mut before: Vec<Option<Entry>> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        let mut entries = Vec::with_capacity(board.allocs.len());
        for ((published, place), said) in board.allocs.iter().zip(places).zip(said) {
            let entry = place.and_then(|place| before[place].take());
            entries.push(match (entry, said) {
                (Some(entry), None) => entry,
                (Some(entry), Some(said)) => self.refresh(entry, published, said, moment),
                (None, said) => self.admit(published, said.unwrap_or_else(|| Said::latest(published)), moment),
            });
        }
        for gone in before.into_iter().flatten() {
            self.workloads.left(&gone.slots);
            self.retention.forget(&gone.view.status.id);
        }
        self.entries = entries;
    }

    fn admit(&mut self, published: &Arc<Published>, said: Said, moment: Moment) -> Entry {
        let status = &published.status;
        let slots: Vec<usize> = status.tasks.iter().map(|t| self.workloads.slot(status.workload(), &t.name)).collect();
        self.workloads.joined(&slots);
        self.build(published, said, None, slots, moment)
    }

    fn refresh(&mut self, mut entry: Entry, published: &Arc<Published>, said: Said, moment: Moment) -> Entry {
        if entry.is_of(published) && entry.is_made_of(&said) {
            entry.note_times(&said);
            return entry;
        }
        let slots = std::mem::take(&mut entry.slots);
        self.workloads.moved(&slots);
        self.build(published, said, Some(entry.view), slots, moment)
    }

    fn build(
        &mut self,
        published: &Arc<Published>,
        said: Said,
        earlier: Option<Arc<AllocView>>,
        slots: Vec<usize>,
        moment: Moment,
    ) -> Entry {
        let status = &published.status;
        let steady_at = self.last.steady_at;
        let earlier_sought = earlier.as_ref().map_or(&[][..], |e| e.status.sought.as_slice());
        let mut tasks = Vec::with_capacity(status.tasks.len());
        for (task, reading) in status.tasks.iter().zip(&said.tasks) {
            let place = tasks.len();
            let previous = earlier.as_ref().and_then(|e| e.tasks.get(place)).filter(|t| t.status.name == task.name);
            let raw = reading.as_ref().map(|r| &r.usage);
            let until = until(published, place);
            let same_state = previous.filter(|p| Arc::ptr_eq(&p.status, task) && p.until == until);
            let known = !status.sought.contains(&task.name);
            let as_known = known != earlier_sought.contains(&task.name);
            let unchanged = same_state.filter(|p| as_known && same(p.attempt.as_ref(), raw));
            tasks.push(match unchanged {
                // The same values, which may have been looked at again: so old they are not.
                Some(view) => match reading.as_ref().map(|r| r.at) {
                    Some(at) if view.sampled_at != Some(at) => {
                        Arc::new(TaskView { sampled_at: Some(at), ..(**view).clone() })
                    }
                    Some(_) | None => Arc::clone(view),
                },
                None => {
                    let previous = previous.map(|p| (&**p, steady_at));
                    let view = aggregate::task(task, reading.as_ref(), until, previous);
                    Arc::new(if known { view } else { TaskView { usage: Arc::default(), ..view } })
                }
            });
        }
        let reading = said.alloc.as_ref();
        let aggregation = if status.cgroup.is_some() { Aggregation::Cgroup } else { Aggregation::Sum };
        let mut usage = Arc::new(match aggregation {
            Aggregation::Cgroup => aggregate::own_cgroup(reading, &published.alloc_base, &tasks),
            Aggregation::Sum => aggregate::sum(&tasks),
        });
        if let Some(earlier) = &earlier {
            aggregate::never_fall(&mut usage, &earlier.usage);
        }
        if !status.sought.is_empty() {
            // Whatever its cgroup says, the counters of that task would be missing.
            usage = Arc::default();
        }
        let ended = status.is_terminal();
        if ended && tasks.iter().any(|task| task.attempt.is_some()) {
            usage = Arc::new(usage.without_live());
        }
        let sampled_at = tasks.iter().map(|t| t.sampled_at).max().flatten().max(reading.map(|r| r.at));
        let was_retired = earlier.as_ref().is_some_and(|e| e.retired);
        let mut view = AllocView {
            status: Arc::clone(status),
            tasks,
            usage,
            aggregation,
            sampled_at,
            ended,
            retired: ended && was_retired,
        };
        self.note_end(&mut view, earlier.as_deref(), moment);
        let memory_bytes = if ended { 0 } else { given_memory(status) };
        let oldest = said.oldest();
        let raw_tasks = said.tasks.into_iter().map(|r| r.map(|r| r.usage)).collect();
        let raw_alloc = said.alloc.map(|r| r.usage);
        let (published, view) = (Arc::clone(published), Arc::new(view));
        Entry { published, raw_tasks, raw_alloc, oldest, view, slots, memory_bytes }
    }

    /// Tells retention about an end, or that there is none any more.
    fn note_end(&mut self, view: &mut AllocView, earlier: Option<&AllocView>, moment: Moment) {
        let ended_before = earlier.is_some_and(|e| e.ended);
        match (view.ended, ended_before) {
            (true, false) => {
                // One that we only hear of long after its end (we have just started) is not shown as if it were new.
                if moment.at.since(known_since(&view.status)).as_duration() >= self.keep {
                    view.retired = true;
                } else {
                    let extent = aggregate::extent(view);
                    let version = self.last.version + 1;
                    self.retention.ended(&view.status.id, moment.now, Duration::ZERO, version, extent);
                }
            }
            (false, true) => self.retention.forget(&view.status.id),
            (true, true) | (false, false) => {}
        }
    }

    fn withdraw(&mut self, retired: &[Retired]) {
        if retired.is_empty() {
            return;
        }
        let retired: std::collections::HashSet<&AllocId> = retired.iter().map(|r| &r.id).collect();
        for entry in self.entries.iter_mut().filter(|e| retired.contains(&e.view.status.id)) {
            entry.view = Arc::new(AllocView { retired: true, ..(*entry.view).clone() });
        }
    }

    /// Looked at again only after a change.
    fn failed(&mut self, board: &BoardView) -> Arc<Failed> {
        if self.looked != Some(board.version) {
            self.looked = Some(board.version);
            let failed = failed::failed(self.entries.iter().map(|e| &e.view.status));
            return Arc::new(failed);
        }
        Arc::clone(&self.last.failed)
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entry in &self.entries {
            let status = &entry.view.status;
            counts.allocs[place(status.state)] += 1;
            for task in &entry.view.tasks {
                counts.tasks[task.status.state.index()] += 1;
                if let Some(attempt) = &task.attempt {
                    counts.allocated_cpu_cores += quota_cores(attempt).unwrap_or(0.0);
                }
            }
            counts.allocated_memory_bytes = counts.allocated_memory_bytes.saturating_add(entry.memory_bytes);
        }
        counts
    }
}

impl<'a> Asked<'a> {
    /// `entry`: what is remembered of it. `None`: it goes on as it is shown.
    fn of(alloc: &'a Arc<Published>, entry: Option<&Entry>, everything: bool) -> Option<Asked<'a>> {
        let Some(entry) = entry else { return Some(Asked { alloc, anew: true, wanted: true }) };
        let wanted = !entry.is_of(alloc);
        let anew = wanted && other_attempts(&entry.published, alloc);
        (wanted || everything).then_some(Asked { alloc, anew, wanted })
    }
}

impl Said {
    /// Without touching the kernel.
    pub fn latest(alloc: &Published) -> Said {
        let mut readers = alloc.readers.iter();
        let tasks = alloc.status.tasks.iter().map(|_| readers.next()?.as_ref()?.latest()).collect();
        Said { tasks, alloc: alloc.alloc_reader.as_ref().and_then(|reader| reader.latest()) }
    }
    fn oldest(&self) -> Option<Timestamp> {
        let tasks = self.tasks.iter().flatten().map(|r| r.at).min()?;
        Some(self.alloc.as_ref().map_or(tasks, |r| r.at.min(tasks)))
    }
}

/// One has begun or ended.
fn other_attempts(before: &Published, now: &Published) -> bool {
    let reader = |r: &Option<Arc<TaskReader>>| r.as_ref().map(Arc::as_ptr);
    !before.readers.iter().map(reader).eq(now.readers.iter().map(reader))
}

/// Up to when a task's state is shown: asked after the moment was taken that its dwell is counted up to.
fn until(published: &Published, place: usize) -> Timestamp {
    published.until.get(place).map_or(Timestamp(u64::MAX), |until| until.get())
}

impl Entry {
    /// Slots of tasks of which nobody knows what they use.
    fn unknown(&self) -> impl Iterator<Item = usize> + '_ {
        let status = &self.published.status;
        let sought = |place: &usize| status.tasks.get(*place).is_some_and(|t| status.sought.contains(&t.name));
        // Nearly always nobody.
        let places = if status.sought.is_empty() { 0 } else { self.slots.len() };
        (0..places).filter(sought).map(|place| self.slots[place])
    }

    /// It was made of this, and no task has begun to leave its state since.
    fn is_of(&self, published: &Arc<Published>) -> bool {
        Arc::ptr_eq(&self.published, published) && self.goes_on()
    }
    fn goes_on(&self) -> bool {
        self.view.tasks.iter().enumerate().all(|(place, task)| task.until == until(&self.published, place))
    }
    /// Whether every reading is the very one that the view was made of.
    fn is_made_of(&self, said: &Said) -> bool {
        let usage = |r: &'_ Option<Reading>| r.as_ref().map(|r| Arc::as_ptr(&r.usage));
        self.raw_alloc.as_ref().map(Arc::as_ptr) == usage(&said.alloc)
            && self.raw_tasks.len() == said.tasks.len()
            && self.raw_tasks.iter().zip(&said.tasks).all(|(raw, r)| raw.as_ref().map(Arc::as_ptr) == usage(r))
    }
}

impl Entry {
    /// The values are the same, but some were looked at again: so old they are not.
    fn note_times(&mut self, said: &Said) {
        self.oldest = said.oldest();
        let at = |r: &Option<Reading>| r.as_ref().map(|r| r.at);
        let newest = said.tasks.iter().map(at).chain([at(&said.alloc)]).max().flatten();
        let seen = |view: &TaskView, r: &Option<Reading>| at(r).is_none_or(|at| view.sampled_at == Some(at));
        if newest <= self.view.sampled_at && self.view.tasks.iter().zip(&said.tasks).all(|(view, r)| seen(view, r)) {
            return;
        }
        let view = Arc::make_mut(&mut self.view);
        for (task, reading) in view.tasks.iter_mut().zip(&said.tasks).filter(|(view, r)| !seen(view, r)) {
            Arc::make_mut(task).sampled_at = at(reading);
        }
        view.sampled_at = view.sampled_at.max(newest);
    }
}

fn same(a: Option<&Arc<Usage>>, b: Option<&Arc<Usage>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn place(state: AllocState) -> usize {
    match state {
        AllocState::Pending => 0,
        AllocState::Running => 1,
        AllocState::Complete => 2,
        AllocState::Failed => 3,
    }
}

/// Memory that the job file gives its tasks; a task without a limit was given none.
fn given_memory(status: &AllocStatus) -> u64 {
    let Some(group) = status.job.group(status.group.as_str()) else { return 0 };
    group.tasks.iter().filter_map(|t| t.resources.memory_bytes).fold(0, u64::saturating_add)
}

/// Quotas are some ten thousand microseconds: exact in an `f64`.
#[allow(clippy::cast_precision_loss)]
fn quota_cores(usage: &Usage) -> Option<f64> {
    match (usage.cpu_quota_us(), usage.cpu_period_us()) {
        (Some(quota), Some(period)) if period > 0 => Some(quota as f64 / period as f64),
        _ => None,
    }
}

/// Since when the agent knew of the end: the process may have ended before, while the agent was down.
fn known_since(status: &AllocStatus) -> Timestamp {
    let of_task = |t: &crate::model::task::TaskStatus| {
        let told = t.events.back().map_or(Timestamp(0), |e| e.time);
        told.max(t.state_since)
    };
    status.tasks.iter().map(|t| of_task(t)).max().unwrap_or(status.created_at)
}

/// Where each alloc stands among the entries of the last pass, in the order of the board: nearly always right behind the one before
/// it.
fn places(entries: &[Entry], allocs: &[Arc<Published>]) -> Vec<Option<usize>> {
    let mut next = 0;
    // Made when the order does not help.
    let mut known: Option<HashMap<&AllocId, usize>> = None;
    let place = |alloc: &Arc<Published>| {
        let id = &alloc.status.id;
        let is_it = |e: &Entry| Arc::ptr_eq(&e.published, alloc) || e.published.status.id == *id;
        let at = if entries.get(next).is_some_and(is_it) {
            next
        } else if next == entries.len() && known.is_none() {
            // At the end of the known ones there are only new ones, in order of creation.
            return None;
        } else {
            let ids = || entries.iter().enumerate().map(|(at, e)| (&e.published.status.id, at)).collect();
            *known.get_or_insert_with(ids).get(id)?
        };
        next = at + 1;
        Some(at)
    };
    allocs.iter().map(place).collect()
}
