//! How the allocs of a job are laid out at a moment: for each group and index, the alloc of a version and the one
//! before.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Manager;
use super::admit::{NewPlace, Placement};
use crate::model::alloc::Desired;
use crate::model::id::AllocId;
use crate::model::job::Job;
use crate::model::service::HealthBasis;
use crate::model::task::TaskState;
use crate::model::update::UpdatePolicy;
use crate::runner::alloc::Alloc;
use crate::runner::decide::update::{NewAlloc, RollingGroup};

/// The allocs of a job: those of a version, and those before it.
pub(super) struct JobLayout {
    groups: Vec<GroupLayout>,
    /// Live allocs of earlier versions without an index in the job.
    homeless: Vec<Arc<Alloc>>,
}

struct GroupLayout {
    policy: Option<UpdatePolicy>,
    places: Vec<PlaceLayout>,
}

#[derive(Default)]
struct PlaceLayout {
    /// Of an earlier version: it lives, or failed and is to be rescheduled.
    outdated: Option<Arc<Alloc>>,
    /// The newest alloc of the version.
    current: Option<Arc<Alloc>>,
    /// All allocs of this index that have not ended, those with a stop request included.
    unended: Vec<AllocId>,
}

impl PlaceLayout {
    /// Whether an alloc of the version lives there or is to be rescheduled.
    fn is_taken(&self) -> bool {
        self.current.as_ref().is_some_and(|alloc| lives(alloc))
    }
}

/// Whether its desired state is to run.
pub(super) fn lives(alloc: &Alloc) -> bool {
    (!alloc.is_terminal() && alloc.desired() == Desired::Run) || alloc.awaits_replacement()
}

impl JobLayout {
    /// The state of each group with a rolling update. Unhealthy allocs are replaced first.
    pub(super) fn rolling(&self) -> Vec<(usize, RollingGroup)> {
        let of = |(at, group): (usize, &GroupLayout)| {
            let policy = group.policy?;
            let mut outdated: Vec<(bool, u32)> = Vec::new();
            let mut new = Vec::new();
            for (index, place) in (0_u32..).zip(&group.places) {
                match (&place.outdated, &place.current) {
                    (Some(alloc), _) => outdated.push((alloc.health() == Some(true), index)),
                    (None, Some(alloc)) => new.push(state(alloc)),
                    (None, None) => {}
                }
            }
            outdated.sort_unstable();
            let outdated = outdated.into_iter().map(|(_, index)| index).collect();
            let UpdatePolicy { max_parallel, progress_deadline, .. } = policy;
            Some((at, RollingGroup { max_parallel, outdated, new, progress_deadline }))
        };
        self.groups.iter().enumerate().filter_map(of).collect()
    }

    /// The first step of a submission. `live`: all allocs of the job that have not ended.
    pub(super) fn beginning(&self, live: &[Arc<Alloc>]) -> Placement {
        let mut placement = Placement { superseded: self.homeless.clone(), places: Vec::new() };
        let mut empty = Vec::new();
        let mut later: BTreeSet<AllocId> = BTreeSet::new();
        for (at, group) in self.groups.iter().enumerate() {
            let free = (0_u32..).zip(&group.places).filter(|(_, place)| !place.is_taken());
            for (index, place) in free {
                match (&place.outdated, group.policy) {
                    (None, _) => empty.push((at, index, None)),
                    (Some(before), None) => {
                        placement.superseded.push(Arc::clone(before));
                        empty.push((at, index, Some(Arc::clone(before))));
                    }
                    (Some(before), Some(_)) => {
                        later.insert(before.id.clone());
                    }
                }
            }
        }
        let mut turns = Vec::new();
        for (at, mut group) in self.rolling() {
            // Allocs that start in this step are not in the map yet.
            let begin = empty.iter().filter(|(of, ..)| *of == at).count();
            group.new.extend(std::iter::repeat_n(NewAlloc::Pending, begin));
            turns.push((at, group.turns()));
        }
        let next = self.turns(turns);
        let is_now = |id: &AllocId| next.superseded.iter().any(|alloc| alloc.id == *id);
        // An alloc that stays does not end, so it is not waited for.
        let keeps = |alloc: &Alloc| later.contains(&alloc.id) && !is_now(&alloc.id) || self.is_current(alloc);
        let waits_for: Vec<AllocId> = live.iter().filter(|alloc| !keeps(alloc)).map(|alloc| alloc.id.clone()).collect();
        placement.places.extend(empty.into_iter().map(|(group, index, before)| NewPlace {
            group,
            index,
            waits_for: waits_for.clone(),
            before,
            migrate_from: None,
        }));
        placement.superseded.extend(next.superseded);
        placement.places.extend(next.places);
        // In the order of groups and indices.
        placement.places.sort_by_key(|place| (place.group, place.index));
        placement
    }

