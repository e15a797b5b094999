//! The ports that an alloc holds, from before its first task to the end of the last.

use std::sync::Arc;

use super::Alloc;
use super::cell::TaskCell;
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
    /// Releases its ports: no process is left that needs them.
    pub fn free_ports(&self) {
        if !self.needs_ports() {
            self.ctx.ports.release(&self.id);
        }
    }
}
