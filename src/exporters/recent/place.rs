//! The store: one slot each `interval`, and what of it is answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::column::TaskCurve;
use super::sample::{CounterReading, memory};
use super::{answer, evict};
use crate::exporters::json::tasks::host_row;
use crate::model::id::{AllocId, TaskName};
use crate::model::task::TaskState;
use crate::model::units::{Nanos, Timestamp};
use crate::snapshot::{AllocView, Snapshot, Snapshots, TaskView};
use crate::telemetry::{Metrics, lock};

/// So long a point is kept.
pub(super) const KEPT: Duration = Duration::from_secs(3_600);
/// Columns that have become the same all over are looked for each so many slots.
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
        RecentConfig { interval: Duration::from_secs(15), max_bytes: 8 << 20 }
    }
}

impl RecentConfig {
    /// Of each column.
    pub(super) fn points(&self) -> usize {
        let points = KEPT.as_nanos() / self.interval.as_nanos().max(1);
        usize::try_from(points).unwrap_or(usize::MAX).clamp(1, 3_600)
    }
}

/// Concurrency: one task records, any thread reads.
#[derive(Debug)]
pub struct RecentHistory {
    config: RecentConfig,
    kept: Mutex<KeptHour>,
    /// The answer about all tasks, and the slot that it is of.
    body: Mutex<Option<(u64, Bytes)>>,
}

/// Everything that is kept.
#[derive(Debug, Default)]
pub(super) struct KeptHour {
    /// Of the newest point; 0: there is none.
    pub slot: u64,
    /// When the points were, oldest first; the last one is that of `slot`.
    pub times: VecDeque<Timestamp>,
    /// Of the newest snapshot that was recorded.
    epoch: u64,
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

impl RecentHistory {
    /// `None`: nothing is to be kept.
    pub fn new(config: RecentConfig) -> Option<Arc<RecentHistory>> {
        let kept = Mutex::default();
        (config.max_bytes > 0).then(|| Arc::new(RecentHistory { config, kept, body: Mutex::new(None) }))
    }

    /// One more point of every running task. `false`: the snapshot has no newer reading. Blocks for some milliseconds.
    pub fn record(&self, snapshot: &Snapshot, metrics: &Metrics) -> bool {
        let mut kept = lock(&self.kept);
        if snapshot.epoch == kept.epoch {
            return false;
        }
        kept.record(snapshot, &self.config);
        let max = usize::try_from(self.config.max_bytes).unwrap_or(usize::MAX);
        let evicted = evict::fit(&mut kept, max);
        kept.left_out += evicted;
        metrics.recent.is_kept(kept.bytes, kept.left_out);
        true
    }

    /// The curves of CPU and memory of all tasks, and those of the host, with the time of the newest point; encoded once for each
    /// slot.
    pub fn series(&self) -> (Timestamp, Bytes) {
        let mut body = lock(&self.body);
        let kept = lock(&self.kept);
        let at = kept.times.back().copied().unwrap_or_default();
        if let Some((_, ready)) = body.as_ref().filter(|(slot, _)| *slot == kept.slot) {
            return (at, ready.clone());
        }
        let new = Bytes::from(answer::series(&kept, &self.config));
        *body = Some((kept.slot, new.clone()));
        (at, new)
    }

    /// The slot that [`RecentHistory::series`] is of.
    pub fn slot(&self) -> u64 {
        lock(&self.kept).slot
    }

    /// Every curve of one alloc. Without points where nothing was recorded of it.
    pub fn of_alloc(&self, id: &AllocId) -> Vec<u8> {
        answer::alloc(&lock(&self.kept), &self.config, id)
    }

    /// Whether anything is kept of the alloc.
    pub fn knows(&self, id: &AllocId) -> bool {
        lock(&self.kept).allocs.contains_key(id)
    }

    /// What no client has read for a slot gives its memory back.
    fn forget_body(&self, slot: u64) {
        let mut body = lock(&self.body);
        *body = body.take().filter(|(of, _)| of + 1 >= slot);
    }
}

impl KeptHour {
    fn record(&mut self, snapshot: &Snapshot, config: &RecentConfig) {
        let at = snapshot.taken_at;
        if self.times.back().is_some_and(|last| *last >= at) {
            // The wall clock was set back: points of one time twice would be no curve.
            *self = KeptHour { slot: self.slot, ..KeptHour::default() };
        }
        let most = config.points();
        self.slot += 1;
        self.epoch = snapshot.epoch;
        self.times.push_back(at);
        let kept = Nanos::from_duration(KEPT);
        while self.times.len() > most || self.times.front().is_some_and(|first| at.since(*first) > kept) {
            self.times.pop_front();
        }
        let host = host_row(snapshot);
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
            task.sampled_at.filter(|_| matches!(state, None | Some(TaskState::Running | TaskState::Killing)))
        };
        let lives = alloc.tasks.iter().filter(|task| running(task).is_some()).count();
        if lives == 0 {
            return;
        }
        if !self.allocs.contains_key(&alloc.identity.id) {
            if !evict::has_room(self.bytes, alloc.tasks.len(), config.max_bytes) {
                self.left_out += lives;
                return;
            }
            self.bytes += evict::size_of_new(alloc.tasks.len());
            self.admitted += 1;
            let new = AllocCurves { order: self.admitted, tasks: Vec::new() };
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

/// Records as long as there are snapshots. `None`: nothing is to be kept.
pub fn run(
    recent: Option<&Arc<RecentHistory>>,
    snapshots: &Snapshots,
    metrics: &Arc<Metrics>,
) -> Option<JoinHandle<()>> {
    let (recent, snapshots, metrics) = (Arc::clone(recent?), snapshots.clone(), Arc::clone(metrics));
    Some(tokio::spawn(async move {
        let mut pause = tokio::time::interval(recent.config.interval);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // Ends: with the agent.
            pause.tick().await;
            let snapshot = snapshots.bring().await;
            let (recent, metrics) = (Arc::clone(&recent), Arc::clone(&metrics));
            let recorded = tokio::task::spawn_blocking(move || {
                recent.record(&snapshot, &metrics);
                recent.forget_body(recent.slot());
            });
            if let Err(error) = recorded.await {
                tracing::error!(error = error.to_string(), "recording the last hour stopped");
                return;
            }
        }
    }))
}
