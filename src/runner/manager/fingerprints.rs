//! Follows what each driver reports of itself, for as long as the agent lives. Nobody is asked how he is: a driver says so, when
//! it begins and with each change.
//!
//! | its reports | what is known of it |
//! |---|---|
//! | come | the last one, whole |
//! | do not begin | unhealthy; it is asked anew |
//! | end, or the driver dies of them | unhealthy; it is asked anew |
//!
//! A start waits for a healthy driver ([`launch`](crate::runner::task::launch)); what runs is left alone.

use std::sync::Arc;
use std::time::Duration;

use super::Handle;
use crate::board::facts::Facts;
use crate::model::attributes::AttributeDiff;
use crate::model::event::EventKind;
use crate::runner::drivers::call::{CallError, Reports};
use crate::runner::drivers::{Driver, DriverInfo, Fingerprint, FingerprintChange, Health};
use crate::runner::ground::Context;

/// Before a driver is asked anew; doubled each time, up to the second. Reports that went on for longer than that begin afresh.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// From one report to the next: a driver that changes all the time fills neither log nor events, and costs no more than that.
const SETTLE: Duration = Duration::from_millis(250);

impl Handle {
    /// What is known of each driver, by name.
    pub fn driver_infos(&self) -> Vec<(&'static str, DriverInfo)> {
        self.0.ctx.driver_infos.iter().map(|(name, info)| (*name, info.borrow().clone())).collect()
    }

    /// What is known of this host, what drivers say included.
    pub fn facts(&self) -> &Arc<Facts> {
        &self.0.ctx.facts
    }
}

/// One task of the runtime for each driver.
pub(super) fn follow_all(ctx: &Arc<Context>) {
    for (name, driver) in &ctx.drivers {
        ctx.see_to(follow(Arc::clone(ctx), name, Arc::clone(driver)));
    }
}

async fn follow(ctx: Arc<Context>, name: &'static str, driver: Arc<dyn Driver>) {
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

/// Until its reports end; why they do.
async fn follow_once(ctx: &Context, name: &'static str, driver: &dyn Driver) -> String {
    let ended = |error: CallError| format!("no fingerprint: {error}; retrying");
    let (mut reports, mut report) = match Reports::of(driver).await {
        Ok(begun) => begun,
        Err(error) => return ended(error),
    };
    loop {
        take(ctx, name, report);
        tokio::time::sleep(SETTLE).await;
        // Ends: with its next change, or with the agent.
        report = match reports.next().await {
            Ok(report) => report,
            Err(error) => return ended(error),
        };
    }
}

/// A report is what is known from now on; a change of health is told.
fn take(ctx: &Context, name: &'static str, report: Fingerprint) {
    let Some(info) = ctx.driver_infos.get(name) else { return };
    let now = ctx.clock.now();
    let Fingerprint { health, description, .. } = report.clone();
    let known = info.borrow().fingerprint.as_ref().map(|before| before.facts(name)).unwrap_or_default();
    // Who waits for the driver to be well finds there what it says.
    ctx.facts.apply(AttributeDiff::between(&known, &report.facts(name)));
    let mut change = FingerprintChange::None;
    info.send_if_modified(|info| {
        change = info.replace(report, now);
        change != FingerprintChange::None
    });
    let FingerprintChange::Health(before) = change else { return };
    // What a driver needs and was never there is no fault: most hosts have no engine for containers.
    let was_never_there = health == Health::Undetected && before.is_none();
    let healthy = (!was_never_there).then_some(health == Health::Healthy);
    ctx.metrics.driver_is(name, healthy, before.is_some());
    let (health, description) = (health.as_str(), description.as_str());
    let before = before.map(Health::as_str);
    // That a driver is well from its start on is no change.
    if (before, health) == (None, Health::Healthy.as_str()) || was_never_there {
        tracing::debug!(driver = name, health, description, "driver reported");
        return;
    }
    tracing::info!(driver = name, health, before, description, "driver health changed");
    let mut details = vec![("driver", name), ("health", health)];
    details.extend(before.map(|before| ("before", before)));
    ctx.events.record_host_event(now, EventKind::Driver, format!("driver {name} is {health}: {description}"), &details);
}
