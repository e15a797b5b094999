//! What allocs and tasks are, and what tasks go through.

use super::lifecycle::{
    ALLOC_DISK_SIZE, ALLOC_DISK_USED, ALLOC_INFO, TASK_INFO, TASK_RESTARTS, TASK_START_TIME, TASK_STATE,
    TASK_STATE_SINCE, TASK_TIME_IN_STATE,
};
use super::listener::{Families, Listener, SINGLE, by, int, plain};
use super::rows::{ALLOC_ROWS, TASK_ROWS, Walk};
use crate::model::metric::Value;
use crate::model::task::{ShownState, TaskState};
use crate::snapshot::restarts::{self, knows_outcome};
use crate::snapshot::{AllocView, ManagedTaskLifecycle, TaskView};

/// What they say is in the info of their subjects.
pub(super) fn infos(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    out.all(&ALLOC_INFO, &ALLOC_ROWS, SINGLE, walk.allocs.iter().map(|_| [int(1)]));
    out.all(&TASK_INFO, &TASK_ROWS, SINGLE, walk.tasks.iter().map(|_| [int(1)]));
}

/// Of the directories of allocs.
pub(super) fn disks(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let (disk, now) = (&walk.snapshot.disk, walk.snapshot.taken_at);
    let used = |alloc: &AllocView| int(disk.get(&alloc.identity.id)?.at(now)?);
    let size = |alloc: &AllocView| {
        let status = alloc.status.as_ref().filter(|_| !alloc.ended)?;
        int(status.task_group()?.storage.disk_size().bytes())
    };
    out.all(&ALLOC_DISK_USED, &ALLOC_ROWS, SINGLE, walk.allocs.iter().map(|alloc| [used(alloc)]));
    out.all(&ALLOC_DISK_SIZE, &ALLOC_ROWS, SINGLE, walk.allocs.iter().map(|alloc| [size(alloc)]));
}

pub(super) fn states(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let states = by("state", TaskState::ALL.map(TaskState::as_str));
    // The states of an observed task between its start and its end are not known.
    let tasks = || walk.tasks.iter().map(|(_, (_, task))| task.managed.as_ref());
    let steady_at = walk.snapshot.steady_at;
    let views = || walk.tasks.iter().map(|(_, (_, task))| *task);
    // The other states of an observed task have a series only while they last.
    let has = |task: &TaskView, state| match &task.managed {
        Some(_) => state != ShownState::Paused,
        None => matches!(state, ShownState::Running | ShownState::Dead),
    };
    let in_state = |task: &TaskView, state| {
        let is_now = task.state()? == state;
        int(u64::from(is_now)).filter(|_| is_now || has(task, state))
    };
    let states_of = views().map(|task| ShownState::ALL.map(|state| in_state(task, state)));
    out.all(&TASK_STATE, &TASK_ROWS, &by("state", ShownState::ALL.map(ShownState::as_str)), states_of);
    let since = |task: &TaskView| {
        let managed = task.managed.as_ref().map(|task| task.status.state_since);
        let since = managed.or_else(|| task.observed.as_ref()?.state_since())?;
        plain(Value::Nanos(since.0))
    };
    out.all(&TASK_STATE_SINCE, &TASK_ROWS, SINGLE, views().map(|task| [since(task)]));
    let started = |task: &TaskView| plain(Value::Nanos(task.started_at?.0));
    out.all(&TASK_START_TIME, &TASK_ROWS, SINGLE, views().map(|task| [started(task)]));
    let time_in = |task: &ManagedTaskLifecycle, state| plain(Value::Nanos(task.time_in(state, steady_at).0));
    let dwells = tasks().map(|task| TaskState::ALL.map(|state| time_in(task?, state)));
    out.all(&TASK_TIME_IN_STATE, &TASK_ROWS, &states, dwells);
    let reasons = by("reason", restarts::REASONS);
    let info = &walk.snapshot.info;
    let is_end_known = |alloc: &AllocView| knows_outcome(alloc.identity.source, info);
    let restarts = walk.tasks.iter().map(|(alloc, (_, task))| task.restarts(is_end_known(alloc)).map(|n| int(n?)));
    out.all(&TASK_RESTARTS, &TASK_ROWS, &reasons, restarts);
}
