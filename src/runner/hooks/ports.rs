//! The ports of an alloc: reserved before its first task starts, released when nothing of it is left. Until they can be had the alloc
//! waits, as an alloc does that Nomad cannot place; its stop ends that.

use std::sync::Arc;
use std::time::Duration;

use super::frame::{Hook, HookError, HookOutcome, Phase};
use super::subject::OfAlloc;
use crate::model::event::EventKind;
use crate::model::id::AllocId;
use crate::model::network::AllocPort;
use crate::model::placement::{NotPlaced, PlacementReason};
use crate::runner::drivers::BoxFuture;
use crate::runner::places::in_line;
use crate::runner::ports::{PortAsk, PortConflict, PortHolder, PortKeeper};

/// Allocs say when they leave a port; of other programs it has to be found out.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// So many ports are named in one event.
const NAMED: usize = 10;

pub struct Ports;

impl Hook<OfAlloc> for Ports {
    fn name(&self) -> &'static str {
        "ports"
    }
    fn phases(&self) -> &'static [Phase] {
        &[Phase::Prerun, Phase::Postrun, Phase::Destroy]
    }
    fn run<'a>(&'a self, phase: Phase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            match phase {
                Phase::Prerun => reserve(subject).await?,
                // An abandoned task may have its port still.
                _ if subject.asks.as_ref().is_none_or(|asks| asks.all_gone) => subject.ctx.ports.release(&subject.id),
                _ => {}
            }
            Ok(HookOutcome::Again)
        })
    }
}

async fn reserve(subject: &mut OfAlloc) -> Result<(), HookError> {
    let Some(asks) = &subject.asks else { return Ok(()) };
    let wanted = subject.ctx.ports.asks(asks.group(), &subject.ctx.node, &subject.ctx.facts.now());
    // That needs another setting of the agent.
    let wanted = wanted.map_err(|e| HookError { recoverable: false, ..HookError::setup(e.to_string()) })?;
    if wanted.is_empty() {
        return Ok(());
    }
    let wanted = Arc::new(wanted);
    let mut releases = subject.ctx.ports.releases();
    let mut reported = None;
    loop {
        releases.mark_unchanged();
        let holder = PortHolder { alloc: subject.id.clone(), job: asks.job.id.clone() };
        let (keeper, wanted, before) = (Arc::clone(&subject.ctx.ports), Arc::clone(&wanted), subject.ports.clone());
        let work = move || ReservedPorts::reserve(keeper, &holder, &wanted, &before);
        match subject.ctx.blocking.block(work).await.map_err(HookError::setup)? {
            Ok(reserved) => {
                let ports = reserved.keep();
                (asks.wait)(None);
                if ports != subject.ports {
                    (asks.say)(EventKind::Network, format!("ports reserved: {}", named(&ports)));
                }
                subject.ports = ports;
                return Ok(());
            }
            Err(conflict) => {
                if reported.as_ref() != Some(&conflict) {
                    (asks.say)(EventKind::NotPlaced, format!("not placed: {conflict}"));
                    (asks.wait)(Some(NotPlaced::new(PlacementReason::Port, conflict.to_string())));
                    reported = Some(conflict);
                }
            }
        }
        // Ends: with a release, or after a moment; a wait for others does not count for the deadline.
        let _ = in_line(tokio::time::timeout(TRY_AGAIN, releases.changed())).await;
    }
}

/// Released again if who asked for them has left meanwhile.
struct ReservedPorts {
    keeper: Arc<PortKeeper>,
    alloc: AllocId,
    ports: Option<Vec<AllocPort>>,
}

impl ReservedPorts {
    fn reserve(
        keeper: Arc<PortKeeper>,
        holder: &PortHolder,
        wanted: &[PortAsk],
        before: &[AllocPort],
    ) -> Result<ReservedPorts, PortConflict> {
        let ports = Some(keeper.reserve(holder, wanted, before)?);
        Ok(ReservedPorts { keeper, alloc: holder.alloc.clone(), ports })
    }
    fn keep(mut self) -> Vec<AllocPort> {
        self.ports.take().unwrap_or_default()
    }
}

impl Drop for ReservedPorts {
    fn drop(&mut self) {
        if self.ports.is_some() {
            self.keeper.release(&self.alloc);
        }
    }
}

/// `http 10.0.0.7:20001, db 10.0.0.7:5432 and 3 more`
fn named(ports: &[AllocPort]) -> String {
    let some = ports.iter().take(NAMED).map(AllocPort::shown);
    let some = some.collect::<Vec<_>>().join(", ");
    match ports.len().saturating_sub(NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
