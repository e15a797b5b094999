//! A walk into one request: points gathered by whose they are.
//!
//! ```text
//! Walk ── families, row by row ──► places: host, agent, each alloc, task and device ──► ResourceMetrics
//!                                    └── what was exported before and is absent now: a point that says so (`Endings`)
//! ```
//! Workloads have no resource: their points belong to the agent's resource, with their labels as attributes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::message::{
    HistogramObservations, PointAttributes, PointValue, Series, SeriesPoint, exemplar_message, message, seconds,
};
use super::names::{self, Instrument, OF_RESOURCES, SeriesNaming};
use super::resource::{HostIdentity, instance};
use super::settings::HistogramAggregation;
use super::states;
use crate::exporters::walk::{
    ALLOC_DEVICE_ROWS, ALLOC_ROWS, CHECK_ROWS, Head, HistogramPoint, INSTANCE_ROWS, Labels, Listener, ONE_ROW,
    PARENT_ROWS, Point, RowSubject, Rows, Source, TASK_DEVICE_ROWS, TASK_ROWS, Walk, lifecycle, written,
};
use crate::model::metric::{Exemplar, Kind, Value};
use crate::model::units::{Nanos, Timestamp};
use crate::snapshot::AllocView;
use crate::snapshot::agent::PROCESS_START;
use crate::telemetry::otlp;

/// What was exported last, by instance: its end is exported too.
#[derive(Debug, Default)]
pub struct Endings {
    exported: HashMap<String, (Resource, Vec<Series>)>,
}

impl Endings {
    /// Replaces the series of the only resource; gives a point for each of them that ended.
    pub(super) fn replace(&mut self, resource: &Resource, series: Vec<Series>, at: u64) -> Vec<SeriesPoint> {
        let (_, before) = self.exported.remove(ONLY).unwrap_or_default();
        let removed = ended(before, &series, at);
        self.exported.insert(ONLY.to_owned(), (resource.clone(), series));
        removed
    }
}

/// Under which the series are kept where there is one resource.
const ONLY: &str = "";

/// What all points of a row have in common.
struct RowPlace {
    place: usize,
    /// In front of the attributes of its cells.
    labels: Vec<(String, String)>,
    /// Further attributes of its info family, where the row is of a task or alloc on a device. Other rows have them in
    /// their resource.
    info: Vec<(String, String)>,
    /// Of what type a device is.
    hardware: Option<String>,
    since: Option<Timestamp>,
    read_at: Timestamp,
}

const HOST: usize = 0;
const AGENT: usize = 1;
/// Then all allocs, then all tasks, then all devices.
const FIRST_ALLOC: usize = 2;

struct ConventionSeries<'w> {
    walk: &'w Walk<'w>,
    /// Of each kind of rows that was heard of.
    rows: Vec<(&'static Rows, Vec<RowPlace>)>,
    /// Which tasks are containers, in the order of their rows.
    containers: Vec<bool>,
    /// By id of a device its place.
    devices: HashMap<&'w str, usize>,
    /// When the agent's process began.
    began: Option<Timestamp>,
    places: Vec<Vec<SeriesPoint>>,
}

/// Everything that the walk says, in one request, which may be larger than any receiver takes.
pub fn collect(
    walk: &Walk<'_>,
    identity: &HostIdentity,
    aggregation: HistogramAggregation,
    endings: &mut Endings,
) -> ExportMetricsServiceRequest {
    let mut resource_metrics = Vec::new();
    collect_each(walk, identity, aggregation, endings, |message| resource_metrics.push(message));
    ExportMetricsServiceRequest { resource_metrics }
}

