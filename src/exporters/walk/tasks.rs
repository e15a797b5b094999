//! What allocs and tasks are, and what tasks go through.

use super::lifecycle::{ALLOC_INFO, TASK_INFO, TASK_RESTARTS, TASK_STATE, TASK_STATE_SINCE, TASK_TIME_IN_STATE};
use super::listener::{Families, Listener, Rows, SINGLE, by, int, plain};
use super::rows::Walk;
use crate::exporters::families::Level;
use crate::model::metric::Value;
use crate::model::task::{RestartReason, TaskState};

const TASKS: Rows = Rows::Of(Level::Task);

/// What they say is in the info of their subjects.
pub(super) fn infos(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    out.all(&ALLOC_INFO, Rows::Of(Level::Alloc), SINGLE, walk.allocs.iter().map(|_| [int(1)]));
    out.all(&TASK_INFO, TASKS, SINGLE, walk.tasks.iter().map(|_| [int(1)]));
}

pub(super) fn states(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let states = by("state", TaskState::ALL.map(TaskState::as_str));
    let tasks = || walk.tasks.iter().map(|(_, task)| *task);
    let steady_at = walk.snapshot.steady_at;
    out.all(
        &TASK_STATE,
        TASKS,
        &states,
        tasks().map(|t| TaskState::ALL.map(|state| int(u64::from(t.status.state == state)))),
    );
    out.all(&TASK_STATE_SINCE, TASKS, SINGLE, tasks().map(|t| [plain(Value::Nanos(t.status.state_since.0))]));
    out.all(
        &TASK_TIME_IN_STATE,
        TASKS,
        &states,
        tasks().map(|t| TaskState::ALL.map(|state| plain(Value::Nanos(t.time_in(state, steady_at).0)))),
    );
    let reasons = by("reason", RestartReason::ALL.map(RestartReason::as_str));
    out.all(&TASK_RESTARTS, TASKS, &reasons, tasks().map(|t| t.status.restarts.map(int)));
}
