//! State machine of a task. The only place where a task's state changes. Pure.
//!
//! ```text
//!            Start              Started               Exited: restart
//! Pending ──────────► Starting ─────────► Running ────────────────────► Backoff
//!    │                 │  ▲  └─ StartFailed: restart ─────────────────►  │  │
//!    │                 │  └───────────────── BackoffOver ────────────────┘  │
//!    │                 │ Kill                │ Kill       Exited: finish    │ Kill
//!    │ Kill            └──────► Killing ◄────┤────────────► Dead ◄──────────┘
//!    └────────────────────────────────────────────────────► Dead
//!                               Killing ── Exited, StartFailed ──► Dead
//! All ── Abandoned ──► Dead: processes may be left
//!
//! A requested restart: Restarting and Recalled are shown as killing, and a Kill makes them Killing.
//! Running ── Restart ──► Restarting ── Exited ──► Backoff, without a delay       (this task alone)
//! Starting, Running, Restarting ── Recall ──► Recalled ── Exited, StartFailed ──► Pending   (its whole alloc)
//! Backoff, Dead ── Recall ──► Pending
//! ```

use super::restart::Decision;
use crate::model::task::{RestartReason, TaskState};
use crate::model::units::Nanos;

/// A task's state as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Pending,
    Starting,
    Running,
    Backoff,
    Killing,
    /// Its attempt is ending; the next one follows without delay.
    Restarting,
    /// Its attempt is ending; then it waits to be started in lifecycle order, like all tasks of its alloc.
    Recalled,
    Dead,
}

