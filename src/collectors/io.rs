//! Bytes and operations of a task on block devices. Source: cgroup v1 `blkio.throttle.*_recursive`, v2 `io.stat`.
//!
//! Shape: summed over devices. A stacked device (LVM, RAID, encryption) may count the same bytes once per layer.

use super::table::{File, Home, When, values};
use crate::kernel::cgroup::{blkio, io_stat};
use crate::model::metric::{AllocRule, Cell, Kind, Measure, MetricDesc, Value};
use crate::model::units::Unit;
use crate::model::usage::Field;

const BYTES: &str = "blkio.throttle.io_service_bytes_recursive";
const OPERATIONS: &str = "blkio.throttle.io_serviced_recursive";

pub(super) static FILES: &[File] = &[
    File::new(Home::V1("blkio"), BYTES, When::Asleep, |raw, bytes| {
        let (sums, error) = values(bytes, |b| blkio::parse(BYTES, b));
        raw.usage.set(Field::io_read_bytes, sums.read);
        raw.usage.set(Field::io_written_bytes, sums.write);
        raw.usage.set(Field::io_discarded_bytes, sums.discard);
        error
    })
    .only_tasks(),
    File::new(Home::V1("blkio"), OPERATIONS, When::Asleep, |raw, bytes| {
        let (sums, error) = values(bytes, |b| blkio::parse(OPERATIONS, b));
        raw.usage.set(Field::io_reads, sums.read);
        raw.usage.set(Field::io_writes, sums.write);
        error
    })
    .only_tasks(),
    File::new(Home::V2("io"), "io.stat", When::Asleep, |raw, bytes| {
        let (io, error) = values(bytes, io_stat::parse);
        raw.usage.set(Field::io_read_bytes, io.read_bytes);
        raw.usage.set(Field::io_written_bytes, io.written_bytes);
        raw.usage.set(Field::io_discarded_bytes, io.discarded_bytes);
        raw.usage.set(Field::io_reads, io.reads);
        raw.usage.set(Field::io_writes, io.writes);
        error
    })
    .only_tasks(),
];

pub static MEASURES: &[Measure] = &[
    io(
        "io_read_bytes_total",
        Unit::Bytes,
        "Bytes that the task read from block devices; what the page cache served is not counted.",
        &[Cell::plain(|u| u.io_read_bytes().map(Value::Int))],
    )
    .sources("blkio.throttle.io_service_bytes_recursive", "io.stat rbytes")
    .otlp("container.disk.io", "By"),
    io(
        "io_written_bytes_total",
        Unit::Bytes,
        "Bytes that the task wrote to block devices. On cgroup v1 only direct and synchronous writes are charged to the task: \
         buffered ones are written back later by the kernel, and not counted here.",
        &[Cell::plain(|u| u.io_written_bytes().map(Value::Int))],
    )
    .sources("blkio.throttle.io_service_bytes_recursive", "io.stat wbytes")
    .otlp("container.disk.io", "By"),
    io(
        "io_discarded_bytes_total",
        Unit::Bytes,
        "Bytes that the task told block devices to forget.",
        &[Cell::plain(|u| u.io_discarded_bytes().map(Value::Int))],
    )
    .sources("blkio.throttle.io_service_bytes_recursive (4.20)", "io.stat dbytes")
    .otlp("allostat.task.io.discarded", "By"),
    io(
        "io_reads_total",
        Unit::None,
        "Read operations of the task on block devices.",
        &[Cell::plain(|u| u.io_reads().map(Value::Int))],
    )
    .sources("blkio.throttle.io_serviced_recursive", "io.stat rios")
    .otlp("allostat.task.io.operations", "{operation}"),
    io(
        "io_writes_total",
        Unit::None,
        "Write operations of the task on block devices; on cgroup v1 without what the kernel wrote back later.",
        &[Cell::plain(|u| u.io_writes().map(Value::Int))],
    )
    .sources("blkio.throttle.io_serviced_recursive", "io.stat wios")
    .otlp("allostat.task.io.operations", "{operation}"),
];

const fn io(stem: &'static str, unit: Unit, help: &'static str, cells: &'static [Cell]) -> Measure {
    // v1 forgets what a child cgroup did when it is removed: an alloc's is the sum over its tasks.
    MetricDesc::per_task(stem, Kind::Counter, unit, help, cells)
        .absent_when("the io (v1: blkio) controller is not on")
        .for_alloc(AllocRule::Sum)
}
