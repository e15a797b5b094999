//! The newest events of this agent, in order, for readers that follow them.
//!
//! ```text
//! stage (its record is being written) ──► settle (it is written) ──► visible, once all before it are
//!                                    └──► discard (the write failed): its number stays unused
//! ```
//! An event gets its number when its record is built, and is visible when that is written. So what a reader received is
//! available again after a crash of the agent, under the same number.
//!
//! One bounded ring serves all readers, and each reader has a position in it: recording an event never blocks, and a
//! slow reader costs nothing. A reader that fell behind receives the number of missed events in their place.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::board::progress::Marks;
use crate::model::event::{Event, EventKind};
use crate::model::units::Timestamp;
use crate::telemetry::lock;

/// Number of events kept for later readers; older ones are counted as missed.
pub const CAPACITY: usize = 4096;

/// A range of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLogPage {
    /// In order. To continue, pass the `seq` of the last one.
    pub events: Vec<Arc<Event>>,
    /// Number of events in this range that are not kept any more.
    pub missed: u64,
    /// The newest visible number; 0 if there is none yet.
    pub newest: u64,
}

/// What a reader receives next.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Event(Arc<Event>),
    /// `count` events up to number `upto` are not kept any more.
    Missed {
        count: u64,
        upto: u64,
    },
}

impl Item {
    /// The position after it.
    pub fn place(&self) -> u64 {
        match self {
            Item::Event(event) => event.seq,
            Item::Missed { upto, .. } => *upto,
        }
    }
}

/// Concurrency: any thread.
#[derive(Debug)]
pub struct EventLog {
    inner: Mutex<Inner>,
    marks: Arc<Marks>,
    /// Wakes readers for new events and for the end; holds whether the log is closed.
    closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Inner {
    retained: VecDeque<Arc<Event>>,
    /// Numbered and not visible yet. `true`: written, but waiting for an earlier one.
    staged: BTreeMap<u64, (Arc<Event>, bool)>,
    /// The highest assigned number.
    given: u64,
    /// Every number up to this one is visible.
    newest: u64,
    /// Up to this number events may be missing: evicted, or from before a restart and in the ring of no task.
    sparse: u64,
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog::restored(Vec::new(), Arc::default())
    }
}

