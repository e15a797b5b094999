//! Tasks into allocs. Pure.

use std::sync::Arc;

use super::{AllocView, ManagedTaskLifecycle, TaskView};
use crate::collectors::Reading;
use crate::model::alloc::AllocStatus;
use crate::model::observed::ObservedTask;
use crate::model::task::{TaskState, TaskStatus};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

/// A task as it stands: all attempts together. `status`: of a managed one; `observed`: of an observed one. `until`: up
/// to when its state is shown. `previous`: what the last snapshot showed, and its `steady_at`.
pub fn task(
    (status, observed): (Option<&Arc<TaskStatus>>, Option<&Arc<ObservedTask>>),
    reading: Option<&Reading>,
    until: Timestamp,
    previous: Option<(&TaskView, Timestamp)>,
) -> TaskView {
    let attempt = reading.filter(|r| !r.is_end).map(|r| Arc::clone(&r.usage));
    // The first attempt has nothing below it: nothing to add, nothing to copy.
    let base = status.map(|status| &*status.base).or(observed.map(|task| &*task.base));
    let base = base.filter(|base| **base != Usage::default());
    // Of one that has ended too, until that is shown: it is not in the base yet.
    let mut usage = match (reading.map(|r| &r.usage), base) {
        (Some(attempt), None) => Arc::clone(attempt),
        (Some(attempt), Some(base)) => Arc::new(attempt.on_top_of(base)),
        (None, base) => base.map_or_else(Arc::default, |base| Arc::new(base.without_live())),
    };
    if let Some((earlier, _)) = previous {
        never_fall(&mut usage, &earlier.usage);
    }
    let managed = status.map(|status| {
        let mut finished_dwells = status.time_in_state;
        if let Some((earlier, steady_at)) = previous.and_then(|(p, at)| Some((p.managed.as_ref()?, at)))
            && !Arc::ptr_eq(status, &earlier.status)
        {
            keep_dwells(&mut finished_dwells, status, until, earlier, steady_at);
        }
        ManagedTaskLifecycle { status: Arc::clone(status), finished_dwells, until }
    });
    let sampled_at = reading.map(|r| r.at).or_else(|| previous?.0.sampled_at);
    let before = reading.filter(|r| !r.is_end).and_then(|r| r.before.clone());
    let started_at = started_at((status, observed), reading);
    let disks = reading.filter(|r| !r.is_end).and_then(|r| r.disks.clone());
    TaskView { managed, observed: observed.cloned(), usage, attempt, sampled_at, before, started_at, disks }
}

/// When the process that runs now was started: as its runner recorded it, as the observer saw it, or by its processes.
fn started_at(
    (status, observed): (Option<&Arc<TaskStatus>>, Option<&Arc<ObservedTask>>),
    reading: Option<&Reading>,
) -> Option<Timestamp> {
    let by_processes = || reading.filter(|reading| !reading.is_end)?.began;
    match (status, observed) {
        (Some(status), _) => match status.state {
            TaskState::Running | TaskState::Killing => status.started_at,
            TaskState::Pending | TaskState::Starting | TaskState::Backoff | TaskState::Dead => None,
        },
        (None, Some(observed)) if observed.runs => observed.since.or_else(by_processes),
        (None, Some(_)) => None,
        (None, None) => by_processes(),
    }
}

/// Counters and peaks never fall from one snapshot to the next, whatever a source reports.
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
    earlier: &ManagedTaskLifecycle,
    steady_at: Timestamp,
) {
    for state in TaskState::ALL {
        let present = if status.state == state { steady_at.min(until).since(status.state_since) } else { Nanos::ZERO };
        let least = earlier.time_in(state, steady_at).saturating_sub(present);
        let dwell = &mut dwells[state.index()];
        *dwell = (*dwell).max(least);
    }
}

/// What can be added over tasks: counters of all, gauges of those that run. Never a peak or a limit.
///
/// A gauge that one running task lacks is absent: a sum without a part is no sum. A counter that one lacks (it was
/// never read, or has no such file) counts nothing there.
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

/// The alloc's own cgroup: its values on top of the last ones of its earlier cgroups, and what only its tasks have.
///
/// It was read right after its tasks, not in the same instant, and unchanged tasks were not read again. Where its
/// values are lower than theirs, theirs are right for the moment in which they were read. Without an attempt that was
/// read nothing of it runs, and nothing is used now.
pub fn own_cgroup(reading: Option<&Reading>, base: &Arc<Usage>, tasks: &[Arc<TaskView>]) -> Arc<Usage> {
    if let ([only], Some(reading)) = (tasks, reading)
        && is_its_own(only, reading, base)
    {
        return Arc::clone(&only.usage);
    }
    Arc::new(reconciled_alloc_usage(reading, base, tasks))
}

/// The task's cgroup is the alloc's, and what was before it too: the two use the same.
fn is_its_own(task: &TaskView, reading: &Reading, base: &Arc<Usage>) -> bool {
    let same_attempt = task.attempt.as_ref().is_some_and(|attempt| Arc::ptr_eq(attempt, &reading.usage));
    same_attempt && task.observed.as_ref().is_some_and(|observed| Arc::ptr_eq(&observed.base, base))
}