/// The same, resource by resource: all messages together are some hundred bytes for each point.
pub(super) fn collect_each(
    walk: &Walk<'_>,
    identity: &HostIdentity,
    aggregation: HistogramAggregation,
    endings: &mut Endings,
    mut each: impl FnMut(ResourceMetrics),
) {
    let mut gathered = ConventionSeries::new(walk);
    walk.expose(&mut gathered);
    let (node, at) = (&*walk.snapshot.info, walk.snapshot.taken_at.0);
    let allocs = walk.allocs.iter().map(|alloc| identity.alloc(node, alloc));
    let tasks = walk.allocs.iter().flat_map(|alloc| alloc.tasks().map(|task| identity.task(node, alloc, task)));
    let devices = walk.devices().map(|view| identity.device(node, view));
    let resources = [identity.host(node), identity.agent(node)].into_iter().chain(allocs).chain(tasks).chain(devices);
    let mut exported_before = std::mem::take(&mut endings.exported);
    for (resource, mut points) in resources.zip(gathered.places) {
        without_whole(&mut points);
        states::complete(&mut points);
        let series: Vec<Series> = points.iter().map(|point| point.series.clone()).collect();
        let id = instance(&resource).to_owned();
        if let Some((_, before)) = exported_before.remove(&id) {
            points.extend(ended(before, &series, at));
        }
        message(&resource, points, aggregation).into_iter().for_each(&mut each);
        endings.exported.insert(id, (resource, series));
    }
    // Their allocs are absent now.
    let mut removed: Vec<_> = exported_before.into_iter().collect();
    removed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let last = |(resource, before): (Resource, Vec<Series>)| message(&resource, ended(before, &[], at), aggregation);
    removed.into_iter().filter_map(|(_, exported)| last(exported)).for_each(each);
}

impl<'w> ConventionSeries<'w> {
    fn new(walk: &'w Walk<'w>) -> ConventionSeries<'w> {
        let tasks = || walk.allocs.iter().flat_map(|alloc| &alloc.tasks);
        let tasks_end = FIRST_ALLOC + walk.allocs.len() + tasks().count();
        let devices: HashMap<_, _> = walk.devices().map(|view| view.device.id.as_str()).zip(tasks_end..).collect();
        ConventionSeries {
            walk,
            rows: Vec::new(),
            places: (0..tasks_end + devices.len()).map(|_| Vec::new()).collect(),
            containers: walk.allocs.iter().flat_map(|alloc| containers(alloc)).collect(),
            devices,
            began: began(walk),
        }
    }

    /// Looks once who they are.
    fn register(&mut self, rows: &'static Rows) {
        let walk = self.walk;
        if self.rows.iter().any(|(known, _)| *known == rows) {
            return;
        }
        let of_allocs = [&TASK_DEVICE_ROWS, &ALLOC_DEVICE_ROWS, &CHECK_ROWS];
        let on_device = of_allocs.into_iter().any(|of| *rows == *of).then(|| self.by_id());
        let row = |row: usize| {
            let subject = walk.subject(rows, row);
            let owner = on_device.as_ref().and_then(|places| place_of(places, &subject));
            let labels = subject
                .labels
                .iter()
                .filter(|(key, value)| !value.is_empty() && (owner.is_none() || !OF_RESOURCES.contains(key)));
            let labels =
                labels.map(|(key, value)| (names::of_device(key).to_owned(), written(key, value).into_owned()));
            let device = walk.device(rows, row);
            let of_device = device.and_then(|view| self.devices.get(view.device.id.as_str()));
            let (place, labels) = if *rows == ALLOC_ROWS {
                (FIRST_ALLOC + row, Vec::new())
            } else if *rows == TASK_ROWS {
                (FIRST_ALLOC + walk.allocs.len() + row, Vec::new())
            } else if let Some(place) = owner {
                (place, labels.collect())
            } else if *rows == PARENT_ROWS {
                (HOST, labels.collect())
            } else if *rows == INSTANCE_ROWS {
                (of_device.copied().unwrap_or(HOST), of_instance(&subject))
            } else {
                (of_device.copied().unwrap_or(AGENT), labels.collect())
            };
            let info = subject.info.iter().filter(|(_, value)| on_device.is_some() && !value.is_empty());
            RowPlace {
                place,
                labels,
                info: info.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
                hardware: device.map(|view| view.kind.kind.clone()),
                since: subject.since,
                read_at: subject.read_at.unwrap_or(walk.snapshot.taken_at),
            }
        };
        let all = (0..(rows.count)(walk)).map(row).collect();
        self.rows.push((rows, all));
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

    /// Of the device that a cell names.
    fn named(&self, cell: &PointAttributes) -> Option<usize> {
        let (_, id) = cell.iter().find(|(key, _)| *key == names::DEVICE_ID)?;
        self.devices.get(id.as_str()).copied()
    }

    /// Since when a row counts.
    fn start(&self, head: &Head<'_>, instrument: Instrument, row: usize) -> u64 {
        let of_row = self.row(head.rows, row).map(|row| row.since);
        start((self.walk, self.began), head, instrument, of_row)
    }

    /// What was read has its own time, what is known (`is_known`) the snapshot's.
    fn at(&self, head: &Head<'_>, is_known: bool, row: usize) -> Timestamp {
        let row = self.row(head.rows, row).filter(|_| !is_known);
        row.map_or(self.walk.snapshot.taken_at, |row| row.read_at)
    }

    fn attributes(&self, head: &Head<'_>, row: usize, cell: &PointAttributes) -> PointAttributes {
        let Some(row) = self.row(head.rows, row) else { return Arc::clone(cell) };
        let info: &[_] = if head.desc.kind == Kind::Info { &row.info } else { &[] };
        let hardware = row.hardware.iter().filter(|_| names::is_of_hardware(head.desc));
        let hardware = hardware.map(|kind| (names::HARDWARE_TYPE.to_owned(), kind.clone()));
        if row.labels.is_empty() && info.is_empty() {
            return Arc::clone(cell);
        }
        row.labels.iter().chain(info).chain(cell.iter()).cloned().chain(hardware).collect()
    }

    fn cells(head: &Head<'_>) -> Vec<PointAttributes> {
        let apart = names::apart(head.desc);
        let of = |labels: &Labels<'_>| {
            let own = labels.iter().filter(|(_, value)| !value.is_empty());
            let own = own.flat_map(|(label, value)| names::attributes(head.desc, label, value));
            own.chain(apart.map(|(key, value)| (key.to_owned(), value.to_owned()))).collect()
        };
        head.cells.iter().map(of).collect()
    }
}

