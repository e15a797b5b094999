//! I/O of a task on one block device.

use std::sync::Arc;

/// Counters since the cgroup was created. Absent: the kernel does not count it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskIo {
    /// The kernel's name of the device (`sda`, `nvme0n1`); its number (`8:0`) where that has no name.
    pub disk: Arc<str>,
    /// By [`DiskIo::READ_BYTES`] and its siblings.
    pub counts: DiskCounts,
}

pub type DiskCounts = [Option<u64>; 4];

impl DiskIo {
    pub const READ_BYTES: usize = 0;
    pub const WRITTEN_BYTES: usize = 1;
    pub const READS: usize = 2;
    pub const WRITES: usize = 3;
}
