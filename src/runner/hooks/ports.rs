//! The ports of an alloc: reserved before its first task starts, released when nothing of it is left. Until they can be
//! had the alloc waits, as an alloc does that Nomad cannot place; its stop ends that.

use std::sync::Arc;
use std::time::Duration;

use super::frame::{Hook, HookError, HookOutcome, HookPhase};
use super::subject::OfAlloc;
use crate::model::event::EventKind;
use crate::model::id::AllocId;
use crate::model::network::AllocPort;
use crate::model::placement::{NotPlaced, PlacementReason};
use crate::runner::blocking_pool::in_line;
use crate::runner::drivers::BoxFuture;
use crate::runner::ports::{NeededPort, PortConflict, PortHolder, PortKeeper, Reservation};

/// Allocs say when they leave a port; of other programs it has to be found out.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Tries after which the program of a port is looked up again: another one may use the port now.
const NAME_AGAIN: u32 = 15;
/// So many ports are named in one event.
const NAMED: usize = 10;

pub struct PortsHook;

impl Hook<OfAlloc> for PortsHook {
    fn name(&self) -> &'static str {
        "ports"
    }
    fn phases(&self) -> &'static [HookPhase] {
        &[HookPhase::Prerun, HookPhase::Postrun, HookPhase::Destroy]
    }
    fn run<'a>(&'a self, phase: HookPhase, subject: &'a mut OfAlloc) -> BoxFuture<'a, Result<HookOutcome, HookError>> {
        Box::pin(async move {
            match phase {
                HookPhase::Prerun => reserve(subject).await?,
                // An abandoned task may have its port still.
                _ if subject.spec.as_ref().is_none_or(|spec| spec.all_exited) => subject.ctx.ports.release(&subject.id),
                _ => {}
            }
            Ok(HookOutcome::Again)
        })
    }
}

async fn reserve(subject: &mut OfAlloc) -> Result<(), HookError> {
    let Some(spec) = &subject.spec else { return Ok(()) };
    let needed = subject.ctx.ports.needed_ports(spec.group(), &subject.ctx.node, &subject.ctx.facts.now());
    // That needs another setting of the agent.
    let needed = needed.map_err(|e| HookError { recoverable: false, ..HookError::setup(e.to_string()) })?;
    if needed.is_empty() {
        return Ok(());
    }
    let needed = Arc::new(needed);
    let mut releases = subject.ctx.ports.releases();
    let mut reported = None;
    let mut tries = 0_u32;
    loop {
        releases.mark_unchanged();
        let holder = PortHolder { alloc: subject.id.clone(), job: spec.job.id.clone() };
        let (needed, before) = (Arc::clone(&needed), subject.ports.clone());
        let search = move |keeper: &Arc<PortKeeper>| ReservedPorts::reserve(keeper, &holder, &needed, &before);
        match subject.ctx.ports.search(search).await.map_err(HookError::setup)? {
            Ok(reserved) => {
                let ports = reserved.keep();
                (spec.wait)(None);
                if ports != subject.ports {
                    (spec.emit)(EventKind::Network, format!("ports reserved: {}", named(&ports)));
                }
                subject.ports = ports;
                return Ok(());
            }
            Err(conflict) => {
                let is_named = conflict.differs_from(reported.as_ref()) || tries.is_multiple_of(NAME_AGAIN);
                tries = tries.wrapping_add(1);
                let conflict = if is_named { with_program(&subject.ctx.ports, conflict).await } else { conflict };
                if conflict.differs_from(reported.as_ref()) {
                    (spec.emit)(EventKind::NotPlaced, format!("not placed: {conflict}"));
                    (spec.wait)(Some(NotPlaced::new(PlacementReason::Port, conflict.to_string())));
                    reported = Some(conflict);
                }
            }
        }
        // A wait for other allocs does not count for the deadline.
        let _ = in_line(tokio::time::timeout(TRY_AGAIN, releases.changed())).await;
    }
}

/// The conflict with the name of its program, if that is found.
async fn with_program(keeper: &Arc<PortKeeper>, conflict: PortConflict) -> PortConflict {
    let users = keeper.programs(conflict.program_at().into_iter().collect()).await;
    conflict.with_user(users.into_iter().next().flatten())
}

/// Given back if its hook was cancelled meanwhile.
struct ReservedPorts {
    keeper: Arc<PortKeeper>,
    alloc: AllocId,
    reservation: Option<Reservation>,
}

impl ReservedPorts {
    fn reserve(
        keeper: &Arc<PortKeeper>,
        holder: &PortHolder,
        needed: &[NeededPort],
        before: &[AllocPort],
    ) -> Result<ReservedPorts, PortConflict> {
        let reservation = Some(keeper.reserve(holder, needed, before)?);
        Ok(ReservedPorts { keeper: Arc::clone(keeper), alloc: holder.alloc.clone(), reservation })
    }
    fn keep(mut self) -> Vec<AllocPort> {
        self.reservation.take().map(|reservation| reservation.ports).unwrap_or_default()
    }
}

impl Drop for ReservedPorts {
    fn drop(&mut self) {
        if let Some(reservation) = &self.reservation {
            self.keeper.take_back(&self.alloc, reservation);
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Instant;

    use super::*;
    use crate::model::network::PortTarget;
    use crate::runner::ports::PortsInUse;
    use crate::runner::settings::NetworkConfig;
    use crate::telemetry::metrics::Metrics;

    struct NoPrograms;

    impl PortsInUse for NoPrograms {
        fn is_used_at(&self, _: SocketAddr) -> bool {
            false
        }
        fn is_used(&self, _: u16) -> bool {
            false
        }
        fn user(&self, _: SocketAddr, _: Instant) -> Option<String> {
            None
        }
    }

    #[test]
    fn ports_of_a_cancelled_hook_are_released_unless_the_next_hook_reserves_them() {
        let keeper = PortKeeper::new(NetworkConfig::default(), Arc::new(NoPrograms), Metrics::new().ports);
        let keeper = Arc::new(keeper);
        let holder = PortHolder { alloc: "a".into(), job: "j".into() };
        let needed = [NeededPort {
            label: "http".to_owned(),
            task: None,
            fixed: None,
            to: PortTarget::Unset,
            host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ignore_collision: false,
        }];
        let reserve = || ReservedPorts::reserve(&keeper, &holder, &needed, &[]).unwrap();
        drop(reserve());
        assert_eq!(keeper.held_by(&holder.alloc), None);
        let retained = reserve().keep();
        drop(reserve());
        assert_eq!(keeper.held_by(&holder.alloc), Some(retained), "the later one did not add them");
    }
}
