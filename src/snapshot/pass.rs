//! One pass over the readers, before anything is built of it: of each alloc the tasks first, then its own cgroup, so that what the
//! alloc says is no older than what its tasks say beside it.
//!
//! ```text
//! each task that runs ──► one moved, or another attempt runs than before? ──► the alloc's own cgroup, everything of it
//!                              └── neither: it stands as it was read last, like them
//! ```
//! An alloc of which nothing runs is not read: nothing of it can move but by an attempt's end, and that is a change. One whose only
//! task is in its first attempt is read each 9 s only: nobody else was ever charged there, so that its task speaks for it.
//!
//! Others' cgroups are left out at most ticks that nobody looks at, where the kernel tells what they have used when they end: whoever looks
//! reads them.
//!
//! Where a pass takes long it is read in chunks by as many threads as there are cores: a file that the kernel answers slowly costs its own chunk.

use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;

use super::aggregate::speaks_for_its_alloc;
use super::assemble::{Asked, Moment, Readings, Said};
use crate::board::Published;
use crate::collectors::{ReadingChange, TaskReader};
use crate::model::alloc::AllocSource;
use crate::telemetry::lock;

/// So many allocs a thread takes at a time.
const CHUNK: usize = 16;
/// Fewer are no work for one more thread; of those whose files are to be opened, which costs some ten times as much, these.
const LEAST: usize = 128;
const LEAST_TO_OPEN: usize = 16;

#[derive(Clone, Copy)]
pub struct Pass {
    moment: Moment,
    /// Of these, those that were read before, too: our own, others'.
    own: bool,
    others: bool,
    tells: Tells,
    threads: usize,
    /// So many allocs are work for one thread.
    least: usize,
}

/// Of which allocs it says what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tells {
    /// Of those of which something is new, or wanted.
    ReadingChange,
    All,
    None,
}

impl Pass {
    /// A tick: every reader is asked.
    pub fn over_all(moment: Moment) -> Pass {
        Pass { moment, own: true, others: true, tells: Tells::ReadingChange, threads: 1, least: LEAST }
    }
    /// The first tick: every reader opens its files.
    pub fn first(moment: Moment) -> Pass {
        Pass { least: LEAST_TO_OPEN, ..Pass::over_all(moment) }
    }
    /// A change: what was never read, since its counters are born with its task and not with the next tick.
    pub fn over_new(moment: Moment) -> Pass {
        Pass { own: false, others: false, ..Pass::over_all(moment) }
    }
    /// What others run stands as it was read last.
    #[must_use]
    pub fn sparing_others(self) -> Pass {
        Pass { others: false, ..self }
    }
    /// What others run is read, too.
    #[must_use]
    pub fn with_others(self) -> Pass {
        Pass { others: true, ..self }
    }
    /// It reads and says nothing: a later one does.
    #[must_use]
    pub fn silent(self) -> Pass {
        Pass { tells: Tells::None, ..self }
    }
    /// It says what silent ones before it have read, too.
    #[must_use]
    pub fn telling_all(self) -> Pass {
        Pass { tells: Tells::All, ..self }
    }
    #[must_use]
    pub fn on(self, threads: NonZero<usize>) -> Pass {
        Pass { threads: threads.get(), ..self }
    }

    fn look(&self, reader: &TaskReader, everything: bool) -> ReadingChange {
        // Gone: the end is on its way to the board, and until it is there the last reading holds.
        reader.look(self.moment.now, self.moment.at, everything).unwrap_or(ReadingChange::None)
    }

    fn of(&self, asked: &Asked<'_>) -> Option<Said> {
        let alloc = asked.alloc;
        let all = if can_wait(alloc) { self.others } else { self.own };
        let (mut news, mut moved, mut runs) = (false, asked.anew, false);
        for reader in alloc.readers.iter().flatten() {
            runs = true;
            if all || reader.latest().is_none() {
                let said = self.look(reader, false);
                news |= said != ReadingChange::None;
                moved |= said == ReadingChange::Changed;
            }
        }
        // Of an observed alloc with one cgroup its task's reader is its own.
        let is_a_tasks =
            |reader: &Arc<TaskReader>| alloc.readers.iter().flatten().any(|task| Arc::ptr_eq(task, reader));
        if let Some(reader) = alloc.alloc_reader.as_ref().filter(|reader| !is_a_tasks(reader)) {
            let due = if speaks_for_its_alloc(alloc.status.as_deref()) {
                runs && all && reader.is_due(self.moment.now)
            } else {
                runs && (all || moved)
            };
            if asked.anew || due {
                news |= self.look(reader, moved) != ReadingChange::None;
            }
        }
        let tells = match self.tells {
            Tells::ReadingChange => news || asked.wanted,
            Tells::All => true,
            Tells::None => false,
        };
        tells.then(|| Said::latest(alloc))
    }
}

/// The kernel tells of its cgroups what they have used when they end; of processes without one nobody does.
pub(super) fn can_wait(alloc: &Published) -> bool {
    !matches!(alloc.identity.source, AllocSource::Managed | AllocSource::Process)
}

impl Readings for Pass {
    fn read(&mut self, asked: &[Asked<'_>]) -> Vec<Option<Said>> {
        let mut said: Vec<Option<Said>> = Vec::new();
        said.resize_with(asked.len(), || None);
        let chunks = Mutex::new(asked.chunks(CHUNK).zip(said.chunks_mut(CHUNK)));
        let this = &*self;
        let work = || {
            loop {
                let next = lock(&chunks).next();
                let Some((asked, said)) = next else { return };
                for (asked, said) in asked.iter().zip(said) {
                    *said = this.of(asked);
                }
            }
        };
        let others = self.threads.min(asked.len() / self.least).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..others {
                // Without it the others read its share.
                let _ = thread::Builder::new().name("reader".into()).spawn_scoped(scope, work);
            }
            work();
        });
        said
    }
}
