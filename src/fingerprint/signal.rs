//! Which signals a task can be sent, by name.

use std::time::Duration;

use super::{FingerprintError, FingerprintRequest, Fingerprinter};
use crate::model::attributes::{AttributeDiff, HostAttribute};
use crate::model::signal;

pub struct SignalFingerprinter;

impl Fingerprinter for SignalFingerprinter {
    fn name(&self) -> &'static str {
        "signal"
    }
    fn period(&self) -> Option<Duration> {
        None
    }
    fn fingerprint(&self, _: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let mut names: Vec<&str> = signal::names().collect();
        names.sort_unstable();
        Ok(AttributeDiff::default().with(HostAttribute::OsSignals, Some(names.join(",").into())))
    }
}
