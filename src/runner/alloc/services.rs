//! What the services of an alloc need, and what follows from their checks.

use std::sync::Arc;

use super::Alloc;
use super::cell::TaskCell;
use crate::model::event::EventKind;
use crate::model::id::TaskName;
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork};
use crate::model::units::{Nanos, Steady};
use crate::runner::decide::step::{Action, StepEvent, step};
use crate::runner::persistence::record::RestartRequest;
use crate::store::Batch;

impl Alloc {
    /// The ports and the network that were set up so far.
    pub fn ports_and_network(&self) -> (Vec<AllocPort>, Option<AllocNetwork>) {
        let inner = self.lock();
        (inner.record.ports.clone(), inner.record.network.as_ref().map(|record| record.network.clone()))
    }
    /// Addresses of the running tasks, as their drivers reported them at the start.
    pub fn driver_networks(&self) -> Vec<(TaskName, DriverNetwork)> {
        self.lock().cells.iter().filter_map(TaskCell::driver_network).collect()
    }
    /// `job.group[index]`
    pub fn name(&self) -> String {
        self.lock().identity.name.clone()
    }
    pub fn began(&self) -> Steady {
        self.began
    }
    /// Wakes its owner to evaluate it.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether its deployment is healthy. `None`: not decided yet.
    pub fn health(&self) -> Option<bool> {
        self.lock().record.healthy
    }
    /// Decided once, and recorded.
    pub fn decide_health(self: &Arc<Self>, is_healthy: bool, reason: &str) {
        {
            let mut inner = self.lock();
            if inner.record.healthy.is_some() {
                return;
            }
            inner.record.healthy = Some(is_healthy);
            let mut batch = Batch::default();
            self.put_alloc(&inner, &mut batch);
            // If the agent dies before this is written, the next one decides again.
            drop(self.ctx.journal.queue(batch));
        }
        self.ctx.judged.notify_one();
        if is_healthy {
            tracing::info!(alloc_id = %self.id, "alloc is healthy");
        } else {
            self.report_for_all(EventKind::AllocUnhealthy, &format!("the alloc is unhealthy: {reason}"));
        }
    }

    /// Ends the running attempt and starts another one by the restart policy, as after a failure. [`Alloc::wake_task`]
    /// wakes the owner once that is recorded. Returns `false` if no attempt runs.
    pub fn restart_failed(&self, at: usize, message: &str, reason: &str) -> bool {
        let delay = Nanos::from_duration(self.task(at).shutdown_delay);
        self.edit(at, |edit| {
            let (state, action) = step(edit.state(), StepEvent::Restart);
            if action != Some(Action::SendKillSignal) {
                return false;
            }
            let since = edit.steady();
            *edit.restart() =
                Some(RestartRequest { whole: false, requested_at: since, delay, signalled_at: None, is_failure: true });
            edit.enter_state(state);
            edit.event(EventKind::RestartSignaled, message, &[("reason", reason.to_owned())]);
            true
        })
    }
}
