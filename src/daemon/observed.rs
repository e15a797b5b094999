//! Observed workloads: their observer, and when ended ones may be forgotten because their series were delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::placement::CgroupPlacement;
use crate::collectors::{CgroupEndTracer, SamplingContext};
use crate::config::Config;
use crate::host::clock::Clock;
use crate::observe::{self, Observer, RecordLocation};
use crate::runner::Handle;
use crate::snapshot::Snapshots;
use crate::telemetry::Metrics;

/// How long a reading without an agent may take until everything has its name. Runtimes that hang get two seconds of
/// it; the rest is for a busy host with thousands of cgroups, where an unnamed container would be left out.
const NAMED: Duration = Duration::from_secs(6);

/// Waits until it is so, no longer than that.
pub fn until_named(is_settled: impl Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < NAMED && !is_settled() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the observer reads them from.
pub(super) struct ObservedFrom<'a> {
    pub(super) sampling: &'a Arc<SamplingContext>,
    pub(super) ends: Option<CgroupEndTracer>,
    pub(super) keep: RecordLocation,
}

/// Starts the observer, where it is wanted and can be had.
pub(super) fn observe(
    config: &Config,
    handle: &Handle,
    home: &CgroupPlacement,
    observed: ObservedFrom<'_>,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Option<Arc<Observer>> {
    let ObservedFrom { sampling, ends, keep } = observed;
    let parts = observe::Parts {
        config: config.observe.clone(),
        sampling: Arc::clone(sampling),
        ends,
        board: Arc::clone(handle.board()),
        managed_parent: home.parent.clone(),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        keep: Some(keep),
    };
    let observer = config.observe.enabled.then(|| Observer::start(parts))?;
    let failed = |error: &_| tracing::warn!(%error, "failed to start the observer; only managed tasks are measured");
    observer.inspect_err(failed).ok().map(Arc::new)
}

/// Ended allocs whose series have retired may be forgotten by who shows them.
pub(super) async fn hand_over_retired(handle: Handle, observer: Option<Arc<Observer>>, mut snapshots: Snapshots) {
    let mut epoch = 0;
    while snapshots.changed().await.is_ok() {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        if snapshot.epoch != epoch {
            epoch = snapshot.epoch;
            let retired = snapshot.allocs.iter().filter(|a| a.ended && a.retired);
            let (observed, managed): (Vec<_>, Vec<_>) = retired.partition(|a| a.observed.is_some());
            handle.collectable(managed.into_iter().map(|a| a.identity.id.clone()));
            if let Some(observer) = observer.as_ref().filter(|_| !observed.is_empty()) {
                observer.delivered(observed.into_iter().map(|a| a.identity.id.clone()));
            }
        }
    }
}
