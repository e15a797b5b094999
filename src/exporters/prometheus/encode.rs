//! A snapshot and the agent's registry into one body: family after family, each over all its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::created::Created;
use super::labels::{AllocLabels, LabelCache, WorkloadLabels, block, tail};
use super::page::{Page, Piece};
use super::{Format, durations, exemplar, header, measures, registry};
use crate::exporters::walk::{Filter, Source, lifecycle};
use crate::model::alloc::AllocState;
use crate::model::event::EventKind;
use crate::model::metric::{MetricDesc, Samples, Value};
use crate::model::task::{Outcome, RestartReason, TaskState};
use crate::model::units::Nanos;
use crate::model::usage::Usage;
use crate::runner::board::Latest;
use crate::snapshot::failed::FailedAllocs;
use crate::snapshot::{AllocView, Snapshot, TaskView, WorkloadView};
use crate::telemetry::Metrics;

/// What of the agent itself is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Itself {
    Whole,
    /// Without `process_*`: in a file for node_exporter's textfile collector these would clash with its own.
    WithoutProcess,
}

/// Renders bodies; keeps label blocks between them. Concurrency: one body at a time.
#[derive(Debug, Default)]
pub struct Encoder {
    cache: LabelCache,
}

impl Encoder {
    /// Writes a whole body on a page: on `bytes`, which is used up to its length and grown where that is too short. Gives the
    /// bytes back and how many of them are the body.
    pub fn encode(
        &mut self,
        snapshot: &Snapshot,
        metrics: &Metrics,
        format: Format,
        filter: &Filter,
        itself: Itself,
        bytes: Vec<u8>,
    ) -> (Vec<u8>, usize) {
        self.cache.begin();
        let mut body = Body { page: Page::on(bytes), format, filter, counts: Vec::new() };
        let labels: Vec<Arc<AllocLabels>> =
            shown(snapshot).map(|a| self.cache.alloc(a, &snapshot.info.cgroup_mode)).collect();
        let rows = Rows::new(snapshot, &labels);
        let blocks: Vec<Arc<WorkloadLabels>> = snapshot.workloads.iter().map(|w| self.cache.workload(w)).collect();
        infos(&mut body, &rows);
        measures::write(&mut body, &rows, snapshot, &blocks);
        task_states(&mut body, &rows, snapshot);
        counts(&mut body, snapshot);
        workloads(&mut body, snapshot, &blocks);
        durations::write(&mut body, &metrics.durations.all());
        node(&mut body, snapshot);
        samples(&mut body, &snapshot.host, Source::Host, itself);
        samples(&mut body, &snapshot.agent, Source::Agent, itself);
        registry::write(&mut body, metrics);
        series(&mut body);
        if format == Format::OpenMetrics {
            body.page.text("# EOF\n");
        }
        drop(rows);
        drop(labels);
        self.cache.end();
        body.page.finish()
    }
}

/// What is being written.
pub(super) struct Body<'a> {
    pub(super) page: Page,
    pub(super) format: Format,
    filter: &'a Filter,
    /// Series per family.
    counts: Vec<(&'static str, u64)>,
}

impl Body<'_> {
    pub(super) fn wants(&self, desc: &MetricDesc, source: Source) -> bool {
        self.filter.wants(desc.name, source)
    }

    /// One family: header, then what `write` writes; it tells how many series that were. None: no header either.
    pub(super) fn family(&mut self, desc: &MetricDesc, source: Source, write: impl FnOnce(&mut Page, &Piece) -> u64) {
        if !self.wants(desc, source) {
            return;
        }
        let start = self.page.len();
        header::write(&mut self.page, desc, self.format);
        let series = write(&mut self.page, &Piece::new(desc.name));
        if series == 0 {
            self.page.rewind(start);
        } else {
            self.counts.push((desc.name, series));
        }
    }
}

fn shown(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<AllocView>> {
    snapshot.allocs.iter().filter(|a| !a.retired)
}

/// Everything that the loops need, side by side.
pub(super) struct Rows<'a> {
    pub(super) allocs: Vec<AllocRow<'a>>,
    pub(super) tasks: Vec<TaskRow<'a>>,
}

pub(super) struct AllocRow<'a> {
    pub(super) block: &'a Piece,
    info: &'a Piece,
    pub(super) usage: &'a Usage,
    pub(super) live: bool,
}

