//! What this agent has found on its host: how its start found each task, what is in no record, who watches the supervisors.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::model::id::{AllocId, ProcessId, TaskName};
use crate::runner::ground::Context;
use crate::telemetry::lock;
use crate::telemetry::metrics::{FoundAs, WatchedBy};

/// So many orphans are listed; all are counted.
const LISTED: usize = 100;

/// A task that ran, or may run, and is in no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub alloc_id: AllocId,
    pub task: TaskName,
    pub attempt: u32,
    /// Of its main process, where that is known.
    pub pid: Option<u32>,
    pub fate: Fate,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Ending,
    Killed,
    /// It is left alone, or could not be ended so far; why.
    MayRun(String),
}

/// A supervisor that this agent does not watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    pub process: ProcessId,
    pub run_dir: PathBuf,
    pub watched_by: WatchedBy,
}

/// What a look at all processes has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watchers {
    /// In the order of [`WatchedBy::ALL`].
    pub counts: [u64; WatchedBy::ALL.len()],
    /// The first hundred.
    pub strays: Vec<Stray>,
}

#[derive(Debug)]
pub struct Found {
    tally: Mutex<Tally>,
    /// What of the state could not be read, at this start or an earlier one.
    pub quarantined: Vec<String>,
    /// What ran of an agent before this one and is in none of its records.
    orphans: Mutex<Vec<Orphan>>,
    /// `None`: nobody has looked yet.
    pub watchers: Mutex<Option<Watchers>>,
}

#[derive(Debug)]
struct Tally {
    began: Instant,
    /// Until the last of what is on record was found.
    took: Duration,
    /// Tasks, in the order of [`FoundAs::ALL`].
    found: [u64; FoundAs::ALL.len()],
}

impl Tally {
    fn of(&mut self, found_as: FoundAs) -> &mut u64 {
        let place = FoundAs::ALL.iter().position(|o| *o == found_as).expect("ALL must list every outcome");
        &mut self.found[place]
    }
}

impl Found {
    /// By a start that began at that moment.
    pub fn new(began: Instant, quarantined: Vec<String>) -> Found {
        let tally = Tally { began, took: Duration::ZERO, found: [0; FoundAs::ALL.len()] };
        Found { tally: Mutex::new(tally), quarantined, orphans: Mutex::default(), watchers: Mutex::default() }
    }

    /// A task that is on record.
    pub fn count(&self, ctx: &Context, found_as: FoundAs) {
        *lock(&self.tally).of(found_as) += 1;
        self.publish(ctx);
    }
    pub fn publish(&self, ctx: &Context) {
        let mut tally = lock(&self.tally);
        tally.took = ctx.clock.instant().saturating_duration_since(tally.began);
        ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }
    /// A task that is in no record; `before`: what was said of it so far.
    pub fn count_orphan(&self, ctx: &Context, before: Option<FoundAs>, found_as: Option<FoundAs>) {
        let mut tally = lock(&self.tally);
        before.into_iter().for_each(|before| *tally.of(before) -= 1);
        found_as.into_iter().for_each(|found_as| *tally.of(found_as) += 1);
        ctx.metrics.restored(tally.found, tally.took, self.quarantined.len());
    }

    /// The first hundred.
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
    /// It only seemed to be one.
    pub fn forget_orphan(&self, orphan: &Orphan) {
        lock(&self.orphans).retain(|known| !known.is(orphan));
    }
}

impl Orphan {
    /// The same attempt.
    fn is(&self, other: &Orphan) -> bool {
        (&self.alloc_id, &self.task, self.attempt) == (&other.alloc_id, &other.task, other.attempt)
    }
}
