//! The owner of one task: waits for events and requests, asks [`step`] what follows, and does it.
//!
//! ```text
//! launch: directories, cgroup, environment ─► handle durable ─► shown ─► driver starts ─► durable ─► shown
//! end:    exit, base, totals, next state durable (one batch) ─► shown (one step) ─► cgroup and run directory removed
//! ```
//! Nothing here ends a process with the agent: if an owner is dropped, its process keeps running and is recovered.

mod begin;
mod exit;
mod kill;
pub mod late;
pub mod launch;
mod requests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::launch::{LaunchFailure, LaunchResult, Launching};
use self::requests::{TaskRequest, end_requested, next_request};
use super::alloc::Alloc;
use super::decide::coordinator::TaskAction;
use super::decide::step::{State, StepEvent, step};
use super::drivers::call::{DriverCallError, RunningAttempt};
use super::drivers::{AttemptEnd, KILL_SIGNAL};
use super::hooks::HookPhase;
use crate::model::event::EventKind;
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::store::StoreError;

/// Where the owner of a task begins.
pub enum Beginning {
    /// As recorded: at the start, or in backoff.
    Recorded,
    /// Recovered after a restart of the agent, running or ended meanwhile; its cell has it already ([`note_found`]).
    Found(RunningAttempt, Option<Box<AttemptEnd>>),
    /// It had been started and cannot be recovered; the reason.
    Lost(String),
}

/// The result of recovery, once it is known.
pub type Search = Pin<Box<dyn Future<Output = Beginning> + Send>>;

impl Beginning {
    pub fn known(self) -> Search {
        Box::pin(std::future::ready(self))
    }
}

struct TaskOwner {
    alloc: Arc<Alloc>,
    at: usize,
    action: watch::Receiver<TaskAction>,
    attempt: Option<RunningAttempt>,
    /// Ended, but not yet durable: what it left on the host stays until then.
    ended: Option<RunningAttempt>,
    /// Its launch; or, beside an attempt, its recovery after its driver died.
    launching: Option<Launching>,
    /// Runs beside the wait for the end: hooks, or the last call to the driver. The next one replaces it.
    background: Option<Pin<Box<dyn Future<Output = BackgroundResult> + Send>>>,
    /// When it is abandoned; set with the first SIGKILL.
    abandon_at: Option<Instant>,
    /// How many times its driver died while it waited for this attempt.
    deaths: u8,
    timer: Option<(Instant, StepEvent)>,
    /// When the start is recorded.
    settle: Option<Instant>,
    kill_requested_at: Option<Instant>,
    /// The time of the restart request whose delay has begun.
    restart_requested_at: Option<Steady>,
}

/// What an owner waits for.
enum OwnerEvent {
    Launched(Box<LaunchResult>),
    Answered(BackgroundResult),
    Ended(Box<AttemptEnd>),
    /// The driver died while it waited.
    WaitDied(DriverCallError),
    Requested(TaskRequest),
    /// Check the recorded requests.
    Woken,
    Timer(StepEvent),
    Settle,
}

/// The result of what ran beside the wait for the end. One at a time; the end of the task cancels it.
enum BackgroundResult {
    /// The poststart or prekill hooks are done.
    Prepared,
    Signalled(Result<(), DriverCallError>),
    Killed(Result<(), DriverCallError>),
}

/// Owns a task until it is dead.
pub async fn own(alloc: Arc<Alloc>, at: usize, search: Search) {
    let entry = search.ends_with(Ends::Deadline).await;
    let action = alloc.action(at);
    let mut owner = TaskOwner {
        alloc,
        at,
        action,
        attempt: None,
        ended: None,
        launching: None,
        background: None,
        abandon_at: None,
        deaths: 0,
        timer: None,
        settle: None,
        kill_requested_at: None,
        restart_requested_at: None,
    };
    // Rare events are boxed: this future lives as long as its task runs, so it stays small.
    Box::pin(owner.enter(entry)).await;
    loop {
        match owner.state() {
            State::Dead => {
                Box::pin(hooks(&owner.alloc, at, HookPhase::Stop)).await;
                return;
            }
            State::Pending => {
                Box::pin(owner.wait_turn()).await;
                continue;
            }
            State::Starting
            | State::Running
            | State::Backoff
            | State::Killing
            | State::Restarting
            | State::Recalled => {}
        }
        match owner.next().await {
            OwnerEvent::Launched(launched) => Box::pin(owner.launched(*launched)).await,
            OwnerEvent::Answered(answer) => owner.answered(answer),
            OwnerEvent::WaitDied(error) => Box::pin(owner.wait_died(&error)).await,
            OwnerEvent::Ended(end) => Box::pin(owner.exited(*end)).await,
            OwnerEvent::Requested(request) => Box::pin(owner.requested(request)).await,
            OwnerEvent::Woken => {
                owner.report_driver_messages();
                owner.restart();
            }
            OwnerEvent::Timer(event) => Box::pin(owner.timer(event)).await,
            OwnerEvent::Settle => owner.alloc.save_aside(owner.at),
        }
    }
}

