//! Everything that is told of one moment, row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::filter::Filter;
use super::listener::Rows;
use super::subject::RowSubject;
use crate::exporters::families::Level;
use crate::model::id::JobId;
use crate::snapshot::{AllocView, Snapshot, TaskView};
use crate::telemetry::Metrics;
use crate::telemetry::durations::Durations;

#[derive(Debug)]
pub struct Walk<'a> {
    pub snapshot: &'a Snapshot,
    pub filter: &'a Filter,
    pub(super) metrics: &'a Metrics,
    /// Those whose series have not retired.
    pub allocs: Vec<&'a Arc<AllocView>>,
    /// All of theirs, in their order.
    pub(super) tasks: Vec<(&'a AllocView, &'a TaskView)>,
    /// In order of name.
    pub jobs: Vec<JobRow>,
}

/// A whole workload, by what is known of it.
#[derive(Debug)]
pub struct JobRow {
    pub workload: JobId,
    /// Its totals are kept.
    pub(super) is_known: bool,
    pub(super) durations: Option<Arc<Durations>>,
}

impl<'a> Walk<'a> {
    pub fn new(snapshot: &'a Snapshot, metrics: &'a Metrics, filter: &'a Filter) -> Walk<'a> {
        let allocs: Vec<_> = snapshot.allocs.iter().filter(|a| !a.retired).collect();
        let tasks = allocs.iter().flat_map(|a| a.tasks.iter().map(|t| (&***a, &**t))).collect();
        Walk { snapshot, filter, metrics, allocs, tasks, jobs: jobs(snapshot, metrics) }
    }

    /// Whose row that is. Of [`Rows::One`] the source of the family says it.
    pub fn subject(&self, rows: Rows, row: usize) -> RowSubject<'_> {
        match rows {
            Rows::Of(Level::Task) => {
                let (alloc, task) = self.tasks[row];
                RowSubject::task(alloc, task, &self.snapshot.info.cgroup_mode)
            }
            Rows::Of(Level::Alloc) => RowSubject::alloc(self.allocs[row]),
            Rows::Of(Level::Workload) => RowSubject::workload(&self.snapshot.workloads[row]),
            Rows::OfJobs => RowSubject::job(self.jobs[row].workload.as_str()),
            Rows::One => RowSubject::default(),
        }
    }
}

/// Those whose totals are kept, and those that are gone and left something.
fn jobs(snapshot: &Snapshot, metrics: &Metrics) -> Vec<JobRow> {
    let mut all: BTreeMap<JobId, (bool, Option<Arc<Durations>>)> = BTreeMap::new();
    for workload in snapshot.workloads.iter().map(|w| &w.workload) {
        all.entry(workload.clone()).or_default().0 = true;
    }
    for workload in snapshot.ended.alloc_run.keys() {
        all.entry(workload.clone()).or_default();
    }
    for (workload, durations) in metrics.durations.all() {
        all.entry(workload).or_default().1 = Some(durations);
    }
    all.into_iter().map(|(workload, (is_known, durations))| JobRow { workload, is_known, durations }).collect()
}