pub(super) struct TaskRow<'a> {
    pub(super) block: &'a Piece,
    info: &'a Piece,
    pub(super) usage: &'a Usage,
    pub(super) live: bool,
    view: &'a TaskView,
}

impl<'a> Rows<'a> {
    fn new(snapshot: &'a Snapshot, labels: &'a [Arc<AllocLabels>]) -> Rows<'a> {
        let mut rows = Rows { allocs: Vec::with_capacity(labels.len()), tasks: Vec::with_capacity(labels.len()) };
        for (alloc, labels) in shown(snapshot).zip(labels) {
            rows.allocs.push(AllocRow {
                block: &labels.block,
                info: &labels.info,
                usage: &alloc.usage,
                live: !alloc.ended,
            });
            rows.tasks.extend(alloc.tasks.iter().zip(&labels.tasks).map(|(view, labels)| TaskRow {
                block: &labels.block,
                info: &labels.info,
                usage: &view.usage,
                live: view.attempt.is_some(),
                view,
            }));
        }
        rows
    }
}

fn infos(body: &mut Body<'_>, rows: &Rows<'_>) {
    let close = tail([]);
    body.family(&lifecycle::BUILD_INFO, Source::Agent, |page, name| {
        let labels = Piece::new(&block([("version", env!("CARGO_PKG_VERSION")), ("schema", lifecycle::SCHEMA)]));
        page.sample(name, &labels, &close, Value::Int(1));
        1
    });
    body.family(&lifecycle::ALLOC_INFO, Source::Managed, |page, name| {
        rows.allocs.iter().for_each(|row| page.sample(name, row.info, &close, Value::Int(1)));
        count(rows.allocs.len())
    });
    body.family(&lifecycle::TASK_INFO, Source::Managed, |page, name| {
        rows.tasks.iter().for_each(|row| page.sample(name, row.info, &close, Value::Int(1)));
        count(rows.tasks.len())
    });
}

fn task_states(body: &mut Body<'_>, rows: &Rows<'_>, snapshot: &Snapshot) {
    let close = tail([]);
    let states: Vec<(TaskState, Piece)> = TaskState::ALL.iter().map(|s| (*s, tail([("state", s.as_str())]))).collect();
    let tasks = count(rows.tasks.len());
    body.family(&lifecycle::TASK_STATE, Source::Managed, |page, name| {
        for row in &rows.tasks {
            for (state, tail) in &states {
                page.sample(name, row.block, tail, Value::Int(u64::from(row.view.status.state == *state)));
            }
        }
        tasks * 6
    });
    body.family(&lifecycle::TASK_STATE_SINCE, Source::Managed, |page, name| {
        for row in &rows.tasks {
            page.sample(name, row.block, &close, Value::Nanos(row.view.status.state_since.0));
        }
        tasks
    });
    body.family(&lifecycle::TASK_TIME_IN_STATE, Source::Managed, |page, name| {
        for row in &rows.tasks {
            for (state, tail) in &states {
                page.sample(name, row.block, tail, Value::Nanos(row.view.time_in(*state, snapshot.steady_at).0));
            }
        }
        tasks * 6
    });
    let reasons: Vec<Piece> = RestartReason::ALL.iter().map(|r| tail([("reason", r.as_str())])).collect();
    body.family(&lifecycle::TASK_RESTARTS, Source::Managed, |page, name| {
        for row in &rows.tasks {
            for (tail, n) in reasons.iter().zip(row.view.status.restarts) {
                page.sample(name, row.block, tail, Value::Int(n));
            }
        }
        tasks * count(reasons.len())
    });
}

fn counts(body: &mut Body<'_>, snapshot: &Snapshot) {
    let counts = &snapshot.counts;
    let allocs = AllocState::ALL.iter().map(|s| s.as_str()).zip(counts.allocs);
    plain(body, &lifecycle::ALLOCS, "state", allocs);
    plain(body, &lifecycle::TASKS, "state", TaskState::ALL.iter().map(|s| s.as_str()).zip(counts.tasks));
    single(body, &lifecycle::HOST_ALLOCATED_MEMORY, Value::Int(counts.allocated_memory_bytes));
    single(body, &lifecycle::HOST_ALLOCATED_CPU, Value::Float(counts.allocated_cpu_cores));
}

