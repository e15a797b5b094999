//! Which alloc has which cores for its tasks alone.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::watch;

use super::decide::placement::choose_cores;
use crate::model::id::AllocId;
use crate::model::job::TaskGroup;
use crate::model::placement::NotPlaced;
use crate::telemetry::lock;

/// Concurrency: any thread; the lock is held for microseconds.
pub struct CoreKeeper {
    all: Vec<u32>,
    /// Of each task of an alloc, in the order of its group.
    held: Mutex<BTreeMap<AllocId, Vec<Vec<u32>>>>,
    /// Grows whenever an alloc gives back what it reserved.
    freed: watch::Sender<u64>,
}

impl CoreKeeper {
    /// `all`: those that tasks can have. Empty: none can be reserved here.
    pub fn new(all: Vec<u32>) -> CoreKeeper {
        CoreKeeper { all, held: Mutex::default(), freed: watch::Sender::new(0) }
    }

    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// What it has already, or the lowest that are free.
    ///
    /// Errors: too few are free.
    pub fn reserve(&self, alloc: &AllocId, group: &TaskGroup) -> Result<Vec<Vec<u32>>, NotPlaced> {
        let mut held = lock(&self.held);
        if let Some(cores) = held.get(alloc) {
            return Ok(cores.clone());
        }
        let taken: Vec<u32> = held.values().flatten().flatten().copied().collect();
        let cores = choose_cores(group, &self.all, &taken)?;
        held.insert(alloc.clone(), cores.clone());
        Ok(cores)
    }

    /// After a restart of the agent: those that it had before.
    pub fn hold(&self, alloc: &AllocId, cores: Vec<Vec<u32>>) {
        lock(&self.held).insert(alloc.clone(), cores);
    }

    /// Of allocs that are not among these.
    pub fn taken_by_others(&self, of: impl Fn(&AllocId) -> bool) -> Vec<u32> {
        let held = lock(&self.held);
        held.iter().filter(|(id, _)| !of(id)).flat_map(|(_, cores)| cores.iter().flatten().copied()).collect()
    }

    /// Gives them back, and says so to allocs that wait for cores.
    pub fn free(&self, alloc: &AllocId) {
        let had = lock(&self.held).remove(alloc).is_some();
        if had {
            self.freed.send_modify(|times| *times = times.wrapping_add(1));
        }
    }

    pub fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }
}
