//! The owner of one alloc: starts and ends its tasks in lifecycle order, and cleans up when they are dead.
//!
//! ```text
//! UnownedAlloc ──run──► RunningAlloc ──until_ended──► EndedAlloc ──forget──► DestroyedAlloc ──remove──► gone
//!    └─discard──► (it never existed)                  └─ restarted: UnownedAlloc again
//! ```
//! Each state is a type, and each step consumes the one before: an alloc that never ran is not waited for, and only an
//! ended alloc can be forgotten and removed.
//!
//! After each change of a task, [`coordinator::decide`] derives the next action of each task from the states of all. So
//! a recovered alloc continues from where it was. Nothing here ends a process with the agent: a dropped owner drops the
//! owners of its tasks, and their processes keep running.
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
use crate::runner::context::AbortOnDrop;
use crate::runner::decide::coordinator::DesiredState;
use crate::runner::hooks::{FailedHook, HookPhase};
use crate::runner::task::{self, Beginning, Search};
use crate::runner::templates::TemplateOwner;
use crate::runner::wait_ends::{Ends, EndsWith};

/// Maximum wait for any deadline: the host may be suspended meanwhile, and timers do not count that.
const RECHECK: Duration = Duration::from_secs(30);

/// An alloc without an owner.
pub struct UnownedAlloc {
    alloc: Arc<Alloc>,
    /// Where each of its tasks begins.
    entries: Vec<Search>,
}

/// An alloc whose tasks have owners.
pub struct RunningAlloc {
    alloc: Arc<Alloc>,
    owners: JoinSet<()>,
    /// The ID of each task's owner.
    ids: Vec<Option<Id>>,
    /// Until the allocs before it have ended.
    waits: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    hooks: AllocHooks,
    /// `None`: its group has no services.
    services: Option<ServiceOwner>,
    /// `None`: none of its templates can change.
    templates: Option<TemplateOwner>,
}

impl UnownedAlloc {
    /// Its tasks begin as recorded.
    pub fn new(alloc: Arc<Alloc>) -> UnownedAlloc {
        let entries = alloc.group().tasks.iter().map(|_| Beginning::Recorded.known()).collect();
        UnownedAlloc { alloc, entries }
    }
    /// Its tasks are recovered or being recovered.
    pub fn found(alloc: Arc<Alloc>, entries: Vec<Search>) -> UnownedAlloc {
        UnownedAlloc { alloc, entries }
    }
    pub fn alloc(&self) -> &Arc<Alloc> {
        &self.alloc
    }

    /// It does not run after all. Nothing of it is on the host, so there is nothing to wait for.
    pub fn discard(self) {
        self.alloc.discard();
    }

    /// Spawns the owner of each task. `predecessors` end before its first task starts.
    pub fn run(self, predecessors: Vec<watch::Receiver<bool>>) -> RunningAlloc {
        let UnownedAlloc { alloc, entries } = self;
        let mut owners = JoinSet::new();
        let own = |(at, entry)| Some(owners.spawn(task::own(Arc::clone(&alloc), at, entry)).id());
        let ids = entries.into_iter().enumerate().map(own).collect();
        let waits = (!predecessors.is_empty()).then(|| Box::pin(all_ended(predecessors)) as _);
        let hooks = AllocHooks::new(&alloc);
        let services = ServiceOwner::new(&alloc);
        let templates = TemplateOwner::new(&alloc);
        RunningAlloc { alloc, owners, ids, waits, hooks, services, templates }
    }
}

impl RunningAlloc {
    /// Returns when every task is dead and the remains of their attempts are removed.
    pub async fn until_ended(self) -> EndedAlloc {
        let RunningAlloc { alloc, mut owners, mut ids, mut waits, mut hooks, mut services, mut templates } = self;
        let mut room = RoomChanges::of(&alloc);
        while !(alloc.is_terminal() && owners.is_empty()) {
            alloc.settle_restart();
            // A dead task is restarted with its whole alloc.
            for (at, id) in ids.iter_mut().enumerate() {
                if id.is_none() && alloc.status(at).state != TaskState::Dead {
                    *id = Some(owners.spawn(task::own(Arc::clone(&alloc), at, Beginning::Recorded.known())).id());
                }
            }
            let now = alloc.ctx.line.now();
            let (desired_state, again_at) = alloc.desired_state(now);
            if desired_state == DesiredState::Expire && !alloc.is_expired() {
                Box::pin(expire(&alloc)).await;
                continue;
            }
            // Before its tasks get their actions: a stop deregisters its services first.
            let runs = desired_state == DesiredState::Run;
            let judges_at = services.as_mut().and_then(|services| services.follow(runs, now));
            if let Some(templates) = &mut templates {
                templates.follow(runs);
            }
            let again_at = [again_at, judges_at].into_iter().flatten().min();
            // No task starts before the predecessors have ended; a task that has to end does not wait for them.
            let begins = runs && waits.is_none();
            let unplaced = begins && !alloc.is_placed() && !Box::pin(room.place(&alloc)).await;
            if (!runs || begins && !unplaced) && hooks.allow(&alloc, desired_state) {
                alloc.direct(desired_state);
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
                        tracing::error!(
                            alloc_id = %alloc.id,
                            %error,
                            "the owner of a task panicked; the task is abandoned"
                        );
                        let entry = Beginning::Lost(format!("an internal error: {error}"));
                        owners.spawn(task::own(Arc::clone(&alloc), at, entry.known())).id()
                    });
                }
                () = ended(waits.as_mut()), if waits.is_some() => waits = None,
                () = room.changed(), if unplaced => {}
                (phase, failed) = hooks.over(), if hooks.running.is_some() => {
                    Box::pin(hooked(&alloc, phase, failed)).await
                }
                () = sleep_until(again_at, now) => {}
            }
        }
        drop((services, templates));
        Box::pin(hooks.before_the_end(&alloc)).await;
        alloc.free_cores();
        EndedAlloc(alloc)
    }
}

