//! A walk into one request: points gathered by whose they are.
//!
//! ```text
//! Walk ── families, row by row ──► places: host, agent, each alloc, each task ──► ResourceMetrics
//!                                    └── what was told before and is not told now: a point that says so (`Endings`)
//! ```
//! Workloads have no resource: what is told of them are points of the agent's, with their labels as attributes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as ExemplarMessage, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::names::{self, Instrument, SCHEMA_URL};
use super::resource::{HostIdentity, instance, key_value};
use crate::exporters::walk::{
    ALLOC_DEVICE_ROWS, ALLOC_ROWS, DEVICE_ROWS, Head, HistogramPoint, INSTANCE_ROWS, Labels, Listener, ONE_ROW, Point,
    RowSubject, Rows, Source, TASK_DEVICE_ROWS, TASK_ROWS, Walk, lifecycle,
};
use crate::model::metric::{Exemplar, MetricDesc, Value};
use crate::model::task::TaskState;
use crate::model::units::{Nanos, Timestamp, Unit};
use crate::snapshot::TaskView;
use crate::snapshot::itself::PROCESS_START;
use crate::telemetry::otlp;

/// There is no value: `FLAG_NO_RECORDED_VALUE_MASK`.
pub const NO_RECORDED_VALUE: u32 = 1;

/// Names and values.
type Attributes = Arc<[(String, String)]>;

/// What was told last, by instance: so that its end can be told.
#[derive(Debug, Default)]
pub struct Endings {
    told: HashMap<String, (Resource, Vec<Series>)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Series {
    desc: &'static MetricDesc,
    attributes: Attributes,
}

struct Told {
    series: Series,
    /// 0: not known, or nothing that begins.
    start: u64,
    at: u64,
    value: Measured,
}

enum Measured {
    Number(Option<Value>, Option<ExemplarMessage>),
    Buckets {
        bounds: Arc<[f64]>,
        counts: Vec<u64>,
        sum: f64,
        exemplars: Vec<ExemplarMessage>,
    },
    /// It was told, and is not any more.
    Ended,
}

/// What all points of a row have in common.
struct RowPlace {
    place: usize,
    /// In front of the attributes of its cells.
    labels: Vec<(String, String)>,
    since: Option<Timestamp>,
    read_at: Timestamp,
}

const HOST: usize = 0;
const AGENT: usize = 1;
/// Then all allocs, then all tasks.
const FIRST_ALLOC: usize = 2;

struct Gathered<'w> {
    walk: &'w Walk<'w>,
    /// Of each kind of rows that was heard of.
    rows: Vec<(&'static Rows, Vec<RowPlace>)>,
    /// Which tasks run, in the order of their rows.
    running: Vec<bool>,
    /// When the agent's process began.
    began: Option<Timestamp>,
    places: Vec<Vec<Told>>,
}

/// Everything that the walk says, in one request, which may be larger than any receiver takes.
pub fn collect(walk: &Walk<'_>, identity: &HostIdentity, endings: &mut Endings) -> ExportMetricsServiceRequest {
    let mut gathered = Gathered::new(walk);
    walk.tell(&mut gathered);
    let (node, at) = (&*walk.snapshot.info, walk.snapshot.taken_at.0);
    let allocs = walk.allocs.iter().map(|alloc| identity.alloc(node, alloc));
    let tasks = walk.allocs.iter().flat_map(|alloc| alloc.tasks().map(|task| identity.task(node, alloc, task)));
    let resources = [identity.host(node), identity.agent(node)].into_iter().chain(allocs).chain(tasks);
    let mut told_before = std::mem::take(&mut endings.told);
    let mut messages = Vec::new();
    for (resource, mut points) in resources.zip(gathered.places) {
        without_whole(&mut points);
        let series: Vec<Series> = points.iter().map(|told| told.series.clone()).collect();
        let id = instance(&resource).to_owned();
        if let Some((_, before)) = told_before.remove(&id) {
            points.extend(ended(before, &series, at));
        }
        messages.extend(message(&resource, points));
        endings.told.insert(id, (resource, series));
    }
    // Their allocs are told no more.
    let mut gone: Vec<_> = told_before.into_iter().collect();
    gone.sort_by(|(a, _), (b, _)| a.cmp(b));
    messages.extend(gone.into_iter().filter_map(|(_, (resource, before))| message(&resource, ended(before, &[], at))));
    ExportMetricsServiceRequest { resource_metrics: messages }
}

impl<'w> Gathered<'w> {
    fn new(walk: &'w Walk<'w>) -> Gathered<'w> {
        let tasks = || walk.allocs.iter().flat_map(|alloc| &alloc.tasks);
        let runs = |task: &Arc<TaskView>| {
            task.managed.as_ref().is_some_and(|managed| managed.status.state == TaskState::Running)
        };
        let began = walk.snapshot.agent.0.iter().find(|sample| sample.desc.name == PROCESS_START.name);
        Gathered {
            walk,
            rows: Vec::new(),
            places: (0..FIRST_ALLOC + walk.allocs.len() + tasks().count()).map(|_| Vec::new()).collect(),
            running: tasks().map(runs).collect(),
            began: began.and_then(|sample| moment(sample.value)),
        }
    }

