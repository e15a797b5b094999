//! What this driver says of itself: well, as long as it can watch one supervisor more.

use std::sync::Arc;

use super::shared::Shared;
use crate::runner::drivers::{BoxFuture, Fingerprint, Fingerprints, Health};

pub struct Reports {
    shared: Arc<Shared>,
    /// `None`: nothing was said yet.
    said: Option<Health>,
}

impl Reports {
    pub fn begin(shared: &Arc<Shared>) -> Box<dyn Fingerprints> {
        Box::new(Reports { shared: Arc::clone(shared), said: None })
    }

    fn health(&self) -> Health {
        if self.shared.watches.available_permits() > 0 { Health::Healthy } else { Health::Unhealthy }
    }

    fn report(&self, health: Health) -> Fingerprint {
        let mode = self.shared.sampling.layout.mode().as_str();
        let (cgroups, well) = match &self.shared.no_cgroups {
            Some(why) => {
                ("none", format!("no cgroups ({why}): tasks are plain processes, their limits are not enforced"))
            }
            None => (mode, format!("each task in a cgroup of its own ({mode})")),
        };
        let said = match health {
            Health::Healthy => well,
            Health::Unhealthy | Health::Undetected => {
                "no descriptor is left to watch one task more: raise LimitNOFILE, or wait until one ends".to_owned()
            }
        };
        let attributes = [("cgroups".to_owned(), cgroups.to_owned())].into();
        Fingerprint { attributes, ..Fingerprint::of(health, said) }
    }
}

impl Fingerprints for Reports {
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>> {
        Box::pin(async move {
            while self.said == Some(self.health()) {
                match self.said {
                    // Ends: when the last place is taken, or with the agent.
                    Some(Health::Healthy) => self.shared.full.notified().await,
                    // Ends: when a task has ended, or with the agent. The place itself is left to tasks.
                    _ => drop(self.shared.watches.acquire().await),
                }
            }
            let health = self.health();
            self.said = Some(health);
            Some(self.report(health))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collectors::{FdBudget, Sampling};
    use crate::host::clock::SystemClock;
    use crate::host::hierarchy::Layout;
    use crate::host::roots::Roots;
    use crate::model::id::BootId;
    use crate::runner::drivers::DriverContext;

    #[tokio::test(start_paused = true)]
    async fn it_is_unhealthy_while_no_descriptor_is_left_and_says_so_with_each_change() {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        let shared = Arc::new(Shared::new(&DriverContext {
            sampling: Sampling::new(roots, layout, FdBudget::from_limit()),
            clock: Arc::new(SystemClock),
            boot_id: BootId("b".into()),
            supervisor: "/nowhere".into(),
            supervisors: None,
            descriptors: None,
            watches: 2,
            no_cgroups: Some("there are none".to_owned()),
            settings: Default::default(),
        }));
        let mut reports = Reports::begin(&shared);
        let first = reports.next().await.unwrap();
        assert_eq!((first.health, first.attributes["cgroups"].as_str()), (Health::Healthy, "none"));
        assert!(first.description.starts_with("no cgroups (there are none)"));
        for _ in 0..3 {
            let (one, two) = (shared.watch().unwrap(), shared.watch().unwrap());
            assert!(shared.watch().is_none());
            let full = reports.next().await.unwrap();
            assert!(full.health == Health::Unhealthy && full.description.contains("LimitNOFILE"), "{full:?}");
            assert!(tokio::time::timeout(Duration::from_secs(3600), reports.next()).await.is_err(), "no news");
            drop(one);
            assert_eq!(reports.next().await.unwrap().health, Health::Healthy);
            // Full and free again before anybody looks is no news either.
            drop(shared.watch().unwrap());
            assert!(tokio::time::timeout(Duration::from_secs(3600), reports.next()).await.is_err(), "no news");
            drop(two);
        }
    }
}
