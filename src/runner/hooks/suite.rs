//! A set of hooks, in the order that follows from what each needs of the others, and how a phase of them is run.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::frame::{FailedHook, Hook, HookError, HookOutcome, HookPhase, HookSubject};
use crate::runner::blocking_pool::IN_LINE;
use crate::runner::drivers::BoxFuture;
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::Metrics;

/// Hooks that cannot be brought into an order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the hook {hook} must come after {after}, which does not exist")]
    Unknown { hook: &'static str, after: &'static str },
    #[error("there are two hooks called {0}")]
    Twice(&'static str),
    #[error("the hooks {} wait for one another", .0.join(", "))]
    Circle(Vec<&'static str>),
}

/// Concurrency: read only; any number of subjects at once.
pub struct Suite<S> {
    /// In the order of setting up.
    hooks: Vec<Box<dyn Hook<S>>>,
    pub(super) metrics: Arc<Metrics>,
}

impl<S: HookSubject> Suite<S> {
    /// Each after all that it needs; otherwise in the order given.
    ///
    /// Errors: it needs what is not there, or they need one another.
    pub fn new(hooks: Vec<Box<dyn Hook<S>>>, metrics: Arc<Metrics>) -> Result<Suite<S>, OrderError> {
        let hooks = ordered(hooks)?;
        for hook in &hooks {
            hook.phases().iter().for_each(|phase| metrics.hook_known(S::RUNNER, hook.name(), phase.as_str()));
        }
        Ok(Suite { hooks, metrics })
    }

    /// The names, in the order of setting up.
    pub fn order(&self) -> Vec<&'static str> {
        self.hooks.iter().map(|h| h.name()).collect()
    }

    /// Whether any hook takes part in a phase.
    pub fn has(&self, phase: HookPhase) -> bool {
        self.hooks.iter().any(|h| h.phases().contains(&phase))
    }

    /// Runs a phase: see [`HookPhase`] for the order, and for what one failure does to the rest. May be dropped at any
    /// moment: the hook that runs is called off, and those after it do not begin.
    pub async fn run(&self, phase: HookPhase, subject: &mut S) -> Vec<FailedHook> {
        let mut order: Vec<&dyn Hook<S>> =
            self.hooks.iter().map(|h| &**h).filter(|h| h.phases().contains(&phase)).collect();
        if phase.takes_down() {
            order.reverse();
        }
        let mut failed = Vec::new();
        for hook in order {
            let Err(failure) = self.run_one(hook, phase, subject).await else { continue };
            self.metrics.hook_failed(S::RUNNER, hook.name(), phase.as_str());
            failed.push(FailedHook { hook: hook.name(), phase, failure });
            if phase.stops_at_failure() {
                break;
            }
        }
        failed
    }

    async fn run_one(&self, hook: &dyn Hook<S>, phase: HookPhase, subject: &mut S) -> Result<(), HookError> {
        if phase == HookPhase::Prestart
            && let Some(data) = subject.done(hook.name())
        {
            hook.resume(subject, &data);
            return Ok(());
        }
        let began = Instant::now();
        let deadline = hook.deadline(phase);
        let outcome = bounded(deadline, hook.run(phase, subject)).await;
        let took = began.elapsed();
        self.metrics.hook_took(S::RUNNER, hook.name(), phase.as_str(), took);
        if matches!(phase, HookPhase::Prerun | HookPhase::Prestart) {
            subject.took(hook.name(), took);
        }
        let outcome = outcome
            .unwrap_or_else(|| Err(HookError::setup(format!("{} did not end within {deadline:?}", hook.name()))))?;
        if let HookOutcome::Done(data) = outcome
            && !subject.set_done(hook.name(), data)
        {
            let message = format!("{}: what a hook of {}s leaves is recorded nowhere", hook.name(), S::RUNNER);
            return Err(HookError { recoverable: false, ..HookError::setup(message) });
        }
        Ok(())
    }
}

type Running<'a> = BoxFuture<'a, Result<HookOutcome, HookError>>;

/// `None`: it took longer. A panic is a failure like any other.
async fn bounded(deadline: Duration, mut hook: Running<'_>) -> Option<Result<HookOutcome, HookError>> {
    let mut over = pin!(tokio::time::sleep(deadline));
    let unwinding = poll_fn(|context| {
        let stood = IN_LINE.with(Cell::get);
        let polled = catch_unwind(AssertUnwindSafe(|| hook.as_mut().poll(context))).unwrap_or_else(|_| {
            let failure = HookError { recoverable: false, ..HookError::setup("an internal error: the hook panicked") };
            Poll::Ready(Err(failure))
        });
        if let Poll::Ready(outcome) = polled {
            return Poll::Ready(Some(outcome));
        }
        if stood || IN_LINE.with(Cell::get) {
            over.as_mut().reset(Instant::now() + deadline);
        }
        over.as_mut().poll(context).map(|()| None)
    });
    IN_LINE.scope(Cell::new(false), unwinding).ends_with(Ends::Deadline).await
}

fn ordered<S>(hooks: Vec<Box<dyn Hook<S>>>) -> Result<Vec<Box<dyn Hook<S>>>, OrderError> {
    let names: Vec<&'static str> = hooks.iter().map(|h| h.name()).collect();
    for (at, hook) in hooks.iter().enumerate() {
        if names[..at].contains(&hook.name()) {
            return Err(OrderError::Twice(hook.name()));
        }
        if let Some(after) = hook.after().iter().find(|after| !names.contains(after)) {
            return Err(OrderError::Unknown { hook: hook.name(), after });
        }
    }
    let mut left = hooks;
    let mut order: Vec<Box<dyn Hook<S>>> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let there = |name: &&str| order.iter().any(|h| h.name() == *name);
        let Some(next) = left.iter().position(|h| h.after().iter().all(&there)) else {
            return Err(OrderError::Circle(left.iter().map(|h| h.name()).collect()));
        };
        order.push(left.remove(next));
    }
    Ok(order)
}