    /// Looks once who they are.
    fn hear_of(&mut self, rows: &'static Rows) {
        let walk = self.walk;
        if self.rows.iter().any(|(known, _)| *known == rows) {
            return;
        }
        let on_device = (*rows == TASK_DEVICE_ROWS || *rows == ALLOC_DEVICE_ROWS).then(|| self.by_id());
        let row = |row: usize| {
            let subject = walk.subject(rows, row);
            let whose = on_device.as_ref().and_then(|places| place_of(places, &subject));
            let labels = subject.labels.iter().filter(|(key, value)| {
                !value.is_empty() && (whose.is_none() || !["alloc_id", "task", "workload"].contains(key))
            });
            let labels = labels.map(|(key, value)| (names::of_device(key).to_owned(), (*value).to_owned()));
            let (place, labels) = if *rows == ALLOC_ROWS {
                (FIRST_ALLOC + row, Vec::new())
            } else if *rows == TASK_ROWS {
                (FIRST_ALLOC + walk.allocs.len() + row, Vec::new())
            } else if let Some(place) = whose {
                (place, labels.collect())
            } else if *rows == DEVICE_ROWS || *rows == INSTANCE_ROWS {
                (HOST, labels.collect())
            } else {
                (AGENT, labels.collect())
            };
            let read_at = subject.read_at.unwrap_or(walk.snapshot.taken_at);
            RowPlace { place, labels, since: subject.since, read_at }
        };
        self.rows.push((rows, (0..(rows.count)(walk)).map(row).collect()));
    }

    /// The places of all allocs, and of their tasks by name.
    fn by_id(&self) -> Places<'w> {
        let mut task = FIRST_ALLOC + self.walk.allocs.len();
        let places = self.walk.allocs.iter().enumerate().map(|(at, alloc)| {
            let names = alloc.identity.tasks.iter().map(|known| known.name.as_str());
            let tasks: Vec<_> = names.zip(task..).collect();
            task += tasks.len();
            (alloc.identity.id.as_str(), (FIRST_ALLOC + at, tasks))
        });
        places.collect()
    }

    /// `None` of one whose source says whose it is.
    fn row(&self, rows: &Rows, row: usize) -> Option<&RowPlace> {
        let (_, known) = self.rows.iter().find(|(known, _)| *known == rows)?;
        known.get(row).filter(|_| *rows != ONE_ROW)
    }

    fn place(&self, head: &Head<'_>, row: usize) -> usize {
        match self.row(head.rows, row) {
            Some(row) => row.place,
            None if head.source == Source::Host => HOST,
            None => AGENT,
        }
    }

    /// Since when a row counts.
    fn start(&self, head: &Head<'_>, instrument: Instrument, row: usize) -> u64 {
        use Instrument::{Counter, Gauge, Histogram, UpDownCounter};
        let since = match (instrument, self.row(head.rows, row), head.source) {
            (Gauge, ..) => None,
            // Their buckets begin with the agent's process.
            (Histogram, ..) => self.began,
            (Counter | UpDownCounter, Some(row), _) => row.since,
            // They go on over restarts of the agent, from a beginning that nobody noted.
            (Counter, None, Source::Agent) if otlp::GOES_ON.iter().any(|d| std::ptr::eq(*d, head.desc)) => None,
            (Counter | UpDownCounter, None, Source::Agent) => self.began,
            (Counter | UpDownCounter, None, Source::Host) => self.walk.snapshot.info.booted_at,
            // Kept over restarts of the agent; nobody noted when they began.
            (Counter | UpDownCounter, None, Source::Managed) => None,
        };
        since.map_or(0, |since| since.0)
    }

    /// What was read has its own time, what is known (`is_known`) the snapshot's.
    fn at(&self, head: &Head<'_>, is_known: bool, row: usize) -> Timestamp {
        let row = self.row(head.rows, row).filter(|_| !is_known);
        row.map_or(self.walk.snapshot.taken_at, |row| row.read_at)
    }

    fn attributes(&self, head: &Head<'_>, row: usize, cell: &Attributes) -> Attributes {
        match self.row(head.rows, row) {
            Some(row) if !row.labels.is_empty() => row.labels.iter().chain(cell.iter()).cloned().collect(),
            _ => Arc::clone(cell),
        }
    }

    fn cells(head: &Head<'_>) -> Vec<Attributes> {
        let apart = names::apart(head.desc);
        let of = |labels: &Labels<'_>| {
            let own = labels.iter().filter(|(_, value)| !value.is_empty());
            let own = own.map(|(label, value)| (names::attribute(head.desc, label), *value));
            own.chain(apart).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        head.cells.iter().map(of).collect()
    }
}

