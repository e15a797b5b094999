//! What the directories of allocs have on the disk: the runner measures, and [`snapshot`](crate::snapshot) reads.

use std::collections::BTreeMap;

use crate::model::id::AllocId;
use crate::model::units::Timestamp;

/// By alloc. One that is not in it was not measured.
pub type DiskUses = BTreeMap<AllocId, DiskUse>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    pub bytes: u64,
    /// Later than that it has no value: the thread that measures hangs.
    pub until: Timestamp,
}

impl DiskUse {
    /// `None`: it is too old.
    pub fn at(&self, now: Timestamp) -> Option<u64> {
        (now <= self.until).then_some(self.bytes)
    }
}
