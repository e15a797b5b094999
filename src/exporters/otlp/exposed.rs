//! A walk under the names of `/metrics` (`names = "prometheus"`): each series of a scrape is one point with the same
//! labels, so boards and alerts read a store that was only pushed to.
//!
//! All of a host is one resource, because stores make `job` and `instance` of resources. There is no unit, no scope and
//! no schema: of these some stores make suffixes and labels, which a scrape does not have.

use std::rc::Rc;
use std::sync::Arc;

use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::collect::{Endings, began, start};
use super::message::{
    HistogramObservations, PointAttributes, PointValue, Series, SeriesPoint, exemplar_message, message, seconds,
};
use super::names::{self, SeriesNaming};
use super::resource::HostIdentity;
use super::settings::HistogramAggregation;
use crate::exporters::prometheus::with_itself;
use crate::exporters::walk::{
    Head, HistogramPoint, Labels, Listener, ONE_ROW, Point, Rows, WORKLOAD_ROWS, Walk, written,
};
use crate::model::metric::{Exemplar, Kind, Value};
use crate::model::units::Timestamp;

/// So many points are there unpacked at most, unless one family has more.
const CHUNK: usize = 4_096;

struct ExposedSeries<'w, E> {
    walk: &'w Walk<'w>,
    resource: Resource,
    /// On every point.
    common: Vec<(String, String)>,
    aggregation: HistogramAggregation,
    began: Option<Timestamp>,
    rows: Vec<(&'static Rows, Rc<[RowAttributes]>)>,
    points: Vec<SeriesPoint>,
    series: Vec<Series>,
    /// Series per family, as in a body.
    counts: Vec<(&'static str, u64)>,
    each: E,
}

struct RowAttributes {
    own: PointAttributes,
    /// With those of its info family.
    all: PointAttributes,
    since: Option<Timestamp>,
}

/// What `/metrics` has, some thousand points at a time. `is_flat`: `job` and `instance` are labels of the points and no
/// resource is sent.
pub(super) fn collect_exposed(
    walk: &Walk<'_>,
    identity: &HostIdentity,
    (aggregation, is_flat): (HistogramAggregation, bool),
    endings: &mut Endings,
    each: impl FnMut(ResourceMetrics),
) {
    let node = &*walk.snapshot.info;
    let (resource, common) = match is_flat {
        true => (Resource::default(), identity.labels(node)),
        false => (identity.whole(node), Vec::new()),
    };
    let mut exposed = ExposedSeries {
        walk,
        resource,
        common,
        aggregation,
        began: began(walk),
        rows: Vec::new(),
        points: Vec::new(),
        series: Vec::new(),
        counts: Vec::new(),
        each,
    };
    with_itself(walk, &mut exposed, |exposed| {
        walk.expose(exposed);
        std::mem::take(&mut exposed.counts)
    });
    let series = std::mem::take(&mut exposed.series);
    exposed.points.extend(endings.replace(&exposed.resource, series, walk.snapshot.taken_at.0));
    exposed.send();
}

impl<E: FnMut(ResourceMetrics)> ExposedSeries<'_, E> {
    fn labels(&mut self, rows: &'static Rows) -> Rc<[RowAttributes]> {
        if let Some((_, known)) = self.rows.iter().find(|(known, _)| *known == rows) {
            return Rc::clone(known);
        }
        let of_row = |row| {
            let subject = self.walk.subject(rows, row);
            // A point has no key twice: its own label comes before an attribute that the settings add.
            let is_own = |key: &str| subject.labels.iter().chain(&subject.info).any(|(name, _)| *name == key);
            let common = self.common.iter().filter(|(key, _)| !is_own(key)).cloned();
            let own = common.chain(pairs(&subject.labels));
            let all = own.clone().chain(pairs(&subject.info));
            RowAttributes { own: own.collect(), all: all.collect(), since: subject.since }
        };
        let labels: Rc<[RowAttributes]> = (0..(rows.count)(self.walk)).map(of_row).collect();
        self.rows.push((rows, Rc::clone(&labels)));
        labels
    }

    fn push(&mut self, series: Series, start: u64, value: PointValue) {
        self.series.push(series.clone());
        self.points.push(SeriesPoint { series, start, at: self.walk.snapshot.taken_at.0, value });
    }

    fn start(&self, head: &Head<'_>, row: &RowAttributes) -> u64 {
        let of_row = (*head.rows != ONE_ROW).then_some(row.since);
        start((self.walk, self.began), head, names::exposed(head.desc.kind), of_row)
    }

    fn end(&mut self, head: &Head<'_>, series: u64) {
        if series > 0 {
            self.counts.push((head.desc.name, series));
        }
        if self.points.len() >= CHUNK {
            self.send();
        }
    }

    fn send(&mut self) {
        let Some(mut whole) = message(&self.resource, std::mem::take(&mut self.points), self.aggregation) else {
            return;
        };
        whole.schema_url.clear();
        for scope in &mut whole.scope_metrics {
            scope.scope = None;
            scope.schema_url.clear();
        }
        (self.each)(whole);
    }
}

