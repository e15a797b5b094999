//! What became of the tasks of an earlier agent, for the totals. Pure.

use std::sync::Arc;

use super::exits::exit;
use super::journal::{RecordedTask, TaskHistory};
use super::observed_allocs::TotalsChange;
use super::texts::{ChangedTextCounts, sanitize};
use crate::model::id::JobId;
use crate::model::observed::RestartCause;
use crate::model::totals::observed_key;
use crate::model::units::Timestamp;

/// What a task used under an earlier agent becomes part of the totals. The task runs, and counts from now on.
pub(super) fn count_unseen(task: &mut RecordedTask) -> Option<TotalsChange> {
    let used = std::mem::take(&mut task.used);
    task.earlier.base = Arc::new(used.on_top_of(&task.earlier.base).without_live());
    task.is_counted = true;
    Some(TotalsChange::Covered(totals_key(task)?, task.task.clone(), used))
}

/// Under which the totals of a persisted task are kept.
fn totals_key(task: &RecordedTask) -> Option<JobId> {
    let source = task.naming.source.unwrap_or(task.source);
    let named =
        || sanitize(task.naming.clone(), &mut ChangedTextCounts::default()).workload.as_deref().map(JobId::from);
    Some(observed_key(source, &task.workload.clone().or_else(named)?))
}

/// A task that ended while no agent ran: uses its persisted usage; the time of the end is unknown. Returns its history
/// and the change of totals.
pub(super) fn ended_unseen(task: RecordedTask, now: Timestamp) -> (TaskHistory, Option<TotalsChange>) {
    let key = totals_key(&task);
    let exit = exit(None, task.earlier.attempts, None, now, task.used);
    let ended = Some(RestartCause::Other);
    let mut earlier = TaskHistory { attempts: task.earlier.attempts + 1, ended, last_exit: None, ..task.earlier };
    earlier.base = Arc::new(exit.usage.on_top_of(&earlier.base).without_live());
    earlier.exit_counts[exit.outcome.index()] += 1;
    (earlier, key.map(|key| TotalsChange::Ended(key, task.task, Box::new(exit))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::AllocSource;
    use crate::model::id::BootId;
    use crate::model::totals::Totals;
    use crate::model::usage::{Field, Usage};
    use crate::observe::identity::TaskNaming;

    fn task() -> RecordedTask {
        let used = |ns| Arc::new(Usage::from([(Field::cpu_usage_ns, ns)]));
        RecordedTask {
            alloc: "docker:web".into(),
            task: "web".into(),
            source: AllocSource::Docker,
            naming: TaskNaming { workload: Some("shop".to_owned()), ..TaskNaming::of("web") },
            workload: None,
            path: "/docker/1".to_owned(),
            inode: 1,
            boot_id: BootId("b".to_owned()),
            since: None,
            earlier: TaskHistory { base: used(10), attempts: 3, ..TaskHistory::default() },
            used: used(5),
            is_counted: false,
        }
    }
    fn total(changes: impl IntoIterator<Item = TotalsChange>) -> (Option<u64>, u64) {
        let mut totals = Totals::default();
        changes.into_iter().for_each(|change| change.apply(&mut totals));
        let of = &totals.workloads[&("docker:shop".into(), "web".into())];
        (of.usage.cpu_usage_ns(), of.exits.iter().sum())
    }

    #[test]
    fn usage_of_a_task_that_is_not_shown_is_counted_once_and_without_an_end() {
        let mut task = task();
        let changes = [count_unseen(&mut task), count_unseen(&mut task)];
        assert_eq!(total(changes.into_iter().flatten()), (Some(5), 0));
        assert_eq!((task.earlier.base.cpu_usage_ns(), task.earlier.attempts, task.is_counted), (Some(15), 3, true));
        // Its end is counted, and none of its usage again.
        let (earlier, ended) = ended_unseen(task, Timestamp(9));
        assert_eq!(total(ended), (None, 1));
        assert_eq!((earlier.base.cpu_usage_ns(), earlier.attempts), (Some(15), 4));
    }

    #[test]
    fn task_that_ended_without_an_agent_counts_with_its_last_usage() {
        let (earlier, ended) = ended_unseen(task(), Timestamp(9));
        assert_eq!(total(ended), (Some(5), 1));
        assert_eq!(earlier.base.cpu_usage_ns(), Some(15));
    }
}
