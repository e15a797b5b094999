//! Classifies the owner of an alloc with remains on the host. Pure.

use std::collections::BTreeSet;

use crate::model::id::AllocId;

/// Whether an alloc with remains on the host has a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    Recorded,
    Quarantined,
    Unrecorded,
}

/// The allocs that have records at the start of the agent.
#[derive(Debug, Default)]
pub struct RecordedAllocs {
    on_record: BTreeSet<AllocId>,
    set_aside: BTreeSet<AllocId>,
}

impl RecordedAllocs {
    /// `quarantined`: keys of records that were quarantined, at this start or an earlier one.
    pub fn new<'a>(
        known: impl Iterator<Item = AllocId>,
        tombstones: &[AllocId],
        quarantined: impl Iterator<Item = &'a str>,
    ) -> RecordedAllocs {
        let alloc_of = |key: &str| {
            let id = key.strip_prefix("alloc/").or_else(|| key.strip_prefix("task/")?.split('/').next())?;
            AllocId::parse(id)
        };
        RecordedAllocs {
            on_record: known.chain(tombstones.iter().cloned()).collect(),
            set_aside: quarantined.filter_map(alloc_of).collect(),
        }
    }

    pub fn ownership(&self, id: &AllocId) -> Ownership {
        if self.on_record.contains(id) {
            Ownership::Recorded
        } else if self.set_aside.contains(id) {
            Ownership::Quarantined
        } else {
            Ownership::Unrecorded
        }
    }
}