impl<E: FnMut(ResourceMetrics)> Listener for ExposedSeries<'_, E> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let (labels, cells) = (self.labels(head.rows), cells(head));
        let has_traces = self.walk.has_traces;
        let has_created = *head.rows == WORKLOAD_ROWS && head.desc.created_name().is_some();
        let mut count = 0;
        for (points, row) in rows.zip(&*labels) {
            let of_row = if head.desc.kind == Kind::Info { &row.all } else { &row.own };
            let start = self.start(head, row);
            for (cell, point) in cells.iter().zip(points) {
                let Some(Point { value, exemplar }) = point else { continue };
                let series =
                    Series { desc: head.desc, naming: SeriesNaming::Exposed, attributes: joined(of_row, cell) };
                if let Some(since) = row.since.filter(|_| has_created) {
                    let created = Series { naming: SeriesNaming::Created, ..series.clone() };
                    self.push(created, 0, PointValue::Number(Some(Value::Nanos(since.0)), None));
                    count += 1;
                }
                let value = PointValue::Number(Some(value), exemplar.map(|of| exemplar_message(of, has_traces)));
                self.push(series, start, value);
                count += 1;
            }
        }
        self.end(head, count);
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        let (labels, cells) = (self.labels(head.rows), cells(head));
        let (bounds, has_traces) = (Arc::from(head.bounds), self.walk.has_traces);
        let mut count = 0;
        for HistogramPoint { row, cell, buckets, sum, exponential, .. } in all {
            let (counts, exemplars): (Vec<u64>, Vec<_>) = buckets.into_iter().unzip();
            // Its sum and its count are series as well.
            count += counts.len() as u64 + 2;
            let exemplars = exemplars.into_iter().flatten().map(|of| exemplar_message(of, has_traces)).collect();
            let (bounds, sum) = (Arc::clone(&bounds), seconds(sum));
            let (row, cell) = (&labels[row], &cells[cell]);
            let series = Series { desc: head.desc, naming: SeriesNaming::Exposed, attributes: joined(&row.own, cell) };
            let observed = HistogramObservations { bounds, counts, exponential, sum, exemplars };
            self.push(series, self.start(head, row), PointValue::Observed(observed));
        }
        self.end(head, count);
    }
}

/// An empty value is the same as no label.
fn pairs<'a>(labels: &'a Labels<'_>) -> impl Iterator<Item = (String, String)> + Clone + 'a {
    let present = labels.iter().filter(|(_, value)| !value.is_empty());
    present.map(|(name, value)| ((*name).to_owned(), written(name, value).into_owned()))
}

fn cells(head: &Head<'_>) -> Vec<Vec<(String, String)>> {
    head.cells.iter().map(|cell| pairs(cell).collect()).collect()
}

/// Shared by all families without labels of their own.
fn joined(row: &PointAttributes, cell: &[(String, String)]) -> PointAttributes {
    let is_own = |key: &str| cell.iter().any(|(name, _)| name == key);
    match cell {
        [] => Arc::clone(row),
        _ => row.iter().filter(|(key, _)| !is_own(key)).chain(cell).cloned().collect(),
    }
}
