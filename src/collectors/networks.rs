//! Whose each network namespace is.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::network::Counts;
use crate::telemetry::lock;

/// What is known of one.
#[derive(Debug, Default)]
struct Namespace {
    /// The process by which its task was seen, and which task that is. `None`: nobody tells of it now.
    teller: Option<(u32, u64)>,
    /// What its counters were when they were told last.
    told: Option<Counts>,
}

/// Concurrency: any thread; a short lock at each look at a task that has
/// a network of its own.
#[derive(Debug, Default)]
pub(super) struct Networks {
    /// As many as there were at a time: the kernel gives numbers anew.
    known: Mutex<HashMap<u64, Namespace>>,
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
        let known = known.entry(namespace).or_default();
        let taken = known.teller.filter(|(_, whose)| *whose != id);
        if taken.is_some_and(|(by, _)| network(by) == Some(namespace)) {
            return false;
        }
        known.teller = Some((pid, id));
        true
    }

    /// It tells these counts now. Gives what was told before, by whomever.
    pub(super) fn told(&self, namespace: u64, id: u64, counts: Counts) -> Option<Counts> {
        let mut known = lock(&self.known);
        let known = known.get_mut(&namespace).filter(|known| known.teller.is_some_and(|(_, whose)| whose == id))?;
        known.told.replace(counts)
    }

    /// The task tells of it no more.
    pub(super) fn close(&self, namespace: u64, id: u64) {
        let mut known = lock(&self.known);
        if let Some(known) =
            known.get_mut(&namespace).filter(|known| known.teller.is_some_and(|(_, whose)| whose == id))
        {
            known.teller = None;
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