/// Puts a recovered attempt into its cell. An attempt that ended while no agent ran was never "restored".
///
/// The record covers everything that was ever shown of a task, up to the mark. Earlier times that the attempt reports
/// do not change the times of its states.
pub fn note_found(alloc: &Alloc, at: usize, attempt: &RunningAttempt, end: Option<&AttemptEnd>) {
    let mark = alloc.ctx.board.marked();
    let (state, _) = step(State::Pending, StepEvent::Restored);
    alloc.edit(at, |edit| {
        let restart = *edit.restart();
        let started_at = end.and_then(|e| e.started_at).or(attempt.handle().started_at);
        if edit.start_unreported()
            && let Some(started_at) = started_at
        {
            edit.enter_state_at(state, started_at.max(mark));
            let attempt = edit.status().attempt.to_string();
            edit.event_at(started_at, EventKind::Started, "task started", &[("attempt", attempt)]);
        } else {
            // It was being killed: the kill starts again.
            let now = edit.now.max(mark);
            edit.enter_state_at(state, now);
        }
        if let Some(restart) = restart {
            let (state, _) = step(state, if restart.whole { StepEvent::Recall } else { StepEvent::Restart });
            *edit.restart() = Some(restart);
            edit.enter_state(state);
        }
        edit.attach(attempt);
        match end {
            Some(end) => edit.left_unseen(end.finished_at.max(mark)),
            None => {
                edit.found();
                edit.event(EventKind::Restored, "found running after a restart of the agent", &[]);
            }
        }
    });
}

impl TaskOwner {
    fn state(&self) -> State {
        self.alloc.task_state(self.at)
    }

    fn backoff_left(&self) -> Nanos {
        self.alloc.backoff(self.at).map_or(Nanos::ZERO, |backoff| backoff.left(self.steady()))
    }

    async fn enter(&mut self, entry: Beginning) {
        match entry {
            Beginning::Recorded => match self.state() {
                State::Dead => {}
                State::Backoff => {
                    self.timer = Some((Instant::now() + self.backoff_left().as_duration(), StepEvent::BackoffOver));
                }
                // It was never started, whatever was about to be done with it.
                State::Pending
                | State::Starting
                | State::Running
                | State::Killing
                | State::Restarting
                | State::Recalled => {
                    self.alloc.edit(self.at, |edit| {
                        edit.set_handle(None);
                        edit.enter_state(State::Pending);
                    });
                    self.alloc.free_devices(self.at);
                    if self.alloc.is_changed(self.at) {
                        self.alloc.save_aside(self.at);
                    }
                }
            },
            Beginning::Found(attempt, end) => {
                self.attempt = Some(attempt);
                if let Some(end) = end {
                    self.note_obeyed(&end);
                    self.exited(*end).await;
                } else if self.state().restarts() {
                    self.restart_requested_at =
                        self.alloc.restart_requested(self.at).map(|restart| restart.requested_at);
                    self.prepare();
                }
            }
            Beginning::Lost(reason) => self.lost(&reason).await,
        }
    }

    fn report_driver_messages(&self) {
        let message = self.alloc.take_driver_messages(self.at);
        if !message.is_empty() {
            self.alloc
                .edit(self.at, |edit| message.into_iter().for_each(|text| edit.event(EventKind::Driver, text, &[])));
            self.alloc.save_aside(self.at);
        }
    }

    /// Waits until its alloc starts or ends it. Earlier requests do not apply any more.
    async fn wait_turn(&mut self) {
        (self.kill_requested_at, self.timer, self.abandon_at, self.background) = (None, None, None, None);
        let is_due = |action: &TaskAction| matches!(action, TaskAction::Start | TaskAction::End(_));
        // The alloc starts or ends each of its tasks, whatever happens to the others (`coordinator`).
        let action = self.action.wait_for(is_due).ends_with(Ends::Sender).await.map(|action| *action);
        match action {
            Ok(TaskAction::End(cause)) => self.kill(cause).await,
            Ok(TaskAction::Start | TaskAction::Keep | TaskAction::Recall) => self.begin(StepEvent::Start),
            // The alloc is gone, and with it the owner that drops this future.
            Err(_) => std::future::pending().ends_with(Ends::Caller).await,
        }
    }

    async fn requested(&mut self, request: TaskRequest) {
        match request {
            TaskRequest::End(cause) => self.kill(cause).await,
            TaskRequest::Recall => self.recall().await,
        }
    }

