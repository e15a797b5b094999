//! An alloc that has ended, and one that is forgotten: each a type of its own, made of the one before.

use std::sync::Arc;

use super::Alloc;
use crate::model::id::AllocId;
use crate::runner::ground::Context;
use crate::runner::hooks::{FailedHook, Hooks, OfAlloc, Phase};

/// An alloc all of whose tasks are dead, and whose owners have left.
pub struct EndedAlloc(pub(in crate::runner) Arc<Alloc>);

/// An alloc whose records are gone but for its tombstone; its directories may still be there.
pub struct Destroyed(AllocId);

impl EndedAlloc {
    /// `None`: it lives, or what it had on the host is not cleared away yet.
    pub fn of(alloc: &Arc<Alloc>) -> Option<EndedAlloc> {
        alloc.ended().borrow().then(|| EndedAlloc(Arc::clone(alloc)))
    }
    /// One whose tasks were found dead. Errors: it is given back, some of them are not.
    pub fn found(alloc: Arc<Alloc>) -> Result<EndedAlloc, Arc<Alloc>> {
        if alloc.is_terminal() { Ok(EndedAlloc(alloc)) } else { Err(alloc) }
    }
    pub fn alloc(&self) -> &Arc<Alloc> {
        &self.0
    }

    /// Nothing of it stays on the host but its directories.
    pub async fn clear(self) {
        let alloc = self.0;
        for error in alloc.hooks.alloc.run(Phase::Postrun, &mut alloc.subject()).await {
            let error = error.to_string();
            let error = alloc.job.sensitive.hide(&error);
            tracing::warn!(alloc_id = %alloc.id, %error, "a hook of an ended alloc failed");
        }
        alloc.tell_ended();
    }

    /// Its records are gone, durably, and a tombstone stands for them.
    pub fn forgotten(self) -> Destroyed {
        Destroyed(self.0.id.clone())
    }
}

impl Destroyed {
    /// A tombstone was found: an earlier agent did not come to an end with it.
    pub fn found(id: AllocId) -> Destroyed {
        Destroyed(id)
    }
    pub fn id(&self) -> &AllocId {
        &self.0
    }
    /// Removes what is left of it on the host. Repeating it does no harm. Gives what could not be removed, and why.
    pub async fn remove(&self, ctx: &Arc<Context>, hooks: &Hooks) -> Vec<FailedHook> {
        hooks.alloc.run(Phase::Destroy, &mut OfAlloc::collected(ctx, &self.0)).await
    }
}
