//! Decides what the start of the agent does about a task, from its record. Pure.

use crate::model::task::{TaskHandle, TaskState};

/// What the start of the agent does about a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskRecovery {
    /// Dead: only shown.
    Ended,
    /// Nothing of it runs: its owner continues from the record, from the start or in backoff.
    GoOn,
    /// An attempt was prepared: the driver finds out whether it runs, has ended or never started.
    Recover(Box<TaskHandle>),
    /// Whether it runs is unknown, for this reason: it must not be started a second time.
    Lost(String),
}

/// What is left of a task without a record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskRemains {
    /// It had a record that could not be read, now or at an earlier start.
    pub unreadable: bool,
    /// The handle in the run directory of its newest attempt. Errors: it cannot be read, or belongs to another task.
    pub left: Option<Result<TaskHandle, String>>,
}

/// `record`: the recorded state and the handle, if any.
pub fn plan(record: Option<(TaskState, Option<&TaskHandle>)>, trace: &TaskRemains) -> TaskRecovery {
    match record {
        // The counters are lost with the record, but the task is not.
        None => match (&trace.left, trace.unreadable) {
            (Some(Ok(handle)), true | false) => TaskRecovery::Recover(Box::new(handle.clone())),
            (Some(Err(why)), true | false) => TaskRecovery::Lost(why.clone()),
            (None, true) => TaskRecovery::Lost("its record cannot be read".to_owned()),
            (None, false) => TaskRecovery::GoOn,
        },
        Some(known) => match known {
            (TaskState::Dead, Some(_) | None) => TaskRecovery::Ended,
            (
                TaskState::Pending | TaskState::Starting | TaskState::Running | TaskState::Backoff | TaskState::Killing,
                Some(handle),
            ) => TaskRecovery::Recover(Box::new(handle.clone())),
            (
                TaskState::Pending | TaskState::Starting | TaskState::Running | TaskState::Backoff | TaskState::Killing,
                None,
            ) => TaskRecovery::GoOn,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::BootId;

    fn handle(attempt: u32) -> TaskHandle {
        TaskHandle {
            driver: "raw_exec".to_owned(),
            attempt,
            boot_id: BootId("boot".to_owned()),
            run_dir: format!("run/t/{attempt}").into(),
            cgroup: None,
            supervisor: None,
            main: None,
            started_at: None,
            driver_state: None,
            network: None,
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum TaskRecoveryKind {
        Ended,
        GoOn,
        Recover,
    }
    use TaskRecoveryKind::{Ended as End, GoOn, Recover};

    /// By recorded state: without and with a handle. A prepared task that is not known to have ended is recovered by
    /// its driver. An ended one is left alone, even if processes may be left.
    const TABLE: [(TaskState, TaskRecoveryKind, TaskRecoveryKind); TaskState::ALL.len()] = [
        (TaskState::Pending, GoOn, Recover),
        (TaskState::Starting, GoOn, Recover),
        (TaskState::Running, GoOn, Recover),
        (TaskState::Backoff, GoOn, Recover),
        (TaskState::Killing, GoOn, Recover),
        (TaskState::Dead, End, End),
    ];

    fn of(kind: TaskRecoveryKind, handle: Option<&TaskHandle>) -> TaskRecovery {
        match (kind, handle) {
            (End, _) => TaskRecovery::Ended,
            (GoOn, _) => TaskRecovery::GoOn,
            (Recover, handle) => TaskRecovery::Recover(Box::new(handle.expect("the table requires one").clone())),
        }
    }

    /// Promise (Task groups and lifecycle order): P-12.1 The action of a start on a task follows a table of its records
    #[test]
    fn plan_follows_from_the_record_of_a_task() {
        assert_eq!(TABLE.map(|(state, ..)| state), TaskState::ALL, "each state has its line");
        let trace = |unreadable, left| TaskRemains { unreadable, left };
        assert_eq!(plan(None, &trace(false, None)), TaskRecovery::GoOn, "submitted, and no record was written");
        let lost = |why: &str| TaskRecovery::Lost(why.to_owned());
        let unreadable = lost("its record cannot be read");
        assert_eq!(plan(None, &trace(true, None)), unreadable, "it has run: it is not started a second time");
        for unreadable in [false, true] {
            let left = |left| plan(None, &trace(unreadable, Some(left)));
            assert_eq!(left(Ok(handle(3))), TaskRecovery::Recover(Box::new(handle(3))), "its directory names it");
            assert_eq!(left(Err("torn".to_owned())), lost("torn"), "it may run");
        }
        for (state, without, with) in TABLE {
            // The record of this task was read, whatever happened to others.
            for whatever in [trace(false, None), trace(true, Some(Ok(handle(7))))] {
                assert_eq!(plan(Some((state, None)), &whatever), of(without, None), "{state:?}");
                for attempt in 0..2 {
                    let handle = handle(attempt);
                    assert_eq!(plan(Some((state, Some(&handle))), &whatever), of(with, Some(&handle)), "{state:?}");
                }
            }
        }
    }
}
