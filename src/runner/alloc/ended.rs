//! Types for an ended alloc and for a removed one, each made from the one before.

use std::sync::Arc;

use super::Alloc;
use crate::model::id::AllocId;
use crate::runner::context::RunnerContext;
use crate::runner::hooks::{FailedHook, HookPhase, Hooks, OfAlloc};

/// An alloc whose tasks are all dead and have no owners any more.
pub struct EndedAlloc(pub(in crate::runner) Arc<Alloc>);

/// An alloc whose records are removed but for its tombstone; its directories may remain.
pub struct DestroyedAlloc(AllocId);

impl EndedAlloc {
    /// `None`: a task lives, or what it had on the host is not cleaned up yet.
    pub fn of(alloc: &Arc<Alloc>) -> Option<EndedAlloc> {
        alloc.ended().borrow().then(|| EndedAlloc(Arc::clone(alloc)))
    }
    /// An alloc whose tasks were recovered as dead. Errors: returns the alloc if some of them are not.
    pub fn found(alloc: Arc<Alloc>) -> Result<EndedAlloc, Arc<Alloc>> {
        if alloc.is_terminal() { Ok(EndedAlloc(alloc)) } else { Err(alloc) }
    }
    pub fn alloc(&self) -> &Arc<Alloc> {
        &self.0
    }

    /// Removes everything from the host but its directories.
    pub async fn clear(self) {
        let alloc = self.0;
        for error in alloc.hooks.alloc.run(HookPhase::Postrun, &mut alloc.subject()).await {
            let error = error.to_string();
            let error = alloc.job.sensitive.hide(&error);
            tracing::warn!(alloc_id = %alloc.id, %error, "a hook of an ended alloc failed");
        }
        alloc.mark_ended();
    }

    /// Its records are removed durably; a tombstone replaces them.
    pub fn forgotten(self) -> DestroyedAlloc {
        DestroyedAlloc(self.0.id.clone())
    }
}

impl DestroyedAlloc {
    /// A tombstone was recovered: an earlier agent did not finish the removal.
    pub fn found(id: AllocId) -> DestroyedAlloc {
        DestroyedAlloc(id)
    }
    pub fn id(&self) -> &AllocId {
        &self.0
    }
    /// Removes what is left of it on the host. Idempotent. Returns what could not be removed, and why.
    pub async fn remove(&self, ctx: &Arc<RunnerContext>, hooks: &Hooks) -> Vec<FailedHook> {
        hooks.alloc.run(HookPhase::Destroy, &mut OfAlloc::collected(ctx, &self.0)).await
    }
}
