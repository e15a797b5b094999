//! What workloads went through: counts of all their allocs, live and ended, and how long their tasks took to start and
//! to die.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::lifecycle::{
    FAILED_ALLOCS, GIVEN_UP, KILL_DURATION, KILL_ESCALATIONS, LOG_LOST, RESCHEDULES, START_DURATION, WORKLOAD_EVENTS,
    WORKLOAD_EXIT_CODES, WORKLOAD_EXITS, WORKLOAD_RESTARTS, WORKLOAD_RUN,
};
use super::listener::{Families, HistogramPoint, Listener, Point, SINGLE, by, int, plain};
use super::rows::{JOB_ROWS, JobRow, WORKLOAD_ROWS, Walk};
use super::subject::Labels;
use crate::collectors::capability::KERNEL_ENDS;
use crate::model::event::EventKind;
use crate::model::metric::{Exemplar, MetricDesc, Value};
use crate::model::task::{LostOutput, Outcome};
use crate::model::totals::LatestExemplars;
use crate::model::units::{Nanos, Timestamp};
use crate::snapshot::WorkloadTaskView;
use crate::snapshot::failed::FailureCounts;
use crate::snapshot::restarts::{self, reports_outcome};
use crate::telemetry::durations::{self, Durations, KILLS, STARTS};

pub(super) fn walk(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let views: Vec<&WorkloadTaskView> = walk.snapshot.workloads.iter().map(|view| &**view).collect();
    let reasons = by("reason", restarts::REASONS);
    let info = &walk.snapshot.info;
    let is_end_known = |view: &WorkloadTaskView| info.can(KERNEL_ENDS) || is_end_reported_by_runtime(view);
    let restarts = views.iter().map(|view| view.restarts(is_end_known(view)).map(|n| int(n?)));
    out.all(&WORKLOAD_RESTARTS, &WORKLOAD_ROWS, &reasons, restarts);
    exits(out, &views);
    let kinds = by("event", EventKind::ALL.iter().map(|kind| kind.label()));
    // Born at 0: an event that has not happened was seen no times.
    let times = |view: &WorkloadTaskView, kind: &EventKind| view.ended.events.get(kind.label()).map_or(0, |n| *n);
    let events = views
        .iter()
        .map(|view| EventKind::ALL.iter().map(move |kind| int(times(view, kind)).filter(|_| !view.observed)));
    out.all(&WORKLOAD_EVENTS, &WORKLOAD_ROWS, &kinds, events);
    let escalations = views.iter().map(|view| {
        let n = with_exemplar(view.ended.kill_escalations, latest(view, |latest| latest.escalation.as_ref()));
        [n.filter(|_| !view.observed)]
    });
    out.all(&KILL_ESCALATIONS, &WORKLOAD_ROWS, SINGLE, escalations);
    let given_up = views.iter().map(|view| {
        let n = with_exemplar(view.ended.abandoned, latest(view, |latest| latest.abandoned.as_ref()));
        [n.filter(|_| !view.observed)]
    });
    out.all(&GIVEN_UP, &WORKLOAD_ROWS, SINGLE, given_up);
    let streams = by("stream", LostOutput::STREAMS);
    let lost = views.iter().map(|view| view.ended.lost_output.by_stream().map(|n| int(n).filter(|_| n > 0)));
    out.all(&LOG_LOST, &WORKLOAD_ROWS, &streams, lost);
    jobs(out, walk);
    took(out, walk);
}

fn with_exemplar(n: u64, exemplar: Option<&Exemplar>) -> Option<Point<'_>> {
    Some(Point { value: Value::Int(n), exemplar })
}

/// The latest exit, kill ... of it, as `of` picks it.
fn latest<'a>(
    view: &'a WorkloadTaskView,
    of: impl Fn(&'a LatestExemplars) -> Option<&'a Exemplar>,
) -> Option<&'a Exemplar> {
    view.ended.latest.as_deref().and_then(of)
}

/// Its runtime reports how its tasks end.
fn is_end_reported_by_runtime(view: &WorkloadTaskView) -> bool {
    view.source.is_some_and(reports_outcome)
}

