//! Requests for existing allocs: signals and restarts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::owner::UnownedAlloc;
use super::{Handle, Manager, RunnerError};
use crate::model::alloc::Desired;
use crate::model::event::EventKind;
use crate::model::id::{AllocId, TaskName};
use crate::model::nearest::nearest;
use crate::model::signal;
use crate::model::units::Nanos;
use crate::runner::alloc::{Alloc, AllocRestart, RestartRefusal};
use crate::runner::wait_ends::{Ends, EndsWith};

/// Reason of the events: only users make these requests.
const REASON: &str = "requested";

/// What to restart of an alloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartTarget<'a> {
    /// One running task, in place.
    Task(&'a str),
    /// Each running task, in place.
    Running,
    /// All tasks from the beginning, in lifecycle order.
    All,
}

impl Handle {
    /// Sends a signal to the main process of a task, or of every task of the alloc that has one. Returns the tasks.
    ///
    /// Errors: there is no such signal; nothing runs, or the state is unknown; the driver cannot send it.
    pub async fn signal(&self, id: &AllocId, task: Option<&str>, signal: &str) -> Result<Vec<TaskName>, RunnerError> {
        self.0.signal(id, task, signal).await
    }

    /// Ends running attempts and starts new ones, whatever the restart policy says. Returns the tasks. The request is
    /// recorded when this returns; the restart follows in the background.
    ///
    /// Errors: the task or alloc does not run, or is about to end.
    pub async fn restart(&self, id: &AllocId, what: RestartTarget<'_>) -> Result<Vec<TaskName>, RunnerError> {
        self.0.restart(id, what).await
    }
}

impl Manager {
    pub(super) fn task_of(alloc: &Alloc, name: &str) -> Result<usize, RunnerError> {
        alloc.task_at(name).ok_or_else(|| RunnerError::UnknownTask {
            alloc: alloc.id.clone(),
            task: name.to_owned(),
            known: alloc.group().tasks.iter().map(|t| t.name.clone()).collect(),
        })
    }

    async fn signal(&self, id: &AllocId, task: Option<&str>, name: &str) -> Result<Vec<TaskName>, RunnerError> {
        let alloc = self.alloc(id)?;
        // Checked before anything is sent: either all tasks get the signal or none.
        let Some(name) = signal::number(name).and_then(signal::name) else {
            let near = nearest(&name.to_ascii_uppercase(), signal::names());
            return Err(RunnerError::UnknownSignal { name: name.to_owned(), near });
        };
        let requested = match task {
            None => 0..alloc.group().tasks.len(),
            Some(task) => {
                let at = Self::task_of(&alloc, task)?;
                at..at + 1
            }
        };
        if let Some(at) = requested.clone().find(|at| alloc.is_unknown(*at)) {
            return Err(RunnerError::InRecovery { task: alloc.task(at).name.clone() });
        }
        let (mut sent, mut refused) = (Vec::new(), None);
        for at in requested {
            let task_name = alloc.task(at).name.clone();
            let Some(attempt) = alloc.attempt(at) else {
                if task.is_some() {
                    return Err(RunnerError::NotRunning { task: task_name, state: alloc.status(at).state });
                }
                continue;
            };
            if let Err(error) = attempt.signal(name).await {
                refused.get_or_insert(RunnerError::Signal { task: task_name, message: error.to_string() });
                continue;
            }
            alloc.edit(at, |edit| {
                let details = [("signal", name.to_owned()), ("reason", REASON.to_owned())];
                edit.event(EventKind::Signaling, format!("sent {name}"), &details);
            });
            if let Err(error) = alloc.shown(alloc.save(at)).await {
                tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the event of a signal that was sent");
            }
            sent.push(task_name);
        }
        match refused {
            Some(error) => Err(error),
            None if sent.is_empty() => Err(RunnerError::NothingRunning(id.clone())),
            None => Ok(sent),
        }
    }

