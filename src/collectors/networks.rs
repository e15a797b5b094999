//! Whose each network namespace is.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::lock;

/// The process by which a task was seen in a namespace, and which task that is. Concurrency: any thread; a short lock at each look at a task that has
/// a network of its own.
#[derive(Debug, Default)]
pub(super) struct Networks {
    known: Mutex<HashMap<u64, (u32, u64)>>,
    next: AtomicU64,
}

impl Networks {
    /// One more task that has a network of its own.
    pub(super) fn one_more(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the task tells of this namespace: it does already, nobody does, or who did has another one now, since numbers are given anew.
    pub(super) fn is_of(
        &self,
        namespace: u64,
        (pid, id): (u32, u64),
        network: impl FnOnce(u32) -> Option<u64>,
    ) -> bool {
        let mut known = lock(&self.known);
        let taken = known.get(&namespace).copied().filter(|(_, whose)| *whose != id);
        if taken.is_some_and(|(by, _)| network(by) == Some(namespace)) {
            return false;
        }
        known.insert(namespace, (pid, id));
        true
    }

    /// The task is over: who shares its network may tell of it.
    pub(super) fn close(&self, namespace: u64, id: u64) {
        let mut known = lock(&self.known);
        if known.get(&namespace).is_some_and(|(_, whose)| *whose == id) {
            known.remove(&namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_that_share_a_namespace_tells_and_then_the_other() {
        let networks = Networks::default();
        let lives = |_| Some(7);
        assert!(networks.is_of(7, (100, 1), lives));
        assert!(!networks.is_of(7, (200, 2), lives) && networks.is_of(7, (100, 1), lives));
        networks.close(7, 2);
        assert!(!networks.is_of(7, (200, 2), lives), "it was not the other's");
        networks.close(7, 1);
        assert!(networks.is_of(7, (200, 2), lives));
        // The kernel gives the number of a namespace that has gone to the next one.
        assert!(networks.is_of(7, (300, 3), |_| Some(9)), "who told has another one");
        assert!(networks.is_of(7, (400, 4), |_| None), "who told is gone");
    }
}