/// Of observed workloads only some runtimes report how they end: what none reports has not happened 0 times, but
/// unseen.
fn exits(out: &mut Families<'_, impl Listener>, views: &[&WorkloadTaskView]) {
    let unknown = Outcome::Unknown.index();
    let is_end_known = |view: &WorkloadTaskView| {
        let mut known = view.ended.exits.iter().enumerate().filter(|(outcome, _)| *outcome != unknown);
        !view.observed || is_end_reported_by_runtime(view) || known.any(|(_, n)| *n > 0)
    };
    let outcomes = by("outcome", Outcome::ALL.map(Outcome::as_str));
    let exits = views.iter().map(|view| {
        let (all, is_end_known) = (view.ended.exits.iter().enumerate(), is_end_known(view));
        all.map(move |(outcome, n)| {
            let n = with_exemplar(*n, latest(view, |latest| latest.exits[outcome].as_ref()));
            n.filter(|_| is_end_known || outcome == unknown)
        })
    });
    out.all(&WORKLOAD_EXITS, &WORKLOAD_ROWS, &outcomes, exits);

    // A workload has the few of them that it ended with.
    let codes: BTreeSet<u8> = views.iter().flat_map(|view| view.ended.exit_codes.keys().copied()).collect();
    let signals: BTreeSet<u8> = views.iter().flat_map(|view| view.ended.exit_signals.keys().copied()).collect();
    let texts = |numbers: &BTreeSet<u8>| numbers.iter().map(u8::to_string).collect::<Vec<_>>();
    let (code_texts, signal_texts) = (texts(&codes), texts(&signals));
    let mut cells: Vec<Labels<'_>> = by("code", code_texts.iter().map(String::as_str));
    cells.extend(by("signal", signal_texts.iter().map(String::as_str)));
    let counted = views.iter().map(|view| {
        let of_code = |code| {
            let n = view.ended.exit_codes.get(code)?;
            with_exemplar(*n, latest(view, |latest| latest.exit_codes.get(code)?.as_ref()))
        };
        let of_signal = |signal| {
            let n = view.ended.exit_signals.get(signal)?;
            with_exemplar(*n, latest(view, |latest| latest.exit_signals.get(signal)?.as_ref()))
        };
        codes.iter().map(of_code).chain(signals.iter().map(of_signal))
    });
    out.all(&WORKLOAD_EXIT_CODES, &WORKLOAD_ROWS, &cells, counted);
}

fn jobs(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let (snapshot, jobs) = (walk.snapshot, walk.jobs.iter());
    let reasons = by("reason", FailureCounts::REASONS);
    let failed = jobs.clone().map(|job| {
        let failed = snapshot.failed.get(&job.workload).copied().unwrap_or_default();
        failed.by_reason().map(|n| int(n).filter(|_| job.is_known))
    });
    out.all(&FAILED_ALLOCS, &JOB_ROWS, &reasons, failed);
    let reschedules = jobs.clone().map(|job| {
        let count = snapshot.ended_totals.reschedules.get(&job.workload).copied();
        [count.or_else(|| job.is_known.then_some(0)).and_then(int)]
    });
    out.all(&RESCHEDULES, &JOB_ROWS, SINGLE, reschedules);
    let outcomes = by("outcome", Outcome::ALL.map(Outcome::as_str));
    let run = jobs.map(|job| {
        let run = snapshot.ended_totals.alloc_run.get(&job.workload).copied();
        let run = run.or_else(|| job.is_known.then_some([Nanos::ZERO; Outcome::ALL.len()]));
        Outcome::ALL.map(|outcome| run.and_then(|run| plain(Value::Nanos(run[outcome.index()].0))))
    });
    out.all(&WORKLOAD_RUN, &JOB_ROWS, &outcomes, run);
}

/// Begins with the agent's process.
fn took(out: &mut Families<'_, impl Listener>, walk: &Walk<'_>) {
    let jobs = (walk.jobs.as_slice(), walk.metrics.began());
    histograms(out, &START_DURATION, &STARTS, jobs, |of| &of.starts);
    histograms(out, &KILL_DURATION, &KILLS, jobs, |of| &of.kills);
}

/// One family: of each workload a histogram.
fn histograms(
    out: &mut Families<'_, impl Listener>,
    desc: &'static MetricDesc,
    bounds: &[f64],
    (jobs, since): (&[JobRow], Option<Timestamp>),
    of: impl Fn(&Durations) -> &durations::Histogram,
) {
    let timed = jobs.iter().enumerate().filter_map(|(row, job)| Some((row, job.durations.as_deref()?)));
    let all = timed.map(|(row, durations)| {
        let histogram = of(durations);
        HistogramPoint {
            row,
            cell: 0,
            buckets: histogram.buckets.iter().map(|bucket| (bucket.count, bucket.latest.as_deref())),
            sum: Value::Nanos(histogram.sum.0),
            exponential: Arc::clone(&histogram.exponential),
            since,
        }
    });
    out.histograms(desc, &JOB_ROWS, (SINGLE, bounds), all);
}