impl EventLog {
    /// Continues after the recorded and the visible numbers.
    pub fn restored(mut events: Vec<Arc<Event>>, marks: Arc<Marks>) -> EventLog {
        events.sort_by_key(|e| e.seq);
        events.dedup_by_key(|e| e.seq);
        let newest = events.last().map_or(0, |e| e.seq).max(marks.seq());
        let mut stored = VecDeque::from(events);
        while stored.len() > CAPACITY {
            stored.pop_front();
        }
        let inner = Inner { retained: stored, given: newest, newest, sparse: newest, ..Inner::default() };
        EventLog { inner: Mutex::new(inner), marks, closed: watch::Sender::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Assigns a number to the event. It is not visible yet, nor is any later one.
    pub fn stage(&self, mut event: Event) -> Arc<Event> {
        let mut log = self.lock();
        log.given += 1;
        event.seq = log.given;
        let event = Arc::new(event);
        log.staged.insert(event.seq, (Arc::clone(&event), false));
        event
    }

    /// An event of the host and of no task: it is in no record, and kept as long as this agent runs.
    pub fn record_host_event(&self, time: Timestamp, kind: EventKind, message: String, details: &[(&str, &str)]) {
        let event = Event {
            seq: 0,
            task_seq: 0,
            time,
            kind,
            workload: None,
            alloc_id: None,
            task: None,
            message,
            details: details.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            fails_task: false,
        };
        self.settle(&[self.stage(event).seq]);
    }

    /// The records of these events are written.
    pub fn settle(&self, seqs: &[u64]) {
        let mut log = self.lock();
        for seq in seqs {
            if let Some((_, written)) = log.staged.get_mut(seq) {
                *written = true;
            }
        }
        self.advance(log);
    }

    /// The records of these events were refused.
    pub fn discard(&self, seqs: &[u64]) {
        let mut log = self.lock();
        for seq in seqs {
            log.staged.remove(seq);
        }
        self.advance(log);
    }

    fn advance(&self, mut log: MutexGuard<'_, Inner>) {
        let mut ready = Vec::new();
        while let Some(first) = log.staged.first_entry().filter(|e| e.get().1) {
            ready.push(first.remove().0);
        }
        let newest = log.staged.first_key_value().map_or(log.given, |(seq, _)| seq - 1);
        self.marks.mark_seq(newest);
        for event in ready {
            if log.retained.len() == CAPACITY
                && let Some(old) = log.retained.pop_front()
            {
                log.sparse = log.sparse.max(old.seq);
            }
            log.retained.push_back(event);
        }
        let has_changed = log.newest < newest;
        log.newest = newest;
        // Woken readers read the log: the lock is released first.
        drop(log);
        if has_changed {
            self.closed.send_modify(|_| {});
        }
    }

    /// At most `limit` events after number `seq`, oldest first.
    pub fn since(&self, seq: u64, limit: usize) -> EventLogPage {
        let (items, newest) = self.items(seq, limit);
        let mut page = EventLogPage { events: Vec::with_capacity(items.len()), missed: 0, newest };
        for item in items {
            match item {
                Item::Event(event) => page.events.push(event),
                Item::Missed { count, .. } => page.missed += count,
            }
        }
        page
    }

    /// At most `limit` events after number `seq`, oldest first, with missed ranges in their place; and the newest
    /// visible number.
    fn items(&self, seq: u64, limit: usize) -> (Vec<Item>, u64) {
        let log = self.lock();
        let first = log.retained.partition_point(|e| e.seq <= seq);
        let (mut items, mut at) = (Vec::new(), seq);
        let missing = |at: u64, upto: u64, items: &mut Vec<Item>| {
            let upto = upto.min(log.sparse);
            if at < upto {
                items.push(Item::Missed { count: upto - at, upto });
            }
        };
        for event in log.retained.iter().skip(first).take(limit) {
            missing(at, event.seq - 1, &mut items);
            at = event.seq;
            items.push(Item::Event(Arc::clone(event)));
        }
        // If the page is full, the next one reports what is missing after it.
        if log.retained.len() - first <= limit {
            missing(at, log.newest, &mut items);
        }
        (items, log.newest)
    }

    /// Follows the log: all kept events after number `seq`, then new ones. With a number that is not assigned yet: new
    /// ones.
    pub fn follow(self: &Arc<EventLog>, seq: u64) -> Reader {
        let at = seq.min(self.lock().newest);
        Reader { closed: self.closed.subscribe(), log: Arc::clone(self), at }
    }

    /// Number of readers that follow the log.
    pub fn readers(&self) -> usize {
        self.closed.receiver_count()
    }

    /// True from [`EventLog::close`] on. Every event wakes the receiver too.
    pub fn closes(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    /// Ends the log for all readers.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

/// A reader of the log: holds a position and nothing else.
#[derive(Debug)]
pub struct Reader {
    log: Arc<EventLog>,
    at: u64,
    closed: watch::Receiver<bool>,
}

impl Reader {
    /// Every number up to this one was received.
    pub fn place(&self) -> u64 {
        self.at
    }

    /// Waits for events and returns at most `limit`. `None`: the log is closed, which takes precedence over pending
    /// events.
    ///
    /// Concurrency: cancel safe.
    pub async fn next(&mut self, limit: usize) -> Option<Vec<Item>> {
        loop {
            // Marked as seen before the log is read: later events wake the wait below.
            if *self.closed.borrow_and_update() {
                return None;
            }
            let (items, newest) = self.log.items(self.at, limit);
            if let Some(last) = items.last() {
                self.at = last.place();
                return Some(items);
            }
            // Skips unused numbers too.
            self.at = self.at.max(newest);
            // Until there is an event, or the log is closed because the agent stops.
            self.closed.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::model::event::EventKind;
    use crate::model::id::TaskName;
    use crate::model::small_map::SmallMap;
    use crate::model::units::Timestamp;

    fn event() -> Event {
        Event {
            seq: 0,
            task_seq: 1,
            time: Timestamp(1),
            kind: EventKind::Started,
            workload: Some("j".into()),
            alloc_id: Some("a".into()),
            task: Some("t".into()),
            message: String::new(),
            details: SmallMap::default(),
            fails_task: false,
        }
    }
    fn push(log: &EventLog) -> Arc<Event> {
        let event = log.stage(event());
        log.settle(&[event.seq]);
        event
    }
    fn seqs(page: &EventLogPage) -> Vec<u64> {
        page.events.iter().map(|e| e.seq).collect()
    }

    #[test]
    fn event_log_reader_resumes_after_its_sequence_in_order() {
        let log = EventLog::default();
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
    fn events_are_visible_only_once_they_and_all_earlier_ones_are_settled() {
        let log = EventLog::default();
        let (first, second) = (log.stage(event()), log.stage(event()));
        log.settle(&[second.seq]);
        assert_eq!(log.since(0, 10), EventLogPage { events: Vec::new(), missed: 0, newest: 0 });
        log.settle(&[first.seq]);
        assert_eq!(seqs(&log.since(0, 10)), [1, 2]);
        let (refused, next) = (log.stage(event()), log.stage(event()));
        log.settle(&[next.seq]);
        assert_eq!(log.since(2, 10).newest, 2);
        log.discard(&[refused.seq]);
        assert_eq!(seqs(&log.since(2, 10)), [4]);
    }

    #[test]
    fn slow_reader_receives_the_number_of_missed_events() {
        let log = EventLog::default();
        for _ in 0..CAPACITY + 7 {
            push(&log);
        }
        let page = log.since(2, 1);
        assert_eq!(page.missed, 5, "3 to 7 were evicted");
        assert_eq!(page.events[0].seq, 8);
        assert_eq!(log.since(8, 1).missed, 0);
    }

    /// Promise (Durability and recovery): Event numbers continue over a restart; a reader learns how many events it
    /// missed
    #[test]
    fn event_log_after_restart_continues_numbers_and_counts_unsaved_as_missed_once() {
        let marks = Arc::new(Marks::default());
        let old = EventLog::restored(Vec::new(), Arc::clone(&marks));
        let events: Vec<_> = (0..6).map(|_| push(&old)).collect();
        old.stage(event());
        let log = EventLog::restored(vec![Arc::clone(&events[1]), Arc::clone(&events[4])], Arc::clone(&marks));
        assert_eq!(push(&log).seq, 7, "6 was visible, 7 was not");
        let mut received = Vec::new();
        let (mut since, mut missed) = (0, 0);
        for _ in 0..4 {
            let page = log.since(since, 1);
            missed += page.missed;
            received.extend(seqs(&page));
            since = page.events.last().map_or(page.newest, |e| e.seq);
        }
        assert_eq!((received, missed), (vec![2, 5, 7], 4), "1, 3, 4 and 6 are not kept");
        assert_eq!(log.since(6, 10).missed, 0, "a reader that had read all misses nothing");
        assert_eq!(log.since(3, 10).missed, 2, "4 and 6");
    }

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(300), work).await.expect("it must come to an end")
    }
    fn places(items: &[Item]) -> Vec<u64> {
        items.iter().map(Item::place).collect()
    }

    #[tokio::test]
    async fn two_readers_receive_the_same_events_in_order_and_a_dropped_one_is_removed() {
        let log = Arc::new(EventLog::default());
        let (mut first, mut second, removed) = (log.follow(0), log.follow(0), log.follow(0));
        assert_eq!(log.readers(), 3);
        drop(removed);
        assert_eq!(log.readers(), 2);
        for _ in 0..3 {
            push(&log);
        }
        for reader in [&mut first, &mut second] {
            let mut received = Vec::new();
            while received.len() < 3 {
                received.extend(places(&within(reader.next(2)).await.unwrap()));
            }
            assert_eq!(received, [1, 2, 3]);
        }
    }

    #[tokio::test]
    async fn missed_events_are_reported_in_their_place() {
        let marks = Arc::new(Marks::default());
        let old = EventLog::restored(Vec::new(), Arc::clone(&marks));
        let events: Vec<_> = (0..6).map(|_| push(&old)).collect();
        let log = Arc::new(EventLog::restored(vec![Arc::clone(&events[1]), Arc::clone(&events[4])], marks));
        push(&log);
        let received = |items: Vec<Item>| -> Vec<(u64, u64)> {
            items
                .iter()
                .map(|item| match item {
                    Item::Event(event) => (0, event.seq),
                    Item::Missed { count, upto } => (*count, *upto),
                })
                .collect()
        };
        let all = [(1, 1), (0, 2), (2, 4), (0, 5), (1, 6), (0, 7)];
        assert_eq!(received(within(log.follow(0).next(10)).await.unwrap()), all);
        let mut piecewise = Vec::new();
        let mut reader = log.follow(0);
        while piecewise.len() < all.len() {
            piecewise.extend(received(within(reader.next(1)).await.unwrap()));
        }
        assert_eq!(piecewise, all);
        assert_eq!(received(within(log.follow(3).next(10)).await.unwrap()), [(1, 4), (0, 5), (1, 6), (0, 7)]);
        assert_eq!(log.follow(99).place(), 7, "a number of another log: new events only");
    }

    /// Recording an event never blocks. A slow reader costs other readers nothing, and receives the number of missed
    /// events, in their place and once.
    ///
    /// Promise (Event streams): P-8.2 Publishing an event waits for no reader; a reader learns how many it missed, in
    /// their place
    #[tokio::test]
    async fn slow_reader_blocks_no_writer_and_receives_its_missed_count() {
        let log = Arc::new(EventLog::default());
        let (mut lazy, mut keen) = (log.follow(0), log.follow(0));
        let all = 3 * u64::try_from(CAPACITY).unwrap();
        let without_readers = EventLog::default();
        let (mut took, mut took_alone) = (Vec::new(), Vec::new());
        let mut had = 0;
        for seq in 1..=all {
            let began = Instant::now();
            push(&log);
            took.push(began.elapsed());
            let began = Instant::now();
            push(&without_readers);
            took_alone.push(began.elapsed());
            let items = within(keen.next(10)).await.unwrap();
            assert_eq!(places(&items), [seq]);
            had += items.len();
        }
        assert_eq!(u64::try_from(had).unwrap(), all);
        // The medians: a single measurement may include the scheduler. For two thirds of them a reader is too slow.
        let [took, alone] = [took, took_alone].map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        assert!(took <= alone * 20 + Duration::from_millis(1), "an event took {took:?}, without readers {alone:?}");
        let retained = u64::try_from(CAPACITY).unwrap();
        let items = within(lazy.next(1)).await.unwrap();
        assert_eq!(items[0], Item::Missed { count: all - retained, upto: all - retained });
        assert_eq!(items[1].place(), all - retained + 1);
    }

    /// Promise (Event streams): P-8.1 The end overtakes whatever else is ready, 10,000 times
    #[tokio::test]
    async fn the_end_wins_over_whatever_else_is_ready_ten_thousand_times() {
        for trial in 0..10_000 {
            let log = Arc::new(EventLog::default());
            let mut reader = log.follow(0);
            if trial % 2 == 0 {
                // It waits already, so it is woken and sees the end at once.
                assert!(tokio::time::timeout(Duration::ZERO, reader.next(1)).await.is_err());
            }
            for _ in 0..3 {
                push(&log);
            }
            if trial % 3 == 0 {
                assert_eq!(within(reader.next(1)).await.map(|items| items.len()), Some(1));
            }
            log.close();
            push(&log);
            assert_eq!(reader.next(1).await, None, "trial {trial}: an event won");
        }
    }

    /// Also under a flood of events, each stream ends with the first call after the end: no event follows. Over HTTP,
    /// the response is complete.
    ///
    /// Promise (Event streams): P-8.3 Each stream ends within 100 ms of the end, in a flood too; over HTTP as a whole
    /// answer
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_stream_ends_within_a_tenth_of_a_second_in_the_middle_of_a_flood() {
        let log = Arc::new(EventLog::default());
        let is_closed = Arc::new(AtomicBool::new(false));
        let mut reading = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let mut reader = log.follow(0);
            let is_closed = Arc::clone(&is_closed);
            reading.spawn(async move {
                let (mut batches, mut late) = (0_u64, 0_u64);
                loop {
                    let was_closed = is_closed.load(Ordering::SeqCst);
                    if reader.next(16).await.is_none() {
                        return (batches, late);
                    }
                    batches += 1;
                    late += u64::from(was_closed);
                    tokio::task::yield_now().await;
                }
            });
        }
        let (flood, is_over) = (Arc::clone(&log), Arc::new(AtomicBool::new(false)));
        let until_over = Arc::clone(&is_over);
        let flooding = std::thread::spawn(move || {
            while !until_over.load(Ordering::SeqCst) {
                push(&flood);
            }
        });
        // A reader that starts during the flood is served like all others.
        let mut newcomer = log.follow(0);
        for _ in 0..50 {
            assert!(within(newcomer.next(16)).await.is_some());
        }
        log.close();
        is_closed.store(true, Ordering::SeqCst);
        while let Some(ended) = within(reading.join_next()).await {
            let (batches, late) = ended.unwrap();
            assert_eq!(late, 0, "batches after the end, of {batches}");
        }
        is_over.store(true, Ordering::SeqCst);
        flooding.join().unwrap();
    }

    /// Promise (Event streams): P-8.4 The order of each task is kept, however many writers there are
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn event_order_per_task_holds_with_concurrent_writers() {
        const EACH: u64 = 2000;
        let log = Arc::new(EventLog::default());
        let mut reader = log.follow(0);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    for pair in 0..EACH / 2 {
                        let staged = [1, 2].map(|n| {
                            let task = Some(format!("t{writer}").as_str().into());
                            log.stage(Event { task, task_seq: pair * 2 + n, ..event() }).seq
                        });
                        // Written in the opposite order, as two records may be.
                        log.settle(&[staged[1]]);
                        log.settle(&[staged[0]]);
                    }
                })
            })
            .collect();
        let mut last: BTreeMap<TaskName, u64> = BTreeMap::new();
        let (mut events, mut missed, mut place) = (0, 0, 0);
        while events + missed < 4 * EACH {
            for item in within(reader.next(64)).await.unwrap() {
                assert!(item.place() > place, "{} after {place}", item.place());
                place = item.place();
                match item {
                    Item::Missed { count, .. } => missed += count,
                    Item::Event(event) => {
                        events += 1;
                        let before = last.insert(event.task.clone().unwrap(), event.task_seq);
                        assert!(before.is_none_or(|b| b < event.task_seq), "{} after {before:?}", event.task_seq);
                    }
                }
            }
        }
        assert_eq!(events + missed, 4 * EACH, "each is received or counted as missed, once");
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}
