//! One pass over the readers, before anything is built of it: of each alloc the tasks first, then its own cgroup, so
//! that the values of the alloc are no older than those of its tasks.
//!
//! ```text
//! each task that runs ──► one moved, or another attempt runs than before? ──► the alloc's own cgroup, everything of it
//!                              └── neither: it stands as it was read last, like them
//! ```
//! An alloc without a running task is not read: only an attempt's end moves its values, and that is a change. The
//! cgroup of an alloc whose only task is in its first attempt is read each 9 s only: that attempt alone was ever
//! charged there.
//!
//! Observed cgroups are skipped at most ticks without a client, where the kernel reports what they have used when they
//! end. A client in between makes the agent read them.
//!
//! Where a pass takes long it is read in chunks by as many threads as there are cores: a file that the kernel answers
//! slowly costs its own chunk.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;

use super::aggregate::is_whole_alloc_usage;
use super::assemble::{AllocReadings, AllocToRead, ClockReading, ReadingProvider};
use crate::board::PublishedAlloc;
use crate::collectors::{ReadingChange, TaskReader};
use crate::model::alloc::AllocSource;
use crate::telemetry::lock;

/// So many allocs a thread takes at a time.
const CHUNK: usize = 16;
/// Fewer are no work for one more thread; of those whose files are to be opened, which costs some ten times as much,
/// these.
const LEAST: usize = 128;
const LEAST_TO_OPEN: usize = 16;

/// One pass over the readers of allocs: which readers it reads, which readings it returns, and with how many threads.
#[derive(Clone, Copy)]
pub struct SamplingPass {
    moment: ClockReading,
    /// Whether to read again managed tasks and processes that have a reading.
    managed: bool,
    /// The same for observed cgroups.
    observed: bool,
    returned: ReturnedReadings,
    threads: usize,
    /// Minimum number of allocs per thread.
    least: usize,
}

/// For which allocs it returns what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReturnedReadings {
    /// For those with a new reading, and for those whose view must be built again.
    Changed,
    All,
    None,
}

impl SamplingPass {
    /// A tick: every reader reads.
    pub fn over_all(moment: ClockReading) -> SamplingPass {
        SamplingPass {
            moment,
            managed: true,
            observed: true,
            returned: ReturnedReadings::Changed,
            threads: 1,
            least: LEAST,
        }
    }
    /// The first tick: every reader opens its files first.
    pub fn first(moment: ClockReading) -> SamplingPass {
        SamplingPass { least: LEAST_TO_OPEN, ..SamplingPass::over_all(moment) }
    }
    /// A change: what was never read, since its counters are born with its task and not with the next tick.
    pub fn over_new(moment: ClockReading) -> SamplingPass {
        SamplingPass { managed: false, observed: false, ..SamplingPass::over_all(moment) }
    }
    /// Observed cgroups keep their last reading.
    #[must_use]
    pub fn without_observed(self) -> SamplingPass {
        SamplingPass { observed: false, ..self }
    }
    /// Observed cgroups are read, too.
    #[must_use]
    pub fn with_observed(self) -> SamplingPass {
        SamplingPass { observed: true, ..self }
    }
    /// It reads and returns nothing: a later one does.
    #[must_use]
    pub fn silent(self) -> SamplingPass {
        SamplingPass { returned: ReturnedReadings::None, ..self }
    }
    /// It returns what silent ones before it have read, too.
    #[must_use]
    pub fn returning_all(self) -> SamplingPass {
        SamplingPass { returned: ReturnedReadings::All, ..self }
    }
    #[must_use]
    pub fn on(self, threads: NonZero<usize>) -> SamplingPass {
        SamplingPass { threads: threads.get(), ..self }
    }

    fn read_change(&self, reader: &TaskReader, everything: bool) -> ReadingChange {
        // The cgroup was removed: the end is on its way to the board, and until it is there the last reading holds.
        reader.read_change(self.moment.now, self.moment.at, everything).unwrap_or(ReadingChange::None)
    }

    fn of(&self, to_read: &AllocToRead<'_>) -> Option<AllocReadings> {
        let alloc = to_read.alloc;
        let all = if can_skip(alloc) { self.observed } else { self.managed };
        let (mut has_changed, mut moved, mut runs) = (false, to_read.new_attempts, false);
        for reader in alloc.readers.iter().flatten() {
            runs = true;
            if all || reader.latest().is_none() {
                let reported = self.read_change(reader, false);
                has_changed |= reported != ReadingChange::None;
                moved |= reported == ReadingChange::Changed;
            }
        }
        // Of an observed alloc with one cgroup its task's reader is its own.
        let is_a_tasks =
            |reader: &Arc<TaskReader>| alloc.readers.iter().flatten().any(|task| Arc::ptr_eq(task, reader));
        if let Some(reader) = alloc.alloc_reader.as_ref().filter(|reader| !is_a_tasks(reader)) {
            let due = if is_whole_alloc_usage(alloc.status.as_deref()) {
                runs && all && reader.is_due(self.moment.now)
            } else {
                runs && (all || moved)
            };
            if to_read.new_attempts || due {
                has_changed |= self.read_change(reader, moved) != ReadingChange::None;
            }
        }
        let returned = match self.returned {
            ReturnedReadings::Changed => has_changed || to_read.must_rebuild,
            ReturnedReadings::All => true,
            ReturnedReadings::None => false,
        };
        returned.then(|| AllocReadings::latest(alloc))
    }
}

/// The kernel reports what its cgroups have used when they end. It does not for processes without a cgroup.
pub(super) fn can_skip(alloc: &PublishedAlloc) -> bool {
    !matches!(alloc.identity.source, AllocSource::Managed | AllocSource::Process)
}

impl ReadingProvider for SamplingPass {
    fn read(&mut self, allocs: &[AllocToRead<'_>]) -> Vec<Option<AllocReadings>> {
        let mut readings: Vec<Option<AllocReadings>> = Vec::new();
        readings.resize_with(allocs.len(), || None);
        let chunks = Mutex::new(allocs.chunks(CHUNK).zip(readings.chunks_mut(CHUNK)));
        let this = &*self;
        let work = || {
            loop {
                let next = lock(&chunks).next();
                let Some((allocs, readings)) = next else { return };
                for (to_read, readings) in allocs.iter().zip(readings) {
                    *readings = this.of(to_read);
                }
            }
        };
        let extra_threads = self.threads.min(allocs.len() / self.least).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..extra_threads {
                // Without it the others read its share.
                let _ = thread::Builder::new().name("reader".into()).spawn_scoped(scope, work);
            }
            work();
        });
        readings
    }
}
