//! Why allocs of a job would not be placed, before it is submitted.

use super::Handle;
use crate::model::id::GroupName;
use crate::model::job::{Job, TaskGroup};
use crate::model::placement::NotPlaced;
use crate::runner::decide::placement::{PlacementNode, affinity_score, choose_cores, cores_of, unplaced};
use crate::runner::decide::volumes::differ_by_alloc;

/// Allocs of one group that would wait for the same reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct UnplacedAllocs {
    pub group: GroupName,
    pub count: u32,
    pub reasons: Vec<NotPlaced>,
}

impl Handle {
    /// Allocs of a job that would not be placed now, once those of its earlier version have ended. Has no effect.
    pub fn not_placed(&self, job: &Job) -> Vec<UnplacedAllocs> {
        let ctx = &self.0.ctx;
        let node = ctx.placement_node();
        let is_own = |id: &_| self.0.allocs.get(id).is_some_and(|alloc| alloc.job.id == job.id);
        let mut taken = ctx.cores.held_outside(is_own);
        job.groups.iter().filter_map(|group| first_reasons(job, group, &node, &mut taken)).collect()
    }

    /// The affinity score of this node for a group, its tasks and its job. `None`: they have no affinities.
    pub fn affinity(&self, job: &Job, group: &TaskGroup) -> Option<f64> {
        let of_tasks = group.tasks.iter().flat_map(|task| &task.placing.affinities);
        let all = job.placing.affinities.iter().chain(&group.placing.affinities).chain(of_tasks);
        affinity_score(all, &self.0.ctx.placement_node())
    }
}

/// The first alloc that is not placed: those after it are not either.
fn first_reasons(job: &Job, group: &TaskGroup, node: &PlacementNode, taken: &mut Vec<u32>) -> Option<UnplacedAllocs> {
    let unplaced_at = |index| unplaced(job, group, index, node);
    let last = group.count.checked_sub(1)?;
    let mut not_placed = |index: &u32| !unplaced_at(*index).is_empty();
    // Otherwise reasons accumulate with the index: if the last alloc has none, no other has.
    let each_differs = differ_by_alloc(group);
    let at = match (not_placed(&0), not_placed(&last) || each_differs) {
        (true, _) => Some(0),
        (false, false) => None,
        (false, true) => (1..=last).find(&mut not_placed),
    };
    let (mut count, mut reasons) = match at {
        Some(index) if each_differs => {
            let count = (0..=last).filter(&mut not_placed).count();
            (u32::try_from(count).unwrap_or(group.count), unplaced_at(index))
        }
        Some(index) => (group.count - index, unplaced_at(index)),
        None => (0, Vec::new()),
    };
    if cores_of(group) > 0 {
        let could_be = group.count - count;
        for placed in 0..could_be {
            match choose_cores(group, &node.cores, taken) {
                Ok(cores) => taken.extend(cores.into_iter().flatten()),
                Err(reason) => {
                    (count, reasons) = (group.count - placed, vec![reason]);
                    break;
                }
            }
        }
    }
    (count > 0).then(|| UnplacedAllocs { group: group.name.clone(), count, reasons })
}
