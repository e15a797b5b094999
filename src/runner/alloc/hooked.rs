//! An alloc and its tasks as their hooks see them, and what hooks leave with them.

use std::sync::Arc;

use super::Alloc;
use crate::model::device::ReservedDevices;
use crate::model::env::Env;
use crate::runner::hooks::{OfAlloc, OfTask, hook_times};

impl Alloc {
    /// Itself, for its hooks.
    pub fn subject(&self) -> OfAlloc {
        let cgroup = self.own_cgroup();
        let inner = self.lock();
        // A handle that was kept names what may still be there, and its record is in its directory.
        let ended =
            inner.cells.iter().filter(|c| c.record.handle.is_none()).map(|c| c.record.status.name.clone()).collect();
        OfAlloc {
            ctx: Arc::clone(&self.ctx),
            id: self.id.clone(),
            cgroup,
            ended,
            reader: inner.reader.clone(),
            took: Vec::new(),
        }
    }
    /// What its hooks have made for it.
    pub fn take_up(&self, made: OfAlloc) {
        let now = self.ctx.clock.now();
        let mut inner = self.lock();
        if let Some(reader) = made.reader {
            inner.reader.get_or_insert(reader);
        }
        if !made.took.is_empty() {
            inner.prerun = Some((made.took, now));
        }
    }
    /// How long its hooks took before its tasks, and when they were through: for the first event that comes after that, once.
    pub fn prerun_details(&self) -> Option<[(&'static str, String); 2]> {
        let (took, at) = self.lock().prerun.take()?;
        Some([("alloc_hooks", hook_times(&took)), ("alloc_hooks_over_ns", at.0.to_string())])
    }
    /// One of its tasks, for its hooks.
    pub fn subject_of(&self, at: usize) -> OfTask {
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
            done: cell.record.hooks.clone(),
            account: None,
            dirs: None,
            devices: ReservedDevices::default(),
            cores: self.cores_of_task(&inner, at),
            template_env: Env::new(),
            prepared: None,
            took: Vec::new(),
        }
    }
    /// What hooks that are done for good left of it: recorded with its next change, before it starts.
    pub fn keep_done(&self, at: usize, made: &OfTask) {
        self.lock().cells[at].record.hooks.clone_from(&made.done);
    }
}
