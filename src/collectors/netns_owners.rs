//! Assigns each network namespace to one task, so that shared traffic is counted once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::network::TrafficCounts;
use crate::telemetry::lock;

/// State of one namespace.
#[derive(Debug, Default)]
struct NamespaceState {
    /// Process and ID of the task that reports its traffic. `None`: no task does.
    owner: Option<(u32, u64)>,
    /// Counters at the last report.
    last_counts: Option<TrafficCounts>,
}

/// The task that reports the traffic of each network namespace. Concurrency: any thread; a short lock at each reading
/// of a task with its own namespace.
#[derive(Debug, Default)]
pub(super) struct NetnsOwners {
    /// By inode. Inode numbers are reused, so it holds at most as many entries as namespaces existed at a time.
    known: Mutex<HashMap<u64, NamespaceState>>,
    next: AtomicU64,
}

impl NetnsOwners {
    /// An ID for one more task with its own network namespace.
    pub(super) fn new_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the task reports this namespace: it already does, no other task does, or the other task is in another
    /// namespace by now (inode numbers are reused).
    pub(super) fn claim(
        &self,
        namespace: u64,
        (pid, id): (u32, u64),
        network: impl FnOnce(u32) -> Option<u64>,
    ) -> bool {
        let mut known = lock(&self.known);
        let known = known.entry(namespace).or_default();
        let taken = known.owner.filter(|(_, owner)| *owner != id);
        if taken.is_some_and(|(by, _)| network(by) == Some(namespace)) {
            return false;
        }
        known.owner = Some((pid, id));
        true
    }

    /// Records the task's counters. Returns those recorded before, by any task.
    pub(super) fn record(&self, namespace: u64, id: u64, counts: TrafficCounts) -> Option<TrafficCounts> {
        let mut known = lock(&self.known);
        let known = known.get_mut(&namespace).filter(|known| known.owner.is_some_and(|(_, owner)| owner == id))?;
        known.last_counts.replace(counts)
    }

    /// The task no longer reports the namespace.
    pub(super) fn close(&self, namespace: u64, id: u64) {
        let mut known = lock(&self.known);
        if let Some(known) = known.get_mut(&namespace).filter(|known| known.owner.is_some_and(|(_, owner)| owner == id))
        {
            known.owner = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_traffic_is_reported_by_one_task_and_by_another_after_it_ends() {
        let networks = NetnsOwners::default();
        let lives = |_| Some(7);
        assert!(networks.claim(7, (100, 1), lives));
        assert!(!networks.claim(7, (200, 2), lives) && networks.claim(7, (100, 1), lives));
        networks.close(7, 2);
        assert!(!networks.claim(7, (200, 2), lives), "it was not the other's");
        networks.close(7, 1);
        assert!(networks.claim(7, (200, 2), lives));
        // The kernel reuses the inode number of a removed namespace.
        assert!(networks.claim(7, (300, 3), |_| Some(9)), "the owner moved to another namespace");
        assert!(networks.claim(7, (400, 4), |_| None), "the owner is gone");
    }
}
