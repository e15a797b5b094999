//! The set of allocs of this agent, each with its owner.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;

use crate::model::id::AllocId;
use crate::runner::alloc::{Alloc, EndedAlloc};
use crate::telemetry::lock;

/// Concurrency: any thread; no other lock is taken while one is held.
#[derive(Default)]
pub struct Allocs {
    known: Mutex<BTreeMap<AllocId, OwnedAlloc>>,
    /// Ended allocs whose series are not exposed any more.
    collectable: Mutex<HashSet<AllocId>>,
}

struct OwnedAlloc {
    alloc: Arc<Alloc>,
    owner: Option<AbortHandle>,
}

impl Allocs {
    pub fn get(&self, id: &AllocId) -> Option<Arc<Alloc>> {
        lock(&self.known).get(id).map(|owned| Arc::clone(&owned.alloc))
    }
    pub fn all(&self) -> Vec<Arc<Alloc>> {
        lock(&self.known).values().map(|owned| Arc::clone(&owned.alloc)).collect()
    }
    pub fn count(&self) -> usize {
        lock(&self.known).len()
    }

    /// Allocs that have not ended, oldest first.
    pub fn live(&self, accepts: impl Fn(&Alloc) -> bool) -> Vec<Arc<Alloc>> {
        let mut live = self.all();
        live.retain(|alloc| accepts(alloc) && !alloc.is_terminal());
        live.sort_by_key(|alloc| alloc.serial);
        live
    }
    /// Allocs that have ended, oldest first; and whether their series were delivered for the last time.
    pub fn ended(&self) -> Vec<(EndedAlloc, bool)> {
        let mut ended: Vec<EndedAlloc> = self.all().iter().filter_map(EndedAlloc::of).collect();
        ended.sort_by_key(|ended| ended.alloc().serial);
        let collectable = lock(&self.collectable);
        let free = |ended: EndedAlloc| {
            let free = collectable.contains(&ended.alloc().id);
            (ended, free)
        };
        ended.into_iter().map(free).collect()
    }

    /// Adds an alloc and spawns its owner.
    pub fn own(&self, alloc: &Arc<Alloc>, life: impl Future<Output = ()> + Send + 'static) {
        // Added before its owner runs: an owner that ends at once finds its alloc.
        lock(&self.known).insert(alloc.id.clone(), OwnedAlloc { alloc: Arc::clone(alloc), owner: None });
        let owner = tokio::spawn(life).abort_handle();
        if let Some(owned) = lock(&self.known).get_mut(&alloc.id) {
            owned.owner = Some(owner);
        }
    }
    #[cfg(test)]
    pub fn owner(&self, id: &AllocId) -> Option<AbortHandle> {
        lock(&self.known).get(id)?.owner.clone()
    }
    pub fn forget(&self, ids: &[AllocId]) {
        let (mut known, mut collectable) = (lock(&self.known), lock(&self.collectable));
        for id in ids {
            known.remove(id);
            collectable.remove(id);
        }
    }

    /// Ended allocs that are still needed: their replacement is pending, or takes over their data.
    pub fn needed(&self) -> HashSet<AllocId> {
        let mut needed = HashSet::new();
        for alloc in self.all() {
            let awaits = alloc.awaits_replacement();
            if awaits {
                needed.insert(alloc.id.clone());
            }
            if awaits || !alloc.is_terminal() {
                needed.extend(alloc.data_from());
            }
        }
        needed
    }

    /// The series of these allocs were delivered for the last time. Returns whether that is new for any known alloc.
    pub fn delivered(&self, ids: impl IntoIterator<Item = AllocId>) -> bool {
        let (known, mut collectable) = (lock(&self.known), lock(&self.collectable));
        let before = collectable.len();
        collectable.extend(ids.into_iter().filter(|id| known.contains_key(id)));
        collectable.len() > before
    }
    /// It ends again: a delivery after an earlier end does not count for this one.
    pub fn undelivered(&self, id: &AllocId) {
        lock(&self.collectable).remove(id);
    }

    /// Whether the owners of ended allocs are still cleaning up.
    pub fn cleans_up(&self) -> bool {
        let cleans_up = |owned: &OwnedAlloc| {
            let is_through = *owned.alloc.ended().borrow();
            owned.alloc.is_terminal() && !is_through && owned.owner.iter().any(|o| !o.is_finished())
        };
        lock(&self.known).values().any(cleans_up)
    }
    /// Drops the owners; their processes keep running.
    pub fn detach(&self) {
        lock(&self.known).values().filter_map(|owned| owned.owner.as_ref()).for_each(AbortHandle::abort);
    }
}
