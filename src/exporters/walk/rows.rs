//! Everything that is exposed of one moment, row by row.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::active_checks::{ActiveCheck, active_checks};
use super::device_rows::DeviceWalk;
use super::filter::Filter;
use super::peers::PeerRow;
use super::subject::RowSubject;
use crate::model::alloc::TaskIdentity;
use crate::model::id::JobId;
use crate::model::measure::Nature;
use crate::model::profile::{Profile, Profiles};
use crate::snapshot::{AllocView, Snapshot, TaskView};
use crate::telemetry::Metrics;
use crate::telemetry::durations::Durations;

#[derive(Debug)]
pub struct Walk<'a> {
    pub snapshot: &'a Snapshot,
    pub filter: &'a Filter,
    pub(super) metrics: &'a Metrics,
    /// Those whose series have not retired, and the rows of those that have none of their own.
    pub allocs: Vec<&'a Arc<AllocView>>,
    /// All of theirs, in their order.
    pub(super) tasks: Vec<(&'a AllocView, (&'a TaskIdentity, &'a TaskView))>,
    /// In order of name.
    pub jobs: Vec<JobRow>,
    pub(super) devices: DeviceWalk<'a>,
    pub(super) checks: Vec<ActiveCheck<'a>>,
    /// The traces of allocs are exported.
    pub has_traces: bool,
    /// Under the names of another exporter; none on a page under our own.
    pub(super) peers: Vec<PeerRow>,
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
        let is_shown = |alloc: &&Arc<AllocView>| alloc.observed.is_none() || filter.has_observed();
        let allocs = snapshot.allocs.iter().filter(|a| !a.retired).chain(&snapshot.overflow);
        let allocs: Vec<_> = allocs.filter(is_shown).collect();
        let checks = active_checks(snapshot, &allocs.iter().map(|alloc| &***alloc).collect::<Vec<_>>());
        let tasks = allocs.iter().flat_map(|a| a.tasks().map(|task| (&***a, task))).collect();
        let devices = DeviceWalk::new(snapshot);
        Walk {
            snapshot,
            filter,
            metrics,
            allocs,
            tasks,
            jobs: jobs(snapshot, metrics),
            devices,
            checks,
            has_traces: metrics.push.has_traces(),
            peers: Vec::new(),
        }
    }

    /// For a page under the names of another exporter.
    #[must_use]
    pub fn with_peers(self, peers: Vec<PeerRow>) -> Walk<'a> {
        Walk { peers, ..self }
    }
    /// Of such a page.
    pub fn peers(&self) -> &[PeerRow] {
        &self.peers
    }

    /// Whose row that is.
    pub fn subject(&self, rows: &Rows, row: usize) -> RowSubject<'_> {
        (rows.subject)(self, row)
    }
}

/// Rows of one kind: of what they are, how many, whose; and what families of their measures are called. Each is one of
/// a kind, and known by its address.
#[derive(Debug)]
pub struct Rows {
    pub prefix: &'static str,
    /// The labels that distinguish them.
    pub labels: &'static [&'static str],
    pub count: fn(&Walk<'_>) -> usize,
    pub subject: for<'w> fn(&'w Walk<'_>, usize) -> RowSubject<'w>,
    /// Whether there is a family of a measure of such a nature.
    pub has: fn(Nature) -> bool,
    /// Appended to the HELP sentence of the measure, before its full stop.
    pub about: fn(Nature) -> &'static str,
    /// Whose its OTLP names say it is: `allostat.<whose>.`; `None`: as the measure says.
    pub otlp: Option<&'static str>,
    /// The smallest profile that has the family of a measure.
    pub profile: fn(Profiles) -> Profile,
}

impl PartialEq for Rows {
    fn eq(&self, other: &Rows) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Rows {
    pub const fn new(
        prefix: &'static str,
        labels: &'static [&'static str],
        count: fn(&Walk<'_>) -> usize,
        subject: for<'w> fn(&'w Walk<'_>, usize) -> RowSubject<'w>,
    ) -> Rows {
        Rows {
            prefix,
            labels,
            count,
            subject,
            has: |_| true,
            about: |_| "",
            otlp: None,
            profile: |profiles| profiles.own,
        }
    }
}

pub static TASK_ROWS: Rows = Rows::new(
    "allostat_task_",
    &["alloc_id", "task", "workload"],
    |walk| walk.tasks.len(),
    |walk, row| {
        let (alloc, task) = walk.tasks[row];
        RowSubject::task(alloc, task, &walk.snapshot.info)
    },
);

pub static ALLOC_ROWS: Rows = Rows {
    has: Nature::is_of_allocs,
    about: |nature| {
        if nature.is_summed() { "; sum over the alloc's tasks" } else { "; whole alloc" }
    },
    otlp: Some("alloc"),
    profile: |profiles| profiles.alloc,
    ..Rows::new(
        "allostat_alloc_",
        &["alloc_id", "workload"],
        |walk| walk.allocs.len(),
        |walk, row| RowSubject::alloc(walk.allocs[row], &walk.snapshot.info),
    )
};

/// A task of a workload, all its allocs together.
pub static WORKLOAD_ROWS: Rows = Rows {
    has: Nature::counts,
    about: |_| "; all allocs of the workload, live and ended",
    otlp: Some("workload"),
    profile: |profiles| profiles.workload,
    ..Rows::new(
        "allostat_workload_",
        &["task", "workload", "source"],
        |walk| walk.snapshot.workloads.len(),
        |walk, row| RowSubject::workload(&walk.snapshot.workloads[row]),
    )
};

/// Cgroups above those of tasks.
pub static PARENT_ROWS: Rows = Rows {
    about: |_| "; parent cgroup",
    otlp: Some("parent"),
    ..Rows::new(
        "allostat_parent_",
        &["cgroup"],
        |walk| walk.snapshot.parents.len(),
        |walk, row| RowSubject::parent(&walk.snapshot.parents[row]),
    )
};

/// Whole workloads.
pub static JOB_ROWS: Rows = Rows::new(
    "allostat_workload_",
    &["workload"],
    |walk| walk.jobs.len(),
    |walk, row| RowSubject::job(walk.jobs[row].workload.as_str()),
);

/// One row, of whatever the source of the family is: that says whose it is.
pub static ONE_ROW: Rows = Rows::new("allostat_", &[], |_| 1, |_, _| RowSubject::default());

/// Those whose totals are kept, and those that are gone and left something.
fn jobs(snapshot: &Snapshot, metrics: &Metrics) -> Vec<JobRow> {
    let mut all: BTreeMap<JobId, (bool, Option<Arc<Durations>>)> = BTreeMap::new();
    // Whether an observed workload has failed for good is not known.
    for workload in snapshot.workloads.iter().filter(|w| !w.observed).map(|w| &w.workload) {
        all.entry(workload.clone()).or_default().0 = true;
    }
    for workload in snapshot.ended_totals.alloc_run.keys() {
        all.entry(workload.clone()).or_default();
    }
    for (workload, durations) in metrics.durations.all() {
        all.entry(workload).or_default().1 = Some(durations);
    }
    all.into_iter().map(|(workload, (is_known, durations))| JobRow { workload, is_known, durations }).collect()
}
