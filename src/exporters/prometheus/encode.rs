//! A walk into one body: family after family, each over all its rows.

use std::sync::Arc;

use super::labels::{AllocLabels, Blocks, LabelCache, WorkloadLabels, block, close};
use super::page::{Page, Piece};
use super::{exemplar, header};
use crate::exporters::families::Level;
use crate::exporters::walk::{Head, Labels, Point, Reader, Rows, Source, Walk};
use crate::model::answer::Format;
use crate::model::metric::{Exemplar, Kind, MetricDesc, Value};
use crate::model::units::Unit;

pub(super) static SERIES: MetricDesc = MetricDesc::gauge(
    "allostat_series",
    Unit::None,
    "Series of each family in this very body, less those of this family.",
    &["family"],
)
.otlp("allostat.series", "{series}");

/// Renders bodies; keeps label blocks between them. Concurrency: one body at a time.
#[derive(Debug, Default)]
pub struct Encoder {
    cache: LabelCache,
}

impl Encoder {
    /// Writes a whole body on a page: on `bytes`, which is used up to its length and grown where that is too short. Gives the
    /// bytes back and how many of them are the body.
    pub fn encode(&mut self, walk: &Walk<'_>, format: Format, bytes: Vec<u8>) -> (Vec<u8>, usize) {
        self.cache.begin();
        let mode = &walk.snapshot.info.cgroup_mode;
        let allocs: Vec<Arc<AllocLabels>> = walk.allocs.iter().map(|a| self.cache.alloc(a, mode)).collect();
        let workloads: Vec<Arc<WorkloadLabels>> =
            walk.snapshot.workloads.iter().map(|w| self.cache.workload(w)).collect();
        let job = |row| Piece::new(&block(walk.subject(Rows::OfJobs, row).labels));
        let jobs: Vec<Piece> = (0..walk.jobs.len()).map(job).collect();
        let none = Piece::default();
        let blocks = Blocks::new(&allocs, &workloads, &jobs, &none);
        let mut body =
            Body { page: Page::on(bytes), format, blocks: &blocks, counts: Vec::new(), family: Current::default() };
        walk.read(&mut body);
        if walk.filter.wants(SERIES.name, Source::Agent) {
            body.series();
        }
        if format == Format::OpenMetrics {
            body.page.text("# EOF\n");
        }
        self.cache.end();
        body.page.finish()
    }
}

/// What is being written.
struct Body<'a> {
    page: Page,
    format: Format,
    blocks: &'a Blocks<'a>,
    /// Series per family.
    counts: Vec<(&'static str, u64)>,
    family: Current<'a>,
}

/// The family that is being written.
#[derive(Default)]
struct Current<'a> {
    name: &'static str,
    /// Where its header begins.
    start: usize,
    series: u64,
    /// What its samples begin with; those of a histogram have names of their own.
    sample: Piece,
    /// The labels of its rows.
    rows: &'a [&'a Piece],
    /// What closes the labels of each cell.
    tails: Vec<Piece>,
    histogram: Option<Histogram>,
    created: Option<Piece>,
}

/// What the lines of a histogram have besides.
struct Histogram {
    bucket: Piece,
    sum: Piece,
    count: Piece,
    /// What closes the labels of each bucket: cell by cell.
    tails: Vec<Vec<Piece>>,
}

impl Histogram {
    fn new(head: &Head<'_>, format: Format) -> Histogram {
        let [bucket, sum, count] =
            ["bucket", "sum", "count"].map(|part| Piece::new(&format!("{}_{part}", head.desc.name)));
        let bounds: Vec<String> =
            head.bounds.iter().chain([&f64::INFINITY]).map(|bound| upper(*bound, format)).collect();
        let tails = |cell: &Labels<'_>| {
            let tail = |le: &String| close(head.rows, cell.iter().copied().chain([("le", le.as_str())]));
            bounds.iter().map(tail).collect()
        };
        Histogram { bucket, sum, count, tails: head.cells.iter().map(tails).collect() }
    }
}

