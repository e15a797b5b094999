//! What a walk says, and who listens.

use std::sync::Arc;

use super::filter::{Filter, Source};
use super::rows::{ONE_ROW, Rows};
use super::subject::Labels;
use crate::model::exponential::Exponential;
use crate::model::metric::{Exemplar, MetricDesc, Value};
use crate::model::units::Timestamp;

/// What is said of a family before its rows.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub desc: &'static MetricDesc,
    pub source: Source,
    pub rows: &'static Rows,
    /// A row has a value for each of these, and their labels distinguish them. Whose the row is, is not among them.
    pub cells: &'a [Labels<'a>],
    /// Of a histogram: the upper bounds of its buckets, but for the last, which has none.
    pub bounds: &'a [f64],
}

/// One value, and who moved it last, where that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    pub value: Value,
    pub exemplar: Option<&'a Exemplar>,
}

/// How many fell into each bucket and whose the latest was, from below; and the sum of all that was observed.
#[derive(Debug, Clone)]
pub struct HistogramPoint<B> {
    pub row: usize,
    pub cell: usize,
    pub buckets: B,
    pub sum: Value,
    /// The same observations in finer buckets.
    pub exponential: Arc<Exponential>,
    /// Since when it counts; `None`: not known.
    pub since: Option<Timestamp>,
}

/// Listens to a walk, family by family. Whose a row is: [`Walk::subject`](super::Walk::subject) of its place.
pub trait Listener {
    /// Every row, cell by cell; `None`: it says nothing. There may be no rows.
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>;
    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>;
}

/// The content of a page: the families that it exposes.
pub trait PageSource {
    fn expose(&self, walk: &super::Walk<'_>, listener: &mut impl Listener);
}

/// Families of one source, as they are walked.
pub(super) struct Families<'r, R> {
    pub(super) listener: &'r mut R,
    pub(super) filter: &'r Filter,
    pub(super) source: Source,
}

impl<R: Listener> Families<'_, R> {
    pub(super) fn selects(&self, desc: &MetricDesc) -> bool {
        self.filter.selects(desc, self.source)
    }

    /// A family with a row for every subject, in their order.
    pub(super) fn all<'p, C: IntoIterator<Item = Option<Point<'p>>>>(
        &mut self,
        desc: &'static MetricDesc,
        rows: &'static Rows,
        cells: &[Labels<'_>],
        points: impl Iterator<Item = C>,
    ) {
        if !self.selects(desc) {
            return;
        }
        let head = Head { desc, source: self.source, rows, cells, bounds: &[] };
        let Some(left) = self.filter.left_out(desc, cells) else { return self.listener.family(&head, points) };
        let is_exposed = |exposed: bool, point: &Point<'_>| exposed && !(left.zeros && point.value.is_zero());
        let of_row = |cells: C| {
            let points = cells.into_iter().zip(&left.exposed);
            points.map(|(point, exposed)| point.filter(|point| is_exposed(*exposed, point)))
        };
        self.listener.family(&head, points.map(of_row));
    }

    /// A family with one row.
    pub(super) fn one(
        &mut self,
        desc: &'static MetricDesc,
        cells: &[Labels<'_>],
        values: impl IntoIterator<Item = Value>,
    ) {
        self.all(desc, &ONE_ROW, cells, std::iter::once(values.into_iter().map(plain)));
    }

    pub(super) fn histograms<'p, B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>>(
        &mut self,
        desc: &'static MetricDesc,
        rows: &'static Rows,
        (cells, bounds): (&[Labels<'_>], &[f64]),
        all: impl Iterator<Item = HistogramPoint<B>>,
    ) {
        if !self.selects(desc) {
            return;
        }
        let head = Head { desc, source: self.source, rows, cells, bounds };
        match self.filter.left_out(desc, cells) {
            Some(left) => self.listener.histograms(&head, all.filter(|histogram| left.exposed[histogram.cell])),
            None => self.listener.histograms(&head, all),
        }
    }
}

/// The cells of a family with one label of a closed list.
pub(super) fn by<'a>(label: &'a str, values: impl IntoIterator<Item = &'a str>) -> Vec<Labels<'a>> {
    values.into_iter().map(|value| vec![(label, value)]).collect()
}

/// The only cell of a family without labels of its own.
pub(super) const SINGLE: &[Labels<'static>] = &[Vec::new()];

/// A value without an exemplar.
pub(super) fn plain<'p>(value: Value) -> Option<Point<'p>> {
    Some(Point { value, exemplar: None })
}

pub(super) fn int<'p>(n: u64) -> Option<Point<'p>> {
    plain(Value::Int(n))
}