/// By id of an alloc its place, and those of its tasks by name.
type Places<'w> = HashMap<&'w str, (usize, Vec<(&'w str, usize)>)>;

/// Of the task, or else the alloc, that the labels name.
fn place_of(places: &Places<'_>, subject: &RowSubject<'_>) -> Option<usize> {
    let label = |name| subject.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let (alloc, tasks) = places.get(label("alloc_id")?)?;
    match label("task") {
        Some(name) => tasks.iter().find(|(task, _)| *task == name).map(|(_, place)| *place),
        None => Some(*alloc),
    }
}

impl Listener for Gathered<'_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let Some(instrument) = names::instrument(head.desc) else { return };
        self.hear_of(head.rows);
        let (cells, is_uptime) = (Gathered::cells(head), names::is_uptime(head.desc));
        let is_known = lifecycle::METRICS.iter().any(|desc| std::ptr::eq(*desc, head.desc));
        for (row, points) in rows.enumerate() {
            // Of a task, only while it runs.
            if is_uptime && *head.rows == TASK_ROWS && !self.running[row] {
                continue;
            }
            let (place, start, at) =
                (self.place(head, row), self.start(head, instrument, row), self.at(head, is_known, row));
            for (cell, point) in cells.iter().zip(points) {
                let Some(Point { value, exemplar }) = point else { continue };
                let value =
                    if is_uptime { moment(value).map(|since| Value::Nanos(at.since(since).0)) } else { Some(value) };
                let series = Series { desc: head.desc, attributes: self.attributes(head, row, cell) };
                let value = Measured::Number(value, exemplar.map(exemplar_message));
                self.places[place].push(Told { series, start, at: at.0, value });
            }
        }
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        self.hear_of(head.rows);
        let (cells, bounds) = (Gathered::cells(head), Arc::from(head.bounds));
        for HistogramPoint { row, cell, buckets, sum, .. } in all {
            let (counts, exemplars): (Vec<u64>, Vec<_>) = buckets.into_iter().unzip();
            let exemplars = exemplars.into_iter().flatten().map(exemplar_message).collect();
            let series = Series { desc: head.desc, attributes: self.attributes(head, row, &cells[cell]) };
            let value = Measured::Buckets { bounds: Arc::clone(&bounds), counts, sum: seconds(sum), exemplars };
            let (place, start, at) =
                (self.place(head, row), self.start(head, Instrument::Histogram, row), self.at(head, true, row));
            self.places[place].push(Told { series, start, at: at.0, value });
        }
    }
}

/// CPU time is told by mode or as a whole, never both: who adds the points up would count it twice.
fn without_whole(points: &mut Vec<Told>) {
    const MODE: &str = "cpu.mode";
    let key = |series: &Series| {
        let rest = series.attributes.iter().filter(|(key, _)| key != MODE).cloned().collect::<Vec<_>>();
        (series.desc.otlp.map(|otlp| otlp.name), rest)
    };
    let has_mode = |series: &Series| series.attributes.iter().any(|(key, _)| key == MODE);
    let by_mode: BTreeSet<_> = points.iter().map(|told| &told.series).filter(|s| has_mode(s)).map(key).collect();
    points.retain(|told| {
        let is_time = told.series.desc.otlp.is_some_and(|otlp| otlp.name.ends_with("cpu.time"));
        !is_time || has_mode(&told.series) || !by_mode.contains(&key(&told.series))
    });
}

/// A point for each that was told before and is not told now.
fn ended(before: Vec<Series>, now: &[Series], at: u64) -> Vec<Told> {
    if before == now {
        return Vec::new();
    }
    let key = |series: &Series| (series.desc.name, Arc::clone(&series.attributes));
    let there: BTreeSet<_> = now.iter().map(key).collect();
    let gone = before.into_iter().filter(|series| !there.contains(&key(series)));
    gone.map(|series| Told { series, start: 0, at, value: Measured::Ended }).collect()
}

