//! How far a download is. Concurrency: the thread that fetches writes, the task's hook reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::telemetry::Metrics;

/// Of one artifact.
#[derive(Debug, Default)]
pub struct FetchProgress {
    metrics: Arc<Metrics>,
    is_started: AtomicBool,
    received: AtomicU64,
    /// 0: the server has not sent a length.
    expected: AtomicU64,
    unpacked: AtomicU64,
}

impl FetchProgress {
    pub fn new(metrics: Arc<Metrics>) -> FetchProgress {
        FetchProgress { metrics, ..FetchProgress::default() }
    }

    pub(super) fn begins(&self) {
        self.is_started.store(true, Relaxed);
    }
    pub(super) fn expects(&self, bytes: u64) {
        self.expected.store(bytes, Relaxed);
    }
    pub(super) fn receives(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
        self.metrics.artifacts.received(bytes);
    }
    pub(super) fn unpacks(&self, bytes: u64) {
        self.unpacked.fetch_add(bytes, Relaxed);
    }

    /// Bytes that came over the network so far; of git none is known.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// `downloading NAME: 12 of 340 MiB`
    pub fn shown(&self, name: &str) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let (received, expected) = (self.received(), self.expected.load(Relaxed));
        match self.unpacked.load(Relaxed) {
            0 if !self.is_started.load(Relaxed) => format!("{name} waits for other downloads to end"),
            0 if received == 0 => format!("downloading {name}"),
            0 if expected == 0 => format!("downloading {name}: {} MiB", mib(received)),
            0 => format!("downloading {name}: {} of {} MiB", mib(received), mib(expected)),
            unpacked => format!("unpacking {name}: {} MiB written", mib(unpacked)),
        }
    }
}
