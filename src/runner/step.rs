//! Pure: what a task does next. The only place where a task's state changes.
//!
//! ```text
//!            Start              Started               Exited: restart
//! Pending ──────────► Starting ─────────► Running ────────────────────► Backoff
//!    │                 │  ▲  └─ StartFailed: restart ─────────────────►  │  │
//!    │                 │  └───────────────── BackoffOver ────────────────┘  │
//!    │                 │ Kill                │ Kill       Exited: finish    │ Kill
//!    │ Kill            └──────► Killing ◄────┤────────────► Dead ◄──────────┘
//!    └────────────────────────────────────────────────────► Dead
//!                               Killing ── Exited, StartFailed, GivenUp ──► Dead
//! ```

use super::restart::Decision;
use crate::model::task::{RestartReason, TaskState};
use crate::model::units::Nanos;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its turn has come.
    Start,
    /// Found running after a restart of the agent.
    Restored,
    /// A restart of the agent found that it had run, but not how to find it again.
    Lost,
    Started,
    StartFailed(Decision),
    /// The whole process tree is gone.
    Exited(Decision),
    BackoffOver,
    /// Somebody asks for its end.
    Kill,
    /// The delay before its kill signal is over.
    DelayOver,
    /// It has not followed the kill signal in its time.
    GraceOver,
    /// It has not ended by force either.
    GivenUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Directories, environment, durable handle, driver.
    Launch,
    /// Count the restart and wake up after the delay.
    WaitToRestart { delay: Nanos, reason: RestartReason },
    /// The kill signal to the main process (after the task's delay), and a timer for its grace.
    SendKillSignal,
    /// A timer for the grace alone: there is no process yet.
    AwaitLaunch,
    /// Every process, and a timer after which we give up.
    ForceKill,
    /// Nothing follows.
    Finish { failed: bool },
}

pub fn step(state: TaskState, event: Event) -> (TaskState, Option<Action>) {
    use Action::{AwaitLaunch, Finish, ForceKill, Launch, SendKillSignal, WaitToRestart};
    use Event::{
        BackoffOver, DelayOver, Exited, GivenUp, GraceOver, Kill, Lost, Restored, Start, StartFailed, Started,
    };
    use TaskState::{Backoff, Dead, Killing, Pending, Running, Starting};
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
        (Killing, GraceOver) => (Killing, Some(ForceKill)),
        (Killing, Exited(_) | StartFailed(_)) => (Dead, Some(Finish { failed: false })),
        (Killing, GivenUp) => (Dead, Some(Finish { failed: true })),
        // Late or repeated events change nothing.
        (Pending, Started | StartFailed(_) | Exited(_) | BackoffOver | DelayOver | GraceOver | GivenUp)
        | (Starting, Start | Restored | Lost | Exited(_) | BackoffOver | DelayOver | GraceOver | GivenUp)
        | (
            Running,
            Start | Restored | Lost | Started | StartFailed(_) | BackoffOver | DelayOver | GraceOver | GivenUp,
        )
        | (Backoff, Start | Restored | Lost | Started | StartFailed(_) | Exited(_) | DelayOver | GraceOver | GivenUp)
        | (Killing, Start | Restored | Lost | BackoffOver | Kill)
        | (
            Dead,
            Start | Restored | Lost | Started | StartFailed(_) | Exited(_) | BackoffOver | Kill | DelayOver | GraceOver
            | GivenUp,
        ) => (state, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::runner::restart::Why;

    const RESTART: Decision = Decision::Restart { delay: Nanos(7), reason: RestartReason::Policy };
    const FAIL: Decision = Decision::Finish { failed: true, why: Why::Exhausted };

    fn run(events: &[Event]) -> (TaskState, Vec<Action>) {
        let mut state = TaskState::Pending;
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
        let (state, actions) = run(&[Event::Start, Event::Started, Event::Exited(RESTART), Event::BackoffOver]);
        assert_eq!(state, TaskState::Starting);
        let waits = Action::WaitToRestart { delay: Nanos(7), reason: RestartReason::Policy };
        assert_eq!(actions, [Action::Launch, waits, Action::Launch]);
    }

    #[test]
    fn kill_during_backoff_does_not_start_again() {
        let (state, actions) =
            run(&[Event::Start, Event::Started, Event::Exited(RESTART), Event::Kill, Event::BackoffOver, Event::Start]);
        assert_eq!(state, TaskState::Dead);
        assert_eq!(actions.last(), Some(&Action::Finish { failed: false }));
        assert_eq!(actions.iter().filter(|a| **a == Action::Launch).count(), 1);
    }

    #[test]
    fn kill_during_start_waits_for_the_process_and_then_kills_it() {
        let (state, actions) = run(&[Event::Start, Event::Kill, Event::Started, Event::Exited(RESTART)]);
        assert_eq!(state, TaskState::Dead);
        let expected = [Action::Launch, Action::AwaitLaunch, Action::SendKillSignal, Action::Finish { failed: false }];
        assert_eq!(actions, expected);
    }

    #[test]
    fn a_task_that_ignores_its_signal_is_killed_by_force_and_given_up_at_last() {
        let (state, actions) =
            run(&[Event::Start, Event::Started, Event::Kill, Event::Kill, Event::GraceOver, Event::GivenUp]);
        assert_eq!(state, TaskState::Dead);
        let expected = [Action::Launch, Action::SendKillSignal, Action::ForceKill, Action::Finish { failed: true }];
        assert_eq!(actions, expected, "a second kill repeats nothing");
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let decision = prop_oneof![Just(RESTART), Just(FAIL)];
        prop_oneof![
            Just(Event::Start),
            Just(Event::Restored),
            Just(Event::Lost),
            Just(Event::Started),
            decision.clone().prop_map(Event::StartFailed),
            decision.prop_map(Event::Exited),
            Just(Event::BackoffOver),
            Just(Event::Kill),
            Just(Event::DelayOver),
            Just(Event::GraceOver),
            Just(Event::GivenUp),
        ]
    }

    proptest! {
        #[test]
        fn no_event_after_dead_causes_an_action(events in proptest::collection::vec(any_event(), 0..40)) {
            let (mut state, mut finished) = (TaskState::Pending, 0);
            for event in events {
                let was_dead = state == TaskState::Dead;
                let (next, action) = step(state, event);
                prop_assert!(!was_dead || (next == TaskState::Dead && action.is_none()), "{event:?}");
                finished += u32::from(matches!(action, Some(Action::Finish { .. })));
                prop_assert_eq!(next == TaskState::Dead, finished == 1);
                state = next;
            }
        }

        #[test]
        fn after_a_kill_nothing_is_launched(
            before in proptest::collection::vec(any_event(), 0..20),
            after in proptest::collection::vec(any_event(), 0..20),
        ) {
            let mut state = TaskState::Pending;
            for event in before {
                state = step(state, event).0;
            }
            state = step(state, Event::Kill).0;
            for event in after {
                let (next, action) = step(state, event);
                prop_assert!(!matches!(action, Some(Action::Launch | Action::WaitToRestart { .. })), "{event:?}");
                state = next;
            }
        }
    }
}
