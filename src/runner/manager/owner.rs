//! The owner of one alloc: starts and ends its tasks in their order, and clears it away when they are dead.
//!
//! ```text
//! Created ──run──► Running ──until_ended──► EndedAlloc ──forget──► Destroyed ──remove──► nothing is left
//!    └─discard──► (it never was)               └─ recalled: Created anew
//! ```
//! Each is a type of its own, and each step takes the one before: what was never run has no wait to go through, and only
//! what has ended can be forgotten and removed.
//!
//! What each task does next is [`coordinator::decide`]d from how all of them are, with each change of one; so an alloc that is
//! found again goes on from where it was. Nothing here ends with the agent: a dropped owner drops its tasks' owners, and their
//! processes run on.
//!
//! [`coordinator::decide`]: crate::runner::decide::coordinator::decide

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

use crate::model::attributes::Attributes;
use crate::model::task::TaskState;
use crate::model::units::Steady;
use crate::runner::alloc::{Alloc, EndedAlloc};
use crate::runner::checks::ServiceOwner;
use crate::runner::decide::coordinator::Wish;
use crate::runner::ground::AbortOnDrop;
use crate::runner::hooks::{FailedHook, Phase};
use crate::runner::task::{self, Beginning, Search};

/// However far away a moment is: the host may be suspended meanwhile, and timers do not count that.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// An alloc that nobody owns yet.
pub struct Created {
    alloc: Arc<Alloc>,
    /// Where each of its tasks begins.
    entries: Vec<Search>,
}

/// An alloc whose tasks have their owners.
pub struct Running {
    alloc: Arc<Alloc>,
    owners: JoinSet<()>,
    /// Of each task the owner that it has.
    ids: Vec<Option<Id>>,
    /// Until its predecessors have ended.
    waits: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    hooks: Around,
    /// `None`: its group has none.
    services: Option<ServiceOwner>,
}

impl Created {
    /// Its tasks begin where their records say.
    pub fn new(alloc: Arc<Alloc>) -> Created {
        let entries = alloc.group().tasks.iter().map(|_| Beginning::Recorded.known()).collect();
        Created { alloc, entries }
    }
    /// Each of its tasks is found somewhere, or will be.
    pub fn found(alloc: Arc<Alloc>, entries: Vec<Search>) -> Created {
        Created { alloc, entries }
    }
    pub fn alloc(&self) -> &Arc<Alloc> {
        &self.alloc
    }

    /// It is not to be after all. Nothing of it is on the host, so there is nothing to wait for.
    pub fn discard(self) {
        self.alloc.discard();
    }

    /// Gives each task its owner. `predecessors` end before its first task starts.
    pub fn run(self, predecessors: Vec<watch::Receiver<bool>>) -> Running {
        let Created { alloc, entries } = self;
        let mut owners = JoinSet::new();
        let own = |(at, entry)| Some(owners.spawn(task::own(Arc::clone(&alloc), at, entry)).id());
        let ids = entries.into_iter().enumerate().map(own).collect();
        let waits = (!predecessors.is_empty()).then(|| Box::pin(all_ended(predecessors)) as _);
        let hooks = Around::new(&alloc);
        let services = ServiceOwner::new(&alloc);
        Running { alloc, owners, ids, waits, hooks, services }
    }
}

impl Running {
    /// Ends when every task is dead, and what their attempts left on the host is gone.
    pub async fn until_ended(self) -> EndedAlloc {
        let Running { alloc, mut owners, mut ids, mut waits, mut hooks, mut services } = self;
        let mut room = RoomChanges::of(&alloc);
        while !(alloc.is_terminal() && owners.is_empty()) {
            alloc.settle_again();
            // One that had ended begins anew.
            for (at, id) in ids.iter_mut().enumerate() {
                if id.is_none() && alloc.status(at).state != TaskState::Dead {
                    *id = Some(owners.spawn(task::own(Arc::clone(&alloc), at, Beginning::Recorded.known())).id());
                }
            }
            let now = alloc.ctx.line.now();
            let (wish, again_at) = alloc.wanted(now);
            if wish == Wish::Expire && !alloc.is_expired() {
                Box::pin(expire(&alloc)).await;
                continue;
            }
            // Before its tasks get their orders: a stop takes its services off first.
            let runs = wish == Wish::Run;
            let judges_at = services.as_mut().and_then(|services| services.follow(runs, now));
            let again_at = [again_at, judges_at].into_iter().flatten().min();
            // Nobody starts before the predecessors have ended; who is asked to end does not wait for them.
            let begins = runs && waits.is_none();
            let unplaced = begins && !alloc.is_placed() && !Box::pin(room.place(&alloc)).await;
            if (!runs || begins && !unplaced) && hooks.allow(&alloc, wish) {
                alloc.direct(wish);
            }
            tokio::select! {
                biased;
                () = alloc.changes() => {}
                Some(left) = owners.join_next_with_id() => {
                    let id = match &left {
                        Ok((id, ())) => *id,
                        Err(error) => error.id(),
                    };
                    let Some(at) = ids.iter().position(|known| *known == Some(id)) else { continue };
                    ids[at] = left.err().map(|error| {
                        tracing::error!(alloc_id = %alloc.id, %error, "the owner of a task panicked: the task is given up");
                        let entry = Beginning::Lost(format!("an internal error: {error}"));
                        owners.spawn(task::own(Arc::clone(&alloc), at, entry.known())).id()
                    });
                }
                () = ended(waits.as_mut()), if waits.is_some() => waits = None,
                () = room.changed(), if unplaced => {}
                (phase, failed) = hooks.over(), if hooks.running.is_some() => Box::pin(hooked(&alloc, phase, failed)).await,
                () = sleep_until(again_at, now) => {}
            }
        }
        drop(services);
        Box::pin(hooks.before_the_end(&alloc)).await;
        alloc.free_cores();
        EndedAlloc(alloc)
    }
}

