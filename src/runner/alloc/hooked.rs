//! An alloc and its tasks as seen by their hooks, and the results of hooks.

use std::sync::Arc;

use super::Alloc;
use super::cell::TaskCell;
use crate::model::device::ReservedDevices;
use crate::model::env::Env;
use crate::model::event::EventKind;
use crate::model::task::TaskState;
use crate::runner::hooks::{AllocSpec, OfAlloc, OfTask, hook_times};

/// Results of hooks that are in no record yet.
pub struct TakenUp {
    pub is_new: bool,
    /// Of its tasks.
    pub has_events: bool,
}

impl Alloc {
    /// The alloc as seen by its hooks.
    pub fn subject(self: &Arc<Self>) -> OfAlloc {
        // Weak: a subject may outlive its alloc.
        let weak = Arc::downgrade(self);
        let print = move |kind, message: String| {
            if let Some(alloc) = weak.upgrade() {
                alloc.report_for_all(kind, &message);
            }
        };
        let weak = Arc::downgrade(self);
        let wait = move |why| {
            if let Some(alloc) = weak.upgrade() {
                alloc.waits_for_ports(why);
            }
        };
        let cgroup = self.own_cgroup();
        let inner = self.lock();
        // A kept handle names processes that may be left; its record is in its directory.
        let ended =
            inner.cells.iter().filter(|c| c.record.handle.is_none()).map(|c| c.record.status.name.clone()).collect();
        OfAlloc {
            ctx: Arc::clone(&self.ctx),
            id: self.id.clone(),
            cgroup,
            ended,
            reader: inner.reader.clone(),
            spec: Some(AllocSpec {
                job: Arc::clone(&self.job),
                group: self.group,
                name: inner.identity.name.clone(),
                index: self.index,
                all_exited: !inner.cells.iter().any(TaskCell::may_run),
                emit: Arc::new(print),
                wait: Box::new(wait),
            }),
            ports: inner.record.ports.clone(),
            network: inner.record.network.clone(),
            data_from: inner.record.data_from.clone(),
            migrate_from: inner.record.migrate_from.clone(),
            began: inner.record.earlier.as_ref().map_or(self.began, |earlier| earlier.restarted_at),
            took: Vec::new(),
            events: Vec::new(),
        }
    }
    /// Applies the results of its hooks. Returns what must be recorded before its tasks start.
    pub fn take_up(&self, made: OfAlloc) -> TakenUp {
        let now = self.ctx.clock.now();
        for (kind, message) in &made.events {
            for at in self.not_dead() {
                self.edit(at, |edit| edit.event(*kind, message, &[]));
            }
        }
        let has_events = !made.events.is_empty();
        let mut inner = self.lock();
        // A port may have been exchanged since its hooks saw it.
        let ports = self.ctx.ports.held_by(&self.id).unwrap_or(made.ports);
        if let Some(reader) = made.reader {
            inner.reader.get_or_insert(reader);
        }
        if !made.took.is_empty() {
            inner.prerun = Some((made.took, now));
        }
        let is_new = inner.record.ports != ports
            || inner.record.network != made.network
            || inner.record.data_from != made.data_from
            || inner.record.migrate_from != made.migrate_from;
        (inner.record.ports, inner.record.network) = (ports, made.network);
        inner.record.data_from = made.data_from;
        inner.record.migrate_from = made.migrate_from;
        TakenUp { is_new, has_events }
    }
    fn not_dead(&self) -> impl Iterator<Item = usize> {
        (0..self.group().tasks.len()).filter(|at| self.status(*at).state != TaskState::Dead)
    }
    /// Adds one event to each task that is not dead.
    pub(super) fn report_for_all(self: &Arc<Self>, kind: EventKind, message: &str) {
        for at in self.not_dead() {
            self.edit(at, |edit| edit.event(kind, message, &[]));
            self.save_aside(at);
        }
    }
    /// Duration of the alloc's prerun hooks and the time of their end, returned once: for the first event after them.
    pub fn prerun_details(&self) -> Option<[(&'static str, String); 2]> {
        let (took, at) = self.lock().prerun.take()?;
        Some([("alloc_hooks", hook_times(&took)), ("alloc_hooks_over_ns", at.0.to_string())])
    }
    /// A task as seen by its hooks.
    pub fn subject_of(self: &Arc<Self>, at: usize) -> OfTask {
        let weak = Arc::downgrade(self);
        let print = move |kind, message: String, details: &[(&'static str, String)]| {
            if let Some(alloc) = weak.upgrade() {
                alloc.edit(at, |edit| edit.event(kind, message, details));
                alloc.save_aside(at);
            }
        };
        let alloc_cgroup = self.own_cgroup();
        let inner = self.lock();
        let cell = &inner.cells[at];
        OfTask {
            ctx: Arc::clone(&self.ctx),
            alloc_id: self.id.clone(),
            alloc_name: inner.identity.name.clone(),
            index: self.index,
            alloc_cgroup,
            job: Arc::clone(&self.job),
            place: (self.group, at),
            attempt: cell.record.status.attempt,
            emit: Box::new(print),
            done: cell.record.hooks.clone(),
            account: None,
            dirs: None,
            devices: ReservedDevices::default(),
            ports: inner.record.ports.clone(),
            network: inner.record.network.as_ref().map(|record| record.network.clone()),
            driver_networks: inner.cells.iter().filter_map(TaskCell::driver_network).collect(),
            cores: self.cores_of_task(&inner, at),
            template_env: Env::new(),
            prepared: None,
            volumes: Vec::new(),
            took: Vec::new(),
        }
    }
    /// The results of one-time hooks: recorded with the next change, before the start.
    pub fn keep_done(&self, at: usize, made: &OfTask) {
        self.lock().cells[at].record.hooks.clone_from(&made.done);
    }
}
