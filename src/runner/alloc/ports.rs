//! The ports that an alloc holds, from before its first task to the end of the last.

use std::sync::Arc;

use super::Alloc;
use super::cell::TaskCell;
use crate::model::event::EventKind;
use crate::model::placement::NotPlaced;
use crate::model::task::TaskState;
use crate::runner::ports::PortHolder;

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
    /// Before the start of a task: tests its ports again, if no process of the alloc can have them. A dynamic port that
    /// another program took meanwhile is exchanged for another one.
    pub async fn renew_ports(self: &Arc<Self>, at: usize) {
        let is_idle = {
            let inner = self.lock();
            // In a namespace of its own no task binds a port of the host.
            let on_host = inner.record.network.is_none() && !inner.record.ports.is_empty();
            on_host && inner.cells.iter().all(|cell| cell.record.handle.is_none())
        };
        let asks = self.ctx.ports.asks(self.group(), &self.ctx.node, &self.ctx.facts.now());
        let (true, Ok(asks)) = (is_idle, asks) else { return };
        let alloc = Arc::clone(self);
        // Not interrupted: what is held and what is recorded stay the same.
        let renewing = move || {
            let (ports, said) = alloc.ctx.ports.renew(&alloc.port_holder(), &asks);
            let mut inner = alloc.lock();
            let is_new = inner.record.ports != ports;
            inner.record.ports = ports;
            (is_new, said)
        };
        let Ok((is_new, said)) = self.ctx.blocking.block(renewing).await else { return };
        for message in said {
            self.edit(at, |edit| edit.event(EventKind::Network, message, &[]));
            self.save_aside(at);
        }
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
