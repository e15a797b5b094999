//! The ports that an alloc holds, from before its first task to the end of the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cell::TaskCell;
use super::{Alloc, Inner};
use crate::model::event::EventKind;
use crate::model::placement::NotPlaced;
use crate::model::task::TaskState;
use crate::runner::ports::{NeededPort, PortHolder, PortKeeper, PortsHeldMeanwhile, TakenPort};

/// Waits for blocking work, until it is dropped. The work goes on then, and checks this before it changes anything.
#[derive(Default)]
struct CallerPresence(Arc<AtomicBool>);

impl CallerPresence {
    fn is_waiting(&self) -> impl Fn() -> bool + Send + use<> {
        let has_left = Arc::clone(&self.0);
        move || !has_left.load(Ordering::Acquire)
    }
}

impl Drop for CallerPresence {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Alloc {
    fn port_holder(&self) -> PortHolder {
        PortHolder { alloc: self.id.clone(), job: self.job.id.clone() }
    }
    fn needs_ports(&self) -> bool {
        let inner = self.lock();
        let is_over = inner.cells.iter().all(|c| c.record.status.state == TaskState::Dead);
        !is_over || inner.cells.iter().any(TaskCell::may_run)
    }
    /// Shown with the other reasons why it is not placed.
    pub(super) fn waits_for_ports(&self, why: Option<NotPlaced>) {
        let mut inner = self.lock();
        if inner.waits_for_ports != why {
            inner.waits_for_ports = why;
            self.publish(&mut inner, None);
        }
    }
    /// After a restart of the agent: an alloc that may run reserves its ports before any other alloc can get them.
    pub fn hold_ports(self: &Arc<Self>) {
        let ports = self.lock().record.ports.clone();
        if ports.is_empty() || !self.needs_ports() {
            return;
        }
        if let Err(error) = self.ctx.ports.hold(&self.port_holder(), &ports) {
            tracing::error!(
                alloc_id = %self.id,
                %error,
                "two allocs have the same port in their records; both keep it"
            );
        }
    }
    /// Before the start of a task: tests its ports again, if no other task of the alloc can have them. A dynamic port
    /// that another program took meanwhile is exchanged for another one. If the caller stops waiting, no port is
    /// exchanged afterwards: the next launch may have read the ports.
    pub async fn renew_ports(self: &Arc<Self>, at: usize) {
        let needed = self.ctx.ports.needed_ports(self.group(), &self.ctx.node, &self.ctx.facts.now());
        let can_exchange = self.lock().can_exchange_ports(at);
        if let (true, Ok(needed)) = (can_exchange, needed) {
            self.exchange_taken(at, needed).await;
        }
        // Exchanged now, or for a launch that was cancelled before they were recorded.
        if self.has_unrecorded_ports() {
            self.persist_made(false).await;
        }
    }
    async fn exchange_taken(self: &Arc<Self>, at: usize, needed: Vec<NeededPort>) {
        let (keeper, needed, id) = (&self.ctx.ports, Arc::new(needed), self.id.clone());
        let requests = Arc::clone(&needed);
        let Ok(taken) = keeper.search(move |keeper| keeper.taken(&id, &requests)).await else { return };
        if taken.is_empty() {
            return;
        }
        let users = keeper.programs(taken.iter().map(TakenPort::at).collect()).await;
        let taken: Vec<_> = taken.into_iter().zip(users).map(|(port, user)| port.with_user(user)).collect();
        let (caller, alloc) = (CallerPresence::default(), Arc::clone(self));
        let is_waiting = caller.is_waiting();
        let exchange = move |keeper: &Arc<PortKeeper>| alloc.exchange_ports(keeper, at, &needed, &taken, &is_waiting);
        if keeper.search(exchange).await == Ok(true) {
            self.save_aside(at);
        }
    }
    /// Finds free ports, and exchanges the taken ones for them while the caller waits. Blocks for a search of the
    /// range. Returns whether an event reports it.
    fn exchange_ports(
        &self,
        keeper: &PortKeeper,
        at: usize,
        needed: &[NeededPort],
        taken: &[TakenPort],
        is_waiting: &dyn Fn() -> bool,
    ) -> bool {
        let holder = self.port_holder();
        let mut meanwhile = PortsHeldMeanwhile::default();
        loop {
            // Before the lock: a search tests up to all ports of the range.
            let found = keeper.replacements(&holder, needed, taken, &meanwhile);
            let mut inner = self.lock();
            // Another task may have begun since: then a port may be in use by that one.
            if !is_waiting() || !inner.can_exchange_ports(at) {
                return false;
            }
            match keeper.exchange(&holder, needed, &found) {
                Ok(Some((ports, text))) => {
                    inner.record.ports = ports;
                    drop(inner);
                    if !text.is_empty() {
                        self.edit(at, |edit| edit.event(EventKind::Network, text.as_str(), &[]));
                    }
                    return !text.is_empty();
                }
                Ok(None) => return false,
                Err(more) => meanwhile.add(more),
            }
        }
    }
    /// Whether its ports are others than the recorded ones that are shown.
    fn has_unrecorded_ports(&self) -> bool {
        let inner = self.lock();
        inner.record.ports != inner.ports
    }
    /// Releases its ports: no process is left that needs them.
    pub fn free_ports(&self) {
        if !self.needs_ports() {
            self.ctx.ports.release(&self.id);
        }
    }
}

impl Inner {
    /// Whether no process of the alloc can use its ports of the host: the other tasks rest, and nothing is left of an
    /// earlier attempt. In a network namespace of its own no task binds a port of the host.
    fn can_exchange_ports(&self, at: usize) -> bool {
        let rests = |state: TaskState| matches!(state, TaskState::Pending | TaskState::Backoff | TaskState::Dead);
        let mut rest = self.cells.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, cell)| cell);
        self.record.network.is_none()
            && !self.record.ports.is_empty()
            && self.cells.iter().all(|cell| cell.record.handle.is_none())
            && rest.all(|cell| rests(cell.record.status.state))
    }
}
