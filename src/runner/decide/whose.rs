//! Pure: whose an alloc is of which something is found on the host.

use std::collections::BTreeSet;

use crate::model::id::AllocId;

/// Whose an alloc is, of which something is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    OnRecord,
    SetAside,
    Nobodys,
}

/// The allocs that records name, at the start of the agent.
#[derive(Debug, Default)]
pub struct Named {
    on_record: BTreeSet<AllocId>,
    set_aside: BTreeSet<AllocId>,
}

impl Named {
    /// `quarantined`: keys of records that were set aside, at this start or an earlier one.
    pub fn new<'a>(
        known: impl Iterator<Item = AllocId>,
        tombstones: &[AllocId],
        quarantined: impl Iterator<Item = &'a str>,
    ) -> Named {
        let alloc_of = |key: &str| {
            let id = key.strip_prefix("alloc/").or_else(|| key.strip_prefix("task/")?.split('/').next())?;
            AllocId::parse(id)
        };
        Named {
            on_record: known.chain(tombstones.iter().cloned()).collect(),
            set_aside: quarantined.filter_map(alloc_of).collect(),
        }
    }

    /// Pure.
    pub fn whose(&self, id: &AllocId) -> Whose {
        if self.on_record.contains(id) {
            Whose::OnRecord
        } else if self.set_aside.contains(id) {
            Whose::SetAside
        } else {
            Whose::Nobodys
        }
    }
}
