//! Places an alloc: its constraints hold and its resources are reserved. No task starts before that.

use std::sync::Arc;

use super::place::PlaceState;
use super::{Alloc, Inner};
use crate::model::event::EventKind;
use crate::model::placement::{NotPlaced, PlacementReason, joined};
use crate::runner::decide::placement::{cores_of, unplaced};
use crate::runner::wait_ends::{Ends, EndsWith};

impl Inner {
    /// An alloc that has started stays placed.
    fn stays_placed(&self) -> bool {
        self.anything_ran() || self.cells.iter().any(|cell| cell.record.handle.is_some())
    }
}

impl Alloc {
    pub fn is_placed(&self) -> bool {
        self.lock().place == PlaceState::Placed
    }

    /// Tries to place it; returns whether it is placed. Each reason against it is reported once.
    pub async fn place(self: &Arc<Self>) -> bool {
        let keeps = self.lock().stays_placed();
        let mut reasons = match keeps {
            true => Vec::new(),
            false => unplaced(&self.job, self.group(), self.index, &self.ctx.placement_node()),
        };
        if reasons.is_empty() && cores_of(self.group()) > 0 {
            reasons.extend(self.reserve_cores().await.err());
        }
        self.is_at(reasons)
    }

    /// Durable before it is placed: no other alloc gets these cores, whenever the agent dies.
    async fn reserve_cores(&self) -> Result<(), NotPlaced> {
        let cores = self.ctx.cores.reserve(&self.id, self.group())?;
        let record = {
            let mut inner = self.lock();
            if inner.record.cores == cores {
                return Ok(());
            }
            inner.record.cores = cores;
            let mut batch = crate::store::Batch::default();
            self.put_alloc(&inner, &mut batch);
            batch
        };
        self.ctx.journal.commit(record).ends_with(Ends::Disk).await.map_err(|error| {
            self.lock().record.cores = Vec::new();
            self.ctx.cores.free(&self.id);
            let message = format!("its cores cannot be recorded: {error}; retried with the next change");
            NotPlaced::new(PlacementReason::StateDb, message)
        })
    }

    fn is_at(self: &Arc<Self>, reasons: Vec<NotPlaced>) -> bool {
        let placed = reasons.is_empty();
        let message = joined(&reasons);
        let after = if placed { PlaceState::Placed } else { PlaceState::Not(reasons) };
        let changed = {
            let mut inner = self.lock();
            let before = std::mem::replace(&mut inner.place, after);
            let changed = before != inner.place;
            // Placed at the first try: there is nothing to show.
            if changed && (!placed || matches!(before, PlaceState::Not(_))) {
                self.publish(&mut inner, None);
            }
            changed
        };
        if changed && !placed {
            for at in 0..self.group().tasks.len() {
                self.edit(at, |edit| edit.event(EventKind::NotPlaced, format!("not placed: {message}"), &[]));
                self.save_aside(at);
            }
        }
        placed
    }

    /// Cores that a task has reserved.
    pub(super) fn cores_of_task(&self, inner: &Inner, at: usize) -> Vec<u32> {
        inner.record.cores.get(at).cloned().unwrap_or_default()
    }

    /// After a restart of the agent: reserves its cores again before any other alloc is placed.
    pub fn hold_cores(&self) {
        let cores = self.lock().record.cores.clone();
        if !cores.is_empty() && !self.is_terminal() {
            self.ctx.cores.hold(&self.id, cores);
        }
    }

    /// Its tasks are dead and no process is left. A restart reserves again.
    pub fn free_cores(&self) {
        if self.first_that_may_run().is_some() {
            return;
        }
        let mut inner = self.lock();
        if !inner.record.cores.is_empty() {
            inner.place = PlaceState::Unknown;
            drop(inner);
            self.ctx.cores.free(&self.id);
        }
    }
}
