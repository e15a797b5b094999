//! Workloads that make allocs faster than series can be paid for: those above the limit have no series of their own,
//! and are one row of their workload. Pure: time comes in.
//!
//! ```text
//! a new alloc ── its workload made fewer than `churn_limit` in the last hour? ── yes ── series of its own
//!                                                                             └─ no ─── alloc_id="_overflow": counters, added up
//! ```
//! The totals of the workload have all of them in any case.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Aggregation, AllocView, PerTask, TaskView};
use crate::model::alloc::{AllocIdentity, TaskIdentity};
use crate::model::id::{AllocId, JobId};
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

/// In place of an id: no alloc is called so.
pub const OVERFLOW: &str = "_overflow";

const HOUR: Duration = Duration::from_secs(3600);

/// The allocs above the churn limit of their workloads: who gets series of its own, and one row per workload for the
/// others. Concurrency: single owner.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// New allocs of one workload an hour; 0: all.
    limit: u32,
    /// When the allowance of a workload will be whole again; it may be up to an hour ahead.
    whole_at: HashMap<JobId, Instant>,
    rows: BTreeMap<JobId, OverflowRow>,
    /// Series that were not created since [`Overflow::take_unshown`] was called last.
    unshown: u64,
}

/// What the allocs above the limit of one workload used together.
#[derive(Debug)]
struct OverflowRow {
    view: Arc<AllocView>,
    /// Of those that are on the board no more.
    removed: Sums,
}

/// Counters alone: nothing else of many allocs that come and go can be added up.
#[derive(Debug, Clone, Default)]
struct Sums {
    alloc: Usage,
    tasks: Vec<(TaskIdentity, Usage)>,
}

impl Sums {
    fn add(&mut self, view: &AllocView) {
        self.alloc.add_counters(&view.usage);
        for (known, task) in view.tasks() {
            match self.tasks.iter_mut().find(|(other, _)| other.name == known.name) {
                Some((_, sum)) => sum.add_counters(&task.usage),
                None => self.tasks.push((known.clone(), task.usage.counters())),
            }
        }
    }
}

impl Overflow {
    pub(super) fn new(limit: u32) -> Overflow {
        Overflow { limit, ..Overflow::default() }
    }

    /// Whether a new alloc gets series of its own. One without a known workload does.
    pub(super) fn admits(&mut self, workload: Option<&JobId>, now: Instant) -> bool {
        let Some(workload) = workload.filter(|_| self.limit > 0) else { return true };
        let each = HOUR / self.limit;
        if self.whole_at.len() > 1_000 {
            self.whole_at.retain(|_, at| *at > now);
        }
        let whole_at = self.whole_at.get(workload).map_or(now, |at| now.max(*at));
        let admitted = whole_at + each <= now + HOUR;
        if admitted {
            self.whole_at.insert(workload.clone(), whole_at + each);
        }
        admitted
    }

    /// How many series it would have had is counted.
    pub(super) fn folded(&mut self, series: u64) {
        self.unshown += series;
    }
    pub(super) fn take_unshown(&mut self) -> u64 {
        std::mem::take(&mut self.unshown)
    }

    /// One of those above the limit is on the board no more: what it used stays.
    pub(super) fn remove(&mut self, view: &AllocView) {
        if let Some(row) = view.identity.workload.as_ref().and_then(|workload| self.rows.get_mut(workload)) {
            row.removed.add(view);
        }
    }

    /// A row for each workload that ever had too many. `folded`: those above the limit that are on the board.
    pub(super) fn views<'a>(&mut self, folded: impl Iterator<Item = &'a Arc<AllocView>>) -> Vec<Arc<AllocView>> {
        let mut sums: BTreeMap<JobId, (Sums, Option<Timestamp>)> = BTreeMap::new();
        for (workload, row) in &self.rows {
            sums.insert(workload.clone(), (row.removed.clone(), row.view.sampled_at));
        }
        for view in folded {
            let Some(workload) = &view.identity.workload else { continue };
            let (sum, sampled_at) = sums.entry(workload.clone()).or_default();
            sum.add(view);
            *sampled_at = (*sampled_at).max(view.sampled_at);
            self.rows
                .entry(workload.clone())
                .or_insert_with(|| OverflowRow { view: empty(view), removed: Sums::default() });
        }
        for (workload, (sum, sampled_at)) in sums {
            if let Some(row) = self.rows.get_mut(&workload) {
                row.view = Arc::new(shown(&row.view, sum, sampled_at));
            }
        }
        self.rows.values().map(|row| Arc::clone(&row.view)).collect()
    }
}

/// The row of a workload before anything is known of it but the first alloc above its limit.
fn empty(first: &AllocView) -> Arc<AllocView> {
    let identity = AllocIdentity {
        id: AllocId::from(OVERFLOW),
        name: String::new(),
        cgroup: None,
        tasks: Vec::new(),
        ..AllocIdentity::clone(&first.identity)
    };
    Arc::new(AllocView {
        identity: Arc::new(identity),
        status: None,
        observed: None,
        tasks: PerTask::new(),
        usage: Arc::default(),
        aggregation: Aggregation::Sum,
        sampled_at: None,
        ended: false,
        retired: false,
    })
}

fn shown(earlier: &AllocView, sum: Sums, sampled_at: Option<Timestamp>) -> AllocView {
    // A part that is not known for a moment makes no counter fall.
    let risen = |mut usage: Usage, before: Option<&Usage>| {
        if let Some(before) = before {
            usage.not_below(before);
        }
        Arc::new(usage)
    };
    let before = |known: &TaskIdentity| {
        let (_, task) = earlier.tasks().find(|(other, _)| other.name == known.name)?;
        Some(&*task.usage)
    };
    let task = |(known, usage): &(TaskIdentity, Usage)| {
        let usage = risen(usage.clone(), before(known));
        Arc::new(TaskView {
            managed: None,
            observed: None,
            usage,
            attempt: None,
            sampled_at,
            before: None,
            started_at: None,
            disks: None,
        })
    };
    let tasks = sum.tasks.iter().map(task).collect();
    let known = sum.tasks.iter().map(|(known, _)| known.clone()).collect();
    AllocView {
        identity: Arc::new(AllocIdentity { tasks: known, ..AllocIdentity::clone(&earlier.identity) }),
        usage: risen(sum.alloc, Some(&earlier.usage)),
        tasks,
        sampled_at,
        ..earlier.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_burst_of_new_series_is_limited_and_refills_at_its_hourly_share() {
        let mut overflow = Overflow::new(4);
        let (now, job) = (Instant::now(), JobId::from("cron"));
        let admitted = |overflow: &mut Overflow, at| overflow.admits(Some(&job), at);
        let at_once: Vec<bool> = (0..6).map(|_| admitted(&mut overflow, now)).collect();
        assert_eq!(at_once, [true, true, true, true, false, false]);
        let later = now + HOUR / 4;
        assert_eq!((admitted(&mut overflow, later), admitted(&mut overflow, later)), (true, false));
        assert!(overflow.admits(Some(&JobId::from("web")), now), "others pay nothing for it");
        assert!(overflow.admits(None, now), "its owner is unknown");
        let much_later: Vec<bool> = (0..5).map(|_| admitted(&mut overflow, later + 10 * HOUR)).collect();
        assert_eq!(much_later, [true, true, true, true, false], "what was not used is not saved up");
    }

    #[test]
    fn without_a_limit_all_have_series_of_their_own() {
        let mut overflow = Overflow::new(0);
        assert!((0..100_000).all(|_| overflow.admits(Some(&JobId::from("cron")), Instant::now())));
    }
}