/// When the agent's process began.
pub(super) fn began(walk: &Walk<'_>) -> Option<Timestamp> {
    let began = walk.snapshot.agent.0.iter().find(|sample| sample.desc.name == PROCESS_START.name);
    began.and_then(|sample| moment(sample.value))
}

/// Since when a series counts; 0: unknown. `of_row`: what its row says, unless the source of the family says whose it
/// is.
pub(super) fn start(
    (walk, began): (&Walk<'_>, Option<Timestamp>),
    head: &Head<'_>,
    instrument: Instrument,
    of_row: Option<Option<Timestamp>>,
) -> u64 {
    use Instrument::{Counter, Gauge, Histogram, UpDownCounter};
    let since = match (instrument, of_row, head.source) {
        (Gauge, ..) => None,
        // Their buckets begin with the agent's process.
        (Histogram, ..) => began,
        (Counter | UpDownCounter, Some(of_row), _) => of_row,
        // They go on over restarts of the agent; their beginning is not recorded.
        (Counter, None, Source::Agent) if otlp::GOES_ON.iter().any(|d| std::ptr::eq(*d, head.desc)) => None,
        (Counter | UpDownCounter, None, Source::Agent) => began,
        (Counter | UpDownCounter, None, Source::Host) => walk.snapshot.info.booted_at,
        // Kept over restarts of the agent; their beginning is not recorded.
        (Counter | UpDownCounter, None, Source::Managed) => None,
    };
    since.map_or(0, |since| since.0)
}

/// The IDs of an instance and of its device.
fn of_instance(subject: &RowSubject<'_>) -> Vec<(String, String)> {
    let key = |label| if label == "mig_uuid" { names::DEVICE_ID } else { names::PARENT };
    subject.labels.iter().map(|(label, value)| (key(*label).to_owned(), (*value).to_owned())).collect()
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

impl Listener for ConventionSeries<'_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let Some(instrument) = names::instrument(head.desc) else { return };
        self.register(head.rows);
        let has_traces = self.walk.has_traces;
        let (cells, is_uptime) = (ConventionSeries::cells(head), names::is_uptime(head.desc));
        let is_known = lifecycle::METRICS.iter().any(|desc| std::ptr::eq(*desc, head.desc));
        // Other rows are whose they are.
        let named = *head.rows == ONE_ROW;
        let of_tasks = *head.rows == TASK_ROWS;
        for (row, points) in rows.enumerate() {
            let naming =
                if !of_tasks || self.containers[row] { SeriesNaming::Conventions } else { SeriesNaming::NotContainer };
            let (of_row, start, at) =
                (self.place(head, row), self.start(head, instrument, row), self.at(head, is_known, row));
            for (cell, point) in cells.iter().zip(points) {
                let Some(Point { value, exemplar }) = point else { continue };
                let value =
                    if is_uptime { moment(value).map(|since| Value::Nanos(at.since(since).0)) } else { Some(value) };
                let series = Series { desc: head.desc, naming, attributes: self.attributes(head, row, cell) };
                let value = PointValue::Number(value, exemplar.map(|of| exemplar_message(of, has_traces)));
                let place = named.then(|| self.named(cell)).flatten().unwrap_or(of_row);
                self.places[place].push(SeriesPoint { series, start, at: at.0, value });
            }
        }
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        self.register(head.rows);
        let has_traces = self.walk.has_traces;
        let (cells, bounds) = (ConventionSeries::cells(head), Arc::from(head.bounds));
        for HistogramPoint { row, cell, buckets, sum, exponential, .. } in all {
            let (counts, exemplars): (Vec<u64>, Vec<_>) = buckets.into_iter().unzip();
            let exemplars = exemplars.into_iter().flatten().map(|of| exemplar_message(of, has_traces)).collect();
            let attributes = self.attributes(head, row, &cells[cell]);
            let series = Series { desc: head.desc, naming: SeriesNaming::Conventions, attributes };
            let (bounds, sum) = (Arc::clone(&bounds), seconds(sum));
            let value = PointValue::Observed(HistogramObservations { bounds, counts, exponential, sum, exemplars });
            let (place, start, at) =
                (self.place(head, row), self.start(head, Instrument::Histogram, row), self.at(head, true, row));
            self.places[place].push(SeriesPoint { series, start, at: at.0, value });
        }
    }
}

