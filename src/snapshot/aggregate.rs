//! Tasks into allocs. Pure.

use std::sync::Arc;

use super::{AllocView, TaskView};
use crate::collectors::Reading;
use crate::model::alloc::AllocStatus;
use crate::model::task::TaskStatus;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

/// A task as it stands: all attempts together. `until`: up to when its state is shown. `previous`: what the last snapshot
/// showed, and its `steady_at`.
pub fn task(
    status: &Arc<TaskStatus>,
    reading: Option<&Reading>,
    until: Timestamp,
    previous: Option<(&TaskView, Timestamp)>,
) -> TaskView {
    let attempt = reading.map(|r| Arc::clone(&r.usage));
    let mut usage = match &attempt {
        // The first attempt has nothing below it: nothing to add, nothing to copy.
        Some(attempt) if *status.base == Usage::default() => Arc::clone(attempt),
        Some(attempt) => Arc::new(attempt.on_top_of(&status.base)),
        None => Arc::new(status.base.without_live()),
    };
    let mut finished_dwells = status.time_in_state;
    let mut sampled_at = reading.map(|r| r.at);
    if let Some((earlier, steady_at)) = previous {
        never_fall(&mut usage, &earlier.usage);
        if !Arc::ptr_eq(status, &earlier.status) {
            keep_dwells(&mut finished_dwells, status, until, earlier, steady_at);
        }
        if sampled_at.is_none() {
            sampled_at = earlier.sampled_at;
        }
    }
    TaskView { status: Arc::clone(status), usage, attempt, sampled_at, finished_dwells, until }
}

/// Counters and peaks never fall from one snapshot to the next, whatever a source says.
pub fn never_fall(usage: &mut Arc<Usage>, earlier: &Usage) {
    if usage.falls_below(earlier) {
        Arc::make_mut(usage).not_below(earlier);
    }
}

/// A dwell that was shown as it ran may not get shorter when it ends: clocks jump.
fn keep_dwells(
    dwells: &mut [Nanos; 6],
    status: &TaskStatus,
    until: Timestamp,
    earlier: &TaskView,
    steady_at: Timestamp,
) {
    for state in crate::model::task::TaskState::ALL {
        let present = if status.state == state { steady_at.min(until).since(status.state_since) } else { Nanos::ZERO };
        let least = earlier.time_in(state, steady_at).saturating_sub(present);
        let dwell = &mut dwells[state.index()];
        *dwell = (*dwell).max(least);
    }
}

/// What can be added over tasks: counters of all, gauges of those that run. Never a peak or a limit.
///
/// A gauge that one running task lacks is absent: a sum without a part is no sum. A counter that one lacks (it was never
/// read, or has no such file) counts nothing there.
pub fn sum(tasks: &[Arc<TaskView>]) -> Usage {
    let mut sum = Usage::default();
    for task in tasks {
        sum.add_used(&task.usage);
    }
    for attempt in tasks.iter().filter_map(|t| t.attempt.as_ref()) {
        sum.drop_live_unknown_to(attempt);
    }
    sum
}

/// The alloc's own cgroup: what it says now on top of what its earlier cgroups said last, and of its tasks what only they tell.
///
/// It was read right after its tasks, not in the same instant, and what of them did not move was not read again: where it says
/// less than they do, they are right about the moment in which they were read. Without an attempt that was read nothing of it
/// runs, and nothing is used now.
pub fn own_cgroup(reading: Option<&Reading>, base: &Usage, tasks: &[Arc<TaskView>]) -> Usage {
    let mut own = match reading {
        // Its first cgroup has nothing below it: nothing to add.
        Some(reading) if *base == Usage::default() => Usage::clone(&reading.usage),
        Some(reading) => reading.usage.on_top_of(base),
        None => base.without_live(),
    };
    if !tasks.iter().any(|task| task.attempt.is_some()) {
        own = own.without_live();
    }
    if let [only] = tasks {
        own.take_from_tasks(&only.usage);
        if is_first(&only.status) {
            own.use_now_what(&only.usage);
        }
        own.hold_part(&only.usage, true);
    } else {
        let sum = sum(tasks);
        own.take_from_tasks(&sum);
        own.hold_sum(&sum);
        tasks.iter().for_each(|task| own.hold_part(&task.usage, false));
    }
    own
}

/// Whether nobody but its only task was ever charged in the alloc's own cgroup: what that task uses now is what the alloc uses.
pub fn speaks_for_its_alloc(status: &AllocStatus) -> bool {
    matches!(&*status.tasks, [only] if is_first(only))
}

fn is_first(task: &TaskStatus) -> bool {
    task.attempt == 0
}

/// How many final series an alloc has, and how many bytes of exposition they take: an estimate, on the high side, for the
/// budget of [`super::retention`].
pub fn extent(view: &AllocView) -> super::retention::Extent {
    /// `task_info`, states, dwells, restarts, state since.
    const PER_TASK: u64 = 18;
    /// A name, a value, the label names.
    const BYTES: usize = 90;
    let count = |usage: &Usage| u64::try_from(usage.iter().count()).unwrap_or(u64::MAX);
    let labels = view.status.id.as_str().len() + view.status.workload().as_str().len();
    let of_alloc = count(&view.usage) + 1;
    let mut series = of_alloc;
    let mut bytes = of_alloc * bytes_of(labels + BYTES);
    for task in &view.tasks {
        let of_task = count(&task.usage) + PER_TASK;
        series += of_task;
        bytes += of_task * bytes_of(labels + task.status.name.as_str().len() + BYTES);
    }
    super::retention::Extent { series, bytes }
}

fn bytes_of(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
