//! What is kept: one slot each `interval`, a curve of each task that runs in it.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::time::Duration;

use super::column::TaskCurve;
use super::sample::{CounterReading, memory};
use crate::exporters::json::tasks::host;
use crate::model::id::{AllocId, TaskName};
use crate::model::task::ShownState;
use crate::model::units::{Nanos, Timestamp};
use crate::snapshot::{AllocView, Snapshot, TaskView};

/// So long a point is kept.
pub(super) const RETENTION: Duration = Duration::from_secs(3_600);
/// Columns that have become the same all over are sought each so many slots.
const FOLDED_EACH: u64 = 64;

/// Settings of the kept hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentConfig {
    /// Between two points.
    pub interval: Duration,
    /// Of all of it. 0: nothing is kept.
    pub max_bytes: u64,
}

impl Default for RecentConfig {
    fn default() -> RecentConfig {
        RecentConfig { interval: Duration::from_secs(10), max_bytes: 8 << 20 }
    }
}

impl RecentConfig {
    /// Of each column.
    pub(super) fn points(&self) -> usize {
        let points = RETENTION.as_nanos() / self.interval.as_nanos().max(1);
        usize::try_from(points).unwrap_or(usize::MAX).clamp(1, 3_600)
    }
}

/// An entry of a hash map beside its key and value, and the text of an ID that may have no other owner.
const ENTRY: usize = 96;
/// New allocs are admitted below this part of the budget: the others have room to grow.
const ADMITTED_BELOW: (usize, usize) = (9, 10);

/// Everything that is kept.
#[derive(Debug, Default)]
pub(super) struct RecentHour {
    /// Of the newest point; 0: there is none.
    pub slot: u64,
    /// When the points were, oldest first; the last one is that of `slot`.
    pub times: VecDeque<Timestamp>,
    /// Of the newest snapshot that was recorded.
    pub epoch: u64,
    pub host: CurveOf,
    pub allocs: HashMap<AllocId, AllocCurves>,
    /// So many allocs so far.
    admitted: u64,
    pub bytes: usize,
    /// Running tasks for which there is no room.
    pub left_out: usize,
}

#[derive(Debug)]
pub(super) struct AllocCurves {
    /// Later ones have larger numbers.
    pub order: u64,
    pub tasks: Vec<(TaskName, CurveOf)>,
}

/// A curve, and the reading that the next rates begin with.
#[derive(Debug, Default)]
pub(super) struct CurveOf {
    pub curve: TaskCurve,
    last: Option<CounterReading>,
}

impl RecentHour {
    pub fn record(&mut self, snapshot: &Snapshot, config: &RecentConfig) {
        let at = snapshot.taken_at;
        if self.times.back().is_some_and(|last| *last >= at) {
            // The wall clock was set back: points of one time twice would be no curve.
            *self = RecentHour { slot: self.slot, ..RecentHour::default() };
        }
        let most = config.points();
        self.slot += 1;
        self.epoch = snapshot.epoch;
        self.times.push_back(at);
        let retained = Nanos::from_duration(RETENTION);
        while self.times.len() > most || self.times.front().is_some_and(|first| at.since(*first) > retained) {
            self.times.pop_front();
        }
        let host = host(snapshot, &snapshot.host);
        let used = host.memory_total_bytes.zip(host.memory_available_bytes);
        let reading = CounterReading::of_host(snapshot.ticked_at, &host);
        self.host.push(self.slot, reading, used.map(|(all, free)| all.saturating_sub(free)), most);
        self.left_out = 0;
        for alloc in snapshot.allocs.iter().filter(|alloc| !alloc.ended) {
            self.record_alloc(alloc, snapshot.ticked_at, config);
        }
        let oldest = self.oldest();
        self.allocs.retain(|_, alloc| alloc.next() > oldest);
        if self.slot.is_multiple_of(FOLDED_EACH) {
            let tasks = self.allocs.values_mut().flat_map(|alloc| &mut alloc.tasks);
            tasks.for_each(|(_, task)| task.curve.fold());
        }
    }

