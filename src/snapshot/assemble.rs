//! Builds each snapshot from the board, the readings and the previous snapshot. It reads nothing itself: the time and a
//! [`ReadingProvider`] are passed in. The readings of all allocs are requested at once, before anything is built.
//!
//! What did not change is the same `Arc` as before: a thousand unchanged allocs cost a pointer comparison each.

mod inputs;
mod views;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::inputs::{AllocReadings, AllocToRead, ClockReading, ReadingProvider, SeriesRemovals, TickInputs};
use super::failed::{self, FailuresByWorkload};
use super::overflow::Overflow;
use super::retention::Retention;
use super::workloads::{self, WorkloadOrigin, Workloads};
use super::{
    Aggregation, AllocView, Config, CurrentCounts, ParentView, PerTask, PreviousTick, Snapshot, TaskView, agent,
    aggregate,
};
use crate::board::devices::DevicesView;
use crate::board::services::AllocServices;
use crate::board::{BoardView, PublishedAlloc};
use crate::collectors::{Reading, TaskReader};
use crate::model::alloc::AllocStatus;
use crate::model::id::{AllocId, TaskName};
use crate::model::metric::Samples;
use crate::model::observed::ObservedAlloc;
use crate::model::placement::PlacementReason;
use crate::model::totals::Totals;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

/// The fields of a snapshot that only a tick renews. After a lifecycle change they are those of the last snapshot.
struct TickFields {
    at: Timestamp,
    samples: Arc<Samples>,
    agent: Arc<Samples>,
    before: Option<Arc<PreviousTick>>,
    devices: Arc<DevicesView>,
    services: Arc<[Arc<AllocServices>]>,
    parents: Arc<[ParentView]>,
}

/// Builds snapshots, and remembers of each alloc what the next snapshot reuses or must not fall below. Concurrency:
/// single owner.
pub struct Assembler {
    entries: Vec<Entry>,
    workloads: Workloads,
    overflow: Overflow,
    retention: Retention,
    keep: Duration,
    last: Arc<Snapshot>,
    /// Of managed jobs: observed workloads get names beside theirs.
    managed_totals: Arc<Totals>,
    /// The board's version that the failed allocs were computed from.
    failed_version: Option<u64>,
}

/// What is remembered of an alloc between two snapshots.
struct Entry {
    published: Arc<PublishedAlloc>,
    /// The readings that `view` was made of.
    raw_tasks: PerTask<Option<Arc<Usage>>>,
    raw_alloc: Option<Arc<Usage>>,
    /// When the oldest of these was read; `None`: nothing of it runs.
    oldest: Option<Timestamp>,
    view: Arc<AllocView>,
    /// Of its tasks, in order.
    slots: Vec<usize>,
    memory_bytes: u64,
    /// Above the churn limit of its workload: it has no series of its own.
    folded: bool,
}

impl Assembler {
    pub fn new(empty: Snapshot, config: &Config) -> Assembler {
        Assembler {
            entries: Vec::new(),
            workloads: Workloads::default(),
            overflow: Overflow::new(config.churn_limit),
            keep: config.retention.most,
            retention: Retention::new(config.retention),
            last: Arc::new(empty),
            managed_totals: Arc::default(),
            failed_version: None,
        }
    }

    /// So long at most the final series of an ended alloc stay.
    pub fn keeps_for(&self) -> Duration {
        self.keep
    }