/// Changes after which an unplaced alloc may be placed: node attributes, or resources released by another alloc.
struct RoomChanges {
    facts: watch::Receiver<Arc<Attributes>>,
    freed: watch::Receiver<u64>,
}

impl RoomChanges {
    fn of(alloc: &Alloc) -> RoomChanges {
        RoomChanges { facts: alloc.ctx.facts.watch(), freed: alloc.ctx.cores.freed() }
    }
    /// Changes during the evaluation are not missed.
    async fn place(&mut self, alloc: &Arc<Alloc>) -> bool {
        self.facts.mark_unchanged();
        self.freed.mark_unchanged();
        alloc.place().await
    }
    async fn changed(&mut self) {
        // Both senders live as long as the agent: never an error.
        tokio::select! {
            _ = self.facts.changed() => {}
            _ = self.freed.changed() => {}
        }
    }
}

/// The alloc's own hooks: which phases are done, and the one that runs.
struct AllocHooks {
    through: Vec<HookPhase>,
    running: Option<(HookPhase, AbortOnDrop<Vec<FailedHook>>)>,
}

impl AllocHooks {
    fn new(alloc: &Alloc) -> AllocHooks {
        // Nothing is set up for an alloc whose setup failed.
        let through = alloc.failed_setup().map(|_| HookPhase::Prerun).into_iter().collect();
        AllocHooks { through, running: None }
    }

    /// Whether the actions of this desired state may be sent to the tasks. If not, runs the phase that has to come
    /// before.
    fn allow(&mut self, alloc: &Arc<Alloc>, desired_state: DesiredState) -> bool {
        let ends = desired_state == DesiredState::Run && alloc.ends(desired_state);
        let before: &[HookPhase] = match desired_state {
            DesiredState::Run if ends => &[HookPhase::Prerun, HookPhase::Prekill],
            DesiredState::Run => &[HookPhase::Prerun],
            DesiredState::Restart => &[HookPhase::PreTaskRestart],
            DesiredState::Stop | DesiredState::Expire => &[HookPhase::Prekill],
            DesiredState::SetupFailed => &[],
        };
        if desired_state == DesiredState::Run && !ends {
            // It lives, perhaps again: its next end and restart run their phases again.
            self.through.retain(|phase| *phase == HookPhase::Prerun);
        }
        let missing = |phase: &&HookPhase| !self.through.contains(phase) && alloc.hooks.alloc.has(**phase);
        let Some(before) = before.iter().find(missing).copied() else { return true };
        if self.running.as_ref().is_none_or(|(phase, _)| *phase != before) {
            // A phase that runs for another desired state is cancelled.
            let alloc = Arc::clone(alloc);
            let run = async move {
                let mut subject = alloc.subject();
                let failed = alloc.hooks.alloc.run(before, &mut subject).await;
                let taken = alloc.take_up(subject);
                if taken.is_new || taken.has_events {
                    alloc.persist_made(taken.has_events).await;
                }
                failed
            };
            self.running = Some((before, AbortOnDrop(tokio::spawn(run))));
        }
        false
    }

    /// Tasks that ended by themselves did not wait for it.
    async fn before_the_end(&mut self, alloc: &Arc<Alloc>) {
        while !self.allow(alloc, DesiredState::Stop) {
            let (phase, failed) = self.over().await;
            hooked(alloc, phase, failed).await;
        }
    }

    async fn over(&mut self) -> (HookPhase, Vec<FailedHook>) {
        let Some((phase, running)) = &mut self.running else {
            return std::future::pending().ends_with(Ends::Caller).await;
        };
        // Errors: the runtime is shutting down.
        let failed = (&mut running.0).ends_with(Ends::Deadline).await.unwrap_or_default();
        let phase = *phase;
        self.running = None;
        self.through.push(phase);
        (phase, failed)
    }
}

/// An alloc whose setup failed fails as a whole. One that ran continues: the next start will report what is missing.
async fn hooked(alloc: &Alloc, phase: HookPhase, failed: Vec<FailedHook>) {
    for error in &failed {
        let error = error.to_string();
        let error = alloc.job.sensitive.hide(&error);
        tracing::warn!(alloc_id = %alloc.id, %error, "a hook of an alloc failed");
    }
    if let (HookPhase::Prerun, false, Some(first)) = (phase, alloc.anything_ran(), failed.into_iter().next())
        && let Err(error) = alloc.ctx.journal.commit(alloc.fail_setup(first.failure.message)).await
    {
        tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the setup failure of an alloc");
    }
}

async fn expire(alloc: &Alloc) {
    if let Err(error) = alloc.ctx.journal.commit(alloc.expire()).await {
        // The time is over anyway; the next agent would find the same.
        tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the expiry of an alloc");
    }
}

async fn all_ended(predecessors: Vec<watch::Receiver<bool>>) {
    for mut predecessor in predecessors {
        // A task that has to end does not wait for it. An error: that alloc is removed.
        let _ = predecessor.wait_for(|ended| *ended).ends_with(Ends::Sender).await;
    }
}

async fn ended<F: Future<Output = ()> + Unpin>(waits: Option<F>) {
    match waits {
        Some(waits) => waits.ends_with(Ends::Deadline).await,
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}

async fn sleep_until(at: Option<Steady>, now: Steady) {
    match at {
        // Boxed, as all rare events: the future of an alloc stays small.
        Some(at) => Box::pin(tokio::time::sleep(at.since(now).as_duration().min(RECHECK))).await,
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}
