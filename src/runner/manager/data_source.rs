//! Whether the data of an alloc can be read for another agent: it has ended, and nothing here is about to take it.

use std::sync::Arc;

use super::Handle;
use crate::model::id::AllocId;
use crate::runner::alloc::{Alloc, EndStamp};

/// Why the data of an alloc cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataRefusal {
    #[error("there is no alloc {} any more", _0.short())]
    Unknown(AllocId),
    #[error("alloc {} has not ended: its tasks may still write", _0.short())]
    Runs(AllocId),
    #[error("alloc {} failed and is to be rescheduled: `allostat stop` cancels that", _0.short())]
    Rescheduled(AllocId),
    #[error("alloc {} takes over the data of alloc {}: migrate from that one", by.short(), of.short())]
    Taken { of: AllocId, by: AllocId },
}

impl DataRefusal {
    /// Whether a later request may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            DataRefusal::Runs(_) | DataRefusal::Rescheduled(_) => true,
            DataRefusal::Unknown(_) | DataRefusal::Taken { .. } => false,
        }
    }
}

impl Handle {
    /// The end of an alloc whose data may be read. An equal stamp after the read means that nothing of this agent wrote
    /// meanwhile.
    pub fn ended_data(&self, id: &AllocId) -> Result<EndStamp, DataRefusal> {
        let alloc = self.0.allocs.get(id).ok_or_else(|| DataRefusal::Unknown(id.clone()))?;
        if !alloc.is_terminal() || alloc.first_that_may_run().is_some() {
            return Err(DataRefusal::Runs(id.clone()));
        }
        if alloc.awaits_replacement() {
            return Err(DataRefusal::Rescheduled(id.clone()));
        }
        let takes =
            |other: &Alloc| (other.awaits_replacement() || !other.is_terminal()) && other.data_from().contains(id);
        match self.0.allocs.all().into_iter().find(|other| takes(other)) {
            Some(other) => Err(DataRefusal::Taken { of: id.clone(), by: other.id.clone() }),
            None => Ok(alloc.end_stamp()),
        }
    }

    /// The alloc that replaced one in its place, newest first: it may have its data.
    pub fn successor(&self, id: &AllocId) -> Option<AllocId> {
        let follows = |other: &&Arc<Alloc>| other.previous().as_ref() == Some(id);
        let all = self.0.allocs.all();
        all.iter().filter(follows).max_by_key(|other| other.serial).map(|other| other.id.clone())
    }
}