/// What may give an alloc its place: the node has changed, or another alloc has given something back.
struct RoomChanges {
    facts: watch::Receiver<Arc<Attributes>>,
    freed: watch::Receiver<u64>,
}

impl RoomChanges {
    fn of(alloc: &Alloc) -> RoomChanges {
        RoomChanges { facts: alloc.ctx.facts.watch(), freed: alloc.ctx.cores.freed() }
    }
    /// What changes while it is asked is not missed.
    async fn place(&mut self, alloc: &Arc<Alloc>) -> bool {
        self.facts.mark_unchanged();
        self.freed.mark_unchanged();
        alloc.place().await
    }
    async fn changed(&mut self) {
        // Ends: one branch of the owner's select. Both are the agent's, who outlives it: never an error.
        tokio::select! {
            _ = self.facts.changed() => {}
            _ = self.freed.changed() => {}
        }
    }
}

/// The alloc's own hooks around its tasks' orders: which of their phases are through, and the one that runs.
struct Around {
    through: Vec<Phase>,
    running: Option<(Phase, AbortOnDrop<Vec<FailedHook>>)>,
}

impl Around {
    fn new(alloc: &Alloc) -> Around {
        // Nothing is set up for what cannot be.
        let through = alloc.failed_setup().map(|_| Phase::Prerun).into_iter().collect();
        Around { through, running: None }
    }

    /// Whether its tasks can be told now what this wish makes of them; if not, the phase that comes before it runs.
    fn allow(&mut self, alloc: &Arc<Alloc>, wish: Wish) -> bool {
        let ends = wish == Wish::Run && alloc.ends(wish);
        let before: &[Phase] = match wish {
            Wish::Run if ends => &[Phase::Prerun, Phase::Prekill],
            Wish::Run => &[Phase::Prerun],
            Wish::Again => &[Phase::PreTaskRestart],
            Wish::Stop | Wish::Expire => &[Phase::Prekill],
            Wish::Fail => &[],
        };
        if wish == Wish::Run && !ends {
            // It lives, again perhaps: its end, and its next beginning, are other ones.
            self.through.retain(|phase| *phase == Phase::Prerun);
        }
        let missing = |phase: &&Phase| !self.through.contains(phase) && alloc.hooks.alloc.has(**phase);
        let Some(before) = before.iter().find(missing).copied() else { return true };
        if self.running.as_ref().is_none_or(|(phase, _)| *phase != before) {
            // One that runs for another wish is called off.
            let alloc = Arc::clone(alloc);
            let run = async move {
                let mut subject = alloc.subject();
                let failed = alloc.hooks.alloc.run(before, &mut subject).await;
                if alloc.take_up(subject) {
                    alloc.persist_made().await;
                }
                failed
            };
            self.running = Some((before, AbortOnDrop(tokio::spawn(run))));
        }
        false
    }

    /// Tasks that ended by themselves did not wait for it.
    async fn before_the_end(&mut self, alloc: &Arc<Alloc>) {
        while !self.allow(alloc, Wish::Stop) {
            let (phase, failed) = self.over().await;
            hooked(alloc, phase, failed).await;
        }
    }

    async fn over(&mut self) -> (Phase, Vec<FailedHook>) {
        // Ends: a phase that runs has deadlines; without one this branch of the select is closed.
        let Some((phase, running)) = &mut self.running else { return std::future::pending().await };
        // Ends: the hooks of a phase have deadlines. Errors: the runtime is shutting down.
        let failed = (&mut running.0).await.unwrap_or_default();
        let phase = *phase;
        self.running = None;
        self.through.push(phase);
        (phase, failed)
    }
}

/// An alloc that cannot be set up fails as a whole. One that ran goes on: what it lacks will be missed by the next start.
async fn hooked(alloc: &Alloc, phase: Phase, failed: Vec<FailedHook>) {
    for error in &failed {
        let error = error.to_string();
        let error = alloc.job.sensitive.hide(&error);
        tracing::warn!(alloc_id = %alloc.id, %error, "a hook of an alloc failed");
    }
    if let (Phase::Prerun, false, Some(first)) = (phase, alloc.anything_ran(), failed.into_iter().next())
        && let Err(error) = alloc.ctx.journal.commit(alloc.fail_setup(first.failure.message)).await
    {
        tracing::error!(alloc_id = %alloc.id, %error, "that an alloc cannot be set up is not saved");
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
        // Ends: with the alloc before; who is told to stop does not wait for it. An error: it is gone altogether.
        let _ = predecessor.wait_for(|ended| *ended).await;
    }
}

async fn ended<F: Future<Output = ()> + Unpin>(waits: Option<F>) {
    match waits {
        // Ends: what is waited for says so, where it is made.
        Some(waits) => waits.await,
        // Ends: a closed branch of a select.
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Steady>, now: Steady) {
    match at {
        // Boxed, as whatever happens seldom: who waits for an alloc's end has no room for it.
        Some(at) => Box::pin(tokio::time::sleep(at.since(now).as_duration().min(LOOK_AGAIN))).await,
        // Ends: a closed branch of a select.
        None => std::future::pending().await,
    }
}
