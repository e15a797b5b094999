//! A walk into one body: family after family, each over all its rows.

use std::rc::Rc;
use std::sync::Arc;

use super::labels::{AllocLabels, Blocks, LabelCache, RowLabelText, WorkloadLabels, close};
use super::page::{PageBuffer, PageSink, TextPiece};
use super::{body_info, exemplar, header, protobuf};
use crate::exporters::walk::{Head, HistogramPoint, Labels, Listener, PageSource, Point, Rows, WORKLOAD_ROWS, Walk};
use crate::model::answer::Format;
use crate::model::metric::{Exemplar, Value};

/// Keeps the labels of rows from body to body. Concurrency: one body at a time asks for them.
#[derive(Debug, Default)]
pub struct Encoder {
    cache: LabelCache,
}

/// The labels of the rows of one body.
#[derive(Debug, Default)]
pub struct BodyLabels {
    allocs: Vec<Arc<AllocLabels>>,
    workloads: Vec<Arc<WorkloadLabels>>,
}

impl Encoder {
    /// Writes a whole body on a page: on `bytes`, which is used up to its length and grown where that is too short.
    /// Gives the bytes back and how many of them are the body.
    pub fn encode(&mut self, walk: &Walk<'_>, format: Format, bytes: Vec<u8>) -> (Vec<u8>, usize) {
        write(walk, format, &self.labels(walk, format), bytes, None)
    }

    /// What [`write`] needs.
    pub fn labels(&mut self, walk: &Walk<'_>, format: Format) -> BodyLabels {
        if format == Format::Protobuf {
            return BodyLabels::default();
        }
        self.cache.begin();
        let host = &*walk.snapshot.info;
        let allocs = walk.allocs.iter().map(|a| self.cache.alloc(a, host)).collect();
        let workloads = walk.snapshot.workloads.iter().map(|w| self.cache.workload(w)).collect();
        self.cache.end();
        BodyLabels { allocs, workloads }
    }
}

/// Writes a whole body, on `bytes` first. What is full goes to the sink; gives the rest, and how many bytes of it are
/// text.
pub fn write(
    walk: &Walk<'_>,
    format: Format,
    labels: &BodyLabels,
    bytes: Vec<u8>,
    sink: Option<PageSink<'_>>,
) -> (Vec<u8>, usize) {
    match format {
        Format::Protobuf => protobuf::write(walk, bytes, sink),
        Format::Text | Format::OpenMetrics => {
            write_body(walk, format, labels, PageBuffer::on(bytes, sink), |body| walk.expose(body))
        }
    }
}

fn write_body(
    walk: &Walk<'_>,
    format: Format,
    labels: &BodyLabels,
    page: PageBuffer<'_>,
    expose: impl FnOnce(&mut BodyWriter<'_, '_>),
) -> (Vec<u8>, usize) {
    let blocks = Blocks::new(&labels.allocs, &labels.workloads);
    let mut body = BodyWriter { page, format, walk, blocks: &blocks, other_labels: Vec::new(), counts: Vec::new() };
    body_info::profile(&mut body, walk);
    expose(&mut body);
    let counts = std::mem::take(&mut body.counts);
    body_info::series(&mut body, walk, &counts);
    if format == Format::OpenMetrics {
        body.page.text("# EOF\n");
    }
    body.page.finish()
}

/// See [`super::encode_page`].
pub(super) fn encode_page(walk: &Walk<'_>, format: Format, page: &impl PageSource) -> Vec<u8> {
    let blocks = Blocks::new(&[], &[]);
    let mut body = BodyWriter {
        page: PageBuffer::default(),
        format,
        walk,
        blocks: &blocks,
        other_labels: Vec::new(),
        counts: Vec::new(),
    };
    page.expose(walk, &mut body);
    if format == Format::OpenMetrics {
        body.page.text("# EOF\n");
    }
    let (mut bytes, len) = body.page.finish();
    bytes.truncate(len);
    bytes
}

