//! A walk into one body: family after family, each over all its rows.

use std::sync::Arc;

use super::labels::{AllocLabels, Blocks, LabelCache, WorkloadLabels, block, close};
use super::page::{Page, Piece};
use super::{exemplar, header};
use crate::exporters::families::Level;
use crate::exporters::walk::{Head, HistogramPoint, Labels, Listener, Point, Rows, Source, Walk};
use crate::model::answer::Format;
use crate::model::metric::{Exemplar, MetricDesc, Value};
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
        let mut body = Body { page: Page::on(bytes), format, blocks: &blocks, counts: Vec::new() };
        walk.tell(&mut body);
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
}

impl Listener for Body<'_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let (format, start) = (self.format, self.begin(head));
        let name = Piece::new(head.desc.name);
        let tails: Vec<Piece> = head.cells.iter().map(|cell| close(head.rows, cell.iter().copied())).collect();
        let created = created(head, format);
        let (page, mut series) = (&mut self.page, 0);
        for (row, (cells, labels)) in rows.zip(self.blocks.of(head.rows, head.desc.kind)).enumerate() {
            for (tail, point) in tails.iter().zip(cells) {
                let Some(Point { value, exemplar }) = point else { continue };
                page.sample(&name, labels, tail, value);
                series += 1;
                if format == Format::OpenMetrics {
                    exemplar::write(page, format, exemplar);
                    if let (Some(name), Some(since)) = (&created, self.blocks.since.get(row).copied().flatten()) {
                        page.constant(name, labels, tail, since);
                        series += 1;
                    }
                }
            }
        }
        self.end(head, start, series);
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        let (format, start) = (self.format, self.begin(head));
        let [bucket, sum, count] =
            ["bucket", "sum", "count"].map(|part| Piece::new(&format!("{}_{part}", head.desc.name)));
        let bounds = head.bounds.iter().chain([&f64::INFINITY]);
        let bounds: Vec<String> = bounds.map(|bound| upper(*bound, format)).collect();
        // What closes the lines of a cell: those of its buckets, and the other two.
        let tail = |cell: &Labels<'_>| {
            let of = |le| close(head.rows, cell.iter().copied().chain(le));
            (bounds.iter().map(|le| of(Some(("le", le.as_str())))).collect::<Vec<_>>(), of(None))
        };
        let tails: Vec<(Vec<Piece>, Piece)> = head.cells.iter().map(tail).collect();
        let (page, labels, mut series) = (&mut self.page, self.blocks.of(head.rows, head.desc.kind), 0);
        for histogram in all {
            let (labels, (tails, rest)) = (labels[histogram.row], &tails[histogram.cell]);
            let mut upto = 0;
            for (tail, (n, exemplar)) in tails.iter().zip(histogram.buckets) {
                upto += n;
                page.sample(&bucket, labels, tail, Value::Int(upto));
                exemplar::write(page, format, exemplar);
                series += 1;
            }
            page.sample(&sum, labels, rest, histogram.sum);
            page.sample(&count, labels, rest, Value::Int(upto));
            series += 2;
        }
        self.end(head, start, series);
    }
}

impl Body<'_> {
    /// Gives where the family begins.
    fn begin(&mut self, head: &Head<'_>) -> usize {
        let start = self.page.len();
        header::write(&mut self.page, head.desc, self.format);
        start
    }

    /// Without a series there is no header either.
    fn end(&mut self, head: &Head<'_>, start: usize, series: u64) {
        if series == 0 {
            self.page.rewind(start);
        } else {
            self.counts.push((head.desc.name, series));
        }
    }

    /// Last, because it counts the others.
    fn series(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let cells: Vec<Labels<'_>> = counts.iter().map(|(family, _)| vec![("family", *family)]).collect();
        let head = Head { desc: &SERIES, source: Source::Agent, rows: Rows::One, cells: &cells, bounds: &[] };
        let count = |(_, n): &(&str, u64)| Some(Point { value: Value::Int(*n), exemplar: None });
        self.family(&head, std::iter::once(counts.iter().map(count)));
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