fn workloads(body: &mut Body<'_>, snapshot: &Snapshot, blocks: &[Arc<WorkloadLabels>]) {
    let views = || snapshot.workloads.iter().zip(blocks);
    let reasons: Vec<Piece> = RestartReason::ALL.iter().map(|r| tail([("reason", r.as_str())])).collect();
    let created = Created::of(&lifecycle::WORKLOAD_RESTARTS, body);
    body.family(&lifecycle::WORKLOAD_RESTARTS, Source::Managed, |page, name| {
        let mut series = count(blocks.len() * reasons.len());
        for (view, labels) in views() {
            for (tail, n) in reasons.iter().zip(view.ended.restarts) {
                page.sample(name, &labels.block, tail, Value::Int(n));
                series += created.write(page, labels, tail);
            }
        }
        series
    });
    let (format, nobody) = (body.format, Latest::default());
    let outcomes: Vec<Piece> = Outcome::ALL.iter().map(|o| tail([("outcome", o.as_str())])).collect();
    let created = Created::of(&lifecycle::TASK_EXITS, body);
    body.family(&lifecycle::TASK_EXITS, Source::Managed, |page, name| {
        let mut series = count(blocks.len()) * 6;
        for (view, labels) in views() {
            for ((tail, n), whose) in outcomes.iter().zip(view.ended.exits).zip(&latest_of(view, &nobody).exits) {
                page.sample(name, &labels.block, tail, Value::Int(n));
                exemplar::write(page, format, whose.as_ref());
                series += created.write(page, labels, tail);
            }
        }
        series
    });
    let created = Created::of(&lifecycle::TASK_EXIT_CODES, body);
    body.family(&lifecycle::TASK_EXIT_CODES, Source::Managed, |page, name| {
        let mut series = 0;
        for (view, labels) in views() {
            let latest = latest_of(view, &nobody);
            let codes = view.ended.exit_codes.iter().map(|(code, n)| ("code", code, n, &latest.exit_codes));
            let signals = view.ended.exit_signals.iter().map(|(signal, n)| ("signal", signal, n, &latest.exit_signals));
            for (label, number, n, whose) in codes.chain(signals) {
                let tail = tail([(label, itoa::Buffer::new().format(*number))]);
                page.sample(name, &labels.block, &tail, Value::Int(*n));
                exemplar::write(page, format, whose.get(number).and_then(Option::as_ref));
                series += 1 + created.write(page, labels, &tail);
            }
        }
        series
    });
    let kinds: Vec<(&str, Piece)> = EventKind::ALL.iter().map(|k| (k.label(), tail([("event", k.label())]))).collect();
    body.family(&lifecycle::TASK_EVENTS, Source::Managed, |page, name| {
        for (view, labels) in views() {
            for (label, tail) in &kinds {
                // Born at 0: an event that has not happened was seen no times.
                let n = view.ended.events.get(*label).map_or(0, |n| *n);
                page.sample(name, &labels.block, tail, Value::Int(n));
            }
        }
        count(blocks.len() * kinds.len())
    });
    let close = tail([]);
    let created = Created::of(&lifecycle::KILL_ESCALATIONS, body);
    body.family(&lifecycle::KILL_ESCALATIONS, Source::Managed, |page, name| {
        let mut series = count(blocks.len());
        for (view, labels) in views() {
            page.sample(name, &labels.block, &close, Value::Int(view.ended.kill_escalations));
            exemplar::write(page, format, latest_of(view, &nobody).escalation.as_ref());
            series += created.write(page, labels, &close);
        }
        series
    });
    let created = Created::of(&lifecycle::GIVEN_UP, body);
    body.family(&lifecycle::GIVEN_UP, Source::Managed, |page, name| {
        let mut series = count(blocks.len());
        for (view, labels) in views() {
            page.sample(name, &labels.block, &close, Value::Int(view.ended.given_up));
            exemplar::write(page, format, latest_of(view, &nobody).given_up.as_ref());
            series += created.write(page, labels, &close);
        }
        series
    });
    let known: BTreeSet<&str> = snapshot.workloads.iter().map(|w| w.workload.as_str()).collect();
    let mut run: BTreeMap<&str, [Nanos; 6]> = known.into_iter().map(|w| (w, [Nanos::ZERO; 6])).collect();
    let reasons = FailedAllocs::REASONS.map(|reason| tail([("reason", reason)]));
    body.family(&lifecycle::FAILED_ALLOCS, Source::Managed, |page, name| {
        for workload in run.keys() {
            let block = Piece::new(&block([("workload", *workload)]));
            let failed = snapshot.failed.get(*workload).copied().unwrap_or_default();
            for (tail, n) in reasons.iter().zip(failed.by_reason()) {
                page.sample(name, &block, tail, Value::Int(n));
            }
        }
        count(run.len() * reasons.len())
    });
    run.extend(snapshot.ended.alloc_run.iter().map(|(workload, run)| (workload.as_str(), *run)));
    body.family(&lifecycle::ALLOC_RUN, Source::Managed, |page, name| {
        for (workload, run) in &run {
            let block = Piece::new(&block([("workload", *workload)]));
            for (tail, ran) in outcomes.iter().zip(run) {
                page.sample(name, &block, tail, Value::Nanos(ran.0));
            }
        }
        count(run.len()) * 6
    });
}

