//! What others run: who looks at it, and who may forget what of it was delivered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::home::Home;
use crate::collectors::{KernelEnds, Sampling};
use crate::config::Config;
use crate::host::clock::Clock;
use crate::observe::{self, Keep, Observer};
use crate::runner::Handle;
use crate::snapshot::Snapshots;
use crate::telemetry::Metrics;

/// How long a look without an agent may take until everything has its name: two seconds are given to runtimes that hang.
const NAMED: Duration = Duration::from_millis(2_500);

/// Waits until it is so, no longer than that.
pub fn until_named(is_settled: impl Fn() -> bool) {
    let began = Instant::now();
    while began.elapsed() < NAMED && !is_settled() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What tells of them.
pub(super) struct Others<'a> {
    pub(super) sampling: &'a Arc<Sampling>,
    pub(super) ends: Option<KernelEnds>,
    pub(super) keep: Keep,
}

/// Looks at what others run, where that is wanted and can be had.
pub(super) fn observe(
    config: &Config,
    handle: &Handle,
    home: &Home,
    others: Others<'_>,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Option<Arc<Observer>> {
    let Others { sampling, ends, keep } = others;
    let parts = observe::Parts {
        config: config.observe.clone(),
        sampling: Arc::clone(sampling),
        ends,
        board: Arc::clone(handle.board()),
        ours: home.parent.clone(),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        keep: Some(keep),
    };
    let observer = config.observe.enabled.then(|| Observer::start(parts))?;
    observer.inspect_err(|error| tracing::warn!(%error, "nothing that others run is observed")).ok().map(Arc::new)
}

/// Ended allocs whose series have retired may be forgotten by who shows them.
pub(super) async fn hand_over_retired(handle: Handle, observer: Option<Arc<Observer>>, mut snapshots: Snapshots) {
    let mut epoch = 0;
    while snapshots.changed().await.is_ok() {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        if snapshot.epoch != epoch {
            epoch = snapshot.epoch;
            let retired = snapshot.allocs.iter().filter(|a| a.ended && a.retired);
            let (observed, ours): (Vec<_>, Vec<_>) = retired.partition(|a| a.observed.is_some());
            handle.collectable(ours.into_iter().map(|a| a.identity.id.clone()));
            if let Some(observer) = observer.as_ref().filter(|_| !observed.is_empty()) {
                observer.delivered(observed.into_iter().map(|a| a.identity.id.clone()));
            }
        }
    }
}