fn reconciled_alloc_usage(reading: Option<&Reading>, base: &Usage, tasks: &[Arc<TaskView>]) -> Usage {
    let mut own = match reading {
        // Its first cgroup has nothing below it: nothing to add.
        Some(reading) if *base == Usage::default() => Usage::clone(&reading.usage),
        Some(reading) => reading.usage.on_top_of(base),
        None => base.without_live(),
    };
    let itself = own.counted_by_itself();
    if !tasks.iter().any(|task| task.attempt.is_some()) {
        own = own.without_live();
    }
    if let [only] = tasks {
        own.take_from_tasks(&only.usage);
        if only.managed.as_ref().is_some_and(|task| is_first(&task.status)) {
            own.use_now_what(&only.usage);
        }
        own.hold_part(&only.usage, true);
    } else {
        let sum = sum(tasks);
        own.take_from_tasks(&sum);
        own.hold_sum(&sum);
        tasks.iter().for_each(|task| own.hold_part(&task.usage, false));
    }
    own.limited_itself(&itself);
    own
}

/// Sum of the memory limits of its tasks, from the job file. A task without a limit adds nothing.
pub fn memory_limits(status: &AllocStatus) -> u64 {
    let Some(group) = status.task_group() else { return 0 };
    group.tasks.iter().filter_map(|t| t.resources.memory_bytes).fold(0, u64::saturating_add)
}

/// Quotas are some ten thousand microseconds: exact in an `f64`.
#[allow(clippy::cast_precision_loss)]
pub fn quota_cores(usage: &Usage) -> Option<f64> {
    match (usage.cpu_quota_us(), usage.cpu_period_us()) {
        (Some(quota), Some(period)) if period > 0 => Some(quota as f64 / period as f64),
        _ => None,
    }
}

/// Since when the agent knew of the end: the process may have ended before, while the agent was down.
pub fn known_since(status: &AllocStatus) -> Option<Timestamp> {
    let of_task = |t: &Arc<TaskStatus>| {
        let last_event = t.events.back().map_or(Timestamp(0), |e| e.time);
        last_event.max(t.state_since)
    };
    status.tasks.iter().map(of_task).max()
}

/// Whether only the first attempt of its only task was ever charged in the alloc's own cgroup: what that task uses now
/// is what the alloc uses. Of an observed alloc that is unknown.
pub fn is_whole_alloc_usage(status: Option<&AllocStatus>) -> bool {
    status.is_some_and(|status| matches!(&*status.tasks, [only] if is_first(only)))
}

fn is_first(task: &TaskStatus) -> bool {
    task.attempt == 0
}

/// How many final series an alloc has, and how many bytes of exposition they take: an estimate, on the high side, for
/// the budget of [`super::retention`].
pub fn series_size(view: &AllocView) -> super::retention::SeriesSize {
    /// `task_info`, states, dwells, restarts, state since.
    const PER_TASK: u64 = 18;
    /// A name, a value, the label names.
    const BYTES: usize = 90;
    let count = |usage: &Usage| u64::try_from(usage.iter().count()).unwrap_or(u64::MAX);
    let identity = &view.identity;
    let labels = identity.id.as_str().len() + identity.workload.as_ref().map_or(0, |w| w.as_str().len());
    let of_alloc = count(&view.usage) + 1;
    let mut series = of_alloc;
    let mut bytes = of_alloc * bytes_of(labels + BYTES);
    for (known, task) in view.tasks() {
        let of_task = count(&task.usage) + PER_TASK;
        series += of_task;
        bytes += of_task * bytes_of(labels + known.name.as_str().len() + BYTES);
    }
    super::retention::SeriesSize { series, bytes }
}

fn bytes_of(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: Timestamp = Timestamp(7);
    const BY_PROCESSES: Timestamp = Timestamp(5);

    fn reading(is_end: bool) -> Reading {
        Reading { began: Some(BY_PROCESSES), is_end, ..Reading::of(Arc::default(), Timestamp(9)) }
    }

    #[test]
    fn managed_task_has_a_start_time_only_while_its_process_runs() {
        for state in TaskState::ALL {
            let known = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(0));
            let status = Arc::new(TaskStatus { state, started_at: Some(RECORDED), ..known });
            let runs = matches!(state, TaskState::Running | TaskState::Killing);
            let found = task((Some(&status), None), Some(&reading(false)), Timestamp(9), None).started_at;
            assert_eq!(found, runs.then_some(RECORDED), "{state:?}");
        }
    }

    #[test]
    fn observed_task_started_when_it_was_seen_to_or_else_when_its_oldest_process_did() {
        let started = |observed: Option<ObservedTask>, is_end| {
            let observed = observed.map(Arc::new);
            task((None, observed.as_ref()), Some(&reading(is_end)), Timestamp(9), None).started_at
        };
        let running = |since| Some(ObservedTask { runs: true, since, ..ObservedTask::default() });
        assert_eq!(started(running(Some(RECORDED)), false), Some(RECORDED));
        assert_eq!(started(running(None), false), Some(BY_PROCESSES), "it ran before the agent");
        assert_eq!(started(running(None), true), None, "its last values alone are left");
        let ended = ObservedTask { since: Some(RECORDED), ..ObservedTask::default() };
        assert_eq!(started(Some(ended), false), None, "that is when it ended");
        assert_eq!(started(None, false), Some(BY_PROCESSES), "a cgroup without an observer");
    }
}