/// OpenMetrics wants `1.0` where text has `1`.
fn upper(bound: f64, format: Format) -> String {
    match format {
        _ if bound == f64::INFINITY => "+Inf".to_owned(),
        Format::OpenMetrics if bound.fract() == 0.0 => format!("{bound:.1}"),
        Format::OpenMetrics | Format::Text => bound.to_string(),
    }
}

/// The name of the samples that say since when a counter counts. OpenMetrics alone has them.
///
/// Source: OpenMetrics 1.0.0, "Counter": a sample beside the total, with the same labels. A task that fails before the first
/// scrape is first seen at 1: this says that it was 0 within the window that is asked for.
fn created(head: &Head<'_>, format: Format) -> Option<Piece> {
    let is_told = format == Format::OpenMetrics && head.rows == Rows::Of(Level::Workload);
    head.desc.created_name().filter(|_| is_told).map(|name| Piece::new(&name))
}

impl Reader for Body<'_> {
    fn family(&mut self, head: &Head<'_>) {
        let start = self.page.len();
        header::write(&mut self.page, head.desc, self.format);
        self.family = Current {
            name: head.desc.name,
            start,
            series: 0,
            sample: Piece::new(head.desc.name),
            rows: self.blocks.of(head.rows, head.desc.kind),
            tails: head.cells.iter().map(|cell| close(head.rows, cell.iter().copied())).collect(),
            histogram: (head.desc.kind == Kind::Histogram).then(|| Histogram::new(head, self.format)),
            created: created(head, self.format),
        };
    }

    #[inline]
    fn row<'p>(&mut self, row: usize, cells: impl Iterator<Item = Option<Point<'p>>>) {
        let Body { page, format, blocks, family, .. } = self;
        let labels = family.rows[row];
        for (tail, point) in family.tails.iter().zip(cells) {
            let Some(Point { value, exemplar }) = point else { continue };
            page.sample(&family.sample, labels, tail, value);
            family.series += 1;
            if *format == Format::OpenMetrics {
                exemplar::write(page, *format, exemplar);
                if let (Some(name), Some(since)) = (&family.created, blocks.since.get(row).copied().flatten()) {
                    page.constant(name, labels, tail, since);
                    family.series += 1;
                }
            }
        }
    }

    fn histogram<'p>(
        &mut self,
        row: usize,
        cell: usize,
        buckets: impl Iterator<Item = (u64, Option<&'p Exemplar>)>,
        sum: Value,
    ) {
        let Body { page, format, family, .. } = self;
        let Some(histogram) = &family.histogram else { return };
        let (labels, mut upto) = (family.rows[row], 0);
        for (tail, (n, exemplar)) in histogram.tails[cell].iter().zip(buckets) {
            upto += n;
            page.sample(&histogram.bucket, labels, tail, Value::Int(upto));
            exemplar::write(page, *format, exemplar);
            family.series += 1;
        }
        page.sample(&histogram.sum, labels, &family.tails[cell], sum);
        page.sample(&histogram.count, labels, &family.tails[cell], Value::Int(upto));
        family.series += 2;
    }

    /// Without a series there is no header either.
    fn end(&mut self) {
        let Current { name, start, series, .. } = self.family;
        if series == 0 {
            self.page.rewind(start);
        } else {
            self.counts.push((name, series));
        }
    }
}

impl Body<'_> {
    /// Last, because it counts the others.
    fn series(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let cells: Vec<Labels<'_>> = counts.iter().map(|(family, _)| vec![("family", *family)]).collect();
        self.family(&Head { desc: &SERIES, source: Source::Agent, rows: Rows::One, cells: &cells, bounds: &[] });
        self.row(0, counts.iter().map(|(_, n)| Some(Point { value: Value::Int(*n), exemplar: None })));
        self.end();
    }
}
