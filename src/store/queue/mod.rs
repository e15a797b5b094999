//! A durable queue of batches: what is in it survives the agent and the power, leaves it in order, and is counted
//! whatever happens.
//!
//! ```text
//! push ──► the last segment: one write, one fdatasync ──► durable ──► front ──► sent ──► settle: a mark, durable
//!            │ the disk refuses                                                           └─ settled segments go
//!            └──► memory, bounded, and onto the disk when it can
//! over bytes or age: the oldest segment goes whole, counted
//! ```
//! - Delivered at least once and oldest first: only what was in flight when the agent ended comes twice.
//! - `enqueued = exported + rejected + dropped + queued` at every moment and across restarts: marks carry the ledger,
//!   and what a damaged file has lost is what is missing in it.
//! - It never refuses to begin: what cannot be read is counted and left out, a segment of a newer version is left
//!   alone.
//!
//! A segment is never appended to by another process than the one that made it. One agent at a time: the data
//! directory's lock.

mod files;
#[cfg(test)]
mod model;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

pub use files::{QueueFiles, SegmentFiles};

use self::record::{BATCH_HEAD, BatchRecord, HEADER, QueueMark, SegmentRecord};
use crate::model::units::{Nanos, Timestamp};
use crate::telemetry::otlp::{LossReason, PointCounts};

/// How much there may be of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// On disk.
    pub bytes: u64,
    /// By the wall clock, since a batch was made.
    pub age: Duration,
    /// Of batches that the disk refuses.
    pub memory_bytes: usize,
}

/// What may stand in a segment beside a batch that comes: its head and two marks.
const OVERHEAD: u64 = 256;
/// A queue is this many segments at least, so that little goes at once.
const SEGMENTS: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The power may go.
    Durable,
    /// The disk refuses it.
    InMemory,
    Dropped(LossReason),
}

/// The oldest batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    pub id: u64,
    pub points: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    created: Timestamp,
    points: u64,
    before: u64,
    place: BatchLocation,
}

#[derive(Debug)]
enum BatchLocation {
    Disk { segment: u64, offset: u64, length: usize },
    Memory(Vec<u8>),
}

#[derive(Debug)]
struct Segment {
    number: u64,
    length: u64,
    began: Timestamp,
    newest: Timestamp,
    /// Of its batches.
    last: u64,
}

/// Concurrency: one owner; every call may wait for the disk.
pub struct Queue {
    files: Box<dyn QueueFiles>,
    limits: QueueLimits,
    /// From the oldest on.
    segments: VecDeque<Segment>,
    /// The last one takes more.
    is_open: bool,
    entries: VecDeque<Entry>,
    in_flight: Option<u64>,
    /// Was dropped while it was in flight, and is counted when it has landed.
    evicted: Option<(Entry, LossReason)>,
    mark: QueueMark,
    /// The disk lacks the last mark.
    is_behind: bool,
    next_segment: u64,
    pub corrupt_records: u64,
    pub truncated_bytes: u64,
    /// Why the disk refused the last thing that it was asked.
    pub refused: Option<io::Error>,
}

impl Queue {
    /// Goes on where the last one ended. What cannot be read is left out, and why is in `refused`.
    pub fn open(files: Box<dyn QueueFiles>, limits: QueueLimits) -> Queue {
        let mut queue = Queue {
            files,
            limits,
            segments: VecDeque::new(),
            is_open: false,
            entries: VecDeque::new(),
            in_flight: None,
            evicted: None,
            mark: QueueMark { next: 1, ..QueueMark::default() },
            is_behind: false,
            next_segment: 1,
            corrupt_records: 0,
            truncated_bytes: 0,
            refused: None,
        };
        if let Err(error) = queue.recover() {
            queue.refused = Some(error);
        }
        queue
    }

