//! The owner of one alloc: starts and ends its tasks in their order, and clears it away when they are dead.
//!
//! ```text
//! Created ──run──► (tasks) ──all dead──► Ended ──clear──► its directories and records alone are left
//! ```
//! What each task does next is [`coordinator::decide`]d from how all of them are, with each change of one; so an alloc that is
//! found again goes on from where it was. Nothing here ends with the agent: a dropped owner drops its tasks' owners, and their
//! processes run on.
//!
//! [`coordinator::decide`]: super::coordinator::decide

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::alloc::{Alloc, Wanted};
use super::coordinator::Wish;
use super::task::{self, Entry};
use crate::model::alloc::Desired;
use crate::model::task::TaskState;
use crate::model::units::Timestamp;

/// However far away a moment is: the wall clock may be set meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// An alloc that nobody owns yet.
pub(super) struct Created {
    pub alloc: Arc<Alloc>,
    /// Where each of its tasks begins.
    pub entries: Vec<Entry>,
    /// These end before its first task starts.
    pub predecessors: Vec<watch::Receiver<bool>>,
}

/// An alloc all of whose tasks are dead, and whose owners have left.
pub(super) struct Ended(pub Arc<Alloc>);

impl Created {
    /// Ends when every task is dead, and what their attempts left on the host is gone.
    pub async fn run(self) -> Ended {
        let Created { alloc, entries, predecessors } = self;
        let (mut changes, mut desired) = (alloc.changes(), alloc.wish());
        let mut owners = JoinSet::new();
        // Of each task the owner that it has.
        let mut ids = Vec::with_capacity(entries.len());
        for (at, entry) in entries.into_iter().enumerate() {
            ids.push(Some(owners.spawn(task::own(Arc::clone(&alloc), at, entry)).id()));
        }
        let mut waits = (!predecessors.is_empty()).then(|| Box::pin(all_ended(predecessors)));
        while !(alloc.is_terminal() && owners.is_empty()) {
            changes.borrow_and_update();
            desired.borrow_and_update();
            alloc.settle_again();
            // One that had ended begins anew.
            for (at, id) in ids.iter_mut().enumerate() {
                if id.is_none() && alloc.status(at).state != TaskState::Dead {
                    *id = Some(owners.spawn(task::own(Arc::clone(&alloc), at, Entry::Recorded)).id());
                }
            }
            let now = alloc.ctx.clock.now();
            let (wanted, again_at) = alloc.wanted(now);
            match wanted {
                Wanted::Expiry => {
                    expire(&alloc).await;
                    continue;
                }
                // Nobody starts before the predecessors have ended; who is asked to end does not wait for them.
                Wanted::Now(Wish::Run) if waits.is_some() => {}
                Wanted::Now(wish) => alloc.direct(wish),
            }
            tokio::select! {
                biased;
                // Errors: the alloc would be gone, and we hold it.
                _ = desired.changed(), if *desired.borrow() == Desired::Run => {}
                _ = changes.changed() => {}
                Some(left) = owners.join_next_with_id() => {
                    let id = match &left {
                        Ok((id, ())) => *id,
                        Err(error) => error.id(),
                    };
                    let Some(at) = ids.iter().position(|known| *known == Some(id)) else { continue };
                    ids[at] = left.err().map(|error| {
                        tracing::error!(alloc_id = %alloc.id, %error, "the owner of a task panicked: the task is given up");
                        let entry = Entry::Lost(format!("an internal error: {error}"));
                        owners.spawn(task::own(Arc::clone(&alloc), at, entry)).id()
                    });
                }
                () = ended(waits.as_mut()), if waits.is_some() => waits = None,
                () = sleep_until(again_at, now) => {}
            }
        }
        Ended(alloc)
    }
}

async fn expire(alloc: &Alloc) {
    if let Err(error) = alloc.ctx.journal.commit(alloc.expire()).await {
        // The time is over all the same, and the next agent would find that out too.
        tracing::error!(alloc_id = %alloc.id, %error, "the end of an alloc's time is not saved");
    }
}

async fn all_ended(predecessors: Vec<watch::Receiver<bool>>) {
    for mut predecessor in predecessors {
        // An error: its alloc is gone altogether.
        let _ = predecessor.wait_for(|ended| *ended).await;
    }
}

async fn ended<F: Future<Output = ()> + Unpin>(waits: Option<F>) {
    match waits {
        Some(waits) => waits.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Timestamp>, now: Timestamp) {
    match at {
        Some(at) => tokio::time::sleep(at.since(now).as_duration().min(LOOK_AGAIN)).await,
        None => std::future::pending().await,
    }
}

impl Ended {
    /// Nothing of it stays on the host but its directories.
    pub async fn clear(self) {
        let alloc = self.0;
        let clear = Arc::clone(&alloc);
        let cleared = alloc.ctx.blocking(move || {
            // A handle that was kept names what may still be there, and its record is in its directory.
            let tasks = &clear.group().tasks;
            for (_, task) in tasks.iter().enumerate().filter(|(at, _)| clear.handle(*at).is_none()) {
                let _ = std::fs::remove_dir_all(clear.ctx.data_dir.run_task(&clear.id, &task.name));
            }
            // Refused where a task's is still in it.
            let _ = std::fs::remove_dir(clear.ctx.data_dir.run(&clear.id));
            match (clear.cgroup(), &clear.ctx.cgroups) {
                (Some(path), Some(cgroups)) => cgroups.remove(&path),
                (Some(_), None) | (None, _) => Ok(()),
            }
        });
        if let Err(error) = cleared.await.and_then(|removed| removed) {
            tracing::warn!(alloc_id = %alloc.id, error, "the alloc's cgroup cannot be removed");
        }
        alloc.tell_ended();
    }
}