    async fn next(&mut self) -> OwnerEvent {
        let recalled = self.state() == State::Recalled;
        let (timer, settle) = (self.timer.map(|(at, _)| at), self.settle);
        tokio::select! {
            biased;
            launched = or_never(self.launching.as_mut().map(|l| &mut l.0)), if self.launching.is_some() => {
                self.launching = None;
                OwnerEvent::Launched(Box::new(launched.unwrap_or_else(|e| Err(LaunchFailure::panicked(&e)))))
            }
            answer = or_never(self.background.as_mut()), if self.background.is_some() => {
                self.background = None;
                OwnerEvent::Answered(answer)
            }
            end = wait(&self.alloc, self.attempt.as_ref()),
                if self.attempt.is_some() && self.launching.is_none() => match end {
                Ok(end) => OwnerEvent::Ended(end),
                Err(error) => OwnerEvent::WaitDied(error),
            },
            request = next_request(&mut self.action, recalled), if self.kill_requested_at.is_none() => {
                OwnerEvent::Requested(request)
            }
            () = self.alloc.woken(self.at) => OwnerEvent::Woken,
            () = or_late(timer), if timer.is_some() => {
                let (_, event) = self.timer.take().expect("the branch is taken with a timer only");
                OwnerEvent::Timer(event)
            }
            () = or_late(settle), if settle.is_some() => {
                self.settle = None;
                OwnerEvent::Settle
            }
        }
    }

    /// The kill signal: from the job file, or the driver's default.
    fn kill_signal(&self) -> &str {
        let task = self.alloc.task(self.at);
        let own =
            || self.alloc.ctx.drivers.get(task.driver.as_str()).map_or(KILL_SIGNAL, |driver| driver.kill_signal());
        task.kill_signal.as_deref().unwrap_or_else(own)
    }

    /// Deadline of the driver's part of a start.
    fn start_budget(&self) -> Duration {
        let task = self.alloc.task(self.at);
        let more = self.alloc.ctx.drivers.get(task.driver.as_str()).map(|driver| driver.start_takes(task));
        self.alloc.ctx.config.start_budget + more.unwrap_or_default()
    }

    /// Whether its end was requested, of this agent or an earlier one.
    fn is_killed(&self) -> bool {
        self.kill_requested_at.is_some() || self.alloc.kill(self.at).is_some()
    }

    fn now(&self) -> Timestamp {
        self.alloc.ctx.clock.now()
    }
    fn steady(&self) -> Steady {
        self.alloc.ctx.line.now()
    }

    /// Makes the state durable, shows it, then removes what the attempt left. If the write fails, the state is shown
    /// anyway and the write is retried. The retries end when a task in backoff has to stop: then its end is written
    /// instead.
    async fn persist_and_show(&mut self) {
        let (alloc, at) = (Arc::clone(&self.alloc), self.at);
        self.settle = None;
        let on_failure = |error: &StoreError, _: bool| {
            tracing::error!(alloc_id = %alloc.id, %error, "failed to persist the end of a task; retrying");
        };
        let waits = self.state() != State::Dead && self.kill_requested_at.is_none();
        tokio::select! {
            biased;
            () = alloc.persist(at, on_failure) => {}
            _ = end_requested(&mut self.action), if waits => return,
        }
        if let Some(ended) = self.ended.take() {
            self.remove(ended).await;
            tokio::select! {
                biased;
                () = hooks(&alloc, at, HookPhase::Exited) => {}
                _ = end_requested(&mut self.action), if waits => {}
            }
        }
        alloc.free_devices(at);
    }

    /// Starts a phase of hooks that only a kill signal waits for. `false`: there are none.
    fn run_in_background(&mut self, phase: HookPhase) -> bool {
        let (alloc, at) = (Arc::clone(&self.alloc), self.at);
        let any = alloc.hooks.task.has(phase);
        if any {
            self.background = Some(Box::pin(async move {
                hooks(&alloc, at, phase).await;
                BackgroundResult::Prepared
            }));
        }
        any
    }
}

/// Runs a phase of a task's hooks. Failures are reported and do not block.
async fn hooks(alloc: &Arc<Alloc>, at: usize, phase: HookPhase) {
    for failed in alloc.hooks.task.run(phase, &mut alloc.subject_of(at)).await {
        let details = [
            ("hook", failed.hook.to_owned()),
            ("phase", phase.as_str().to_owned()),
            ("error", failed.failure.message.clone()),
        ];
        alloc.edit(at, |edit| edit.event(EventKind::HookFailed, format!("the hook {failed}"), &details));
        alloc.save_aside(at);
    }
}

async fn or_never<F: Future + Unpin>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.ends_with(Ends::Deadline).await,
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}

async fn wait(alloc: &Alloc, attempt: Option<&RunningAttempt>) -> Result<Box<AttemptEnd>, DriverCallError> {
    match attempt {
        Some(attempt) => attempt.wait(alloc.ctx.clock.as_ref()).await,
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}

async fn or_late(at: Option<Instant>) {
    match at {
        // Boxed: most tasks have no timer and need no room for one.
        Some(at) => Box::pin(tokio::time::sleep_until(at)).await,
        None => std::future::pending().ends_with(Ends::Caller).await,
    }
}
