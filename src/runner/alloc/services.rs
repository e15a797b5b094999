//! What the services of an alloc need of it, and what follows from their checks.

use std::sync::Arc;

use super::Alloc;
use super::cell::TaskCell;
use crate::model::event::EventKind;
use crate::model::id::TaskName;
use crate::model::network::{AllocNetwork, AllocPort, DriverNetwork};
use crate::model::units::{Nanos, Steady};
use crate::runner::decide::step::{Action, StepEvent, step};
use crate::runner::kept::record::Restart;
use crate::store::Batch;

impl Alloc {
    /// What was made for it so far.
    pub fn ports_and_network(&self) -> (Vec<AllocPort>, Option<AllocNetwork>) {
        let inner = self.lock();
        (inner.record.ports.clone(), inner.record.network.as_ref().map(|record| record.network.clone()))
    }
    /// Of the tasks that run, by what their drivers said at the start.
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
    /// Wakes its owner, which then reads it.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether it came up; `None`: not decided.
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
            // An agent that dies before it is written decides again.
            drop(self.ctx.journal.queue(batch));
        }
        self.ctx.judged.notify_one();
        if is_healthy {
            tracing::info!(alloc_id = %self.id, "alloc is healthy");
        } else {
            self.report_for_all(EventKind::AllocUnhealthy, &format!("the alloc is unhealthy: {reason}"));
        }
    }

    /// Ends the attempt that runs, and starts another one by the restart policy, as if it had failed. Its owner hears of it by
    /// [`Alloc::nudge`], once that is on record. `false`: none runs.
    pub fn restart_unhealthy(&self, at: usize, message: &str) -> bool {
        let delay = Nanos::from_duration(self.task(at).shutdown_delay);
        self.edit(at, |edit| {
            let (state, action) = step(edit.state(), StepEvent::Restart);
            if action != Some(Action::SendKillSignal) {
                return false;
            }
            let asked_at = edit.steady();
            *edit.restart() = Some(Restart { whole: false, asked_at, delay, signalled_at: None, is_failure: true });
            edit.enter_state(state);
            edit.event(EventKind::RestartSignaled, message, &[("reason", "check".to_owned())]);
            true
        })
    }
}
