//! The newest events of this agent, in order, for who reads along.
//!
//! ```text
//! stage (its record is being written) ──► settle (it is written) ──► seen, once all before it are
//!                                    └──► discard (it was refused): its number stays unused
//! ```
//! A number is given when an event's record is built, and is seen only when that is written: what a reader was told is
//! there again after any death of the agent, under the same number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::marks::Marks;
use crate::model::event::Event;

/// Events kept for readers that come later; older ones are counted as missed.
pub const CAPACITY: usize = 4096;

/// A stretch of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// In order; the last one's `seq` is where to go on.
    pub events: Vec<Arc<Event>>,
    /// Numbers of this stretch whose events are not kept any more.
    pub missed: u64,
    /// The newest number that may be seen; 0 where there was none yet.
    pub newest: u64,
}

/// Concurrency: any thread.
#[derive(Debug)]
pub struct Log {
    inner: Mutex<Inner>,
    marks: Arc<Marks>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: VecDeque<Arc<Event>>,
    /// Numbered, not seen yet; `true`: written, and waiting for one before it.
    staged: BTreeMap<u64, (Arc<Event>, bool)>,
    /// The highest number that was given.
    given: u64,
    /// Up to here everything is seen.
    newest: u64,
    /// Up to here events may be missing: thrown away, or from before a restart and in no task's ring.
    sparse: u64,
}

impl Default for Log {
    fn default() -> Log {
        Log::restored(Vec::new(), Arc::default())
    }
}

impl Log {
    /// Goes on behind what was recorded and what was seen.
    pub fn restored(mut events: Vec<Arc<Event>>, marks: Arc<Marks>) -> Log {
        events.sort_by_key(|e| e.seq);
        events.dedup_by_key(|e| e.seq);
        let newest = events.last().map_or(0, |e| e.seq).max(marks.seq());
        let mut kept = VecDeque::from(events);
        while kept.len() > CAPACITY {
            kept.pop_front();
        }
        let inner = Inner { kept, given: newest, newest, sparse: newest, ..Inner::default() };
        Log { inner: Mutex::new(inner), marks }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the event its number. Nobody sees it yet, nor any with a higher one.
    pub fn stage(&self, mut event: Event) -> Arc<Event> {
        let mut log = self.lock();
        log.given += 1;
        event.seq = log.given;
        let event = Arc::new(event);
        log.staged.insert(event.seq, (Arc::clone(&event), false));
        event
    }

    /// These are recorded.
    pub fn settle(&self, seqs: &[u64]) {
        let mut log = self.lock();
        for seq in seqs {
            if let Some((_, written)) = log.staged.get_mut(seq) {
                *written = true;
            }
        }
        self.advance(&mut log);
    }

    /// These never happened.
    pub fn discard(&self, seqs: &[u64]) {
        let mut log = self.lock();
        for seq in seqs {
            log.staged.remove(seq);
        }
        self.advance(&mut log);
    }

    fn advance(&self, log: &mut Inner) {
        let mut ready = Vec::new();
        while let Some(first) = log.staged.first_entry().filter(|e| e.get().1) {
            ready.push(first.remove().0);
        }
        let newest = log.staged.first_key_value().map_or(log.given, |(seq, _)| seq - 1);
        self.marks.mark_seq(newest);
        for event in ready {
            if log.kept.len() == CAPACITY
                && let Some(old) = log.kept.pop_front()
            {
                log.sparse = log.sparse.max(old.seq);
            }
            log.kept.push_back(event);
        }
        log.newest = newest;
    }

    /// At most `limit` events after number `seq`, oldest first.
    pub fn since(&self, seq: u64, limit: usize) -> Page {
        let log = self.lock();
        let first = log.kept.partition_point(|e| e.seq <= seq);
        let events: Vec<_> = log.kept.iter().skip(first).take(limit).cloned().collect();
        // The next page tells of what is missing behind this one.
        let whole = first + events.len() == log.kept.len();
        let upto = if whole { log.newest } else { events.last().map_or(seq, |e| e.seq) }.min(log.sparse);
        let there = events.iter().take_while(|e| e.seq <= upto).count();
        let missed = upto.saturating_sub(seq).saturating_sub(u64::try_from(there).unwrap_or(u64::MAX));
        Page { events, missed, newest: log.newest }
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
    fn push(log: &Log) -> Arc<Event> {
        let event = log.stage(event());
        log.settle(&[event.seq]);
        event
    }
    fn seqs(page: &Page) -> Vec<u64> {
        page.events.iter().map(|e| e.seq).collect()
    }

    #[test]
    fn a_reader_goes_on_where_it_was_and_in_order() {
        let log = Log::default();
        for _ in 0..5 {
            push(&log);
        }
        assert_eq!(seqs(&log.since(0, 3)), [1, 2, 3]);
        let page = log.since(3, 100);
        assert_eq!(seqs(&page), [4, 5]);
        assert_eq!((page.missed, page.newest), (0, 5));
        assert!(log.since(5, 100).events.is_empty());
    }

    #[test]
    fn nothing_is_seen_before_it_is_written_and_nothing_before_what_precedes_it() {
        let log = Log::default();
        let (first, second) = (log.stage(event()), log.stage(event()));
        log.settle(&[second.seq]);
        assert_eq!(log.since(0, 10), Page { events: Vec::new(), missed: 0, newest: 0 });
        log.settle(&[first.seq]);
        assert_eq!(seqs(&log.since(0, 10)), [1, 2]);
        let (refused, next) = (log.stage(event()), log.stage(event()));
        log.settle(&[next.seq]);
        assert_eq!(log.since(2, 10).newest, 2);
        log.discard(&[refused.seq]);
        assert_eq!(seqs(&log.since(2, 10)), [4]);
    }

    #[test]
    fn a_slow_reader_is_told_how_many_it_missed() {
        let log = Log::default();
        for _ in 0..CAPACITY + 7 {
            push(&log);
        }
        let page = log.since(2, 1);
        assert_eq!(page.missed, 5, "3 to 7 are gone");
        assert_eq!(page.events[0].seq, 8);
        assert_eq!(log.since(8, 1).missed, 0);
    }

    #[test]
    fn after_a_restart_the_numbers_go_on_and_what_is_not_kept_is_called_missed_once() {
        let marks = Arc::new(Marks::default());
        let old = Log::restored(Vec::new(), Arc::clone(&marks));
        let events: Vec<_> = (0..6).map(|_| push(&old)).collect();
        old.stage(event());
        let log = Log::restored(vec![Arc::clone(&events[1]), Arc::clone(&events[4])], Arc::clone(&marks));
        assert_eq!(push(&log).seq, 7, "6 was seen, 7 was not");
        let mut told = Vec::new();
        let (mut since, mut missed) = (0, 0);
        for _ in 0..4 {
            let page = log.since(since, 1);
            missed += page.missed;
            told.extend(seqs(&page));
            since = page.events.last().map_or(page.newest, |e| e.seq);
        }
        assert_eq!((told, missed), (vec![2, 5, 7], 4), "1, 3, 4 and 6 are not kept");
        assert_eq!(log.since(6, 10).missed, 0, "who had read all misses nothing");
        assert_eq!(log.since(3, 10).missed, 2, "4 and 6");
    }
}
