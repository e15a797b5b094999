//! Measures the disk usage of each alloc, on a thread of its own that works 1 % of the time.
//!
//! ```text
//! starts ──► measured ──► again after 30 s, or 100 times the duration (at most 1 h) ──► ended: measured once more
//! ```
//! An alloc that cannot be measured (too many entries, disk errors) has no value.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Handle;
use super::persistence::datadir::DataDir;
use crate::board::Board;
use crate::board::disk::{DiskUse, DiskUses};
use crate::host::clock::Clock;
use crate::host::disk_usage::{UsageError, of_tree};
use crate::model::id::AllocId;
use crate::model::units::{Nanos, Timestamp};
use crate::telemetry::{chain, lock};

/// Interval between checks of the set of allocs.
const ROUND: Duration = Duration::from_secs(1);
const SOONEST: Duration = Duration::from_secs(30);
const LATEST: Duration = Duration::from_secs(3600);
/// Share of the time in which it works: 1 / `SHARE`.
const SHARE: u32 = 100;
/// The same within one measurement: a large alloc must not take hours.
const SHARE_WITHIN: u32 = 10;
/// A value stays valid for this number of intervals.
const VALID_INTERVALS: u32 = 3;

/// Ends its thread when it is dropped, unless a disk blocks it.
#[derive(Debug)]
pub struct DiskWatcher(Arc<StopSign>);

#[derive(Debug, Default)]
pub(super) struct StopSign {
    ends: Mutex<bool>,
    changed: Condvar,
}

impl StopSign {
    /// Sleeps; returns whether to continue.
    fn rest(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut ends = lock(&self.ends);
        while !*ends {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            ends = self.changed.wait_timeout(ends, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

impl Drop for DiskWatcher {
    fn drop(&mut self) {
        *lock(&self.0.ends) = true;
        self.0.changed.notify_all();
    }
}

impl DiskWatcher {
    /// `None`: the thread cannot be started, which is logged; then nothing is measured.
    pub fn start(handle: &Handle, data_dir: &Arc<DataDir>, clock: &Arc<dyn Clock>) -> Option<DiskWatcher> {
        let stop = Arc::new(StopSign::default());
        let mut rounds = Rounds::new(Arc::clone(handle.board()), Arc::clone(data_dir), Arc::clone(clock));
        let sign = Arc::clone(&stop);
        let work = move || while rounds.one(&sign) && sign.rest(ROUND) {};
        let thread = std::thread::Builder::new().name("disk".to_owned()).stack_size(256 << 10);
        let started =
            thread.spawn(work).inspect_err(|error| tracing::warn!(%error, "disk usage of allocs is not measured"));
        started.ok().map(|_| DiskWatcher(stop))
    }
}

pub(super) struct Rounds {
    board: Arc<Board>,
    data_dir: Arc<DataDir>,
    clock: Arc<dyn Clock>,
    /// When each measurement is due. `None`: the alloc has ended and was measured since.
    known: HashMap<AllocId, Option<Instant>>,
    shown: DiskUses,
    /// The generation of the board that was read last, and when a measurement is due if it does not change.
    seen: Option<(u64, Instant)>,
}

impl Rounds {
    pub(super) fn new(board: Arc<Board>, data_dir: Arc<DataDir>, clock: Arc<dyn Clock>) -> Rounds {
        Rounds { board, data_dir, clock, known: HashMap::new(), shown: DiskUses::new(), seen: None }
    }

    /// Measures all allocs that are due. `false`: the thread has to end.
    pub(super) fn one(&mut self, stop: &StopSign) -> bool {
        let version = self.board.version();
        if self.seen.is_some_and(|(seen, due)| seen == version && Instant::now() < due) {
            return true;
        }
        let view = self.board.view();
        let managed = view.allocs.iter().filter_map(|alloc| Some((&alloc.identity.id, alloc.status.as_ref()?)));
        let allocs: BTreeMap<&AllocId, bool> = managed.map(|(id, status)| (id, status.is_terminal())).collect();
        let before = self.shown.len();
        self.known.retain(|id, _| allocs.contains_key(id));
        self.shown.retain(|id, _| allocs.contains_key(id));
        let mut changed = before != self.shown.len();
        let mut next = Instant::now() + LATEST;
        for (id, has_ended) in allocs {
            let now = Instant::now();
            match self.known.get(id) {
                Some(None) if has_ended => continue,
                // An ended alloc is measured at once.
                Some(Some(due)) if *due > now && !has_ended => {
                    next = next.min(*due);
                    continue;
                }
                _ => {}
            }
            let measured = of_tree(&self.data_dir.alloc(id), &mut |worked| stop.rest(worked * (SHARE_WITHIN - 1)));
            if let Err(UsageError::Read(error)) = &measured
                && error.kind() == std::io::ErrorKind::NotFound
                && !has_ended
            {
                // Its first task has not started yet.
                changed |= self.shown.remove(id).is_some();
                next = now;
                continue;
            }
            let took = now.elapsed() / SHARE_WITHIN;
            let pause = (took * SHARE).clamp(SOONEST, LATEST);
            let due = (!has_ended).then(|| Instant::now() + pause);
            next = due.map_or(next, |due| next.min(due));
            self.known.insert(id.clone(), due);
            let use_of = match measured {
                Ok(usage) => {
                    let until = self.clock.now().plus(Nanos::from_duration(pause * VALID_INTERVALS));
                    Some(DiskUse { bytes: usage.bytes, until: if has_ended { Timestamp(u64::MAX) } else { until } })
                }
                Err(UsageError::CalledOff) => return false,
                Err(error) => {
                    tracing::debug!(alloc_id = %id, error = chain(&error), "cannot measure the disk usage of an alloc");
                    None
                }
            };
            let earlier = match use_of {
                Some(found) => self.shown.insert(id.clone(), found),
                None => self.shown.remove(id),
            };
            changed |= earlier != use_of;
        }
        self.seen = Some((version, next));
        if changed {
            self.board.set_disk(Arc::new(self.shown.clone()));
        }
        true
    }
}
