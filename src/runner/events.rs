//! The newest events of this agent, in order, for who reads along.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::event::Event;

/// Events kept for readers that come later; older ones are counted as missed.
pub const CAPACITY: usize = 4096;

/// A stretch of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// In order; the last one's `seq` is where to go on.
    pub events: Vec<Arc<Event>>,
    /// Events of this run of the agent after the asked place that are not kept any more.
    pub missed: u64,
    /// The newest event's number; 0 where there was none yet.
    pub newest: u64,
}

/// Concurrency: any thread.
#[derive(Debug)]
pub struct Log(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    kept: VecDeque<Arc<Event>>,
    newest: u64,
    /// Where this run of the agent began to count.
    base: u64,
    /// The highest number that was thrown away.
    evicted: u64,
}

impl Default for Log {
    fn default() -> Log {
        Log::restored(Vec::new())
    }
}

impl Log {
    /// Goes on behind the persisted events. Those that the last run told but did not persist are numbers that its readers
    /// may know, so a stretch as long as the log is left out.
    pub fn restored(mut events: Vec<Arc<Event>>) -> Log {
        events.sort_by_key(|e| e.seq);
        let capacity = u64::try_from(CAPACITY).unwrap_or(u64::MAX);
        let newest = events.last().map_or(0, |e| e.seq.saturating_add(capacity));
        let mut kept = VecDeque::from(events);
        while kept.len() > CAPACITY {
            kept.pop_front();
        }
        Log(Mutex::new(Inner { kept, newest, base: newest, evicted: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the event its number and keeps it.
    pub fn push(&self, mut event: Event) -> Arc<Event> {
        let mut log = self.lock();
        log.newest += 1;
        event.seq = log.newest;
        let event = Arc::new(event);
        if log.kept.len() == CAPACITY
            && let Some(old) = log.kept.pop_front()
        {
            log.evicted = old.seq;
        }
        log.kept.push_back(Arc::clone(&event));
        event
    }

    /// At most `limit` events after number `seq`, oldest first.
    pub fn since(&self, seq: u64, limit: usize) -> Page {
        let log = self.lock();
        let first = log.kept.partition_point(|e| e.seq <= seq);
        let events = log.kept.iter().skip(first).take(limit).cloned().collect();
        Page { events, missed: log.evicted.saturating_sub(seq.max(log.base)), newest: log.newest }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::event::EventKind;
    use crate::model::units::Timestamp;

    fn event() -> Event {
        Event {
            seq: 0,
            task_seq: 1,
            time: Timestamp(1),
            kind: EventKind::Started,
            workload: "j".into(),
            alloc_id: "a".into(),
            task: "t".into(),
            message: String::new(),
            details: BTreeMap::new(),
            fails_task: false,
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_was_and_in_order() {
        let log = Log::default();
        for _ in 0..5 {
            log.push(event());
        }
        let page = log.since(0, 3);
        assert_eq!(page.events.iter().map(|e| e.seq).collect::<Vec<_>>(), [1, 2, 3]);
        let page = log.since(3, 100);
        assert_eq!(page.events.iter().map(|e| e.seq).collect::<Vec<_>>(), [4, 5]);
        assert_eq!((page.missed, page.newest), (0, 5));
        assert!(log.since(5, 100).events.is_empty());
    }

    #[test]
    fn a_slow_reader_is_told_how_many_it_missed() {
        let log = Log::default();
        for _ in 0..CAPACITY + 7 {
            log.push(event());
        }
        let page = log.since(2, 1);
        assert_eq!(page.missed, 5, "3 to 7 are gone");
        assert_eq!(page.events[0].seq, 8);
        assert_eq!(log.since(8, 1).missed, 0);
    }

    #[test]
    fn numbers_grow_over_a_restart_of_the_agent_and_the_gap_is_not_called_missed() {
        let old = Log::default();
        let kept = vec![old.push(event()), old.push(event())];
        let log = Log::restored(kept);
        let new = log.push(event());
        assert!(new.seq > 2);
        let page = log.since(2, 10);
        assert_eq!((page.events.len(), page.missed), (1, 0));
        assert_eq!(log.since(0, 10).events.len(), 3);
    }
}