/// What is being written.
struct BodyWriter<'a, 's> {
    page: PageBuffer<'s>,
    format: Format,
    walk: &'a Walk<'a>,
    blocks: &'a Blocks<'a>,
    /// The labels of rows of other kinds, rendered with their first family.
    other_labels: Vec<(&'static Rows, Rc<[RowLabelText]>)>,
    /// Series per family.
    counts: Vec<(&'static str, u64)>,
}

impl Listener for BodyWriter<'_, '_> {
    fn family<'p, C>(&mut self, head: &Head<'_>, rows: impl Iterator<Item = C>)
    where
        C: IntoIterator<Item = Option<Point<'p>>>,
    {
        let format = self.begin(head);
        let name = TextPiece::new(head.desc.name);
        let tails: Vec<TextPiece> = head.cells.iter().map(|cell| close(head.rows, cell.iter().copied())).collect();
        let created = created(head, format);
        let (other_labels, kind) = (self.labels_of_other_rows(head.rows), head.desc.kind);
        let other_labels: Vec<&RowLabelText> = other_labels.iter().collect();
        let blocks = self.blocks.of(head.rows).unwrap_or(&other_labels);
        let has_traces = self.walk.has_traces;
        let (page, mut series) = (&mut self.page, 0);
        for (row, (cells, labels)) in rows.zip(blocks).enumerate() {
            let labels = labels.of(kind);
            for (tail, point) in tails.iter().zip(cells) {
                let Some(Point { value, exemplar }) = point else { continue };
                page.sample(&name, labels, tail, value);
                series += 1;
                if format == Format::OpenMetrics {
                    exemplar::write(page, format, exemplar, has_traces);
                    if let (Some(name), Some(since)) = (&created, self.blocks.since.get(row).copied().flatten()) {
                        page.constant(name, labels, tail, since);
                        series += 1;
                    }
                }
            }
        }
        self.end(head, series);
    }

    fn histograms<'p, B>(&mut self, head: &Head<'_>, all: impl Iterator<Item = HistogramPoint<B>>)
    where
        B: IntoIterator<Item = (u64, Option<&'p Exemplar>)>,
    {
        let format = self.begin(head);
        let [bucket, sum, count] =
            ["bucket", "sum", "count"].map(|part| TextPiece::new(&format!("{}_{part}", head.desc.name)));
        let bounds = head.bounds.iter().chain([&f64::INFINITY]);
        let bounds: Vec<String> = bounds.map(|bound| upper(*bound, format)).collect();
        // What closes the lines of a cell: those of its buckets, and the other two.
        let tail = |cell: &Labels<'_>| {
            let of = |le| close(head.rows, cell.iter().copied().chain(le));
            (bounds.iter().map(|le| of(Some(("le", le.as_str())))).collect::<Vec<_>>(), of(None))
        };
        let tails: Vec<(Vec<TextPiece>, TextPiece)> = head.cells.iter().map(tail).collect();
        let other_labels = self.labels_of_other_rows(head.rows);
        let other_labels: Vec<&RowLabelText> = other_labels.iter().collect();
        let blocks = self.blocks.of(head.rows).unwrap_or(&other_labels);
        let has_traces = self.walk.has_traces;
        let (page, mut series) = (&mut self.page, 0);
        for histogram in all {
            let (labels, (tails, rest)) = (blocks[histogram.row].of(head.desc.kind), &tails[histogram.cell]);
            let mut upto = 0;
            for (tail, (n, exemplar)) in tails.iter().zip(histogram.buckets) {
                upto += n;
                page.sample(&bucket, labels, tail, Value::Int(upto));
                exemplar::write(page, format, exemplar, has_traces);
                series += 1;
            }
            page.sample(&sum, labels, rest, histogram.sum);
            page.sample(&count, labels, rest, Value::Int(upto));
            series += 2;
        }
        self.end(head, series);
    }
}

impl BodyWriter<'_, '_> {
    /// The labels of rows whose kind is not kept; of one that is, none.
    fn labels_of_other_rows(&mut self, rows: &'static Rows) -> Rc<[RowLabelText]> {
        if self.blocks.of(rows).is_some() {
            return Rc::default();
        }
        if let Some((_, labels)) = self.other_labels.iter().find(|(kind, _)| *kind == rows) {
            return Rc::clone(labels);
        }
        let render = |row| RowLabelText::render(&self.walk.subject(rows, row));
        let labels: Rc<[RowLabelText]> = (0..(rows.count)(self.walk)).map(render).collect();
        self.other_labels.push((rows, Rc::clone(&labels)));
        labels
    }

