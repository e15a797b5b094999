//! Cores reserved for the tasks of allocs.

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
    /// The cores of each task of an alloc, in the order of its group.
    held: Mutex<BTreeMap<AllocId, Vec<Vec<u32>>>>,
    /// Increases whenever an alloc releases its cores.
    freed: watch::Sender<u64>,
}

impl CoreKeeper {
    /// `all`: cores that tasks can reserve. Empty: none.
    pub fn new(all: Vec<u32>) -> CoreKeeper {
        CoreKeeper { all, held: Mutex::default(), freed: watch::Sender::new(0) }
    }

    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// Returns the cores that the alloc has already, or reserves the lowest free ones.
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

    /// After a restart of the agent: reserves the cores that the alloc had before.
    pub fn hold(&self, alloc: &AllocId, cores: Vec<Vec<u32>>) {
        lock(&self.held).insert(alloc.clone(), cores);
    }

    /// Cores held by allocs for which `of` is false.
    pub fn held_outside(&self, of: impl Fn(&AllocId) -> bool) -> Vec<u32> {
        let held = lock(&self.held);
        held.iter().filter(|(id, _)| !of(id)).flat_map(|(_, cores)| cores.iter().flatten().copied()).collect()
    }

    /// Releases its cores and notifies allocs that wait for cores.
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