    /// A sampling pass over all allocs.
    pub fn tick(
        &mut self,
        board: &BoardView,
        readings: &mut dyn ReadingProvider,
        mut tick: TickInputs,
        moment: ClockReading,
    ) -> (Arc<Snapshot>, SeriesRemovals) {
        self.follow(board, readings, true, moment);
        agent::ages(&mut tick.agent, self.entries.iter().filter_map(|e| e.oldest).min(), tick.oldest.iter().copied());
        let retired = self.retention.retire(moment.now, tick.acknowledged);
        self.withdraw(&retired);
        let removals = SeriesRemovals { retired, unshown: self.overflow.take_unshown() };
        let fields = TickFields {
            at: tick.at,
            samples: tick.host,
            agent: Arc::new(tick.agent),
            before: tick.before,
            devices: tick.devices,
            services: tick.services,
            parents: tick.parents,
        };
        let epoch = self.last.epoch + tick.unseen + 1;
        (self.publish(board, moment, epoch, fields), removals)
    }

    /// The board has what is shown, and nothing else.
    pub fn shows(&self, board: &BoardView) -> bool {
        let mut both = self.entries.iter().zip(&board.allocs);
        self.entries.len() == board.allocs.len() && both.all(|(entry, alloc)| Arc::ptr_eq(&entry.published, alloc))
    }

    /// Reads all allocs and builds no snapshot. The board must have what is shown.
    pub fn only_read(&mut self, board: &BoardView, readings: &mut dyn ReadingProvider) {
        let to_read = |alloc| AllocToRead { alloc, new_attempts: false, must_rebuild: false };
        readings.read(&board.allocs.iter().map(|alloc| to_read(&**alloc)).collect::<Vec<_>>());
    }

    /// A lifecycle change: only the allocs that changed are built again, and only their started and ended attempts are
    /// read.
    pub fn change(
        &mut self,
        board: &BoardView,
        readings: &mut dyn ReadingProvider,
        moment: ClockReading,
    ) -> Arc<Snapshot> {
        self.follow(board, readings, false, moment);
        let last = &self.last;
        let fields = TickFields {
            at: last.ticked_at,
            samples: Arc::clone(&last.host),
            agent: Arc::clone(&last.agent),
            before: last.before.clone(),
            devices: Arc::clone(&last.devices),
            services: Arc::clone(&last.services),
            parents: Arc::clone(&last.parents),
        };
        self.publish(board, moment, last.epoch, fields)
    }

    fn publish(&mut self, board: &BoardView, moment: ClockReading, epoch: u64, fields: TickFields) -> Arc<Snapshot> {
        if let Some(places) = self.workloads.take_totals(&board.totals, &board.observed) {
            for slot in self.entries.iter_mut().flat_map(|e| e.slots.iter_mut()) {
                *slot = places[*slot].expect("a slot with users must stay");
            }
        }
        let live = self.entries.iter().flat_map(|e| {
            e.slots.iter().zip(&e.raw_tasks).filter_map(|(slot, raw)| raw.as_deref().map(|usage| (*slot, usage)))
        });
        // Nearly always none.
        let is_recovering = |e: &&Entry| e.published.status.as_ref().is_some_and(|s| !s.recovering.is_empty());
        let unknown = self.entries.iter().filter(is_recovering).flat_map(Entry::unknown);
        let workloads = self.workloads.views(live, unknown);
        let mut node = self.workloads.node();
        workloads::never_fall(&mut node, &self.last.node);
        let snapshot = Arc::new(Snapshot {
            epoch,
            version: self.last.version + 1,
            taken_at: moment.at,
            ticked_at: fields.at,
            steady_at: self.last.steady_at.max(moment.at),
            allocs: self.entries.iter().map(|e| Arc::clone(&e.view)).collect(),
            overflow: self.overflow.views(self.entries.iter().filter(|e| e.folded).map(|e| &e.view)),
            workloads,
            ended_totals: Arc::clone(&board.totals),
            node,
            counts: self.counts(),
            failed: self.failed(board),
            devices: fields.devices,
            services: fields.services,
            parents: fields.parents,
            disk: Arc::clone(&board.disk),
            host: fields.samples,
            agent: fields.agent,
            before: fields.before,
            info: Arc::clone(&self.last.info),
        });
        self.last = Arc::clone(&snapshot);
        snapshot
    }

