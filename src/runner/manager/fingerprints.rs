//! Follows the fingerprints of each driver as long as the agent runs. Drivers report at their start and on each change;
//! they are not polled.
//!
//! | fingerprints | state of the driver |
//! |---|---|
//! | arrive | the last one, as a whole |
//! | do not start | unhealthy; retried |
//! | end, or the driver dies | unhealthy; retried |
//!
//! A start waits for a healthy driver ([`launch`](crate::runner::task::launch)); running tasks are left alone.

use std::sync::Arc;
use std::time::Duration;

use super::Handle;
use crate::board::facts::Facts;
use crate::model::attributes::AttributeDiff;
use crate::model::event::EventKind;
use crate::runner::context::RunnerContext;
use crate::runner::drivers::call::{CheckedFingerprints, DriverCallError};
use crate::runner::drivers::{Driver, DriverInfo, Fingerprint, FingerprintChange, Health};
use crate::runner::wait_ends::{Ends, EndsWith};

/// Delay before a retry: doubled each time, up to the second value. Fingerprints that lasted longer reset it.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Minimum interval between fingerprints: a driver that changes all the time fills neither the log nor the events.
const SETTLE: Duration = Duration::from_millis(250);

impl Handle {
    /// The last fingerprint of each driver, by name.
    pub fn driver_infos(&self) -> Vec<(&'static str, DriverInfo)> {
        self.0.ctx.driver_infos.iter().map(|(name, info)| (*name, info.borrow().clone())).collect()
    }

    /// The attributes of this host, those of drivers included.
    pub fn facts(&self) -> &Arc<Facts> {
        &self.0.ctx.facts
    }
}

/// Spawns one task for each driver.
pub(super) fn follow_all(ctx: &Arc<RunnerContext>) {
    for (name, driver) in &ctx.drivers {
        ctx.see_to(follow(Arc::clone(ctx), name, Arc::clone(driver)));
    }
}

async fn follow(ctx: Arc<RunnerContext>, name: &'static str, driver: Arc<dyn Driver>) {
    let mut pause = PAUSES.0;
    loop {
        let began = tokio::time::Instant::now();
        let why = follow_once(&ctx, name, driver.as_ref()).await;
        take(&ctx, name, Fingerprint::of(Health::Unhealthy, why));
        if began.elapsed() > PAUSES.1 {
            pause = PAUSES.0;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Follows the fingerprints until they end; returns why.
async fn follow_once(ctx: &RunnerContext, name: &'static str, driver: &dyn Driver) -> String {
    let ended = |error: DriverCallError| format!("no fingerprint: {error}; retrying");
    let (mut reports, mut report) = match CheckedFingerprints::of(driver).await {
        Ok(started) => started,
        Err(error) => return ended(error),
    };
    loop {
        take(ctx, name, report);
        tokio::time::sleep(SETTLE).await;
        report = match reports.next().ends_with(Ends::Agent).await {
            Ok(report) => report,
            Err(error) => return ended(error),
        };
    }
}

/// Stores a fingerprint and reports a change of health.
fn take(ctx: &RunnerContext, name: &'static str, report: Fingerprint) {
    let Some(info) = ctx.driver_infos.get(name) else { return };
    let now = ctx.clock.now();
    let Fingerprint { health, description, .. } = report.clone();
    let known = info.borrow().fingerprint.as_ref().map(|before| before.facts(name)).unwrap_or_default();
    // First: a start that waits for the driver's health finds its attributes there.
    ctx.facts.apply(AttributeDiff::between(&known, &report.facts(name)));
    let mut change = FingerprintChange::None;
    info.send_if_modified(|info| {
        change = info.replace(report, now);
        change != FingerprintChange::None
    });
    let FingerprintChange::Health(before) = change else { return };
    // A driver whose runtime was never there is no error: most hosts have no container engine.
    let was_never_there = health == Health::Undetected && before.is_none();
    let healthy = (!was_never_there).then_some(health == Health::Healthy);
    ctx.metrics.driver_is(name, healthy, before.is_some());
    let (health, description) = (health.as_str(), description.as_str());
    let before = before.map(Health::as_str);
    // Healthy from the start is no change.
    if (before, health) == (None, Health::Healthy.as_str()) || was_never_there {
        tracing::debug!(driver = name, health, description, "driver reported");
        return;
    }
    tracing::info!(driver = name, health, before, description, "driver health changed");
    let mut details = vec![("driver", name), ("health", health)];
    details.extend(before.map(|before| ("before", before)));
    ctx.events.record_host_event(now, EventKind::Driver, format!("driver {name} is {health}: {description}"), &details);
}
