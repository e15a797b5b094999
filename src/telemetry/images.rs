//! What is counted of images that the agent pulls for tasks.

use std::time::Instant;

use prometheus::{Counter, IntCounterVec, Registry};

use super::registered::{counters, register};
use crate::model::metric::{MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;
use crate::model::words;

families! {
pub static IMAGE_PULLS: MetricDesc = MetricDesc::counter(
    "allostat_image_pulls_total",
    Unit::None,
    "Container images pulled for managed tasks, by outcome: success or what failed.",
    &["outcome"],
)
.from_profile(Profile::Standard)
.otlp("allostat.image.pulls", "{pull}");

pub static IMAGE_PULL_SECONDS: MetricDesc = MetricDesc::counter(
    "allostat_image_pull_seconds_total",
    Unit::Seconds,
    "Time spent pulling container images for managed tasks, successful or not.",
    &[],
)
.from_profile(Profile::Standard)
.otlp("allostat.image.pull.seconds", "s");
}

words! {
    /// What came of a pull.
    pub enum PullOutcome {
        Success = "success",
        /// The registry has no such image, or denies it to these credentials: a retry does not help.
        Refused = "refused",
        /// The engine or the registry failed, or there was no progress: a retry may help.
        Failed = "failed",
        /// Not done within `image_pull_timeout`.
        Timeout = "timeout",
        /// The task was stopped meanwhile.
        Cancelled = "cancelled",
    }
}

/// Concurrency: any thread; atomics.
pub struct ImageMetrics {
    pulls: IntCounterVec,
    seconds: Counter,
}

impl ImageMetrics {
    pub(super) fn new(registry: &Registry) -> ImageMetrics {
        let pulls = counters(registry, &IMAGE_PULLS);
        // Born at 0, so that the first increment is seen as one.
        for outcome in PullOutcome::ALL {
            pulls.with_label_values(&[outcome.as_str()]);
        }
        let seconds = register(registry, Counter::new(IMAGE_PULL_SECONDS.name, IMAGE_PULL_SECONDS.help));
        ImageMetrics { pulls, seconds }
    }
    /// Begins a pull. It is counted when the result is dropped.
    pub fn pull(&self) -> ImagePull<'_> {
        ImagePull { metrics: self, began: Instant::now(), outcome: PullOutcome::Cancelled }
    }
}

/// A pull that runs.
pub struct ImagePull<'a> {
    metrics: &'a ImageMetrics,
    began: Instant,
    /// Cancelled until it has ended.
    pub outcome: PullOutcome,
}

impl Drop for ImagePull<'_> {
    fn drop(&mut self) {
        self.metrics.pulls.with_label_values(&[self.outcome.as_str()]).inc();
        self.metrics.seconds.inc_by(self.began.elapsed().as_secs_f64());
    }
}
