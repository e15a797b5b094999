//! The fingerprints of such a driver: its own, as long as one more supervisor can be watched.

use std::sync::Arc;

use tokio::sync::watch;

use super::shared::SupervisionContext;
use crate::runner::drivers::{BoxFuture, Fingerprint, Fingerprints, Health};
use crate::runner::wait_ends::{Ends, EndsWith};

pub struct SupervisedFingerprints {
    shared: Arc<SupervisionContext>,
    full: watch::Receiver<()>,
    /// `None`: no fingerprint yet.
    reported: Option<Health>,
}

impl SupervisedFingerprints {
    pub fn begin(shared: &Arc<SupervisionContext>) -> Box<dyn Fingerprints> {
        Box::new(SupervisedFingerprints { full: shared.pool.when_full(), shared: Arc::clone(shared), reported: None })
    }

    fn now(&self) -> Fingerprint {
        let here = self.shared.kind.fingerprint(&self.shared);
        if here.health != Health::Healthy || !self.shared.pool.is_full() {
            return here;
        }
        let full = "no descriptor is left to watch one task more: raise LimitNOFILE, or wait until one ends";
        Fingerprint { attributes: here.attributes, ..Fingerprint::of(Health::Unhealthy, full) }
    }
}

impl Fingerprints for SupervisedFingerprints {
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>> {
        Box::pin(async move {
            loop {
                let report = self.now();
                if self.reported != Some(report.health) {
                    self.reported = Some(report.health);
                    return Some(report);
                }
                match self.shared.pool.is_full() {
                    true => self.shared.pool.free().ends_with(Ends::Agent).await,
                    false => self.full.changed().ends_with(Ends::Agent).await.ok()?,
                }
            }
        })
    }
}

/// Promise (Durability and recovery): `raw_exec` is unhealthy while no descriptor is left to watch one more task, and
/// reports when there is one
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collectors::{FdBudget, SamplingContext};
    use crate::host::clock::SystemClock;
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;
    use crate::model::id::BootId;
    use crate::runner::drivers::DriverContext;
    use crate::runner::drivers::SupervisorPool;
    use crate::runner::drivers::raw_exec::RawExecDriver;

    #[tokio::test(start_paused = true)]
    async fn driver_is_unhealthy_without_descriptors_and_reports_each_change() {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        let context = DriverContext {
            sampling: SamplingContext::new(roots, layout, FdBudget::from_limit()),
            clock: Arc::new(SystemClock),
            boot_id: BootId("b".into()),
            supervisors: SupervisorPool::new("/nowhere".into(), None, 2),
            descriptors: None,
            no_cgroups: Some("there are none".to_owned()),
            settings: Default::default(),
            metrics: Arc::default(),
        };
        let shared = Arc::new(SupervisionContext::new(&context, Box::new(RawExecDriver)));
        let mut reports = SupervisedFingerprints::begin(&shared);
        let first = reports.next().await.unwrap();
        assert_eq!((first.health, first.attributes["cgroups"].as_str()), (Health::Healthy, "none"));
        assert!(first.description.starts_with("no cgroups (there are none)"));
        for _ in 0..3 {
            let (one, two) = (shared.pool.watch().unwrap(), shared.pool.watch().unwrap());
            assert!(shared.pool.watch().is_none());
            let full = reports.next().await.unwrap();
            assert!(full.health == Health::Unhealthy && full.description.contains("LimitNOFILE"), "{full:?}");
            assert!(tokio::time::timeout(Duration::from_secs(3600), reports.next()).await.is_err(), "no news");
            drop(one);
            assert_eq!(reports.next().await.unwrap().health, Health::Healthy);
            // Full and free again between two polls is no change either.
            drop(shared.pool.watch().unwrap());
            assert!(tokio::time::timeout(Duration::from_secs(3600), reports.next()).await.is_err(), "no news");
            drop(two);
        }
    }
}
