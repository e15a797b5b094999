//! What is counted of artifacts.

use std::time::Duration;

use prometheus::{Counter, IntCounter, IntCounterVec, Registry};

use super::registered::{counter, counters, register};
use crate::model::metric::{MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static ARTIFACT_DOWNLOADS: MetricDesc = MetricDesc::counter(
    "allostat_artifact_downloads_total",
    Unit::None,
    "Artifacts fetched for managed tasks, by outcome: success or what failed.",
    &["outcome"],
)
.from_profile(Profile::Standard)
.otlp("allostat.artifact.downloads", "{download}");

pub static ARTIFACT_BYTES: MetricDesc = MetricDesc::counter(
    "allostat_artifact_bytes_total",
    Unit::Bytes,
    "Bytes of successfully fetched artifacts, as downloaded; of git the files of the working tree.",
    &[],
)
.from_profile(Profile::Standard)
.otlp("allostat.artifact.bytes", "By");

pub static ARTIFACT_RECEIVED: MetricDesc = MetricDesc::counter(
    "allostat_artifact_received_bytes_total",
    Unit::Bytes,
    "Bytes of artifacts received over HTTP, as they arrive; those of failed downloads count.",
    &[],
)
.from_profile(Profile::Standard)
.otlp("allostat.artifact.received", "By");

pub static ARTIFACT_SECONDS: MetricDesc = MetricDesc::counter(
    "allostat_artifact_seconds_total",
    Unit::Seconds,
    "Time spent fetching and unpacking artifacts, successful or not.",
    &[],
)
.from_profile(Profile::Standard)
.otlp("allostat.artifact.seconds", "s");
}

words! {
    /// What came of an artifact.
    pub enum ArtifactOutcome {
        Success = "success",
        /// No answer, a wrong one, or one too late.
        Network = "network",
        Checksum = "checksum",
        /// More bytes or entries than allowed, or no room for them.
        Limit = "limit",
        /// An archive or a tree that is broken or hostile.
        Archive = "archive",
        Git = "git",
        /// Its destination cannot be written.
        Install = "install",
        Cancelled = "cancelled",
    }
}

/// What came of artifacts.
pub struct ArtifactMetrics {
    downloads: IntCounterVec,
    bytes: IntCounter,
    received: IntCounter,
    seconds: Counter,
}

impl ArtifactMetrics {
    pub(super) fn new(registry: &Registry) -> ArtifactMetrics {
        let downloads = counters(registry, &ARTIFACT_DOWNLOADS);
        for outcome in ArtifactOutcome::ALL {
            downloads.with_label_values(&[outcome.as_str()]);
        }
        ArtifactMetrics {
            downloads,
            bytes: counter(registry, &ARTIFACT_BYTES),
            received: counter(registry, &ARTIFACT_RECEIVED),
            seconds: register(registry, Counter::new(ARTIFACT_SECONDS.name, ARTIFACT_SECONDS.help)),
        }
    }
    /// While a download lasts.
    pub fn received(&self, bytes: u64) {
        self.received.inc_by(bytes);
    }
    /// `bytes`: 0 where it failed.
    pub fn fetched(&self, outcome: ArtifactOutcome, bytes: u64, took: Duration) {
        self.downloads.with_label_values(&[outcome.as_str()]).inc();
        self.bytes.inc_by(bytes);
        self.seconds.inc_by(took.as_secs_f64());
    }
}
