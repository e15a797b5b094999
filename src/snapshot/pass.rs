//! One pass over the readers: of each alloc the tasks first, then its own cgroup, so that what the alloc says is no older than what
//! its tasks say beside it.
//!
//! ```text
//! each task that runs ──► one moved, or another attempt runs than before? ──► the alloc's own cgroup, everything of it
//!                              └── neither: it stands as it was read last, like them
//! ```
//! An alloc of which nothing runs is not read: nothing of it can move but by an attempt's end, and that is a change.

use super::assemble::{Moment, Readings};
use crate::collectors::{News, Reading, TaskReader};
use crate::runner::board::Published;

pub struct Pass {
    moment: Moment,
    /// Those that were read before, too.
    all: bool,
}

impl Pass {
    /// A tick: every reader is asked.
    pub fn over_all(moment: Moment) -> Pass {
        Pass { moment, all: true }
    }
    /// A change: what was never read, since its counters are born with its task and not with the next tick.
    pub fn over_new(moment: Moment) -> Pass {
        Pass { moment, all: false }
    }

    fn look(&self, reader: &TaskReader, everything: bool) -> News {
        // Gone: the end is on its way to the board, and until it is there the last reading holds.
        reader.look(self.moment.now, self.moment.at, everything).unwrap_or(News::None)
    }
}

impl Readings for Pass {
    fn ask(&mut self, alloc: &Published, anew: bool) -> bool {
        let (mut news, mut moved, mut runs) = (false, anew, false);
        for reader in alloc.readers.iter().flatten() {
            runs = true;
            if self.all || reader.latest().is_none() {
                let said = self.look(reader, false);
                news |= said != News::None;
                moved |= said == News::Changed;
            }
        }
        if let Some(reader) = alloc.alloc_reader.as_ref().filter(|_| anew || (runs && (self.all || moved))) {
            news |= self.look(reader, moved) != News::None;
        }
        news
    }
    fn task(&mut self, alloc: &Published, n: usize) -> Option<Reading> {
        alloc.readers.get(n)?.as_ref()?.latest()
    }
    fn alloc(&mut self, alloc: &Published) -> Option<Reading> {
        alloc.alloc_reader.as_ref()?.latest()
    }
}