impl State {
    /// `restart`: whether a restart was requested, and whether it is of the whole alloc.
    pub fn of(shown: TaskState, restart: Option<bool>) -> State {
        match (shown, restart) {
            (TaskState::Pending, _) => State::Pending,
            (TaskState::Starting, _) => State::Starting,
            (TaskState::Running, _) => State::Running,
            (TaskState::Backoff, _) => State::Backoff,
            (TaskState::Killing, None) => State::Killing,
            (TaskState::Killing, Some(false)) => State::Restarting,
            (TaskState::Killing, Some(true)) => State::Recalled,
            (TaskState::Dead, _) => State::Dead,
        }
    }
    pub fn shown(self) -> TaskState {
        match self {
            State::Pending => TaskState::Pending,
            State::Starting => TaskState::Starting,
            State::Running => TaskState::Running,
            State::Backoff => TaskState::Backoff,
            State::Killing | State::Restarting | State::Recalled => TaskState::Killing,
            State::Dead => TaskState::Dead,
        }
    }
    /// Whether a restart was requested and the attempt has not ended yet.
    pub fn restarts(self) -> bool {
        matches!(self, State::Restarting | State::Recalled)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEvent {
    /// The coordinator starts it.
    Start,
    /// Recovered: running after a restart of the agent.
    Restored,
    /// After a restart of the agent: it had run, but cannot be recovered.
    Lost,
    Started,
    StartFailed(Decision),
    /// All its processes are gone.
    Exited(Decision),
    BackoffOver,
    /// Its end was requested.
    Kill,
    /// A restart of this task was requested.
    Restart,
    /// Its whole alloc is restarted.
    Recall,
    /// The delay before the kill signal is over.
    DelayOver,
    /// The kill timeout is over.
    GraceOver,
    /// It outlived SIGKILL, or its driver cannot start or find it any more.
    Abandoned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Prepare directories and environment, persist the handle, call the driver.
    Launch,
    /// Set a timer for the restart.
    WaitToRestart { delay: Nanos, reason: RestartReason },
    /// Send the kill signal to the main process (after its delay) and set the kill timeout.
    SendKillSignal,
    /// Set the kill timeout only: there is no process yet.
    AwaitLaunch,
    /// The kill signal was sent before: the rest of the kill timeout applies.
    AwaitEnd,
    /// All its processes are gone: it waits to be started again.
    AwaitTurn,
    /// Kill every process, and set a timer after which the task is abandoned.
    ForceKill,
    /// No further action.
    Finish { failed: bool },
}

pub fn step(state: State, event: StepEvent) -> (State, Option<Action>) {
    use Action::{AwaitEnd, AwaitLaunch, AwaitTurn, Finish, ForceKill, Launch, SendKillSignal, WaitToRestart};
    use State::{Backoff, Dead, Killing, Pending, Recalled, Restarting, Running, Starting};
    use StepEvent::{
        Abandoned, BackoffOver, DelayOver, Exited, GraceOver, Kill, Lost, Recall, Restart, Restored, Start,
        StartFailed, Started,
    };
    match (state, event) {
        (Pending, Start) | (Backoff, BackoffOver) => (Starting, Some(Launch)),
        (Pending, Restored) | (Starting, Started) => (Running, None),
        (Pending, Lost) => (Dead, Some(Finish { failed: true })),
        (Starting, StartFailed(decision)) | (Running, Exited(decision)) => match decision {
            Decision::Restart { delay, reason } => (Backoff, Some(WaitToRestart { delay, reason })),
            Decision::Finish { failed, why: _ } => (Dead, Some(Finish { failed })),
        },
        (Pending | Backoff, Kill) => (Dead, Some(Finish { failed: false })),
        (Starting, Kill) => (Killing, Some(AwaitLaunch)),
        (Running, Kill) | (Killing, Started | DelayOver) => (Killing, Some(SendKillSignal)),
        (Restarting | Recalled, Kill) => (Killing, Some(AwaitEnd)),
        (Killing, Exited(_) | StartFailed(_)) => (Dead, Some(Finish { failed: false })),
        // Processes may be left, or may start late: a second attempt must not run beside them.
        (Pending | Starting | Running | Backoff | Killing | Restarting | Recalled, Abandoned) => {
            (Dead, Some(Finish { failed: true }))
        }
        (Killing | Restarting | Recalled, GraceOver) => (state, Some(ForceKill)),

        (Restarting | Recalled, DelayOver) => (state, Some(SendKillSignal)),
        (Running, Restart) => (Restarting, Some(SendKillSignal)),
        (Restarting, Exited(_)) => {
            (Backoff, Some(WaitToRestart { delay: Nanos::ZERO, reason: RestartReason::Requested }))
        }
        (Running, Recall) | (Recalled, Started) => (Recalled, Some(SendKillSignal)),
        (Starting, Recall) => (Recalled, Some(AwaitLaunch)),
        (Restarting, Recall) => (Recalled, Some(AwaitEnd)),
        (Backoff | Dead, Recall) | (Recalled, Exited(_) | StartFailed(_)) => (Pending, Some(AwaitTurn)),

        // Late or repeated events change nothing.
        (Pending, Started | StartFailed(_) | Exited(_) | BackoffOver | DelayOver | GraceOver | Restart | Recall)
        | (Starting, Start | Restored | Lost | Exited(_) | BackoffOver | DelayOver | GraceOver | Restart)
        | (Running, Start | Restored | Lost | Started | StartFailed(_) | BackoffOver | DelayOver | GraceOver)
        | (Backoff, Start | Restored | Lost | Started | StartFailed(_) | Exited(_) | DelayOver | GraceOver | Restart)
        | (Killing, Start | Restored | Lost | BackoffOver | Kill | Restart | Recall)
        | (Restarting, Start | Restored | Lost | Started | StartFailed(_) | BackoffOver | Restart)
        | (Recalled, Start | Restored | Lost | BackoffOver | Restart | Recall)
        | (
            Dead,
            Start | Restored | Lost | Started | StartFailed(_) | Exited(_) | BackoffOver | Kill | DelayOver | GraceOver
            | Abandoned | Restart,
        ) => (state, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::runner::decide::restart::FinishReason;

    const RESTART: Decision = Decision::Restart { delay: Nanos(7), reason: RestartReason::Policy };
    const FAIL: Decision = Decision::Finish { failed: true, why: FinishReason::Exhausted };

    fn run(events: &[StepEvent]) -> (State, Vec<Action>) {
        let mut state = State::Pending;
        let mut actions = Vec::new();
        for event in events {
            let (next, action) = step(state, *event);
            state = next;
            actions.extend(action);
        }
        (state, actions)
    }

    #[test]
    fn a_crash_is_followed_by_backoff_and_a_new_launch() {
        let (state, actions) =
            run(&[StepEvent::Start, StepEvent::Started, StepEvent::Exited(RESTART), StepEvent::BackoffOver]);
        assert_eq!(state, State::Starting);
        let waits = Action::WaitToRestart { delay: Nanos(7), reason: RestartReason::Policy };
        assert_eq!(actions, [Action::Launch, waits, Action::Launch]);
    }

    #[test]
    fn kill_during_backoff_does_not_start_again() {
        let (state, actions) = run(&[
            StepEvent::Start,
            StepEvent::Started,
            StepEvent::Exited(RESTART),
            StepEvent::Kill,
            StepEvent::BackoffOver,
            StepEvent::Start,
        ]);
        assert_eq!(state, State::Dead);
        assert_eq!(actions.last(), Some(&Action::Finish { failed: false }));
        assert_eq!(actions.iter().filter(|a| **a == Action::Launch).count(), 1);
    }

    #[test]
    fn kill_during_start_waits_for_the_process_and_then_kills_it() {
        let (state, actions) =
            run(&[StepEvent::Start, StepEvent::Kill, StepEvent::Started, StepEvent::Exited(RESTART)]);
        assert_eq!(state, State::Dead);
        let expected = [Action::Launch, Action::AwaitLaunch, Action::SendKillSignal, Action::Finish { failed: false }];
        assert_eq!(actions, expected);
    }

    #[test]
    fn a_task_that_outlives_sigkill_is_abandoned() {
        let (state, actions) = run(&[
            StepEvent::Start,
            StepEvent::Started,
            StepEvent::Kill,
            StepEvent::Kill,
            StepEvent::GraceOver,
            StepEvent::Abandoned,
        ]);
        assert_eq!(state, State::Dead);
        let expected = [Action::Launch, Action::SendKillSignal, Action::ForceKill, Action::Finish { failed: true }];
        assert_eq!(actions, expected, "a second kill repeats nothing");
    }

    fn any_event() -> impl Strategy<Value = StepEvent> {
        let decision = prop_oneof![Just(RESTART), Just(FAIL)];
        prop_oneof![
            Just(StepEvent::Start),
            Just(StepEvent::Restored),
            Just(StepEvent::Lost),
            Just(StepEvent::Started),
            decision.clone().prop_map(StepEvent::StartFailed),
            decision.prop_map(StepEvent::Exited),
            Just(StepEvent::BackoffOver),
            Just(StepEvent::Kill),
            Just(StepEvent::Restart),
            Just(StepEvent::Recall),
            Just(StepEvent::DelayOver),
            Just(StepEvent::GraceOver),
            Just(StepEvent::Abandoned),
        ]
    }

    #[test]
    fn restart_ends_the_attempt_and_starts_another_without_delay() {
        let (state, actions) = run(&[
            StepEvent::Start,
            StepEvent::Started,
            StepEvent::Restart,
            StepEvent::Restart,
            StepEvent::Exited(FAIL),
            StepEvent::BackoffOver,
            StepEvent::Started,
        ]);
        assert_eq!(state, State::Running, "independent of the restart policy");
        let at_once = Action::WaitToRestart { delay: Nanos::ZERO, reason: RestartReason::Requested };
        assert_eq!(actions, [Action::Launch, Action::SendKillSignal, at_once, Action::Launch]);
    }

    #[test]
    fn a_recalled_task_waits_for_its_turn_wherever_it_was() {
        let there: [&[StepEvent]; 5] = [
            &[StepEvent::Start, StepEvent::Recall, StepEvent::Started, StepEvent::Exited(FAIL)],
            &[StepEvent::Start, StepEvent::Recall, StepEvent::StartFailed(RESTART)],
            &[StepEvent::Start, StepEvent::Started, StepEvent::Restart, StepEvent::Recall, StepEvent::Exited(RESTART)],
            &[StepEvent::Start, StepEvent::Started, StepEvent::Exited(RESTART), StepEvent::Recall],
            &[StepEvent::Start, StepEvent::Started, StepEvent::Exited(FAIL), StepEvent::Recall],
        ];
        for events in there {
            let (state, actions) = run(events);
            assert_eq!((state, actions.last()), (State::Pending, Some(&Action::AwaitTurn)), "{events:?}");
        }
    }

    #[test]
    fn a_task_that_outlives_its_restart_is_not_started_beside_itself() {
        for request in [StepEvent::Restart, StepEvent::Recall] {
            let (state, actions) = run(&[
                StepEvent::Start,
                StepEvent::Started,
                request,
                StepEvent::GraceOver,
                StepEvent::Abandoned,
                StepEvent::Exited(RESTART),
            ]);
            assert_eq!(state, State::Dead);
            assert_eq!(actions[2..], [Action::ForceKill, Action::Finish { failed: true }]);
        }
    }

    proptest! {
        #[test]
        fn no_event_after_dead_causes_an_action_but_a_recall(events in proptest::collection::vec(any_event(), 0..40)) {
            let (mut state, mut finished) = (State::Pending, 0);
            for event in events {
                if state == State::Dead && event == StepEvent::Recall {
                    prop_assert_eq!(step(state, event), (State::Pending, Some(Action::AwaitTurn)));
                    continue;
                }
                let was_dead = state == State::Dead;
                let (next, action) = step(state, event);
                prop_assert!(!was_dead || (next == State::Dead && action.is_none()), "{event:?}");
                finished += u32::from(matches!(action, Some(Action::Finish { .. })));
                prop_assert_eq!(next == State::Dead, finished == 1);
                state = next;
            }
        }

        #[test]
        fn after_a_kill_nothing_is_launched(
            before in proptest::collection::vec(any_event(), 0..20),
            after in proptest::collection::vec(any_event(), 0..20),
        ) {
            let mut state = State::Pending;
            for event in before {
                state = step(state, event).0;
            }
            state = step(state, StepEvent::Kill).0;
            // After a restart of the whole alloc, launches are allowed again.
            for event in after.into_iter().filter(|e| *e != StepEvent::Recall) {
                let (next, action) = step(state, event);
                prop_assert!(!matches!(action, Some(Action::Launch | Action::WaitToRestart { .. })), "{event:?}");
                state = next;
            }
        }

        /// For all events between the request and the new attempt, except a kill and an abandonment.
        #[test]
        fn after_a_restart_exactly_one_attempt_is_launched(
            between in proptest::collection::vec(any_event(), 0..20),
            after in proptest::collection::vec(any_event(), 0..20),
        ) {
            let ends = |e: &StepEvent| {
                matches!(e, StepEvent::Kill | StepEvent::Abandoned | StepEvent::Recall | StepEvent::Exited(_))
            };
            let mut state = run(&[StepEvent::Start, StepEvent::Started, StepEvent::Restart]).0;
            let mut launched = 0;
            let noise = between.into_iter().filter(|e| !ends(e));
            // The end of the new attempt is not part of this test.
            let starts = |e: &StepEvent| matches!(e, StepEvent::Restart | StepEvent::StartFailed(_));
            let late = after.into_iter().filter(|e| !ends(e) && !starts(e));
            for event in noise.chain([StepEvent::Exited(FAIL), StepEvent::BackoffOver]).chain(late) {
                let (next, action) = step(state, event);
                launched += u32::from(action == Some(Action::Launch));
                prop_assert!(!matches!(action, Some(Action::Finish { .. })), "{event:?}");
                state = next;
            }
            prop_assert_eq!(launched, 1);
        }
    }
}