/// Which tasks of the alloc are containers.
fn containers(alloc: &AllocView) -> impl Iterator<Item = bool> + '_ {
    let source = alloc.identity.source;
    alloc.tasks().map(move |(known, _)| names::is_container(source, known.driver.as_deref()))
}

/// CPU time is exported by mode or as a whole, never both: a sum of the points would count it twice.
fn without_whole(points: &mut Vec<SeriesPoint>) {
    const MODE: &str = "cpu.mode";
    let key = |series: &Series| {
        let rest = series.attributes.iter().filter(|(key, _)| key != MODE).cloned().collect::<Vec<_>>();
        (series.desc.otlp.map(|otlp| otlp.name), rest)
    };
    let has_mode = |series: &Series| series.attributes.iter().any(|(key, _)| key == MODE);
    let by_mode: BTreeSet<_> = points.iter().map(|point| &point.series).filter(|s| has_mode(s)).map(key).collect();
    points.retain(|point| {
        let is_time = point.series.desc.otlp.is_some_and(|otlp| otlp.name.ends_with("cpu.time"));
        !is_time || has_mode(&point.series) || !by_mode.contains(&key(&point.series))
    });
}

/// A point for each that was exported before and is absent now.
fn ended(before: Vec<Series>, now: &[Series], at: u64) -> Vec<SeriesPoint> {
    if before == now {
        return Vec::new();
    }
    let key = |series: &Series| (series.desc.name, series.naming, Arc::clone(&series.attributes));
    let there: BTreeSet<_> = now.iter().map(key).collect();
    let removed = before.into_iter().filter(|series| !there.contains(&key(series)));
    removed.map(|series| SeriesPoint { series, start: 0, at, value: PointValue::Ended }).collect()
}

/// A value that is a moment.
fn moment(value: Value) -> Option<Timestamp> {
    match value {
        Value::Nanos(n) => Some(Timestamp(n)),
        Value::Int(seconds) => Some(Timestamp(Nanos::from_secs(seconds).0)),
        Value::Float(_) => None,
    }
}
