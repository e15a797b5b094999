//! The file system on which allocs live. Source: `/proc/self/mountinfo`; statvfs(3), which may hang. Units: bytes.

use std::time::Duration;

use super::{EACH_MINUTE, FingerprintError, FingerprintRequest, Fingerprinter};
use crate::host::roots::ReadError;
use crate::kernel::proc::mountinfo;
use crate::model::attribute::Attribute;
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct StorageFingerprinter;

impl Fingerprinter for StorageFingerprinter {
    fn name(&self) -> &'static str {
        "storage"
    }
    /// What is free changes with each file.
    fn period(&self) -> Option<Duration> {
        EACH_MINUTE
    }
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let bad = |error: std::io::Error| ReadError::new(&request.data_dir, error);
        let data_dir = std::fs::canonicalize(&request.data_dir).map_err(bad)?;
        let found = rustix::fs::statvfs(&data_dir).map_err(|errno| bad(errno.into()))?;
        let bytes = |blocks: u64| blocks.checked_mul(found.f_frsize).map(Attribute::from);
        let volume = mountinfo::source_of(&request.roots.read_proc("self/mountinfo")?, &data_dir);
        Ok(AttributeDiff::default()
            // What ordinary users may still write there.
            .with(HostAttribute::UniqueStorageBytesFree, bytes(found.f_bavail))
            .with(HostAttribute::UniqueStorageBytesTotal, bytes(found.f_blocks))
            .with(HostAttribute::UniqueStorageVolume, volume.map(Attribute::from)))
    }
}