    /// Brings `entries` in line with the board: reads first, and builds then.
    fn follow(
        &mut self,
        board: &BoardView,
        readings: &mut dyn ReadingProvider,
        everything: bool,
        moment: ClockReading,
    ) {
        self.rename(board);
        let mut entries = std::mem::take(&mut self.entries);
        let is_same = |(entry, alloc): &(&Entry, &Arc<PublishedAlloc>)| {
            Arc::ptr_eq(&entry.published, alloc) || entry.published.identity.id == alloc.identity.id
        };
        // Nearly always all of them, and new ones come last.
        let same = entries.iter().zip(&board.allocs).take_while(is_same).count();
        let unmatched = entries.split_off(same).into_iter();
        let mut unmatched: HashMap<AllocId, Entry> = unmatched.map(|e| (e.published.identity.id.clone(), e)).collect();

        let to_read = |(place, alloc)| {
            let to_read = match entries.get(place) {
                Some(entry) => AllocToRead::of(alloc, entry, everything)?,
                None => AllocToRead::added(alloc, unmatched.get(&alloc.identity.id)),
            };
            Some((place, to_read))
        };
        let (places, allocs_to_read): (Vec<usize>, Vec<AllocToRead<'_>>) =
            board.allocs.iter().enumerate().filter_map(to_read).unzip();
        for (place, alloc_readings) in places.into_iter().zip(readings.read(&allocs_to_read)) {
            let published = &board.allocs[place];
            match (entries.get_mut(place), alloc_readings) {
                (Some(_), None) => {}
                (Some(entry), Some(alloc_readings)) => self.refresh(entry, published, alloc_readings, moment),
                (None, alloc_readings) => {
                    let alloc_readings = alloc_readings.unwrap_or_else(|| AllocReadings::latest(published));
                    entries.push(match unmatched.remove(&published.identity.id) {
                        Some(mut entry) => {
                            self.refresh(&mut entry, published, alloc_readings, moment);
                            entry
                        }
                        None => self.admit(published, alloc_readings, moment),
                    });
                }
            }
        }
        for removed in unmatched.into_values() {
            self.workloads.left(&removed.slots);
            if removed.folded {
                self.overflow.remove(&removed.view);
            }
            self.retention.forget(&removed.view.identity.id);
        }
        self.entries = entries;
    }

    fn admit(&mut self, published: &Arc<PublishedAlloc>, readings: AllocReadings, moment: ClockReading) -> Entry {
        let slots = self.slots(published);
        self.workloads.joined(&slots);
        // What an agent finds at its start it does not count as new.
        let is_new = self.last.version > 0;
        let identity = self.identity(published, None);
        let folded = is_new && !self.overflow.admits(identity.workload.as_ref(), moment.now);
        let entry = self.build(published, readings, None, slots, moment, folded);
        if folded {
            self.overflow.folded(aggregate::series_size(&entry.view).series);
        }
        entry
    }

    /// In the order of its tasks. None: the workload is unknown.
    fn slots(&mut self, published: &PublishedAlloc) -> Vec<usize> {
        let by = match (&published.status, &published.observed) {
            (Some(_), _) => WorkloadOrigin::Managed,
            (None, Some(_)) => WorkloadOrigin::Observed(Some(published.identity.source)),
            (None, None) => return Vec::new(),
        };
        let identity = &published.identity;
        let workload = identity.workload.iter();
        let tasks = workload.flat_map(|workload| identity.tasks.iter().map(move |task| (workload, &task.name)));
        tasks.map(|(workload, task)| self.workloads.slot(workload, task, by)).collect()
    }

    fn refresh(
        &mut self,
        entry: &mut Entry,
        published: &Arc<PublishedAlloc>,
        readings: AllocReadings,
        moment: ClockReading,
    ) {
        if entry.is_of(published) && entry.is_made_of(&readings) {
            entry.note_times(&readings);
            return;
        }
        let mut slots = std::mem::take(&mut entry.slots);
        if published.observed.is_some() && !Arc::ptr_eq(&entry.published.identity, &published.identity) {
            // It has got another name, or one task more.
            self.workloads.left(&slots);
            slots = self.slots(published);
            self.workloads.joined(&slots);
        }
        self.workloads.moved(&slots);
        *entry = self.build(published, readings, Some(Arc::clone(&entry.view)), slots, moment, entry.folded);
    }

    fn build(
        &mut self,
        published: &Arc<PublishedAlloc>,
        readings: AllocReadings,
        earlier: Option<Arc<AllocView>>,
        slots: Vec<usize>,
        moment: ClockReading,
        folded: bool,
    ) -> Entry {
        let (identity, status) = (&self.identity(published, earlier.as_ref()), published.status.as_ref());
        let steady_at = self.last.steady_at;
        let earlier_recovering = earlier.as_ref().map_or(&[][..], |e| recovering(e.status.as_deref()));
        let recovering = recovering(status.map(|status| &**status));
        let mut tasks = PerTask::with_capacity(identity.tasks.len());
        for (known, reading) in identity.tasks.iter().zip(&readings.tasks) {
            let place = tasks.len();
            let task = status.and_then(|status| status.tasks.get(place));
            let same_task = |e: &&Arc<AllocView>| e.identity.tasks.get(place).is_some_and(|t| t.name == known.name);
            let previous = earlier.as_ref().filter(same_task).and_then(|e| e.tasks.get(place));
            let raw = reading.as_ref().map(|r| &r.usage);
            let until = until(published, place);
            let observed = published.observed.as_ref().and_then(|alloc| alloc.tasks.get(place));
            let same_state = previous.filter(|p| match (&p.managed, task) {
                (Some(before), Some(task)) => Arc::ptr_eq(&before.status, task) && before.until == until,
                (None, None) => p.observed.as_ref().map(Arc::as_ptr) == observed.map(Arc::as_ptr),
                (Some(_), None) | (None, Some(_)) => false,
            });
            let is_known = !recovering.contains(&known.name);
            let as_known = is_known != earlier_recovering.contains(&known.name);
            let unchanged =
                same_state.filter(|p| as_known && p.attempt.as_ref().map(Arc::as_ptr) == raw.map(Arc::as_ptr));
            tasks.push(match unchanged {
                // The same values, but they may have been read again since.
                Some(view) => match reading.as_ref().map(|r| r.at) {
                    Some(at) if view.sampled_at != Some(at) => {
                        let before = reading.as_ref().and_then(|r| r.before.clone());
                        Arc::new(TaskView { sampled_at: Some(at), before, ..(**view).clone() })
                    }
                    Some(_) | None => Arc::clone(view),
                },
                None => {
                    let previous = previous.map(|p| (&**p, steady_at));
                    let view = aggregate::task((task, observed), reading.as_ref(), until, previous);
                    Arc::new(if is_known { view } else { TaskView { usage: Arc::default(), ..view } })
                }
            });
        }
        let reading = readings.alloc.as_ref();
        let aggregation = if identity.cgroup.is_some() { Aggregation::Cgroup } else { Aggregation::Sum };
        let mut usage = match aggregation {
            Aggregation::Cgroup => aggregate::own_cgroup(reading, &published.alloc_base, &tasks),
            Aggregation::Sum => Arc::new(aggregate::sum(&tasks)),
        };
        if let Some(earlier) = &earlier {
            aggregate::never_fall(&mut usage, &earlier.usage);
        }
        if !recovering.is_empty() {
            // Whatever was read of its cgroup, the counters of that task are missing.
            usage = Arc::default();
        }
        let is_over = |alloc: &Arc<ObservedAlloc>| alloc.ended_at.is_some();
        let ended =
            status.is_some_and(|status| status.is_terminal()) || published.observed.as_ref().is_some_and(is_over);
        if ended && tasks.iter().any(|task| task.attempt.is_some()) {
            usage = Arc::new(usage.without_live());
        }
        let sampled_at = newest(&tasks, &readings);
        let was_retired = earlier.as_ref().is_some_and(|e| e.retired);
        let mut view = AllocView {
            identity: Arc::clone(identity),
            status: status.cloned(),
            observed: published.observed.clone(),
            tasks,
            usage,
            aggregation,
            sampled_at,
            ended,
            retired: folded || (ended && was_retired),
        };
        if !folded {
            self.note_end(&mut view, earlier.as_deref(), moment);
        }
        let memory_bytes = status.filter(|_| !ended).map_or(0, |status| aggregate::memory_limits(status));
        let oldest = readings.oldest();
        let raw_tasks = readings.tasks.into_iter().map(|r| r.map(|r| r.usage)).collect();
        let raw_alloc = readings.alloc.map(|r| r.usage);
        let (published, view) = (Arc::clone(published), Arc::new(view));
        Entry { published, raw_tasks, raw_alloc, oldest, view, slots, memory_bytes, folded }
    }

    /// Reports an end to retention, or that there is none any more.
    fn note_end(&mut self, view: &mut AllocView, earlier: Option<&AllocView>, moment: ClockReading) {
        let ended_before = earlier.is_some_and(|e| e.ended);
        match (view.ended, ended_before) {
            (true, false) => {
                // An end that the agent learns of long afterwards, as at its start, is not shown as a new one.
                let observed = || view.observed.as_deref().and_then(|alloc| alloc.ended_at);
                let since =
                    view.status.as_deref().and_then(aggregate::known_since).or_else(observed).unwrap_or(moment.at);
                if moment.at.since(since).as_duration() >= self.keep {
                    view.retired = true;
                } else {
                    let series_size = aggregate::series_size(view);
                    let version = self.last.version + 1;
                    self.retention.ended(&view.identity.id, moment.now, Duration::ZERO, version, series_size);
                }
            }
            (false, true) => self.retention.forget(&view.identity.id),
            (true, true) | (false, false) => {}
        }
    }

    /// Computed again only after a change of the board.
    fn failed(&mut self, board: &BoardView) -> Arc<FailuresByWorkload> {
        if self.failed_version != Some(board.version) {
            self.failed_version = Some(board.version);
            let failed = failed::failed(self.entries.iter().filter_map(|e| e.view.status.as_ref()));
            return Arc::new(failed);
        }
        Arc::clone(&self.last.failed)
    }

    fn counts(&self) -> CurrentCounts {
        let mut counts = CurrentCounts::default();
        for entry in &self.entries {
            let Some(status) = &entry.view.status else { continue };
            counts.allocs[status.state.index()] += 1;
            for reason in PlacementReason::ALL {
                counts.waiting[reason.index()] += u64::from(status.waits_for(reason));
            }
            for task in &entry.view.tasks {
                if let Some(managed) = &task.managed {
                    counts.tasks[managed.status.state.index()] += 1;
                }
                if let Some(attempt) = &task.attempt {
                    counts.allocated_cpu_cores += aggregate::quota_cores(attempt).unwrap_or(0.0);
                }
            }
            counts.allocated_memory_bytes = counts.allocated_memory_bytes.saturating_add(entry.memory_bytes);
        }
        counts
    }
}

impl<'a> AllocToRead<'a> {
    /// `entry`: what is remembered of it. `None`: it goes on as it is shown.
    fn of(alloc: &'a Arc<PublishedAlloc>, entry: &Entry, everything: bool) -> Option<AllocToRead<'a>> {
        let is_needed = !entry.is_of(alloc);
        let new_attempts = is_needed && other_attempts(&entry.published, alloc);
        (is_needed || everything).then_some(AllocToRead { alloc, new_attempts, must_rebuild: is_needed })
    }
    /// One that has no place yet.
    fn added(alloc: &'a Arc<PublishedAlloc>, entry: Option<&Entry>) -> AllocToRead<'a> {
        let new_attempts = entry.is_none_or(|entry| other_attempts(&entry.published, alloc));
        AllocToRead { alloc, new_attempts, must_rebuild: true }
    }
}

/// One has begun or ended.
fn other_attempts(before: &PublishedAlloc, now: &PublishedAlloc) -> bool {
    let reader = |r: &Option<Arc<TaskReader>>| r.as_ref().map(Arc::as_ptr);
    !before.readers.iter().map(reader).eq(now.readers.iter().map(reader))
}

/// Up to when a task's state is shown. Read after the clocks, because its dwell is counted up to their reading.
fn until(published: &PublishedAlloc, place: usize) -> Timestamp {
    published.until.get(place).map_or(Timestamp(u64::MAX), |until| until.get())
}

impl Entry {
    /// Slots of tasks whose usage is unknown.
    fn unknown(&self) -> impl Iterator<Item = usize> + '_ {
        let recovering = recovering(self.published.status.as_deref());
        let tasks = self.published.identity.tasks.iter().zip(&self.slots);
        tasks.filter(|(task, _)| recovering.contains(&task.name)).map(|(_, slot)| *slot)
    }

    /// It was made of this, and no task has begun to leave its state since.
    fn is_of(&self, published: &Arc<PublishedAlloc>) -> bool {
        Arc::ptr_eq(&self.published, published) && self.is_unfinished()
    }
    fn is_unfinished(&self) -> bool {
        let mut tasks = self.view.tasks.iter().enumerate();
        tasks.all(|(at, task)| task.managed.as_ref().is_none_or(|task| task.until == until(&self.published, at)))
    }
    /// Whether every reading is the very one that the view was made of.
    fn is_made_of(&self, readings: &AllocReadings) -> bool {
        let usage = |r: &'_ Option<Reading>| r.as_ref().map(|r| Arc::as_ptr(&r.usage));
        self.raw_alloc.as_ref().map(Arc::as_ptr) == usage(&readings.alloc)
            && self.raw_tasks.len() == readings.tasks.len()
            && self.raw_tasks.iter().zip(&readings.tasks).all(|(raw, r)| raw.as_ref().map(Arc::as_ptr) == usage(r))
    }
}

impl Entry {
    /// The values are the same, but some were read again: only their times change.
    fn note_times(&mut self, readings: &AllocReadings) {
        self.oldest = readings.oldest();
        let at = |r: &Option<Reading>| r.as_ref().map(|r| r.at);
        let seen = |view: &TaskView, r: &Option<Reading>| at(r).is_none_or(|at| view.sampled_at == Some(at));
        if self.view.tasks.iter().zip(&readings.tasks).all(|(view, r)| seen(view, r))
            && newest(&self.view.tasks, readings) == self.view.sampled_at
        {
            return;
        }
        let view = Arc::make_mut(&mut self.view);
        for (task, reading) in view.tasks.iter_mut().zip(&readings.tasks).filter(|(view, r)| !seen(view, r)) {
            let task = Arc::make_mut(task);
            task.sampled_at = at(reading);
            task.before = reading.as_ref().and_then(|reading| reading.before.clone());
        }
        // Not the latest of all times: the clock may have gone back.
        view.sampled_at = newest(&view.tasks, readings);
    }
}

/// When the newest of what is shown of an alloc was read.
fn newest(tasks: &[Arc<TaskView>], readings: &AllocReadings) -> Option<Timestamp> {
    tasks.iter().map(|task| task.sampled_at).max().flatten().max(readings.alloc.as_ref().map(|reading| reading.at))
}

/// Its tasks that are in recovery.
fn recovering(status: Option<&AllocStatus>) -> &[TaskName] {
    status.map_or(&[], |status| &status.recovering)
}
