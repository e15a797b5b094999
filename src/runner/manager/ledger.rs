//! Totals of allocs that were removed: in their workload's totals, and a day after its last alloc in the node's.
//!
//! ```text
//! task records ── collected ──► totals/workload/<job> ── 24 h after the last end ──► totals/node
//! ```
//! Each arrow is one batch that moves values from one side to the other, so nothing counts twice or gets lost. The
//! shown totals of a workload are the sum of both sides and do not change when an alloc is collected.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::allocs::Allocs;
use crate::model::id::{AllocId, JobId};
use crate::model::job::Job;
use crate::model::task::Outcome;
use crate::model::totals::Totals;
use crate::model::units::{Nanos, Steady, Timestamp};
use crate::runner::alloc::{Alloc, DestroyedAlloc, EndedAlloc};
use crate::runner::context::RunnerContext;
use crate::runner::persistence::record::{self, NodeRecord, WorkloadRecord};
use crate::store::{Batch, StoreError};

/// The totals of collected allocs and retired workloads, as they are on disk.
#[derive(Debug, Default)]
pub struct Ledger {
    pub workloads: BTreeMap<JobId, WorkloadRecord>,
    pub node: NodeRecord,
    pub last_serial: u64,
}

impl Ledger {
    pub fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Counts new allocs, and creates each series of their workload, at 0.
    pub fn count_new(&self, ctx: &RunnerContext, job: &Job, allocs: usize, at: Timestamp) {
        ctx.metrics.durations.known(job.workload());
        let allocs = u64::try_from(allocs).unwrap_or(u64::MAX);
        ctx.board.publish([], |totals| {
            let node = Arc::make_mut(&mut totals.node);
            node.allocs = node.allocs.saturating_add(allocs);
            for task in job.groups.iter().flat_map(|g| &g.tasks) {
                totals.submitted(job.workload(), &task.name, at);
            }
            totals.alloc_run.entry(job.workload().clone()).or_default();
            totals.add_reschedules(job.workload(), 0);
        });
    }

