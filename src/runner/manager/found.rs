//! What this agent found on its host: recovered tasks, orphans, and which agents watch the supervisors.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::model::id::{AllocId, ProcessId, TaskName};
use crate::runner::context::RunnerContext;
use crate::telemetry::lock;
use crate::telemetry::metrics::{FoundAs, WatchedBy};

/// Maximum number of listed orphans; all are counted.
const LISTED: usize = 100;

/// A task that ran, or may run, and has no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub alloc_id: AllocId,
    pub task: TaskName,
    pub attempt: u32,
    /// PID of its main process, if known.
    pub pid: Option<u32>,
    pub fate: Fate,
}

/// What happens to an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Ending,
    Killed,
    /// It is left alone, or could not be ended so far; the reason.
    MayRun(String),
}

/// A supervisor that this agent does not watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    pub process: ProcessId,
    pub run_dir: PathBuf,
    pub watched_by: WatchedBy,
}

/// The result of a scan of all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watchers {
    /// In the order of [`WatchedBy::ALL`].
    pub counts: [u64; WatchedBy::ALL.len()],
    /// At most 100 of them.
    pub strays: Vec<Stray>,
}

#[derive(Debug)]
pub struct RecoveryFindings {
    tally: Mutex<RecoveryTally>,
    /// Records that could not be read, at this start or an earlier one.
    pub quarantined: Vec<String>,
    /// What ran under an earlier agent and has no record.
    orphans: Mutex<Vec<Orphan>>,
    /// `None`: no scan was made yet.
    pub watchers: Mutex<Option<Watchers>>,
}

#[derive(Debug)]
struct RecoveryTally {
    began: Instant,
    /// Time until the last recorded task was recovered.
    took: Duration,
    /// Tasks, in the order of [`FoundAs::ALL`].
    found: [u64; FoundAs::ALL.len()],
}

impl RecoveryTally {
    fn of(&mut self, found_as: FoundAs) -> &mut u64 {
        let place = FoundAs::ALL.iter().position(|o| *o == found_as).expect("ALL must list every outcome");
        &mut self.found[place]
    }
}

impl RecoveryFindings {
    /// For an agent that started at that moment.
    pub fn new(began: Instant, quarantined: Vec<String>) -> RecoveryFindings {
        let tally = RecoveryTally { began, took: Duration::ZERO, found: [0; FoundAs::ALL.len()] };
        RecoveryFindings {
            tally: Mutex::new(tally),
            quarantined,
            orphans: Mutex::default(),
            watchers: Mutex::default(),
        }
    }

    /// Counts a recorded task.
    pub fn count(&self, ctx: &RunnerContext, found_as: FoundAs) {
        *lock(&self.tally).of(found_as) += 1;
        self.publish(ctx);
    }
    pub fn publish(&self, ctx: &RunnerContext) {
        let mut tally = lock(&self.tally);
        tally.took = ctx.clock.instant().saturating_duration_since(tally.began);
        ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }
    /// Counts a task without a record. `before`: as what it was counted so far.
    pub fn count_orphan(&self, ctx: &RunnerContext, before: Option<FoundAs>, found_as: Option<FoundAs>) {
        let mut tally = lock(&self.tally);
        before.into_iter().for_each(|before| *tally.of(before) -= 1);
        found_as.into_iter().for_each(|found_as| *tally.of(found_as) += 1);
        ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }

    /// At most 100 of them.
    pub fn orphans(&self) -> Vec<Orphan> {
        lock(&self.orphans).clone()
    }
    pub fn note_orphan(&self, orphan: Orphan) {
        let mut orphans = lock(&self.orphans);
        if let Some(known) = orphans.iter_mut().find(|known| known.is(&orphan)) {
            (known.pid, known.fate) = (orphan.pid.or(known.pid), orphan.fate);
        } else if orphans.len() < LISTED {
            orphans.push(orphan);
        }
    }
    /// It was no orphan after all.
    pub fn forget_orphan(&self, orphan: &Orphan) {
        lock(&self.orphans).retain(|known| !known.is(orphan));
    }
}

impl Orphan {
    /// Whether it is the same attempt.
    fn is(&self, other: &Orphan) -> bool {
        (&self.alloc_id, &self.task, self.attempt) == (&other.alloc_id, &other.task, other.attempt)
    }
}
