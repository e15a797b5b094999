//! What a walk says, and who listens.

use super::filter::{Filter, Source};
use crate::exporters::families::Level;
use crate::model::metric::{Exemplar, MetricDesc, Value};

/// Label names and values, in the order in which they are shown. An empty value is the same as no label.
pub type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Whose the rows of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    Of(Level),
    /// Of whole workloads.
    OfJobs,
    /// One row, of whatever the source is.
    One,
}

/// What is said of a family before its rows.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub desc: &'static MetricDesc,
    pub source: Source,
    pub rows: Rows,
    /// A row has a value for each of these, which they tell apart. Whose the row is, is not among them.
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

/// Listens to a walk: family by family, each row by row.
pub trait Reader {
    /// A family begins. It may turn out to have no rows.
    fn family(&mut self, head: &Head<'_>);
    /// What a row says, cell by cell; `None`: nothing. `row`: whose it is, by [`Walk::subject`](super::Walk::subject).
    fn row<'p>(&mut self, row: usize, cells: impl Iterator<Item = Option<Point<'p>>>);
    /// One histogram: how many fell into each bucket and whose the latest was, from below; and the sum of them all.
    fn histogram<'p>(
        &mut self,
        row: usize,
        cell: usize,
        buckets: impl Iterator<Item = (u64, Option<&'p Exemplar>)>,
        sum: Value,
    );
    fn end(&mut self);
}

/// Families of one source, as they are walked.
pub(super) struct Families<'r, R> {
    pub(super) reader: &'r mut R,
    pub(super) filter: &'r Filter,
    pub(super) source: Source,
}

impl<R: Reader> Families<'_, R> {
    pub(super) fn wants(&self, desc: &MetricDesc) -> bool {
        self.filter.wants(desc.name, self.source)
    }

    /// One family, if it is wanted: what `walk` says are its rows.
    pub(super) fn family(
        &mut self,
        desc: &'static MetricDesc,
        rows: Rows,
        (cells, bounds): (&[Labels<'_>], &[f64]),
        walk: impl FnOnce(&mut R),
    ) {
        if self.wants(desc) {
            self.reader.family(&Head { desc, source: self.source, rows, cells, bounds });
            walk(self.reader);
            self.reader.end();
        }
    }

    /// A family of which every subject has a row, in their order.
    pub(super) fn all<'p, C: IntoIterator<Item = Option<Point<'p>>>>(
        &mut self,
        desc: &'static MetricDesc,
        rows: Rows,
        cells: &[Labels<'_>],
        points: impl Iterator<Item = C>,
    ) {
        self.family(desc, rows, (cells, &[]), |reader| {
            points.enumerate().for_each(|(row, cells)| reader.row(row, cells.into_iter()));
        });
    }

    /// A family with one row.
    pub(super) fn one(
        &mut self,
        desc: &'static MetricDesc,
        cells: &[Labels<'_>],
        values: impl IntoIterator<Item = Value>,
    ) {
        self.all(desc, Rows::One, cells, std::iter::once(values.into_iter().map(plain)));
    }
}

/// The cells of a family with one label of a closed list.
pub(super) fn by<'a>(label: &'a str, values: impl IntoIterator<Item = &'a str>) -> Vec<Labels<'a>> {
    values.into_iter().map(|value| vec![(label, value)]).collect()
}

/// The only cell of a family without labels of its own.
pub(super) const SINGLE: &[Labels<'static>] = &[Vec::new()];

/// A value of which nobody in particular is known to have moved it.
pub(super) fn plain<'p>(value: Value) -> Option<Point<'p>> {
    Some(Point { value, exemplar: None })
}

pub(super) fn int<'p>(n: u64) -> Option<Point<'p>> {
    plain(Value::Int(n))
}
