//! The ports that an alloc holds, from before its first task to the end of the last.

use std::sync::Arc;

use super::cell::TaskCell;
use super::{Alloc, Inner};
use crate::model::event::EventKind;
use crate::model::placement::NotPlaced;
use crate::model::task::TaskState;
use crate::runner::ports::{PortHolder, PortsLost};

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
            tracing::error!(alloc_id = %self.id, %error, "two allocs have the same port in their records; both keep it");
        }
    }
    /// Before the start of a task: tests its ports again, if no other task of the alloc can have them. A dynamic port
    /// that another program took meanwhile is exchanged for another one.
    pub async fn renew_ports(self: &Arc<Self>, at: usize) {
        let asks = self.ctx.ports.asks(self.group(), &self.ctx.node, &self.ctx.facts.now());
        let (true, Ok(asks)) = (self.lock().can_exchange_ports(at), asks) else { return };
        let alloc = Arc::clone(self);
        let exchanging = move || {
            let (keeper, holder) = (&alloc.ctx.ports, alloc.port_holder());
            let taken = keeper.taken(&alloc.id, &asks);
            let mut lost = PortsLost::default();
            while !taken.is_empty() {
                // Before the lock: a search tests up to all ports of the range.
                let found = keeper.replacements(&holder, &asks, &taken, &lost);
                let mut inner = alloc.lock();
                // Another task may have begun since: then a port may be in use by that one.
                if !inner.can_exchange_ports(at) {
                    return None;
                }
                match keeper.exchange(&holder, &asks, &found) {
                    Ok(exchanged) => {
                        let (ports, said) = exchanged?;
                        let is_new = inner.record.ports != ports;
                        inner.record.ports = ports;
                        return Some((is_new, said));
                    }
                    // Ends: with the range.
                    Err(more) => lost.add(more),
                }
            }
            None
        };
        let Ok(Some((is_new, said))) = self.ctx.blocking.block(exchanging).await else { return };
        self.edit(at, |edit| edit.event(EventKind::Network, said, &[]));
        self.save_aside(at);
        if is_new {
            self.persist_made().await;
        }
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
        let mut others = self.cells.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, cell)| cell);
        self.record.network.is_none()
            && !self.record.ports.is_empty()
            && self.cells.iter().all(|cell| cell.record.handle.is_none())
            && others.all(|cell| rests(cell.record.status.state))
    }
}