    async fn restart(self: &Arc<Self>, id: &AllocId, what: RestartTarget<'_>) -> Result<Vec<TaskName>, RunnerError> {
        let alloc = self.alloc(id)?;
        match what {
            RestartTarget::Task(name) => {
                let at = Self::task_of(&alloc, name)?;
                self.may_begin(&alloc)?;
                let refused = |state| RunnerError::NotRunning { task: alloc.task(at).name.clone(), state };
                alloc.restart(at, REASON, Duration::ZERO).map_err(refused)?;
                self.record_restarts(&alloc, &[at]).await;
                Ok(vec![alloc.task(at).name.clone()])
            }
            RestartTarget::Running => {
                self.may_begin(&alloc)?;
                // The whole group restarts, so its own delay applies too.
                let delay = alloc.group().shutdown_delay;
                let restarted: Vec<usize> =
                    (0..alloc.group().tasks.len()).filter(|at| alloc.restart(*at, REASON, delay).is_ok()).collect();
                if restarted.is_empty() {
                    return Err(RunnerError::NothingRunning(id.clone()));
                }
                self.record_restarts(&alloc, &restarted).await;
                Ok(restarted.into_iter().map(|at| alloc.task(at).name.clone()).collect())
            }
            RestartTarget::All => self.restart_all(&alloc).await,
        }
    }

    /// Durable first, then the owner acts.
    async fn record_restarts(&self, alloc: &Alloc, tasks: &[usize]) {
        let saves: Vec<_> = tasks.iter().map(|at| alloc.save(*at)).collect();
        for save in saves {
            if let Err(error) = alloc.shown(save).await {
                tracing::error!(
                    alloc_id = %alloc.id,
                    %error,
                    "failed to persist a restart; an agent that dies now forgets it"
                );
            }
        }
        tasks.iter().for_each(|at| alloc.wake_task(*at));
    }

    async fn restart_all(self: &Arc<Self>, alloc: &Arc<Alloc>) -> Result<Vec<TaskName>, RunnerError> {
        let mut ended = alloc.ended();
        // The ledger is held meanwhile: the alloc is neither collected nor replaced.
        let (ledger, recall) = loop {
            let ledger = self.ledger().await;
            self.may_begin(alloc)?;
            if self.allocs.get(&alloc.id).is_none() {
                return Err(RunnerError::UnknownAlloc(alloc.id.clone()));
            }
            match alloc.recall(REASON) {
                AllocRestart::Ending => drop(ledger),
                recall => break (ledger, recall),
            }
            // All its tasks are dead and its cleanup ends. An error: it was collected, which the next pass finds.
            let _ = ended.wait_for(|ended| *ended).ends_with(Ends::Sender).await;
        };
        let (save, revived) = match recall {
            AllocRestart::Requested(save) => (save, false),
            AllocRestart::Revived(save) => (save, true),
            AllocRestart::Refused(RestartRefusal::MayRun(at)) => {
                return Err(RunnerError::MayStillRun { task: alloc.task(at).name.clone() });
            }
            AllocRestart::Refused(RestartRefusal::NothingRan) | AllocRestart::Ending => {
                return Err(RunnerError::NothingRunning(alloc.id.clone()));
            }
        };
        self.allocs.undelivered(&alloc.id);
        if let Err(error) = alloc.shown(save).await {
            tracing::error!(
                alloc_id = %alloc.id,
                %error,
                "failed to persist a restart; an agent that dies now forgets it"
            );
        }
        if revived {
            self.enter(UnownedAlloc::new(Arc::clone(alloc)));
        }
        drop(ledger);
        Ok(alloc.group().tasks.iter().map(|t| t.name.clone()).collect())
    }

    /// Refuses an alloc that is to stop, has expired, or was replaced by a newer one: it starts nothing any more.
    fn may_begin(&self, alloc: &Alloc) -> Result<(), RunnerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RunnerError::ShuttingDown);
        }
        let refused = |why| Err(RunnerError::Final { alloc: alloc.id.clone(), why });
        let max_run = alloc.group().max_run_duration.map(Nanos::from_duration);
        if alloc.desired() == Desired::Stop {
            return refused("was requested to stop");
        }
        if max_run.is_some_and(|most| alloc.age() >= most) {
            return refused("has had its max_run_duration");
        }
        if alloc.next().is_some() {
            return refused("has failed and was replaced by a later alloc");
        }
        let newer = |other: &Alloc| other.job.id == alloc.job.id && other.version > alloc.version;
        if !self.may_start_version(alloc) && self.allocs.all().iter().any(|other| newer(other)) {
            return refused("is of an older version of its job than one that was submitted since");
        }
        Ok(())
    }
}
