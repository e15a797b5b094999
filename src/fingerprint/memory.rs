//! How much memory there is. Source: `/proc/meminfo`. Units: bytes.

use std::time::Duration;

use super::{EACH_MINUTE, FingerprintError, FingerprintRequest, Fingerprinter};
use crate::kernel::proc::meminfo;
use crate::model::attribute::Attribute;
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct MemoryFingerprinter;

impl Fingerprinter for MemoryFingerprinter {
    fn name(&self) -> &'static str {
        "memory"
    }
    /// Virtual machines are given more, and less.
    fn period(&self) -> Option<Duration> {
        EACH_MINUTE
    }
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let (info, bad) = meminfo::parse(&request.roots.read_proc("meminfo")?);
        match (info.total, bad) {
            // A line that is odd costs no more than its own value.
            (None, Some(bad)) => Err(bad.into()),
            (total, _) => {
                Ok(AttributeDiff::default().with(HostAttribute::MemoryTotalBytes, total.map(Attribute::from)))
            }
        }
    }
}