    /// The shown totals at the start, before those of known allocs are added.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { node: Arc::new(self.node.node.clone()), ..Totals::default() };
        for (job, workload) in &self.workloads {
            for (task, ended) in &workload.tasks {
                totals.add(job, task, ended);
            }
            totals.alloc_run.insert(job.clone(), workload.alloc_run);
            totals.add_reschedules(job, workload.reschedules);
            let node = Arc::make_mut(&mut totals.node);
            node.allocs = node.allocs.saturating_add(workload.allocs);
        }
        totals
    }

    /// Durable first: moves the counters of allocs to their workloads, then removes the allocs from the board. Returns
    /// those whose directories remain to be removed.
    pub async fn forget(
        &mut self,
        ctx: &RunnerContext,
        known: &Allocs,
        ended: Vec<EndedAlloc>,
    ) -> Result<Vec<DestroyedAlloc>, StoreError> {
        if ended.is_empty() {
            return Ok(Vec::new());
        }
        let allocs: Vec<&Alloc> = ended.iter().map(|ended| &**ended.alloc()).collect();
        let mut batch = Batch::default();
        let mut changed: BTreeMap<JobId, WorkloadRecord> = BTreeMap::new();
        for alloc in &allocs {
            let job = alloc.job.workload();
            let workload =
                changed.entry(job.clone()).or_insert_with(|| self.workloads.get(job).cloned().unwrap_or_default());
            workload.allocs += 1;
            workload.reschedules = workload.reschedules.saturating_add(u64::from(alloc.next().is_some()));
            for (task, ended) in alloc.task_totals() {
                batch.remove(record::task_key(&alloc.id, &task));
                match workload.tasks.entry(task) {
                    Entry::Vacant(entry) => drop(entry.insert(ended)),
                    Entry::Occupied(mut entry) => entry.get_mut().merge(&ended),
                }
            }
            for (run, more) in workload.alloc_run.iter_mut().zip(alloc.ran()) {
                *run = run.saturating_add(more);
            }
            if let Some(at) = alloc.finished_at() {
                workload.last_end = workload.last_end.max(at);
            }
            batch.remove(record::alloc_key(&alloc.id));
            batch.put(record::tombstone_key(&alloc.id), Vec::new());
        }
        let removed: HashSet<&AllocId> = allocs.iter().map(|a| &a.id).collect();
        let stays = known.all().into_iter().filter(|alloc| !removed.contains(&alloc.id));
        let still_used: HashSet<(JobId, u64)> = stays.map(|alloc| (alloc.job.id.clone(), alloc.version)).collect();
        for alloc in &allocs {
            if !still_used.contains(&(alloc.job.id.clone(), alloc.version)) {
                batch.remove(record::job_key(&alloc.job.id, alloc.version));
            }
        }
        for (job, workload) in &changed {
            record::put(&mut batch, record::workload_key(job), workload);
        }
        ctx.journal.commit(batch).await?;

        self.workloads.extend(changed);
        let ids: Vec<AllocId> = allocs.iter().map(|a| a.id.clone()).collect();
        known.forget(&ids);
        ctx.board.remove(&ids, |_| {});
        Ok(ended.into_iter().map(EndedAlloc::forgotten).collect())
    }

    /// Moves workloads whose last alloc ended long ago to the node's totals, with their remaining allocs. `registered`:
    /// workloads of periodic and parameterized jobs stay.
    pub async fn retire(
        &mut self,
        ctx: &RunnerContext,
        known: &Allocs,
        registered: &BTreeSet<JobId>,
    ) -> Result<Vec<DestroyedAlloc>, StoreError> {
        let mut removed = Vec::new();
        let now = ctx.line.now();
        let after = Nanos::from_duration(ctx.config.retire_after);
        let mut last: BTreeMap<JobId, Option<Steady>> =
            self.workloads.iter().map(|(job, w)| (job.clone(), Some(w.last_end))).collect();
        for alloc in known.all() {
            // An abandoned task may still run: its alloc stays, or nothing would name the task.
            let over =
                || *alloc.ended().borrow() && alloc.first_that_may_run().is_none() && !alloc.awaits_replacement();
            let end = alloc.finished_at().filter(|_| over());
            let latest = last.entry(alloc.job.workload().clone()).or_insert(end);
            // A live alloc keeps its workload.
            *latest = latest.zip(end).map(|(a, b)| a.max(b));
        }
        last.retain(|job, _| !registered.contains(job));
        let over =
            last.into_iter().filter(|(_, end)| end.is_some_and(|end| now.since(end) > after)).map(|(job, _)| job);
        for job in over.collect::<Vec<_>>() {
            let ended = known.ended().into_iter().map(|(ended, _)| ended).filter(|e| *e.alloc().job.workload() == job);
            removed.extend(self.forget(ctx, known, ended.collect()).await?);
            let Some(workload) = self.workloads.get(&job) else { continue };
            let mut node = self.node.clone();
            node.node.allocs = node.node.allocs.saturating_add(workload.allocs);
            workload.tasks.values().for_each(|t| node.node.totals.merge(t));
            let mut batch = Batch::default();
            batch.remove(record::workload_key(&job));
            record::put(&mut batch, record::NODE_KEY.to_owned(), &node);
            ctx.journal.commit(batch).await?;
            let retired = self.workloads.remove(&job).unwrap_or_default();
            self.node = node;
            ctx.metrics.durations.retired(&job);
            ctx.board.remove(&[], |totals| {
                totals.workloads.retain(|(of, _), _| *of != job);
                totals.alloc_run.remove(&job);
                totals.reschedules.remove(&job);
                let node = Arc::make_mut(&mut totals.node);
                retired.tasks.values().for_each(|t| node.totals.merge(t));
            });
        }
        Ok(removed)
    }
}

/// Adds the totals of a known alloc to those shown at the start.
pub fn add_known(totals: &mut Totals, alloc: &Alloc) {
    let node = Arc::make_mut(&mut totals.node);
    node.allocs = node.allocs.saturating_add(1);
    for (task, ended) in alloc.task_totals() {
        totals.add(alloc.job.workload(), &task, &ended);
    }
    totals.alloc_run.entry(alloc.job.workload().clone()).or_default();
    totals.add_reschedules(alloc.job.workload(), u64::from(alloc.next().is_some()));
    for (outcome, ran) in Outcome::ALL.into_iter().zip(alloc.ran()) {
        totals.add_alloc_run(alloc.job.workload(), outcome, ran);
    }
}
