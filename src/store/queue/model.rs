//! A disk that loses what POSIX lets it lose, and a queue on it that ends between any two calls.
//!
//! Killed, all that was written is there. Without power each file keeps what was synced; of what was written since, any
//! length, and any page of it may be zeros; a file that was removed may be back, and so may what was cut off one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::telemetry::lock;

const PAGE: usize = 512;
const SECOND: u64 = 1_000_000_000;

#[derive(Debug, Default, Clone)]
struct FileImage {
    written: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct LossyDiskState {
    files: BTreeMap<u64, FileImage>,
    /// The disk may not know yet that they are gone.
    removed: BTreeMap<u64, FileImage>,
    /// So many calls more, then the machine is dead.
    left: Option<u32>,
    is_full: bool,
}

/// Handles of it are the same disk.
#[derive(Debug, Default, Clone)]
struct LossyDisk(Arc<Mutex<LossyDiskState>>);

impl LossyDisk {
    fn change<T>(
        &self,
        writes: bool,
        change: impl FnOnce(&mut LossyDiskState, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = lock(&self.0);
        let dies = match &mut state.left {
            Some(0) => return Err(io::Error::other("the machine is dead")),
            Some(left) => {
                *left -= 1;
                *left == 0
            }
            None => false,
        };
        if writes && state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let done = change(&mut state, dies);
        if dies { Err(io::Error::other("the machine died")) } else { done }
    }
    /// What the next agent finds. `choice`: what a disk may choose.
    fn power_off(&self, choice: &[u8]) {
        let mut choice = choice.iter().copied().cycle();
        let mut choose = move || choice.next().unwrap_or(0);
        let mut state = lock(&self.0);
        let removed = std::mem::take(&mut state.removed);
        for (number, image) in removed {
            if choose() % 2 == 0 {
                state.files.entry(number).or_insert(image);
            }
        }
        for image in state.files.values_mut() {
            let was_cut = image.written.len() < image.synced.len();
            if was_cut && choose() % 2 == 0 {
                image.written = image.synced.clone();
            }
            let retained = image.synced.len().min(image.written.len());
            let mut left = image.synced[..retained].to_vec();
            let since = &image.written[retained..];
            let length = since.len() * usize::from(choose()) / 255;
            for page in since[..length].chunks(PAGE) {
                if choose() % 3 == 0 {
                    left.extend(vec![0; page.len()]);
                } else {
                    left.extend_from_slice(page);
                }
            }
            *image = FileImage { written: left.clone(), synced: left };
        }
        state.left = None;
        state.is_full = false;
    }
    fn kill(&self) {
        let mut state = lock(&self.0);
        state.left = None;
        state.is_full = false;
    }
}

fn there(image: Option<&mut FileImage>) -> io::Result<&mut FileImage> {
    image.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl QueueFiles for LossyDisk {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        self.change(false, |state, _| Ok(state.files.keys().copied().collect()))
    }
    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        self.change(false, |state, _| Ok(there(state.files.get_mut(&segment))?.written.clone()))
    }
    fn read_at(&mut self, segment: u64, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let bytes = self.read(segment)?;
        let at = usize::try_from(offset).unwrap();
        bytes.get(at..at + length).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
    fn create(&mut self, segment: u64) -> io::Result<()> {
        self.change(true, |state, _| {
            state.files.insert(segment, FileImage::default());
            Ok(())
        })
    }
    fn write_at(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(true, |state, dies| {
            let image = there(state.files.get_mut(&segment))?;
            assert_eq!(offset, image.written.len() as u64, "only appended to");
            let written = if dies { bytes.len() / 2 } else { bytes.len() };
            image.written.extend_from_slice(&bytes[..written]);
            Ok(())
        })
    }
    fn sync(&mut self, segment: u64) -> io::Result<()> {
        self.change(true, |state, dies| {
            let image = there(state.files.get_mut(&segment))?;
            if !dies {
                image.synced = image.written.clone();
            }
            Ok(())
        })
    }
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.change(false, |state, _| {
            let image = there(state.files.get_mut(&segment))?;
            image.written.truncate(usize::try_from(length).unwrap());
            Ok(())
        })
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.change(false, |state, _| {
            if let Some(image) = state.files.remove(&segment) {
                state.removed.insert(segment, image);
            }
            Ok(())
        })
    }
}

#[derive(Debug, Clone)]
enum ModelStep {
    Push {
        points: u64,
        bytes: usize,
    },
    /// The front is sent: so many of its points are refused.
    Send {
        rejected: u64,
    },
    /// The front is sent, and not taken.
    Fail,
    /// A batch comes while the front is in flight.
    PushInFlight {
        points: u64,
        bytes: usize,
    },
    Wait {
        seconds: u64,
    },
    /// A user sets the clock.
    SetBack {
        seconds: u64,
    },
    /// A user gives the queue other room, and starts the agent again.
    Resize {
        bytes: u64,
    },
    Full(bool),
    Kill,
    PowerOff(Vec<u8>),
    /// After so many calls: then power goes, or only the agent.
    DieAfter {
        calls: u32,
        power: Option<Vec<u8>>,
    },
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let choice = || prop::collection::vec(any::<u8>(), 1..12);
    let push = || (1_u64..20, 0_usize..3_000);
    let step = prop_oneof![
        5 => push().prop_map(|(points, bytes)| ModelStep::Push { points, bytes }),
        4 => (0_u64..3).prop_map(|rejected| ModelStep::Send { rejected }),
        1 => Just(ModelStep::Fail),
        1 => push().prop_map(|(points, bytes)| ModelStep::PushInFlight { points, bytes }),
        1 => (0_u64..4_000).prop_map(|seconds| ModelStep::Wait { seconds }),
        1 => (0_u64..100_000).prop_map(|seconds| ModelStep::SetBack { seconds }),
        1 => (1_u64..40_000).prop_map(|bytes| ModelStep::Resize { bytes }),
        1 => any::<bool>().prop_map(ModelStep::Full),
        1 => Just(ModelStep::Kill),
        1 => choice().prop_map(ModelStep::PowerOff),
        2 => (0_u32..12, prop::option::of(choice())).prop_map(|(calls, power)| ModelStep::DieAfter { calls, power }),
    ];
    prop::collection::vec(step, 1..40)
}

struct QueueModel {
    disk: LossyDisk,
    limits: QueueLimits,
    queue: Queue,
    now: Timestamp,
    serial: u64,
    /// What each batch counts.
    points: BTreeMap<u64, u64>,
    /// Must be there until they are settled.
    durable: BTreeSet<u64>,
    /// Must never come again.
    settled: BTreeSet<u64>,
    /// May have been dropped: limits are small.
    is_small: bool,
    dies: Option<Option<Vec<u8>>>,
}

impl QueueModel {
    fn new(limits: QueueLimits, is_small: bool) -> QueueModel {
        let disk = LossyDisk::default();
        QueueModel {
            queue: Queue::open(Box::new(disk.clone()), limits),
            disk,
            limits,
            now: Timestamp(1_000_000_000 * SECOND),
            serial: 0,
            points: BTreeMap::new(),
            durable: BTreeSet::new(),
            settled: BTreeSet::new(),
            is_small,
            dies: None,
        }
    }
    fn is_dead(&self) -> bool {
        lock(&self.disk.0).left == Some(0)
    }
    fn push(&mut self, points: u64, bytes: usize) {
        self.serial += 1;
        self.now.0 += SECOND;
        let mut body = self.serial.to_le_bytes().to_vec();
        body.extend(vec![u8::try_from(self.serial % 251).unwrap(); bytes]);
        self.points.insert(self.serial, points);
        let accepted = self.queue.push(self.now, points, body);
        if accepted == PushOutcome::Durable {
            // Those before it that the disk had refused are on it too.
            let all = self.queue.entries.iter().map(|e| e.id).collect::<Vec<_>>();
            assert!(all.is_sorted());
            self.durable.insert(self.serial);
            assert!(self.queue.bytes() <= self.limits.bytes, "{}", self.queue.bytes());
        }
        self.now.0 += SECOND;
    }
    fn front(&mut self) -> Option<(u64, u64)> {
        let parcel = self.queue.front(self.now)?;
        let serial = u64::from_le_bytes(parcel.bytes[..8].try_into().unwrap());
        assert_eq!(self.points[&serial], parcel.points);
        assert!(!self.settled.contains(&serial), "{serial} comes again");
        Some((parcel.id, serial))
    }
    fn settle(&mut self, id: u64, serial: u64, rejected: u64) {
        let before = self.queue.mark.done;
        self.queue.settle(self.now, id, rejected);
        if !self.queue.is_behind && self.queue.mark.done > before {
            self.settled.insert(serial);
        }
        self.durable.remove(&serial);
    }
    fn end(&mut self, power: Option<&[u8]>) {
        match power {
            Some(choice) => self.disk.power_off(choice),
            None => self.disk.kill(),
        }
        self.dies = None;
        self.queue = Queue::open(Box::new(self.disk.clone()), self.limits);
        self.check();
        // What is in it now is on the disk: it must come, unless the limits are small.
        let retained: BTreeSet<u64> = self.queue.entries.iter().map(|entry| self.serial_of(entry)).collect();
        if !self.is_small {
            let lost: Vec<&u64> = self.durable.difference(&retained).collect();
            assert!(lost.is_empty(), "{lost:?} were durable, and are lost");
        }
        let again: Vec<&u64> = self.settled.intersection(&retained).collect();
        assert!(again.is_empty(), "{again:?} were settled, and are back");
        self.durable = retained;
    }
    fn serial_of(&self, entry: &Entry) -> u64 {
        let BatchLocation::Disk { segment, offset, length } = entry.place else {
            panic!("nothing is in memory at a start")
        };
        let bytes = self.disk.clone().read_at(segment, offset, length).unwrap();
        let Some((SegmentRecord::Batch(batch), _)) = SegmentRecord::decode(&bytes) else { panic!("no batch") };
        u64::from_le_bytes(batch.bytes[..8].try_into().unwrap())
    }
    fn check(&self) {
        let ledger = self.queue.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        let waiting = self.queue.entries.iter().map(|entry| entry.points).sum::<u64>();
        let evicted = self.queue.evicted.as_ref().map_or(0, |(entry, _)| entry.points);
        assert_eq!(ledger.queued, waiting + evicted, "{ledger:?}");
    }
    fn step(&mut self, step: &ModelStep) {
        match step {
            ModelStep::Push { points, bytes } => self.push(*points, *bytes),
            ModelStep::Send { rejected } => {
                if let Some((id, serial)) = self.front() {
                    self.settle(id, serial, *rejected);
                }
            }
            ModelStep::Fail => drop(self.front()),
            ModelStep::PushInFlight { points, bytes } => {
                let front = self.front();
                self.push(*points, *bytes);
                if let Some((id, serial)) = front {
                    self.settle(id, serial, 0);
                }
            }
            ModelStep::Wait { seconds } => self.now.0 += seconds * SECOND,
            ModelStep::SetBack { seconds } => self.now.0 -= seconds * SECOND,
            ModelStep::Resize { bytes } => {
                // Where nothing may be dropped, there is room for all that steps can make.
                if self.is_small {
                    self.limits.bytes = *bytes;
                }
                self.end(None);
            }
            ModelStep::Full(full) => lock(&self.disk.0).is_full = *full,
            ModelStep::Kill => self.end(None),
            ModelStep::PowerOff(choice) => self.end(Some(choice)),
            ModelStep::DieAfter { calls, power } => {
                lock(&self.disk.0).left = Some(*calls);
                self.dies = Some(power.clone());
            }
        }
        if self.is_dead() {
            let power = self.dies.clone().unwrap_or_default();
            self.end(power.as_deref());
        }
        self.check();
    }
    /// Everything that is left, in its order.
    fn drain(&mut self) {
        self.disk.kill();
        let mut last = 0;
        while let Some((id, serial)) = self.front() {
            assert!(serial > last, "{serial} after {last}");
            last = serial;
            self.settle(id, serial, 0);
            self.check();
        }
        let ledger = self.queue.ledger();
        assert_eq!(ledger.queued, 0, "{ledger:?}");
        assert!(self.is_small || self.durable.is_empty(), "{:?} never came", self.durable);
    }
}

fn wide() -> QueueLimits {
    QueueLimits { bytes: 1 << 20, age: Duration::from_secs(1_000_000), memory_bytes: 1 << 20 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whenever it ends: what was durable comes, once it is settled never again, in order, and the ledger balances.
    ///
    /// Promise (Measured values): Whenever agent or power end, no durable batch is lost, none that was settled is
    /// repeated, and the order is kept
    #[test]
    fn whenever_it_ends_nothing_durable_is_lost_and_nothing_settled_comes_again(steps in steps()) {
        let mut world = QueueModel::new(wide(), false);
        steps.iter().for_each(|step| world.step(step));
        world.drain();
    }

    /// The oldest go where there is no room, or they wait for too long.
    ///
    /// Promise (Measured values): Enqueued points equal exported, rejected, dropped and queued ones, at every moment
    /// and across restarts
    #[test]
    fn within_its_bounds_every_point_is_accounted_for(
        steps in steps(),
        bytes in 1_u64..20_000,
        memory_bytes in 0_usize..8_000,
    ) {
        let limits = QueueLimits { bytes, age: Duration::from_secs(5_000), memory_bytes };
        let mut world = QueueModel::new(limits, true);
        steps.iter().for_each(|step| world.step(step));
        world.drain();
    }

    /// Whatever is flipped or cut: it begins, says how much is lost, and what is left is what was put in.
    ///
    /// Promise (Measured values): A damaged queue starts and reports the loss; one of a newer version is left alone
    #[test]
    fn a_damaged_file_costs_what_is_damaged_and_is_counted(
        flips in prop::collection::vec((0_usize..6_000, 1_u8..), 1..4),
        cut in prop::option::of(0_usize..6_000),
    ) {
        let mut world = QueueModel::new(wide(), true);
        (0..8).for_each(|n| world.push(n + 1, 500));
        let whole = world.queue.ledger();
        for image in lock(&world.disk.0).files.values_mut() {
            for (at, flip) in &flips {
                if let Some(byte) = image.written.get_mut(*at) {
                    *byte ^= *flip;
                }
            }
            image.written.truncate(cut.unwrap_or(usize::MAX));
        }
        world.queue = Queue::open(Box::new(world.disk.clone()), world.limits);
        let ledger = world.queue.ledger();
        prop_assert!(ledger.balances());
        prop_assert!(ledger.enqueued <= whole.enqueued);
        if ledger.queued < whole.queued {
            let (records, bytes) = (world.queue.corrupt_records, world.queue.truncated_bytes);
            prop_assert!(records + bytes > 0 || cut.is_some(), "{records} {bytes}");
        }
        world.drain();
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut with_header = HEADER.to_vec();
        with_header.extend_from_slice(&bytes);
        record::parse(&bytes);
        record::parse(&with_header);
        SegmentRecord::decode(&bytes);
    }
}

/// The oldest segment was removed while the full disk had not taken what became of it, and with it the last mark.
#[test]
fn full_disk_removes_no_segment_before_its_outcome_is_durable() {
    let push = |bytes| ModelStep::Push { points: 1, bytes };
    let limits = QueueLimits { bytes: 2_483, age: Duration::from_secs(5_000), memory_bytes: 0 };
    let mut world = QueueModel::new(limits, true);
    let steps = [
        push(0),
        push(268),
        push(2_174),
        ModelStep::Send { rejected: 0 },
        push(1_239),
        ModelStep::Full(true),
        push(1_357),
    ];
    steps.iter().for_each(|step| world.step(step));
    world.step(&ModelStep::PowerOff(vec![0, 0, 0, 0, 72, 115, 187]));
    world.drain();
}

#[test]
fn a_segment_of_a_newer_version_is_left_alone() {
    let mut disk = LossyDisk::default();
    disk.create(7).unwrap();
    disk.write_at(7, 0, b"ALOTLPQ2 and more").unwrap();
    let mut queue = Queue::open(Box::new(disk.clone()), wide());
    assert_eq!(queue.push(Timestamp(1), 3, vec![1]), PushOutcome::Durable);
    assert_eq!((queue.ledger().enqueued, queue.corrupt_records), (3, 0));
    assert_eq!(disk.read(7).unwrap(), b"ALOTLPQ2 and more");
    assert_eq!(disk.list().unwrap(), [7, 8], "and its number is not taken");
}

/// Promise (Measured values): While the disk is full memory holds new batches, and the disk gets them in order
#[test]
fn full_disk_queue_holds_new_parcels_in_memory_and_writes_them_in_order_later() {
    let disk = LossyDisk::default();
    let mut queue = Queue::open(Box::new(disk.clone()), QueueLimits { memory_bytes: 250, ..wide() });
    assert_eq!(queue.push(Timestamp(1), 1, vec![1; 100]), PushOutcome::Durable);
    lock(&disk.0).is_full = true;
    assert_eq!(queue.push(Timestamp(2), 2, vec![2; 100]), PushOutcome::InMemory);
    assert_eq!(queue.push(Timestamp(3), 4, vec![3; 100]), PushOutcome::InMemory);
    assert_eq!(queue.push(Timestamp(4), 8, vec![4; 100]), PushOutcome::InMemory);
    assert_eq!(queue.ledger().dropped[LossReason::Disk.index()], 2, "the oldest of those in memory");
    assert_eq!(queue.in_memory(), 2);
    assert!(queue.refused.is_some());
    lock(&disk.0).is_full = false;
    assert_eq!(queue.push(Timestamp(5), 16, vec![5; 100]), PushOutcome::Durable);
    assert_eq!((queue.in_memory(), queue.refused.is_none()), (0, true));
    let mut next = Queue::open(Box::new(disk), wide());
    let mut came = Vec::new();
    while let Some(parcel) = next.front(Timestamp(6)) {
        came.push(parcel.bytes[0]);
        next.settle(Timestamp(6), parcel.id, 0);
    }
    assert_eq!(came, [1, 3, 4, 5]);
    assert_eq!(next.ledger().dropped[LossReason::Disk.index()], 2, "it is known for good");
}

#[test]
fn queued_parcel_above_the_maximum_age_is_dropped_and_not_before() {
    const SECOND: u64 = 1_000_000_000;
    let limits = QueueLimits { age: Duration::from_secs(10), ..wide() };
    let mut queue = Queue::open(Box::new(LossyDisk::default()), limits);
    assert_eq!(queue.push(Timestamp(SECOND), 3, vec![1]), PushOutcome::Durable);
    assert!(queue.front(Timestamp(11 * SECOND)).is_some(), "it is as old as it may be");
    assert_eq!(queue.front(Timestamp(11 * SECOND + 1)), None);
    let ledger = queue.ledger();
    assert_eq!((ledger.dropped[LossReason::Age.index()], ledger.queued), (3, 0));
    assert!(ledger.balances(), "{ledger:?}");
    // What the disk refuses grows old in memory.
    let disk = LossyDisk::default();
    let mut queue = Queue::open(Box::new(disk.clone()), limits);
    lock(&disk.0).is_full = true;
    assert_eq!(queue.push(Timestamp(SECOND), 5, vec![1]), PushOutcome::InMemory);
    assert_eq!(queue.front(Timestamp(12 * SECOND)), None);
    assert_eq!(queue.ledger().dropped[LossReason::Age.index()], 5);
}

#[test]
fn queue_above_its_capacity_drops_the_oldest_parcels_first() {
    const BYTES: u64 = 20_000;
    let mut queue = Queue::open(Box::new(LossyDisk::default()), QueueLimits { bytes: BYTES, ..wide() });
    for n in 1..=40 {
        assert_eq!(queue.push(Timestamp(n), 1, vec![u8::try_from(n).unwrap(); 1_000]), PushOutcome::Durable);
        assert!(queue.bytes() <= BYTES, "{} after {n}", queue.bytes());
    }
    let lost = queue.ledger().dropped[LossReason::Capacity.index()];
    assert!((20..35).contains(&lost), "{lost} of 40");
    let waits = (40 - lost) * 1_000..queue.bytes();
    assert!(waits.contains(&queue.waiting_bytes()), "{} of {waits:?}", queue.waiting_bytes());
    let mut came = Vec::new();
    while let Some(parcel) = queue.front(Timestamp(41)) {
        came.push(u64::from(parcel.bytes[0]));
        queue.settle(Timestamp(41), parcel.id, 0);
    }
    assert_eq!(came, (lost + 1..=40).collect::<Vec<_>>());
    assert!(queue.waiting_bytes() == 0 && queue.bytes() > 0, "the newest file stays, and nothing in it waits");
    // One that is larger than all the room pushes no other out.
    assert_eq!(queue.push(Timestamp(42), 7, vec![0; 20_000]), PushOutcome::Dropped(LossReason::Capacity));
    assert!(queue.ledger().balances());
}