fn latest_of<'a>(view: &'a WorkloadView, nobody: &'a Latest) -> &'a Latest {
    view.ended.latest.as_deref().unwrap_or(nobody)
}

fn node(body: &mut Body<'_>, snapshot: &Snapshot) {
    let node = &snapshot.node;
    plain(body, &lifecycle::NODE_EXITS, "outcome", Outcome::ALL.iter().map(|o| o.as_str()).zip(node.exits));
    if let Some(kills) = node.oom_kills {
        single(body, &lifecycle::NODE_OOM_KILLS, Value::Int(kills));
    }
    plain(body, &lifecycle::NODE_RESTARTS, "reason", RestartReason::ALL.iter().map(|r| r.as_str()).zip(node.restarts));
    if let Some(used) = node.cpu_usage_ns {
        single(body, &lifecycle::NODE_CPU, Value::Nanos(used));
    }
    single(body, &lifecycle::NODE_ALLOCS, Value::Int(node.allocs));
}

/// A family with one label of a closed list.
fn plain<'a>(body: &mut Body<'_>, desc: &MetricDesc, label: &str, values: impl Iterator<Item = (&'a str, u64)>) {
    let close = tail([]);
    body.family(desc, Source::Managed, |page, name| {
        let mut series = 0;
        for (value, n) in values {
            page.sample(name, &Piece::new(&block([(label, value)])), &close, Value::Int(n));
            series += 1;
        }
        series
    });
}

/// A family with one series and no labels.
fn single(body: &mut Body<'_>, desc: &MetricDesc, value: Value) {
    let space = Piece::new(" ");
    body.family(desc, Source::Managed, |page, name| {
        page.sample(name, &Piece::default(), &space, value);
        1
    });
}

/// What collectors pushed: gathered by family, in the order of their first samples.
fn samples(body: &mut Body<'_>, samples: &Samples, source: Source, itself: Itself) {
    let mut families: Vec<(&'static MetricDesc, Vec<usize>)> = Vec::new();
    for (place, sample) in samples.0.iter().enumerate() {
        if itself == Itself::WithoutProcess && sample.desc.name.starts_with("process_") {
            continue;
        }
        match families.iter_mut().find(|(desc, _)| desc.name == sample.desc.name) {
            Some((_, places)) => places.push(place),
            None => families.push((sample.desc, vec![place])),
        }
    }
    let (close, space) = (tail([]), Piece::new(" "));
    for (desc, places) in families {
        body.family(desc, source, |page, name| {
            for sample in places.iter().map(|place| &samples.0[*place]) {
                let pairs = desc.labels.iter().copied().zip(sample.labels.iter().map(AsRef::as_ref));
                let labels = block(pairs);
                let tail = if labels.is_empty() { &space } else { &close };
                page.sample(name, &Piece::new(&labels), tail, sample.value);
            }
            count(places.len())
        });
    }
}

/// Last, because it counts the others.
fn series(body: &mut Body<'_>) {
    let close = tail([]);
    let counts = std::mem::take(&mut body.counts);
    body.family(&lifecycle::SERIES, Source::Agent, |page, name| {
        for (family, n) in &counts {
            page.sample(name, &Piece::new(&block([("family", *family)])), &close, Value::Int(*n));
        }
        count(counts.len())
    });
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
