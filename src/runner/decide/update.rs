//! Decides the next step of a rolling update from the health of its allocs. Pure.
//!
//! ```text
//! running ── a new alloc is healthy: the next ones, max_parallel at a time ──► all are: successful
//!    ├─ one is unhealthy, or progress_deadline passed ──► failed ─ auto_revert ─► running, back to the stable version
//!    └─ every alloc of it was stopped ──► cancelled
//! ```

use std::time::Duration;

use crate::model::units::{Nanos, Steady};

/// Health of a new alloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewAlloc {
    /// Not determined yet.
    Pending,
    Healthy,
    /// With the reason.
    Unhealthy(String),
    /// Stopped on request: its health does not matter.
    Stopped,
}

/// A group whose allocs are replaced `max_parallel` at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RollingGroup {
    pub max_parallel: u32,
    /// Indexes whose alloc has another version, in the order of their replacement.
    pub outdated: Vec<u32>,
    /// The newest alloc of each other index.
    pub new: Vec<NewAlloc>,
    pub progress_deadline: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateStep {
    /// The indexes to replace now, for each group.
    Replace(Vec<Vec<u32>>),
    /// Nothing before then unless an alloc changes. `None`: no deadline.
    Wait(Option<Steady>),
    Succeed,
    Fail(String),
    Cancel,
}

impl RollingGroup {
    fn pending(&self) -> usize {
        self.new.iter().filter(|new| matches!(new, NewAlloc::Pending)).count()
    }
    /// The indexes to replace now.
    pub fn turns(&self) -> Vec<u32> {
        let most = usize::try_from(self.max_parallel.max(1)).unwrap_or(usize::MAX);
        let free = most.saturating_sub(self.pending());
        self.outdated.iter().copied().take(free).collect()
    }
}

/// `progress`: when the last alloc became healthy, or the update began.
pub fn update(groups: &[RollingGroup], progress: Steady, now: Steady) -> UpdateStep {
    let all = || groups.iter().flat_map(|group| &group.new);
    let unhealthy = all().find_map(|new| if let NewAlloc::Unhealthy(why) = new { Some(why) } else { None });
    if let Some(why) = unhealthy {
        return UpdateStep::Fail(why.clone());
    }
    let is_left = groups.iter().any(|group| !group.outdated.is_empty());
    if !is_left && all().all(|new| matches!(new, NewAlloc::Healthy | NewAlloc::Stopped)) {
        return if all().any(|new| *new == NewAlloc::Healthy) { UpdateStep::Succeed } else { UpdateStep::Cancel };
    }
    let unbounded = groups.iter().any(|group| group.progress_deadline.is_zero());
    let deadline = groups.iter().map(|group| group.progress_deadline).max().filter(|_| !unbounded);
    let due = deadline.map(|deadline| progress.plus(Nanos::from_duration(deadline)));
    if due.is_some_and(|due| due <= now) {
        let deadline = deadline.unwrap_or_default().as_secs();
        return UpdateStep::Fail(format!("no alloc became healthy within progress_deadline ({deadline} s)"));
    }
    let turns: Vec<Vec<u32>> = groups.iter().map(RollingGroup::turns).collect();
    if turns.iter().any(|turns| !turns.is_empty()) { UpdateStep::Replace(turns) } else { UpdateStep::Wait(due) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    fn at(seconds: u64) -> Steady {
        Steady::default().plus(Nanos::from_secs(seconds))
    }
    fn group(max_parallel: u32, outdated: &[u32], new: &[NewAlloc]) -> RollingGroup {
        RollingGroup { max_parallel, outdated: outdated.to_vec(), new: new.to_vec(), progress_deadline: MINUTE }
    }
    use NewAlloc::{Healthy, Pending, Stopped};

    #[test]
    fn so_many_are_replaced_at_a_time_and_the_next_when_these_are_healthy() {
        let step = |group: RollingGroup| update(&[group], at(0), at(1));
        assert_eq!(step(group(2, &[0, 1, 2], &[])), UpdateStep::Replace(vec![vec![0, 1]]));
        assert_eq!(step(group(2, &[2], &[Pending, Pending])), UpdateStep::Wait(Some(at(60))));
        assert_eq!(step(group(2, &[2], &[Healthy, Pending])), UpdateStep::Replace(vec![vec![2]]));
        assert_eq!(step(group(2, &[], &[Healthy, Healthy, Pending])), UpdateStep::Wait(Some(at(60))));
        assert_eq!(step(group(2, &[], &[Healthy, Healthy, Healthy])), UpdateStep::Succeed);
    }

    #[test]
    fn an_unhealthy_alloc_or_no_progress_fails_it() {
        let ill = || NewAlloc::Unhealthy("alloc ab is unhealthy".to_owned());
        let step = update(&[group(2, &[1], &[Healthy]), group(1, &[], &[ill()])], at(0), at(1));
        assert_eq!(step, UpdateStep::Fail("alloc ab is unhealthy".to_owned()));
        let waits = [group(1, &[1], &[Pending])];
        assert_eq!(update(&waits, at(10), at(69)), UpdateStep::Wait(Some(at(70))));
        assert!(
            matches!(update(&waits, at(10), at(70)), UpdateStep::Fail(why) if why.contains("progress_deadline (60 s)"))
        );
        let patient = [RollingGroup { progress_deadline: Duration::ZERO, ..waits[0].clone() }];
        assert_eq!(update(&patient, at(10), at(7_000)), UpdateStep::Wait(None));
    }

    #[test]
    fn stopped_allocs_are_not_waited_for_and_without_any_other_it_is_cancelled() {
        assert_eq!(update(&[group(1, &[], &[Stopped, Healthy])], at(0), at(1)), UpdateStep::Succeed);
        assert_eq!(update(&[group(1, &[], &[Stopped])], at(0), at(1)), UpdateStep::Cancel);
        assert_eq!(update(&[group(1, &[], &[])], at(0), at(1)), UpdateStep::Cancel);
    }

    proptest! {
        /// In whatever order allocs become healthy, each is replaced once, and never more than `max_parallel` are
        /// undetermined.
        #[test]
        fn each_place_has_one_turn_and_no_more_are_undecided_at_once(
            count in 1_u32..12, max_parallel in 1_u32..6,
            order in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let mut outdated: Vec<u32> = (0..count).collect();
            let mut new: Vec<NewAlloc> = Vec::new();
            let mut order = order.into_iter();
            let mut replaced = 0;
            loop {
                match update(&[group(max_parallel, &outdated, &new)], at(0), at(1)) {
                    UpdateStep::Replace(turns) => {
                        replaced += turns[0].len();
                        outdated.retain(|place| !turns[0].contains(place));
                        new.extend(turns[0].iter().map(|_| Pending));
                    }
                    UpdateStep::Wait(_) => {
                        let pending: Vec<usize> = (0..new.len()).filter(|n| new[*n] == Pending).collect();
                        prop_assert!(!pending.is_empty() && pending.len() <= max_parallel as usize);
                        let Some(index) = order.next() else { return Ok(()) };
                        new[pending[index.index(pending.len())]] = Healthy;
                    }
                    UpdateStep::Succeed => break,
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert_eq!((replaced, new.len()), (count as usize, count as usize));
        }
    }
}
