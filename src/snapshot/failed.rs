//! Allocs that have failed for good: they are not started again, and no later alloc has taken their place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::model::alloc::AllocStatus;
use crate::model::id::JobId;
use crate::model::task::Failure;

/// Allocs of a workload that have failed for good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureCounts {
    /// A task was restarted as often as its policy allows.
    pub restarts_used_up: u64,
    /// For any other reason.
    pub other: u64,
}

impl FailureCounts {
    /// As in the label of the series.
    pub const REASONS: [&'static str; 2] = ["restarts_used_up", "other"];
    /// In the order of [`FailureCounts::REASONS`].
    pub fn by_reason(self) -> [u64; 2] {
        [self.restarts_used_up, self.other]
    }
}

/// By workload; those without one are not in it.
pub type FailuresByWorkload = BTreeMap<JobId, FailureCounts>;

/// Pure. `allocs`: all that are known, in order of creation. Of a submission of the job that came later, or of the very
/// place in its group, what became of it is in that one.
pub fn failed<'a>(allocs: impl Iterator<Item = &'a Arc<AllocStatus>> + Clone) -> FailuresByWorkload {
    let for_good = |a: &&Arc<AllocStatus>| a.has_failed_for_good() && a.recovering.is_empty();
    let mut failed = FailuresByWorkload::new();
    if !allocs.clone().any(|a| for_good(&a)) {
        return failed;
    }
    let mut newest: HashMap<&JobId, &Arc<AllocStatus>> = HashMap::new();
    let mut places: HashMap<(&JobId, &str, u32), &Arc<AllocStatus>> = HashMap::new();
    fn place(alloc: &AllocStatus) -> (&JobId, &str, u32) {
        (alloc.workload(), alloc.group.as_str(), alloc.index)
    }
    for alloc in allocs.clone() {
        newest.insert(alloc.workload(), alloc);
        places.insert(place(alloc), alloc);
    }
    let holds_its_place = |a: &&Arc<AllocStatus>| {
        let last = places.get(&place(a)).is_some_and(|last| Arc::ptr_eq(last, a));
        last && newest.get(a.workload()).is_some_and(|newest| Arc::ptr_eq(&newest.job, &a.job) || newest.job == a.job)
    };
    for alloc in allocs.filter(for_good).filter(holds_its_place) {
        let of = failed.entry(alloc.workload().clone()).or_default();
        match alloc.failure() {
            Some(Failure::RestartsUsedUp) => of.restarts_used_up += 1,
            Some(Failure::NoRestarts | Failure::Unrecoverable | Failure::NotSetUp | Failure::Abandoned) | None => {
                of.other += 1;
            }
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alloc::{AllocState, Desired, Lineage};
    use crate::model::job::{Job, JobKind};
    use crate::model::task::{TaskState, TaskStatus};
    use crate::model::units::Timestamp;

    fn job(region: &str) -> Arc<Job> {
        Arc::new(Job {
            node_pool: crate::model::job::Job::ANY_POOL.to_owned(),
            placing: crate::model::job::PlacementRules::default(),
            launching: crate::model::launching::JobLaunching::default(),
            id: "j".into(),
            name: "j".to_owned(),
            kind: JobKind::Service,
            namespace: String::new(),
            region: region.to_owned(),
            datacenters: Vec::new(),
            meta: BTreeMap::new(),
            groups: Vec::new(),
            sensitive: Default::default(),
        })
    }

    fn alloc(job: &Arc<Job>, index: u32, failure: Option<Failure>) -> Arc<AllocStatus> {
        let known = TaskStatus::new("t".into(), "mock".into(), None, Timestamp(0));
        let task = TaskStatus { state: TaskState::Dead, failed: failure.is_some(), failure, ..known };
        let tasks = vec![Arc::new(task)];
        Arc::new(AllocStatus {
            job: Arc::clone(job),
            group: "g".into(),
            index,
            finished_at: None,
            desired: Desired::Run,
            state: AllocState::derive(None, &tasks).0,
            forced: None,
            tasks,
            recovering: Vec::new(),
            may_run: Vec::new(),
            ports: Vec::new(),
            network: None,
            not_placed: Vec::new(),
            lineage: Default::default(),
            generation: 1,
        })
    }

    fn counted(allocs: &[Arc<AllocStatus>]) -> [u64; 2] {
        failed(allocs.iter()).get(&JobId::from("j")).copied().unwrap_or_default().by_reason()
    }

    #[test]
    fn an_alloc_has_failed_for_good_until_a_later_one_has_its_place() {
        let first = job("one");
        let (used_up, never) = (Some(Failure::RestartsUsedUp), Some(Failure::NoRestarts));
        let mut allocs = vec![alloc(&first, 0, used_up), alloc(&first, 1, never), alloc(&first, 2, None)];
        assert_eq!(counted(&allocs), [1, 1]);
        assert!(failed(allocs[2..].iter()).is_empty(), "a workload without one is not in it");
        // The same job again: the first place has its successor, which may fail as well.
        allocs.push(alloc(&first, 0, None));
        assert_eq!(counted(&allocs), [0, 1]);
        allocs.push(alloc(&first, 0, used_up));
        assert_eq!(counted(&allocs), [1, 1]);
        // A changed job has one place only: what became of the others is over.
        allocs.push(alloc(&job("two"), 0, None));
        assert_eq!(counted(&allocs), [0, 0]);
    }

    #[test]
    fn stopped_replaced_or_recovering_alloc_has_not_failed_for_good() {
        let failed = alloc(&job("one"), 0, Some(Failure::Unrecoverable));
        assert_eq!(counted(std::slice::from_ref(&failed)), [0, 1]);
        let stopped = AllocStatus { desired: Desired::Stop, ..AllocStatus::clone(&failed) };
        let recovering = AllocStatus { recovering: vec!["t".into()], ..AllocStatus::clone(&failed) };
        let of = |lineage| AllocStatus { lineage, ..AllocStatus::clone(&failed) };
        let waits = of(Lineage { reschedule_at: Some(Timestamp(9)), ..Lineage::default() });
        let replaced = of(Lineage { next: Some("b".into()), ..Lineage::default() });
        for one in [stopped, recovering, waits, replaced] {
            assert_eq!(counted(&[Arc::new(one)]), [0, 0]);
        }
    }

    #[test]
    fn task_failure_reason_is_absent_for_records_of_older_agents() {
        let unknown = alloc(&job("one"), 0, Some(Failure::Abandoned));
        let mut task = TaskStatus::clone(&unknown.tasks[0]);
        task.failure = None;
        let tasks = vec![Arc::new(task)];
        assert_eq!(counted(&[Arc::new(AllocStatus { tasks, ..AllocStatus::clone(&unknown) })]), [0, 1]);
    }
}