    fn is_current(&self, alloc: &Alloc) -> bool {
        let is_it = |place: &PlaceLayout| place.current.as_ref().is_some_and(|current| current.id == alloc.id);
        self.groups.iter().flat_map(|group| &group.places).any(is_it) && lives(alloc)
    }

    /// The indexes to replace in each group, with the allocs that end for it.
    pub(super) fn turns(&self, turns: Vec<(usize, Vec<u32>)>) -> Placement {
        let mut placement = Placement::default();
        for (group, indices) in turns {
            for index in indices {
                let place = usize::try_from(index).ok().and_then(|at| self.groups[group].places.get(at));
                let Some(before) = place.and_then(|place| place.outdated.clone()) else { continue };
                let waits_for = place.map(|place| place.unended.clone()).unwrap_or_default();
                placement.places.push(NewPlace {
                    group,
                    index,
                    waits_for,
                    before: Some(Arc::clone(&before)),
                    migrate_from: None,
                });
                placement.superseded.push(before);
            }
        }
        placement
    }
    /// The newest alloc of the version for each index that has one.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<Alloc>> {
        self.groups.iter().flat_map(|group| &group.places).filter_map(|place| place.current.as_ref())
    }
    pub(super) fn auto_reverts(&self) -> bool {
        self.groups.iter().filter_map(|group| group.policy).any(|policy| policy.auto_revert)
    }
}

/// The health of an alloc of the new version.
pub(super) fn state(alloc: &Alloc) -> NewAlloc {
    let short = alloc.id.short();
    match (alloc.desired(), alloc.health()) {
        (Desired::Stop, _) => NewAlloc::Stopped,
        (Desired::Run, Some(true)) => NewAlloc::Healthy,
        (Desired::Run, Some(false)) => {
            let services = alloc.ctx.board.services.get(&alloc.id);
            let why = services.map(|services| services.health_reason.clone()).filter(|why| !why.is_empty());
            let why = why.unwrap_or_else(|| "a task has failed, or it was not healthy in time".to_owned());
            NewAlloc::Unhealthy(format!("alloc {short} is unhealthy: {why}"))
        }
        (Desired::Run, None) => {
            let tasks = || (0..alloc.group().tasks.len()).map(|at| alloc.status(at));
            let failed = alloc.failed_setup().is_some() || tasks().any(|task| task.failed);
            let is_requested = alloc.group().health.is_some_and(|rule| rule.basis != HealthBasis::Manual);
            match alloc.is_terminal() {
                true if failed => NewAlloc::Unhealthy(format!("alloc {short} failed before it was healthy")),
                true => NewAlloc::Stopped,
                false if !is_requested && tasks().any(|task| task.state == TaskState::Running) => NewAlloc::Healthy,
                false => NewAlloc::Pending,
            }
        }
    }
}

impl Manager {
    /// The current layout.
    pub(super) fn layout(&self, job: &Arc<Job>, version: u64) -> JobLayout {
        let places = |count: u32| (0..count).map(|_| PlaceLayout::default()).collect();
        let mut groups: Vec<GroupLayout> =
            job.groups.iter().map(|group| GroupLayout { policy: group.update, places: places(group.count) }).collect();
        let mut homeless = Vec::new();
        let mut all: Vec<Arc<Alloc>> = self.allocs.all().into_iter().filter(|alloc| alloc.job.id == job.id).collect();
        all.sort_by_key(|alloc| alloc.serial);
        for alloc in all {
            let group = job.groups.iter().position(|group| group.name == alloc.group().name);
            let index = usize::try_from(alloc.index()).ok();
            let mut place = group.zip(index).and_then(|(group, index)| groups[group].places.get_mut(index));
            let is_current = alloc.version == version;
            if let Some(place) = place.as_mut().filter(|_| !alloc.is_terminal()) {
                place.unended.push(alloc.id.clone());
            }
            match place {
                Some(place) if is_current => place.current = Some(alloc),
                Some(place) if lives(&alloc) => {
                    if let Some(other) = place.outdated.replace(alloc) {
                        homeless.push(other);
                    }
                }
                None if lives(&alloc) => homeless.push(alloc),
                Some(_) | None => {}
            }
        }
        JobLayout { groups, homeless }
    }
}
