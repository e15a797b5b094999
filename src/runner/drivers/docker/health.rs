//! The fingerprints of this driver: healthy as long as its engine responds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::engine::{EngineError, EngineInfo};
use super::recover;
use super::shared::DockerContext;
use crate::host::http::Address;
use crate::runner::drivers::{BoxFuture, Fingerprint, Fingerprints, Health};

/// Interval of checks for a healthy engine, and for an unhealthy one.
const WELL: Duration = Duration::from_secs(15);
const ILL: Duration = Duration::from_secs(2);
/// Interval if there is no engine.
const ABSENT: Duration = Duration::from_secs(30);
/// Interval of searches for leftover containers, and delay of the first one.
const SWEEP_EACH: Duration = Duration::from_secs(300);
const FIRST_SWEEP: Duration = Duration::from_secs(20);

pub struct DockerFingerprints {
    shared: Arc<DockerContext>,
    reported: Option<Fingerprint>,
    next_sweep: Instant,
}

impl DockerFingerprints {
    pub fn begin(shared: &Arc<DockerContext>) -> Box<dyn Fingerprints> {
        Box::new(DockerFingerprints {
            shared: Arc::clone(shared),
            reported: None,
            next_sweep: Instant::now() + FIRST_SWEEP,
        })
    }

    async fn check(&self) -> Fingerprint {
        match self.shared.query_info().await {
            Ok(info) => {
                let bridge = self.shared.engine.bridge_ip().await;
                well(&self.shared, &info, bridge)
            }
            Err(error) => ill(&self.shared, &error),
        }
    }
}

fn well(shared: &DockerContext, info: &EngineInfo, bridge: Option<String>) -> Fingerprint {
    let version = info.server_version.clone();
    let mut attributes = vec![
        ("version", version.clone()),
        ("os_type", info.os_type.clone()),
        ("cgroup_driver", info.cgroup_driver.clone()),
        ("runtimes", info.runtimes.keys().take(20).map(String::as_str).collect::<Vec<_>>().join(",")),
    ];
    attributes.extend(bridge.map(|ip| ("bridge_ip", ip)));
    for (name, on) in
        [("privileged.enabled", shared.settings.allow_privileged), ("volumes.enabled", shared.settings.volumes_enabled)]
    {
        attributes.extend(on.then(|| (name, "true".to_owned())));
    }
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let place = match (&shared.no_cgroups, info.has_systemd()) {
        (Some(why), _) => format!("containers where it places them: {why}"),
        (None, true) => "containers below allostat.slice (systemd)".to_owned(),
        (None, false) => "containers below the agent's cgroup (cgroupfs)".to_owned(),
    };
    Fingerprint { attributes, ..Fingerprint::of(Health::Healthy, format!("Docker {version}, {place}")) }
}

fn ill(shared: &DockerContext, error: &EngineError) -> Fingerprint {
    let address = shared.engine.address();
    match shared.is_there() {
        false => Fingerprint::of(Health::Undetected, format!("no Docker engine listens at {address}")),
        true => Fingerprint::of(Health::Unhealthy, format!("{error} ({address})")),
    }
}

impl DockerContext {
    /// Its socket exists.
    pub fn is_there(&self) -> bool {
        match self.engine.address() {
            Address::Unix(path) => path.exists(),
            Address::Tcp(_) | Address::Tls(..) => true,
        }
    }
}

impl Fingerprints for DockerFingerprints {
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>> {
        Box::pin(async move {
            loop {
                if let Some(reported) = &self.reported {
                    let pause = match reported.health {
                        Health::Healthy => WELL,
                        Health::Unhealthy => ILL,
                        Health::Undetected => ABSENT,
                    };
                    let _ = tokio::time::timeout(pause, self.shared.suspect.notified()).await;
                }
                let report = self.check().await;
                if report.health == Health::Healthy && self.next_sweep <= Instant::now() {
                    self.next_sweep = Instant::now() + SWEEP_EACH;
                    recover::sweep(&self.shared).await;
                }
                if self.reported.as_ref() != Some(&report) {
                    self.reported = Some(report.clone());
                    return Some(report);
                }
                // Limits the rate of failed requests.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
    }
}