    fn recover(&mut self) -> io::Result<()> {
        let mut batches: BTreeMap<u64, Entry> = BTreeMap::new();
        for number in self.files.list()? {
            self.next_segment = self.next_segment.max(number.saturating_add(1));
            let bytes = match self.files.read(number) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.corrupt_records += 1;
                    self.refused = Some(error);
                    continue;
                }
            };
            let Some(found) = record::parse(&bytes) else { continue };
            self.corrupt_records += found.damaged;
            let tail = bytes.len() - found.end;
            if tail > 0 {
                self.truncated_bytes += tail as u64;
                // It would only be counted again.
                let _ = self.files.truncate(number, found.end as u64);
            }
            // Written and not synced when the agent was killed: it is good from here on.
            if let Err(error) = self.files.sync(number) {
                self.refused = Some(error);
            }
            let mut segment =
                Segment { number, length: found.end as u64, began: Timestamp(u64::MAX), newest: Timestamp(0), last: 0 };
            for (offset, length, record) in found.records {
                match record {
                    SegmentRecord::Mark(mark) => {
                        let settled = |mark: &QueueMark| (mark.ledger.settled(), mark.ledger.enqueued);
                        if settled(&mark) >= settled(&self.mark) {
                            self.mark = QueueMark { next: mark.next.max(self.mark.next), ..mark };
                        }
                    }
                    SegmentRecord::Batch(batch) => {
                        let created = Timestamp(batch.created);
                        segment.began = segment.began.min(created);
                        segment.newest = segment.newest.max(created);
                        segment.last = segment.last.max(batch.id);
                        let place = BatchLocation::Disk { segment: number, offset: offset as u64, length };
                        let BatchRecord { id, points, before, .. } = batch;
                        batches.insert(id, Entry { id, created, points, before, place });
                    }
                }
            }
            self.segments.push_back(segment);
        }
        let ledger = &mut self.mark.ledger;
        for entry in batches.values() {
            ledger.enqueued = ledger.enqueued.max(entry.before.saturating_add(entry.points));
            self.mark.next = self.mark.next.max(entry.id.saturating_add(1));
        }
        self.entries = batches.into_values().filter(|entry| entry.id > self.mark.done).collect();
        ledger.queued = self.entries.iter().map(|entry| entry.points).sum();
        let known = ledger.settled().saturating_add(ledger.queued);
        let lost = ledger.enqueued.saturating_sub(known);
        ledger.dropped[LossReason::Corrupt.index()] += lost;
        // Damage can also bring back what was settled: it is sent once more, and counted as such.
        ledger.enqueued = ledger.enqueued.max(known);
        self.is_behind = lost > 0;
        Ok(())
    }

    pub fn ledger(&self) -> PointCounts {
        self.mark.ledger
    }
    /// What its files take: the newest one stays when all in it has been delivered.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }
    /// What is yet to be delivered of that, and what is in memory.
    pub fn waiting_bytes(&self) -> u64 {
        let length = |entry: &Entry| match &entry.place {
            BatchLocation::Disk { length, .. } => *length as u64,
            BatchLocation::Memory(bytes) => bytes.len() as u64,
        };
        self.entries.iter().map(length).sum()
    }
    /// Of the batch that comes next: higher than that of any before it.
    pub fn next_id(&self) -> u64 {
        self.mark.next
    }
    pub fn segments(&self) -> usize {
        self.segments.len()
    }
    pub fn oldest(&self) -> Option<Timestamp> {
        self.entries.front().map(|entry| entry.created)
    }
    /// Batches that the disk does not have.
    pub fn in_memory(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.place, BatchLocation::Memory(_))).count()
    }

    /// Takes a batch of so many points over. After this it is counted, whatever happens.
    pub fn push(&mut self, now: Timestamp, points: u64, bytes: Vec<u8>) -> PushOutcome {
        let entry = Entry {
            id: self.mark.next,
            created: now,
            points,
            before: self.mark.ledger.enqueued,
            place: BatchLocation::Memory(Vec::new()),
        };
        self.mark.next += 1;
        self.mark.ledger.enqueued += points;
        self.expire(now);
        if (bytes.len() + BATCH_HEAD) as u64 + OVERHEAD > self.limits.bytes.min(u64::from(u32::MAX)) {
            self.lose(LossReason::Capacity, points);
            return PushOutcome::Dropped(LossReason::Capacity);
        }
        self.mark.ledger.queued += points;
        self.entries.push_back(Entry { place: BatchLocation::Memory(bytes), ..entry });
        self.refused = None;
        // First those that an earlier refusal left in memory: the disk has them in order.
        if let Err(error) = self.write_out(now) {
            self.refused = Some(error);
            return self.bound_memory(entry.id);
        }
        PushOutcome::Durable
    }

    /// The same, under a number of its own: the next one where that is higher. Who numbers batches after what they are
    /// made of learns from [`Queue::next_id`] up to where they are in it.
    pub fn push_as(&mut self, now: Timestamp, id: u64, points: u64, bytes: Vec<u8>) -> PushOutcome {
        self.mark.next = self.mark.next.max(id);
        self.push(now, points, bytes)
    }

    /// Writes what an earlier refusal left in memory. `false`: the disk still refuses it.
    pub fn flush(&mut self, now: Timestamp) -> bool {
        let written = self.write_out(now);
        let is_durable = written.is_ok();
        self.refused = written.err();
        is_durable
    }

    /// Points that never came to the door.
    pub fn lost_before(&mut self, points: u64, reason: LossReason) {
        self.mark.ledger.enqueued += points;
        self.lose(reason, points);
        self.is_behind = true;
    }

    /// The oldest batch, which from now on is in flight.
    pub fn front(&mut self, now: Timestamp) -> Option<Parcel> {
        self.land();
        self.expire(now);
        loop {
            let entry = self.entries.front()?;
            let (id, points) = (entry.id, entry.points);
            match self.read(entry.id) {
                Ok(bytes) => {
                    self.in_flight = Some(id);
                    return Some(Parcel { id, points, bytes });
                }
                Err(error) => {
                    self.corrupt_records += 1;
                    self.refused = Some(error);
                    self.drop_front(LossReason::Corrupt);
                    self.write_mark(now);
                }
            }
        }
    }

    fn read(&mut self, id: u64) -> io::Result<Vec<u8>> {
        let Some(entry) = self.entries.front().filter(|entry| entry.id == id) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        match &entry.place {
            BatchLocation::Memory(bytes) => Ok(bytes.clone()),
            BatchLocation::Disk { segment, offset, length } => {
                let bytes = self.files.read_at(*segment, *offset, *length)?;
                match SegmentRecord::decode(&bytes) {
                    Some((SegmentRecord::Batch(batch), _)) if batch.id == id => Ok(batch.bytes),
                    _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a batch in the queue is damaged")),
                }
            }
        }
    }

    /// The batch in flight has landed: so many of its points were refused for good, the others taken. Durable if the
    /// disk lets it be.
    pub fn settle(&mut self, now: Timestamp, id: u64, rejected: u64) {
        if self.in_flight.take() != Some(id) {
            return;
        }
        let own = self.evicted.take().map(|(entry, _)| entry);
        let Some(entry) = own.or_else(|| self.entries.pop_front()) else { return };
        let ledger = &mut self.mark.ledger;
        let rejected = rejected.min(entry.points);
        ledger.queued -= entry.points;
        ledger.rejected += rejected;
        ledger.exported += entry.points - rejected;
        self.mark.done = self.mark.done.max(entry.id);
        self.write_mark(now);
        self.remove_settled();
    }

    /// What was in flight was not taken.
    fn land(&mut self) {
        self.in_flight = None;
        if let Some((entry, reason)) = self.evicted.take() {
            self.mark.ledger.queued -= entry.points;
            self.lose(reason, entry.points);
            self.is_behind = true;
        }
    }

    fn lose(&mut self, reason: LossReason, points: u64) {
        self.mark.ledger.dropped[reason.index()] += points;
    }

    fn drop_front(&mut self, reason: LossReason) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.mark.done = self.mark.done.max(entry.id);
        if self.in_flight == Some(entry.id) {
            self.evicted = Some((entry, reason));
        } else {
            self.mark.ledger.queued -= entry.points;
            self.lose(reason, entry.points);
        }
    }

    /// The oldest batch and all that are in its segment.
    fn drop_oldest(&mut self, reason: LossReason, now: Timestamp) {
        let Some(segment) = self.segments.pop_front() else { return };
        self.is_open &= !self.segments.is_empty();
        while self.entries.front().is_some_and(|entry| entry.id <= segment.last) {
            self.drop_front(reason);
        }
        // First it is known that they are lost, then they are. Where the disk does not take that, it stays: it may be
        // the one that says what was settled before, and goes with the next mark.
        self.write_mark(now);
        if self.is_behind {
            self.segments.push_front(segment);
            return;
        }
        self.remove(&segment);
        self.remove_settled();
    }

    fn remove(&mut self, segment: &Segment) {
        if let Err(error) = self.files.remove(segment.number) {
            self.refused = Some(error);
        }
    }

    fn expire(&mut self, now: Timestamp) {
        let age = Nanos::from_duration(self.limits.age);
        let is_old = |at: Timestamp| now.since(at) > age;
        while self.segments.front().is_some_and(|segment| segment.last > self.mark.done && is_old(segment.newest)) {
            self.drop_oldest(LossReason::Age, now);
        }
        let waits = |entry: &Entry| matches!(entry.place, BatchLocation::Memory(_)) && is_old(entry.created);
        while self.entries.front().is_some_and(waits) {
            self.drop_front(LossReason::Age);
            self.is_behind = true;
        }
    }

    /// What memory holds goes onto the disk, in order.
    fn write_out(&mut self, now: Timestamp) -> io::Result<()> {
        // The last ones, and most often the last alone.
        let first = self
            .entries
            .iter()
            .rposition(|entry| matches!(entry.place, BatchLocation::Disk { .. }))
            .map_or(0, |at| at + 1);
        let mut at = first;
        while at < self.entries.len() {
            let entry = &mut self.entries[at];
            let (id, created) = (entry.id, entry.created);
            let BatchLocation::Memory(bytes) = &mut entry.place else { return Ok(()) };
            let batch = BatchRecord {
                id,
                created: created.0,
                points: entry.points,
                before: entry.before,
                bytes: std::mem::take(bytes),
            };
            let record = SegmentRecord::Batch(batch);
            let encoded = record.encode();
            let before = self.entries.len();
            self.make_room(encoded.len() as u64 + OVERHEAD, now);
            // That may have dropped older ones in front of it.
            at -= before - self.entries.len();
            match self.append(&encoded, now) {
                Ok((segment, offset)) => {
                    self.entries[at].place = BatchLocation::Disk { segment, offset, length: encoded.len() };
                    if let Some(segment) = self.segments.back_mut() {
                        segment.newest = segment.newest.max(created);
                        segment.last = id;
                    }
                }
                Err(error) => {
                    let SegmentRecord::Batch(batch) = record else { return Err(error) };
                    self.entries[at].place = BatchLocation::Memory(batch.bytes);
                    return Err(error);
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn make_room(&mut self, length: u64, now: Timestamp) {
        self.remove_settled();
        while self.bytes() + length > self.limits.bytes {
            let Some(front) = self.segments.front() else { return };
            if front.last > self.mark.done {
                self.drop_oldest(LossReason::Capacity, now);
            } else if self.is_open {
                // The only one, and small.
                return;
            } else {
                self.write_mark(now);
                if !self.is_open {
                    return;
                }
            }
        }
    }

    /// What is too much of memory goes, from the oldest on. `id`: of the batch that came last.
    fn bound_memory(&mut self, id: u64) -> PushOutcome {
        let held = |entry: &Entry| if let BatchLocation::Memory(bytes) = &entry.place { bytes.len() } else { 0 };
        let mut total: usize = self.entries.iter().map(held).sum();
        while total > self.limits.memory_bytes {
            let Some(at) = self.entries.iter().position(|e| held(e) > 0 && self.in_flight != Some(e.id)) else { break };
            let Some(entry) = self.entries.remove(at) else { break };
            total -= held(&entry);
            self.mark.ledger.queued -= entry.points;
            self.lose(LossReason::Disk, entry.points);
            self.is_behind = true;
        }
        let is_there = self.entries.back().is_some_and(|entry| entry.id == id);
        if is_there { PushOutcome::InMemory } else { PushOutcome::Dropped(LossReason::Disk) }
    }

    /// What the disk is to know: of one that is dropped and still in flight, that it is dropped.
    fn shown_mark(&self) -> SegmentRecord {
        let mut mark = self.mark;
        if let Some((entry, reason)) = &self.evicted {
            mark.ledger.dropped[reason.index()] += entry.points;
        }
        mark.ledger.queued = 0;
        SegmentRecord::Mark(mark)
    }

    fn write_mark(&mut self, now: Timestamp) {
        let mark = self.shown_mark().encode();
        self.is_behind = true;
        match self.append(&mark, now) {
            Ok(_) => self.is_behind = false,
            Err(error) => self.refused = Some(error),
        }
    }

    /// Durable when it returns: which segment, and where.
    fn append(&mut self, record: &[u8], now: Timestamp) -> io::Result<(u64, u64)> {
        let age = Nanos::from_duration(self.limits.age / u32::try_from(SEGMENTS).unwrap_or(1));
        let is_full = |segment: &Segment| {
            segment.length + record.len() as u64 > self.limits.bytes / SEGMENTS || now.since(segment.began) > age
        };
        let mut bytes = Vec::new();
        if !self.is_open || self.segments.back().is_none_or(is_full) {
            self.is_open = false;
            let number = self.next_segment;
            self.next_segment += 1;
            self.files.create(number)?;
            bytes.extend_from_slice(&HEADER);
            // What became of all before it.
            bytes.extend(self.shown_mark().encode());
            self.segments.push_back(Segment { number, length: 0, began: now, newest: Timestamp(0), last: 0 });
            self.is_open = true;
        } else if self.is_behind {
            bytes.extend(self.shown_mark().encode());
        }
        let Some(segment) = self.segments.back_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let (number, at) = (segment.number, segment.length);
        let offset = at + bytes.len() as u64;
        bytes.extend_from_slice(record);
        let written = self.files.write_at(number, at, &bytes).and_then(|()| self.files.sync(number));
        if let Err(error) = written {
            // It is not known whether the disk has it: nothing is appended to this one any more.
            self.is_open = false;
            let _ = self.files.truncate(number, at);
            if at == 0 {
                self.segments.pop_back();
                let _ = self.files.remove(number);
            }
            return Err(error);
        }
        segment.length += bytes.len() as u64;
        self.is_behind = false;
        if at == 0 {
            // It records the current state.
            self.remove_settled();
        }
        Ok((number, offset))
    }

    /// Removes segments whose records are all settled. The last one records the current state, if it is ours: one that
    /// was found may be empty.
    fn remove_settled(&mut self) {
        let done = self.mark.done;
        while self.is_open
            && self.segments.len() > 1
            && self.segments.front().is_some_and(|segment| segment.last <= done)
        {
            let Some(segment) = self.segments.pop_front() else { return };
            self.remove(&segment);
        }
    }
}