    fn record_alloc(&mut self, alloc: &AllocView, ticked_at: Timestamp, config: &RecentConfig) {
        let running = |task: &TaskView| {
            let state = task.state();
            task.sampled_at.filter(|_| {
                matches!(state, None | Some(ShownState::Running | ShownState::Paused | ShownState::Killing))
            })
        };
        let lives = alloc.tasks.iter().filter(|task| running(task).is_some()).count();
        if lives == 0 {
            return;
        }
        if !self.allocs.contains_key(&alloc.identity.id) {
            if !self.makes_room(size_of_new(alloc.tasks.len()), config.max_bytes) {
                self.left_out += lives;
                return;
            }
            self.bytes += size_of_new(alloc.tasks.len());
            self.admitted += 1;
            let new = AllocCurves { order: self.admitted, tasks: Vec::with_capacity(alloc.tasks.len()) };
            self.allocs.insert(alloc.identity.id.clone(), new);
        }
        let Some(curves) = self.allocs.get_mut(&alloc.identity.id) else { return };
        for (place, (known, task)) in alloc.tasks().enumerate() {
            if let Some(sampled_at) = running(task) {
                // One that slept is read seldom; each tick saw that it slept.
                let reading = CounterReading::of_task(sampled_at.max(ticked_at), &task.usage);
                curves.task(place, &known.name).push(self.slot, reading, memory(&task.usage), config.points());
            }
        }
    }

    /// For a new alloc, if need be in the place of ended ones. `false`: there is none.
    fn makes_room(&mut self, size: usize, max_bytes: u64) -> bool {
        let max = usize::try_from(max_bytes).unwrap_or(usize::MAX) / ADMITTED_BELOW.1 * ADMITTED_BELOW.0;
        while self.bytes + size > max {
            // Those that run have a point in this slot or in the one before.
            let ended = self.allocs.iter().filter(|(_, alloc)| alloc.next() < self.slot);
            let oldest = ended.min_by_key(|(_, alloc)| (alloc.next(), alloc.order)).map(|(id, _)| id.clone());
            let Some(removed) = oldest.and_then(|id| self.allocs.remove(&id)) else { return false };
            self.bytes = self.bytes.saturating_sub(size_of_alloc(&removed));
        }
        true
    }

    /// The slot of the oldest time.
    pub fn oldest(&self) -> u64 {
        (self.slot + 1).saturating_sub(u64::try_from(self.times.len()).unwrap_or(self.slot))
    }
}

impl AllocCurves {
    /// `place`: where it nearly always is.
    fn task(&mut self, place: usize, name: &TaskName) -> &mut CurveOf {
        let here = self.tasks.get(place).is_some_and(|(known, _)| known == name).then_some(place);
        let found = here.or_else(|| self.tasks.iter().position(|(known, _)| known == name));
        let at = found.unwrap_or_else(|| {
            self.tasks.push((name.clone(), CurveOf::default()));
            self.tasks.len() - 1
        });
        &mut self.tasks[at].1
    }

    /// The slot after its newest point.
    pub fn next(&self) -> u64 {
        self.tasks.iter().map(|(_, task)| task.curve.next()).max().unwrap_or(0)
    }
}

impl CurveOf {
    fn push(&mut self, slot: u64, reading: CounterReading, memory: Option<u64>, most: usize) {
        // After a pause the rate would be one over the pause.
        let before = self.last.filter(|_| self.curve.next() == slot);
        self.curve.push(slot, &reading.point(before.as_ref(), memory), most);
        self.last = Some(reading);
    }
}

pub(super) fn size_of_new(tasks: usize) -> usize {
    size_of::<AllocId>() + size_of::<AllocCurves>() + ENTRY + tasks * size_of::<(TaskName, CurveOf)>()
}

pub(super) fn size_of_alloc(alloc: &AllocCurves) -> usize {
    size_of_new(alloc.tasks.capacity()) + alloc.tasks.iter().map(|(_, task)| task.curve.bytes()).sum::<usize>()
}
