//! What is known of this host. Fingerprinters say it, and drivers and devices of theirs, each in attributes of their
//! own; tasks that start and the API read it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::model::attributes::{AttributeDiff, Attributes};

/// Concurrency: any thread; the lock is held for some microseconds at most.
#[derive(Debug, Default)]
pub struct Facts(watch::Sender<Arc<Attributes>>);

impl Facts {
    /// All of it as it stands at this moment.
    pub fn now(&self) -> Arc<Attributes> {
        Arc::clone(&self.0.borrow())
    }

    /// Receives each change.
    pub fn watch(&self) -> watch::Receiver<Arc<Attributes>> {
        self.0.subscribe()
    }

    /// All of a diff at once: no reader sees half of it. Returns whether it changed anything: only then watchers wake.
    pub fn apply(&self, diff: AttributeDiff) -> bool {
        self.0.send_if_modified(|attributes| {
            let changes = diff.changes(attributes);
            if changes {
                diff.apply_to(Arc::make_mut(attributes));
            }
            changes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attributes::HostAttribute::{OsName, OsVersion};

    #[test]
    fn unchanged_facts_wake_no_watcher_and_earlier_readings_are_unaffected() {
        let facts = Facts::default();
        let mut watched = facts.watch();
        let debian = |version: &str| {
            AttributeDiff::default().with(OsName, Some("debian".into())).with(OsVersion, Some(version.into()))
        };
        assert!(facts.apply(debian("12")) && watched.has_changed().unwrap());
        let before = Arc::clone(&watched.borrow_and_update());
        assert!(!facts.apply(debian("12")) && !watched.has_changed().unwrap());
        assert!(!facts.apply(AttributeDiff::default()) && !watched.has_changed().unwrap());
        assert!(facts.apply(debian("13")) && watched.has_changed().unwrap());
        assert_eq!((before["os.version"].bare(), facts.now()["os.version"].bare()), ("12".into(), "13".into()));
    }

    #[test]
    fn no_reader_sees_half_of_a_diff() {
        let facts = Facts::default();
        let both = |n: u64| AttributeDiff::default().with(OsName, Some(n.into())).with(OsVersion, Some(n.into()));
        facts.apply(both(0));
        std::thread::scope(|threads| {
            threads.spawn(|| (1..5_000).for_each(|n| assert!(facts.apply(both(n)))));
            for _ in 0..5_000 {
                let seen = facts.now();
                assert_eq!(seen["os.name"], seen["os.version"]);
            }
        });
    }
}