    fn begin(&mut self, head: &Head<'_>) -> Format {
        header::write(&mut self.page, head.desc, self.format);
        self.format
    }

    /// Without a series there is no header either.
    fn end(&mut self, head: &Head<'_>, series: u64) {
        self.page.end_family();
        if series > 0 {
            self.counts.push((head.desc.name, series));
        }
    }
}

/// OpenMetrics wants `1.0` where text has `1`.
fn upper(bound: f64, format: Format) -> String {
    match format {
        _ if bound == f64::INFINITY => "+Inf".to_owned(),
        Format::OpenMetrics if bound.fract() == 0.0 => format!("{bound:.1}"),
        Format::OpenMetrics | Format::Text | Format::Protobuf => bound.to_string(),
    }
}

/// The name of the samples that say since when a counter counts. OpenMetrics alone has them.
///
/// Source: OpenMetrics 1.0.0, "Counter": a sample beside the total, with the same labels. A task that fails before the
/// first scrape is first seen at 1: this says that it was 0 within the window that is asked for.
fn created(head: &Head<'_>, format: Format) -> Option<TextPiece> {
    let is_exposed = format == Format::OpenMetrics && *head.rows == WORKLOAD_ROWS;
    head.desc.created_name().filter(|_| is_exposed).map(|name| TextPiece::new(&name))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::exporters::walk::families;
    use crate::exporters::walk::{Filter, MeasuredRows, RowSubject, TASK_ROWS};
    use crate::model::alloc::{AllocIdentity, AllocSource, Measured, TaskIdentity};
    use crate::model::host::NodeInfo;
    use crate::model::id::BootId;
    use crate::model::measure::{Cell, HasFields, Measure, Nature};
    use crate::model::units::{Timestamp, Unit};
    use crate::snapshot::{Aggregation, AllocView, PerTask, Snapshot, TaskView};
    use crate::telemetry::Metrics;

    /// What a task uses of a device that there is not.
    #[derive(Debug)]
    struct RemovedDeviceUsage {
        uuid: &'static str,
        memory_bytes: Option<u64>,
        busy_ns: [u64; 2],
        live: bool,
    }

    impl HasFields for RemovedDeviceUsage {
        type Field = ();
    }

    const fn busy(
        kind: &'static [(&'static str, &'static str)],
        get: fn(&RemovedDeviceUsage) -> Option<Value>,
    ) -> Cell<RemovedDeviceUsage> {
        Cell { labels: kind, nature: Nature::Counter, unit: Unit::Seconds, get }
    }

    static MEASURES: [Measure<RemovedDeviceUsage>; 2] = [
        Measure::new(
            "memory_bytes",
            "Memory of the device.",
            &[Cell { labels: &[], nature: Nature::Live, unit: Unit::Bytes, get: |h| h.memory_bytes.map(Value::Int) }],
        ),
        Measure::new(
            "busy_seconds_total",
            "Time in which it worked.",
            &[
                busy(&[("engine", "compute")], |h| Some(Value::Nanos(h.busy_ns[0]))),
                busy(&[("engine", "copy")], |h| Some(Value::Nanos(h.busy_ns[1]))),
            ],
        ),
    ];

    static HELD: [RemovedDeviceUsage; 3] = [
        RemovedDeviceUsage { uuid: "GPU-1", memory_bytes: Some(7), busy_ns: [1_500_000_000, 0], live: true },
        RemovedDeviceUsage { uuid: "GPU-2", memory_bytes: None, busy_ns: [1, 2_000_000_000], live: true },
        RemovedDeviceUsage { uuid: "GPU-3", memory_bytes: Some(9), busy_ns: [0, 3], live: false },
    ];

    static DEVICE_ROWS: Rows = Rows::new(
        "allostat_task_device_",
        &["alloc_id", "task", "workload", "device_uuid"],
        |_| HELD.len(),
        |walk, row| {
            let RowSubject { mut labels, .. } = walk.subject(&TASK_ROWS, 0);
            labels.push(("device_uuid", HELD[row].uuid));
            RowSubject { labels, ..RowSubject::default() }
        },
    );

    static OF_DEVICES: MeasuredRows<RemovedDeviceUsage> = MeasuredRows {
        rows: &DEVICE_ROWS,
        families: LazyLock::new(|| families::of(&DEVICE_ROWS, MEASURES.iter())),
        readings: |_| HELD.iter().map(|held| (held, held.live)).collect(),
        exemplars: None,
    };

    /// Of one observed alloc with one task.
    fn snapshot() -> Snapshot {
        let info = NodeInfo {
            identity: crate::model::host::NodeIdentity::default(),
            hostname: String::new(),
            kernel: String::new(),
            boot_id: BootId(String::new()),
            booted_at: None,
            cpus: 1,
            memory_bytes: None,
            cgroup_mode: "v2".to_owned(),
            capabilities: Vec::new(),
        };
        let identity = AllocIdentity {
            id: "a".into(),
            source: AllocSource::Cgroup,
            workload: Some("shop".into()),
            namespace: String::new(),
            group: None,
            name: String::new(),
            created_at: None,
            measured: Measured::Cgroup,
            cgroup: None,
            tasks: vec![TaskIdentity { name: "web".into(), driver: None, user: None, image: None }],
        };
        let alloc = AllocView {
            identity: Arc::new(identity),
            status: None,
            observed: None,
            tasks: PerTask::from([Arc::new(TaskView {
                managed: None,
                observed: None,
                usage: Arc::default(),
                attempt: None,
                sampled_at: None,
                before: None,
                started_at: None,
                disks: None,
            })]),
            usage: Arc::default(),
            aggregation: Aggregation::Sum,
            sampled_at: None,
            ended: false,
            retired: false,
        };
        Snapshot { allocs: vec![Arc::new(alloc)], ..Snapshot::empty(Arc::new(info), Timestamp(0)) }
    }

    /// A device of a task is its rows and its measures: neither the walk nor the encoder knows of it.
    #[test]
    fn encoder_writes_any_row_kind_without_type_specific_code() {
        let (snapshot, metrics) = (snapshot(), Metrics::new());
        let (mut encoder, filter) =
            (Encoder::default(), Filter::new(["allostat_task_device_memory_bytes"], []).unwrap());
        let mut body = |filter: &Filter| {
            let walk = Walk::new(&snapshot, &metrics, filter);
            let labels = encoder.labels(&walk, Format::Text);
            let of_devices = |body: &mut BodyWriter<'_, '_>| walk.expose_measures(body, &OF_DEVICES);
            let (mut bytes, len) = write_body(&walk, Format::Text, &labels, PageBuffer::default(), of_devices);
            bytes.truncate(len);
            String::from_utf8(bytes).unwrap()
        };
        let memory = "\
# HELP allostat_task_device_memory_bytes Memory of the device.
# TYPE allostat_task_device_memory_bytes gauge
allostat_task_device_memory_bytes{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-1\"} 7
";
        let busy = "\
# HELP allostat_task_device_busy_seconds_total Time in which it worked.
# TYPE allostat_task_device_busy_seconds_total counter
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-1\",engine=\"compute\"} 1.5
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-1\",engine=\"copy\"} 0
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-2\",engine=\"compute\"} 0.000000001
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-2\",engine=\"copy\"} 2
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-3\",engine=\"compute\"} 0
allostat_task_device_busy_seconds_total{alloc_id=\"a\",task=\"web\",workload=\"shop\",device_uuid=\"GPU-3\",engine=\"copy\"} 0.000000003
";
        assert_eq!(body(&filter), memory, "absent where there is none, and gone with what has ended");
        assert!(body(&Filter::default()).contains(&format!("{memory}{busy}")));
        assert_eq!(OF_DEVICES.families[1].desc.labels.last(), Some(&"engine"));
    }
}