/// `None`: nothing is told of it.
fn message(resource: &Resource, points: Vec<Told>) -> Option<ResourceMetrics> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut by_name: HashMap<&'static str, usize> = HashMap::new();
    for told in points {
        let (Some(otlp), Some(instrument)) = (told.series.desc.otlp, names::instrument(told.series.desc)) else {
            continue;
        };
        let place = *by_name.entry(otlp.name).or_insert_with(|| {
            metrics.push(Metric {
                name: otlp.name.to_owned(),
                description: told.series.desc.help.to_owned(),
                unit: otlp.unit.to_owned(),
                data: Some(empty(instrument)),
                ..Metric::default()
            });
            metrics.len() - 1
        });
        push(&mut metrics[place], told);
    }
    let scope = InstrumentationScope {
        name: "allostat".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: SCHEMA_URL.to_owned() }];
    let is_empty = scope_metrics[0].metrics.is_empty();
    let schema_url = SCHEMA_URL.to_owned();
    (!is_empty).then(|| ResourceMetrics { resource: Some(resource.clone()), scope_metrics, schema_url })
}

fn empty(instrument: Instrument) -> metric::Data {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let data_points = Vec::new();
    match instrument {
        Instrument::Gauge => metric::Data::Gauge(Gauge { data_points }),
        Instrument::Counter | Instrument::UpDownCounter => {
            let is_monotonic = instrument == Instrument::Counter;
            metric::Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
        }
        Instrument::Histogram => {
            metric::Data::Histogram(Histogram { data_points: Vec::new(), aggregation_temporality })
        }
    }
}

fn push(metric: &mut Metric, told: Told) {
    let attributes: Vec<KeyValue> = told.series.attributes.iter().map(|(key, value)| key_value(key, value)).collect();
    let (start_time_unix_nano, time_unix_nano) = (told.start, told.at);
    let flags = if let Measured::Ended = told.value { NO_RECORDED_VALUE } else { 0 };
    match &mut metric.data {
        Some(metric::Data::Gauge(Gauge { data_points }) | metric::Data::Sum(Sum { data_points, .. })) => {
            let (value, exemplar) =
                if let Measured::Number(value, exemplar) = told.value { (value, exemplar) } else { (None, None) };
            data_points.push(NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                exemplars: exemplar.into_iter().collect(),
                flags,
                value: value.map(|value| number(told.series.desc.unit, value)),
            });
        }
        Some(metric::Data::Histogram(Histogram { data_points, .. })) => {
            let mut point = HistogramDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                flags,
                ..HistogramDataPoint::default()
            };
            if let Measured::Buckets { bounds, counts, sum, exemplars } = told.value {
                point.count = counts.iter().sum();
                point.sum = Some(sum);
                point.bucket_counts = counts;
                point.explicit_bounds = bounds.to_vec();
                point.exemplars = exemplars;
            }
            data_points.push(point);
        }
        _ => {}
    }
}

/// Counts and bytes are integers, whatever has another unit is a float: one metric is always one of both, as far as OTLP's
/// integers reach.
fn number(unit: Unit, value: Value) -> number_data_point::Value {
    let whole =
        if let (Unit::None | Unit::Bytes, Value::Int(n)) = (unit, value) { i64::try_from(n).ok() } else { None };
    whole.map_or_else(|| number_data_point::Value::AsDouble(seconds(value)), number_data_point::Value::AsInt)
}

#[allow(clippy::cast_precision_loss, reason = "what is no count is a float in OTLP")]
fn seconds(value: Value) -> f64 {
    match value {
        Value::Int(n) => n as f64,
        Value::Nanos(n) => Nanos(n).as_secs_f64(),
        Value::Float(f) => f,
    }
}

/// A value that is a moment.
fn moment(value: Value) -> Option<Timestamp> {
    match value {
        Value::Nanos(n) => Some(Timestamp(n)),
        Value::Int(seconds) => Some(Timestamp(Nanos::from_secs(seconds).0)),
        Value::Float(_) => None,
    }
}

fn exemplar_message(exemplar: &Exemplar) -> ExemplarMessage {
    let mut filtered_attributes = vec![key_value("allostat.alloc.id", exemplar.alloc_id.as_str())];
    filtered_attributes.extend(exemplar.event_id.map(|id| key_value("allostat.event.id", &id.to_string())));
    let value = match number(Unit::None, exemplar.value) {
        number_data_point::Value::AsInt(n) => exemplar::Value::AsInt(n),
        number_data_point::Value::AsDouble(n) => exemplar::Value::AsDouble(n),
    };
    ExemplarMessage {
        filtered_attributes,
        time_unix_nano: exemplar.at.0,
        value: Some(value),
        ..ExemplarMessage::default()
    }
}
